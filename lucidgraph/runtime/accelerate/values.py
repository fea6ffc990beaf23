"""How values stand in registers and in memory: vectors of one width, complex numbers as pairs, halves as float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias, final

from llvmlite import ir

from ... import dtypes
from ...dtypes import DType
from .machine import Machine

I1: Final = ir.IntType(1)
I8: Final = ir.IntType(8)
I16: Final = ir.IntType(16)
I32: Final = ir.IntType(32)
I64: Final = ir.IntType(64)
F16: Final = ir.HalfType()
F32: Final = ir.FloatType()
F64: Final = ir.DoubleType()
PTR: Final = ir.PointerType()

ALIGNMENT: Final = 64
"""A line of the caches."""
_STREAMED: Final = 16
"""The bytes of the narrowest store that can go past the caches."""

_MEMORY: Final[dict[DType, ir.Type]] = {
    dtypes.bool_: I8, dtypes.int8: I8, dtypes.uint8: I8, dtypes.int16: I16, dtypes.uint16: I16,
    dtypes.int32: I32, dtypes.uint32: I32, dtypes.int64: I64, dtypes.uint64: I64,
    dtypes.float16: F16, dtypes.bfloat16: I16, dtypes.float32: F32, dtypes.float64: F64,
    dtypes.complex64: F32, dtypes.complex128: F64,
}  # fmt: skip


def memory_type(dtype: DType) -> ir.Type:
    """The element in memory; for a complex number, that of each part."""
    return _MEMORY[dtype]


def register_type(dtype: DType) -> ir.Type:
    """The element in registers: truth values are bits, half precision is computed in float32."""
    if dtype is dtypes.bool_:
        return I1
    return F32 if dtype.is_half else _MEMORY[dtype]


class Pair(NamedTuple):
    """A complex value: vectors of its real and imaginary parts."""

    re: ir.Value
    im: ir.Value


Value: TypeAlias = Any
"""A vector (``ir.Value``), or a pair of them."""


@final
class Lanes:
    """Appends vector code of ``count`` lanes to a builder."""

    def __init__(self, builder: ir.IRBuilder, count: int, machine: Machine) -> None:
        self.b = builder
        self.count = count
        self.machine = machine

    # -- types and constants

    def vector(self, element: ir.Type) -> ir.Type:
        return ir.VectorType(element, self.count)

    def splat(self, scalar: ir.Value) -> ir.Value:
        """A scalar in every lane."""
        if isinstance(scalar, ir.Constant):
            return ir.Constant(self.vector(scalar.type), [scalar] * self.count)
        one = self.b.insert_element(ir.Constant(self.vector(scalar.type), ir.Undefined), scalar, I32(0))
        zero = ir.Constant(ir.VectorType(I32, self.count), None)
        return self.b.shuffle_vector(one, ir.Constant(one.type, ir.Undefined), zero)

    def constant(self, value: Any, element: ir.Type) -> ir.Value:
        return self.splat(literal(value, element))

    def number(self, value: Any, dtype: DType) -> Value:
        """A Python number in every lane, rounded once to ``dtype``."""
        if dtype.is_complex:
            z = complex(value)
            part = memory_type(dtype)
            return Pair(self.constant(z.real, part), self.constant(z.imag, part))
        if dtype.is_floating:
            return self.constant(float(dtype.numpy.type(value)), register_type(dtype))
        if dtype.is_bool:
            return self.constant(int(bool(value)), I1)
        return self.constant(int(value), register_type(dtype))

    def iota(self) -> ir.Value:
        """0, 1, 2, … as 64-bit integers."""
        return ir.Constant(self.vector(I64), [I64(k) for k in range(self.count)])

    def intrinsic(self, name: str, result: ir.Type, args: list[ir.Value], suffix: str | None = None) -> ir.Value:
        """Call ``llvm.<name>.<suffix>``; the suffix is that of the result type unless given."""
        full = f"llvm.{name}.{suffix or type_suffix(result)}"
        fn = self.b.module.globals.get(full)
        if fn is None:
            fn = ir.Function(self.b.module, ir.FunctionType(result, [a.type for a in args]), full)
        return self.b.call(fn, args)

    def any(self, bits: ir.Value) -> ir.Value:
        """Whether some lane of a vector of bits is set."""
        packed = ir.IntType(bits.type.count)
        return self.b.icmp_unsigned("!=", self.b.bitcast(bits, packed), packed(0))

    # -- memory

    def load(self, dtype: DType, pointer: ir.Value, stride: ir.Value | None, mask: ir.Value | None) -> Value:
        """Lanes from memory: ``stride`` bytes apart; None: adjacent."""
        element = memory_type(dtype)
        if dtype.is_complex:
            size = element_bytes(element)
            step = I64(2 * size) if stride is None else stride
            return Pair(*(self._gather(element, self.offset(pointer, I64(k * size)), step, mask) for k in range(2)))
        raw = self._adjacent(element, pointer, mask) if stride is None else self._gather(element, pointer, stride, mask)
        return self.widened(raw, dtype)

    def load_near(self, dtype: DType, pointer: ir.Value, step: int) -> ir.Value:
        """Whole vectors, of which every ``step``-th element counts; -1: backwards. From 2 on, elements after the last
        one are read as well, up to where the next would be."""
        element = memory_type(dtype)
        size = element_bytes(element)
        if step < 0:
            raw = self._adjacent(element, self.offset(pointer, I64((1 - self.count) * size)), None)
            return self.widened(self._picked(raw, raw, range(self.count - 1, -1, -1)), dtype)
        # Register by register: shuffles of longer vectors would be made lane by lane.
        one = Lanes(self.b, min(self.count, self.machine.lanes * 4 // size), self.machine)
        parts = [one._every(element, self.offset(pointer, I64(at * step * size)), step)
                 for at in range(0, self.count, one.count)]  # fmt: skip
        while len(parts) > 1:
            both = range(2 * parts[0].type.count)
            parts = [self._picked(x, y, both) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        return self.widened(parts[0], dtype)

    def _every(self, element: ir.Type, pointer: ir.Value, step: int) -> ir.Value:
        """Every ``step``-th of the elements there, from ``step`` vectors."""
        n, size = self.count, element_bytes(element)
        raws = [self._adjacent(element, self.offset(pointer, I64(k * n * size)), None) for k in range(step)]
        lanes = range(0, step * n, step)
        out = self._picked(raws[0], raws[1], [min(lane, 2 * n - 1) for lane in lanes])
        for k in range(2, step):
            # The lanes that lie in this vector come from it, the others stay.
            mine = [n + lane - k * n if lane // n == k else j for j, lane in enumerate(lanes)]
            out = self._picked(out, raws[k], mine)
        return out

    def _picked(self, x: ir.Value, y: ir.Value, lanes: Sequence[int]) -> ir.Value:
        """Lanes of two vectors, those of the second counted on."""
        return self.b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), [I32(k) for k in lanes]))

    def load_same(self, dtype: DType, pointer: ir.Value) -> Value:
        """One element in every lane."""
        element = memory_type(dtype)
        if dtype.is_complex:
            parts = [self.offset(pointer, I64(k * element_bytes(element))) for k in range(2)]
            return Pair(*(self.splat(self.b.load(p, typ=element)) for p in parts))
        return self.widened(self.splat(self.b.load(pointer, typ=element)), dtype)

    def store(
        self, value: Value, dtype: DType, pointer: ir.Value, stride: ir.Value | None, mask: ir.Value | None,
        past: ir.Value | None = None,
    ) -> None:  # fmt: skip
        """Lanes to memory; past the caches where ``past`` is true (of whole vectors only) and they lie aligned."""
        element = memory_type(dtype)
        if isinstance(value, Pair):
            size = element_bytes(element)
            step = I64(2 * size) if stride is None else stride
            for k, part in enumerate(value):
                self._scatter(part, self.offset(pointer, I64(k * size)), step, mask)
            return
        raw = self.narrowed(value, dtype)
        size = element_bytes(element) * self.count
        if stride is not None:
            self._scatter(raw, pointer, stride, mask)
        elif past is None or size < _STREAMED:
            self._put(raw, pointer, mask)
        else:
            unit = min(size, ALIGNMENT)
            low = self.b.and_(self.b.ptrtoint(pointer, I64), I64(unit - 1))
            with self.b.if_else(self.b.and_(past, self.b.icmp_signed("==", low, I64(0)))) as (then, otherwise):
                with then:
                    made = self.b.store(raw, pointer, align=unit)
                    made.set_metadata("nontemporal", self.b.module.add_metadata([I32(1)]))
                with otherwise:
                    self._put(raw, pointer, mask)

    def fetch(self, pointer: ir.Value) -> None:
        """Ask for a line of memory that will be read; any address will do."""
        self.intrinsic("prefetch", ir.VoidType(), [pointer, I32(0), I32(3), I32(1)], "p0")

    def _put(self, raw: ir.Value, pointer: ir.Value, mask: ir.Value | None) -> None:
        size = element_bytes(raw.type.element)
        if mask is None:
            self.b.store(raw, pointer, align=size)
        else:
            name = f"masked.store.{type_suffix(raw.type)}.p0"
            self._memory_call(name, ir.VoidType(), [raw, pointer, mask], size, at=1)

    def offset(self, pointer: ir.Value, amount: ir.Value) -> ir.Value:
        return self.b.gep(pointer, [amount], source_etype=I8)

    def _adjacent(self, element: ir.Type, pointer: ir.Value, mask: ir.Value | None) -> ir.Value:
        typ = self.vector(element)
        if mask is None:
            return self.b.load(pointer, typ=typ, align=element_bytes(element))
        name = f"masked.load.{type_suffix(typ)}.p0"
        return self._memory_call(name, typ, [pointer, mask, ir.Constant(typ, None)], element_bytes(element), at=0)

    def _addresses(self, pointer: ir.Value, stride: ir.Value) -> ir.Value:
        steps = self.b.mul(self.iota(), self.splat(stride))
        base = self.splat(self.b.ptrtoint(pointer, I64))
        return self.b.inttoptr(self.b.add(base, steps), self.vector(PTR))

    def _gather(self, element: ir.Type, pointer: ir.Value, stride: ir.Value, mask: ir.Value | None) -> ir.Value:
        return self.gather_at(element, self._addresses(pointer, stride), mask)

    def gather_at(self, element: ir.Type, addresses: ir.Value, mask: ir.Value | None) -> ir.Value:
        """Lanes from one address each."""
        typ = self.vector(element)
        every = mask if mask is not None else self.constant(1, I1)
        name = f"masked.gather.{type_suffix(typ)}.{type_suffix(addresses.type)}"
        return self._memory_call(name, typ, [addresses, every, ir.Constant(typ, None)], element_bytes(element), at=0)

    def _scatter(self, value: ir.Value, pointer: ir.Value, stride: ir.Value, mask: ir.Value | None) -> None:
        addresses = self._addresses(pointer, stride)
        every = mask if mask is not None else self.constant(1, I1)
        name = f"masked.scatter.{type_suffix(value.type)}.{type_suffix(addresses.type)}"
        size = element_bytes(value.type.element)
        self._memory_call(name, ir.VoidType(), [value, addresses, every], size, at=1)

    def _memory_call(self, name: str, result: ir.Type, args: list[ir.Value], align: int, at: int) -> ir.Value:
        """A masked memory intrinsic, with the alignment after its pointer: newer LLVM reads that form too."""
        full = f"llvm.{name}"
        args.insert(at + 1, I32(align))
        fn = self.b.module.globals.get(full)
        if fn is None:
            fn = ir.Function(self.b.module, ir.FunctionType(result, [a.type for a in args]), full)
        return self.b.call(fn, args)

    # -- between memory and registers

    def widened(self, raw: ir.Value, dtype: DType) -> ir.Value:
        if dtype is dtypes.bool_:
            return self.b.icmp_unsigned("!=", raw, ir.Constant(raw.type, None))
        if dtype is dtypes.float16:
            return self.b.fpext(raw, self.vector(F32)) if self.machine.halves else self._from_float16(raw)
        if dtype is dtypes.bfloat16:
            bits = self.b.shl(self.b.zext(raw, self.vector(I32)), self.constant(16, I32))
            return self.b.bitcast(bits, self.vector(F32))
        return raw

    def narrowed(self, value: ir.Value, dtype: DType) -> ir.Value:
        """A register value as it stands in memory; floats are rounded to nearest, ties to even."""
        if dtype is dtypes.bool_:
            return self.b.zext(value, self.vector(I8))
        if dtype is dtypes.float16:
            return self.b.fptrunc(value, self.vector(F16)) if self.machine.halves else self._to_float16(value)
        if dtype is dtypes.bfloat16:
            return self._to_bfloat16(value)
        return value

    def _from_float16(self, raw: ir.Value) -> ir.Value:
        """Sign, exponent and mantissa moved to their places, the exponent's bias corrected by a product with 2^112,
        which is exact for subnormals as well; infinities and NaNs get the greatest exponent."""
        b, of = self.b, self._bits
        bits = b.zext(b.bitcast(raw, self.vector(I16)), self.vector(I32))
        moved = b.shl(b.and_(bits, of(0x7FFF)), of(13))
        finite = b.bitcast(b.fmul(b.bitcast(moved, self.vector(F32)), self.constant(2.0**112, F32)), self.vector(I32))
        special = b.icmp_unsigned(">=", moved, of(0x7C00 << 13))
        size = b.select(special, b.or_(moved, of(0x7F800000)), finite)
        return b.bitcast(b.or_(size, b.shl(b.and_(bits, of(0x8000)), of(16))), self.vector(F32))

    def _to_float16(self, value: ir.Value) -> ir.Value:
        """To nearest, ties to even, in integers; below 2^-14 by an addition that puts the last bit where float16 has
        it."""
        b, of = self.b, self._bits
        bits = b.bitcast(value, self.vector(I32))
        size = b.and_(bits, of(0x7FFFFFFF))
        odd = b.and_(b.lshr(size, of(13)), of(1))
        normal = b.lshr(b.add(b.sub(size, of((112 << 23) - 0xFFF)), odd), of(13))
        half = self.constant(0.5, F32)
        small = b.sub(b.bitcast(b.fadd(b.bitcast(size, self.vector(F32)), half), self.vector(I32)), of(0x3F000000))
        result = b.select(b.icmp_unsigned("<", size, of(113 << 23)), small, normal)
        result = b.select(b.icmp_unsigned(">=", size, of(143 << 23)), of(0x7C00), result)
        nan = b.or_(of(0x7E00), b.and_(b.lshr(size, of(13)), of(0x3FF)))
        result = b.select(b.icmp_unsigned(">", size, of(0x7F800000)), nan, result)
        signed = b.or_(result, b.and_(b.lshr(bits, of(16)), of(0x8000)))
        return b.bitcast(b.trunc(signed, self.vector(I16)), self.vector(F16))

    def _bits(self, n: int) -> ir.Value:
        return self.constant(n, I32)

    def rounded(self, name: str, x: ir.Value) -> ir.Value:
        """``floor``, ``ceil``, ``trunc`` or ``roundeven`` of floats.

        Where that is no instruction: adding and taking away 2^p, p being the bits of a mantissa, rounds to an integer,
        which is moved by 1 where it lies on the wrong side. From 2^p on every number is an integer.
        """
        if self.machine.rounds:
            return self.intrinsic(name, x.type, [x])
        b, element = self.b, x.type.element
        size = self.intrinsic("fabs", x.type, [x])
        big, one = self.constant(2.0**23 if element == F32 else 2.0**52, element), self.constant(1.0, element)
        nearest = b.fsub(b.fadd(size, big), big)
        if name == "trunc":
            nearest = b.select(b.fcmp_ordered(">", nearest, size), b.fsub(nearest, one), nearest)
        signed = self.intrinsic("copysign", x.type, [nearest, x])
        if name == "floor":
            signed = b.select(b.fcmp_ordered(">", signed, x), b.fsub(signed, one), signed)
        elif name == "ceil":
            signed = b.select(b.fcmp_ordered("<", signed, x), b.fadd(signed, one), signed)
        # The sign of a result that is 0 is the argument's; a NaN or a large number stays.
        signed = self.intrinsic("copysign", x.type, [signed, x])
        return b.select(b.fcmp_ordered("<", size, big), signed, x)

    def _to_bfloat16(self, value: ir.Value) -> ir.Value:
        b = self.b
        bits = b.bitcast(value, self.vector(I32))
        high = b.lshr(bits, self.constant(16, I32))
        odd = b.and_(high, self.constant(1, I32))
        rounded = b.lshr(b.add(bits, b.add(odd, self.constant(0x7FFF, I32))), self.constant(16, I32))
        nan = b.fcmp_unordered("uno", value, value)
        quiet = b.or_(high, self.constant(0x40, I32))
        return b.trunc(b.select(nan, quiet, rounded), self.vector(I16))


class Routine(ir.Value):
    """A function at an address, known now or held in a register, that can be called."""

    def __init__(self, address: int | ir.Value, typ: ir.FunctionType) -> None:
        self.type = PTR
        self.function_type = typ
        where = I64(address) if isinstance(address, int) else address
        self._text = str(where.get_reference()) if where.type == PTR else f"inttoptr ({where} to ptr)"

    def get_reference(self) -> str:
        return self._text


def literal(value: Any, element: ir.Type) -> ir.Constant:
    """A scalar constant."""
    return ir.Constant(element, value)


def element_bytes(element: ir.Type) -> int:
    if isinstance(element, ir.IntType):
        return max(element.width // 8, 1)
    return {ir.HalfType: 2, ir.FloatType: 4, ir.DoubleType: 8}[type(element)]


def type_suffix(typ: ir.Type) -> str:
    """A type inside an intrinsic's name: ``v16f32``."""
    if isinstance(typ, ir.VectorType):
        return f"v{typ.count}{type_suffix(typ.element)}"
    if isinstance(typ, ir.IntType):
        return f"i{typ.width}"
    if isinstance(typ, ir.PointerType):
        return "p0"
    return {ir.HalfType: "f16", ir.FloatType: "f32", ir.DoubleType: "f64"}[type(typ)]
