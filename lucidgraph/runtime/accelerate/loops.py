"""The code of one kernel: a loop nest over the domain of a fused body, with sizes and strides read at run time.

A domain has outer axes (kept), reduced axes, and one axis along which vectors lie. In a kernel *by rows* that axis is
reduced (or there is nothing to reduce along another): each item of work is one row. In a kernel *by columns* it is
kept: an item is a chunk of it, and reductions run over other axes, lane by lane. A row may need several passes
(softmax: maximum, then sum of exponentials, then quotient): full values of an earlier pass are computed again, or kept
in a scratch row where that would cost a function call.

The function's type is ``void (i64 *args, i64 begin, i64 end, i64 thread)``: items from ``begin`` to before ``end``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, NamedTuple, final

from llvmlite import ir

from ...ir import Graph, Node
from ...ir.ops.core import Constant
from ...ir.types import Shape
from . import arithmetic, compare, math
from .body import EXPENSIVE_FLOPS, PADDING, STEPS, Body, Kept, Layout, Slots, lane_count, parts_of, pass_lanes
from .machine import Machine
from .reduce import FOLDS, Fold, State, Sum, sliced
from .values import ALIGNMENT, F64, I1, I64, PTR, Lanes, Pair, Value, element_bytes, register_type
from .writing import KernelWriter

ELEMENTWISE: Final = {**arithmetic.RULES, **compare.RULES, **math.RULES}
"""Every elementwise op that a kernel can hold."""

_AHEAD: Final = 4096
"""How many bytes ahead a reduction by columns asks for memory, where it reads shorter pieces of rows: the processor
foresees only longer ones."""
_TOGETHER: Final = 32
"""How many rows a reduction by columns takes into sums of the near type."""
_NEAR_STEPS: Final = 1 << 16
_FIRST: Final = I64(0)
_Near = Mapping[Sum, ir.Value]
"""Where sums in their near types lie."""
_NONE: Final[_Near] = MappingProxyType({})


def build(graph: Graph, full: Shape, layout: Layout, machine: Machine) -> ir.Module:
    """The module with the kernel's function."""
    module = ir.Module(name="kernel")
    _Kernel(Body(graph, full), layout, machine, module).emit()
    return module


@final
class _Kernel(KernelWriter):
    def __init__(self, body: Body, layout: Layout, machine: Machine, module: ir.Module) -> None:
        super().__init__(module, machine, lane_count(body, machine, layout.short))
        self.body = body
        self.layout = layout
        self.slots = Slots(layout)
        self.rows: dict[Node, Value] = {}
        """Row values known so far: one lane by rows, a vector by columns."""
        self.lying: dict[Node, list[_Array]] = {}
        """Row values of a block of columns."""
        self.inputs = {node: k for k, node in enumerate(body.graph.inputs)}
        self.keep_in = Kept(body)
        self.spare = any(STEPS.get(access, 0) > 1 for access in layout.access)
        self.past: ir.Value | None = None
        """Whether full outputs go past the caches."""
        self.single = Lanes(self.b, 1, machine)
        widths = (
            [machine.lanes]
            if layout.columns
            else [pass_lanes(body, k, machine, layout.short) for k in range(body.passes)]
        )
        self.by_pass = [Lanes(self.b, width, machine) for width in widths]

    @property
    def streams(self) -> bool:
        """Whether full outputs could go past the caches: where they are written a line at a time."""
        first, outputs = len(self.inputs), self.body.graph.outputs
        whole = [n for k, n in enumerate(outputs) if self.layout.access[first + k] == "adjacent"]
        return not self.layout.short and any(n.shape == self.body.full and not n.dtype.is_complex for n in whole)

    # -- the nest

    def emit(self) -> None:
        b, s, layout = self.b, self.slots, self.layout
        self.vector = self.argument(s.head("vector"))
        self.chunk = self.argument(s.head("chunk"))
        self.chunks = self.argument(s.head("chunks"))
        self.limit = self.argument(s.head("limit"))
        self.pieces = self.argument(s.head("pieces"))
        self.count = self.argument(s.head("count"))
        self.kept_stride = self.argument(s.head("kept_stride"))
        if self.streams:
            self.past = b.icmp_signed("!=", self.argument(s.head("past")), I64(0))
        offset = b.mul(self.fn.args[3], self.argument(s.head("scratch_stride")))
        self.scratch = b.gep(b.inttoptr(self.argument(s.head("scratch")), PTR), [offset], source_etype=ir.IntType(8))
        self.outer_sizes = [self.argument(s.sizes + k) for k in range(layout.outer)]
        self.reduced_sizes = [self.argument(s.sizes + layout.outer + k) for k in range(layout.reduced)]
        operands = range(len(layout.access))
        self.strides = [[self.argument(s.stride(k, d)) for d in range(layout.axes)] for k in operands]
        bases = [b.inttoptr(self.argument(s.pointers + k), PTR) for k in operands]
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            row = b.sdiv(item, self.chunks) if layout.columns else item
            self.at_row = self.moved(bases, self.decoded(row))
            self.bound_last(row)
            if layout.columns:
                start = b.mul(b.srem(item, self.chunks), self.chunk)
                stop = self.smaller(b.add(start, self.chunk), self.vector)
                if self.body.folds(0):
                    self.block(start, stop)
                else:
                    self.span(start, stop, self.column, once=any(map(self.long, range(self.body.passes))))
            else:
                self.row()
        if self.past is not None and self.machine.triple.startswith("x86_64"):
            # Stores past the caches are seen by others in order only after this.
            with b.if_then(self.past):
                self.lanes.intrinsic("x86.sse", ir.VoidType(), [], "sfence")
        b.ret_void()

    def decoded(self, row: ir.Value) -> list[ir.Value]:
        """The outer indices of a row number."""
        indices: list[ir.Value] = []
        for size in reversed(self.outer_sizes[1:]):
            indices.insert(0, self.b.srem(row, size))
            row = self.b.sdiv(row, size)
        return [row, *indices] if self.outer_sizes else []

    def moved(self, pointers: Sequence[ir.Value], indices: Sequence[ir.Value], axis: int = 0) -> list[ir.Value]:
        """Pointers moved by ``indices`` along the axes from ``axis`` on."""
        out = []
        for k, pointer in enumerate(pointers):
            for d, index in enumerate(indices):
                pointer = self.lanes.offset(pointer, self.b.mul(index, self.strides[k][axis + d]))
            out.append(pointer)
        return out

    def bound_last(self, row: ir.Value) -> None:
        """The last reduced axis may be one of several pieces of a longer one, the final piece shorter."""
        b = self.b
        row = b.srem(row, self.pieces)
        self.row_vector, self.row_reduced = self.vector, list(self.reduced_sizes)
        if not self.layout.across:
            self.row_vector = self.smaller(self.vector, b.sub(self.limit, b.mul(row, self.vector)))
        elif self.row_reduced:
            size = self.row_reduced[-1]
            self.row_reduced[-1] = self.smaller(size, b.sub(self.limit, b.mul(row, size)))

    def row(self) -> None:
        """One row: vectors along a reduced axis, joined across lanes at the end of each pass."""
        self.rows.clear()
        padded = self.b.and_(self.b.add(self.vector, I64(PADDING - 1)), I64(-PADDING))
        for level in range(self.body.passes):
            self.lanes = self.single
            self.prepare(level, self.at_row, None)
            self.lanes = self.by_pass[level]
            states = self.fresh(level)
            quick = self.quick(level) and any(isinstance(fold, Sum) and fold.near for fold, _ in states)
            start = self.in_near_sums(level, padded, states) if quick else I64(0)
            with self.reduced_loops() as (indices, number):
                emit = self.point_of_row(level, indices, self.b.mul(number, padded), states)
                self.span(start, self.row_vector, emit, once=quick or self.long(level))
            self.finish(states, across=True)
        self.lanes = self.single
        self.prepare(self.body.passes, self.at_row, None)
        for k in self.body.row_outputs:
            self.store_row(k, self.at_row[len(self.inputs) + k], None)

    def point_of_row(
        self, level: int, indices: Sequence[ir.Value], place: ir.Value, states: _States, near: _Near = _NONE
    ) -> Callable[[ir.Value, ir.Value | None], None]:
        pointers = self.moved(self.at_row, indices, self.layout.outer)

        def point(v: ir.Value, mask: ir.Value | None) -> None:
            index = self.b.add(self.lanes.splat(v), self.lanes.iota())
            self.point(level, _At(self.along(pointers, v), self.b.add(place, v), index), mask, states, near)

        return point

    def in_near_sums(self, level: int, padded: ir.Value, states: _States) -> ir.Value:
        """The whole vectors of a row, a few steps at a time in the folds' near types; where the rest begins, which is
        at the start if a sum has overflowed."""
        b, count = self.b, self.lanes.count
        whole = self.whole_vectors(I64(0), self.row_vector)
        near: dict[Sum, ir.Value] = {}
        steps = _NEAR_STEPS
        for fold, _ in states:
            if isinstance(fold, Sum) and fold.near:
                steps = min(steps, fold.near.steps)
                near[fold] = self.near_variable(fold)
        with self.reduced_loops() as (indices, number):
            emit = self.point_of_row(level, indices, b.mul(number, padded), states, near)
            with self.loop(I64(0), whole, count * steps) as begin:
                with self.loop(begin, self.smaller(b.add(begin, I64(count * steps)), whole), count) as v:
                    emit(v, None)
                for fold, places in states:
                    if isinstance(fold, Sum) and fold in near:
                        self.settle(fold, places, near[fold])
        over = self.overflowed(states)
        if over is None:
            return whole
        with b.if_then(over, likely=False):
            for fold, places in states:
                self.write(fold.start(self.state_lanes(fold)), places)
        return b.select(over, I64(0), whole)

    def overflowed(self, states: _States) -> ir.Value | None:
        """Whether a sum of floats came out infinite or NaN, as it does where one in its near type overflowed."""
        found = None
        for fold, places in states:
            if isinstance(fold, Sum) and fold.near and fold.taken.is_floating:
                lanes = self.state_lanes(fold)
                (sums,) = self.read(places, [lanes.vector(F64)])
                nothing = self.b.fsub(sums, sums)
                here = lanes.any(self.b.fcmp_unordered("uno", nothing, nothing))
                found = here if found is None else self.b.or_(found, here)
        return found

    def quick(self, level: int) -> bool:
        """Whether a pass is short enough for more than one form, and may be gone over again: it must not have
        overwritten what it read."""
        return bool(self.body.folds(level)) and not self.body.stored(level) and not self.long(level)

    def long(self, level: int) -> bool:
        """Whether a pass has too much code to be written twice."""
        work = self.body.work(level)
        if any(access in STEPS for access in self.layout.access):
            return False  # under a mask those are read element by element
        return len(work) > 24 or any(n.op.flops_per_element >= EXPENSIVE_FLOPS for n in work)

    def column(self, v: ir.Value, mask: ir.Value | None) -> None:
        """One vector along a kept axis, where nothing is reduced."""
        self.rows.clear()
        at_column = self.along(self.at_row, v)
        self.prepare(0, at_column, mask)
        self.point(0, _At(at_column, I64(0), self.lanes.splat(I64(0))), mask, [])

    def block(self, start: ir.Value, stop: ir.Value) -> None:
        """Several vectors along a kept axis, pass by pass and point by point of the reduced axes: memory is read in
        long pieces. States and row values lie in arrays on the stack, a vector for each of the block's."""
        b = self.b
        self.lying.clear()
        states: _States = []
        for level in range(self.body.passes + 1):
            last = level == self.body.passes
            found: dict[Node, list[_Array]] = {}
            new: _Arrays = [] if last else self.arrays(level)

            def settle(v: ir.Value, mask: ir.Value | None, level: int = level, last: bool = last, new: _Arrays = new,
                       old: _Arrays = states, found: dict[Node, list[_Array]] = found) -> None:  # fmt: skip
                self.rows.clear()
                self.number = b.udiv(b.sub(v, start), I64(self.lanes.count))
                at_column = self.along(self.at_row, v)
                self.finish(self.placed(old), across=False)
                self.prepare(level, at_column, mask)
                if last:
                    for k in self.body.row_outputs:
                        self.store_row(k, at_column[len(self.inputs) + k], mask)
                    return
                for node, value in self.rows.items():
                    if node.op is not Constant and not node.op.view:
                        parts = list(value) if isinstance(value, Pair) else [value]
                        lie = found.setdefault(node, []) or [self.array(part.type) for part in parts]
                        found[node] = lie
                        for array, part in zip(lie, parts, strict=True):
                            b.store(part, self.cell(array))
                for fold, places in self.placed(new):
                    self.write(fold.start(self.lanes), places)

            self.span(start, stop, settle)
            self.rows.clear()
            self.lying.update(found)
            states = new
            if not last:
                self.points(level, start, stop, states)

    def points(self, level: int, start: ir.Value, stop: ir.Value, states: _Arrays) -> None:
        """A pass over a block: points in the order of memory."""
        if not self.row_reduced or not self.quick(level):
            with self.reduced_loops() as (indices, number):
                self.points_of_row(level, start, stop, indices, number, lambda: self.here(states))
            return
        b, rows, one = self.b, self.row_reduced[-1], I64(1)
        near = {f: self.array(f.near_zero(self.lanes).type) for f, _ in states if isinstance(f, Sum) and f.near}
        with self.vectors(start, stop):
            for total, array in near.items():
                b.store(total.near_zero(self.lanes), self.cell(array))
        # Where a sum of several rows overflows, all is done again a row at a time.
        over, fallible = self.variable(I1), any(fold.taken.is_floating for fold in near)
        b.store(I1(1), over)
        with self.loop(I64(0), I64(1 + fallible)) as again:
            stop_at = b.select(b.load(over, typ=I1), rows, I64(0))
            together = b.select(b.icmp_signed("==", again, I64(0)), I64(_TOGETHER), one)
            single = b.icmp_signed("<=", b.sub(stop, start), I64(self.lanes.count))
            with self.reduced_loops(I64(0), b.select(single, stop_at, I64(0)), together) as (indices, number):
                self.rows_of_vector(level, start, stop, indices, number, together, states)
            with self.reduced_loops(I64(0), b.select(single, I64(0), stop_at), together) as (indices, number):
                with self.loop(I64(0), self.smaller(together, b.sub(rows, indices[-1]))) as row:
                    at = [*indices[:-1], b.add(indices[-1], row)]
                    self.points_of_row(level, start, stop, at, b.add(number, row), lambda: self.here(states, near))
                with self.vectors(start, stop):
                    for fold, places in self.placed(states):
                        if isinstance(fold, Sum) and fold in near:
                            self.settle(fold, places, self.cell(near[fold]))
            if fallible:
                with b.if_then(b.icmp_signed("==", again, I64(0))):
                    self.begin_again(start, stop, states, over)

    def here(self, states: _Arrays, near: Mapping[Sum, _Array] = MappingProxyType({})) -> tuple[_States, _Near]:
        return self.placed(states), {fold: self.cell(array) for fold, array in near.items()}

    def points_of_row(
        self, level: int, start: ir.Value, stop: ir.Value, indices: Sequence[ir.Value], number: ir.Value,
        states: Callable[[], tuple[_States, _Near]],
    ) -> None:  # fmt: skip
        """A row of a block."""
        b = self.b
        padded = self.padded(start, stop)
        narrow = b.icmp_signed("<", padded, I64(_AHEAD // 4))
        pointers = self.moved(self.at_row, indices, self.layout.outer)
        ahead = b.add(b.sdiv(I64(_AHEAD // 4), padded), I64(1))
        later = self.moved(pointers, [ahead], self.layout.axes - 2) if indices else pointers
        index = self.lanes.splat(indices[-1] if indices else I64(0))

        def point(v: ir.Value, mask: ir.Value | None) -> None:
            within = b.sub(v, start)
            self.number = b.udiv(within, I64(self.lanes.count))
            # One pass takes blocks as wide as there are; several take narrower ones, for what they keep.
            if indices and self.body.passes > 1:
                with b.if_then(narrow):
                    self.fetch(self.along(later, v))
            at = _At(self.along(pointers, v), b.add(b.mul(number, padded), within), index)
            self.point(level, at, mask, *states())

        self.span(start, stop, point, once=self.long(level))

    def rows_of_vector(
        self, level: int, start: ir.Value, stop: ir.Value, indices: Sequence[ir.Value], number: ir.Value,
        together: ir.Value, states: _Arrays,
    ) -> None:  # fmt: skip
        """Several rows of a block that is no more than a vector, its states in registers."""
        b = self.b
        padded = self.padded(start, stop)
        rows = self.smaller(together, b.sub(self.row_reduced[-1], indices[-1]))
        pointers = self.along(self.moved(self.at_row, indices, self.layout.outer), start)

        def points(v: ir.Value, mask: ir.Value | None) -> None:
            self.number = I64(0)
            with self.held(self.placed(states)) as (held, near), self.loop(I64(0), rows) as row:
                here = self.moved(pointers, [row], self.layout.axes - 2)
                index = self.lanes.splat(b.add(indices[-1], row))
                self.point(level, _At(here, b.mul(b.add(number, row), padded), index), mask, held, near)

        self.span(start, stop, points, once=self.long(level))

    def padded(self, start: ir.Value, stop: ir.Value) -> ir.Value:
        """The columns of a block's whole vectors."""
        return self.b.and_(self.b.add(self.b.sub(stop, start), I64(self.lanes.count - 1)), I64(-self.lanes.count))

    @contextmanager
    def vectors(self, start: ir.Value, stop: ir.Value) -> Iterator[None]:
        """A loop over the states of a block."""
        with self.loop(start, stop, self.lanes.count) as v:
            self.number = self.b.udiv(self.b.sub(v, start), I64(self.lanes.count))
            yield

    @contextmanager
    def held(self, states: _States) -> Iterator[tuple[_States, _Near]]:
        """The states in registers for a while, sums in their near types."""
        near: dict[Sum, ir.Value] = {}
        held: _States = []
        for fold, places in states:
            types = [v.type for v in fold.start(self.lanes)]
            held.append((fold, [self.variable(t) for t in types]))
            self.write(self.read(places, types), held[-1][1])
            if isinstance(fold, Sum) and fold.near:
                near[fold] = self.near_variable(fold)
        yield held, near
        for (fold, places), (_, variables) in zip(states, held, strict=True):
            if isinstance(fold, Sum) and fold in near:
                self.settle(fold, variables, near[fold])
            self.write(self.read(variables, [v.type for v in fold.start(self.lanes)]), places)

    def near_variable(self, fold: Sum) -> ir.Value:
        zero = fold.near_zero(self.lanes)
        place = self.variable(zero.type)
        self.b.store(zero, place)
        return place

    def settle(self, fold: Sum, places: Sequence[ir.Value], near: ir.Value) -> None:
        """Take a sum of the near type into a state, and leave nothing of it."""
        lanes, zero = self.state_lanes(fold), fold.near_zero(self.lanes)
        state = self.read(places, [v.type for v in fold.start(lanes)])
        self.write(fold.settle(lanes, state, self.b.load(near, typ=zero.type)), places)
        self.b.store(zero, near)

    def begin_again(self, start: ir.Value, stop: ir.Value, states: _Arrays, over: ir.Value) -> None:
        """Set the states of a block back to nothing if a sum of floats in it has overflowed."""
        b = self.b
        b.store(I1(0), over)
        with self.vectors(start, stop):
            found = self.overflowed(self.placed(states))
            assert found is not None
            with b.if_then(found, likely=False):
                b.store(I1(1), over)
        with self.vectors(start, b.select(b.load(over, typ=I1), stop, start)):
            for fold, places in self.placed(states):
                self.write(fold.start(self.lanes), places)

    def fetch(self, pointers: Sequence[ir.Value]) -> None:
        """Ask for the lines of full inputs there."""
        for node, k in self.inputs.items():
            if self.body.is_full[node] and self.layout.access[k] == "adjacent":
                for line in range(0, self.lanes.count * node.dtype.itemsize, ALIGNMENT):
                    self.lanes.fetch(self.lanes.offset(pointers[k], I64(line)))

    def array(self, typ: ir.Type) -> _Array:
        """Room for a vector of this type for each of a block's."""
        size = self.lanes.count * element_bytes(typ.element)
        lying = self.variable(ir.ArrayType(ir.IntType(8), self.body.block * size))
        lying.align = 64
        with self.b.goto_entry_block():
            return _Array(self.b.inttoptr(self.b.ptrtoint(lying, I64), PTR), size, typ)

    def cell(self, array: _Array) -> ir.Value:
        """Where the vector at hand lies."""
        return self.lanes.offset(array.place, self.b.mul(self.number, I64(array.size)))

    def arrays(self, level: int) -> _Arrays:
        folds = [FOLDS[node.name](node, narrow=True) for node in self.body.folds(level)]
        return [(fold, [self.array(value.type) for value in fold.start(self.lanes)]) for fold in folds]

    def placed(self, arrays: _Arrays) -> _States:
        return [(fold, [self.cell(array) for array in lie]) for fold, lie in arrays]

    def along(self, pointers: Sequence[ir.Value], v: ir.Value) -> list[ir.Value]:
        """Pointers moved to position ``v`` of the vector axis."""
        out = []
        for k, pointer in enumerate(pointers):
            stride = self.strides[k][-1]
            if self.layout.access[k] == "adjacent":
                stride = I64(self.item_bytes(k))
            out.append(
                pointer if self.layout.access[k] == "same" else self.lanes.offset(pointer, self.b.mul(v, stride))
            )
        return out

    def operand(self, k: int) -> Node:
        graph = self.body.graph
        return graph.inputs[k] if k < len(graph.inputs) else graph.outputs[k - len(graph.inputs)]

    def item_bytes(self, k: int) -> int:
        return self.operand(k).dtype.itemsize

    @contextmanager
    def reduced_loops(
        self, start: ir.Value = _FIRST, stop: ir.Value | None = None, step: int | ir.Value = 1
    ) -> Iterator[tuple[list[ir.Value], ir.Value]]:
        """Loops over the reduced axes other than the vectors', the last one from ``start`` to before ``stop``; their
        indices, and the number of the point."""
        ranges: list[_Range] = [(_FIRST, size, 1) for size in self.row_reduced]
        if ranges:
            ranges[-1] = (start, ranges[-1][1] if stop is None else stop, step)
        with _nested(self, ranges) as indices:
            number: ir.Value = I64(0)
            for size, index in zip(self.row_reduced, indices, strict=True):
                number = self.b.add(self.b.mul(number, size), index)
            yield indices, number

    # -- passes

    def prepare(self, level: int, pointers: Sequence[ir.Value], mask: ir.Value | None) -> None:
        """Compute the row values that are known before this pass, once for all its points."""
        self.level, self.pointers, self.point_mask = level, pointers, mask
        for node in self.body.graph.nodes:
            row = not self.body.is_full[node] and not node.op.reduces and self.body.level[node] <= level
            if row and node not in self.rows and node not in self.lying:
                self.rows[node] = self.value(node, {})

    def fresh(self, level: int) -> _States:
        states: _States = []
        for node in self.body.folds(level):
            fold = FOLDS[node.name](node, narrow=True)
            lanes = self.state_lanes(fold)
            places = []
            for value in fold.start(lanes):
                place = self.variable(value.type)
                self.b.store(value, place)
                places.append(place)
            states.append((fold, places))
        return states

    def state_lanes(self, fold: Fold) -> Lanes:
        """The lanes of a state, which may be fewer than those of the values where they are joined in the end."""
        count = self.lanes.count if self.layout.columns else fold.joined_lanes(self.lanes)
        return self.lanes if count == self.lanes.count else Lanes(self.b, count, self.machine)

    def read(self, places: Sequence[ir.Value], types: Sequence[ir.Type]) -> State:
        return [self.b.load(p, typ=t) for p, t in zip(places, types, strict=True)]

    def write(self, state: State, places: Sequence[ir.Value]) -> None:
        for value, place in zip(state, places, strict=True):
            self.b.store(value, place)

    def point(
        self, level: int, at: _At, mask: ir.Value | None, states: _States, near: _Near = _NONE
    ) -> None:  # fmt: skip
        """What a pass does with one vector."""
        known: dict[Node, Value] = {}
        self.level, self.pointers, self.point_mask, self.place = level, at.pointers, mask, at.place
        # Everything is read before anything is written: an output may lie where an input lay.
        written = [(k, self.value(self.body.graph.outputs[k], known)) for k in self.body.stored(level)]
        for fold, places in states:
            value = self.value(fold.operand, known)
            if mask is not None:
                value = arithmetic.choose(self.lanes, mask, value, fold.neutral(self.lanes))
            if isinstance(fold, Sum) and fold in near:
                sums = self.b.load(near[fold], typ=fold.near_zero(self.lanes).type)
                self.b.store(fold.near_add(self.lanes)(sums, fold.nearer(self.lanes, value)), near[fold])
                continue
            lanes = self.state_lanes(fold)
            parts = [sliced(self.lanes, v, lanes.count) for v in (value, at.index)]
            state = self.read(places, [v.type for v in fold.start(lanes)])
            self.write(fold.take_all(lanes, state, list(zip(*parts, strict=True))), places)
        for k, value in written:
            self.store(k, value, at.pointers[len(self.inputs) + k], mask)

    def finish(self, states: _States, across: bool) -> None:
        for fold, places in states:
            lanes = self.state_lanes(fold)
            state = self.read(places, [v.type for v in fold.start(lanes)])
            if across:
                state = [self.first(v) for v in fold.across(lanes, state)]
                self.rows[fold.node] = fold.finish(self.single, state, self.count)
            else:
                self.rows[fold.node] = fold.finish(self.lanes, state, self.count)

    def first(self, v: ir.Value) -> ir.Value:
        """The first lane alone."""
        one = self.b.extract_element(v, ir.IntType(32)(0))
        return self.b.insert_element(ir.Constant(self.single.vector(one.type), ir.Undefined), one, ir.IntType(32)(0))

    def row_value(self, node: Node) -> Value:
        """A row value in the lanes of the current pass."""
        value = self.rows[node]
        if self.layout.columns or self.lanes.count == 1:
            return value
        parts = [
            self.lanes.splat(self.b.extract_element(v, ir.IntType(32)(0)))
            for v in (value if isinstance(value, Pair) else [value])
        ]
        return Pair(*parts) if len(parts) == 2 else parts[0]

    # -- values

    def value(self, node: Node, known: dict[Node, Value]) -> Value:
        """The vector of a value here: from memory, from the scratch row, or computed, operands first."""
        stack = [node]
        while stack:
            n = stack[-1]
            if n in known:
                stack.pop()
                continue
            if n in self.rows:
                known[n] = self.row_value(n)
            elif n in self.lying:
                parts = [self.b.load(self.cell(array), typ=array.type) for array in self.lying[n]]
                known[n] = Pair(*parts) if len(parts) == 2 else parts[0]
            elif n in self.inputs:
                known[n] = self.loaded(n)
            elif n.op is Constant:
                known[n] = self.lanes.number(n.attrs["value"], n.dtype)
            elif self.keep_in.first.get(n, self.level) < self.level:
                known[n] = self.kept_value(n)
            else:
                missing = [o for o in n.operands if o not in known]
                if missing:
                    stack.extend(missing)
                    continue
                args = [known[o] for o in n.operands]
                known[n] = args[0] if n.op.view else ELEMENTWISE[n.name](self.lanes, n, args)
                if n in self.keep_in.slots:
                    self.keep(n, known[n])
            stack.pop()
        return known[node]

    def loaded(self, node: Node) -> Value:
        k = self.inputs[node]
        row = not self.body.is_full[node]
        pointer = self.pointers[k]
        if self.layout.access[k] == "same" or (row and not self.layout.columns):
            return self.lanes.load_same(node.dtype, pointer)
        step = STEPS.get(self.layout.access[k])
        if step is not None and self.point_mask is None:
            return self.lanes.load_near(node.dtype, pointer, step)
        stride = None if self.layout.access[k] == "adjacent" else self.strides[k][-1]
        return self.lanes.load(node.dtype, pointer, stride, self.point_mask)

    def scratch_place(self, slot: int, node: Node) -> ir.Value:
        """Where this point's vector of a kept value lies, its elements side by side whatever a pass's vectors are."""
        at = self.b.mul(self.place, I64(element_bytes(register_type(node.dtype))))
        return self.lanes.offset(self.scratch, self.b.add(at, self.b.mul(self.kept_stride, I64(slot))))

    def keep(self, node: Node, value: Value) -> None:
        slot = self.keep_in.slots[node]
        for k, part in enumerate(value if isinstance(value, Pair) else [value]):
            if node.dtype.is_bool:
                part = self.b.zext(part, self.lanes.vector(ir.IntType(8)))
            self.b.store(part, self.scratch_place(slot + k, node), align=1)

    def kept_value(self, node: Node) -> Value:
        slot = self.keep_in.slots[node]
        if node.dtype.is_bool:
            typ = self.lanes.vector(ir.IntType(8))
            raw = self.b.load(self.scratch_place(slot, node), typ=typ, align=1)
            return self.b.icmp_unsigned("!=", raw, ir.Constant(typ, None))
        typ = self.lanes.vector(register_type(node.dtype))
        parts = [self.b.load(self.scratch_place(slot + k, node), typ=typ, align=1) for k in range(parts_of(node))]
        return Pair(*parts) if len(parts) == 2 else parts[0]

    def store(self, k: int, value: Value, pointer: ir.Value, mask: ir.Value | None) -> None:
        k += len(self.inputs)
        stride = None if self.layout.access[k] == "adjacent" else self.strides[k][-1]
        past = self.past if mask is None else None
        if self.past is not None and mask is not None and self.whole is not None:
            past = self.b.and_(self.past, self.whole)
        self.lanes.store(value, self.operand(k).dtype, pointer, stride, mask, past)

    def store_row(self, k: int, pointer: ir.Value, mask: ir.Value | None) -> None:
        """Write a row value: one element by rows, a vector by columns."""
        value = self.value(self.body.graph.outputs[k], {})
        if self.layout.columns:
            self.store(k, value, pointer, mask)
        else:
            self.single.store(value, self.body.graph.outputs[k].dtype, pointer, None, None)


class _At(NamedTuple):
    """A point of a pass: where the operands lie, the place of kept values, the index along the reduced axis."""

    pointers: Sequence[ir.Value]
    place: ir.Value
    index: ir.Value


class _Array(NamedTuple):
    """A block's vectors of one type on the stack, ``size`` bytes each."""

    place: ir.Value
    size: int
    type: ir.Type


_States = list[tuple[Fold, list[ir.Value]]]
_Arrays = list[tuple[Fold, list[_Array]]]
_Range = tuple[ir.Value, ir.Value, int | ir.Value]


@contextmanager
def _nested(kernel: _Kernel, ranges: Sequence[_Range]) -> Iterator[list[ir.Value]]:
    if not ranges:
        yield []
        return
    with kernel.loop(*ranges[0]) as first, _nested(kernel, ranges[1:]) as rest:
        yield [first, *rest]


__all__ = ["ELEMENTWISE", "build"]
