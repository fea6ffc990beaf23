"""What is known to be one number in every element becomes a constant, or a broadcast of one.

Computed by the op's own meaning, and only where every backend would compute the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir import Builder, Graph, Node, TensorType, Var
from ..ir.evaluate import constant_array, evaluate_node
from ..ir.ops.shape import BroadcastBackward
from ..ir.types import Scalar
from .laws import is_number, uniform
from .rebuild import rebuild


def fold(graph: Graph) -> Graph:
    """The graph in which elementwise results of constants alone, and rearrangements of one, are constants."""

    def visit(builder: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        value = folded(node, operands)
        if value is None:
            return None
        if node.op is BroadcastBackward and operands[0].name == "constant":
            return None
        constant = Var(builder, builder.constant(value, node.dtype))
        return constant.broadcast_to(node.shape).node

    return rebuild(graph, visit, stage="fold")


def folded(node: Node, operands: Sequence[Node]) -> Scalar | None:
    """The number in every element of an op's result over ``operands``, or None where it is not known."""
    op = node.op
    if not operands or op.composite or op.effect or not op.schema_v1.deterministic or len(node.types) > 1:
        return None
    values = [value for value in map(uniform, operands) if value is not None]
    if len(values) < len(operands):
        return None
    first = values[0]
    if op.moves_data and len(op.shared_operands(len(operands))) == len(operands):
        alike = all(o.dtype is node.dtype and is_number(v, first) for o, v in zip(operands, values, strict=True))
        return first if alike else None
    if not op.elementwise or not op.same_everywhere([o.type for o in operands], node.attrs):
        return None
    arrays = [constant_array(v, TensorType((), o.dtype)) for v, o in zip(values, operands, strict=True)]
    value = np.asarray(evaluate_node(node, arrays))
    # Exact for every dtype: halves and float32 are Python floats, integers Python ints.
    number: Scalar = value.astype(np.float64).item() if node.dtype.is_floating else value.item()
    return number
