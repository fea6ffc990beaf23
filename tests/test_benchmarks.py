"""The benchmarks' workloads give the right values, at their small sizes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.oracle import exact, greatest_error
from benchmarks.peers import PEERS, each
from benchmarks.workloads import WORKLOADS


@pytest.mark.parametrize("row", WORKLOADS)
def test_rows_are_right(row: str) -> None:
    work = WORKLOADS[row]
    args = work.make(np.random.default_rng(0), *work.small)
    peer = PEERS["lucidgraph"]()
    call = peer.prepare(row, work, args)
    found = call.fn(*call.args)
    found = each(peer.to_numpy, list(found) if isinstance(found, list | tuple) else found)
    assert greatest_error(found, exact(work, args)) <= work.tolerance
