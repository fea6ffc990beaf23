"""The one way a pass walks: forward, once, each node rebuilt over its new operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Builder, Graph, Node, Origin
from ..ir.graph import Form

Visit = Callable[[Builder, Node, tuple[Node, ...]], Node | None]


def rebuild(graph: Graph, visit: Visit, form: Form | None = None, stage: str = "") -> Graph:
    """A new graph in which each node is what ``visit(builder, node, operands)`` returns for it.

    ``operands`` are the node's operands in the new graph. A visit returns None to keep the node: unchanged where its
    operands are, else copied over the new ones. Nodes it writes carry the old node's source and origin ``stage``.
    """
    builder = Builder()
    new: dict[Node, Node] = {node: node for node in graph.inputs}
    origin = Origin(stage) if stage else None
    for node in graph.nodes:
        operands = tuple(new[operand] for operand in node.operands)
        builder.source, builder.scope, builder.policy = node.source, node.scope, node.policy
        builder.origin = origin or node.origin
        made = visit(builder, node, operands)
        if made is None:
            made = builder.add(node if operands == node.operands else node.replace(operands=operands))
        new[node] = made
    outputs = [new[node] for node in graph.outputs]
    return Graph(graph.inputs, _once(builder.nodes, graph.inputs), outputs, form or graph.form, graph.input_names)


def _once(nodes: Sequence[Node], inputs: Sequence[Node]) -> list[Node]:
    """``nodes`` without repetitions: a visit may return a node that stands already."""
    return list(dict.fromkeys(node for node in nodes if node.name != "input"))
