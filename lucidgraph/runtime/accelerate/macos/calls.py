"""Kernels whose items are calls of a library function on whole pieces of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from ....ir import Graph, Node
from ..body import Body
from ..domain import Axis, axes_of, collapsed
from ..machine import Machine
from ..values import PTR
from ..views import View
from ..writing import KernelWriter


class CallWriter(KernelWriter):
    """A kernel's function with named arguments, each a 64-bit integer."""

    def __init__(self, machine: Machine, words: Sequence[str]) -> None:
        self.module = ir.Module(name="calls")
        super().__init__(self.module, machine, 1)
        self.words = {name: self.argument(k) for k, name in enumerate(words)}

    def pointer(self, name: str, moved: ir.Value | None = None) -> ir.Value:
        """The pointer in an argument, moved by so many bytes."""
        pointer = self.b.inttoptr(self.words[name], PTR)
        return pointer if moved is None else self.lanes.offset(pointer, moved)

    def each(self, call: Callable[[ir.Value], None]) -> ir.Module:
        """The module, with ``call`` made for every item."""
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            call(item)
        self.b.ret_void()
        return self.module


def single(graph: Graph) -> Node | None:
    """The body's only op; None where it has several."""
    return graph.nodes[0] if len(graph.nodes) == 1 and len(graph.outputs) == 1 else None


def loops_of(node: Node, views: Sequence[View], graph: Graph) -> list[Axis]:
    """The loops of a body of one op over these views, as few as possible."""
    full = node.operands[0].shape
    return collapsed(axes_of(Body(graph, full), full, node.attrs["axis"] if node.op.reduces else (), views))


def words_of(names: Sequence[str], values: dict[str, int]) -> list[int]:
    return [values.get(name, 0) for name in names]


__all__ = ["CallWriter", "loops_of", "single", "words_of"]
