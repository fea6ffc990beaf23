"""Chapter arithmetic on vectors. Integers wrap; division by zero gives 0; complex numbers are pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from llvmlite import ir

from ...ir import Node
from .values import I1, I64, Lanes, Pair, Value
from .vecmath import FUNCTIONS

Rule = Callable[[Lanes, Node, list[Value]], Value]


def _binary(integer: str, real: str) -> Rule:
    """An operation that is one instruction on integers and on floats, and done by parts on pairs."""

    def emit(lanes: Lanes, node: Node, args: list[Value]) -> Value:
        x, y = args
        if isinstance(x, Pair) and isinstance(y, Pair):
            return Pair(getattr(lanes.b, real)(x.re, y.re), getattr(lanes.b, real)(x.im, y.im))
        dtype = node.operands[0].dtype
        if dtype.is_bool:
            return lanes.b.or_(x, y)
        return getattr(lanes.b, real if dtype.is_floating else integer)(x, y)

    return emit


def multiply_values(lanes: Lanes, x: Value, y: Value, is_float: bool) -> Value:
    b = lanes.b
    if isinstance(x, Pair) and isinstance(y, Pair):
        re = b.fsub(b.fmul(x.re, y.re), b.fmul(x.im, y.im))
        return Pair(re, b.fadd(b.fmul(x.re, y.im), b.fmul(x.im, y.re)))
    return b.fmul(x, y) if is_float else b.mul(x, y)


def _multiply(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    dtype = node.operands[0].dtype
    if dtype.is_bool:
        return lanes.b.and_(*args)
    return multiply_values(lanes, args[0], args[1], dtype.is_floating)


def divide_values(lanes: Lanes, x: Value, y: Value) -> Value:
    """The quotient; of complex numbers by Smith's scaling (R. L. Smith, CACM 5, 1962)."""
    b = lanes.b
    if not (isinstance(x, Pair) and isinstance(y, Pair)):
        return b.fdiv(x, y)
    wide = b.fcmp_ordered(">=", magnitude(lanes, y.re), magnitude(lanes, y.im))
    big, small = b.select(wide, y.re, y.im), b.select(wide, y.im, y.re)
    ratio = b.fdiv(small, big)
    scale = b.fadd(big, b.fmul(small, ratio))
    p, q = b.select(wide, x.re, x.im), b.select(wide, x.im, x.re)
    re = b.fdiv(b.fadd(p, b.fmul(q, ratio)), scale)
    im = b.fdiv(b.fsub(q, b.fmul(p, ratio)), scale)
    return Pair(re, b.select(wide, im, b.fneg(im)))


def magnitude(lanes: Lanes, x: ir.Value) -> ir.Value:
    return lanes.intrinsic("fabs", x.type, [x])


def is_zero(lanes: Lanes, x: Value) -> ir.Value:
    """Lanes that are exactly 0, of either sign."""
    b = lanes.b
    if isinstance(x, Pair):
        return b.and_(is_zero(lanes, x.re), is_zero(lanes, x.im))
    zero = ir.Constant(x.type, None)
    if isinstance(x.type.element, ir.IntType):
        return b.icmp_unsigned("==", x, zero)
    return b.fcmp_ordered("==", x, zero)


def choose(lanes: Lanes, condition: ir.Value, x: Value, y: Value) -> Value:
    """Lane by lane ``x`` where the condition holds, else ``y``."""
    if isinstance(x, Pair) and isinstance(y, Pair):
        return Pair(lanes.b.select(condition, x.re, y.re), lanes.b.select(condition, x.im, y.im))
    return lanes.b.select(condition, x, y)


def _zero_like(x: Value) -> Value:
    return Pair(_zero_like(x.re), _zero_like(x.im)) if isinstance(x, Pair) else ir.Constant(x.type, None)


def _masked_multiply(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    return choose(lanes, is_zero(lanes, args[0]), _zero_like(args[0]), _multiply(lanes, node, args))


def _masked_divide(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    return choose(lanes, is_zero(lanes, args[0]), _zero_like(args[0]), divide_values(lanes, *args))


def _negative(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    x = args[0]
    if isinstance(x, Pair):
        return Pair(lanes.b.fneg(x.re), lanes.b.fneg(x.im))
    return lanes.b.fneg(x) if node.dtype.is_floating else lanes.b.neg(x)


def hypotenuse(lanes: Lanes, z: Pair) -> ir.Value:
    """|z| without overflow on the way: the larger part times √(1 + r²)."""
    b = lanes.b
    re, im = magnitude(lanes, z.re), magnitude(lanes, z.im)
    swap = b.fcmp_ordered(">", im, re)
    big, small = b.select(swap, im, re), b.select(swap, re, im)
    ratio = b.select(is_zero(lanes, big), ir.Constant(big.type, None), b.fdiv(small, big))
    one = lanes.constant(1.0, big.type.element)
    root = b.fmul(big, lanes.intrinsic("sqrt", big.type, [b.fadd(one, b.fmul(ratio, ratio))]))
    infinite = lanes.constant(float("inf"), big.type.element)
    either = b.or_(b.fcmp_ordered("==", re, infinite), b.fcmp_ordered("==", im, infinite))
    return b.select(either, infinite, root)


def _abs(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    x, b = args[0], lanes.b
    if isinstance(x, Pair):
        return hypotenuse(lanes, x)
    dtype = node.dtype
    if dtype.is_floating:
        return magnitude(lanes, x)
    if dtype.kind != "i":
        return x
    return b.select(b.icmp_signed("<", x, ir.Constant(x.type, None)), b.neg(x), x)


def _sign(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    x, b = args[0], lanes.b
    if isinstance(x, Pair):
        size = hypotenuse(lanes, x)
        zero = is_zero(lanes, size)
        return Pair(*(b.select(zero, ir.Constant(p.type, None), b.fdiv(p, size)) for p in x))
    dtype = node.dtype
    if dtype.is_bool:
        return x
    zero = ir.Constant(x.type, None)
    if dtype.is_floating:
        one = lanes.constant(1.0, x.type.element)
        signed = b.select(b.fcmp_ordered(">", x, zero), one, b.select(b.fcmp_ordered("<", x, zero), b.fneg(one), zero))
        return b.select(b.fcmp_unordered("uno", x, x), x, signed)
    one = lanes.constant(1, x.type.element)
    if dtype.kind == "u":
        return b.select(b.icmp_unsigned("==", x, zero), zero, one)
    return b.select(b.icmp_signed(">", x, zero), one, b.select(b.icmp_signed("<", x, zero), b.neg(one), zero))


def _conj(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    x = args[0]
    return Pair(x.re, lanes.b.fneg(x.im)) if isinstance(x, Pair) else x


def _real(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    return args[0].re if isinstance(args[0], Pair) else args[0]


def _imag(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    return args[0].im if isinstance(args[0], Pair) else _zero_like(args[0])


def _integer_quotient(lanes: Lanes, node: Node, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Truncated quotient and remainder that trap nowhere: a divisor of 0 is replaced by 1, and so is -1."""
    b, signed = lanes.b, node.dtype.kind == "i"
    zero, one = ir.Constant(x.type, None), lanes.constant(1, x.type.element)
    bad = b.icmp_unsigned("==", y, zero)
    minus = b.icmp_signed("==", y, lanes.constant(-1, x.type.element)) if signed else None
    safe = b.select(bad, one, y)
    if minus is not None:
        safe = b.select(minus, one, safe)
    quotient = (b.sdiv if signed else b.udiv)(x, safe)
    remainder = b.sub(x, b.mul(quotient, safe))
    if minus is not None:
        quotient = b.select(minus, b.neg(x), quotient)
    return b.select(bad, zero, quotient), b.select(bad, zero, remainder)


def _floored(lanes: Lanes, remainder: ir.Value, y: ir.Value) -> ir.Value:
    """Where the truncated remainder has the other sign than the divisor."""
    b, zero = lanes.b, ir.Constant(y.type, None)
    opposite = b.icmp_signed("<", b.xor(remainder, y), zero)
    return b.and_(opposite, b.icmp_signed("!=", remainder, zero))


def _floor_divide(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    x, y = args
    b, dtype = lanes.b, node.dtype
    if dtype.is_floating:
        return _float_divmod(lanes, x, y)[0]
    if dtype.is_bool:
        return b.and_(x, y)
    quotient, remainder = _integer_quotient(lanes, node, x, y)
    if dtype.kind == "u":
        return quotient
    return b.select(_floored(lanes, remainder, y), b.sub(quotient, lanes.constant(1, x.type.element)), quotient)


def _remainder(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    x, y = args
    b, dtype = lanes.b, node.dtype
    if dtype.is_floating:
        return _float_divmod(lanes, x, y)[1]
    if dtype.is_bool:
        return b.and_(x, b.not_(x))
    _, remainder = _integer_quotient(lanes, node, x, y)
    return remainder if dtype.kind == "u" else b.select(_floored(lanes, remainder, y), b.add(remainder, y), remainder)


def _float_divmod(lanes: Lanes, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """NumPy's floor division and remainder: the exact ``fmod``, moved to the divisor's sign."""
    b = lanes.b
    mod = b.frem(x, y)
    zero = ir.Constant(x.type, None)
    div = b.fdiv(b.fsub(x, mod), y)
    nonzero = b.fcmp_unordered("!=", mod, zero)
    opposite = b.xor(b.fcmp_ordered("<", y, zero), b.fcmp_ordered("<", mod, zero))
    fix = b.and_(nonzero, opposite)
    one = lanes.constant(1.0, x.type.element)
    moved = b.select(fix, b.fadd(mod, y), mod)
    moved = b.select(nonzero, moved, lanes.intrinsic("copysign", x.type, [zero, y]))
    div = b.select(fix, b.fsub(div, one), div)
    floor = lanes.rounded("floor", div)
    half = lanes.constant(0.5, x.type.element)
    floor = b.select(b.fcmp_ordered(">", b.fsub(div, floor), half), b.fadd(floor, one), floor)
    quotient = b.select(
        b.fcmp_unordered("!=", div, zero), floor, lanes.intrinsic("copysign", x.type, [zero, b.fdiv(x, y)])
    )
    return b.select(b.fcmp_ordered("==", y, zero), b.fdiv(x, y), quotient), moved


def greater(lanes: Lanes, x: ir.Value, y: ir.Value, kind: str) -> ir.Value:
    if kind == "f":
        return lanes.b.fcmp_ordered(">", x, y)
    return (lanes.b.icmp_signed if kind == "i" else lanes.b.icmp_unsigned)(">", x, y)


def extremum(lanes: Lanes, x: ir.Value, y: ir.Value, kind: str, largest: bool) -> ir.Value:
    """The larger (or smaller) of two; the first of equal ones, as zeros of either sign are in NumPy; a NaN wins."""
    b = lanes.b
    if kind != "f":
        return b.select(greater(lanes, x, y, kind) if largest else greater(lanes, y, x, kind), x, y)
    # With an x86 processor's instruction in mind, which gives x of equal ones and wherever there is a NaN.
    best = b.select(b.fcmp_ordered(">" if largest else "<", y, x), y, x)
    return b.select(b.fcmp_unordered("uno", y, y), y, best)


def _maximum(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    return extremum(lanes, args[0], args[1], node.dtype.kind, largest=True)


def _minimum(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    return extremum(lanes, args[0], args[1], node.dtype.kind, largest=False)


def _where(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    return choose(lanes, args[0], args[1], args[2])


def _reciprocal(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    x = args[0]
    if isinstance(x, Pair):
        return divide_values(lanes, Pair(lanes.constant(1.0, x.re.type.element), _zero_like(x.re)), x)
    return FUNCTIONS["reciprocal"](lanes.b, x, target=lanes.machine.math)


def _square(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    if node.dtype.is_bool:
        return args[0]
    return multiply_values(lanes, args[0], args[0], node.dtype.is_floating)


RULES: Final[dict[str, Rule]] = {
    "add": _binary("add", "fadd"),
    "subtract": _binary("sub", "fsub"),
    "multiply": _multiply,
    "divide": lambda lanes, node, args: divide_values(lanes, *args),
    "masked_multiply": _masked_multiply,
    "masked_divide": _masked_divide,
    "negative": _negative,
    "abs": _abs,
    "sign": _sign,
    "conj": _conj,
    "real": _real,
    "imag": _imag,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "maximum": _maximum,
    "minimum": _minimum,
    "where": _where,
    "reciprocal": _reciprocal,
    "square": _square,
    "stop_gradient": lambda lanes, node, args: args[0],
    "primal": lambda lanes, node, args: args[0],
}

__all__ = ["I1", "I64", "RULES", "Rule", "choose", "extremum", "greater", "is_zero"]
