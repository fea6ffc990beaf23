"""Laws of elementary functions. Backends round these each in its own way, so few are exact."""

from __future__ import annotations

from typing import Final

from ...ir import Op, Var
from ..laws import Kind, Rule, integers, law, real, rule


@rule("floor(x) = x, x an integer; ceil, trunc, round likewise", on=lambda op: op.whole)
def rounded_integer(at: Op) -> Var | None:
    return None if at.x.dtype.is_inexact else at.x


@rule("floor(ceil(x)) = ceil(x), and so for any two of floor, ceil, trunc, round", on=lambda op: op.whole)
def rounded_twice(at: Op) -> Var | None:
    return at.x if at.x.node.op.whole else None


RULES: Final[tuple[Rule, ...]] = (
    rounded_integer,
    rounded_twice,
    law("pow(x, 0) = 1", when=integers),
    law("pow(x, 1) = x", when=integers),
    law("pow(x, 1) = x", Kind.ROUNDING),
    law("pow(x, 2) = square(x)", when=integers),
    law("pow(x, 2) = square(x)", Kind.ROUNDING, when=real),
    law("pow(x, 3) = square(x) * x", Kind.ROUNDING, when=real),
    law("pow(x, -1) = reciprocal(x)", Kind.ROUNDING, when=real),
    law("1 / sqrt(x) = rsqrt(x)", Kind.ROUNDING),
    law("reciprocal(sqrt(x)) = rsqrt(x)", Kind.ROUNDING),
    law("pow(x, 0.5) = sqrt(x)", Kind.DOMAIN),
    law("square(sqrt(x)) = x", Kind.DOMAIN),
    law("sqrt(square(x)) = abs(x)", Kind.DOMAIN),
    law("exp(log(x)) = x", Kind.DOMAIN),
    law("log(exp(x)) = x", Kind.DOMAIN),
)
