"""Chapter index: gathers and scatters, writes to slices, padding, joining.

Indices are read as int64; a negative one counts from the end. The first one outside its axis is reported through the
plan's stop words, and nothing is read or written for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Final

import numpy as np
from llvmlite import ir

from ... import dtypes
from ...dtypes import DType
from ...ir import Node
from ...ir.ops.core import StopGradientBackward
from ...ir.types import Shape
from .arithmetic import extremum
from .commands import STOP
from .machine import Machine
from .pieces import boxes_around
from .placing import joined, ones, padded
from .plan import Planner, Rule, single
from .values import I64, PTR, Lanes, Pair, Value
from .views import View
from .writing import KernelWriter

Combine = Callable[[Lanes, Value, Value, DType], Value]


def _sum(lanes: Lanes, x: Value, y: Value, dtype: DType) -> Value:
    if isinstance(x, Pair) and isinstance(y, Pair):
        return Pair(lanes.b.fadd(x.re, y.re), lanes.b.fadd(x.im, y.im))
    if dtype.is_bool:
        return lanes.b.or_(x, y)
    return (lanes.b.fadd if dtype.is_floating else lanes.b.add)(x, y)


def _largest(lanes: Lanes, x: Value, y: Value, dtype: DType) -> Value:
    return lanes.b.or_(x, y) if dtype.is_bool else extremum(lanes, x, y, dtype.kind, largest=True)


def _smallest(lanes: Lanes, x: Value, y: Value, dtype: DType) -> Value:
    return lanes.b.and_(x, y) if dtype.is_bool else extremum(lanes, x, y, dtype.kind, largest=False)


COMBINE: Final[dict[str, Combine]] = {
    "scatter_add": _sum, "scatter_max": _largest, "scatter_min": _smallest, "scatter_add_along_axis": _sum,
}  # fmt: skip

# x: (outer, axis, inner); indices: (count,) or (outer, count, inner); updates or result: (outer, count, inner).
WORDS: Final = ("axis", "count", "inner", "pieces", "step", "number", "stop", "indices", "x", "y")


class _Indexed(KernelWriter):
    """Loops over places named by indices."""

    def __init__(self, dtype: DType, along: bool, machine: Machine) -> None:
        self.module = ir.Module(name="index")
        super().__init__(self.module, machine, machine.lanes)
        self.dtype = dtype
        self.along = along
        self.w = {name: self.argument(k) for k, name in enumerate(WORDS)}
        self.pointers = {name: self.b.inttoptr(self.w[name], PTR) for name in ("stop", "indices", "x", "y")}
        self.size = I64(dtype.itemsize)

    def place(self, number: ir.Value, use: Callable[[ir.Value], None]) -> None:
        """``use`` the index in place ``number``, counted from 0; report it where it is out of range."""
        b = self.b
        given = b.load(b.gep(self.pointers["indices"], [number], source_etype=I64), typ=I64)
        index = b.select(b.icmp_signed("<", given, I64(0)), b.add(given, self.w["axis"]), given)
        with b.if_else(b.icmp_unsigned("<", index, self.w["axis"]), likely=True) as (inside, outside):
            with inside:
                use(index)
            with outside:
                b.store(given, b.gep(self.pointers["stop"], [I64(1)], source_etype=I64))
                b.store(self.w["number"], self.pointers["stop"])

    def at(self, name: str, element: ir.Value) -> ir.Value:
        return self.lanes.offset(self.pointers[name], self.b.mul(element, self.size))

    def scatter(self, combine: Combine) -> ir.Module:
        """x[o, i_j, :] = combine(that, y[o, j, :]) for every j in order; items are (o, piece of the inner axis)."""
        b, w = self.b, self.w
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            outer, piece = b.sdiv(item, w["pieces"]), b.srem(item, w["pieces"])
            start = b.mul(piece, w["step"])
            stop = self.smaller(b.add(start, w["step"]), w["inner"])
            rows, first = b.mul(outer, w["axis"]), b.mul(outer, w["count"])
            with self.loop(I64(0), w["count"]) as j:
                source = b.mul(b.add(first, j), w["inner"])

                def into(index: ir.Value, source: ir.Value = source) -> None:
                    target = b.mul(b.add(rows, index), w["inner"])
                    self.span(start, stop, lambda v, mask: self.combined(
                        self.lanes, combine, b.add(target, v), b.add(source, v), mask))  # fmt: skip

                if self.along:
                    with self.loop(start, stop) as k:
                        self.place(b.add(source, k), lambda i, k=k, source=source: self.combined(  # type: ignore[misc]
                            Lanes(b, 1, self.machine), combine, b.add(b.mul(b.add(rows, i), w["inner"]), k),
                            b.add(source, k), None))  # fmt: skip
                else:
                    self.place(j, into)
        b.ret_void()
        return self.module

    def combined(
        self, lanes: Lanes, combine: Combine, target: ir.Value, source: ir.Value, mask: ir.Value | None
    ) -> None:
        place = self.at("x", target)
        old = lanes.load(self.dtype, place, None, mask)
        new = lanes.load(self.dtype, self.at("y", source), None, mask)
        lanes.store(combine(lanes, old, new, self.dtype), self.dtype, place, None, mask)


def _sides(shape: Shape, axis: int) -> tuple[int, int, int]:
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _indices(planner: Planner, node: Node) -> View:
    """The indices as int64, in order; uint64 beyond its range becomes negative, and so out of range."""
    return planner.contiguous(planner.cast(planner.view(node.operands[1]), dtypes.int64))


def gather(planner: Planner, node: Node) -> View:
    out = planner.temporary(node.shape, node.dtype)
    if out.size:
        same = single(StopGradientBackward, node.shape, node.dtype, {})
        planner.through_indices(same, [planner.taken(node)], [out], node)
    return out


def scatter(planner: Planner, node: Node) -> View:
    along = node.name == "scatter_add_along_axis"
    dtype = dtypes.float32 if node.dtype.is_half else node.dtype
    x, updates = (planner.cast(planner.view(node.operands[k]), dtype) for k in (0, 2))
    indices = _indices(planner, node)
    updates = planner.contiguous(updates)
    out = planner.temporary(node.shape, dtype)
    planner.copy(x, out)
    if out.size and updates.size:
        outer, axis, inner = _sides(node.shape, node.attrs["axis"])
        count = indices.shape[node.attrs["axis"]] if along else indices.size
        pieces = 1 if outer >= planner.threads else min(-(-inner // 64), planner.threads)
        step = -(-inner // pieces)
        writer = partial(_Indexed, dtype, along, planner.machine)
        code = planner.code(f"{node.name} {dtype.name}", lambda: writer().scatter(COMBINE[node.name]))
        values = {"axis": axis, "count": count, "inner": inner, "pieces": pieces, "step": step}
        _command(planner, node, code, values, indices, out, updates, outer * pieces, 3 * updates.nbytes, 0)
    return planner.cast(out, node.dtype)


def _command(
    planner: Planner, node: Node, code: object, values: dict[str, int], indices: View, x: View, y: View, items: int,
    cost: int, writes: int,
) -> None:  # fmt: skip
    words = [values.get(name, 1) for name in WORDS]
    pointers = [(WORDS.index(name), view) for name, view in (("indices", indices), ("x", x), ("y", y))]
    made = planner.command(node.name, code, words, pointers, items, cost, writes, node=node)  # type: ignore[arg-type]
    made.number = WORDS.index("number")
    made.pointers.append((WORDS.index("stop"), STOP, 0))


def slice_update(planner: Planner, node: Node) -> View:
    x, v = (planner.view(operand) for operand in node.operands)
    out = planner.placing.out(node)
    part = out.sliced(**node.attrs)
    if v.lies_as(part):
        for start, stop in boxes_around(node.shape, node.attrs["start"], node.attrs["stop"]):
            planner.copy(x.sliced(start, stop, ones(start)), out.sliced(start, stop, ones(start)))
    else:
        planner.copy(x, out)
        planner.copy(v, part)
    return out


def pad(planner: Planner, node: Node) -> View:
    x, value = (planner.view(o) for o in node.operands)
    out = planner.placing.out(node)
    if not x.size or any(node.attrs["interior"]):
        planner.fill(value, out)
    else:
        low = node.attrs["low"]
        for start, stop in boxes_around(node.shape, low, tuple(a + n for a, n in zip(low, x.shape, strict=True))):
            planner.fill(value, out.sliced(start, stop, ones(start)))
    if x.size and not x.lies_as(padded(out, node)):
        planner.copy(x, padded(out, node))
    return out


def concat(planner: Planner, node: Node) -> View:
    out = planner.placing.out(node)
    for k, operand in enumerate(node.operands):
        x, part = planner.view(operand), joined(out, node, k)
        if not x.lies_as(part):
            planner.copy(x, part)
    return out


def arange(planner: Planner, node: Node) -> View:
    return planner.constant(np.asarray(node.op.evaluate(**node.attrs)), node.dtype)


OPS: Final[dict[str, Rule]] = {
    "take": gather, "take_along_axis": gather, "scatter_add": scatter, "scatter_max": scatter, "scatter_min": scatter,
    "scatter_add_along_axis": scatter, "slice_update": slice_update, "pad": pad, "concat": concat, "arange": arange,
}  # fmt: skip
