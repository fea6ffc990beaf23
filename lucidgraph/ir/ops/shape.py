"""Ops that move or repeat elements. All are exact in every dtype."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...dtypes import bool_
from ...errors import AxisError, DTypeError, ShapeError
from ..builder import Var
from ..op import Gradient, Op, register
from ..schema import OpSchema
from ..types import Shape, TensorType

Axes = tuple[int, ...]


class Movement(Op):
    """One operand, rearranged."""

    moves_data = True
    view = True
    aliases = True


@register
class BroadcastBackward(Movement):
    """y = x repeated to ``shape`` by NumPy's rule      ∂L/∂x = g summed over the axes that were repeated"""

    schema_v1 = OpSchema("broadcast_to")
    bare = "shape"
    idempotent = True

    @classmethod
    def infer(cls, x: TensorType, *, shape: Shape) -> TensorType:
        added = len(shape) - x.ndim
        fits = added >= 0 and all(m in (1, n) for m, n in zip(x.shape, shape[added:], strict=True))
        if not fits or min(shape, default=0) < 0:
            raise ShapeError(f"{x} cannot be broadcast to {shape}", hint="trailing sizes must be equal, or 1")
        return TensorType(shape, x.dtype)

    @classmethod
    def evaluate(cls, x: Any, *, shape: Shape) -> Any:
        return np.broadcast_to(x, shape)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out.sum_to(self.x.shape)]


@register
class ReshapeBackward(Movement):
    """y = x in another shape, elements in row-major order      ∂L/∂x = g in x's shape"""

    schema_v1 = OpSchema("reshape")
    keeps_order = True
    bare = "shape"

    @classmethod
    def infer(cls, x: TensorType, *, shape: Shape) -> TensorType:
        if prod(shape) != x.size or min(shape, default=0) < 0:
            raise ShapeError(f"{x} has {x.size} elements, shape {shape} has {prod(shape)}")
        return TensorType(shape, x.dtype)

    @classmethod
    def evaluate(cls, x: Any, *, shape: Shape) -> Any:
        return np.reshape(x, shape)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out.reshape(self.x.shape)]


@register
class ExpandDimsBackward(Movement):
    """y = x with axes of size 1 at the places ``axis`` of the result      ∂L/∂x = g without them"""

    schema_v1 = OpSchema("expand_dims")
    keeps_order = True

    @classmethod
    def infer(cls, x: TensorType, *, axis: Axes) -> TensorType:
        rank = x.ndim + len(axis)
        if list(axis) != sorted(set(axis)) or (axis and not 0 <= axis[0] <= axis[-1] < rank):
            raise AxisError(f"expand_dims at {axis} of {x}: places are distinct, ascending and below {rank}")
        sizes = iter(x.shape)
        return TensorType(tuple(1 if k in axis else next(sizes) for k in range(rank)), x.dtype)

    @classmethod
    def evaluate(cls, x: Any, *, axis: Axes) -> Any:
        return np.expand_dims(x, axis)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out.squeeze(self.attrs["axis"])]


@register
class SqueezeBackward(Movement):
    """y = x without the axes ``axis``, each of size 1      ∂L/∂x = g with them"""

    schema_v1 = OpSchema("squeeze")
    keeps_order = True

    @classmethod
    def infer(cls, x: TensorType, *, axis: Axes) -> TensorType:
        if list(axis) != sorted(set(axis)) or (axis and not 0 <= axis[0] <= axis[-1] < x.ndim):
            raise AxisError(f"squeeze of axes {axis} of {x}: axes are distinct, ascending and below {x.ndim}")
        for k in axis:
            if x.shape[k] != 1:
                raise ShapeError(f"squeeze of axis {k} of {x}: its size is {x.shape[k]}, not 1")
        return TensorType(tuple(n for k, n in enumerate(x.shape) if k not in axis), x.dtype)

    @classmethod
    def evaluate(cls, x: Any, *, axis: Axes) -> Any:
        return np.squeeze(x, axis)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out.expand_dims(self.attrs["axis"])]


@register
class PermuteBackward(Movement):
    """y = x with its axes in the order ``axes``      ∂L/∂x = g with the order undone"""

    schema_v1 = OpSchema("permute_dims")
    bare = "axes"

    @classmethod
    def infer(cls, x: TensorType, *, axes: Axes) -> TensorType:
        if sorted(axes) != list(range(x.ndim)):
            raise AxisError(f"permute_dims of {x} by {axes}: every axis is named once")
        return TensorType(tuple(x.shape[k] for k in axes), x.dtype)

    @classmethod
    def evaluate(cls, x: Any, *, axes: Axes) -> Any:
        return np.transpose(x, axes)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        axes = self.attrs["axes"]
        return [grad_out.permute(tuple(axes.index(k) for k in range(len(axes))))]


@register
class SliceBackward(Movement):
    """y = x[start:stop:step] on every axis      ∂L/∂x = g put back between zeros

    ``start`` is inside the axis, or equal to ``stop`` where nothing is taken; a negative ``step`` walks down to just
    above ``stop``, which is then -1 or more.
    """

    schema_v1 = OpSchema("slice")

    @classmethod
    def infer(cls, x: TensorType, *, start: Axes, stop: Axes, step: Axes) -> TensorType:
        if not len(start) == len(stop) == len(step) == x.ndim:
            raise ShapeError(f"slice of {x}: start, stop and step have one number per axis")
        shape = []
        for n, a, b, s in zip(x.shape, start, stop, step, strict=True):
            size = len(range(a, b, s)) if s else 0
            normal = 0 <= a < n and -1 <= b <= n if size else s and 0 <= a == b <= n
            if not normal:
                raise ShapeError(f"slice {a}:{b}:{s} of an axis of {n} in {x} is not in normal form")
            shape.append(size)
        return TensorType(tuple(shape), x.dtype)

    @classmethod
    def evaluate(cls, x: Any, *, start: Axes, stop: Axes, step: Axes) -> Any:
        return x[tuple(python_slice(*abc) for abc in zip(start, stop, step, strict=True))]

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        start, step = self.attrs["start"], self.attrs["step"]
        down = tuple(k for k, s in enumerate(step) if s < 0)
        g = flipped(grad_out, down)
        low, high, interior = [], [], []
        for n, m, a, s in zip(self.x.shape, g.shape, start, step, strict=True):
            first = a if s > 0 else a + (m - 1) * s
            gap = abs(s) - 1 if m > 1 else 0
            low.append(first if m else 0)
            high.append(n - low[-1] - (m + (m - 1) * gap if m else 0))
            interior.append(gap)
        return [PadBackward.of(g, 0, low=tuple(low), high=tuple(high), interior=tuple(interior))]


def python_slice(start: int, stop: int, step: int) -> slice:
    """The slice object for normal-form numbers, in which a stop of -1 means before the first element."""
    return slice(start, None if stop < 0 else stop, step)


def flipped(v: Var, axes: Axes) -> Var:
    """``v`` with some axes reversed."""
    if not axes:
        return v
    start = tuple(max(n - 1, 0) if k in axes and n else 0 for k, n in enumerate(v.shape))
    stop = tuple((-1 if n else 0) if k in axes else n for k, n in enumerate(v.shape))
    step = tuple(-1 if k in axes else 1 for k in range(v.ndim))
    return SliceBackward.of(v, start=start, stop=stop, step=step)


@register
class PadBackward(Op):
    """y = x with ``low`` and ``high`` values added at the ends of each axis and ``interior`` between its elements

    ∂L/∂x = g at x's places, ∂L/∂value = the sum of g elsewhere
    """

    schema_v1 = OpSchema("pad", arity=2)
    moves_data = True
    aliases = True

    @classmethod
    def infer(cls, x: TensorType, value: TensorType, *, low: Axes, high: Axes, interior: Axes) -> TensorType:
        if not len(low) == len(high) == len(interior) == x.ndim:
            raise ShapeError(f"pad of {x}: low, high and interior have one number per axis")
        if min((*low, *high, *interior, 0)) < 0:
            raise ShapeError(f"pad of {x} by low={low}, high={high}, interior={interior}: widths are not negative")
        if value.ndim or value.dtype is not x.dtype:
            raise ShapeError(f"pad of {x} with {value}: the value is a scalar of the same dtype")
        return TensorType(cls.padded(x.shape, low, high, interior), x.dtype)

    @staticmethod
    def padded(shape: Shape, low: Axes, high: Axes, interior: Axes) -> Shape:
        return tuple(a + n + max(n - 1, 0) * i + b for n, a, b, i in zip(shape, low, high, interior, strict=True))

    @staticmethod
    def places(shape: Shape, low: Axes, interior: Axes) -> tuple[slice, ...]:
        """Where the operand's elements are in the result."""
        widths = zip(shape, low, interior, strict=True)
        return tuple(slice(a, a + n + max(n - 1, 0) * i, i + 1) for n, a, i in widths)

    @classmethod
    def evaluate(cls, x: Any, value: Any, *, low: Axes, high: Axes, interior: Axes) -> Any:
        out = np.full(cls.padded(x.shape, low, high, interior), value, x.dtype)
        out[cls.places(x.shape, low, interior)] = x
        return out

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        x, attrs = self.x, self.attrs
        # A slice of nothing is written 0:0:1, whatever the padding.
        places = self.places(x.shape, attrs["low"], attrs["interior"])
        parts = [(p.start, p.stop, p.step) if p.stop > p.start else (0, 0, 1) for p in places]
        start, stop, step = (tuple(p[k] for p in parts) for k in range(3))
        inner = SliceBackward.of(grad_out, start=start, stop=stop, step=step)
        # What lies at x's places is masked, not subtracted from the whole sum: that would cancel.
        false, true = (Var(grad_out.builder, grad_out.builder.constant(v, bool_)) for v in (False, True))
        outside = PadBackward.of(false.broadcast_to(x.shape), true, **attrs)
        added = outside.emit("where", grad_out, grad_out.full(0))
        return [inner, added.sum(tuple(range(added.ndim)))]


@register
class ConcatBackward(Op):
    """y = the operands one after another along ``axis``      ∂L/∂x_i = its part of g"""

    schema_v1 = OpSchema("concat", arity=None)
    moves_data = True

    @classmethod
    def infer(cls, *arrays: TensorType, axis: int) -> TensorType:
        if not arrays:
            raise ShapeError("concat needs at least one array")
        first = arrays[0]
        if not 0 <= axis < first.ndim:
            raise AxisError(f"concat along axis {axis} of {first}")
        for t in arrays[1:]:
            same = t.ndim == first.ndim and all(
                m == n for k, (m, n) in enumerate(zip(t.shape, first.shape, strict=True)) if k != axis
            )
            if t.dtype is not first.dtype:
                raise DTypeError(f"concat needs equal dtypes, not {first} and {t}")
            if not same:
                raise ShapeError(f"concat along axis {axis} of {first} and {t}: they differ elsewhere too")
        size = sum(t.shape[axis] for t in arrays)
        return TensorType((*first.shape[:axis], size, *first.shape[axis + 1 :]), first.dtype)

    @classmethod
    def evaluate(cls, *arrays: Any, axis: int) -> Any:
        return np.concatenate(arrays, axis=axis)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        axis, at, parts = self.attrs["axis"], 0, []
        for t in self.in_types:
            stop = at + t.shape[axis]
            start = tuple(at if k == axis and t.shape[axis] else 0 for k in range(t.ndim))
            end = tuple((stop if t.shape[axis] else 0) if k == axis else n for k, n in enumerate(t.shape))
            parts.append(SliceBackward.of(grad_out, start=start, stop=end, step=(1,) * t.ndim))
            at = stop
        return list(parts)
