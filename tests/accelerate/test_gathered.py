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


# -- indices that move along the vectors

WIDE = RNG.standard_normal((37, 83)).astype(np.float32)
ALONG = {
    "last axis": (lambda t, i: lg.take(t, i, axis=1) * 2.0, lambda t, i: t[:, i] * 2, RNG.integers(-83, 83, 41)),
    "one axis": (lambda t, i: lg.take(t[3], i) + 1.0, lambda t, i: t[3][i] + 1, RNG.integers(-83, 83, 1000)),
    "two axes": (lambda t, i: t[i % 37, i % 83] * 2.0, lambda t, i: t[i % 37, i % 83] * 2, RNG.integers(0, 999, 333)),
    "along rows": (
        lambda t, i: lg.take_along_axis(t, i, axis=1) * 2.0,
        lambda t, i: np.take_along_axis(t, i, 1) * 2, RNG.integers(-83, 83, (37, 29)),
    ),
    "along columns": (
        lambda t, i: lg.take_along_axis(t, i, axis=0) - 1.0,
        lambda t, i: np.take_along_axis(t, i, 0) - 1, RNG.integers(-37, 37, (5, 83)),
    ),
    "every second index": (
        lambda t, i: lg.take(t, i[::2], axis=1) * 2.0, lambda t, i: t[:, i[::2]] * 2, RNG.integers(0, 83, 65)
    ),
    "indices turned": (
        lambda t, i: lg.take_along_axis(t, i.T, axis=1), lambda t, i: np.take_along_axis(t, i.T, 1),
        RNG.integers(-83, 83, (29, 37)),
    ),
    "narrow rows": (
        lambda t, i: lg.take(t[:, :3], i, axis=0) * 2.0, lambda t, i: t[:, :3][i] * 2, RNG.integers(-37, 37, 501)
    ),
    "long": (lambda t, i: lg.take(t, i), lambda t, i: t.ravel()[i], RNG.integers(-3071, 3071, 20_001)),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "float16", "complex64", "bool"])
@pytest.mark.parametrize("indices", ["int64", "int32"])
def test_along_the_vectors(name, dtype, indices):
    fn, meaning, ids = ALONG[name]
    table, ids = (WIDE * 9).astype(dtype), ids.astype(indices)
    if dtype == "bool":
        fn, meaning = (lambda t, i, f=fn: f(lg.astype(t, lg.float32), i)), (
            lambda t, i, f=meaning: f(t.astype(np.float32), i))  # fmt: skip
    (actual,) = outputs(BACKEND, lambda t, i: (fn(t, i),), table, ids)
    np.testing.assert_array_equal(actual, meaning(table, ids).astype(actual.dtype))


@pytest.mark.parametrize("bad", [83, -84, 1 << 40])
@pytest.mark.parametrize("place", [0, 17, 40])
def test_one_outside_along_the_vectors(bad, place):
    ids = np.arange(41)
    ids[place] = bad
    with pytest.raises(IndexOutOfRangeError, match=str(bad)):
        outputs(BACKEND, lambda t, i: (lg.take(t, i, axis=1) * 2.0,), WIDE, ids)


# -- scatters

COUNT = 40_000  # enough for a target for each thread
SCATTERS = {
    "one by one": ((50,), RNG.integers(-50, 50, COUNT), ()),
    "into many": ((30_000,), RNG.integers(0, 30_000, COUNT), ()),
    "rows": ((50, 19), RNG.integers(-50, 50, COUNT // 19), (19,)),
    "wide rows": ((9, 640), RNG.integers(0, 9, 70), (640,)),
    "few": ((50,), RNG.integers(-50, 50, 7), ()),
    "two axes of indices": ((50, 3), RNG.integers(-50, 50, (200, 100)), (3,)),
}


ORDERED = ["float32", "float64", "int32", "uint8", "float16"]
HOWS = [(how, dtype) for how in ("add", "maximum", "minimum") for dtype in ORDERED]


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize(("how", "dtype"), [*HOWS, ("add", "bool"), ("add", "complex64")])
def test_scatters(name, dtype, how):
    shape, ids, row = SCATTERS[name]
    x = RNG.integers(0, 2, shape).astype(dtype)
    updates = RNG.integers(0, 2 if how == "add" else 99, (*ids.shape, *row)).astype(dtype)
    expected = x.astype("float64" if dtype != "complex64" else "complex128")
    {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}[how].at(expected, ids, updates)
    for indices in ("int64", "int32"):
        (actual,) = outputs(BACKEND, lambda *args: (getattr(args[0].at[args[1]], how)(args[2]),), x,
                            ids.astype(indices), updates)  # fmt: skip
        np.testing.assert_array_equal(actual, expected.astype(dtype))


def test_scatters_of_what_is_no_array():
    ids = RNG.integers(0, 300, COUNT).astype(np.int32)

    def fn(ids, column):
        ones = lg.zeros((300,), lg.int32).at[ids].add(1)
        return ones, lg.zeros((300, 4)).at[ids].add(column[:, None]), lg.zeros((300,)).at[ids].add(column[::-1])

    column = RNG.integers(0, 9, COUNT).astype(np.float32)
    actual = outputs(BACKEND, fn, ids, column)
    counts = np.bincount(ids, minlength=300)
    sums = np.bincount(ids, column, minlength=300)
    np.testing.assert_array_equal(actual[0], counts)
    np.testing.assert_array_equal(actual[1], np.repeat(sums[:, None], 4, 1))
    np.testing.assert_array_equal(actual[2], np.bincount(ids, column[::-1], minlength=300))


def test_signs_of_zeros_and_nan_in_scatters():
    x = np.array([-0.0, 0.0, -0.0, 1.0], np.float32)
    ids = np.full(COUNT, 3)
    ids[7] = 2
    updates = np.zeros(COUNT, np.float32)
    updates[7] = -0.0
    (actual,) = outputs(BACKEND, lambda x, i, u: (x.at[i].add(u),), x, ids, updates)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(x))
    updates[-1] = np.nan
    for how in ("maximum", "minimum"):
        (actual,) = outputs(BACKEND, lambda x, i, u, how=how: (getattr(x.at[i], how)(u),), x, ids, updates)
        assert np.isnan(actual[3]) and not np.isnan(actual[:3]).any()


@pytest.mark.parametrize("bad", [50, -51])
def test_one_outside_a_scatter(bad):
    ids = RNG.integers(0, 50, COUNT)
    ids[COUNT - 3] = bad
    with pytest.raises(IndexOutOfRangeError, match=str(bad)):
        outputs(BACKEND, lambda x, i: (x.at[i].add(1.0),), np.zeros(50, np.float32), ids)
