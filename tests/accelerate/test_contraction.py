"""Convolutions and scans of sizes that fill registers, caches and threads, on every processor that runs here."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.runtime.accelerate.executor import EXECUTOR
from tests.accelerate.programs import RUNNABLE, X86, backend_for, graph_for

backend_of = cache(lambda cpu: backend_for(X86[cpu]))
on_each = pytest.mark.parametrize("cpu", RUNNABLE)
rng = np.random.default_rng(23)


@pytest.fixture(autouse=True)
def threads():
    before = EXECUTOR.threads
    yield
    lg.set_threads(before)


def run(cpu: str, fn: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    backend = backend_of(cpu)
    return backend.compile(graph_for(backend, fn, *arrays))(list(arrays))


def spread(n: int, kernel: int, stride: int, dilation: int, padding: int) -> np.ndarray:
    """S[o, k, i] = 1 where place o of the result sees element i under tap k."""
    count = (n + 2 * padding - (kernel - 1) * dilation - 1) // stride + 1
    o, k, i = np.ogrid[:count, :kernel, :n]
    return (o * stride + k * dilation - padding == i).astype(np.float64)


def exact(x: Any, w: Any, g: Any, stride: int, padding: int, dilation: int, groups: int) -> list[np.ndarray]:
    """The convolution and both gradients as sums over everything, in float64."""
    x, w, g = (v.astype(np.float64) for v in (x, w, g))
    rows, columns = (spread(n, k, stride, dilation, padding) for n, k in zip(x.shape[1:3], w.shape[1:3], strict=True))
    x = x.reshape(*x.shape[:3], groups, -1)
    w = w.reshape(groups, -1, *w.shape[1:])
    g = g.reshape(*g.shape[:3], groups, -1)
    y = np.einsum("nijgc,gfklc,oki,plj->nopgf", x, w, rows, columns, optimize=True)
    dx = np.einsum("nopgf,gfklc,oki,plj->nijgc", g, w, rows, columns, optimize=True)
    dw = np.einsum("nopgf,nijgc,oki,plj->gfklc", g, x, rows, columns, optimize=True)
    return [y.reshape(*y.shape[:3], -1), dx.reshape(*dx.shape[:3], -1), dw.reshape(-1, *dw.shape[2:])]


SHAPES = {
    # batch, size, inputs, outputs, kernel, stride, padding, dilation, groups
    "several panels": (2, 9, 5, 83, 3, 1, 1, 1, 1),
    "whole panels": (3, 8, 16, 128, 3, 1, 1, 1, 1),
    "one output": (2, 11, 3, 1, 3, 1, 0, 1, 1),
    "narrow": (3, 10, 7, 6, 5, 1, 2, 1, 1),
    "a vector and a half": (2, 8, 4, 24, 3, 1, 1, 1, 1),
    "long sums": (8, 20, 3, 20, 3, 1, 1, 1, 1),
    "many inputs": (2, 6, 150, 70, 3, 1, 1, 1, 1),
    "few points": (1, 3, 40, 300, 3, 1, 0, 1, 1),
    "strided": (2, 13, 6, 17, 3, 2, 1, 1, 1),
    "apart": (2, 13, 6, 17, 2, 3, 0, 1, 1),
    "strided and dilated": (2, 17, 6, 17, 3, 2, 2, 2, 1),
    "patches": (2, 20, 3, 33, 5, 5, 0, 1, 1),
    "points alone": (3, 9, 20, 40, 1, 1, 0, 1, 1),
    "points apart": (3, 9, 20, 40, 1, 2, 0, 1, 1),
    "depthwise": (2, 12, 37, 37, 3, 1, 1, 1, 37),
    "depthwise strided": (2, 12, 64, 64, 3, 2, 1, 1, 64),
    "multiplied": (2, 9, 20, 60, 3, 1, 1, 1, 20),
    "small groups": (2, 9, 64, 32, 3, 1, 1, 1, 32),
    "large groups": (2, 9, 36, 60, 3, 2, 1, 1, 2),
}


@on_each
@pytest.mark.parametrize("case", SHAPES)
def test_convolutions_and_their_gradients(cpu: str, case: str) -> None:
    n, size, inputs, outputs, kernel, stride, padding, dilation, groups = SHAPES[case]
    x = rng.standard_normal((n, size, size + 1, inputs)).astype(np.float32)
    w = rng.standard_normal((outputs, kernel, kernel, inputs // groups)).astype(np.float32)

    def fn(x: Any, w: Any) -> Any:
        return lg.nn.conv2d(x, w, stride, padding, dilation, groups)

    g = rng.standard_normal(fn(x, w).shape).astype(np.float32)
    want = exact(x, w, g, stride, padding, dilation, groups)
    slope = lg.grad(lambda x, w, g: lg.sum(fn(x, w) * g), argnums=(0, 1))
    for dtype in ("float32", "float64") if cpu == RUNNABLE[-1] else ("float32",):
        given = [v.astype(dtype) for v in (x, w, g)]
        found = [*run(cpu, fn, *given[:2]), *run(cpu, slope, *given)]
        for have, e in zip(found, want, strict=True):
            tolerance = 3e-6 if dtype == "float32" else 1e-14
            np.testing.assert_allclose(have, e, rtol=0, atol=tolerance * np.abs(e).max() * 4)


def test_operands_that_lie_otherwise() -> None:
    """Channels first, batch last, and kernels as other libraries have them: strides, not copies."""
    x = rng.standard_normal((3, 10, 9, 12)).astype(np.float32)
    w = rng.standard_normal((20, 3, 3, 12)).astype(np.float32)
    g = rng.standard_normal((3, 10, 9, 20)).astype(np.float32)
    want = exact(x, w, g, 1, 1, 1, 1)
    slope = lg.compile(
        lg.value_and_grad(lambda x, w: lg.sum(lg.nn.conv2d(x, w, padding=1) * g), argnums=(0, 1)), backend="accelerate"
    )
    for axes in ((0, 3, 1, 2), (3, 1, 2, 0), (1, 2, 0, 3)):
        back = tuple(np.argsort(axes))
        _, found = slope(np.ascontiguousarray(x.transpose(axes)).transpose(back), np.asfortranarray(w))
        for have, e in zip(found, want[1:], strict=True):
            np.testing.assert_allclose(have, e, rtol=0, atol=1e-5 * np.abs(e).max())


def test_the_order_of_sums_does_not_depend_on_threads() -> None:
    x = rng.standard_normal((6, 20, 20, 8)).astype(np.float32)
    w = rng.standard_normal((24, 3, 3, 8)).astype(np.float32)
    program = lg.compile(
        lg.grad(lambda x, w: lg.sum(lg.nn.conv2d(x, w, padding=1) ** 2), argnums=(0, 1)), backend="accelerate"
    )
    found = []
    for count in (1, 2, 3):
        lg.set_threads(count)
        found.append([np.array(v) for v in program(x, w)])
    for other in found[1:]:
        for have, e in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(have, e)


LONG = [((70_001,), 0), ((3, 40_000), 1), ((30_003, 3), 0), ((9, 8_300), 0), ((5, 33), 1)]


@on_each
@pytest.mark.parametrize(("shape", "axis"), LONG)
@pytest.mark.parametrize(("reverse", "inclusive"), [(False, True), (True, False)])
def test_long_scans(cpu: str, shape: tuple[int, ...], axis: int, reverse: bool, inclusive: bool) -> None:
    x = rng.standard_normal(shape)
    whole = rng.integers(-1000, 1000, shape)
    near = 1 + x / 100
    # What one thread gets, two get within the rounding of sums, and whole numbers exactly.
    for count in (1, 3):
        lg.set_threads(count)

        def run_one(fn: Any, v: np.ndarray) -> np.ndarray:
            return run(cpu, lambda v: fn(v, axis, reverse, inclusive), v)[0]

        def scanned(ufunc: Any, start: float, v: np.ndarray) -> np.ndarray:
            v = np.moveaxis(v, axis, 0)[:: -1 if reverse else 1]
            y = ufunc.accumulate(v, axis=0)
            if not inclusive:
                y = np.concatenate([np.full_like(y[:1], start), y[:-1]])
            return np.moveaxis(y[:: -1 if reverse else 1], 0, axis)

        np.testing.assert_array_equal(run_one(lg.cumsum, whole), scanned(np.add, 0, whole))
        np.testing.assert_array_equal(run_one(lg.cummax, whole), scanned(np.maximum, np.iinfo(np.int64).min, whole))
        sums = scanned(np.add, 0, x.astype(np.float32).astype(np.float64))
        np.testing.assert_allclose(run_one(lg.cumsum, x.astype(np.float32)), sums, rtol=1e-7, atol=1e-4)
        np.testing.assert_allclose(run_one(lg.cumprod, near), scanned(np.multiply, 1, near), rtol=1e-10)
        holed = np.where(rng.random(shape) < 1e-4, np.nan, x)
        np.testing.assert_array_equal(run_one(lg.cummin, holed), scanned(np.minimum, np.inf, holed))
