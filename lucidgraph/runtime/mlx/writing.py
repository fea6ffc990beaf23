"""How expressions of the generated function are written: entries of the tables, dtypes, numbers, axes."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ...dtypes import DType, float32
from ...ir import Node
from ...ir.evaluate import constant_array
from ...ir.types import Scalar, TensorType

__all__ = ["Entry", "Table", "Unsupported", "dtype_text", "half_through_float32", "is_integral", "number_text"]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """MLX cannot run an op: ``why``, and what to do."""

    why: str


Writer = Callable[[Node, Sequence[str]], str | None]
Entry = str | Writer | Unsupported
"""How one op is lowered.

A template, ``"mx.exp({0})"``, in which ``{k}`` is operand k: a name, or a Python number where another operand of the
same dtype is an array. Or a function of the node and the operands' names, all of arrays, for what depends on attributes
and dtypes; None from it means: not like this (a composite is then written out, a leaf computed by NumPy).
"""
Table = dict[str, Entry]

_LITERAL_INTS: Final = range(-(2**63), 2**63)


def dtype_text(dtype: DType) -> str:
    """``mx.float32``."""
    return "mx.bool_" if dtype.is_bool else f"mx.{dtype.name}"


def number_text(value: Scalar, dtype: DType) -> str | None:
    """A constant as a Python number that MLX turns into exactly the dtype's value; None where MLX takes no such number.

    Half-precision values are rounded here, because MLX would round them twice.

    >>> from lucidgraph.dtypes import float16, float32
    >>> number_text(0.1, float32), number_text(0.1, float16), number_text(1, float32)
    ('0.1', '0.0999755859375', '1.0')
    """
    exact = constant_array(value, TensorType((), dtype))
    if dtype.is_bool:
        return repr(bool(exact))
    if dtype.is_integer:
        return repr(int(exact)) if int(exact) in _LITERAL_INTS else None
    if dtype.is_floating:
        return _float_text(float(str(exact)) if dtype is float32 else float(exact))
    number = complex(exact)
    # Infinite and NaN parts are no C++ that MLX's compiled kernels could hold.
    return f"complex({number.real!r}, {number.imag!r})" if cmath.isfinite(number) else None


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


NAMES: Final = {"inf": math.inf, "nan": math.nan}
"""What number texts may name besides Python's builtins."""


def half_through_float32(expression: Callable[[str], str], x: str, dtype: DType) -> str:
    """``expression(x)``, for half precision taken in float32 and rounded once."""
    if not dtype.is_half:
        return expression(x)
    return f"{expression(f'{x}.astype(mx.float32)')}.astype({dtype_text(dtype)})"


def is_integral(value: float) -> bool:
    """Whether a number is whole, hence finite."""
    return float(value).is_integer()
