"""Linear algebra, as the Array API's ``linalg``, NumPy and MLX spell it.

Products of arrays are contractions: half precision is multiplied and added in float32, integers wrap in their common
dtype, booleans are refused, and autocast runs them in its dtype.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from ..dtypes import float32, to_real
from ..errors import AxisError, DTypeError, ShapeError, UnsupportedError
from ..ir.op import get
from .arithmetic import abs as _absolute
from .arithmetic import conj, multiply
from .axes import many_axes, one_axis, whole
from .compare import not_equal
from .index import getitem
from .reduce import max as _max
from .reduce import min as _min
from .reduce import sum as _sum
from .shape import expand_dims, matrix_transpose, reshape, roll, squeeze
from .tensor import Tensor, apply, asarray

__all__ = [
    "cross", "diagonal", "dot", "einsum", "inner", "matmul", "matrix_norm", "matrix_transpose", "norm", "outer",
    "tensordot", "trace", "vdot", "vecdot", "vector_norm",
]  # fmt: skip


def matmul(x1: Any, x2: Any) -> Tensor:
    """Σ_k x1[…, i, k] x2[…, k, j]: (…, m, k) with (…, k, n) gives (…, m, n), leading axes broadcast.

    A vector on the left is a row, on the right a column, and its axis is missing in the result. Raises
    :class:`ShapeError` for scalars and for sizes that do not meet, :class:`DTypeError` for booleans.

    >>> matmul(asarray([[1, 2], [3, 4]]), asarray([1, 1])).tolist()
    [3, 7]
    """
    a, b = asarray(x1), asarray(x2)
    row, column = a.ndim == 1, b.ndim == 1
    if row:
        a = expand_dims(a, 0)
    if column:
        b = expand_dims(b, 1)
    y = apply(get("matmul"), a, b)
    gone = ((y.ndim - 2,) if row else ()) + ((y.ndim - 1,) if column else ())
    return squeeze(y, gone) if gone else y


def dot(x1: Any, x2: Any) -> Tensor:
    """NumPy's dot: the product of scalars, matmul of vectors and matrices, else the sum over x1's last and x2's last
    but one axis.

    >>> dot(asarray([1.0, 2.0]), asarray([3.0, 4.0])).item()
    11.0
    """
    a, b = asarray(x1), asarray(x2)
    if not a.ndim or not b.ndim:
        return multiply(a, b)
    if a.ndim <= 2 and b.ndim <= 2:
        return matmul(a, b)
    return tensordot(a, b, axes=((a.ndim - 1,), (max(b.ndim - 2, 0),)))


def vdot(x1: Any, x2: Any) -> Tensor:
    """Σ conj(x1) x2 over all elements, in order, of two arrays of equal size.

    >>> vdot(asarray([1 + 2j]), asarray([1 + 2j])).item()
    (5+0j)
    """
    a, b = (reshape(x, (-1,)) for x in (x1, x2))
    return matmul(_conj(a), b)


def vecdot(x1: Any, x2: Any, axis: int = -1) -> Tensor:
    """Σ conj(x1) x2 along ``axis``, which is of one size in both; the other axes broadcast.

    >>> vecdot(asarray([[1, 2], [3, 4]]), asarray([1, 1])).tolist()
    [3, 7]
    """
    a, b = asarray(x1), asarray(x2)
    sizes = [x.shape[one_axis(axis, x.ndim, "vecdot")] for x in (a, b)]
    if sizes[0] != sizes[1]:
        raise ShapeError(f"vecdot of shapes {a.shape} and {b.shape}: axis {axis} has sizes {sizes[0]} and {sizes[1]}")
    width = max(a.ndim, b.ndim) - 1
    names = string.ascii_lowercase[:width]

    def labels(x: Tensor) -> str:
        k, lead = one_axis(axis, x.ndim, "vecdot"), names[width - x.ndim + 1 :]
        return lead[:k] + "Z" + lead[k:]

    return apply(get("einsum"), _conj(a), b, subscripts=f"{labels(a)},{labels(b)}->{names}")


def inner(x1: Any, x2: Any) -> Tensor:
    """Σ over the last axes of both: (…, k) with (…', k) gives (…, …').

    >>> inner(asarray([[1, 2], [3, 4]]), asarray([1, 1])).tolist()
    [3, 7]
    """
    a, b = asarray(x1), asarray(x2)
    if not a.ndim or not b.ndim:
        return multiply(a, b)
    return tensordot(a, b, axes=((a.ndim - 1,), (b.ndim - 1,)))


def outer(x1: Any, x2: Any) -> Tensor:
    """The products x1_i x2_j of flattened arrays, of shape (x1.size, x2.size).

    >>> outer(asarray([1, 2]), asarray([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    a, b = asarray(x1), asarray(x2)
    return multiply(reshape(a, (a.size, 1)), reshape(b, (1, b.size)))


def _axes_of(axis: Any, what: str) -> tuple[Any, ...]:
    """One axis or several as a tuple."""
    return tuple(axis) if isinstance(axis, Iterable) and getattr(axis, "ndim", 1) > 0 else (whole(axis, what),)


def tensordot(x1: Any, x2: Any, axes: int | Sequence[Any] = 2) -> Tensor:
    """Σ over pairs of axes: the last ``axes`` of x1 with the first of x2, or ``(axes of x1, axes of x2)``.

    >>> tensordot(asarray([[1, 2], [3, 4]]), asarray([[1, 0], [0, 1]])).item()
    5
    """
    a, b = asarray(x1), asarray(x2)
    if not isinstance(axes, Iterable) or not getattr(axes, "ndim", 1):
        axes = whole(axes, "tensordot")
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise AxisError(f"tensordot over {axes} axes of shapes {a.shape} and {b.shape}")
        pairs = [(a.ndim - axes + k, k) for k in range(axes)]
    else:
        left, right = (list(_axes_of(k, "tensordot")) for k in axes)
        if len(left) != len(right):
            raise AxisError(f"tensordot over axes {left} of one operand and {right} of the other: not as many")
        many_axes(left, a.ndim, "tensordot")
        many_axes(right, b.ndim, "tensordot")
        pairs = [(m % a.ndim, n % b.ndim) for m, n in zip(left, right, strict=True)]
    for m, n in pairs:
        if a.shape[m] != b.shape[n]:
            raise ShapeError(f"tensordot of shapes {a.shape} and {b.shape}: axis {m} meets axis {n} of another size")
    la = string.ascii_letters[: a.ndim]
    lb = list(string.ascii_letters[a.ndim : a.ndim + b.ndim])
    for m, n in pairs:
        lb[n] = la[m]
    out = "".join(label for label in (*la, *lb) if not (label in la and label in lb))
    return apply(get("einsum"), a, b, subscripts=f"{la},{''.join(lb)}->{out}")


def einsum(subscripts: Any, *operands: Any) -> Tensor:
    """Einstein's sum: products of elements summed over the letters that the result does not name.

    ``"ij,jk->ik"`` is matmul. ``...`` stands for leading axes that broadcast; without ``->`` the result has the letters
    that occur once, in alphabetical order; a letter twice in one operand takes its diagonal. NumPy's other form,
    ``einsum(x, [0, 1], y, [1, 2], [0, 2])``, is taken as well. Several operands are contracted pair by pair along the
    path that opt_einsum finds. Raises :class:`ShapeError` for subscripts that do not fit.

    >>> einsum("ii->i", asarray([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists((subscripts, *operands))
    arrays = [asarray(x) for x in operands]
    if not arrays:
        raise ShapeError(f"einsum {subscripts!r} needs operands")
    return apply(get("einsum"), *arrays, subscripts=_normal(subscripts, [x.ndim for x in arrays]))


def _from_lists(given: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Subscripts and operands of ``einsum(x, [0, 1], y, [1, 2], [0, 2])``."""

    def letters(numbers: Any) -> str:
        try:
            return "".join("..." if k is Ellipsis else string.ascii_letters[k] for k in numbers)
        except (TypeError, IndexError):
            raise DTypeError(
                f"einsum takes a string of subscripts, or lists of numbers below 52, not {numbers!r:.80}"
            ) from None

    count = len(given) // 2
    text = ",".join(letters(k) for k in given[1 : 2 * count : 2])
    return (text + "->" + letters(given[-1]) if len(given) % 2 else text), tuple(given[0 : 2 * count : 2])


def _normal(text: str, ranks: Sequence[int]) -> str:
    """Subscripts with every axis named and the result written out.

    >>> _normal("...ij,jk", [3, 2])
    'Aij,jk->Aik'
    """
    given, arrow, out = text.replace(" ", "").partition("->")
    terms = given.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(f"einsum {text!r} names {len(terms)} operands, {len(ranks)} were given")
    for term in (*terms, out):
        bare = term.replace("...", "", 1)
        if bare and not (bare.isascii() and bare.isalpha()):
            raise ShapeError(f"einsum {text!r}: {term!r} is not made of letters and one ...", hint='"...ij,jk->...ik"')
    hidden = [rank - len(term) + 3 if "..." in term else 0 for term, rank in zip(terms, ranks, strict=True)]
    width = max(hidden)
    if min(hidden) < 0:
        raise ShapeError(f"einsum {text!r} names more axes than its operands have: {', '.join(map(str, ranks))}")
    if width and arrow and "..." not in out:
        raise ShapeError(f"einsum {text!r}: the result lacks the axes of ...", hint="put ... into it, or sum after")
    spare = [label for label in string.ascii_uppercase + string.ascii_lowercase if label not in text]
    names = "".join(spare[:width])
    if not arrow:
        letters = given.replace("...", "").replace(",", "")
        out = "..." + "".join(sorted(label for label in set(letters) if letters.count(label) == 1))
    full = [term.replace("...", names[width - n :]) for term, n in zip(terms, hidden, strict=True)]
    return ",".join(full) + "->" + out.replace("...", names)


def diagonal(x: Any, offset: int = 0) -> Tensor:
    """The diagonals of matrices, (…, m, n) as (…, size): ``offset`` > 0 starts right of the corner, < 0 below it.

    >>> diagonal(asarray([[1, 2], [3, 4]])).tolist(), diagonal(asarray([[1, 2], [3, 4]]), offset=1).tolist()
    ([1, 4], [2])
    """
    x = _matrices("diagonal", x)
    lead, (m, n) = x.shape[:-2], x.shape[-2:]
    top, left = max(-offset, 0), max(offset, 0)
    size = max(min(m - top, n - left), 0)
    # Every (size + 1)-th element of a square's rows in a row.
    square = getitem(x, (..., slice(top, top + size), slice(left, left + size)))
    return getitem(reshape(square, (*lead, size * size)), (..., slice(None, None, size + 1)))


def trace(x: Any, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of the diagonals of matrices, with the dtypes of :func:`lucidgraph.sum`.

    >>> trace(asarray([[1, 2], [3, 4]])).item()
    5
    """
    return _sum(diagonal(x, offset), axis=-1, dtype=dtype)


def cross(x1: Any, x2: Any, axis: int = -1) -> Tensor:
    """The cross product along an axis of 3 elements; the other axes broadcast.

    >>> cross(asarray([1, 0, 0]), asarray([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    a, b = asarray(x1), asarray(x2)
    for x in (a, b):
        if x.shape[one_axis(axis, x.ndim, "cross")] != 3:
            raise ShapeError(f"cross of shapes {a.shape} and {b.shape}: axis {axis} has 3 elements")

    def yzx(x: Tensor) -> Tensor:
        return roll(x, -1, axis)

    return yzx(a * yzx(b) - yzx(a) * b)


def vector_norm(x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """(Σ |x|^ord)^(1/ord) over ``axis`` (None: all axes); ±inf: the greatest, least |x|; 0: how many are not 0.

    Integers give float32, complex numbers the float type of their parts. The gradient at the zero vector is 0.

    >>> vector_norm(asarray([3.0, 4.0])).item(), vector_norm(asarray([3.0, -4.0]), ord=float("inf")).item()
    (5.0, 4.0)
    """
    x = asarray(x)
    axes = many_axes(axis, x.ndim, "vector_norm")
    if isinstance(ord, str):
        raise ShapeError(f"vector_norm of order {ord!r}: the order of a vector's norm is a number")
    if ord in (inf, -inf):
        return (_max if ord > 0 else _min)(_abs(x), axis=axes, keepdims=keepdims)
    if ord == 0:
        return _sum(not_equal(x, 0), axis=axes, keepdims=keepdims, dtype=_real_dtype(x))
    return apply(get("vector_norm"), x, axis=axes, keepdims=bool(keepdims), ord=float(ord))


def matrix_norm(x: Any, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """A norm of matrices, over the last two axes: "fro" is √Σ|x|², 1 and -1 the greatest and least sum of |x| in a
    column, ±inf in a row. Those that need singular values (2, -2, "nuc") raise :class:`UnsupportedError`.

    >>> x = asarray([[3.0, 0.0], [0.0, 4.0]])
    >>> matrix_norm(x).item(), matrix_norm(x, ord=1).item()
    (5.0, 4.0)
    """
    x = _matrices("matrix_norm", x)
    return _matrix_norm(x, (x.ndim - 2, x.ndim - 1), keepdims, ord)


def norm(x: Any, ord: Any = None, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """NumPy's norm: of all elements where ``ord`` and ``axis`` are None, of vectors along one axis, of matrices over
    two (or where x has two). ``ord`` as in :func:`vector_norm` and :func:`matrix_norm`.

    >>> norm(asarray([[3.0, 0.0], [0.0, 4.0]])).item()
    5.0
    """
    x = asarray(x)
    if axis is None and ord is not None and x.ndim > 2:
        raise ShapeError(f"norm of order {ord!r} of an array with {x.ndim} axes", hint="name one axis, or two")
    places = tuple(range(x.ndim)) if axis is None else _axes_of(axis, "norm")
    many_axes(places, x.ndim, "norm")
    if axis is None and ord is None:
        return vector_norm(x, axis=None, keepdims=keepdims)
    if len(places) == 1:
        return vector_norm(x, axis=places, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(places) != 2:
        raise AxisError(f"norm over axes {places}: one axis for vectors, two for matrices")
    return _matrix_norm(x, (places[0] % x.ndim, places[1] % x.ndim), keepdims, "fro" if ord is None else ord)


def _matrix_norm(x: Tensor, axes: tuple[int, int], keepdims: bool, ord: Any) -> Tensor:
    if ord in ("fro", "f"):
        return vector_norm(x, axis=axes, keepdims=keepdims)
    if ord in (2, -2, "nuc"):
        raise UnsupportedError(f"the matrix norm {ord!r} needs singular values", hint='ord="fro", 1 or inf')
    if ord not in (1, -1, inf, -inf):
        raise ShapeError(f"there is no matrix norm of order {ord!r}", hint='"fro", 1, -1, inf or -inf')
    within, across = axes if abs(ord) == 1 else axes[::-1]
    sums = _sum(_abs(x), axis=within, keepdims=True)
    y = (_max if ord > 0 else _min)(sums, axis=across, keepdims=True)
    return y if keepdims else squeeze(y, axes)


def _matrices(name: str, x: Any) -> Tensor:
    tensor = asarray(x)
    if tensor.ndim < 2:
        raise ShapeError(f"{name} takes matrices or batches of them, not an array of shape {tensor.shape}")
    return tensor


def _real_dtype(x: Tensor) -> Any:
    return to_real(x.dtype) if x.dtype.is_inexact else float32


def _abs(x: Tensor) -> Tensor:
    size = _absolute(x)
    return asarray(size, dtype=_real_dtype(x))


def _conj(x: Tensor) -> Tensor:
    return conj(x) if x.dtype.is_complex else x
