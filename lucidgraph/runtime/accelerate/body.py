"""A fused graph read as loops: what is known in which pass, what is kept, and what of the operands is fixed in code."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, final

from ...ir import Graph, Node
from ...ir.text import format_value
from ...ir.types import Shape
from .machine import Machine

_BLOCK: Final = 32
"""How many vectors of states a reduction by columns has on the stack, if it is the only one."""
EXPENSIVE_FLOPS: Final = 4
"""The code of an op of so many is not written twice."""
_MUCH: Final = 24
"""So many values an element are much to do."""
_DEAR: Final = 12
"""Instructions an element from which a value is kept for the next pass rather than computed again."""
MOST: Final = 4
"""Registers that a vector may have."""
NEAR: Final = {-1: "back", 2: "every 2", 3: "every 3", 4: "every 4"}
"""The strides, in elements, at which whole vectors are read and the lanes picked out of them."""
STEPS: Final = {name: step for step, name in NEAR.items()}


@dataclass(frozen=True, slots=True)
class Layout:
    """What of a kernel's operands is fixed in its code.

    ``columns``: vectors lie along a kept axis. ``outer`` and ``reduced`` count the other axes. ``access`` says of each
    operand (inputs, then outputs) how it moves along the vectors: ``"adjacent"``, ``"same"``, one of ``NEAR`` or
    ``"strided"``. A vector has ``most`` registers at most, which a short axis fills. Pieces of a long reduction are cut
    ``across``: along the last of the reduced axes that is not the vectors'. Where rows are short and nothing is
    reduced, an item is a block of another axis: the ``within``-th last of the outer ones, and all of those after it.
    ``beside``: operands that lie next to an earlier one, wherever that is: which, of which, and how many bytes after
    it; they need no pointers of their own.
    """

    columns: bool
    outer: int
    reduced: int
    access: tuple[str, ...]
    most: int
    across: bool
    within: int = 0
    beside: tuple[tuple[int, int, int], ...] = ()

    @property
    def axes(self) -> int:
        return self.outer + self.reduced + 1


@final
class Slots:
    """Where things stand in a kernel's arguments, an array of 64-bit integers."""

    HEAD: Final = ("vector", "chunk", "chunks", "limit", "pieces", "count", "scratch", "scratch_stride", "kept_stride",
            "past", "block", "blocks")

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.sizes = len(self.HEAD)
        self.pointers = self.sizes + layout.outer + layout.reduced
        self.strides = self.pointers + len(layout.access)
        self.total = self.strides + len(layout.access) * layout.axes

    def head(self, name: str) -> int:
        return self.HEAD.index(name)

    def stride(self, operand: int, axis: int) -> int:
        return self.strides + operand * self.layout.axes + axis


@final
class Body:
    """A fused graph read as loops: which values are full, and in which pass each is known."""

    def __init__(self, graph: Graph, full: Shape) -> None:
        self.graph = graph
        self.full = full
        self.level: dict[Node, int] = {}
        self.is_full: dict[Node, bool] = {}
        for node in graph.inputs:
            self.level[node] = 0
            self.is_full[node] = node.shape == full
        for node in graph.nodes:
            levels = [self.level[o] for o in node.operands]
            if node.op.reduces:
                self.level[node] = max(levels) + 1
                self.is_full[node] = False
            else:
                self.level[node] = max(levels, default=0)
                self.is_full[node] = any(self.is_full[o] for o in node.operands)
        written = [self.level[n] for n in graph.outputs if n.shape == full]
        folded = [self.level[n.operands[0]] for n in graph.nodes if n.op.reduces]
        self.passes = 1 + max([*written, *folded], default=0)

    def folds(self, level: int) -> list[Node]:
        return [n for n in self.graph.nodes if n.op.reduces and self.level[n.operands[0]] == level]

    def stored(self, level: int) -> list[int]:
        """The outputs of full shape that this pass writes."""
        return [k for k, n in enumerate(self.graph.outputs) if n.shape == self.full and self.level[n] == level]

    @property
    def row_outputs(self) -> list[int]:
        return [k for k, n in enumerate(self.graph.outputs) if n.shape != self.full]

    def kept(self) -> dict[Node, int]:
        """The full values computed in one pass and needed in a later one that are dear enough to be kept; and the
        first pass that computes them, which may be later than the first that could."""
        first: dict[Node, int] = {}
        needed: dict[Node, int] = {}
        for level in range(self.passes):
            seen: set[Node] = set()
            stack = [n.operands[0] for n in self.folds(level)] + [self.graph.outputs[k] for k in self.stored(level)]
            while stack:
                node = stack.pop()
                if node in seen or not self.is_full[node] or not node.operands:
                    continue
                seen.add(node)
                made = first.setdefault(node, level)
                if made < level and node.op.work >= _DEAR:
                    needed[node] = made
                else:
                    stack.extend(node.operands)
        return needed

    @property
    def block(self) -> int:
        """How many vectors a kernel by columns takes at a time: the states of all should stay in the nearest cache."""
        return max(_BLOCK // max(sum(n.op.reduces for n in self.graph.nodes), 1), 4)

    def work(self, level: int) -> list[Node]:
        """The full values that a pass computes."""
        kept = self.kept()
        found: dict[Node, None] = {}
        stack = [n.operands[0] for n in self.folds(level)] + [self.graph.outputs[k] for k in self.stored(level)]
        while stack:
            node = stack.pop()
            known = kept.get(node, level) < level
            if node.operands and node not in found and self.is_full[node] and not known:
                found[node] = None
                stack.extend(node.operands)
        return list(found)


def pass_lanes(body: Body, level: int, machine: Machine, most: int) -> int:
    """Two or four registers a vector (at ``most``) where there is little to do with each element, else one."""
    work = body.work(level)
    if any(n.op.flops_per_element >= EXPENSIVE_FLOPS for n in work):
        return machine.lanes
    much = len(work) > _MUCH
    if body.folds(level):
        return machine.lanes * min(1 if much else MOST if len(work) <= 4 else 2, most)
    # Where nothing is reduced, what is held at a time is values: these count by their bytes.
    wide = any(n.dtype.itemsize > 4 for n in (*body.graph.inputs, *work))
    return machine.lanes * min(1 if much else 2, most) // (2 if wide else 1)


def most_registers(body: Body, columns: bool, size: int, machine: Machine) -> int:
    """How many registers a vector may have along an axis of this size: no more than it fills, or nearly; states of
    columns are kept in wide ones all the same."""
    filled = size // machine.lanes
    if filled < 2:
        return 1
    if not columns or not any(n.op.reduces for n in body.graph.nodes):
        widest = max(pass_lanes(body, level, machine, MOST) for level in range(body.passes))
        wide, narrow = (-(-size // lanes) * lanes for lanes in (widest, machine.lanes))
        if 8 * wide > 9 * narrow:
            return 1
    return MOST if columns or filled >= 2 * MOST else 2


def lane_count(body: Body, machine: Machine, most: int = MOST) -> int:
    """The lanes of a kernel by columns: those that suit its dearest pass."""
    return min(pass_lanes(body, level, machine, most) for level in range(body.passes))


PADDING: Final = 64
"""Rows of kept values are as long as the widest vectors fill."""


@final
class Kept:
    """The scratch rows of a kernel: ``slots`` says which one a kept value starts at, ``cell`` the bytes per element."""

    def __init__(self, body: Body) -> None:
        self.slots: dict[Node, int] = {}
        self.count = 0
        self.first = nodes = body.kept()
        for node in nodes:
            self.slots[node] = self.count
            self.count += parts_of(node)
        self.cell = max((max(4, node.dtype.itemsize // parts_of(node)) for node in nodes), default=0)


def parts_of(node: Node) -> int:
    return 2 if node.dtype.is_complex else 1


def name_of(body: Body) -> str:
    """What is shown of a kernel: its ops."""
    return " ".join(dict.fromkeys(n.name for n in body.graph.nodes if not n.op.view)) or "copy"


def kernel_key(body: Body, layout: object) -> str:
    """What the code of a kernel over a body depends on, whatever its form: the layout's own text, and not shapes."""
    numbers = {node: k for k, node in enumerate([*body.graph.inputs, *body.graph.nodes])}
    lines = [repr(layout)]
    lines += [f"{n.dtype.name} {body.is_full[n]}" for n in body.graph.inputs]
    for n in body.graph.nodes:
        attrs = "" if n.op.view or n.op.reduces else " ".join(f"{k}={format_value(v)}" for k, v in n.attrs.items())
        operands = " ".join(str(numbers[o]) for o in n.operands)
        lines.append(f"{n.name}[{attrs}]({operands}) {n.dtype.name} {body.is_full[n]} {body.level[n]}")
    lines += [f"{numbers[n]} {n.shape == body.full}" for n in body.graph.outputs]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


__all__ = [
    "EXPENSIVE_FLOPS", "MOST", "NEAR", "PADDING", "STEPS", "Body", "Kept", "Layout", "Slots", "kernel_key",
    "lane_count", "most_registers", "name_of", "parts_of", "pass_lanes",
]  # fmt: skip
