"""Addition to remainders."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import Node
from .writing import Table, dtype_text

__all__ = ["TABLE"]


def _floor_divide(node: Node, x: Sequence[str]) -> str:
    a, b = x
    if node.dtype.is_bool:
        return f"{a} & {b}"
    if node.dtype.is_integer:
        return f"corrected.integer_floor_divide({a}, {b})"
    return _in_float32("corrected.floor_divide", node, x)


def _remainder(node: Node, x: Sequence[str]) -> str:
    a, b = x
    if node.dtype.is_bool:
        return f"mx.zeros_like({a} & {b})"
    if node.dtype.is_integer:
        return f"corrected.integer_remainder({a}, {b})"
    return _in_float32("mx.remainder", node, x)


def _in_float32(function: str, node: Node, x: Sequence[str]) -> str:
    if not node.dtype.is_half:
        return f"{function}({', '.join(x)})"
    wide = ", ".join(f"{v}.astype(mx.float32)" for v in x)
    return f"{function}({wide}).astype({dtype_text(node.dtype)})"


def _sign(node: Node, x: Sequence[str]) -> str:
    return f"corrected.sign({x[0]})" if node.dtype.is_floating else f"mx.sign({x[0]})"


def _conj(node: Node, x: Sequence[str]) -> str:
    return f"mx.conjugate({x[0]})" if node.dtype.is_complex else x[0]


def _real(node: Node, x: Sequence[str]) -> str:
    return f"mx.real({x[0]})" if node.operands[0].dtype.is_complex else x[0]


def _imag(node: Node, x: Sequence[str]) -> str:
    return f"mx.imag({x[0]})" if node.operands[0].dtype.is_complex else f"mx.zeros_like({x[0]})"


TABLE: Table = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "negative": "-{0}",
    "reciprocal": "1 / {0}",
    "abs": "mx.abs({0})",
    "sign": _sign,
    "conj": _conj,
    "real": _real,
    "imag": _imag,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "maximum": "mx.maximum({0}, {1})",
    "minimum": "mx.minimum({0}, {1})",
    "where": "mx.where({0}, {1}, {2})",
    "masked_multiply": "mx.where({0} != 0, {0} * {1}, {0})",
    "masked_divide": "mx.where({0} != 0, {0} / {1}, {0})",
}
