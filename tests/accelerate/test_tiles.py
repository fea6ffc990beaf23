"""Reductions over broadcast operands, in tiles: every dtype, odd sizes, any axes, other processors."""

from functools import cache

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.runtime.accelerate.machine import Compiler
from lucidgraph.runtime.accelerate.plan import Planner
from lucidgraph.runtime.accelerate.tables import TABLE
from lucidgraph.runtime.accelerate.tiles import TileLayout
from lucidgraph.wiring import backend
from tests.accelerate.programs import RUNNABLE, X86, backend_for, graph_for, outputs
from tests.accelerate.test_fusion import members

pytest.importorskip("llvmlite")

BACKEND = backend("accelerate")
RNG = np.random.default_rng(3)
backend_of = cache(lambda cpu: backend_for(X86[cpu]))


def real(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def layouts(monkeypatch, fn, *args) -> list[object]:
    """The layouts of the kernels that a program is made of."""
    keys: list[object] = []
    monkeypatch.setattr("lucidgraph.runtime.accelerate.plan.kernel_key", lambda b, layout: keys.append(layout) or "")
    monkeypatch.setattr(Compiler, "code", lambda self, key, build: None)
    Planner(graph_for(BACKEND, fn, *args), 2, TABLE).run()
    return keys


def distances(x, y):
    return lg.sum(lg.square(x[:, None, :] - y[None, :, :]), axis=-1)


def test_distances_are_a_tile(monkeypatch):
    (layout,) = layouts(monkeypatch, distances, real(40, 32), real(50, 32))
    assert isinstance(layout, TileLayout)
    assert layout.several > 1
    (layout,) = layouts(monkeypatch, lambda x: lg.sum(x * 2, axis=-1), real(40, 50, 32))
    assert not isinstance(layout, TileLayout)


@pytest.mark.parametrize("sizes", [(64, 64, 64), (1, 130, 37), (131, 1, 40), (33, 17, 5), (17, 200, 3), (300, 40, 16)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64", "int32"])
def test_sizes_and_dtypes(sizes, dtype):
    n, m, k = sizes
    if dtype == "int32":
        x, y = RNG.integers(-9, 9, (n, k)).astype(dtype), RNG.integers(-9, 9, (m, k)).astype(dtype)
    else:
        x, y = real(n, k, dtype=dtype), real(m, k, dtype=dtype)
    wide = {"c": "complex128", "f": "float64", "i": "int64"}[x.dtype.kind]
    a, b = x.astype(wide), y.astype(wide)
    (actual,) = outputs(BACKEND, lambda x, y: (distances(x, y),), x, y)
    exact = ((a[:, None] - b[None]) ** 2).sum(-1)
    rtol = {"float16": 3e-3, "float64": 1e-13, "int32": 0}.get(dtype, 1e-6)
    np.testing.assert_allclose(actual, exact, rtol=rtol, atol=rtol * k)


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (1, 2), (0, 2)])
@pytest.mark.parametrize("fold", ["sum", "mean", "max", "min", "prod", "any", "all"])
def test_folds_and_axes(fold, axis):
    # Quarters: every term is exact.
    x, y, w = (RNG.integers(-6, 7, shape).astype(np.float32) / 4 for shape in ((50, 24), (37, 24), (50, 37)))

    def fn(x, y, w):
        return getattr(lg, fold)(w[:, :, None] * (x[:, None, :] - y[None, :, :]) + 0.5, axis=axis) * 1

    value = w.astype(float)[:, :, None] * (x.astype(float)[:, None] - y.astype(float)[None]) + 0.5
    (actual,) = outputs(BACKEND, lambda *a: (fn(*a),), x, y, w)
    exact = getattr(np, fold)(value, axis=axis) * 1
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(actual, exact.astype(actual.dtype), rtol=1e-5, atol=1e-5)


def test_inputs_of_any_strides():
    x, y = real(80, 64)[::2, ::-1], np.asfortranarray(real(70, 64))
    (actual,) = outputs(BACKEND, lambda x, y: (distances(x, y),), x, y)
    exact = ((x.astype(float)[:, None] - y.astype(float)[None]) ** 2).sum(-1)
    np.testing.assert_allclose(actual, exact, rtol=1e-6)


def test_infinities_and_nans_stay_where_they_are():
    x, y = real(40, 32), real(50, 32)
    x[3, 5], y[7, 30], y[9, 0] = np.inf, np.nan, -np.inf
    (actual,) = outputs(BACKEND, lambda x, y: (distances(x, y),), x, y)
    with np.errstate(invalid="ignore"):
        exact = ((x.astype(float)[:, None] - y.astype(float)[None]) ** 2).sum(-1)
    np.testing.assert_allclose(actual, exact, rtol=1e-6)


def test_a_mean_does_not_overflow_on_the_way():
    x, y = np.full((64, 32), 3e38, np.float32), np.ones((64, 32), np.float32)
    (actual,) = outputs(BACKEND, lambda x, y: (lg.mean(x[:, None, :] * y[None, :, :], axis=-1),), x, y)
    np.testing.assert_allclose(actual, np.full((64, 64), 3e38), rtol=1e-6)


@pytest.mark.parametrize("cpu", RUNNABLE)
def test_other_processors(cpu):
    x, y = real(45, 37), real(61, 37)
    gradient = lg.value_and_grad(lambda x, y: lg.sum(lg.sqrt(distances(x, y) + 1e-3)), argnums=(0, 1))

    def flat(x, y):
        value, gradients = gradient(x, y)
        return value, *gradients

    value, dx, dy = outputs(backend_of(cpu), flat, x, y)
    a, b = x.astype(float), y.astype(float)
    difference = a[:, None] - b[None]
    root = np.sqrt((difference**2).sum(-1) + 1e-3)
    np.testing.assert_allclose(value, root.sum(), rtol=1e-6)
    np.testing.assert_allclose(dx, (difference / root[..., None]).sum(1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dy, -(difference / root[..., None]).sum(0), rtol=1e-4, atol=1e-4)


def test_threads_do_not_change_the_result():
    x, y = real(300, 64), real(200, 64)
    found = []
    before = BACKEND._executor.threads
    for threads in (1, 2, 2):
        lg.set_threads(threads)
        found.append(lg.compile(distances, backend="accelerate")(x, y))
    lg.set_threads(before)
    assert found[1].tobytes() == found[2].tobytes()
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_the_gradient_of_distances_stores_no_difference():
    x, y = real(300, 64), real(200, 64)
    gradient = lg.grad(lambda x, y: lg.sum(lg.sqrt(distances(x, y) + 1e-3)), argnums=(0, 1))
    graph = graph_for(BACKEND, gradient, x, y)
    kernels = [n for n in graph.nodes if n.name == "kernel"]
    assert max(t.size for n in kernels for t in n.types) == 300 * 200
    assert sum("subtract" in ops for ops in members(graph)) == 3
    assert BACKEND.planned_bytes(graph) < 4 * 300 * 200 * 4


def test_whole_powers_have_one_value():
    """Compiled into products, run alone by pow: to the bit the same."""
    x = real(4001) * 10
    for exponent in (2, 3, -1, 2.5):
        alone = lg.compile(lambda x, y: x**y, backend="accelerate")(x, np.float32(exponent))
        fused = lg.compile(lambda x, e=exponent: x**e, backend="accelerate")(x)
        assert alone.tobytes() == fused.tobytes()
