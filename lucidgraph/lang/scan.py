"""Scans: sums, products and extremes of all elements up to each one, as MLX and as the Array API spell them."""

from __future__ import annotations

from typing import Any

from ..dtypes import as_dtype
from ..errors import AxisError
from ..ir.op import get
from .axes import one_axis
from .creation import full
from .shape import concat, reshape, sliced
from .tensor import Tensor, apply, asarray

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "logcumsumexp"]


def _flat_or(x: Any, axis: int | None, what: str) -> tuple[Tensor, int]:
    """The operand and its axis: flattened where none is given."""
    x = asarray(x)
    return (reshape(x, (x.size,)), 0) if axis is None else (x, one_axis(axis, x.ndim, what))


def _accumulated(name: str, x: Any, axis: int | None, reverse: bool, inclusive: bool, dtype: Any) -> Tensor:
    x, k = _flat_or(x, axis, name)
    wanted = None if dtype is None else as_dtype(dtype)
    return apply(get(name), x, axis=k, reverse=bool(reverse), inclusive=bool(inclusive), dtype=wanted)


def cumsum(
    x: Any, axis: int | None = None, reverse: bool = False, inclusive: bool = True, *, dtype: Any = None
) -> Tensor:
    """The sum of all elements up to each one along ``axis`` (None: of the flattened array).

    ``reverse`` sums from the end; without ``inclusive`` an element is not part of its own sum, and the first is 0.
    dtypes as in :func:`sum`; float32 is exact to its last digits whatever the length. Raises :class:`AxisError`.

    >>> cumsum(asarray([1, 2, 3])).tolist(), cumsum(asarray([1, 2, 3]), reverse=True, inclusive=False).tolist()
    ([1, 3, 6], [5, 3, 0])
    """
    return _accumulated("cumsum", x, axis, reverse, inclusive, dtype)


def cumprod(
    x: Any, axis: int | None = None, reverse: bool = False, inclusive: bool = True, *, dtype: Any = None
) -> Tensor:
    """The product of all elements up to each one along ``axis``; otherwise as :func:`cumsum`. Its gradient is right at
    zeros.

    >>> cumprod(asarray([1, 2, 3])).tolist()
    [1, 2, 6]
    """
    return _accumulated("cumprod", x, axis, reverse, inclusive, dtype)


def _extreme(name: str, x: Any, axis: int | None, reverse: bool, inclusive: bool, start: Any) -> Tensor:
    """A scan without a value of its own for nothing: ``start`` comes first where it is not inclusive."""
    x, k = _flat_or(x, axis, name)
    y = apply(get(name), x, axis=k, reverse=bool(reverse))
    n = y.shape[k]
    if inclusive or not n:
        return y
    first = full((*y.shape[:k], 1, *y.shape[k + 1 :]), start(y), dtype=y.dtype)
    kept = sliced(y, k, 1, n) if reverse else sliced(y, k, 0, n - 1)
    return concat([kept, first] if reverse else [first, kept], k)


def _least(x: Tensor) -> Any:
    return x.dtype.range[0] if x.dtype.is_integer or x.dtype.is_bool else float("-inf")


def _greatest(x: Tensor) -> Any:
    return x.dtype.range[1] if x.dtype.is_integer or x.dtype.is_bool else float("inf")


def cummax(x: Any, axis: int | None = None, reverse: bool = False, inclusive: bool = True) -> Tensor:
    """The greatest of all elements up to each one along ``axis`` (None: of the flattened array), NaN from the first
    NaN on. Without ``inclusive`` the first result is the least number of the dtype. The latest of equal elements
    takes the gradient.

    >>> cummax(asarray([1, 3, 2])).tolist()
    [1, 3, 3]
    """
    return _extreme("cummax", x, axis, reverse, inclusive, _least)


def cummin(x: Any, axis: int | None = None, reverse: bool = False, inclusive: bool = True) -> Tensor:
    """The least of all elements up to each one along ``axis``; otherwise as :func:`cummax`.

    >>> cummin(asarray([2, 3, 1])).tolist()
    [2, 2, 1]
    """
    return _extreme("cummin", x, axis, reverse, inclusive, _greatest)


def logcumsumexp(x: Any, axis: int | None = None, reverse: bool = False, inclusive: bool = True) -> Tensor:
    """log Σ exp(x) of all elements up to each one along ``axis`` (None: of the flattened array), without overflow;
    -∞, with gradient 0, while all are -∞.

    >>> logcumsumexp(asarray([float("-inf"), 1000.0])).tolist()
    [-inf, 1000.0]
    """
    return _extreme("logcumsumexp", x, axis, reverse, inclusive, _least)


def _cumulative(name: str, x: Any, axis: int | None, dtype: Any, include_initial: bool, initial: int) -> Tensor:
    x = asarray(x)
    if axis is None and x.ndim != 1:
        raise AxisError(f"a cumulative {name} of {x.ndim} axes needs one", hint="axis=0, or lucidgraph.ravel first")
    k = 0 if axis is None else one_axis(axis, x.ndim, f"cumulative {name}")
    y = _accumulated("cumsum" if name == "sum" else "cumprod", x, k, False, True, dtype)
    if not include_initial:
        return y
    return concat([full((*y.shape[:k], 1, *y.shape[k + 1 :]), initial, dtype=y.dtype), y], k)


def cumulative_sum(x: Any, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """:func:`cumsum` as the Array API has it: an axis is needed where there are several. ``include_initial`` puts a 0
    in front.

    >>> cumulative_sum(asarray([1, 2, 3]), include_initial=True).tolist()
    [0, 1, 3, 6]
    """
    return _cumulative("sum", x, axis, dtype, include_initial, 0)


def cumulative_prod(x: Any, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """:func:`cumprod` as the Array API has it. ``include_initial`` puts a 1 in front.

    >>> cumulative_prod(asarray([1, 2, 3]), include_initial=True).tolist()
    [1, 1, 2, 6]
    """
    return _cumulative("product", x, axis, dtype, include_initial, 1)
