"""The two formats, constants cut to them, and tables of coefficients by format."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from llvmlite import ir


class Vector(ir.VectorType):
    """A vector's type; one number in every lane is written as that, which LLVM reads faster as well."""

    def format_constant(self, value: Any) -> str:
        first = value[0]
        if any(v is not first for v in value):
            return str(super().format_constant(value))
        return f"splat ({first.type} {first.get_reference()})"


@dataclass(frozen=True, slots=True)
class Format:
    """One IEEE 754 interchange format: element types, widths and the constants that follow from them."""

    real: ir.Type
    integer: ir.IntType
    suffix: str
    width: int
    mantissa: int
    bias: int

    @property
    def one_bits(self) -> int:
        return self.bias << self.mantissa

    @property
    def sign_bits(self) -> int:
        return 1 << (self.width - 1)

    @property
    def exponent_bits(self) -> int:
        return (2 * self.bias + 1) << self.mantissa

    @property
    def shifter(self) -> float:
        """1.5 * 2**mantissa: adding it rounds to an integer, which then stands in the low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)


BINARY32 = Format(ir.FloatType(), ir.IntType(32), "f32", 32, 23, 127)
BINARY64 = Format(ir.DoubleType(), ir.IntType(64), "f64", 64, 52, 1023)


def round_to_single(c: float) -> float:
    """`c` rounded to binary32; overflow is an error, infinities and NaN pass."""
    return struct.unpack("<f", struct.pack("<f", c))[0]


T = TypeVar("T")


class ByFormat(NamedTuple, Generic[T]):
    """One value for each format: most often polynomial coefficients, constant term first."""

    single: T
    double: T

    def of(self, form: Format) -> T:
        return self.single if form is BINARY32 else self.double


class Exact(NamedTuple):
    """A constant as an unevaluated sum of doubles, to be cut to the format in use."""

    terms: tuple[float, ...]

    def parts(self, form: Format, count: int = 2) -> tuple[float, ...]:
        """The leading `count` numbers of the format whose sum is the constant, each a rounding of the rest."""
        return _parts_single(self.terms, count) if form is BINARY32 else self.terms[:count]


@lru_cache
def _parts_single(terms: tuple[float, ...], count: int) -> tuple[float, ...]:
    rest = sum(map(Fraction, terms), Fraction(0))
    parts = []
    for _ in range(count):
        parts.append(round_to_single(float(rest)))
        rest -= Fraction(parts[-1])
    return tuple(parts)


LN2 = Exact((0.6931471805599453, 2.3190468138462996e-17))
LOG2_E = Exact((1.4426950408889634, 2.0355273740931033e-17))
LOG10_E = Exact((0.4342944819032518, 1.098319650216765e-17))
LOG10_2 = Exact((0.3010299956639812, -2.8037281277851704e-18))
HALF_PI = Exact((1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33))
QUARTER_PI = Exact((0.7853981633974483, 3.061616997868383e-17))
