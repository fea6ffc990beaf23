"""Rules that follow from facts which ops declare, and the rules of casts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...dtypes import holds
from ...ir import Node, Op, Var
from ...ir.ops.core import CastBackward
from ...ir.ops.shape import BroadcastBackward
from ..fold import folded
from ..laws import Kind, Rule, rule, uniform


@rule("y = x, for a mark that only passes read", on=lambda op: op.identity)
def mark(at: Op) -> Var | None:
    return at.x


@rule("f(f(x)) = f(x), f idempotent", on=lambda op: op.idempotent and op.schema_v1.arity == 1)
def idempotent(at: Op) -> Var | None:
    inner = at.node.operands[0]
    return at.x if inner.op is at.node.op and inner.attrs == at.attrs else None


@rule("f(x, x) = x, f idempotent", on=lambda op: op.idempotent and op.schema_v1.arity == 2)
def idempotent_pair(at: Op) -> Var | None:
    x, y = at.node.operands
    return at.x if x is y else None


@rule("f(f(x)) = x, f an involution", on=lambda op: op.involution)
def involution(at: Op) -> Var | None:
    inner = at.node.operands[0]
    return Var(at.builder, inner.operands[0]) if inner.op is at.node.op else None


@rule("f(-x) = f(x), f even", on=lambda op: op.even)
def even(at: Op) -> Var | None:
    inner = at.node.operands[0]
    return at.node.op.of(Var(at.builder, inner.operands[0])) if inner.name == "negative" else None


def _sides(node: Node) -> Iterator[tuple[Node, Node]]:
    """The operands of an op of two: as they are, and exchanged where that is the same."""
    x, y = node.operands
    yield x, y
    if node.op.commutative:
        yield y, x


def _reassociated(at: Op) -> Var | None:
    node = at.node
    for inner, b in _sides(node):
        if inner.op is node.op and uniform(b) is not None:
            for x, a in _sides(inner):
                both = folded(node, (a, b))
                if both is not None:
                    constant = Var(at.builder, at.builder.constant(both, x.dtype))
                    return node.op.of(Var(at.builder, x), constant.broadcast_to(x.shape))
    return None


@rule("(x ∘ a) ∘ b = x ∘ (a ∘ b), numbers a and b, ∘ associative, not of floats", on=lambda op: op.associative)
def reassociated(at: Op) -> Var | None:
    return None if at.node.operands[0].dtype.is_inexact else _reassociated(at)


@rule("(x ∘ a) ∘ b = x ∘ (a ∘ b), numbers a and b, ∘ associative", on=lambda op: op.associative, kind=Kind.ROUNDING)
def reassociated_floats(at: Op) -> Var | None:
    return _reassociated(at)


@rule("f(broadcast x, …) = broadcast f(x, …), f elementwise", on=lambda op: op.elementwise)
def before_broadcast(at: Op) -> Var | None:
    """What is broadcast from one smaller shape is computed there; numbers come along."""
    sources = [o.operands[0] if o.op is BroadcastBackward else o for o in at.node.operands]
    shapes = {s.shape for s in sources if s.name != "constant"}
    if len(shapes) != 1 or shapes == {at.y.shape}:
        return None
    (shape,) = shapes
    operands = [Var(at.builder, s).broadcast_to(shape).node for s in sources]
    return Var(at.builder, at.builder.emit(at.node.op, operands, at.attrs)).broadcast_to(at.y.shape)


@rule("cast[t](x) = x, x of dtype t", on=CastBackward)
def cast_to_own(at: Op) -> Var | None:
    return at.x if at.x.dtype is at.attrs["dtype"] else None


@rule("cast[t](cast[u](x)) = cast[t](x), u holding every value of x", on=CastBackward)
def cast_twice(at: Op) -> Var | None:
    inner = at.node.operands[0]
    if inner.op is not CastBackward:
        return None
    x, through, to = inner.operands[0], inner.dtype, at.y.dtype
    # A float beyond an integer's range becomes anything; one made of an integer that fits does not.
    defined = holds(to, x.dtype) or not (to.is_integer and through.is_inexact)
    return Var(at.builder, x).astype(to) if holds(through, x.dtype) and defined else None


RULES: Final[tuple[Rule, ...]] = (
    mark, idempotent, idempotent_pair, involution, even, cast_to_own, cast_twice, reassociated, reassociated_floats,
    before_broadcast,
)  # fmt: skip
