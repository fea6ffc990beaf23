"""Scans. Long float sums are corrected (:func:`.corrected.cumsum`); half precision goes through float32 once.

``logcumsumexp`` is MLX's where its error, which grows with the length, stays small.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import float64
from ...ir import Node
from .corrected import LONG, adds_in_trees
from .writing import Entry, Table, dtype_text, half_through_float32

__all__ = ["TABLE", "TAKES"]


def _along(node: Node) -> str:
    return ", ".join(f"{k}={node.attrs[k]}" for k in ("axis", "reverse", "inclusive") if k in node.attrs)


def _accumulated(function: str, of_truth: str) -> Entry:
    def write(node: Node, x: Sequence[str]) -> str:
        if node.dtype.is_bool:
            return f"{of_truth}({x[0]}, {_along(node)})"
        text = half_through_float32(lambda v: f"{function}({v}, {_along(node)})", x[0], node.dtype)
        return text if node.dtype.is_inexact else f"{text}.astype({dtype_text(node.dtype)})"

    return write


def _extreme(function: str) -> Entry:
    # MLX's maximum of halves drops NaN.
    return lambda node, x: half_through_float32(lambda v: f"{function}({v}, {_along(node)})", x[0], node.dtype)


def _recurrence(node: Node, x: Sequence[str]) -> str:
    a, b = (f"{v}.astype(mx.float32)" if node.dtype.is_half else v for v in x)
    text = f"corrected.recurrence({a}, {b}, {_along(node)})"
    return f"{text}.astype({dtype_text(node.dtype)})" if node.dtype.is_half else text


def _logcumsumexp(node: Node, x: Sequence[str]) -> str | None:
    n = node.shape[node.attrs["axis"]]
    if node.dtype is float64 or not (n <= LONG or adds_in_trees()):
        return None
    return half_through_float32(lambda v: f"mx.logcumsumexp({v}, {_along(node)})", x[0], node.dtype)


TABLE: Table = {
    "cumsum": _accumulated("corrected.cumsum", "mx.cummax"),
    "cumprod": _accumulated("mx.cumprod", "mx.cummin"),
    "cummax": _extreme("mx.cummax"),
    "cummin": _extreme("mx.cummin"),
    "recurrence": _recurrence,
    "logcumsumexp": _logcumsumexp,
}
TAKES = frozenset({"logcumsumexp"})
