"""One long reduction as two: of fixed pieces, then of the pieces' results."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from ... import dtypes
from ...dtypes import DType
from ...ir import Graph, Node, TensorType
from ...ir.op import get
from ...ir.ops.core import Input, Kernel
from ...ir.types import Shape
from .views import View


def partial_dtype(node: Node) -> DType:
    """The dtype in which a fold's partial results are kept: double for sums of floats."""
    dtype = node.operands[0].dtype
    if node.op.partial in ("any", "all"):
        return dtypes.bool_
    if node.op.partial in ("sum", "prod"):
        if dtype.is_complex:
            return dtypes.complex128
        if dtype.is_floating:
            return dtypes.float64
    return dtype


@final
class Steps:
    """The two bodies. The first reads the inputs in ``partial_inputs`` and gives one partial result per fold, with an
    axis of pieces at the end; the second reads those, then the inputs in ``final_inputs``, as rows."""

    def __init__(self, graph: Graph, full: Shape, pieces: int) -> None:
        self.axes = Kernel.domain(graph)[1]
        self.kept = tuple(n for k, n in enumerate(full) if k not in self.axes)
        folds = [node for node in graph.nodes if node.op.reduces]
        self.partial_types = [TensorType((*self.kept, pieces), partial_dtype(f)) for f in folds]
        places = {node: k for k, node in enumerate(graph.inputs)}

        nodes: list[Node] = []
        below: set[Node] = set()
        stack = [f.operands[0] for f in folds]
        while stack:
            node = stack.pop()
            if node not in below:
                below.add(node)
                stack.extend(node.operands)
        nodes = [node for node in graph.nodes if node in below]
        outputs = []
        for fold in folds:
            # A fold takes values into a state of the wider dtype by itself.
            operand, wide = fold.operands[0], partial_dtype(fold)
            attrs = {"axis": self.axes, "keepdims": False, "dtype": wide}
            outputs.append(Node(get(fold.op.partial), (operand,), attrs, (TensorType(self.kept, wide),)))
            nodes.append(outputs[-1])
        self.partial_inputs = [places[n] for n in graph.inputs if n in below]
        self.partial = Graph([graph.inputs[k] for k in self.partial_inputs], nodes, outputs, "explicit")

        new: dict[Node, Node] = {}
        given = []
        last = (len(self.kept),)
        body: list[Node] = []
        for fold, t in zip(folds, self.partial_types, strict=True):
            given.append(Node(Input, (), {}, (t,)))
            attrs = {"axis": last, "keepdims": False, "dtype": None}
            new[fold] = Node(fold.op, (given[-1],), attrs, (TensorType(self.kept, fold.dtype),))
            body.append(new[fold])
        self.final_inputs: list[int] = []
        for node in graph.nodes:
            if node in new or any(o in below and not o.op.view and o.operands for o in node.operands if o not in new):
                continue
            if node in below and not _uniform(node):
                continue
            for operand in node.operands:
                if operand in places and operand not in new:
                    new[operand] = Node(Input, (), {}, (TensorType(self.kept, operand.dtype),))
                    self.final_inputs.append(places[operand])
                    given.append(new[operand])
            new[node] = node.replace(operands=tuple(new[o] for o in node.operands))
            body.append(new[node])
        self.final = Graph(given, body, [new[node] for node in graph.outputs], "explicit")

    def row_view(self, view: View) -> View:
        """A row value's view without the reduced axes."""
        return without(view, self.axes, len(self.kept))


def without(view: View, axes: tuple[int, ...], rank: int) -> View:
    """A view without these axes, where it has more than ``rank``."""
    if len(view.shape) == rank:
        return view
    own = [k for k in range(len(view.shape)) if k not in axes]
    return replace(view, shape=tuple(view.shape[k] for k in own), strides=tuple(view.strides[k] for k in own))


def _uniform(node: Node) -> bool:
    """Whether a value is made of constants alone."""
    stack = [node]
    while stack:
        n = stack.pop()
        if n.name == "input":
            return False
        stack.extend(n.operands)
    return True
