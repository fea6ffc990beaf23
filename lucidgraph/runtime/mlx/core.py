"""Casts and marks. Constants, inputs and captured arrays are written by ``lowering`` itself."""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import float64
from ...ir import Node
from .writing import Table, dtype_text

__all__ = ["TABLE"]


def _cast(node: Node, x: Sequence[str]) -> str:
    have, wanted = node.operands[0].dtype, node.attrs["dtype"]
    if have is wanted:
        return x[0]
    if have is float64 and wanted.is_half:
        return f"corrected.narrow({x[0]}, {dtype_text(wanted)})"
    return f"{x[0]}.astype({dtype_text(wanted)})"


TABLE: Table = {
    "cast": _cast,
    "stop_gradient": "{0}",
    "primal": "{0}",
    "result": lambda node, x: f"{x[0]}[{node.attrs['index']}]",
    "debug_print": "mx.zeros((0,), mx.bool_)",  # ``lowering`` makes its operands results, printed after the run
}
