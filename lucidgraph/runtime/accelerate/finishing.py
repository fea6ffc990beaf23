"""What is done with a product's tiles while they are near: the elementwise kernel that reads it, as its *epilogue*.

A tile of the result goes from registers to the stack; the epilogue's body runs over it row by row, reads its other
operands at the tile's place, and writes what the kernel would have written: the same operations on the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from llvmlite import ir

from ...dtypes import DType
from ...ir import Graph, Node
from ...ir.ops.core import Kernel
from .body import EXPENSIVE_FLOPS, Body
from .machine import Machine
from .points import evaluated
from .values import I64, PTR, Value
from .views import View
from .writing import KernelWriter

_LONG: Final = 24
"""The code of a body of more ops is not written twice."""
_STRIDES: Final = 3
FINISH: Final = ir.FunctionType(ir.VoidType(), [PTR, I64, I64, I64, I64, I64, PTR])
"""An epilogue's code, of which the tile kernel is given the address: one compilation of that serves all."""


@dataclass(frozen=True, slots=True)
class FinishLayout:
    """How operands (inputs, then outputs) move along a row: ``"adjacent"``, ``"same"`` or ``"strided"``; which input is
    the product; the arguments before the operands'."""

    access: tuple[str, ...]
    place: int
    first: int

    @property
    def total(self) -> int:
        return self.first + len(self.access) * (1 + _STRIDES)

    def slot(self, operand: int) -> int:
        """Of an operand's pointer; its strides follow: from product to product, row to row, column to column."""
        return self.first + operand * (1 + _STRIDES)


class Epilogue(NamedTuple):
    """A body over ``views`` of (products, rows, columns), inputs and then outputs; that of the product is ``place``,
    and ``keeps`` says whether it is written as well."""

    body: Body
    views: list[View]
    place: int
    keeps: bool

    def layout(self, first: int) -> FinishLayout:
        inputs = len(self.body.graph.inputs)
        access = []
        for k, view in enumerate(self.views):
            adjacent = view.strides[-1] == view.dtype.itemsize or (view.shape[-1] == 1 and k >= inputs)
            same = view.strides[-1] == 0 and k < inputs
            access.append("adjacent" if adjacent else "same" if same else "strided")
        return FinishLayout(tuple(access), self.place, first)

    @property
    def words(self) -> list[int]:
        """Its arguments, which follow the product's."""
        return [word for view in self.views for word in (0, *view.strides)]

    @property
    def outputs(self) -> list[View]:
        return self.views[len(self.body.graph.inputs) :]

    def replaces(self, others: Sequence[View]) -> dict[int, list[int]]:
        """Of each output the inputs whose places it may take: read there before it is written; not ``others``."""
        read = [v for k, v in enumerate(self.views[: len(self.body.graph.inputs)]) if k != self.place]
        taken = {v.buffer for v in others}
        found = {}
        for out in self.outputs:
            moved = taken | {v.buffer for v in read if not _same_place(v, out)}
            found[out.buffer] = [v.buffer for v in read if _same_place(v, out) and v.buffer not in moved]
        return found


def _same_place(x: View, y: View) -> bool:
    return (x.strides, x.shape, x.offset, x.dtype.itemsize) == (y.strides, y.shape, y.offset, y.dtype.itemsize)


def followers(graph: Graph, name: str) -> dict[Node, list[Node]]:
    """Of each node of this op what reads it, where a kernel does."""
    found: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for operand in node.operands:
            if operand.name == name:
                found.setdefault(operand, []).append(node)
    return {n: readers for n, readers in found.items() if any(r.op is Kernel for r in readers)}


@final
class Finish(KernelWriter):
    """``void kernel(args, product, row, column, rows, columns, tile)``: an epilogue over a tile on the stack, whose
    rows are ``width`` elements apart."""

    def __init__(
        self, module: ir.Module, body: Body, layout: FinishLayout, dtype: DType, machine: Machine, count: int,
        width: int,
    ) -> None:  # fmt: skip
        super().__init__(module, machine, count, args=FINISH.args)
        self.body, self.layout, self.dtype = body, layout, dtype
        b = self.b
        _, product, row, column, rows, columns, tile = self.fn.args
        operands = range(len(layout.access))
        self.strides = [[self.argument(layout.slot(k) + 1 + d) for d in range(_STRIDES)] for k in operands]
        bases = []
        for k in operands:
            if k != layout.place:
                at = b.inttoptr(self.argument(layout.slot(k)), PTR)
                for index, stride in zip((product, row, column), self.strides[k], strict=True):
                    at = self.lanes.offset(at, b.mul(index, stride))
                bases.append(at)
            else:
                bases.append(tile)
        row_bytes = I64(width * dtype.itemsize)
        nodes = body.graph.nodes
        once = len(nodes) > _LONG or any(n.op.flops_per_element >= EXPENSIVE_FLOPS for n in nodes)
        with self.loop(I64(0), rows) as r:
            at_row = [
                self.lanes.offset(base, b.mul(r, row_bytes if k == layout.place else self.strides[k][1]))
                for k, base in enumerate(bases)
            ]
            self.span(I64(0), columns, lambda v, mask: self.point(at_row, v, mask), once)
        b.ret_void()

    def point(self, at: Sequence[ir.Value], v: ir.Value, mask: ir.Value | None) -> None:
        graph, layout = self.body.graph, self.layout
        places, steps = [], []
        for k, node in enumerate((*graph.inputs, *graph.outputs)):
            access = "adjacent" if k == layout.place else layout.access[k]
            step = I64(node.dtype.itemsize) if access == "adjacent" else self.strides[k][-1]
            places.append(at[k] if access == "same" else self.lanes.offset(at[k], self.b.mul(v, step)))
            steps.append(None if access == "adjacent" else step)
        known: dict[Node, Value] = {}
        for k, node in enumerate(graph.inputs):
            if k != layout.place and layout.access[k] == "same":
                known[node] = self.lanes.load_same(node.dtype, places[k])
            else:
                # A tile's rows are whole vectors.
                known[node] = self.lanes.load(node.dtype, places[k], steps[k], None if k == layout.place else mask)
        evaluated(self.lanes, graph, known)
        for k, node in enumerate(graph.outputs, start=len(graph.inputs)):
            self.lanes.store(known[node], node.dtype, places[k], steps[k], mask)


__all__ = ["FINISH", "Epilogue", "Finish", "FinishLayout", "followers"]
