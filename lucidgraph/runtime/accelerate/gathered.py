"""Elementwise kernels that read through indices: what ``take`` would copy is read where it lies.

A gathered operand has no stride along the axes of its indices; there the kernel looks up an index, checks it, and moves
by the stride of the axis that was indexed. Vectors lie along the last axis, which no index has. The first index outside
is reported through the plan's stop words, and nothing is read for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final, NamedTuple, final

from llvmlite import ir

from ... import dtypes
from ...ir import Graph, Node
from ...ir.ops.core import Constant, Kernel
from ...ir.types import Shape
from .body import Body
from .loops import ELEMENTWISE
from .machine import Machine
from .values import I1, I32, I64, PTR, Value
from .views import View
from .writing import KernelWriter

_NARROW: Final = 8
"""A row with fewer elements than this is not worth an index and a loop."""


class Gathered(NamedTuple):
    """``source`` over the domain, with stride 0 where ``indices``, over it as well, move; ``step`` bytes an index,
    which is one of ``size``."""

    source: View
    indices: View
    step: int
    size: int


def gathered(node: Node, x: View, indices: View) -> Gathered:
    """What a ``take`` reads."""
    axis, count = node.attrs["axis"], len(indices.shape)
    none = (0,) * count
    source = replace(x, shape=node.shape, strides=(*x.strides[:axis], *none, *x.strides[axis + 1 :]))
    around = (0,) * axis, (0,) * (len(x.shape) - axis - 1)
    spread = replace(indices, shape=node.shape, strides=(*around[0], *indices.strides, *around[1]))
    return Gathered(source, spread, x.strides[axis], x.shape[axis])


def lazy(graph: Graph) -> set[Node]:
    """The ``take`` nodes that nothing but elementwise kernels reads, in rows long enough."""
    found = {n for n in graph.nodes if n.name == "take" and _fits(n)}
    for node in graph.nodes:
        whole = node.op is Kernel and not any(n.op.reduces for n in node.attrs["body"].nodes)
        full = Kernel.domain(node.attrs["body"])[0] if whole else ()
        for operand in node.operands:
            if operand in found and not (whole and operand.shape == full):
                found.discard(operand)
    return found.difference(graph.outputs)


def _fits(node: Node) -> bool:
    x, axis = node.operands[0], node.attrs["axis"]
    return axis < len(x.shape) - 1 and x.shape[-1] >= _NARROW and node.type.size > 0 and x.type.size > 0


@dataclass(frozen=True, slots=True)
class GatherLayout:
    """``outer`` axes beside the vectors'; how each operand moves along these; the inputs that have indices, and whether
    those have 32 bits."""

    outer: int
    access: tuple[str, ...]
    narrow: tuple[tuple[int, bool], ...]


@final
class _Slots:
    HEAD: Final = ("vector", "number", "stop")

    def __init__(self, layout: GatherLayout) -> None:
        self.sizes = len(self.HEAD)
        self.operands = len(layout.access) + len(layout.narrow)
        self.axes = layout.outer + 1
        self.pointers = self.sizes + layout.outer
        self.strides = self.pointers + self.operands
        self.bounds = self.strides + self.operands * self.axes
        self.total = self.bounds + 2 * len(layout.narrow)

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


def arguments(full: Shape, inputs: Sequence[View | Gathered], outputs: Sequence[View]) -> Arguments:
    """What a kernel over ``inputs`` is given."""
    sources = [v.source if isinstance(v, Gathered) else v for v in inputs]
    reads = [(k, v) for k, v in enumerate(inputs) if isinstance(v, Gathered)]
    views = [*sources, *outputs]
    access = tuple(
        "same" if not v.strides[-1] and k < len(inputs) else
        "adjacent" if v.strides[-1] == v.dtype.itemsize else "strided" for k, v in enumerate(views)
    )  # fmt: skip
    narrow = tuple((k, v.indices.dtype.itemsize == 4) for k, v in reads)
    layout = GatherLayout(len(full) - 1, access, narrow)
    slots = _Slots(layout)
    words = [0] * slots.total
    words[0] = full[-1]
    words[slots.sizes : slots.pointers] = full[:-1]
    every = [*views, *(v.indices for _, v in reads)]
    for operand, view in enumerate(every):
        for axis, stride in enumerate(view.strides):
            words[slots.stride(operand, axis)] = stride
    for k, (_, v) in enumerate(reads):
        words[slots.bounds + 2 * k : slots.bounds + 2 * k + 2] = v.step, v.size
    first = len(sources)
    order = [*range(first), *range(len(views), len(every)), *range(first, len(views))]  # what is written comes last
    pointers = [(slots.pointers + k, every[k]) for k in order]
    number, stop = (slots.HEAD.index(name) for name in ("number", "stop"))
    return Arguments(layout, words, pointers, number, stop, prod(full[:-1]))


def build(body: Body, layout: GatherLayout, machine: Machine) -> ir.Module:
    """The module with the kernel's function: items are rows."""
    module = ir.Module(name="gathered")
    _Gathering(body, layout, machine, module).emit()
    return module


@final
class _Gathering(KernelWriter):
    def __init__(self, body: Body, layout: GatherLayout, machine: Machine, module: ir.Module) -> None:
        super().__init__(module, machine, machine.lanes)
        self.body = body
        self.layout = layout
        self.slots = _Slots(layout)

    def emit(self) -> None:
        b, s = self.b, self.slots
        vector, number, stop = (self.argument(k) for k in range(len(s.HEAD)))
        sizes = [self.argument(s.sizes + k) for k in range(self.layout.outer)]
        self.strides = [[self.argument(s.stride(k, d)) for d in range(s.axes)] for k in range(s.operands)]
        bases = [b.inttoptr(self.argument(s.pointers + k), PTR) for k in range(s.operands)]
        bounds = [self.argument(s.bounds + k) for k in range(2 * len(self.layout.narrow))]
        stop = b.inttoptr(stop, PTR)
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            row, indices = item, list[ir.Value]()
            for size in reversed(sizes):
                indices.insert(0, b.srem(row, size))
                row = b.sdiv(row, size)
            at = []
            for k, pointer in enumerate(bases):
                for d, index in enumerate(indices):
                    pointer = self.lanes.offset(pointer, b.mul(index, self.strides[k][d]))
                at.append(pointer)
            right: ir.Value = I1(1)
            wrong: ir.Value = I64(0)
            for k, (operand, narrow) in enumerate(self.layout.narrow):
                step, size = bounds[2 * k : 2 * k + 2]
                place = at[len(self.layout.access) + k]
                given = b.sext(b.load(place, typ=I32), I64) if narrow else b.load(place, typ=I64)
                index = b.select(b.icmp_signed("<", given, I64(0)), b.add(given, size), given)
                inside = b.icmp_unsigned("<", index, size)
                wrong = b.select(b.and_(right, b.not_(inside)), given, wrong)
                right = b.and_(right, inside)
                at[operand] = self.lanes.offset(at[operand], b.mul(index, step))
            with b.if_else(right, likely=True) as (then, otherwise):
                with then:
                    self.span(I64(0), vector, lambda v, mask: self.point(at, v, mask))
                with otherwise:
                    b.store(wrong, b.gep(stop, [I64(1)], source_etype=I64))
                    b.store(number, stop)
        b.ret_void()

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
            if self.layout.access[k] == "same":
                known[node] = self.lanes.load_same(node.dtype, places[k])
            else:
                known[node] = self.lanes.load(node.dtype, places[k], self.stride(k), mask)
        for node in graph.nodes:
            if node.op is Constant:
                known[node] = self.lanes.number(node.attrs["value"], node.dtype)
            else:
                args = [known[o] for o in node.operands]
                known[node] = args[0] if node.op.view else ELEMENTWISE[node.name](self.lanes, node, args)
        for k, node in enumerate(graph.outputs, start=len(graph.inputs)):
            self.lanes.store(known[node], node.dtype, places[k], self.stride(k), mask)

    def stride(self, k: int) -> ir.Value | None:
        return None if self.layout.access[k] == "adjacent" else self.strides[k][-1]


INDICES: Final = (dtypes.int32, dtypes.int64)
"""The dtypes that indices are read in."""

__all__ = ["INDICES", "Arguments", "GatherLayout", "Gathered", "arguments", "build", "gathered", "lazy"]
