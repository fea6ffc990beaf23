"""Reductions: values, dtypes, axes and gradients, on every backend."""

import math

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.wiring import backend
from tests.checking import BACKENDS, check, check_gradient, results

rng = np.random.default_rng(3)
AXES = [None, 0, -1, 1, (0, 2), (2, 0), (-1, 0), (0, 1, 2), ()]
NUMPY = {
    "sum": np.sum, "mean": np.mean, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all,
    "var": np.var, "std": np.std,
}  # fmt: skip


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", NUMPY)
def test_axes_and_shapes(name: str, axis: object, keepdims: bool) -> None:
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    x[0, 1] = 0
    expected = NUMPY[name](x.astype(np.float64), axis=axis, keepdims=keepdims)
    check(lambda x: getattr(lg, name)(x, axis=axis, keepdims=keepdims), x, expected=expected, scale=2)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arguments_of_extremes(name: str, axis: int | None, keepdims: bool) -> None:
    x = rng.integers(0, 4, (3, 5)).astype(np.float32)  # with ties
    x[1, 2] = np.nan
    expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    check(lambda x: getattr(lg, name)(x, axis=axis, keepdims=keepdims), x, expected=expected, dtype=lg.int64)


@pytest.mark.parametrize(
    ("dtype", "taken"),
    [("bool", "int64"), ("int8", "int64"), ("int32", "int64"), ("int64", "int64"), ("uint8", "uint64"),
     ("uint64", "uint64"), ("float16", "float16"), ("float32", "float32"), ("float64", "float64"),
     ("complex64", "complex64")],
)  # fmt: skip
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_dtypes_of_sums_and_products(name: str, dtype: str, taken: str) -> None:
    x = rng.integers(0, 3, (4, 5)).astype(dtype)
    wide = x.astype(taken if taken != "float16" else "float64")
    check(lambda x: getattr(lg, name)(x, axis=1), x, expected=NUMPY[name](wide, axis=1), dtype=taken)


def test_integers_are_exact() -> None:
    check(lg.sum, np.full(1000, 255, np.uint8), expected=255_000, dtype=lg.uint64)
    check(lg.sum, np.full(3, 2**31 - 1, np.int32), expected=6_442_450_941, dtype=lg.int64)
    check(lg.sum, np.array([2**53, 1, 1]), expected=9_007_199_254_740_994)
    check(lg.prod, np.array([3**20, 3**13]), expected=3**33)
    check(lambda x: lg.prod(x, axis=0), np.array([True]), expected=1, dtype=lg.int64)


def test_asked_dtype_is_taken_first() -> None:
    check(lambda x: lg.sum(x, dtype=lg.int8), np.full(3, 100, np.int32), expected=44, dtype=lg.int8)
    check(lambda x: lg.sum(x, dtype=lg.float64), np.full(3, 0.5, np.float32), expected=1.5, dtype=lg.float64)


def test_nothing_to_reduce() -> None:
    empty = np.zeros((0, 3), np.float32)
    check(lambda x: lg.sum(x, axis=0), empty, expected=np.zeros(3))
    check(lambda x: lg.prod(x, axis=0), empty, expected=np.ones(3))
    check(lambda x: lg.mean(x, axis=0), empty, expected=np.full(3, np.nan))
    check(lambda x: lg.max(x, axis=0), np.zeros((2, 0), np.float32), expected=np.zeros(0))
    check(lambda x: lg.sum(x, axis=()), np.ones(3, bool), expected=np.ones(3, np.int64), dtype=lg.int64)
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(lg.AxisError, match="axis 0"):
            lg.trace(lambda x, name=name: getattr(lg, name)(x, axis=0), empty)


@pytest.mark.parametrize("axis", [3, -4, (0, 0), (1, -2)])
def test_bad_axes_name_the_line(axis: object) -> None:
    with pytest.raises(lg.AxisError, match=r"test_reduce\.py"):
        lg.trace(lambda x: lg.sum(x, axis=axis), np.ones((2, 3, 4)))


def test_half_precision_is_rounded_once() -> None:
    check(lg.mean, np.ones(70_000, np.float16), expected=1.0, dtype=lg.float16)
    check(lg.sum, np.ones(70_000, np.float16), expected=np.inf, dtype=lg.float16)
    x = rng.standard_normal(5000).astype(np.float16)
    exact = np.float16(math.fsum(map(float, x)))
    check(lg.sum, x, expected=exact, scale=0.5)


def test_variance_of_large_offsets() -> None:
    x = (1e6 + 10 * rng.standard_normal(10_000)).astype(np.float32)
    for name in BACKENDS:
        for how, value in results(lg.var, x, backend=name):
            np.testing.assert_allclose(value, x.astype(np.float64).var(), rtol=1e-4, err_msg=f"{name}, {how}")


def test_variance_of_complex_numbers() -> None:
    x = (rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4))).astype(np.complex64)
    check(lambda x: lg.var(x, axis=1), x, expected=x.astype(np.complex128).var(1), dtype=lg.float32)


def test_correction() -> None:
    x = rng.standard_normal((4, 3)).astype(np.float32)
    check(lambda x: lg.var(x, axis=0, correction=1), x, expected=x.astype(np.float64).var(0, ddof=1))
    check(lambda x: lg.std(x, axis=1, correction=3.0), x, expected=np.full(4, np.nan))


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "var", "std"])
@pytest.mark.parametrize("axis", [None, 0, (0, 2), (-1, 1), ()], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 5, 1)], ids=str)
def test_gradients(name: str, axis: object, shape: tuple[int, ...]) -> None:
    single = np.sum(np.ones(shape), axis=axis).flat[0] == 1
    order = 1 if name == "std" and single else 2  # the deviation of single elements has a corner there
    for keepdims in (False, True):
        fn = lambda x, k=keepdims: getattr(lg, name)(x, axis=axis, keepdims=k)  # noqa: E731
        check_gradient(fn, rng.standard_normal(shape), order=order)


@pytest.mark.parametrize("backend_name", BACKENDS)
def test_gradients_at_edge_points(backend_name: str) -> None:
    def slope(fn, *values):
        return lg.compile(lg.grad(fn), backend=backend_name)(np.array(values, np.float32))

    np.testing.assert_array_equal(slope(lg.prod, 0, 2, 3), [6, 0, 0])
    np.testing.assert_array_equal(slope(lg.prod, 0, 0, 3), [0, 0, 0])
    np.testing.assert_array_equal(slope(lg.std, 2, 2), [0, 0])
    np.testing.assert_array_equal(slope(lg.max, 1, 3, 3, 0), [0, 0.5, 0.5, 0])
    np.testing.assert_array_equal(slope(lambda x: lg.sum(lg.sum(x, axis=())), 1, 2), [1, 1])
    np.testing.assert_allclose(slope(lambda x: lg.mean(x**2, axis=0), 1, 2, 3, 4, 5), np.arange(1, 6) * 0.4, rtol=1e-6)


@pytest.mark.parametrize("axis", [(0, 2), (2, 0), (-1, 0)])
def test_gradients_keep_their_places(axis: tuple[int, int]) -> None:
    """With a cotangent that differs from place to place, the form without keepdims equals the form with them."""
    x = rng.standard_normal((2, 3, 4))
    weights = rng.standard_normal(3)
    plain = lg.grad(lambda x: lg.sum(lg.mean(x * x, axis=axis) * weights))(x)
    kept = lg.grad(lambda x: lg.sum(lg.mean(x * x, axis=axis, keepdims=True) * weights[None, :, None]))(x)
    np.testing.assert_array_equal(plain.numpy(), kept.numpy())
    np.testing.assert_allclose(plain.numpy(), 2 * x * weights[None, :, None] / 8, rtol=1e-6)


class TestSeedOp:
    """The one page about ``SumBackward`` that every op follows."""

    op = lg.ops.SumBackward

    def test_schema(self) -> None:
        schema = self.op.schema_v1
        assert (schema.name, schema.version) == ("sum", 1)
        assert schema.amp_policy is lg.AmpPolicy.PROMOTE
        assert self.op.kSavesInput is False and self.op.kSavesOutput is False

    @pytest.mark.parametrize("backend_name", BACKENDS)
    def test_dispatch(self, backend_name: str) -> None:
        be = backend(backend_name)
        counted = self.op.dispatch(be, np.ones((4, 3), bool), (4, 3), (1,), False, lg.int64)
        np.testing.assert_array_equal(be.to_numpy(counted), np.full(4, 3))
        nothing = self.op.dispatch(be, np.zeros((0, 3), np.float32), (0, 3), (0,), True, lg.float32)
        np.testing.assert_array_equal(be.to_numpy(nothing), np.zeros((1, 3)))

    def test_backward_is_expand_and_broadcast_and_nothing_more(self) -> None:
        joint = lg.trace(lambda x: lg.sum(x, axis=1), np.ones((4, 3), np.float32)).backward()
        assert [n.name for n in joint.nodes if n.origin] == ["expand_dims", "broadcast_to"]

    def test_scale_graph_grad_puts_the_one_node_more_of_mean(self, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = lg.trace(lambda x: lg.mean(x, axis=1), np.ones((4, 3), np.float32))
        arithmetic = [n.name for n in graph.backward().nodes if n.origin and n.name in ("multiply", "divide")]
        assert arithmetic == ["multiply"]
        monkeypatch.setattr(lg.ops.MeanBackward, "scale_graph_grad", lambda self, g: g)
        assert not [n for n in graph.backward().nodes if n.origin and n.name in ("multiply", "divide")]

    def test_residuals_are_empty(self) -> None:
        graph = lg.trace(lambda x: lg.mean(lg.sum(x + 1, axis=1).reshape(2, 2)), np.ones((4, 3), np.float32))
        assert len(graph.residuals()) == 0
