"""Where ``mlx.core`` gives something else than the IR's meaning, or loses accuracy: what generated code calls instead.

Each function says what is corrected and what that costs. They run while ``mx.compile`` traces, so a cost is one of
kernels, not of Python.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import mlx.core as mx
import numpy as np

from ...ir.ops.window import WindowsBackward, kept_places, positions, spread_sizes, targets

LONG: Final = 128
"""Sums of more elements than this are taken in blocks."""
BLOCK: Final = 16


# -- reductions


def adds_in_trees() -> bool:
    """Whether the default device sums pairwise by itself: GPUs do."""
    return mx.default_device().type != mx.DeviceType.cpu


def sum(x: mx.array, axis: Sequence[int], keepdims: bool) -> mx.array:
    """Σ over ``axis`` in blocks of blocks, pairwise in effect.

    MLX adds along an axis one after another on the CPU: ten million equal float32 numbers come out wrong by 5e-3. In
    blocks of 16 the error stays below 2e-7. Cost: extra kernels over 1/16 of the data, which on a contiguous axis are
    made up for (10 million numbers: 3 ms against 8), on another axis cost about a quarter; a copy where several axes
    are reduced that are not contiguous, or where the length is no multiple of 16 and other axes stand before it.
    Nothing on a GPU, where MLX sums in trees.
    """
    if adds_in_trees():
        return mx.sum(x, axis=tuple(axis), keepdims=keepdims)
    shape = [1 if k in axis else n for k, n in enumerate(x.shape)]
    for first, last in reversed(_adjacent(axis)):
        if last > first:
            x = mx.flatten(x, first, last)
        x = _block_sum(x, first)
    if keepdims:
        return x.reshape(shape)
    return x


def _adjacent(axis: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of neighbouring axes."""
    runs: list[tuple[int, int]] = []
    for k in axis:
        if runs and runs[-1][1] == k - 1:
            runs[-1] = runs[-1][0], k
        else:
            runs.append((k, k))
    return runs


def _block_sum(x: mx.array, axis: int) -> mx.array:
    leading = (slice(None),) * axis
    while x.shape[axis] > 2 * BLOCK:
        n = x.shape[axis]
        blocks, rest = divmod(n, BLOCK)
        head = x[(*leading, slice(0, n - rest))] if rest else x
        total = mx.sum(mx.unflatten(head, axis, (blocks, BLOCK)), axis=axis + 1)
        if rest:
            tail = mx.sum(x[(*leading, slice(n - rest, n))], axis=axis, keepdims=True)
            total = mx.concatenate([total, tail], axis=axis)
        x = total
    return mx.sum(x, axis=axis)


def cumsum(x: mx.array, axis: int, reverse: bool, inclusive: bool) -> mx.array:
    """Sums up to each element, in blocks of blocks.

    MLX adds one after another on the CPU, and so would lose digits as in :func:`sum`. Cost: a sum of each block, and an
    addition over all elements. Nothing on a GPU, where MLX scans in trees.
    """
    n = x.shape[axis]
    if adds_in_trees() or n <= LONG or not mx.issubdtype(x.dtype, mx.inexact):
        return mx.cumsum(x, axis=axis, reverse=reverse, inclusive=inclusive)
    blocks = -(-n // LONG)
    width = [(0, blocks * LONG - n if k == axis else 0) for k in range(x.ndim)]
    cut = mx.unflatten(mx.pad(x, width), axis, (blocks, LONG))
    within = mx.cumsum(cut, axis=axis + 1, reverse=reverse, inclusive=inclusive)
    before = cumsum(mx.sum(cut, axis=axis + 1), axis, reverse, False)
    total = mx.flatten(within + mx.expand_dims(before, axis + 1), axis, axis + 1)
    return total[(*(slice(None),) * axis, slice(0, n))]


def recurrence(a: mx.array, b: mx.array, axis: int, reverse: bool) -> mx.array:
    """y_i = b_i + a_i y_{i-1}, which MLX lacks: windows of doubled length, log n rounds over all elements."""

    def part(v: mx.array, start: int | None, stop: int | None, step: int = 1) -> mx.array:
        return v[(*(slice(None),) * axis, slice(start, stop, step))]

    if reverse:
        a, b = part(a, None, None, -1), part(b, None, None, -1)
    length = 1
    while length < b.shape[axis]:
        factor = part(a, length, None)
        # What is 0 stays 0, whatever it is multiplied by.
        scale, known = (mx.where(v == 0, 0, v * factor) for v in (part(a, None, -length), part(b, None, -length)))
        b = mx.concatenate([part(b, None, length), part(b, length, None) + known], axis=axis)
        a = mx.concatenate([part(a, None, length), scale], axis=axis)
        length *= 2
    return part(b, None, None, -1) if reverse else b


# -- windows


def overlap_add(
    x: mx.array, axis: int, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> mx.array:
    """Windows added up where they came from, which MLX lacks: one addition for each place within a window."""
    rank = len(size)
    count, kernel = x.shape[axis : axis + rank], x.shape[axis + rank : axis + 2 * rank]
    total = mx.zeros((*x.shape[:axis], *size, *x.shape[axis + 2 * rank :]), x.dtype)
    before = (slice(None),) * axis
    for place, target in targets(tuple(count), tuple(kernel), tuple(stride), tuple(dilation)):
        total = total.at[(*before, *target)].add(x[(*before, *(slice(None),) * rank, *place)])
    return total


def conv(
    x: mx.array, w: mx.array, *, stride: Sequence[int], pad_lo: Sequence[int], pad_hi: Sequence[int],
    kernel_dilation: Sequence[int], input_dilation: Sequence[int], groups: int, flip: bool,
) -> mx.array:  # fmt: skip
    """Convolution in every dtype, rank and number of groups, with negative padding.

    MLX adds half precision in itself on the CPU, so it is cast there. float64, and groups over three axes, which MLX
    has not, are a matrix product over the windows: the windows are copied. Negative widths: so is the operand.
    """
    rank, dtype = x.ndim - 2, x.dtype
    if dtype in (mx.float16, mx.bfloat16) and not adds_in_trees():
        x, w = x.astype(mx.float32), w.astype(mx.float32)
    written_out = dtype == mx.float64 or rank > 3 or (groups > 1 and rank > 2)
    if written_out or min((*pad_lo, *pad_hi)) < 0:
        sizes = spread_sizes(x.shape[1:-1], tuple(pad_lo), tuple(pad_hi), tuple(input_dilation))
        inside, places = kept_places(x.shape[1:-1], sizes, tuple(pad_lo), tuple(input_dilation))
        spread = mx.zeros((x.shape[0], *sizes, x.shape[-1]), x.dtype)
        x = updated(spread, (slice(None), *places), x[(slice(None), *inside)])
        pad_lo = pad_hi = (0,) * rank
        input_dilation = (1,) * rank
    if written_out:
        return _conv_by_product(x, w, stride, kernel_dilation, groups, flip)
    padding = (list(pad_lo), list(pad_hi))
    y = mx.conv_general(
        x, w, list(stride), padding, list(kernel_dilation), list(input_dilation), groups=groups, flip=flip
    )
    return y.astype(dtype)


def _conv_by_product(
    x: mx.array, w: mx.array, stride: Sequence[int], dilation: Sequence[int], groups: int, flip: bool
) -> mx.array:
    rank, kernel, inputs, outputs = x.ndim - 2, w.shape[1:-1], w.shape[-1], w.shape[0] // groups
    if flip:
        w = w[(slice(None), *(slice(None, None, -1),) * rank)]
    count = positions("conv", x.shape[1:-1], kernel, tuple(stride), tuple(dilation))
    strides = [1]
    for n in reversed(x.shape[1:]):
        strides.insert(0, strides[0] * n)
    moves = WindowsBackward.strides(strides, axis=1, kernel=kernel, stride=tuple(stride), dilation=tuple(dilation))
    windows = mx.as_strided(x, (x.shape[0], *count, *kernel, x.shape[-1]), moves)
    columns = mx.moveaxis(mx.unflatten(windows, -1, (groups, inputs)), -2, 0).reshape(
        groups, x.shape[0] * math.prod(count), math.prod(kernel) * inputs
    )
    each = w.reshape(groups, outputs, math.prod(kernel) * inputs)
    y = mx.moveaxis(columns @ mx.swapaxes(each, 1, 2), 0, 1)
    return y.reshape(x.shape[0], *count, groups * outputs)


# -- attention


def attention(q: mx.array, k: mx.array, v: mx.array, scale: float, mask: mx.array | str | None) -> mx.array:
    """MLX's attention, with 0 for a query that may see nothing, where MLX takes the mean of everything; in float32 on
    the CPU, where MLX rounds half-precision scores. Cost: a reduction of the mask and a select."""
    dtype = q.dtype
    if not adds_in_trees():
        q, k, v = (x.astype(mx.float32) for x in (q, k, v))
    if not isinstance(mask, mx.array):
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=mask).astype(dtype)
    seen = mask if mask.dtype == mx.bool_ else mask > -math.inf
    mask = mask if mask.dtype == mx.bool_ else mask.astype(q.dtype)
    y = mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=mask).astype(dtype)
    return mx.where(mx.any(seen if seen.ndim else seen[None], axis=-1, keepdims=True), y, 0)


# -- arithmetic


def sign(x: mx.array) -> mx.array:
    """The sign; MLX gives 0 for NaN. Cost: a select, fused."""
    return mx.where(mx.isnan(x), x, mx.sign(x))


def integer_floor_divide(x: mx.array, y: mx.array) -> mx.array:
    """x // y with 0 for y = 0 and wrapping INT_MIN // -1; the processor traps on both. Cost: selects, fused."""
    if _is_unsigned(x):
        return mx.where(y == 0, 0, x // mx.maximum(y, 1))
    trapping = (y == 0) | (y == -1)
    return mx.where(y == 0, 0, mx.where(y == -1, -x, x // mx.where(trapping, 1, y)))


def integer_remainder(x: mx.array, y: mx.array) -> mx.array:
    """x % y with 0 for y = 0. Cost: selects, fused."""
    if _is_unsigned(x):
        return mx.where(y == 0, 0, mx.remainder(x, mx.maximum(y, 1)))
    trivial = (y == 0) | (y == -1)
    return mx.where(trivial, 0, mx.remainder(x, mx.where(trivial, 1, y)))


def floor_divide(x: mx.array, y: mx.array) -> mx.array:
    """⌊x / y⌋ of floats, consistent with the remainder: 1 // 0.1 is 9, where MLX rounds the quotient to 10 first.

    Cost: the remainder and a few elementwise operations, fused.
    """
    rest = mx.remainder(x, y)
    quotient = mx.where(mx.isinf(rest), -1, (x - rest) / y)
    whole = mx.floor(quotient)
    return mx.where(y == 0, x / y, whole + (quotient - whole > 0.5))


def _is_unsigned(x: mx.array) -> bool:
    return mx.issubdtype(x.dtype, mx.unsignedinteger)


def complex_power(x: mx.array, y: mx.array) -> mx.array:
    """x ** y of complex numbers; MLX gives NaN for the base 0. Cost: selects, fused."""
    power = mx.power(x, y)
    at_zero = mx.where(y == 0, 1, mx.where(mx.real(y) > 0, 0, power))
    return mx.where(x == 0, at_zero, power)


def left_shift(x: mx.array, y: mx.array) -> mx.array:
    """x << y, 0 for shifts outside the width, which the processor takes modulo the width. Cost: selects, fused."""
    width = 8 * x.itemsize
    inside = (y >= 0) & (y < width)
    return mx.where(inside, mx.left_shift(x, mx.where(inside, y, 0)), 0)


def right_shift(x: mx.array, y: mx.array) -> mx.array:
    """x >> y, 0 or -1 by the sign of x for shifts outside the width. Cost: selects, fused."""
    width = 8 * x.itemsize
    inside = (y >= 0) & (y < width)
    if _is_unsigned(x):
        return mx.where(inside, mx.right_shift(x, mx.where(inside, y, 0)), 0)
    return mx.right_shift(x, mx.where(inside, y, width - 1))


def integer_matmul(a: mx.array, b: mx.array) -> mx.array:
    """a @ b of integers or booleans, which MLX multiplies in floats only.

    Cost: all products are held at once, m·k·n elements per matrix, and summed.
    """
    products = a[..., :, :, None] * b[..., None, :, :]
    if a.dtype == mx.bool_:
        return mx.any(products, axis=-2)
    return mx.sum(products, axis=-2).astype(a.dtype)


# -- elementary functions


def _taylor(terms: int) -> tuple[float, ...]:
    """The coefficients of erf(x)/x in powers of x²."""
    return tuple(2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(terms))


_ERF_SERIES: Final = _taylor(7)
_ERF64_SERIES: Final = _taylor(20)


def _polynomial(coefficients: Sequence[float], x: mx.array) -> mx.array:
    total = mx.full((), coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def erf(x: mx.array) -> mx.array:
    """The error function; MLX's has an absolute error of 4e-7, so erf(1e-4) is wrong in the second digit.

    The Taylor series below 1/2 keeps the relative error near 1e-6; float64, which MLX computes in float32, takes a
    Chebyshev series in x² above 1 (error below 1e-13). Cost: 10 (float64: 200) elementwise operations, fused.
    """
    if x.dtype == mx.float64:
        return _erf64(x)
    return mx.where(mx.abs(x) < 0.5, x * _polynomial(_ERF_SERIES, x * x), mx.erf(x))


def _erf_over_x(square: np.ndarray) -> np.ndarray:
    roots = np.sqrt(square)
    return np.array([math.erf(r) / r for r in roots])


_ERF64_LIMIT: Final = 6.0
_ERF64_CENTRE: Final = (_ERF64_LIMIT**2 + 1) / 2
_ERF64: Final = tuple(np.polynomial.Chebyshev.interpolate(_erf_over_x, 50, (1, _ERF64_LIMIT**2)).coef.tolist())


def _erf64(x: mx.array) -> mx.array:
    size = mx.abs(x)
    t = (mx.clip(x * x, 1, _ERF64_LIMIT**2) - _ERF64_CENTRE) / (_ERF64_CENTRE - 1)
    ahead = last = mx.zeros((), mx.float64)
    for c in reversed(_ERF64[1:]):  # Clenshaw's recurrence
        ahead, last = 2 * t * ahead - last + c, ahead
    far = mx.where(size < _ERF64_LIMIT, x * (t * ahead - last + _ERF64[0]), mx.sign(x))
    near = x * _polynomial(_ERF64_SERIES, mx.minimum(x * x, 1))
    return mx.where(size < 1, near, mx.where(mx.isnan(x), x, far))


_E_LOW: Final = 5.3181214466e-17
"""e / (the double nearest e) - 1."""


def exp64(x: mx.array) -> mx.array:
    """exp in float64, which MLX computes in float32: a power of the double nearest e, times what that lacks."""
    return mx.power(math.e, x) * mx.where(mx.abs(x) < 800, 1 + x * _E_LOW, 1)


def sin64(x: mx.array) -> mx.array:
    """sin in float64, which MLX computes in float32, from tan(x/2)."""
    t = mx.tan(x * 0.5)
    return 2 * t / (1 + t * t)


def cos64(x: mx.array) -> mx.array:
    """cos in float64, which MLX computes in float32, from tan(x/2)."""
    t = mx.tan(x * 0.5)
    return (1 - t) * (1 + t) / (1 + t * t)


def sigmoid64(x: mx.array) -> mx.array:
    """The logistic function in float64, which MLX computes in float32."""
    return 1 / (1 + exp64(-x))


def complex_expm1(x: mx.array) -> mx.array:
    """exp(x) - 1 of complex numbers, which MLX lacks: (e^a - 1) cos b - 2 sin²(b/2) + i e^a sin b."""
    a, b = mx.real(x), mx.imag(x)
    half = mx.sin(b * 0.5)
    real = mx.expm1(a) * mx.cos(b) - 2 * half * half
    return real + 1j * (mx.exp(a) * mx.sin(b))


def cbrt(x: mx.array) -> mx.array:
    """The cube root, which MLX lacks: a power, and one Newton step for its last digits."""
    size = mx.abs(x)
    root = mx.power(size, 1 / 3)
    better = root - (root - size / (root * root)) / 3
    return mx.where((size == 0) | mx.isinf(size), x, mx.sign(x) * better)


# -- casts, copies, places


def narrow(x: mx.array, dtype: mx.Dtype) -> mx.array:
    """float64 to half precision, rounded once; MLX rounds to float32 on the way. The float32 step rounds to odd."""
    near = x.astype(mx.float32)
    back = near.astype(mx.float64)
    bits = near.view(mx.uint32)
    truncated = mx.where(mx.abs(back) > mx.abs(x), bits - 1, bits)
    odd = mx.where((back == x) | ~mx.isfinite(back), bits, truncated | 1)
    return odd.view(mx.float32).astype(dtype)


def copied(x: mx.array) -> mx.array:
    """A copy in memory of its own, so that no result shares memory with an argument or another result."""
    return mx.contiguous(mx.where(mx.array(True), x, x))


def index(i: mx.array, size: int) -> mx.array:
    """Indices into an axis of ``size`` elements: negative ones from the end, those outside clamped to its ends.

    MLX reads outside the memory. Cost: selects and minima over the indices, fused.
    """
    if i.dtype == mx.uint64:
        return mx.minimum(i, size - 1).astype(mx.int64)
    i = i.astype(mx.int64)
    return mx.clip(mx.where(i < 0, i + size, i), 0, size - 1)


def along(i: mx.array, axis: int, size: int) -> tuple[mx.array, ...]:
    """The full index that ``take_along_axis`` with indices ``i`` reads from."""
    places = []
    for k, n in enumerate(i.shape):
        shape = [1] * i.ndim
        shape[k] = n
        places.append(index(i, size) if k == axis else mx.arange(n).reshape(shape))
    return tuple(places)


def updated(x: mx.array, places: slice | tuple[slice, ...], v: mx.array) -> mx.array:
    """x with ``v`` in some places."""
    y = mx.array(x)
    y[places] = v
    return y


Places = mx.array | tuple[slice | mx.array, ...]


def scatter_max(x: mx.array, places: Places, v: mx.array) -> mx.array:
    """x with the greatest of itself and ``v`` in some places; NaN wins, which MLX drops. Cost: for floats a second
    scatter, of the NaNs' places."""
    return _nan_wins(x, places, v, x.at[places].maximum(v))


def scatter_min(x: mx.array, places: Places, v: mx.array) -> mx.array:
    """x with the least of itself and ``v`` in some places; otherwise as :func:`scatter_max`."""
    return _nan_wins(x, places, v, x.at[places].minimum(v))


def _nan_wins(x: mx.array, places: Places, v: mx.array, extreme: mx.array) -> mx.array:
    if not mx.issubdtype(x.dtype, mx.floating):
        return extreme
    return mx.where(mx.isnan(x).at[places].maximum(mx.isnan(v)), math.nan, extreme)
