"""How values stand in registers and in memory: vectors of one width, complex numbers as pairs, halves as float32."""

from __future__ import annotations

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

    def load_same(self, dtype: DType, pointer: ir.Value) -> Value:
        """One element in every lane."""
        element = memory_type(dtype)
        if dtype.is_complex:
            parts = [self.offset(pointer, I64(k * element_bytes(element))) for k in range(2)]
            return Pair(*(self.splat(self.b.load(p, typ=element)) for p in parts))
        return self.widened(self.splat(self.b.load(pointer, typ=element)), dtype)

    def store(
        self, value: Value, dtype: DType, pointer: ir.Value, stride: ir.Value | None, mask: ir.Value | None
    ) -> None:
        element = memory_type(dtype)
        if isinstance(value, Pair):
            size = element_bytes(element)
            step = I64(2 * size) if stride is None else stride
            for k, part in enumerate(value):
                self._scatter(part, self.offset(pointer, I64(k * size)), step, mask)
            return
        raw = self.narrowed(value, dtype)
        if stride is not None:
            self._scatter(raw, pointer, stride, mask)
        elif mask is None:
            self.b.store(raw, pointer, align=element_bytes(element))
        else:
            name = f"masked.store.{type_suffix(raw.type)}.p0"
            self._memory_call(name, ir.VoidType(), [raw, pointer, mask], element_bytes(element), at=1)

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
            return self.b.fpext(raw, self.vector(F32))
        if dtype is dtypes.bfloat16:
            bits = self.b.shl(self.b.zext(raw, self.vector(I32)), self.constant(16, I32))
            return self.b.bitcast(bits, self.vector(F32))
        return raw

    def narrowed(self, value: ir.Value, dtype: DType) -> ir.Value:
        """A register value as it stands in memory; floats are rounded to nearest, ties to even."""
        if dtype is dtypes.bool_:
            return self.b.zext(value, self.vector(I8))
        if dtype is dtypes.float16:
            return self.b.fptrunc(value, self.vector(F16))
        if dtype is dtypes.bfloat16:
            return self._to_bfloat16(value)
        return value

    def _to_bfloat16(self, value: ir.Value) -> ir.Value:
        b = self.b
        bits = b.bitcast(value, self.vector(I32))
        high = b.lshr(bits, self.constant(16, I32))
        odd = b.and_(high, self.constant(1, I32))
        rounded = b.lshr(b.add(bits, b.add(odd, self.constant(0x7FFF, I32))), self.constant(16, I32))
        nan = b.fcmp_unordered("uno", value, value)
        quiet = b.or_(high, self.constant(0x40, I32))
        return b.trunc(b.select(nan, quiet, rounded), self.vector(I16))


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
