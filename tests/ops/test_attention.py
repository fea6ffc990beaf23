"""Attention against its formula in float64; queries that see nothing; masks, causal order, shared heads."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph import nn
from tests.checking import BACKENDS, assert_close, check, check_gradient, on_backend

rng = np.random.default_rng(2)
attention = nn.scaled_dot_product_attention


def expected(q: Any, k: Any, v: Any, scale: float | None = None, mask: Any = None) -> np.ndarray:
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    share = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, share, 1), np.repeat(v, share, 1)
    scores = q @ k.swapaxes(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    queries, keys = scores.shape[2:]
    if isinstance(mask, str):
        mask = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype(np.float64)
    y = np.zeros((*q.shape[:3], v.shape[-1]))
    for place in np.ndindex(q.shape[:3]):
        row = scores[place]
        if row.max() > -np.inf:
            e = np.exp(row - row.max())
            y[place] = e @ v[place[:2]] / e.sum()
    return y


def operands(heads: int = 4, of_keys: int = 2, queries: int = 3, keys: int = 5) -> list[np.ndarray]:
    shapes = (2, heads, queries, 4), (2, of_keys, keys, 4), (2, of_keys, keys, 3)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


BLIND = rng.random((2, 1, 3, 5)) < 0.6
BLIND[1, 0, 1] = False
MASKS: dict[str, Any] = {
    "none": None,
    "causal": "causal",
    "boolean": BLIND,
    "one row": np.array([True, False, True, True, False]),
    "added": rng.standard_normal((4, 1, 5)).astype(np.float32),
    "added -inf": np.where(BLIND, 0.5, -np.inf).astype(np.float32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("of_keys", [1, 2, 4])
def test_values_and_gradients(mask: str, of_keys: int) -> None:
    q, k, v = operands(of_keys=of_keys)
    given = MASKS[mask]
    fn = lambda q, k, v: attention(q, k, v, mask=given)  # noqa: E731
    exact = expected(q, k, v, mask=given)
    check(fn, q, k, v, expected=exact, dtype=lg.float32, scale=4)
    wide = [a.astype(np.float64) for a in (q, k, v)]
    check(fn, *wide, expected=exact, dtype=lg.float64, scale=4)
    check_gradient(fn, *wide)
    weights = rng.standard_normal(exact.shape).astype(np.float32)
    slope = lg.grad(lambda q, k, v: lg.sum(fn(q, k, v) * weights), argnums=(0, 1, 2))
    slopes = lg.compile(slope, backend="reference")(*wide)
    for backend in BACKENDS:
        for found, e in zip(lg.compile(slope, backend=backend)(q, k, v), slopes, strict=True):
            assert_close(found, e, scale=8)


def test_gradient_of_an_added_mask() -> None:
    q, k, v = (a.astype(np.float64) for a in operands())
    check_gradient(lambda q, k, v, m: attention(q, k, v, mask=m), q, k, v, rng.standard_normal((4, 1, 5)))


def test_scale_and_long_rows() -> None:
    q, k, v = operands(queries=70, keys=300)
    check(lambda q, k, v: attention(q, k, v, scale=2.0), q, k, v, expected=expected(q, k, v, 2.0), scale=4)
    check(lambda *a: attention(*a, mask="causal"), q, k, v, expected=expected(q, k, v, mask="causal"), scale=4)


def test_queries_that_see_nothing_get_zero_and_no_gradient() -> None:
    q, k, v = operands(queries=5, keys=3)
    # Five queries, three keys: the first two stand before all of them.
    check(lambda *a: attention(*a, mask="causal"), q, k, v, expected=expected(q, k, v, mask="causal"), scale=4)
    for mask in ("causal", np.zeros((5, 3), bool), np.full((5, 3), -np.inf, np.float32)):
        for backend in BACKENDS:
            with on_backend(backend):
                slope = lg.grad(lambda *a, m=mask: lg.sum(attention(*a, mask=m)), argnums=(0, 1, 2))
                slopes = lg.compile(slope)(q, k, v)
            assert all(np.isfinite(s).all() for s in slopes)
            assert not slopes[0][:, :, :2].any()
            assert not slopes[2].any() or isinstance(mask, str)


def test_nothing() -> None:
    q, k, v = (np.ones(s, np.float32) for s in ((1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 0, 5)))
    check(attention, q, k, v, expected=np.zeros((1, 2, 3, 5)))
    check(attention, q[:, :, :0], q, q, expected=np.zeros((1, 2, 0, 4)))
    check(attention, q[:0], q[:0], q[:0], expected=np.zeros((0, 2, 3, 4)))


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_half_is_computed_in_float32_and_rounded_once(half: Any) -> None:
    q, k, v = (a.astype(half) for a in operands(queries=16, keys=40))
    check(attention, q, k, v, expected=expected(q, k, v), dtype=half, scale=0.5)


def test_autocast() -> None:
    q, k, v = operands()
    with lg.autocast(lg.bfloat16):
        assert attention(q, k, v).dtype == lg.bfloat16
        assert attention(q, k, v, mask=MASKS["added"]).dtype == lg.bfloat16
        assert attention(*(a.astype(np.float64) for a in (q, k, v))).dtype == lg.float64
    y = lg.compile(attention, autocast=lg.bfloat16)(q, k, v)
    assert_close(y.astype(np.float64), expected(q, k, v), "bfloat16", scale=2)


def test_forward_and_backward_share_the_weights() -> None:
    """In one graph the scores are computed once: two products forward, four backward."""
    q, k, v = operands(heads=2)
    for mask in (None, "causal", BLIND):
        step = lg.compile(
            lg.value_and_grad(lambda q, k, v, m=mask: lg.sum(attention(q, k, v, mask=m)), argnums=(0, 1, 2)),
            backend="reference",
        )
        assert str(step.graph(q, k, v)).count("= matmul") == 6


def test_bad_operands_are_refused() -> None:
    q, k, v = operands()
    for call, match in (
        (lambda: attention(q[0], k, v), "batch, heads"),
        (lambda: attention(q[:, :3], k, v), "multiple"),
        (lambda: attention(q, k, v, mask=np.ones((3, 4), bool)), "mask"),
        (lambda: attention(q, k, v, mask=np.ones((1, 2, 4, 3, 5), bool)), "mask"),
        (lambda: attention(q, k, v, mask="full"), "causal"),
        (lambda: attention(q[..., :0], k[..., :0], v), "scale"),
    ):
        with pytest.raises(lg.ShapeError, match=match):
            call()
    with pytest.raises(lg.DTypeError, match="complex64"):
        attention(q.astype(np.complex64), k, v)
