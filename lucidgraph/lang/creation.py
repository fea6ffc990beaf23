"""Arrays of given contents. While tracing they are constants and index ranges, never captured arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import DEFAULT_FLOAT, DEFAULT_INT, DType, as_dtype, bool_, float64
from ..errors import DTypeError, ShapeError, UnsupportedError
from ..ir import TensorType
from ..ir.op import broadcast_shapes, get
from ..ir.types import Shape
from . import recording
from .axes import one_axis, whole
from .tensor import Tensor, apply, asarray, copy_of, is_array

__all__ = [
    "arange", "array", "diag", "diagonal", "empty", "empty_like", "eye", "full", "full_like", "identity", "linspace",
    "meshgrid", "ones", "ones_like", "tri", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def shape_of(shape: Any, what: str) -> Shape:
    """A shape as a tuple: an int, or several. Raises :class:`ShapeError` for negative sizes, :class:`DTypeError`."""
    sizes = shape if isinstance(shape, list | tuple) else [shape]
    if isinstance(shape, np.ndarray) and shape.ndim == 1:
        sizes = list(shape)
    result = tuple(whole(n, what) for n in sizes)
    if min(result, default=0) < 0:
        raise ShapeError(f"{what}: {result} has a negative size")
    return result


def scalar(value: Any, dtype: DType) -> Tensor:
    """A 0-d tensor of a Python number. Raises ``OverflowError`` where an integer does not fit."""
    exact: bool | int | float | complex
    if dtype.is_complex:
        exact = complex(value)
    elif isinstance(value, complex):
        raise DTypeError(f"{value!r} does not go into {dtype.name}", hint="take its real part")
    elif dtype.is_floating:
        exact = float(value)
    elif dtype.is_bool:
        exact = bool(value)
    else:
        if value != value:
            raise DTypeError(f"nan does not go into {dtype.name}")
        exact = int(value)
        low, high = dtype.range
        if not low <= exact <= high:
            raise OverflowError(f"{exact} does not fit {dtype.name}, which holds {low} to {high}")
    return Tensor.of_node(recording.constant_node(exact, TensorType((), dtype)))


def number(value: Any) -> Any:
    """A Python number of one given as NumPy's or as a tensor (whose value must be known); other values as they are."""
    return value.item() if is_array(value) else value


def array(value: Any, dtype: Any = None, copy: bool | None = True) -> Tensor:
    """A new tensor of an array, a number or nested lists; as :func:`asarray`, but a Tensor is copied.

    >>> array([1, 2]).tolist()
    [1, 2]
    """
    return asarray(value, dtype=dtype, copy=copy)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    """An array of one value. Without ``dtype`` Python floats give float32, integers int64; arrays keep theirs.

    Raises ``OverflowError`` for an integer that does not fit, :class:`ShapeError` for negative sizes.

    >>> full((2,), 3).tolist(), full(2, 0.5).dtype
    ([3, 3], lucidgraph.float32)
    """
    sizes = shape_of(shape, "full")
    if isinstance(fill_value, bool | int | float | complex) and not is_array(fill_value):
        value = scalar(fill_value, as_dtype(type(fill_value) if dtype is None else dtype))
    else:
        value = asarray(fill_value, dtype=dtype)
        value = copy_of(value) if value is fill_value else value
    return apply(get("broadcast_to"), value, shape=sizes) if value.shape != sizes else value


def zeros(shape: Any, dtype: Any = None) -> Tensor:
    """An array of zeros, float32 unless ``dtype`` says otherwise.

    >>> zeros((0, 3)).shape
    (0, 3)
    """
    return full(shape, 0, DEFAULT_FLOAT if dtype is None else dtype)


def ones(shape: Any, dtype: Any = None) -> Tensor:
    """An array of ones, float32 unless ``dtype`` says otherwise.

    >>> ones(2, dtype="int8").tolist()
    [1, 1]
    """
    return full(shape, 1, DEFAULT_FLOAT if dtype is None else dtype)


def empty(shape: Any, dtype: Any = None) -> Tensor:
    """An array whose contents do not matter: zeros.

    >>> empty((2, 3)).shape
    (2, 3)
    """
    return zeros(shape, dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Tensor:
    """An array of one value with the shape and dtype of ``x``, unless others are given.

    >>> full_like(asarray([1.0, 2.0]), 7).tolist()
    [7.0, 7.0]
    """
    x = asarray(x)
    return full(x.shape if shape is None else shape, fill_value, x.dtype if dtype is None else dtype)


def zeros_like(x: Any, dtype: Any = None, shape: Any = None) -> Tensor:
    """Zeros with the shape and dtype of ``x``.

    >>> zeros_like(asarray([1, 2])).dtype
    lucidgraph.int64
    """
    return full_like(x, 0, dtype, shape)


def ones_like(x: Any, dtype: Any = None, shape: Any = None) -> Tensor:
    """Ones with the shape and dtype of ``x``.

    >>> ones_like(asarray([1.5, 2.5])).tolist()
    [1.0, 1.0]
    """
    return full_like(x, 1, dtype, shape)


def empty_like(x: Any, dtype: Any = None, shape: Any = None) -> Tensor:
    """An array like ``x`` whose contents do not matter: zeros.

    >>> empty_like(asarray([1, 2])).dtype
    lucidgraph.int64
    """
    return full_like(x, 0, dtype, shape)


# -- ranges


def _range(start: float, step: float, size: int, dtype: DType) -> Tensor:
    return apply(get("arange"), start=start, step=step, size=size, dtype=dtype)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Tensor:
    """start, start + step, … below ``stop`` (above it for a negative step); ``arange(n)`` counts from 0.

    Integers give int64, anything else float32. Raises :class:`ShapeError` for a step of 0, ``OverflowError`` where the
    values do not fit ``dtype``.

    >>> arange(3).tolist(), arange(5, 1, -2).tolist(), arange(0.0, 1.0, 0.5).dtype
    ([0, 1, 2], [5, 3], lucidgraph.float32)
    """
    first, last, by = (number(v) for v in ((0, start, step) if stop is None else (start, stop, step)))
    if not all(isinstance(v, int | float) for v in (first, last, by)):
        raise DTypeError(f"arange takes real numbers, not {first!r:.40}, {last!r:.40}, {by!r:.40}")
    if by == 0 or not all(math.isfinite(v) for v in (first, last, by)):
        raise ShapeError(f"arange from {first} to {last} by {by} has no length")
    exact = all(isinstance(v, int) for v in (first, last, by))
    target = as_dtype(dtype) if dtype is not None else DEFAULT_INT if exact else DEFAULT_FLOAT
    size = len(range(first, last, by)) if exact else max(0, math.ceil((last - first) / by))
    if target.is_integer and size:
        low, high = target.range
        ends = first, first + (size - 1) * by
        if min(ends) < low or max(ends) > high:
            raise OverflowError(f"arange from {first} to {last} by {by} does not fit {target.name}")
        if not exact:  # NumPy's rule: start and step are truncated first
            first, by = int(first), int(first + by) - int(first)
    # Bools are ints to Python, not to a graph's text.
    first, by = (int(v) if isinstance(v, int) else v for v in (first, by))
    return _range(first, by, size, target)


def linspace(start: Any, stop: Any, num: int = 50, dtype: Any = None, endpoint: bool = True) -> Tensor:
    """``num`` evenly spaced values from ``start`` to ``stop``, which is the last one if ``endpoint``; float32.

    >>> linspace(0, 1, 3).tolist()
    [0.0, 0.5, 1.0]
    """
    count = whole(num, "linspace")
    if count < 0:
        raise ShapeError(f"linspace of {count} values")
    target = DEFAULT_FLOAT if dtype is None else as_dtype(dtype)
    steps = count - 1 if endpoint else count
    if isinstance(start, int | float) and isinstance(stop, int | float) and target.is_floating:
        step = (stop - start) / steps if steps > 0 else 0.0
        if not endpoint or count < 2:
            return _range(float(start), step, count, target)
        # The last value is the stop itself, not what rounding makes of it.
        body = _range(float(start), step, steps, target)
        return apply(get("concat"), body, apply(get("reshape"), scalar(stop, target), shape=(1,)), axis=0)
    a, b = asarray(start), asarray(stop)
    places = _range(0.0, 1.0 / max(steps, 1), count, float64 if target is float64 else DEFAULT_FLOAT)
    places = apply(get("reshape"), places, shape=(count,) + (1,) * max(a.ndim, b.ndim))
    line = apply(get("add"), a, apply(get("multiply"), apply(get("subtract"), b, a), places))
    return asarray(line, dtype=dtype)


# -- matrices


def _rows_and_columns(rows: int, columns: int, k: Any) -> tuple[Tensor, Tensor]:
    """Row numbers plus ``k`` in a column, column numbers in a row."""
    down = apply(get("reshape"), _range(whole(k, "a diagonal"), 1, rows, DEFAULT_INT), shape=(rows, 1))
    return down, _range(0, 1, columns, DEFAULT_INT)


def eye(n_rows: int, n_cols: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:
    """Ones on the diagonal ``k`` (above the main one where positive), zeros elsewhere; float32.

    >>> eye(2, 3, k=1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    rows, columns = shape_of((n_rows, n_rows if n_cols is None else n_cols), "eye")
    ones_there = apply(get("equal"), *_rows_and_columns(rows, columns, k))
    return asarray(ones_there, dtype=DEFAULT_FLOAT if dtype is None else dtype)


def identity(n: int, dtype: Any = None) -> Tensor:
    """The identity matrix.

    >>> identity(2, dtype="int64").tolist()
    [[1, 0], [0, 1]]
    """
    return eye(n, dtype=dtype)


def tri(n: int, m: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:
    """Ones on and below the diagonal ``k``, zeros above; float32.

    >>> tri(2, dtype="int64").tolist()
    [[1, 0], [1, 1]]
    """
    rows, columns = shape_of((n, n if m is None else m), "tri")
    down, across = _rows_and_columns(rows, columns, k)
    return asarray(apply(get("less_equal"), across, down), dtype=DEFAULT_FLOAT if dtype is None else dtype)


def _triangle(x: Any, k: int, comparison: str, what: str) -> Tensor:
    x = asarray(x)
    if x.ndim < 2:
        raise ShapeError(f"{what} takes matrices, not {x._node.type}")
    down, across = _rows_and_columns(x.shape[-2], x.shape[-1], k)
    return apply(get("where"), apply(get(comparison), across, down), x, scalar(0, x.dtype))


def tril(x: Any, k: int = 0) -> Tensor:
    """The matrices of ``x`` with zeros above the diagonal ``k``.

    >>> tril(ones((2, 2), dtype="int64")).tolist()
    [[1, 0], [1, 1]]
    """
    return _triangle(x, k, "less_equal", "tril")


def triu(x: Any, k: int = 0) -> Tensor:
    """The matrices of ``x`` with zeros below the diagonal ``k``.

    >>> triu(ones((2, 2), dtype="int64")).tolist()
    [[1, 1], [0, 1]]
    """
    return _triangle(x, k, "greater_equal", "triu")


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonal ``offset`` of the matrices that ``axis1`` and ``axis2`` span, as the last axis.

    >>> diagonal(asarray([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    x = asarray(x)
    if x.ndim < 2:
        raise ShapeError(f"diagonal takes matrices, not {x._node.type}")
    rows_at, columns_at = one_axis(axis1, x.ndim, "diagonal"), one_axis(axis2, x.ndim, "diagonal")
    if rows_at == columns_at:
        raise ShapeError(f"diagonal: axis {rows_at} is named twice")
    k = whole(offset, "diagonal")
    others = tuple(n for n in range(x.ndim) if n not in (rows_at, columns_at))
    x = apply(get("permute_dims"), x, axes=(*others, rows_at, columns_at))
    *batch, rows, columns = x.shape
    size = max(0, min(rows, columns - k) if k >= 0 else min(rows + k, columns))
    first = k if k >= 0 else -k * columns
    flat = apply(get("reshape"), x, shape=(*batch, rows * columns))
    # In row-major order the diagonal is every (columns + 1)-th element.
    part = (first, first + (size - 1) * (columns + 1) + 1, columns + 1) if size else (0, 0, 1)
    start, stop, step = ((*(0 for _ in batch), part[0]), (*batch, part[1]), (*(1 for _ in batch), part[2]))
    return apply(get("slice"), flat, start=start, stop=stop, step=step)


def diag(x: Any, k: int = 0) -> Tensor:
    """The matrix with a vector on its diagonal ``k``, or the diagonal ``k`` of a matrix.

    >>> diag(asarray([1, 2])).tolist(), diag(asarray([[1, 2], [3, 4]]), k=1).tolist()
    ([[1, 0], [0, 2]], [2])
    """
    x = asarray(x)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"diag takes a vector or a matrix, not {x._node.type}")
    n, k = x.shape[0], whole(k, "diag")
    on = eye(n, dtype=bool_)
    square = apply(get("where"), on, apply(get("expand_dims"), x, axis=(1,)), scalar(0, x.dtype))
    if not k:
        return square
    below, right = max(-k, 0), max(k, 0)
    return apply(
        get("pad"), square, scalar(0, x.dtype), low=(below, right), high=(right, below), interior=(0, 0)
    )  # fmt: skip


def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False) -> list[Tensor]:
    """Coordinate arrays of vectors: one per vector, all of the grid's shape. ``"xy"`` puts the first vector on axis 1.

    >>> [g.tolist() for g in meshgrid(asarray([1, 2]), asarray([3, 4]))]
    [[[1, 2], [1, 2]], [[3, 3], [4, 4]]]
    """
    if indexing not in ("xy", "ij"):
        raise UnsupportedError(f"meshgrid: indexing={indexing!r}", hint='"xy" or "ij"')
    vectors = [asarray(v) for v in arrays]
    rank = len(vectors)
    shaped = []
    for k, v in enumerate(vectors):
        if v.ndim > 1:
            raise ShapeError(f"meshgrid takes vectors, not {v._node.type}")
        at = {0: 1, 1: 0}.get(k, k) if indexing == "xy" and rank > 1 else k
        shaped.append(apply(get("reshape"), v, shape=tuple(v.size if n == at else 1 for n in range(rank))))
    if sparse:
        return shaped
    shape = broadcast_shapes([v.shape for v in shaped], "meshgrid")
    return [apply(get("broadcast_to"), v, shape=shape) for v in shaped]


