"""Memory: nothing outside is touched, results own theirs, what is dropped comes back, calls leave nothing behind."""

import gc
import resource
import subprocess
import sys
import weakref

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.config import config
from lucidgraph.wiring import backend
from tests.accelerate.generated import generate

pytest.importorskip("llvmlite")
memory = pytest.importorskip("lucidgraph.runtime.accelerate.memory")
machine = pytest.importorskip("lucidgraph.runtime.accelerate.machine")
arena = pytest.importorskip("lucidgraph.runtime.accelerate.arena")

LARGE = memory.LARGE // 4
BLOCKS = memory.BLOCKS


def resident() -> int:
    """The bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, protects pages")


@linux
@pytest.mark.parametrize("where", ["start", "end"])
def test_no_byte_outside_an_array_is_touched(where):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.accelerate.guarded", where], capture_output=True, text=True, timeout=600
    )
    lines = ran.stdout.splitlines()
    assert ran.returncode == 0, f"{lines[-1:]}: {ran.stderr[-2000:]}"
    assert lines[-1] == "done"


@linux
def test_the_guards_see_a_byte_too_many():
    code = (
        "from tests.accelerate.guarded import guarded_array\n"
        "import ctypes; x = guarded_array((3,), 'float32', True); ctypes.memmove(x.ctypes.data, x.ctypes.data + 4, 12)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode < 0


def test_results_are_not_overwritten_while_alive():
    program = lg.compile(lambda x: (x + 1, x * 2), backend="accelerate")
    x = np.arange(LARGE, dtype=np.float32)
    kept = [program(x + k) for k in range(4)]
    views = [a[0][4:].reshape(5, -1)[1:] for a in kept]
    for k, (plus, twice) in enumerate(kept):
        np.testing.assert_array_equal(plus, x + k + 1)
        np.testing.assert_array_equal(twice, (x + k) * 2)
    del kept, plus, twice
    # A view holds the memory as well, whatever it is a view of.
    owners = [v.base[:] for v in views]
    for _ in range(4):
        program(x - 100)
    for k, view in enumerate(views):
        np.testing.assert_array_equal(view, (x + k + 1)[4:].reshape(5, -1)[1:])
    del views
    for _ in range(4):
        program(x - 100)
    np.testing.assert_array_equal(owners[2].view(np.float32).reshape(-1)[:3], [3, 4, 5])


def test_arguments_are_not_written():
    """Not even where an output could lie in the place of an input."""
    rng = np.random.default_rng(0)
    for fn in (lambda x: x + 1, lambda x: (lg.exp(x) * x, x), lambda x: lg.softmax(x, axis=0) - x, lambda x: x,
               lambda x: lg.scatter_add(x, np.array([0, 0]), x[:2]), lambda x: x[::-1]):  # fmt: skip
        x = rng.standard_normal((7, 5))
        before = x.copy()
        x.flags.writeable = False
        result = lg.compile(fn, backend="accelerate")(x)
        np.testing.assert_array_equal(x, before)
        for array in result if isinstance(result, tuple) else (result,):
            assert array.flags.writeable
            array[...] = 7
        np.testing.assert_array_equal(x, before)


def test_memory_of_a_dead_result_is_taken_again():
    program = lg.compile(lambda x: x + 1, backend="accelerate")
    x = np.zeros(LARGE, np.float32)
    program(x)
    place = program(x).ctypes.data
    first = program(x)
    assert first.ctypes.data == place
    second = program(x)
    assert second.ctypes.data != place
    del first
    assert program(x).ctypes.data == place


def test_the_pool_is_bounded_and_keeps_what_was_used_last(monkeypatch):
    pool = type(BLOCKS)()
    monkeypatch.setattr(memory, "_CACHE_BYTES", 10 << 20)
    blocks = [pool.take((4 + k) << 20) for k in range(3)]
    sizes = [b.size for b in blocks]
    for block in blocks:
        pool.give(block)
    assert pool.held == sizes[2]
    assert pool.take(6 << 20) is blocks[2]
    assert pool.held == 0
    pool.give(memory.Block(11 << 20))
    assert pool.held == 0


def test_the_arena_gives_no_byte_twice():
    rng = np.random.default_rng(3)
    place, used, greatest = arena.Arena(), {}, 0
    for k in range(3000):
        if used and rng.random() < 0.48:
            place.give(*used.pop(list(used)[int(rng.integers(len(used)))]))
        else:
            size = int(rng.integers(1, 1000))
            start = place.take(size)
            assert start % 64 == 0
            assert all(start + size <= at or at + n <= start for at, n in used.values())
            used[k] = (start, size)
            greatest = max(greatest, start + arena.aligned(size))
    assert place.size == greatest
    for start, size in used.values():
        place.give(start, size)
    assert place.take(greatest) == 0


@linux
def test_10_000_calls_of_changing_sizes(monkeypatch):
    """A few compilations for all sizes of a rank, whatever the number of programs; memory stays as it is."""
    monkeypatch.setattr(config, "disk_cache", False)
    compilations = []
    make = machine.Compiler.own
    monkeypatch.setattr(machine.Compiler, "own", lambda *args: compilations.append(1) or make(*args))
    program = lg.compile(lambda x: (lg.tanh(x * 3 + 0.125), lg.sum(x * x * 0.375, axis=1)), backend="accelerate")
    rng = np.random.default_rng(0)
    shapes = [(int(m), int(n)) for m, n in rng.integers(2, 300, (100, 2))]
    arrays = [rng.standard_normal(s) for s in shapes]

    def calls(count):
        for k in range(count):
            x = arrays[k * k % 100]
            y, s = program(x)
            if k % 97 == 0:
                np.testing.assert_allclose(y, np.tanh(x * 3 + 0.125), rtol=1e-14)
                np.testing.assert_allclose(s, (x * x * 0.375).sum(1), rtol=1e-12)

    calls(1000)
    assert 1 <= len(compilations) <= 6  # two kernels, each for rows of three lengths
    done = len(compilations)
    gc.collect()
    before = resident()
    calls(9000)
    gc.collect()
    assert len(compilations) == done
    assert resident() - before < 8 << 20


@linux
def test_dropped_functions_leave_nothing(monkeypatch):
    monkeypatch.setattr(config, "disk_cache", False)
    codes = []
    make = machine.Compiler.own
    monkeypatch.setattr(machine.Compiler, "own", lambda *args: codes.append(c := make(*args)) or c)
    x = np.ones((50, 40), np.float32)

    def one(k):
        program = lg.compile(lambda x: lg.square(x * (k + 0.5)) + k, backend="accelerate")
        program(x)
        return program

    programs = [one(k) for k in range(20)]
    kernels = [weakref.ref(c) for c in codes]
    assert len(kernels) >= 20
    codes.clear()
    del programs
    gc.collect()
    assert not [k for k in kernels if k() is not None]
    before = resident()
    for k in range(20, 220):
        one(k)
        codes.clear()
    gc.collect()
    assert resident() - before < 16 << 20


def test_temporaries_share_memory():
    """A long chain of products needs the memory of a few of them, not of all."""

    def chain(x):
        for _ in range(30):
            x = lg.minimum(x @ x, 1.0)
        return x

    x = np.full((64, 64), 0.01)
    final = lg.compile(chain, backend="accelerate").lower(x).compile()
    assert final.plan.arena <= 3 * x.nbytes


def test_temporaries_lie_in_results_that_are_written_later():
    """The gradient of a weight in the new weight, what comes before in results not written yet; each value is whole."""

    def step(w, x):
        value, slopes = lg.value_and_grad(lambda w: lg.mean(lg.tanh(lg.tanh(x @ w[0]) @ w[1]) ** 2))(w)
        return value, [a - 0.5 * b for a, b in zip(w, slopes, strict=True)], x * 2

    rng = np.random.default_rng(1)
    w = [rng.standard_normal((512, 512)) / 16 for _ in range(2)]
    x = rng.standard_normal((256, 512))
    compiled = lg.compile(step, backend="accelerate")
    plan = compiled.lower(w, x).compile().plan
    assert all(b.kind == "output" for b in plan.buffers if b.nbytes == w[0].nbytes and b.kind != "input")
    assert sum(b.kind == "output" for b in plan.buffers) > len(plan.outputs)
    assert plan.arena <= 3 * x.nbytes
    value, new, twice = compiled(w, x)
    h = np.tanh(x @ w[0])
    y = np.tanh(h @ w[1])
    last = 2 * y / y.size * (1 - y * y)
    slopes = [x.T @ (last @ w[1].T * (1 - h * h)), h.T @ last]
    np.testing.assert_allclose(value, np.mean(y * y), rtol=1e-12)
    for a, b, c in zip(new, w, slopes, strict=True):
        np.testing.assert_allclose(a, b - 0.5 * c, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(twice, x * 2)


@pytest.mark.parametrize("seed", range(6))
def test_shared_memory_keeps_values_apart(seed):
    """Many values alive at once, dying in another order than they were made in."""
    fn, args = generate(seed + 1000, 60, exact=True, empty=False)
    be = backend("accelerate")
    graph = lg.trace(fn, *args)
    expected = graph.run(*args, backend="reference")
    for _ in range(2):
        for a, b in zip(graph.run(*args, backend=be.name), expected, strict=True):
            np.testing.assert_array_equal(a, b)
