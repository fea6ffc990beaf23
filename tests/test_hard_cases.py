"""Inputs on which systems of this kind have gone wrong, each with the right answer: on every backend, compiled and
deferred, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from tests.checking import BACKENDS, assert_close, check, on_backend

F32, F64, I64, U64 = np.float32, np.float64, np.int64, np.uint64
INF, NAN = np.inf, np.nan
each_backend = pytest.mark.parametrize("backend", BACKENDS)


class Case:
    """``fn(*args)`` is ``expected``, in dtype, shape and value."""

    def __init__(self, fn: Callable[..., Any], *args: Any, expected: Any, dtype: Any = None) -> None:
        self.fn, self.args, self.expected, self.dtype = fn, args, expected, dtype

    def run(self) -> None:
        check(self.fn, *self.args, expected=self.expected, dtype=self.dtype)


class Slope(Case):
    """The gradient of the sum of ``fn(*args)`` with respect to the first argument is ``expected``."""

    def __init__(self, fn: Callable[..., Any], *args: Any, expected: Any, **more: Any) -> None:
        super().__init__(lg.grad(lambda *xs: lg.sum(fn(*xs))), *args, expected=expected, **more)


def f32(*values: Any) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, F32)


def cases(*table: Case) -> Any:
    return pytest.mark.parametrize("case", [pytest.param(c, id=str(k)) for k, c in enumerate(table)])


# -- reductions

U8 = np.full((10, 100), 255, np.uint8)
BIG = np.array([2**31 - 1] * 3, np.int32)
POWERS = np.array([3**20, 3**13], I64)
ODD = f32(3, NAN, 1, 5)
HALF_ONES = np.ones(70_000, np.float16)
CHECKERED = (512 * (-1.0) ** np.add.outer(np.arange(64), np.arange(64))).astype(np.float16)


@cases(
    Case(lambda x: lg.sum(x), U8, expected=255_000, dtype=U64),
    Case(lambda x: lg.sum(x, axis=0), U8, expected=np.full(100, 2550), dtype=U64),
    Case(lambda x: lg.sum(x), BIG, expected=6442450941, dtype=I64),
    Case(lambda x: lg.sum(x), np.array([2**53, 1, 1], I64), expected=9007199254740994, dtype=I64),
    Case(lambda x: lg.prod(x), POWERS, expected=3**33, dtype=I64),
    Case(lambda x: lg.prod(x, axis=0), np.array([True]), expected=1, dtype=I64),
    Case(lambda x: lg.prod(x), np.array([True, True]), expected=1, dtype=I64),
    Case(lambda x: lg.cumsum(x), np.array([100, 100], np.int8), expected=[100, 200], dtype=I64),
    Case(lambda x: lg.cumsum(x), np.array([True, True]), expected=[1, 2], dtype=I64),
    Case(lambda x: lg.mean(x), np.array([True, False]), expected=0.5, dtype=F32),
    Case(lambda x: lg.sum(x, axis=()), f32(1, 2), expected=[1, 2], dtype=F32),
    Case(lambda x: lg.sum(x, axis=()), np.array([True, False]), expected=[1, 0], dtype=I64),
    Case(lambda x: lg.sum(x, axis=0), np.zeros((0, 3), F32), expected=np.zeros(3), dtype=F32),
    Case(lambda x: lg.prod(x, axis=0), np.zeros((0, 3), F32), expected=np.ones(3), dtype=F32),
    Case(lambda x: lg.mean(x, axis=0), np.zeros((0, 3), F32), expected=np.full(3, NAN), dtype=F32),
    Case(lambda x: lg.max(x, axis=0), np.zeros((2, 0), F32), expected=np.zeros(0), dtype=F32),
    Case(lambda x: lg.mean(x), HALF_ONES, expected=1.0, dtype=np.float16),
    Case(lambda x: lg.sum(x), HALF_ONES, expected=INF, dtype=np.float16),
    Case(lambda x: (x - lg.mean(x)) / lg.std(x), CHECKERED, expected=CHECKERED / 512.0, dtype=np.float16),
    Case(lambda x: lg.argmax(x), ODD, expected=1, dtype=I64),
    Case(lambda x: lg.argmin(x), ODD, expected=1, dtype=I64),
    Case(lambda x: lg.max(x), ODD, expected=NAN),
    Case(lambda x: lg.min(x), ODD, expected=NAN),
    Case(lambda x: lg.any(x), f32([-0.0] * 70), expected=False),
    Case(lambda x: lg.var(x, correction=2), f32(1, 2), expected=NAN),
)
def test_reductions(case: Case) -> None:
    case.run()


@cases(
    Slope(lambda x: lg.sum(x, axis=()), f32(1, 2), expected=[1, 1]),
    Slope(lambda x: lg.mean(x, axis=None), f32([[1, 2], [3, 4]]), expected=np.full((2, 2), 0.25)),
    Slope(lambda x: (x**2).mean(0), f32(1, 2, 3, 4, 5), expected=2 * f32(1, 2, 3, 4, 5) / 5),
    Slope(lambda x: lg.var(x, correction=2), f32(1, 2), expected=[NAN, NAN]),
    Slope(lambda x: lg.std(x), f32(2, 2), expected=[0, 0]),
    Slope(lambda x: lg.sum(x, axis=0), np.zeros((0, 3), F32), expected=np.zeros((0, 3))),
)
def test_gradients_of_reductions(case: Case) -> None:
    case.run()


@pytest.mark.parametrize("axes", [(0, 2), (2, 0), (-1, 0), (0, 1, 2), (1,), -2])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "var", "std", "argmax"])
def test_gradients_over_tuples_equal_their_keepdims_versions(name: str, axes: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    reduce = getattr(lg, name)
    if name == "argmax":
        if isinstance(axes, tuple):
            return
        check(lambda x: reduce(x, axis=axes, keepdims=True), x, expected=np.argmax(x, axes, keepdims=True))
        return
    kept = np.sum(x, axis=axes, keepdims=True).shape
    weight = np.random.default_rng(1).standard_normal(kept)

    def plain(x: Any) -> Any:
        return lg.sum(reduce(x, axis=axes) * weight.reshape(np.sum(np.zeros(x.shape), axes).shape))

    def keeping(x: Any) -> Any:
        return lg.sum(reduce(x, axis=axes, keepdims=True) * weight)

    expected = lg.grad(keeping)(x).numpy()
    check(lg.grad(plain), x, expected=expected)
    check(lg.grad(keeping), x, expected=expected)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1, -1), ()])
def test_every_reduction_agrees_with_numpy_in_shape_and_nans(axis: Any, keepdims: bool) -> None:
    x = np.random.default_rng(2).standard_normal((2, 3, 4))
    x[1, 2, 3] = NAN
    for name in ("sum", "prod", "mean", "max", "min", "var", "std", "any", "all"):
        ours, theirs = getattr(lg, name), getattr(np, name)
        check(lambda x, f=ours: f(x, axis=axis, keepdims=keepdims), x, expected=theirs(x, axis=axis, keepdims=keepdims))
    check(lambda x: lg.linalg.vector_norm(x, axis=axis, keepdims=keepdims), x,
          expected=np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims)))  # fmt: skip


@each_backend
def test_empty_and_doubled_axes_are_refused_by_name(backend: str) -> None:
    x = np.zeros((2, 0, 3), F32)
    for fn, message in (
        (lambda x: lg.max(x, axis=1), "axis 1"), (lambda x: lg.min(x, axis=(1, 2)), "axis 1"),
        (lambda x: lg.argmax(x, axis=1), "axis 1"), (lambda x: lg.sum(x, axis=(1, -2)), "twice"),
        (lambda x: lg.mean(x, axis=(0, 3)), "axis 3"), (lambda x: lg.argmin(x), "empty"),
    ):  # fmt: skip
        for run in (lg.compile(fn, backend=backend), lambda x, fn=fn: fn(lg.asarray(x)).numpy()):
            with on_backend(backend), pytest.raises(lg.AxisError, match=message):
                run(x)


def test_variance_far_from_zero() -> None:
    x = (1e6 + 10 * np.random.default_rng(3).standard_normal(10_000)).astype(F32)
    check(lambda x: lg.var(x), x, expected=np.var(x.astype(F64)), dtype=F32, scale=50)


# -- broadcasting and its gradients


@pytest.mark.parametrize("fn", [lambda x, y: x + y, lambda x, y: lg.broadcast_to(x, (2, 3)), lambda x, y: x - y])
def test_no_reduction_where_nothing_was_broadcast(fn: Any) -> None:
    x = np.ones((2, 3), F32)
    joint = lg.trace(fn, x, x).backward(wrt=[0])
    assert "sum" not in [n.name for n in joint.nodes]
    assert joint.outputs[-1] is joint.inputs[-1]


BINARY = [lg.add, lg.subtract, lg.multiply, lg.divide, lg.maximum, lg.minimum, lg.atan2, lg.pow, lg.hypot, lg.logaddexp]


@pytest.mark.parametrize("shapes", [((1, 3), (2, 1)), ((3,), (4, 1, 3)), ((), (2, 3)), ((2, 0), (1, 1)), ((1,), ())])
def test_gradients_have_the_shapes_of_their_operands(shapes: Any) -> None:
    x, y = (np.full(s, v, F64) for s, v in zip(shapes, (1.5, 2.5), strict=True))
    count = np.broadcast_shapes(*shapes)
    size = int(np.prod(count))
    for op in BINARY:
        both = lg.grad(lambda x, y, op=op: lg.sum(op(x, y)), (0, 1))
        one = [float(g) for g in lg.grad(lambda x, y, op=op: op(x, y), (0, 1))(F64(1.5), F64(2.5))]
        expected = tuple(np.full(s, d * size / max(np.prod(s), 1)) for s, d in zip(shapes, one, strict=True))
        for backend in BACKENDS:
            with on_backend(backend):
                for g, e in zip(lg.compile(both)(x, y), expected, strict=True):
                    assert_close(g, e, scale=1e3)


def test_gradient_of_a_row_that_was_set() -> None:
    def fn(v: Any) -> Any:
        x = lg.zeros((1, 2))
        x[0] = v
        return lg.sum(x)

    check(lg.grad(fn), f32(3, 4), expected=[1, 1])


# -- dtypes


@cases(
    Case(lambda x: x * 0.1, np.array([3.0, 7.0]), expected=np.array([3.0, 7.0]) * 0.1, dtype=F64),
    Case(lambda x, y: x + y, np.ones(2, np.float16), np.ones(2, lg.bfloat16.numpy), expected=[2, 2], dtype=F32),
    Case(lambda x, y: x + y, np.float16(1), np.ones((), lg.bfloat16.numpy), expected=2, dtype=F32),
    Case(lambda x, y: x + y, np.array([2**32 - 1], np.uint32), np.array([1], np.int8), expected=[2**32], dtype=I64),
    Case(lambda x, y: x << y, np.array([3], np.int8), np.array([2], np.int8), expected=[12], dtype=np.int8),
    Case(lambda x: x < -1, np.array([1], np.uint8), expected=[False]),
    Case(lambda x: x + 10, np.ones(2, lg.bfloat16.numpy), expected=[11, 11], dtype=lg.bfloat16),
    Case(lambda x, y: x + y, np.array([5], U64), np.array([3], np.int32), expected=[8], dtype=F32),
    Case(lambda x: lg.exp(x), np.array([0, 1]), expected=np.exp([0.0, 1.0]), dtype=F32),
    Case(lambda x: x / 2, np.array([1, 3]), expected=[0.5, 1.5], dtype=F32),
    Case(lambda x: x // 0, np.array([1, -3]), expected=[0, 0], dtype=I64),
    Case(lambda x: x % 0, np.array([1, -3]), expected=[0, 0], dtype=I64),
    Case(lambda x, y: x // y, np.array([-(2**31)], np.int32), np.array([-1], np.int32), expected=[-(2**31)]),
    Case(lambda x, y: x**y, np.array([2, 1, -1, 0]), np.array([-1, -2, -3, -1]), expected=[0, 0, 0, 0]),
    Case(lambda x: lg.sign(x), f32(NAN, -0.0, 2), expected=[NAN, -0.0, 1]),
)
def test_dtypes(case: Case) -> None:
    case.run()


@each_backend
@pytest.mark.parametrize("factor", [1 / 3, 128**-0.5, 0.1, 1e-30])
def test_constants_have_the_same_bits_compiled_and_not(backend: str, factor: float) -> None:
    x = np.random.default_rng(4).standard_normal(100).astype(F32)
    with on_backend(backend):
        np.testing.assert_array_equal(lg.compile(lambda x: x * factor)(x), (lg.asarray(x) * factor).numpy())
        np.testing.assert_array_equal(lg.compile(lambda x: x * factor)(x), x * F32(factor))


@pytest.mark.parametrize(
    "fn, args, kind",
    [
        (lambda x: x + 300, (np.ones(1, np.int8),), OverflowError),
        (lambda x: x & x, (f32(1, 2),), lg.DTypeError),
        (lambda x: x ** -1, (np.array([2]),), lg.DTypeError),
        (lambda x: ~x, (f32(1),), lg.DTypeError),
        (lambda x: x @ x, (np.ones((2, 2), bool),), lg.DTypeError),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_traced_and_untraced(fn: Any, args: Any, kind: type[Exception]) -> None:
    for run in (lambda: lg.trace(fn, *args), lambda: fn(*map(lg.asarray, args)), lambda: lg.compile(fn)(*args)):
        with pytest.raises(kind):
            run()


@pytest.mark.parametrize("fn, x", [
    (lambda x: lg.softmax(x), np.array([1, 2])), (lambda x: lg.sqrt(x), np.array([4])),
    (lambda x: ~x, np.array([True, False])),
])  # fmt: skip
def test_what_is_accepted_is_accepted_traced_and_untraced(fn: Any, x: Any) -> None:
    traced, deferred = lg.trace(fn, x).outputs[0].type, fn(lg.asarray(x))
    assert (traced.shape, traced.dtype) == (deferred.shape, deferred.dtype)
    check(fn, x, expected=deferred.numpy(), dtype=deferred.dtype)


def test_lossy_promotion_is_noted() -> None:
    graph = lg.trace(lambda x, y: x + y, np.ones(1, U64), np.ones(1, np.int32), passes=())
    assert "uint64 with int32 gives float32" in graph.nodes[-1].lint and "lint:" in str(graph)


# -- gradients at edge points


def clipped(x: Any) -> Any:
    return lg.clip(x, 0, 6)


@cases(
    Slope(lambda x: lg.where(x > 0, lg.sqrt(x), 0), f32(0, 4), expected=[0, 0.25]),
    Slope(lambda x: lg.maximum(lg.sqrt(x), 1e-10), f32(0, 4), expected=[0, 0.25]),
    Slope(lambda x: lg.where(x >= 0, x, lg.sqrt(-x)), f32(1), expected=1),
    Slope(lambda x: lg.linalg.norm(x), np.zeros(3, F32), expected=np.zeros(3)),
    Slope(lambda a, n: lg.where(n > 0, a / n, 0), f32([2, 2]), f32([0, 4]), expected=[0, 0.25]),
    Slope(lambda n, a: lg.where(n > 0, a / n, 0), f32([0, 4]), f32([2, 2]), expected=[0, -0.125]),
    Slope(lambda x: x**2, f32([0, 3]), expected=[0, 6]),
    Slope(lambda x: x**2.0, f32([0, 3]), expected=[0, 6]),
    Slope(lambda x, e: x**e, f32([0, 3]), f32([2, 2]), expected=[0, 6]),
    Slope(lambda x: x**0, f32([0, 3]), expected=[0, 0]),
    Slope(lambda x, e: x**e, f32([0]), f32([0]), expected=[0]),
    Slope(lambda x: x**1, f32([-2, 0]), expected=[1, 1]),
    Slope(lambda e, b: b**e, f32([1, 2]), f32([0, -2]), expected=[0, NAN]),
    Slope(lambda x: lg.prod(x), f32(0, 2, 3), expected=[6, 0, 0]),
    Slope(lambda x: lg.prod(x), f32(0, 0, 3), expected=[0, 0, 0]),
    Slope(lambda x: lg.cumprod(x), f32(0, 2, 3), expected=[9, 0, 0]),
    Slope(lambda x: lg.cumprod(x, reverse=True), f32(3, 2, 0), expected=[0, 0, 9]),
    Slope(lambda x: lg.cumprod(x, inclusive=False), f32(0, 2, 3), expected=[3, 0, 0]),
    Slope(lambda a, b: lg.maximum(a, b), f32([2, 1]), f32([2, 3]), expected=[0.5, 0]),
    Slope(lambda a, b: lg.maximum(b, a), f32([2, 1]), f32([2, 3]), expected=[0.5, 0]),
    Slope(lambda a, b: lg.minimum(a, b), f32([2, 1]), f32([2, 3]), expected=[0.5, 1]),
    Slope(lambda a: lg.maximum(a, a), f32([2, 1]), expected=[1, 1]),
    Slope(clipped, f32(-1, 0, 3, 6, 7), expected=[0, 0, 1, 0, 0]),
    Slope(lambda x: lg.minimum(lg.maximum(x, 0), 6), f32(-1, 0, 3, 6, 7), expected=[0, 0, 1, 0, 0]),
    Slope(lg.nn.relu6, f32(-1, 0, 3, 6, 7), expected=[0, 0, 1, 0, 0]),
    Slope(lg.nn.hard_tanh, f32(-2, -1, 0, 1, 2), expected=[0, 0, 1, 0, 0]),
    Slope(lambda x: lg.max(x), f32(2, 1, 2), expected=[0.5, 0, 0.5]),
    Slope(lambda x: lg.min(x), f32(2, 1, 1), expected=[0, 0.5, 0.5]),
    Slope(lambda x: lg.logsumexp(x), f32(-INF, -INF), expected=[0, 0]),
    Slope(lambda x, y: lg.logaddexp(x, y), f32([-INF, 0]), f32([-INF, 0]), expected=[0, 0.5]),
    Slope(lambda x: lg.logsumexp(lg.where(x < 100, x, -INF)), f32(1, 10000, 1), expected=[0.5, 0, 0.5]),
    Slope(lambda x: lg.softmax(lg.where(x < 100, x, -INF))[0], f32(1, 10000, 1), expected=[0.25, 0, -0.25]),
    Slope(lambda x: x[[0, 0, 1]], f32(5, 6, 7), expected=[2, 1, 0]),
    Slope(lambda x: lg.abs(x), f32(0, -0.0, -3), expected=[0, 0, -1]),
    Slope(lambda x: lg.sign(x), f32(0, -0.0, -3), expected=[0, 0, 0]),
    Slope(lg.nn.relu, f32(0, -0.0, 3), expected=[0, 0, 1]),
    Slope(lambda w, x: x[lg.argmax(w)], f32(1, 3, 2), f32(5, 6, 7), expected=[0, 0, 0]),
    Slope(lambda x: lg.floor(x) * x + lg.round(x), f32(1.5), expected=1),
    Slope(lambda x: x.at[[0, 0]].add(x[:2] * 2), f32(1, 2, 3), expected=[3, 3, 1]),
    Slope(lambda x: x.at[[0, 0]].set(x[1:]), f32(1, 2, 3), expected=[0, 1, 2]),
    Slope(lambda v: lg.zeros(2).at[[0, 0, 1]].set(v), f32(1, 2, 3), expected=[0, 1, 1]),
)
def test_gradients_at_edge_points(case: Case) -> None:
    case.run()


@cases(
    Case(lambda x: lg.logsumexp(x), f32(-INF, -INF), expected=-INF),
    Case(lambda x, y: lg.logaddexp(x, y), f32(-INF), f32(-INF), expected=-INF),
    Case(lambda x: lg.softmax(x), f32(-INF, -INF), expected=[NAN, NAN]),
)
def test_values_at_edge_points(case: Case) -> None:
    case.run()


def test_layer_norm_without_bias_to_second_order() -> None:
    def written(x: Any, w: Any) -> Any:
        centred = x - lg.mean(x, axis=-1, keepdims=True)
        return centred / lg.sqrt(lg.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * w

    def second(fn: Any) -> Any:
        def outer(x: Any, w: Any) -> Any:
            gx, gw = lg.grad(lambda x, w: lg.sum(fn(x, w) ** 3), (0, 1))(x, w)
            return lg.sum(gx * gx) + lg.sum(gw * x[0])

        return lg.grad(outer)

    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((3, 5)), rng.standard_normal(5)
    expected = second(written)(x, w).numpy()
    check(second(lambda x, w: lg.nn.layer_norm(x, w)), x, w, expected=expected, scale=1e3)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lg.sum, "mean": lg.mean, "max": lg.max, "min": lg.min, "prod": lg.prod, "var": lg.var, "std": lg.std,
    "logsumexp": lg.logsumexp,
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_adjoints_of_reductions(name: str) -> None:
    """<w, J v> = <Jᵀ w, v>, with J v by differences."""
    rng = np.random.default_rng(6)
    x, v = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 3, 4))
    for axis in (None, 0, (1, 2), -1, ()):
        for keepdims in (False, True):

            def fn(x: Any, axis: Any = axis, keepdims: bool = keepdims) -> Any:
                return REDUCTIONS[name](x, axis=axis, keepdims=keepdims)

            with on_backend("reference"):
                out, pullback = lg.vjp(fn, x)
                w = rng.standard_normal(out.shape)
                (jtw,) = pullback(w)
                jv = (fn(lg.asarray(x + 1e-6 * v)).numpy() - fn(lg.asarray(x - 1e-6 * v)).numpy()) / 2e-6
            np.testing.assert_allclose(np.sum(w * jv), np.sum(jtw.numpy() * v), rtol=1e-6, atol=1e-8)


# -- compile and tracing


@each_backend
def test_what_must_not_be_merged(backend: str) -> None:
    def fn(x: Any) -> Any:
        return (
            lg.log(x), lg.log2(x), lg.array_equal(x, x), lg.array_equal(x, x, equal_nan=True), lg.sum(x, axis=0),
            lg.sum(x, axis=0, keepdims=True), lg.astype(x, lg.float64), lg.astype(x, lg.float16), x * 0.0, x * -0.0,
            x + NAN, x + INF, lg.full((2,), 1), lg.full((2,), 1.0), lg.full((2,), True), lg.var(x),
            lg.var(x, correction=1),
        )  # fmt: skip

    x = f32(2, NAN)
    compiled = lg.compile(fn, backend=backend)(x)
    with on_backend(backend):
        single = [r.numpy() for r in fn(lg.asarray(x))]
    for a, b in zip(compiled, single, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a[:1] if a.ndim else a), np.signbit(b[:1] if b.ndim else b))
    assert compiled[2] == False and compiled[3] == True  # noqa: E712
    assert np.signbit(compiled[9][0]) and not np.signbit(compiled[8][0])


def test_twenty_thousand_additions_of_one_constant() -> None:
    def fn(x: Any) -> Any:
        for _ in range(20_000):
            x = x + 1.0
        return x

    graph = lg.trace(fn, F64(0))
    assert len([n for n in graph.nodes if n.name == "add"]) == 20_000 and len(graph.digest) == 64


@each_backend
def test_the_same_value_with_and_without_stop_gradient(backend: str) -> None:
    def fn(x: Any) -> Any:
        y = x * x
        return lg.sum(y) + lg.sum(lg.stop_gradient(y))

    with on_backend(backend):
        g = lg.compile(lg.grad(fn))(f32(1, 2))
    assert g.tolist() == [2, 4]


# -- arrays from outside

SHAPES = [(0,), (0, 3), (3, 0)]
UNARY = ["exp", "log1p", "tanh", "abs", "sqrt", "square", "sign", "floor", "sigmoid", "isnan", "negative"]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_empty_arrays_everywhere(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, F32)
    fns: list[Callable[[Any], Any]] = [getattr(lg, name) for name in UNARY]
    fns += [
        lambda x: x + x, lambda x: x * 2 - 1, lambda x: lg.where(x > 0, x, 0.0), lambda x: lg.softmax(x, axis=-1),
        lambda x: lg.concat([x, x]), lambda x: lg.stack([x, x]), lambda x: x.T, lambda x: x[::-1], lambda x: lg.sum(x),
        lambda x: lg.sum(x, axis=0), lambda x: lg.mean(x, axis=-1), lambda x: lg.prod(x), lambda x: lg.pad(x, 1),
        lambda x: lg.any(x), lambda x: lg.all(x), lambda x: lg.cumsum(x, axis=-1), lambda x: lg.flip(x),
        lambda x: lg.expand_dims(x, 0), lambda x: lg.ravel(x), lambda x: lg.roll(x, 1), lambda x: x @ x.T,
        lambda x: lg.nn.gelu(x), lambda x: lg.maximum(x, 0), lambda x: lg.clip(x, 0, 1), lambda x: x.at[...].add(1.0),
        lambda x: lg.take(x, np.zeros(0, int), axis=0), lambda x: lg.broadcast_to(x, (2, *x.shape)),
    ]  # fmt: skip
    for fn in fns:
        with on_backend("reference"):
            expected = fn(lg.asarray(x)).numpy()
        check(fn, x, expected=expected, dtype=expected.dtype)

        def scalar(x: Any, fn: Callable[[Any], Any] = fn) -> Any:
            return lg.sum(lg.astype(fn(x), lg.float32))

        check(lg.grad(scalar), x, expected=np.zeros(shape))


def test_products_of_empty_matrices() -> None:
    check(lambda a, b: a @ b, np.zeros((2, 0), F32), np.zeros((0, 3), F32), expected=np.zeros((2, 3)))
    check(lg.grad(lambda a, b: lg.sum(a @ b)), np.zeros((2, 0), F32), np.zeros((0, 3), F32), expected=np.zeros((2, 0)))
    check(lambda a, b: a @ b, np.zeros((0, 2), F32), np.zeros((2, 3), F32), expected=np.zeros((0, 3)))
    check(lambda a, b: a @ b, np.zeros((4, 0, 2), F32), np.zeros((4, 2, 3), F32), expected=np.zeros((4, 0, 3)))


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("f, oracle", [(lg.var, np.var), (lg.std, np.std)])
def test_the_variance_of_complex_numbers_is_real(f: Any, oracle: Any, axis: int | None) -> None:
    rng = np.random.default_rng(3)
    z, step = (rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4)) for _ in range(2))
    check(lambda z: f(z, axis=axis), z.astype(np.complex64), expected=oracle(z.astype(np.complex64), axis), dtype=F32,
          scale=4)  # fmt: skip
    slope = lg.grad(lambda z: lg.sum(lg.square(f(z, axis=axis))))(z)
    away = [np.sum(oracle(z + h * step, axis) ** 2) for h in (1e-5, -1e-5)]
    np.testing.assert_allclose(np.sum(slope.numpy() * step).real, (away[0] - away[1]) / 2e-5, rtol=1e-6)
