"""Activations against their formulas in Python floats; gradients against differences and closed forms."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.errors import AxisError, DTypeError, ShapeError
from lucidgraph.lang import activation as act
from lucidgraph.lang import arithmetic as la
from tests.checking import check, check_gradient, on_backend

INF, NAN = math.inf, math.nan
ALPHA, SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def phi(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def softplus(x):
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


def tanh_gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def clamp(x, low, high):
    return min(max(x, low), high)


FORMULAS = {
    "sigmoid": (act.sigmoid, sigmoid),
    "relu": (act.relu, lambda x: max(x, 0.0)),
    "relu2": (act.relu2, lambda x: max(x, 0.0) ** 2),
    "relu6": (act.relu6, lambda x: clamp(x, 0, 6)),
    "leaky_relu": (lambda x: act.leaky_relu(x, 0.1), lambda x: x if x > 0 else 0.1 * x),
    "prelu": (lambda x: act.prelu(x, 0.25), lambda x: x if x > 0 else 0.25 * x),
    "hard_tanh": (act.hard_tanh, lambda x: clamp(x, -1, 1)),
    "hard_tanh wide": (lambda x: act.hard_tanh(x, -2.0, 0.5), lambda x: clamp(x, -2, 0.5)),
    "hard_sigmoid": (act.hard_sigmoid, lambda x: clamp(x + 3, 0, 6) / 6),
    "hard_swish": (act.hard_swish, lambda x: x * clamp(x + 3, 0, 6) / 6),
    "hard_shrink": (act.hard_shrink, lambda x: x if abs(x) > 0.5 else 0.0),
    "softshrink": (act.softshrink, lambda x: x - math.copysign(0.5, x) if abs(x) > 0.5 else 0.0),
    "softsign": (act.softsign, lambda x: x / (1 + abs(x))),
    "elu": (lambda x: act.elu(x, 1.3), lambda x: x if x > 0 else 1.3 * math.expm1(x)),
    "selu": (act.selu, lambda x: SCALE * (x if x > 0 else ALPHA * math.expm1(x))),
    "celu": (lambda x: act.celu(x, 1.3), lambda x: x if x > 0 else 1.3 * math.expm1(x / 1.3)),
    "softplus": (act.softplus, softplus),
    "log_sigmoid": (act.log_sigmoid, lambda x: -softplus(-x)),
    "silu": (act.silu, lambda x: x * sigmoid(x)),
    "mish": (act.mish, lambda x: x * math.tanh(softplus(x))),
    "gelu": (act.gelu, lambda x: x * phi(x)),
    "gelu tanh": (lambda x: act.gelu(x, approximate="tanh"), tanh_gelu),
    "gelu_fast_approx": (act.gelu_fast_approx, lambda x: x * sigmoid(1.702 * x)),
}
POINTS = [-7.5, -2.2, -0.8, -0.3, 0.0, 0.2, 0.7, 1.9, 5.5, 9.0]


def gradient(fn, x, order: int = 1):
    with on_backend("reference"):
        one = lg.grad(lambda v: lg.sum(fn(v)))
        if order == 2:
            first = one
            one = lg.grad(lambda v: lg.sum(first(v)))
        return one(x).numpy()


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=str)
def test_values(name, dtype):
    fn, formula = FORMULAS[name]
    x = np.array(POINTS).astype(dtype).reshape(2, 5)
    expected = np.array([formula(float(v)) for v in x.reshape(-1)]).reshape(2, 5)
    # Products of rounded factors, and float32's 1 + erf, cost a little more than one rounding.
    check(fn, x, expected=expected, dtype=dtype, scale=4)


@pytest.mark.parametrize("name", FORMULAS)
def test_values_in_double(name):
    fn, formula = FORMULAS[name]
    x = np.array(POINTS)
    check(fn, x, expected=np.array([formula(v) for v in POINTS]), dtype=np.float64, backends=["reference"])


@pytest.mark.parametrize("name", FORMULAS)
def test_gradients(name):
    check_gradient(FORMULAS[name][0], np.array([[-7.5, -2.2, -0.8], [0.2, 1.9, 9.0]]))


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3)])
def test_shapes(name, shape):
    fn, formula = FORMULAS[name]
    x = np.full(shape, 0.7, np.float32)
    check(fn, x, expected=np.full(shape, formula(0.7), np.float32), dtype=np.float32, scale=4)
    assert gradient(fn, x).shape == shape


@pytest.mark.parametrize("name", [n for n in FORMULAS if n not in ("relu", "relu2", "relu6", "hard_shrink")])
def test_integers_become_float32(name):
    fn, formula = FORMULAS[name]
    check(fn, np.array([-2, 3], np.int8), expected=np.array([formula(-2), formula(3)]), dtype=np.float32, scale=4)


def test_relu_of_integers_stays_an_integer():
    check(act.relu, np.array([-2, 9], np.int8), expected=np.array([0, 9]), dtype=np.int8)
    check(act.relu6, np.array([-2, 9], np.int8), expected=np.array([0, 6]), dtype=np.int8)


@pytest.mark.parametrize("name", FORMULAS)
def test_complex_numbers_are_refused(name):
    with pytest.raises(DTypeError, match="complex"):
        FORMULAS[name][0](np.array([1j], np.complex64))


@pytest.mark.parametrize("name, left, right", [
    ("sigmoid", 0.0, 1.0), ("relu", 0.0, 1e4), ("softplus", 0.0, 1e4), ("log_sigmoid", -1e4, 0.0), ("elu", -1.3, 1e4),
    ("celu", -1.3, 1e4), ("silu", 0.0, 1e4), ("mish", 0.0, 1e4), ("gelu", 0.0, 1e4), ("gelu tanh", 0.0, 1e4),
    ("selu", -SCALE * ALPHA, SCALE * 1e4), ("hard_swish", 0.0, 1e4), ("softsign", -1e4 / 10001, 1e4 / 10001),
])  # fmt: skip
def test_nothing_overflows_far_out(name, left, right):
    fn = FORMULAS[name][0]
    check(fn, np.array([-1e4, 1e4], np.float32), expected=np.array([left, right]), dtype=np.float32)
    slope, curve = (gradient(fn, np.array([-1e4, 1e4], np.float32), order) for order in (1, 2))
    assert np.isfinite(slope).all() and np.isfinite(curve).all()
    far = gradient(fn, np.array([-1e30, 1e30], np.float32))
    assert np.isfinite(far).all()


@pytest.mark.parametrize("fn, at, slope", [
    (act.relu, 0.0, 0.0), (act.relu, -0.0, 0.0), (act.relu6, 0.0, 0.0), (act.relu6, 6.0, 0.0), (act.relu6, 5.9, 1.0),
    (lambda x: la.clip(x, 0, 6), 0.0, 0.0), (lambda x: la.clip(x, 0, 6), 6.0, 0.0),
    (lambda x: la.minimum(la.maximum(x, 0), 6), 0.0, 0.0), (lambda x: la.minimum(la.maximum(x, 0), 6), 6.0, 0.0),
    (lambda x: act.hard_tanh(x, 0.0, 6.0), 0.0, 0.0), (lambda x: act.hard_tanh(x, 0.0, 6.0), 6.0, 0.0),
    (act.elu, 0.0, 1.0), (act.celu, 0.0, 1.0), (act.softplus, 0.0, 0.5), (act.softplus, -INF, 0.0),
    (act.gelu, 0.0, 0.5),
    (act.log_sigmoid, -INF, 1.0), (act.log_sigmoid, INF, 0.0), (act.sigmoid, INF, 0.0), (act.sigmoid, -INF, 0.0),
    (act.softsign, 0.0, 1.0), (act.relu, NAN, 0.0), (act.silu, 0.0, 0.5),
    (act.hard_sigmoid, -3.0, 0.0), (act.hard_sigmoid, 3.0, 0.0), (act.leaky_relu, 0.0, 0.01),
])  # fmt: skip
def test_edge_gradients(fn, at, slope):
    np.testing.assert_allclose(gradient(fn, np.array(at)), slope, rtol=1e-14, atol=0)


def test_smooth_joints_have_second_derivatives():
    x = np.array(0.0)
    assert gradient(act.softplus, x, order=2) == 0.25
    assert gradient(act.silu, x, order=2) == 0.5
    np.testing.assert_allclose(gradient(act.gelu, x, order=2), 2 / math.sqrt(2 * math.pi), rtol=1e-14)


def test_infinities_and_nan():
    check(act.sigmoid, np.array([INF, -INF, NAN], np.float32), expected=np.array([1, 0, NAN]))
    check(act.relu, np.array([INF, -INF, NAN], np.float32), expected=np.array([INF, 0, NAN]))
    check(act.softplus, np.array([INF, -INF, NAN], np.float32), expected=np.array([INF, 0, NAN]))
    check(act.log_sigmoid, np.array([INF, -INF, NAN], np.float32), expected=np.array([0, -INF, NAN]))
    check(act.elu, np.array([INF, -INF, NAN], np.float32), expected=np.array([INF, -1, NAN]))


def test_prelu_has_a_gradient_in_its_slope():
    check_gradient(act.prelu, np.array([[-1.0, 2.0, -3.0], [0.5, -0.5, 1.5]]), np.array([0.1, 0.2, 0.3]))


def test_step():
    check(act.step, np.array([-1.0, 0.0, 2.0], np.float32), expected=np.array([0, 1, 1]), dtype=np.int64)
    check(lambda x: act.step(x, 2.0), np.array([1.9, 2.0], np.float32), expected=np.array([0, 1]))


def test_glu():
    x = np.array([[1.0, 2.0, 0.0, -1.0], [3.0, -1.0, 2.0, 0.5]], np.float32)
    last = [[row[k] * sigmoid(row[k + 2]) for k in (0, 1)] for row in x.tolist()]
    first = [[x[0, k] * sigmoid(float(x[1, k])) for k in range(4)]]
    check(act.glu, x, expected=np.array(last), dtype=np.float32)
    check(lambda v: act.glu(v, axis=0), x, expected=np.array(first), dtype=np.float32)
    check_gradient(lambda v: act.glu(v, 0), x.astype(np.float64))
    check(act.glu, np.zeros((3, 0), np.float32), expected=np.zeros((3, 0)))
    with pytest.raises(ShapeError, match="3"):
        act.glu(np.zeros(3))
    with pytest.raises(AxisError):
        act.glu(np.zeros((2, 2)), axis=2)


def test_unknown_approximation():
    with pytest.raises(DTypeError, match="sigmoid"):
        act.gelu(np.zeros(2), approximate="sigmoid")


def test_half_gradients_are_computed_in_float32():
    x = np.array([-2.0, -0.3, 0.7, 3.0], np.float16)
    exact = [phi(v) + v * math.exp(-v * v / 2) / math.sqrt(2 * math.pi) for v in x.astype(float)]
    np.testing.assert_allclose(gradient(act.gelu, x).astype(float), exact, rtol=2**-11, atol=1e-4)


def test_policies_under_autocast():
    half = np.array([1.0], np.float16)
    with lg.autocast(lg.float16):
        assert act.gelu(half).dtype == act.softplus(half).dtype == act.elu(half).dtype == lg.float32
        assert act.relu(half).dtype == act.silu(half).dtype == act.hard_tanh(half).dtype == lg.float16
    assert act.gelu(half).dtype == lg.float16
