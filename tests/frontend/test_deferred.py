"""Values computed when they are needed: at which moment captured, with how much memory, together."""

from __future__ import annotations

import copy
import gc
import pickle
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.config import config
from lucidgraph.ir import topological
from lucidgraph.lang.deferred import has_value, pending
from tests.checking import BACKENDS, on_backend

each_backend = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture(autouse=True)
def reference() -> Any:
    with on_backend("reference"):
        yield


def waiting(*tensors: Any) -> int:
    """How many nodes have to be computed for these tensors."""
    return sum(not has_value(n) for n in topological([t._node for t in tensors], stop=has_value))


class Runs:
    """Counts evaluations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = lg.lang.deferred.HOOKS["evaluate"]

        def counted(graph: Any, arrays: Any) -> Any:
            self.count += 1
            return real(graph, arrays)

        monkeypatch.setitem(lg.lang.deferred.HOOKS, "evaluate", counted)


# -- the moment of capture


@each_backend
def test_numpy_sources_have_their_value_at_capture(backend: str) -> None:
    with on_backend(backend):
        source = np.array([1.0, 2.0])
        view = source[::-1]
        results = [lg.add(source, 1), lg.asarray(source), lg.asarray([source, view]), lg.asarray(view) * 2]
        results.append(view + lg.ones(2))
        source[:] = 100
        assert [r.tolist() for r in results] == [[2, 3], [1, 2], [[1, 2], [2, 1]], [4, 2], [3, 2]]


def test_lists_and_bytes_are_copied_too() -> None:
    items = [1.0, 2.0]
    x = lg.asarray(items)
    items[0] = 5.0
    assert x.tolist() == [1, 2]


@each_backend
def test_writes_change_one_object_and_no_other(backend: str) -> None:
    with on_backend(backend):
        x = lg.asarray([1.0, 2.0, 3.0])
        y, z, same = x[0:2], x * 2, x
        copies = [lg.asarray(x, copy=True), copy.copy(x), copy.deepcopy(x), x.copy(), +x]
        x[0] = 10.0
        y += 100
        same *= 2
        assert x.tolist() == same.tolist() == [20, 4, 6] and x is same
        assert y.tolist() == [101, 102] and z.tolist() == [2, 4, 6]
        assert all(c.tolist() == [1, 2, 3] for c in copies)


@each_backend
def test_arrays_handed_out_are_not_the_tensors_memory(backend: str) -> None:
    with on_backend(backend):
        x = lg.asarray([1.0, 2.0]) + 0
        a = x.numpy()
        a[:] = 7
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(x)[:] = 7
        b = np.array(x)
        b[:] = 7
        assert x.tolist() == [1, 2] and (x + 1).tolist() == [2, 3]


def test_compiled_results_do_not_share_with_what_was_given() -> None:
    x = np.ones(3)
    y = lg.compile(lambda a: lg.asarray(a), backend="reference")(lg.asarray(x))
    x[:] = 7
    assert y.tolist() == [1, 1, 1]


# -- together, and once


def test_everything_on_the_way_is_computed_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    a = lg.asarray([1.0, 2.0]) + 1
    b, c = a * 2, a * 3
    d = b + c
    assert d.tolist() == [10, 15] and runs.count == 1
    assert a.tolist() == [2, 3] and b.tolist() == [4, 6] and c.tolist() == [6, 9] and runs.count == 1
    assert waiting(a, b, c, d) == 0


def test_eval_computes_trees_together(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    values = {"a": lg.asarray([1.0]) + 1, "b": [lg.asarray([2.0]) * 2, 3, None, np.ones(1)]}
    lg.eval(values, values["a"])
    assert runs.count == 1 and values["a"].tolist() == [2] and values["b"][0].tolist() == [4] and runs.count == 1
    lg.eval()
    lg.eval(values)
    assert runs.count == 1


def test_arguments_of_a_compiled_call_are_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    x, y = lg.asarray([1.0]) + 1, lg.asarray([2.0]) + 1
    assert lg.compile(lambda a, b: a * b, backend="reference")(x, y).tolist() == [6] and runs.count == 1


def test_values_asked_for_twice_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    x = lg.exp(lg.asarray([0.0]))
    for read in (x.tolist, lambda: float(x), lambda: repr(x), lambda: f"{x}", lambda: np.asarray(x), x.item, x.numpy):
        read()
    assert runs.count == 1


def test_an_error_leaves_the_others_alone() -> None:
    x = lg.asarray([1.0, 2.0]) * 1
    bad = lg.take(x, lg.asarray([5]) * 1)
    good = x + 1
    for _ in range(2):
        with pytest.raises(lg.IndexOutOfRangeError):
            bad.numpy()
    assert good.tolist() == [2, 3]


# -- memory


def test_long_loops_flush_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "deferred_limit", 500)
    x = lg.asarray(0.0)
    most = 0
    for k in range(20_000):
        x = x + 1.0
        if k % 99 == 0:
            most = max(most, waiting(x))
    assert x.item() == 20_000
    assert 0 < most <= 1500


def test_many_values_at_once_flush_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "deferred_limit", 300)
    runs = Runs(monkeypatch)
    xs = [lg.asarray(float(k)) + 1 for k in range(2000)]
    assert runs.count < 30
    assert sum(x.item() for x in xs) == 2000 * 2001 / 2


def test_memory_of_a_long_loop_is_flat() -> None:
    x, scale = lg.ones(100), lg.asarray(0.5)

    def steps(count: int) -> int:
        nonlocal x
        for k in range(count):
            x = x * scale + 1
            if k % 10 == 0:
                float(x[0])
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    steps(300)
    tracemalloc.start()
    try:
        first = steps(300)
        last = steps(1500)
    finally:
        tracemalloc.stop()
    assert last - first < 100_000


def test_dropped_values_are_dropped() -> None:
    gc.collect()
    x = lg.asarray(np.ones(1000))
    refs = [weakref.ref(x * k) for k in range(10)]
    gc.collect()
    assert all(ref() is None for ref in refs)
    before = len(pending.alive())
    y = x + 1
    z = y * 2
    assert len(pending.alive()) == before + 2
    node = weakref.ref(y._node)
    z.tolist()
    del y
    gc.collect()
    assert node() is None and len(pending.alive()) == before


def test_history_is_forgotten_after_evaluation_even_inside_a_gradient() -> None:
    w = lg.ones(3)
    for _ in range(200):

        def loss(w: Any) -> Any:
            value = lg.sum(w * w)
            assert float(value) > 0
            return value

        w = w - 0.01 * lg.grad(loss)(w)
    lg.eval(w)
    assert len(topological([(w + 0)._node])) < 6


# -- evaluation inside eager gradients


def test_values_inside_an_eager_gradient_keep_it_right() -> None:
    def fn(x: Any) -> Any:
        y = x * x
        if float(lg.sum(y)) > 1:
            y = y * 3
        lg.eval(y)
        z = y + x
        assert z.tolist() is not None and repr(z)
        for v in z:
            if v.item() > 100:
                z = z * 0
        return lg.sum(z)

    assert lg.grad(fn)(lg.asarray([1.0, 2.0])).tolist() == [7, 13]
    assert lg.grad(fn)(lg.asarray([0.1, 0.2])).tolist() == pytest.approx([1.2, 1.4])
    second = lg.grad(lambda x: lg.sum(lg.grad(fn)(x) * lg.asarray([1.0, 10.0])))(lg.asarray([1.0, 2.0]))
    assert second.tolist() == [6, 60]


def test_long_eager_gradient_flushes_and_stays_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "deferred_limit", 50)

    def fn(x: Any) -> Any:
        y = x
        for _ in range(300):
            y = y * 1.001
        return y

    assert lg.grad(fn)(lg.asarray(1.0, dtype=lg.float64)).item() == pytest.approx(1.001**300)


def test_captured_by_a_program_before_evaluation() -> None:
    w = lg.asarray([1.0, 2.0]) + 1
    f = lg.compile(lambda x: x * w, backend="reference")
    assert f(np.ones(2)).tolist() == [2, 3]
    assert waiting(w) == 0


# -- the rest of a value


@pytest.mark.parametrize("dtype", ["bool_", "int8", "uint64", "float16", "bfloat16", "float32", "float64", "complex64"])
def test_ways_out(dtype: str) -> None:
    x = lg.asarray([0, 1, 1], dtype=getattr(lg, dtype))
    assert x.tolist() == [0, 1, 1] and type(x.tolist()[1]) in (bool, int, float, complex)
    assert x.numpy().dtype == x.dtype.numpy and x[1].item() == 1
    assert pickle.loads(pickle.dumps(x)).dtype is x.dtype and pickle.loads(pickle.dumps(x)).tolist() == x.tolist()
    assert x.nbytes == 3 * x.itemsize and x.size == 3 and len(x) == 3 and x.ndim == 1
    assert bool(x[1]) and int(x[2].real if dtype.startswith("complex") else x[2]) == 1
    assert "Tensor(" in repr(x) and repr(x).endswith(f"dtype={x.dtype.name})")


def test_numbers_of_one_element() -> None:
    x = lg.asarray([[2.5]])
    assert float(x) == 2.5 and int(x) == 2 and complex(x) == 2.5 and bool(x) and f"{x:.3f}" == "2.500"
    assert round(float(x)) == 2 and [1, 2, 3][lg.asarray(1)] == 2 and list(range(lg.asarray(3))) == [0, 1, 2]
    for use in (float, int, bool, lambda v: v.item(), lambda v: f"{v:.1f}"):
        with pytest.raises(lg.ShapeError, match="needs one element"):
            use(lg.ones(2))
    with pytest.raises(lg.DTypeError, match="only integers index"):
        [1, 2, 3][lg.asarray(1.0)]


def test_iteration_unpacks_rows() -> None:
    a, b = lg.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert a.tolist() == [1, 2] and b.tolist() == [3, 4]
    assert [float(v) for v in a] == [1, 2]


def test_defaults() -> None:
    for value, dtype in (
        (1, lg.int64), (1.0, lg.float32), (1j, lg.complex64), (True, lg.bool_), ([], lg.float32),
        ([1, 2.5], lg.float32),
        (np.float64(1), lg.float64), ([np.float64(1)], lg.float64), (np.int8(1), lg.int8), ([[True]], lg.bool_),
        (2**63, lg.uint64), ([1, True], lg.int64), (np.ones(1, ">f4"), lg.float32), ([lg.asarray(1)], lg.int64),
        ([1.0, lg.ones(())], lg.float32), ([[lg.asarray(1.0)], [2.0]], lg.float32),
    ):  # fmt: skip
        assert lg.asarray(value).dtype is dtype, value
    with pytest.raises(OverflowError):
        lg.asarray(300, dtype=lg.int8)
    with pytest.raises(OverflowError):
        lg.asarray(2**64)


def test_asarray_copy() -> None:
    x = lg.ones(2)
    assert lg.asarray(x) is x and lg.asarray(x, copy=False) is x and lg.asarray(x, copy=True) is not x
    with pytest.raises(ValueError, match="must be copied"):
        lg.asarray(np.ones(2), copy=False)


def test_deferred_programs_run_whole_when_they_come_again() -> None:
    for k in range(3):
        x = lg.asarray(np.full(3, k, np.float32))
        assert lg.sum(lg.exp(x) * 0 + x).item() == 3 * k
