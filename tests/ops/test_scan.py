"""Scans against NumPy in float64, along every axis, both ways, with and without an element's own value."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucidgraph as lg
from tests.checking import BACKENDS, assert_close, check, check_gradient, on_backend

rng = np.random.default_rng(3)
WAYS = [(reverse, inclusive) for reverse in (False, True) for inclusive in (True, False)]


def scanned(ufunc: Any, start: float, x: np.ndarray, axis: int, reverse: bool, inclusive: bool) -> np.ndarray:
    """The scan one slice after another."""
    rows = list(np.moveaxis(x, axis, 0))
    total, found = np.full(rows[0].shape, start, x.dtype), []
    for row in rows[::-1] if reverse else rows:
        before, total = total, ufunc(total, row)
        found.append(total if inclusive else before)
    return np.moveaxis(np.array(found[::-1] if reverse else found), 0, axis)


CASES = [
    (lg.cumsum, np.add, 0),
    (lg.cumprod, np.multiply, 1),
    (lg.cummax, np.maximum, -inf),
    (lg.cummin, np.minimum, inf),
    (lg.logcumsumexp, np.logaddexp, -inf),
]


@pytest.mark.parametrize(("fn", "ufunc", "start"), CASES, ids=lambda c: getattr(c, "__name__", ""))
@pytest.mark.parametrize(("reverse", "inclusive"), WAYS)
def test_values_and_gradients(fn: Callable[..., Any], ufunc: Any, start: float, reverse: bool, inclusive: bool) -> None:
    x = rng.standard_normal((3, 5, 4)).astype(np.float32)
    for axis in (0, 1, -1):
        expected = scanned(ufunc, start, x.astype(np.float64), axis, reverse, inclusive)
        check(lambda x, axis=axis: fn(x, axis, reverse, inclusive), x, expected=expected, dtype=lg.float32, scale=2)
    flat = scanned(ufunc, start, x.astype(np.float64).ravel(), 0, reverse, inclusive)
    check(lambda x: fn(x, None, reverse, inclusive), x, expected=flat, scale=4)
    if np.isfinite(start) or inclusive:
        small = rng.standard_normal((3, 4))
        for axis in (0, 1):
            check_gradient(lambda x, axis=axis: fn(x, axis, reverse, inclusive), small)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (1,), (1, 1)])
@pytest.mark.parametrize("fn", [case[0] for case in CASES])
def test_nothing_and_single_elements(fn: Callable[..., Any], shape: tuple[int, ...]) -> None:
    x = np.full(shape, 2.5)
    for axis in range(len(shape)):
        check(lambda x, axis=axis: fn(x, axis), x, expected=x)
        assert lg.compile(lg.grad(lambda x, axis=axis: lg.sum(fn(x, axis))))(x).shape == shape


def test_integers_are_exact_in_64_bits() -> None:
    check(lg.cumsum, np.array([100, 100], np.int8), expected=[100, 200], dtype=lg.int64)
    check(lg.cumsum, np.array([True, True, False]), expected=[1, 2, 2], dtype=lg.int64)
    check(lg.cumsum, np.array([255, 255], np.uint8), expected=[255, 510], dtype=lg.uint64)
    check(lg.cumprod, np.array([3**20, 3**13]), expected=[3**20, 3**33], dtype=lg.int64)
    check(lg.cumprod, np.array([True, False]), expected=[1, 0], dtype=lg.int64)
    check(lambda x: lg.cumsum(x, dtype=lg.float32), np.array([1, 2]), expected=[1, 3], dtype=lg.float32)
    check(lg.cummax, np.array([2, 1, 3], np.uint8), expected=[2, 2, 3], dtype=lg.uint8)
    least = np.iinfo(np.int16).min
    check(lambda x: lg.cummax(x, inclusive=False), np.array([5, 1], np.int16), expected=[least, 5], dtype=lg.int16)
    check(lambda x: lg.cummin(x, 0, True, False), np.array([False, True]), expected=[True, True], dtype=lg.bool_)


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_half_accumulates_in_float32(half: Any) -> None:
    ones = np.ones(3000, half)
    check(lg.cumsum, ones, expected=np.arange(1, 3001).astype(half).astype(np.float64), dtype=half)
    powers = np.full(2000, 1.001).astype(half)
    expected = np.cumprod(powers.astype(np.float64))
    check(lg.cumprod, powers, expected=expected, dtype=half)


def test_long_sums_keep_their_digits() -> None:
    x = rng.uniform(0, 1, 300_000).astype(np.float32)
    exact = np.cumsum(x.astype(np.float64))
    for backend in BACKENDS:
        for reverse in (False, True):
            total = lg.compile(lambda x, reverse=reverse: lg.cumsum(x, 0, reverse), backend=backend)(x)
            wanted = np.cumsum(x.astype(np.float64)[::-1])[::-1] if reverse else exact
            np.testing.assert_allclose(total, wanted, rtol=1e-6)


@pytest.mark.parametrize(("reverse", "inclusive"), WAYS)
def test_long_rows_in_blocks(reverse: bool, inclusive: bool) -> None:
    """Blocks of a long row join without a seam, whatever is left over for the last one."""
    n = (1 << 17) + 1234
    x = rng.integers(-9, 9, (2, n))
    y = lg.compile(lambda x: lg.cumsum(x, 1, reverse, inclusive))(x)
    np.testing.assert_array_equal(y, scanned_sum(x, reverse, inclusive))
    peaks = rng.standard_normal(n).astype(np.float16)
    y = lg.compile(lambda x: lg.cummax(x, 0, reverse, inclusive))(peaks)
    ordered = np.maximum.accumulate(peaks[::-1] if reverse else peaks)
    if not inclusive:
        ordered = np.concatenate([np.array([-inf], np.float16), ordered[:-1]])
    np.testing.assert_array_equal(y, ordered[::-1] if reverse else ordered)


def scanned_sum(x: np.ndarray, reverse: bool, inclusive: bool) -> np.ndarray:
    total = np.cumsum(x[:, ::-1], 1)[:, ::-1] if reverse else np.cumsum(x, 1)
    result: np.ndarray = total if inclusive else total - x
    return result


def gradient(fn: Callable[..., Any], x: Any) -> list[np.ndarray]:
    """The gradient of Σ fn on every backend, compiled and deferred."""
    slope, found = lg.grad(lambda x: lg.sum(fn(x))), []
    x = np.array(x, np.float32)
    for backend in BACKENDS:
        with on_backend(backend):
            found += [lg.compile(slope)(x), slope(lg.asarray(x)).numpy()]
    return found


def test_products_with_zeros() -> None:
    for fn, x, expected in (
        (lg.cumprod, [0, 2, 3], [9, 0, 0]),
        (lg.cumprod, [2, 0, 3], [1, 8, 0]),
        (lg.cumprod, [0, 0, 3], [1, 0, 0]),
        (lambda x: lg.cumprod(x, reverse=True), [3, 2, 0], [0, 0, 9]),
        (lambda x: lg.cumprod(x, inclusive=False), [0, 2, 3], [3, 0, 0]),
        (lambda x: lg.cumprod(x, 0, True, False), [3, 2, 0], [0, 0, 3]),
    ):
        for slope in gradient(fn, x):
            assert_close(slope, expected)
    zeros = np.array([[0.0, 2.0, 0.0, 3.0], [1.0, 0.0, 0.5, 0.0]])
    for reverse, inclusive in WAYS:
        check_gradient(lambda x, r=reverse, i=inclusive: lg.cumprod(x, 1, r, i), zeros)


def test_ties_go_to_the_latest() -> None:
    for fn, expected in (
        (lg.cummax, [2, 0, 2, 0]),
        (lambda x: lg.cummax(x, reverse=True), [1, 0, 2, 1]),
        (lg.cummin, [1, 2, 0, 1]),
        (lambda x: lg.cummin(x, reverse=True), [0, 2, 0, 2]),
    ):
        for slope in gradient(fn, [2, 1, 2, 1]):
            assert_close(slope, expected)


def test_nan_and_infinity() -> None:
    x = np.array([1.0, nan, 3.0], np.float32)
    for fn in (lg.cumsum, lg.cumprod, lg.cummax, lg.cummin, lg.logcumsumexp):
        check(fn, x, expected=[1, nan, nan])
    check(lg.logcumsumexp, np.array([-inf, -inf, 0, inf, 1], np.float32), expected=[-inf, -inf, 0, inf, inf])
    for slope in gradient(lg.logcumsumexp, [-inf, -inf]):
        assert_close(slope, [0, 0])
    for slope in gradient(lg.logcumsumexp, [-inf, -500.0]):
        assert_close(slope, [0, 1])
    # Large differences neither overflow nor lose what is small.
    check(lg.logcumsumexp, np.array([0.0, 1000.0, 0.0], np.float32), expected=[0, 1000, 1000])
    for slope in gradient(lg.logcumsumexp, [0.0, 1000.0, 0.0]):
        assert_close(slope, [1, 2, 0])
    # What does not matter stays 0 behind an infinite factor.
    for slope in gradient(lambda x: lg.cumprod(x)[:1], [2.0, inf, 3.0]):
        assert_close(slope, [1, 0, 0])


def test_array_api_spelling() -> None:
    x = rng.standard_normal((2, 3))
    check(lambda x: lg.cumulative_sum(x, axis=1), x, expected=np.cumsum(x, 1))
    check(
        lambda x: lg.cumulative_sum(x, axis=1, include_initial=True), x,
        expected=np.concatenate([np.zeros((2, 1)), np.cumsum(x, 1)], 1),
    )  # fmt: skip
    check(
        lambda x: lg.cumulative_prod(x, axis=0, include_initial=True), x,
        expected=np.concatenate([np.ones((1, 3)), np.cumprod(x, 0)]),
    )  # fmt: skip
    check(lg.cumulative_sum, np.array([1, 2], np.int8), expected=[1, 3], dtype=lg.int64)
    check(lambda x: np.cumsum(x, axis=0), x, expected=np.cumsum(x, 0))
    check(lambda x: x.cumprod(1), lg.asarray(x), expected=np.cumprod(x, 1))
    with pytest.raises(lg.AxisError, match="2 axes"):
        lg.cumulative_sum(x)


def test_bad_operands_are_refused() -> None:
    x = np.zeros((2, 3), np.float32)
    for fn in (lg.cumsum, lg.cumprod, lg.cummax, lg.cummin, lg.logcumsumexp):
        with pytest.raises(lg.AxisError, match="axis 2"):
            fn(x, 2)
    for fn in (lg.cummax, lg.logcumsumexp):
        with pytest.raises(lg.DTypeError, match="complex64"):
            fn(x.astype(np.complex64), 0)


def test_awkward_layouts() -> None:
    x = rng.standard_normal((6, 8))
    for view in (x.T, x[::-1], x[:, ::2], np.asfortranarray(x), np.broadcast_to(x[:1], x.shape)):
        for axis in (0, 1):
            check(lambda x, axis=axis: lg.cumsum(x, axis), view, expected=np.cumsum(view, axis))
    check(lambda x: lg.cumsum(lg.permute_dims(x, (1, 0))[::-2], 1), x, expected=np.cumsum(x.T[::-2], 1))
