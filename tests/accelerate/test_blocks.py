"""Results in recycled blocks: alive as long as an array over them, never two at once, never another process's."""

import multiprocessing
from itertools import pairwise

import numpy as np

from lucidgraph.runtime.accelerate.memory import BLOCKS, LARGE, empty


def block(elements: int = LARGE // 8 + 5) -> np.ndarray:
    return empty((elements,), np.dtype(np.float64))


def test_living_results_do_not_overlap():
    made = [block() for _ in range(4)]
    begins = sorted(a.ctypes.data for a in made)
    assert all(b - a >= made[0].nbytes for a, b in pairwise(begins))


def test_a_block_lives_as_long_as_any_view_and_is_then_used_again():
    BLOCKS.clear()
    x = block()
    address = x.ctypes.data
    view = x[3:].reshape(2, -1).T[1:]
    del x
    assert BLOCKS.held == 0
    assert block().ctypes.data != address
    BLOCKS.clear()
    del view
    assert BLOCKS.held > 0
    assert block().ctypes.data == address


def write(x: np.ndarray) -> None:
    x[:] = 7


def test_a_forked_child_does_not_write_into_its_parent_s_results():
    x = block()
    x[:] = 1
    child = multiprocessing.get_context("fork").Process(target=write, args=(x,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert (x == 1).all()
