"""Reductions over a few points, written out: values, dtypes, layouts, NaN, and which ones they are."""

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.wiring import backend
from tests.accelerate.programs import graph_for, outputs

pytest.importorskip("llvmlite")

BACKEND = backend("accelerate")
RNG = np.random.default_rng(11)
X = RNG.standard_normal((31, 3, 2, 45)).astype(np.float32)

REDUCTIONS = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean, "any": np.any, "all": np.all,
    "argmax": np.argmax,
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("axis", [1, (1, 2)])
def test_reductions_over_few_points(name, dtype, axis):
    x = (X * 3).astype(dtype)
    if name == "argmax":
        axis = 1
    if (dtype == "complex64" and name in ("max", "min", "argmax")) or (dtype == "bool" and name == "argmax"):
        return
    (actual,) = outputs(BACKEND, lambda x: (getattr(lg, name)(x, axis=axis),), x)
    wide = x.astype({"f": np.float64, "c": np.complex128}.get(x.dtype.kind, x.dtype))
    expected = REDUCTIONS[name](wide, axis=axis)
    tolerance = 1e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


PROGRAMS = {
    "softmax": lambda x: lg.softmax(x, axis=1),
    "centred": lambda x: x - lg.mean(x, axis=(1, 2), keepdims=True),
    "several": lambda x: (lg.max(x * 2.0, axis=1) - lg.min(x, axis=1)) / lg.sum(lg.exp(x), axis=1),
    "reversed": lambda x: lg.sum(x[:, ::-1, ::-1, ::-1], axis=(1, 2)),
    "turned": lambda x: lg.max(lg.permute_dims(x, (3, 1, 0, 2)), axis=1),
    "both ends": lambda x: lg.max(x[:3], axis=0),
    "with rows": lambda x: lg.sum(x * x[:, :1] + x[0, 0, 0], axis=1, keepdims=True),
    "windows": lambda x: lg.nn.max_pool2d(x, (2, 1), 1, (1, 0)) + lg.nn.avg_pool2d(x, (2, 1), 1, (1, 0)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    def fn(x):
        return (PROGRAMS[name](x),)

    (actual,) = outputs(BACKEND, fn, X)
    (expected,) = outputs(backend("reference"), fn, X.astype(np.float64))
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


def test_nan_and_signs():
    x = X.copy()
    x[4, 2, 1, 7] = np.nan
    x[5, :, :, 3] = -0.0
    most, total = outputs(BACKEND, lambda x: (lg.max(x, axis=(1, 2)), lg.sum(x, axis=(1, 2))), x)
    assert np.isnan(most[4, 7]) and np.isnan(total[4, 7]) and np.isnan(most).sum() == 1
    np.testing.assert_array_equal(most[5, 3], 0.0)


def test_which_ones():
    def forms(fn):
        return [c.form for c in BACKEND.compile(graph_for(BACKEND, fn, X)).plan.commands]  # type: ignore[attr-defined]

    assert forms(lambda x: lg.softmax(x, axis=1)) == ["by columns"]
    # Along the vectors, or over many points, a reduction stays one.
    assert "2 times" in forms(lambda x: lg.max(x) - x)[-1] or len(forms(lambda x: lg.max(x) - x)) > 1
    assert forms(lambda x: lg.sum(x, axis=-1)) == ["by rows"]


def test_one_kernel_for_all_sizes():
    keys = set()
    for n in (40, 50, 60):
        x = RNG.standard_normal((n, 2, 77)).astype(np.float32)
        plan = BACKEND.compile(graph_for(BACKEND, lambda x: lg.max(x, axis=1), x)).plan  # type: ignore[attr-defined]
        keys.add(id(plan.commands[0].code))
    assert len(keys) == 1


@pytest.mark.parametrize("shape", [(3, 8, 6, 5), (3, 7, 9, 5), (2, 64, 64, 32)])
@pytest.mark.parametrize("pool", ["max_pool2d", "avg_pool2d"])
def test_gradients_of_pooling_are_written_in_place(shape, pool):
    x = RNG.standard_normal(shape).astype(np.float32)
    slope = lg.grad(lambda x: lg.sum(getattr(lg.nn, pool)(x, 2) ** 2))
    (actual,) = outputs(BACKEND, lambda x: (slope(x),), x)
    (expected,) = outputs(backend("reference"), lambda x: (slope(x),), x.astype(np.float64))
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    plan = BACKEND.compile(graph_for(BACKEND, slope, x)).plan  # type: ignore[attr-defined]
    names = [name for c in plan.commands for name in c.name.split(" | ")]
    # Around what windows cover there may be zeros; what they cover is copied only where it is the same for a window.
    assert len(names) == 1 + (shape[1] % 2) + (shape[2] % 2) + (pool == "avg_pool2d")


@pytest.mark.parametrize("shape", [(3000, 17), (300, 5, 2, 3, 9), (2, 2000, 3, 2, 4), (64, 8, 8, 8, 8)])
def test_short_rows(shape):
    """Several of them are one item of work."""
    x, row = RNG.standard_normal(shape).astype(np.float32), RNG.standard_normal(shape[-1:]).astype(np.float32)
    y = np.moveaxis(RNG.standard_normal(shape[::-1]).astype(np.float32), range(len(shape)), range(len(shape))[::-1])
    (actual,) = outputs(BACKEND, lambda x, y, row: (lg.tanh(x[::-1]) * row + y,), x, y, row)
    np.testing.assert_allclose(actual, np.tanh(x[::-1]) * row + y, rtol=1e-6, atol=1e-6)
