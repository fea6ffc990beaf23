"""Donated memory becomes the result's where nothing else lies in it; elsewhere arguments are never written."""

import numpy as np
import pytest

import lucidgraph as lg

pytest.importorskip("llvmlite", reason="llvmlite is not installed")


def step(p, g):
    return p - 0.5 * g


def test_result_takes_donated_memory():
    p, g = np.ones((50, 7), np.float32), np.full((50, 7), 2, np.float32)
    q = lg.compile(step, donate=(0,), backend="accelerate")(p, g)
    assert np.shares_memory(p, q)
    np.testing.assert_array_equal(q, np.zeros((50, 7)))


def test_memory_that_another_argument_reads_is_left_alone():
    base = np.arange(12, dtype=np.float32)
    q = lg.compile(step, donate=(0,), backend="accelerate")(base[:8], base[4:])
    np.testing.assert_array_equal(q, np.arange(8) - 0.5 * np.arange(4, 12))
    np.testing.assert_array_equal(base, np.arange(12))


def test_read_only_memory_and_tensors_are_left_alone():
    p, g = np.ones(5, np.float32), np.ones(5, np.float32)
    p.flags.writeable = False
    program = lg.compile(step, donate=(0,), backend="accelerate")
    np.testing.assert_array_equal(program(p, g), np.full(5, 0.5))
    t = lg.asarray(p)
    np.testing.assert_array_equal(program(t, g).numpy(), np.full(5, 0.5))
    np.testing.assert_array_equal(t.numpy(), np.ones(5))


@pytest.mark.parametrize("backend", [name for name, why in lg.backends().items() if why == "available"])
def test_nothing_is_written_without_donation(backend):
    x = np.ones((4, 4), np.float32)
    y = lg.compile(lambda x: (x + 1, x, x * 2), backend=backend)(x)
    np.testing.assert_array_equal(x, np.ones((4, 4)))
    assert not any(np.shares_memory(x, part) for part in y)
