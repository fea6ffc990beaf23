"""Sliding windows, their sum back into place, and convolution. Arrays are (batch, *spatial, channels)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...errors import DTypeError, ShapeError
from ..builder import Var
from ..op import Gradient, Op, Types, register
from ..schema import AmpPolicy, OpSchema
from ..types import TensorType
from .shape import flipped

Sizes = tuple[int, ...]


def extent(kernel: int, dilation: int) -> int:
    """How many places a kernel spans."""
    return (kernel - 1) * dilation + 1


def positions(name: str, sizes: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Sizes:
    """How often a kernel fits each axis. Raises :class:`ShapeError` where it does not fit at all.

    >>> positions("conv", (7, 5), (3, 2), (2, 1), (1, 4))
    (3, 1)
    """
    if not len(sizes) == len(kernel) == len(stride) == len(dilation):
        raise ShapeError(f"{name} over {len(sizes)} axes: kernel, stride and dilation have one number for each")
    if min((*kernel, *stride, *dilation), default=1) < 1:
        raise ShapeError(f"{name}: kernel {kernel}, stride {stride} and dilation {dilation} are positive")
    spans = tuple(map(extent, kernel, dilation))
    if any(n < span for n, span in zip(sizes, spans, strict=True)):
        raise ShapeError(f"{name}: a kernel that spans {spans} does not fit into {sizes}", hint="pad the operand")
    return tuple((n - span) // s + 1 for n, span, s in zip(sizes, spans, stride, strict=True))


@register
class WindowsBackward(Op):
    """y[…, o…, k…, …] = x[…, o · stride + k · dilation, …]      ∂L/∂x = overlap_add of g

    Of the ``len(kernel)`` axes from ``axis`` on; those of the places within a window follow those of the windows.
    """

    schema_v1 = OpSchema("windows")
    moves_data = True
    view = True

    @classmethod
    def infer(cls, x: TensorType, *, axis: int, kernel: Sizes, stride: Sizes, dilation: Sizes) -> TensorType:
        end = axis + len(kernel)
        if not 0 <= axis <= end <= x.ndim:
            raise ShapeError(f"windows over {len(kernel)} axes of {x} from axis {axis} on")
        count = positions("windows", x.shape[axis:end], kernel, stride, dilation)
        return TensorType((*x.shape[:axis], *count, *kernel, *x.shape[end:]), x.dtype)

    @classmethod
    def evaluate(cls, x: Any, *, axis: int, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Any:
        end = axis + len(kernel)
        count = positions("windows", x.shape[axis:end], kernel, stride, dilation)
        shape = (*x.shape[:axis], *count, *kernel, *x.shape[end:])
        strides = cls.strides(x.strides, axis=axis, kernel=kernel, stride=stride, dilation=dilation)
        return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)

    @staticmethod
    def strides(strides: Sequence[int], *, axis: int, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Sizes:
        """The strides with which an array of ``strides`` is its windows."""
        end = axis + len(kernel)
        own = strides[axis:end]
        between = (n * s for n, s in zip(own, stride, strict=True))
        within = (n * d for n, d in zip(own, dilation, strict=True))
        return (*strides[:axis], *between, *within, *strides[end:])

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        axis, kernel, stride, dilation = (self.attrs[k] for k in ("axis", "kernel", "stride", "dilation"))
        size = self.x.shape[axis : axis + len(kernel)]
        return [OverlapAddBackward.of(grad_out, axis=axis, size=size, stride=stride, dilation=dilation)]


@register
class OverlapAddBackward(Op):
    """y[…, i, …] = Σ x[…, o…, k…, …] over all o · stride + k · dilation = i      ∂L/∂x = the windows of g

    ``size`` is that of y along the axes from ``axis`` on. What no window covers is 0.
    """

    schema_v1 = OpSchema("overlap_add")
    flops_per_element = 1

    @classmethod
    def infer(cls, x: TensorType, *, axis: int, size: Sizes, stride: Sizes, dilation: Sizes) -> TensorType:
        rank = len(size)
        end = axis + 2 * rank
        if not 0 <= axis <= end <= x.ndim:
            raise ShapeError(f"overlap_add over {rank} axes of {x} from axis {axis} on")
        kernel = x.shape[axis + rank : end]
        if positions("overlap_add", size, kernel, stride, dilation) != x.shape[axis : axis + rank]:
            raise ShapeError(f"overlap_add of {x} into {size} by stride {stride} and dilation {dilation}")
        return TensorType((*x.shape[:axis], *size, *x.shape[end:]), x.dtype)

    @classmethod
    def evaluate(cls, x: Any, *, axis: int, size: Sizes, stride: Sizes, dilation: Sizes) -> Any:
        rank = len(size)
        wide = x.astype({"f": np.float64, "c": np.complex128}.get(x.dtype.kind, x.dtype), copy=False)
        out = np.zeros((*x.shape[:axis], *size, *x.shape[axis + 2 * rank :]), wide.dtype)
        before = (slice(None),) * axis
        count, kernel = x.shape[axis : axis + rank], x.shape[axis + rank : axis + 2 * rank]
        for place, target in targets(count, kernel, stride, dilation):
            out[(*before, *target)] += wide[(*before, *(slice(None),) * rank, *place)]
        return out

    @classmethod
    def flops(cls, types: Any, results: Types, attrs: Any) -> int:
        return int(types[0].size)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        axis, rank = self.attrs["axis"], len(self.attrs["size"])
        kernel = self.x.shape[axis + rank : axis + 2 * rank]
        stride, dilation = self.attrs["stride"], self.attrs["dilation"]
        return [WindowsBackward.of(grad_out, axis=axis, kernel=kernel, stride=stride, dilation=dilation)]


def targets(
    count: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes
) -> Sequence[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """For each place within a window, where the elements that all windows have there belong."""
    found = []
    for place in product(*map(range, kernel)):
        parts = zip(place, count, stride, dilation, strict=True)
        found.append((place, tuple(slice(k * d, k * d + (n - 1) * s + 1, s) for k, n, s, d in parts)))
    return found


@register
class ConvBackward(Op):
    """y[n, o, f] = Σ_{k, c} x̂[n, o · stride + k · kernel_dilation, c] w[f, k, c]

    x̂ is x with ``input_dilation`` - 1 zeros between its elements and ``pad_lo``, ``pad_hi`` around them; a negative
    width takes elements away. w is (outputs, *kernel, inputs / groups); outputs of a group see its inputs only. With
    ``flip`` the kernel is read from its end. Both gradients are convolutions: ∂L/∂x of g with the flipped kernel, ∂L/∂w
    of x with g as the kernel. Half precision is multiplied and added in float32.
    """

    schema_v1 = OpSchema("conv", amp_policy=AmpPolicy.PROMOTE, contraction=True, arity=2, real_valued=True)
    kSavesInput = True

    @classmethod
    def infer(
        cls, x: TensorType, w: TensorType, *, stride: Sizes, pad_lo: Sizes, pad_hi: Sizes, kernel_dilation: Sizes,
        input_dilation: Sizes, groups: int, flip: bool,
    ) -> TensorType:  # fmt: skip
        rank = x.ndim - 2
        if x.dtype is not w.dtype or not x.dtype.is_floating:
            raise DTypeError(f"conv takes floating operands of one dtype, not {x} and {w}")
        if rank < 1 or w.ndim != x.ndim:
            raise ShapeError(f"conv of {x} with {w}: (batch, *spatial, inputs) and (outputs, *kernel, inputs / groups)")
        if not len(pad_lo) == len(pad_hi) == len(input_dilation) == rank or min(input_dilation) < 1:
            raise ShapeError(f"conv over {rank} axes: paddings and dilations have one number for each")
        if groups < 1 or w.shape[0] % groups or x.shape[-1] != w.shape[-1] * groups:
            raise ShapeError(
                f"conv of {x} with {w} in {groups} groups: {x.shape[-1]} channels meet {w.shape[-1]} in each group of "
                f"{w.shape[0]} outputs",
                hint="weights are (outputs, *kernel, inputs / groups), channels last",
            )
        sizes = spread_sizes(x.shape[1:-1], pad_lo, pad_hi, input_dilation)
        count = positions("conv", sizes, w.shape[1:-1], stride, kernel_dilation)
        return TensorType((x.shape[0], *count, w.shape[0]), x.dtype)

    @classmethod
    def evaluate(
        cls, x: Any, w: Any, *, stride: Sizes, pad_lo: Sizes, pad_hi: Sizes, kernel_dilation: Sizes,
        input_dilation: Sizes, groups: int, flip: bool,
    ) -> Any:  # fmt: skip
        rank, kernel = x.ndim - 2, w.shape[1:-1]
        if flip:
            w = np.flip(w, tuple(range(1, rank + 1)))
        spread = np.zeros(
            (x.shape[0], *spread_sizes(x.shape[1:-1], pad_lo, pad_hi, input_dilation), x.shape[-1]), x.dtype
        )
        inside, places = kept_places(x.shape[1:-1], spread.shape[1:-1], pad_lo, input_dilation)
        spread[(slice(None), *places)] = x[(slice(None), *inside)]
        windows = WindowsBackward.evaluate(spread, axis=1, kernel=kernel, stride=stride, dilation=kernel_dilation)
        count, inner = windows.shape[1 : rank + 1], prod(kernel) * w.shape[-1]
        columns = np.moveaxis(windows.reshape((*windows.shape[:-1], groups, w.shape[-1])), -2, 0)
        columns = columns.reshape((groups, x.shape[0] * prod(count), inner))
        each = w.reshape((groups, w.shape[0] // groups, inner))
        y = np.moveaxis(np.matmul(columns, np.swapaxes(each, 1, 2)), 0, 1)
        return y.reshape((x.shape[0], *count, w.shape[0]))

    @classmethod
    def flops(cls, types: Sequence[TensorType], results: Types, attrs: Any) -> int:
        return 2 * prod(types[1].shape[1:]) * results[0].size

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        x, w = self.inputs
        if not (x.size and w.size and grad_out.size):
            return [x.full(0), w.full(0)]
        return [self.to_input(grad_out), self.to_kernel(grad_out)]

    def to_input(self, g: Var) -> Var:
        """g, spread by the stride, with the kernel read the other way round: inputs and outputs change places."""
        (x, w), attrs = self.inputs, self.attrs
        spans = tuple(map(extent, w.shape[1:-1], attrs["kernel_dilation"]))
        low = tuple(span - 1 - lo for span, lo in zip(spans, attrs["pad_lo"], strict=True))
        full = tuple(
            extent(n, d) + span - 1 for n, d, span in zip(x.shape[1:-1], attrs["input_dilation"], spans, strict=True)
        )
        have = map(extent, g.shape[1:-1], attrs["stride"])
        high = tuple(n - m - lo for n, m, lo in zip(full, have, low, strict=True))
        return ConvBackward.of(
            g, _outputs_inside(w, attrs["groups"]), stride=attrs["input_dilation"], pad_lo=low, pad_hi=high,
            kernel_dilation=attrs["kernel_dilation"], input_dilation=attrs["stride"], groups=attrs["groups"],
            flip=not attrs["flip"],
        )  # fmt: skip

    def to_kernel(self, g: Var) -> Var:
        """The windows of x that the places of the kernel see, weighted by g: batch and channels change places."""
        (x, w), attrs = self.inputs, self.attrs
        groups = attrs["groups"]
        span = [extent(n, d) for n, d in zip(w.shape[1:-1], attrs["kernel_dilation"], strict=True)]
        steps = [extent(n, s) for n, s in zip(g.shape[1:-1], attrs["stride"], strict=True)]
        have = [extent(n, d) for n, d in zip(x.shape[1:-1], attrs["input_dilation"], strict=True)]
        high = tuple(p + s - 1 - n - lo for p, s, n, lo in zip(span, steps, have, attrs["pad_lo"], strict=True))
        y = ConvBackward.of(
            _batch_inside(x, groups), _ends_exchanged(g), stride=attrs["kernel_dilation"],
            pad_lo=attrs["pad_lo"], pad_hi=high, kernel_dilation=attrs["stride"],
            input_dilation=attrs["input_dilation"], groups=groups, flip=False,
        )  # fmt: skip
        y = _ends_exchanged(y)
        return flipped(y, tuple(range(1, y.ndim - 1))) if attrs["flip"] else y


def spread_sizes(sizes: Sizes, pad_lo: Sizes, pad_hi: Sizes, dilation: Sizes) -> Sizes:
    """The spatial sizes after dilation and padding."""
    parts = zip(sizes, pad_lo, pad_hi, dilation, strict=True)
    return tuple(max((extent(n, d) if n else 0) + lo + hi, 0) for n, lo, hi, d in parts)


def kept_places(
    sizes: Sizes, spread: Sizes, pad_lo: Sizes, dilation: Sizes
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Which elements of an array are left after padding, some of it negative, and where they are then."""
    inside, places = [], []
    for n, m, lo, d in zip(sizes, spread, pad_lo, dilation, strict=True):
        first = -(min(lo, 0) // d) if lo < 0 else 0
        stop = max(min(n, -(-(m - lo) // d)), first)
        at = lo + first * d
        inside.append(slice(first, stop))
        places.append(slice(at, at + (stop - first - 1) * d + 1, d) if stop > first else slice(0, 0))
    return tuple(inside), tuple(places)


def _outputs_inside(w: Var, groups: int) -> Var:
    """(groups · outputs, *kernel, inputs) as (groups · inputs, *kernel, outputs)."""
    outputs, *kernel, inputs = w.shape[0] // groups, *w.shape[1:]
    cut = w.reshape((groups, outputs, *kernel, inputs))
    last = cut.ndim - 1
    return cut.permute((0, last, *range(2, last), 1)).reshape((groups * inputs, *kernel, outputs))


def _batch_inside(x: Var, groups: int) -> Var:
    """(batch, *spatial, groups · inputs) as (inputs, *spatial, groups · batch)."""
    batch, *spatial, inputs = *x.shape[:-1], x.shape[-1] // groups
    cut = x.reshape((batch, *spatial, groups, inputs))
    last = cut.ndim - 1
    return cut.permute((last, *range(1, last), 0)).reshape((inputs, *spatial, groups * batch))


def _ends_exchanged(v: Var) -> Var:
    """The first and last axes in each other's place."""
    last = v.ndim - 1
    return v.permute((last, *range(1, last), 0))


__all__ = [
    "ConvBackward", "OverlapAddBackward", "WindowsBackward", "extent", "kept_places", "positions", "spread_sizes",
    "targets",
]  # fmt: skip
