"""Timings of lucidgraph itself, beside NumPy and MLX where they do the same: ``python -m benchmarks.stages``.

Each figure is the median of repeated runs after a warm-up, in the unit that fits. Compare only figures of one run.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import lucidgraph as lg
from lucidgraph.passes import run_passes
from lucidgraph.passes.pipelines import pipeline

BACKENDS = [name for name, why in lg.backends().items() if why == "available"]


def median(run: Callable[[], Any], seconds: float = 0.5) -> float:
    """The median duration of ``run``, repeated for about ``seconds`` and at least five times."""
    run()
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < 5 or time.perf_counter() < end:
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def pretty(seconds: float) -> str:
    for unit, scale in (("s ", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:8.2f} {unit}"
    return f"{seconds / 1e-9:8.2f} ns"


def report(what: str, seconds: float, beside: str = "") -> None:
    print(f"  {what:<52}{pretty(seconds)}  {beside}", flush=True)


def importing() -> None:
    print("importing, in a fresh interpreter")
    for module in ("numpy", "lucidgraph"):
        report(module, median(lambda m=module: subprocess.run([sys.executable, "-c", f"import {m}"], check=True)))


def chain(x: Any) -> Any:
    for _ in range(500):
        x = x * 0.5 + 1.0
    return x


def stages() -> None:
    print("a chain of 1,000 operations, per stage")
    x = np.ones(16, np.float32)
    recorded = lg.trace(chain, x, passes=())
    report("trace", median(lambda: lg.trace(chain, x, passes=())))
    explicit = lg.trace(chain, x)
    for name, run in pipeline():
        report(name, median(lambda r=run, g=recorded: r(g)))
        recorded = run_passes(recorded, [(name, run)])
    report("backward", median(lambda: explicit.backward()))
    text = str(explicit)
    report("print", median(lambda: str(explicit)))
    report("parse and verify", median(lambda: lg.Graph.parse(text)))


def calls() -> None:
    print("a call of a compiled function: x * 2 + y, 16 float32")
    x, y = np.ones(16, np.float32), np.ones(16, np.float32)
    plain = median(lambda: x * 2 + y)
    report("numpy", plain)
    for name in BACKENDS:
        compiled = lg.compile(lambda x, y: x * 2 + y, backend=name)
        took = median(lambda f=compiled: f(x, y))
        report(f"lucidgraph on {name}", took, f"{took / plain:.1f} × numpy")


def training() -> None:
    print("loss and gradient of a three-layer perceptron, batch 256, width 512")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((256, 512), np.float32)
    weights = [rng.standard_normal((512, 512), np.float32) / 23 for _ in range(3)]

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = lg.nn.relu(x @ w)
        return lg.mean(x * x)

    for name in BACKENDS:
        compiled = lg.compile(lg.grad(loss), backend=name)
        report(f"lucidgraph on {name}", median(lambda f=compiled: f(weights, x)))
    if "mlx" in BACKENDS:
        report("mlx.core.compile", median(mlx_step(weights, x)))


def mlx_step(weights: Any, x: Any) -> Callable[[], Any]:
    """The same written in MLX, from NumPy arrays to NumPy arrays."""
    import mlx.core as mx

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = mx.maximum(x @ w, 0.0)
        return mx.mean(x * x)

    compiled = mx.compile(mx.grad(loss))
    return lambda: [np.asarray(g) for g in compiled([mx.array(w) for w in weights], mx.array(x))]


if __name__ == "__main__":
    for part in (importing, stages, calls, training):
        part()
