"""The points of a kernel: what a pass does with one vector of the domain, whichever way its loops go.

Values are loaded, computed or found where an earlier pass kept them; folds take them into their states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from llvmlite import ir

from ...ir import Graph, Node
from ...ir.ops.core import Constant
from . import arithmetic, compare, math
from .body import STEPS, Body, Kept, Layout, Slots, lane_count, parts_of, pass_lanes
from .machine import Machine
from .reduce import FOLDS, Fold, State, Sum, sliced
from .values import F64, I64, PTR, Lanes, Pair, Value, element_bytes, register_type
from .writing import KernelWriter

ELEMENTWISE: Final = {**arithmetic.RULES, **compare.RULES, **math.RULES}
"""Every elementwise op that a kernel can hold."""


def evaluated(lanes: Lanes, graph: Graph, known: dict[Node, Value]) -> None:
    """The values of an elementwise graph's nodes, put to those of its inputs."""
    for node in graph.nodes:
        if node.op is Constant:
            known[node] = lanes.number(node.attrs["value"], node.dtype)
        else:
            args = [known[o] for o in node.operands]
            known[node] = args[0] if node.op.view else ELEMENTWISE[node.name](lanes, node, args)


class At(NamedTuple):
    """A point of a pass: where the operands lie, the place of kept values, the index along the reduced axis."""

    pointers: Sequence[ir.Value]
    place: ir.Value
    index: ir.Value


class Array(NamedTuple):
    """A block's vectors of one type on the stack, ``size`` bytes each."""

    place: ir.Value
    size: int
    type: ir.Type


States = list[tuple[Fold, list[ir.Value]]]
Arrays = list[tuple[Fold, list[Array]]]
Near = Mapping[Sum, ir.Value]
"""Where sums in their near types lie."""
NONE: Final[Near] = MappingProxyType({})


class Points(KernelWriter):
    """Writes points; the loops around them are another's."""

    def __init__(self, body: Body, layout: Layout, machine: Machine, module: ir.Module) -> None:
        super().__init__(module, machine, lane_count(body, machine, layout.most))
        self.body = body
        self.layout = layout
        self.slots = Slots(layout)
        self.beside: dict[int, tuple[int, int]] = {k: (other, distance) for k, other, distance in layout.beside}
        self.rows: dict[Node, Value] = {}
        """Row values known so far: one lane by rows, a vector by columns."""
        self.lying: dict[Node, list[Array]] = {}
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
            else [pass_lanes(body, k, machine, layout.most) for k in range(body.passes)]
        )
        self.by_pass = [Lanes(self.b, width, machine) for width in widths]
        self.number: ir.Value = I64(0)
        """Of the vector at hand in its block."""

        s = self.slots
        self.count = self.argument(s.head("count"))
        self.kept_stride = self.argument(s.head("kept_stride"))
        offset = self.b.mul(self.fn.args[3], self.argument(s.head("scratch_stride")))
        scratch = self.b.inttoptr(self.argument(s.head("scratch")), PTR)
        self.scratch = self.b.gep(scratch, [offset], source_etype=ir.IntType(8))
        """This thread's."""
        operands = range(len(layout.access))
        self.strides = [[self.argument(s.stride(k, d)) for d in range(layout.axes)] for k in operands]

    def moved(self, pointers: Sequence[ir.Value], indices: Sequence[ir.Value], axis: int = 0) -> list[ir.Value]:
        """Pointers moved by ``indices`` along the axes from ``axis`` on."""
        out: list[ir.Value] = []
        for k, pointer in enumerate(pointers):
            if k in self.beside:
                out.append(self.next_to(out, k))
                continue
            for d, index in enumerate(indices):
                pointer = self.lanes.offset(pointer, self.b.mul(index, self.strides[k][axis + d]))
            out.append(pointer)
        return out

    def along(self, pointers: Sequence[ir.Value], v: ir.Value) -> list[ir.Value]:
        """Pointers moved to position ``v`` of the vector axis."""
        out: list[ir.Value] = []
        for k, pointer in enumerate(pointers):
            if k in self.beside:
                out.append(self.next_to(out, k))
                continue
            stride = self.strides[k][-1]
            if self.layout.access[k] == "adjacent":
                stride = I64(self.item_bytes(k))
            out.append(
                pointer if self.layout.access[k] == "same" else self.lanes.offset(pointer, self.b.mul(v, stride))
            )
        return out

    def next_to(self, pointers: Sequence[ir.Value], k: int) -> ir.Value:
        """Where an operand lies that is beside an earlier one, of which the pointers are known."""
        other, distance = self.beside[k]
        return self.lanes.offset(pointers[other], I64(distance))

    def operand(self, k: int) -> Node:
        graph = self.body.graph
        return graph.inputs[k] if k < len(graph.inputs) else graph.outputs[k - len(graph.inputs)]

    def item_bytes(self, k: int) -> int:
        return self.operand(k).dtype.itemsize

    # -- states and row values

    def prepare(self, level: int, pointers: Sequence[ir.Value], mask: ir.Value | None) -> None:
        """Compute the row values that are known before this pass, once for all its points."""
        self.level, self.pointers, self.point_mask = level, pointers, mask
        for node in self.body.graph.nodes:
            row = not self.body.is_full[node] and not node.op.reduces and self.body.level[node] <= level
            if row and node not in self.rows and node not in self.lying:
                self.rows[node] = self.value(node, {})

    def fresh(self, level: int) -> States:
        states: States = []
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

    def overflowed(self, states: States) -> ir.Value | None:
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

    def finish(self, states: States, across: bool) -> None:
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

    def array(self, typ: ir.Type) -> Array:
        """Room for a vector of this type for each of a block's."""
        size = self.lanes.count * element_bytes(typ.element)
        lying = self.variable(ir.ArrayType(ir.IntType(8), self.body.block * size))
        lying.align = 64
        with self.b.goto_entry_block():
            return Array(self.b.inttoptr(self.b.ptrtoint(lying, I64), PTR), size, typ)

    def cell(self, array: Array) -> ir.Value:
        """Where the vector at hand lies."""
        return self.lanes.offset(array.place, self.b.mul(self.number, I64(array.size)))

    def arrays(self, level: int) -> Arrays:
        folds = [FOLDS[node.name](node, narrow=True) for node in self.body.folds(level)]
        return [(fold, [self.array(value.type) for value in fold.start(self.lanes)]) for fold in folds]

    def placed(self, arrays: Arrays) -> States:
        return [(fold, [self.cell(array) for array in lie]) for fold, lie in arrays]

    # -- points

    def point(
        self, level: int, at: At, mask: ir.Value | None, states: States, near: Near = NONE
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


__all__ = ["ELEMENTWISE", "NONE", "Array", "Arrays", "At", "Near", "Points", "States"]
