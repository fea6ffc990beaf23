"""Laws of arithmetic and of ``where``. The sign of 0 decides which are exact: 0.0 + -0.0 is 0.0."""

from __future__ import annotations

import math
from typing import Final

from ...ir import Op, Var
from ...ir.ops.arithmetic import (
    ConjBackward,
    DivBackward,
    ImagBackward,
    MaskedDivBackward,
    MaskedMulBackward,
    MulBackward,
    RealBackward,
)
from ..laws import Kind, Rule, discrete, integers, law, real, rule, uniform


@rule("x / c = x * (1 / c), c a power of two", on=DivBackward)
def divided_by_power_of_two(at: Op) -> Var | None:
    c = uniform(at.node.operands[1])
    if c is None or isinstance(c, complex) or at.x.dtype.is_complex or c == 0 or not math.isfinite(c):
        return None
    # Between 2^±14 both numbers are normal in every dtype.
    mantissa, exponent = math.frexp(abs(c))
    return at.x * (1.0 / c) if mantissa == 0.5 and abs(exponent - 1) <= 14 else None


@rule("masked_multiply(c, y) = c * y, c a number other than 0", on=MaskedMulBackward)
def unmasked_multiply(at: Op) -> Var | None:
    x, y = at.inputs
    return MulBackward.of(x, y) if uniform(x.node) else None


@rule("masked_divide(c, y) = c / y, c a number other than 0", on=MaskedDivBackward)
def unmasked_divide(at: Op) -> Var | None:
    x, y = at.inputs
    return DivBackward.of(x, y) if uniform(x.node) else None


@rule("conj(x) = real(x) = x, x real", on=lambda op: op in (ConjBackward, RealBackward))
def part_of_real(at: Op) -> Var | None:
    return None if at.x.dtype.is_complex else at.x


@rule("imag(x) = 0, x real", on=ImagBackward)
def imaginary_part_of_real(at: Op) -> Var | None:
    return None if at.x.dtype.is_complex else at.y.full(0)


RULES: Final[tuple[Rule, ...]] = (
    law("x + -0.0 = x", when=real),
    law("x + 0 = x", when=integers),
    law("x - 0 = x"),
    law("-0.0 - x = -x", when=real),
    law("0 - x = -x", when=integers),
    law("x + -y = x - y"),
    law("x - -y = x + y"),
    law("x - x = 0", when=integers),
    law("x - x = 0", Kind.DOMAIN),
    law("x * 1 = x", when=real),
    law("x * -1 = -x", when=real),
    law("x * 0 = 0", when=discrete),
    law("x * 0 = 0", Kind.DOMAIN),
    law("-x * -y = x * y"),
    law("x / 1 = x", when=real),
    law("x / -1 = -x", when=real),
    law("-x / -y = x / y", when=real),
    law("x / x = 1", Kind.DOMAIN),
    divided_by_power_of_two,
    law("masked_multiply(0, y) = 0"),
    law("masked_divide(0, y) = 0"),
    unmasked_multiply,
    unmasked_divide,
    part_of_real,
    imaginary_part_of_real,
    law("maximum(x, -inf) = x"),
    law("minimum(x, inf) = x"),
    law("maximum(maximum(x, y), y) = maximum(x, y)"),
    law("minimum(minimum(x, y), y) = minimum(x, y)"),
    law("where(True, x, y) = x"),
    law("where(False, x, y) = y"),
    law("where(c, x, x) = x"),
    law("where(not c, x, y) = where(c, y, x)"),
    law("where(c, True, False) = c"),
    law("where(c, False, True) = not c"),
    law("where(c, where(c, x, y), z) = where(c, x, z)"),
    law("where(c, x, where(c, y, z)) = where(c, x, z)"),
)
