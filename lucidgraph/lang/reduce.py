"""Reductions, as the Array API spells them."""

from __future__ import annotations

from typing import Any

from ..dtypes import as_dtype
from ..ir import Op
from ..ir.op import get
from .axes import many_axes, one_axis
from .tensor import Tensor, apply, asarray

__all__ = ["all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "std", "sum", "var"]

Axis = int | tuple[int, ...] | None


def _reduced(op: type[Op], x: Any, axis: Axis, keepdims: bool, dtype: Any = None) -> Tensor:
    x = asarray(x)
    axes = many_axes(axis, x.ndim, op.schema_v1.name)
    wanted = None if dtype is None else as_dtype(dtype)
    return apply(op, x, axis=axes, keepdims=bool(keepdims), dtype=wanted)


def sum(x: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Σ x over ``axis`` (None: all axes, (): none).

    Booleans and signed integers are summed in int64, unsigned ones in uint64, exactly; float16 and bfloat16 in
    float32, rounded once. ``dtype`` casts the operand first. The sum of nothing is 0. Raises :class:`AxisError`.

    >>> sum(asarray([[True, True], [False, True]]), axis=1).tolist()
    [2, 1]
    """
    return _reduced(get("sum"), x, axis, keepdims, dtype)


def prod(x: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Π x over ``axis``; dtypes as in :func:`sum`. The product of nothing is 1.

    >>> prod(asarray([2, 3, 4])).item()
    24
    """
    return _reduced(get("prod"), x, axis, keepdims, dtype)


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Σ x / N over ``axis``. Integers give float32; half precision is summed in float32. The mean of nothing is NaN.

    >>> mean(asarray([1, 2])).item()
    1.5
    """
    return _reduced(get("mean"), x, axis, keepdims)


def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The greatest element over ``axis``; NaN if there is one. Raises :class:`AxisError` over an empty axis.

    >>> max(asarray([3, 1, 2])).item()
    3
    """
    return _reduced(get("max"), x, axis, keepdims)


def min(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The least element over ``axis``; NaN if there is one. Raises :class:`AxisError` over an empty axis.

    >>> min(asarray([3, 1, 2])).item()
    1
    """
    return _reduced(get("min"), x, axis, keepdims)


def any(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether an element over ``axis`` is not 0; False for nothing.

    >>> any(asarray([0.0, -0.0])).item()
    False
    """
    return _reduced(get("any"), x, axis, keepdims)


def all(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether no element over ``axis`` is 0; True for nothing.

    >>> all(asarray([1, 2])).item()
    True
    """
    return _reduced(get("all"), x, axis, keepdims)


def _arg(op: type[Op], x: Any, axis: int | None, keepdims: bool) -> Tensor:
    x = asarray(x)
    if axis is not None:
        return apply(op, x, axis=(one_axis(axis, x.ndim, op.schema_v1.name),), keepdims=bool(keepdims), dtype=None)
    flat = apply(get("reshape"), x, shape=(x.size,))
    out = apply(op, flat, axis=(0,), keepdims=False, dtype=None)
    return apply(get("reshape"), out, shape=(1,) * x.ndim) if keepdims else out


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The int64 index of the first greatest element along ``axis`` (None: of the flattened array); a NaN is greatest.

    >>> argmax(asarray([3.0, float("nan"), 5.0])).item()
    1
    """
    return _arg(get("argmax"), x, axis, keepdims)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The int64 index of the first least element along ``axis`` (None: of the flattened array); a NaN is least.

    >>> argmin(asarray([3.0, 1.0, 1.0])).item()
    1
    """
    return _arg(get("argmin"), x, axis, keepdims)


def var(x: Any, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Σ (x - mean)² / (N - correction) over ``axis``, in two passes; NaN where N <= correction.

    >>> var(asarray([1.0, 3.0])).item()
    1.0
    """
    x = asarray(x)
    axes = many_axes(axis, x.ndim, "var")
    return apply(get("var"), x, axis=axes, keepdims=bool(keepdims), correction=float(correction))


def std(x: Any, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """√var. Its gradient at constants is 0.

    >>> std(asarray([1.0, 3.0])).item()
    1.0
    """
    x = asarray(x)
    axes = many_axes(axis, x.ndim, "std")
    return apply(get("std"), x, axis=axes, keepdims=bool(keepdims), correction=float(correction))
