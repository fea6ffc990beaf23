"""Scans: sums, products and extremes of all elements up to each one, along an axis.

``reverse`` scans from the end. An element's own value is part of its result where ``inclusive``; where not, the first
result is that of nothing. Half precision accumulates in float32 and rounds once.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ...dtypes import DType, float32
from ...errors import AxisError, DTypeError, ShapeError
from ..builder import Var
from ..op import Gradient, Op, register
from ..schema import Accumulate, AmpPolicy, OpSchema
from ..types import TensorType
from .arithmetic import MaskedMulBackward, WhereBackward
from .creation import counted
from .index import ScatterAddAlongAxisBackward
from .nn import Float32Composite
from .shape import PadBackward, SliceBackward


def _check(name: str, x: TensorType, axis: int) -> None:
    if not 0 <= axis < x.ndim:
        raise AxisError(f"{name} along axis {axis} of {x}: an axis from 0 to {x.ndim - 1}")


def shifted(v: Var, axis: int, by: int, fill: float) -> Var:
    """``v`` moved one place along ``axis``, up (``by`` 1) or down (-1), with ``fill`` in the place that comes free."""
    n = v.shape[axis]
    if not n:
        return v
    start, stop, low, high = ([0] * v.ndim, list(v.shape), [0] * v.ndim, [0] * v.ndim)
    if by > 0:
        stop[axis], low[axis] = n - 1, 1
    else:
        start[axis], high[axis] = (1 if n > 1 else n), 1
    left = SliceBackward.of(v, start=tuple(start), stop=tuple(stop), step=(1,) * v.ndim)
    return PadBackward.of(left, fill, low=tuple(low), high=tuple(high), interior=(0,) * v.ndim)


def _widened(x: Any) -> Any:
    return x.astype({"f": np.float64, "c": np.complex128}.get(x.dtype.kind, x.dtype), copy=False)


class _Accumulation(Op):
    """Base of cumsum and cumprod: dtypes as sum and prod have them."""

    flops_per_element = 1
    ufunc: ClassVar[Any]
    of_nothing: ClassVar[int]

    @classmethod
    def infer(
        cls, x: TensorType, *, axis: int, reverse: bool, inclusive: bool, dtype: DType | None = None
    ) -> TensorType:
        _check(cls.schema_v1.name, x, axis)
        return TensorType(x.shape, x.dtype)

    @classmethod
    def evaluate(cls, x: Any, *, axis: int, reverse: bool, inclusive: bool, dtype: DType | None = None) -> Any:
        wide = np.moveaxis(_widened(x), axis, 0)
        wide = wide[::-1] if reverse else wide
        y = cls.ufunc.accumulate(wide, axis=0, dtype=wide.dtype)
        if not inclusive and len(y):
            y = np.concatenate([np.full_like(y[:1], cls.of_nothing), y[:-1]])
        return np.moveaxis(y[::-1] if reverse else y, 0, axis)


@register
class CumsumBackward(_Accumulation):
    """y_i = Σ_{j ≤ i} x_j      ∂L/∂x_i = Σ_{j ≥ i} g_j

    Booleans and integers are summed in 64 bits, as in sum.
    """

    schema_v1 = OpSchema("cumsum", amp_policy=AmpPolicy.PROMOTE, accumulate=Accumulate.WIDE)
    ufunc = np.add
    of_nothing = 0

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        attrs = {**self.attrs, "reverse": not self.attrs["reverse"], "dtype": None}
        return [CumsumBackward.of(grad_out, **attrs)]


@register
class CumprodBackward(_Accumulation):
    """y_i = Π_{j ≤ i} x_j      ∂L/∂x_i = r_i Π_{j < i} x_j with r_i = g_i + x_{i+1} r_{i+1}

    Integers as in prod. Nothing is divided by x, so zeros need no special case.
    """

    schema_v1 = OpSchema("cumprod", amp_policy=AmpPolicy.PROMOTE, accumulate=Accumulate.WIDE)
    kSavesInput = True
    takes_wide_gradient = True
    ufunc = np.multiply
    of_nothing = 1

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        axis, reverse, inclusive = (self.attrs[k] for k in ("axis", "reverse", "inclusive"))
        g, x = (v.astype(float32) if v.dtype.is_half else v for v in (grad_out, self.x))
        later = 1 if reverse else -1
        # Where nothing is read at the end, anything will do.
        rest = shifted(x, axis, later, 0)
        g = g if inclusive else shifted(g, axis, later, 0)
        r = RecurrenceBackward.of(rest, g, axis=axis, reverse=not reverse)
        before = CumprodBackward.of(x, axis=axis, reverse=reverse, inclusive=False, dtype=None)
        return [MaskedMulBackward.of(r, before).astype(self.x.dtype)]


@register
class RecurrenceBackward(Op):
    """y_i = b_i + a_i y_{i-1}      ∂L/∂b_i = r_i = g_i + a_{i+1} r_{i+1}, ∂L/∂a_i = r_i y_{i-1}

    The gradients of products and of sums of exponentials up to an element are of this form. What is exactly 0 stays 0,
    whatever ``a`` is. The first ``a`` is not read.
    """

    schema_v1 = OpSchema("recurrence", amp_policy=AmpPolicy.PROMOTE, arity=2, internal=True)
    kSavesInput = ("a",)
    kSavesOutput = True
    flops_per_element = 2

    @classmethod
    def infer(cls, a: TensorType, b: TensorType, *, axis: int, reverse: bool) -> TensorType:
        _check("recurrence", a, axis)
        if a != b:
            raise ShapeError(f"recurrence takes two operands of one type, not {a} and {b}")
        if not a.dtype.is_inexact:
            raise DTypeError(f"recurrence takes floating or complex operands, not {a}")
        return a

    @classmethod
    def evaluate(cls, a: Any, b: Any, *, axis: int, reverse: bool) -> Any:
        a, b = (np.moveaxis(_widened(v), axis, 0)[:: -1 if reverse else 1] for v in (a, b))
        y = np.empty_like(b)
        last = np.zeros_like(b[0]) if len(b) else None
        for k in range(len(b)):
            y[k] = last = b[k] + np.where(last == 0, 0, a[k] * last)
        return np.moveaxis(y[:: -1 if reverse else 1], 0, axis)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        axis, reverse = self.attrs["axis"], self.attrs["reverse"]
        earlier = -1 if reverse else 1
        following = shifted(self.inputs[0], axis, -earlier, 0)
        r = RecurrenceBackward.of(following, grad_out, axis=axis, reverse=not reverse)
        return [MaskedMulBackward.of(r, shifted(self.y, axis, earlier, 0)), r]


class _Extreme(Op):
    """Base of cummax and cummin: NaN wins, from its place on; of elements that tie the latest takes the gradient."""

    kSavesInput = True
    kSavesOutput = True
    flops_per_element = 1
    exactly_rounded = True
    ufunc: ClassVar[Any]

    @classmethod
    def infer(cls, x: TensorType, *, axis: int, reverse: bool) -> TensorType:
        _check(cls.schema_v1.name, x, axis)
        if x.dtype.is_complex:
            raise DTypeError(f"{cls.schema_v1.name} has no meaning for {x}: complex numbers are not ordered")
        return TensorType(x.shape, x.dtype)

    @classmethod
    def evaluate(cls, x: Any, *, axis: int, reverse: bool) -> Any:
        way = slice(None, None, -1 if reverse else 1)
        y = cls.ufunc.accumulate(np.moveaxis(x, axis, 0)[way], axis=0)
        return np.moveaxis(y[way], 0, axis)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        x, y, axis, reverse = self.x, self.y, self.attrs["axis"], self.attrs["reverse"]
        count = x.shape[axis]
        if not count:
            return [grad_out]
        numbers = counted(x, count).reshape(tuple(count if k == axis else 1 for k in range(x.ndim)))
        numbers = numbers.broadcast_to(x.shape)
        # The places of the elements that are the extreme so far; those of others lie before all of them.
        hit = (x == y) | ((x != x) & (y != y))
        places = WhereBackward.of(hit, numbers, numbers.full(count - 1 if reverse else 0))
        latest = (CumminBackward if reverse else CummaxBackward).of(places, axis=axis, reverse=reverse)
        return [ScatterAddAlongAxisBackward.of(grad_out.full(0), latest, grad_out, axis=axis)]


@register
class CummaxBackward(_Extreme):
    """y_i = max_{j ≤ i} x_j      ∂L/∂x_j = the sum of g_i over all i whose latest maximum is x_j"""

    schema_v1 = OpSchema("cummax")
    ufunc = np.maximum


@register
class CumminBackward(_Extreme):
    """y_i = min_{j ≤ i} x_j      ∂L/∂x_j = the sum of g_i over all i whose latest minimum is x_j"""

    schema_v1 = OpSchema("cummin")
    ufunc = np.minimum


@register
class LogCumsumExpBackward(Float32Composite):
    """y_i = log Σ_{j ≤ i} exp(x_j)      ∂L/∂x_j = r_j exp(x_j - y_j) with r_j = g_j + exp(y_j - y_{j+1}) r_{j+1}

    -∞, with gradient 0, where all elements so far are -∞. No exponent is ever positive, so nothing overflows.
    """

    schema_v1 = OpSchema("logcumsumexp", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True
    kSavesOutput = True
    flops_per_element = 8

    @classmethod
    def infer(cls, x: TensorType, *, axis: int, reverse: bool) -> TensorType:  # type: ignore[override]
        cls.check_real(x)
        _check("logcumsumexp", x, axis)
        return TensorType(x.shape, x.dtype)

    @staticmethod
    def expand(x: Var, *, axis: int, reverse: bool) -> Var:  # type: ignore[override]
        top = CummaxBackward.of(x, axis=axis, reverse=reverse)
        # An infinite maximum is not subtracted: ∞ - ∞ is NaN.
        top = WhereBackward.of(top.emit("isfinite"), top, top.full(0))
        before = shifted(top, axis, -1 if reverse else 1, 0)
        scale, own = (before - top).emit("exp"), (x - top).emit("exp")
        return RecurrenceBackward.of(scale, own, axis=axis, reverse=reverse).emit("log") + top

    def wide_gradient(self, g: Var) -> list[Gradient]:
        (x,), y = self.wide_inputs, self.wide_y
        axis, reverse = self.attrs["axis"], self.attrs["reverse"]
        level = WhereBackward.of(y == y.full(float("-inf")), y.full(0), y)
        scale = (y - shifted(level, axis, 1 if reverse else -1, 0)).emit("exp")
        r = RecurrenceBackward.of(scale, g, axis=axis, reverse=not reverse)
        return [MaskedMulBackward.of(r, (x - level).emit("exp"))]


__all__ = [
    "CummaxBackward", "CumminBackward", "CumprodBackward", "CumsumBackward", "LogCumsumExpBackward",
    "RecurrenceBackward", "shifted",
]  # fmt: skip
