"""The bytes alive while a graph runs in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final, overload

from ..ir import Graph, Node
from ..ir.text import names_of
from ..passes import explicit
from .storage import nbytes_of, owners
from .text import amount, table

__all__ = ["Memory", "Step", "memory"]


class Step(NamedTuple):
    """The bytes alive while ``node`` runs, its operands and result together, and after what is not needed any more is
    released."""

    node: Node
    running: int
    alive: int


@final
class Memory(Sequence[Step]):
    """One step per node, in order. Prints as a table with bars.

    ``held`` are the bytes of inputs and captured arrays, which live throughout and are part of every number; ``peak``
    is the most that is alive at once, and ``peak_at`` the node that runs then (None for a graph without nodes).
    ``planned`` is the peak of the plan a backend made of a graph as run, places reused and scratch included; None for
    a graph that no backend has planned.
    """

    def __init__(self, steps: Sequence[Step], held: int, names: dict[Node, str], planned: int | None = None) -> None:
        self._steps = tuple(steps)
        self._names = names
        self.held = held
        self.planned = None if planned is None else held + planned
        self.peak = max((step.running for step in steps), default=held)
        self.peak_at = next((step.node for step in steps if step.running == self.peak), None)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | Sequence[Step]:
        return self._steps[index]

    def __len__(self) -> int:
        return len(self._steps)

    def __repr__(self) -> str:
        at = f" at {self._names[self.peak_at]} {self.peak_at.name}" if self.peak_at else ""
        return f"<memory: peak {amount(self.peak, 'B')}{at}>"

    def __str__(self) -> str:
        rows = []
        for node, running, alive in self:
            bar = "#" * round(20 * running / self.peak) if self.peak else ""
            mark = "  <- peak" if node is self.peak_at else ""
            rows.append([
                self._names[node], node.name, str(node.type), amount(running, "B"), amount(alive, "B"), bar + mark,
                str(node.source or ""),
            ])  # fmt: skip
        text = table(["value", "op", "type", "while it runs", "after", "", "line"], rows, right=[3, 4])
        plan = "" if self.planned is None else f"; {amount(self.planned, 'B')} as planned"
        return f"{text}\npeak {amount(self.peak, 'B')}, {amount(self.held, 'B')} of it inputs and captured arrays{plan}"


def memory(graph: Graph, planned: int | None = None) -> Memory:
    """The bytes alive at each node when the nodes run in order and a value is released after its last use; with the
    bytes beyond inputs and captured arrays that a backend has ``planned``.

    Outputs live to the end, views take no memory but keep what they show, constants are part of the code. Nothing is
    reused in place.

    >>> import lucidgraph as lg, numpy as np
    >>> m = memory(lg.trace(lambda x: lg.sum(-(-(-x))), np.ones(1000, np.float32)))
    >>> m.held, m.peak, [step.alive for step in m]
    (4000, 12000, [8000, 8000, 8000, 4004])
    """
    graph = explicit(graph)
    owner = owners(graph)
    held = [*graph.inputs, *graph.captured]
    last: dict[Node, int] = {}
    for k, node in enumerate(graph.nodes):
        for used in (node, *node.operands):
            last[owner[used]] = k
    for node in (*held, *graph.outputs):
        last.pop(owner[node], None)
    released: dict[int, int] = {}
    for node, k in last.items():
        released[k] = released.get(k, 0) + nbytes_of(node)
    alive = start = sum(nbytes_of(node) for node in held)
    given = set(held)
    steps = []
    for k, node in enumerate(graph.nodes):
        running = alive + (nbytes_of(node) if owner[node] is node and node not in given else 0)
        alive = running - released.get(k, 0)
        steps.append(Step(node, running, alive))
    return Memory(steps, start, names_of(graph), planned)
