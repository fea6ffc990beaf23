"""A third form of a kernel, for reductions over broadcast operands: pairwise distances, their gradients, outer sums.

Where operands are far smaller than the domain, memory is no limit, and what counts is how often an element is loaded.
Two kept axes make a tile: vectors lie along one, a block of *rows* along the other, their states in the nearest cache.
*Steps* of a reduced axis are taken several at a time: what does not move along the rows is loaded once for the whole
block, what does not move along the steps once a row, and the values of several steps are added to each other in their
own dtype, as a tree, before they go to the wider state.

    for steps k, k+1, … k+U-1:   load what moves along steps alone
        for rows i of the block: load what moves along rows; state[i] += (v_k + v_k+1) + (v_k+2 + …) …
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Final, final

from llvmlite import ir

from ...ir import Node
from ...ir.ops.core import Constant
from .body import Body
from .domain import Axis
from .machine import Machine
from .points import ELEMENTWISE
from .reduce import FOLDS, Fold, Mean, State, Sum
from .values import I32, I64, PTR, Value, element_bytes, memory_type
from .writing import KernelWriter

_STATES: Final = 1 << 14
"""Bytes of states that a block of rows may have: half of the nearest cache."""
_ROWS: Final = 128
_CHEAP: Final = 16
"""Up to so many operations an element the values of several steps are kept in registers."""
_SPARSE: Final = 4
"""How many times smaller than the domain the operands are together, at least."""
_LEAST: Final = 1 << 12
"""Points from which a tile is worth it."""


@dataclass(frozen=True, slots=True)
class TileLayout:
    """What of a tile is fixed in its code. ``access`` says how each operand moves along the vectors (``"adjacent"``,
    ``"same"``, ``"strided"``), ``steps`` how along the steps, ``rows`` whether along the rows; ``several`` how many
    steps are taken at a time."""

    outer: int
    reduced: int
    several: int
    access: tuple[str, ...]
    steps: tuple[str, ...]
    rows: tuple[bool, ...]

    @property
    def axes(self) -> int:
        return self.outer + self.reduced + 3


@dataclass(frozen=True, slots=True)
class Tile:
    """The axes in their parts: ``outer`` kept ones, ``rows``, ``reduced`` ones, ``steps``, ``vector``."""

    outer: tuple[Axis, ...]
    rows: Axis
    reduced: tuple[Axis, ...]
    steps: Axis
    vector: Axis
    layout: TileLayout
    lanes: int
    block: int

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (*self.outer, self.rows, *self.reduced, self.steps, self.vector)

    @property
    def points(self) -> int:
        return prod(a.size for a in self.axes)

    @property
    def vectors(self) -> int:
        return -(-self.vector.size // self.lanes)

    @property
    def blocks(self) -> int:
        return -(-self.rows.size // self.block)

    @property
    def items(self) -> int:
        return prod(a.size for a in self.outer) * self.blocks * self.vectors

    def words(self, count: int) -> list[int]:
        """The kernel's arguments, pointers left at 0."""
        slots = _Slots(self.layout)
        words = [0] * slots.total
        words[: slots.sizes] = [
            self.vector.size, self.vectors, self.rows.size, self.block, self.blocks, self.steps.size, count,
        ]  # fmt: skip
        for k, axis in enumerate([*self.outer, *self.reduced]):
            words[slots.sizes + k] = axis.size
        for d, axis in enumerate(self.axes):
            for operand, stride in enumerate(axis.strides):
                words[slots.stride(operand, d)] = stride
        return words

    def pointer(self, operand: int) -> int:
        return _Slots(self.layout).pointers + operand


def tile_of(body: Body, axes: Sequence[Axis], itemsizes: Sequence[int], machine: Machine, threads: int) -> Tile | None:
    """The best tile for a kernel over ``axes``, or None where another form suits it: by the loads that a vector of
    points costs, and the lanes and steps that sizes leave empty."""
    kept, reduced = [a for a in axes if not a.reduced], [a for a in axes if a.reduced]
    folds = body.folds(0)
    if len(kept) < 2 or not reduced or body.passes > 1 or body.stored(0) or not all(f.op.partial for f in folds):
        return None
    points = prod(a.size for a in axes)
    inputs = len(body.graph.inputs)
    read = sum(_touched(axes, k) * itemsizes[k] for k in range(inputs))
    if points < _LEAST or read * _SPARSE > points * max(itemsizes):
        return None
    lanes = machine.lanes
    work = sum(n.op.work for n in body.work(0))
    most = _most_rows(body, machine)
    several = max(2, lanes * 4 // max(4, *itemsizes)) if work <= _CHEAP else 2 if work <= 3 * _CHEAP else 1
    best: Tile | None = None
    least = float("inf")
    for steps in reduced:
        taken = min(several, 1 << (steps.size.bit_length() - 1))
        for vector in kept:
            for rows in kept:
                if rows is vector:
                    continue
                loads = 0.0
                for k in range(inputs):
                    each = 1.0 if vector.strides[k] in (0, itemsizes[k]) else lanes * 1.25
                    each /= 1 if rows.strides[k] else min(rows.size, most)
                    loads += each / (1 if steps.strides[k] else taken)
                for k in range(inputs, len(itemsizes)):
                    each = 1.0 if vector.strides[k] == itemsizes[k] else lanes * 1.25
                    loads += each / max(prod(a.size for a in reduced), 1)
                if loads > max(work, 2) + 1:
                    continue
                used = vector.size / (-(-vector.size // lanes) * lanes)
                total = (work + loads + len(folds) * (1 + 4 / taken)) / used
                if total < least:
                    least = total
                    block = _block(rows.size, most, prod(a.size for a in kept if a not in (rows, vector)), threads)
                    best = Tile(
                        tuple(a for a in kept if a is not rows and a is not vector), rows,
                        tuple(a for a in reduced if a is not steps), steps, vector,
                        _layout(kept, reduced, rows, steps, vector, itemsizes, taken), lanes, block,
                    )  # fmt: skip
    return best


def _touched(axes: Sequence[Axis], operand: int) -> int:
    return prod(a.size for a in axes if a.strides[operand])


def _block(rows: int, most: int, others: int, threads: int) -> int:
    """Rows of a block: as many as have room, but enough blocks to go round."""
    wanted = -(-rows * others // (4 * threads))
    return max(1, min(most, rows, max(wanted, 8)))


def _layout(
    kept: Sequence[Axis], reduced: Sequence[Axis], rows: Axis, steps: Axis, vector: Axis, itemsizes: Sequence[int],
    several: int,
) -> TileLayout:  # fmt: skip
    def moves(axis: Axis) -> tuple[str, ...]:
        pairs = zip(axis.strides, itemsizes, strict=True)
        return tuple("same" if not s else "adjacent" if s == size else "strided" for s, size in pairs)

    return TileLayout(
        len(kept) - 2, len(reduced) - 1, several, moves(vector), moves(steps), tuple(bool(s) for s in rows.strides)
    )


@final
class _Slots:
    HEAD: Final = ("vector", "vectors", "rows", "block", "blocks", "steps", "count")

    def __init__(self, layout: TileLayout) -> None:
        self.layout = layout
        self.sizes = len(self.HEAD)
        self.pointers = self.sizes + layout.outer + layout.reduced
        self.strides = self.pointers + len(layout.access)
        self.total = self.strides + len(layout.access) * layout.axes

    def stride(self, operand: int, axis: int) -> int:
        return self.strides + operand * self.layout.axes + axis


def _most_rows(body: Body, machine: Machine) -> int:
    """How many rows a block may have."""
    scratch = KernelWriter(ir.Module(), machine, machine.lanes)
    starts = [v for node in body.folds(0) for v in FOLDS[node.name](node).start(scratch.lanes)]
    return max(1, min(_ROWS, _STATES // sum(machine.lanes * element_bytes(v.type.element) for v in starts)))


def build(body: Body, layout: TileLayout, machine: Machine) -> ir.Module:
    """The module with the function of a tile."""
    module = ir.Module(name="tile")
    _TileKernel(body, layout, _most_rows(body, machine), machine, module).emit()
    return module


_Known = dict[Node, Value]


@final
class _TileKernel(KernelWriter):
    def __init__(self, body: Body, layout: TileLayout, block: int, machine: Machine, module: ir.Module) -> None:
        super().__init__(module, machine, machine.lanes)
        self.body = body
        self.layout = layout
        self.slots = _Slots(layout)
        self.inputs = {node: k for k, node in enumerate(body.graph.inputs)}
        self.operands = [*body.graph.inputs, *body.graph.outputs]
        self.by_row: set[Node] = set()
        self.by_step: set[Node] = set()
        for node, k in self.inputs.items():
            if layout.rows[k]:
                self.by_row.add(node)
            if layout.steps[k] != "same":
                self.by_step.add(node)
        for node in body.graph.nodes:
            for moving in (self.by_row, self.by_step):
                if any(o in moving for o in node.operands):
                    moving.add(node)
        # What folds read, operands first; in the four classes of what it moves along.
        below: set[Node] = set()
        self.folds: list[tuple[Fold, list[tuple[ir.Value, int, ir.Type]]]] = []
        stack = [f.operands[0] for f in body.folds(0)]
        while stack:
            node = stack.pop()
            if node not in below:
                below.add(node)
                stack.extend(node.operands)
        self.cone = [n for n in (*body.graph.inputs, *body.graph.nodes) if n in below]
        for node in body.folds(0):
            fold = FOLDS[node.name](node)
            places = []
            for value in fold.start(self.lanes):
                size = self.lanes.count * element_bytes(value.type.element)
                lying = self.variable(ir.ArrayType(ir.IntType(8), block * size))
                lying.align = 64
                place = self.b.inttoptr(self.b.ptrtoint(lying, I64), PTR)
                places.append((place, size, value.type))
            self.folds.append((fold, places))

    def emit(self) -> None:
        b, s, layout = self.b, self.slots, self.layout
        head = {name: self.argument(k) for k, name in enumerate(s.HEAD)}
        self.count, self.steps = head["count"], head["steps"]
        outer_sizes = [self.argument(s.sizes + k) for k in range(layout.outer)]
        self.reduced_sizes = [self.argument(s.sizes + layout.outer + k) for k in range(layout.reduced)]
        operands = range(len(layout.access))
        self.strides = [[self.argument(s.stride(k, d)) for d in range(layout.axes)] for k in operands]
        bases = [b.inttoptr(self.argument(s.pointers + k), PTR) for k in operands]
        self.row_axis, self.step_axis = layout.outer, layout.axes - 2
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            v = b.mul(b.srem(item, head["vectors"]), I64(self.lanes.count))
            rest = b.sdiv(item, head["vectors"])
            first = b.mul(b.srem(rest, head["blocks"]), head["block"])
            rest = b.sdiv(rest, head["blocks"])
            indices: list[ir.Value] = []
            for size in reversed(outer_sizes):
                indices.insert(0, b.srem(rest, size))
                rest = b.sdiv(rest, size)
            pointers = [self.moved(k, p, [*indices, first], 0) for k, p in enumerate(bases)]
            pointers = [self.along(k, p, v) for k, p in enumerate(pointers)]
            self.used = self.smaller(head["block"], b.sub(head["rows"], first))
            stop = self.smaller(b.add(v, I64(self.lanes.count)), head["vector"])
            self.left = b.sub(b.sub(stop, v), I64(1))
            self.span(v, stop, lambda _, mask: self.tile(pointers, mask), once=True)
        b.ret_void()

    def moved(self, operand: int, pointer: ir.Value, indices: Sequence[ir.Value], axis: int) -> ir.Value:
        for d, index in enumerate(indices):
            pointer = self.lanes.offset(pointer, self.b.mul(index, self.strides[operand][axis + d]))
        return pointer

    def along(self, operand: int, pointer: ir.Value, v: ir.Value) -> ir.Value:
        access = self.layout.access[operand]
        if access == "same":
            return pointer
        size = self.operands[operand].dtype.itemsize
        step = I64(size) if access == "adjacent" else self.strides[operand][-1]
        return self.lanes.offset(pointer, self.b.mul(v, step))

    def tile(self, pointers: Sequence[ir.Value], mask: ir.Value | None) -> None:
        """All of one block of rows, along one vector."""
        self.mask_here = mask
        with self.loop(I64(0), self.used) as row:
            for fold, places in self.folds:
                for value, place in zip(fold.start(self.lanes), places, strict=True):
                    self.b.store(value, self.state_at(place, row))
        with self.nested() as indices:
            at = [self.moved(k, p, indices, self.row_axis + 1) for k, p in enumerate(pointers)]
            several = self.layout.several
            whole = self.b.and_(self.steps, I64(-several))
            with self.loop(I64(0), whole, several) as step:
                self.taken(at, step, several)
            if several > 1:
                with self.loop(whole, self.steps) as step:
                    self.taken(at, step, 1)
        with self.loop(I64(0), self.used) as row:
            self.finish(pointers, row)

    @contextmanager
    def nested(self) -> Iterator[list[ir.Value]]:
        with ExitStack() as stack:
            yield [stack.enter_context(self.loop(I64(0), size)) for size in self.reduced_sizes]

    def state_at(self, place: tuple[ir.Value, int, ir.Type], row: ir.Value) -> ir.Value:
        return self.lanes.offset(place[0], self.b.mul(row, I64(place[1])))

    def taken(self, pointers: Sequence[ir.Value], step: ir.Value, several: int) -> None:
        """``several`` steps from ``step`` on, into the states of all rows."""
        at = [self.moved(k, p, [step], self.step_axis) for k, p in enumerate(pointers)]
        still: _Known = {}
        self.compute(still, at, None, [n for n in self.cone if n not in self.by_row and n not in self.by_step])
        each = [dict(still) for _ in range(several)]
        for node, k in self.inputs.items():
            if several == self.layout.several > 1 and node in self.by_step and self.turns(k):
                for known, value in zip(each, self.turned(node, k, at[k]), strict=True):
                    known[node] = value
        for u, known in enumerate(each):
            self.compute(known, at, u, [n for n in self.cone if n not in self.by_row and n in self.by_step])
        with self.loop(I64(0), self.used) as row:
            here = [self.moved(k, p, [row], self.row_axis) for k, p in enumerate(at)]
            once: _Known = {}
            self.compute(once, here, None, [n for n in self.cone if n in self.by_row and n not in self.by_step], still)
            for u, known in enumerate(each):
                inside = {**known, **once}
                self.compute(inside, here, u, [n for n in self.cone if n in self.by_row and n in self.by_step])
                each[u] = inside
            for fold, places in self.folds:
                lying = [self.state_at(place, row) for place in places]
                state = [self.b.load(p, typ=place[2], align=64) for p, place in zip(lying, places, strict=True)]
                for new, p in zip(self.added(fold, state, each), lying, strict=True):
                    self.b.store(new, p, align=64)

    def added(self, fold: Fold, state: State, each: Sequence[_Known]) -> State:
        """A state with the values of several steps: sums as a tree first. A mean must not overflow on the way."""
        node = fold.node.operands[0]
        values = [known[node] for known in each]
        if isinstance(fold, Sum) and not isinstance(fold, Mean):
            while len(values) > 1:
                pairs = zip(values[::2], values[1::2], strict=True)
                values = [fold.parts(fold.join(self.lanes, fold.state(x), fold.state(y))) for x, y in pairs]
        for value in values:
            state = fold.take(self.lanes, state, value, self.lanes.constant(0, I64))
        return state

    def turns(self, k: int) -> bool:
        """Whether an operand is strided along the vectors and adjacent along the steps, the same for all rows."""
        layout, count = self.layout, self.lanes.count
        adjacent = layout.access[k] == "strided" and layout.steps[k] == "adjacent" and not layout.rows[k]
        return adjacent and count % layout.several == 0 and not self.operands[k].dtype.is_complex

    def turned(self, node: Node, k: int, pointer: ir.Value) -> list[Value]:
        """The vectors of several steps of an operand that is strided: squares read along the steps and turned."""
        b, several, count = self.b, self.layout.several, self.lanes.count
        element = memory_type(node.dtype)
        line = ir.VectorType(element, several)
        rows = []
        for lane in range(count):
            place = I64(lane)
            if lane:
                place = self.smaller(place, self.left)  # beyond the end: the last one again
            at = self.lanes.offset(pointer, b.mul(place, self.strides[k][-1]))
            rows.append(b.load(at, typ=line, align=node.dtype.itemsize))
        zipped = [I32(k // 2 + several * (k % 2)) for k in range(2 * several)]
        halves = [ir.Constant(ir.VectorType(I32, several), half) for half in (zipped[:several], zipped[several:])]
        squares = [rows[k : k + several] for k in range(0, count, several)]
        for square in squares:
            for _ in range(several.bit_length() - 1):
                pairs = zip(square[: several // 2], square[several // 2 :], strict=True)
                square[:] = [b.shuffle_vector(x, y, half) for x, y in pairs for half in halves]
        while len(squares) > 1:
            length = squares[0][0].type.count
            both = ir.Constant(ir.VectorType(I32, 2 * length), [I32(k) for k in range(2 * length)])
            pairs_of = zip(squares[::2], squares[1::2], strict=True)
            squares = [[b.shuffle_vector(x, y, both) for x, y in zip(*pair, strict=True)] for pair in pairs_of]
        return [self.lanes.widened(raw, node.dtype) for raw in squares[0]]

    def compute(
        self, known: _Known, pointers: Sequence[ir.Value], step: int | None, nodes: Sequence[Node],
        also: _Known | None = None,
    ) -> None:  # fmt: skip
        """The values of ``nodes``, which are in order, at ``step`` steps from the pointers."""
        for node in nodes:
            if node in known:
                continue
            k = self.inputs.get(node)
            if k is not None:
                known[node] = self.loaded(node, k, pointers[k], step)
            elif node.op is Constant:
                known[node] = self.lanes.number(node.attrs["value"], node.dtype)
            else:
                args = [known[o] if o in known else (also or {})[o] for o in node.operands]
                known[node] = args[0] if node.op.view else ELEMENTWISE[node.name](self.lanes, node, args)

    def loaded(self, node: Node, k: int, pointer: ir.Value, step: int | None) -> Value:
        if step and self.layout.steps[k] != "same":
            size = I64(node.dtype.itemsize) if self.layout.steps[k] == "adjacent" else self.strides[k][self.step_axis]
            pointer = self.lanes.offset(pointer, self.b.mul(size, I64(step)))
        if self.layout.access[k] == "same":
            return self.lanes.load_same(node.dtype, pointer)
        stride = None if self.layout.access[k] == "adjacent" else self.strides[k][-1]
        return self.lanes.load(node.dtype, pointer, stride, self.mask_here)

    def finish(self, pointers: Sequence[ir.Value], row: ir.Value) -> None:
        """The outputs of one row."""
        known: _Known = {}
        for fold, places in self.folds:
            state = [self.b.load(self.state_at(p, row), typ=p[2], align=64) for p in places]
            known[fold.node] = fold.finish(self.lanes, state, self.count)
        here = [self.moved(k, p, [row], self.row_axis) for k, p in enumerate(pointers)]
        needed: set[Node] = set()
        stack = list(self.body.graph.outputs)
        while stack:
            node = stack.pop()
            if node not in needed and node not in known:
                needed.add(node)
                stack.extend(node.operands)
        graph = self.body.graph
        self.compute(known, here, None, [n for n in (*graph.inputs, *graph.nodes) if n in needed])
        for k, node in enumerate(graph.outputs, start=len(self.inputs)):
            stride = None if self.layout.access[k] == "adjacent" else self.strides[k][-1]
            self.lanes.store(known[node], node.dtype, here[k], stride, self.mask_here)


__all__ = ["Tile", "TileLayout", "build", "tile_of"]
