"""Laws of bits; all are exact. ``-1`` has every bit set."""

from __future__ import annotations

from typing import Final

from ..laws import Rule, law

RULES: Final[tuple[Rule, ...]] = (
    law("x & 0 = 0"),
    law("x & -1 = x"),
    law("x | 0 = x"),
    law("x | -1 = -1"),
    law("x ^ 0 = x"),
    law("x ^ -1 = ~x"),
    law("x ^ x = 0"),
    law("x & ~x = 0"),
    law("~x & ~y = ~(x | y)"),
    law("~x | ~y = ~(x & y)"),
    law("bitwise_left_shift(x, 0) = x"),
    law("bitwise_right_shift(x, 0) = x"),
)
