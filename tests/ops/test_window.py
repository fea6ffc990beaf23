"""Convolution and pooling against loops in float64, gradients against differences to second order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph import nn
from lucidgraph.ir.op import get
from lucidgraph.lang.tensor import apply
from tests.checking import BACKENDS, assert_close, check, check_gradient, on_backend

rng = np.random.default_rng(11)

FIELDS = ("stride", "pad_lo", "pad_hi", "kernel_dilation", "input_dilation", "groups", "flip")
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    name: (x, w, dict(zip(FIELDS, rest, strict=True)))
    for name, x, w, *rest in (
        ("plain", (2, 5, 4, 3), (2, 3, 2, 3), (1, 1), (0, 0), (0, 0), (1, 1), (1, 1), 1, False),
        ("padded", (2, 4, 3, 2), (3, 3, 3, 2), (1, 1), (1, 2), (0, 1), (1, 1), (1, 1), 1, False),
        ("strided", (1, 7, 6, 2), (2, 3, 2, 2), (2, 3), (1, 0), (0, 1), (1, 1), (1, 1), 1, False),
        ("dilated", (1, 7, 6, 2), (2, 2, 3, 2), (1, 2), (1, 1), (1, 1), (3, 2), (1, 1), 1, False),
        ("grouped", (2, 4, 4, 6), (4, 2, 2, 3), (1, 1), (1, 0), (0, 1), (1, 1), (1, 1), 2, False),
        ("depthwise", (2, 4, 4, 5), (5, 3, 3, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1), 5, False),
        ("multiplied", (1, 4, 3, 4), (8, 2, 2, 1), (1, 1), (0, 0), (0, 0), (1, 1), (1, 1), 4, False),
        ("transposed", (2, 3, 3, 2), (3, 3, 2, 2), (1, 1), (2, 1), (2, 2), (1, 1), (2, 3), 1, True),
        ("transposed groups", (1, 3, 2, 4), (6, 2, 3, 2), (1, 1), (1, 3), (2, 1), (1, 2), (2, 2), 2, True),
        ("cropped", (1, 6, 6, 2), (2, 2, 2, 2), (1, 1), (-1, 1), (-2, 0), (1, 1), (1, 1), 1, False),
        ("cropped and spread", (1, 4, 4, 2), (2, 2, 2, 2), (2, 1), (-1, -2), (1, -1), (1, 1), (2, 3), 1, False),
        ("flipped", (1, 5, 5, 2), (2, 3, 2, 2), (2, 1), (1, 0), (0, 0), (1, 1), (1, 1), 1, True),
        ("single", (1, 1, 1, 1), (1, 1, 1, 1), (1, 1), (0, 0), (0, 0), (1, 1), (1, 1), 1, False),
        ("one axis", (2, 6, 3), (4, 3, 3), (2,), (1,), (2,), (1,), (1,), 1, False),
        ("three", (1, 3, 4, 3, 2), (2, 2, 2, 3, 1), (1, 2, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1), (1, 1, 1), 2, False),
        ("left over", (1, 8, 5, 1), (1, 2, 2, 1), (3, 2), (0, 0), (0, 0), (1, 1), (1, 1), 1, False),
    )
}  # fmt: skip


def convolved(x: np.ndarray, w: np.ndarray, *, stride: Any, pad_lo: Any, pad_hi: Any, kernel_dilation: Any,
              input_dilation: Any, groups: int, flip: bool) -> np.ndarray:  # fmt: skip
    """The sum as it is defined, one place of the result and of the kernel at a time."""
    sizes, kernel, per = x.shape[1:-1], w.shape[1:-1], w.shape[0] // groups
    count = [
        ((n - 1) * i + 1 + a + b - (k - 1) * d - 1) // s + 1
        for n, i, a, b, k, d, s in zip(
            sizes, input_dilation, pad_lo, pad_hi, kernel, kernel_dilation, stride, strict=True
        )
    ]
    y = np.zeros((x.shape[0], *count, w.shape[0]))
    for o in product(*map(range, count)):
        for k in product(*map(range, kernel)):
            at = [p * s + q * d - a for p, s, q, d, a in zip(o, stride, k, kernel_dilation, pad_lo, strict=True)]
            if any(p % i or not 0 <= p // i < n for p, i, n in zip(at, input_dilation, sizes, strict=True)):
                continue
            source = tuple(p // i for p, i in zip(at, input_dilation, strict=True))
            tap = tuple(n - 1 - q if flip else q for q, n in zip(k, kernel, strict=True))
            for g in range(groups):
                inputs, outputs = slice(g * w.shape[-1], (g + 1) * w.shape[-1]), slice(g * per, (g + 1) * per)
                part = x[(slice(None), *source, inputs)] @ w[(outputs, *tap)].T
                y[(slice(None), *o, outputs)] += part
    return y


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("case", CASES)
def test_convolution(case: str) -> None:
    shape, kernel, attrs = CASES[case]
    x, w = arrays(shape, kernel)
    wide = x.astype(np.float64), w.astype(np.float64)

    def fn(x: Any, w: Any) -> lg.Tensor:
        return apply(get("conv"), x, w, **attrs)

    expected = convolved(*wide, **attrs)
    check(fn, x, w, expected=expected, dtype=lg.float32, scale=3)
    check(fn, *wide, expected=expected, dtype=lg.float64, scale=3)
    check_gradient(fn, *wide)
    weights = rng.standard_normal(expected.shape).astype(np.float32)
    slope = lg.grad(lambda x, w: lg.sum(fn(x, w) * weights), argnums=(0, 1))
    exact = lg.compile(slope, backend="reference")(*wide)
    for backend in BACKENDS:
        for found, e in zip(lg.compile(slope, backend=backend)(x, w), exact, strict=True):
            assert_close(found, e, scale=4)


def test_user_spellings() -> None:
    x, w = arrays((2, 6, 5, 4), (6, 3, 2, 2))
    wide = x.astype(np.float64), w.astype(np.float64)
    given = {"stride": (2, 1), "pad_lo": (1, 2), "pad_hi": (1, 2), "kernel_dilation": (1, 2), "groups": 2}
    plain = convolved(*wide, **given, input_dilation=(1, 1), flip=False)
    check(lambda x, w: nn.conv2d(x, w, (2, 1), (1, 2), (1, 2), 2), x, w, expected=plain, scale=3)
    both = {**given, "pad_hi": (0, 3)}
    check(
        lambda x, w: nn.conv_general(x, w, (2, 1), ((1, 2), (0, 3)), (1, 2), groups=2), x, w,
        expected=convolved(*wide, **both, input_dilation=(1, 1), flip=False), scale=3,
    )  # fmt: skip
    line, taps = arrays((2, 6, 3), (4, 2, 3))
    one = {"stride": (2,), "pad_lo": (1,), "pad_hi": (1,), "kernel_dilation": (1,), "input_dilation": (1,)}
    expected = convolved(line.astype(np.float64), taps.astype(np.float64), **one, groups=1, flip=False)
    check(lambda x, w: nn.conv1d(x, w, 2, 1), line, taps, expected=expected, scale=3)
    cube, block = arrays((1, 3, 4, 3, 2), (3, 2, 2, 2, 2))
    ones = (1, 1, 1)
    three = dict.fromkeys(("stride", "pad_lo", "pad_hi", "kernel_dilation", "input_dilation"), ones)
    expected = convolved(cube.astype(np.float64), block.astype(np.float64), **three, groups=1, flip=False)
    check(lambda x, w: nn.conv3d(x, w, padding=1), cube, block, expected=expected, scale=3)


@pytest.mark.parametrize(("stride", "padding", "dilation", "extra", "groups"), [
    (1, 0, 1, 0, 1), (2, 1, 1, 1, 1), (3, 0, 2, 2, 2), ((2, 1), (0, 2), (1, 2), (1, 0), 1), (1, (3, 2), 1, 0, 1),
])  # fmt: skip
def test_transposed_convolution_is_the_transpose(
    stride: Any, padding: Any, dilation: Any, extra: Any, groups: int
) -> None:
    """⟨conv(a), b⟩ = ⟨a, conv_transpose(b)⟩ with the kernel's inputs and outputs exchanged."""
    b, w = rng.standard_normal((2, 5, 4, 2 * groups)), rng.standard_normal((3 * groups, 3, 2, 2))
    y = nn.conv_transpose2d(b, w, stride, padding, dilation, extra, groups)
    assert y.shape[-1] == 3 * groups
    a = rng.standard_normal(y.shape)
    turned = w.reshape(groups, 3, 3, 2, 2).transpose(0, 4, 2, 3, 1).reshape(2 * groups, 3, 2, 3)
    forward = nn.conv2d(a, turned, stride, padding, dilation, groups)
    assert forward.shape == b.shape
    np.testing.assert_allclose(np.sum(forward.numpy() * b), np.sum(a * y.numpy()), rtol=1e-10)
    check(lambda b, w: nn.conv_transpose2d(b, w, stride, padding, dilation, extra, groups), b, w, expected=y.numpy())
    check_gradient(lambda b, w: nn.conv_transpose2d(b, w, stride, padding, dilation, extra, groups), b, w, order=1)


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_half_is_added_in_float32(half: Any) -> None:
    x, w = (v.astype(half) for v in arrays((1, 9, 9, 40), (3, 3, 3, 40)))
    attrs = {"stride": (1, 1), "pad_lo": (0, 0), "pad_hi": (0, 0), "kernel_dilation": (1, 1), "input_dilation": (1, 1)}
    exact = convolved(x.astype(np.float64), w.astype(np.float64), **attrs, groups=1, flip=False)
    check(nn.conv2d, x, w, expected=exact, dtype=half, scale=0.5)
    ones = np.ones((1, 64, 64, 1), half)
    check(lambda x: nn.avg_pool2d(x, 64), ones, expected=np.ones((1, 1, 1, 1)), dtype=half)


def test_autocast_narrows_convolution() -> None:
    x, w = arrays((1, 4, 4, 3), (2, 3, 3, 3))
    with lg.autocast(lg.bfloat16):
        assert nn.conv2d(x, w).dtype == lg.bfloat16
        assert nn.max_pool2d(x, 2).dtype == lg.float32
    mixed = lg.compile(lg.grad(lambda w: lg.sum(nn.conv2d(x, w))), autocast=lg.bfloat16)(w)
    assert mixed.dtype == np.float32


def test_many_images_in_blocks() -> None:
    """More windows than one block holds: the seams between blocks."""
    x, w = arrays((37, 12, 12, 24), (8, 3, 3, 24))
    attrs = {"stride": (1, 1), "pad_lo": (1, 1), "pad_hi": (1, 1), "kernel_dilation": (1, 1), "input_dilation": (1, 1)}
    expected = convolved(x.astype(np.float64), w.astype(np.float64), **attrs, groups=1, flip=False)
    check(lambda x, w: nn.conv2d(x, w, padding=1), x, w, expected=expected, scale=4)


def test_nothing() -> None:
    for shape, kernel in (((0, 4, 4, 2), (3, 2, 2, 2)), ((2, 4, 4, 0), (3, 2, 2, 0)), ((2, 4, 4, 2), (0, 2, 2, 2))):
        x, w = np.ones(shape), np.ones(kernel)
        y = np.zeros((shape[0], 3, 3, kernel[0]))
        check(nn.conv2d, x, w, expected=y)
        slopes = lg.compile(lg.grad(lambda x, w: lg.sum(nn.conv2d(x, w)), argnums=(0, 1)))(x, w)
        assert_close(slopes[0], np.zeros(shape))
        assert_close(slopes[1], np.zeros(kernel))


def test_bad_convolutions_are_refused() -> None:
    x, w = np.zeros((1, 4, 4, 3), np.float32), np.zeros((2, 3, 3, 3), np.float32)
    for call, match in (
        (lambda: nn.conv2d(x, np.zeros((2, 3, 3, 4), np.float32)), "3 channels meet 4"),
        (lambda: nn.conv2d(x, np.zeros((2, 5, 5, 3), np.float32)), "does not fit"),
        (lambda: nn.conv1d(x, w), "1 spatial"),
        (lambda: nn.conv2d(x, w, stride=0), "stride"),
        (lambda: nn.conv2d(x, w, padding=-1), "padding"),
        (lambda: nn.conv2d(x, w, groups=2), "groups"),
        (lambda: nn.max_pool2d(x, 5), "does not fit"),
        (lambda: nn.max_pool1d(x, 2), "1 spatial"),
        (lambda: nn.avg_pool2d(x, (1, 2, 3)), "kernel"),
    ):
        with pytest.raises(lg.ShapeError, match=match):
            call()
    with pytest.raises(lg.DTypeError, match="complex64"):
        nn.conv2d(x.astype(np.complex64), w)
    pixels = np.ones((1, 3, 3, 1), np.uint8)
    check(nn.conv2d, pixels, pixels.astype(np.float32), expected=[[[[9]]]], dtype=lg.float32)


# -- pooling


def pooled(fold: Callable[..., Any], x: np.ndarray, kernel: Any, stride: Any, padding: Any, fill: float) -> np.ndarray:
    rank = x.ndim - 2
    x = np.pad(x, ((0, 0), *((p, p) for p in padding), (0, 0)), constant_values=fill)
    count = [(n - k) // s + 1 for n, k, s in zip(x.shape[1:-1], kernel, stride, strict=True)]
    y = np.zeros((x.shape[0], *count, x.shape[-1]))
    for o in product(*map(range, count)):
        window = tuple(slice(p * s, p * s + k) for p, s, k in zip(o, stride, kernel, strict=True))
        y[(slice(None), *o)] = fold(x[(slice(None), *window)], axis=tuple(range(1, rank + 1)))
    return y


POOLS = [
    ((2, 6, 3), (2,), (2,), (0,)),
    ((2, 7, 2), (3,), (2,), (1,)),
    ((2, 4, 6, 3), (2, 3), (2, 3), (0, 0)),
    ((1, 5, 6, 2), (3, 2), (1, 2), (1, 0)),
    ((1, 5, 5, 2), (2, 2), (3, 3), (0, 1)),
    ((1, 4, 3, 4, 2), (2, 2, 2), (1, 1, 2), (1, 0, 1)),
    ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0)),
    ((0, 4, 4, 2), (2, 2), (2, 2), (0, 0)),
]


@pytest.mark.parametrize(("shape", "kernel", "stride", "padding"), POOLS)
def test_pooling(shape: Any, kernel: Any, stride: Any, padding: Any) -> None:
    rank = len(shape) - 2
    x = rng.standard_normal(shape).astype(np.float32)
    for name, fold, fill in (("max", np.max, -np.inf), ("avg", np.mean, 0.0)):
        fn = getattr(nn, f"{name}_pool{rank}d")
        expected = pooled(fold, x.astype(np.float64), kernel, stride, padding, fill)
        check(lambda x, fn=fn: fn(x, kernel, stride, padding), x, expected=expected, dtype=lg.float32)
        if x.size:
            check_gradient(lambda x, fn=fn: fn(x, kernel, stride, padding), x.astype(np.float64))
        slope = lg.grad(lambda x, fn=fn: lg.sum(fn(x, kernel, stride, padding) ** 2))
        exact = lg.compile(slope, backend="reference")(x.astype(np.float64))
        for backend in BACKENDS:
            assert_close(lg.compile(slope, backend=backend)(x), exact, scale=4)


def test_pooling_defaults_and_dtypes() -> None:
    x = np.arange(16).reshape(1, 4, 4, 1)
    check(lambda x: nn.max_pool2d(x, 2), x, expected=[[[[5], [7]], [[13], [15]]]], dtype=lg.int64)
    check(lambda x: nn.max_pool2d(-x, 3, padding=1, stride=3), x, expected=[[[[0], [-2]], [[-8], [-10]]]])
    check(lambda x: nn.avg_pool2d(x, 2), x, expected=[[[[2.5], [4.5]], [[10.5], [12.5]]]], dtype=lg.float32)
    check(lambda x: nn.avg_pool2d(x, 4, padding=0), x.astype(np.float32), expected=[[[[7.5]]]])


def test_ties_in_a_window_share() -> None:
    x = np.array([[[1.0], [1.0], [0.0], [1.0]]], np.float32)
    for backend in BACKENDS:
        with on_backend(backend):
            slope = lg.compile(lg.grad(lambda x: lg.sum(nn.max_pool1d(x, 2, 1))))(x)
        np.testing.assert_array_equal(slope, [[[0.5], [1.5], [0.0], [1.0]]])


# -- windows


def test_windows_and_their_sum() -> None:
    x = rng.standard_normal((2, 7, 6, 3))
    attrs: dict[str, Any] = {"axis": 1, "stride": (2, 1), "dilation": (1, 2)}
    windows = lambda x: apply(get("windows"), x, kernel=(3, 2), **attrs)  # noqa: E731
    view = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, :, :, :, ::2]
    check(windows, x, expected=np.moveaxis(view, 3, -1))
    check(lambda x: lg.sum(windows(x * 2) + 1, axis=(3, 4)), x, expected=(2 * view + 1).sum((-2, -1)))
    check_gradient(windows, x)
    parts = rng.standard_normal((1, 3, 4, 3, 2, 2))
    check_gradient(lambda g: apply(get("overlap_add"), g, size=(7, 6), **attrs), parts)
    for dtype in (np.float16, np.int32, np.bool_):
        line = np.arange(5).astype(dtype)
        pairs = np.stack([line[:2], line[3:]], 1).astype(np.int64)
        check(
            lambda x: apply(get("windows"), x, axis=0, kernel=(2,), stride=(1,), dilation=(3,)), line,
            expected=pairs, dtype=dtype,
        )  # fmt: skip
