"""The native entry: whatever the arguments, a call gives what it gives through Python; nothing leaks; all threads."""

from __future__ import annotations

import collections
import dataclasses
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph import epoch
from lucidgraph.config import config
from lucidgraph.runtime.accelerate import layouts
from tests.checking import BACKENDS
from tests.test_locks import forked

native = pytest.mark.skipif(lg.compile(abs).dispatch != "native", reason=lg.compile(abs).dispatch)
compiled = lambda fn, **options: lg.compile(fn, backend="accelerate", **options)  # noqa: E731
X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Sub(np.ndarray[Any, Any]):
    pass


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Held:
    a: Any


def misaligned(array: np.ndarray) -> np.ndarray:
    room = np.zeros(array.nbytes + 1, np.uint8)
    out = room[1:].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def odd_values() -> Iterator[Any]:
    """Everything that an argument may be instead of ``X``."""
    yield from (X, X.copy(), X.view(Sub), read_only(X), misaligned(X), X.astype(">f4"), np.asfortranarray(X))
    yield from (X[::-1], X[:, ::-1], X[:, ::2], X.T, np.broadcast_to(np.float32(2), (2, 3)))
    yield from (X[:1], X[:0], X[0], X[0, 0])
    yield from (X.astype(d) for d in ("f8", "f2", "i4", "i8", "u1", "?", "c8", "c16", lg.bfloat16.numpy))
    yield from (np.array(2.0, np.float32), np.float32(2), np.float64(2), np.int32(2), np.bool_(True))
    yield from (2, 2.5, -0.0, float("nan"), float("inf"), 2j, True, 2**40, 2**70, -(2**63))
    yield from (None, "two", b"two", [X], (X,), [X, X], {"a": X}, {"b": X, "a": X}, [1.0, 2.0], (), [], {})
    yield from (Pair(X, 2.0), Held(X), collections.OrderedDict(a=X), collections.deque([X]), [X, [X, {"k": (X, 3)}]])
    yield from (lg.asarray(X), lg.asarray(2.0), np.ma.masked_array(X, X > 2), np.array(["a"]))
    yield from (np.array([X, None], object), memoryview(X), X.tobytes(), pickle.loads(pickle.dumps(X)))
    yield from (X.astype("m8[s]"), np.zeros(2, "f4,i4"), iter([X]), object(), slice(2), range(3), np.float32, X.dtype)
    yield X.view(np.dtype("f4", metadata={"of": "mine"}))
    if "mlx" in BACKENDS:
        import mlx.core as mx

        yield from (mx.array(X), mx.array(X).T, mx.array(2.0), [mx.array(X), X])


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, in a form that compares: values with their types, or the error."""
    try:
        return described(call())
    except Exception as error:
        return type(error), str(error).partition("\n")[0].partition(" at 0x")[0]


def described(value: Any) -> Any:
    kind = type(value)
    if isinstance(value, lg.Tensor):
        return kind, described(value.numpy())
    if isinstance(value, np.ndarray):
        return kind, value.dtype, value.shape, value.flags.writeable, value.flags.owndata, value.tobytes()
    if kind.__module__ == "mlx.core":
        return kind, str(value.dtype), tuple(value.shape), value.tolist()
    if isinstance(value, tuple | list):
        return kind, [described(v) for v in value]
    if isinstance(value, dict):
        return kind, [(k, described(v)) for k, v in value.items()]
    return kind, repr(value)


def total(tree: Any) -> Any:
    """A function of anything that arrays can be in."""
    if isinstance(tree, dict):
        return {k: total(v) for k, v in tree.items()}
    if isinstance(tree, Pair):
        return Pair(*map(total, tree))
    if isinstance(tree, list | tuple):
        return [total(v) for v in tree]
    return tree * 2 + 1 if isinstance(tree, lg.Tensor) or type(tree) in (int, float) else tree


FUNCTIONS = {
    "sum": (lambda x, y: lg.sum(x * y + 1), (X, X)),
    "several": (lambda x, y: (x + y, {"b": [x, None], "a": 3.5}), (X, X)),
    "static": (lambda x, y: x * 2 if y == "two" else x - 1, (X, "two")),
    "scalar": (lambda x, y: x * y, (X, 2.5)),
    "whole": (lambda x, y: x + y, (X, 3)),
    "tree": (lambda x, y: (total(x), total(y)), ([X, (X, 2.0)], {"b": X, "a": X.T})),
    "value": (lambda x, y: x * float(y), (X, 2.5)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_odd_arguments_give_what_they_give_through_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, base = FUNCTIONS[name]
    fast, slow = compiled(fn), compiled(fn)
    for odd in odd_values():
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
            ((odd, base[1]), {}), ((base[0], odd), {}), ((odd, odd), {}), ((base[0],), {"y": odd}),
            ((), {"y": odd, "x": base[0]}), ((base[0], odd, odd), {}), ((odd,), {}), ((), {"z": odd}),
        ]  # fmt: skip
        for args, kwargs in calls:
            if isinstance(odd, collections.abc.Iterator):
                continue
            monkeypatch.setattr(config, "native_calls", False)
            slow.cache_clear()
            expected = outcome(lambda args=args, kwargs=kwargs: slow(*args, **kwargs))
            monkeypatch.setattr(config, "native_calls", True)
            for _ in range(3):
                fast(*base)
            for _ in range(3):
                assert outcome(lambda args=args, kwargs=kwargs: fast(*args, **kwargs)) == expected, (odd, args, kwargs)
            assert described(fast(*base)) == described(slow(*base))


def native_calls(f: Any) -> int:
    """How many calls of a compiled function came in natively."""
    return sum(way.native.hits for way in f._core.ways if way.native is not None)


# -- which calls are native


@native
@pytest.mark.parametrize(
    "args",
    [
        (X, X), (X[::-1], X), (X.T, X.T), (X[0], X), (np.zeros((0, 3), np.float32),) * 2, (X, 2.5), (3, X), (X, 2j),
        ([X, X], X), ((X, 2.0), {"b": X, "a": [X, 4]}), (None, X), (X, "name"), (X.astype(lg.bfloat16.numpy), X),
        (np.array(2.0), X), ([], {}), (read_only(X), X), (X, np.float32(2)), ([np.int8(3), np.bool_(True)], X),
        (lg.asarray(X), X), (lg.asarray(X), [lg.asarray(2.0)]), (Pair(X, 2.0), {"b": Pair([X], Pair(X, None))}),
    ],
)  # fmt: skip
def test_calls_of_plain_values_are_native(args: tuple[Any, ...]) -> None:
    f = compiled(lambda x, y: (total(x), total(y)))
    expected = described(f(*args))
    for _ in range(5):
        assert described(f(*args)) == expected
    # The first is traced, the second makes the form known.
    assert native_calls(f) == 4 and f.cache_info().hits == 5 and f.cache_info().currsize == 1


@native
@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_of_mlx_arrays_are_native(backend: str) -> None:
    mx = pytest.importorskip("mlx.core")
    f = lg.compile(lambda x, y: (x * 2, {"k": [lg.sum(y["a"], axis=0), None]}), backend=backend)
    for dtype in (mx.float32, mx.bfloat16, mx.float16, mx.int64, mx.complex64, mx.uint8):
        x = mx.array(X).astype(dtype)
        for a, b in ((x, x), (x.T, x), (x[0], x), (x * 1, mx.array(X)), (mx.zeros((0,)), x)):
            results = [described(f(a, {"a": b})) for _ in range(4)]
            assert results[1:] == results[:1] * 3
            assert results[0][1][0] == described(a * 2)
    assert native_calls(f) > 20
    # What is lazy is computed, and its failure is the caller's.
    for _ in range(3):
        assert f(mx.array(X) + 1, {"a": mx.array(X)})[0].tolist() == (2 * X + 2).tolist()


@native
def test_what_mlx_refuses_in_a_native_call() -> None:
    mx = pytest.importorskip("mlx.core")
    held = mx.array(X)
    f = lg.compile(lambda x, y: {"sum": x + y * held, "rest": [x - y, None]}, backend="mlx")
    x, refusal = mx.array(X), None
    f(x, x)
    executable = next(iter(f._core.cache._entries.values())).program.executable
    through = executable._function

    def function(*arrays: Any) -> Any:
        if refusal is not None:
            raise refusal
        return through(*arrays)

    executable._function = function
    for _ in range(3):
        out = f(x, x)
        assert out["sum"].tolist() == (X + X * X).tolist() and (out["rest"][0] == 0).all() and out["rest"][1] is None
    before = native_calls(f)
    refusal = ValueError("not today")
    with pytest.raises(lg.BackendError, match="mlx refused the program: not today"):
        f(x, x)
    refusal = KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        f(x, x)
    refusal = None
    counts = [sys.getrefcount(v) for v in (x, held)]
    for _ in range(200):
        f(x, x)
    assert native_calls(f) >= before + 202
    assert [sys.getrefcount(v) for v in (x, held)] == counts


@native
@pytest.mark.parametrize("number", [2.5, -0.0, 1e300, float("nan"), 7, -(2**31)])
def test_numbers_reach_mlx_as_numpy_rounds_them(number: Any) -> None:
    mx = pytest.importorskip("mlx.core")
    f = lg.compile(lambda x, a: x * a, backend="mlx")
    for dtype in (np.float32, np.float16, np.int32):
        if dtype == np.int32 and type(number) is float:
            continue
        array = np.ones(2, dtype)
        with np.errstate(all="ignore"):
            expected = array * dtype(number)
        for _ in range(4):
            found = np.asarray(f(mx.array(array), number))
            assert found.dtype == dtype and repr(found.tolist()) == repr(expected.tolist())


@native
def test_keywords_and_methods_are_native() -> None:
    f = compiled(lambda x, *, y, z: x * y - z)
    for _ in range(4):
        assert f(X, z=X, y=2.0).tolist() == X.tolist()
    for _ in range(4):
        assert f(X, y=X, z=X).tolist() == (X * X - X).tolist()
    assert native_calls(f) == 4
    assert f(x=X, z=X, y=2.0).tolist() == X.tolist()

    class Model:
        w = 3.0

        @compiled
        def double(self, x: Any) -> Any:
            return x * 2

    model = Model()
    for _ in range(4):
        assert model.double(X).tolist() == (2 * X).tolist() and Model.double(model, X).tolist() == (2 * X).tolist()
    bound = model.double
    assert bound(X).tolist() == (2 * X).tolist() and bound.dispatch.startswith("python: ")


@native
def test_results_that_numpy_does_not_allocate_are_native_too() -> None:
    f = compiled(lambda x: (x + 1, lg.sum(x)))
    x = np.ones(1 << 20, np.float32)
    for _ in range(4):
        a, b = f(x)
        assert a.shape == x.shape and (a == 2).all() and b == x.size
    assert native_calls(f) == 2


# -- what is noticed


RATE: Any = 2.0


@native
def test_what_is_outside_is_looked_at_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    cell: Any = [1.0, {"k": X}]
    f = compiled(lambda x: x * RATE + cell[0] + cell[1]["k"])

    def calls(expected: np.ndarray) -> None:
        assert f(X).tolist() == f(X).tolist() == expected.tolist()
        before = native_calls(f)
        assert f(X).tolist() == f(X).tolist() == expected.tolist()
        assert native_calls(f) == before + 2

    calls(3 * X + 1)
    monkeypatch.setitem(globals(), "RATE", 5.0)
    calls(6 * X + 1)
    cell[0] = 7.0
    calls(6 * X + 7)
    cell[1]["k"] = X + 1
    calls(6 * X + 8)
    cell = [0.0, {"k": X}]
    calls(6 * X)
    monkeypatch.setitem(globals(), "RATE", 2)
    calls(3 * X)
    monkeypatch.undo()
    calls(3 * X)


def test_an_object_outside_is_looked_at() -> None:
    class Settings:
        rate = 2.0

    settings = Settings()
    f = compiled(lambda x: x * settings.rate)
    for rate in (2.0, 3.0, 2.0):
        settings.rate = rate
        for _ in range(3):
            assert f(X).tolist() == (X * rate).tolist()


def test_an_object_among_the_arguments_is_looked_at() -> None:
    class Model:
        def __init__(self, rate: float) -> None:
            self.rate = rate
            self.layers = [{"w": np.full((2, 3), rate, np.float32)}]

        @compiled
        def apply(self, x: Any) -> Any:
            return x * self.rate + self.layers[0]["w"]

    for model in (Model(2.0), Model(3.0), Model(2.0)):
        for rate in (model.rate, 5.0, model.rate):
            model.rate = rate
            for _ in range(4):
                assert model.apply(X).tolist() == (X * rate + model.layers[0]["w"]).tolist()
        model.layers.insert(0, {"w": X})
        for _ in range(4):
            assert model.apply(X).tolist() == (X * model.rate + X).tolist()
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_an_array_outside_does_not_live_longer() -> None:
    held = np.full((2, 3), 2, np.float32)
    f = compiled(lambda x: x + held)
    assert f(X).tolist() == f(X).tolist() == f(X).tolist()
    gone = weakref.ref(held)
    for k in range(5):  # a new array may lie where the old one did
        held = np.full((2, 3), k, np.float32)
        assert f(X).tolist() == (X + k).tolist() and f(X).tolist() == (X + k).tolist()
    gc.collect()
    assert gone() is None


def test_settings_and_contexts_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    f = compiled(lambda x: (x @ x.T))
    x = np.full((2, 3), 1 + 2**-10, np.float32)
    exact = f(x), f(x), f(x)
    with lg.autocast(lg.bfloat16):
        half = [f(x) for _ in range(3)]
    assert [a.dtype.name for a in (*exact, *half)] == ["float32"] * 3 + ["bfloat16"] * 3
    assert f(x).dtype == np.float32
    graph = lg.trace(lambda x: f(x) + 1, x)
    assert "matmul" in str(graph)
    assert lg.grad(lambda v: lg.sum(f(v)))(x).shape == x.shape
    with lg.disable_compile():
        assert f(x).tolist() == exact[0].tolist()
    monkeypatch.setattr(config, "rules", "rounding")
    before = f.cache_info().currsize
    f(x)
    assert f.cache_info().currsize == before + 1
    assert not epoch.unusual()


def test_a_context_on_another_thread_does_not_matter() -> None:
    f = compiled(lambda x: x @ x.T)
    f(X), f(X), f(X)
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lg.autocast(lg.bfloat16), lg.disable_compile():
            inside.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    try:
        assert f(X).dtype == np.float32
    finally:
        done.set()
        holder.join()
    assert not epoch.unusual()


def test_programs_dropped_are_not_run() -> None:
    f = compiled(lambda x: x + 1)
    for _ in range(3):
        f(X)
    f.cache_clear()
    assert f.cache_info()[:2] == (0, 0)
    f(X)
    assert f.cache_info()[:2] == (0, 1)


def test_calls_of_which_no_form_is_known() -> None:
    f = compiled(lambda x, y: x + y)
    for k in range(40):
        for _ in range(3):
            assert f(*(X, k)).tolist() == (X + k).tolist()
        f._core._change_ways(())
        assert not f._core.ways


# -- failures


def test_an_index_out_of_range_names_the_line() -> None:
    f = compiled(lambda x, i: lg.take(x, i, axis=0))
    good, bad = np.array([0, 1]), np.array([0, 5])
    for _ in range(4):
        assert f(X, good).tolist() == X.tolist()
    for _ in range(3):
        with pytest.raises(lg.IndexOutOfRangeError, match=r"index 5 is out of range(.|\n)*test_entry.py"):
            f(X, bad)
    assert f(X, good).tolist() == X.tolist()


# -- memory


@pytest.mark.parametrize("through", ["native", "python"])
def test_calls_leave_nothing_behind(through: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "native_calls", through == "native")
    f = compiled(lambda t, y, z: ([t[0] * y, {"k": (t[1]["a"] - z, None)}], lg.sum(y), 3.5))
    failing = compiled(lambda x, i: lg.take(x, i, axis=0))
    marker, name = 10.5, "a"
    args = ([X.copy(), {name: X.copy()}], X.copy(), marker)
    bad = np.array([9])

    def calls(count: int) -> None:
        for _ in range(count):
            f(*args)
            f(t=args[0], y=args[1], z=marker)
            with pytest.raises(lg.IndexOutOfRangeError):
                failing(X, bad)
            with pytest.raises(TypeError):
                f(args[0])

    calls(20)
    watched = [args[0], args[0][0], args[0][1], args[0][1]["a"], args[1], marker, name, None, X, bad, np.dtype("f4"), f]
    gc.collect()
    before = [sys.getrefcount(v) for v in watched]
    tracemalloc.start()
    calls(50)
    size = tracemalloc.get_traced_memory()[0]
    calls(1000)
    gc.collect()
    growth = tracemalloc.get_traced_memory()[0] - size
    tracemalloc.stop()
    after = [sys.getrefcount(v) for v in watched]
    assert [b - a for a, b in zip(before, after, strict=True) if abs(b - a) > 40] == [] and growth < 20_000


def test_a_function_dropped_frees_everything() -> None:
    held = np.ones((2, 3), np.float32)
    f = compiled(lambda x: x + held)
    for _ in range(4):
        f(X)
    gone = weakref.ref(held), weakref.ref(f), weakref.ref(f._core)
    f = held = None
    assert [ref() for ref in gone] == [None] * 3


def test_a_list_emptied_while_its_arrays_are_read() -> None:
    f = compiled(lambda xs: [x * 2 + 1 for x in xs])
    xs = [np.full(1 << 16, k, np.float32) for k in range(4)]
    held = list(xs)
    for _ in range(3):
        f(held)
    shared: list[Any] = list(xs)
    done = threading.Event()

    def disturb() -> None:
        while not done.is_set():
            shared[:] = [x.copy() for x in xs]

    other = threading.Thread(target=disturb)
    other.start()
    try:
        for _ in range(200):
            for k, out in enumerate(f(shared)):
                assert (out == 2 * k + 1).all()
    finally:
        done.set()
        other.join()


# -- threads and processes


def test_threads_call_one_function_at_once() -> None:
    f = compiled(lambda x, y: (lg.sum(x * y, axis=0), x + y))
    n = 1 << 15
    data = [(np.full((4, n), k, np.float32), np.full((4, n), 2, np.float32)) for k in range(4)]
    wrong: list[Any] = []

    def work(k: int) -> None:
        for _ in range(60):
            a, b = f(*data[k])
            if not ((a == 8 * k).all() and (b == k + 2).all()):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_forked_child_calls() -> None:
    f = compiled(lambda x: x * 2)
    x = np.ones(1 << 18, np.float32)
    for _ in range(4):
        f(x)
    with lg.autocast(lg.bfloat16):  # counted, and counted down in the child as well
        assert forked(lambda: all((f(x) == 2).all() for _ in range(4))) == 0
    assert forked(lambda: not epoch.unusual() and (f(x) == 2).all()) == 0


def test_a_signal_ends_a_call() -> None:
    f = compiled(lambda x: lg.sin(lg.cos(lg.sin(lg.cos(lg.sin(lg.cos(x)))))) @ x)
    x = np.ones((1200, 1200), np.float32)
    for _ in range(3):
        f(x)

    class StoppedError(Exception):
        pass

    def stop(*_: Any) -> None:
        raise StoppedError

    saved = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(5):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(StoppedError):
                while True:
                    f(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, saved)
    assert f(x).shape == x.shape


# -- the choice


@native
def test_the_choice_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    f = compiled(lambda x: x + 1)
    assert f.dispatch == "native"
    monkeypatch.setattr(config, "native_calls", False)
    assert f.dispatch == "python: native_calls is off"
    for _ in range(4):
        f(X)
    assert native_calls(f) == 0 and f.cache_info().hits == 3
    assert "calls come in through Python (native_calls is off): 2 so far, by 1 known form" in f.explain()
    monkeypatch.undo()
    f(X), f(X), f(X)
    assert "calls come in natively: 4 so far, by 1 known form" in f.explain()


def test_objects_read_as_the_layouts_say() -> None:
    array = np.ones((2, 3))
    assert layouts.data_address(array[1:]) == array.ctypes.data + 24
    code = (
        "import sysconfig; get = sysconfig.get_config_var\n"
        "sysconfig.get_config_var = lambda name: 1 if name == 'Py_GIL_DISABLED' else get(name)\n"
        "import numpy as np, lucidgraph as lg\n"
        "f = lg.compile(lambda x: x * 2 + 1)\n"
        "assert f.dispatch == 'python: this Python runs without a global lock' and type(f) is lg.CompiledFunction\n"
        "assert [f(np.ones(3)).tolist() for k in range(4)] == [[3.0] * 3] * 4 and f.cache_info().hits == 3\n"
    )
    env = {**os.environ, "LUCIDGRAPH_NATIVE_CALLS": "1"}
    assert subprocess.run([sys.executable, "-c", code], env=env).returncode == 0
