"""The compiled function: one program per signature, why there is another, families, aliasing, kinds of callables."""

from __future__ import annotations

import copy
import functools
import itertools
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.config import config
from tests.checking import BACKENDS, on_backend

each_backend = pytest.mark.parametrize("backend", BACKENDS)


def ones(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.ones(shape, dtype)


class Counted:
    """A function that counts how often it is run by Python: once per trace."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.runs = 0
        functools.update_wrapper(self, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.runs += 1
        return self.fn(*args, **kwargs)


# -- signatures


@each_backend
def test_equal_signatures_share_a_program(backend: str) -> None:
    fn = Counted(lambda x, y: x * 2 + y)
    f = lg.compile(fn, backend=backend)
    for k in range(5):
        np.testing.assert_array_equal(f(ones(3) * k, ones(3)), np.full(3, 2 * k + 1))
    assert fn.runs == 1
    assert f.cache_info()[:2] == (4, 1)


@pytest.mark.parametrize(
    "other",
    [
        (ones(4), ones(4)), (ones(3, dtype=np.float64), ones(3)), (ones(3), 1.0), (ones(3), 1), (ones(3), True),
        (ones(3), "text"), (ones(3), None), (ones(3), [ones(3)]), (ones(3), {"a": ones(3)}), (ones(3), ones(1, 3)),
        (ones(3), 1j), (ones(3), np.float32(1)),
    ],
    ids=str,
)  # fmt: skip
def test_what_distinguishes_signatures(other: tuple[Any, ...]) -> None:
    fn = Counted(lambda x, y: x + 1)
    f = lg.compile(fn, backend="reference")
    for _ in range(2):
        f(ones(3), ones(3))
        f(*other)
    assert fn.runs == 2


def test_families_and_strides_share_a_program() -> None:
    fn = Counted(lambda x: x + 1)
    f = lg.compile(fn, backend="reference")
    for x in (ones(4), ones(8)[::2], ones(4)[::-1], lg.asarray(ones(4)), np.broadcast_to(np.float32(1), (4,))):
        f(x)
    assert fn.runs == 1


def test_keyword_order_is_no_part_of_the_signature() -> None:
    fn = Counted(lambda x, *, a, b: x + a - b)
    f = lg.compile(fn, backend="reference")
    assert f(ones(1), a=ones(1), b=2 * ones(1)) == 0
    assert f(ones(1), b=2 * ones(1), a=ones(1)) == 0
    assert fn.runs == 1


def test_arguments_by_every_route() -> None:
    @lg.compile(backend="reference")
    def f(a: Any, /, b: Any, c: Any = 10.0, *rest: Any, d: Any = 100.0, **more: Any) -> Any:
        return a + b + c + sum(rest) + d + sum(more.values())

    one = ones()
    assert f(one, one) == 112
    assert f(one, b=one, c=one) == 103
    assert f(one, one, one, one, one, d=one) == 6
    assert f(one, one, e=one, g=one) == 114
    assert f(*[one] * 5, d=one, z=one) == 7
    named = lg.compile(lambda **names: sum(names.values()), backend="reference")
    every = {"self": one, "args": one, "kwargs": one, "fn": one, "backend": one}
    assert named(**every) == 5 and len(named.trace(**every).inputs) == 5 and lg.trace(named, **every).verify()


def test_default_arguments_are_part_of_the_program() -> None:
    three = np.float32(3)
    f = lg.compile(lambda x, n=2, scale=three: x[:n] * scale, backend="reference")
    np.testing.assert_array_equal(f(ones(4)), [3, 3])
    np.testing.assert_array_equal(f(ones(4), 3, np.float32(1)), [1, 1, 1])


def test_retrace_is_explained_in_a_sentence_with_the_line() -> None:
    f = lg.compile(lambda x: x + 1, backend="reference")
    f(ones(4, 4))
    f(ones(3, 3)); line = _here()  # noqa: E702
    first, second = f.explain().splitlines()[1:]
    assert "the first call" in first
    assert second.strip() == f"2. x: float32[4,4] before, float32[3,3] now, at test_compile.py:{line}"


def _here() -> int:
    import sys

    return sys._getframe(1).f_lineno


@pytest.mark.parametrize(
    "before, after, sentence",
    [
        ((ones(2),), (ones(2, dtype=np.float64),), "x: float32[2] before, float64[2] now"),
        ((ones(2), 1), (ones(2), 1.5), "y: a Python int before, a Python float now"),
        ((ones(2), "sum"), (ones(2), "mean"), "y: 'sum' before, 'mean' now"),
        ((ones(2), True), (ones(2), False), "y: True before, False now"),
        ((ones(2), {"a": ones(1)}), (ones(2), {"a": ones(2)}), "y['a']: float32[1] before, float32[2] now"),
        ((ones(2), None), (ones(2), ones(2)), "structure was ((*, None), {}) before, is ((*, *), {}) now"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_reasons(before: Any, after: Any, sentence: str) -> None:
    f = lg.compile(lambda x, y=0: x + 1, backend="reference")
    f(*before)
    f(*after)
    assert sentence in f.explain()


def test_explain_of_a_call_says_whether_it_needs_a_program() -> None:
    f = lg.compile(lambda x: x + 1, backend="reference")
    f(ones(2))
    assert "finds its program" in f.explain(ones(2))
    assert "needs a new program: x: float32[2] before, float32[3] now" in f.explain(ones(3))
    assert f.cache_info().currsize == 1


def test_many_signatures_keep_the_cache_bounded_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "cache_entries", 20)
    f = lg.compile(lambda x, name: x + 1, backend="reference")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for k in range(1000):
            f(ones(1), str(k))
    assert f.cache_info().currsize == 20
    (warning,) = said
    assert issubclass(warning.category, lg.LucidGraphWarning)
    assert "more than 20 signatures" in str(warning.message)
    assert warning.filename == __file__
    assert len(f.explain().splitlines()) < 400


def test_least_recently_used_program_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "cache_entries", 2)
    fn = Counted(lambda x: x + 1)
    f = lg.compile(fn, backend="reference")
    with pytest.warns(lg.LucidGraphWarning, match="2 signatures"):
        for n in (1, 2, 1, 3, 1):
            f(ones(n))
    assert fn.runs == 3
    f(ones(2))
    assert "dropped from the cache" not in f.explain().splitlines()[1]
    assert fn.runs == 4


def test_cache_clear() -> None:
    fn = Counted(lambda x: x)
    f = lg.compile(fn, backend="reference")
    f(ones(1))
    f.cache_clear()
    assert f.cache_info() == (0, 0, config.cache_entries, 0)
    f(ones(1))
    assert fn.runs == 2


def test_configured_backend_is_part_of_the_key() -> None:
    fn = Counted(lambda x: x + 1)
    f = lg.compile(fn)
    for name in BACKENDS:
        for _ in range(2):
            with on_backend(name):
                f(ones(2))
                assert f.lower(ones(2)).backend == name
    assert f.cache_info().currsize == len(set(BACKENDS))


# -- exceptions


def test_exception_while_tracing_leaves_nothing_behind() -> None:
    fail = [True]

    class UnluckyError(Exception):
        pass

    @lg.compile(backend="reference")
    def f(x: Any) -> Any:
        y = x * 2
        if fail[0]:
            raise UnluckyError("no")
        return y + 1

    other = lg.compile(lambda x: x - 1, backend="reference")
    other(ones(2))
    for _ in range(2):
        with pytest.raises(UnluckyError, match="no"):
            f(ones(2))
    assert f.cache_info().currsize == 0
    assert "no programs" in f.explain()
    np.testing.assert_array_equal((lg.asarray(ones(2)) * 2).numpy(), [2, 2])  # no trace is open
    fail[0] = False
    np.testing.assert_array_equal(f(ones(2)), [3, 3])
    np.testing.assert_array_equal(other(ones(2)), [0, 0])


def test_exception_caught_inside_the_function() -> None:
    @lg.compile(backend="reference")
    def f(x: Any) -> Any:
        try:
            lg.reshape(x, (7,))
        except lg.ShapeError:
            return x + 1
        return x

    np.testing.assert_array_equal(f(ones(2)), [2, 2])


# -- families and aliasing


@each_backend
def test_results_come_in_the_family_of_the_arguments(backend: str) -> None:
    f = lg.compile(lambda *args: sum(args, start=lg.zeros(())), backend=backend)
    n, t = ones(2), lg.asarray(ones(2))
    assert type(f(n, n)) is np.ndarray
    assert type(f(np.float32(1), 2)) is np.ndarray and f(np.float32(1), 2).shape == ()
    assert type(f(n, t)) is lg.Tensor and type(f(t, n)) is lg.Tensor
    assert type(f(2.0, 3)) is lg.Tensor
    assert type(f()) is lg.Tensor
    total = lg.compile(lambda x: lg.sum(x), backend=backend)(n)
    assert type(total) is np.ndarray and total.shape == () and total == 2


@each_backend
def test_mlx_arrays_win(backend: str) -> None:
    mx = pytest.importorskip("mlx.core")
    f = lg.compile(lambda x, y: {"z": [x + y]}, backend=backend)
    m = mx.ones(2)
    for other in (ones(2), lg.asarray(ones(2)), m, 1.0):
        for args in ((m, other), (other, m)):
            z = f(*args)["z"][0]
            assert type(z) is mx.array and z.tolist() == [2, 2] and z.dtype == mx.float32


@each_backend
def test_results_alias_neither_arguments_nor_captured_arrays_nor_each_other(backend: str) -> None:
    x, w = ones(3), ones(3)
    f = lg.compile(lambda x: (x, x, w, w, lg.stop_gradient(x), lg.reshape(x, (3, 1)), x + 1), backend=backend)
    results = f(x)
    for a in results:
        a[:] = 7
    for a, b in itertools.combinations((*results, x, w), 2):
        assert not np.shares_memory(a, b)
    assert x.tolist() == w.tolist() == [1, 1, 1]
    assert [r.ravel().tolist() for r in f(x)] == [[1, 1, 1]] * 6 + [[2, 2, 2]]


@each_backend
def test_mlx_results_are_objects_of_their_own(backend: str) -> None:
    mx = pytest.importorskip("mlx.core")
    x = mx.ones(3)
    a, b = lg.compile(lambda x: (x, x), backend=backend)(x)
    a[0] = 5
    assert x.tolist() == b.tolist() == [1, 1, 1]


@each_backend
def test_writes_inside_stay_inside(backend: str) -> None:
    @lg.compile(backend=backend)
    def f(x: Any, items: list[Any]) -> Any:
        x[0] = 5.0
        x += 1
        items[0] = x
        items.append(x)
        return x, items

    for make in (np.array, lg.asarray):
        x, items = make([1.0, 2.0]), [make([3.0])]
        y, new = f(x, items)
        assert x.tolist() == [1, 2] and len(items) == 1 and items[0].tolist() == [3]
        assert y.tolist() == [6, 3] and [v.tolist() for v in new] == [[6, 3]] * 2


@each_backend
def test_overlapping_views_as_arguments(backend: str) -> None:
    base = np.arange(6, dtype=np.float32)

    def f(a: Any, b: Any) -> Any:
        a[0] = 100
        return a + b

    np.testing.assert_array_equal(lg.compile(f, backend=backend)(base[:4], base[2:6]), [102, 4, 6, 8])
    assert base.tolist() == [0, 1, 2, 3, 4, 5]


@each_backend
def test_the_same_array_twice_and_donated(backend: str) -> None:
    f = lg.compile(lambda x, y: (x + y, x * 2, x), backend=backend, donate=(1,))
    x = ones(4)
    kept = ones(4)
    for a, b in zip(f(kept, x), ([2] * 4, [2] * 4, [1] * 4), strict=True):
        np.testing.assert_array_equal(a, b)
    assert kept.tolist() == [1] * 4


@each_backend
def test_arrays_of_every_layout(backend: str) -> None:
    f = lg.compile(lambda x: x * 2 + 1, backend=backend)
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    read_only = base.copy()
    read_only.flags.writeable = False
    for x in (
        np.asfortranarray(base), base.T, base[::2, ::3], base[::-1, ::-1], base[:, 1], read_only, base.astype(">f4"),
        base.astype(">i2"), base.astype(np.complex64), base[:0], base[:, :0], np.float32(3), base[2, 3:4],
        np.broadcast_to(base[0], (3, 6)), base.astype(np.float16)[1:, 1:],
    ):  # fmt: skip
        result = f(x)
        np.testing.assert_array_equal(result, np.asarray(x) * np.asarray(x).dtype.type(2) + np.asarray(x).dtype.type(1))
        assert result.dtype == np.asarray(x).dtype.newbyteorder("=")
    np.testing.assert_array_equal(read_only, base)


@each_backend
def test_pending_tensor_as_argument(backend: str) -> None:
    with on_backend(backend):
        x = lg.asarray(ones(3)) * 2
        y = lg.compile(lambda a, b: a + b)(x, x * 3)
        assert y.tolist() == [8, 8, 8] and x.tolist() == [2, 2, 2]


@each_backend
def test_structures_come_back_as_they_were(backend: str) -> None:
    f = lg.compile(lambda *args: args, backend=backend)
    x = ones(1)
    given = ({"b": x, "a": (x, [None, {}, ()])}, [], "text", None, True, 3, 2.5)
    result = f(*given)
    assert list(result[0]) == ["b", "a"] and result[0]["a"][1] == [None, {}, ()]
    assert result[1:5] == ([], "text", None, True)
    assert [r.item() for r in result[5:]] == [3, 2.5]


def test_static_results_are_returned_as_they_are() -> None:
    f = lg.compile(lambda x: (x, "name", None, 3, 2.5, True), backend="reference")
    for _ in range(2):
        assert f(ones(1))[1:] == ("name", None, 3, 2.5, True)


def test_many_outputs_of_few_values() -> None:
    f = lg.compile(lambda x: (x + 1,) * 3 + (x,), backend="reference")
    assert [n.name for n in f.graph(ones(2)).nodes].count("add") == 1
    assert [r.tolist() for r in f(ones(1))] == [[2], [2], [2], [1]]


# -- kinds of callables


class Model:
    def __init__(self, w: float) -> None:
        self.w = np.full(2, w, np.float32)

    @lg.compile(backend="reference")
    def forward(self, x: Any, *, bias: Any = 0.0) -> Any:
        """Forward."""
        return x * self.w + bias

    @staticmethod
    @lg.compile(backend="reference")
    def double(x: Any) -> Any:
        return x * 2

    @classmethod
    @lg.compile(backend="reference")
    def named(cls, x: Any) -> Any:
        return x + len(cls.__name__)

    @property
    @lg.compile(backend="reference")
    def norm(self) -> Any:
        return lg.sum(self.w * self.w)

    def __call__(self, x: Any) -> Any:
        return x - self.w


def test_methods() -> None:
    a, b = Model(2), Model(3)
    assert a.forward(ones(2)).tolist() == [2, 2] and b.forward(ones(2), bias=1.0).tolist() == [4, 4]
    assert Model.forward(a, ones(2)).tolist() == [2, 2]
    assert Model.double(ones(1)) == 2 and a.double(ones(1)) == 2
    assert Model.named(ones(1)) == 6 and a.named(ones(1)) == 6
    assert a.norm.item() == 8
    assert "sum" not in str(a.forward.trace(ones(2))) and "multiply" in str(a.forward.graph(ones(2)))
    assert a.forward.__doc__ == "Forward." and a.forward.__name__ == "forward"
    assert "finds its program" in a.forward.explain(ones(2))


def test_methods_of_many_instances_have_their_own_programs() -> None:
    before = Model.forward.cache_info().misses
    models = [Model(k) for k in range(5)]
    for _ in range(3):
        assert [m.forward(ones(2))[0] for m in models] == [0, 1, 2, 3, 4]
    assert Model.forward.cache_info().misses - before <= 10


def test_bound_methods_partials_and_callable_objects() -> None:
    m = Model(2)
    assert lg.compile(m, backend="reference")(ones(2)).tolist() == [-1, -1]
    assert lg.compile(m.__call__, backend="reference")(ones(2)).tolist() == [-1, -1]
    part = functools.partial(lambda a, b, c: a * b + c, 3.0, c=1.0)
    f = lg.compile(part, backend="reference")
    assert f(ones(1)) == 4 and f(ones(1), c=ones(1) * 5) == 8
    assert "partial" in repr(f)


def test_functions_that_python_wrote() -> None:
    assert lg.compile(max, backend="reference")(3, 5) == 5
    assert lg.compile(lg.sum, backend="reference")(ones(3)) == 3
    assert lg.compile(np.add, backend="reference")(ones(3), ones(3)).tolist() == [2, 2, 2]


def test_nested_compiled_functions_are_one_program() -> None:
    inner = lg.compile(lambda x, k: x * k, backend="reference", static_argnames="k")
    outer = lg.compile(lambda x: inner(inner(x, 2), k=3) + 1, backend="reference")
    assert outer(ones(2)).tolist() == [7, 7]
    assert inner.cache_info().currsize == 0
    names = [n.name for n in outer.trace(ones(2)).nodes]
    assert names.count("multiply") == 2 and names.count("add") == 1


def test_compiled_of_compiled() -> None:
    f = lg.compile(lg.compile(lambda x: x + 1, backend="reference"), backend="reference")
    assert f(ones(1)) == 2


def test_recursion() -> None:
    @lg.compile(backend="reference")
    def power(x: Any, n: int) -> Any:
        return x if n == 1 else x * power(x, n - 1)

    assert power(ones(1) * 2, 5) == 32


def test_nested_compiled_function_does_not_write_to_its_callers_arrays() -> None:
    @lg.compile(backend="reference")
    def inner(x: Any) -> Any:
        x[0] = 100.0
        return x

    @lg.compile(backend="reference")
    def outer(x: Any) -> Any:
        y = inner(x)
        z = inner(y)
        z[1] = 5.0
        return x, y, z

    assert [r.tolist() for r in outer(ones(2))] == [[1, 1], [100, 1], [100, 5]]


def test_compiled_functions_copy_and_pickle_as_functions_do() -> None:
    f = lg.compile(lambda x: x, backend="reference")
    assert copy.deepcopy(f) is f and copy.copy(f)(ones(1)) == 1
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level


@lg.compile(backend="reference")
def at_module_level(x: Any) -> Any:
    return x


# -- switches


@each_backend
@pytest.mark.parametrize("make", [np.asarray, lg.asarray], ids=["numpy", "tensor"])
def test_disable_compile_runs_the_same_ops_one_by_one(backend: str, make: Any) -> None:
    fn = Counted(lambda x, n: {"a": lg.sum(x, axis=0) * n, "n": x.shape})
    with on_backend(backend):
        f = lg.compile(fn)
        x = make(np.arange(6, dtype=np.int32).reshape(2, 3))
        compiled = f(x, 2)
        with lg.disable_compile():
            runs = fn.runs
            for _ in range(2):
                single = f(x, 2)
            assert fn.runs == runs + 2
            assert type(single["a"]) is type(compiled["a"]) and single["a"].dtype == compiled["a"].dtype
            assert single["a"].tolist() == compiled["a"].tolist() == [6, 10, 14]
        f(x, 2)
        assert fn.runs == runs + 2


def test_disable_compile_as_a_switch() -> None:
    fn = Counted(lambda x: float(x) + 1)
    f = lg.compile(fn, backend="reference")
    lg.disable_compile()
    try:
        assert f(ones()) == 2.0 and f(ones()) == 2.0
    finally:
        lg.enable_compile()
    with pytest.raises(lg.ConcretizationError):
        f(ones())


def test_disable_compile_nests_and_survives_exceptions() -> None:
    f = lg.compile(lambda x: float(x), backend="reference")
    with pytest.raises(ZeroDivisionError), lg.disable_compile():
        with lg.disable_compile():
            assert f(ones()) == 1.0
        assert f(ones()) == 1.0
        raise ZeroDivisionError
    with pytest.raises(lg.ConcretizationError):
        f(ones())


@each_backend
def test_debug_print_prints_at_each_run(backend: str, capfd: pytest.CaptureFixture[str]) -> None:
    @lg.compile(backend=backend)
    def f(x: Any) -> Any:
        lg.debug_print("x is {} of {}", x, lg.sum(x))
        return x + 1

    for k in range(3):
        assert f(ones(2) * k).tolist() == [k + 1, k + 1]
    assert capfd.readouterr().out.splitlines() == [f"x is [{k}. {k}.] of {2 * k}.0" for k in range(3)]


@each_backend
def test_debug_print_in_gradients_and_nested_functions(backend: str, capfd: pytest.CaptureFixture[str]) -> None:
    inner = lg.compile(lambda x: (lg.debug_print("inner {}", x), x * x)[1], backend=backend)
    f = lg.compile(lg.grad(lambda x: inner(x) * 2), backend=backend)
    assert f(np.float32(3)) == 12 and f(np.float32(4)) == 16
    assert capfd.readouterr().out.splitlines() == ["inner 3.0", "inner 4.0"]


def test_trace_shows_stages() -> None:
    x = ones(3).astype(bool)
    recorded, explicit = lg.trace(lambda x: lg.sum(x), x, passes=()), lg.trace(lambda x: lg.sum(x), x)
    assert recorded.form == "recorded" and [n.name for n in recorded.nodes] == ["sum"]
    assert explicit.form == "explicit" and [n.name for n in explicit.nodes] == ["cast", "sum"]
    with pytest.raises(lg.PassError, match="no pass is called 'nonsense'"):
        lg.trace(lambda x: x, x, passes=("nonsense",))


def test_lowered_function() -> None:
    lowered = lg.compile(lambda x: x + 1, backend="reference").lower(ones(2))
    assert lowered.backend == "reference"
    (result,) = lowered.compile()([ones(2)])
    assert result.tolist() == [2, 2]
