"""Chapter window: convolution as contractions over windows, and windows added up where they came from.

Windows are strided views, which :mod:`contraction` reads as they lie. Where the operand is spread by zeros (the
gradient of a strided convolution, a transposed one) there is one contraction for each way in which the kernel meets
its elements, or the product comes first and its results are added up in place: no multiplication by those zeros. Half
precision is computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product as combinations
from math import gcd, prod
from typing import Final

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...ir import Graph, Node, TensorType
from ...ir.op import get
from ...ir.ops.core import Input
from ...ir.ops.window import kept_places, spread_sizes, targets
from ...ir.types import Shape
from .contraction import Moves, contract, lanes_of, tile_sizes
from .linalg import product
from .pieces import boxes_around
from .placing import covered, ones, side_by_side
from .plan import Planner, Rule
from .views import View

_PHASES: Final = 16
"""The most convolutions that one over an operand spread by zeros becomes."""

Sizes = tuple[int, ...]


def overlap_add(planner: Planner, node: Node) -> View:
    size = covered(node)
    if size is not None and node.type.size and node.operands[0].type.size:
        # Each element has one place, where whatever makes it may have put it already.
        out, x = planner.placing.out(node), planner.view(node.operands[0])
        for start, stop in boxes_around(node.shape, (0,) * len(size), size):
            _zero(planner, out.sliced(start, stop, ones(start)))
        part = side_by_side(out, node)
        if not x.lies_as(part):
            planner.copy(x, part)
        return out
    wide = dtypes.float32 if node.dtype.is_half else node.dtype
    out = planner.temporary(node.shape, wide)
    if out.size:
        x = planner.cast(planner.view(node.operands[0]), wide)
        _add_up(planner, x, out, node.attrs["axis"], node.attrs["stride"], node.attrs["dilation"])
    return planner.cast(out, node.dtype)


def _add_up(planner: Planner, x: View, out: View, axis: int, stride: Sizes, dilation: Sizes) -> None:
    """Zeros and the windows ``x`` into ``out``."""
    rank = len(stride)
    count, kernel = x.shape[axis : axis + rank], x.shape[axis + rank : axis + 2 * rank]
    apart = all(k == 1 or s > (k - 1) * d for k, s, d in zip(kernel, stride, dilation, strict=True))
    if not apart or x.size < out.size:
        _zero(planner, out)
    if not x.size:
        return
    if apart:
        # No two windows meet: each element has one place.
        planner.copy(x, out.windowed(axis, kernel, stride, dilation))
        return
    for place, target in targets(count, kernel, stride, dilation):
        there = _part(out, axis, target)
        here = _part(x, axis + rank, tuple(slice(k, k + 1) for k in place))
        _add(planner, replace(here, shape=there.shape, strides=_without(here.strides, axis + rank, rank)), there)


def _part(x: View, axis: int, parts: Sequence[slice]) -> View:
    """Slices of some axes."""
    start, stop, step = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    for k, part in enumerate(parts, axis):
        start[k], stop[k], step[k] = part.start, part.stop, part.step or 1
    return x.sliced(tuple(start), tuple(stop), tuple(step))


def _without(values: Sizes, axis: int, count: int) -> Sizes:
    return (*values[:axis], *values[axis + count :])


def _add(planner: Planner, x: View, out: View) -> None:
    """``out += x``."""
    t = TensorType(out.shape, out.dtype)
    inputs = [Node(Input, (), {}, (t,)) for _ in range(2)]
    total = Node(get("add"), tuple(inputs), {}, (t,))
    planner.fused(Graph(inputs, [total], [total], "explicit"), [out, x], [out])


def _zero(planner: Planner, out: View) -> None:
    planner.fill(planner.constant(np.zeros(()), out.dtype), out)


# -- convolution


def conv(planner: Planner, node: Node) -> View:
    dtype = dtypes.float32 if node.dtype.is_half else node.dtype
    attrs = node.attrs
    x = planner.cast(_grouped(planner, node.operands[0], attrs["groups"]), dtype)
    w = planner.cast(planner.view(node.operands[1]), dtype)
    rank = len(attrs["stride"])
    if attrs["flip"]:
        w = _part(w, 1, tuple(slice(n - 1, -1, -1) for n in w.shape[1:-1]))
    out = planner.temporary(node.shape, dtype)
    if not (node.type.size and x.size and w.size):
        if out.size:
            _zero(planner, out)
    elif attrs["stride"] != (1,) * rank or prod(attrs["input_dilation"]) == 1:
        spread = _spread(planner, x, attrs["pad_lo"], attrs["pad_hi"], attrs["input_dilation"])
        _contracted(planner, node, spread, w, out, attrs["stride"], attrs["kernel_dilation"])
    elif prod(attrs["input_dilation"]) <= _PHASES:
        _by_phases(planner, node, x, w, out)
    else:
        out = _transposed(planner, node, x, w)
    return planner.cast(out, node.dtype)


def _grouped(planner: Planner, node: Node, groups: int) -> View:
    """An operand (batch, *spatial, groups · c) as (batch, *spatial, groups, c)."""
    shape = (*node.shape[:-1], groups, node.shape[-1] // groups)
    return planner.seen_as(node, shape) or _joined(planner, planner.view(node), shape)


def _by_phases(planner: Planner, node: Node, x: View, w: View, out: View) -> None:
    """x spread by zeros, stride 1. Of the places o = e q + r of the result, e being the spreading, those of each r see
    some taps of the kernel only, and of x its own elements: a convolution without zeros for each r."""
    attrs = node.attrs
    parts = zip(
        w.shape[1:-1], x.shape[1:-2], node.shape[1:-1], attrs["input_dilation"], attrs["kernel_dilation"],
        attrs["pad_lo"], strict=True,
    )  # fmt: skip
    axes = [[_phase(r, *part) for r in range(min(part[3], part[2]))] for part in parts]
    # Zeros once around x, wide enough for all.
    low = tuple(max(0, *(-p.first for p in axis)) for axis in axes)
    high = tuple(max(0, *(p.stop for p in axis)) - n for axis, n in zip(axes, x.shape[1:-2], strict=True))
    high = tuple(max(h, 0) for h in high)
    spread = _spread(planner, x, low, high, (1,) * len(axes))
    for phases in combinations(*axes):
        there = _part(out, 1, tuple(p.places for p in phases))
        if any(p.taps is None for p in phases):
            _zero(planner, there)
            continue
        seen = _part(w, 1, tuple(p.taps for p in phases if p.taps is not None))
        here = _part(spread, 1, tuple(slice(p.first + a, p.stop + a) for p, a in zip(phases, low, strict=True)))
        _contracted(planner, node, here, seen, there, (1,) * len(phases), tuple(p.dilation for p in phases))


@dataclass(frozen=True, slots=True)
class _Phase:
    """One axis of a phase: the places of the result, the taps they see, and from where to where they see x."""

    places: slice
    taps: slice | None
    dilation: int
    first: int
    stop: int


def _phase(r: int, kernel: int, n: int, size: int, spread: int, dilation: int, pad: int) -> _Phase:
    """The taps k with r + k dilation - pad a multiple of ``spread``, every (spread / gcd)-th one."""
    count = len(range(r, size, spread))
    every = spread // gcd(spread, dilation)
    start = next((k for k in range(min(every, kernel)) if not (r + k * dilation - pad) % spread), None)
    places = slice(r, size, spread)
    if start is None:
        return _Phase(places, None, 1, 0, 0)
    step = dilation * every // spread
    first = (r + start * dilation - pad) // spread
    taps = len(range(start, kernel, every))
    return _Phase(places, slice(start, kernel, every), step, first, first + count + (taps - 1) * step)


def _spread(planner: Planner, x: View, pad_lo: Sizes, pad_hi: Sizes, dilation: Sizes) -> View:
    """The operand with zeros around and between its elements; itself, or a part of it, where there are none."""
    rank = len(pad_lo)
    spatial = x.shape[1 : rank + 1]
    sizes = spread_sizes(spatial, pad_lo, pad_hi, dilation)
    inside, places = kept_places(spatial, sizes, pad_lo, dilation)
    kept = _part(x, 1, inside)
    if kept.shape[1 : rank + 1] == sizes:
        return kept
    out = _as_laid_out(planner, (x.shape[0], *sizes, *x.shape[rank + 1 :]), x)
    _zero(planner, out)
    if kept.size:
        planner.copy(kept, _part(out, 1, places))
    return out


def _as_laid_out(planner: Planner, shape: Shape, like: View) -> View:
    """A temporary whose axes lie in memory in the order of another's."""
    order = sorted(range(len(shape)), key=lambda k: -like.strides[k])
    out = planner.temporary(tuple(shape[k] for k in order), like.dtype)
    return out.permuted(tuple(order.index(k) for k in range(len(shape))))


def _contracted(
    planner: Planner, node: Node, x: View, w: View, out: View, stride: Sizes, dilation: Sizes
) -> None:  # fmt: skip
    """Σ over the places of the kernel and the channels of each group: x, with all zeros, is (n, *sizes, groups, c),
    w (groups · f, *k, c), out (n, *o, groups · f)."""
    groups, inputs = x.shape[-2:]
    outputs, rank, kernel = out.shape[-1] // groups, len(stride), w.shape[1:-1]
    lanes, itemsize = lanes_of(planner.machine, out.dtype), out.dtype.itemsize
    if groups > 1 and _filled(groups, lanes) > 2 * _filled(outputs, lanes):
        _lane_by_lane(planner, node, x, w, out, stride, dilation)
        return
    windows = x.windowed(1, kernel, stride, dilation)
    rows = prod(out.shape[:-1])
    if groups == 1 and prod(kernel) == 1 and out.contiguous:
        matrix = windows.reshaped((rows, inputs))
        if matrix is not None and matrix.strides[1] == itemsize:
            turned = _joined(planner, w, (outputs, inputs)).permuted((1, 0))
            product(planner, matrix, turned, replace(out, shape=(rows, outputs), strides=out.strides[-2:]), node)
            return
    points = list(map(Moves, out.shape[:-1], windows.strides, out.strides))
    cut = _split(w, 0, groups)
    if cut.strides[1] != itemsize or not (planner.machine.masks or not outputs % lanes):
        # Unless w is a gradient, which lies as it is read.
        cut, panel = _packed(planner, cut, rows)
        padded = True
    else:
        panel, padded = _tile_width(planner, out.dtype, rows, outputs) * itemsize, False
    reduced = list(map(Moves, (*kernel, inputs), (*windows.strides[rank + 1 : -2], x.strides[-1]), cut.strides[2:]))
    steps = (groups, x.strides[-2], cut.strides[0], outputs * itemsize)
    contract(planner, windows, cut, out, points, reduced, outputs, steps, panel, padded, False, node)


def _tile_width(planner: Planner, dtype: DType, points: int, width: int) -> int:
    """The outputs of a tile."""
    _, vectors, lanes = tile_sizes(planner.machine, dtype, points, width)
    return vectors * lanes


def _filled(n: int, lanes: int) -> float:
    """The part of the lanes that are used."""
    return n / (-(-n // lanes) * lanes)


def _packed(planner: Planner, w: View, points: int) -> tuple[View, int]:
    """w (groups, f, *k, c) as (groups, panels, *k, c, outputs of a panel), zeros at the end; the panels' distance."""
    groups, outputs, *inner = w.shape
    wide = _tile_width(planner, w.dtype, points, outputs)
    panels = -(-outputs // wide)
    out = planner.temporary((groups, panels, *inner, wide), w.dtype)
    if outputs % wide:
        _zero(planner, out)
    # Whole panels, and what is left.
    for first, count, size in ((0, outputs // wide, wide), (outputs // wide * wide, 1, outputs % wide)):
        if not count * size:
            continue
        some = _part(w, 1, (slice(first, first + count * size),))
        cut = replace(
            some, shape=(groups, count, size, *inner),
            strides=(w.strides[0], w.strides[1] * size, w.strides[1], *w.strides[2:]),
        )  # fmt: skip
        last = len(cut.shape) - 1
        there = _part(out, 1, (slice(first // wide, first // wide + count),))
        there = _part(there, last, (slice(0, size),))
        planner.copy(cut.permuted((0, 1, *range(3, last + 1), 2)), there)
    seen = replace(
        out, shape=(groups, wide, *inner), strides=(out.strides[0], out.strides[-1], *out.strides[2:-1])
    )  # fmt: skip
    return seen, out.strides[1]


def _lane_by_lane(
    planner: Planner, node: Node, x: View, w: View, out: View, stride: Sizes, dilation: Sizes
) -> None:  # fmt: skip
    """Many groups of few channels: vectors lie along the groups, one output of each group after the other."""
    groups, inputs = x.shape[-2:]
    rank, itemsize, outputs = len(stride), out.dtype.itemsize, out.shape[-1] // groups
    last = rank + 2
    if x.strides[-2] != itemsize:
        turned = planner.contiguous(x.permuted((*range(rank + 1), last, last - 1)))
        x = turned.permuted((*range(rank + 1), last, last - 1))
    windows = x.windowed(1, w.shape[1:-1], stride, dilation)
    cut = _split(w, 0, groups).permuted((*range(1, rank + 3), 0))
    if cut.strides[-1] != itemsize:
        cut = planner.contiguous(cut)
    there = _split(out, rank + 1, groups)
    y = there if outputs == 1 else planner.temporary((*out.shape[:-1], outputs, groups), out.dtype)
    points = list(map(Moves, out.shape[:-1], windows.strides, y.strides))
    taps = (*windows.strides[rank + 1 : -2], windows.strides[-1])
    reduced = list(map(Moves, (*w.shape[1:-1], inputs), taps, cut.strides[1:]))
    panel = _tile_width(planner, out.dtype, prod(out.shape[:-1]), groups) * itemsize
    steps = (outputs, 0, cut.strides[0], groups * itemsize)
    contract(planner, windows, cut, y if outputs > 1 else out, points, reduced, groups, steps, panel, False, True, node)
    if outputs > 1:
        planner.copy(y.permuted((*range(rank + 1), last, last - 1)), there)


def _split(x: View, axis: int, groups: int) -> View:
    """An axis as groups of neighbours."""
    n, step = x.shape[axis] // groups, x.strides[axis]
    shape = (*x.shape[:axis], groups, n, *x.shape[axis + 1 :])
    return replace(x, shape=shape, strides=(*x.strides[:axis], n * step, step, *x.strides[axis + 1 :]))


def _joined(planner: Planner, x: View, shape: Shape) -> View:
    """A view in another shape; of a copy where strides cannot say it."""
    seen = x.reshaped(shape)
    if seen is None:
        seen = planner.contiguous(x).reshaped(shape)
        assert seen is not None
    return seen


def _multiplied(planner: Planner, columns: View, matrix: View, outputs: int, node: Node) -> View:
    """One product for each group: (groups, rows, inner) by (groups, inner…, outputs)."""
    groups, rows, inner = columns.shape
    y = planner.temporary((groups, rows, outputs), columns.dtype)
    product(planner, columns, _joined(planner, matrix, (groups, inner, outputs)), y, node)
    return y


def _transposed(planner: Planner, node: Node, x: View, w: View) -> View:
    """x spread by zeros, stride 1: each element's products with the whole kernel, added up where they belong."""
    attrs = node.attrs
    groups, rank = attrs["groups"], len(attrs["stride"])
    n, *sizes = x.shape[: rank + 1]
    kernel, inputs, outputs = w.shape[1:-1], w.shape[-1], w.shape[0] // groups
    # Places of the result run the other way along the kernel.
    w = _part(w, 1, tuple(slice(k - 1, -1, -1) for k in kernel))
    each = _split(w, 0, groups).permuted((0, rank + 2, *range(2, rank + 2), 1))
    right = _joined(planner, each, (groups, inputs, prod(kernel) * outputs))
    left = x.permuted((rank + 1, *range(rank + 1), rank + 2))
    y = _multiplied(planner, _joined(planner, left, (groups, n * prod(sizes), inputs)), right, right.shape[-1], node)
    seen = y.reshaped((groups, n, *sizes, *kernel, outputs))
    assert seen is not None
    windows = seen.permuted((*range(1, 2 * rank + 2), 0, 2 * rank + 2))
    full, low, shape = [], [], node.shape[1:-1]
    for k, m, spread, dilation, pad, size in zip(
        kernel, sizes, attrs["input_dilation"], attrs["kernel_dilation"], attrs["pad_lo"], shape, strict=True
    ):
        first = (k - 1) * dilation - pad
        # The result may begin before what is added up, and end after it.
        low.append(max(-first, 0))
        full.append(low[-1] + max((m - 1) * spread + (k - 1) * dilation + 1, first + size))
    total = planner.temporary((n, *full, groups, outputs), x.dtype)
    inner = _part(total, 1, tuple(slice(a, b) for a, b in zip(low, full, strict=True)))
    if inner.shape != total.shape:
        _zero(planner, total)
    _add_up(planner, windows, inner, 1, attrs["input_dilation"], attrs["kernel_dilation"])
    starts = [
        a + (k - 1) * d - p for a, k, d, p in zip(low, kernel, attrs["kernel_dilation"], attrs["pad_lo"], strict=True)
    ]
    part = _part(total, 1, tuple(slice(a, a + size) for a, size in zip(starts, shape, strict=True)))
    return _joined(planner, part, node.shape)


OPS: Final[dict[str, Rule]] = {"overlap_add": overlap_add, "conv": conv}

__all__ = ["conv", "overlap_add"]
