"""Reductions. Long float sums are corrected (:func:`.corrected.sum`); half precision goes through float32 once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...ir import Node
from .corrected import LONG
from .writing import Entry, Table, dtype_text

__all__ = ["TABLE"]

_WIDENED = frozenset({"bool", "int8", "int16", "uint8", "uint16"})
"""What MLX sums and multiplies in 32 bits."""


def _over(node: Node) -> str:
    return f"axis={node.attrs['axis']}, keepdims={node.attrs['keepdims']}"


def _count(node: Node) -> int:
    shape = node.operands[0].shape
    return prod(shape[k] for k in node.attrs["axis"])


def _of_nothing(node: Node, value: str) -> str | None:
    """The result where there is nothing to reduce, of which MLX leaves parts of the result unwritten; else None."""
    if node.operands[0].type.size:
        return None
    return f"mx.full({node.shape}, {value}, {dtype_text(node.dtype)})"


def _wide(node: Node, x: str) -> tuple[str, bool]:
    """The operand for adding and multiplying, and whether the result has to be cast back."""
    have = node.operands[0].dtype
    if have.is_half:
        return f"{x}.astype(mx.float32)", True
    return x, have.name in _WIDENED


def _total(node: Node, x: str) -> str:
    if node.operands[0].dtype.is_inexact and _count(node) > LONG:
        return f"corrected.sum({x}, {_over(node)})"
    return f"mx.sum({x}, {_over(node)})"


def _sum(node: Node, x: Sequence[str]) -> str:
    empty = _of_nothing(node, "0")
    if empty is not None or not node.attrs["axis"]:
        return empty or x[0]
    if node.operands[0].dtype.is_bool:
        return f"mx.any({x[0]}, {_over(node)})"
    operand, cast = _wide(node, x[0])
    text = _total(node, operand)
    return f"{text}.astype({dtype_text(node.dtype)})" if cast else text


def _mean(node: Node, x: Sequence[str]) -> str:
    empty = _of_nothing(node, "nan")
    if empty is not None or not node.attrs["axis"]:
        return empty or x[0]
    operand, cast = _wide(node, x[0])
    text = f"{_total(node, operand)} / {_count(node)}"
    return f"({text}).astype({dtype_text(node.dtype)})" if cast else text


def _prod(node: Node, x: Sequence[str]) -> str:
    empty = _of_nothing(node, "1")
    if empty is not None or not node.attrs["axis"]:
        return empty or x[0]
    if node.operands[0].dtype.is_bool:
        return f"mx.all({x[0]}, {_over(node)})"
    operand, cast = _wide(node, x[0])
    text = f"mx.prod({operand}, {_over(node)})"
    return f"{text}.astype({dtype_text(node.dtype)})" if cast else text


def _plain(function: str) -> Entry:
    def write(node: Node, x: Sequence[str]) -> str:
        return f"{function}({x[0]}, {_over(node)})" if node.attrs["axis"] else x[0]

    return write


def _truth(function: str, start: bool) -> Entry:
    def write(node: Node, x: Sequence[str]) -> str:
        empty = _of_nothing(node, repr(start))
        if empty is not None or not node.attrs["axis"]:
            return empty or f"{x[0]} != 0"
        return f"{function}({x[0]}, {_over(node)})"

    return write


def _place(function: str) -> Entry:
    def write(node: Node, x: Sequence[str]) -> str:
        axis, keepdims = node.attrs["axis"][0], node.attrs["keepdims"]
        return f"{function}({x[0]}, axis={axis}, keepdims={keepdims}).astype(mx.int64)"

    return write


TABLE: Table = {
    "sum": _sum,
    "mean": _mean,
    "prod": _prod,
    "max": _plain("mx.max"),
    "min": _plain("mx.min"),
    "any": _truth("mx.any", False),
    "all": _truth("mx.all", True),
    "argmax": _place("mx.argmax"),
    "argmin": _place("mx.argmin"),
}
