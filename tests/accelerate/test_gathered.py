"""Elementwise kernels that read through indices: values, awkward layouts, indices outside."""

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.errors import IndexOutOfRangeError
from lucidgraph.wiring import backend
from tests.accelerate.programs import graph_for, outputs

pytest.importorskip("llvmlite")

BACKEND = backend("accelerate")
RNG = np.random.default_rng(8)
TABLE = RNG.standard_normal((50, 19)).astype(np.float32)
IDS = RNG.integers(-50, 50, (7, 5))


def commands(fn, *args) -> list[str]:
    return [c.name for c in BACKEND.compile(graph_for(BACKEND, fn, *args)).plan.commands]  # type: ignore[attr-defined]


def affine(table, ids):
    return lg.take(table, ids, axis=0) * 0.5 + 1.0


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint32"])
def test_indices_of_every_width(dtype):
    ids = (IDS % 50 if dtype[0] == "u" else IDS).astype(dtype)
    (actual,) = outputs(BACKEND, lambda t, i: (affine(t, i),), TABLE, ids)
    np.testing.assert_array_equal(actual, TABLE[ids] * np.float32(0.5) + np.float32(1))


def test_no_copy_is_made():
    assert commands(affine, TABLE, IDS) == ["take constant multiply add"]
    # A reduction, and whoever else reads it, wants the copy.
    assert commands(lambda t, i: lg.sum(lg.take(t, i, axis=0), axis=-1), TABLE, IDS)[0] == "take"
    assert "take" in commands(lambda t, i: (affine(t, i), lg.take(t, i, axis=0)), TABLE, IDS)


PROGRAMS = {
    "middle axis": lambda t, i: lg.take(lg.reshape(t, (5, 10, 19)), i % 10, axis=1) - 1.0,
    "two tables": lambda t, i: lg.take(t, i, axis=0) * lg.take(t + 1.0, i + 1, axis=0) + lg.take(t, i[::-1], axis=0),
    "broadcast": lambda t, i: lg.take(t, i, axis=0) * t[0] + i[:, :, None],
    "table made here": lambda t, i: lg.exp(lg.take(lg.tanh(t) * 2.0, i, axis=0)),
    "reversed table": lambda t, i: lg.take(t[::-1, ::-1], i, axis=0) * 2.0,
    "turned table": lambda t, i: lg.take(lg.transpose(t), i[:2] % 19, axis=0) * 2.0,
    "joined": lambda t, i: lg.concat([lg.take(t, i[0], axis=0) * 2.0, t], axis=0),
    "with a roll": lambda t, i: lg.take(t, i[:, 0], axis=0) * lg.roll(t[:7], 1, axis=0),
    "compared": lambda t, i: lg.where(lg.take(t, i, axis=0) > 0, 1, 2),
    "halves": lambda t, i: lg.take(lg.astype(t, lg.float16), i, axis=0) * 2.0,
    "complex": lambda t, i: lg.take(lg.astype(t, lg.complex64), i, axis=0) * 2.0,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name):
    def fn(t, i):
        return (PROGRAMS[name](t, i),)

    (actual,), (exact,) = outputs(BACKEND, fn, TABLE, IDS % 49), outputs(backend("reference"), fn, TABLE, IDS % 49)
    assert actual.dtype == exact.dtype
    np.testing.assert_allclose(actual, exact, rtol=2e-3 if name == "halves" else 1e-6, atol=1e-6)


@pytest.mark.parametrize("index", [50, -51, 2**40])
def test_an_index_outside(index):
    ids = IDS.copy()
    ids[3, 3] = index
    compiled = lg.compile(affine, backend="accelerate")
    with pytest.raises(IndexOutOfRangeError, match=f"index {index} is out of range in take"):
        compiled(TABLE, ids)
    np.testing.assert_array_equal(compiled(TABLE, IDS), TABLE[IDS] * np.float32(0.5) + np.float32(1))


def test_the_table_written_to_afterwards():
    """The gather is read late; a write to its table in between must not be seen."""

    def fn(t, i):
        t = t * 1.0
        rows = lg.take(t, i, axis=0)
        other = t.at[0].set(lg.zeros((19,), lg.float32))
        return lg.matmul(other, lg.transpose(other)), rows * 2.0

    actual = outputs(BACKEND, fn, TABLE, IDS)[1]
    np.testing.assert_array_equal(actual, TABLE[IDS] * 2)
