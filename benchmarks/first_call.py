"""The first call: ``python -m benchmarks.first_call [--rows …] [--peers …] [--python PATH]``.

Tracing, differentiating, compiling and running, imports excluded: cold, with empty caches, and in a second process that
finds what the first has left on disk. Each figure is the median of a few pairs of processes, the best in brackets.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

from benchmarks.peers import PEERS, MissingError
from benchmarks.results import OUT, ROOT, environment, save
from benchmarks.workloads import WORKLOADS


def one(peer: str, row: str) -> float:
    found, work = PEERS[peer](), WORKLOADS[row]
    args = work.make(np.random.default_rng(0), *work.size)
    began = time.perf_counter()
    call = found.prepare(row, work, args)
    call.fn(*call.args)
    return time.perf_counter() - began


def fresh(peer: str, row: str, python: str, folder: str) -> float | None:
    """In a process whose caches lie in ``folder``."""
    env = environment(
        TMPDIR=folder, XDG_CACHE_HOME=f"{folder}/cache", JAX_COMPILATION_CACHE_DIR=f"{folder}/jax",
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0", JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
        TORCHINDUCTOR_CACHE_DIR=f"{folder}/torch", NUMBA_CACHE_DIR=f"{folder}/numba",
        PYTENSOR_FLAGS=f"base_compiledir={folder}/pytensor",
    )  # fmt: skip
    command = [sys.executable if peer == "lucidgraph" else python, "-m", "benchmarks.first_call", "--one", peer, row]
    done = subprocess.run(command, cwd=ROOT, env=env, text=True, capture_output=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_call", description=__doc__)
    parser.add_argument("--rows", default="mlp12,block")
    parser.add_argument("--peers", default="lucidgraph,jax")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the peers; ours is this one")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("PEER", "ROW"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        warnings.simplefilter("ignore")
        try:
            print(json.dumps(one(*asked.one)))
        except (ImportError, MissingError) as reason:
            print(reason, file=sys.stderr)
            return 1
        return 0
    lines = ["| row | peer | cold | second process |", "|---|---|---|---|"]
    print("\n".join(lines))
    results: dict[str, dict[str, list[list[float]]]] = {}
    for row in asked.rows.split(","):
        pairs: dict[str, list[list[float]]] = {peer: [] for peer in asked.peers.split(",")}
        for _ in range(asked.repeats):
            for peer, found in pairs.items():
                with tempfile.TemporaryDirectory() as folder:
                    times = [fresh(peer, row, asked.python, folder) for _ in range(2)]
                if None not in times:
                    found.append([t for t in times if t is not None])
        for peer, found in pairs.items():
            cells = [f"{statistics.median(t):.3f} s ({min(t):.3f})" for t in zip(*found, strict=True)] or ["-", "-"]
            lines.append(f"| {row} | {peer} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
        results[row] = pairs
    save(OUT / "first_call.json", results, lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
