"""Reductions. Axes are a tuple of distinct non-negative numbers by the time they are an attribute.

All share one backward path: put the reduced axes back, broadcast to the operand's shape, then ``scale_graph_grad``.
Half-precision sums accumulate in float32 and round once.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np

from ...dtypes import DType, bool_, complex128, float32, float64, int64, to_real
from ...errors import AxisError, DTypeError
from ..builder import Var
from ..graph import Node
from ..op import ZERO, Composite, Gradient, Op, Types, register
from ..schema import Accumulate, AmpPolicy, OpSchema
from ..types import Shape, TensorType
from .arithmetic import ConjBackward, MaskedDivBackward, MaximumBackward, RealBackward, WhereBackward

Axes = tuple[int, ...]


def reduced_shape(shape: Shape, axis: Axes, keepdims: bool) -> Shape:
    """The shape after reducing ``axis``.

    >>> reduced_shape((2, 3, 4), (0, 2), True), reduced_shape((2, 3, 4), (0, 2), False)
    ((1, 3, 1), (3,))
    """
    if keepdims:
        return tuple(1 if k in axis else n for k, n in enumerate(shape))
    return tuple(n for k, n in enumerate(shape) if k not in axis)


def _wide(dtype: DType) -> DType:
    """The dtype that sums are held in."""
    return complex128 if dtype.is_complex else float64 if dtype.is_floating else dtype


class Reduction(Op):
    """Folds some axes into one value each."""

    flops_per_element = 1
    reduces = True
    merges: ClassVar[bool] = False
    """Folding over some axes and then over others is folding over all: exactly of integers and booleans and where
    ``exactly_rounded``, else but for rounding."""
    keeps_single: ClassVar[bool] = False
    """The fold of one element is that element, to the bit: so not of sum, which makes 0.0 of -0.0."""

    @classmethod
    def infer(cls, x: TensorType, *, axis: Axes, keepdims: bool, dtype: DType | None = None) -> TensorType:
        cls.check(x, axis)
        return TensorType(reduced_shape(x.shape, axis, keepdims), cls.result_dtype(x.dtype))

    @classmethod
    def check(cls, x: TensorType, axis: Axes) -> None:
        name = cls.schema_v1.name
        if list(axis) != sorted(set(axis)) or (axis and not 0 <= axis[0] <= axis[-1] < x.ndim):
            raise AxisError(f"{name} over axes {axis} of {x}: axes are distinct, ascending and below {x.ndim}")
        if cls.schema_v1.takes_reals_only and not x.dtype.is_inexact:
            raise DTypeError(f"{name} takes floating or complex operands, not {x}")

    @classmethod
    def result_dtype(cls, dtype: DType) -> DType:
        return dtype

    @classmethod
    def in_two(cls, x: Var, first: Axes, then: Axes) -> Var | None:
        """The fold over both sets of axes, without them: over ``first``, and the results over ``then``. None where it
        cannot be done so. Sums and products of floats are held in double between the two."""
        if not cls.merges:
            return None
        wide = x.astype(_wide(x.dtype)) if cls.schema_v1.accumulate is Accumulate.WIDE else x
        left = tuple(k - sum(a < k for a in first) for k in then)
        inner = cls.of(wide, axis=first, keepdims=False)
        return cls.of(inner, axis=left, keepdims=False).astype(cls.result_dtype(x.dtype))

    @staticmethod
    def dispatch(be: Any, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        raise TypeError("dispatch is missing")

    @classmethod
    def launch(cls, be: Any, node: Node, buffers: Any) -> Any:
        operand = node.operands[0].type
        return cls.dispatch(be, buffers[0], operand.shape, node.attrs["axis"], node.attrs["keepdims"], operand.dtype)

    @classmethod
    def flops(cls, types: Any, results: Types, attrs: Any) -> int:
        return cls.flops_per_element * int(types[0].size)

    # -- the shared backward path

    @property
    def axis(self) -> Axes:
        axis: Axes = self.attrs["axis"]
        return axis

    @property
    def count(self) -> int:
        """How many elements go into one result."""
        return prod(self.x.shape[k] for k in self.axis)

    def put_back(self, value: Var) -> Var:
        """A value of the result's shape, broadcast over the reduced axes to the operand's shape."""
        if not self.attrs["keepdims"]:
            value = value.expand_dims(self.axis)
        return value.broadcast_to(self.x.shape)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [self.scale_graph_grad(self.put_back(grad_out))]

    def scale_graph_grad(self, g: Var) -> Var:
        """The graph-mode hook: what is left to do once the gradient has the operand's shape."""
        raise TypeError("scale_graph_grad is missing")


@register
class SumBackward(Reduction):
    """y = Σ_{i ∈ axes} x_i      ∂L/∂x_i = broadcast(∂L/∂y)

    Booleans and integers are promoted to int64 before the reduction (unsigned integers to uint64, which int64 cannot
    hold). Its backward needs only shapes. An empty reduction gives 0.
    """

    schema_v1 = OpSchema("sum", version=1, amp_policy=AmpPolicy.PROMOTE, accumulate=Accumulate.WIDE)
    partial = "sum"
    kSavesInput = False
    kSavesOutput = False
    merges = True

    @staticmethod
    def dispatch(be: Any, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return be.reduce_sum(a, in_shape, axes, keepdims, dt)

    @classmethod
    def evaluate(cls, x: Any, *, axis: Axes, keepdims: Any, dtype: DType | None = None) -> Any:
        return _added_up(x, axis, keepdims)

    def scale_graph_grad(self, g: Var) -> Var:
        return g


def _added_up(x: Any, axis: Axes, keepdims: Any) -> Any:
    """The sum with float32 accumulated in float64: NumPy adds one by one along axes that are not the last."""
    wide = {"f": np.float64, "c": np.complex128}.get(x.dtype.kind, x.dtype)
    return np.sum(x, axis=axis, keepdims=keepdims, dtype=wide)


@register
class MeanBackward(Reduction):
    """y = (1/N) Σ_{i ∈ axes} x_i      ∂L/∂x_i = (1/N) broadcast(∂L/∂y)

    Integers become float32. Half precision accumulates in float32, so the sum does not overflow on the way.
    An empty mean is NaN.
    """

    schema_v1 = OpSchema("mean", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    partial = "sum"

    @classmethod
    def in_two(cls, x: Var, first: Axes, then: Axes) -> Var | None:
        total = SumBackward.in_two(x.astype(_wide(x.dtype)), first, then)
        assert total is not None
        return (total / float(prod(x.shape[k] for k in (*first, *then)))).astype(x.dtype)

    @staticmethod
    def dispatch(be: Any, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return be.reduce_mean(a, in_shape, axes, keepdims, dt)

    @classmethod
    def evaluate(cls, x: Any, *, axis: Axes, keepdims: Any, dtype: DType | None = None) -> Any:
        total = _added_up(x, axis, keepdims)
        return np.true_divide(total, total.dtype.type(prod(x.shape[k] for k in axis)))

    def scale_graph_grad(self, g: Var) -> Var:
        return g * (1.0 / self.count) if self.count else g * float("nan")


@register
class ProdBackward(Reduction):
    """y = Π_{i ∈ axes} x_i      ∂L/∂x_i = g Π_{j ≠ i} x_j

    Integers as in sum. The products of the others come from a balanced tree, so zeros need no special case.
    """

    schema_v1 = OpSchema("prod", amp_policy=AmpPolicy.PROMOTE, accumulate=Accumulate.WIDE)
    partial = "prod"
    merges = True
    keeps_single = True
    kSavesInput = True

    @staticmethod
    def dispatch(be: Any, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return be.reduce_prod(a, in_shape, axes, keepdims, dt)

    @classmethod
    def evaluate(cls, x: Any, *, axis: Axes, keepdims: Any, dtype: DType | None = None) -> Any:
        return np.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype)

    def scale_graph_grad(self, g: Var) -> Var:
        return g * self.others()

    def others(self) -> Var:
        """For each element, the product of all others that go into the same result."""
        axis, shape = self.axis, self.x.shape
        if self.count <= 1:
            return self.x.full(1.0)
        kept = tuple(k for k in range(len(shape)) if k not in axis)
        order = (*kept, *axis)
        outer = tuple(shape[k] for k in kept)
        level = self.x.permute(order).reshape((*outer, self.count))
        # Up: each level holds the products of pairs of the level below, an odd one out paired with 1.
        levels: list[Var] = []
        while level.shape[-1] > 1:
            if level.shape[-1] % 2:
                level = _append_one(level)
            levels.append(level)
            level = _every_other(level, 0) * _every_other(level, 1)
        # Down: the product of all others of a left child is that of its parent times the right child.
        others = level.full(1.0)
        for level in reversed(levels):
            pairs = level.shape[-1] // 2
            others = others if others.shape[-1] == pairs else _first(others, pairs)
            left, right = others * _every_other(level, 1), others * _every_other(level, 0)
            both = [v.expand_dims((v.ndim,)) for v in (left, right)]
            others = both[0].emit("concat", both[1], axis=left.ndim).reshape(level.shape)
        others = others if others.shape[-1] == self.count else _first(others, self.count)
        back = tuple(order.index(k) for k in range(len(shape)))
        return others.reshape(tuple(shape[k] for k in order)).permute(back)


def _append_one(v: Var) -> Var:
    one = v.scalar(1.0).broadcast_to((*v.shape[:-1], 1))
    return v.emit("concat", one, axis=v.ndim - 1)


def _last_axis_slice(v: Var, start: int, stop: int, step: int) -> Var:
    leading = v.ndim - 1
    return v.emit(
        "slice", start=(0,) * leading + (start,), stop=(*v.shape[:-1], stop), step=(1,) * leading + (step,)
    )  # fmt: skip


def _every_other(v: Var, start: int) -> Var:
    return _last_axis_slice(v, start, v.shape[-1], 2)


def _first(v: Var, count: int) -> Var:
    return _last_axis_slice(v, 0, count, 1)


class _Extreme(Reduction):
    """Base of max and min over axes: NaN wins; elements that tie share the gradient equally."""

    kSavesInput = True
    kSavesOutput = True
    merges = True
    keeps_single = True
    exactly_rounded = True

    @classmethod
    def check(cls, x: TensorType, axis: Axes) -> None:
        super().check(x, axis)
        name = cls.schema_v1.name
        _refuse_complex(name, x)
        for k in axis:
            if x.shape[k] == 0 and x.size == 0 and prod(reduced_shape(x.shape, axis, False)) > 0:
                what = f"{name} over axis {k}, which has no elements, of {x}"
                raise AxisError(what, hint="maximum with a start value")

    def scale_graph_grad(self, g: Var) -> Var:
        x, top = self.x, self.put_back(self.y)
        hit = (x == top) | ((x != x) & (top != top))
        ties = self.put_back(hit.astype(g.dtype).sum(self.axis, keepdims=bool(self.attrs["keepdims"])))
        return WhereBackward.of(hit, g / ties, g.full(0))


@register
class MaxBackward(_Extreme):
    """y = max_{i ∈ axes} x_i      ∂L/∂x_i = g / (number of ties) where x_i is the maximum, else 0"""

    schema_v1 = OpSchema("max")
    partial = "max"

    @staticmethod
    def dispatch(be: Any, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return be.reduce_max(a, in_shape, axes, keepdims, dt)

    @classmethod
    def evaluate(cls, x: Any, *, axis: Axes, keepdims: Any, dtype: DType | None = None) -> Any:
        return np.max(x, axis=axis, keepdims=keepdims)


@register
class MinBackward(_Extreme):
    """y = min_{i ∈ axes} x_i      ∂L/∂x_i = g / (number of ties) where x_i is the minimum, else 0"""

    schema_v1 = OpSchema("min")
    partial = "min"

    @staticmethod
    def dispatch(be: Any, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return be.reduce_min(a, in_shape, axes, keepdims, dt)

    @classmethod
    def evaluate(cls, x: Any, *, axis: Axes, keepdims: Any, dtype: DType | None = None) -> Any:
        return np.min(x, axis=axis, keepdims=keepdims)


class _Truth(Reduction):
    """Base of any and all: numbers count as true where they are not 0."""

    zero_gradient = "a truth value is a step function"
    merges = True
    keeps_single = True
    exactly_rounded = True

    @classmethod
    def result_dtype(cls, dtype: DType) -> DType:
        return bool_

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [ZERO]


@register
class AnyReduce(_Truth):
    """y = ⋁_{i ∈ axes} x_i; an empty reduction is False."""

    schema_v1 = OpSchema("any")
    partial = "any"

    @staticmethod
    def dispatch(be: Any, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return be.reduce_any(a, in_shape, axes, keepdims, dt)

    @classmethod
    def evaluate(cls, x: Any, *, axis: Axes, keepdims: Any, dtype: DType | None = None) -> Any:
        return np.any(x != 0, axis=axis, keepdims=keepdims)


@register
class AllReduce(_Truth):
    """y = ⋀_{i ∈ axes} x_i; an empty reduction is True."""

    schema_v1 = OpSchema("all")
    partial = "all"

    @staticmethod
    def dispatch(be: Any, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return be.reduce_all(a, in_shape, axes, keepdims, dt)

    @classmethod
    def evaluate(cls, x: Any, *, axis: Axes, keepdims: Any, dtype: DType | None = None) -> Any:
        return np.all(x != 0, axis=axis, keepdims=keepdims)


class _Arg(Reduction):
    """Base of argmax and argmin over one axis: the first of equals; a NaN is the extreme. Result int64."""

    zero_gradient = "an index is an integer"

    @classmethod
    def check(cls, x: TensorType, axis: Axes) -> None:
        super().check(x, axis)
        name = cls.schema_v1.name
        _refuse_complex(name, x)
        if len(axis) != 1:
            raise AxisError(f"{name} takes one axis, not {axis}")
        if x.shape[axis[0]] == 0:
            raise AxisError(f"{name} over axis {axis[0]}, which has no elements, of {x}")

    @classmethod
    def result_dtype(cls, dtype: DType) -> DType:
        return int64

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [ZERO]


@register
class ArgMax(_Arg):
    """y = argmax_i x_i"""

    schema_v1 = OpSchema("argmax")

    @staticmethod
    def dispatch(be: Any, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return be.reduce_argmax(a, in_shape, axes, keepdims, dt)

    @classmethod
    def evaluate(cls, x: Any, *, axis: Axes, keepdims: Any, dtype: DType | None = None) -> Any:
        return np.argmax(x, axis=axis[0], keepdims=keepdims)


@register
class ArgMin(_Arg):
    """y = argmin_i x_i"""

    schema_v1 = OpSchema("argmin")

    @staticmethod
    def dispatch(be: Any, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return be.reduce_argmin(a, in_shape, axes, keepdims, dt)

    @classmethod
    def evaluate(cls, x: Any, *, axis: Axes, keepdims: Any, dtype: DType | None = None) -> Any:
        return np.argmin(x, axis=axis[0], keepdims=keepdims)


@register
class VarBackward(Composite):
    """y = 1/(N - c) Σ |x_i - mean|²      ∂L/∂x_i = 2 conj(x_i - mean)/(N - c) g        c is ``correction``

    Two passes, and what the rounding of the mean has left in the second one is taken off: Σd² - (Σd)²/N (T. Chan,
    G. Golub, R. LeVeque, 1983). So large offsets lose nothing. NaN where N <= c. Real, for complex x too.
    """

    schema_v1 = OpSchema("var", real_valued=True)
    kSavesInput = True

    @classmethod
    def infer(cls, x: TensorType, *, axis: Axes, keepdims: bool, correction: float) -> TensorType:  # type: ignore[override]
        Reduction.check.__func__(cls, x, axis)  # type: ignore[attr-defined]
        return TensorType(reduced_shape(x.shape, axis, keepdims), to_real(x.dtype))

    @staticmethod
    def expand(x: Var, *, axis: Axes, keepdims: bool, correction: float) -> Var:  # type: ignore[override]
        wide = x.astype(float32) if x.dtype.is_half else x
        centred = wide - MeanBackward.of(wide, axis=axis, keepdims=True)
        total = _squared(centred).sum(axis)
        count = prod(x.shape[k] for k in axis)
        if axis and count:
            drift = _squared(centred.sum(axis)) * (1.0 / count)
            total = MaximumBackward.of(total - drift, total.full(0.0))
        if keepdims:
            total = total.expand_dims(axis)
        scaled = total * (1.0 / (count - correction)) if count > correction else total * float("nan")
        return scaled.astype(to_real(x.dtype))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        axis = self.attrs["axis"]
        count = prod(self.x.shape[k] for k in axis) - self.attrs["correction"]
        centred = self.x - MeanBackward.of(self.x, axis=axis, keepdims=True)
        back = grad_out if self.attrs["keepdims"] else grad_out.expand_dims(axis)
        if self.x.dtype.is_complex:
            centred, back = ConjBackward.of(centred), back.astype(self.x.dtype)
        return [back.broadcast_to(self.x.shape) * centred * (2.0 / count if count > 0 else float("nan"))]


def _squared(v: Var) -> Var:
    """|v|²"""
    return RealBackward.of(v * ConjBackward.of(v)) if v.dtype.is_complex else v * v


@register
class StdBackward(Composite):
    """y = √var(x)      ∂L/∂x_i = conj(x_i - mean)/((N - c) y) g, and 0 where y is 0"""

    schema_v1 = OpSchema("std", real_valued=True)
    kSavesInput = True
    kSavesOutput = True

    @classmethod
    def infer(cls, x: TensorType, *, axis: Axes, keepdims: bool, correction: float) -> TensorType:  # type: ignore[override]
        return VarBackward.infer(x, axis=axis, keepdims=keepdims, correction=correction)

    @staticmethod
    def expand(x: Var, *, axis: Axes, keepdims: bool, correction: float) -> Var:  # type: ignore[override]
        wide = x.astype(float32) if x.dtype.is_half else x  # the variance may not fit where its root does
        variance = VarBackward.expand(wide, axis=axis, keepdims=keepdims, correction=correction)
        return variance.emit("sqrt").astype(to_real(x.dtype))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        axis, keepdims = self.attrs["axis"], self.attrs["keepdims"]
        count = prod(self.x.shape[k] for k in axis) - self.attrs["correction"]
        back = [(v if keepdims else v.expand_dims(axis)).astype(self.x.dtype) for v in (grad_out, self.y)]
        centred = self.x - MeanBackward.of(self.x, axis=axis, keepdims=True)
        if self.x.dtype.is_complex:
            centred = ConjBackward.of(centred)
        scale = 1.0 / count if count > 0 else float("nan")
        slope = MaskedDivBackward.of(centred, back[1].broadcast_to(self.x.shape)) * scale
        return [back[0] * slope]


def _refuse_complex(name: str, x: TensorType) -> None:
    if x.dtype.is_complex:
        raise DTypeError(f"{name} has no meaning for {x}: complex numbers are not ordered")
