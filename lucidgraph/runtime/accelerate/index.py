"""Chapter index: gathers and scatters, writes to slices, padding, joining.

Indices are read as int64; a negative one counts from the end. The first one outside its axis is reported through the
plan's stop words, and nothing is read or written for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, prod
from typing import Any, Final, NamedTuple, final

import numpy as np
from llvmlite import ir

from ... import dtypes
from ...dtypes import DType
from ...ir import Graph, Node, TensorType
from ...ir.op import get
from ...ir.ops.core import Input, StopGradientBackward
from ...ir.types import Shape
from .arithmetic import extremum
from .commands import STOP
from .gathered import INDICES
from .machine import Machine
from .pieces import boxes_around
from .placing import joined, ones, padded
from .plan import Planner, Rule, single
from .values import I32, I64, PTR, Lanes, Pair, Value
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
JOINS: Final = {
    "scatter_add": "add", "scatter_add_along_axis": "add", "scatter_max": "maximum", "scatter_min": "minimum",
}  # fmt: skip
"""The ops that combine the targets of several parts."""
_SPLIT_POINTS: Final = 1 << 14
_MANY: Final = 4
"""How many times more updates than there are elements are worth a target for each thread."""
_SEVERAL: Final = 4
_NEAR: Final = 1 << 13
"""The bytes of a target of which the nearest cache holds several."""

WORDS: Final = (
    "axis", "count", "inner", "pieces", "step", "parts", "part", "target", "u_outer", "u_count", "u_inner", "number",
    "stop", "indices", "updates", "private", "x",
)  # fmt: skip
"""Sizes: of the axis that is indexed, of the indices along it, and of what lies within; into how many pieces the latter
is cut, and their size; into how many parts the indices are, and their size; bytes of the target; bytes by which updates
move; pointers, ``private`` being the targets of all parts but the first."""


@final
class _Scattering(KernelWriter):
    """x[o, i_j, :] = combine(that, updates[o, j, :]) for every j in order, over x (outer, axis, inner). Indices are
    (count,), or, where they go ``along``, (outer, count, inner). Items are (o, piece of inner, part of the indices)."""

    def __init__(self, dtype: DType, facts: _Facts, combine: Combine, machine: Machine) -> None:
        self.module = ir.Module(name="scatter")
        super().__init__(self.module, machine, machine.lanes)
        self.dtype, self.facts, self.combine = dtype, facts, combine
        self.single = Lanes(self.b, 1, machine)
        self.w = {name: self.argument(k) for k, name in enumerate(WORDS)}
        self.pointers = {
            name: self.b.inttoptr(self.w[name], PTR) for name in ("stop", "indices", "updates", "private", "x")
        }
        self.size = I64(dtype.itemsize)

    def place(self, number: ir.Value, use: Callable[[ir.Value], None]) -> None:
        """``use`` the index in place ``number``, counted from 0; report it where it is out of range."""
        b = self.b
        typ = I32 if self.facts.narrow else I64
        given = b.load(b.gep(self.pointers["indices"], [number], source_etype=typ), typ=typ)
        if self.facts.narrow:
            given = b.sext(given, I64)
        index = b.select(b.icmp_signed("<", given, I64(0)), b.add(given, self.w["axis"]), given)
        with b.if_else(b.icmp_unsigned("<", index, self.w["axis"]), likely=True) as (inside, outside):
            with inside:
                use(index)
            with outside:
                b.store(given, b.gep(self.pointers["stop"], [I64(1)], source_etype=I64))
                b.store(self.w["number"], self.pointers["stop"])

    def emit(self) -> ir.Module:
        b, w, facts = self.b, self.w, self.facts
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            rest, part = b.sdiv(item, w["parts"]), b.srem(item, w["parts"])
            outer, piece = b.sdiv(rest, w["pieces"]), b.srem(rest, w["pieces"])
            begin = b.mul(part, w["part"])
            end = self.smaller(b.add(begin, w["part"]), w["count"])
            start = b.mul(piece, w["step"])
            stop = self.smaller(b.add(start, w["step"]), w["inner"])
            targets = [self.target(b.add(b.mul(part, I64(facts.several)), I64(k))) for k in range(facts.several)]
            x = targets[0]
            rows = b.mul(outer, w["axis"])
            updates = self.lanes.offset(self.pointers["updates"], b.mul(outer, w["u_outer"]))
            if facts.several > 1:
                whole = b.add(begin, b.and_(b.sub(end, begin), I64(-facts.several)))
                with self.loop(begin, whole, facts.several) as j:
                    for k, own in enumerate(targets):
                        number = b.add(j, I64(k))
                        source = self.lanes.offset(updates, b.mul(number, w["u_count"]))

                        def into(index: ir.Value, own: ir.Value = own, source: ir.Value = source) -> None:
                            at = self.lanes.offset(own, b.mul(index, self.size))
                            self.combined(self.single, at, source, I64(0), None)

                        self.place(number, into)
                begin = whole
            with self.loop(begin, end) as j:
                source = self.lanes.offset(updates, b.mul(j, w["u_count"]))
                number = b.mul(b.add(b.mul(outer, w["count"]), j), w["inner"])

                def one(index: ir.Value, k: ir.Value, source: ir.Value = source) -> None:
                    at = b.add(b.mul(b.add(rows, index), w["inner"]), k)
                    self.combined(self.single, self.lanes.offset(x, b.mul(at, self.size)), source, k, None)

                if facts.along:
                    with self.loop(start, stop) as k:
                        self.place(b.add(number, k), lambda index, k=k, one=one: one(index, k))  # type: ignore[misc]
                elif facts.single:
                    self.place(j, lambda index, one=one: one(index, I64(0)))  # type: ignore[misc]
                else:

                    def row(index: ir.Value, source: ir.Value = source) -> None:
                        line = self.lanes.offset(x, b.mul(b.mul(b.add(rows, index), w["inner"]), self.size))
                        self.span(start, stop, lambda v, mask: self.combined(
                            self.lanes, self.lanes.offset(line, b.mul(v, self.size)), source, v, mask))  # fmt: skip

                    self.place(j, row)
        b.ret_void()
        return self.module

    def target(self, number: ir.Value) -> ir.Value:
        """The result, or one of those that are combined with it afterwards."""
        b = self.b
        own = self.lanes.offset(self.pointers["private"], b.mul(b.sub(number, I64(1)), self.w["target"]))
        return b.select(b.icmp_signed("==", number, I64(0)), self.pointers["x"], own)

    def combined(
        self, lanes: Lanes, place: ir.Value, source: ir.Value, v: ir.Value, mask: ir.Value | None
    ) -> None:
        """Take the updates at ``v`` of a row into the elements at ``place``."""
        if self.facts.access == "same":
            new = lanes.load_same(self.dtype, source)
        elif self.facts.access == "adjacent":
            new = lanes.load(self.dtype, lanes.offset(source, self.b.mul(v, self.size)), None, mask)
        else:
            stride = self.w["u_inner"]
            new = lanes.load(self.dtype, lanes.offset(source, self.b.mul(v, stride)), stride, mask)
        old = lanes.load(self.dtype, place, None, mask)
        lanes.store(self.combine(lanes, old, new, self.dtype), self.dtype, place, None, mask)


class _Facts(NamedTuple):
    """What of a scatter is fixed in its code: whether indices go along the other axes, whether a row is one element,
    whether indices have 32 bits, how updates move along a row, and how many targets are taken in turn: one update then
    need not wait for the one before it, if that goes to the same place."""

    along: bool
    single: bool
    narrow: bool
    access: str
    several: int


def _sides(shape: Shape, axis: int) -> tuple[int, int, int]:
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


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
    out = planner.temporary(node.shape, dtype)
    planner.copy(x, out)
    if out.size and updates.size:
        _scattered(planner, node, along, updates, out)
    return planner.cast(out, node.dtype)


def _scattered(planner: Planner, node: Node, along: bool, updates: View, out: View) -> None:
    """The updates into ``out``."""
    dtype = out.dtype
    indices = planner.view(node.operands[1])
    if indices.dtype not in INDICES:  # uint64 beyond the range of int64 becomes negative, and so out of range
        indices = planner.cast(indices, dtypes.int64)
    indices = planner.contiguous(indices)
    outer, axis, inner = _sides(node.shape, node.attrs["axis"])
    count = indices.shape[node.attrs["axis"]] if along else indices.size
    shape = (outer, count, inner)
    seen = updates.reshaped(shape) or planner.contiguous(updates).reshaped(shape)
    assert seen is not None
    threads, lanes = planner.threads, planner.machine.lanes
    # Threads take parts of the updates, with a target each, where the targets are small beside; else columns.
    parts = pieces = several = 1
    if outer < threads and seen.size >= max(_SPLIT_POINTS, _MANY * out.size):
        parts = min(threads, count)
    elif outer < threads:
        pieces = max(min(inner // lanes, threads), 1)
        if pieces == 1 and seen.size >= max(_SPLIT_POINTS, out.size // 2):
            parts = min(threads, count)
    if outer == inner == 1 and out.nbytes <= _NEAR and seen.size >= _MANY * _SEVERAL * out.size:
        several = _SEVERAL
    step = -(-inner // (pieces * lanes)) * lanes if pieces > 1 else inner
    pieces = -(-inner // step)
    part = -(-count // parts)
    parts = -(-count // part)
    private = out
    if parts * several > 1:
        private = planner.temporary((parts * several - 1, *out.shape), dtype)
        neutral = planner.constant(np.asarray(_neutral(node, dtype)), dtype)
        planner.fill(neutral, private)
    access = "adjacent" if inner == 1 or seen.strides[2] == dtype.itemsize else "strided" if seen.strides[2] else "same"
    facts = _Facts(along, inner == 1, indices.dtype.itemsize == 4, access, several)
    key = f"{node.name} {dtype.name} {tuple(facts)}"
    combine, machine = COMBINE[node.name], planner.machine
    code = planner.code(key, lambda: _Scattering(dtype, facts, combine, machine).emit())
    values = {
        "axis": axis, "count": count, "inner": inner, "pieces": pieces, "step": step, "parts": parts, "part": part,
        "target": out.nbytes, "u_outer": seen.strides[0], "u_count": seen.strides[1], "u_inner": seen.strides[2],
    }  # fmt: skip
    words = [values.get(name, 1) for name in WORDS]
    written = [("private", private), ("x", out)] if private is not out else [("x", out)]
    pointers = [(WORDS.index(name), view) for name, view in [("indices", indices), ("updates", seen), *written]]
    items, cost = outer * pieces * parts, 3 * seen.nbytes
    made = planner.command(node.name, code, words, pointers, items, cost, len(written), node=node)
    made.number = WORDS.index("number")
    made.pointers.append((WORDS.index("stop"), STOP, 0))
    if private is not out:
        made.form = f"into {parts * several} targets"
        _joined_parts(planner, node, private, out)


def _neutral(node: Node, dtype: DType) -> Any:
    """What changes nothing when it is combined."""
    if dtype.is_bool:
        return node.name == "scatter_min"
    if JOINS[node.name] == "add":
        return complex(-0.0, -0.0) if dtype.is_complex else -0.0 if dtype.is_floating else 0
    low, high = (-inf, inf) if dtype.is_floating else dtype.range
    return low if node.name == "scatter_max" else high


def _joined_parts(planner: Planner, node: Node, private: View, out: View) -> None:
    """The targets of all parts in one."""
    t = TensorType(out.shape, out.dtype)
    inputs = [Node(Input, (), {}, (t,)) for _ in range(private.shape[0] + 1)]
    nodes: list[Node] = []
    total = inputs[0]
    for other in inputs[1:]:
        total = Node(get(JOINS[node.name]), (total, other), {}, (t,))
        nodes.append(total)
    size = out.nbytes
    own = [replace(out, buffer=private.buffer, offset=private.offset + k * size) for k in range(private.shape[0])]
    planner.fused(Graph(inputs, nodes, [total], "explicit"), [out, *own], [out])


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
