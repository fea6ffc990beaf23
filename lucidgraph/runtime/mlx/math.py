"""Elementary functions.

MLX's own accuracy is kept where it is near the last digit. Its float32 exp on the CPU is off by up to |x|·6e-8
relative (3.9e-6 at 88), and so are what it makes of it; that is left as it is, for speed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import float64
from ...ir import Node
from .writing import Entry, Table, dtype_text, half_through_float32

__all__ = ["TABLE"]


def _in_double(function: str, corrected: str) -> Entry:
    """MLX's function, but in float64, which it computes in float32, ours."""

    def write(node: Node, x: Sequence[str]) -> str:
        return f"{corrected if node.dtype is float64 else function}({x[0]})"

    return write


def _rounding(function: str) -> Entry:
    """Integers are whole already."""

    def write(node: Node, x: Sequence[str]) -> str:
        return f"{function}({x[0]})" if node.dtype.is_inexact else x[0]

    return write


def _expm1(node: Node, x: Sequence[str]) -> str:
    return f"corrected.complex_expm1({x[0]})" if node.dtype.is_complex else f"mx.expm1({x[0]})"


def _exp2(node: Node, x: Sequence[str]) -> str:
    if node.dtype.is_complex:
        return f"corrected.complex_power(mx.array(2, mx.complex64), {x[0]})"
    return half_through_float32(lambda v: f"mx.power(2, {v})", x[0], node.dtype)


def _pow(node: Node, x: Sequence[str]) -> str:
    if node.dtype.is_complex:
        return f"corrected.complex_power({x[0]}, {x[1]})"
    if node.dtype.is_bool:
        return f"{x[0]} | mx.logical_not({x[1]})"
    if node.dtype.is_half:
        wide = ", ".join(f"{v}.astype(mx.float32)" for v in x)
        return f"mx.power({wide}).astype({dtype_text(node.dtype)})"
    return f"mx.power({x[0]}, {x[1]})"


TABLE: Table = {
    "exp": _in_double("mx.exp", "corrected.exp64"),
    "exp2": _exp2,
    "expm1": _expm1,
    "log": "mx.log({0})",
    "log1p": "mx.log1p({0})",
    "log2": "mx.log2({0})",
    "log10": "mx.log10({0})",
    "sqrt": "mx.sqrt({0})",
    "rsqrt": "mx.rsqrt({0})",
    "square": "mx.square({0})",
    "cbrt": lambda node, x: half_through_float32(lambda v: f"corrected.cbrt({v})", x[0], node.dtype),
    "floor": _rounding("mx.floor"),
    "ceil": _rounding("mx.ceil"),
    "round": _rounding("mx.round"),
    "trunc": _rounding("mx.trunc"),
    "sin": _in_double("mx.sin", "corrected.sin64"),
    "cos": _in_double("mx.cos", "corrected.cos64"),
    "tan": "mx.tan({0})",
    "asin": "mx.arcsin({0})",
    "acos": "mx.arccos({0})",
    "atan": "mx.arctan({0})",
    "sinh": "mx.sinh({0})",
    "cosh": "mx.cosh({0})",
    "tanh": "mx.tanh({0})",
    "asinh": "mx.arcsinh({0})",
    "acosh": "mx.arccosh({0})",
    "atanh": "mx.arctanh({0})",
    "atan2": lambda node, x: f"mx.arctan2({x[0]}, {x[1]})",
    "pow": _pow,
    "erf": lambda node, x: half_through_float32(lambda v: f"corrected.erf({v})", x[0], node.dtype),
}
