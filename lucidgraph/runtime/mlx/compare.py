"""Comparisons, tests and logic."""

from __future__ import annotations

from .writing import Table

__all__ = ["TABLE"]

TABLE: Table = {
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "isnan": "mx.isnan({0})",
    "isinf": "mx.isinf({0})",
    "isfinite": "mx.isfinite({0})",
    "logical_and": lambda node, x: f"mx.logical_and({x[0]}, {x[1]})",
    "logical_or": lambda node, x: f"mx.logical_or({x[0]}, {x[1]})",
    "logical_xor": lambda node, x: f"({x[0]} != 0) != ({x[1]} != 0)",
    "logical_not": "mx.logical_not({0})",
}
