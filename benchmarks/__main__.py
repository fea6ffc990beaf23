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
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from math import exp, log
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import chart
from benchmarks.peers import PEERS
from benchmarks.processes import Process, locked
from benchmarks.results import OUT, save, seconds
from benchmarks.steady import Steady
from benchmarks.workloads import WORKLOADS

SPINNING: Final = 0.1
"""Seconds for which threads spin after their work, as OpenBLAS's and OpenMP's do: who comes next would share a
processor with them."""


FAR: Final = 10.0
"""A peer that is so many times slower than the best one after three rounds is not asked in the others."""


class Patience(NamedTuple):
    """Seconds that a peer may take: to compile a row and run it three times, and for one call in a round."""

    prepare: float
    measure: float


class Harness:
    """The peers and what measures the machine, running; ``folder`` is where right values lie."""

    def __init__(self, here: dict[str, str], folder: str, patience: Patience, lock: str | None) -> None:
        self.peers = {peer: Process(python, "-m", "benchmarks.worker", peer) for peer, python in here.items()}
        self.machine = Process(sys.executable, "-m", "benchmarks.limits", "--serve")
        self.oracle = Process(sys.executable, "-m", "benchmarks.worker", "numpy")
        self.folder, self.patience, self.lock = folder, patience, lock
        self.steady = Steady(1.0, 3)
        self.all = [*self.peers.values(), self.machine, self.oracle]
        for process in self.all:
            process.greet()
        for peer, process in self.peers.items():
            print(f"{peer}: {process.version or 'not installed: ' + str(process.absent)}", file=sys.stderr)
        self.peers = {peer: process for peer, process in self.peers.items() if process.absent is None}

    def prepared(self, row: str) -> dict[str, dict[str, Any]]:
        """What each peer tells of the row: its first call and its error, or why it is missing. All compile at once."""
        for process in self.peers.values():
            process.tell("prepare", row)
        self.oracle.tell("exact", row, self.folder)
        end = time.monotonic() + self.patience.prepare
        found = {peer: p.answer(max(end - time.monotonic(), 1.0)) for peer, p in self.peers.items()}
        self.oracle.answer(10 * self.patience.prepare)
        for peer, told in found.items():
            if "missing" not in told:
                told |= self.peers[peer].ask("check", self.folder)
        (Path(self.folder) / f"{row}.pickle").unlink(missing_ok=True)
        return found

    def measured(self, row: str, repeats: int, each: float) -> dict[str, Any]:
        """The row's peers: each with its error, median, least time, or why it is missing; the limit beside them."""
        work = WORKLOADS[row]
        with locked(self.lock, alone=False):
            found = self.prepared(row)
        able = [peer for peer in self.peers if "missing" not in found[peer]]
        rounds: dict[str, list[float]] = {peer: [] for peer in able}
        least = {peer: float("inf") for peer in able}
        limit: list[float] = []
        with locked(self.lock, alone=True):
            for number in range(repeats):
                if number == 3:
                    able = near({peer: statistics.median(rounds[peer]) for peer in able})
                for peer in able:
                    ask = partial(self.peers[peer].ask, "measure", each, seconds=self.patience.measure)
                    told = self.steady.measured(ask, SPINNING)
                    times = told.get("times", [float("inf")])
                    rounds[peer].append(statistics.median(times))
                    least[peer] = min(least[peer], *times)
                able = [peer for peer in able if rounds[peer][-1] != float("inf")]
                if work.memory and able:
                    ask = partial(self.machine.ask, "triad", found[able[0]]["bytes"])
                    limit += self.steady.measured(ask, 0.0)["times"]
                elif work.flops:
                    rates = self.steady.measured(partial(self.machine.ask, "sgemm"), SPINNING)["times"]
                    limit += [work.flops(*work.size) / rate for rate in rates]
        for peer, taken in rounds.items():
            if float("inf") in taken:
                found[peer] = {"missing": f"a call took more than {self.patience.measure:g} s"}
                continue
            found[peer] |= {"median": statistics.median(taken), "least": least[peer], "rounds": taken}
            found[peer]["right"] = found[peer]["error"] <= work.tolerance
        if limit:
            found["machine"] = {"median": statistics.median(limit), "least": min(limit)}
        return found

    def close(self) -> None:
        for process in self.all:
            if process.running.poll() is None:
                process.running.communicate()


def near(times: dict[str, float]) -> list[str]:
    """The peers, without those who are far behind the best one."""
    best = min(times.values(), default=0.0)
    return [peer for peer, taken in times.items() if taken <= FAR * best]


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
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        help="seconds in which a peer must have compiled a row "
        "and run it (60), and a tenth of those in which it must have called it once",
    )
    parser.add_argument("--lock", help="a file to hold locked, alone while measuring, with others while compiling")
    asked = parser.parse_args()
    rows = asked.rows.split(",") if asked.rows else list(WORKLOADS)
    names = asked.peers.split(",") if asked.peers else [p for p in PEERS if p != "lucidgraph-mlx"]
    for name in [n for n in rows if n not in WORKLOADS] + [n for n in [*names, asked.ours] if n not in PEERS]:
        parser.error(f"no row or peer named {name}")
    here = {peer: sys.executable if peer.startswith("lucidgraph") else asked.python for peer in names}
    began = time.monotonic()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(here, folder, Patience(asked.patience, asked.patience / 10), asked.lock)
        kept = json.loads(asked.json.read_text()) if asked.json.exists() else {"rows": {}, "versions": {}}
        kept["versions"] |= {peer: process.version for peer, process in harness.peers.items()}
        kept["versions"]["machine"] = harness.machine.version
        kept["load"] = os.getloadavg()[0]
        for row in rows:
            results[row] = harness.measured(row, asked.repeats, asked.seconds)
            kept["rows"][row] = results[row]
            write(kept, asked.json, asked.ours)
            lines = list(table({row: results[row]}, list(harness.peers), asked.ours))
            print("\n".join(lines if row == rows[0] else lines[2:]), flush=True)
            for peer, told in results[row].items():
                if "missing" in told:
                    print(f"{row}: {peer}: {told['missing']}", file=sys.stderr)
        harness.close()
    steady = harness.steady
    print(f"\n{len(rows)} rows in {(time.monotonic() - began) / 60:.1f} minutes; "
          f"{steady.disturbed} of {steady.made} measurements disturbed each time")  # fmt: skip
    print("\n".join(summary(results, asked.ours)))
    return 0 if all(found.get(asked.ours, {"right": True}).get("right") for found in results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
