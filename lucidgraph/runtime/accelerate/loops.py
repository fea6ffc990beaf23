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
from .body import EXPENSIVE_FLOPS, PADDING, STEPS, Body, Layout
from .machine import Machine
from .points import NONE, Array, Arrays, At, Near, Points, States
from .reduce import Sum
from .values import ALIGNMENT, I1, I64, PTR, Pair

_AHEAD: Final = 4096
"""How many bytes ahead a reduction by columns asks for memory, where it reads shorter pieces of rows: the processor
foresees only longer ones."""
_TOGETHER: Final = 32
"""How many rows a reduction by columns takes into sums of the near type."""
_LONG: Final = 64
"""Code of more ops than these is not written twice."""
_FIRST: Final = I64(0)


def build(graph: Graph, full: Shape, layout: Layout, machine: Machine) -> ir.Module:
    """The module with the kernel's function."""
    module = ir.Module(name="kernel")
    _Kernel(Body(graph, full), layout, machine, module).emit()
    return module


@final
class _Kernel(Points):
    """The loops of a kernel around its points."""

    @property
    def streams(self) -> bool:
        """Whether full outputs could go past the caches: where they are written a line at a time."""
        first, outputs = len(self.inputs), self.body.graph.outputs
        whole = [n for k, n in enumerate(outputs) if self.layout.access[first + k] == "adjacent"]
        return self.layout.most > 1 and any(n.shape == self.body.full and not n.dtype.is_complex for n in whole)

    # -- the nest

    def emit(self) -> None:
        b, s, layout = self.b, self.slots, self.layout
        self.vector = self.argument(s.head("vector"))
        self.chunk = self.argument(s.head("chunk"))
        self.chunks = self.argument(s.head("chunks"))
        self.limit = self.argument(s.head("limit"))
        self.pieces = self.argument(s.head("pieces"))
        if self.streams:
            self.past = b.icmp_signed("!=", self.argument(s.head("past")), I64(0))
        self.outer_sizes = [self.argument(s.sizes + k) for k in range(layout.outer)]
        self.reduced_sizes = [self.argument(s.sizes + layout.outer + k) for k in range(layout.reduced)]
        bases = [b.inttoptr(self.argument(s.pointers + k), PTR) for k in range(len(layout.access))]
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            if layout.within:
                self.short_rows(bases, item)
            else:
                self.item(bases, item)
        if self.past is not None and self.machine.triple.startswith("x86_64"):
            # Stores past the caches are seen by others in order only after this.
            with b.if_then(self.past):
                self.lanes.intrinsic("x86.sse", ir.VoidType(), [], "sfence")
        b.ret_void()

    def item(self, bases: Sequence[ir.Value], item: ir.Value) -> None:
        """A row, or a chunk of one."""
        b, columns = self.b, self.layout.columns
        row = b.sdiv(item, self.chunks) if columns else item
        self.at_row = self.moved(bases, self.decoded(row, self.outer_sizes))
        self.bound_last(row)
        if not columns:
            self.row()
            return
        start = b.mul(b.srem(item, self.chunks), self.chunk)
        stop = self.smaller(b.add(start, self.chunk), self.vector)
        if self.body.folds(0):
            self.block(start, stop)
        else:
            once = any(map(self.long, range(self.body.passes)))
            self.span(start, stop, self.column, once, None if once else self.head(start, stop))

    def head(self, start: ir.Value, stop: ir.Value) -> ir.Value | None:
        """How many elements lie before the first line of the caches that begins in an output which goes past them."""
        first, outputs = len(self.inputs), self.body.graph.outputs
        if self.past is None or self.spare:
            return None
        near = [k for k in range(first, len(self.layout.access)) if self.layout.access[k] == "adjacent"]
        k = next(k for k in near if not outputs[k - first].dtype.is_complex)
        b, item = self.b, self.item_bytes(k)
        place = b.add(b.ptrtoint(self.at_row[k], I64), b.mul(start, I64(item)))
        line = min(ALIGNMENT, self.lanes.count * item)  # fewer elements than a vector has
        before = b.udiv(b.and_(b.sub(I64(0), place), I64(line - 1)), I64(item))
        return b.select(self.past, self.smaller(before, b.sub(stop, start)), I64(0))

    def short_rows(self, bases: Sequence[ir.Value], item: ir.Value) -> None:
        """A block of an outer axis, and of the axes after it all."""
        b, first = self.b, self.layout.outer - self.layout.within
        block, blocks = (self.argument(self.slots.head(name)) for name in ("block", "blocks"))
        size, *others = self.outer_sizes[first:]
        start = b.mul(b.srem(item, blocks), block)
        stop = self.smaller(b.add(start, block), size)
        at = self.moved(bases, self.decoded(b.sdiv(item, blocks), self.outer_sizes[:first]))
        once = any(map(self.long, range(self.body.passes)))
        with self.loop(start, stop) as index:
            line = self.moved(at, [index], first)
            with _nested(self, [(I64(0), n, 1) for n in others]) as indices:
                self.at_row = self.moved(line, indices, first + 1)
                self.span(I64(0), self.vector, self.column, once=once)

    def decoded(self, row: ir.Value, sizes: Sequence[ir.Value]) -> list[ir.Value]:
        """The indices, in axes of these sizes, of a row number."""
        indices: list[ir.Value] = []
        for size in reversed(sizes[1:]):
            indices.insert(0, self.b.srem(row, size))
            row = self.b.sdiv(row, size)
        return [row, *indices] if sizes else []

    def bound_last(self, row: ir.Value) -> None:
        """The last reduced axis may be one of several pieces of a longer one, the final piece shorter."""
        b, number = self.b, self.variable(I64)
        b.store(row, number)
        with b.if_then(b.icmp_signed(">=", row, self.pieces), likely=False):  # a division is dear
            b.store(b.srem(row, self.pieces), number)
        row = b.load(number, typ=I64)
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
        self, level: int, indices: Sequence[ir.Value], place: ir.Value, states: States, near: Near = NONE
    ) -> Callable[[ir.Value, ir.Value | None], None]:
        pointers = self.moved(self.at_row, indices, self.layout.outer)

        def point(v: ir.Value, mask: ir.Value | None) -> None:
            index = self.b.add(self.lanes.splat(v), self.lanes.iota())
            self.point(level, At(self.along(pointers, v), self.b.add(place, v), index), mask, states, near)

        return point

    def in_near_sums(self, level: int, padded: ir.Value, states: States) -> ir.Value:
        """The whole vectors of a row, a few steps at a time in the folds' near types; where the rest begins, which is
        at the start if a sum has overflowed."""
        b, count = self.b, self.lanes.count
        whole = self.whole_vectors(I64(0), self.row_vector)
        near = {fold: self.near_variable(fold) for fold, _ in states if isinstance(fold, Sum) and fold.near}
        steps = min(fold.near_steps for fold in near)
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

    def quick(self, level: int) -> bool:
        """Whether a pass is short enough for more than one form, and may be gone over again: it must not have
        overwritten what it read."""
        return bool(self.body.folds(level)) and not self.body.stored(level) and not self.long(level)

    def long(self, level: int) -> bool:
        """Whether a pass has too much code to be written twice."""
        work = self.body.work(level)
        if any(access in STEPS for access in self.layout.access):
            return False  # under a mask those are read element by element
        return len(work) > _LONG or any(n.op.flops_per_element >= EXPENSIVE_FLOPS for n in work)

    def column(self, v: ir.Value, mask: ir.Value | None) -> None:
        """One vector along a kept axis, where nothing is reduced."""
        self.rows.clear()
        at_column = self.along(self.at_row, v)
        self.prepare(0, at_column, mask)
        self.point(0, At(at_column, I64(0), self.lanes.splat(I64(0))), mask, [])

    def block(self, start: ir.Value, stop: ir.Value) -> None:
        """Several vectors along a kept axis, pass by pass and point by point of the reduced axes: memory is read in
        long pieces. States and row values lie in arrays on the stack, a vector for each of the block's."""
        b = self.b
        self.lying.clear()
        states: States = []
        for level in range(self.body.passes + 1):
            last = level == self.body.passes
            found: dict[Node, list[Array]] = {}
            new: Arrays = [] if last else self.arrays(level)

            def settle(v: ir.Value, mask: ir.Value | None, level: int = level, last: bool = last, new: Arrays = new,
                       old: Arrays = states, found: dict[Node, list[Array]] = found) -> None:  # fmt: skip
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

    def points(self, level: int, start: ir.Value, stop: ir.Value, states: Arrays) -> None:
        """A pass over a block: points in the order of memory."""
        block = self.block_of(start, stop)
        if not self.row_reduced or not self.quick(level):
            with self.reduced_loops() as (indices, number):
                self.points_of_row(level, block, indices, number, lambda: self.here(states))
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
                self.rows_of_vector(level, block, indices, number, together, states)
            with self.reduced_loops(I64(0), b.select(single, I64(0), stop_at), together) as (indices, number):
                with self.loop(I64(0), self.smaller(together, b.sub(rows, indices[-1]))) as row:
                    at = [*indices[:-1], b.add(indices[-1], row)]
                    self.points_of_row(level, block, at, b.add(number, row), lambda: self.here(states, near))
                with self.vectors(start, stop):
                    for fold, places in self.placed(states):
                        if isinstance(fold, Sum) and fold in near:
                            self.settle(fold, places, self.cell(near[fold]))
            if fallible:
                with b.if_then(b.icmp_signed("==", again, I64(0))):
                    self.begin_again(start, stop, states, over)

    def here(self, states: Arrays, near: Mapping[Sum, Array] = MappingProxyType({})) -> tuple[States, Near]:
        """Where the states of the vector at hand lie, and its sums in their near types."""
        return self.placed(states), {fold: self.cell(array) for fold, array in near.items()}

    def points_of_row(
        self, level: int, block: _Block, indices: Sequence[ir.Value], number: ir.Value,
        states: Callable[[], tuple[States, Near]],
    ) -> None:  # fmt: skip
        """A row of a block."""
        b, (start, stop, padded, narrow, ahead) = self.b, block
        pointers = self.moved(self.at_row, indices, self.layout.outer)
        later = self.moved(pointers, [ahead], self.layout.axes - 2) if indices else pointers
        index = self.lanes.splat(indices[-1] if indices else I64(0))

        def point(v: ir.Value, mask: ir.Value | None) -> None:
            within = b.sub(v, start)
            self.number = b.udiv(within, I64(self.lanes.count))
            # One pass takes blocks as wide as there are; several take narrower ones, for what they keep.
            if indices and self.body.passes > 1:
                with b.if_then(narrow):
                    self.fetch(self.along(later, v))
            at = At(self.along(pointers, v), b.add(b.mul(number, padded), within), index)
            self.point(level, at, mask, *states())

        self.span(start, stop, point, once=self.long(level))

    def rows_of_vector(
        self, level: int, block: _Block, indices: Sequence[ir.Value], number: ir.Value, together: ir.Value,
        states: Arrays,
    ) -> None:  # fmt: skip
        """Several rows of a block that is no more than a vector, its states in registers."""
        b, (start, stop, padded, *_) = self.b, block
        rows = self.smaller(together, b.sub(self.row_reduced[-1], indices[-1]))
        pointers = self.along(self.moved(self.at_row, indices, self.layout.outer), start)

        def points(v: ir.Value, mask: ir.Value | None) -> None:
            self.number = I64(0)
            with self.held(self.placed(states)) as (held, near), self.loop(I64(0), rows) as row:
                here = self.moved(pointers, [row], self.layout.axes - 2)
                index = self.lanes.splat(b.add(indices[-1], row))
                self.point(level, At(here, b.mul(b.add(number, row), padded), index), mask, held, near)

        self.span(start, stop, points, once=True)

    def block_of(self, start: ir.Value, stop: ir.Value) -> _Block:
        b, count = self.b, self.lanes.count
        padded = b.and_(b.add(b.sub(stop, start), I64(count - 1)), I64(-count))
        narrow = b.icmp_signed("<", padded, I64(_AHEAD // 4))
        return _Block(start, stop, padded, narrow, b.add(b.sdiv(I64(_AHEAD // 4), padded), I64(1)))

    @contextmanager
    def vectors(self, start: ir.Value, stop: ir.Value) -> Iterator[None]:
        """A loop over the states of a block."""
        with self.loop(start, stop, self.lanes.count) as v:
            self.number = self.b.udiv(self.b.sub(v, start), I64(self.lanes.count))
            yield

    @contextmanager
    def held(self, states: States) -> Iterator[tuple[States, Near]]:
        """The states in registers for a while, sums in their near types."""
        near: dict[Sum, ir.Value] = {}
        held: States = []
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

    def begin_again(self, start: ir.Value, stop: ir.Value, states: Arrays, over: ir.Value) -> None:
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


class _Block(NamedTuple):
    """Columns ``start`` to before ``stop``: how many the whole vectors have; whether that is ``narrow``, a short piece
    of a row; and how many rows ``ahead`` memory is asked for then."""

    start: ir.Value
    stop: ir.Value
    padded: ir.Value
    narrow: ir.Value
    ahead: ir.Value


_Range = tuple[ir.Value, ir.Value, int | ir.Value]


@contextmanager
def _nested(kernel: _Kernel, ranges: Sequence[_Range]) -> Iterator[list[ir.Value]]:
    if not ranges:
        yield []
        return
    with kernel.loop(*ranges[0]) as first, _nested(kernel, ranges[1:]) as rest:
        yield [first, *rest]


__all__ = ["build"]
