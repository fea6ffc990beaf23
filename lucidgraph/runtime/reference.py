"""The reference backend: NumPy, node by node. Slow, and the meaning of everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from ..dtypes import ALL
from ..ir import Graph, Node, TensorType, evaluate
from ..ir.evaluate import evaluate_node
from ..ir.op import as_result
from .backend import Executable, IBackend, host_array


@final
class ReferenceExecutable(Executable):
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.source = str(graph)

    def __call__(self, buffers: Sequence[Any]) -> list[Any]:
        return list(evaluate(self.graph, [host_array(b) for b in buffers]))


@final
class ReferenceBackend(IBackend):
    """Runs any graph, every dtype, with NumPy."""

    name = "reference"
    dtypes = frozenset(ALL)

    def compile(self, graph: Graph, donated: frozenset[int] = frozenset()) -> Executable:
        return ReferenceExecutable(graph)

    def run_op(self, node: Node, buffers: Sequence[Any]) -> Any:
        return evaluate_node(node, [host_array(b) for b in buffers])

    def to_buffer(self, value: Any, t: TensorType) -> Any:
        with np.errstate(all="ignore"):
            return as_result(host_array(value), t)

    def to_numpy(self, buffer: Any) -> np.ndarray[Any, Any]:
        return np.asarray(buffer)


def create() -> IBackend:
    return ReferenceBackend()
