"""Bits of integers, and of booleans, of which there is one. Floating and complex operands are refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import DType
from ...errors import DTypeError
from ..op import Binary, Unary, register
from ..schema import AmpPolicy, OpSchema

_INTEGER = "an integer has no gradient"


def _require_bits(name: str, dtype: DType) -> None:
    if dtype.is_inexact:
        raise DTypeError(f"{name} takes integers and booleans, not {dtype.name}", hint="cast to an integer dtype first")


class _Bits(Binary):
    zero_gradient = _INTEGER
    associative = True
    exactly_rounded = True
    commutative = True

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        _require_bits(cls.schema_v1.name, dtype)


@register
class BitwiseAnd(_Bits):
    """z = x & y, bit by bit"""

    schema_v1 = OpSchema("bitwise_and", amp_policy=AmpPolicy.PROMOTE, arity=2)
    idempotent = True

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.bitwise_and(x, y)


@register
class BitwiseOr(_Bits):
    """z = x | y, bit by bit"""

    schema_v1 = OpSchema("bitwise_or", amp_policy=AmpPolicy.PROMOTE, arity=2)
    idempotent = True

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.bitwise_or(x, y)


@register
class BitwiseXor(_Bits):
    """z = x ^ y, bit by bit"""

    schema_v1 = OpSchema("bitwise_xor", amp_policy=AmpPolicy.PROMOTE, arity=2)

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.bitwise_xor(x, y)


@register
class BitwiseInvert(Unary):
    """y = ~x: every bit flipped; of a boolean, its negation."""

    schema_v1 = OpSchema("bitwise_invert")
    exactly_rounded = True
    zero_gradient = _INTEGER
    involution = True

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        _require_bits(cls.schema_v1.name, dtype)

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.invert(x)


class _Shift(Binary):
    """Base of the shifts, whose result has the operands' common dtype: int8 << int8 is int8.

    A count that is negative, or not below the width of the dtype, shifts every bit out.
    """

    zero_gradient = _INTEGER

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        if not dtype.is_integer:
            name = cls.schema_v1.name
            raise DTypeError(f"{name} takes integers, not {dtype.name}", hint="cast to an integer dtype first")


@register
class BitwiseLeftShift(_Shift):
    """z = x 2^y, without the bits that no longer fit"""

    schema_v1 = OpSchema("bitwise_left_shift", amp_policy=AmpPolicy.PROMOTE, arity=2)

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        inside = _inside(x, y)
        return np.where(inside, np.left_shift(x, np.where(inside, y, np.zeros_like(y))), np.zeros_like(x))


@register
class BitwiseRightShift(_Shift):
    """z = ⌊x / 2^y⌋: negative numbers keep their sign"""

    schema_v1 = OpSchema("bitwise_right_shift", amp_policy=AmpPolicy.PROMOTE, arity=2)

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        inside = _inside(x, y)
        out = np.where(x < 0, np.full_like(x, -1), np.zeros_like(x)) if x.dtype.kind == "i" else np.zeros_like(x)
        return np.where(inside, np.right_shift(x, np.where(inside, y, np.zeros_like(y))), out)


def _inside(x: Any, y: Any) -> Any:
    """Where a shift count is one of the bit positions."""
    return (y >= 0) & (y < 8 * x.dtype.itemsize)
