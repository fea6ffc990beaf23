"""How exact results are, and that they do not depend on how a program is run."""

from math import fsum

import ml_dtypes
import numpy as np
import pytest

import lucidgraph as lg
from tests.accelerate.generated import generate
from tests.checking import on_backend

executor = pytest.importorskip("lucidgraph.runtime.accelerate.executor")


@pytest.fixture(autouse=True)
def threads():
    before = executor.EXECUTOR.threads
    yield
    lg.set_threads(before)


def bits(value):
    """The bytes of a result or of several."""
    values = value if isinstance(value, tuple | list) else (value,)
    return [(v.numpy() if isinstance(v, lg.Tensor) else np.asarray(v)).tobytes() for v in values]


def one_by_one(fn, *args):
    """The results op by op."""
    with on_backend("accelerate"), lg.disable_compile():
        return bits(lg.compile(fn)(*map(lg.asarray, args)))


# -- compiled whole and op by op

UNARY = (
    lg.exp, lg.expm1, lg.log, lg.log1p, lg.log2, lg.log10, lg.sin, lg.cos, lg.tan, lg.tanh, lg.sinh, lg.cosh, lg.asin,
    lg.acos, lg.atan, lg.asinh, lg.acosh, lg.atanh, lg.sqrt, lg.rsqrt, lg.erf, lg.sigmoid, lg.square, lg.floor, lg.sign,
    lg.nn.gelu, lg.nn.silu, lg.nn.softplus,
)  # fmt: skip


def _everything(x, y):
    """Products and sums that would contract, functions of functions, values used twice."""
    parts = [fn(x) * y + fn(x) for fn in UNARY]
    total = x * y + x
    for part in parts:
        total = lg.where(lg.isfinite(part), total * 0.5 + part * part, total - 1.0)
    return total, *parts, lg.pow(lg.abs(x), y), lg.atan2(x, y), x / y, lg.remainder(x, y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (5, 67)])
def test_elementwise_programs_are_the_same_op_by_op(dtype, shape):
    rng = np.random.default_rng(1)
    x, y = (rng.uniform(-3, 3, shape).astype(dtype) for _ in range(2))
    assert bits(lg.compile(_everything, backend="accelerate")(x, y)) == one_by_one(_everything, x, y)


def _extremes(x):
    top = x - lg.max(x, axis=1, keepdims=True)
    return (
        lg.exp(top) * lg.min(x, axis=0),
        lg.argmax(x * x, axis=0),
        lg.any(top > -0.5, axis=1),
        x @ lg.concat([x, x[:4]], axis=0),
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions_without_rounding_are_the_same_op_by_op(dtype):
    x = np.random.default_rng(2).standard_normal((37, 41)).astype(dtype)
    assert bits(lg.compile(_extremes, backend="accelerate")(x)) == one_by_one(_extremes, x)


@pytest.mark.parametrize("seed", range(8))
def test_exact_programs_are_the_same_op_by_op(seed):
    fn, args = generate(seed + 500, 25)
    assert bits(lg.compile(fn, backend="accelerate")(*args)) == one_by_one(fn, *args)


# -- twice, and on other numbers of threads


def _heavy(x, w):
    h = lg.nn.gelu(x @ w)
    loss = lg.mean(lg.logsumexp(h, axis=1)) + lg.var(x)
    return loss, lg.softmax(h, axis=1), lg.sum(h, axis=0), lg.sum(h * h), lg.nn.layer_norm(h)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_results_do_not_depend_on_threads(dtype):
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(s).astype(dtype) for s in ((517, 300), (300, 403)))
    program = lg.compile(lambda x, w: (_heavy(x, w), lg.grad(lambda v: _heavy(x, v)[0])(w)), backend="accelerate")
    found = []
    for count in (1, 2, 2, 1):
        lg.set_threads(count)
        loss, gradient = program(x, w)
        found.append((bits(loss), bits(gradient)))
    assert all(f == found[0] for f in found)


@pytest.mark.parametrize("shape", [(1_000_003,), (7, 300_001), (300_001, 7), (3, 100_003, 5)])
def test_long_sums_do_not_depend_on_threads(shape):
    x = np.random.default_rng(4).standard_normal(shape)
    axes = [None, *range(len(shape))]
    program = lg.compile(
        lambda x: tuple(f(x, axis=a) for f in (lg.sum, lg.prod, lg.mean) for a in axes), backend="accelerate"
    )
    found = []
    for count in (1, 2, 4):
        lg.set_threads(count)
        found.append(bits(program(x)))
    assert found[0] == found[1] == found[2]


# -- sums


@pytest.fixture(scope="module", params=["uniform", "normal"])
def many(request):
    """Ten million numbers; normal ones cancel."""
    rng = np.random.default_rng(5)
    x = (
        rng.random(10_000_000, np.float32)
        if request.param == "uniform"
        else rng.standard_normal(10_000_000, np.float32)
    )
    return x, fsum(x.tolist())


def near(actual, exact, rtol=1e-6):
    actual = np.asarray(actual)
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=rtol)


def test_sums_of_ten_million(many):
    x, exact = many
    total, mean, spread = lg.compile(lambda x: (lg.sum(x), lg.mean(x), lg.var(x)), backend="accelerate")(x)
    near(total, exact)
    near(mean, exact / x.size)
    near(spread, np.var(x, dtype=np.float64))
    near(
        lg.compile(lambda x: lg.sum(x * 3 - x), backend="accelerate")(x),
        np.sum((x * np.float32(3) - x).astype(np.float64)),
    )


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (1, 2), (0, 2)])
def test_sums_along_axes(many, axis):
    x = many[0].reshape(100, 1000, 100)
    total, mean, spread = lg.compile(
        lambda x: (lg.sum(x, axis=axis), lg.mean(x, axis=axis), lg.var(x, axis=axis)), backend="accelerate"
    )(x)
    wide = x.astype(np.float64)
    scale = np.abs(wide).sum(axis).max()
    np.testing.assert_allclose(total.astype(np.float64), wide.sum(axis), rtol=1e-6, atol=1e-7 * scale)
    count = wide.size // wide.sum(axis).size
    np.testing.assert_allclose(mean.astype(np.float64), wide.mean(axis), rtol=1e-6, atol=1e-7 * scale / count)
    near(spread, wide.var(axis))


@pytest.mark.parametrize(
    "view", [lambda x: x[::2, ::3], lambda x: x.T, lambda x: x[::-1, ::-7], lambda x: np.broadcast_to(x[:1], x.shape)],
    ids=["strided", "transposed", "reversed", "broadcast"],
)  # fmt: skip
def test_sums_of_layouts(many, view):
    x = view(many[0][:4_000_000].reshape(2000, 2000))
    program = lg.compile(lambda x: (lg.sum(x), lg.sum(x, axis=0), lg.sum(x, axis=1)), backend="accelerate")
    wide = x.astype(np.float64)
    for total, axis in zip(program(x), (None, 0, 1), strict=True):
        scale = np.abs(wide).sum(axis).max()
        np.testing.assert_allclose(total.astype(np.float64), wide.sum(axis), rtol=1e-6, atol=1e-7 * scale)


@pytest.mark.parametrize("shape", [(300, 1000), (1000, 30), (5, 7, 300)])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_finite_sums_do_not_overflow_on_the_way(shape, axis):
    """Neighbours whose sum float32 does not hold, along rows and along columns, and one value that is not finite."""
    x = np.full(shape, 3e38, np.float32)
    x[np.indices(shape).sum(0) // 8 % 2 == 1] *= -1
    program = lg.compile(lambda x: (lg.sum(x, axis=axis), lg.mean(lg.abs(x), axis=axis)), backend="accelerate")
    total, mean = program(x)
    with np.errstate(over="ignore"):
        exact = x.astype(np.float64).sum(axis).astype(np.float32)
    np.testing.assert_allclose(total, exact, rtol=1e-6)
    np.testing.assert_allclose(mean, np.full(np.shape(exact), 3e38), rtol=1e-6)
    x.flat[x.size // 2] = np.inf
    total = program(x)[0]
    with np.errstate(over="ignore"):
        exact = x.astype(np.float64).sum(axis).astype(np.float32)
    np.testing.assert_allclose(total, exact, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "bool"])
@pytest.mark.parametrize("shape", [(3, 140_001), (140_001, 3), (70_003, 70)])
def test_long_sums_of_narrow_integers_are_exact(dtype, shape):
    """Of their extremes, longer than any type narrower than the result could count."""
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for value in (low, high):
        x = np.full(shape, value, dtype)
        for axis in (None, 0, 1):
            total = lg.compile(lambda x, axis=axis: lg.sum(x, axis=axis), backend="accelerate")(x)
            np.testing.assert_array_equal(total, x.astype(np.int64).sum(axis).astype(total.dtype))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "bool"])
def test_sums_of_integers_are_exact(dtype):
    rng = np.random.default_rng(6)
    low, high = (0, 2) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = rng.integers(
        low, high, (301, 1001), dtype="uint8" if dtype == "bool" else dtype, endpoint=dtype != "bool"
    ).astype(dtype)
    program = lg.compile(lambda x: (lg.sum(x), lg.sum(x, axis=0), lg.sum(x, axis=1)), backend="accelerate")
    wide = np.uint64 if dtype.startswith("uint") else np.int64
    for total, axis in zip(program(x), (None, 0, 1), strict=True):
        assert total.dtype == wide
        np.testing.assert_array_equal(total, x.sum(axis, dtype=wide))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_halves_are_rounded_once(dtype):
    """Sums beyond what half precision can count to, products with a half between two halves."""
    ones = np.full(5000, 1, dtype)
    x = (np.arange(3000) % 7 * 0.125 + 1).astype(dtype)
    total, mean, square = lg.compile(
        lambda o, x: (lg.sum(o), lg.mean(x), lg.sum(x * x)), backend="accelerate"
    )(ones, x)  # fmt: skip
    wide = x.astype(np.float64)
    assert total == np.asarray(5000.0).astype(dtype)
    assert mean == np.asarray(wide.mean()).astype(dtype)
    # x·x is exact in float32; it may be rounded before the sum, as it is op by op.
    allowed = [wide * wide, (wide * wide).astype(dtype).astype(np.float64)]
    assert square in [np.asarray(a.sum()).astype(dtype) for a in allowed]
