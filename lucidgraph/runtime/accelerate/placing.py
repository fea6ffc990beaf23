"""Values written where they are wanted: into a part of what a padding, a joining or a write to a slice will be.

The result of a kernel that only such an op reads is written into its place by the kernel, so it is not copied there;
what is left of the larger array is filled or copied in boxes. Ops that only change strides may stand between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, final

from ...ir import Graph, Node
from ...ir.ops.core import Constant, Kernel, Result
from ...ir.types import Shape
from .views import View

Part = Callable[[View, Node, int], View | None]
"""The part of an op's result that an operand will be; None where it is not one."""


def _updated(out: View, node: Node, k: int) -> View | None:
    # With steps, the rest is no box.
    return out.sliced(**node.attrs) if k == 1 and all(s == 1 for s in node.attrs["step"]) else None


def padded(out: View, node: Node) -> View:
    """Where the elements that a padding is put around lie; there are some."""
    step = tuple(i + 1 for i in node.attrs["interior"])
    low = node.attrs["low"]
    shape = node.operands[0].shape
    stop = tuple(a + (n - 1) * s + 1 for n, a, s in zip(shape, low, step, strict=True))
    return out.sliced(low, stop, step)


def _padded(out: View, node: Node, k: int) -> View | None:
    return None if k or not node.operands[0].type.size or any(node.attrs["interior"]) else padded(out, node)


def joined(out: View, node: Node, k: int) -> View:
    """The part of a concatenation that an operand is."""
    axis = node.attrs["axis"]
    at = sum(operand.shape[axis] for operand in node.operands[:k])
    return replace(out, offset=out.offset + at * out.strides[axis], shape=node.operands[k].shape)


def covered(node: Node) -> Shape | None:
    """How much of a sum of windows these cover, where they lie side by side without gaps; None where they do not."""
    axis, stride = node.attrs["axis"], node.attrs["stride"]
    rank = len(stride)
    given = node.operands[0].shape
    count, kernel = given[axis : axis + rank], given[axis + rank : axis + 2 * rank]
    if kernel != stride or any(d != 1 for d, k in zip(node.attrs["dilation"], kernel, strict=True) if k != 1):
        return None
    sizes = tuple(n * k for n, k in zip(count, kernel, strict=True))
    return (*node.shape[:axis], *sizes, *node.shape[axis + rank :])


def side_by_side(out: View, node: Node) -> View:
    """Where such windows lie."""
    axis, stride = node.attrs["axis"], node.attrs["stride"]
    size = covered(node)
    assert size is not None
    part = out.sliced((0,) * len(size), size, ones(size))
    return part.windowed(axis, stride, stride, node.attrs["dilation"])


def _windows(out: View, node: Node, k: int) -> View | None:
    return None if covered(node) is None or out.dtype is not node.dtype else side_by_side(out, node)


PARTS: Final[dict[str, Part]] = {
    "slice_update": _updated, "pad": _padded, "concat": joined, "overlap_add": _windows,
}  # fmt: skip


class _Place(NamedTuple):
    """Operand number ``operand`` of ``taker``, through ``views``, the last one first."""

    taker: Node
    operand: int
    views: tuple[Node, ...]


@final
class Placing:
    """``room`` says where a node's value is best written: None for memory of its own."""

    def __init__(self, graph: Graph, donated: frozenset[int], temporary: Callable[[Node], View]) -> None:
        self.temporary = temporary
        self.outs: dict[Node, View] = {}
        self.results: dict[tuple[Node, int], Node] = {}
        uses: dict[Node, int] = {}
        start: dict[Node, Node] = {}
        last: dict[Node, Node] = {}
        takers = []
        for node in graph.nodes:
            for operand in node.operands:
                uses[operand] = uses.get(operand, 0) + 1
                last[start.get(operand, operand)] = node
            if node.op.view:
                start[node] = start.get(node.operands[0], node.operands[0])
            if node.op is Result:
                self.results[node.operands[0], node.attrs["index"]] = node
            elif node.name in PARTS:
                takers.append(node)
        for node in graph.outputs:
            uses[node] = uses.get(node, 0) + 1
            last.pop(start.get(node, node), None)
        given = {graph.inputs[k] for k in donated}
        kept = {node for node in graph.inputs if node not in given}
        self.places: dict[Node, _Place] = {}
        self.takers: set[Node] = set()
        for taker in takers:
            if taker.name == "slice_update":
                # A small write is made in the memory of what it is written to, if that is read for the last time.
                x, v = taker.operands
                dies = last.get(x) is taker and x not in kept and not (x.op.captures or x.op.view or x.op is Constant)
                if dies and 2 * v.type.size < x.type.size:
                    continue
            for k, operand in enumerate(taker.operands):
                views = []
                while uses[operand] == 1 and operand.name in _BACK:
                    views.append(operand)
                    operand = operand.operands[0]
                if uses[operand] == 1 and (operand.op in (Kernel, Result) or operand.name in PARTS):
                    self.places[operand] = _Place(taker, k, tuple(views))
                    self.takers.add(taker)

    def takes(self, node: Node) -> bool:
        """Whether a node is written in parts by what it reads, or is itself part of another."""
        return node in self.takers or node in self.places

    def of_kernel(self, node: Node, index: int) -> View | None:
        """Where a kernel's result is written."""
        return self.room(self.results.get((node, index), node))

    def room(self, node: Node) -> View | None:
        place = self.places.get(node)
        if place is None:
            return None
        part = PARTS[place.taker.name](self.out(place.taker), place.taker, place.operand)
        for view in place.views:
            if part is None:
                return None
            part = _BACK[view.name](part, view)
        return part

    def out(self, node: Node) -> View:
        """Where an op with parts writes its result."""
        line = [node]
        while line[-1] not in self.outs:
            place = self.places.get(line[-1])
            if place is None:
                self.outs[line[-1]] = self.temporary(line[-1])
            else:
                line.append(place.taker)
        for taken in reversed(line[:-1]):
            room = self.room(taken)
            self.outs[taken] = self.temporary(taken) if room is None else room
        return self.outs[node]


# -- what a view makes of a place, backwards


def _moved_back(part: View, view: Node) -> View:
    axes = view.attrs["axes"]
    return part.permuted(tuple(axes.index(k) for k in range(len(axes))))


def _reshaped_back(part: View, view: Node) -> View | None:
    return part.reshaped(view.operands[0].shape)


_BACK: Final[dict[str, Callable[[View, Node], View | None]]] = {
    "permute_dims": _moved_back, "reshape": _reshaped_back, "expand_dims": _reshaped_back, "squeeze": _reshaped_back,
}  # fmt: skip


def ones(shape: Sequence[int]) -> Shape:
    return (1,) * len(shape)


__all__ = ["Placing", "covered", "joined", "ones", "padded", "side_by_side"]
