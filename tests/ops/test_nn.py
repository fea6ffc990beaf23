"""Softmax, normalisation and losses, against their formulas in NumPy's float64."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import ml_dtypes
import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.lang import nn
from lucidgraph.lang.arithmetic import where
from lucidgraph.lang.index import take
from lucidgraph.lang.math import sqrt
from lucidgraph.lang.shape import reshape
from tests.checking import BACKENDS, assert_close, check, check_gradient

rng = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def single(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def logsumexp(x: np.ndarray, axis: object = None, keepdims: bool = False) -> np.ndarray:
    return np.log(np.exp(x).sum(axis, keepdims=keepdims))


def standardized(x: np.ndarray, axis: object = -1, eps: float = 1e-5) -> np.ndarray:
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + eps)


def gradient(fn: Callable[..., lg.Tensor], x: np.ndarray) -> np.ndarray:
    """The gradient of Σ fn(x), compiled."""
    result: np.ndarray = lg.compile(lg.grad(lambda x: lg.sum(fn(x))))(x)
    return result


# -- softmax and its relatives


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_values_and_gradients(axis: int) -> None:
    x = single(2, 3, 4)
    wide = x.astype(np.float64)
    check(lambda x: lg.softmax(x, axis), x, expected=softmax(wide, axis), dtype=lg.float32)
    check(lambda x: lg.log_softmax(x, axis), x, expected=np.log(softmax(wide, axis)), dtype=lg.float32)
    check_gradient(lambda x: lg.softmax(x, axis), wide)
    check_gradient(lambda x: lg.log_softmax(x, axis), wide)


@pytest.mark.parametrize("axis", [None, (), 0, -1, (0, 2), (2, 0)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_logsumexp(axis: object, keepdims: bool) -> None:
    x = single(2, 3, 4)
    expected = logsumexp(x.astype(np.float64), axis, keepdims)
    check(lambda x: lg.logsumexp(x, axis, keepdims), x, expected=expected, scale=2)
    check_gradient(lambda x: lg.logsumexp(x, axis, keepdims), x.astype(np.float64))


def test_large_values_do_not_overflow() -> None:
    x = np.array([[1000.0, 999.0, -1000.0]], np.float32)
    expected = softmax(x.astype(np.float64))
    check(lg.softmax, x, expected=expected)
    rest = np.log1p(np.exp(-1))
    check(lg.log_softmax, x, expected=[[-rest, -1 - rest, -2000 - rest]])
    check(lambda x: lg.logsumexp(x, 1), x, expected=[1000 + rest])


def test_rows_of_minus_infinity() -> None:
    x = np.array([[-inf, -inf], [-inf, 1.0], [0.0, 0.0]], np.float32)
    check(lambda x: lg.logsumexp(x, 1), x, expected=[-inf, 1.0, np.log(2.0)])
    np.testing.assert_allclose(gradient(lambda x: lg.logsumexp(x, 1), x), [[0, 0], [0, 1], [0.5, 0.5]], rtol=1e-6)
    check(lambda x: lg.softmax(x, 1), x, expected=[[nan, nan], [0, 1], [0.5, 0.5]])
    # What does not matter has gradient 0, NaN or not.
    kept, weights = np.array([[False], [True], [True]]), np.array([1.0, 2.0], np.float32)
    masked = gradient(lambda x: where(kept, lg.softmax(x, 1) * weights, 0.0), x)
    np.testing.assert_allclose(masked, [[0, 0], [0, 0], [-0.25, 0.25]], atol=1e-7)
    masked = gradient(lambda x: where(kept, lg.log_softmax(x, 1) * weights, 0.0), x)
    np.testing.assert_allclose(masked, [[0, 0], [1, -1], [-0.5, 0.5]], atol=1e-7)


def test_logsumexp_of_infinity_and_nan() -> None:
    x = np.array([[inf, 1.0], [nan, 1.0], [inf, -inf]], np.float32)
    check(lambda x: lg.logsumexp(x, 1), x, expected=[inf, nan, inf])


def test_masked_slots_have_gradient_zero() -> None:
    x = np.array([[1.0, 10000.0, 2.0]], np.float32)
    mask = np.array([[True, False, True]])
    first = [lg.logsumexp, lambda v: take(lg.softmax(v), 0, axis=1), lambda v: take(lg.log_softmax(v), 0, axis=1)]
    for fn in first:

        def slope(x: lg.Tensor, fn: Callable[..., lg.Tensor] = fn) -> lg.Tensor:
            result: lg.Tensor = lg.grad(lambda x: lg.sum(fn(where(mask, x, -inf))))(x)
            return result

        found = lg.compile(slope)(x)
        assert found[0, 1] == 0 and np.isfinite(found).all() and found[0, 0] != 0
        curve = gradient(lambda x, slope=slope: take(slope(x), 0, axis=1), x)
        assert curve[0, 1] == 0 and np.isfinite(curve).all() and curve[0, 0] != 0


def test_nothing_has_shapes() -> None:
    for shape, axis in (((0,), 0), ((0, 3), 0), ((0, 3), 1), ((3, 0), 1), ((3, 0), 0)):
        x = np.zeros(shape, np.float32)
        left = tuple(n for k, n in enumerate(shape) if k != axis)
        check(lambda x, k=axis: lg.softmax(x, k), x, expected=x)
        check(lambda x, k=axis: lg.log_softmax(x, k), x, expected=x)
        check(lambda x, k=axis: lg.logsumexp(x, k), x, expected=np.full(left, -inf))
        for fn in (lg.softmax, lg.log_softmax, lg.logsumexp):
            assert gradient(lambda x, k=axis, fn=fn: fn(x, k), x).shape == shape
    for shape in ((0,), (0, 3), (3, 0)):
        x = np.zeros(shape, np.float32)
        check(nn.layer_norm, x, expected=x)
        check(nn.rms_norm, x, expected=x)
        assert gradient(nn.layer_norm, x).shape == shape
        check(nn.linear, x, np.zeros((2, shape[-1]), np.float32), expected=np.zeros((*shape[:-1], 2)))


def test_axes_and_dtypes_are_checked() -> None:
    x = single(2, 3)
    for fn in (lg.softmax, lg.log_softmax, lg.logsumexp):
        with pytest.raises(lg.errors.AxisError, match="axis 2"):
            fn(x, 2)
        with pytest.raises(lg.errors.DTypeError, match="complex64"):
            fn(x.astype(np.complex64), 0)
    with pytest.raises(lg.errors.AxisError):
        lg.softmax(np.float32(1.0))
    check(lg.softmax, np.array([0, 0]), expected=[0.5, 0.5], dtype=lg.float32)


# -- half precision


HALVES = [np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("half", HALVES)
def test_half_is_computed_in_float32_and_rounded_once(half: type) -> None:
    x = (10 * normal(4, 300)).astype(half)
    weight = normal(300).astype(half)
    wide = x.astype(np.float64)
    for fn, value in (
        (lg.softmax, softmax(wide)),
        (lg.log_softmax, np.log(softmax(wide))),
        (nn.layer_norm, standardized(wide)),
        (lambda x: nn.rms_norm(x, weight), wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * weight),
    ):
        rounded = value.astype(half).astype(np.float64)
        result = lg.compile(fn, backend="reference")(x)
        assert result.dtype == half
        # Rounded once: the same number but where float32 falls on the other side of a tie.
        assert np.mean(result.astype(np.float64) == rounded) > 0.99


@pytest.mark.parametrize("half", HALVES)
def test_half_gradients_are_computed_in_float32(half: type) -> None:
    x = normal(4, 1000).astype(half)
    weights = normal(4, 1000).astype(half)
    wide, g = x.astype(np.float64), weights.astype(np.float64)
    slope = gradient(lambda x: nn.layer_norm(x) * weights, x)
    n = standardized(wide)
    scale = 1 / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    expected = scale * (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True))
    assert slope.dtype == half
    assert_close(slope, expected, scale=0.3)


def test_checkerboard_of_512_normalises_to_one() -> None:
    x = np.where(np.indices((8, 8)).sum(0) % 2, 512, -512).astype(np.float16)
    for fn in (nn.layer_norm, nn.rms_norm, nn.batch_norm, lambda x: nn.group_norm(x, 2)):
        check(fn, x, expected=np.sign(x), dtype=lg.float16)


def test_large_offsets_lose_nothing() -> None:
    x = (1e6 + 10 * normal(4, 2000)).astype(np.float32)
    rows, columns = (lg.compile(fn, backend="reference") for fn in (nn.layer_norm, nn.batch_norm))
    for result in (rows(x), columns(x.T.copy()).T):
        np.testing.assert_allclose(result.astype(np.float64).std(-1), 1.0, rtol=1e-4)
        # The mean itself is a float32, of steps of 1/16 here.
        np.testing.assert_allclose(result, standardized(x.astype(np.float64)), atol=2 / 16 / 10)


@pytest.mark.parametrize("half", [lg.float16, lg.bfloat16])
def test_autocast_lifts_half_to_float32(half: lg.dtypes.DType) -> None:
    x, classes = single(2, 3), np.array([0, 2])
    for fn in (lg.softmax, lg.log_softmax, lg.logsumexp, nn.layer_norm, nn.rms_norm,
               lambda x: nn.cross_entropy(x, classes), lambda x: nn.mse_loss(x, x)):  # fmt: skip
        with lg.autocast(half):
            graph = lg.trace(fn, x.astype(half.numpy))
            untouched = lg.trace(fn, x)
        assert graph.outputs[0].dtype is lg.float32
        assert [n.dtype for n in graph.nodes if n.name == "cast"][:1] == [lg.float32]
        assert not [n for n in untouched.nodes if n.name == "cast"]
        assert lg.trace(fn, x.astype(half.numpy)).outputs[0].dtype is half
    with lg.autocast(half):
        assert "autocast runs softmax in float32" in str(lg.trace(lg.softmax, x.astype(half.numpy)))


# -- normalisation


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 1)])
def test_layer_norm_and_rms_norm(shape: tuple[int, ...]) -> None:
    x, weight, bias = normal(*shape), normal(shape[-1]), normal(shape[-1])
    n = standardized(x)
    check(nn.layer_norm, x, expected=n)
    check(nn.layer_norm, x, weight, expected=n * weight)
    check(nn.layer_norm, x, weight, bias, expected=n * weight + bias)
    check(lambda x, b: nn.layer_norm(x, None, b), x, bias, expected=n + bias)
    r = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    check(nn.rms_norm, x, expected=r)
    check(nn.rms_norm, x, weight, expected=r * weight)
    if shape[-1] > 1:
        check_gradient(nn.layer_norm, x)
        check_gradient(nn.layer_norm, x, weight)
        check_gradient(nn.layer_norm, x, weight, bias)
        check_gradient(lambda x, b: nn.layer_norm(x, None, b), x, bias)
    check_gradient(nn.rms_norm, x)
    check_gradient(nn.rms_norm, x, weight)


def test_second_order_of_layer_norm_is_that_of_the_written_out_form() -> None:
    x, weights, twist = normal(3, 4), normal(3, 4), normal(3, 4)

    def written(x: lg.Tensor) -> lg.Tensor:
        centred = x - lg.mean(x, -1, keepdims=True)
        return centred / sqrt(lg.mean(centred * centred, -1, keepdims=True) + 1e-5)

    def second(fn: Callable[..., lg.Tensor]) -> np.ndarray:
        first = lg.grad(lambda x: lg.sum(fn(x) * weights))
        result: np.ndarray = lg.compile(lg.grad(lambda x: lg.sum(first(x) * twist)))(x)
        return result

    for fn, reference in (
        (nn.layer_norm, written),
        (lambda x: nn.layer_norm(x, np.ones(4)), written),
        (lambda x: nn.layer_norm(x, np.ones(4), np.ones(4)), written),
    ):
        np.testing.assert_allclose(second(fn), second(reference), rtol=1e-9, atol=1e-12)


def test_composites_stay_whole_under_differentiation() -> None:
    x, weight = single(2, 3), single(3)
    for fn, name in (
        (lambda x, w: nn.layer_norm(x, w, w), "layer_norm"),
        (nn.rms_norm, "rms_norm"),
        (lambda x, w: lg.softmax(x * w), "softmax"),
        (lambda x, w: nn.linear(x, reshape(w, (1, 3))), "linear"),
        (lambda x, w: nn.cross_entropy(x * w, np.array([0, 2])), "cross_entropy"),
    ):
        graph = lg.trace(fn, x, weight).backward()
        assert name in [n.name for n in graph.nodes if n.origin is None or n.origin.stage != "backward"]


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (2, 3, 2, 4)])
def test_batch_group_and_instance_norm(shape: tuple[int, ...]) -> None:
    x, weight, bias = normal(*shape), normal(4), normal(4)
    inner, outer = tuple(range(1, x.ndim - 1)), tuple(range(x.ndim - 1))
    check(nn.batch_norm, x, weight, bias, expected=standardized(x, outer) * weight + bias)
    mean, var = normal(4), rng.random(4)
    expected = (x - mean) / np.sqrt(var + 1e-5) * weight + bias
    check(nn.batch_norm, x, weight, bias, mean, var, expected=expected)
    groups = np.stack([standardized(part, (*inner, x.ndim - 1)) for part in np.split(x, 2, -1)], -2)
    expected = groups.reshape(shape) if x.ndim == 2 else np.concatenate(
        [standardized(part, (*inner, x.ndim - 1)) for part in np.split(x, 2, -1)], -1
    )  # fmt: skip
    check(lambda x, w, b: nn.group_norm(x, 2, w, b), x, weight, bias, expected=expected * weight + bias)
    check_gradient(nn.batch_norm, x, weight, bias)
    check_gradient(lambda x, w, b: nn.group_norm(x, 2, w, b), x, weight, bias, rtol=1e-4)
    if inner:
        check(nn.instance_norm, x, weight, bias, expected=standardized(x, inner) * weight + bias)
        check_gradient(nn.instance_norm, x, weight, bias)


def test_normalisation_of_wrong_shapes_is_refused() -> None:
    x = single(2, 6)
    for call in (
        lambda: nn.layer_norm(x, single(5)),
        lambda: nn.layer_norm(x, single(2, 6)),
        lambda: nn.layer_norm(np.float32(1.0)),
        lambda: nn.rms_norm(x, single(2)),
        lambda: nn.batch_norm(x, single(5)),
        lambda: nn.batch_norm(x, mean=single(6)),
        lambda: nn.group_norm(x, 4),
        lambda: nn.instance_norm(x),
        lambda: nn.linear(x, single(6, 2)),
        lambda: nn.linear(x, single(2, 6), single(3)),
    ):
        with pytest.raises(lg.errors.ShapeError):
            call()


# -- linear and embedding


@pytest.mark.parametrize("shape", [(3,), (2, 3), (5, 2, 3)])
def test_linear(shape: tuple[int, ...]) -> None:
    x, weight, bias = normal(*shape), normal(4, 3), normal(4)
    check(nn.linear, x, weight, expected=x @ weight.T)
    check(nn.linear, x, weight, bias, expected=x @ weight.T + bias)
    check_gradient(nn.linear, x, weight)
    check_gradient(nn.linear, x, weight, bias)


def test_embedding_adds_up_the_gradients_of_a_row() -> None:
    table, places = single(4, 3), np.array([[1, 1], [3, 1]])
    check(nn.embedding, places, table, expected=table[places])
    slope = gradient(lambda table: nn.embedding(places, table), table)
    np.testing.assert_array_equal(slope, np.array([0, 3, 0, 1])[:, None] * np.ones(3))
    with pytest.raises(lg.errors.DTypeError):
        nn.embedding(single(2), table)


# -- losses


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy(axis: int, smoothing: float) -> None:
    x = normal(4, 3, 5)
    count = x.shape[axis]
    classes = rng.integers(-count, count, np.delete(x.shape, axis))
    logs = np.log(softmax(x, axis))
    one_hot = np.moveaxis(np.eye(count)[classes], -1, axis)
    probabilities = softmax(normal(4, 3, 5), axis)

    def loss(x: lg.Tensor, t: lg.Tensor) -> lg.Tensor:
        return nn.cross_entropy(x, t, axis=axis, label_smoothing=smoothing)

    bytes_ = (classes % count).astype(np.uint8)
    for p, targets in ((one_hot, classes), (one_hot, bytes_), (probabilities, probabilities)):
        expected = -(((1 - smoothing) * p + smoothing / count) * logs).sum(axis)
        check(loss, x, targets, expected=expected)
        assert_close(loss(x.astype(np.float32), targets.astype(np.float32) if targets is p else targets), expected,
                     scale=5)  # fmt: skip
    check_gradient(lambda x: loss(x, classes), x)
    check_gradient(loss, x, probabilities)
    # Classes that are known are counted from 0 while tracing; those that are data may be negative.
    slope = lg.compile(lg.grad(lambda x, t: lg.sum(loss(x, t))))(x, classes)
    np.testing.assert_allclose(slope, softmax(x, axis) - (1 - smoothing) * one_hot - smoothing / count, atol=1e-12)


def test_cross_entropy_of_large_and_infinite_logits() -> None:
    x = np.array([[1e4, 0.0], [0.0, -inf], [3e38, -3e38]], np.float32)
    classes, certain = np.array([1, 0, 0]), np.array([[1, 0]] * 3, np.float32)
    check(lambda x: nn.cross_entropy(x, classes), x, expected=[1e4, 0, 0])
    np.testing.assert_array_equal(gradient(lambda x: nn.cross_entropy(x, classes), x), [[1, -1], [0, 0], [0, 0]])
    check(lambda x: nn.cross_entropy(x, certain), x, expected=[0, 0, 0])


def test_cross_entropy_weights_and_reductions() -> None:
    x, classes, weights = normal(4, 3), np.array([0, 2, 1, 1]), np.array([1.0, 0.0, 2.0, 1.0])
    each = -np.log(softmax(x))[np.arange(4), classes]
    for reduction, reduce in (("none", lambda v: v), ("mean", np.mean), ("sum", np.sum)):
        expected = reduce(each * weights)
        check(lambda x, r=reduction: nn.cross_entropy(x, classes, weights, reduction=r), x, expected=expected)
    for call in (
        lambda: nn.cross_entropy(x, classes, reduction="max"),
        lambda: nn.cross_entropy(x, classes, weights[:2]),
        lambda: nn.cross_entropy(x, classes[:2]),
        lambda: nn.cross_entropy(x, classes, label_smoothing=1.0),
    ):
        with pytest.raises(lg.errors.ShapeError):
            call()
    with pytest.raises(lg.errors.DTypeError, match="integer"):
        nn.cross_entropy(x, weights)


def test_class_out_of_range_is_an_error_on_the_reference() -> None:
    with pytest.raises(lg.errors.IndexOutOfRangeError):
        lg.compile(nn.cross_entropy, backend="reference")(single(2, 3), np.array([0, 3]))


def test_binary_cross_entropy() -> None:
    x, t = normal(3, 4), rng.random((3, 4))
    p = 1 / (1 + np.exp(-x))
    expected = -(t * np.log(p) + (1 - t) * np.log(1 - p))
    check(lambda x, t: nn.binary_cross_entropy(x, t, reduction="none"), x, t, expected=expected)
    check(lambda p, t: nn.binary_cross_entropy(p, t, with_logits=False), p, t, expected=expected.mean())
    check_gradient(lambda x, t: nn.binary_cross_entropy(x, t, reduction="none"), x, t)
    check_gradient(lambda p, t: nn.binary_cross_entropy(p, t, with_logits=False), p, t)
    weights = rng.random((3, 4))
    check(lambda x, t: nn.binary_cross_entropy(x, t, weights), x, t, expected=(expected * weights).mean())


def test_binary_cross_entropy_at_its_edges() -> None:
    x = np.array([0.0, 20.0, -1000.0, 1000.0], np.float32)
    t = np.array([0.25, 1.0, 0.0, 0.0], np.float32)
    expected = [np.log(2.0), np.log1p(np.exp(-20.0)), 0.0, 1000.0]
    for k in range(4):
        check(nn.binary_cross_entropy, x[k], t[k], expected=expected[k], scale=3)
    slope = gradient(lambda x: nn.binary_cross_entropy(x, t, reduction="sum"), x)
    np.testing.assert_allclose(slope, [0.25, 0.0, 0.0, 1.0], atol=1e-7)
    certain = np.array([0.0, 1.0], np.float32)
    check(lambda p: nn.binary_cross_entropy(p, certain, with_logits=False), certain, expected=0.0)
    check(lambda p: nn.binary_cross_entropy(p, certain[::-1].copy(), with_logits=False), certain, expected=100.0)
    assert np.isfinite(gradient(lambda p: nn.binary_cross_entropy(p, certain, with_logits=False), certain)).all()


A, B, C = normal(3, 4), normal(3, 4), rng.random((3, 4)) + 0.1
SIGNS = np.sign(B)
D = np.abs(A - B)
LOSSES = [
    (nn.mse_loss, (A, B), {}, (A - B) ** 2),
    (nn.l1_loss, (A, B), {}, D),
    (nn.smooth_l1_loss, (A, B), {"beta": 0.7}, np.where(D < 0.7, D**2 / 1.4, D - 0.35)),
    (nn.smooth_l1_loss, (A, B), {"beta": 0}, D),
    (nn.huber_loss, (A, B), {"delta": 0.7}, np.where(D <= 0.7, D**2 / 2, 0.7 * (D - 0.35))),
    (nn.kl_div_loss, (np.log(C), np.log(C[::-1].copy())), {"axis": 0}, (C[::-1] * np.log(C[::-1] / C)).sum(0)),
    (nn.hinge_loss, (A, SIGNS), {}, np.maximum(0, 1 - A * SIGNS)),
    (nn.log_cosh_loss, (A, B), {}, np.log(np.cosh(A - B))),
    (nn.gaussian_nll_loss, (A, B, C), {}, 0.5 * (np.log(C) + (A - B) ** 2 / C)),
    (nn.gaussian_nll_loss, (A, B, C), {"full": True}, 0.5 * (np.log(2 * np.pi * C) + (A - B) ** 2 / C)),
    (nn.cosine_similarity_loss, (A, B), {"axis": 0},
     (A * B).sum(0) / (np.linalg.norm(A, axis=0) * np.linalg.norm(B, axis=0))),
    (nn.margin_ranking_loss, (A, C, SIGNS), {"margin": 0.3}, np.maximum(0, 0.3 - SIGNS * (A - C))),
    (nn.triplet_loss, (A, B, C), {"p": 3}, np.maximum(
        0, ((D**3).sum(-1) + 1e-6) ** (1 / 3) - ((np.abs(A - C) ** 3).sum(-1) + 1e-6) ** (1 / 3) + 1)),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "operands", "kwargs", "expected"), LOSSES, ids=lambda v: getattr(v, "__name__", ""))
def test_losses(fn: Callable[..., lg.Tensor], operands: tuple, kwargs: dict, expected: np.ndarray) -> None:
    check(lambda *xs: fn(*xs, **kwargs, reduction="none"), *operands, expected=expected, scale=10)
    check(lambda *xs: fn(*xs, **kwargs, reduction="mean"), *operands, expected=expected.mean(), scale=10)
    check(lambda *xs: fn(*xs, **kwargs, reduction="sum"), *operands, expected=expected.sum(), scale=10)
    check_gradient(lambda *xs: fn(*xs, **kwargs, reduction="none"), *operands)
    with pytest.raises(lg.errors.ShapeError):
        fn(operands[0], *(x[:2] for x in operands[1:]), **kwargs)


def test_nll_loss() -> None:
    logs, classes = np.log(softmax(normal(4, 3))), np.array([0, 2, 1, 1])
    check(lambda x: nn.nll_loss(x, classes), logs, expected=-logs[np.arange(4), classes])
    check_gradient(lambda x: nn.nll_loss(x, classes), logs)


def test_losses_of_half_are_taken_in_float32() -> None:
    x, t = np.full(4, 300.0, np.float16), np.zeros(4, np.float16)
    check(lambda x, t: nn.mse_loss(x * 0.5, t), x, t, expected=np.float16(22500.0), dtype=lg.float16)
    # 90,000 a piece overflows float16; so does their mean, but not the smooth loss.
    check(lambda x, t: nn.smooth_l1_loss(x, t, beta=1000.0), x, t, expected=np.float16(45.0), dtype=lg.float16)


def test_operands_a_gradient_reads_are_declared() -> None:
    """The gradient of each composite reads of the forward pass what kSavesInput and kSavesOutput name, nothing else."""
    x, w, classes = single(2, 3), single(3), np.array([0, 2])
    programs = [
        (lg.softmax, (x,)), (lg.log_softmax, (x,)), (lg.logsumexp, (x,)), (nn.rms_norm, (x, w)),
        (nn.layer_norm, (x, w, w)), (lambda x, w: nn.linear(x, w, single(2)), (x, single(2, 3))),
        (lambda x: nn.cross_entropy(x, classes), (x,)), (lg.linalg.vector_norm, (x,)), (lg.matmul, (x, single(3, 2))),
        (lambda x: nn.binary_cross_entropy(x, x, reduction="none"), (x,)), (nn.batch_norm, (x,)),
    ]  # fmt: skip
    for fn, operands in programs:
        graph = lg.trace(fn, *operands)
        node, joint = graph.nodes[-1], graph.backward()
        written = {n for n in joint.nodes if n.origin is not None and n.origin.stage == "backward"}
        read = {o for n in written for o in n.operands} | set(joint.outputs[1:])
        saves = node.op.kSavesInput
        names = node.op.operand_names()
        for k, operand in enumerate(node.operands):
            declared = saves is True or (saves is not False and names[min(k, len(names) - 1)] in saves)
            shared = any(operand is other for j, other in enumerate(node.operands) if j != k)
            if not shared:
                assert (operand in read) is declared, (node.name, k)
        forward = next(n for n in joint.nodes if n.op is node.op and n not in written)
        assert (forward in read) is node.op.kSavesOutput, node.name


# -- embeddings and one-hot rows


def test_embedding_gradient_adds_up_rows() -> None:
    table = normal(6, 3).astype(np.float32)
    indices = np.array([[0, 5, 0], [2, -1, 0]])
    weights = single(2, 3, 3)
    expected = np.zeros((6, 3))
    np.add.at(expected, indices, weights.astype(np.float64))
    slope = lg.grad(lambda t: lg.sum(nn.embedding(indices, t) * weights))
    for backend in BACKENDS:
        assert_close(lg.compile(slope, backend=backend)(table), expected)
        # The indices as data, not as a constant.
        fed = lg.compile(lg.grad(lambda t, i: lg.sum(nn.embedding(i, t) * weights)), backend=backend)
        assert_close(fed(table, indices), expected)
    check_gradient(lambda t: nn.embedding(indices, t), table.astype(np.float64))


def test_one_hot() -> None:
    classes = np.array([[0, 2], [3, -1]])
    rows = np.zeros((2, 2, 3))
    rows[0, 0, 0] = rows[0, 1, 2] = 1
    check(lambda c: lg.one_hot(c, 3), classes, expected=rows, dtype=lg.float32)
    check(lambda c: nn.one_hot(c, 3, lg.bool_), classes.astype(np.int8), expected=rows != 0, dtype=lg.bool_)
    check(lambda c: lg.one_hot(c, 2), np.array(1, np.uint8), expected=[0, 1])
    check(lambda c: lg.one_hot(c, 0), np.zeros(2, np.int32), expected=np.zeros((2, 0)))
    # A dtype too narrow for the number of classes.
    check(lambda c: lg.one_hot(c, 300)[:, 3], np.array([3, -1], np.int8), expected=[1, 0])
    with pytest.raises(lg.errors.DTypeError, match="float32"):
        lg.one_hot(np.zeros(2, np.float32), 3)
    with pytest.raises(lg.errors.ShapeError):
        lg.one_hot(classes, -1)
