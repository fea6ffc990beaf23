"""Time against size: ``python -m benchmarks.growth`` writes out/growth.svg and prints what does not grow evenly.

Elements from a thousand to a hundred million, graphs from 10 to 10,000 nodes, batches from 1 to 4,096. A cliff is a
point whose time departs by more than 2× from the line between its neighbours, on logarithmic axes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from math import exp, log
from time import perf_counter
from typing import Any

import numpy as np

import lucidgraph as lg
from benchmarks import chart, workloads
from benchmarks.peers import Call, over_lucidgraph
from benchmarks.results import OUT, save
from benchmarks.worker import durations
from benchmarks.workloads import WORKLOADS

Points = list[tuple[float, float]]
CLIFF = 2.0


def sizes(first: float, last: float) -> Iterator[int]:
    """From ``first`` to ``last``, three to a decade."""
    steps = round(3 * log(last / first, 10))
    yield from (round(first * (last / first) ** (k / steps)) for k in range(steps + 1))


def low(call: Call, seconds: float) -> float:
    """A low quantile of the durations: what others do on the machine adds, and never takes away."""
    taken = sorted(durations(call, seconds))
    return taken[len(taken) // 10]


def run(fn: Callable[..., Any], arguments: Iterator[tuple[int, tuple[Any, ...]]], seconds: float) -> Points:
    """The time of a call at each size, compiled once for all of them where that can be."""
    compiled, points = lg.compile(fn), []
    for size, args in arguments:
        compiled(*args)
        points.append((float(size), low(Call(compiled, args), seconds)))
    return points


def first_call(length: int) -> float:
    """Tracing, planning, compiling and running a chain of so many operations, for the first time."""
    x = np.full(16, 1.0, np.float32)
    began = perf_counter()
    lg.compile(workloads.chain(length)(lg))(x)
    return perf_counter() - began


def cliffs(points: Points) -> Iterator[tuple[float, float]]:
    """The sizes whose time departs from the line between their neighbours, and by which factor."""
    for (x0, y0), (x1, y1), (x2, y2) in zip(points, points[1:], points[2:], strict=False):
        share = log(x1 / x0) / log(x2 / x0)
        departure = y1 / exp(log(y0) + share * log(y2 / y0))
        if not 1 / CLIFF < departure < CLIFF:
            yield x1, departure


def slope(points: Points) -> float:
    """The exponent with which time grows over the last decade."""
    last = [p for p in points if p[0] >= points[-1][0] / 10.5]
    return log(last[-1][1] / last[0][1]) / log(last[-1][0] / last[0][0])


def swept(largest: int, nodes: int, seconds: float) -> dict[str, Points]:
    """The points by the name of what grows, a unit behind it."""
    rng, xp = np.random.default_rng(0), over_lucidgraph(lg)
    found: dict[str, Points] = {}
    for row in ("ew12", "trans", "sum_all", "softmax", "cumsum"):
        work = WORKLOADS[row]
        shape = (lambda n: (n,)) if len(work.size) == 1 else lambda n: (max(1, n // 1024), 1024)
        found[f"{row}, elements"] = run(
            work.fn(xp), ((n, work.make(rng, *shape(n))) for n in sizes(1e3, largest)), seconds
        )
    for row, widths in (("mlp", (784, 512, 512, 10)), ("mlp_small", (64, 64, 64, 10))):
        work = WORKLOADS[row]
        batches = ((1 << k, work.make(rng, 1 << k, *widths)) for k in range(13))
        found[f"{row}, examples"] = run(work.fn(xp), batches, seconds)
    lengths = list(sizes(10, nodes))
    found["call of a chain, nodes"] = [(float(n), low(chain(n), seconds)) for n in lengths]
    found["first call of a chain, nodes"] = [(float(n), first_call(n)) for n in lengths]
    return found


def measured(largest: int, nodes: int, seconds: float) -> dict[str, Points]:
    """The better of two sweeps over everything, a while apart."""
    first, second = (swept(largest, nodes, seconds) for _ in range(2))
    return {
        name: [(x, min(y, other)) for (x, y), (_, other) in zip(first[name], second[name], strict=True)]
        for name in first
    }


def chain(length: int) -> Call:
    x = np.full(16, 1.0, np.float32)
    compiled = lg.compile(workloads.chain(length)(lg))
    compiled(x)
    return Call(compiled, (x,))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--largest", type=float, default=1e8, help="elements (1e8)")
    parser.add_argument("--nodes", type=int, default=10_000, help="of a graph, at most (10000)")
    parser.add_argument("--seconds", type=float, default=0.1, help="at each size (0.1)")
    asked = parser.parse_args()
    found = measured(int(asked.largest), asked.nodes, asked.seconds)
    scaled = {name: [(x, 1e3 * y) for x, y in points] for name, points in found.items()}
    picture = chart.lines("Time against size", "elements, examples or nodes", "milliseconds", scaled)
    lines = ["| what, and what there is more of | growth over the last decade | cliffs |", "|---|---|---|"]
    for name, points in found.items():
        seen = ", ".join(f"{departure:.2f}× at {size:,.0f}" for size, departure in cliffs(points))
        lines.append(f"| {name} | size^{slope(points):.2f} | {seen or 'none'} |")
    save(OUT / "growth.json", found, lines, picture)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
