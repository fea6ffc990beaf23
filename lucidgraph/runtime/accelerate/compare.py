"""Chapters compare and bitwise on vectors."""

from __future__ import annotations

from typing import Final

from llvmlite import ir

from ...ir import Node
from .arithmetic import Rule, is_zero, magnitude
from .values import I1, Lanes, Pair, Value


def _ordering(sign: str) -> Rule:
    def emit(lanes: Lanes, node: Node, args: list[Value]) -> Value:
        x, y = args
        b, kind = lanes.b, node.operands[0].dtype.kind
        if isinstance(x, Pair) and isinstance(y, Pair):
            return _complex_ordering(lanes, sign, x, y)
        if kind == "f":
            return b.fcmp_unordered("!=", x, y) if sign == "!=" else b.fcmp_ordered(sign, x, y)
        return (b.icmp_signed if kind == "i" else b.icmp_unsigned)(sign, x, y)

    return emit


def _complex_ordering(lanes: Lanes, sign: str, x: Pair, y: Pair) -> ir.Value:
    """Equality by parts; order by the real part, then the imaginary one, as NumPy has it."""
    b = lanes.b
    if sign in ("==", "!="):
        equal = b.and_(b.fcmp_ordered("==", x.re, y.re), b.fcmp_ordered("==", x.im, y.im))
        return equal if sign == "==" else b.not_(equal)
    same = b.fcmp_ordered("==", x.re, y.re)
    return b.or_(b.fcmp_ordered(sign[0], x.re, y.re), b.and_(same, b.fcmp_ordered(sign, x.im, y.im)))


def truth(lanes: Lanes, value: Value) -> ir.Value:
    """Lanes that are not 0; a NaN is true."""
    if not isinstance(value, Pair) and value.type.element == I1:
        return value
    return lanes.b.not_(is_zero(lanes, value))


def _logical(name: str) -> Rule:
    def emit(lanes: Lanes, node: Node, args: list[Value]) -> Value:
        return getattr(lanes.b, name)(*(truth(lanes, v) for v in args))

    return emit


def _isnan(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    x, b = args[0], lanes.b
    if isinstance(x, Pair):
        return b.or_(b.fcmp_unordered("uno", x.re, x.re), b.fcmp_unordered("uno", x.im, x.im))
    if not node.operands[0].dtype.is_inexact:
        return lanes.constant(0, I1)
    return b.fcmp_unordered("uno", x, x)


def _infinite_part(lanes: Lanes, x: ir.Value) -> ir.Value:
    return lanes.b.fcmp_ordered("==", magnitude(lanes, x), lanes.constant(float("inf"), x.type.element))


def _isinf(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    x = args[0]
    if isinstance(x, Pair):
        return lanes.b.or_(_infinite_part(lanes, x.re), _infinite_part(lanes, x.im))
    return _infinite_part(lanes, x) if node.operands[0].dtype.is_inexact else lanes.constant(0, I1)


def _isfinite(lanes: Lanes, node: Node, args: list[Value]) -> Value:
    return lanes.b.not_(lanes.b.or_(_isnan(lanes, node, args), _isinf(lanes, node, args)))


def _bits(name: str) -> Rule:
    return lambda lanes, node, args: getattr(lanes.b, name)(*args)


def _shift(left: bool) -> Rule:
    """Shifts by the width or more, or by a negative count, leave nothing (or the sign)."""

    def emit(lanes: Lanes, node: Node, args: list[Value]) -> Value:
        x, count = args
        b, width = lanes.b, x.type.element.width
        beyond = b.icmp_unsigned(">=", count, lanes.constant(width, x.type.element))
        signed = node.dtype.kind == "i" and not left
        limit = lanes.constant(width - 1, x.type.element)
        inside = b.select(beyond, limit, count)
        if signed:
            return b.ashr(x, inside)
        shifted = (b.shl if left else b.lshr)(x, inside)
        return b.select(beyond, ir.Constant(x.type, None), shifted)

    return emit


RULES: Final[dict[str, Rule]] = {
    "equal": _ordering("=="),
    "not_equal": _ordering("!="),
    "less": _ordering("<"),
    "less_equal": _ordering("<="),
    "greater": _ordering(">"),
    "greater_equal": _ordering(">="),
    "isnan": _isnan,
    "isinf": _isinf,
    "isfinite": _isfinite,
    "logical_and": _logical("and_"),
    "logical_or": _logical("or_"),
    "logical_xor": _logical("xor"),
    "logical_not": _logical("not_"),
    "bitwise_and": _bits("and_"),
    "bitwise_or": _bits("or_"),
    "bitwise_xor": _bits("xor"),
    "bitwise_invert": _bits("not_"),
    "bitwise_left_shift": _shift(left=True),
    "bitwise_right_shift": _shift(left=False),
}
