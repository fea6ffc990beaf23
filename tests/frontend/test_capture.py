"""Arrays that a program uses without being given them, and NumPy code traced through NumPy's own functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.ir import Graph
from tests.checking import BACKENDS

each_backend = pytest.mark.parametrize("backend", BACKENDS)
X = np.arange(4, dtype=np.float32)


def test_an_array_is_captured_once_per_trace() -> None:
    w, t = np.ones(4, np.float32), lg.asarray(X)

    def fn(x: Any) -> Any:
        for _ in range(5):
            x = x * w + t
        return x + w[:2].sum()

    assert [n.shape for n in lg.trace(fn, X).captured] == [(4,), (4,), ()]


def test_an_array_written_to_while_tracing_is_captured_anew() -> None:
    def fn(x: Any) -> Any:
        buffer = np.zeros(4, np.float32)
        out = []
        for k in range(3):
            buffer[k] = 10.0
            out.append(x + buffer)
        return out

    results = lg.compile(fn, backend="reference")(X)
    assert [r.tolist() for r in results] == [[10, 1, 2, 3], [10, 11, 2, 3], [10, 11, 12, 3]]


@each_backend
@pytest.mark.parametrize("make", [
    lambda a: a, lambda a: a[::-1], lambda a: np.asfortranarray(a.reshape(2, 2)).ravel(), lambda a: a.astype(">f4"),
    lambda a: list(a.tolist()), lambda a: lg.asarray(a), lambda a: np.broadcast_to(a[1], (4,)),
    lambda a: a.astype(">i2"), lambda a: tuple(np.float32(v) for v in a), lambda a: a.reshape(1, 4)[:, ::-1],
], ids=range(10))  # fmt: skip
def test_captured_arrays_of_every_kind(backend: str, make: Any) -> None:
    w = make(X + 1)
    expected = X * np.asarray(w, dtype=np.float32)
    result = lg.compile(lambda x: x * lg.asarray(w), backend=backend)(X)
    np.testing.assert_array_equal(result, expected)


def test_read_only_and_foreign_arrays() -> None:
    class Foreign:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.asarray(X, dtype)

    frozen = X.copy()
    frozen.flags.writeable = False
    f = lg.compile(lambda x: x + frozen + lg.asarray(Foreign()), backend="reference")
    assert f(X).tolist() == (3 * X).tolist()


@each_backend
def test_mlx_arrays_are_captured(backend: str) -> None:
    mx = pytest.importorskip("mlx.core")
    w = mx.array(X)
    f = lg.compile(lambda x: x * w + mx.array([1.0])[0], backend=backend)
    assert f(X).tolist() == (X * X + 1).tolist()
    w = mx.array(X + 1)
    assert f(X).tolist() == (X * (X + 1) + 1).tolist()


def test_bound_graphs() -> None:
    w = np.ones(4, np.float32)
    graph = lg.trace(lambda x: x * w, X)
    text = str(graph)
    assert "captured" in text and text.count("\n") < 8
    again = Graph.parse(text)
    assert again.digest == graph.digest
    with pytest.raises(lg.LucidGraphError):
        again.run(X)
    assert again.bind([2 * w]).run(X)[0].tolist() == (2 * X).tolist()
    for constants in ([], [w, w], [w[:2]]):
        with pytest.raises(lg.ShapeError):
            graph.bind(constants)


def test_results_that_are_captured_arrays() -> None:
    w = np.ones(4, np.float32)
    f = lg.compile(lambda x: {"w": w, "t": lg.asarray(w), "x": x}, backend="reference")
    first = f(X)
    first["w"][:] = 9
    w[:] = 5
    assert f(X)["w"].tolist() == [1, 1, 1, 1] == f(X)["t"].tolist()


# -- NumPy code as it is


def standardised(x: Any) -> Any:
    return (x - np.mean(x, axis=0)) / np.sqrt(np.var(x, axis=0) + 1e-5)


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def distances(x: Any) -> Any:
    d = x[:, None, :] - x[None, :, :]
    return np.sqrt(np.maximum(np.einsum("ijk,ijk->ij", d, d), 0))


def smoothed(x: Any) -> Any:
    y = np.zeros_like(x)
    y[1:-1] = (x[:-2] + x[1:-1] + x[2:]) / 3
    y[0], y[-1] = x[0], x[-1]
    return y


def game_of_life(x: Any) -> Any:
    n = sum(np.roll(np.roll(x, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1)) - x
    return np.where((n == 3) | ((x == 1) & (n == 2)), 1, 0)


def accumulated(x: Any) -> Any:
    total = np.zeros_like(x[0], shape=x.shape[1:]) + np.zeros(x.shape[1:], dtype=x.dtype)
    for row in range(x.shape[0]):
        total += x[row] * x.dtype.type(row + 1)
    return total


def masked(x: Any) -> Any:
    y = x.copy()
    y[y < 0] = 0
    y[:, 0] *= 2
    return np.clip(y, None, 1.5)


def stacked(x: Any) -> Any:
    return np.concatenate([np.stack([x, -x]), np.tile(x, (1, 1, 1))], axis=0).transpose(1, 0, 2).reshape(x.shape[0], -1)


def linear_algebra(x: Any) -> Any:
    y = x @ x.T + np.dot(x, x.T) - np.matmul(x, x.T) + np.outer(x[:, 0], x[:, 1])
    return y + np.trace(x[:3, :3]) * np.eye(len(x), dtype=x.dtype)


def polynomial(x: Any) -> Any:
    return np.polyval([1.0, -2.0, 0.5], 0.0) + x**3 - 2 * x**2 + 0.5 * x


PROGRAMS = [standardised, softmax, distances, smoothed, accumulated, masked, stacked, linear_algebra, polynomial]


@each_backend
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_numpy_programs(backend: str, fn: Any) -> None:
    x = np.random.default_rng(3).standard_normal((5, 4))
    expected = fn(x.copy())
    result = lg.compile(fn, backend=backend)(x)
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)
    assert result.dtype == expected.dtype


def test_numpy_program_of_integers() -> None:
    x = np.random.default_rng(4).integers(0, 2, (6, 7))
    np.testing.assert_array_equal(lg.compile(game_of_life, backend="reference")(x), game_of_life(x))


def test_numpy_function_that_there_is_not_never_falls_back() -> None:
    with pytest.raises(lg.UnsupportedError, match=r"numpy.fft.fft"):
        lg.compile(lambda x: np.fft.fft(x), backend="reference")(X)


def test_array_namespace_inside_a_trace() -> None:
    def fn(x: Any) -> Any:
        xp = x.__array_namespace__()
        return xp.sum(xp.exp(x), axis=-1)

    np.testing.assert_allclose(lg.compile(fn, backend="reference")(X), np.exp(X).sum(), rtol=1e-6)


def test_writing_a_traced_value_into_a_numpy_array_says_what_to_do() -> None:
    def by_index(x: Any) -> Any:
        y = np.zeros(4, np.float32)
        y[1] = x[0]
        return y

    def by_slice(x: Any) -> Any:
        y = np.zeros(4, np.float32)
        y[:] = x
        return y

    def in_place(x: Any) -> Any:
        y = np.zeros(4, np.float32)
        y += x
        return y

    for fn in (by_index, by_slice, in_place):
        with pytest.raises(lg.ConcretizationError, match=r"test_capture.py") as caught:
            lg.compile(fn, backend="reference")(X)
        assert caught.value.source is not None and caught.value.source.function == fn.__name__
        assert fn is by_index or "numpy.zeros_like(x)" in str(caught.value)


@each_backend
def test_lists_are_operands_as_in_numpy(backend: str) -> None:
    def fn(x: Any) -> Any:
        row, pair = [1, 2, 3, 4.0], (0.5, 1.0, 1.0, 2.0)
        return (x + row) * pair - [0.5] * x, row / (x + 1), x == row, row > x

    for ours, theirs in zip(lg.compile(fn, backend=backend)(X), fn(X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_dtypes_are_numpys_too() -> None:
    def fn(x: Any) -> Any:
        assert np.issubdtype(x.dtype, np.floating) and np.finfo(x.dtype).eps > 0 and x.dtype == np.float32
        assert np.dtype(x.dtype) == "float32" and x.dtype.type is np.float32 and np.result_type(x) == np.float32
        return x + np.arange(4, dtype=x.dtype) + np.full_like(x, 2) + np.ones(4, x.dtype)

    assert lg.compile(fn, backend="reference")(X).tolist() == (X * 2 + 3).tolist()
