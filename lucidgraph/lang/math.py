"""Elementary functions. Integers become float32, but for square, rounding and pow. Complex where NumPy has it."""

from __future__ import annotations

from typing import Any

from ..dtypes import as_dtype, with_scalar
from ..errors import DTypeError
from ..ir.op import get
from ..ir.types import scalar_type
from .arithmetic import abs, add, divide, floor_divide, maximum, multiply, subtract, where
from .compare import equal, greater, isinf, logical_and, logical_or
from .tensor import Tensor, apply, asarray, is_array

__all__ = [
    "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "asin", "asinh", "atan",
    "atan2", "atanh", "cbrt", "ceil", "cos", "cosh", "erf", "exp", "exp2", "expm1", "floor", "hypot", "log", "log10",
    "log1p", "log2", "logaddexp", "pow", "power", "round", "rsqrt", "sin", "sinh", "sqrt", "square", "tan", "tanh",
    "trunc",
]  # fmt: skip


def exp(x: Any) -> Tensor:
    """e^x.

    >>> exp(0.0).item()
    1.0
    """
    return apply(get("exp"), x)


def exp2(x: Any) -> Tensor:
    """2^x.

    >>> exp2(3.0).item()
    8.0
    """
    return apply(get("exp2"), x)


def expm1(x: Any) -> Tensor:
    """e^x - 1, accurate near 0.

    >>> expm1(0.0).item()
    0.0
    """
    return apply(get("expm1"), x)


def log(x: Any) -> Tensor:
    """ln x: NaN below 0, -∞ at 0.

    >>> log(1.0).item()
    0.0
    """
    return apply(get("log"), x)


def log1p(x: Any) -> Tensor:
    """ln(1 + x), accurate near 0.

    >>> log1p(0.0).item()
    0.0
    """
    return apply(get("log1p"), x)


def log2(x: Any) -> Tensor:
    """log₂ x.

    >>> log2(8.0).item()
    3.0
    """
    return apply(get("log2"), x)


def log10(x: Any) -> Tensor:
    """log₁₀ x.

    >>> log10(asarray([1.0, 0.0])).tolist()
    [0.0, -inf]
    """
    return apply(get("log10"), x)


def square(x: Any) -> Tensor:
    """x², in x's own dtype.

    >>> square(asarray([2, -3])).tolist()
    [4, 9]
    """
    return apply(get("square"), x)


def sqrt(x: Any) -> Tensor:
    """√x: NaN below 0.

    >>> sqrt(asarray([4, 9])).tolist()
    [2.0, 3.0]
    """
    return apply(get("sqrt"), x)


def rsqrt(x: Any) -> Tensor:
    """1/√x.

    >>> rsqrt(4.0).item()
    0.5
    """
    return apply(get("rsqrt"), x)


def cbrt(x: Any) -> Tensor:
    """∛x, real also for negative x.

    >>> cbrt(asarray([0.0, 1.0])).tolist()
    [0.0, 1.0]
    """
    return apply(get("cbrt"), x)


def floor(x: Any) -> Tensor:
    """⌊x⌋; integers are returned as they are.

    >>> floor(asarray([1.5, -1.5])).tolist()
    [1.0, -2.0]
    """
    return apply(get("floor"), x)


def ceil(x: Any) -> Tensor:
    """⌈x⌉; integers are returned as they are.

    >>> ceil(asarray([1.5, -1.5])).tolist()
    [2.0, -1.0]
    """
    return apply(get("ceil"), x)


def trunc(x: Any) -> Tensor:
    """x without its fraction; integers are returned as they are.

    >>> trunc(asarray([1.5, -1.5])).tolist()
    [1.0, -1.0]
    """
    return apply(get("trunc"), x)


def sin(x: Any) -> Tensor:
    """sin x.

    >>> sin(0.0).item()
    0.0
    """
    return apply(get("sin"), x)


def cos(x: Any) -> Tensor:
    """cos x.

    >>> cos(0.0).item()
    1.0
    """
    return apply(get("cos"), x)


def tan(x: Any) -> Tensor:
    """tan x.

    >>> tan(0.0).item()
    0.0
    """
    return apply(get("tan"), x)


def asin(x: Any) -> Tensor:
    """arcsin x, from -π/2 to π/2: NaN outside [-1, 1].

    >>> asin(0.0).item()
    0.0
    """
    return apply(get("asin"), x)


def acos(x: Any) -> Tensor:
    """arccos x, from 0 to π: NaN outside [-1, 1].

    >>> acos(1.0).item()
    0.0
    """
    return apply(get("acos"), x)


def atan(x: Any) -> Tensor:
    """arctan x, from -π/2 to π/2.

    >>> atan(0.0).item()
    0.0
    """
    return apply(get("atan"), x)


def sinh(x: Any) -> Tensor:
    """sinh x.

    >>> sinh(0.0).item()
    0.0
    """
    return apply(get("sinh"), x)


def cosh(x: Any) -> Tensor:
    """cosh x.

    >>> cosh(0.0).item()
    1.0
    """
    return apply(get("cosh"), x)


def tanh(x: Any) -> Tensor:
    """tanh x.

    >>> tanh(0.0).item()
    0.0
    """
    return apply(get("tanh"), x)


def asinh(x: Any) -> Tensor:
    """arsinh x.

    >>> asinh(0.0).item()
    0.0
    """
    return apply(get("asinh"), x)


def acosh(x: Any) -> Tensor:
    """arcosh x: NaN below 1.

    >>> acosh(1.0).item()
    0.0
    """
    return apply(get("acosh"), x)


def atanh(x: Any) -> Tensor:
    """artanh x: NaN outside [-1, 1].

    >>> atanh(0.0).item()
    0.0
    """
    return apply(get("atanh"), x)


def erf(x: Any) -> Tensor:
    """2/√π ∫₀ˣ e^(-t²) dt. Raises :class:`DTypeError` for complex numbers.

    >>> erf(asarray([0.0, 9.0])).tolist()
    [0.0, 1.0]
    """
    return apply(get("erf"), x)


def atan2(y: Any, x: Any) -> Tensor:
    """The angle of the point (x, y), from -π to π. Its gradient at the origin is 0.

    >>> atan2(0.0, 1.0).item()
    0.0
    """
    return apply(get("atan2"), y, x)


def hypot(x: Any, y: Any) -> Tensor:
    """√(x² + y²), without overflow on the way. Its gradient at the origin is 0.

    >>> hypot(3.0, 4.0).item()
    5.0
    """
    infinite = logical_or(isinf(x), isinf(y))
    x, y = (where(infinite, 0.0, abs(v)) for v in (x, y))
    # Scaled by the larger of the two, on which the result does not depend.
    top = apply(get("stop_gradient"), maximum(x, y))
    origin = equal(top, 0)
    scale = where(origin, 1.0, top)
    total = where(origin, 1.0, add(square(divide(x, scale)), square(divide(y, scale))))
    return where(infinite, float("inf"), where(origin, 0.0, multiply(sqrt(total), scale)))


def logaddexp(x: Any, y: Any) -> Tensor:
    """ln(e^x + e^y), without overflow. logaddexp(-∞, -∞) is -∞ with gradient 0.

    >>> logaddexp(asarray([1000.0, -1000.0]), asarray([0.0, 0.0])).tolist()
    [1000.0, 0.0]
    """
    return apply(get("logaddexp"), x, y)


def pow(x: Any, y: Any) -> Tensor:
    """x^y, with 0^0 = 1. Integers to the power of integers are integers, which wrap.

    Raises :class:`DTypeError` for an integer to the power of a negative Python integer; a negative exponent in an
    array of integers gives 0.

    >>> pow(asarray([2.0, 3.0]), 2).tolist()
    [4.0, 9.0]
    """
    if type(y) is int and y < 0:
        x = asarray(x) if isinstance(x, list | tuple) else x
        kind = as_dtype(x.dtype) if is_array(x) else scalar_type(x).dtype
        if not with_scalar(kind, "i").is_inexact:
            raise DTypeError(f"an integer to the power {y} is no integer", hint=f"a float: x ** {float(y)}")
    return apply(get("pow"), x, y)


def round(x: Any, decimals: int = 0) -> Tensor:
    """x rounded to ``decimals`` places, halves to even; a negative number of places rounds to tens, hundreds, …

    >>> round(asarray([0.5, 1.5, 2.5])).tolist(), round(asarray([15, 25, 26]), -1).tolist()
    ([0.0, 2.0, 2.0], [20, 20, 30])
    """
    x = asarray(x)
    if decimals == 0 or not (x.dtype.is_inexact or decimals < 0):
        return apply(get("round"), x)
    if x.dtype.is_inexact:
        scale = 10.0 ** (decimals if decimals > 0 else -decimals)
        if decimals > 0:
            return divide(apply(get("round"), multiply(x, scale)), scale)
        return multiply(apply(get("round"), divide(x, scale)), scale)
    unit = 10**-decimals
    quotient = floor_divide(x, unit)
    rest = subtract(x, multiply(quotient, unit))
    half = unit // 2
    odd = equal(apply(get("remainder"), quotient, 2), 1)
    up = logical_or(greater(rest, half), logical_and(equal(rest, half), odd))
    return multiply(add(quotient, asarray(up, dtype=x.dtype)), unit)


arccos, arccosh, arcsin, arcsinh = acos, acosh, asin, asinh
arctan, arctan2, arctanh = atan, atan2, atanh
power = pow
