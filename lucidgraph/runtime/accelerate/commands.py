"""The data of a plan: commands, the buffers they read and write, and what a call needs besides addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from ...ir import Node, TensorType
from .chains import Lead

STOP: Final = -1
"""In place of a buffer: the two words through which a kernel ends a run."""


@dataclass(slots=True)
class Buffer:
    """Memory of a plan: ``kind`` is ``"input"``, ``"captured"``, ``"temporary"`` or ``"output"``, ``index`` its place
    among those. ``first`` and ``last`` are the commands that write it first and read it last."""

    kind: str
    nbytes: int
    index: int = 0
    first: int = -1
    last: int = -1
    offset: int = 0


class Addressed(Protocol):
    """Code with a kernel in it: compiled, or of the host."""

    def address(self, name: str) -> int: ...


@dataclass(slots=True)
class Command:
    """A kernel's run: its arguments, with pointers still as (place, buffer, offset)."""

    name: str
    code: Addressed
    words: list[int]
    pointers: list[tuple[int, int, int]]
    items: int
    split: bool
    cost: int
    node: Node | None = None
    replaces: dict[int, list[int]] = field(default_factory=dict)
    """For a buffer written: the buffers read whose places it may take, element for element."""
    moved: int = 0
    """The bytes it reads and writes, each array once."""
    idle: bool = False
    """Whether it copies what lies in its place already."""
    form: str = ""
    """How it goes over its domain, in words."""
    writes: int = 1
    """How many of the pointers, the last ones, are written."""
    lead: Lead | None = None
    """The rows its items run over."""
    products: dict[int, str] = field(default_factory=dict)
    """The arguments that are addresses of the library's matrix products, with their names."""
    calls: dict[int, Addressed] = field(default_factory=dict)
    """The arguments that are addresses of other code, which the kernel calls."""
    number: int = -1
    """Which argument is the command's number in the table, from 1 on: by it a kernel says that it ends the run."""

    def touch(self, buffers: Sequence[Buffer], number: int) -> None:
        """Note in the buffers that this command, of this number, is the last so far that reads or writes them."""
        places = [place for _, place, _ in self.pointers if place != STOP]
        for k, place in enumerate(places):
            buffer = buffers[place]
            buffer.last = number
            if buffer.first < 0 and k >= len(places) - self.writes:
                buffer.first = number


@dataclass(slots=True)
class Plan:
    """Everything a call needs but addresses."""

    commands: list[Command] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    captured: list[np.ndarray[Any, Any]] = field(default_factory=list)
    outputs: list[TensorType] = field(default_factory=list)
    reused: dict[int, int] = field(default_factory=dict)
    """Outputs that lie in a donated input, by their numbers."""
    arena: int = 0
    scratch: int = 0
    threads: int = 1
    """At most so many may run it: each has its part of the scratch memory."""

    def buffer(self, kind: str, nbytes: int, index: int = 0) -> int:
        """A new buffer's number."""
        self.buffers.append(Buffer(kind, nbytes, index))
        return len(self.buffers) - 1

    @property
    def cost(self) -> int:
        return sum(c.cost for c in self.commands)


__all__ = ["STOP", "Addressed", "Buffer", "Command", "Plan"]
