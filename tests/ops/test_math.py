"""Elementary functions against Python's ``math`` and ``cmath``, derivatives against differences and closed forms."""

from __future__ import annotations

import cmath
import math

import ml_dtypes
import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.errors import DTypeError, NotDifferentiableError
from lucidgraph.lang import arithmetic as la
from lucidgraph.lang import compare as lc
from lucidgraph.lang import math as lm
from tests.checking import check, check_gradient, on_backend

INF, NAN = math.inf, math.nan

REAL = {
    "exp": (math.exp, [-3.0, -0.5, 0.0, 0.3, 2.0, 5.0]),
    "exp2": (lambda x: 2.0**x, [-3.0, -0.5, 0.0, 0.3, 2.0, 5.0]),
    "expm1": (math.expm1, [-3.0, -0.5, 1e-6, 0.3, 2.0, 5.0]),
    "log": (math.log, [0.1, 0.5, 1.5, 3.0, 20.0, 1e4]),
    "log1p": (math.log1p, [-0.9, -0.5, 1e-6, 0.3, 2.0, 50.0]),
    "log2": (math.log2, [0.1, 0.5, 1.5, 3.0, 20.0, 1e4]),
    "log10": (math.log10, [0.1, 0.5, 1.5, 3.0, 20.0, 1e4]),
    "square": (lambda x: x * x, [-3.0, -0.5, 0.0, 0.3, 2.0, 5.0]),
    "sqrt": (math.sqrt, [0.1, 0.5, 1.5, 3.0, 20.0, 100.0]),
    "rsqrt": (lambda x: x**-0.5, [0.1, 0.5, 1.5, 3.0, 20.0, 100.0]),
    "cbrt": (lambda x: math.copysign(abs(x) ** (1 / 3), x), [-8.0, -0.5, 0.1, 3.0, 20.0, 100.0]),
    "sin": (math.sin, [-3.0, -0.5, 0.0, 0.3, 2.0, 5.0]),
    "cos": (math.cos, [-3.0, -0.5, 0.0, 0.3, 2.0, 5.0]),
    "tan": (math.tan, [-3.0, -0.5, 0.0, 0.3, 1.2, 2.5]),
    "asin": (math.asin, [-0.9, -0.5, 0.0, 0.3, 0.6, 0.95]),
    "acos": (math.acos, [-0.9, -0.5, 0.0, 0.3, 0.6, 0.95]),
    "atan": (math.atan, [-3.0, -0.5, 0.0, 0.3, 2.0, 50.0]),
    "sinh": (math.sinh, [-3.0, -0.5, 0.0, 0.3, 2.0, 3.0]),
    "cosh": (math.cosh, [-3.0, -0.5, 0.0, 0.3, 2.0, 3.0]),
    "tanh": (math.tanh, [-3.0, -0.5, 0.0, 0.3, 2.0, 5.0]),
    "asinh": (math.asinh, [-3.0, -0.5, 0.0, 0.3, 2.0, 50.0]),
    "acosh": (math.acosh, [1.1, 1.5, 2.0, 3.0, 20.0, 50.0]),
    "atanh": (math.atanh, [-0.9, -0.5, 0.0, 0.3, 0.6, 0.95]),
    "erf": (math.erf, [-3.0, -0.5, 0.0, 0.3, 1.2, 2.5]),
}  # fmt: skip
COMPLEX = {
    "exp": cmath.exp, "expm1": lambda z: cmath.exp(z) - 1, "exp2": lambda z: 2**z, "log": cmath.log,
    "log1p": lambda z: cmath.log(1 + z), "log2": lambda z: cmath.log(z) / math.log(2.0), "log10": cmath.log10,
    "square": lambda z: z * z, "sqrt": cmath.sqrt, "rsqrt": lambda z: 1 / cmath.sqrt(z), "sin": cmath.sin,
    "cos": cmath.cos, "tan": cmath.tan, "asin": cmath.asin, "acos": cmath.acos, "atan": cmath.atan, "sinh": cmath.sinh,
    "cosh": cmath.cosh, "tanh": cmath.tanh, "asinh": cmath.asinh, "acosh": cmath.acosh, "atanh": cmath.atanh,
}  # fmt: skip
ROUNDING = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": round}
POINTS = [0.3 + 0.4j, -0.7 + 1.1j, 1.2 - 0.8j, -0.5 - 0.6j]


def oracle(name: str, points: np.ndarray) -> np.ndarray:
    fn = REAL[name][0]
    return np.array([fn(float(x)) for x in points.reshape(-1)]).reshape(points.shape)


def gradient(fn, *args, order: int = 1):
    """Gradients at NumPy arrays, on the reference backend."""
    with on_backend("reference"):
        places = tuple(range(len(args)))
        one = lg.grad(lambda *xs: lg.sum(fn(*xs)), argnums=places)
        if order == 2:
            first = one
            one = lg.grad(lambda *xs: lg.sum(first(*xs)[0]), argnums=places)
        got = [g.numpy() for g in one(*args)]
    return got[0] if len(got) == 1 else got


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=str)
def test_values(name, dtype):
    x = np.array(REAL[name][1]).astype(dtype)
    check(getattr(lm, name), x, expected=oracle(name, x.astype(np.float64)), dtype=dtype)


@pytest.mark.parametrize("name", REAL)
def test_values_in_double(name):
    x = np.array(REAL[name][1])
    check(getattr(lm, name), x, expected=oracle(name, x), dtype=np.float64, backends=["reference"])


@pytest.mark.parametrize("name", REAL)
def test_integers_become_float32(name):
    x = np.array([1], np.int8)
    dtype = np.int8 if name == "square" else np.float32
    finite = name != "atanh"
    check(getattr(lm, name), x, expected=oracle(name, x.astype(float)) if finite else np.array([INF]), dtype=dtype)


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_values_and_gradients(name):
    z = np.array(POINTS)
    expected = np.array([COMPLEX[name](complex(v)) for v in z])
    check(getattr(lm, name), z, expected=expected, dtype=np.complex128, backends=["reference"])
    single = z.astype(np.complex64)
    check(getattr(lm, name), single, expected=expected, dtype=np.complex64, backends=["reference"], scale=2)
    # d Re(w f(z)) = Re(w f'(z) dz), and f' is the same in every direction.
    w = 0.7 - 0.2j
    slope = gradient(lambda v: la.real(getattr(lm, name)(v) * w), z)
    for step in (1e-6, 1e-6j):
        ahead, behind = (np.array([COMPLEX[name](complex(v) + s) for v in z]) for s in (step, -step))
        np.testing.assert_allclose(slope, w * (ahead - behind) / (2 * step), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", ["erf", "cbrt", "floor", "ceil", "trunc"])
def test_no_meaning_for_complex_numbers(name):
    with pytest.raises(DTypeError, match="complex64"):
        getattr(lm, name)(np.array([1j], np.complex64))
    with pytest.raises(DTypeError, match="complex64"):
        lg.trace(getattr(lm, name), np.array([1j], np.complex64))


@pytest.mark.parametrize("name", REAL)
def test_gradients(name):
    x = np.array([*[p for p in REAL[name][1] if abs(p) < 10][:4], *REAL[name][1][1:3]]).reshape(2, 3)
    check_gradient(getattr(lm, name), x)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0)])
def test_shapes(name, shape):
    x = np.full(shape, 0.5 if name != "acosh" else 1.5)
    slope = gradient(getattr(lm, name), x)
    assert slope.shape == shape and np.isfinite(slope).all()
    expected = oracle(name, x).astype(np.float32)
    check(getattr(lm, name), x.astype(np.float32), expected=expected, dtype=np.float32)


@pytest.mark.parametrize("name, x, expected", [
    ("exp", [INF, -INF, NAN, 100.0, -200.0], [INF, 0, NAN, INF, 0]),
    ("expm1", [INF, -INF, 1e-10, -0.0], [INF, -1, 1e-10, -0.0]),
    ("log", [0.0, -0.0, -1.0, INF, NAN], [-INF, -INF, NAN, INF, NAN]),
    ("log1p", [-1.0, -2.0, 1e-10, INF], [-INF, NAN, 1e-10, INF]),
    ("log2", [0.0, -1.0, 8.0, INF], [-INF, NAN, 3, INF]),
    ("sqrt", [0.0, -1.0, INF, NAN], [0, NAN, INF, NAN]),
    ("rsqrt", [0.0, -1.0, INF], [INF, NAN, 0]),
    ("sin", [INF, -INF, NAN], [NAN, NAN, NAN]),
    ("tanh", [INF, -INF, 100.0, NAN], [1, -1, 1, NAN]),
    ("sinh", [100.0, -100.0], [INF, -INF]),
    ("cosh", [100.0, -100.0], [INF, INF]),
    ("asin", [1.5, -1.0], [NAN, -math.pi / 2]),
    ("acosh", [0.5, 1.0, INF], [NAN, 0, INF]),
    ("atanh", [1.0, -1.0, 2.0], [INF, -INF, NAN]),
    ("erf", [INF, -INF, 10.0, NAN], [1, -1, 1, NAN]),
    ("floor", [INF, -INF, NAN, -0.5], [INF, -INF, NAN, -1]),
])  # fmt: skip
def test_edge_values(name, x, expected):
    check(getattr(lm, name), np.array(x, np.float32), expected=np.array(expected, np.float32), dtype=np.float32)


@pytest.mark.parametrize("name", ROUNDING)
def test_rounding(name):
    x = np.array([-2.5, -1.5, -0.5, -0.2, 0.5, 1.5, 2.5, 2.7, 1e9], np.float32)
    expected = np.array([ROUNDING[name](float(v)) for v in x], np.float64)
    check(getattr(lm, name), x, expected=expected, dtype=np.float32)
    big = np.array([2**62 + 1, -7], np.int64)
    check(getattr(lm, name), big, expected=big, dtype=np.int64)
    np.testing.assert_array_equal(gradient(getattr(lm, name), x.astype(np.float64)), np.zeros(9))


def test_round_to_places():
    check(lambda x: lm.round(x, 2), np.array([1.239, -0.125, 2.0], np.float32), expected=np.array([1.24, -0.12, 2.0]))
    check(lambda x: lm.round(x, -1), np.array([149.0, 155.0, 145.0], np.float32), expected=np.array([150.0, 160, 140]))
    ints = np.array([15, 25, 26, -15, -25, -26, 2**62 + 5], np.int64)
    expected = [round(v / 10) * 10 for v in ints[:-1].tolist()] + [round((2**62 + 5), -1)]
    check(lambda x: lm.round(x, -1), ints, expected=np.array(expected), dtype=np.int64)
    check(lambda x: lm.round(x, 3), ints, expected=ints, dtype=np.int64)


# -- pow


@pytest.mark.parametrize("base, exponent, dtype", [
    (np.array([[0.5, 2.0, 3.0]], np.float32), np.array([[2.0], [-1.5]], np.float32), np.float32),
    (np.array([0.5, 2.0, 3.0], np.float16), 2, np.float16),
    (np.array([0.5, 2.0, 3.0], np.float16), np.array([3], np.int8), np.float16),
    (np.array([1, 2, 3], np.int8), 0.5, np.float32),
    (np.array([1, 2, -3], np.int16), np.array([3, 5, 7], np.int32), np.int32),
    (np.array([1, 2, 3], np.int8), 4, np.int8),
    (2, np.array([1, 2, 3], np.int64), np.int64),
    (2.0, np.array([1, 2, 3], np.int64), np.float32),
])  # fmt: skip
def test_pow_values(base, exponent, dtype):
    expected = np.power(np.asarray(base, np.float64), np.asarray(exponent, np.float64))
    check(lambda x, y: lm.pow(x, y), base, exponent, expected=expected.astype(dtype), dtype=dtype)


def test_pow_of_integers():
    check(lm.pow, np.array([3], np.int64), np.array([39], np.int64), expected=np.array([3**39]), dtype=np.int64)
    negative = np.array([-1, 0, -2, 3], np.int32)
    check(lm.pow, np.array([2, 5, 1, 2], np.int32), negative, expected=np.array([0, 1, 0, 8]), dtype=np.int32)
    for base in (np.array([2, 3], np.int32), 2, np.array([True])):
        with pytest.raises(DTypeError, match="-1"):
            lm.pow(base, -1)
        with pytest.raises(DTypeError, match="-1"):
            lg.trace(lambda x: lm.pow(x, -1), np.asarray(base))
    check(lambda x: lm.pow(x, -1), np.array([2.0, 4.0], np.float32), expected=np.array([0.5, 0.25]))
    with pytest.raises(DTypeError, match="booleans"):
        lm.pow(np.array([True]), np.array([True]))
    check(lambda x: lm.pow(x, 2), np.array([True, False]), expected=np.array([1, 0]), dtype=np.int64)


def test_pow_complex():
    z = np.array(POINTS)
    check(lambda x: lm.pow(x, 2.5), z, expected=np.array([complex(v) ** 2.5 for v in z]), backends=["reference"])
    slope = gradient(lambda v: la.real(lm.pow(v, 2.5)), z)
    np.testing.assert_allclose(slope, np.array([2.5 * complex(v) ** 1.5 for v in z]), rtol=1e-12)


def test_pow_gradients():
    base = np.array([[0.5, 1.2, 2.0], [3.0, 0.7, 1.5]])
    check_gradient(lm.pow, base, np.array([[2.5, -1.0, 0.3]]))
    check_gradient(lm.pow, base[0], np.array([[2.5], [-1.0]]))
    check_gradient(lambda y: lm.pow(2.5, y), np.array([0.5, -1.0]))
    for exponent in (0, 1, 2, 3, -2, 0.5, 1.5):
        check_gradient(lambda x, e=exponent: lm.pow(x, e), base)


@pytest.mark.parametrize("base, exponent, slope, curve", [
    (0.0, 2.0, 0.0, 2.0), (0.0, 0.0, 0.0, 0.0), (-2.0, 1.0, 1.0, 0.0), (-2.0, 2.0, -4.0, 2.0), (0.0, 3.0, 0.0, 0.0),
    (-2.0, 3.0, 12.0, -12.0), (0.0, 1.0, 1.0, 0.0), (-0.0, 2.0, 0.0, 2.0), (0.0, 0.5, INF, None), (2.0, 0.0, 0.0, 0.0),
])  # fmt: skip
def test_pow_edge_gradients_in_the_base(base, exponent, slope, curve):
    x = np.array(base)
    kinds = [lambda v: lm.pow(v, exponent), lambda v: lm.pow(v, np.array(exponent))]
    if exponent == int(exponent):
        kinds.append(lambda v: lm.pow(v, int(exponent)))
    for fn in kinds:
        assert gradient(fn, x) == slope
        if curve is not None:
            assert gradient(fn, x, order=2) == curve


@pytest.mark.parametrize("base, exponent, slope", [(0.0, 1.0, 0.0), (-2.0, 2.0, NAN), (0.0, 0.0, 0.0), (0.0, 2.0, 0.0)])
def test_pow_edge_gradients_in_the_exponent(base, exponent, slope):
    np.testing.assert_equal(gradient(lambda e: lm.pow(np.array(base), e), np.array(exponent)), np.array(slope))


# -- gradients at edge points


@pytest.mark.parametrize("fn, x, slope", [
    (lambda x: la.where(lc.greater(x, 0), lm.sqrt(x), 0), 0.0, 0.0),
    (lambda x: la.maximum(lm.sqrt(x), 1e-10), 0.0, 0.0),
    (lambda x: la.where(lc.greater_equal(x, 0), x, lm.sqrt(-x)), 1.0, 1.0),
    (lambda x: la.where(lc.greater(x, 0), lm.log(x), 0), 0.0, 0.0),
    (lambda x: la.where(lc.greater(x, 0), lm.rsqrt(x), 0), 0.0, 0.0),
    (lambda x: la.where(lc.greater(x, 0), lm.pow(x, -1.5), 0), 0.0, 0.0),
    (lambda x: la.where(lc.greater(x, 0), la.reciprocal(x), 0), 0.0, 0.0),
    (lambda x: la.where(lc.greater(x, 0), lm.log1p(-x), 0), 1.0, -INF),
    (lambda x: la.where(lc.less(x, 1), lm.log1p(-x), 0), 1.0, 0.0),
    (lambda x: la.where(lc.less(x, 1), lm.asin(x), 0), 1.0, 0.0),
    (lambda x: la.where(lc.less(x, 1), lm.acos(x), 0), 1.0, 0.0),
    (lambda x: la.where(lc.less(x, 1), lm.atanh(x), 0), 1.0, 0.0),
    (lambda x: la.where(lc.greater(x, 1), lm.acosh(x), 0), 1.0, 0.0),
    (lambda x: la.where(lc.less(x, 1e3), lm.exp(x), 0), 1e4, 0.0),
    (lambda x: la.where(lc.less(x, 1e3), lm.expm1(x), 0), 1e4, 0.0),
    (lambda x: la.where(lc.less(x, 1e3), lm.exp2(x), 0), 1e4, 0.0),
    (lambda x: la.where(lc.less(x, 1e3), lm.sinh(x), 0), 1e4, 0.0),
    (lambda x: la.where(lc.less(x, 1e3), lm.cosh(x), 0), 1e4, 0.0),
    (lambda x: la.where(lc.less(x, 1e3), lm.sin(x), 0), INF, 0.0),
    (lambda x: la.where(lc.less(x, 1e3), lm.tan(x), 0), INF, 0.0),
    (lambda x: la.where(lc.greater(x, 0), lm.cbrt(x), 0), 0.0, 0.0),
    (lm.sqrt, 0.0, INF), (lm.cbrt, 0.0, INF), (lm.log, 0.0, INF), (lm.asin, 1.0, INF), (lm.tanh, INF, 0.0),
    (lm.erf, 30.0, 0.0), (lm.log, -2.0, -0.5), (lm.expm1, -40.0, math.exp(-40.0)), (lm.asinh, 1e200, 1e-200),
])  # fmt: skip
def test_edge_gradients(fn, x, slope):
    np.testing.assert_allclose(gradient(fn, np.array(x)), slope, rtol=1e-12, atol=0)


def test_a_branch_not_taken_has_no_second_derivative():
    for singular in (lm.sqrt, lm.log, lm.rsqrt, la.reciprocal, lambda x: lm.pow(x, -0.5)):
        fn = lambda x, f=singular: la.where(lc.greater(x, 0), f(x), 0)  # noqa: E731
        assert gradient(fn, np.array(0.0), order=2) == 0.0
        assert gradient(fn, np.array(-1.0), order=2) == 0.0


# -- functions of two


def test_atan2():
    y, x = np.array([[1.0], [-2.0]], np.float32), np.array([0.5, -1.0, 3.0], np.float32)
    expected = [[math.atan2(a, b) for b in x.tolist()] for a in y[:, 0].tolist()]
    check(lm.atan2, y, x, expected=np.array(expected), dtype=np.float32)
    signs = [np.array([0.0, -0.0, 0.0, INF], np.float32), np.array([-1.0, -1.0, 0.0, INF], np.float32)]
    expected = [math.atan2(a, b) for a, b in zip(*(s.tolist() for s in signs), strict=True)]
    check(lm.atan2, *signs, expected=np.array(expected))
    check_gradient(lm.atan2, np.array([[1.0], [-2.0]]), np.array([0.5, -1.0, 3.0]))
    np.testing.assert_array_equal(gradient(lm.atan2, np.array(0.0), np.array(0.0)), [0.0, 0.0])
    # Squares of these leave the range of a double.
    np.testing.assert_allclose(gradient(lm.atan2, np.array(0.0), np.array(1e200)), [1e-200, 0.0])
    np.testing.assert_allclose(gradient(lm.atan2, np.array(0.0), np.array(1e-200)), [1e200, 0.0])
    with pytest.raises(DTypeError, match="complex"):
        lm.atan2(np.array([1j]), 1.0)


def test_hypot():
    x, y = np.array([[3.0], [0.0]], np.float32), np.array([4.0, -1e30, 0.0], np.float32)
    expected = [[math.hypot(a, b) for b in y.tolist()] for a in x[:, 0].tolist()]
    check(lm.hypot, x, y, expected=np.array(expected), dtype=np.float32)
    check(lm.hypot, np.array([INF, NAN], np.float32), np.array([NAN, 1.0], np.float32), expected=np.array([INF, NAN]))
    check_gradient(lm.hypot, np.array([[3.0], [-1.0]]), np.array([0.5, -2.0, 1.0]))
    np.testing.assert_array_equal(gradient(lm.hypot, np.array(0.0), np.array(0.0)), [0.0, 0.0])


def test_logaddexp():
    x, y = np.array([[1.0], [-200.0]], np.float32), np.array([0.5, 200.0, -300.0], np.float32)
    expected = [[max(a, b) + math.log1p(math.exp(-abs(a - b))) for b in y.tolist()] for a in x[:, 0].tolist()]
    check(lm.logaddexp, x, y, expected=np.array(expected), dtype=np.float32)
    infinite = [np.array([-INF, INF, -INF, INF, NAN], np.float32), np.array([-INF, INF, 2.0, -INF, 0.0], np.float32)]
    check(lm.logaddexp, *infinite, expected=np.array([-INF, INF, 2.0, INF, NAN]))
    check_gradient(lm.logaddexp, np.array([[1.0], [-2.0]]), np.array([0.5, 1.0, -3.0]))
    np.testing.assert_array_equal(gradient(lm.logaddexp, np.array(-INF), np.array(-INF)), [0.0, 0.0])
    np.testing.assert_array_equal(gradient(lm.logaddexp, np.array(-INF), np.array(1.0)), [0.0, 1.0])
    np.testing.assert_allclose(gradient(lm.logaddexp, np.array(2.0), np.array(2.0), order=2), [0.25, -0.25])


def test_aliases_are_the_same_functions():
    pairs = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "power": "pow"}
    pairs |= {"arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh"}
    assert all(getattr(lm, alias) is getattr(lm, name) for alias, name in pairs.items())


def test_integers_have_no_gradient():
    with pytest.raises(NotDifferentiableError, match="int32"):
        lg.grad(lambda x: lg.sum(lm.square(x)))(np.array([1, 2], np.int32))


def test_log_and_log2_are_kept_apart():
    x = np.array([2.0, 8.0], np.float32)
    a, b = lg.compile(lambda v: (lm.log(v), lm.log2(v)))(x)
    np.testing.assert_allclose(a, [math.log(2), math.log(8)], rtol=1e-6)
    np.testing.assert_allclose(b, [1.0, 3.0], rtol=1e-6)


def test_policies_under_autocast():
    half = np.array([1.0, 2.0], np.float16)
    with lg.autocast(lg.float16):
        assert lm.exp(half).dtype == lm.pow(half, 2).dtype == lm.logaddexp(half, half).dtype == lg.float32
        assert lm.sin(half).dtype == lm.square(half).dtype == lm.floor(half).dtype == lg.float16
    assert lm.exp(half).dtype == lg.float16
