"""Composites that MLX has kernels for.

On the CPU the kernels add as inaccurately as MLX's sums, so rows of more than 128 elements are written out there; so is
float64, whose exp is float32's in MLX, and what has no elements.
``gelu`` and ``log_softmax`` are written out: MLX composes the one, and x - logsumexp(x) loses digits of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...dtypes import float64
from ...ir import Node
from . import corrected
from .writing import Table

__all__ = ["TABLE", "TAKES"]


def _has_kernel(node: Node, axis: Sequence[int]) -> bool:
    x = node.operands[0].type
    if not x.dtype.is_floating or x.dtype is float64 or not x.size:
        return False
    return corrected.adds_in_trees() or prod(x.shape[k] for k in axis) <= corrected.LONG


def _softmax(node: Node, x: Sequence[str]) -> str | None:
    """Half precision in float32, as ``precise`` says."""
    axis = node.attrs["axis"]
    return f"mx.softmax({x[0]}, axis={axis}, precise=True)" if _has_kernel(node, (axis,)) else None


def _logsumexp(node: Node, x: Sequence[str]) -> str | None:
    axis = node.attrs["axis"]
    if not axis or node.dtype.is_half or not _has_kernel(node, axis):
        return None
    return f"mx.logsumexp({x[0]}, axis={axis}, keepdims={node.attrs['keepdims']})"


def _layer_norm(node: Node, x: Sequence[str]) -> str | None:
    weight, bias = (*x[1:], "None", "None")[:2]
    return f"mx.fast.layer_norm({x[0]}, {weight}, {bias}, {node.attrs['eps']})" if _has_kernel(node, (-1,)) else None


def _rms_norm(node: Node, x: Sequence[str]) -> str | None:
    weight = x[1] if len(x) > 1 else "None"
    return f"mx.fast.rms_norm({x[0]}, {weight}, {node.attrs['eps']})" if _has_kernel(node, (-1,)) else None


TABLE: Table = {"softmax": _softmax, "logsumexp": _logsumexp, "layer_norm": _layer_norm, "rms_norm": _rms_norm}
TAKES = frozenset(TABLE)
