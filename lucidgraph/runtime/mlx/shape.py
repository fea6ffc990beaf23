"""Ops that move or repeat elements."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import Node
from ...ir.ops.shape import PadBackward, python_slice
from ...ir.types import Shape
from .writing import Table, dtype_text, number_text

__all__ = ["TABLE", "index_text"]


def index_text(shape: Shape, start: Sequence[int], stop: Sequence[int], step: Sequence[int]) -> str:
    """The subscript of normal-form slices: ``"1:3, ::-1"``.

    >>> index_text((4, 3, 5), (1, 2, 0), (3, -1, 5), (1, -1, 1))
    '1:3, ::-1'
    """
    parts = []
    for n, a, b, s in zip(shape, start, stop, step, strict=True):
        if (a, b, s) == (0, n, 1):
            parts.append(":")
        elif (a, b, s) == (n - 1, -1, -1):
            parts.append("::-1")
        else:
            end = python_slice(a, b, s).stop
            parts.append(f"{a}:{'' if end is None else end}" + (f":{s}" if s != 1 else ""))
    while parts and parts[-1] == ":":
        parts.pop()
    return ", ".join(parts)


def _broadcast_to(node: Node, x: Sequence[str]) -> str:
    source = node.operands[0]
    if source.name == "constant":
        number = number_text(source.attrs["value"], source.dtype)
        if number is not None:
            return f"mx.full({node.shape}, {number}, {dtype_text(node.dtype)})"
    return f"mx.broadcast_to({x[0]}, {node.shape})"


def _slice(node: Node, x: Sequence[str]) -> str:
    text = index_text(node.operands[0].shape, node.attrs["start"], node.attrs["stop"], node.attrs["step"])
    return f"{x[0]}[{text}]" if text else x[0]


def _pad(node: Node, x: Sequence[str]) -> str:
    low, high, interior = node.attrs["low"], node.attrs["high"], node.attrs["interior"]
    if not any(interior):
        if not any((*low, *high)):
            return x[0]
        return f"mx.pad({x[0]}, {list(zip(low, high, strict=True))}, constant_values={x[1]})"
    inner = node.operands[0]
    blank = f"mx.broadcast_to({x[1]}, {node.shape})"
    if inner.type.size == 0:
        return blank
    places = ", ".join(f"{p.start}:{p.stop}:{p.step}" for p in PadBackward.places(inner.shape, low, interior))
    return f"corrected.updated({blank}, at[{places}], {x[0]})"


TABLE: Table = {
    "broadcast_to": _broadcast_to,
    "reshape": lambda node, x: f"{x[0]}.reshape({node.shape})",
    "expand_dims": lambda node, x: f"mx.expand_dims({x[0]}, {node.attrs['axis']})" if node.attrs["axis"] else x[0],
    "squeeze": lambda node, x: f"mx.squeeze({x[0]}, {node.attrs['axis']})" if node.attrs["axis"] else x[0],
    "permute_dims": lambda node, x: f"mx.transpose({x[0]}, {node.attrs['axes']})" if node.shape else x[0],
    "slice": _slice,
    "pad": _pad,
    "concat": lambda node, x: f"mx.concatenate([{', '.join(x)}], axis={node.attrs['axis']})",
}
