"""Rewrite rules, chapter by chapter, applied in one forward walk.

Each node is rewritten over its already simplified operands until no rule applies to it, and so is every node that a
rule writes: what comes out is a fixed point, and a second run changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, final

from ..config import config
from ..errors import PassError
from ..ir import Builder, Graph, Node, Op, Origin
from .laws import Kind, Rule
from .rebuild import rebuild
from .rules import RULES

_BOUND: Final = 100
"""How many rules may apply one after another in place of one node; more means that two rules undo each other."""

Observer = Callable[[Rule, Node], None]
_observers: list[Observer] = []


@contextmanager
def watching(observer: Observer) -> Iterator[None]:
    """Call ``observer(rule, node)`` whenever a rule applies to a node, in any thread, inside ``with``."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def simplify(graph: Graph, kind: Kind | None = None, keeps: frozenset[str] = frozenset()) -> Graph:
    """The graph rewritten by the rules up to ``kind``: by default those that ``config.rules`` names, the exact ones.
    The laws that a backend ``keeps`` to the bit are exact for real numbers there."""
    allowed = Kind[config.rules.upper()] if kind is None else kind

    def visit(builder: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if not rules_of(node.op, allowed, keeps):
            return None
        renewed = node if operands == node.operands else node.replace(operands=operands)
        return _Place(builder, node, allowed, keeps).of(renewed)

    return rebuild(graph, visit)


_tables: dict[tuple[type[Op], Kind, frozenset[str]], tuple[tuple[Rule, Origin], ...]] = {}


def rules_of(op: type[Op], kind: Kind, keeps: frozenset[str] = frozenset()) -> tuple[tuple[Rule, Origin], ...]:
    """The rules that may start at an op, in the order they are tried, with what they write on their nodes."""
    table = _tables.get((op, kind, keeps))
    if table is None:
        known = (r for r in RULES if (r.kind <= kind or r.law in keeps) and r.heads(op))
        table = tuple((r, Origin("simplify", r.law)) for r in known)
        _tables[op, kind, keeps] = table
    return table


@final
class _Place:
    """Rewriting in place of one node of the graph."""

    def __init__(self, builder: Builder, node: Node, kind: Kind, keeps: frozenset[str]) -> None:
        self.builder = builder
        self.node = node
        self.kind = kind
        self.keeps = keeps
        self.left = _BOUND

    def of(self, node: Node) -> Node:
        """The fixed point of ``node``, whose operands are fixed points. As deep as right sides are."""
        while True:
            step = self.step(node)
            if step is None:
                return self.builder.add(node)
            result, written = step
            done: dict[Node, Node] = {}
            for new in written:
                operands = tuple(done.get(operand, operand) for operand in new.operands)
                current = new if operands == new.operands else new.replace(operands=operands)
                if new is result:
                    node = current
                elif new.name == "constant":
                    done[new] = self.builder.constant(new.attrs["value"], new.dtype)
                else:
                    done[new] = self.of(current)
            if result not in written:
                return result

    def step(self, node: Node) -> tuple[Node, list[Node]] | None:
        """What the first rule that applies puts in ``node``'s place, and the nodes it wrote for that."""
        at = self.bound(node)
        for rule, at.builder.origin in rules_of(node.op, self.kind, self.keeps):
            found = rule.rewrite(at)
            if found is not None and found.node.types == node.types and found.node is not node:
                self.left -= 1
                if not self.left:
                    raise PassError(f"the rules for {self.node!r} come to no end; the last was {rule!r}")
                for observer in tuple(_observers):
                    observer(rule, node)
                return found.node, at.builder.nodes
            if at.builder.nodes:
                at = self.bound(node)
        return None

    def bound(self, node: Node) -> Op:
        """``node`` with a builder of its own."""
        scratch = Builder()
        scratch.source, scratch.scope, scratch.policy = self.node.source, self.node.scope, self.node.policy
        return node.op(node, scratch)
