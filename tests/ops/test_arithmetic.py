"""Arithmetic and selection against Python numbers and NumPy in double precision."""

from __future__ import annotations

import math
import operator

import ml_dtypes
import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.errors import DTypeError, ShapeError
from lucidgraph.lang import arithmetic as la
from tests.checking import check, check_gradient, on_backend

INF, NAN = math.inf, math.nan
SHAPES = [((1, 3), (2, 1)), ((3,), (4, 1, 3)), ((), (2, 3)), ((2, 0), (1, 1)), ((3,), (3,)), ((), ()), ((1,), (0,))]
SMOOTH = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv}
WHOLE = {"floor_divide": operator.floordiv, "remainder": operator.mod, "maximum": max, "minimum": min}


def gradients(fn, *args):
    with on_backend("reference"):
        return [g.numpy() for g in lg.grad(lambda *xs: lg.sum(fn(*xs)), argnums=tuple(range(len(args))))(*args)]


def pairs(fn, x, y):
    return np.array([[fn(a, b) for b in y.tolist()] for a in x.tolist()])


@pytest.mark.parametrize("name", [*SMOOTH, *WHOLE])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int32, np.int64], ids=str)
def test_values(name, dtype):
    x, y = np.array([-7, 5, 3]).astype(dtype), np.array([2, -3, 3, 7]).astype(dtype)
    expected = pairs({**SMOOTH, **WHOLE}[name], x.astype(float), y.astype(float))
    whole = np.dtype(dtype).kind == "i"
    check(getattr(la, name), x[:, None], y, expected=expected.astype(int) if whole and name != "divide" else expected,
          dtype=np.float32 if whole and name == "divide" else dtype)  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_every_gradient_has_the_shape_of_its_operand(name, shapes):
    rng = np.random.default_rng(3)
    x, y = (np.asarray(rng.uniform(0.5, 2.0, s)) for s in shapes)
    check_gradient(getattr(la, name), x, y)


@pytest.mark.parametrize("name", ["maximum", "minimum", "remainder"])
def test_gradients_of_pieces(name):
    check_gradient(getattr(la, name), np.array([[7.5, -5.2, 3.1], [0.4, 2.2, -8.8]]), np.array([2.0, -3.0, 4.0]))


@pytest.mark.parametrize("name, cotangent", [("add", (1.0, 1.0)), ("subtract", (1.0, -1.0))])
def test_equal_shapes_leave_the_cotangent_alone(name, cotangent):
    x = np.ones((2, 3), np.float32)
    joint = lg.trace(getattr(la, name), x, x).backward()
    assert not [n for n in joint.nodes if n.name in ("sum", "reshape", "broadcast_to")]
    out = joint.run(x, x, np.full((2, 3), 5.0, np.float32), backend="reference")
    for got, sign in zip(out[1:], cotangent, strict=True):
        np.testing.assert_array_equal(got, np.full((2, 3), 5.0 * sign))


def test_complex_arithmetic():
    x, y = np.array([1 + 2j, -1j], np.complex64), np.array([0.5 - 1j, 2 + 0j], np.complex64)
    for name, fn in SMOOTH.items():
        expected = [fn(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        check(getattr(la, name), x, y, expected=expected, dtype=np.complex64, backends=["reference"])
    for name in ("floor_divide", "remainder", "maximum", "minimum"):
        with pytest.raises(DTypeError, match="complex64"):
            getattr(la, name)(x, y)


def test_parts_of_complex_numbers():
    z = np.array([3 + 4j, -1 - 0.5j])
    check(la.real, z, expected=[3.0, -1.0], dtype=np.float64, backends=["reference"])
    check(la.imag, z, expected=[4.0, -0.5], dtype=np.float64, backends=["reference"])
    check(la.conj, z, expected=[3 - 4j, -1 + 0.5j], backends=["reference"])
    check(la.abs, z, expected=[5.0, math.hypot(1, 0.5)], dtype=np.float64, backends=["reference"])
    x = np.array([1, 2], np.int16)
    check(la.real, x, expected=x, dtype=np.int16)
    check(la.imag, x, expected=np.zeros(2, np.int16), dtype=np.int16)
    # dL = Re(gradient dz)
    for fn, slope in [(la.real, [1, 1]), (la.imag, [-1j, -1j]), (la.abs, np.conj(z) / np.abs(z))]:
        np.testing.assert_allclose(gradients(fn, z)[0], slope)
    np.testing.assert_allclose(gradients(lambda v: la.real(la.multiply(la.conj(v), 2 + 1j)), z)[0], [2 - 1j] * 2)
    np.testing.assert_allclose(gradients(la.imag, np.array([1.0, 2.0]))[0], [0.0, 0.0])


def test_integer_edges():
    x = np.array([7, -7, -128, 5], np.int8)
    check(la.floor_divide, x, np.array([0, 0, -1, -2], np.int8), expected=np.array([0, 0, -128, -3]), dtype=np.int8)
    check(la.remainder, x, np.array([0, 0, -1, -2], np.int8), expected=np.array([0, 0, 0, -1]), dtype=np.int8)
    check(la.add, np.array([127], np.int8), np.array([1], np.int8), expected=np.array([-128]), dtype=np.int8)
    check(la.negative, np.array([1, 0], np.uint8), expected=np.array([255, 0]), dtype=np.uint8)
    for fn in (la.add, la.maximum, la.multiply):
        with pytest.raises(OverflowError, match="300"):
            fn(np.array([1], np.int8), 300)


@pytest.mark.parametrize("a, b, result", [
    (np.uint32, np.int8, np.int64), (ml_dtypes.bfloat16, np.float16, np.float32), (np.int8, np.uint8, np.int16),
    (np.float16, np.int64, np.float16), (np.float64, np.float32, np.float64),
])  # fmt: skip
def test_dtypes_meet(a, b, result):
    check(la.add, np.array([2]).astype(a), np.asarray(1).astype(b), expected=np.array([3]).astype(result), dtype=result,
          backends=["reference"])  # fmt: skip


def test_largest_uint32_and_int8_do_not_wrap():
    x = np.array([2**32 - 1], np.uint32)
    check(la.add, x, np.array([1], np.int8), expected=np.array([4294967296]), dtype=np.int64)


def test_double_is_kept_beside_python_floats():
    x = np.array([0.1, 0.7])
    check(lambda v: la.multiply(v, 0.1), x, expected=np.array([a * 0.1 for a in x.tolist()]), backends=["reference"])


def test_booleans():
    for fn in (la.subtract, lambda x, y: la.negative(x)):
        with pytest.raises(DTypeError, match="bool"):
            fn(np.array([True]), np.array([False]))
    check(la.add, np.array([True, False]), np.array([True, False]), expected=[True, False], dtype=bool)


def test_reciprocal():
    x = np.array([0.5, -4.0, INF, 0.0], np.float32)
    check(la.reciprocal, x, expected=[2.0, -0.25, 0.0, INF], dtype=np.float32)
    check(la.reciprocal, np.array([2, 4], np.int8), expected=[0.5, 0.25], dtype=np.float32)
    check_gradient(la.reciprocal, np.array([[0.5, -4.0, 2.0]]))


@pytest.mark.parametrize("fn, x, value, slope", [
    (la.abs, -2.0, 2.0, -1.0), (la.abs, 0.0, 0.0, 0.0), (la.abs, -0.0, 0.0, 0.0), (la.abs, NAN, NAN, NAN),
    (la.sign, -2.0, -1.0, 0.0), (la.sign, 0.0, 0.0, 0.0), (la.sign, -0.0, 0.0, 0.0), (la.sign, NAN, NAN, 0.0),
    (la.positive, -2.0, -2.0, 1.0), (la.degrees, math.pi, 180.0, 180 / math.pi),
    (la.radians, 180.0, math.pi, math.pi / 180),
])  # fmt: skip
def test_kinks(fn, x, value, slope):
    check(fn, np.array([x], np.float32), expected=[value], dtype=np.float32)
    np.testing.assert_allclose(gradients(fn, np.array([x])), [[slope]], rtol=1e-12)


def test_ties():
    x = np.array([1.0, 2.0])
    for fn in (la.maximum, la.minimum):
        np.testing.assert_array_equal(gradients(fn, x, x.copy()), [[0.5, 0.5], [0.5, 0.5]])
        np.testing.assert_array_equal(gradients(lambda v, f=fn: f(v, v), x), [[1.0, 1.0]])
        for constant in (lambda v, f=fn: f(v, 2.0), lambda v, f=fn: f(2.0, v)):
            assert gradients(constant, x)[0][1] == 0.0
    check(la.maximum, np.array([NAN, 1.0], np.float32), np.array([1.0, NAN], np.float32), expected=[NAN, NAN])


def test_clip():
    x = np.array([-1.0, 0.0, 3.0, 6.0, 9.0])
    single = x.astype(np.float32)
    check(lambda v: la.clip(v, 0, 6), single, expected=[0, 0, 3, 6, 6], dtype=np.float32)
    check(lambda v: la.clip(v, min=1.0), single, expected=[1, 1, 3, 6, 9])
    check(lambda v: la.clip(v, max=1.0), single, expected=[-1, 0, 1, 1, 1])
    check(lambda v: la.clip(v, 5, 2), single, expected=[2, 2, 2, 2, 2])
    check(lambda v: la.clip(v), single, expected=single)
    check(lambda v: la.clip(v, 1, 2), np.array([0, 3], np.uint8), expected=[1, 2], dtype=np.uint8)
    check(la.clip, single, single[::-1].copy(), np.float32(4), expected=[4, 4, 3, 4, 4])
    np.testing.assert_array_equal(gradients(lambda v: la.clip(v, 0, 6), x)[0], [0, 0, 1, 0, 0])


def test_where():
    c, x = np.array([[True], [False]]), np.array([1.0, 2.0], np.float32)
    check(la.where, c, x, -1, expected=[[1, 2], [-1, -1]], dtype=np.float32)
    small = np.array([1, 2], np.int8), np.array([3, 4], np.uint8)
    check(la.where, np.array([2, 0]), *small, expected=[1, 4], dtype=np.int16)
    check(lambda v: la.where([True, False], v, v + v), x, expected=[1, 4])
    check(lambda v: la.where(True, v, 0), x, expected=[1, 2])
    check_gradient(lambda a, b: la.where(c, a, b), np.array([1.0, 2.0, 3.0]), np.array([[4.0], [5.0]]))
    with pytest.raises(ShapeError, match="where"):
        la.where(np.array([True, False, True]), x, 0)


@pytest.mark.parametrize("x, expected", [(0.0, 0.0), (2.0, 0.5)])
def test_division_not_taken_has_no_gradient(x, expected):
    n, a = np.array(x), np.array(1.0)
    taken = x > 0
    got = gradients(lambda v, m: la.where(np.array(taken), la.divide(v, m), 0), a, n)
    np.testing.assert_array_equal(got, [expected, -expected / x if taken else 0.0])


def test_nan_to_num():
    x = np.array([NAN, INF, -INF, 1.0], np.float32)
    top = float(np.finfo(np.float32).max)
    check(la.nan_to_num, x, expected=[0.0, top, -top, 1.0], dtype=np.float32)
    check(lambda v: la.nan_to_num(v, 7.0, 8.0, 9.0), x, expected=[7, 8, 9, 1], dtype=np.float32)
    half = x.astype(np.float16)
    check(la.nan_to_num, half, expected=[0.0, 65504.0, -65504.0, 1.0], dtype=np.float16)
    check(la.nan_to_num, np.array([3], np.int8), expected=[3], dtype=np.int8)
    z = np.array([complex(NAN, INF), 1 + 2j], np.complex64)
    check(la.nan_to_num, z, expected=[complex(0, top), 1 + 2j], dtype=np.complex64, backends=["reference"])
    np.testing.assert_array_equal(gradients(la.nan_to_num, np.array([NAN, INF, 2.0]))[0], [0, 0, 1])


def test_signs():
    x = np.array([-1.0, -0.0, 0.0, 2.0, -INF], np.float32)
    check(la.signbit, x, expected=[True, True, False, False, True], dtype=bool)
    check(la.signbit, np.array([-1, 0, 1], np.int8), expected=[True, False, False], dtype=bool)
    check(la.copysign, np.array([3.0], np.float32), x, expected=[-3, -3, 3, 3, -3], dtype=np.float32)


def test_divmod():
    q, r = la.divmod(np.array([7, -7]), 3)
    assert (q.tolist(), r.tolist()) == ([2, -3], [1, 2])


def test_aliases_are_the_same_functions():
    assert la.absolute is la.abs and la.conjugate is la.conj and la.mod is la.remainder
    assert la.true_divide is la.divide
