"""Every broadcast becomes a ``broadcast_to`` node. After this pass the graph is explicit."""

from __future__ import annotations

from ..ir import Builder, Graph, Node, Origin
from ..ir.ops.shape import BroadcastBackward
from ..ir.types import Shape
from .rebuild import rebuild


def broadcast(graph: Graph) -> Graph:
    """The graph with operands of the shapes that ``Op.broadcasted`` names. A value is broadcast once to each shape."""
    made: dict[tuple[Node, Shape], Node] = {}

    def visit(builder: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if not operands:
            return None
        wanted = node.op.broadcasted(tuple(o.type for o in operands), node.attrs)
        new = []
        for operand, shape in zip(operands, wanted, strict=True):
            if operand.shape != shape:
                key = (operand, shape)
                if key not in made:
                    builder.origin = Origin("broadcast", f"{node.name} of {operand.shape} with {shape}")
                    made[key] = builder.emit(BroadcastBackward, (operand,), {"shape": shape})
                operand = made[key]
            new.append(operand)
        return None if tuple(new) == node.operands else builder.add(node.replace(operands=tuple(new)))

    return rebuild(graph, visit, form="explicit")
