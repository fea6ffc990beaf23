"""Matrix products. ``einsum`` is a composite, written out along its path."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import Node
from .writing import Table

__all__ = ["TABLE"]


def _matmul(node: Node, x: Sequence[str]) -> str:
    if node.operands[0].dtype.is_inexact:
        return f"{x[0]} @ {x[1]}"
    return f"corrected.integer_matmul({x[0]}, {x[1]})"


TABLE: Table = {"matmul": _matmul}
