"""A kernel as two: a long reduction of pieces, then of the pieces' results; one pass after the other; elementwise
values, then reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple, final

from ... import dtypes
from ...dtypes import DType
from ...ir import Graph, Node, TensorType, topological
from ...ir.op import get
from ...ir.ops.core import Input, Kernel
from ...ir.types import Shape
from .body import Body
from .domain import Axis
from .executor import BRIEF_COST
from .views import View

_POINTS: Final = 1 << 15
_BLOCK_POINTS: Final = 1 << 18
"""What is reduced to one value, or to a row of them, from which that is worth cutting up."""
_PIECE: Final = 1 << 13
_PIECES: Final = 64
_BLOCKS: Final = 16
"""How many points a piece has at least; how many pieces there are at most, by rows and by columns."""
_FEW: Final = 4
"""Fewer items than these are not worth the name of sharing."""
_RUN: Final = 16
_FORESEEN: Final = 1 << 14
"""Between so many elements and so many bytes at a stretch, a reduction over axes apart is better read in order."""


class Split(NamedTuple):
    """The reduced axis to cut, at ``place``, into ``pieces`` of ``piece`` each, the last one perhaps shorter;
    ``outermost``: the pieces come before the kept axes, because that is how the operands lie."""

    place: int
    piece: int
    pieces: int
    outermost: bool = False


def split_of(body: Body, axes: Sequence[Axis], columns: bool, lanes: int) -> Split | None:
    """How a reduction over ``axes`` (outer, reduced, the vectors') is to be cut up, if at all."""
    folds = [n for n in body.graph.nodes if n.op.reduces]
    if not folds or not all(n.op.partial and body.level[n.operands[0]] == 0 for n in folds):
        return None
    written = [n for n in body.graph.outputs if n.shape == body.full]
    if any(body.level[n] for n in written) or not any(a.reduced for a in axes):
        return None
    return (None if written else _in_order(body, axes, columns)) or _shared(body, axes, columns, lanes)


def _in_order(body: Body, axes: Sequence[Axis], columns: bool) -> Split | None:
    """Where a kept axis lies between reduced ones, each result would be read from far apart: a short run here, another
    there. Pieces in the order of memory are foreseen by the processor."""
    vector = axes[-1]
    inner = [k for k, a in enumerate(axes[:-1]) if a.reduced]
    full = [k for k, n in enumerate(body.graph.inputs) if body.is_full[n]]
    if columns or not inner or not full:
        return None
    step, size = vector.strides[full[0]], vector.size
    kept = [a.strides[full[0]] for a in axes[:-1] if not a.reduced and a.size > 1]
    far = axes[inner[0]]
    apart = bool(kept) and abs(far.strides[full[0]]) > max(map(abs, kept))
    if not apart or size < _RUN or step * size > _FORESEEN or prod(a.size for a in axes) < _POINTS:
        return None
    return Split(inner[0], 1, far.size, outermost=True)


def _shared(body: Body, axes: Sequence[Axis], columns: bool, lanes: int) -> Split | None:
    """Few results of many points each are reduced piece by piece, so that threads can share."""
    # The vectors' axis is cut only where that is long, or the only one reduced.
    across = columns or (len(axes) > 1 and axes[-2].reduced and axes[-1].size < _PIECE)
    place = len(axes) - (2 if across else 1)
    cut = axes[place]
    items = prod(a.size for a in axes[:-1] if not a.reduced)
    reduced = prod(a.size for a in axes if a.reduced)
    points, least = reduced, _POINTS
    if columns:
        items *= -(-axes[-1].size // (lanes * body.block))
        points, least = reduced * axes[-1].size, _BLOCK_POINTS
    if items >= 8 or cut.size < 16 or points < least:
        return None
    beside = reduced // cut.size
    # By columns, a piece is as many whole rows of the block as make up its points.
    piece = max(16, _BLOCK_POINTS // beside // axes[-1].size) if columns else max(1, _PIECE // beside)
    piece = max(piece, -(-cut.size // (_BLOCKS if columns else _PIECES)))
    return Split(place, piece, -(-cut.size // piece))


@final
class Levels:
    """A kernel of several passes as two: ``first`` gives the folds of the first pass, from the inputs in
    ``first_inputs``; ``second`` reads the inputs in ``second_inputs``, then those folds, and gives the outputs in
    ``left``, the others being folds of the first pass: ``given`` says which."""

    def __init__(self, body: Body) -> None:
        graph = body.graph
        places = {node: k for k, node in enumerate(graph.inputs)}
        self.folds = body.folds(0)
        below = set(topological(f.operands[0] for f in self.folds))
        self.first_inputs = [places[n] for n in graph.inputs if n in below]
        nodes = [n for n in graph.nodes if n in below or n in self.folds]
        self.first = Graph([graph.inputs[k] for k in self.first_inputs], nodes, self.folds, "explicit")

        self.given = {k: self.folds.index(n) for k, n in enumerate(graph.outputs) if n in self.folds}
        self.left = [k for k in range(len(graph.outputs)) if k not in self.given]
        new: dict[Node, Node] = {fold: Node(Input, (), {}, (fold.type,)) for fold in self.folds}
        used = set(topological((graph.outputs[k] for k in self.left), stop=new.__contains__))
        self.second_inputs = [places[n] for n in graph.inputs if n in used]
        read = [graph.inputs[k] for k in self.second_inputs]
        new |= {n: n for n in read}
        nodes = []
        for node in graph.nodes:
            if node in used and node not in new:
                new[node] = node.replace(operands=tuple(new[o] for o in node.operands))
                nodes.append(new[node])
        inputs = [*read, *(new[fold] for fold in self.folds)]
        self.second = Graph(inputs, nodes, [new[graph.outputs[k]] for k in self.left], "explicit")


def in_levels(body: Body, axes: Sequence[Axis], columns: bool, lanes: int) -> Levels | None:
    """A kernel whose later passes need the folds of the first, pass by pass where all its points would be one item of
    work or hardly more; None where there is enough to share, or to keep from one pass for the next."""
    items = prod(a.size for a in axes[:-1] if not a.reduced) * (-(-axes[-1].size // lanes) if columns else 1)
    if body.passes == 1 or items >= _FEW or prod(a.size for a in axes) < _BLOCK_POINTS:
        return None
    if not body.folds(0) or not all(f.op.partial for f in body.folds(0)):
        return None
    made = Levels(body)
    rows = any(n.shape != body.full for n in made.second.outputs)
    return None if rows and not any(n.op.reduces for n in made.second.nodes) else made


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
    axis of pieces at the end, and the outputs of full shape, whose numbers are in ``written``; the second reads those
    partial results, then the inputs in ``final_inputs``, as rows, and gives the outputs in ``rows``."""

    def __init__(self, graph: Graph, full: Shape, pieces: int) -> None:
        self.axes = Kernel.domain(graph)[1]
        self.kept = tuple(n for k, n in enumerate(full) if k not in self.axes)
        folds = [node for node in graph.nodes if node.op.reduces]
        self.partial_types = [TensorType((*self.kept, pieces), partial_dtype(f)) for f in folds]
        places = {node: k for k, node in enumerate(graph.inputs)}
        self.written = [k for k, n in enumerate(graph.outputs) if n.shape == full]
        self.rows = [k for k, n in enumerate(graph.outputs) if n.shape != full]

        nodes: list[Node] = []
        below = set(topological([*(f.operands[0] for f in folds), *(graph.outputs[k] for k in self.written)]))
        nodes = [node for node in graph.nodes if node in below]
        outputs = []
        for fold in folds:
            # A fold takes values into a state of the wider dtype by itself.
            operand, wide = fold.operands[0], partial_dtype(fold)
            attrs = {"axis": self.axes, "keepdims": False, "dtype": wide}
            outputs.append(Node(get(fold.op.partial), (operand,), attrs, (TensorType(self.kept, wide),)))
            nodes.append(outputs[-1])
        self.partial_inputs = [places[n] for n in graph.inputs if n in below]
        outputs += [graph.outputs[k] for k in self.written]
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
        after = set(topological((graph.outputs[k] for k in self.rows), stop=new.__contains__)) - set(new)
        for node in graph.nodes:
            if node not in after:
                continue
            for operand in node.operands:
                if operand in places and operand not in new:
                    new[operand] = Node(Input, (), {}, (TensorType(self.kept, operand.dtype),))
                    self.final_inputs.append(places[operand])
                    given.append(new[operand])
            new[node] = node.replace(operands=tuple(new[o] for o in node.operands))
            body.append(new[node])
        self.final = Graph(given, body, [new[graph.outputs[k]] for k in self.rows], "explicit")

    def row_view(self, view: View) -> View:
        """A row value's view without the reduced axes."""
        return without(view, self.axes, len(self.kept))


def without(view: View, axes: tuple[int, ...], rank: int) -> View:
    """A view without these axes, where it has more than ``rank``."""
    if len(view.shape) == rank:
        return view
    own = [k for k in range(len(view.shape)) if k not in axes]
    return replace(view, shape=tuple(view.shape[k] for k in own), strides=tuple(view.strides[k] for k in own))


def holds_up_rows(
    body: Body, reduced: tuple[int, ...], inputs: Sequence[View], most: int = BRIEF_COST
) -> bool:  # fmt: skip
    """Whether a kernel of little memory, ``most`` bytes, goes over all rows for its reductions, though its full values
    do not.

    Alone, these can be in a chain with what makes the rows and what reads them; and reading them again for the
    reductions costs less than threads that wait for each other.
    """
    full = [n for n in body.graph.outputs if n.shape == body.full]
    return (
        0 in reduced
        and 0 < len(full) < len(body.graph.outputs)
        and all(body.level[n] == 0 for n in full)
        and sum(v.touched for v in inputs) <= most
    )


@final
class Halves:
    """The full values that a kernel gives, by ``full`` of the inputs in ``full_inputs``; then its reductions, by
    ``rows`` of the inputs in ``rows_inputs`` and of the first's results in ``rows_made``."""

    def __init__(self, graph: Graph, full: Shape) -> None:
        places = {node: k for k, node in enumerate(graph.inputs)}
        self.full_outputs = [k for k, node in enumerate(graph.outputs) if node.shape == full]
        self.rows_outputs = [k for k, node in enumerate(graph.outputs) if node.shape != full]
        first = [graph.outputs[k] for k in self.full_outputs]
        below = topological(first)
        self.full_inputs = [places[n] for n in below if n in places]
        nodes = [n for n in below if n not in places]
        self.full = Graph([graph.inputs[k] for k in self.full_inputs], nodes, first, "explicit")

        made = set(first)
        last = [graph.outputs[k] for k in self.rows_outputs]
        below = topological(last, stop=made.__contains__)
        self.rows_inputs = [places[n] for n in below if n in places]
        self.rows_made = [k for k, n in enumerate(first) if n in set(below)]
        new: dict[Node, Node] = {n: n for n in graph.inputs}
        new |= {n: Node(Input, (), {}, n.types) for n in first}
        body: list[Node] = []
        for node in below:
            if node not in new:
                new[node] = node.replace(operands=tuple(new[o] for o in node.operands))
                body.append(new[node])
        given = [graph.inputs[k] for k in self.rows_inputs] + [new[first[k]] for k in self.rows_made]
        self.rows = Graph(given, body, [new[n] for n in last], "explicit")


def kept_stride(view: View, kept: Sequence[Axis], axis: Axis) -> int:
    """The stride of a partial result (kept axes in order, then pieces) along a kept axis of the domain."""
    stride = view.strides[-1] * view.shape[-1]
    for other in reversed(kept):
        if other is axis:
            return stride
        stride *= other.size
    raise AssertionError("the axis is a kept one")
