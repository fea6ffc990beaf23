"""Chapter window: convolution as matrix products over windows, and windows added up where they came from.

Windows are strided views; a product needs them copied into a matrix, some images at a time so that it stays in cache.
Where the operand is spread by zeros (the gradient of a strided convolution, a transposed one) the product comes first,
and its results are added up in place: no multiplication by those zeros. Half precision is computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from ... import dtypes
from ...ir import Graph, Node, TensorType
from ...ir.op import get
from ...ir.ops.core import Input
from ...ir.ops.window import kept_places, spread_sizes, targets
from ...ir.types import Shape
from .linalg import product
from .plan import Planner, Rule
from .views import View

_BLOCK_BYTES: Final = 1 << 21
_FEW: Final = 4
_PIECES: Final = 8

Sizes = tuple[int, ...]


def overlap_add(planner: Planner, node: Node) -> View:
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
    x, w = (planner.cast(planner.view(o), dtype) for o in node.operands)
    attrs = node.attrs
    rank = len(attrs["stride"])
    if attrs["flip"]:
        w = _part(w, 1, tuple(slice(n - 1, -1, -1) for n in w.shape[1:-1]))
    if not (node.type.size and x.size and w.size):
        out = planner.temporary(node.shape, dtype)
        if out.size:
            _zero(planner, out)
    elif attrs["stride"] == (1,) * rank != attrs["input_dilation"]:
        out = _transposed(planner, node, x, w)
    else:
        spread = _spread(planner, x, attrs["pad_lo"], attrs["pad_hi"], attrs["input_dilation"])
        windows = spread.windowed(1, w.shape[1:-1], attrs["stride"], attrs["kernel_dilation"])
        out = _contracted(planner, node, windows, w, attrs["groups"])
    return planner.cast(out, node.dtype)


def _spread(planner: Planner, x: View, pad_lo: Sizes, pad_hi: Sizes, dilation: Sizes) -> View:
    """The operand with zeros around and between its elements; itself, or a part of it, where there are none."""
    sizes = spread_sizes(x.shape[1:-1], pad_lo, pad_hi, dilation)
    inside, places = kept_places(x.shape[1:-1], sizes, pad_lo, dilation)
    kept = _part(x, 1, inside)
    if kept.shape[1:-1] == sizes:
        return kept
    out = _as_laid_out(planner, (x.shape[0], *sizes, x.shape[-1]), x)
    _zero(planner, out)
    if kept.size:
        planner.copy(kept, _part(out, 1, places))
    return out


def _as_laid_out(planner: Planner, shape: Shape, like: View) -> View:
    """A temporary whose axes lie in memory in the order of another's."""
    order = sorted(range(len(shape)), key=lambda k: -like.strides[k])
    out = planner.temporary(tuple(shape[k] for k in order), like.dtype)
    return out.permuted(tuple(order.index(k) for k in range(len(shape))))


def _contracted(planner: Planner, node: Node, windows: View, w: View, groups: int) -> View:
    """Σ over the places and the channels of each group: windows (n, *o, *k, groups · c), w (groups · f, *k, c)."""
    n, *count, outputs = node.shape
    rank, inputs = len(count), w.shape[-1]
    outputs //= groups
    kernel = w.shape[1:-1]
    windows = _split(windows, len(windows.shape) - 1, groups)
    w = _split(w, 0, groups)
    out = planner.temporary((n, *count, groups * outputs), w.dtype)
    if groups >= _FEW and inputs * outputs <= _FEW:
        _by_loops(planner, windows, w, _split(out, rank + 1, groups))
        return out
    places, taps = range(1, rank + 1), range(rank + 1, 2 * rank + 1)
    each, channel = 2 * rank + 1, 2 * rank + 2
    matrix = w.permuted((0, *range(2, rank + 2), rank + 2, 1))
    if n > 1 and windows.strides[0] < windows.strides[channel]:
        # The batch is what lies together (the gradient of a kernel): copied as it lies, and multiplied transposed.
        cut = windows.permuted((each, channel, *taps, *places, 0))
        columns = planner.contiguous(cut).reshaped((groups, inputs * prod(kernel), prod(count) * n))
        assert columns is not None
        over = w.permuted((0, rank + 2, *range(2, rank + 2), 1))
        y = _by_pieces(planner, columns.permuted((0, 2, 1)), over, outputs, node)
        order = (rank + 1, *range(1, rank + 1), 0, rank + 2)
        return _copied(planner, y, (groups, *count, n, outputs), order, out)
    cut = windows.permuted((each, 0, *places, *taps, channel))
    whole = cut.reshaped((groups, n * prod(count), prod(kernel) * inputs))
    if groups == 1 and whole is not None and whole.strides[-1] == w.dtype.itemsize:
        product(planner, *_flat(planner, whole, matrix), _flat_out(out), node)
        return out
    image = prod(count) * prod(kernel) * inputs * groups * w.dtype.itemsize
    block = max(1, min(n, _BLOCK_BYTES // max(image, 1)))
    for start in range(0, n, block):
        stop = min(start + block, n)
        some = planner.contiguous(_part(cut, 1, (slice(start, stop),)))
        columns = some.reshaped((groups, (stop - start) * prod(count), prod(kernel) * inputs))
        assert columns is not None
        there = _part(out, 0, (slice(start, stop),))
        if groups == 1:
            product(planner, *_flat(planner, columns, matrix), _flat_out(there), node)
            continue
        y = _multiplied(planner, columns, matrix, outputs, node)
        order = (1, *range(2, rank + 2), 0, rank + 2)
        _copied(planner, y, (groups, stop - start, *count, outputs), order, there)
    return out


def _split(x: View, axis: int, groups: int) -> View:
    """An axis as groups of neighbours."""
    n, step = x.shape[axis] // groups, x.strides[axis]
    shape = (*x.shape[:axis], groups, n, *x.shape[axis + 1 :])
    return replace(x, shape=shape, strides=(*x.strides[:axis], n * step, step, *x.strides[axis + 1 :]))


def _flat(planner: Planner, columns: View, matrix: View) -> tuple[View, View]:
    """The operands of a product of one group as matrices."""
    inner = columns.shape[-1]
    b = _joined(planner, matrix, (inner, matrix.shape[-1]))
    return replace(columns, shape=columns.shape[1:], strides=columns.strides[1:]), b


def _flat_out(out: View) -> View:
    flat = out.reshaped((prod(out.shape[:-1]), out.shape[-1]))
    assert flat is not None
    return flat


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


def _by_pieces(planner: Planner, columns: View, matrix: View, outputs: int, node: Node) -> View:
    """As :func:`_multiplied`, the sum of one group taken in pieces that threads can share: it is long, the result
    small."""
    groups, rows, inner = columns.shape
    count = next((c for c in range(_PIECES, 1, -1) if not matrix.shape[1] % c), 1)
    if groups > 1 or count == 1 or inner < _PIECES * max(rows, outputs):
        return _multiplied(planner, columns, matrix, outputs, node)
    cut = replace(
        columns,
        shape=(count, rows, inner // count),
        strides=(inner // count * columns.strides[2], *columns.strides[1:]),
    )
    over = _joined(planner, matrix, (count, inner // count, outputs))
    parts = _multiplied(planner, cut, over, outputs, node)
    t = TensorType(parts.shape, parts.dtype)
    operand = Node(Input, (), {}, (t,))
    attrs = {"axis": (0,), "keepdims": True, "dtype": None}
    total = Node(get("sum"), (operand,), attrs, (TensorType((1, rows, outputs), parts.dtype),))
    y = planner.temporary((1, rows, outputs), parts.dtype)
    planner.fused(Graph([operand], [total], [total], "explicit"), [parts], [y])
    return y


def _copied(planner: Planner, y: View, shape: Shape, order: Sizes, out: View) -> View:
    """``y`` in ``shape``, its axes in ``order``, into ``out``, which has the last two of them joined."""
    seen = y.reshaped(shape)
    assert seen is not None
    planner.copy(seen.permuted(order), _split(out, len(out.shape) - 1, shape[0]))
    return out


def _by_loops(planner: Planner, windows: View, w: View, out: View) -> None:
    """Few channels a group: products and sums in one fused loop over (n, *o, groups, f, *k, c)."""
    rank = len(out.shape) - 3
    kernel, inputs = w.shape[2:-1], w.shape[-1]
    full = (*out.shape, *kernel, inputs)
    axes = len(windows.shape)
    x = windows.permuted((*range(rank + 1), axes - 2, *range(rank + 1, axes - 2), axes - 1))
    x = replace(
        x,
        shape=(*x.shape[: rank + 2], 1, *x.shape[rank + 2 :]),
        strides=(*x.strides[: rank + 2], 0, *x.strides[rank + 2 :]),
    ).broadcast_to(full)
    t = TensorType(full, out.dtype)
    operands = [Node(Input, (), {}, (t,)) for _ in range(2)]
    times = Node(get("multiply"), tuple(operands), {}, (t,))
    reduced = tuple(range(rank + 3, len(full)))
    attrs = {"axis": reduced, "keepdims": False, "dtype": None}
    total = Node(get("sum"), (times,), attrs, (TensorType(out.shape, out.dtype),))
    planner.fused(Graph(operands, [times, total], [total], "explicit"), [x, w.broadcast_to(full)], [out])


def _transposed(planner: Planner, node: Node, x: View, w: View) -> View:
    """x spread by zeros, stride 1: each element's products with the whole kernel, added up where they belong."""
    attrs = node.attrs
    groups, rank = attrs["groups"], len(attrs["stride"])
    n, *sizes, _ = x.shape
    kernel, inputs, outputs = w.shape[1:-1], w.shape[-1], w.shape[0] // groups
    # Places of the result run the other way along the kernel.
    w = _part(w, 1, tuple(slice(k - 1, -1, -1) for k in kernel))
    each = _split(w, 0, groups).permuted((0, rank + 2, *range(2, rank + 2), 1))
    right = _joined(planner, each, (groups, inputs, prod(kernel) * outputs))
    left = _split(x, rank + 1, groups).permuted((rank + 1, *range(rank + 1), rank + 2))
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
