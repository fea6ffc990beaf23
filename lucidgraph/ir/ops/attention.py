"""Attention, whole: scores, mask, softmax and the weighted sum."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from ...dtypes import DType, float32
from ...errors import DTypeError, ShapeError
from ..builder import Var
from ..op import ZERO, Composite, Gradient, Types, broadcast_shapes, register
from ..schema import AmpPolicy, OpSchema
from ..types import Shape, TensorType
from .arithmetic import MaskedMulBackward, WhereBackward
from .creation import counted
from .linalg import MatmulBackward
from .nn import SoftmaxBackward
from .reduce import MaxBackward


def _wide(v: Var) -> Var:
    return v.astype(float32) if v.dtype.is_half else v


@register
class AttentionBackward(Composite):
    """y = P v with P = softmax(scale q kᵀ + mask)      ∂L/∂v = Pᵀ g, ∂L/∂q = scale D k, ∂L/∂k = scale Dᵀ q,
    ∂L/∂mask = D, with D = P ∘ (A - Σ A ∘ P) over the keys and A = g vᵀ

    q is (batch, heads, queries, n), k and v are (batch, heads of keys, keys, n): each of their heads serves equally
    many neighbouring heads of q. The mask broadcasts to (batch, heads, queries, keys); a boolean one says what may be
    seen, another is added. ``causal``: query i sees the keys up to i + keys - queries. Who may see nothing gets 0.

    Under autocast the operands go to its dtype. Scores, softmax and sums of half precision are float32; the result is
    rounded once.
    """

    schema_v1 = OpSchema("scaled_dot_product_attention", amp_policy=AmpPolicy.PROMOTE, contraction=True, arity=None)
    kSavesInput = True
    takes_wide_gradient = True

    @classmethod
    def shared_operands(cls, count: int) -> Sequence[int]:
        return range(3)

    @classmethod
    def promoted(cls, types: Types, attrs: Any, policy: DType | None) -> tuple[DType, ...]:
        first = super().promoted(types[:3], attrs, policy)
        # What is added has the operands' dtype; what is a choice stays one.
        return (*first, *(t.dtype if t.dtype.is_bool else first[0] for t in types[3:]))

    @classmethod
    def infer(  # type: ignore[override]
        cls, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None, /,
        *, scale: float, causal: bool,
    ) -> TensorType:  # fmt: skip
        name = "scaled_dot_product_attention"
        given = [q, k, v] if mask is None or mask.dtype.is_bool else [q, k, v, mask]
        if len({t.dtype for t in given}) > 1 or not q.dtype.is_floating:
            raise DTypeError(f"{name} takes floating operands of one dtype, not {', '.join(map(str, given))}")
        if not q.ndim == k.ndim == v.ndim == 4:
            raise ShapeError(f"{name} takes (batch, heads, length, features), not {q}, {k} and {v}")
        fits = q.shape[0] == k.shape[0] == v.shape[0] and q.shape[3] == k.shape[3] and k.shape[1:3] == v.shape[1:3]
        if not fits or (q.shape[1] % k.shape[1] if k.shape[1] else q.shape[1]):
            raise ShapeError(
                f"{name} of {q}, {k} and {v}: equal batches, equal features of q and k, equal heads and lengths of k "
                "and v, and heads of q that are a multiple of theirs"
            )
        if mask is not None:
            scores = (*q.shape[:3], k.shape[2])
            if broadcast_shapes([scores, mask.shape], f"the mask of {name}") != scores:
                raise ShapeError(f"{name}: a mask {mask} does not broadcast to the scores {scores}")
        return TensorType((*q.shape[:3], v.shape[3]), q.dtype)

    @staticmethod
    def expand(*operands: Var, scale: float, causal: bool) -> Var:  # type: ignore[override]
        q, k, v = map(_wide, operands[:3])
        weights = _weights(q, k, operands[3:], scale, causal)
        y = MatmulBackward.of(_grouped(weights, k), v)
        return y.reshape((*q.shape[:3], v.shape[3])).astype(operands[0].dtype)

    @classmethod
    def flops(cls, types: Any, results: Types, attrs: Any) -> int:
        q, k, v = (t.shape for t in types[:3])
        return int(prod(q[:3]) * k[2] * (2 * q[3] + 2 * v[3] + 5))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        q, k, v = map(_wide, self.inputs[:3])
        mask, scale = self.inputs[3:], self.attrs["scale"]
        # The forward pass's own, where both are written out in one graph.
        weights = _weights(q, k, mask, scale, self.attrs["causal"])
        rows = _grouped(_wide(grad_out), k)
        to_v = MatmulBackward.of(_grouped(weights, k).swap_last(), rows)
        along = MatmulBackward.of(rows, v.swap_last()).reshape(weights.shape)
        total = MaskedMulBackward.of(along, weights).sum((3,), keepdims=True)
        moved = MaskedMulBackward.of(along - total, weights)
        scaled = _grouped(moved * scale, k)
        to_q = MatmulBackward.of(scaled, k).reshape(q.shape)
        to_k = MatmulBackward.of(scaled.swap_last(), _grouped(q, k))
        found: list[Gradient] = [to.astype(t.dtype) for to, t in zip((to_q, to_k, to_v), self.in_types, strict=False)]
        return [*found, *(ZERO if m.dtype.is_bool else moved.sum_to(m.shape).astype(m.dtype) for m in mask)]


def _grouped(v: Var, k: Var) -> Var:
    """(batch, heads, queries, n) with the heads that share keys one below the other: (batch, heads of keys, …, n)."""
    batch, heads, queries, n = v.shape
    share = heads // k.shape[1] if k.shape[1] else 0
    return v.reshape((batch, k.shape[1], share * queries, n))


def _weights(q: Var, k: Var, mask: Sequence[Var], scale: float, causal: bool) -> Var:
    """The softmax over the keys that may be seen: (batch, heads, queries, keys)."""
    shape: Shape = (*q.shape[:3], k.shape[2])
    scores = MatmulBackward.of(_grouped(q, k), k.swap_last()).reshape(shape) * scale
    if not scores.size:
        return scores
    for m in mask:
        if m.dtype.is_bool:
            scores = WhereBackward.of(m.broadcast_to(shape), scores, scores.full(-inf))
        else:
            scores = scores + _wide(m).astype(scores.dtype)
    if causal:
        queries, keys = shape[2:]
        last = counted(q, queries).reshape((queries, 1)) + (keys - queries)
        seen = counted(q, keys).binary("less_equal", last)
        scores = WhereBackward.of(seen.broadcast_to(shape), scores, scores.full(-inf))
    weights = SoftmaxBackward.of(scores, axis=3)
    if mask or (causal and shape[2] > shape[3]):
        top = MaxBackward.of(scores, axis=(3,), keepdims=True)
        blind = (top == top.full(-inf)).broadcast_to(shape)
        weights = WhereBackward.of(blind, weights.full(0), weights)
    return weights


__all__ = ["AttentionBackward"]
