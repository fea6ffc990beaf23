"""Constants of constants are computed here, in NumPy, by the op's own meaning."""

from __future__ import annotations

import numpy as np

from ..ir import Builder, Graph, Node
from ..ir.evaluate import evaluate_node
from ..ir.ops.core import Constant
from .rebuild import rebuild


def fold(graph: Graph) -> Graph:
    """The graph in which 0-d results of constants alone are constants. Larger results are left to run time."""

    def visit(builder: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        foldable = operands and not node.op.effect and node.op.schema_v1.deterministic and not node.op.composite
        if not foldable or len(node.types) != 1 or node.shape != () or any(o.name != "constant" for o in operands):
            return None
        value = np.asarray(evaluate_node(node, [evaluate_node(o, ()) for o in operands]))
        # Exact for every dtype: halves and float32 are Python floats, integers Python ints.
        number = value.astype(np.float64).item() if node.dtype.is_floating else value.item()
        return builder.append(Constant, (), {"value": number}, node.types)

    return rebuild(graph, visit, stage="fold")
