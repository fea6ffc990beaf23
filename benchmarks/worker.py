"""A peer's process: ``python -m benchmarks.worker PEER``, asked on standard input, answering with a line of JSON each.

``["prepare", row]`` builds the row's call and runs it; ``["exact", row, folder]`` puts the right values there, and
``["check", folder]`` answers the error of the result against them; ``["measure", seconds]`` answers durations
of one call.
"""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.oracle import exact, greatest_error
from benchmarks.peers import PEERS, Call, MissingError, Peer, each
from benchmarks.workloads import WORKLOADS, leaves

__all__ = ["durations", "serve"]

SHORTEST = 50e-6  # calls shorter than this are timed several at once


def durations(call: Call, seconds: float) -> list[float]:
    """Of one call each, for about ``seconds``; at least one."""
    fn, args = call
    once = math.inf
    for _ in range(4):  # the first calls after a pause are no measure of how many are timed at once
        began = time.perf_counter()
        fn(*args)
        once = min(once, time.perf_counter() - began)
        if once > seconds / 4:
            break
    if once > seconds:
        return [once]
    count = max(1, round(SHORTEST / max(once, 1e-8)))
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while not taken or time.perf_counter() < end:
        began = time.perf_counter()
        for _ in repeat(None, count):
            fn(*args)
        taken.append((time.perf_counter() - began) / count)
    return taken


class Prepared(NamedTuple):
    """A row's call, and its result to be checked."""

    row: str
    call: Call
    found: Any


def prepared(peer: Peer, row: str) -> tuple[Prepared, dict[str, Any]]:
    work = WORKLOADS[row]
    args = work.make(np.random.default_rng(0), *work.size)
    call = peer.prepare(row, work, args)
    began = time.perf_counter()
    found = call.fn(*call.args)
    first = time.perf_counter() - began
    found = each(peer.to_numpy, list(found) if isinstance(found, list | tuple) else found)
    touched = sum(np.asarray(a).nbytes for a in [*leaves(list(args)), *leaves(found)])
    for _ in range(2):
        call.fn(*call.args)
    return Prepared(row, call, found), {"first": first, "bytes": touched}


def right(row: str) -> Path:
    """Where the row's right values lie."""
    return Path(f"{row}.pickle")


def answered(peer: Peer, state: Prepared | None, what: str, *rest: Any) -> tuple[Prepared | None, dict[str, Any]]:
    """The state after a question, and what is told."""
    if what == "measure":
        assert state is not None
        return state, {"times": durations(state.call, *rest)}
    if what == "check":
        assert state is not None
        expected = pickle.loads((Path(rest[0]) / right(state.row)).read_bytes())
        return state._replace(found=None), {"error": greatest_error(state.found, expected)}
    if what == "exact":
        row, folder = rest
        work = WORKLOADS[row]
        values = exact(work, work.make(np.random.default_rng(0), *work.size))
        (Path(folder) / right(row)).write_bytes(pickle.dumps(values))
        return None, {}
    return prepared(peer, *rest)


def serve(name: str, answer: Callable[..., None]) -> None:
    try:
        peer = PEERS[name]()
    except ImportError as absent:
        answer(absent=str(absent))
        return
    answer(version=peer.version)
    state: Prepared | None = None
    for line in sys.stdin:
        what, *rest = json.loads(line)
        if what == "prepare":
            state = None  # before the next one takes memory
        try:
            state, told = answered(peer, state, what, *rest)
        except MissingError as reason:
            answer(missing=str(reason))
        except Exception as failure:  # a peer may fail in any way; the table says so
            answer(missing=f"{type(failure).__name__}: {failure}".splitlines()[0][:200])
        else:
            answer(**told)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    own = sys.stdout

    def write(**what: Any) -> None:
        print(json.dumps(what), file=own, flush=True)

    with contextlib.redirect_stdout(sys.stderr):  # what a peer prints must not mix with the answers
        serve(sys.argv[1], write)
