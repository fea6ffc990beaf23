"""Arithmetic and selection. Integer arithmetic wraps; integer ``// 0`` and ``% 0`` give 0."""

from __future__ import annotations

from typing import Any

from ..dtypes import as_dtype
from ..ir.op import get
from .compare import isnan, isneginf, isposinf, logical_and, logical_or, not_equal
from .tensor import Tensor, apply, asarray, is_array

__all__ = [
    "abs", "absolute", "add", "clip", "conj", "conjugate", "copysign", "degrees", "divide", "divmod", "floor_divide",
    "imag", "maximum", "minimum", "mod", "multiply", "nan_to_num", "negative", "positive", "radians", "real",
    "reciprocal", "remainder", "sign", "signbit", "subtract", "true_divide", "where",
]  # fmt: skip


def add(x: Any, y: Any) -> Tensor:
    """x + y. Of booleans, their or.

    >>> add(asarray([1, 2]), 3).tolist()
    [4, 5]
    """
    return apply(get("add"), x, y)


def subtract(x: Any, y: Any) -> Tensor:
    """x - y. Raises :class:`DTypeError` for two booleans.

    >>> subtract(asarray([1, 2]), 3).tolist()
    [-2, -1]
    """
    return apply(get("subtract"), x, y)


def multiply(x: Any, y: Any) -> Tensor:
    """x y. Of booleans, their and.

    >>> multiply(asarray([1, 2]), 3).tolist()
    [3, 6]
    """
    return apply(get("multiply"), x, y)


def divide(x: Any, y: Any) -> Tensor:
    """x / y; integers are divided in float32.

    >>> divide(asarray([1, 3]), 2).tolist()
    [0.5, 1.5]
    """
    return apply(get("divide"), x, y)


def floor_divide(x: Any, y: Any) -> Tensor:
    """⌊x / y⌋, of the operands' common dtype; 0 for an integer divided by 0.

    >>> floor_divide(asarray([7, -7, 7]), asarray([2, 2, 0])).tolist()
    [3, -4, 0]
    """
    return apply(get("floor_divide"), x, y)


def remainder(x: Any, y: Any) -> Tensor:
    """x - ⌊x / y⌋ y, with the sign of y; 0 for an integer divided by 0.

    >>> remainder(asarray([7, -7, 7]), asarray([2, 2, 0])).tolist()
    [1, 1, 0]
    """
    return apply(get("remainder"), x, y)


def divmod(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """``(floor_divide(x, y), remainder(x, y))``.

    >>> [v.item() for v in divmod(-7, 2)]
    [-4, 1]
    """
    x, y = (v if is_array(v) or not isinstance(v, list | tuple) else asarray(v) for v in (x, y))
    return floor_divide(x, y), remainder(x, y)


def negative(x: Any) -> Tensor:
    """-x. Raises :class:`DTypeError` for booleans.

    >>> negative(asarray([1, -2])).tolist()
    [-1, 2]
    """
    return apply(get("negative"), x)


def positive(x: Any) -> Tensor:
    """A copy of x.

    >>> positive(asarray([1, -2])).tolist()
    [1, -2]
    """
    return asarray(x, copy=True)


def abs(x: Any) -> Tensor:
    """|x|, real also for complex x. Its gradient is 0 at 0.

    >>> abs(asarray([-1.0, 3 + 4j])).tolist()
    [1.0, 5.0]
    """
    return apply(get("abs"), x)


def sign(x: Any) -> Tensor:
    """-1, 0 or 1 by the sign of x; NaN for NaN; x/|x| for complex x.

    >>> sign(asarray([-2.0, 0.0, 3.0])).tolist()
    [-1.0, 0.0, 1.0]
    """
    return apply(get("sign"), x)


def signbit(x: Any) -> Tensor:
    """[x is negative, or -0.0]; False for NaN, whose sign is not kept apart.

    >>> signbit(asarray([-1.0, -0.0, 0.0])).tolist()
    [True, True, False]
    """
    x = asarray(x)
    negative_zero = apply(get("less"), apply(get("reciprocal"), x), 0.0) if x.dtype.is_inexact else False
    return logical_or(apply(get("less"), x, 0), logical_and(apply(get("equal"), x, 0), negative_zero))


def copysign(x: Any, y: Any) -> Tensor:
    """|x| with the sign of y, by :func:`signbit`; integers become float32.

    >>> copysign(asarray([1.0, -2.0]), asarray([-0.0, 3.0])).tolist()
    [-1.0, 2.0]
    """
    x, y = asarray(x), asarray(y)
    size = abs(apply(get("multiply"), x, 1.0))
    return where(signbit(y), negative(size), size)


def conj(x: Any) -> Tensor:
    """The complex conjugate; x itself where it is real.

    >>> conj(asarray([1 + 2j])).tolist()
    [(1-2j)]
    """
    return apply(get("conj"), x)


def real(x: Any) -> Tensor:
    """The real part; x itself where it is real.

    >>> real(asarray([1 + 2j])).tolist()
    [1.0]
    """
    return apply(get("real"), x)


def imag(x: Any) -> Tensor:
    """The imaginary part; zeros where x is real.

    >>> imag(asarray([1 + 2j])).tolist()
    [2.0]
    """
    return apply(get("imag"), x)


def reciprocal(x: Any) -> Tensor:
    """1 / x; integers become float32.

    >>> reciprocal(asarray([2.0, 4.0])).tolist()
    [0.5, 0.25]
    """
    return apply(get("reciprocal"), x)


def degrees(x: Any) -> Tensor:
    """x 180/π.

    >>> round(degrees(3.141592653589793).item(), 4)
    180.0
    """
    return multiply(x, 57.29577951308232)


def radians(x: Any) -> Tensor:
    """x π/180.

    >>> round(radians(180.0).item(), 4)
    3.1416
    """
    return multiply(x, 0.017453292519943295)


def maximum(x: Any, y: Any) -> Tensor:
    """The greater of x and y; NaN where either is.

    Gradient at a tie: half to each of two arrays, 0 to an array that ties with a Python number or a constant.

    >>> maximum(asarray([1, 5]), 3).tolist()
    [3, 5]
    """
    return apply(get("maximum"), x, y)


def minimum(x: Any, y: Any) -> Tensor:
    """The lesser of x and y; NaN where either is. Gradient at a tie as in :func:`maximum`.

    >>> minimum(asarray([1, 5]), 3).tolist()
    [1, 3]
    """
    return apply(get("minimum"), x, y)


def clip(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """x, but not below ``min`` and not above ``max``; None is no bound. ``max`` wins where ``min > max``.

    The gradient is 0 outside the bounds and, for numbers as bounds, on them.

    >>> clip(asarray([-1, 2, 9]), 0, 6).tolist()
    [0, 2, 6]
    """
    out = x if min is None else maximum(x, min)
    out = out if max is None else minimum(out, max)
    return asarray(out, copy=out is x)


def where(condition: Any, x: Any, y: Any) -> Tensor:
    """x where ``condition`` is not 0, else y. The one not chosen gets gradient 0, even where its own is infinite.

    >>> where(asarray([True, False]), asarray([1, 2]), 0).tolist()
    [1, 0]
    """
    if not is_array(condition):
        condition = asarray(condition)
    if not as_dtype(condition.dtype).is_bool:
        condition = not_equal(condition, 0)
    return apply(get("where"), condition, x, y)


def nan_to_num(x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """x with NaN and infinities replaced, by default with 0 and the greatest and least finite numbers of its dtype.

    >>> nan_to_num(asarray([float("nan"), float("inf"), 1.0]), posinf=9.0).tolist()
    [0.0, 9.0, 1.0]
    """
    value = asarray(x)
    if value.dtype.is_complex:
        parts = [nan_to_num(part, nan, posinf, neginf) for part in (real(value), imag(value))]
        return add(parts[0], multiply(parts[1], 1j))
    if not value.dtype.is_floating:
        return value
    top = value.dtype.largest
    out = where(isnan(value), float(nan), value)
    out = where(isposinf(value), top if posinf is None else float(posinf), out)
    return where(isneginf(value), -top if neginf is None else float(neginf), out)


absolute = abs
conjugate = conj
mod = remainder
true_divide = divide
