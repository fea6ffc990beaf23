"""Attention, for which MLX has a kernel.

As with softmax, the CPU adds long rows inaccurately and has no exp in float64: those are written out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import float64
from ...ir import Node
from .corrected import LONG, adds_in_trees
from .writing import Table

__all__ = ["TABLE", "TAKES"]


def _attention(node: Node, x: Sequence[str]) -> str | None:
    queries, keys = node.operands[0].shape[2], node.operands[1].shape[2]
    causal = node.attrs["causal"]
    if node.dtype is float64 or not keys or not (keys <= LONG or adds_in_trees()):
        return None
    if causal and (len(x) > 3 or queries > keys):
        return None
    mask = "'causal'" if causal else x[3] if len(x) > 3 else None
    return f"corrected.attention({x[0]}, {x[1]}, {x[2]}, {node.attrs['scale']}, {mask})"


TABLE: Table = {"scaled_dot_product_attention": _attention}
TAKES = frozenset(TABLE)
