"""How kernels go over memory: small strides, axes backwards, blocks of columns, pieces, stores past the caches."""

from dataclasses import replace

import numpy as np
import pytest

import lucidgraph as lg

pytest.importorskip("llvmlite")
backend = pytest.importorskip("lucidgraph.runtime.accelerate.backend")
caches = pytest.importorskip("lucidgraph.runtime.accelerate.linux.caches")
system = pytest.importorskip("lucidgraph.runtime.accelerate.system")
views = pytest.importorskip("lucidgraph.runtime.accelerate.views")

RNG = np.random.default_rng(8)
STEPS = [2, 3, 4, 5, -1, -2]
SHAPES = [(1, 1), (3, 5), (2, 64), (5, 257), (40, 100)]


def numbers(shape, dtype):
    return (RNG.standard_normal(shape) * 50).astype(dtype)


def run(fn, *args):
    return lg.compile(fn, backend="accelerate")(*args)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int32", "complex64"])
@pytest.mark.parametrize("step", STEPS)
def test_strides_along_the_last_axis(step, dtype):
    program = lg.compile(lambda x: (x[:, ::step] * 2, lg.sum(x[:, ::step], axis=1)), backend="accelerate")
    for shape in SHAPES:
        x = numbers(shape, dtype)
        twice, total = program(x)
        np.testing.assert_array_equal(twice, x[:, ::step] * x.dtype.type(2))
        wide = x[:, ::step].astype({"i": np.int64, "f": np.float64, "c": np.complex128}[x.dtype.kind])
        rtol = 2e-3 if dtype == "float16" else 1e-6
        np.testing.assert_allclose(total, wide.sum(1), rtol=rtol, atol=1e-4)


@pytest.mark.parametrize("step", STEPS)
def test_strides_under_dear_functions_and_indices(step):
    x = numbers((7, 301), np.float32)
    root, place = run(lambda x: (lg.exp(x[:, ::step] / 50), lg.argmax(x[:, ::step], axis=1)), x)
    np.testing.assert_allclose(root, np.exp(x[:, ::step] / 50), rtol=1e-6)
    np.testing.assert_array_equal(place, np.argmax(x[:, ::step], 1))


def test_a_sum_walks_a_reversed_axis_but_an_index_counts_along_it():
    x = numbers((70, 130), np.int32)
    total, rows, first = run(lambda x: (lg.sum(x[::-1, ::-1]), lg.sum(x[::-1, ::-1], axis=1), lg.argmin(x[::-1])), x)
    assert total == x.sum()
    np.testing.assert_array_equal(rows, x[::-1].sum(1))
    assert first == np.argmin(x[::-1])


@pytest.mark.parametrize("columns", [1, 3, 100, 683, 8200])
def test_long_sums_of_parts_of_rows(columns):
    x = numbers((600, 8300), np.float32)
    np.testing.assert_allclose(run(lambda x: lg.sum(x[:, :columns]), x), x[:, :columns].astype(float).sum(), rtol=1e-5)


@pytest.mark.parametrize("shape", [(300, 1100), (9, 33, 70), (2, 5, 1), (1, 4, 3), (4, 600, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_along_every_axis(shape, dtype):
    x = RNG.standard_normal(shape).astype(dtype)
    wide = x.astype(float)
    for axis in range(len(shape)):

        def norm(x, axis=axis):
            centred = x - lg.mean(x, axis=axis, keepdims=True)
            return centred / lg.sqrt(lg.mean(centred * centred, axis=axis, keepdims=True) + 0.1)

        soft, normal, most = run(lambda x, a=axis: (lg.softmax(x, axis=a), norm(x), lg.argmax(x, axis=a)), x)
        e = np.exp(wide - wide.max(axis, keepdims=True))
        np.testing.assert_allclose(soft, e / e.sum(axis, keepdims=True), rtol=1e-5)
        centred = wide - wide.mean(axis, keepdims=True)
        deviation = np.sqrt(np.mean(centred * centred, axis, keepdims=True) + 0.1)
        np.testing.assert_allclose(normal, centred / deviation, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(most, np.argmax(wide, axis))


@pytest.mark.parametrize(("shape", "axes"), [((300_001,), 0), ((700, 123), (0, 1)), ((90_000, 3), 0), ((3, 90_001), 1)])
def test_pieces_of_a_long_sum_write_what_it_is_a_sum_of(shape, axes):
    """One pass on all threads: the values, sums of two of them, and what is made of the sums and a row."""
    x = RNG.uniform(0.5, 2.0, shape).astype(np.float32)
    row = RNG.uniform(1.0, 2.0, np.sum(x, axes).shape).astype(np.float32)

    def program(x, row):
        y = x * x
        return y, lg.sum(y, axis=axes) * lg.exp(row), x + 1, lg.max(x, axis=axes) - lg.exp(row)

    y, total, more, most = run(program, x, row)
    np.testing.assert_array_equal(y, x * x)
    np.testing.assert_array_equal(more, x + np.float32(1))
    np.testing.assert_allclose(total, np.sum((x * x).astype(np.float64), axes) * np.exp(row), rtol=1e-6)
    np.testing.assert_allclose(most, np.max(x, axes) - np.exp(row), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_nan_among_rows_is_found(axis):
    x = RNG.standard_normal((90, 210)).astype(np.float32)
    x[37, 11] = np.nan
    most, least, soft = run(lambda x: (lg.max(x, axis=axis), lg.min(x, axis=axis), lg.softmax(x, axis=axis)), x)
    np.testing.assert_array_equal(most, x.max(axis))
    np.testing.assert_array_equal(least, x.min(axis))
    np.testing.assert_array_equal(np.isnan(soft), np.broadcast_to(np.isnan(x.sum(axis, keepdims=True)), x.shape))


@pytest.mark.parametrize("shape", [(70_000,), (257, 301), (40, 3, 1000)])
def test_stores_past_the_caches(shape):
    be = backend.AccelerateBackend(system=replace(system.SYSTEM, cache=1))
    for dtype in (np.float32, np.float64, np.float16, np.int8):
        x = numbers(shape, dtype)
        graph = lg.trace(lambda x: (x * 2, lg.where(x > 0, x, 0), lg.softmax(lg.astype(x, lg.float32) / 9, axis=-1)), x)
        executable = be.compile(lg.passes.run_passes(graph, lg.passes.pipeline(be.takes, be.fuses)))
        twice, positive, soft = executable([x])
        np.testing.assert_array_equal(twice, x * x.dtype.type(2))
        np.testing.assert_array_equal(positive, np.where(x > 0, x, 0))
        e = np.exp(x.astype(float) / 9 - (x.astype(float) / 9).max(-1, keepdims=True))
        np.testing.assert_allclose(soft, e / e.sum(-1, keepdims=True), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("width", [5, 37, 100, 301])
def test_stores_past_the_caches_in_rows_that_begin_between_lines(width):
    be = backend.AccelerateBackend(system=replace(system.SYSTEM, cache=1))
    for dtype in (np.float32, np.float64, np.int8):
        x = (RNG.standard_normal((70, width)) * 9).astype(dtype)
        graph = lg.trace(lambda x: x[1:, 1:] * 2 + x[:-1, :-1], x)
        (actual,) = be.compile(lg.passes.run_passes(graph, lg.passes.pipeline(be.takes, be.fuses)))([x])
        np.testing.assert_array_equal(actual, x[1:, 1:] * dtype(2) + x[:-1, :-1])


def test_the_last_cache(tmp_path):
    assert caches.last_cache(7, tmp_path) == 7
    for k, size in enumerate(["48K", "2M\n", "strange"]):
        (tmp_path / f"index{k}").mkdir()
        (tmp_path / f"index{k}" / "size").write_text(size)
    assert caches.last_cache(7, tmp_path) == 2 << 20


def test_reductions_to_few_values_in_several_passes():
    """Passes that would be one item of work, apart: statistics of everything, and of few columns."""
    rng = np.random.default_rng(9)
    x, scale = rng.standard_normal((600, 800)).astype("f4"), rng.standard_normal(8).astype("f4")
    y = x.reshape(60, 1000, 8)

    def programs(x, y, scale):
        mean, var = y.mean((0, 1)), y.var((0, 1))
        e = np.exp(x - x.max())
        return (y - mean) / np.sqrt(var + 1e-5) * scale, mean, var, x.std(), e / e.sum(), ((x - x.mean()) ** 2).sum()

    for actual, exact in zip(
        lg.compile(programs, backend="accelerate")(x, y, scale),
        programs(x.astype("f8"), y.astype("f8"), scale),
        strict=True,
    ):
        np.testing.assert_allclose(actual, exact, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "complex64"])
def test_neighbours_along_rows_of_all_lengths(dtype):
    def around(x):
        return [x[a : x.shape[0] - 2 + a, b : x.shape[1] - 2 + b] for a in range(3) for b in range(3)]

    program = lg.compile(lambda x: (sum(around(x)), around(x)[3] - around(x)[5]), backend="accelerate")
    for shape in [(3, 3), (4, 18), (5, 34), (9, 35), (5, 66), (6, 100), (4, 130), (40, 302), (3, 1026)]:
        for x in (numbers(shape, dtype), numbers(shape[::-1], dtype).T, numbers(shape, dtype)[::-1]):
            total, slope = program(x)
            if dtype != "float16":  # whose sums are rounded once
                np.testing.assert_array_equal(total, sum(around(x)))
            np.testing.assert_array_equal(slope, around(x)[3] - around(x)[5])


def test_one_pointer_serves_neighbours():
    inside = [views.View(0, at, (8, 8), (64, 4), lg.float32) for at in (0, 4, 8, 640, 644)]
    other = views.View(1, 4, (8, 8), (64, 4), lg.float32)
    wide = views.View(0, 4, (8, 8), (128, 4), lg.float32)
    found = views.beside([*inside, other, wide], ["adjacent"] * 7)
    assert found == ((1, 0, 4), (2, 0, 8), (4, 3, 4))
    assert views.beside(inside, ["adjacent", "same", *["adjacent"] * 3]) == ((2, 0, 8), (4, 3, 4))


def test_what_a_stencil_reads_at_several_places_is_moved_once():
    grid = [views.View(0, at, (30, 30), (128, 4), lg.float32) for at in (4, 128, 132, 136, 260)]
    out = views.View(1, 0, (30, 30), (120, 4), lg.float32)
    ends = 32 * 32 * 4 - 8  # but for the first corner and the last
    assert views.moved([*grid, out]) == ends + out.nbytes
    back = replace(grid[0], offset=4 + 29 * 128, strides=(-128, 4))
    assert views.moved([grid[0], back]) == 29 * 128 + 30 * 4
    apart = [views.View(0, at, (30, 1), (4096, 4), lg.float32) for at in (0, 2048)]
    assert views.moved(apart) == 2 * 30 * 4
    assert views.moved([views.View(0, 0, (0, 3), (12, 4), lg.float32)]) == 0
