"""A chain of 20,000 operations through every stage, at Python's default recursion limit.

Linear time shows in the suite's own time: anything quadratic would take minutes here.
"""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.config import config
from lucidgraph.ir import Graph
from lucidgraph.passes import pipeline, run_passes

pytestmark = pytest.mark.slow

LENGTH = 20_000
X = np.array([0.25, -1.0, 3.0])


@pytest.fixture(autouse=True)
def _once() -> Iterator[None]:
    """Verified once by hand, not after each of the passes; one backend."""
    saved = config.verify_passes, config.backend
    config.verify_passes, config.backend = False, "reference"
    assert sys.getrecursionlimit() <= 1000
    yield
    config.verify_passes, config.backend = saved


def chain(x: Any) -> Any:
    """(((x / 2 + 1) / 2 + 1) …), which goes to 2, then summed."""
    for _ in range(LENGTH // 2):
        x = x / 2.0 + 1.0
    return lg.sum(x)


@pytest.fixture(scope="module")
def recorded() -> Graph:
    return lg.trace(chain, X, passes=())


def test_chain_through_the_pipeline(recorded: Graph) -> None:
    final = run_passes(recorded, pipeline()).verify()
    (value,) = final.run(X, backend="reference")
    np.testing.assert_allclose(value, 6.0, rtol=1e-15)


def test_gradient_text_and_copies_of_a_chain(recorded: Graph) -> None:
    joint = run_passes(recorded, pipeline()[:2]).backward()
    assert len(joint.nodes) > 3 * LENGTH
    text = str(joint)
    back = Graph.parse(text)  # verifies
    assert str(back) == text
    assert back.digest == joint.digest
    assert str(pickle.loads(pickle.dumps(back))) == text
    assert copy.deepcopy(back) is back
    tidy = run_passes(back, pipeline()[2:])
    one = np.float64(1)
    np.testing.assert_allclose(tidy.run(X, one, backend="reference")[1], np.zeros(3), atol=1e-300)


def test_released_chains_leave_nothing_behind() -> None:
    graph = lg.trace(chain, X)
    ends = [weakref.ref(graph.nodes[0]), weakref.ref(graph.nodes[-1]), weakref.ref(graph)]
    del graph
    gc.collect()
    assert [end() for end in ends] == [None, None, None]


def test_deferred_chain() -> None:
    y = lg.asarray(X)
    for _ in range(LENGTH):
        y = y / 2.0
    np.testing.assert_allclose(y.numpy(), np.zeros(3), atol=1e-300)


def test_additions_of_one_constant() -> None:
    step = np.float64(0.5)

    def count(x: Any) -> Any:
        for _ in range(LENGTH):
            x = x + step
        return x

    np.testing.assert_array_equal(lg.compile(count, backend="reference")(X), X + 0.5 * LENGTH)
