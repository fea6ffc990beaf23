"""Activations: but for the logistic function they are composites, written out in others."""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import float64
from ...ir import Node
from .writing import Table

__all__ = ["TABLE"]


def _sigmoid(node: Node, x: Sequence[str]) -> str:
    if node.dtype.is_complex:
        return f"1 / (1 + mx.exp(-{x[0]}))"
    return f"{'corrected.sigmoid64' if node.dtype is float64 else 'mx.sigmoid'}({x[0]})"


TABLE: Table = {"sigmoid": _sigmoid}
