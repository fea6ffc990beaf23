"""Arrays put together from others, read where those lie: rolled, padded and joined ones in elementwise kernels.

A concatenation or padding that only elementwise kernels read is never written. It is boxes, each the view of another
array; a kernel runs once over every box of its domain in which all that it reads is one view each. Of a stencil on a
rolled array that is the inside, at full speed, and thin boxes at the rims.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import prod
from typing import Final

from ...ir import Graph, Node
from ...ir.ops.core import Kernel
from ...ir.types import Shape
from .domain import Axis, ordered
from .views import View, viewed

_MOST: Final = 64
"""How many boxes a kernel's domain may fall into."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The elements from ``start`` to ``stop`` of an array: a view of that shape."""

    start: Shape
    stop: Shape
    view: View


@dataclass(frozen=True, slots=True)
class Pieces:
    """An array of ``shape`` whose pieces lie side by side."""

    shape: Shape
    parts: tuple[Piece, ...]

    @staticmethod
    def of(value: View | Pieces) -> Pieces:
        if isinstance(value, Pieces):
            return value
        return Pieces(value.shape, (Piece((0,) * len(value.shape), value.shape, value),))

    def shifted(self, by: Shape) -> Iterator[Piece]:
        for part in self.parts:
            yield Piece(_sum(part.start, by), _sum(part.stop, by), part.view)


def _sum(a: Shape, b: Shape) -> Shape:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def joined(node: Node, values: Sequence[View | Pieces]) -> Pieces:
    """What a concatenation is."""
    axis, at = node.attrs["axis"], 0
    parts: list[Piece] = []
    for value in values:
        parts.extend(Pieces.of(value).shifted(tuple(at if k == axis else 0 for k in range(len(node.shape)))))
        at += value.shape[axis]
    return Pieces(node.shape, tuple(p for p in parts if p.view.size))


def padded(node: Node, values: Sequence[View | Pieces]) -> Pieces | None:
    """What a padding without gaps is."""
    x, value = values
    if any(node.attrs["interior"]) or isinstance(value, Pieces):
        return None
    low = node.attrs["low"]
    stop = tuple(a + n for a, n in zip(low, x.shape, strict=True))
    around = [
        Piece(a, b, value.broadcast_to(tuple(j - i for i, j in zip(a, b, strict=True))))
        for a, b in boxes_around(node.shape, low, stop)
    ]
    return Pieces(node.shape, (*Pieces.of(x).shifted(low), *around))


def seen(node: Node, pieces: Pieces) -> Pieces | None:
    """The result of a view op; None where it cannot be said by boxes."""
    parts: list[Piece] = []
    for part in pieces.parts:
        size = tuple(b - a for a, b in zip(part.start, part.stop, strict=True))
        if node.name == "slice" and all(s == 1 for s in node.attrs["step"]):
            bounds = list(zip(part.start, part.stop, node.attrs["start"], node.attrs["stop"], strict=True))
            low, high = tuple(max(a, s) for a, _, s, _ in bounds), tuple(min(b, t) for _, b, _, t in bounds)
            if any(a >= b for a, b in zip(low, high, strict=True)):
                continue
            inside = part.view.sliced(_less(low, part.start), _less(high, part.start), (1,) * len(low))
            parts.append(Piece(_less(low, node.attrs["start"]), _less(high, node.attrs["start"]), inside))
        elif node.name == "permute_dims":
            axes = node.attrs["axes"]
            turned = [tuple(place[k] for k in axes) for place in (part.start, part.stop)]
            parts.append(Piece(turned[0], turned[1], part.view.permuted(axes)))
        elif node.name == "broadcast_to":
            added = len(node.shape) - len(pieces.shape)
            wide = [n == 1 != m for n, m in zip(pieces.shape, node.shape[added:], strict=True)]
            start = (0,) * added + part.start
            stop = node.shape[:added] + tuple(
                m if grown else b for grown, m, b in zip(wide, node.shape[added:], part.stop, strict=True)
            )
            shape = node.shape[:added] + tuple(
                m if grown else n for grown, m, n in zip(wide, node.shape[added:], size, strict=True)
            )
            parts.append(Piece(start, stop, part.view.broadcast_to(shape)))
        elif node.name in ("expand_dims", "squeeze"):
            starts, stops = (_with_axes(node, place, fill) for place, fill in ((part.start, 0), (part.stop, 1)))
            view = viewed(node, part.view) if node.name == "squeeze" else part.view.reshaped(_less(stops, starts))
            if view is None:
                return None
            parts.append(Piece(starts, stops, replace(view, shape=_less(stops, starts))))
        else:
            return None
    return Pieces(node.shape, tuple(parts))


def _less(a: Shape, b: Shape) -> Shape:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def _with_axes(node: Node, place: Shape, fill: int) -> Shape:
    if node.name == "squeeze":
        return tuple(n for k, n in enumerate(place) if k not in node.attrs["axis"])
    rest = iter(place)
    return tuple(fill if k in node.attrs["axis"] else next(rest) for k in range(len(node.shape)))


_MADE: Final = {"concat": joined, "pad": padded}


def lazy(graph: Graph) -> set[Node]:
    """The concatenations and paddings, and views of them, that nothing but elementwise kernels reads."""
    found: set[Node] = set()
    stored = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node not in stored and (node.name in _MADE or node.op.view):
            found.add(node)
        elementwise = node.op is Kernel and not any(n.op.reduces for n in node.attrs["body"].nodes)
        full = Kernel.domain(node.attrs["body"])[0] if elementwise else ()
        for operand in node.operands:
            if not (node in found or (elementwise and operand.shape == full)):
                stored.add(operand)
    return found


def made(node: Node, values: Sequence[View | Pieces]) -> Pieces | None:
    """A concatenation or padding as pieces; None for another op, or where there would be too many."""
    make = _MADE.get(node.name)
    pieces = make(node, values) if make is not None and node.type.size else None
    return pieces if pieces is not None and len(pieces.parts) <= _MOST else None


def boxes(full: Shape, operands: Sequence[Pieces]) -> list[tuple[Shape, Shape]] | None:
    """The domain in boxes, the largest first, in each of which every operand is within one piece."""
    cuts: list[set[int]] = [{0, n} for n in full]
    for operand in operands:
        for part in operand.parts:
            for axis, a, b in zip(cuts, part.start, part.stop, strict=True):
                axis.update((a, b))
    if prod(len(axis) - 1 for axis in cuts) > _MOST:
        return None
    spans = [list(pairwise(places)) for places in (sorted(axis) for axis in cuts)]
    found = [(tuple(a for a, _ in box), tuple(b for _, b in box)) for box in product(*spans)]
    return sorted(found, key=lambda box: -prod(_less(box[1], box[0])))


def within(operand: Pieces, start: Shape, stop: Shape) -> View:
    """The part of an operand in a box that lies within one of its pieces."""
    for part in operand.parts:
        if all(a <= s and t <= b for a, b, s, t in zip(part.start, part.stop, start, stop, strict=True)):
            return part.view.sliced(_less(start, part.start), _less(stop, part.start), (1,) * len(start))
    raise AssertionError("pieces cover their array")


def arranged(
    shapes: Sequence[Shape], strides: Sequence[Sequence[tuple[int, ...]]], itemsizes: Sequence[int], lanes: int,
    inputs: int,
) -> tuple[list[list[Axis]], bool]:  # fmt: skip
    """The loops over each box, all in one order so that one kernel serves them; and whether they go by columns.

    ``strides[box][operand]``. Neighbouring axes are joined where every operand walks them as one in every box.
    """
    count = len(shapes[0])
    groups: list[list[int]] = []
    for k in range(count):
        joins = bool(groups) and all(
            s[groups[-1][-1]] == shape[k] * s[k] for shape, box in zip(shapes, strides, strict=True) for s in box
        )
        if joins:
            groups[-1].append(k)
        else:
            groups.append([k])
    every = [
        [Axis(prod(shape[k] for k in g), False, tuple(s[g[-1]] for s in box)) for g in groups]
        for shape, box in zip(shapes, strides, strict=True)
    ]
    first, columns = ordered(every[0], itemsizes, lanes, inputs)
    places = [next(k for k, own in enumerate(every[0]) if own is axis) for axis in first]
    return [[axes[k] for k in places] for axes in every], columns


def boxes_around(shape: Shape, start: Shape, stop: Shape) -> list[tuple[Shape, Shape]]:
    """What is left of an array around the box from ``start`` to ``stop``, as boxes that do not overlap."""
    found = []
    low, high = [0] * len(shape), list(shape)
    for k, (a, b) in enumerate(zip(start, stop, strict=True)):
        for begin, end in ((0, a), (b, shape[k])):
            if begin < end:
                found.append(((*low[:k], begin, *low[k + 1 :]), (*high[:k], end, *high[k + 1 :])))
        low[k], high[k] = a, b
    return [box for box in found if prod(_less(box[1], box[0]))]


__all__ = ["Piece", "Pieces", "arranged", "boxes", "boxes_around", "lazy", "made", "seen", "within"]
