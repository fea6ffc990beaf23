"""Peak memory above the inputs: ``python -m benchmarks.memory [--rows …] [--peers …] [--python PATH]``.

Each figure comes from a process of its own: the peak of its resident memory over what it held once the arguments were
made, at the first call (compiler and code included) and over twenty more. For lucidgraph also what ``graph.memory()``
foretells, against the growth from the usual size to one whose buffers outweigh everything else.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import PEERS, MissingError
from benchmarks.results import OUT, ROOT, environment, save
from benchmarks.workloads import WORKLOADS

LARGE: dict[str, tuple[int, ...]] = {
    "pairwise_grad": (8192, 8192, 64),
    "mlp": (16_384, 784, 512, 512, 10),
    "block": (64, 128, 256, 4),
}
"""The rows, and sizes at which buffers outweigh code."""


def status(field: str) -> int:
    """Bytes, from the kernel's account of this process: VmRSS (now) or VmHWM (the most since the last reset)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise KeyError(field)


def peak(run: Callable[[], Any], base: int) -> int:
    """The most bytes above ``base`` while ``run`` runs; on systems other than Linux, since the process began."""
    if sys.platform != "linux":
        run()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) - base
    Path("/proc/self/clear_refs").write_text("5")
    run()
    return status("VmHWM") - base


def now() -> int:
    gc.collect()
    if sys.platform != "linux":
        return peak(lambda: None, 0)
    return status("VmRSS")


def one(peer: str, row: str) -> dict[str, Any]:
    found = PEERS[peer]()
    work = WORKLOADS[row]
    args = work.make(np.random.default_rng(0), *work.size)
    base = now()
    call = None

    def first() -> None:
        nonlocal call
        call = found.prepare(row, work, args)
        call.fn(*call.args)

    def more() -> None:
        for _ in range(20):
            call.fn(*call.args)

    told: dict[str, Any] = {"first": peak(first, base), "steady": peak(more, base)}
    if peer == "lucidgraph":
        args = work.make(np.random.default_rng(0), *LARGE[row])
        planned = call.fn.graph(*args).memory()
        told["foretold"] = (planned.planned or planned.peak) - planned.held
        base = now()
        with contextlib.suppress(MemoryError):
            told["large"] = peak(lambda: call.fn(*args), base)
    return told


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--rows", default=",".join(LARGE))
    parser.add_argument("--peers", default=",".join(p for p in PEERS if p != "lucidgraph-mlx"))
    parser.add_argument("--python", default=sys.executable, help="interpreter of the peers; ours is this one")
    parser.add_argument("--one", nargs=2, metavar=("PEER", "ROW"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        warnings.simplefilter("ignore")
        try:
            print(json.dumps(one(*asked.one)))
        except (ImportError, MissingError) as reason:
            print(json.dumps({"missing": str(reason)}))
        return 0
    peers, results = asked.peers.split(","), {}
    lines = [f"| MB, first call / steady | {' | '.join(peers)} | foretold, measured |", "|---" * (len(peers) + 2) + "|"]
    print("\n".join(lines))
    for row in asked.rows.split(","):
        results[row] = {peer: fresh(peer, row, asked.python) for peer in peers}
        cells = [f"{t['first'] / 1e6:.0f} / {t['steady'] / 1e6:.0f}" if "first" in t else "-"
                 for t in results[row].values()]  # fmt: skip
        ours = results[row].get("lucidgraph", {})
        end = f"{ours['foretold'] / 1e6:.1f}, {ours['large'] / 1e6:.1f}" if "large" in ours else "-"
        lines.append(f"| {row} | {' | '.join(cells)} | {end} |")
        print(lines[-1], flush=True)
    save(OUT / "memory.json", results, lines)
    return 0


def fresh(peer: str, row: str, python: str) -> dict[str, Any]:
    python = sys.executable if peer == "lucidgraph" else python
    command = [python, "-m", "benchmarks.memory", "--one", peer, row]
    done = subprocess.run(command, cwd=ROOT, env=environment(), text=True, capture_output=True)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"missing": done.stderr[-300:]}


if __name__ == "__main__":
    raise SystemExit(main())
