"""The language of rewrite rules.

A law is an equation in Python's notation, read from left to right: ``law("x - -y = x + y")``. Names are any operands,
the same name the same value, numbers are constants; operators and calls are ops by their schema's name. What an
equation cannot say, because attributes or facts decide, is a function under ``@rule("what it does")``.

A rule never changes a type: where its right side has another one, or none, it does not apply.
"""

from __future__ import annotations

import ast
import enum
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, final

from ..dtypes import DType
from ..errors import DTypeError, PassError
from ..ir import Node, Op, Var
from ..ir.op import REGISTRY
from ..ir.ops.shape import BroadcastBackward
from ..ir.types import Scalar


@final
class Kind(enum.IntEnum):
    """What a rule may change: nothing, not one bit (NaN's payload aside); the last bits and the sign of 0; or the
    value at infinities, NaN and points outside an op's domain. Later kinds include earlier ones."""

    EXACT = 0
    ROUNDING = 1
    DOMAIN = 2


Rewrite = Callable[[Op], Var | None]
"""From an op bound to a node (and to the builder that takes new nodes) to what replaces it, or None."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One law: ``heads`` says which ops it may start at, ``rewrite`` is tried there."""

    law: str
    kind: Kind
    heads: Callable[[type[Op]], bool]
    rewrite: Rewrite
    left: Call | None = None
    """The left side of an equation."""

    def __repr__(self) -> str:
        return f"<{self.kind.name.lower()} rule: {self.law}>"


def rule(
    law: str, on: type[Op] | Callable[[type[Op]], bool], kind: Kind = Kind.EXACT
) -> Callable[[Rewrite], Rule]:
    """Make a function of the bound op a rule. ``on`` is an op, or a question about an op's facts."""
    heads = (lambda op: op is on) if isinstance(on, type) else on

    def made(rewrite: Rewrite) -> Rule:
        return Rule(law, kind, heads, rewrite)

    return made


def law(equation: str, kind: Kind = Kind.EXACT, when: Callable[[DType], bool] | None = None) -> Rule:
    """The rule of an equation; ``when`` restricts the dtypes of what its names stand for.

    >>> law("x + -0.0 = x")
    <exact rule: x + -0.0 = x>
    """
    left, right = (_pattern(ast.parse(side.strip(), mode="eval").body) for side in equation.split(" = "))
    if not isinstance(left, Call):
        raise PassError(f"{equation}: the left side is an op")

    def rewrite(at: Op) -> Var | None:
        if not _may_match(left, at.node):
            return None
        for found in _matches(left, at.node, {}):
            if when is None or all(when(node.dtype) for node in found.values()):
                try:
                    return _built(right, found, at)
                except DTypeError:
                    return None
        return None

    text = equation if when is None else f"{equation} ({when.__name__})"
    return Rule(text, kind, lambda op: op.schema_v1.name == left.op, rewrite, left)


# -- questions about dtypes and constants


def integers(dtype: DType) -> bool:
    return dtype.is_integer


def discrete(dtype: DType) -> bool:
    return not dtype.is_inexact


def booleans(dtype: DType) -> bool:
    return dtype.is_bool


def real(dtype: DType) -> bool:
    return not dtype.is_complex


def uniform(node: Node) -> Scalar | None:
    """The number that every element of a node is, where it is a constant or a broadcast of one."""
    while node.op is BroadcastBackward:
        node = node.operands[0]
    return node.attrs["value"] if node.name == "constant" else None


def is_same(a: Node, b: Node) -> bool:
    """One node, or two of one type that hold one number in every element."""
    if a is b:
        return True
    value = uniform(a)
    return value is not None and a.types == b.types and is_number(uniform(b), value)


def is_number(value: Scalar | None, wanted: Scalar) -> bool:
    """Whether a constant is a number, the sign of 0 included; an integer 0 is 0.0."""
    return value is not None and value == wanted and (wanted != 0 or _negative(value) == _negative(wanted))


def _negative(zero: Scalar) -> bool:
    return isinstance(zero, float) and math.copysign(1.0, zero) < 0


# -- equations


@final
@dataclass(frozen=True, slots=True)
class Name:
    name: str


@final
@dataclass(frozen=True, slots=True)
class Number:
    value: Scalar


@final
@dataclass(frozen=True, slots=True)
class Call:
    op: str
    operands: tuple[Pattern, ...]


Pattern = Name | Number | Call

_OPERATORS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.Pow: "pow",
    ast.FloorDiv: "floor_divide", ast.Mod: "remainder", ast.USub: "negative", ast.Not: "logical_not",
    ast.Invert: "bitwise_invert", ast.And: "logical_and", ast.Or: "logical_or", ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor", ast.Eq: "equal", ast.NotEq: "not_equal", ast.Lt: "less",
    ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal",
}  # fmt: skip
_NUMBERS: Final = {"inf": math.inf, "nan": math.nan}


def _pattern(tree: ast.expr) -> Pattern:
    """A Python expression as a pattern."""
    match tree:
        case ast.Name(id=name):
            return Number(_NUMBERS[name]) if name in _NUMBERS else Name(name)
        case ast.Constant(value=bool() | int() | float() as value):
            return Number(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand) if isinstance(inner := _pattern(operand), Number):
            return Number(-inner.value)
        case ast.UnaryOp(op=operator, operand=operand):
            return Call(_OPERATORS[type(operator)], (_pattern(operand),))
        case ast.BinOp(left=a, op=operator, right=b):
            return Call(_OPERATORS[type(operator)], (_pattern(a), _pattern(b)))
        case ast.BoolOp(op=operator, values=[a, b]):
            return Call(_OPERATORS[type(operator)], (_pattern(a), _pattern(b)))
        case ast.Compare(left=a, ops=[operator], comparators=[b]):
            return Call(_OPERATORS[type(operator)], (_pattern(a), _pattern(b)))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return Call(name, tuple(_pattern(a) for a in arguments))
    raise PassError(f"{ast.unparse(tree)} is no pattern")


Bindings = dict[str, Node]


def _may_match(left: Call, node: Node) -> bool:
    """Whether the operands look right at first sight: most nodes do not, and this is cheap."""
    patterns, nodes = left.operands, node.operands
    if all(map(_looks_like, patterns, nodes)):
        return True
    return node.op.commutative and all(map(_looks_like, patterns, nodes[::-1]))


def _looks_like(pattern: Pattern, node: Node) -> bool:
    if isinstance(pattern, Call):
        return node.op.schema_v1.name == pattern.op
    return isinstance(pattern, Name) or is_number(uniform(node), pattern.value)


def _matches(pattern: Pattern, node: Node, bound: Bindings) -> Iterator[Bindings]:
    """Every way in which a node is an instance of a pattern; as deep as the pattern, not as the graph."""
    if isinstance(pattern, Number):
        if is_number(uniform(node), pattern.value):
            yield bound
    elif isinstance(pattern, Name):
        if pattern.name not in bound:
            yield {**bound, pattern.name: node}
        elif is_same(bound[pattern.name], node):
            yield bound
    elif node.name == pattern.op and len(node.operands) == len(pattern.operands):
        yield from _all_match(pattern.operands, node.operands, bound)
        if node.op.commutative and len(node.operands) == 2:
            yield from _all_match(pattern.operands, node.operands[::-1], bound)


def _all_match(patterns: tuple[Pattern, ...], nodes: tuple[Node, ...], bound: Bindings) -> Iterator[Bindings]:
    if not patterns:
        yield bound
        return
    for found in _matches(patterns[0], nodes[0], bound):
        yield from _all_match(patterns[1:], nodes[1:], found)


def _built(pattern: Pattern, found: Bindings, at: Op) -> Var:
    """The right side over what the left side matched. A number takes the dtype of what it stands next to."""
    if isinstance(pattern, Name):
        return Var(at.builder, found[pattern.name])
    if isinstance(pattern, Number):
        return at.y.full(at.y.dtype.numpy.type(pattern.value).item())
    operands = [None if isinstance(p, Number) else _built(p, found, at) for p in pattern.operands]
    like = next(v for v in reversed(operands) if v is not None)
    numbers = (p.value if isinstance(p, Number) else 0 for p in pattern.operands)
    given = [like.full(n) if v is None else v for v, n in zip(operands, numbers, strict=True)]
    return REGISTRY[pattern.op].of(*given)


__all__ = [
    "Kind", "Rule", "booleans", "discrete", "integers", "is_number", "is_same", "law", "real", "rule", "uniform",
]  # fmt: skip
