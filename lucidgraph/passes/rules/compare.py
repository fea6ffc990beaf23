"""Laws of comparisons and logic. NaN decides which are exact: it is neither less than, nor at least, anything."""

from __future__ import annotations

from typing import Final

from ...ir import Op, Var
from ...ir.ops.compare import IsFinite, IsInf, IsNan
from ..laws import Kind, Rule, booleans, discrete, law, rule


@rule("isnan(x) = isinf(x) = False, x an integer or boolean", on=lambda op: op in (IsNan, IsInf))
def discrete_is_finite(at: Op) -> Var | None:
    return None if at.x.dtype.is_inexact else at.y.full(False)


@rule("isfinite(x) = True, x an integer or boolean", on=IsFinite)
def discrete_is_always_finite(at: Op) -> Var | None:
    return None if at.x.dtype.is_inexact else at.y.full(True)


RULES: Final[tuple[Rule, ...]] = (
    law("x == x = True", when=discrete),
    law("x == x = True", Kind.DOMAIN),
    law("x != x = False", when=discrete),
    law("x != x = False", Kind.DOMAIN),
    law("x < x = False"),
    law("x > x = False"),
    law("x <= x = True", when=discrete),
    law("x >= x = True", when=discrete),
    law("not (x == y) = x != y"),
    law("not (x != y) = x == y"),
    law("not (x < y) = x >= y", when=discrete),
    law("not (x <= y) = x > y", when=discrete),
    law("not (x > y) = x <= y", when=discrete),
    law("not (x >= y) = x < y", when=discrete),
    law("x == True = x", when=booleans),
    law("x != False = x", when=booleans),
    law("x == False = not x", when=booleans),
    law("x != True = not x", when=booleans),
    law("x and True = x"),
    law("x and False = False"),
    law("x or False = x"),
    law("x or True = True"),
    law("x and not x = False"),
    law("x or not x = True"),
    law("not x and not y = not (x or y)"),
    law("not x or not y = not (x and y)"),
    discrete_is_finite,
    discrete_is_always_finite,
)
