"""Reading and writing by index. Indices outside an axis are clamped to its ends: MLX itself reads elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import Node
from .shape import index_text
from .writing import Entry, Table, dtype_text

__all__ = ["TABLE"]


def _index(node: Node, name: str) -> str:
    """The text of the indices (operand 1) into ``axis`` of operand 0."""
    return f"corrected.index({name}, {node.operands[0].shape[node.attrs['axis']]})"


def _take(node: Node, x: Sequence[str]) -> str:
    return f"mx.take({x[0]}, {_index(node, x[1])}, axis={node.attrs['axis']})"


def _take_along_axis(node: Node, x: Sequence[str]) -> str:
    return f"mx.take_along_axis({x[0]}, {_index(node, x[1])}, axis={node.attrs['axis']})"


def _added(node: Node, places: str, x: Sequence[str]) -> str:
    """``x`` plus the updates at ``places``: in float32 for half precision, rounded once."""
    if node.operands[2].type.size == 0:
        return x[0]
    if node.dtype.is_half:
        return f"{x[0]}.astype(mx.float32).at[{places}].add({x[2]}.astype(mx.float32)).astype({dtype_text(node.dtype)})"
    return f"{x[0]}.at[{places}].add({x[2]})"


def _scatter_add(node: Node, x: Sequence[str]) -> str:
    return _added(node, ":, " * node.attrs["axis"] + _index(node, x[1]), x)


def _scatter_extreme(method: str) -> Entry:
    def write(node: Node, x: Sequence[str]) -> str:
        if node.operands[2].type.size == 0:
            return x[0]
        places = f"at[{':, ' * node.attrs['axis']}{_index(node, x[1])}]"
        return f"corrected.scatter_{method}({x[0]}, {places}, {x[2]})"

    return write


def _scatter_add_along_axis(node: Node, x: Sequence[str]) -> str:
    axis = node.attrs["axis"]
    return _added(node, f"corrected.along({x[1]}, {axis}, {node.operands[0].shape[axis]})", x)


def _slice_update(node: Node, x: Sequence[str]) -> str:
    whole, part = (operand.type for operand in node.operands[:2])
    if part.size == 0:
        return x[0]
    text = index_text(whole.shape, node.attrs["start"], node.attrs["stop"], node.attrs["step"])
    if not text:
        return x[1]
    return f"corrected.updated({x[0]}, at[{text}], {x[1]})"


TABLE: Table = {
    "take": _take,
    "take_along_axis": _take_along_axis,
    "scatter_add": _scatter_add,
    "scatter_max": _scatter_extreme("max"),
    "scatter_min": _scatter_extreme("min"),
    "scatter_add_along_axis": _scatter_add_along_axis,
    "slice_update": _slice_update,
}
