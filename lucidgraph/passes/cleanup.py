"""Dead code and common subexpressions."""

from __future__ import annotations

from typing import Any

from ..ir import Builder, CapturedArray, Graph, Node, topological
from .rebuild import rebuild


def dce(graph: Graph) -> Graph:
    """The graph without nodes that no output and no effect needs."""
    given = set(graph.inputs)
    needed = set(topological([*graph.outputs, *(n for n in graph.nodes if n.op.effect)], stop=given.__contains__))
    nodes = [node for node in graph.nodes if node in needed]
    if len(nodes) == len(graph.nodes):
        return graph
    return Graph(graph.inputs, nodes, graph.outputs, graph.form, graph.input_names)


def cse(graph: Graph) -> Graph:
    """The graph in which equal operations on equal operands are one node. Effects and random draws are never merged."""
    seen: dict[tuple[Any, ...], Node] = {}

    def visit(builder: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if node.op.effect or not node.op.schema_v1.deterministic:
            return None
        order = tuple(sorted(operands, key=id)) if node.op.commutative else operands
        attrs = tuple((k, _key(v)) for k, v in sorted(node.attrs.items()))
        # What casts a recorded node will get depends on the policy of its region.
        key = (node.op, order, attrs, node.types, node.policy if graph.form == "recorded" else None)
        if key not in seen:
            seen[key] = builder.add(node if operands == node.operands else node.replace(operands=operands))
        return seen[key]

    return rebuild(graph, visit)


def _key(value: Any) -> Any:
    """An attribute's identity: 0.0 differs from -0.0, 1 from True and 1.0, NaN equals itself."""
    if isinstance(value, CapturedArray):
        return id(value.array) if value.array is not None else id(value)
    if isinstance(value, tuple):
        return tuple(_key(v) for v in value)
    return type(value), repr(value) if isinstance(value, float | complex) else value
