"""The rules, a chapter a file. The order is the order in which they are tried."""

from typing import Final

from ..laws import Rule
from . import arithmetic, compare, core, reduce, shape

RULES: Final[tuple[Rule, ...]] = (*core.RULES, *arithmetic.RULES, *compare.RULES, *reduce.RULES, *shape.RULES)

__all__ = ["RULES"]
