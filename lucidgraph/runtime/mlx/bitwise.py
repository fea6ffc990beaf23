"""Operations on bits."""

from __future__ import annotations

from .writing import Table

__all__ = ["TABLE"]

TABLE: Table = {
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": lambda node, x: f"{x[0]} != {x[1]}" if node.dtype.is_bool else f"mx.bitwise_xor({x[0]}, {x[1]})",
    "bitwise_invert": lambda node, x: f"mx.logical_not({x[0]})" if node.dtype.is_bool else f"mx.bitwise_invert({x[0]})",
    "bitwise_left_shift": lambda node, x: f"corrected.left_shift({x[0]}, {x[1]})",
    "bitwise_right_shift": lambda node, x: f"corrected.right_shift({x[0]}, {x[1]})",
}
