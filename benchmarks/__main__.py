"""The table: ``python -m benchmarks [--rows ROW,…] [--peers PEER,…] [--repeats N] [--python PATH]``.

One process per peer, asked in turn, so that they share whatever else the machine does. Every result is checked against
NumPy in float64. Compare only figures of one run. They go to out/table.json, whose other rows are kept, and from
there into a table and a chart beside it. The backend for MLX: ``--ours lucidgraph-mlx --peers lucidgraph-mlx,mlx``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks import chart
from benchmarks.peers import PEERS
from benchmarks.results import OUT, ROOT, environment, save, seconds
from benchmarks.workloads import WORKLOADS

SPINNING = 0.1
"""Seconds for which threads spin after their work, as OpenBLAS's and OpenMP's do: who comes next would share a
processor with them."""


class Process:
    """A peer, or what measures the machine, running: ``absent`` says why it does not."""

    def __init__(self, *command: str) -> None:
        pipe = subprocess.PIPE
        self.running = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment(), cwd=ROOT
        )
        self.absent: str | None = None
        self.version = ""

    def greet(self) -> None:
        """Wait until it has loaded what it needs; all load at once."""
        told = self.answer()
        self.absent = told.get("absent")
        self.version = told.get("version", "")

    def answer(self) -> dict[str, Any]:
        assert self.running.stdout is not None
        line = self.running.stdout.readline()
        return json.loads(line) if line else {"absent": "its process ended", "missing": "its process ended"}

    def ask(self, *what: Any) -> dict[str, Any]:
        assert self.running.stdin is not None
        try:
            self.running.stdin.write(json.dumps(what) + "\n")
            self.running.stdin.flush()
        except BrokenPipeError:
            return {"missing": "its process ended"}
        return self.answer()


@contextmanager
def alone(path: str | None) -> Iterator[None]:
    """Holding a lock on the file ``path``, for those who share a machine."""
    if path is None:
        yield
        return
    import fcntl

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measured(
    row: str, running: dict[str, Process], machine: Process, repeats: int, each: float, folder: str, lock: str | None
) -> dict[str, Any]:
    """The row's peers: each with its error, median, least time, or why it is missing; the limit beside them."""
    work = WORKLOADS[row]
    found = {peer: process.ask("prepare", row, folder) for peer, process in running.items()}
    able = [peer for peer in running if "missing" not in found[peer]]
    rounds: dict[str, list[float]] = {peer: [] for peer in able}
    least = {peer: float("inf") for peer in able}
    limit: list[float] = []
    with alone(lock):
        for _ in range(repeats):
            for peer in able:
                times = running[peer].ask("measure", each).get("times", [float("inf")])
                rounds[peer].append(statistics.median(times))
                least[peer] = min(least[peer], *times)
                time.sleep(SPINNING)
            if work.memory and able:
                limit += machine.ask("triad", found[able[0]]["bytes"])["times"]
            elif work.flops:
                limit += [work.flops(*work.size) / rate for rate in machine.ask("sgemm")["times"]]
                time.sleep(SPINNING)
    for peer in able:
        found[peer] |= {"median": statistics.median(rounds[peer]), "least": least[peer], "rounds": rounds[peer]}
        found[peer]["right"] = found[peer]["error"] <= work.tolerance
    if limit:
        found["machine"] = {"median": statistics.median(limit), "least": min(limit)}
    return found


def ratio(found: dict[str, Any], ours: str) -> tuple[float, str] | None:
    """The best right peer's time by ours, and that peer."""
    times = {peer: told["median"] for peer, told in found.items() if peer != ours and told.get("right")}
    if not times or "median" not in found.get(ours, {}):
        return None
    best = min(times, key=times.__getitem__)
    return times[best] / found[ours]["median"], best


def cell(told: dict[str, Any], least: bool) -> str:
    if "median" not in told:
        return "-"
    wrong = "" if told["right"] else f" (error {told['error']:.0e})"
    return seconds(told["median"]) + f" ({seconds(told['least'])})" * least + wrong


def of_limit(row: str, found: dict[str, Any], ours: str) -> str:
    """How much of the machine's bandwidth, or rate of products, we use."""
    if "machine" not in found or "median" not in found.get(ours, {}):
        return "-"
    share = found["machine"]["median"] / found[ours]["median"]
    return f"{share:.0%} of {'triad' if WORKLOADS[row].memory else 'sgemm'}"


def table(results: dict[str, Any], peers: list[str], ours: str, least: bool = True) -> Iterator[str]:
    yield f"| workload | {' | '.join(peers)} | best peer | ratio | of the limit |"
    yield "|---" * (len(peers) + 4) + "|"
    for row, found in results.items():
        best = ratio(found, ours)
        end = f"{best[1] if best else '-'} | {f'{best[0]:.2f}' if best else '-'} | {of_limit(row, found, ours)}"
        yield f"| {row} | {' | '.join(cell(found.get(p, {}), least) for p in peers)} | {end} |"


def summary(results: dict[str, Any], ours: str) -> Iterator[str]:
    ratios = {row: best for row, found in results.items() if (best := ratio(found, ours))}
    if ratios:
        mean = exp(sum(log(r) for r, _ in ratios.values()) / len(ratios))
        yield f"\ngeometric mean of the best peer's time by ours: {mean:.2f} over {len(ratios)} rows"
        below = sorted((r, row, peer) for row, (r, peer) in ratios.items() if r < 1)
        for r, row, peer in below:
            yield f"  {row:<18} {r:.2f}  behind {peer}"
    for row, found in results.items():
        if ours in found and not found[ours].get("right"):
            yield f"  {row}: WRONG or failed: {found[ours].get('missing', found[ours].get('error'))}"


def write(kept: dict[str, Any], file: Path, ours: str) -> None:
    """The figures, and a table and a chart of all of them beside."""
    results = {row: kept["rows"][row] for row in WORKLOADS if row in kept["rows"]}
    peers = [p for p in PEERS if any("median" in found.get(p, {}) for found in results.values())]
    ratios = {row: best for row, found in results.items() if (best := ratio(found, ours))}
    picture = None
    if ratios:
        ordered = dict(sorted(ratios.items(), key=lambda item: -item[1][0]))
        picture = chart.bars(f"The best peer's time by {ours}'s, and that peer", ordered)
    told = "; ".join(f"{peer} {version}" for peer, version in kept["versions"].items())
    lines = [*table(results, peers, ours, least=False), f"\n{told}; load before {kept['load']:.1f}"]
    save(file, kept, [*lines, *summary(results, ours)], picture)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", help="comma separated; all, where not given")
    parser.add_argument("--peers", help=f"comma separated, of {', '.join(PEERS)}; all that are installed")
    parser.add_argument("--ours", default="lucidgraph", help="whom the others are compared to (lucidgraph)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds over the peers (5)")
    parser.add_argument("--seconds", type=float, default=0.1, help="of each peer in each round (0.1)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the peers; ours is this one")
    parser.add_argument("--json", type=Path, default=OUT / "table.json", help="where figures are added")
    parser.add_argument("--lock", help="a file to hold locked while measuring, not while compiling")
    asked = parser.parse_args()
    rows = asked.rows.split(",") if asked.rows else list(WORKLOADS)
    names = asked.peers.split(",") if asked.peers else [p for p in PEERS if p != "lucidgraph-mlx"]
    for name in [n for n in rows if n not in WORKLOADS] + [n for n in [*names, asked.ours] if n not in PEERS]:
        parser.error(f"no row or peer named {name}")
    here = {peer: sys.executable if peer.startswith("lucidgraph") else asked.python for peer in names}
    running = {peer: Process(python, "-m", "benchmarks.worker", peer) for peer, python in here.items()}
    machine = Process(sys.executable, "-m", "benchmarks.limits", "--serve")
    for process in [*running.values(), machine]:
        process.greet()
    for peer, process in running.items():
        print(f"{peer}: {process.version or 'not installed: ' + str(process.absent)}", file=sys.stderr)
    running = {peer: process for peer, process in running.items() if process.absent is None}
    kept = json.loads(asked.json.read_text()) if asked.json.exists() else {"rows": {}, "versions": {}}
    kept["versions"] |= {peer: process.version for peer, process in {**running, "machine": machine}.items()}
    kept["load"] = os.getloadavg()[0]
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            results[row] = measured(row, running, machine, asked.repeats, asked.seconds, folder, asked.lock)
            kept["rows"][row] = results[row]
            write(kept, asked.json, asked.ours)
            lines = list(table({row: results[row]}, list(running), asked.ours))
            print("\n".join(lines if row == rows[0] else lines[2:]), flush=True)
    for process in [*running.values(), machine]:
        process.running.communicate()
    print("\n".join(summary(results, asked.ours)))
    return 0 if all(found.get(asked.ours, {"right": True}).get("right") for found in results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
