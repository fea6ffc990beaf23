"""Arrays out of nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...ir import Node
from .writing import Table, dtype_text, is_integral

__all__ = ["TABLE"]

_EXACT_BELOW: Final = {"float32": 2**24, "float64": 2**53}


def _arange(node: Node, x: Sequence[str]) -> str | None:
    """MLX's own where every element is a whole number it holds exactly; others are computed by NumPy beforehand."""
    start, step, size = node.attrs["start"], node.attrs["step"], node.attrs["size"]
    if not (is_integral(start) and is_integral(step)):
        return None
    largest = max(abs(start), abs(start + step * size))
    if node.dtype.is_integer:
        if largest >= 2**63:
            return None
        text, exact = f"mx.arange({size}, dtype=mx.int64)", "mx.int64"
    elif node.dtype.is_floating and largest < _EXACT_BELOW.get(node.dtype.name, 0):
        text, exact = f"mx.arange({size}, dtype={dtype_text(node.dtype)})", dtype_text(node.dtype)
    else:
        return None
    if step != 1:
        text = f"{text} * {int(step)}"
    if start != 0:
        text = f"{text} + {int(start)}"
    return text if exact == dtype_text(node.dtype) else f"({text}).astype({dtype_text(node.dtype)})"


TABLE: Table = {"arange": _arange}
