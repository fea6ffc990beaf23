"""x - n pi/2 for arguments of any size.

Up to a limit by Cody and Waite's subtraction of n times pi/2 in parts, inline. Lanes beyond it, if there are any, are
redone by an out-of-line function after Payne and Hanek (Radian reduction for trigonometric functions, SIGNUM 1983):
x = M 2**e meets only those 192 bits of 2/pi that decide x 2/pi modulo 4. All emitters of a module share that function.
"""

from __future__ import annotations

from llvmlite import ir

from .emit import Int, Lanes, Mask, Real, Target, fast_two_sum, nearest, two_product, two_sum
from .formats import BINARY64, HALF_PI

# 2/pi, most significant word first, behind 64 zero bits that let small exponents start inside the table.
_TWO_OVER_PI = (
    0x0000000000000000, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484, 0xE99C7026B45F7E41,
    0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB,
    0xF0CFBC209AF4361D,
)  # fmt: skip

# Up to here the inline reduction holds: the error of round(x 2/pi) must leave |r| about pi/4 at most, and the parts
# of pi/2 must outlast the cancellation.
LIMIT_SINGLE = 2.0**16
LIMIT_DOUBLE = 2.0**30

_TWO_OVER_PI_ROUNDED = 0.6366197723675814


# The reductions give r and n with a = n pi/2 + r, |r| at most about pi/4, for a >= 0. The low two bits of n count; r is
# NaN for infinite a.


def reduce_single(a: Real) -> tuple[Real, Int]:
    """(r, n) for binary32: r rounded is good to half an ulp and a little."""
    n, bits = nearest(a, _TWO_OVER_PI_ROUNDED)
    c1, c2, c3 = HALF_PI.parts(a.format, 3)
    r = n.fma(-c3, n.fma(-c2, n.fma(-c1, a)))
    r, bits, _ = _mend(a, a > LIMIT_SINGLE, r, bits, r)
    return r, bits


def reduce_wide(a: Real) -> tuple[Real, Int]:
    """(r, n) for binary32 values held in binary64."""
    n, bits = nearest(a, _TWO_OVER_PI_ROUNDED)
    c1, c2 = HALF_PI.parts(a.format)
    r = n.fma(-c2, n.fma(-c1, a))
    r, bits, _ = _mend(a, a > LIMIT_DOUBLE, r, bits, r)
    return r, bits


def reduce_double(a: Real) -> tuple[Real, Real, Int]:
    """(r, r_lo, n) for binary64, r + r_lo good to about 100 bits."""
    n, bits = nearest(a, _TWO_OVER_PI_ROUNDED)
    c1, c2, c3 = HALF_PI.parts(a.format, 3)
    p, p_lo = two_product(n, c2)
    r, r_lo = two_sum(n.fma(-c1, a), -p)
    r, r_lo = fast_two_sum(r, n.mad(-c3, r_lo - p_lo))
    r, bits, r_lo = _mend(a, a > LIMIT_DOUBLE, r, bits, r_lo)
    return r, r_lo, bits


def _mend(a: Real, huge: Mask, r: Real, n: Int, r_lo: Real) -> tuple[Real, Int, Real]:
    """Replace the lanes where `huge` through the out-of-line reduction, behind a branch over all lanes."""
    b, lanes = a.lanes.b, a.lanes
    quick = (r.value, n.value, r_lo.value)
    start = b.block
    with b.if_then(huge.any(), likely=False):
        exact = b.call(_lanewise(lanes), [a.value])
        slow = [b.select(huge.value, b.extract_value(exact, i), v) for i, v in enumerate(quick)]
        mended = b.block
    merged = []
    for before, after in zip(quick, slow, strict=True):
        phi = b.phi(before.type)
        phi.add_incoming(before, start)
        phi.add_incoming(after, mended)
        merged.append(phi)
    return Real(lanes, merged[0]), Int(lanes, merged[1]), Real(lanes, merged[2])


def _define(module: ir.Module, name: str, result: ir.Type, argument: ir.Type) -> ir.Function:
    fn = ir.Function(module, ir.FunctionType(result, [argument]), name)
    fn.linkage = "internal"
    fn.attributes.add("noinline")
    fn.attributes.add("nounwind")
    return fn


def _variant(name: str, lanes: Lanes) -> str:
    return f"lucidgraph.{name}.{lanes.suffix}" + ("" if lanes.target.fma else ".nofma")


def _lanewise(lanes: Lanes) -> ir.Function:
    """`lanes -> {r, n, r_lo}`: the scalar reduction for each lane; in the module once."""
    module, name = lanes.b.module, _variant("reduce_by_half_pi", lanes)
    if name in module.globals:
        return module.globals[name]
    real, integer = lanes.shape(lanes.format.real), lanes.shape(lanes.format.integer)
    result = ir.LiteralStructType([real, integer, real])
    scalar = _scalar(module, lanes.target)
    fn = _define(module, name, result, real)
    b = ir.IRBuilder(fn.append_basic_block())
    single = lanes.format is not BINARY64
    outs: list[ir.Value] = [ir.Constant(t, ir.Undefined) for t in result.elements]
    for i in range(lanes.count or 1):
        at = ir.Constant(ir.IntType(32), i)
        x = fn.args[0] if lanes.count is None else b.extract_element(fn.args[0], at)
        exact = b.call(scalar, [b.fpext(x, BINARY64.real) if single else x])
        parts = [b.extract_value(exact, j) for j in range(3)]
        if single:
            narrow = lanes.format.real
            parts = [b.fptrunc(parts[0], narrow), b.trunc(parts[1], lanes.format.integer), ir.Constant(narrow, 0.0)]
        outs = parts if lanes.count is None else [b.insert_element(o, p, at) for o, p in zip(outs, parts, strict=True)]
    packed: ir.Value = ir.Constant(result, ir.Undefined)
    for i, o in enumerate(outs):
        packed = b.insert_value(packed, o, i)
    b.ret(packed)
    return fn


def _scalar(module: ir.Module, target: Target) -> ir.Function:
    """`double -> {double r, i64 n, double r_lo}` after Payne and Hanek, for x >= 2**-9; r is NaN for infinity."""
    name = "lucidgraph.payne_hanek" + ("" if target.fma else ".nofma")
    if name in module.globals:
        return module.globals[name]
    i64, i128, double = ir.IntType(64), ir.IntType(128), BINARY64.real
    result = ir.LiteralStructType([double, i64, double])
    fn = _define(module, name, result, double)
    b = ir.IRBuilder(fn.append_basic_block())
    x = Real(Lanes(b, double, target), fn.args[0])

    bits = b.bitcast(fn.args[0], i64)
    exponent = b.and_(b.lshr(bits, i64(52)), i64(0x7FF))
    mantissa = b.or_(b.and_(bits, i64((1 << 52) - 1)), i64(1 << 52))
    # x = M 2**e with e = exponent - 1075. The bit of 2/pi of weight 2**-i adds multiples of 4 for i < e - 1; bit i
    # stands at i + 63 in the table. Small numbers and infinities, whose result nobody takes, must not read outside.
    position = b.sub(exponent, i64(1075 + 1 - 63))
    position = b.select(b.icmp_unsigned("<=", position, i64(0x7FE - 1075 - 1 + 63)), position, i64(0))
    word, shift = b.lshr(position, i64(6)), b.and_(position, i64(63))
    table = _table(module)
    loads = [
        b.load(b.gep(table, [i64(0), b.add(word, i64(j))], inbounds=True, source_etype=table.value_type), typ=i64)
        for j in range(4)
    ]
    funnel = module.globals.get("llvm.fshl.i64")
    if funnel is None:
        funnel = ir.Function(module, ir.FunctionType(i64, [i64] * 3), "llvm.fshl.i64")
    w0, w1, w2 = (b.call(funnel, [loads[j], loads[j + 1], shift]) for j in range(3))

    # M times the window, modulo 2**192; the top two bits are n modulo 4, the others the fraction.
    m = b.zext(mantissa, i128)
    low = b.lshr(b.mul(m, b.zext(w2, i128)), i128(64))
    middle = b.add(b.mul(m, b.zext(w1, i128)), low)
    product = b.add(middle, b.shl(b.zext(b.mul(mantissa, w0), i128), i128(64)))
    quadrant = b.trunc(b.lshr(product, i128(126)), i64)
    fraction = b.shl(product, i128(2))
    negative = b.icmp_signed("<", fraction, i128(0))
    n = b.add(quadrant, b.zext(negative, i64))
    magnitude = b.select(negative, b.sub(i128(0), fraction), fraction)

    # The fraction as 53 + 53 bits; |x| is never closer to a multiple of pi/2 than 2**-62, so 64 zeros cannot lead.
    top = b.trunc(b.lshr(magnitude, i128(64)), i64)
    zeros = b.ctlz(top, ir.IntType(1)(0))
    normal = b.shl(magnitude, b.zext(zeros, i128))
    first = b.trunc(b.lshr(normal, i128(64)), i64)
    second = b.trunc(b.lshr(normal, i128(11)), i64)
    scale = b.bitcast(b.shl(b.sub(i64(1023 - 64), zeros), i64(52)), double)
    scale = b.select(negative, b.fneg(scale), scale)
    hi = Real(x.lanes, b.fmul(b.uitofp(b.and_(first, i64(~0x7FF)), double), scale))
    lo = Real(x.lanes, b.fmul(b.uitofp(second, double), scale)) * 2.0**-53

    c1, c2, _ = HALF_PI.terms
    p, p_lo = two_product(hi, c1)
    r, r_lo = fast_two_sum(p, p_lo + (lo * c1 + hi * c2))
    not_finite = x - x
    packed: ir.Value = ir.Constant(result, ir.Undefined)
    for i, o in enumerate(((r + not_finite).value, n, r_lo.value)):
        packed = b.insert_value(packed, o, i)
    b.ret(packed)
    return fn


def _table(module: ir.Module) -> ir.GlobalVariable:
    name = "lucidgraph.two_over_pi"
    if name in module.globals:
        return module.globals[name]
    typ = ir.ArrayType(ir.IntType(64), len(_TWO_OVER_PI))
    table = ir.GlobalVariable(module, typ, name)
    table.initializer = ir.Constant(typ, list(_TWO_OVER_PI))
    table.linkage = "internal"
    table.global_constant = True
    return table
