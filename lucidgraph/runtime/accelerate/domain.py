"""The axes of a kernel's domain with every operand's strides: dropped, joined and put in the order of loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from ...ir.types import Shape
from .body import NEAR, Body
from .views import View

_SHORT: Final = 256
"""Elements up to which a vectors' axis is short: several of them are one item of work."""
_SHORT_POINTS: Final = 1 << 15
_ITEM: Final = 1 << 11
"""How many elements such an item has, about; with less than a part of them along one axis, it is of several."""
_FEW: Final = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop: its size, whether a reduction runs along it, and the bytes each operand moves per step."""

    size: int
    reduced: bool
    strides: tuple[int, ...]


def axes_of(body: Body, full: Shape, reduced: tuple[int, ...], views: Sequence[View]) -> list[Axis]:
    """The domain's axes; an operand of row shape does not move along reduced ones."""
    strides = [_full_strides(view, full, reduced) for view in views]
    return [Axis(n, k in reduced, tuple(s[k] for s in strides)) for k, n in enumerate(full)]


def _full_strides(view: View, full: Shape, reduced: tuple[int, ...]) -> tuple[int, ...]:
    if view.shape == full:
        return view.strides
    if len(view.shape) == len(full):
        return tuple(0 if k in reduced else s for k, s in enumerate(view.strides))
    own = iter(view.strides)
    return tuple(0 if k in reduced else next(own) for k in range(len(full)))


def forward(body: Body, axes: Sequence[Axis]) -> tuple[list[Axis], list[int]]:
    """Reduced axes turned round that every operand walks backwards, and the bytes by which each operand's start moves.

    Not where a reduction gives an index along the axis.
    """
    starts = [0] * (len(body.graph.inputs) + len(body.graph.outputs))
    if not all(n.op.partial for n in body.graph.nodes if n.op.reduces):
        return list(axes), starts
    out = []
    for axis in axes:
        if axis.reduced and axis.size and max(axis.strides) <= 0 and min(axis.strides) < 0:
            starts = [at + (axis.size - 1) * s for at, s in zip(starts, axis.strides, strict=True)]
            axis = Axis(axis.size, True, tuple(-s for s in axis.strides))
        out.append(axis)
    return out, starts


def by_memory(body: Body, axes: Sequence[Axis]) -> list[Axis]:
    """Kept axes, then reduced ones in the order in which operands lie in memory: of a transposed array, turned back.

    Not where a reduction gives an index along its axes.
    """
    kept, reduced = [a for a in axes if not a.reduced], [a for a in axes if a.reduced]
    if not all(n.op.partial for n in body.graph.nodes if n.op.reduces):
        return list(axes)
    return [*kept, *sorted(reduced, key=lambda axis: -sum(map(abs, axis.strides)))]


def collapsed(axes: Sequence[Axis]) -> list[Axis]:
    """Without axes of size 1, and with neighbours joined that every operand walks as one."""
    out: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        if out and out[-1].reduced == axis.reduced:
            last = out[-1]
            if all(s == axis.size * t for s, t in zip(last.strides, axis.strides, strict=True)):
                out[-1] = Axis(last.size * axis.size, axis.reduced, axis.strides)
                continue
        out.append(axis)
    return out


def ordered(axes: list[Axis], itemsizes: Sequence[int], lanes: int, inputs: int) -> tuple[list[Axis], bool]:
    """The axes as outer ones, reduced ones, and the vectors' last; and whether vectors lie along a kept axis.

    The vectors' axis is the one with the least estimated work: adjacent elements cost one, others ``lanes`` loads; the
    lanes of a row are joined at its end.
    """
    nothing = (0,) * len(itemsizes)
    if not any(not a.reduced for a in axes) and not axes:
        return [Axis(1, False, nothing)], True
    best, cost = 0, float("inf")
    points = max(prod(a.size for a in axes), 1)
    for k, axis in enumerate(axes):
        size = max(axis.size, 1)
        vectors = points / size * -(-size // lanes)
        per_vector = 1.0
        for stride, itemsize in zip(axis.strides, itemsizes, strict=True):
            near = not stride % itemsize and stride // itemsize in NEAR
            per_vector += 1.0 if stride in (0, itemsize) else 2.0 if near else lanes / 2
        rows = points / max(prod(a.size for a in axes if a.reduced), 1)
        total = vectors * per_vector + (rows * 12 if axis.reduced else 0)
        if total <= cost:
            best, cost = k, total
    vector = axes[best]
    rest = [a for k, a in enumerate(axes) if k != best]
    outer = [a for a in rest if not a.reduced]
    inner = [a for a in rest if a.reduced]
    return [*outer, *inner, vector], not vector.reduced


def short_rows(body: Body, columns: bool, outer: Sequence[Axis], vector: Axis) -> tuple[int, int]:
    """How many of the outer axes lie within an item, and how much of the first of these does; 0 where rows are long
    enough, or something is reduced."""
    points = vector.size * prod(a.size for a in outer)
    if not columns or not outer or vector.size > _SHORT or points < _SHORT_POINTS or body.passes > 1:
        return 0, 1
    if any(n.op.reduces for n in body.graph.nodes):
        return 0, 1
    within, beside = 1, vector.size
    while within < len(outer) and beside * outer[-within].size < _ITEM // _FEW:
        beside *= outer[-within].size
        within += 1
    return within, max(min(_ITEM // max(beside, 1), outer[-within].size), 1)
