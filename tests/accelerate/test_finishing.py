"""Epilogues of products: the same bits as the kernel alone gives, and NumPy's values in double."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg

plan = pytest.importorskip("lucidgraph.runtime.accelerate.plan")
from lucidgraph.runtime.accelerate.executor import EXECUTOR  # noqa: E402
from tests.accelerate.programs import RUNNABLE, X86, backend_for, graph_for  # noqa: E402

RNG = np.random.default_rng(0)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = EXECUTOR.threads
    lg.set_threads(request.param)
    yield request.param
    lg.set_threads(before)


def random(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def followed(listing: str) -> bool:
    """Whether a product has an epilogue."""
    return re.search(r"\bproduct [a-z]", listing) is not None


def both(
    monkeypatch: pytest.MonkeyPatch, cpu: str, fn: Callable[..., Any], *args: np.ndarray
) -> tuple[list[np.ndarray], str]:  # fmt: skip
    """The results, compared with those of kernels after their products; and the listing."""
    backend = backend_for(X86[cpu])
    graph = graph_for(backend, fn, *args)
    found = backend.compile(graph)
    with monkeypatch.context() as patch:
        patch.setattr(plan, "followers", lambda *_: {})
        apart = backend.compile(graph)
    values = found([a.copy() for a in args])
    assert followed(found.source)
    assert not followed(apart.source)
    for x, y in zip(values, apart([a.copy() for a in args]), strict=True):
        np.testing.assert_array_equal(x, y)
    return values, found.source


@pytest.mark.parametrize("cpu", RUNNABLE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [(1, 1, 1), (8, 32, 16), (9, 33, 17), (7, 31, 300), (65, 70, 257), (3, 5, 0)])
def test_bias_and_activation(
    monkeypatch: pytest.MonkeyPatch, threads: int, cpu: str, dtype: str, size: tuple[int, int, int]
):  # fmt: skip
    m, n, k = size
    x, w, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype), random(n, dtype=dtype)
    exact = x.astype(float) @ w.astype(float) + b
    (y,), _ = both(monkeypatch, cpu, lambda x, w, b: lg.maximum(x @ w + b, 0.0), x, w, b)
    tolerance = 20 * (k + 1) * np.finfo(dtype).eps
    np.testing.assert_allclose(y, np.maximum(exact, 0), atol=tolerance)
    values, _ = both(monkeypatch, cpu, lambda x, w, b: (lg.tanh(x @ w + b), x @ w > b, x @ w), x, w, b)
    np.testing.assert_allclose(values[0], np.tanh(exact), atol=tolerance)
    np.testing.assert_array_equal(values[1], values[2] > b)
    np.testing.assert_allclose(values[2], exact - b, atol=tolerance)


OTHERS: list[tuple[tuple[int, ...], Callable[[np.ndarray], np.ndarray]]] = [
    ((37, 50), lambda x: x), ((50, 37), lambda x: x.T), ((37, 1), lambda x: x), ((74, 150), lambda x: x[::2, ::-3]),
]  # fmt: skip


@pytest.mark.parametrize("cpu", RUNNABLE)
@pytest.mark.parametrize("other", range(len(OTHERS)))
@pytest.mark.parametrize("k", [40, 600])
def test_operands_that_lie_anyhow(
    monkeypatch: pytest.MonkeyPatch, threads: int, cpu: str, other: int, k: int
):  # fmt: skip
    shape, view = OTHERS[other]
    a, b, c = random(37, k), random(k, 50), random(*shape)

    def fn(a: Any, b: Any, c: Any) -> Any:
        return view(c) - 0.1 * (a @ b)

    (y,), _ = both(monkeypatch, cpu, fn, a, b, c)
    np.testing.assert_allclose(y, view(c) - 0.1 * (a.astype(float) @ b), atol=1e-4)


@pytest.mark.parametrize("shapes", [((3, 9, 30), (30, 40)), ((3, 20, 30), (3, 30, 40)), ((2, 3, 9, 30), (2, 3, 30, 7))])
def test_batches(monkeypatch: pytest.MonkeyPatch, threads: int, shapes: tuple[tuple[int, ...], ...]):
    a, b = (random(*shape) for shape in shapes)
    c = random(*shapes[0][:-1], 1)
    d = random(*shapes[0][:-1], shapes[1][-1])
    (y,), _ = both(monkeypatch, RUNNABLE[-1], lambda a, b, c, d: (a @ b) * c + d, a, b, c, d)
    np.testing.assert_allclose(y, (a.astype(float) @ b) * c + d, atol=1e-4)


def test_sums_over_rows_come_after(monkeypatch: pytest.MonkeyPatch, threads: int):
    a, b, c = random(64, 128), random(128, 128), random(64, 128)

    def fn(a: Any, b: Any, c: Any) -> Any:
        y = lg.where(c > 0, a @ b, 0.0)
        return y, lg.sum(y, axis=0)

    backend = backend_for(X86[RUNNABLE[-1]])
    found = backend.compile(graph_for(backend, fn, a, b, c))
    y, total = found([a, b, c])
    assert followed(found.source)
    exact = np.where(c > 0, a.astype(float) @ b, 0)
    np.testing.assert_allclose(y, exact, atol=1e-4)
    np.testing.assert_allclose(total, exact.sum(0), atol=1e-3)


def test_what_is_donated_is_written_in_place():
    a, b, w = random(40, 300), random(300, 70), random(40, 70)
    step = lg.compile(lambda w, a, b: w - 0.1 * (a @ b), backend="accelerate", donate=(0,))
    exact = w - 0.1 * (a.astype(float) @ b)
    given = w.copy()
    for _ in range(2):
        given[...] = w
        np.testing.assert_allclose(step(given, a, b), exact, atol=1e-4)
    both_read = lg.compile(lambda w, b: w - 0.1 * (w @ b), backend="accelerate", donate=(0,))
    square = random(70, 70)
    np.testing.assert_allclose(both_read(w.copy(), square), w - 0.1 * (w.astype(float) @ square), atol=1e-4)
