"""Windows as strided views, their sum, and convolution, for which MLX has kernels but in float64."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import Node
from ...ir.ops.window import WindowsBackward
from .writing import Table, half_through_float32

__all__ = ["TABLE"]


def _windows(node: Node, x: Sequence[str]) -> str:
    shape = node.operands[0].shape
    strides = [1] * len(shape)
    for k in reversed(range(len(shape) - 1)):
        strides[k] = strides[k + 1] * shape[k + 1]
    return f"mx.as_strided({x[0]}, {node.shape}, {WindowsBackward.strides(strides, **node.attrs)})"


def _overlap_add(node: Node, x: Sequence[str]) -> str:
    arguments = ", ".join(f"{k}={node.attrs[k]}" for k in ("axis", "size", "stride", "dilation"))
    return half_through_float32(lambda v: f"corrected.overlap_add({v}, {arguments})", x[0], node.dtype)


def _conv(node: Node, x: Sequence[str]) -> str:
    arguments = ", ".join(f"{name}={value}" for name, value in node.attrs.items())
    return f"corrected.conv({x[0]}, {x[1]}, {arguments})"


TABLE: Table = {"windows": _windows, "overlap_add": _overlap_add, "conv": _conv}
