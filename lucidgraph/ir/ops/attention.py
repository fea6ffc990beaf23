"""Attention, whole: scores, mask, softmax and the weighted sum."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan, prod
from typing import Any, ClassVar, Final

from ...dtypes import DType, float32
from ...errors import DTypeError, ShapeError
from ..builder import Var
from ..graph import Node
from ..op import ZERO, Composite, Gradient, Types, broadcast_shapes, register
from ..schema import AmpPolicy, OpSchema
from ..types import Shape, TensorType
from .arithmetic import MaskedMulBackward, WhereBackward
from .creation import counted
from .linalg import MatmulBackward
from .nn import SoftmaxBackward
from .reduce import MaxBackward
from .shape import ConcatBackward


def _wide(v: Var) -> Var:
    return v.astype(float32) if v.dtype.is_half else v


def _checked(name: str, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None) -> TensorType:
    """The type of the result. Raises :class:`DTypeError`, :class:`ShapeError`."""
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


class _Masked(Composite):
    """Base of these ops: a mask that is added has the dtype of the first operands, one that is a choice its own."""

    @classmethod
    def shared_operands(cls, count: int) -> Sequence[int]:
        return range(2)

    @classmethod
    def promoted(cls, types: Types, attrs: Any, policy: DType | None) -> tuple[DType, ...]:
        first = super().promoted(types, attrs, policy)
        return tuple(t.dtype if t.dtype.is_bool else first[0] for t in types)


@register
class AttentionBackward(_Masked):
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
    def infer(  # type: ignore[override]
        cls, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None, /,
        *, scale: float, causal: bool,
    ) -> TensorType:  # fmt: skip
        return _checked("scaled_dot_product_attention", q, k, v, mask)

    @staticmethod
    def expand(*operands: Var, scale: float, causal: bool) -> Var:  # type: ignore[override]
        dtype = operands[0].dtype
        return AttendBackward.of(*map(_wide, operands), scale=scale, causal=causal, **_PLAIN).astype(dtype)

    @classmethod
    def flops(cls, types: Any, results: Types, attrs: Any) -> int:
        return AttendBackward.flops(types, results, attrs)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        wide = AttendBackward.of(*map(_wide, self.inputs), **self.attrs, **_PLAIN)
        gradients = _gradients(wide, tuple(map(_wide, self.inputs)), wide.node.attrs, _wide(grad_out))
        pairs = zip(gradients, self.in_types, strict=True)
        return [g.astype(t.dtype) if isinstance(g, Var) else g for g, t in pairs]


class Attention(_Masked):
    """Base of the ops that are attention, or a part of its gradient, in one dtype: their attributes are those of
    ``attend``."""

    unmasked: ClassVar[int] = 3
    """How many operands come before the mask."""

    @classmethod
    def mask_of(cls, operands: Sequence[Node]) -> Node | None:
        return operands[cls.unmasked] if len(operands) > cls.unmasked else None


_PLAIN: Final[dict[str, Any]] = {"over": 1.0, "hidden": -inf, "added": False, "blind": 0.0}


@register
class AttendBackward(Attention):
    """y = P v with P = softmax(s), s = scale q kᵀ / over, in float32 or float64 alone

    What the mask and the causal order hide has the score ``hidden``, or has that ``added`` to its score. A query whose
    scores are all -∞ gets ``blind``: 0, or NaN, which is what softmax makes of it. Gradients as in
    scaled_dot_product_attention; what hides a score hides it from the gradient, unless it is added.
    """

    schema_v1 = OpSchema("attend", amp_policy=AmpPolicy.KEEP_INPUT, arity=None, internal=True)
    kSavesInput = True
    kSavesOutput = True

    @classmethod
    def infer(  # type: ignore[override]
        cls, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None, /,
        *, scale: float, over: float, causal: bool, hidden: float, added: bool, blind: float,
    ) -> TensorType:  # fmt: skip
        return _checked("attend", q, k, v, mask)

    @staticmethod
    def expand(  # type: ignore[override]
        *operands: Var, scale: float, over: float, causal: bool, hidden: float, added: bool, blind: float
    ) -> Var:
        q, k, v = operands[:3]
        weights = _weights(_scores(q, k, operands[3:], scale, over, causal, hidden, added), operands[3:], causal, blind)
        y = MatmulBackward.of(_grouped(weights, k), v)
        return y.reshape((*q.shape[:3], v.shape[3]))

    @classmethod
    def flops(cls, types: Any, results: Types, attrs: Any) -> int:
        q, k, v = (t.shape for t in types[:3])
        return int(prod(q[:3]) * k[2] * (2 * q[3] + 2 * v[3] + 5))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return _gradients(self.y, self.inputs, self.attrs, grad_out)


def _gradients(y: Var, operands: Sequence[Var], attrs: Any, grad_out: Var) -> list[Gradient]:
    """The gradient of each operand of an ``attend`` whose result is ``y``."""
    q, k, v, *mask = operands
    rows = AttendRowsBackward.of(q, k, v, *mask, **{name: attrs[name] for name in AttendRowsBackward.attributes()})

    def to(wrt: str) -> Var:
        return AttendGradientBackward.of(q, k, v, grad_out, y, rows, *mask, **attrs, wrt=wrt)

    return [to("q"), to("k"), to("v"), *(ZERO if m.dtype.is_bool else to("scores").sum_to(m.shape) for m in mask)]


@register
class AttendRowsBackward(Attention):
    """m = max s and Σ exp(s - m) of each row of ``attend``'s scores: (batch, heads, queries, 2)

    From these its gradient computes the weights again, instead of keeping them.
    """

    schema_v1 = OpSchema("attend_rows", amp_policy=AmpPolicy.KEEP_INPUT, arity=None, internal=True)
    kSavesInput = ("q", "k", "mask")

    @classmethod
    def infer(  # type: ignore[override]
        cls, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None, /,
        *, scale: float, over: float, causal: bool, hidden: float, added: bool,
    ) -> TensorType:  # fmt: skip
        return TensorType((*q.shape[:3], 2), q.dtype)

    @staticmethod
    def expand(  # type: ignore[override]
        *operands: Var, scale: float, over: float, causal: bool, hidden: float, added: bool
    ) -> Var:
        q, k, _, *mask = operands
        scores = _scores(q, k, mask, scale, over, causal, hidden, added)
        if not scores.size:
            nothing = q.scalar(0).broadcast_to((*q.shape[:3], 1))
            return ConcatBackward.of(nothing - inf, nothing, axis=3)
        top = MaxBackward.of(scores, axis=(3,), keepdims=True)
        from_top = scores - WhereBackward.of(top == top.full(-inf), top.full(0), top)
        return ConcatBackward.of(top, from_top.emit("exp").sum((3,), keepdims=True), axis=3)

    @classmethod
    def flops(cls, types: Any, results: Types, attrs: Any) -> int:
        q, k = (t.shape for t in types[:2])
        return int(prod(q[:3]) * k[2] * (2 * q[3] + 4))


@register
class AttendGradientBackward(Attention):
    """∂L/∂q, ∂L/∂k, ∂L/∂v or ∂L/∂s of ``attend``, as ``wrt`` says, given g = ∂L/∂y

    Operands are q, k, v, g, the result y, what ``attend_rows`` gives, and the mask. Written out, it needs neither y nor
    those rows.
    """

    schema_v1 = OpSchema("attend_gradient", amp_policy=AmpPolicy.KEEP_INPUT, arity=None, internal=True)
    unmasked = 6
    kSavesInput = ("q", "k", "v", "g", "mask")

    @classmethod
    def infer(  # type: ignore[override]
        cls, q: TensorType, k: TensorType, v: TensorType, g: TensorType, y: TensorType, rows: TensorType,
        mask: TensorType | None = None, /,
        *, scale: float, over: float, causal: bool, hidden: float, added: bool, blind: float, wrt: str,
    ) -> TensorType:  # fmt: skip
        return TensorType((*q.shape[:3], k.shape[2]), q.dtype) if wrt == "scores" else {"q": q, "k": k, "v": v}[wrt]

    @staticmethod
    def expand(  # type: ignore[override]
        *operands: Var, scale: float, over: float, causal: bool, hidden: float, added: bool, blind: float, wrt: str
    ) -> Var:
        q, k, v, g, _, _, *mask = operands
        # The forward pass's own, where both are written out in one graph.
        weights = _weights(_scores(q, k, mask, scale, over, causal, hidden, added), mask, causal, blind)
        rows = _grouped(g, k)
        if wrt == "v":
            return MatmulBackward.of(_grouped(weights, k).swap_last(), rows)
        along = MatmulBackward.of(rows, v.swap_last()).reshape(weights.shape)
        total = MaskedMulBackward.of(along, weights).sum((3,), keepdims=True)
        moved = MaskedMulBackward.of(along - total, weights)
        if hidden > -inf and not added:
            for seen in _seen(q, k, mask, causal):
                moved = WhereBackward.of(seen, moved, moved.full(0))
        if wrt == "scores":
            return moved
        scaled = _grouped((moved if over == 1 else moved / over) * scale, k)
        if wrt == "q":
            return MatmulBackward.of(scaled, k).reshape(q.shape)
        return MatmulBackward.of(scaled.swap_last(), _grouped(q, k))

    @classmethod
    def flops(cls, types: Any, results: Types, attrs: Any) -> int:
        q, k, v = (t.shape for t in types[:3])
        # A third of what the three have in common: scores, weights, and what arrives at them.
        own = {"q": q[3], "k": q[3], "v": v[3], "scores": 0}[attrs["wrt"]]
        return int(prod(q[:3]) * k[2] * (2 * own + (2 * q[3] + 2 * v[3] + 8) // 3))


def _grouped(v: Var, k: Var) -> Var:
    """(batch, heads, queries, n) with the heads that share keys one below the other: (batch, heads of keys, …, n)."""
    batch, heads, queries, n = v.shape
    share = heads // k.shape[1] if k.shape[1] else 0
    return v.reshape((batch, k.shape[1], share * queries, n))


def _seen(q: Var, k: Var, mask: Sequence[Var], causal: bool) -> list[Var]:
    """What a mask that is a choice, and the causal order, let be seen: (batch, heads, queries, keys) each."""
    shape: Shape = (*q.shape[:3], k.shape[2])
    found = [m.broadcast_to(shape) for m in mask if m.dtype.is_bool]
    if causal:
        queries, keys = shape[2:]
        last = counted(q, queries).reshape((queries, 1)) + (keys - queries)
        found.append(counted(q, keys).binary("less_equal", last).broadcast_to(shape))
    return found


def _scores(
    q: Var, k: Var, mask: Sequence[Var], scale: float, over: float, causal: bool, hidden: float, added: bool
) -> Var:
    """Of every query and key: (batch, heads, queries, keys)."""
    shape: Shape = (*q.shape[:3], k.shape[2])
    scores = MatmulBackward.of(_grouped(q, k), k.swap_last()).reshape(shape) * scale
    if not scores.size:
        return scores
    if over != 1:
        scores = scores / over
    for m in mask:
        if not m.dtype.is_bool:
            scores = scores + m
    for seen in _seen(q, k, mask, causal):
        scores = WhereBackward.of(seen, scores, scores + hidden if added else scores.full(hidden))
    return scores


def _weights(scores: Var, mask: Sequence[Var], causal: bool, blind: float) -> Var:
    """The softmax over the keys: (batch, heads, queries, keys)."""
    if not scores.size:
        return scores
    weights = SoftmaxBackward.of(scores, axis=3)
    if not isnan(blind) and (mask or (causal and scores.shape[2] > scores.shape[3])):
        top = MaxBackward.of(scores, axis=(3,), keepdims=True)
        nothing = (top == top.full(-inf)).broadcast_to(scores.shape)
        weights = WhereBackward.of(nothing, weights.full(0), weights)
    return weights


__all__ = ["AttendBackward", "AttendGradientBackward", "AttendRowsBackward", "Attention", "AttentionBackward"]
