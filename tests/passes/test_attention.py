"""Attention as programs write it becomes one op, with the values and gradients of what was written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph import Graph, nn
from lucidgraph.ir import Node
from lucidgraph.passes import run_passes
from lucidgraph.passes.attention import attention, causal
from lucidgraph.passes.pipelines import TIDY, pipeline
from tests.checking import BACKENDS, assert_close, check_gradient

rng = np.random.default_rng(3)
Q, K, V = (rng.standard_normal((2, 3, 70, 8)).astype(np.float32) for _ in range(3))
SEEN = rng.random((70, 70)) < 0.8
BIAS = rng.standard_normal((3, 70, 70)).astype(np.float32)
TRIANGLE = np.tril(np.ones((70, 70), bool))


def scores(q: Any, k: Any) -> Any:
    return q @ lg.swapaxes(k, -1, -2)


def ordered(q: Any, k: Any, reach: int = 0) -> Any:
    return lg.arange(q.shape[-2])[:, None] + reach >= lg.arange(k.shape[-2])[None, :]


def in_primitives(x: Any) -> Any:
    e = lg.exp(x - lg.max(x, axis=-1, keepdims=True))
    return e / lg.sum(e, axis=-1, keepdims=True)


def with_axes_added(x: Any) -> Any:
    e = lg.exp(x - lg.stop_gradient(lg.max(x, axis=-1))[..., None])
    return e / lg.expand_dims(lg.sum(e, axis=-1), -1)


def _where(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(lg.where(ordered(q, k), scores(q, k) * 0.3, -np.inf)) @ v


def _where_large(q: Any, k: Any, v: Any) -> Any:
    return in_primitives(lg.where(ordered(q, k), scores(q, k) / math.sqrt(8), -1e9)) @ v


def _hidden_where(q: Any, k: Any, v: Any) -> Any:
    i = lg.arange(q.shape[-2])
    return nn.softmax(lg.where(i[:, None] < i, float(np.finfo(np.float32).min), scores(q * 0.3, k))) @ v


def _added_triangle(q: Any, k: Any, v: Any) -> Any:
    mask = np.triu(np.full((70, 70), -np.inf, np.float32), 1)
    return with_axes_added(scores(q, k) + mask) @ v


def _added_large(q: Any, k: Any, v: Any) -> Any:
    hidden = lg.astype(~ordered(q, k), lg.float32) * -1e9
    return nn.softmax(scores(q, k) * 0.25 + hidden) @ v


def _triangle(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(lg.where(lg.tril(lg.ones((70, 70))) == 0, -1e9, 0.5 * scores(q, k))) @ v


def _captured_triangle(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(lg.where(TRIANGLE, scores(q, k), -np.inf)) @ v


def _einsum(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (lg.swapaxes(x, 1, 2) for x in (q, k, v))  # heads behind places
    s = lg.einsum("bqhd,bkhd->bhqk", q, k) * 0.3
    y = lg.einsum("bhqk,bkhd->bqhd", in_primitives(lg.where(ordered(Q, K), s, -np.inf)), v)
    return lg.swapaxes(y, 1, 2)


def _padding(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(lg.where(lg.logical_and(SEEN, ordered(q, k)), scores(q, k), -1e9)) @ v


def _twice_hidden(q: Any, k: Any, v: Any) -> Any:
    s = lg.where(ordered(q, k), scores(q, k), -np.inf)
    return nn.softmax(lg.where(SEEN, s, -np.inf)) @ v


def _bias(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(scores(q, k) * 0.3 + BIAS) @ v


def _less_bias(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(scores(q, k) - BIAS) @ v


def _plain(q: Any, k: Any, v: Any) -> Any:
    return in_primitives(scores(q, k) * 0.3) @ v


def _one_head(q: Any, k: Any, v: Any) -> Any:
    q, k, v = q[0, 0], k[0, 0], v[0, 0]
    return nn.softmax(lg.where(ordered(q, k), scores(q, k), -1e9)) @ v


def _no_batch(q: Any, k: Any, v: Any) -> Any:
    q, k, v = q[0], k[0], v[0]
    return nn.softmax(lg.where(SEEN, scores(q, k), -1e9)) @ v


def _five_axes(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (lg.reshape(x, (2, 1, 3, 70, 8)) for x in (q, k, v))
    return nn.softmax(scores(q, k) + BIAS) @ v


def _cached(q: Any, k: Any, v: Any) -> Any:
    q = q[:, :, 60:]
    return nn.softmax(lg.where(ordered(q, k, 60), scores(q, k), -np.inf)) @ v


def _fewer_keys(q: Any, k: Any, v: Any) -> Any:
    """The first queries see nothing: softmax gives them NaN with -∞, the mean of all with a number."""
    k, v = k[:, :, :50], v[:, :, :50]
    return nn.softmax(lg.where(ordered(q, k, -20), scores(q, k), -1e9)) @ v


FOUND: dict[str, tuple[Callable[..., Any], bool]] = {
    "where": (_where, True), "where -1e9": (_where_large, True), "hidden where": (_hidden_where, True),
    "added triangle": (_added_triangle, True), "added -1e9": (_added_large, True), "tril": (_triangle, True),
    "captured triangle": (_captured_triangle, True), "einsum": (_einsum, True), "padding": (_padding, True),
    "twice hidden": (_twice_hidden, True), "bias": (_bias, False), "less bias": (_less_bias, False),
    "plain": (_plain, False), "one head": (_one_head, True), "no batch": (_no_batch, False),
    "five axes": (_five_axes, False), "cached": (_cached, True), "fewer keys": (_fewer_keys, True),
}  # fmt: skip


def attends(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.name.startswith("attend")]


def lowered(fn: Callable[..., Any], *args: Any) -> Graph:
    return run_passes(lg.trace(fn, *args, passes=()), pipeline(("attend", "attend_rows", "attend_gradient")))


def as_written(fn: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    """In float64, as the reference runs it."""
    results = lg.compile(fn, backend="reference")(*(a.astype(np.float64) for a in args))
    return list(results) if isinstance(results, tuple) else [results]


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    fn, in_order = FOUND[name]
    found = attends(lowered(fn, Q, K, V))
    assert [n.name for n in found] == ["attend"]
    assert found[0].attrs["causal"] is in_order
    step = lambda *a: lg.grad(lambda *b: lg.sum(fn(*b) ** 2), argnums=(0, 1, 2))(*a)  # noqa: E731
    graph = lowered(step, Q, K, V)
    assert {n.name for n in attends(graph)} == {"attend", "attend_rows", "attend_gradient"}
    assert all(n.attrs["causal"] is in_order for n in attends(graph))
    assert not any(n.name in ("exp", "matmul") for n in graph.nodes)


@pytest.mark.parametrize("name", FOUND)
def test_values_and_gradients(name: str) -> None:
    fn, _ = FOUND[name]
    step = lg.grad(lambda *b: lg.sum(fn(*b) ** 2), argnums=(0, 1, 2))
    for program in (fn, step):
        exact = as_written(program, Q, K, V)
        for backend in BACKENDS:
            found = lg.compile(program, backend=backend)(Q, K, V)
            for a, e in zip(found if isinstance(found, tuple) else [found], exact, strict=True):
                assert_close(a, e, "float32", scale=16)


def test_gradients_by_differences() -> None:
    q, k, v = (rng.standard_normal((1, 2, 4, 3)) for _ in range(3))
    check_gradient(lambda q, k, v: nn.softmax(lg.where(ordered(q, k), scores(q, k) / 1.7, -1e9)) @ v, q, k, v)
    check_gradient(lambda q, k, v: in_primitives(lg.where(ordered(q, k), scores(q, k), -0.5)) @ v, q, k, v)
    bias = rng.standard_normal((2, 4, 4))
    check_gradient(lambda q, k, v, b: nn.softmax(scores(q, k) + b) @ v, q, k, v, bias)


def test_rows_that_see_nothing_are_as_written() -> None:
    """-∞ everywhere gives NaN, a finite number the mean."""
    mask = SEEN.copy()
    mask[5] = False
    for number in (-np.inf, -1e9):
        fn = lambda q, k, v, n=number: nn.softmax(lg.where(mask, scores(q, k), n)) @ v  # noqa: E731
        (exact,) = as_written(fn, Q, K, V)
        assert np.isnan(exact[:, :, 5]).all() == np.isinf(number)
        for backend in BACKENDS:
            assert_close(lg.compile(fn, backend=backend)(Q, K, V), exact, "float32", scale=8)


@pytest.mark.parametrize("size", [-1e9, -40.0, -1.0])
def test_scores_below_what_hides_them(size: float) -> None:
    """A number that replaces hidden scores is above visible ones; the keys behind are not skipped."""
    q, k = Q.copy(), K.copy()
    q[..., 0], k[..., 0] = 30.0, -30.0
    fn = lambda q, k, v: nn.softmax(lg.where(ordered(q, k), scores(q, k), size)) @ v  # noqa: E731
    step = lg.grad(lambda *b: lg.sum(fn(*b) ** 2), argnums=(0, 1, 2))
    for program in (fn, step):
        for e, a in zip(as_written(program, q, k, V), [lg.compile(program)(q, k, V)] if program is fn
                        else lg.compile(program)(q, k, V), strict=True):  # fmt: skip
            assert_close(a, e, "float32", scale=1000)


def test_not_found() -> None:
    def weights_returned(q: Any, k: Any, v: Any) -> Any:
        p = nn.softmax(scores(q, k))
        return p @ v, p

    def scores_used(q: Any, k: Any, v: Any) -> Any:
        s = scores(q, k)
        return nn.softmax(s) @ v + lg.sum(s)

    def other_axis(q: Any, k: Any, v: Any) -> Any:
        return nn.softmax(scores(q, k), axis=-2) @ v

    def other_maximum(q: Any, k: Any, v: Any) -> Any:
        s = scores(q, k)
        e = lg.exp(s - lg.max(s, axis=-2, keepdims=True))
        return e / lg.sum(e, axis=-1, keepdims=True) @ v

    def two_numbers(q: Any, k: Any, v: Any) -> Any:
        return nn.softmax(lg.where(SEEN, lg.where(TRIANGLE, scores(q, k), -1e9), -1e8)) @ v

    def no_product(q: Any, k: Any, v: Any) -> Any:
        return nn.softmax(lg.concat([q] * 9, axis=-1)[..., :70]) @ v

    def total(result: Any) -> Any:
        return sum(map(lg.sum, result)) if isinstance(result, tuple) else lg.sum(result)

    for fn in (weights_returned, scores_used, other_axis, other_maximum, two_numbers, no_product):
        assert not attends(lowered(fn, Q, K, V)), fn.__name__
        step = lg.grad(lambda *b, f=fn: total(f(*b)))
        assert not attends(lowered(step, Q, K, V)), fn.__name__
    halves = [a.astype(np.float16) for a in (Q, K, V)]
    assert not attends(lowered(_plain, *halves))


def test_orders() -> None:
    """Only a triangle whose last query sees all keys, and no more, is causal."""
    i, n = lg.arange, 70

    def is_causal(mask: Callable[[], Any], keys: int = n) -> bool:
        fn = lambda q, k, v: nn.softmax(lg.where(mask(), scores(q, k), -np.inf)) @ v  # noqa: E731
        (node,) = attends(lowered(fn, Q, K[:, :, :keys], V[:, :, :keys]))
        return bool(node.attrs["causal"])

    for mask in (
        lambda: i(n)[:, None] >= i(n), lambda: i(n) <= i(n)[:, None], lambda: ~(i(n) > i(n)[:, None]),
        lambda: i(n) < i(n)[:, None] + 1, lambda: i(1, n + 1)[:, None] > i(n), lambda: ~(i(n)[:, None] - i(n) < 0),
        lambda: lg.reshape(i(n), (1, n)) <= lg.reshape(i(n), (n, 1)), lambda: lg.tril(lg.ones((n, n), lg.bool_)),
    ):  # fmt: skip
        assert is_causal(mask)
    for mask in (
        lambda: i(n)[:, None] > i(n), lambda: i(n)[:, None] <= i(n), lambda: i(n)[:, None] + 1 >= i(n),
        lambda: lg.tril(lg.ones((n, n), lg.bool_), -1), lambda: i(n)[:, None] * 2 >= i(n),
        lambda: i(0, 2 * n, 2)[:, None] >= i(n), lambda: i(n) >= 3, lambda: i(n)[:, None] >= 3,
    ):  # fmt: skip
        assert not is_causal(mask)
    assert is_causal(lambda: i(n)[:, None] - 20 >= i(50), 50)
    assert not is_causal(lambda: i(n)[:, None] >= i(50), 50)


def test_passes_leave_other_graphs_alone() -> None:
    graph = run_passes(lg.trace(lambda q, k, v: nn.softmax(q) * k + v, Q, K, V), TIDY)
    assert attention(graph) is graph
    assert causal(graph) is graph
