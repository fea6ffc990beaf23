"""Transposed arrays, of sizes that fill tiles and that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from tests.accelerate.programs import RUNNABLE, X86, backend_for, outputs

rng = np.random.default_rng(5)
SHAPES = [(130, 257), (64, 512), (3, 96, 70), (2, 5, 80, 130), (70, 4, 3, 40)]


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "bool", "complex64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_transposed_operands_are_numpys(shape: tuple[int, ...], dtype: str) -> None:
    x = (rng.standard_normal(shape) * 3).astype(dtype)
    y = (rng.standard_normal(shape[::-1]) * 3).astype(dtype)
    order = (*range(1, len(shape)), 0)

    def fn(x: Any, y: Any) -> Any:
        return lg.where(y == y, lg.permute_dims(x, tuple(range(len(shape)))[::-1]), y), lg.permute_dims(x, order)

    turned, moved = lg.compile(fn, backend="accelerate")(x, y)
    np.testing.assert_array_equal(turned, x.T)
    np.testing.assert_array_equal(moved, x.transpose(order))


@pytest.mark.parametrize("view", [lambda x: x[::-1], lambda x: x[:, ::2], lambda x: x[3:, 5:], lambda x: x[:, ::-1]])
def test_parts_of_transposed_arrays(view: Any) -> None:
    x = rng.standard_normal((150, 170)).astype(np.float32)
    y = view(x)
    got = lg.compile(lambda y: (y.T * 2 + 1, lg.sum(y.T * y.T, axis=1)), backend="accelerate")(y)
    np.testing.assert_array_equal(got[0], y.T * np.float32(2) + np.float32(1))
    np.testing.assert_allclose(got[1], (y.astype(np.float64).T ** 2).sum(1), rtol=1e-6)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), (1, 2)])
def test_sums_of_transposed_arrays(axis: Any) -> None:
    x = rng.standard_normal((40, 90, 70)).astype(np.float32)
    got = lg.compile(lambda x: lg.sum(lg.permute_dims(x, (2, 0, 1)), axis=axis), backend="accelerate")(x)
    np.testing.assert_allclose(got, x.astype(np.float64).transpose(2, 0, 1).sum(axis), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("cpu", RUNNABLE)
def test_on_other_processors(cpu: str) -> None:
    x = rng.standard_normal((100, 90)).astype(np.float32)
    (found,) = outputs(backend_for(X86[cpu]), lambda x: x.T + 1, x)
    np.testing.assert_array_equal(found, x.T + np.float32(1))
