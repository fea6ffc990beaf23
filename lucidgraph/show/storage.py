"""Which values have memory of their own, and which are looked at through another's."""

from __future__ import annotations

from ..ir import Graph, Node
from ..ir.ops.core import Result

__all__ = ["nbytes_of", "is_view", "owners"]


def is_view(node: Node) -> bool:
    """Whether a node can share its operand's memory: it only moves elements of one operand (reshape, broadcast_to,
    permute_dims, slice …), or picks one result of several."""
    return len(node.operands) == 1 and (node.op.moves_data or node.op is Result)


def owners(graph: Graph) -> dict[Node, Node]:
    """For each node the one whose memory it reads: itself, unless it is a view."""
    found = {node: node for node in graph.inputs}
    for node in graph.nodes:
        found[node] = found[node.operands[0]] if is_view(node) else node
    return found


def nbytes_of(node: Node) -> int:
    """The bytes of a node's results. A constant is part of the code and takes none."""
    return 0 if node.name == "constant" else sum(t.nbytes for t in node.types)
