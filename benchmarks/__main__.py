"""The table: ``python -m benchmarks [--rows ROW,…] [--peers PEER,…] [--repeats N] [--python PATH]``.

One process per peer, asked in turn, so that they share whatever else the machine does. Every result is checked against
NumPy in float64. Compare only figures of one run.
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

from benchmarks.peers import PEERS
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parent.parent
OURS = "lucidgraph"


def seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.0f} ns"


class Process:
    """A peer, or what measures the machine, running: ``absent`` says why it does not."""

    def __init__(self, *command: str) -> None:
        env = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH", "")]))
        pipe = subprocess.PIPE
        self.running = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=env, cwd=ROOT
        )
        told = self.answer()
        self.absent: str | None = told.get("absent")
        self.version: str = told.get("version", "")

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


def measured(
    row: str, running: dict[str, Process], machine: Process, repeats: int, each: float, folder: str
) -> dict[str, Any]:
    """The row's peers: each with its error, median, least time, or why it is missing; the limit beside them."""
    work = WORKLOADS[row]
    found = {peer: process.ask("prepare", row, folder) for peer, process in running.items()}
    able = [peer for peer in running if "missing" not in found[peer]]
    rounds: dict[str, list[float]] = {peer: [] for peer in able}
    least = {peer: float("inf") for peer in able}
    limit: list[float] = []
    for _ in range(repeats):
        for peer in able:
            times = running[peer].ask("measure", each)["times"]
            rounds[peer].append(statistics.median(times))
            least[peer] = min(least[peer], *times)
            time.sleep(0.002)  # for threads that spin after their work
        if work.memory and able:
            limit += machine.ask("triad", found[able[0]]["bytes"])["times"]
        elif work.flops:
            limit += [work.flops(*work.size) / rate for rate in machine.ask("sgemm")["times"]]
    for peer in able:
        found[peer] |= {"median": statistics.median(rounds[peer]), "least": least[peer], "rounds": rounds[peer]}
        found[peer]["right"] = found[peer]["error"] <= work.tolerance
    if limit:
        found["machine"] = {"median": statistics.median(limit), "least": min(limit)}
    return found


def ratio(found: dict[str, Any], what: str = "median") -> tuple[float, str] | None:
    """The best right peer's time by ours, and that peer."""
    times = {peer: told[what] for peer, told in found.items() if peer != OURS and told.get("right")}
    if not times or what not in found.get(OURS, {}):
        return None
    best = min(times, key=times.__getitem__)
    return times[best] / found[OURS][what], best


def cell(told: dict[str, Any]) -> str:
    if "median" not in told:
        return "-"
    wrong = "" if told["right"] else f" (error {told['error']:.0e})"
    return f"{seconds(told['median'])} ({seconds(told['least'])}){wrong}"


def of_limit(row: str, found: dict[str, Any]) -> str:
    """How much of the machine's bandwidth, or rate of products, we use."""
    if "machine" not in found or "median" not in found.get(OURS, {}):
        return "-"
    share = found["machine"]["median"] / found[OURS]["median"]
    return f"{share:.0%} of {'triad' if WORKLOADS[row].memory else 'sgemm'}"


def table(results: dict[str, Any], peers: list[str]) -> Iterator[str]:
    yield f"| workload | {' | '.join(peers)} | best peer | ratio | of the limit |"
    yield "|---" * (len(peers) + 4) + "|"
    for row, found in results.items():
        best = ratio(found)
        end = f"{best[1]} | {best[0]:.2f} | {of_limit(row, found)}" if best else f"- | - | {of_limit(row, found)}"
        yield f"| {row} | {' | '.join(cell(found.get(p, {})) for p in peers)} | {end} |"


def summary(results: dict[str, Any]) -> Iterator[str]:
    ratios = {row: best for row, found in results.items() if (best := ratio(found))}
    if ratios:
        mean = exp(sum(log(r) for r, _ in ratios.values()) / len(ratios))
        yield f"\ngeometric mean of the best peer's time by ours: {mean:.2f} over {len(ratios)} rows"
        below = sorted((r, row, peer) for row, (r, peer) in ratios.items() if r < 1)
        for r, row, peer in below:
            yield f"  {row:<18} {r:.2f}  behind {peer}"
    for row, found in results.items():
        if OURS in found and not found[OURS].get("right"):
            yield f"  {row}: WRONG or failed: {found[OURS].get('missing', found[OURS].get('error'))}"


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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", help="comma separated; all, where not given")
    parser.add_argument("--peers", help=f"comma separated, of {', '.join(PEERS)}; all that are installed")
    parser.add_argument("--repeats", type=int, default=5, help="rounds over the peers (5)")
    parser.add_argument("--seconds", type=float, default=0.1, help="of each peer in each round (0.1)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the peers; ours is this one")
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "benchmarks.json", help="where figures are added")
    parser.add_argument("--lock", help="a file to hold locked while measuring")
    asked = parser.parse_args()
    rows = asked.rows.split(",") if asked.rows else list(WORKLOADS)
    names = asked.peers.split(",") if asked.peers else list(PEERS)
    for name in [n for n in rows if n not in WORKLOADS] + [n for n in names if n not in PEERS]:
        parser.error(f"no row or peer named {name}")
    module = ("-m", "benchmarks.worker")
    running = {peer: Process(sys.executable if peer == OURS else asked.python, *module, peer) for peer in names}
    machine = Process(sys.executable, "-m", "benchmarks.limits", "--serve")
    for peer, process in running.items():
        print(f"{peer}: {process.version or 'not installed: ' + str(process.absent)}", file=sys.stderr)
    running = {peer: process for peer, process in running.items() if process.absent is None}
    versions = {peer: process.version for peer, process in running.items()}
    kept = json.loads(asked.json.read_text()) if asked.json.exists() else {"rows": {}}
    results: dict[str, Any] = {}
    lines = iter(())
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            with alone(asked.lock):
                results[row] = measured(row, running, machine, asked.repeats, asked.seconds, folder)
            lines = table({row: results[row]}, list(running))
            head = [next(lines), next(lines)]
            print("\n".join([*(head if row == rows[0] else []), *lines]), flush=True)
    for process in [*running.values(), machine]:
        process.running.communicate()
    kept["rows"] |= results
    kept["versions"] = kept.get("versions", {}) | versions
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(kept, indent=1))
    print("\n".join(summary(results)))
    return 0 if all(found.get(OURS, {"right": True}).get("right") for found in results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
