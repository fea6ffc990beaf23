"""The rules, a chapter a file. The order is the order in which they are tried."""

from typing import Final

from ..laws import Rule
from . import arithmetic, bitwise, compare, core, math, reduce, shape

RULES: Final[tuple[Rule, ...]] = (
    *core.RULES, *arithmetic.RULES, *compare.RULES, *bitwise.RULES, *math.RULES, *reduce.RULES, *shape.RULES,
)  # fmt: skip

__all__ = ["RULES"]
