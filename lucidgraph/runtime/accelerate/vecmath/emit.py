"""Typed building blocks for straight-line floating-point code in LLVM IR.

A `Real` wraps one scalar or vector value together with the builder that extends it, so that a formula reads as
arithmetic: `z = r * r; (r * z).mad(paired(z, z * z, SIN), r)`. Nothing here carries a fast-math flag. Rounding to an
integer is done by adding and subtracting a constant, never by an intrinsic: before SSE4.1 those become library calls.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, Protocol, cast

from llvmlite import ir

from .formats import BINARY32, BINARY64, Format, Vector, round_to_single


@dataclass(frozen=True, slots=True)
class Target:
    """What the emitters must know of the machine; `fma` says that `llvm.fma` is an instruction there.

    Without it a fused step is replaced by an error-free one: binary32 goes through binary64, binary64 through
    Dekker's product and Knuth's sum. `avx512` (AVX512F) lets functions take the instructions of `registers`, and with
    them formulas whose last bits may be others.
    """

    fma: bool = True
    avx512: bool = False


DEFAULT_TARGET = Target()


class _Literal(ir.Constant):
    """A constant given by its text; `splat (…)` keeps modules of wide vectors short."""

    def __init__(self, typ: ir.Type, text: str) -> None:
        self.type = typ
        self.constant = text

    def _get_reference(self) -> str:
        return self.constant


class Lanes:
    """Where code goes and in which shape: the builder, the element format and the lane count (None: scalar)."""

    def __init__(self, b: ir.IRBuilder, typ: ir.Type, target: Target) -> None:
        self.b = b
        self.target = target
        self.count = typ.count if isinstance(typ, ir.VectorType) else None
        element = typ.element if isinstance(typ, ir.VectorType) else typ
        if element == BINARY32.real:
            self.format = BINARY32
        elif element == BINARY64.real:
            self.format = BINARY64
        else:
            raise TypeError(f"elementary functions take float or double lanes, not {typ}")

    def shape(self, element: ir.Type) -> ir.Type:
        return element if self.count is None else Vector(element, self.count)

    @property
    def suffix(self) -> str:
        """The name of the type inside intrinsic names: `f32`, `v16f32`."""
        return self.format.suffix if self.count is None else f"v{self.count}{self.format.suffix}"

    def reshaped(self, element: ir.Type) -> Lanes:
        return Lanes(self.b, self.shape(element), self.target)

    def _constant(self, element: ir.Type, text: str) -> ir.Constant:
        if self.count is None:
            return _Literal(element, text)
        return _Literal(self.shape(element), f"splat ({element} {text})")

    def real(self, c: float) -> Real:
        """The number `c`, rounded to the format of the lanes."""
        if self.format is BINARY32:
            c = round_to_single(c)
        (bits,) = struct.unpack("<Q", struct.pack("<d", c))
        return Real(self, self._constant(self.format.real, f"0x{bits:016X}"))

    def integer(self, n: int) -> Int:
        width = self.format.width
        n &= (1 << width) - 1
        return Int(self, self._constant(self.format.integer, str(n - (1 << width) if n >> (width - 1) else n)))

    def intrinsic(self, name: str, *args: ir.Value) -> ir.Value:
        """Call an overloaded LLVM intrinsic whose operands and result all have the type of the lanes."""
        full = f"llvm.{name}.{self.suffix}"
        fn = self.b.module.globals.get(full)
        if fn is None:
            typ = self.shape(self.format.real)
            fn = ir.Function(self.b.module, ir.FunctionType(typ, [typ] * len(args)), full)
        return self.b.call(fn, args)


class Mask:
    """One truth value a lane."""

    __slots__ = ("lanes", "value")

    def __init__(self, lanes: Lanes, value: ir.Value) -> None:
        self.lanes = lanes
        self.value = value

    def __and__(self, other: Mask) -> Mask:
        return Mask(self.lanes, self.lanes.b.and_(self.value, other.value))

    def __or__(self, other: Mask) -> Mask:
        return Mask(self.lanes, self.lanes.b.or_(self.value, other.value))

    def select(self, yes: Any, no: Any) -> Any:
        """Lane by lane `yes` where true, `no` where false; two `Real`, two `Int`, or a `Real` and a number."""
        if not isinstance(yes, (Real, Int)):
            yes = self.lanes.real(yes)
        if not isinstance(no, (Real, Int)):
            no = self.lanes.real(no)
        return type(yes)(yes.lanes, self.lanes.b.select(self.value, yes.value, no.value))

    def any(self) -> ir.Value:
        """One `i1`: is some lane true?"""
        if self.lanes.count is None:
            return self.value
        packed = ir.IntType(self.lanes.count)
        return self.lanes.b.icmp_unsigned("!=", self.lanes.b.bitcast(self.value, packed), packed(0))


class Int:
    """Integers of the same width as the real lanes. `>>` is the logical shift."""

    __slots__ = ("lanes", "value")

    def __init__(self, lanes: Lanes, value: ir.Value) -> None:
        self.lanes = lanes
        self.value = value

    @property
    def format(self) -> Format:
        return self.lanes.format

    def _binary(self, op: str, other: Int | int) -> Int:
        other = self.lanes.integer(other) if isinstance(other, int) else other
        return Int(self.lanes, getattr(self.lanes.b, op)(self.value, other.value))

    def __add__(self, other: Int | int) -> Int:
        return self._binary("add", other)

    def __sub__(self, other: Int | int) -> Int:
        return self._binary("sub", other)

    def __and__(self, other: Int | int) -> Int:
        return self._binary("and_", other)

    def __or__(self, other: Int | int) -> Int:
        return self._binary("or_", other)

    def __xor__(self, other: Int | int) -> Int:
        return self._binary("xor", other)

    def __lshift__(self, other: Int | int) -> Int:
        return self._binary("shl", other)

    def __rshift__(self, other: Int | int) -> Int:
        return self._binary("lshr", other)

    def equals(self, other: int) -> Mask:
        return Mask(self.lanes, self.lanes.b.icmp_unsigned("==", self.value, self.lanes.integer(other).value))

    def exponent(self) -> Real:
        """The number k, for the integer k * 2**mantissa with |k| at most twice the bias."""
        form = self.lanes.format
        if form is BINARY32:
            # An arithmetic shift and a conversion are one instruction each everywhere; not so for 64 bits.
            shifted = self.lanes.b.ashr(self.value, self.lanes.integer(form.mantissa).value)
            return Real(self.lanes, self.lanes.b.sitofp(shifted, self.lanes.shape(form.real)))
        # A small positive integer under the exponent of 2**mantissa reads as 2**mantissa + integer.
        base = 2.0**form.mantissa
        biased = (self + form.one_bits) >> form.mantissa
        return (biased | self.lanes.real(base).bits()).as_real() - (base + form.bias)

    def as_real(self) -> Real:
        """The floating-point number with this bit pattern."""
        return Real(self.lanes, self.lanes.b.bitcast(self.value, self.lanes.shape(self.lanes.format.real)))


class Real:
    """Floating-point lanes in flight. Operators round once each; comparisons are ordered (false on NaN)."""

    __slots__ = ("lanes", "value")

    def __init__(self, lanes: Lanes, value: ir.Value) -> None:
        self.lanes = lanes
        self.value = value

    @property
    def format(self) -> Format:
        return self.lanes.format

    @property
    def single(self) -> bool:
        return self.lanes.format is BINARY32

    def _of(self, other: Real | float) -> Real:
        return other if isinstance(other, Real) else self.lanes.real(other)

    def __add__(self, other: Real | float) -> Real:
        return Real(self.lanes, self.lanes.b.fadd(self.value, self._of(other).value))

    def __sub__(self, other: Real | float) -> Real:
        return Real(self.lanes, self.lanes.b.fsub(self.value, self._of(other).value))

    def __mul__(self, other: Real | float) -> Real:
        return Real(self.lanes, self.lanes.b.fmul(self.value, self._of(other).value))

    def __truediv__(self, other: Real | float) -> Real:
        return Real(self.lanes, self.lanes.b.fdiv(self.value, self._of(other).value))

    def __radd__(self, other: float) -> Real:
        return self._of(other) + self

    def __rsub__(self, other: float) -> Real:
        return self._of(other) - self

    def __rmul__(self, other: float) -> Real:
        return self._of(other) * self

    def __rtruediv__(self, other: float) -> Real:
        return self._of(other) / self

    def __neg__(self) -> Real:
        return Real(self.lanes, self.lanes.b.fneg(self.value))

    def _compare(self, op: str, other: Real | float) -> Mask:
        return Mask(self.lanes, self.lanes.b.fcmp_ordered(op, self.value, self._of(other).value))

    def __lt__(self, other: Real | float) -> Mask:
        return self._compare("<", other)

    def __le__(self, other: Real | float) -> Mask:
        return self._compare("<=", other)

    def __gt__(self, other: Real | float) -> Mask:
        return self._compare(">", other)

    def __ge__(self, other: Real | float) -> Mask:
        return self._compare(">=", other)

    def equals(self, other: Real | float) -> Mask:
        return self._compare("==", other)

    def is_nan(self) -> Mask:
        return Mask(self.lanes, self.lanes.b.fcmp_unordered("uno", self.value, self.value))

    def at_most(self, bound: float) -> Real:
        """min(self, bound) that lets NaN through."""
        return (self > bound).select(bound, self)

    def at_least(self, bound: float) -> Real:
        """max(self, bound) that lets NaN through."""
        return (self < bound).select(bound, self)

    def abs(self) -> Real:
        return Real(self.lanes, self.lanes.intrinsic("fabs", self.value))

    def sqrt(self) -> Real:
        return Real(self.lanes, self.lanes.intrinsic("sqrt", self.value))

    def copysign(self, sign: Real) -> Real:
        return Real(self.lanes, self.lanes.intrinsic("copysign", self.value, sign.value))

    def bits(self) -> Int:
        return Int(self.lanes, self.lanes.b.bitcast(self.value, self.lanes.shape(self.lanes.format.integer)))

    def sign_bit(self) -> Int:
        return self.bits() & self.lanes.format.sign_bits

    def widen(self) -> Real:
        """binary32 to binary64, exactly."""
        wide = self.lanes.reshaped(BINARY64.real)
        return Real(wide, self.lanes.b.fpext(self.value, wide.shape(BINARY64.real)))

    def narrow(self) -> Real:
        """binary64 to binary32, rounded."""
        lanes = self.lanes.reshaped(BINARY32.real)
        return Real(lanes, self.lanes.b.fptrunc(self.value, lanes.shape(BINARY32.real)))

    def fma(self, y: Real | float, z: Real | float) -> Real:
        """self * y + z as if rounded once: for error terms and reductions that rely on it."""
        y, z = self._of(y), self._of(z)
        if self.lanes.target.fma:
            return Real(self.lanes, self.lanes.intrinsic("fma", self.value, y.value, z.value))
        if self.single:
            # The product is exact in binary64; rounding the sum twice costs next to nothing.
            return (self.widen() * y.widen() + z.widen()).narrow()
        product, low = two_product(self, y)
        total, rest = two_sum(product, z)
        return total + (rest + low)

    def mad(self, y: Real | float, z: Real | float) -> Real:
        """self * y + z, rounded once or twice as is cheaper: for polynomials."""
        y, z = self._of(y), self._of(z)
        return self.fma(y, z) if self.lanes.target.fma else self * y + z


def two_sum(a: Real, b: Real | float) -> tuple[Real, Real]:
    """a + b as rounded sum and exact error (Knuth)."""
    b = a._of(b)
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fast_two_sum(a: Real, b: Real) -> tuple[Real, Real]:
    """a + b as rounded sum and exact error where |a| >= |b| or a = 0 (Dekker)."""
    s = a + b
    return s, b - (s - a)


def two_product(a: Real, b: Real | float) -> tuple[Real, Real]:
    """a * b as rounded product and exact error, barring overflow and underflow."""
    b = a._of(b)
    p = a * b
    if a.lanes.target.fma or a.single:
        return p, a.fma(b, -p)
    a_hi, a_lo = _veltkamp(a)
    b_hi, b_lo = _veltkamp(b)
    return p, ((a_hi * b_hi - p) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo


def _veltkamp(a: Real) -> tuple[Real, Real]:
    """Split into halves of 26 bits whose products are exact (Veltkamp)."""
    c = a * 134217729.0
    hi = c - (c - a)
    return hi, a - hi


def paired(x: Real, square: Real, coefficients: Sequence[float]) -> Real:
    """c[0] + c[1] x + c[2] x**2 + … by Horner's rule in `square` = x**2 over the pairs c[i] + c[i+1] x.

    As many operations as Horner's rule in x where the square is at hand, and half the latency.
    """
    c = [x.lanes.real(v) for v in coefficients]
    pairs = [x.mad(c[i + 1], c[i]) if i + 1 < len(c) else c[i] for i in range(0, len(c), 2)]
    acc = pairs[-1]
    for pair in reversed(pairs[:-1]):
        acc = acc.mad(square, pair)
    return acc


def nearest(x: Real, scale: float = 1.0) -> tuple[Real, Int]:
    """round(x * scale), as a number and as an `Int` that holds it above the bit pattern of the shifter.

    The `Int` is meant for `power_of_two` and `scale_by`, which shift the pattern out, and for its lowest bits.
    """
    shifter = x.format.shifter
    shifted = x + shifter if scale == 1.0 else x.mad(scale, shifter)
    return shifted - shifter, shifted.bits()


def power_of_two(n: Int) -> Real:
    """2**n for n from `nearest`, within the exponents of normal numbers."""
    form = n.format
    return ((n << form.mantissa) + form.one_bits).as_real()


class Emitter(Protocol):
    """What `FUNCTIONS` holds: appends a function of `arity` equally typed arguments to the builder's block."""

    __name__: str
    arity: int

    def __call__(self, b: ir.IRBuilder, *args: ir.Value, target: Target = DEFAULT_TARGET) -> ir.Value: ...


def emitter(formula: Callable[..., Real]) -> Emitter:
    """Turn a formula over `Real` into an `Emitter` over LLVM values."""
    arity = len(signature(formula).parameters)

    @wraps(formula)
    def emit(b: ir.IRBuilder, *args: ir.Value, target: Target = DEFAULT_TARGET) -> ir.Value:
        if len(args) != arity:
            raise TypeError(f"{formula.__name__} takes {arity} argument{'s' * (arity > 1)}, got {len(args)}")
        if any(a.type != args[0].type for a in args):
            types = ", ".join(str(a.type) for a in args)
            raise TypeError(f"{formula.__name__} needs arguments of one type, got {types}")
        lanes = Lanes(b, args[0].type, target)
        return formula(*(Real(lanes, a) for a in args)).value

    emit.arity = arity  # type: ignore[attr-defined]
    return cast(Emitter, emit)
