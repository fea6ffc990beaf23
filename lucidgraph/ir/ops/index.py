"""Reading and writing elements at places given as data: gathers, scatters, writes to slices.

Indices are integers of any width; a negative one counts from the end. An index outside its axis raises
:class:`IndexOutOfRangeError` where indices are looked at (here), and never reads or writes outside. Indices have no
gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import AxisError, DTypeError, IndexOutOfRangeError, ShapeError
from ..builder import Var
from ..op import ZERO, Gradient, Op, Types, broadcast_shapes, register
from ..schema import OpSchema
from ..types import Shape, TensorType
from .arithmetic import WhereBackward
from .shape import Axes, SliceBackward, python_slice


def in_range(indices: Any, size: int, axis: int, what: str) -> Any:
    """Indices into an axis of ``size`` elements as int64 from 0; :class:`IndexOutOfRangeError` for one outside.

    >>> in_range(np.array([0, -1]), 3, 0, "take").tolist()
    [0, 2]
    """
    indices = np.asarray(indices)
    outside = (indices < -size) | (indices >= size)
    if np.any(outside):
        first = indices[outside].flat[0]
        raise IndexOutOfRangeError(f"{what}: index {first} is out of range for axis {axis}, which has {size} elements")
    wide = indices.astype(np.int64, copy=False)
    # The array itself where it is right already: captured once, however often it indexes.
    return np.where(wide < 0, wide + size, wide) if np.any(wide < 0) else wide


def _check(name: str, x: TensorType, indices: TensorType, axis: int) -> None:
    if not 0 <= axis < x.ndim:
        raise AxisError(f"{name} along axis {axis} of {x}")
    if not indices.dtype.is_integer:
        raise DTypeError(f"{name} takes integer indices, not {indices}")
    if indices.size and not x.shape[axis]:
        raise IndexOutOfRangeError(f"{name}: axis {axis} of {x} has no elements to index")


class _Indexed(Op):
    """Base of ops whose second operand is indices: these keep their dtype."""

    @classmethod
    def shared_operands(cls, count: int) -> tuple[int, ...]:
        return (0, *range(2, count))


@register
class TakeBackward(_Indexed):
    """y[…, i…, …] = x[…, indices[i…], …] along ``axis``      ∂L/∂x = g added up at ``indices`` in zeros

    The axis is replaced by the axes of ``indices``.
    """

    schema_v1 = OpSchema("take", arity=2)
    kSavesInput = ("indices",)
    moves_data = True

    @classmethod
    def infer(cls, x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
        _check("take", x, indices, axis)
        return TensorType(_taken(x.shape, indices.shape, axis), x.dtype)

    @classmethod
    def evaluate(cls, x: Any, indices: Any, *, axis: int) -> Any:
        return np.take(x, in_range(indices, x.shape[axis], axis, "take"), axis=axis)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        x, indices = self.inputs
        zeros = grad_out.scalar(0).broadcast_to(x.shape)
        return [ScatterAddBackward.of(zeros, indices, grad_out, axis=self.attrs["axis"]), ZERO]


def _taken(shape: Shape, indices: Shape, axis: int) -> Shape:
    return (*shape[:axis], *indices, *shape[axis + 1 :])


class _Scatter(_Indexed):
    """Base of ops that combine ``updates`` into ``x`` at ``indices`` along ``axis``; the updates have the shape of
    what :class:`TakeBackward` takes there."""

    flops_per_element = 1

    @classmethod
    def infer(cls, x: TensorType, indices: TensorType, updates: TensorType, *, axis: int) -> TensorType:
        name = cls.schema_v1.name
        _check(name, x, indices, axis)
        shape = _taken(x.shape, indices.shape, axis)
        if updates.shape != shape or updates.dtype is not x.dtype:
            raise ShapeError(f"{name} of {updates} into {x}: the updates are {x.with_shape(shape)}")
        return TensorType(x.shape, x.dtype)

    @classmethod
    def broadcasted(cls, types: Types, attrs: Any) -> tuple[Shape, ...]:
        x, indices, _ = (t.shape for t in types)
        return x, indices, _taken(x, indices, attrs["axis"])

    @classmethod
    def combine(cls, target: Any, places: Any, updates: Any) -> None:
        """Combine ``updates`` into ``target[places]``, once for each time a place is named."""
        raise TypeError("combine is missing")

    @classmethod
    def evaluate(cls, x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
        out = np.array(x)
        places = in_range(indices, x.shape[axis], axis, cls.schema_v1.name)
        moved = np.moveaxis(updates, range(axis, axis + places.ndim), range(places.ndim))
        cls.combine(np.moveaxis(out, axis, 0), places, moved)
        return out

    @classmethod
    def flops(cls, types: Any, results: Types, attrs: Any) -> int:
        return int(types[2].size)


@register
class ScatterAddBackward(_Scatter):
    """y = x + Σ updates at their places: duplicates add up      ∂L/∂x = g, ∂L/∂updates = g taken at ``indices``"""

    schema_v1 = OpSchema("scatter_add", arity=3)
    kSavesInput = ("indices",)

    @classmethod
    def combine(cls, target: Any, places: Any, updates: Any) -> None:
        np.add.at(target, places, updates)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out, ZERO, TakeBackward.of(grad_out, self.inputs[1], axis=self.attrs["axis"])]


class _ScatterExtremum(_Scatter):
    """Base of scatters that keep an extreme; NaN wins. Those that are equal to it share the gradient equally."""

    kSavesInput = True
    kSavesOutput = True

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        x, indices, updates = self.inputs
        axis, y = self.attrs["axis"], self.y
        hits = _same(x, y), _same(updates, TakeBackward.of(y, indices, axis=axis))
        counted = [h.astype(y.dtype) for h in hits]
        # At least 1 everywhere: the result is one of the elements that went into it.
        share = grad_out / ScatterAddBackward.of(counted[0], indices, counted[1], axis=axis)
        shares = share, TakeBackward.of(share, indices, axis=axis)
        dx, du = (WhereBackward.of(hit, part, part.full(0)) for hit, part in zip(hits, shares, strict=True))
        return [dx, ZERO, du]


def _same(a: Var, b: Var) -> Var:
    """Where two values are equal, or both NaN."""
    return (a == b) | ((a != a) & (b != b))


@register
class ScatterMaxBackward(_ScatterExtremum):
    """y = the greatest of x and the updates at each place      ∂L/∂x, ∂L/∂updates = g shared by those equal to y"""

    schema_v1 = OpSchema("scatter_max", arity=3)

    @classmethod
    def combine(cls, target: Any, places: Any, updates: Any) -> None:
        np.maximum.at(target, places, updates)


@register
class ScatterMinBackward(_ScatterExtremum):
    """y = the least of x and the updates at each place      ∂L/∂x, ∂L/∂updates = g shared by those equal to y"""

    schema_v1 = OpSchema("scatter_min", arity=3)

    @classmethod
    def combine(cls, target: Any, places: Any, updates: Any) -> None:
        np.minimum.at(target, places, updates)


# -- indices that vary along the other axes as well


def _along(x: Shape, indices: Shape, axis: int, what: str) -> tuple[Shape, Shape]:
    """``x`` and ``indices`` broadcast against each other on all axes but ``axis``."""
    if len(x) != len(indices) or not 0 <= axis < len(x):
        raise AxisError(f"{what} along axis {axis} of shape {x} with indices of shape {indices}: equally many axes")
    others = [(*s[:axis], *s[axis + 1 :]) for s in (x, indices)]
    common = broadcast_shapes(others, what)
    wide = [(*common[:axis], s[axis], *common[axis:]) for s in (x, indices)]
    return wide[0], wide[1]


def _check_along(name: str, x: TensorType, indices: TensorType, axis: int) -> None:
    _check(name, x, indices, axis)
    if (x.shape, indices.shape) != _along(x.shape, indices.shape, axis, name):
        raise ShapeError(f"{name} along axis {axis} of {x} with {indices}: equal sizes on the other axes")


def _places(indices: Any, axis: int) -> tuple[Any, ...]:
    """The NumPy index that ``indices`` mean: themselves along ``axis``, each its own coordinate elsewhere."""
    grid = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis] = indices
    return tuple(grid)


@register
class TakeAlongAxisBackward(_Indexed):
    """y[i, j] = x[indices[i, j], j] for axis 0, and so on      ∂L/∂x = g added up at ``indices`` in zeros"""

    schema_v1 = OpSchema("take_along_axis", arity=2)
    kSavesInput = ("indices",)
    moves_data = True

    @classmethod
    def infer(cls, x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
        _check_along("take_along_axis", x, indices, axis)
        return TensorType(indices.shape, x.dtype)

    @classmethod
    def broadcasted(cls, types: Types, attrs: Any) -> tuple[Shape, ...]:
        return _along(types[0].shape, types[1].shape, attrs["axis"], "take_along_axis")

    @classmethod
    def evaluate(cls, x: Any, indices: Any, *, axis: int) -> Any:
        return np.take_along_axis(x, in_range(indices, x.shape[axis], axis, "take_along_axis"), axis)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        x, indices = self.inputs
        zeros = grad_out.scalar(0).broadcast_to(x.shape)
        return [ScatterAddAlongAxisBackward.of(zeros, indices, grad_out, axis=self.attrs["axis"]), ZERO]


@register
class ScatterAddAlongAxisBackward(_Indexed):
    """y = x with updates[i, j] added at [indices[i, j], j] for axis 0, and so on

    ∂L/∂x = g, ∂L/∂updates = g taken along the axis at ``indices``
    """

    schema_v1 = OpSchema("scatter_add_along_axis", arity=3)
    kSavesInput = ("indices",)
    flops_per_element = 1

    @classmethod
    def infer(cls, x: TensorType, indices: TensorType, updates: TensorType, *, axis: int) -> TensorType:
        name = cls.schema_v1.name
        _check_along(name, x, indices, axis)
        if updates.shape != indices.shape or updates.dtype is not x.dtype:
            raise ShapeError(f"{name} of {updates} into {x}: the updates are {x.with_shape(indices.shape)}")
        return TensorType(x.shape, x.dtype)

    @classmethod
    def broadcasted(cls, types: Types, attrs: Any) -> tuple[Shape, ...]:
        x, axis = types[0].shape, attrs["axis"]
        given = broadcast_shapes([t.shape for t in types[1:]], cls.schema_v1.name)
        wide = _along(x, given, axis, cls.schema_v1.name)[1]
        return x, wide, wide

    @classmethod
    def evaluate(cls, x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
        out = np.array(x)
        places = in_range(indices, x.shape[axis], axis, cls.schema_v1.name)
        np.add.at(out, _places(places, axis), updates)
        return out

    @classmethod
    def flops(cls, types: Any, results: Types, attrs: Any) -> int:
        return int(types[2].size)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out, ZERO, TakeAlongAxisBackward.of(grad_out, self.inputs[1], axis=self.attrs["axis"])]


@register
class SliceUpdateBackward(Op):
    """y = x with v in the place of x[start:stop:step]      ∂L/∂x = g with zeros there, ∂L/∂v = that slice of g

    ``start``, ``stop`` and ``step`` are as :class:`SliceBackward` has them.
    """

    schema_v1 = OpSchema("slice_update", arity=2)
    moves_data = True

    @classmethod
    def infer(cls, x: TensorType, v: TensorType, *, start: Axes, stop: Axes, step: Axes) -> TensorType:
        taken = SliceBackward.infer(x, start=start, stop=stop, step=step)
        if v.shape != taken.shape or v.dtype is not x.dtype:
            raise ShapeError(f"slice_update of {v} into {x}: the slice is {taken}")
        return TensorType(x.shape, x.dtype)

    @classmethod
    def broadcasted(cls, types: Types, attrs: Any) -> tuple[Shape, ...]:
        return types[0].shape, SliceBackward.infer(types[0], **attrs).shape

    @classmethod
    def evaluate(cls, x: Any, v: Any, *, start: Axes, stop: Axes, step: Axes) -> Any:
        out = np.array(x)
        out[tuple(python_slice(*abc) for abc in zip(start, stop, step, strict=True))] = v
        return out

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        v = self.inputs[1]
        zeros = grad_out.scalar(0).broadcast_to(v.shape)
        return [
            SliceUpdateBackward.of(grad_out, zeros, **self.attrs),
            SliceBackward.of(grad_out, **self.attrs),
        ]
