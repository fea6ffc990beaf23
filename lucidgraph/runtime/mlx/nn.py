"""Composites that MLX has kernels for. Where the kernel's accuracy or meaning is not ours they are written out."""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import float64
from ...ir import Node
from .writing import Table

__all__ = ["TABLE"]


def _softmax(node: Node, x: Sequence[str]) -> str | None:
    """In float32, as ``precise`` says; MLX's float64 exp is float32's, so float64 is written out."""
    if not node.dtype.is_floating or node.dtype is float64:
        return None
    return f"mx.softmax({x[0]}, axis={node.attrs['axis']}, precise=True)"


TABLE: Table = {"softmax": _softmax}
