"""Sums of products: matmul, which every backend hands to its BLAS, and what is written out in it; norms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, prod
from typing import Any

import numpy as np

from ...dtypes import float32, to_real
from ...errors import DTypeError, ShapeError
from ..builder import Var
from ..op import Composite, Gradient, Op, Types, broadcast_shapes, register
from ..schema import AmpPolicy, OpSchema
from ..types import Shape, TensorType
from .arithmetic import ConjBackward, MaskedDivBackward, MaskedMulBackward, SignBackward
from .reduce import Axes, Reduction, reduced_shape
from .shape import SliceBackward


def check_contraction(name: str, types: Sequence[TensorType]) -> None:
    """Raise :class:`DTypeError` where operands of a contraction differ in dtype or are boolean."""
    if len({t.dtype for t in types}) > 1:
        raise DTypeError(f"{name} needs equal dtypes, not {' and '.join(map(str, types))}")
    if types[0].dtype.is_bool:
        raise DTypeError(
            f"{name} has no meaning for booleans: {' and '.join(map(str, types))}",
            hint="cast one operand to an integer to count, or compare the result with 0",
        )


@register
class MatmulBackward(Op):
    """y[…, i, j] = Σ_k a[…, i, k] b[…, k, j]      ∂L/∂a = g bᵀ, ∂L/∂b = aᵀ g

    The batch shapes are equal, or one operand is a matrix that the whole batch shares: its gradient is one product of
    matrices over the flattened batch. Half precision is multiplied and added in float32; integers wrap. An empty sum
    gives 0.
    """

    schema_v1 = OpSchema("matmul", amp_policy=AmpPolicy.PROMOTE, contraction=True, arity=2)
    kSavesInput = True

    @classmethod
    def broadcasted(cls, types: Types, attrs: Any) -> tuple[Shape, ...]:
        a, b = types
        if a.ndim <= 2 or b.ndim <= 2:
            return a.shape, b.shape
        batch = broadcast_shapes([a.shape[:-2], b.shape[:-2]], "the leading axes of matmul")
        return (*batch, *a.shape[-2:]), (*batch, *b.shape[-2:])

    @classmethod
    def infer(cls, a: TensorType, b: TensorType) -> TensorType:
        check_contraction("matmul", [a, b])
        if a.ndim < 2 or b.ndim < 2:
            raise ShapeError(f"matmul takes matrices or batches of them, not {a} and {b}", hint="multiply for scalars")
        if a.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"matmul of {a} and {b}: {a.shape[-1]} columns meet {b.shape[-2]} rows",
                hint="transpose an operand: lucidgraph.matrix_transpose",
            )
        if a.ndim > 2 and b.ndim > 2 and a.shape[:-2] != b.shape[:-2]:
            raise ShapeError(f"matmul of {a} and {b}: leading axes are equal, or one operand is a matrix")
        batch = a.shape[:-2] or b.shape[:-2]
        return TensorType((*batch, a.shape[-2], b.shape[-1]), a.dtype)

    @classmethod
    def evaluate(cls, a: Any, b: Any) -> Any:
        return np.matmul(a, b)

    @classmethod
    def flops(cls, types: Sequence[TensorType], results: Types, attrs: Any) -> int:
        return 2 * types[0].shape[-1] * results[0].size

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        a, b = self.inputs
        if a.ndim == 2 < b.ndim:
            to_a = MatmulBackward.of(_beside(grad_out), _beside(b).swap_last())
        else:
            to_a = MatmulBackward.of(grad_out, b.swap_last())
        if b.ndim == 2 < a.ndim:
            to_b = MatmulBackward.of(stacked_rows(a).swap_last(), stacked_rows(grad_out))
        else:
            to_b = MatmulBackward.of(a.swap_last(), grad_out)
        return [to_a, to_b]


def stacked_rows(v: Var) -> Var:
    """A batch of matrices, one below the other: (…, m, n) as (… m, n)."""
    return v.reshape((prod(v.shape[:-1]), v.shape[-1]))


def _beside(v: Var) -> Var:
    """A batch of matrices, one beside the other: (…, m, n) as (m, … n)."""
    rows = v.ndim - 2
    moved = v.permute((rows, *range(rows), rows + 1))
    return moved.reshape((moved.shape[0], prod(moved.shape[1:])))


@register
class EinsumBackward(Composite):
    """y[out] = Σ_{labels not in out} Π_k x_k[labels of x_k]

    ``subscripts`` is in normal form: one letter per axis, ``->``, the result's letters. An axis of size 1 fits every
    size. Written out pair by pair along opt_einsum's path: diagonals, sums over letters of one operand alone,
    products where nothing is summed, matmul elsewhere.
    """

    schema_v1 = OpSchema("einsum", amp_policy=AmpPolicy.PROMOTE, contraction=True, arity=None)
    kSavesInput = True
    bare = "subscripts"

    @classmethod
    def infer(cls, *operands: TensorType, subscripts: str) -> TensorType:  # type: ignore[override]
        check_contraction("einsum", operands)
        sizes = label_sizes(subscripts, [t.shape for t in operands])
        return TensorType(tuple(sizes[label] for label in subscripts.partition("->")[2]), operands[0].dtype)

    @staticmethod
    def expand(*operands: Var, subscripts: str) -> Var:  # type: ignore[override]
        sizes = label_sizes(subscripts, [v.shape for v in operands])
        given, _, out = subscripts.partition("->")
        terms = [_distinct(v, labels, sizes) for v, labels in zip(operands, given.split(","), strict=True)]
        for places in _path(terms, out):
            group = [terms.pop(k) for k in sorted(places, reverse=True)][::-1]
            needed = set(out).union(*(labels for _, labels in terms))
            first = group[0]
            for k, second in enumerate(group[1:], start=2):
                later = needed.union(*(labels for _, labels in group[k:]))
                first = _contracted(*first, *second, later, out)
            terms.append(first)
        value, labels = _summed(*terms[0], set(out))
        return value.permute(tuple(labels.index(label) for label in out))

    @classmethod
    def flops(cls, types: Sequence[TensorType], results: Types, attrs: Any) -> int:
        sizes = label_sizes(attrs["subscripts"], [t.shape for t in types])
        # Of the whole product at once: an upper bound where a path of pairs does less.
        return max(len(types), 1) * prod(sizes.values())


def label_sizes(subscripts: str, shapes: Sequence[Shape]) -> dict[str, int]:
    """The size of every letter of subscripts in normal form. Raises :class:`ShapeError` where they do not fit.

    >>> label_sizes("ij,jk->ik", [(2, 3), (3, 4)])
    {'i': 2, 'j': 3, 'k': 4}
    """
    given, arrow, out = subscripts.partition("->")
    terms = given.split(",")
    if not arrow or len(terms) != len(shapes) or not all(c.isalpha() for c in "".join(terms) + out):
        raise ShapeError(f"einsum {subscripts!r} of {len(shapes)} operands: letters for each, then -> and the result's")
    sizes: dict[str, int] = {}
    for labels, shape in zip(terms, shapes, strict=True):
        if len(labels) != len(shape):
            raise ShapeError(f"einsum {subscripts!r}: {labels!r} names the axes of an operand of shape {shape}")
        own: dict[str, int] = {}
        for label, size in zip(labels, shape, strict=True):
            if own.setdefault(label, size) != size:
                raise ShapeError(f"einsum {subscripts!r}: {label!r} is {own[label]} and {size} in one operand, {shape}")
        for label, size in own.items():
            if sizes.setdefault(label, size) == 1:
                sizes[label] = size
            elif size not in (1, sizes[label]):
                raise ShapeError(f"einsum {subscripts!r}: {label!r} is {sizes[label]} and {size} in two operands")
    if len(set(out)) < len(out) or not set(out) <= sizes.keys():
        raise ShapeError(f"einsum {subscripts!r}: the result names each of its letters once, and operands' only")
    return sizes


_Term = tuple[Var, str]


def _distinct(v: Var, labels: str, sizes: dict[str, int]) -> _Term:
    """An operand whose letters differ and have their full size: diagonals taken, stretched axes left out."""
    while len(set(labels)) < len(labels):
        label = next(label for label in labels if labels.count(label) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        rest = [k for k in range(v.ndim) if k not in (first, second)]
        v = diagonal_of(v.permute((*rest, first, second)))
        labels = "".join(labels[k] for k in rest) + label
    stretched = tuple(k for k, label in enumerate(labels) if v.shape[k] == 1 != sizes[label])
    return v.squeeze(stretched), "".join(label for k, label in enumerate(labels) if k not in stretched)


def diagonal_of(v: Var) -> Var:
    """The diagonals of square matrices, (…, n, n) as (…, n): every (n + 1)-th element of their rows in a row."""
    n, lead = v.shape[-1], v.ndim - 2
    flat = v.reshape((*v.shape[:-2], n * n))
    return SliceBackward.of(
        flat, start=(0,) * (lead + 1), stop=flat.shape, step=(1,) * lead + (n + 1 if n else 1,)
    )  # fmt: skip


def _path(terms: Sequence[_Term], out: str) -> Sequence[tuple[int, ...]]:
    if len(terms) <= 2:
        return [tuple(range(len(terms)))]
    import opt_einsum

    subscripts = ",".join(labels for _, labels in terms) + "->" + out
    path, _ = opt_einsum.contract_path(subscripts, *(v.shape for v, _ in terms), shapes=True)
    return [tuple(places) for places in path]


def _summed(v: Var, labels: str, needed: Iterable[str]) -> _Term:
    """``v`` without the axes that nothing else needs."""
    kept = set(needed)
    axes = tuple(k for k, label in enumerate(labels) if label not in kept)
    return v.sum(axes), "".join(label for label in labels if label in kept)


def _contracted(a: Var, la: str, b: Var, lb: str, needed: set[str], out: str) -> _Term:
    """The product of two operands, summed over the letters that are in both and not ``needed``."""
    a, la = _summed(a, la, needed | set(lb))
    b, lb = _summed(b, lb, needed | set(la))

    def ordered(labels: Iterable[str]) -> str:
        """In the result's order first, so that it need not be permuted."""
        return "".join(sorted(labels, key=lambda label: out.find(label) if label in out else len(out)))

    shared = [label for label in la if label in lb]
    over = "".join(label for label in shared if label not in needed)
    batch = ordered(label for label in shared if label in needed)
    left, right = ordered(k for k in la if k not in lb), ordered(k for k in lb if k not in la)
    if not over:
        labels = ordered(batch + left + right)
        return _spread(a, la, labels) * _spread(b, lb, labels), labels
    if right and left and right[0] in out and (left[0] not in out or out.index(right[0]) < out.index(left[0])):
        a, la, left, b, lb, right = b, lb, right, a, la, left
    size = {label: n for v, labels in ((a, la), (b, lb)) for label, n in zip(labels, v.shape, strict=True)}
    shapes = {group: tuple(size[label] for label in group) for group in (batch, left, right, over)}
    rows = shapes[left] if left and not batch else (prod(shapes[left]),)
    inner, columns = prod(shapes[over]), prod(shapes[right])
    product = MatmulBackward.of(
        _arranged(a, la, batch + left + over).reshape((*shapes[batch], *rows, inner)),
        _arranged(b, lb, batch + over + right).reshape((*shapes[batch], inner, columns)),
    )
    return product.reshape((*shapes[batch], *shapes[left], *shapes[right])), batch + left + right


def _arranged(v: Var, labels: str, order: str) -> Var:
    return v.permute(tuple(labels.index(label) for label in order))


def _spread(v: Var, labels: str, order: str) -> Var:
    """``v`` with an axis, of size 1 where it has none, for every letter of ``order``."""
    v = _arranged(v, labels, "".join(label for label in order if label in labels))
    return v.expand_dims(tuple(k for k, label in enumerate(order) if label not in labels))


@register
class VectorNormBackward(Composite):
    """y = (Σ_{i ∈ axes} |x_i|^p)^(1/p)      ∂L/∂x_i = g sign(x_i) (|x_i| / y)^(p - 1), and 0 at the zero vector

    p is ``ord``, finite and not 0; for complex x, sign is x/|x|, conjugated. Half precision is computed in float32.
    """

    schema_v1 = OpSchema("vector_norm", real_valued=True)
    kSavesInput = True
    kSavesOutput = True
    takes_wide_gradient = True

    @classmethod
    def infer(cls, x: TensorType, *, axis: Axes, keepdims: bool, ord: float) -> TensorType:  # type: ignore[override]
        Reduction.check.__func__(cls, x, axis)  # type: ignore[attr-defined]
        if not -inf < ord < inf or ord == 0:
            raise ShapeError(f"vector_norm of order {ord}: a finite order that is not 0")
        return TensorType(reduced_shape(x.shape, axis, keepdims), to_real(x.dtype))

    @staticmethod
    def expand(x: Var, *, axis: Axes, keepdims: bool, ord: float) -> Var:  # type: ignore[override]
        size = x.astype(float32) if x.dtype.is_half else x
        if x.dtype.is_complex or ord % 2:
            size = size.emit("abs")
        total = (size * size if ord == 2 else _power(size, ord)).sum(axis, keepdims)
        root = total.emit("sqrt") if ord == 2 else _power(total, 1.0 / ord)
        return root.astype(to_real(x.dtype))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        ord, wide = self.attrs["ord"], [v.astype(float32) if v.dtype.is_half else v for v in (grad_out, self.x, self.y)]
        if not self.attrs["keepdims"]:
            wide[0], wide[2] = (v.expand_dims(self.attrs["axis"]) for v in (wide[0], wide[2]))
        x = wide[1]
        g, y = (v.astype(x.dtype).broadcast_to(x.shape) for v in (wide[0], wide[2]))
        if x.dtype.is_complex:
            x = ConjBackward.of(x)
        # x/y, and 0 at the zero vector; the power of the ratio cannot overflow where that of x could.
        slope = MaskedDivBackward.of(x, y)
        if ord != 2:
            size = _power(slope.emit("abs"), ord - 1).astype(x.dtype)
            slope = MaskedMulBackward.of(SignBackward.of(x), size)
        return [MaskedMulBackward.of(g, slope).astype(self.x.dtype)]


def _power(v: Var, exponent: float) -> Var:
    return v if exponent == 1 else v.binary("pow", float(exponent))
