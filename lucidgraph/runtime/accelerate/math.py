"""Chapters math and activation on vectors: our own elementary functions, and complex ones made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from llvmlite import ir

from ... import dtypes
from ...dtypes import DType
from ...ir import Node
from ...ir.ops.core import Constant
from .arithmetic import Rule, divide_values, hypotenuse, is_zero, magnitude, multiply_values
from .compare import truth
from .values import F32, F64, Lanes, Pair, Value, register_type
from .vecmath import FUNCTIONS


def call(lanes: Lanes, name: str, *args: ir.Value) -> ir.Value:
    """An elementary function of float or double vectors."""
    return FUNCTIONS[name](lanes.b, *args, target=lanes.machine.math)


def _real(name: str) -> Rule:
    return lambda lanes, node, args: call(lanes, name, *args)


def _either(name: str, of_complex: Rule) -> Rule:
    """A function of reals, and its form for complex numbers."""

    def emit(lanes: Lanes, node: Node, args: list[Value]) -> Value:
        return of_complex(lanes, node, args) if isinstance(args[0], Pair) else call(lanes, name, *args)

    return emit


def _complex_exp(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    return complex_exponential(lanes, args[0])


def complex_exponential(lanes: Lanes, z: Pair) -> Pair:
    """e^(a + ib) = e^a (cos b + i sin b)"""
    size = call(lanes, "exp", z.re)
    zero = is_zero(lanes, z.im)  # a real argument has a real result, also where e^a is infinite
    im = lanes.b.select(zero, z.im, lanes.b.fmul(size, call(lanes, "sin", z.im)))
    return Pair(lanes.b.fmul(size, call(lanes, "cos", z.im)), im)


def _complex_log(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    """log z = log|z| + i arg z"""
    z = args[0]
    return Pair(call(lanes, "log", hypotenuse(lanes, z)), call(lanes, "atan2", z.im, z.re))


def _scaled_log(factor: float) -> Rule:
    def emit(lanes: Lanes, node: Node, args: list[Value]) -> Value:
        z = _complex_log(lanes, node, args)
        by = lanes.constant(factor, z.re.type.element)
        return Pair(*(lanes.b.fmul(p, by) for p in z))

    return emit


def _complex_sqrt(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    return complex_root(lanes, args[0])


def complex_root(lanes: Lanes, z: Pair) -> Pair:
    """√z = t + i b/(2t) with t = √((|z| + |a|)/2), parts exchanged where a < 0"""
    b = lanes.b
    half = lanes.constant(0.5, z.re.type.element)
    zero = ir.Constant(z.re.type, None)
    t = call(lanes, "sqrt", b.fmul(b.fadd(hypotenuse(lanes, z), magnitude(lanes, z.re)), half))
    u = b.select(is_zero(lanes, t), zero, b.fdiv(b.fmul(magnitude(lanes, z.im), half), t))
    right = b.fcmp_ordered(">=", z.re, zero)
    im = b.select(right, u, t)
    return Pair(b.select(right, t, u), lanes.intrinsic("copysign", im.type, [im, z.im]))


def _complex_circular(name: str) -> Rule:
    """sin z = sin a cosh b + i cos a sinh b, and its like"""

    def emit(lanes: Lanes, node: Node, args: list[Value]) -> Value:
        z, b = args[0], lanes.b
        turn, grow = (z.re, z.im) if name in ("sin", "cos") else (z.im, z.re)
        s, c = call(lanes, "sin", turn), call(lanes, "cos", turn)
        sh, ch = call(lanes, "sinh", grow), call(lanes, "cosh", grow)
        if name == "sin":
            return Pair(b.fmul(s, ch), b.fmul(c, sh))
        if name == "cos":
            return Pair(b.fmul(c, ch), b.fneg(b.fmul(s, sh)))
        if name == "sinh":
            return Pair(b.fmul(sh, c), b.fmul(ch, s))
        return Pair(b.fmul(ch, c), b.fmul(sh, s))

    return emit


def _complex_tanh(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    """tanh(a + ib) = (t(1 + u²) + i u(1 - t²)) / (1 + t²u²) with t = tanh a, u = tan b (1 - t² as 1/cosh² a)"""
    z, b = args[0], lanes.b
    t, u = call(lanes, "tanh", z.re), call(lanes, "tan", z.im)
    one = lanes.constant(1.0, t.type.element)
    tt, uu = b.fmul(t, t), b.fmul(u, u)
    below = b.fadd(one, b.fmul(tt, uu))
    ch = call(lanes, "cosh", z.re)
    sech2 = b.fdiv(b.fdiv(one, ch), ch)
    return Pair(b.fdiv(b.fmul(t, b.fadd(one, uu)), below), b.fdiv(b.fmul(u, sech2), below))


def _complex_tan(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    """tan z = -i tanh(iz)"""
    z = args[0]
    w = _complex_tanh(lanes, node, [Pair(lanes.b.fneg(z.im), z.re)])
    return Pair(w.im, lanes.b.fneg(w.re))


def _complex_power(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    """z^w = e^(w log z); 0^0 = 1, 0^w = 0"""
    z, w = args
    b = lanes.b
    product = multiply_values(lanes, w, _complex_log(lanes, node, [z]), is_float=False)
    value = _complex_exp(lanes, node, [product])
    nothing, none = is_zero(lanes, z), is_zero(lanes, w)
    zero, one = ir.Constant(w.re.type, None), lanes.constant(1.0, w.re.type.element)
    re = b.select(none, one, b.select(nothing, zero, value.re))
    return Pair(re, b.select(b.or_(none, nothing), zero, value.im))


def _in_double(rule: Callable[[Lanes, Pair], Pair]) -> Rule:
    """A function of complex numbers by formulas that cancel: single precision goes through double."""

    def emit(lanes: Lanes, node: Node, args: list[Value]) -> Value:
        dtype = node.dtype
        z = converted(lanes, args[0], dtype, dtypes.complex128)
        assert isinstance(z, Pair)
        return converted(lanes, rule(lanes, z), dtypes.complex128, dtype)

    return emit


def _scaled(lanes: Lanes, z: Pair, factor: float) -> Pair:
    by = lanes.constant(factor, F64)
    return Pair(lanes.b.fmul(z.re, by), lanes.b.fmul(z.im, by))


def _plus(lanes: Lanes, z: Pair, w: Pair) -> Pair:
    return Pair(lanes.b.fadd(z.re, w.re), lanes.b.fadd(z.im, w.im))


def _turned(lanes: Lanes, z: Pair, back: bool = False) -> Pair:
    """iz, or -iz."""
    minus = lanes.b.fneg
    return Pair(z.im, minus(z.re)) if back else Pair(minus(z.im), z.re)


def _minus(lanes: Lanes, z: Pair) -> Pair:
    return Pair(lanes.b.fneg(z.re), lanes.b.fneg(z.im))


def _shifted(lanes: Lanes, z: Pair, by: float) -> Pair:
    return Pair(lanes.b.fadd(z.re, lanes.constant(by, F64)), z.im)


def _log(lanes: Lanes, z: Pair) -> Pair:
    return Pair(call(lanes, "log", hypotenuse(lanes, z)), call(lanes, "atan2", z.im, z.re))


def _exp2(lanes: Lanes, z: Pair) -> Pair:
    """2^z = e^(z log 2)"""
    return complex_exponential(lanes, _scaled(lanes, z, 0.6931471805599453))


def _expm1(lanes: Lanes, z: Pair) -> Pair:
    """e^z - 1 = (expm1 a cos b - 2 sin²(b/2)) + i e^a sin b"""
    b = lanes.b
    half = call(lanes, "sin", b.fmul(z.im, lanes.constant(0.5, F64)))
    twice = b.fmul(lanes.constant(2.0, F64), b.fmul(half, half))
    re = b.fsub(b.fmul(call(lanes, "expm1", z.re), call(lanes, "cos", z.im)), twice)
    return Pair(re, b.fmul(call(lanes, "exp", z.re), call(lanes, "sin", z.im)))


def _log1p(lanes: Lanes, z: Pair) -> Pair:
    """log(1 + z) = log1p(a(2 + a) + b²)/2 + i arg(1 + z); far from 0 as log|1 + z|"""
    b = lanes.b
    two, half = lanes.constant(2.0, F64), lanes.constant(0.5, F64)
    one = _shifted(lanes, z, 1.0)
    inner = b.fadd(b.fmul(z.re, b.fadd(two, z.re)), b.fmul(z.im, z.im))
    near = b.fmul(half, call(lanes, "log1p", inner))
    far = call(lanes, "log", hypotenuse(lanes, one))
    small = b.fcmp_ordered("<", magnitude(lanes, inner), half)
    return Pair(b.select(small, near, far), call(lanes, "atan2", one.im, one.re))


def _rsqrt(lanes: Lanes, z: Pair) -> Pair:
    one = Pair(lanes.constant(1.0, F64), ir.Constant(z.re.type, None))
    value = divide_values(lanes, one, complex_root(lanes, z))
    assert isinstance(value, Pair)
    return value


def _asinh(lanes: Lanes, z: Pair) -> Pair:
    """asinh z = log(z + √(z² + 1)), by oddness in the right half plane, where nothing cancels"""
    b = lanes.b
    left = b.fcmp_ordered("<", z.re, ir.Constant(z.re.type, None))
    w = _chosen(lanes, left, _minus(lanes, z), z)
    square = multiply_values(lanes, w, w, is_float=False)
    assert isinstance(square, Pair)
    value = _log(lanes, _plus(lanes, w, complex_root(lanes, _shifted(lanes, square, 1.0))))
    return _chosen(lanes, left, _minus(lanes, value), value)


def _chosen(lanes: Lanes, condition: ir.Value, z: Pair, w: Pair) -> Pair:
    return Pair(lanes.b.select(condition, z.re, w.re), lanes.b.select(condition, z.im, w.im))


def _acosh(lanes: Lanes, z: Pair) -> Pair:
    """acosh z = 2 log(√((z + 1)/2) + √((z - 1)/2))     (W. Kahan, 1987)"""
    up = complex_root(lanes, _scaled(lanes, _shifted(lanes, z, 1.0), 0.5))
    down = complex_root(lanes, _scaled(lanes, _shifted(lanes, z, -1.0), 0.5))
    return _scaled(lanes, _log(lanes, _plus(lanes, up, down)), 2.0)


def _atanh(lanes: Lanes, z: Pair) -> Pair:
    """atanh z = (log1p z - log1p(-z))/2"""
    return _scaled(lanes, _plus(lanes, _log1p(lanes, z), _minus(lanes, _log1p(lanes, _minus(lanes, z)))), 0.5)


def _asin(lanes: Lanes, z: Pair) -> Pair:
    """asin z = -i asinh(iz)"""
    return _turned(lanes, _asinh(lanes, _turned(lanes, z)), back=True)


def _acos(lanes: Lanes, z: Pair) -> Pair:
    """acos z = π/2 - asin z"""
    return _shifted(lanes, _minus(lanes, _asin(lanes, z)), 1.5707963267948966)


def _atan(lanes: Lanes, z: Pair) -> Pair:
    """atan z = -i atanh(iz)"""
    return _turned(lanes, _atanh(lanes, _turned(lanes, z)), back=True)


def _power(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    if isinstance(args[0], Pair):
        return _complex_power(lanes, node, args)
    dtype = node.dtype
    if dtype.is_floating:
        return _known_powers(lanes, args[0], args[1], _constant(node.operands[1]))
    if dtype.is_bool:
        return lanes.b.or_(args[0], lanes.b.not_(args[1]))
    return _integer_power(lanes, args[0], args[1], dtype)


def _constant(node: Node) -> float | None:
    """The number that a value is made of, if it is one."""
    while node.op.view:
        node = node.operands[0]
    return float(node.attrs["value"]) if node.op is Constant else None


def _known_powers(lanes: Lanes, x: ir.Value, y: ir.Value, known: float | None) -> ir.Value:
    """x to the power y; 2, 3 and -1 as products and a quotient, which fused programs have as well (``KEEPS``), 1/2 as
    the root. Of a constant y only what it needs."""
    b, element = lanes.b, y.type.element
    infinity, zero = lanes.constant(float("inf"), element), lanes.constant(0.0, element)

    def root() -> ir.Value:
        """With C's values at -0 and -∞."""
        infinite = b.fcmp_ordered("==", magnitude(lanes, x), infinity)
        return b.select(infinite, infinity, call(lanes, "sqrt", b.fadd(x, zero)))

    ways: dict[float, Callable[[], ir.Value]] = {
        2.0: lambda: b.fmul(x, x),
        3.0: lambda: b.fmul(b.fmul(x, x), x),
        -1.0: lambda: b.fdiv(lanes.constant(1.0, element), x),
        0.5: root,
    }
    if known in ways:
        return ways[known]()
    result = call(lanes, "pow", x, y)
    if known is None:
        for exponent, way in ways.items():
            result = b.select(b.fcmp_ordered("==", y, lanes.constant(exponent, element)), way(), result)
    return result


KEEPS: Final = frozenset(
    f"{law} (real)" for law in ("pow(x, 2) = square(x)", "pow(x, 3) = square(x) * x", "pow(x, -1) = reciprocal(x)")
)
"""Laws of rounding that hold to the bit here."""


def _integer_power(lanes: Lanes, x: ir.Value, n: ir.Value, dtype: DType) -> ir.Value:
    """By squaring, wrapping as multiplication does; a negative exponent gives 0."""
    b = lanes.b
    zero, one = ir.Constant(x.type, None), lanes.constant(1, x.type.element)
    result, square = one, x
    bits = n
    for _ in range(x.type.element.width):
        odd = b.icmp_unsigned("!=", b.and_(bits, one), zero)
        result = b.select(odd, b.mul(result, square), result)
        square = b.mul(square, square)
        bits = b.lshr(bits, one)
    if dtype.kind == "i":
        result = b.select(b.icmp_signed("<", n, zero), zero, result)
    return result


def _rounding(name: str) -> Rule:
    def emit(lanes: Lanes, node: Node, args: list[Value]) -> Value:
        x = args[0]
        if isinstance(x, Pair):
            return Pair(*(lanes.rounded(name, p) for p in x))
        return lanes.rounded(name, x) if node.dtype.is_floating else x

    return emit


def _cast(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    return converted(lanes, args[0], node.operands[0].dtype, node.dtype)


def converted(lanes: Lanes, x: Value, old: DType, new: DType) -> Value:
    """A value of one dtype in another: truncated toward zero where a float becomes an integer."""
    b = lanes.b
    if old is new:
        return x
    if new is dtypes.bool_:
        return truth(lanes, x)
    if new.is_complex:
        part = dtypes.to_real(new)
        if isinstance(x, Pair):
            inner = dtypes.to_real(old)
            return Pair(converted(lanes, x.re, inner, part), converted(lanes, x.im, inner, part))
        re = converted(lanes, x, old, part)
        return Pair(re, ir.Constant(re.type, None))
    if isinstance(x, Pair):
        return converted(lanes, x.re, dtypes.to_real(old), new)
    target = lanes.vector(register_type(new))
    if old.is_floating and new.is_floating:
        value = _rounded(lanes, x, new) if new.is_half else x
        if value.type == target:
            return value
        return b.fpext(value, target) if target.element == F64 else b.fptrunc(value, target)
    if old.is_floating:
        # Through 64 bits, as NumPy does on this machine; what does not fit saturates instead of being undefined.
        wide = lanes.vector(ir.IntType(64))
        name = "fptosi.sat" if new.kind == "i" or new.itemsize < 8 else "fptoui.sat"
        if new is dtypes.uint64:
            value = lanes.intrinsic(name, wide, [x], suffix=f"v{lanes.count}i64.v{lanes.count}{_suffix(x)}")
        else:
            value = lanes.intrinsic("fptosi.sat", wide, [x], suffix=f"v{lanes.count}i64.v{lanes.count}{_suffix(x)}")
        return value if target == wide else b.trunc(value, target)
    if new.is_floating:
        floating = target
        value = (b.sitofp if old.kind == "i" else b.uitofp)(x, floating)
        return _rounded(lanes, value, new) if new.is_half else value
    have, want = x.type.element.width, target.element.width
    if have == want:
        return x
    if have > want:
        return b.trunc(x, target)
    return b.sext(x, target) if old.kind == "i" else b.zext(x, target)


def _rounded(lanes: Lanes, x: ir.Value, half: DType) -> ir.Value:
    """A float as the nearest half-precision number, held in float32. Doubles go through float32 rounded to odd."""
    b = lanes.b
    if x.type.element == F64:
        x = _to_odd(lanes, x)
    return lanes.widened(lanes.narrowed(x, half), half) if x.type.element == F32 else b.fptrunc(x, lanes.vector(F32))


def _to_odd(lanes: Lanes, x: ir.Value) -> ir.Value:
    """A double as float32, with its last bit set where inexact: a second rounding then errs no more than one."""
    b = lanes.b
    short = b.fptrunc(x, lanes.vector(F32))
    back = b.fpext(short, x.type)
    bits = b.bitcast(short, lanes.vector(ir.IntType(32)))
    one = lanes.constant(1, ir.IntType(32))
    # Toward zero first, then the sticky bit.
    away = b.fcmp_ordered(">", magnitude(lanes, back), magnitude(lanes, x))
    toward = b.select(away, b.sub(bits, one), bits)
    inexact = b.fcmp_ordered("!=", back, x)
    odd = b.select(inexact, b.or_(toward, one), bits)
    return b.bitcast(odd, lanes.vector(F32))


def _suffix(x: ir.Value) -> str:
    return "f64" if x.type.element == F64 else "f32"


RULES: Final[dict[str, Rule]] = {
    "cast": _cast,
    "exp": _either("exp", _complex_exp),
    "exp2": _either("exp2", _in_double(_exp2)),
    "expm1": _either("expm1", _in_double(_expm1)),
    "log": _either("log", _complex_log),
    "log1p": _either("log1p", _in_double(_log1p)),
    "log2": _either("log2", _scaled_log(1.4426950408889634)),
    "log10": _either("log10", _scaled_log(0.4342944819032518)),
    "sqrt": _either("sqrt", _complex_sqrt),
    "rsqrt": _either("rsqrt", _in_double(_rsqrt)),
    "cbrt": _real("cbrt"),
    "sin": _either("sin", _complex_circular("sin")),
    "cos": _either("cos", _complex_circular("cos")),
    "tan": _either("tan", _complex_tan),
    "asin": _either("asin", _in_double(_asin)),
    "acos": _either("acos", _in_double(_acos)),
    "atan": _either("atan", _in_double(_atan)),
    "atan2": _real("atan2"),
    "sinh": _either("sinh", _complex_circular("sinh")),
    "cosh": _either("cosh", _complex_circular("cosh")),
    "tanh": _either("tanh", _complex_tanh),
    "asinh": _either("asinh", _in_double(_asinh)),
    "acosh": _either("acosh", _in_double(_acosh)),
    "atanh": _either("atanh", _in_double(_atanh)),
    "sigmoid": _real("sigmoid"),
    "erf": _real("erf"),
    "pow": _power,
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _rounding("roundeven"),
    "trunc": _rounding("trunc"),
}
