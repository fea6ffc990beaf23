"""Bits of integers and booleans. Floats raise :class:`DTypeError`."""

from __future__ import annotations

from typing import Any

from ..ir.op import get
from .tensor import Tensor, apply

__all__ = [
    "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "invert", "left_shift", "right_shift",
]  # fmt: skip


def bitwise_and(x: Any, y: Any) -> Tensor:
    """x & y, bit by bit.

    >>> bitwise_and(6, 3).item()
    2
    """
    return apply(get("bitwise_and"), x, y)


def bitwise_or(x: Any, y: Any) -> Tensor:
    """x | y, bit by bit.

    >>> bitwise_or(6, 3).item()
    7
    """
    return apply(get("bitwise_or"), x, y)


def bitwise_xor(x: Any, y: Any) -> Tensor:
    """x ^ y, bit by bit.

    >>> bitwise_xor(6, 3).item()
    5
    """
    return apply(get("bitwise_xor"), x, y)


def bitwise_invert(x: Any) -> Tensor:
    """~x: every bit flipped; the negation of a boolean.

    >>> bitwise_invert(5).item(), bitwise_invert(True).item()
    (-6, False)
    """
    return apply(get("bitwise_invert"), x)


def bitwise_left_shift(x: Any, y: Any) -> Tensor:
    """x 2^y in the operands' common dtype, without the bits that do not fit. Booleans are refused too.

    >>> bitwise_left_shift(3, 4).item()
    48
    """
    return apply(get("bitwise_left_shift"), x, y)


def bitwise_right_shift(x: Any, y: Any) -> Tensor:
    """⌊x / 2^y⌋. Booleans are refused too.

    >>> bitwise_right_shift(-5, 1).item()
    -3
    """
    return apply(get("bitwise_right_shift"), x, y)


bitwise_not = invert = bitwise_invert
left_shift = bitwise_left_shift
right_shift = bitwise_right_shift
