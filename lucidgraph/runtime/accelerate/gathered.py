"""Elementwise kernels that read through indices: what ``take`` would copy is read where it lies.

A gathered operand has no stride along the axes of its indices; there the kernel looks up an index, checks it, and moves
by the stride of the axis that was indexed. Where indices move along the vectors' axis, lanes are read one by one, the
indices of a vector checked at once; else one index serves a whole row. The first index outside is reported through the
plan's stop words, and nothing is read for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final, NamedTuple, final

from llvmlite import ir

from ... import dtypes
from ...dtypes import DType
from ...ir import Graph, Node
from ...ir.ops.core import Kernel
from ...ir.types import Shape
from .body import Body
from .domain import Axis, collapsed
from .machine import Machine
from .points import evaluated
from .values import I1, I32, I64, PTR, Lanes, Pair, Value, element_bytes, memory_type
from .views import View
from .writing import KernelWriter

_CHUNK: Final = 1 << 12
"""How many elements of a long row are one item."""


class Gathered(NamedTuple):
    """``source`` over the domain, with stride 0 where ``indices``, over it as well, move; ``step`` bytes an index,
    which is one of ``size``."""

    source: View
    indices: View
    step: int
    size: int


def gathered(node: Node, x: View, indices: View) -> Gathered:
    """What a ``take`` or ``take_along_axis`` reads."""
    axis = node.attrs["axis"]
    before, after = x.strides[:axis], x.strides[axis + 1 :]
    if node.name == "take_along_axis":
        source, spread = (*before, 0, *after), indices.strides
    else:
        source = (*before, *(0,) * len(indices.shape), *after)
        spread = (*(0,) * len(before), *indices.strides, *(0,) * len(after))
    return Gathered(
        replace(x, shape=node.shape, strides=source), replace(indices, shape=node.shape, strides=spread),
        x.strides[axis], x.shape[axis],
    )  # fmt: skip


TAKES: Final = ("take", "take_along_axis")


def lazy(graph: Graph) -> set[Node]:
    """The gathers that nothing but elementwise kernels reads; only one, where that looks up every element."""
    found = {n for n in graph.nodes if n.name in TAKES and n.type.size}
    read: set[Node] = set()
    for node in graph.nodes:
        whole = node.op is Kernel and not any(n.op.reduces for n in node.attrs["body"].nodes)
        full = Kernel.domain(node.attrs["body"])[0] if whole else ()
        for operand in node.operands:
            if operand in found:
                again = operand in read and _by_element(operand)
                if again or not (whole and operand.shape == full):
                    found.discard(operand)
                read.add(operand)
    return found.difference(graph.outputs)


def _by_element(node: Node) -> bool:
    return node.name != "take" or node.attrs["axis"] == len(node.operands[0].shape) - 1


class Read(NamedTuple):
    """The indices of an operand: whether they have 32 bits, and how they move along the vectors: ``"same"``,
    ``"adjacent"`` or ``"strided"``."""

    operand: int
    narrow: bool
    access: str


@dataclass(frozen=True, slots=True)
class GatherLayout:
    """``outer`` axes beside the vectors'; how each operand moves along these; the inputs that have indices; the lanes
    of a vector, and whether a row is several items."""

    outer: int
    access: tuple[str, ...]
    reads: tuple[Read, ...]
    lanes: int
    long: bool


@final
class _Slots:
    HEAD: Final = ("vector", "number", "stop", "chunk", "chunks")

    def __init__(self, layout: GatherLayout) -> None:
        self.sizes = len(self.HEAD)
        self.operands = len(layout.access) + len(layout.reads)
        self.axes = layout.outer + 1
        self.pointers = self.sizes + layout.outer
        self.strides = self.pointers + self.operands
        self.bounds = self.strides + self.operands * self.axes
        self.total = self.bounds + 2 * len(layout.reads)

    def stride(self, operand: int, axis: int) -> int:
        return self.strides + operand * self.axes + axis


class Arguments(NamedTuple):
    """A command's words, and its pointers as (slot, view); ``stop`` is the slot of the stop words, ``number`` that of
    what is reported in place of 0."""

    layout: GatherLayout
    words: list[int]
    pointers: list[tuple[int, View]]
    number: int
    stop: int
    items: int


def _access(stride: int, itemsize: int) -> str:
    return "same" if not stride else "adjacent" if stride == itemsize else "strided"


def arguments(
    full: Shape, inputs: Sequence[View | Gathered], outputs: Sequence[View], machine: Machine
) -> Arguments:
    """What a kernel over ``inputs`` is given."""
    sources = [v.source if isinstance(v, Gathered) else v for v in inputs]
    reads = [(k, v) for k, v in enumerate(inputs) if isinstance(v, Gathered)]
    views = [*sources, *outputs]
    every = [*views, *(v.indices for _, v in reads)]
    axes = collapsed([Axis(n, False, tuple(v.strides[k] for v in every)) for k, n in enumerate(full)])
    *outer, vector = axes or [Axis(1, False, tuple(v.dtype.itemsize for v in every))]
    access = [_access(stride, v.dtype.itemsize) for stride, v in zip(vector.strides, every, strict=True)]
    for k in range(len(inputs), len(views)):
        # An output has a place for each element.
        access[k] = "adjacent" if vector.size == 1 or access[k] == "adjacent" else "strided"
    rows = prod(a.size for a in outer)
    lanes = min(machine.lanes, 1 << (vector.size - 1).bit_length())
    long = vector.size > 2 * _CHUNK
    chunk = _CHUNK if long else vector.size
    chunks = -(-vector.size // chunk)
    layout = GatherLayout(
        len(outer), tuple(access[: len(views)]),
        tuple(Read(k, v.indices.dtype.itemsize == 4, access[len(views) + j]) for j, (k, v) in enumerate(reads)),
        lanes, long,
    )  # fmt: skip
    slots = _Slots(layout)
    words = [0] * slots.total
    words[0] = vector.size
    words[slots.HEAD.index("chunk")], words[slots.HEAD.index("chunks")] = chunk, chunks
    words[slots.sizes : slots.pointers] = [a.size for a in outer]
    for axis, a in enumerate((*outer, vector)):
        for operand, stride in enumerate(a.strides):
            words[slots.stride(operand, axis)] = stride
    for k, (_, v) in enumerate(reads):
        words[slots.bounds + 2 * k : slots.bounds + 2 * k + 2] = v.step, v.size
    first = len(sources)
    order = [*range(first), *range(len(views), len(every)), *range(first, len(views))]  # what is written comes last
    pointers = [(slots.pointers + k, every[k]) for k in order]
    number, stop = (slots.HEAD.index(name) for name in ("number", "stop"))
    return Arguments(layout, words, pointers, number, stop, rows * chunks)


def build(body: Body, layout: GatherLayout, machine: Machine) -> ir.Module:
    """The module with the kernel's function: items are rows, or parts of them."""
    module = ir.Module(name="gathered")
    _Gathering(body, layout, machine, module).emit()
    return module


@final
class _Gathering(KernelWriter):
    def __init__(self, body: Body, layout: GatherLayout, machine: Machine, module: ir.Module) -> None:
        super().__init__(module, machine, layout.lanes)
        self.body = body
        self.layout = layout
        self.slots = _Slots(layout)
        self.single = Lanes(self.b, 1, machine)
        self.moving = {
            read.operand: k for k, read in enumerate(layout.reads) if read.access != "same" and layout.lanes > 1
        }
        """The operands whose lanes are read one by one."""

    def emit(self) -> None:
        b, s = self.b, self.slots
        vector, self.number, stop, chunk, chunks = (self.argument(k) for k in range(len(s.HEAD)))
        sizes = [self.argument(s.sizes + k) for k in range(self.layout.outer)]
        self.strides = [[self.argument(s.stride(k, d)) for d in range(s.axes)] for k in range(s.operands)]
        bases = [b.inttoptr(self.argument(s.pointers + k), PTR) for k in range(s.operands)]
        self.bounds = [self.argument(s.bounds + k) for k in range(2 * len(self.layout.reads))]
        self.stop = b.inttoptr(stop, PTR)
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            begin, end = I64(0), vector
            row, indices = item, list[ir.Value]()
            if self.layout.long:
                row = b.sdiv(item, chunks)
                begin = b.mul(b.srem(item, chunks), chunk)
                end = self.smaller(b.add(begin, chunk), vector)
            for size in reversed(sizes[1:]):
                indices.insert(0, b.srem(row, size))
                row = b.sdiv(row, size)
            at = []
            for k, pointer in enumerate(bases):
                for d, index in enumerate([row, *indices] if sizes else []):
                    pointer = self.lanes.offset(pointer, b.mul(index, self.strides[k][d]))
                at.append(pointer)
            right: ir.Value = I1(1)
            wrong: ir.Value = I64(0)
            for k, read in enumerate(self.layout.reads):
                if read.operand not in self.moving:
                    given = self.index(k, at[len(self.layout.access) + k])
                    index, inside = self.placed(k, given)
                    wrong = b.select(b.and_(right, b.not_(inside)), given, wrong)
                    right = b.and_(right, inside)
                    at[read.operand] = self.lanes.offset(at[read.operand], b.mul(index, self.bounds[2 * k]))
            with b.if_else(right, likely=True) as (then, otherwise):
                with then:
                    self.row(at, begin, end)
                with otherwise:
                    self.report(wrong)
        b.ret_void()

    # -- indices

    def index(self, k: int, place: ir.Value) -> ir.Value:
        """An index in memory, as 64 bits."""
        b = self.b
        return b.sext(b.load(place, typ=I32), I64) if self.layout.reads[k].narrow else b.load(place, typ=I64)

    def placed(self, k: int, given: ir.Value) -> tuple[ir.Value, ir.Value]:
        """An index from 0 on, and whether it lies inside."""
        b, size = self.b, self.bounds[2 * k + 1]
        index = b.select(b.icmp_signed("<", given, I64(0)), b.add(given, size), given)
        return index, b.icmp_unsigned("<", index, size)

    def report(self, wrong: ir.Value) -> None:
        self.b.store(wrong, self.b.gep(self.stop, [I64(1)], source_etype=I64))
        self.b.store(self.number, self.stop)

    # -- a row

    def row(self, at: Sequence[ir.Value], begin: ir.Value, end: ir.Value) -> None:
        if not self.moving:
            self.span(begin, end, lambda v, mask: self.point(at, v, mask))
            return
        b, wide = self.b, self.lanes
        whole = b.add(begin, b.and_(b.sub(end, begin), I64(-wide.count)))
        with self.loop(begin, whole, wide.count) as v:
            self.point(at, v, None)
        self.lanes = self.single
        with self.loop(whole, end) as v:
            self.point(at, v, None)
        self.lanes = wide

    def point(self, at: Sequence[ir.Value], v: ir.Value, mask: ir.Value | None) -> None:
        """What is done with one vector."""
        graph = self.body.graph
        places = []
        for k, node in enumerate((*graph.inputs, *graph.outputs)):
            access = self.layout.access[k]
            step = I64(node.dtype.itemsize) if access == "adjacent" else self.strides[k][-1]
            places.append(at[k] if access == "same" else self.lanes.offset(at[k], self.b.mul(v, step)))
        known: dict[Node, Value] = {}
        for k, node in enumerate(graph.inputs):
            if k in self.moving:
                known[node] = self.looked_up(k, node.dtype, places[k], at, v)
            elif self.layout.access[k] == "same":
                known[node] = self.lanes.load_same(node.dtype, places[k])
            else:
                known[node] = self.lanes.load(node.dtype, places[k], self.stride(k), mask)
        evaluated(self.lanes, graph, known)
        for k, node in enumerate(graph.outputs, start=len(graph.inputs)):
            self.lanes.store(known[node], node.dtype, places[k], self.stride(k), mask)

    def looked_up(self, k: int, dtype: DType, place: ir.Value, at: Sequence[ir.Value], v: ir.Value) -> Value:
        """Lanes of an operand, each from where its index says."""
        b, count, number = self.b, self.lanes.count, self.moving[k]
        read, (step, size) = self.layout.reads[number], self.bounds[2 * number : 2 * number + 2]
        operand = len(self.layout.access) + number
        item = 4 if read.narrow else 8
        stride = I64(item) if read.access == "adjacent" else self.strides[operand][-1]
        indices = self.lanes.offset(at[operand], b.mul(v, stride))

        def given(lane: int) -> ir.Value:
            return self.index(number, self.lanes.offset(indices, b.mul(I64(lane), stride)))

        element = memory_type(dtype)
        parts = 2 if dtype.is_complex else 1
        found = [self.variable(self.lanes.vector(element)) for _ in range(parts)]

        def read_all(index_of: Callable[[int], ir.Value]) -> None:
            raws = [ir.Constant(self.lanes.vector(element), ir.Undefined) for _ in range(parts)]
            for lane in range(count):
                moved = self.lanes.offset(place, b.mul(index_of(lane), step))
                if self.layout.access[k] != "same":
                    own = I64(dtype.itemsize) if self.layout.access[k] == "adjacent" else self.strides[k][-1]
                    moved = self.lanes.offset(moved, b.mul(I64(lane), own))
                for part in range(parts):
                    one = b.load(self.lanes.offset(moved, I64(part * element_bytes(element))), typ=element)
                    raws[part] = b.insert_element(raws[part], one, I32(lane))
            for raw, variable in zip(raws, found, strict=True):
                b.store(raw, variable)

        if read.access == "adjacent":
            integer = I32 if read.narrow else I64
            raw = b.load(indices, typ=self.lanes.vector(integer), align=item)
        else:
            integer = I64
            raw = ir.Constant(self.lanes.vector(I64), ir.Undefined)
            for lane in range(count):
                raw = b.insert_element(raw, given(lane), I32(lane))
        if integer == I32:
            # A longer axis has room for every index that is not negative.
            most = I64((1 << 31) - 1)
            bound = b.trunc(b.select(b.icmp_unsigned("<", size, most), size, most), I32)
        else:
            bound = size
        all_inside = self.every(b.icmp_unsigned("<", raw, self.lanes.splat(bound)))
        with b.if_else(all_inside, likely=True) as (then, otherwise):
            with then:
                read_all(given)
            with otherwise:
                wide = b.sext(raw, self.lanes.vector(I64)) if integer == I32 else raw
                last = self.lanes.splat(size)
                index = b.select(b.icmp_signed("<", wide, self.lanes.constant(0, I64)), b.add(wide, last), wide)
                inside = b.icmp_unsigned("<", index, last)
                for lane in range(count):
                    with b.if_then(b.not_(b.extract_element(inside, I32(lane)))):
                        self.report(b.extract_element(wide, I32(lane)))
                index = b.select(inside, index, self.lanes.constant(0, I64))
                read_all(lambda lane: b.extract_element(index, I32(lane)))
        loaded = [b.load(variable, typ=self.lanes.vector(element)) for variable in found]
        return Pair(*loaded) if dtype.is_complex else self.lanes.widened(loaded[0], dtype)

    def every(self, lanes: ir.Value) -> ir.Value:
        """Whether all lanes are true."""
        whole = ir.IntType(self.lanes.count)
        return self.b.icmp_unsigned("==", self.b.bitcast(lanes, whole), ir.Constant(whole, -1))

    def stride(self, k: int) -> ir.Value | None:
        return None if self.layout.access[k] == "adjacent" else self.strides[k][-1]


INDICES: Final = (dtypes.int32, dtypes.int64)
"""The dtypes that indices are read in."""

__all__ = ["INDICES", "Arguments", "GatherLayout", "Gathered", "arguments", "build", "gathered", "lazy"]
