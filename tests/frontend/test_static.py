"""Static arguments, and Python numbers that become static when the function asks for their value."""

from __future__ import annotations

import dataclasses
import enum
import functools
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from tests.checking import BACKENDS, check

each_backend = pytest.mark.parametrize("backend", BACKENDS)
X = np.arange(6, dtype=np.float32)


def programs(f: Any) -> int:
    return f.cache_info().currsize


# -- static_argnames


def test_static_by_name_and_position() -> None:
    @lg.compile(backend="reference", static_argnames=("n", "mode"))
    def f(x: Any, n: int, *, mode: str = "sum", scale: float = 1.0) -> Any:
        y = x[:n] * scale
        return lg.sum(y) if mode == "sum" else lg.max(y)

    assert f(X, 3) == 3 and f(X, n=3) == 3
    assert f(X, 4, mode="max", scale=2.0) == 6 and f(x=X, n=4, mode="max", scale=3.0) == 9
    assert f(X, 3) == 3
    assert programs(f) == 4


def test_one_static_name_needs_no_tuple() -> None:
    f = lg.compile(lambda x, axis: lg.sum(x, axis=axis), static_argnames="axis", backend="reference")
    assert f(X.reshape(2, 3), 0).tolist() == [3, 5, 7] and f(X.reshape(2, 3), axis=(0, 1)) == 15


def test_static_arguments_of_nested_and_uncompiled_functions() -> None:
    @lg.compile(backend="reference", static_argnames=("shape", "words"))
    def inner(x: Any, shape: Any, words: Any) -> Any:
        return lg.reshape(x, tuple(shape)) * len(words)

    shape, words = np.array([2, 3]), np.array(["a", "b"], dtype=object)
    outer = lg.compile(lambda x: inner(x, shape, words=words), backend="reference")
    expected = (X * 2).reshape(2, 3).tolist()
    assert inner(X, shape, words).tolist() == outer(X).tolist() == expected
    with lg.disable_compile():
        assert inner(X, shape, words).tolist() == outer(X).tolist() == expected
    assert lg.grad(lambda x: lg.sum(inner(x, shape, words)))(X).tolist() == [2] * 6


def test_static_name_that_is_no_argument() -> None:
    with pytest.raises(lg.DTypeError, match="names 'm', which is no argument"):
        lg.compile(lambda x, n: x, static_argnames=("n", "m"))
    lg.compile(lambda x, **more: x, static_argnames="anything")


def test_static_values_are_told_apart_by_type_and_value() -> None:
    seen: list[Any] = []
    f = lg.compile(lambda x, v: (seen.append(v), x)[1], static_argnames="v", backend="reference")
    values = [
        0, 0.0, -0.0, False, 1, True, 1.0, "1", None, (1, 2), (1, 2.0), [1, 2], {"a": 1}, {"a": 1.0}, float("nan"),
        frozenset({1}), slice(1, 2), slice(1, 3), range(3), np.float32, lg.float32, ..., b"1", 1j,
    ]  # fmt: skip
    for v in values + values:
        f(X, v)
    assert len(seen) == programs(f) == len(values)


def test_static_arrays_count_by_what_they_hold() -> None:
    f = lg.compile(lambda x, shape: lg.reshape(x, tuple(shape)), static_argnames="shape", backend="reference")
    shape = np.array([2, 3])
    assert f(X, shape).shape == (2, 3) and f(X, np.array([2, 3])).shape == (2, 3)
    assert programs(f) == 1
    shape[:] = 3, 2
    assert f(X, shape).shape == (3, 2)


class Mode(enum.Enum):
    SUM = 1
    MAX = 2


@dataclasses.dataclass(frozen=True)
class Settings:
    axis: int
    mode: Mode


def test_static_objects() -> None:
    @lg.compile(backend="reference", static_argnames="settings")
    def f(x: Any, settings: Settings) -> Any:
        return lg.sum(x, axis=settings.axis) if settings.mode is Mode.SUM else lg.max(x, axis=settings.axis)

    x = X.reshape(2, 3)
    for _ in range(3):
        assert f(x, Settings(0, Mode.SUM)).tolist() == [3, 5, 7]
        assert f(x, Settings(1, Mode.MAX)).tolist() == [2, 5]
    assert programs(f) == 2


def test_objects_that_are_no_arrays_are_static() -> None:
    f = lg.compile(lambda x, mode, by: x * by if mode is Mode.SUM else x, backend="reference")
    for _ in range(2):
        assert f(X, Mode.SUM, True).tolist() == X.tolist() and f(X, Mode.MAX, "") is not None
    assert programs(f) == 2


def test_functions_as_arguments() -> None:
    def square(x: Any) -> Any:
        return x * x

    f = lg.compile(lambda fn, x: fn(x), backend="reference")
    part = functools.partial(lg.multiply, 3.0)
    for _ in range(2):
        assert f(square, X)[2] == 4 and f(lg.sqrt, X)[4] == 2 and f(part, X)[1] == 3 and f(np.exp, X)[0] == 1
        assert f(Fraction(1, 2).__class__ and (lambda x: x + 1), X)[0] == 1
    assert f(functools.partial(lg.multiply, 3.0), X)[1] == 3


def test_object_that_is_gone_takes_its_program_along() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

    f = lg.compile(lambda x, scale: x * scale.by, backend="reference")
    for k in range(30):
        assert f(X, Scale(k))[1] == k
    assert programs(f) <= 2


def test_iterators_are_refused() -> None:
    f = lg.compile(lambda xs: sum(xs), backend="reference")
    with pytest.raises(lg.DTypeError, match=r"xs is an iterator.*\n.*test_static.py"):
        f(x for x in [X])
    assert f([X, X])[1] == 2


# -- lifted numbers


@each_backend
def test_numbers_are_lifted(backend: str) -> None:
    f = lg.compile(lambda x, a, k: (x * a + k, a, a * k), backend=backend)
    for a, k in ((1.5, 2), (2.5, -3), (-0.0, 2**40)):
        y, again, both = f(X[:2], a, k)
        np.testing.assert_array_equal(y, X[:2] * np.float32(a) + np.float32(k))
        assert (again, both) == (a, a * k) and again.dtype == np.float32
    assert programs(f) == 1


@each_backend
def test_lifted_numbers_never_widen_and_keep_their_precision(backend: str) -> None:
    f = lg.compile(lambda x, a: x * a, backend=backend)
    for dtype in (np.float16, np.float32, np.float64):
        x = np.array([3, 7, 11], dtype)
        result = f(x, 0.1)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, x * dtype(0.1) if dtype is not np.float64 else x * 0.1)
    third = lg.compile(lambda x, a: x * (a / 3), backend=backend)
    np.testing.assert_array_equal(third(np.array([3.0, 7.0]), 1.0), np.array([3.0, 7.0]) * (1.0 / 3))
    assert f(np.array([2], np.int8), 3).dtype == np.int8
    assert f(np.array([2], np.int8), 1.5).dtype == np.float32
    assert f(np.array([2], np.float32), 1j).dtype == np.complex64


ASKING: dict[str, Callable[[Any, Any], Any]] = {
    "control flow": lambda x, n: x + 1 if n > 2 else x - 1,
    "loop": lambda x, n: sum((x for _ in range(n)), start=x),
    "shape": lambda x, n: lg.ones((n, 2)) * x[0],
    "index": lambda x, n: x[n],
    "slice": lambda x, n: x[:n],
    "format": lambda x, n: x * float(f"{n}"),
    "float()": lambda x, n: x * float(n),
    "int()": lambda x, n: x * int(n),
    "item": lambda x, n: x * (n.item() if isinstance(n, lg.Tensor) else n),
    "hash key": lambda x, n: x * {1: 10.0, 2: 20.0, 3: 30.0}[int(n)],
    "axis": lambda x, n: lg.sum(lg.reshape(x, (1, 2, 3)), axis=n - 1),
    "list index": lambda x, n: x * [5.0, 6.0, 7.0, 8.0][n],
    "derived": lambda x, n: x[: (n * 2 - 1) // 2 + 1],
    "in grad": lambda x, n: lg.grad(lambda y: lg.sum(y[:n] * y[:n]))(x),
    "numpy": lambda x, n: x + np.arange(int(n) + 5)[-1] * 1.0,
    "comparison": lambda x, n: x if n in (1, 3) else -x,
}


@pytest.mark.parametrize("name", ASKING)
def test_asking_for_the_value_makes_a_number_static(name: str) -> None:
    fn = ASKING[name]
    f = lg.compile(fn, backend="reference")
    for n in (3, 2, 3, 1):
        expected = fn(lg.asarray(X), n).numpy()
        np.testing.assert_array_equal(f(X, n), expected)
    assert programs(f) == 3
    assert "n: 3 before, 2 now" in f.explain()


def test_only_the_number_asked_for_becomes_static() -> None:
    f = lg.compile(lambda x, n, a: x[:n] * a, backend="reference")
    for a in (1.0, 2.0, 3.0):
        assert f(X, 2, a).tolist() == [0, a]
    assert programs(f) == 1


def test_numbers_in_containers_and_keywords_become_static_too() -> None:
    f = lg.compile(lambda x, *, at: x[at["from"] : at["to"][0]], backend="reference")
    assert f(X, at={"from": 1, "to": [3]}).tolist() == [1, 2]
    assert f(X, at={"from": 2, "to": [3]}).tolist() == [2]
    assert "at['from']: 1 before, 2 now" in f.explain()


def test_number_used_inside_a_gradient_of_it_cannot_be_asked_for() -> None:
    f = lg.compile(lambda a: lg.grad(lambda a: a * a if a > 0 else -a)(a), backend="reference")
    with pytest.raises(lg.ConcretizationError, match=r"needs the value"):
        f(3.0)
    assert lg.grad(lambda a: a * a if a > 0 else -a)(3.0).item() == 6
    assert programs(f) == 0


def test_too_many_values_of_one_argument_are_warned_about_once() -> None:
    @lg.compile(backend="reference")
    def f(x: Any, n: int, a: float) -> Any:
        return x * a + n if n >= 0 else x

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for n in range(100):
            f(X, n, float(n))
            assert len(said) == (n >= 64)
    assert "n of " in str(said[0].message) and "more than 64 values" in str(said[0].message)
    assert said[0].filename == __file__


def test_asking_cannot_be_swallowed() -> None:
    @lg.compile(backend="reference")
    def f(x: Any, n: int) -> Any:
        try:
            return x[:n]
        except BaseException:
            return x

    @lg.compile(backend="reference")
    def g(x: Any, n: int) -> Any:
        try:
            return x[:n]
        except BaseException as error:
            raise RuntimeError("no") from error

    assert f(X, 2).shape == g(X, 2).shape == (2,)
    assert programs(f) == programs(g) == 1


def test_numbers_written_into_numpy_arrays() -> None:
    @lg.compile(backend="reference")
    def f(x: Any, a: float, b: float) -> Any:
        coefficients = np.zeros(6, np.float32)
        coefficients[1], coefficients[2:4] = a, b
        return x * coefficients

    assert f(X, 2.0, 3.0).tolist() == [0, 2, 6, 9, 0, 0] and f(X, 5.0, 3.0).tolist() == [0, 5, 6, 9, 0, 0]


@each_backend
def test_integers_that_do_not_fit(backend: str) -> None:
    f = lg.compile(lambda x, k: x + k, backend=backend)
    x = np.array([1, 2], np.int8)
    assert f(x, 100).tolist() == [101, 102]
    for k in (300, -129, 2**40, 2**80):
        with pytest.raises(OverflowError, match="int8"):
            f(x, k)
        with pytest.raises(OverflowError, match="int8"):
            lg.asarray(x) + k
    assert f(x, -128).tolist() == [-127, -126]
    derived = lg.compile(lambda x, k: x + k * 2, backend=backend)
    assert derived(x, 50).tolist() == [101, 102]
    with pytest.raises(OverflowError, match="int8"):
        derived(x, 64)
    assert f(np.array([1], np.uint64), 2**63).tolist() == [2**63 + 1]
    assert f(np.array([1], np.float32), 2**80) == np.float32(2.0**80)


@each_backend
def test_comparison_with_integers_that_do_not_fit(backend: str) -> None:
    f = lg.compile(lambda x, k: (x < k, x >= k, x == k), backend=backend)
    x = np.array([1, 200], np.uint8)
    for k in (7, -1, 256, 200, -(2**70)):
        exact = x.astype(object)
        for ours, theirs in zip(f(x, k), (exact < k, exact >= k, exact == k), strict=True):
            assert ours.tolist() == theirs.tolist()


def test_writing_a_number_that_does_not_fit() -> None:
    def write(x: Any, k: int) -> Any:
        x[0] = k
        return x

    f = lg.compile(write, backend="reference")
    assert f(np.zeros(1, np.int8), 7) == 7
    with pytest.raises(OverflowError, match="int8"):
        f(np.zeros(1, np.int8), 200)
    assert f(np.zeros(1, np.int8), 8) == 8


def test_numbers_become_arrays_of_the_default_dtype() -> None:
    for fn, dtype in (
        (lambda x, a: lg.asarray(a) * x, lg.float32), (lambda x, a: lg.full((2,), a) * x, lg.float32),
        (lambda x, a: lg.where(x > 0, a, 0.0) * x, lg.float32), (lambda x, a: lg.asarray([a, 1.0]) * x, lg.float32),
        (lambda x, a: lg.exp(a) * x, lg.float16), (lambda x, a: (a * 2) * x, lg.float16),
        (lambda x, a: lg.sum(a) * x, lg.float32), (lambda x, a: lg.asarray([[a], [a]]) * x, lg.float32),
    ):  # fmt: skip
        check(fn, np.ones(2, np.float16), 2.0, expected=fn(lg.ones(2), 2.0).numpy(), dtype=dtype)


def test_evaluation_does_not_change_what_a_number_is() -> None:
    a = lg.multiply(2, 3)
    x = lg.asarray(np.ones(2, np.int8))
    assert (x * a).dtype == lg.int8
    assert a.item() == 6 and repr(a).startswith("Tensor(6")
    assert (x * a).dtype == lg.int8
    b = lg.asarray([True, False]) * 2
    assert (b + x).dtype == lg.int64 and b.tolist() == [2, 0] and (b + x).dtype == lg.int64
