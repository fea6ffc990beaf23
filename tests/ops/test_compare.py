"""Comparisons, tests and logic against Python's own operators."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.errors import DTypeError, ShapeError
from lucidgraph.lang import compare as lc
from tests.checking import check

INF, NAN = math.inf, math.nan
COMPARISONS = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip


def table(fn, x, y):
    """``fn`` of every pair of Python numbers."""
    return np.array([[fn(a, b) for b in y] for a in x], bool)


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint16, np.int64], ids=str)
def test_comparisons(name, dtype):
    values = [0.0, 1.0, 2.0, 5.0] if np.dtype(dtype).kind in "iu" else [0.0, -0.0, 1.5, -2.0, INF, -INF, NAN]
    x = np.array(values, dtype)
    expected = table(COMPARISONS[name], values, values)
    check(getattr(lc, name), x[:, None], x, expected=expected, dtype=bool)


@pytest.mark.parametrize("name", COMPARISONS)
def test_dtypes_meet_before_they_are_compared(name):
    compare = COMPARISONS[name]
    fn = getattr(lc, name)
    expected = [compare(-1, 1), compare(1, 255)]
    check(fn, np.array([-1, 1], np.int8), np.array([1, 255], np.uint8), expected=expected)
    check(fn, np.array([True, False]), np.array([1.0, 0.5], np.float32), expected=[compare(1, 1), compare(0, 0.5)])
    check(fn, np.array([1, 2], np.int32), 1.5, expected=[compare(1, 1.5), compare(2, 1.5)])


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("value, dtype", [
    (-1, np.uint8), (300, np.uint8), (300, np.int8), (-300, np.int8), (2**63, np.int64), (2**64, np.uint64),
    (-1, np.uint64),
])  # fmt: skip
def test_python_integers_beyond_the_dtype(name, value, dtype):
    x = np.array([[0, 1, 7]], dtype)
    compare, fn = COMPARISONS[name], getattr(lc, name)
    check(lambda v: fn(v, value), x, expected=[[compare(n, value) for n in (0, 1, 7)]], dtype=bool)
    check(lambda v: fn(value, v), x, expected=[[compare(value, n) for n in (0, 1, 7)]], dtype=bool)


@pytest.mark.parametrize("name", COMPARISONS)
def test_lists_and_python_numbers(name):
    compare = COMPARISONS[name]
    assert getattr(lc, name)([1, 2, 3], 2).tolist() == [compare(n, 2) for n in (1, 2, 3)]
    assert getattr(lc, name)(2, [1, 2, 3]).tolist() == [compare(2, n) for n in (1, 2, 3)]
    assert getattr(lc, name)(2, 2.5).item() is compare(2, 2.5)


def test_complex_numbers_are_equal_or_not_but_unordered():
    z = np.array([1 + 2j, 1 - 2j], np.complex64)
    check(lc.equal, z, z[:1], expected=[True, False], backends=["reference"])
    check(lc.not_equal, z, z[:1], expected=[False, True], backends=["reference"])
    for name in ("less", "less_equal", "greater", "greater_equal"):
        with pytest.raises(DTypeError, match="not ordered"):
            getattr(lc, name)(z, 1.0)
        with pytest.raises(DTypeError, match="not ordered"):
            lg.trace(lambda v, n=name: getattr(lc, n)(v, 1.0), z)


def test_shapes_broadcast_or_raise():
    for a, b in [((), (2, 3)), ((2, 1), (1, 3)), ((2, 0), (1, 1)), ((0,), (0,))]:
        expected = np.zeros(np.broadcast_shapes(a, b), bool)
        check(lc.less, np.ones(a, np.float32), np.ones(b, np.float32), expected=expected)
    with pytest.raises(ShapeError, match="less"):
        lc.less(np.ones(2), np.ones(3))


@pytest.mark.parametrize("name, expected", [
    ("isnan", [False, False, False, True, False]), ("isinf", [False, True, True, False, False]),
    ("isfinite", [True, False, False, False, True]), ("isposinf", [False, True, False, False, False]),
    ("isneginf", [False, False, True, False, False]),
])  # fmt: skip
def test_kinds_of_numbers(name, expected):
    for dtype in (np.float32, np.float16):
        check(getattr(lc, name), np.array([1.0, INF, -INF, NAN, 0.0], dtype), expected=expected, dtype=bool)
    whole = name == "isfinite"
    for x in (np.array([0, 3], np.int16), np.array([True, False])):
        check(getattr(lc, name), x, expected=[whole, whole], dtype=bool)


def test_either_part_makes_a_complex_number_nan_or_infinite():
    z = np.array([complex(NAN, 1), complex(1, INF), 1 + 1j], np.complex64)
    check(lc.isnan, z, expected=[True, False, False], backends=["reference"])
    check(lc.isinf, z, expected=[False, True, False], backends=["reference"])
    check(lc.isfinite, z, expected=[False, False, True], backends=["reference"])


@pytest.mark.parametrize("name, fn", [
    ("logical_and", lambda a, b: bool(a) and bool(b)), ("logical_or", lambda a, b: bool(a) or bool(b)),
    ("logical_xor", lambda a, b: bool(a) is not bool(b)),
])  # fmt: skip
def test_logic(name, fn):
    floats, ints = [0.0, -0.0, 0.5, NAN], [0, 256, -1]
    x, y = np.array(floats, np.float32), np.array(ints, np.int32)
    check(getattr(lc, name), x[:, None], y, expected=table(fn, floats, ints), dtype=bool)
    check(getattr(lc, name), y != 0, True, expected=[fn(v, True) for v in ints], dtype=bool)


def test_logical_not():
    check(lc.logical_not, np.array([0.0, -0.0, 0.5, NAN], np.float32), expected=[True, True, False, False], dtype=bool)
    check(lc.logical_not, np.array([0, 256]), expected=[True, False], dtype=bool)


def test_isclose():
    a = np.array([1.0, 1.0, INF, INF, NAN, 0.0], np.float32)
    b = np.array([1.000001, 1.1, INF, -INF, NAN, 1e-9], np.float32)
    check(lc.isclose, a, b, expected=[True, False, True, False, False, True], dtype=bool)
    check(lambda x, y: lc.isclose(x, y, equal_nan=True), a, b, expected=[True, False, True, False, True, True])
    check(lambda x, y: lc.isclose(x, y, rtol=0.0, atol=0.2), a, b, expected=[True, True, True, False, False, True])
    check(lambda x: lc.isclose(x, 0), np.array([0, 255], np.uint8), expected=[True, False])
    small, large = np.array([3, 250], np.uint8), np.array([250, 3], np.uint8)
    check(lambda x, y: lc.isclose(x, y, atol=20.0), small, large, expected=[False, False])
    check(lambda x: lc.isclose(x, 1.0 / 3.0, rtol=1e-12), np.array([1 / 3, 0.333]), expected=[True, False],
          backends=["reference"])  # fmt: skip


def test_allclose_and_array_equal():
    a, b = np.array([[1.0, NAN]], np.float32), np.array([[1.0, NAN]], np.float32)
    check(lambda x, y: (lc.array_equal(x, y)), a, b, expected=False, dtype=bool)
    check(lambda x, y: (lc.array_equal(x, y, equal_nan=True)), a, b, expected=True, dtype=bool)
    check(lambda x, y: (lc.allclose(x, y)), a, b, expected=False, dtype=bool)
    check(lambda x, y: (lc.allclose(x, y, equal_nan=True)), a, b, expected=True, dtype=bool)
    check(lc.array_equal, a, b[0], expected=False, dtype=bool)
    check(lc.array_equal, np.ones((0, 2), np.float32), np.ones((0, 2), np.float32), expected=True)
    check(lc.array_equal, np.array([1, 2], np.int8), np.array([1.0, 2.0], np.float32), expected=True)


def test_array_equal_with_and_without_nan_in_one_program():
    x = np.array([1.0, NAN], np.float32)
    a, b = lg.compile(lambda v: (lc.array_equal(v, v), lc.array_equal(v, v, equal_nan=True)))(x)
    assert (bool(a), bool(b)) == (False, True)


@pytest.mark.parametrize("name", [*COMPARISONS, "logical_and", "logical_or", "logical_xor"])
def test_no_gradient_flows_through_a_truth_value(name):
    fn = getattr(lc, name)
    x = np.array([0.5, 1.0], np.float32)
    slope = lg.grad(lambda v: lg.sum(lg.asarray(fn(v, 1.0), dtype=lg.float32) * 3.0 + v))(x)
    np.testing.assert_array_equal(slope.numpy(), [1.0, 1.0])
