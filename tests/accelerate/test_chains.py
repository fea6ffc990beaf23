"""Chains of commands: they change no bit, whatever the rows and whoever does the units."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.ir.evaluate import evaluate

settling = pytest.importorskip("lucidgraph.runtime.accelerate.settling")
from lucidgraph.runtime.accelerate import chains  # noqa: E402
from lucidgraph.runtime.accelerate.backend import AccelerateBackend  # noqa: E402
from lucidgraph.runtime.accelerate.executor import EXECUTOR  # noqa: E402
from lucidgraph.wiring import lowered  # noqa: E402
from tests.accelerate.generated import generate  # noqa: E402

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def threads():
    before = EXECUTOR.threads
    yield
    lg.set_threads(before)


@pytest.fixture
def eager(monkeypatch):
    """Everything is worth a chain."""
    monkeypatch.setattr(settling, "SHARED_COST", 0)
    monkeypatch.setattr(chains, "BRIEF_COST", 1)


def layers(params: Any, x: Any, y: Any) -> Any:
    for w, b in params[:-1]:
        x = lg.maximum(x @ w + b, 0.0)
    w, b = params[-1]
    return lg.mean(lg.square(x @ w + b - y)) - lg.mean(lg.log(lg.softmax(x @ w, axis=-1)))


def step(params: Any, x: Any, y: Any) -> Any:
    loss, slopes = lg.value_and_grad(layers)(params, x, y)
    return loss, [(w - 0.1 * gw, b - 0.1 * gb) for (w, b), (gw, gb) in zip(params, slopes, strict=True)]


def arguments(batch: int, *sizes: int) -> Any:
    params = [
        (RNG.standard_normal((m, n), np.float32), RNG.standard_normal(n, np.float32))
        for m, n in pairwise(sizes)
    ]
    x, y = (RNG.standard_normal((batch, n), np.float32) for n in (sizes[0], sizes[-1]))
    return params, x, y


def leaves(value: Any) -> list[np.ndarray]:
    return [x for v in value for x in leaves(v)] if isinstance(value, list | tuple) else [np.asarray(value)]


def chained(fn: Any, *args: Any) -> int:
    """How many commands of a program's plan stand in chains."""
    backend = AccelerateBackend()
    commands = backend.compile(lowered(lg.trace(fn, *args), backend)).plan.commands
    return sum(len(c.code.members) for c in commands if isinstance(c.code, chains.ChainCode))


@pytest.mark.parametrize("sizes", [(64, 48, 32, 10), (130, 70, 70, 70, 3), (256, 256, 256, 10), (33, 17, 100, 129)])
def test_a_training_step_is_the_same_on_any_number_of_threads(sizes: tuple[int, ...]):
    args = arguments(*sizes)
    lg.set_threads(1)
    assert not chained(step, *args)
    alone = leaves(lg.compile(step, backend="accelerate")(*args))
    for count in (2, 3, 5):
        lg.set_threads(count)
        program = lg.compile(step, backend="accelerate")
        for _ in range(30):
            for x, y in zip(leaves(program(*args)), alone, strict=True):
                np.testing.assert_array_equal(x, y)
    lg.set_threads(2)
    assert chained(step, *args) > 4


@pytest.mark.parametrize("seed", range(120))
def test_generated_programs(eager: None, seed: int):
    made = generate(seed, 12 + seed % 20)
    lg.set_threads(2 + seed % 3)
    backend = AccelerateBackend()
    graph = lowered(lg.trace(made.fn, *made.args), backend)
    found = backend.compile(graph)(list(made.args))
    with np.errstate(all="ignore"):
        wanted = evaluate(graph, list(made.args))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_chain_ends_where_other_rows_are_read(eager: None):
    lg.set_threads(2)
    x, w = RNG.standard_normal((64, 64), np.float32), RNG.standard_normal((64, 64), np.float32)
    assert chained(lambda x, w: lg.exp(x @ w) @ w, x, w) == 2
    # The second product reads all rows of the first; a transposition moves them.
    assert chained(lambda x, w: w @ (x @ w), x, w) == 0
    assert chained(lambda x, w: lg.cumsum((x @ w).T, axis=0), x, w) == 0


def test_products_that_do_not_depend_on_each_other_need_no_wait(eager: None):
    lg.set_threads(2)
    x, w = RNG.standard_normal((64, 64), np.float32), RNG.standard_normal((64, 64), np.float32)
    assert chained(lambda x, w: (x @ w, w @ x, x.T @ w, w + 1), x, w) == 4


def test_what_ends_no_chain_comes_after_it():
    """A step of a small perceptron is two chains: all rows forward and backward; then what sums over them."""


    def loss(params: Any, x: Any, y: Any) -> Any:
        for w, b in params[:-1]:
            x = lg.maximum(x @ w + b, 0.0)
        scores = x @ params[-1][0] + params[-1][1]
        return lg.mean(lg.logsumexp(scores, axis=-1) - lg.sum(scores * y, axis=-1))

    lg.set_threads(2)
    be = AccelerateBackend()
    graph = lg.trace(lg.value_and_grad(loss), *arguments(32, 64, 64, 64, 10))
    commands = be.compile(lowered(graph, be)).plan.commands
    assert [isinstance(c.code, chains.ChainCode) for c in commands] == [True, True]


def test_what_waits_is_not_overtaken_by_what_reads_or_overwrites_it(eager: None):
    x, w = RNG.standard_normal((64, 16), np.float32), RNG.standard_normal((16, 16), np.float32)

    def fn(x: Any, w: Any) -> Any:
        y = lg.tanh(x @ w)
        total = lg.sum(y, axis=0)
        z = y @ w
        table = lg.zeros((64, 16)).at[3:9].set(z[3:9])
        return total, z * total, table + lg.sum(table, axis=0), lg.mean(z) + x

    expected = evaluate(lg.trace(fn, x, w), [x, w])
    lg.set_threads(2)
    for donate in ((), (0,)):
        f = lg.compile(fn, backend="accelerate", donate=donate)
        for got, right in zip(f(x.copy(), w), expected, strict=True):
            np.testing.assert_allclose(got, right, rtol=2e-5, atol=1e-5)


def test_an_index_out_of_range_is_reported_after_a_chain(eager: None):
    lg.set_threads(2)
    x, w = RNG.standard_normal((64, 64), np.float32), RNG.standard_normal((64, 64), np.float32)

    def program(x: Any, w: Any, i: Any) -> Any:
        return lg.take(lg.exp(x @ w) @ w, i, axis=0) + 1

    compiled = lg.compile(program, backend="accelerate")
    compiled(x, w, np.array([3, 5]))
    with pytest.raises(lg.errors.IndexOutOfRangeError, match="index 70"):
        compiled(x, w, np.array([3, 70]))


def test_a_donated_argument_may_be_written_in_a_chain(eager: None):
    lg.set_threads(2)
    w, g = RNG.standard_normal((128, 96), np.float32), RNG.standard_normal((128, 128), np.float32)
    update = lg.compile(lambda w, g: (w - 0.5 * (g @ w), lg.sum(w)), backend="accelerate", donate=(0,))
    expected = w - np.float32(0.5) * (g.astype(np.float64) @ w).astype(np.float32)
    total = w.sum(dtype=np.float64)
    new, found = update(w.copy(), g)
    np.testing.assert_allclose(new, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found, total, rtol=1e-4, atol=1e-3)
