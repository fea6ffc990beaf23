"""Several threads at once: compiling, running, differentiating, deferring, each with its own state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from tests.checking import BACKENDS, on_backend

each_backend = pytest.mark.parametrize("backend", BACKENDS)
TIMES = 1000


def together(*work: Callable[[], Any], timeout: float = 120.0) -> list[Any]:
    """Run functions in threads that start at the same moment; their results, or the first exception."""
    gate = threading.Barrier(len(work))

    def run(fn: Callable[[], Any]) -> Any:
        gate.wait(timeout)
        return fn()

    with ThreadPoolExecutor(len(work)) as pool:
        return [future.result(timeout) for future in [pool.submit(run, fn) for fn in work]]


@each_backend
def test_two_threads_run_the_same_function_and_their_own(backend: str) -> None:
    shared = lg.compile(lambda x, k: lg.sum(x * k) + 1, backend=backend)

    def work(seed: int) -> Callable[[], None]:
        own = lg.compile(lambda x: x * seed - lg.mean(x), backend=backend)

        def run() -> None:
            for k in range(TIMES):
                x = np.full(4 + k % 3, k % 7 + seed, np.float32)
                assert shared(x, seed) == x[0] * x.size * seed + 1
                np.testing.assert_allclose(own(x), x * seed - x[0], atol=1e-5)

        return run

    together(work(1), work(5))
    assert shared.cache_info().currsize == 3


@each_backend
def test_two_threads_compile_at_the_same_time(backend: str) -> None:
    def work(seed: int) -> Callable[[], None]:
        def run() -> None:
            for k in range(8):
                f = lg.compile(lambda x, k=k: lg.sum(lg.exp(x * 0) * k + seed), backend=backend)
                assert f(np.ones(3, np.float32)) == 3 * (k + seed)

        return run

    together(work(1), work(2), work(3))


def test_threads_that_trace_one_signature_share_a_program() -> None:
    inside = threading.Barrier(2)

    def slow(x: Any) -> Any:
        inside.wait(60)
        return x + 1

    f = lg.compile(slow, backend="reference")
    together(*[lambda: f(np.ones(2))] * 2)
    assert f.cache_info().currsize == 1
    assert f(np.ones(2)).tolist() == [2, 2]  # would wait for a second thread if it traced


@each_backend
def test_deferred_values_in_threads(backend: str) -> None:
    with on_backend(backend):
        common = lg.asarray(np.arange(4, dtype=np.float32)) * 2

        def work(seed: int) -> Callable[[], None]:
            def run() -> None:
                for k in range(60):
                    x = common + seed
                    y = [x * k, x + k]
                    assert y[1].tolist() == [seed + k + 2 * j for j in range(4)]
                    assert y[0].tolist() == [(seed + 2 * j) * k for j in range(4)]

            return run

        together(work(1), work(2), work(3))
        assert common.tolist() == [0, 2, 4, 6]


def test_a_value_of_one_thread_is_read_in_another() -> None:
    with on_backend("reference"):
        made = together(lambda: lg.asarray([1.0, 2.0]) * 3)[0]
        assert together(made.tolist, lambda: (made + 1).tolist(), lambda: repr(made)) == [
            [3, 6], [4, 7], "Tensor([3., 6.], dtype=float32)",
        ]  # fmt: skip


def test_evaluation_in_one_thread_does_not_disturb_a_gradient_in_another() -> None:
    recording, evaluated = threading.Event(), threading.Event()
    kept: list[Any] = []

    def fn(x: Any) -> Any:
        y = x * x
        kept.append(y)
        recording.set()
        assert evaluated.wait(60)
        return lg.sum(y * 3)

    def other() -> None:
        assert recording.wait(60)
        assert (kept[0] + 1).tolist() == [2, 5]
        for k in range(3000):  # more than waits before everything is computed
            lg.asarray(float(k)) + 1
        evaluated.set()

    with on_backend("reference"):
        gradient, _ = together(lambda: lg.grad(fn)(lg.asarray([1.0, 2.0])).tolist(), other)
    assert gradient == [6, 12]


@each_backend
def test_gradients_in_threads(backend: str) -> None:
    f = lg.compile(lg.value_and_grad(lambda w, x: lg.sum((w * x) * w)), backend=backend)

    def work(seed: int) -> Callable[[], None]:
        def run() -> None:
            x = np.full(3, seed, np.float32)
            for k in range(100):
                value, slope = f(np.full(3, k, np.float32), x)
                assert value == 3 * k * k * seed and slope.tolist() == [2 * k * seed] * 3

        return run

    together(work(1), work(2))


def test_traces_policies_and_switches_belong_to_their_thread() -> None:
    inside, checked = threading.Event(), threading.Event()
    f = lg.compile(lambda x: x @ x, backend="reference")
    x = np.ones((2, 2), np.float32)

    def holds() -> Any:
        with lg.autocast(lg.bfloat16), lg.disable_compile():
            inside.set()
            assert checked.wait(60)
            return f(x).dtype.name

    def does_not() -> Any:
        assert inside.wait(60)
        try:
            graph = lg.trace(lambda x: x @ x, x)
            return f(x).dtype.name, str(graph.outputs[0].type), f.cache_info().currsize
        finally:
            checked.set()

    assert together(holds, does_not) == ["bfloat16", ("float32", "float32[2,2]", 1)]


def test_a_trace_is_not_seen_by_another_thread() -> None:
    def outer(x: Any) -> Any:
        def other() -> Any:
            return (lg.asarray([1.0]) + 1).tolist()

        assert together(other) == [[2.0]]
        with pytest.raises(lg.ConcretizationError, match="is used inside another trace"):
            together(lambda: x + 1)
        return x

    lg.trace(outer, np.ones(2))


def test_registering_dataclasses_from_threads() -> None:
    import dataclasses

    @dataclasses.dataclass
    class Point:
        x: Any

    f = lg.compile(lambda p: p.x + 1, backend="reference")
    assert together(*[lambda: f(Point(np.ones(1))).item()] * 8) == [2.0] * 8
