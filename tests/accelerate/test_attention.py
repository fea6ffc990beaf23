"""Attention in tiles against its formula in float64: sizes, masks, layouts, threads, what does not vanish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph import nn
from tests.checking import TOLERANCE, assert_close

pytest.importorskip("lucidgraph.runtime.accelerate.flash", reason="llvmlite is not installed")
EXECUTOR = pytest.importorskip("lucidgraph.runtime.accelerate.executor").EXECUTOR

rng = np.random.default_rng(5)


def operands(batch: int, heads: int, of_keys: int, queries: int, keys: int, n: int, m: int) -> list[np.ndarray]:
    shapes = (batch, heads, queries, n), (batch, of_keys, keys, n), (batch, of_keys, keys, m)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def formula(q: Any, k: Any, v: Any, g: Any, mask: Any = None) -> list[np.ndarray]:
    """The result and the three gradients in float64; ``mask`` is added."""
    q, k, v, g = (np.asarray(a, np.float64) for a in (q, k, v, g))
    share = q.shape[1] // k.shape[1]
    wide_k, wide_v = np.repeat(k, share, 1), np.repeat(v, share, 1)
    scale = q.shape[-1] ** -0.5
    scores = q @ wide_k.swapaxes(2, 3) * scale
    scores = scores if mask is None else scores + mask
    top = scores.max(3, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(3, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    arriving = g @ wide_v.swapaxes(2, 3)
    moved = weights * (arriving - (arriving * weights).sum(3, keepdims=True)) * scale

    def shared(x: np.ndarray) -> np.ndarray:
        return x.reshape(*k.shape[:2], share, *x.shape[2:]).sum(2)

    to_k, to_v = moved.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ g
    return [weights @ wide_v, moved @ wide_k, shared(to_k), shared(to_v)]


def causal(queries: int, keys: int) -> np.ndarray:
    return np.where(np.tri(queries, keys, keys - queries, dtype=bool), 0, -np.inf)


def run(fn: Callable[..., Any], q: Any, k: Any, v: Any, g: Any) -> list[np.ndarray]:
    def weighted(q: Any, k: Any, v: Any) -> Any:
        y = fn(q, k, v)
        return lg.sum(y * lg.asarray(g)), y

    both = lg.value_and_grad(weighted, argnums=(0, 1, 2), has_aux=True)
    (_, y), slopes = lg.compile(both, backend="accelerate")(q, k, v)
    return [y, *slopes]


def attention(mask: Any) -> Callable[..., Any]:
    return lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, mask=mask)


def compare(found: list[np.ndarray], exact: list[np.ndarray], dtype: Any = None, scale: float = 8) -> None:
    for a, e in zip(found, exact, strict=True):
        assert_close(a, e, dtype, scale=scale)


SIZES = {
    "one": (1, 1, 1, 1, 1, 1, 1),
    "one query": (2, 4, 2, 1, 300, 32, 32),
    "a tile": (1, 2, 2, 64, 64, 64, 64),
    "one more": (1, 2, 1, 65, 65, 32, 48),
    "one less": (1, 1, 1, 63, 127, 8, 16),
    "two spans": (1, 2, 2, 70, 600, 16, 16),
    "more queries": (1, 1, 1, 200, 130, 8, 8),
    "wide": (1, 2, 2, 100, 100, 128, 128),
    "three heads": (1, 3, 1, 130, 130, 16, 24),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mask", ["none", "causal", "boolean", "added"])
def test_sizes(size: str, mask: str) -> None:
    q, k, v = operands(*SIZES[size])
    queries, keys = q.shape[2], k.shape[2]
    g = rng.standard_normal((*q.shape[:3], v.shape[3])).astype(np.float32)
    seen = rng.random((q.shape[0], 1, queries, keys)) < 0.7
    bias = rng.standard_normal((q.shape[1], 1, keys)).astype(np.float32)
    given, added = {
        "none": (None, None), "causal": ("causal", causal(queries, keys)),
        "boolean": (seen, np.where(seen, 0, -np.inf)), "added": (bias, bias),
    }[mask]  # fmt: skip
    compare(run(attention(given), q, k, v, g), formula(q, k, v, g, added))


def test_long_sequence() -> None:
    q, k, v = operands(1, 1, 1, 2048, 2048, 64, 64)
    g = rng.standard_normal(q.shape).astype(np.float32)
    compare(run(attention("causal"), q, k, v, g), formula(q, k, v, g, causal(2048, 2048)))


@pytest.mark.parametrize("shape", [(4, 1, 1, 90), (90, 90), (1, 1, 90, 1), (2, 1, 1, 1)])
@pytest.mark.parametrize("boolean", [True, False])
def test_masks_repeat(shape: tuple[int, ...], boolean: bool) -> None:
    q, k, v = operands(2, 4, 2, 90, 90, 8, 8)
    mask = rng.standard_normal(shape if len(shape) < 4 or shape[0] != 4 else (1, *shape[:1], *shape[2:]))
    mask = mask > -0.5 if boolean else mask.astype(np.float32)
    g = rng.standard_normal(q.shape).astype(np.float32)
    added = np.where(mask, 0, -np.inf) if boolean else mask
    compare(run(attention(mask), q, k, v, g), formula(q, k, v, g, added))
    # As every second column of a wider one.
    strided = np.repeat(np.broadcast_to(mask, (2, 4, 90, 90)), 2, axis=3)[..., ::2]
    y = lg.compile(nn.scaled_dot_product_attention, backend="accelerate")(q, k, v, mask=strided)
    assert_close(y, formula(q, k, v, g, added)[0], scale=8)


def test_layouts() -> None:
    """Heads behind places, keys turned, everything backwards."""
    q, k, v = operands(2, 3, 3, 70, 90, 16, 8)
    g = rng.standard_normal((2, 3, 70, 8)).astype(np.float32)
    exact = formula(q, k, v, g, causal(70, 90))
    for move in (
        lambda a: a.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3),
        lambda a: a.swapaxes(2, 3).copy().swapaxes(2, 3),
        lambda a: a[:, :, ::-1, ::-1].copy()[:, :, ::-1, ::-1],
        lambda a: np.repeat(a, 2, axis=3)[..., ::2],
    ):
        compare(run(attention("causal"), *map(move, (q, k, v)), move(g)), exact)
    broadcast = np.broadcast_to(k[:, :1], k.shape)
    y = lg.compile(attention(None), backend="accelerate")(q, broadcast, v)
    assert_close(y, formula(q, broadcast, v, g)[0], scale=8)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes(dtype: str) -> None:
    kind = getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype
    q, k, v = (a.astype(kind) for a in operands(1, 4, 2, 150, 150, 32, 32))
    g = rng.standard_normal(q.shape).astype(kind)
    found = run(attention("causal"), q, k, v, g)
    assert all(a.dtype == kind for a in found)
    compare(found, formula(q, k, v, g, causal(150, 150)), dtype)


def test_nothing() -> None:
    for batch, queries, keys in ((0, 3, 4), (1, 0, 4), (1, 3, 0)):
        q, k, v = operands(batch, 2, 1, queries, keys, 4, 5)
        g = np.ones((batch, 2, queries, 5), np.float32)
        y, *slopes = run(attention("causal"), q, k, v, g)
        assert y.shape == g.shape
        assert not np.any(y)
        assert all(s.shape == a.shape and not s.any() for s, a in zip(slopes, (q, k, v), strict=True))


def test_threads_and_repeats() -> None:
    """On one and two equal to the bit."""
    before = EXECUTOR.threads
    for size in ((1, 3, 3, 300, 300, 32, 32), (1, 1, 1, 500, 500, 16, 16)):
        q, k, v = operands(*size)
        g = rng.standard_normal(q.shape).astype(np.float32)
        exact = formula(q, k, v, g, causal(*q.shape[2:3] * 2))
        try:
            found = []
            for threads in (1, 2, 2, 3, 3):
                lg.set_threads(threads)
                found.append(run(attention("causal"), q, k, v, g))
                compare(found[-1], exact)
            for k, other in ((0, 1), (1, 2), (3, 4)):
                for a, b in zip(found[k], found[other], strict=True):
                    np.testing.assert_array_equal(a, b)
        finally:
            lg.set_threads(before)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e18])
def test_large_scores(size: float) -> None:
    q, k, v = operands(1, 1, 1, 80, 700, 8, 8)
    q *= np.float32(size)
    y = lg.compile(attention(None), backend="accelerate")(q, k, v)
    scores = (q @ k.swapaxes(2, 3) * np.float32(8**-0.5)).astype(np.float64)
    e = np.exp(scores - scores.max(3, keepdims=True))
    clear = np.sort(scores, 3)[..., -1] - np.sort(scores, 3)[..., -2] > size / 100
    exact = e / e.sum(3, keepdims=True) @ v
    assert np.isfinite(y).all()
    np.testing.assert_allclose(y[clear], exact[clear], atol=TOLERANCE["float32"] * size if size < 1e3 else 1e-4)


def test_values_of_any_size_do_not_overflow() -> None:
    q, k, _ = operands(1, 1, 1, 70, 1100, 8, 8)
    v = np.full((1, 1, 1100, 3), 3e38, np.float32)
    np.testing.assert_allclose(lg.compile(attention(None), backend="accelerate")(q, k, v), 3e38, rtol=1e-5)


@pytest.mark.parametrize("what", [np.nan, np.inf, -np.inf])
def test_what_a_query_may_not_see_is_0_times_its_value(what: float) -> None:
    """As in the formula, where the kernel would skip it."""
    q, k, v = operands(1, 1, 1, 300, 300, 8, 4)
    v[0, 0, 250, 2] = what
    y = lg.compile(attention("causal"), backend="accelerate")(q, k, v)
    assert np.isnan(y[0, 0, :250, 2]).all()
    assert np.isfinite(y[..., :2]).all()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.isnan(y), np.isnan(formula(q, k, v, v, causal(300, 300))[0]))


def test_nan_and_infinite_scores() -> None:
    q, k, v = operands(1, 1, 1, 130, 600, 8, 4)
    q[0, 0, 3] = np.nan
    q[0, 0, 70] = np.inf
    k[0, 0, 5] = np.abs(k[0, 0, 5])
    y = lg.compile(attention(None), backend="accelerate")(q, k, v)
    bad = np.isnan(y).all(3)[0, 0]
    assert list(np.flatnonzero(bad)) == [3, 70]
    assert np.isfinite(y[0, 0, ~bad]).all()


def test_scale_of_zero() -> None:
    """All weights are equal, and what is not finite is still seen."""
    q, k, v = operands(1, 1, 1, 70, 90, 8, 4)
    q[0, 0, 3] = np.nan
    y = lg.compile(lambda *a: nn.scaled_dot_product_attention(*a, scale=0.0), backend="accelerate")(q, k, v)
    assert np.isnan(y[0, 0, 3]).all()
    np.testing.assert_allclose(np.delete(y, 3, 2), np.broadcast_to(v.mean(2, keepdims=True), (1, 1, 69, 4)), rtol=2e-5)


def test_gradient_of_an_added_mask() -> None:
    q, k, v = operands(2, 2, 1, 70, 90, 8, 8)
    bias = rng.standard_normal((2, 70, 90)).astype(np.float32)
    g = rng.standard_normal(q.shape).astype(np.float32)
    slope = lg.grad(lambda b: lg.sum(attention(b)(q, k, v) * g))
    wide = slope(bias.astype(np.float64))
    found = lg.compile(slope, backend="accelerate")(bias)
    exact = lg.compile(
        lg.grad(lambda b: lg.sum(attention(b)(*(a.astype(np.float64) for a in (q, k, v))) * g)), backend="reference"
    )(bias.astype(np.float64))
    assert wide.shape == bias.shape
    assert_close(found, exact, "float32", scale=8)


def test_one_command_each_way() -> None:
    q, k, v = operands(1, 2, 2, 64, 64, 16, 16)
    step = lg.compile(
        lg.value_and_grad(lambda q, k, v: lg.sum(attention("causal")(q, k, v)), argnums=(0, 1, 2)), backend="accelerate"
    )
    step(q, k, v)
    lowered = step.lower(q, k, v).compile().source
    assert lowered.count(". attend:") == 1
    assert lowered.count(". attend_gradient:") == 1
    assert "product" not in lowered
