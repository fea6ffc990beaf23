"""Values written into their place in a larger array: the right elements, and one pass over memory."""

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.runtime.accelerate.commands import Plan
from lucidgraph.runtime.accelerate.plan import Planner
from lucidgraph.runtime.accelerate.tables import TABLE
from lucidgraph.wiring import backend
from tests.accelerate.programs import graph_for, outputs

pytest.importorskip("llvmlite")

BACKEND = backend("accelerate")
X = np.random.default_rng(5).standard_normal((40, 50)).astype(np.float32)


def plan(fn, *args) -> Plan:
    return Planner(graph_for(BACKEND, fn, *args), 1, TABLE).run()


def heat(u):
    inner = u[1:-1, 1:-1]
    return inner + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inner)


def written(u):
    return u.at[1:-1, 1:-1].set(heat(u))


@pytest.mark.parametrize("step", [written, lambda u: lg.pad(heat(u), 1)])
def test_a_step_of_finite_differences_is_one_pass(step):
    made = plan(step, X)
    assert [b.kind for b in made.buffers] .count("temporary") == 0
    largest = [c for c in made.commands if c.items > 1]
    assert sum(c.cost for c in made.commands if c not in largest) < 4 * 4 * (40 + 50)
    assert len(largest) <= 1 + 4
    (actual,) = outputs(BACKEND, lambda u: (step(u),), X)
    (exact,) = outputs(backend("reference"), lambda u: (step(u),), X)
    np.testing.assert_allclose(actual, exact, rtol=1e-6, atol=1e-6)


PROGRAMS = {
    "concat": lambda x: (lg.concat([x * 2, x + 1], axis=0), x - 1),
    "stack": lambda x: (lg.stack([x * 2, lg.exp(x)], axis=1),),
    "nested": lambda x: (lg.pad(lg.concat([x * 2, lg.transpose(x)[:40, :40] * 3], axis=1), ((1, 2), (3, 0))),),
    "turned": lambda x: (lg.concat([lg.transpose(x * 2), lg.transpose(x)], axis=1),),
    "twice": lambda x: (lg.concat([x * 2] * 2, axis=1),),
    "also a result": lambda x: (lg.concat([x * 2, x], axis=1), x * 2),
    "read again": lambda x: (lg.concat([lg.exp(x), x], axis=1), lg.exp(x) @ lg.transpose(x)),
    "reshaped": lambda x: (lg.concat([lg.reshape(x * 2, (2, 1000)), lg.reshape(x, (2, 1000))], axis=0),),
    "folded": lambda x: (lg.concat([lg.sum(x, axis=0)[None], x * 2, lg.sum(x * x, axis=0, keepdims=True)], axis=0),),
    "with steps": lambda x: (x.at[::2].set(x[::2] * 2), x.at[1::3, ::-1].set(x[1::3] + 1)),
    "between": lambda x: (lg.pad(x * 2, ((1, 1), (0, 2)), constant_values=3.0),),
    "empty": lambda x: (lg.concat([x[:0] * 2, x * 2], axis=0), lg.pad(x[:0] * 2, 1)),
    "rolled": lambda x: (lg.roll(x * 2, 3, axis=1), lg.concat([(x * 3)[:, 5:], (x * 3)[:, :5]], axis=1)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_elements(name):
    fn = PROGRAMS[name]
    for actual, exact in zip(outputs(BACKEND, fn, X), outputs(backend("reference"), fn, X), strict=True):
        np.testing.assert_allclose(actual, exact, rtol=1e-5, atol=1e-5)


def test_small_writes_are_made_in_place():
    def fn(x):
        x = x * 1.5
        for k in range(5):
            x = x.at[k].set(x[k] * 2)
        return x

    idle = [c for c in plan(fn, X).commands if c.idle]
    assert len(idle) >= 4
    expected = X * np.float32(1.5)
    expected[:5] *= 2
    np.testing.assert_allclose(outputs(BACKEND, lambda x: (fn(x),), X)[0], expected, rtol=1e-6)


def test_a_donated_array_written_to():
    compiled = lg.compile(lambda x: x.at[3].set(x[3] * 2), backend="accelerate", donate=(0,))
    given = X.copy()
    expected = X.copy()
    expected[3] *= 2
    np.testing.assert_array_equal(compiled(given), expected)


@pytest.mark.slow
def test_a_long_chain_of_paddings():
    def fn(x):
        for _ in range(3000):
            x = lg.pad(x * 1, ((0, 0), (0, 1)))[:, 1:]
        return x

    np.testing.assert_array_equal(outputs(BACKEND, lambda x: (fn(x),), X[:1, :3])[0], np.zeros((1, 3)))


# -- read in pieces


def _second(u, axis):
    near, far = (lg.roll(u, s, axis=axis) + lg.roll(u, -s, axis=axis) for s in (1, 2))
    return 16.0 * near - far - 30.0 * u


def _wave(u):
    return 2.0 * u - lg.roll(u, 7, axis=1) + 0.05 * (_second(u, 0) + _second(u, 1))


def _neumann(u):
    p = lg.pad(u, ((1, 1), (2, 1)), constant_values=0.5)
    return p[1:-1, 2:-1] * 2 - p[:-2, 2:-1] + p[1:-1, 1:-2] * p[2:, 3:]


PIECES = {
    "wave": _wave,
    "around": _neumann,
    "both axes": lambda u: lg.exp(lg.roll(lg.roll(u, 3, axis=0), -4, axis=1)),
    "turned": lambda u: lg.transpose(lg.concat([u, u[:3]], axis=0)) * 2,
    "wider": lambda u: lg.concat([u[:1], u[5:6]], axis=1)[:, None, :] * lg.ones((2, 6, 1), lg.float32),
    "squeezed": lambda u: lg.squeeze(lg.concat([u[:1], u[3:4] * 2], axis=1), axis=0) + 1,
    "several results": lambda u: (lg.roll(u, 1, axis=0) * 2, lg.roll(u, 1, axis=0) + u),
    "also whole": lambda u: (lg.roll(u, 1, axis=0) * 2, lg.sum(lg.roll(u, 1, axis=0), axis=0)),
    "cubes": lambda u: lg.roll(lg.reshape(u, (10, 4, 50)), 3, axis=0) + lg.roll(lg.reshape(u, (10, 4, 50)), 1, axis=1),
    "reversed": lambda u: lg.concat([u[::-1], u[:, ::-1]], axis=1) - 1,
    "empty": lambda u: lg.concat([u[:0], u[:0]], axis=0) * 2,
}


@pytest.mark.parametrize("name", PIECES)
def test_what_is_read_in_pieces(name):
    def fn(u):
        out = PIECES[name](u)
        return out if isinstance(out, tuple) else (out,)

    for actual, exact in zip(outputs(BACKEND, fn, X), outputs(backend("reference"), fn, X), strict=True):
        np.testing.assert_allclose(actual, exact, rtol=1e-5, atol=1e-5)


def test_rolled_arrays_are_not_written():
    made = plan(_wave, X)
    assert {b.kind for b in made.buffers} == {"input", "output"}
    assert len({id(c.code) for c in made.commands}) == 1


def test_too_many_pieces_are_put_together():
    def fn(u):
        return lg.concat([u[k : k + 1] for k in range(40)] + [u[k : k + 1] for k in range(30)], axis=0) * 2

    (actual,) = outputs(BACKEND, lambda u: (fn(u),), X)
    np.testing.assert_array_equal(actual, np.concatenate([X, X[:30]]) * 2)
