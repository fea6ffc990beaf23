"""Arrays of given contents against NumPy's, with our default dtypes, and without captured arrays while tracing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucidgraph as lg
from lucidgraph.errors import DTypeError, ShapeError, UnsupportedError
from lucidgraph.lang import creation as lc
from tests.checking import check, check_gradient

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def same(ours, expected, dtype=None):
    check(lambda _: ours(), np.float32(0), expected=expected, dtype=dtype)


def test_filled():
    same(lambda: lc.full((2, 3), 7), np.full((2, 3), 7), "int64")
    same(lambda: lc.full(2, 0.5), [0.5, 0.5], "float32")
    same(lambda: lc.full((), True), True, "bool")
    same(lambda: lc.full((1,), 1j), [1j], "complex64")
    same(lambda: lc.full((2,), np.float64(0.1)), [0.1, 0.1], "float64")
    same(lambda: lc.full((2, 2), np.int8([1, 2])), [[1, 2], [1, 2]], "int8")
    same(lambda: lc.full((2,), 2**64 - 1, "uint64"), np.full(2, 2**64 - 1, np.uint64), "uint64")
    same(lambda: lc.zeros((0, 3)), np.zeros((0, 3)), "float32")
    same(lambda: lc.ones((3, 0), "bfloat16"), np.ones((3, 0)), "bfloat16")
    same(lambda: lc.empty(()), 0.0, "float32")
    same(lambda: lc.zeros(np.array([2, 1]), bool), np.zeros((2, 1)), "bool")


def test_filled_like():
    for dtype in ("bool", "int8", "float16", "complex64"):
        x = np.zeros((2, 1), dtype)
        same(lambda x=x: lc.ones_like(x), np.ones((2, 1)), dtype)
    same(lambda: lc.zeros_like(X, dtype="int32"), np.zeros((3, 4)), "int32")
    same(lambda: lc.full_like(X, 3, shape=(2,)), [3, 3], "float32")
    same(lambda: lc.empty_like(X), np.zeros((3, 4)), "float32")


def test_full_gives_its_value_the_gradient():
    check_gradient(lambda v: lc.full((2, 3), v * v), np.asarray(1.5))


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-9, 9).filter(bool))
def test_integer_ranges(start, stop, step):
    assert lc.arange(start, stop, step).tolist() == list(range(start, stop, step))


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0.1, 3), st.booleans())
def test_float_ranges(start, stop, step, down):
    step = -step if down else step
    expected = np.arange(start, stop, step)
    got = lc.arange(start, stop, step, dtype="float64").numpy()
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-13)


def test_range_dtypes():
    same(lambda: lc.arange(3), [0, 1, 2], "int64")
    same(lambda: lc.arange(3.0), [0, 1, 2], "float32")
    same(lambda: lc.arange(0, 2, dtype="complex64"), [0, 1], "complex64")
    same(lambda: lc.arange(2**64 - 2, 2**64, dtype="uint64"), np.array([2**64 - 2, 2**64 - 1], np.uint64), "uint64")
    same(lambda: lc.arange(-(2**63), 2**63, 2**62), [-(2**63), -(2**62), 0, 2**62], "int64")
    same(lambda: lc.arange(0, 5, 1.5, dtype="int32"), np.arange(0, 5, 1.5, dtype=np.int32), "int32")
    same(lambda: lc.arange(np.int16(4), np.int64(2), -1), [4, 3], "int64")
    # Every element is rounded once: 0.1 * k in float64, not a sum of float32.
    same(lambda: lc.arange(0, 100, 0.1), (np.arange(1000) * 0.1).astype(np.float32), "float32")


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("num", [0, 1, 2, 7])
def test_linspace(num, endpoint):
    narrow = np.linspace(0.1, 0.7, num, endpoint=endpoint)
    same(lambda: lc.linspace(0.1, 0.7, num, endpoint=endpoint), narrow, "float32")
    wide = np.linspace(-3, 11, num, endpoint=endpoint)
    same(lambda: lc.linspace(-3, 11, num, "float64", endpoint), wide, "float64")
    ends = np.float32([0, 1]), np.float32([3, 5])
    same(lambda: lc.linspace(*ends, num, endpoint=endpoint), np.linspace(*ends, num, endpoint=endpoint), "float32")


def test_linspace_ends_at_its_stop():
    for num in range(2, 60):
        assert lc.linspace(0, 0.1, num, "float64").tolist()[-1] == 0.1


@pytest.mark.parametrize("k", [-4, -1, 0, 2, 9])
def test_matrices(k):
    same(lambda: lc.eye(3, 4, k), np.eye(3, 4, k), "float32")
    same(lambda: lc.tri(3, 4, k, "int8"), np.tri(3, 4, k, np.int8), "int8")
    check(lambda x: lc.tril(x, k), X, expected=np.tril(X, k), dtype="float32")
    check(lambda x: lc.triu(x, k), X, expected=np.triu(X, k), dtype="float32")
    check(lambda x: lc.diag(x, k), X, expected=np.diag(X, k))
    check(lambda x: lc.diag(x, k), X[0], expected=np.diag(X[0], k))
    stacked = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    check(lambda x: lc.diagonal(x, k, -1, 0), stacked, expected=np.diagonal(stacked, k, -1, 0), dtype="int16")


def test_matrix_gradients():
    x = np.linspace(1, 2, 12).reshape(3, 4)
    for fn in (lc.tril, lc.triu, lambda v: lc.diagonal(v, 1), lambda v: lc.diag(lc.diagonal(v), -1)):
        check_gradient(lambda v, fn=fn: fn(v * v), x)


def test_tril_of_infinities_has_no_nan():
    check(lc.tril, np.full((2, 2), np.inf, np.float32), expected=[[np.inf, 0], [np.inf, np.inf]])


def test_identity_of_nothing():
    same(lambda: lc.identity(0), np.zeros((0, 0)), "float32")
    same(lambda: lc.eye(0, 3), np.zeros((0, 3)), "float32")


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sparse", [True, False])
def test_meshgrid(indexing, sparse):
    vectors = [np.arange(2), np.arange(3.0), np.arange(4)]
    for count in (0, 1, 2, 3):
        ours = lc.meshgrid(*vectors[:count], indexing=indexing, sparse=sparse)
        for got, want in zip(ours, np.meshgrid(*vectors[:count], indexing=indexing, sparse=sparse), strict=True):
            np.testing.assert_array_equal(got.numpy(), want)


def test_nothing_is_captured_while_tracing():
    def fn(x):
        made = lc.zeros((3, 4)), lc.full_like(x, 2), lc.eye(3, 4), lc.tril(x), lc.linspace(0, 1, 4), lc.arange(4)
        total = x
        for part in made:
            total = total + part
        return total

    assert lg.trace(fn, X).captured == ()


def test_array_copies():
    x = lg.asarray([1.0])
    assert lc.array(x) is not x
    assert lc.array(x, copy=None) is x
    source = np.float32([1, 2])
    made = lc.array(source)
    source[0] = 9
    assert made.tolist() == [1, 2]


def test_a_lifted_number_shapes_the_result():
    compiled = lg.compile(lambda n: lc.zeros((n, 2)) + lc.arange(2))
    assert compiled(3).shape == (3, 2)
    assert compiled(5).shape == (5, 2)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: lc.full((2,), 300, "uint8"), OverflowError),
        (lambda: lc.full((2,), -1, "uint64"), OverflowError),
        (lambda: lc.full((2,), 2**63), OverflowError),
        (lambda: lc.full((2,), float("inf"), "int32"), OverflowError),
        (lambda: lc.full((2,), float("nan"), "int32"), DTypeError),
        (lambda: lc.full((2,), 1j, "float32"), DTypeError),
        (lambda: lc.zeros((2, -1)), ShapeError),
        (lambda: lc.zeros(2.5), DTypeError),
        (lambda: lc.zeros("ab"), DTypeError),
        (lambda: lc.zeros(2, dtype="datetime64[s]"), DTypeError),
        (lambda: lc.arange(300, dtype="uint8"), OverflowError),
        (lambda: lc.arange(0, 1, 0), ShapeError),
        (lambda: lc.arange(float("inf")), ShapeError),
        (lambda: lc.arange(3, dtype=bool), DTypeError),
        (lambda: lc.arange(1j), DTypeError),
        (lambda: lc.linspace(0, 1, -1), ShapeError),
        (lambda: lc.tril(np.zeros(3)), ShapeError),
        (lambda: lc.diag(np.zeros((2, 2, 2))), ShapeError),
        (lambda: lc.meshgrid(np.zeros(2), indexing="yx"), UnsupportedError),
    ],
)
def test_refusals(call, error):
    with pytest.raises(error):
        call()


def test_traced_size_is_refused():
    def fn(x):
        return lc.zeros((lg.argmax(x),))

    with pytest.raises(lg.errors.ConcretizationError, match=r"test_creation\.py"):
        lg.compile(fn)(X)
