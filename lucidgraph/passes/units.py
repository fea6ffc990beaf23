"""Kernels in the making, and the line they stand in: each after all that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, final

from ..ir import Node
from ..ir.types import Shape

_GAP: Final = 1 << 128


@final
class Unit:
    """A kernel in the making, or one node outside kernels: ``full`` is None."""

    __slots__ = ("at", "axes", "following", "full", "members", "number", "previous", "reads", "rows")

    def __init__(self, number: int, full: Shape | None) -> None:
        self.number = number
        self.full = full
        self.axes: tuple[int, ...] | None = None
        self.members: dict[Node, bool] = {}
        """Each value made here, and whether it is a row value: those that others read, and those made again that
        another kernel makes too."""
        self.reads: dict[Node, None] = {}
        """What members read, through views."""
        self.rows: tuple[Shape, ...] = ()
        """The shapes of row values."""
        self.at = 0
        self.previous: Unit = self
        self.following: Unit = self

    def set_axes(self, axes: tuple[int, ...]) -> None:
        assert self.full is not None
        self.axes = axes
        kept = tuple(1 if k in axes else n for k, n in enumerate(self.full))
        self.rows = (tuple(n for k, n in enumerate(self.full) if k not in axes), kept)

    @property
    def kept(self) -> Shape:
        """The full shape with reduced axes of size 1."""
        return self.rows[1]


@final
class Order:
    """Units in a line, each after all that it reads. Neighbours can be asked for, and places compared, at once."""

    def __init__(self) -> None:
        self.first = Unit(-1, None)

    def __iter__(self) -> Iterator[Unit]:
        unit = self.first.following
        while unit is not self.first:
            following = unit.following
            yield unit
            unit = following

    def append(self, unit: Unit) -> None:
        self.insert([unit], self.first)

    def insert(self, units: Sequence[Unit], after: Unit) -> None:
        """Put units, in their order, before ``after``; before the first means at the end."""
        before = after.previous
        low = before.at
        gap = _GAP if after is self.first else (after.at - low) // (len(units) + 1)
        for unit in units:
            low += gap
            unit.at = low
            unit.previous, before.following = before, unit
            before = unit
        before.following, after.previous = after, before
        if not gap:
            self.spread()

    def remove(self, unit: Unit) -> None:
        unit.previous.following, unit.following.previous = unit.following, unit.previous

    def spread(self) -> None:
        """Number the line anew."""
        unit, at = self.first.following, 0
        while unit is not self.first:
            at += _GAP
            unit.at = at
            unit = unit.following


__all__ = ["Order", "Unit"]
