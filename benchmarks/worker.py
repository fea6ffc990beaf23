"""A peer's process: ``python -m benchmarks.worker PEER``, asked on standard input, answering with a line of JSON each.

``["prepare", row, folder]`` builds the row's call, checks its result, and answers its error; the right values lie in
``folder``, made by the first peer that needs them. ``["measure", seconds]`` answers durations of one call.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.oracle import exact, greatest_error
from benchmarks.peers import PEERS, Call, MissingError, Peer, each
from benchmarks.workloads import WORKLOADS, leaves

__all__ = ["durations", "serve"]

SHORTEST = 50e-6  # calls shorter than this are timed several at once


def durations(call: Call, seconds: float) -> list[float]:
    """Of one call each, for about ``seconds``; at least three."""
    fn, args = call
    began = time.perf_counter()
    fn(*args)
    once = time.perf_counter() - began
    count = max(1, round(SHORTEST / max(once, 1e-8)))
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < 3 or time.perf_counter() < end:
        began = time.perf_counter()
        for _ in repeat(None, count):
            fn(*args)
        taken.append((time.perf_counter() - began) / count)
    return taken


def prepared(peer: Peer, name: str, folder: str) -> tuple[Call, dict[str, Any]]:
    work = WORKLOADS[name]
    args = work.make(np.random.default_rng(0), *work.size)
    call = peer.prepare(name, work, args)
    began = time.perf_counter()
    found = call.fn(*call.args)
    first = time.perf_counter() - began
    found = each(peer.to_numpy, list(found) if isinstance(found, list | tuple) else found)
    kept = Path(folder) / f"{name}.pickle"
    if kept.exists():
        expected = pickle.loads(kept.read_bytes())
    else:
        expected = exact(work, args)
        kept.write_bytes(pickle.dumps(expected))
    touched = sum(np.asarray(a).nbytes for a in [*leaves(list(args)), *leaves(found)])
    for _ in range(3):
        call.fn(*call.args)
    return call, {"error": greatest_error(found, expected), "first": first, "bytes": touched}


def serve(name: str, answer: Callable[..., None]) -> None:
    try:
        peer = PEERS[name]()
    except ImportError as absent:
        answer(absent=str(absent))
        return
    answer(version=peer.version)
    call: Call | None = None
    for line in sys.stdin:
        what, *rest = json.loads(line)
        if what == "measure":
            assert call is not None
            answer(times=durations(call, *rest))
            continue
        call = None
        try:
            call, told = prepared(peer, *rest)
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
