"""Bits against Python's own integers."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.errors import DTypeError
from lucidgraph.lang import bitwise as lb
from tests.checking import check

PAIRS = {"bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64, np.bool_], ids=str)
def test_pairs(name, dtype):
    values = {"b": [False, True], "u": [0, 1, 6, 113, 127], "i": [0, 1, 6, 127, -1, -6]}[np.dtype(dtype).kind]
    x = np.array(values, dtype)
    expected = [[PAIRS[name](a, b) for b in values] for a in values]
    check(getattr(lb, name), x[:, None], x, expected=np.array(expected, dtype), dtype=dtype)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, np.bool_], ids=str)
def test_invert(dtype):
    x = np.array([0, 1, 1], dtype) if dtype is np.bool_ else np.array([0, 1, 100], dtype)
    high = {"b": 1, "u": np.iinfo(dtype).max if dtype is not np.bool_ else 1, "i": -1}[np.dtype(dtype).kind]
    check(lb.bitwise_invert, x, expected=np.array([high - int(v) for v in x], dtype), dtype=dtype)


def test_shifts_keep_the_dtype():
    x = np.array([1, 3, 100, -5], np.int8)
    # 100·4 = 400 = 144 mod 256 = -112 as int8
    check(lb.bitwise_left_shift, x, np.int8(2), expected=np.array([4, 12, -112, -20], np.int8), dtype=np.int8)
    check(lb.bitwise_right_shift, x, np.int8(1), expected=np.array([0, 1, 50, -3], np.int8), dtype=np.int8)
    check(lambda v: lb.bitwise_left_shift(v, 1), np.array([200], np.uint8), expected=np.array([144], np.uint8))
    check(lb.bitwise_left_shift, np.array([1], np.int64), np.array([62], np.int8), expected=np.array([2**62]))


def test_a_count_outside_the_width_shifts_everything_out():
    counts = np.array([8, 100, -1, 7], np.int8)
    x = np.array([1, -1, 3, 1], np.int8)
    left, right = np.array([0, 0, 0, -128], np.int8), np.array([0, -1, 0, 0], np.int8)
    check(lb.bitwise_left_shift, x, counts, expected=left, dtype=np.int8, backends=["reference"])
    check(lb.bitwise_right_shift, x, counts, expected=right, dtype=np.int8, backends=["reference"])
    many = np.array([64], np.uint64)
    check(lb.bitwise_right_shift, many, many, expected=np.array([0], np.uint64), backends=["reference"])


def test_dtypes_meet():
    check(lb.bitwise_or, np.array([1], np.int8), np.array([200], np.uint8), expected=np.array([201]), dtype=np.int16)
    check(lambda x: lb.bitwise_and(x, 6), np.array([7, 9], np.int16), expected=np.array([6, 0]), dtype=np.int16)
    check(lambda x: lb.bitwise_or(x, True), np.array([6], np.int16), expected=np.array([7]), dtype=np.int16)
    with pytest.raises(OverflowError):
        lb.bitwise_and(np.array([1], np.int8), 300)


@pytest.mark.parametrize("shapes", [((), (2, 3)), ((2, 1), (1, 3)), ((0,), ()), ((2, 0), (1, 1))])
def test_shapes(shapes):
    x, y = (np.full(s, 3, np.int32) for s in shapes)
    expected = np.full(np.broadcast_shapes(*shapes), 3, np.int32)
    check(lb.bitwise_and, x, y, expected=expected, dtype=np.int32)


@pytest.mark.parametrize("name", [*PAIRS, "bitwise_left_shift", "bitwise_right_shift"])
@pytest.mark.parametrize("value", [np.array([1.0], np.float32), np.array([1j], np.complex64)], ids=["float", "complex"])
def test_no_bits_in_floats(name, value):
    fn = getattr(lb, name)
    for attempt in (lambda: fn(value, value), lambda: fn(value, 1), lambda: lg.trace(fn, value, value)):
        with pytest.raises(DTypeError, match=name):
            attempt()


def test_refusals_of_one_operand():
    with pytest.raises(DTypeError, match="float32"):
        lb.bitwise_invert(np.array([1.0], np.float32))
    for fn in (lb.bitwise_left_shift, lb.bitwise_right_shift):
        with pytest.raises(DTypeError, match="bool"):
            fn(np.array([True]), np.array([True]))


def test_aliases_are_the_same_functions():
    assert lb.bitwise_not is lb.invert is lb.bitwise_invert
    assert lb.left_shift is lb.bitwise_left_shift and lb.right_shift is lb.bitwise_right_shift
