"""What a function reads from outside: a change there traces it again, and nothing else does."""

from __future__ import annotations

import functools
import gc
import pickle
import sys
import tracemalloc
import types
import weakref
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from tests.checking import BACKENDS

each_backend = pytest.mark.parametrize("backend", BACKENDS)
compiled = functools.partial(lg.compile, backend="reference")

X = np.ones(2, np.float32)
SCALE: Any = 2.0
TABLE: Any = {"rate": 2.0, "layers": [np.full(2, 3, np.float32)]}


def helper(x: Any) -> Any:
    return x * SCALE


def deeper(x: Any) -> Any:
    return next(iter([helper(v) for v in (x,)]))


def array(value: float) -> np.ndarray:
    return np.full(2, value, np.float32)


def programs(f: Any) -> int:
    return f.cache_info().currsize


# -- what is noticed


@pytest.mark.parametrize(
    "before, after",
    [
        (2.0, 3.0), (2, 2.5), (True, False), ("sum", "max"), (1j, 2j), (None, 2.0), (array(2), array(3)),
        (lg.asarray([2.0, 2.0]), lg.asarray([3.0, 3.0])), (np.float32(2), np.float32(3)), ([1.0, 2.0], [1.0, 3.0]),
        ({"w": 1.0}, {"w": 2.0}), ((array(1), 2), (array(1), 3)), (lambda v: v, lambda v: v + 1), (np.sin, np.cos),
        (0.0, -0.0), ({1, 2}, {1, 3}), (b"a", b"b"), (slice(1), slice(2)), (2.0, "2.0"),
    ],
)  # fmt: skip
def test_closure_cell_bound_to_another_value(before: Any, after: Any) -> None:
    value = before
    seen: list[Any] = []

    @compiled
    def f(x: Any) -> Any:
        seen.append(value)
        return x

    f(X), f(X)
    value = after
    f(X), f(X)
    value = before
    f(X)
    assert len(seen) == 2 and seen[0] is before and seen[1] is after
    assert "value, read from outside the function: " in f.explain() or "value[" in f.explain()


@each_backend
def test_values_of_closures_and_globals(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w = array(1)
    f = lg.compile(lambda x: deeper(x) + w, backend=backend)
    assert f(X).tolist() == [3, 3]
    w = array(5)
    assert f(X).tolist() == [7, 7]
    monkeypatch.setitem(globals(), "SCALE", 10.0)
    assert f(X).tolist() == [15, 15]
    monkeypatch.setitem(globals(), "helper", lambda x: x)
    assert f(X).tolist() == [6, 6]


def test_global_in_a_nested_function_and_a_comprehension(monkeypatch: pytest.MonkeyPatch) -> None:
    @compiled
    def f(x: Any) -> Any:
        def inner(v: Any) -> Any:
            return [v * SCALE for _ in range(1)]

        return inner(x)[0]

    assert f(X)[0] == 2
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert f(X)[0] == 3


def test_contents_of_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TABLE", {"rate": 2.0, "layers": [array(3)]})
    f = compiled(lambda x: x * TABLE["rate"] + TABLE["layers"][0])
    assert f(X)[0] == 5
    TABLE["rate"] = 4.0
    assert f(X)[0] == 7
    TABLE["layers"][0] = array(1)
    assert f(X)[0] == 5
    assert "TABLE['layers'][0], read from outside the function: another array" in f.explain()


def test_tensor_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    w = lg.asarray([1.0, 2.0])
    f = compiled(lambda x: x * w)
    assert f(X).tolist() == [1, 2]
    w[0] = 5.0
    assert f(X).tolist() == [5, 2]
    w += 1
    assert f(X).tolist() == [6, 3]
    assert f(X).tolist() == [6, 3] and programs(f) == 3


def test_numpy_array_written_to_has_the_value_at_capture() -> None:
    w = array(1)
    f = compiled(lambda x: x * w)
    assert f(X)[0] == 1
    w[:] = 5
    assert f(X)[0] == 1 and programs(f) == 1


class Linear:
    gain = 1.0
    __slots__ = ("__dict__", "w")

    def __init__(self, w: float) -> None:
        self.w = array(w)
        self.bias = 0.0
        self.calls = 0
        self.log: list[float] = []

    def __call__(self, x: Any) -> Any:
        return x * self.w * self.gain + self.bias


class Net:
    def __init__(self) -> None:
        self.layers = [Linear(2), Linear(3)]
        self.options = types.SimpleNamespace(offset=0.0)
        self.seen = 0
        self.losses: list[float] = []

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x + self.options.offset

    @lg.compile(backend="reference")
    def step(self, x: Any) -> Any:
        self.seen += 1
        return self.forward(x)


def _net_by_method() -> tuple[Net, Any]:
    net = Net()
    return net, net.step


def _net_by_compiling(attribute: str) -> Any:
    def make() -> tuple[Net, Any]:
        net = Net()
        return net, compiled(getattr(net, attribute))

    return make


def _net_in_a_closure() -> tuple[Net, Any]:
    net = Net()
    return net, compiled(lambda x: net.forward(x))


def _net_as_an_argument() -> tuple[Net, Any]:
    net = Net()
    f = compiled(lambda model, x: model.forward(x))
    return net, lambda x: f(net, x)


def _net_in_a_partial() -> tuple[Net, Any]:
    net = Net()
    return net, compiled(functools.partial(Net.forward, net))


@pytest.mark.parametrize(
    "make", [_net_by_method, _net_by_compiling("forward"), _net_in_a_closure, _net_as_an_argument, _net_in_a_partial]
)
def test_attributes_of_objects_that_methods_read(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net, f = make()
    assert f(X)[0] == 6
    net.layers[1].w = array(5)
    assert f(X)[0] == 10
    net.layers[0].bias = 1.0
    assert f(X)[0] == 15
    net.options.offset = 100.0
    assert f(X)[0] == 115
    net.layers.append(Linear(2))
    assert f(X)[0] == 130
    monkeypatch.setattr(Linear, "gain", 0.0)
    assert f(X)[0] == 100


def test_module_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = types.ModuleType("settings_of_this_test")
    settings.rate = 2.0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, settings.__name__, settings)
    f = compiled(lambda x: x * settings.rate)  # type: ignore[attr-defined]
    assert f(X)[0] == 2
    settings.rate = 3.0  # type: ignore[attr-defined]
    assert f(X)[0] == 3


@pytest.mark.parametrize(
    "around",
    [
        lambda fn: fn, lg.grad, lambda fn: lg.compile(fn, backend="reference"), lg.autocast(enabled=False),
        functools.partial, lambda fn: functools.wraps(fn)(lambda *a: fn(*a)), lambda fn: lg.grad(lg.grad(fn)),
    ],
)  # fmt: skip
def test_through_wrappers(around: Any) -> None:
    rate = 2.0

    def fn(x: Any) -> Any:
        return x * x * x * rate

    f = compiled(around(fn))
    first = f(np.float32(1)).item()
    rate = 4.0
    assert f(np.float32(1)).item() == 2 * first


def test_wrapper_has_a_closure_of_its_own() -> None:
    factor = 2.0

    def scaled(fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapper(x: Any) -> Any:
            return fn(x) * factor

        return wrapper

    f = compiled(scaled(lambda x: x + 1))
    assert f(X)[0] == 4
    factor = 3.0
    assert f(X)[0] == 6


def test_functions_given_as_arguments() -> None:
    rate = 2.0
    f = compiled(lambda fn, x: fn(x))

    def scaled(x: Any) -> Any:
        return x * rate

    assert f(scaled, X)[0] == 2
    rate = 3.0
    assert f(scaled, X)[0] == 3


def test_names_bound_late() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    return inner(x)\ndef inner(x):\n    return x * RATE\n", namespace)
    inner = namespace.pop("inner")
    f = compiled(namespace["f"])
    with pytest.raises(NameError):
        f(X)
    namespace.update(inner=inner, RATE=2.0)
    assert f(X)[0] == 2
    namespace["RATE"] = 3.0
    assert f(X)[0] == 3
    assert "RATE, read from outside the function: 2.0 before, 3.0 now" in f.explain()


# -- what is not


def test_what_tracing_changes_itself_does_not_count() -> None:
    calls, log, memo = 0, [], {"calls": 0, "w": array(2)}

    @compiled
    def f(x: Any) -> Any:
        nonlocal calls
        calls += 1
        log.append(x.shape)
        memo["calls"] += 1
        memo[f"new {len(memo)}"] = x
        return x * memo["w"]

    for _ in range(3):
        f(X), f(np.ones((2, 2), np.float32))
    assert calls == len(log) == memo["calls"] == 2
    memo["w"] = array(3)
    assert f(X)[0] == 3 and f(X)[0] == 3
    assert calls == 3


def test_state_that_a_method_keeps_does_not_count() -> None:
    net = Net()
    for k in range(5):
        assert net.step(X)[0] == 6
        net.losses.append(float(k))  # nothing that the code reads
    assert net.seen == 1
    net.layers[0].calls += 1
    net.step(X)
    assert net.seen == 1


def test_value_filled_while_tracing_is_watched_afterwards() -> None:
    table = None

    @compiled
    def f(x: Any) -> Any:
        nonlocal table
        if table is None:
            table = array(2)
        return x * table

    assert f(X)[0] == 2 and f(X)[0] == 2
    table = array(3)
    assert f(X)[0] == 3


def test_evaluating_a_captured_tensor_is_no_change() -> None:
    w = lg.asarray([1.0, 2.0]) * 2
    f = compiled(lambda x: x * w)
    for _ in range(3):
        assert f(X).tolist() == [2, 4]
        assert w.tolist() == [2, 4]
    assert programs(f) == 1 and "1 program" in f.explain()


def test_objects_with_cycles_and_of_every_kind() -> None:
    a, b = types.SimpleNamespace(rate=2.0), types.SimpleNamespace(rate=1.0)
    a.other, b.other = b, a
    items = [1.0]
    items.append(items)  # type: ignore[arg-type]
    odd = object(), iter([]), np.random.default_rng(0), open, len, type, property(), sys, weakref.ref(lg.Graph), [items]
    f = compiled(lambda x: (odd, x * a.other.other.other.rate)[1])
    assert f(X)[0] == 1 and f(X)[0] == 1 and programs(f) == 1
    b.rate = 5.0
    assert f(X)[0] == 5


def test_alternating_values_find_their_programs_again() -> None:
    layers = {name: Linear(k) for k, name in enumerate("abcd")}
    current = layers["a"]
    f = compiled(lambda x: current(x))
    for _ in range(3):
        for k, name in enumerate("abcd"):
            current = layers[name]
            assert f(X)[0] == k
    assert programs(f) == 4 and len(f.explain().splitlines()) == 5


def test_the_same_array_in_two_functions() -> None:
    w = array(3)
    f, g = compiled(lambda x: x * w), compiled(lambda x: x + w)
    assert f(X)[0] == 3 and g(X)[0] == 4
    w = array(4)
    assert f(X)[0] == 4 and g(X)[0] == 5


# -- memory


@each_backend
def test_dropped_functions_free_what_they_captured(backend: str) -> None:
    def run(k: int) -> None:
        big = np.full(1 << 21, k, np.float32)  # 8 MB
        f = lg.compile(lambda x: x + big[0] + lg.sum(lg.asarray(big)[:2]), backend=backend)
        assert f(np.float32(1)) == 1 + 3 * k

    run(0)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for k in range(50):
            run(k)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left < 20 << 20  # of 400 MB


def test_cached_programs_keep_no_dead_arrays() -> None:
    w = array(0)
    f = compiled(lambda x: x * w)
    seen = []
    for k in range(20):
        w = array(k)
        seen.append(weakref.ref(w))
        assert f(X)[0] == k
    assert programs(f) <= 2
    assert sum(ref() is not None for ref in seen) <= 2


def test_a_large_captured_array_is_not_read_by_print_digest_and_pickle() -> None:
    big = np.zeros(25 << 20, np.float32)  # 100 MB
    graph = lg.trace(lambda x: x + big, np.float32(1))
    (slot,) = graph.captured
    assert slot.attrs["value"].array is not big
    same = lg.trace(lambda x: x + big, np.float32(1))
    same.captured[0].attrs["value"].array[:] = 7
    tracemalloc.start()
    try:
        assert len(str(graph)) < 1000 and len(repr(graph)) < 1000
        assert graph.digest == same.digest
        assert len(pickle.dumps(graph)) < 2000
        assert hash(graph) is not None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
