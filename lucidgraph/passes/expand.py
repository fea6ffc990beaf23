"""Composites are written out, but for those a backend takes whole."""

from __future__ import annotations

from collections.abc import Callable, Container

from ..ir import Builder, Composite, Graph, Node, Origin, Var
from .rebuild import rebuild


def expand(graph: Graph, keep: Container[str] = ()) -> Graph:
    """The graph without composites other than those named in ``keep``."""
    return expand_where(graph, lambda node: node.name not in keep)


def expand_where(graph: Graph, chosen: Callable[[Node], bool]) -> Graph:
    """The graph with the composites that ``chosen`` picks written out, and those inside their expansions too."""

    def visit(builder: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if not (issubclass(node.op, Composite) and chosen(node)):
            return None
        builder.origin = Origin("expand", _whose(node))
        return node.op.expansion([Var(builder, operand) for operand in operands], node.attrs).node

    while any(node.op.composite and chosen(node) for node in graph.nodes):
        graph = rebuild(graph, visit)
    return graph


def _whose(node: Node) -> str:
    """The composite the user wrote, through nested expansions."""
    if node.origin is not None and node.origin.stage == "expand":
        return node.origin.reason
    return node.name
