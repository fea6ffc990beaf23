"""Errors found while a program runs: said with the user's line, with nothing left behind."""

import inspect
import re

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.wiring import backend
from tests.checking import on_backend

memory = pytest.importorskip("lucidgraph.runtime.accelerate.memory")


def _take(x, i):
    return lg.square(x) + 1, lg.take(x, i, axis=0)


def _take_along_axis(x, i):
    return lg.take_along_axis(x, i[:, None] + lg.zeros_like(x, dtype=lg.int64), axis=0)


def _scatter(x, i):
    return lg.scatter_add(x, i, x[: i.shape[0]], axis=0)


def _getitem(x, i):
    return x[i]


def _at(x, i):
    return lg.asarray(x).at[i].add(1.0)


X = np.arange(12.0).reshape(4, 3)
GOOD = np.array([0, -4, 3, 2])


@pytest.mark.parametrize("fn", [_take, _take_along_axis, _scatter, _getitem, _at])
@pytest.mark.parametrize("bad", [4, -5, 10**9, -(2**62), 2**62])
def test_an_index_out_of_range(fn, bad):
    program = lg.compile(fn, backend="accelerate")
    expected = lg.compile(fn, backend="reference")(X, GOOD)
    before = X.copy()
    for _ in range(2):
        for place in range(4):
            indices = GOOD.copy()
            indices[place] = bad
            with pytest.raises(lg.IndexOutOfRangeError, match=re.escape(f"index {bad} is out of range")) as caught:
                program(X, indices)
            lines, first = inspect.getsourcelines(fn)
            source = caught.value.source
            assert source.file == __file__
            assert first < source.line < first + len(lines)
            assert isinstance(caught.value, IndexError)
        np.testing.assert_equal(program(X, GOOD), expected)
    np.testing.assert_array_equal(X, before)


def test_an_index_out_of_range_op_by_op():
    with on_backend("accelerate"), pytest.raises(lg.IndexOutOfRangeError, match="index 7"):
        lg.take(lg.asarray(X), lg.asarray(np.array([0, 7])), axis=0).numpy()


def test_the_first_bad_index_ends_the_run():
    """What would come after does not run; of several gathers the first is named."""
    program = lg.compile(lambda x, i, j: (lg.take(x, i, axis=0), lg.take(x, j, axis=1)), backend="accelerate")
    with pytest.raises(lg.IndexOutOfRangeError, match="index 9"):
        program(X, GOOD + 9 - GOOD, GOOD + 8 - GOOD)
    with pytest.raises(lg.IndexOutOfRangeError, match="index 8"):
        program(X, GOOD, GOOD + 8 - GOOD)


def test_memory_that_cannot_be_had():
    """Results and temporaries of 2⁵⁰ bytes and more, on a machine without so much address space."""
    x = np.ones((2**25, 1), np.float32)[:4]
    wide = np.broadcast_to(np.float32(1), (2**24, 1))
    outer = lg.compile(lambda a: a @ lg.permute_dims(a, (1, 0)), backend="accelerate")
    held = memory.BLOCKS.held
    for _ in range(2):
        with pytest.raises(MemoryError):
            outer(wide)
    assert memory.BLOCKS.held == held
    inner = lg.compile(lambda a: lg.sum(lg.exp(a @ lg.permute_dims(a, (1, 0))) @ a), backend="accelerate")
    with pytest.raises(MemoryError):
        inner(wide)
    np.testing.assert_array_equal(outer(x), np.ones((4, 4)))
    np.testing.assert_allclose(inner(x), 16 * np.e, rtol=1e-6)


def test_errors_give_memory_back():
    n = memory.LARGE // 8 + 8
    program = lg.compile(lambda x, i: (x * 2, lg.take(x, i, axis=0) + x), backend="accelerate")
    x, good = np.zeros(n), np.zeros(n, np.int64)
    bad = good.copy()
    bad[-1] = n
    program(x, good)
    held = memory.BLOCKS.held
    for _ in range(5):
        with pytest.raises(lg.IndexOutOfRangeError):
            program(x, bad)
        assert memory.BLOCKS.held == held
    assert program.cache_info().currsize == 1
    np.testing.assert_array_equal(program(x + 1, good)[1], np.full(n, 2.0))


def test_what_the_backend_refuses_says_so_and_keeps_nothing():
    program = lg.compile(lambda x: x + 1, backend="accelerate")
    with pytest.raises(lg.DTypeError):
        program(np.array(["a"]))
    assert program.cache_info().currsize == 0
    run = program.lower(X).compile()
    with pytest.raises(lg.ShapeError, match=r"\(3, 4\)"):
        run([X.T])
    np.testing.assert_array_equal(run([X])[0], X + 1)
    assert backend("accelerate").name == "accelerate"


def test_what_printing_raises_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> None:
            raise OSError("closed")

        def flush(self) -> None: ...

    def shown(x):
        lg.debug_print("{}", x)
        return x + 1

    program = lg.compile(shown, backend="accelerate")
    monkeypatch.setattr("sys.stdout", Closed())
    with pytest.raises(OSError, match="closed"):
        program(np.ones(3, np.float32))
    monkeypatch.undo()
    np.testing.assert_array_equal(program(np.ones(3, np.float32)), np.full(3, 2))
