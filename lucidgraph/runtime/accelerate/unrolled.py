"""Reductions over a few points, written out: a window of 2 × 2 is four operands of an elementwise kernel.

Loops over so few points, with states between them, take longer than what they do; as slices of the operands the points
are read in one go, and what is left has no reduction. Values that are needed at every point are computed once for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

from ...dtypes import DType
from ...ir import Graph, Node, TensorType
from ...ir.op import Op, get
from ...ir.ops.core import CastBackward, Constant, Input
from ...ir.types import Shape
from .steps import partial_dtype, without
from .views import View

_MOST_POINTS: Final = 16
_MOST_OPERANDS: Final = 24
_MOST_NODES: Final = 64
_LEAST: Final = 256
"""Results from which it is worth code for a number of points."""
STEPS: Final = {
    "sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and",
}  # fmt: skip
"""The ops that take one more point into a partial result."""


class Unrolled(NamedTuple):
    """An elementwise graph over the kept axes, and where its operands lie."""

    graph: Graph
    inputs: list[View]
    outputs: list[View]


def unrolled(
    graph: Graph, full: Shape, reduced: tuple[int, ...], inputs: Sequence[View], outputs: Sequence[View]
) -> Unrolled | None:
    """The same without reductions; None where there are too many points, or a reduction has no such form."""
    points = prod(full[k] for k in reduced)
    folds = [node for node in graph.nodes if node.op.reduces]
    if not folds or not 1 < points <= _MOST_POINTS or not all(map(_has_steps, folds)):
        return None
    kept = tuple(n for k, n in enumerate(full) if k not in reduced)
    whole = sum(view.shape == full for view in (*inputs, *outputs))
    nodes = sum(node.shape == full or node.op.reduces for node in graph.nodes)
    if prod(kept) < _LEAST or whole * points > _MOST_OPERANDS or nodes * points > _MOST_NODES:
        return None
    return _Writing(graph, full, reduced, kept).run(inputs, outputs)


def _has_steps(fold: Node) -> bool:
    truth = fold.operands[0].dtype.is_bool
    return fold.op.partial in STEPS and truth == (fold.op.partial in ("any", "all"))


class _Writing:
    def __init__(self, graph: Graph, full: Shape, reduced: tuple[int, ...], kept: Shape) -> None:
        self.graph, self.full, self.reduced, self.kept = graph, full, reduced, kept
        self.places = list(product(*(range(full[k]) for k in reduced)))
        self.nodes: list[Node] = []

    def run(self, inputs: Sequence[View], outputs: Sequence[View]) -> Unrolled:
        new: dict[Node, list[Node]] = {}
        given: list[Node] = []
        read: list[View] = []
        for node, view in zip(self.graph.inputs, inputs, strict=True):
            views = self.at_points(view)
            new[node] = [Node(Input, (), {}, (TensorType(self.kept, node.dtype),)) for _ in views]
            given += new[node]
            read += views
        for node in self.graph.nodes:
            if node.op.reduces:
                new[node] = [self.folded(node, self.each(new[node.operands[0]]))]
            elif node.op is Constant:
                self.nodes.append(node)
                new[node] = [node]
            elif node.op.view:
                new[node] = [self.spread(o, node.dtype) for o in new[node.operands[0]]]
            else:
                count = max(len(new[o]) for o in node.operands)
                columns = [new[o] if len(new[o]) == count else new[o] * count for o in node.operands]
                lines = zip(*columns, strict=True)
                new[node] = [self.made(node.op, own, dict(node.attrs), node.dtype) for own in lines]
        results: list[Node] = []
        written: list[View] = []
        for node, view in zip(self.graph.outputs, outputs, strict=True):
            views = self.at_points(view)
            results += self.each(new[node]) if len(views) > 1 else new[node]
            written += views
        return Unrolled(Graph(given, self.nodes, results, "explicit"), read, written)

    def at_points(self, view: View) -> list[View]:
        """An operand at each point, or the row that it is."""
        if view.shape != self.full:
            return [without(view, self.reduced, len(self.kept))]
        row = without(view, self.reduced, len(self.kept))
        strides = [view.strides[k] for k in self.reduced]
        moves = [sum(i * s for i, s in zip(place, strides, strict=True)) for place in self.places]
        return [replace(row, offset=row.offset + move) for move in moves]

    def each(self, values: list[Node]) -> list[Node]:
        """A value at each point."""
        return values if len(values) > 1 else values * len(self.places)

    def made(self, op: type[Op], operands: Sequence[Node], attrs: dict[str, Any], dtype: DType) -> Node:
        self.nodes.append(Node(op, tuple(operands), attrs, (TensorType(self.kept, dtype),)))
        return self.nodes[-1]

    def spread(self, value: Node, dtype: DType) -> Node:
        """A constant over the kept axes; what has them already as it is."""
        if value.op is not Constant:
            return value
        return self.made(get("broadcast_to"), (value,), {"shape": self.kept}, dtype)

    def cast(self, value: Node, dtype: DType) -> Node:
        return value if value.dtype is dtype else self.made(CastBackward, (value,), {"dtype": dtype}, dtype)

    def folded(self, fold: Node, values: Sequence[Node]) -> Node:
        """The values taken one by one into a partial result of its dtype."""
        wide = partial_dtype(fold)
        step = get(STEPS[fold.op.partial])
        total = self.cast(values[0], wide)
        for value in values[1:]:
            total = self.made(step, (total, self.cast(value, wide)), {}, wide)
        if fold.name == "mean":
            number = Node(Constant, (), {"value": float(len(values))}, (TensorType((), wide),))
            self.nodes.append(number)
            total = self.made(get("divide"), (total, self.spread(number, wide)), {}, wide)
        return self.cast(total, fold.dtype)


__all__ = ["Unrolled", "unrolled"]
