"""Comparisons, tests and logic. All give booleans, through which no gradient flows."""

from __future__ import annotations

from typing import Any

from ..dtypes import as_dtype, int64, with_scalar
from ..ir.op import get
from .tensor import Tensor, apply, asarray, is_array

__all__ = [
    "allclose", "array_equal", "equal", "greater", "greater_equal", "isclose", "isfinite", "isinf", "isnan", "isneginf",
    "isposinf", "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "not_equal",
]  # fmt: skip

_NUMBERS = (int, float, complex)
_PYTHON = (bool, *_NUMBERS)
_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_TRUE_BELOW = ("less", "less_equal", "not_equal")
_TRUE_ABOVE = ("greater", "greater_equal", "not_equal")


def _compared(name: str, x: Any, y: Any) -> Tensor:
    """A comparison; a Python integer that the array's dtype cannot hold is less or greater than all it holds."""
    if type(y) is int and type(x) not in _PYTHON:
        return _with_integer(name, x, y)
    if type(x) is int and type(y) not in _PYTHON:
        return _with_integer(_MIRRORED.get(name, name), y, x, swapped=name)
    return apply(get(name), x, y)


def _with_integer(name: str, x: Any, value: int, swapped: str = "") -> Tensor:
    x = x if is_array(x) else asarray(x)
    common = with_scalar(as_dtype(x.dtype), "i")
    if common.is_integer:
        low, high = common.range
        if not low <= value <= high:
            answer = name in (_TRUE_BELOW if value > high else _TRUE_ABOVE)
            return apply(get("broadcast_to"), asarray(answer), shape=tuple(x.shape))
    return apply(get(swapped), value, x) if swapped else apply(get(name), x, value)


def equal(x: Any, y: Any) -> Tensor:
    """[x = y], element by element. NaN equals nothing.

    >>> equal(asarray([1, 2]), 2).tolist()
    [False, True]
    """
    return _compared("equal", x, y)


def not_equal(x: Any, y: Any) -> Tensor:
    """[x ≠ y], element by element. NaN differs from everything.

    >>> not_equal(asarray([1, 2]), 2).tolist()
    [True, False]
    """
    return _compared("not_equal", x, y)


def less(x: Any, y: Any) -> Tensor:
    """[x < y], element by element. Raises :class:`DTypeError` for complex numbers.

    >>> less(asarray([1, 2]), 2).tolist()
    [True, False]
    """
    return _compared("less", x, y)


def less_equal(x: Any, y: Any) -> Tensor:
    """[x ≤ y], element by element. Raises :class:`DTypeError` for complex numbers.

    >>> less_equal(asarray([1, 2]), 1).tolist()
    [True, False]
    """
    return _compared("less_equal", x, y)


def greater(x: Any, y: Any) -> Tensor:
    """[x > y], element by element. Raises :class:`DTypeError` for complex numbers.

    >>> greater(asarray([1, 2]), 1).tolist()
    [False, True]
    """
    return _compared("greater", x, y)


def greater_equal(x: Any, y: Any) -> Tensor:
    """[x ≥ y], element by element. Raises :class:`DTypeError` for complex numbers.

    >>> greater_equal(asarray([1, 2]), 2).tolist()
    [False, True]
    """
    return _compared("greater_equal", x, y)


def isnan(x: Any) -> Tensor:
    """[x is NaN]; False for integers. A complex number is NaN where either part is.

    >>> isnan(asarray([1.0, float("nan")])).tolist()
    [False, True]
    """
    return apply(get("isnan"), x)


def isinf(x: Any) -> Tensor:
    """[x is +∞ or -∞]; False for integers.

    >>> isinf(asarray([1.0, -float("inf")])).tolist()
    [False, True]
    """
    return apply(get("isinf"), x)


def isfinite(x: Any) -> Tensor:
    """[x is neither NaN nor infinite]; True for integers.

    >>> isfinite(asarray([1.0, float("nan"), float("inf")])).tolist()
    [True, False, False]
    """
    return apply(get("isfinite"), x)


def isposinf(x: Any) -> Tensor:
    """[x is +∞]. Raises :class:`DTypeError` for complex numbers.

    >>> isposinf(asarray([float("inf"), -float("inf")])).tolist()
    [True, False]
    """
    return logical_and(isinf(x), greater(x, 0))


def isneginf(x: Any) -> Tensor:
    """[x is -∞]. Raises :class:`DTypeError` for complex numbers.

    >>> isneginf(asarray([float("inf"), -float("inf")])).tolist()
    [False, True]
    """
    return logical_and(isinf(x), less(x, 0))


def logical_and(x: Any, y: Any) -> Tensor:
    """x ∧ y, numbers being true where they are not 0.

    >>> logical_and(asarray([0, 2]), asarray([1.0, 0.5])).tolist()
    [False, True]
    """
    return apply(get("logical_and"), x, y)


def logical_or(x: Any, y: Any) -> Tensor:
    """x ∨ y, numbers being true where they are not 0.

    >>> logical_or(asarray([0, 2]), asarray([0.0, 0.5])).tolist()
    [False, True]
    """
    return apply(get("logical_or"), x, y)


def logical_xor(x: Any, y: Any) -> Tensor:
    """x ⊻ y, numbers being true where they are not 0.

    >>> logical_xor(asarray([0, 2]), asarray([1.0, 0.5])).tolist()
    [True, False]
    """
    return apply(get("logical_xor"), x, y)


def logical_not(x: Any) -> Tensor:
    """¬x, numbers being true where they are not 0.

    >>> logical_not(asarray([0, 2])).tolist()
    [True, False]
    """
    return apply(get("logical_not"), x)


def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """[|a - b| ≤ atol + rtol |b|], element by element. Infinities are close to their like alone, NaNs where asked for.

    >>> isclose(asarray([1.0, 2.0]), asarray([1.000001, 2.1])).tolist()
    [True, False]
    """
    a, b = _operand(a), _operand(b)
    same = equal(a, b)
    if _is_inexact(a) or _is_inexact(b):
        distance = apply(get("abs"), apply(get("subtract"), a, b))
        finite = logical_and(isfinite(a), isfinite(b))
    else:
        # Not |a - b|, which wraps in unsigned integers.
        distance = apply(get("subtract"), apply(get("maximum"), a, b), apply(get("minimum"), a, b))
        finite = logical_not(False)
    bound = apply(get("add"), apply(get("multiply"), apply(get("abs"), b), float(rtol)), float(atol))
    close = logical_or(same, logical_and(finite, less_equal(distance, bound)))
    if equal_nan:
        close = logical_or(close, logical_and(isnan(a), isnan(b)))
    return close


def _operand(value: Any) -> Any:
    """Arrays and Python numbers as they are, booleans as integers, lists as arrays."""
    if type(value) in _NUMBERS:
        return value
    value = value if is_array(value) else asarray(value)
    return apply(get("cast"), value, dtype=int64) if as_dtype(value.dtype).is_bool else value


def _is_inexact(value: Any) -> bool:
    return type(value) in (float, complex) if type(value) in _NUMBERS else as_dtype(value.dtype).is_inexact


def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether all elements are close, as :func:`isclose` has it: a 0-d boolean.

    >>> allclose(asarray([1.0, 2.0]), asarray([1.0, 2.0000001])).item()
    True
    """
    return _all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a: Any, b: Any, equal_nan: bool = False) -> Tensor:
    """Whether shapes and all elements are equal, NaNs to NaNs where asked for: a 0-d boolean.

    >>> array_equal(asarray([1, 2]), asarray([1.0, 2.0])).item(), array_equal(asarray([1]), asarray([1, 1])).item()
    (True, False)
    """
    a, b = _operand(a), _operand(b)
    if _shape(a) != _shape(b):
        return asarray(False)
    same = equal(a, b)
    if equal_nan:
        same = logical_or(same, logical_and(isnan(a), isnan(b)))
    return _all(same)


def _shape(value: Any) -> tuple[int, ...]:
    return () if type(value) in _NUMBERS else tuple(value.shape)


def _all(x: Tensor) -> Tensor:
    return apply(get("all"), x, axis=tuple(range(x.ndim)), keepdims=False, dtype=None)
