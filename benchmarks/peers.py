"""Workloads on lucidgraph's Accelerate, NumPy and ``mx.compile``: ``python benchmarks/peers.py [names]``.

One process per peer, asked in turn, so that they share whatever else the machine does; every result is checked against
NumPy in float64. A figure is the median over the rounds, the best round behind it; compare only figures of one run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

ROUNDS = 5
SECONDS = 0.25
PEERS = ("lucidgraph", "numpy", "mlx")


class Workload(NamedTuple):
    """``fn`` is written once, over a namespace; ``gradient`` says that it needs gradients, which NumPy has not."""

    fn: Callable[[Any], Callable[..., Any]]
    args: Callable[[np.random.Generator], tuple[Any, ...]]
    expected: Callable[..., Any]
    gradient: bool = False
    tolerance: float = 1e-5


def f32(*shape: int) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    return lambda rng: (rng.standard_normal(shape, np.float32),)


def ints(dtype: str, *shape: int) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    return lambda rng: (rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype),)


def ew12(xp: Any) -> Callable[..., Any]:
    def fn(x: Any, y: Any) -> Any:
        a = x * y + 1.5
        b = a - x * 0.5
        c = xp.maximum(b, y) * 0.25
        return (c + a * b - y) * (x + 2.0)

    return fn


def softmax(xp: Any) -> Callable[..., Any]:
    def fn(x: Any) -> Any:
        e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
        return e / xp.sum(e, axis=-1, keepdims=True)

    return fn


def layer_norm(xp: Any) -> Callable[..., Any]:
    def fn(x: Any) -> Any:
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)

    return fn


def mlp_args(sizes: tuple[int, ...], batch: int) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        weights = [rng.standard_normal(s, np.float32) / np.float32(s[0] ** 0.5) for s in pairwise(sizes)]
        return weights, *f32(batch, sizes[0])(rng), *f32(batch, sizes[-1])(rng)

    return make


def mlp(xp: Any) -> Callable[..., Any]:
    """A step of gradient descent: new weights."""

    def loss(weights: Any, x: Any, y: Any) -> Any:
        for w in weights[:-1]:
            x = xp.maximum(x @ w, 0.0)
        error = x @ weights[-1] - y
        return xp.mean(error * error)

    def step(weights: Any, x: Any, y: Any) -> Any:
        return [w - 0.01 * g for w, g in zip(weights, xp.grad(loss)(weights, x, y), strict=True)]

    return step


def mlp_expected(weights: Any, x: Any, y: Any) -> Any:
    kept = [x]
    for w in weights[:-1]:
        kept.append(np.maximum(kept[-1] @ w, 0.0))
    error = kept[-1] @ weights[-1] - y
    flow, out = 2 * error / error.size, []
    for w, h in zip(reversed(weights), reversed(kept), strict=True):
        out.append(w - 0.01 * (h.T @ flow))
        flow = (flow @ w.T) * (h > 0)
    return out[::-1]


def total(axis: Any = None, step: int = 1) -> Callable[[Any], Callable[..., Any]]:
    """The sum of every ``step``-th column."""
    return lambda xp: lambda x: xp.sum(x if step == 1 else x[:, ::step], axis=axis)


def small_halves(rng: np.random.Generator) -> tuple[Any, ...]:
    return ((rng.random((4096, 2048), np.float32) / 256).astype(np.float16),)


WIDE = (4096, 2048)
WORKLOADS: dict[str, Workload] = {
    "dispatch": Workload(
        lambda xp: lambda x, y: x * y + 1.0, lambda rng: f32(8)(rng) + f32(8)(rng), lambda x, y: x * y + 1
    ),
    "ew12": Workload(ew12, lambda rng: f32(10_000_000)(rng) + f32(10_000_000)(rng), ew12(np)),
    "sum_all": Workload(total(), f32(*WIDE), lambda x: x.sum(), tolerance=1e-4),
    "sum_ax0": Workload(total(0), f32(*WIDE), lambda x: x.sum(0), tolerance=1e-4),
    "sum_ax-1": Workload(total(-1), f32(*WIDE), lambda x: x.sum(-1), tolerance=1e-4),
    "sum_mid": Workload(total(1), f32(64, 512, 256), lambda x: x.sum(1), tolerance=1e-4),
    "sum_strided": Workload(total(step=2), f32(*WIDE), lambda x: x[:, ::2].sum(), tolerance=1e-4),
    "sum_int8": Workload(total(), ints("int8", *WIDE), lambda x: x.sum()),
    "sum_bool": Workload(total(), ints("bool", *WIDE), lambda x: x.sum()),
    "sum_int32": Workload(total(), ints("int32", *WIDE), lambda x: x.sum()),
    "sum_fp16": Workload(total(), small_halves, lambda x: x.sum(), tolerance=2e-3),
    "softmax": Workload(softmax, f32(*WIDE), softmax(np)),
    "layer_norm": Workload(layer_norm, f32(4096, 1024), layer_norm(np)),
    "mlp": Workload(mlp, mlp_args((784, 512, 512, 10), 256), mlp_expected, gradient=True),
    "mlp_small": Workload(mlp, mlp_args((64, 64, 64, 10), 32), mlp_expected, gradient=True),
}  # fmt: skip


# -- a peer's process


def leaves(value: Any) -> list[Any]:
    return [leaf for v in value for leaf in leaves(v)] if isinstance(value, list | tuple) else [value]


def prepared(peer: str, work: Workload, args: tuple[Any, ...]) -> Callable[[], Any] | None:
    """The call to be timed, or None where the peer has no such thing."""
    if peer == "numpy":
        fn = None if work.gradient else work.fn(np)
        return None if fn is None else lambda: fn(*args)
    if peer == "mlx":
        import mlx.core as mx

        fn = mx.compile(work.fn(mx))
        given = [[mx.array(a) for a in arg] if isinstance(arg, list) else mx.array(arg) for arg in args]
        mx.eval(given)

        def call() -> Any:
            out = fn(*given)
            mx.eval(out)
            return out

        return call
    import lucidgraph as lg

    fn = lg.compile(work.fn(lg), backend="accelerate")
    return lambda: fn(*args)


def wide(value: Any) -> Any:
    if isinstance(value, list):
        return [wide(v) for v in value]
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def serve(peer: str) -> None:
    """Answer names of workloads on standard input with a line of JSON: times of calls in seconds, and the error."""
    ready: dict[str, tuple[Callable[[], Any] | None, float]] = {}
    for line in sys.stdin:
        name = line.strip()
        work = WORKLOADS[name]
        if name not in ready:
            args = work.args(np.random.default_rng(0))
            call = prepared(peer, work, args)
            error = 0.0
            if call is not None:
                for actual, exact in zip(leaves(call()), leaves(work.expected(*map(wide, args))), strict=True):
                    difference = np.abs(np.asarray(actual).astype(np.float64) - exact).max()
                    error = max(error, float(difference / np.abs(exact).max()))
            ready[name] = call, error
        call, error = ready[name]
        taken: list[float] = []
        if call is not None:
            call()
            end = time.perf_counter() + SECONDS
            while time.perf_counter() < end or len(taken) < 3:
                began = time.perf_counter()
                call()
                taken.append(time.perf_counter() - began)
        print(json.dumps([statistics.median(taken) if taken else None, error]), flush=True)


# -- the table


def pretty(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def started(peer: str, env: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--peer", peer]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


def cell(times: list[float], error: float | None) -> str:
    if not times:
        return "-"
    wrong = "" if error is None else f" error {error:.0e}"
    return f"{pretty(statistics.median(times))} ({pretty(min(times))}){wrong}"


def main(names: list[str]) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    env["PYTHONPATH"] = os.pathsep.join([here, env.get("PYTHONPATH", "")])
    running = {peer: started(peer, env) for peer in PEERS}
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; median of {ROUNDS} rounds (best)\n")
    print(f"| workload | {' | '.join(PEERS)} | best ratio to the better peer |\n|---|{'---|' * (len(PEERS) + 1)}")
    for name in names:
        found: dict[str, list[float]] = {peer: [] for peer in PEERS}
        wrong: dict[str, float] = {}
        for _ in range(ROUNDS):
            for peer, process in running.items():
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(name + "\n")
                process.stdin.flush()
                seconds, error = json.loads(process.stdout.readline())
                if seconds is not None:
                    found[peer].append(seconds)
                if error > WORKLOADS[name].tolerance:
                    wrong[peer] = error
        best = {peer: min(times) for peer, times in found.items() if times}
        cells = [cell(found[peer], wrong.get(peer)) for peer in PEERS]
        ratio = best["lucidgraph"] / min(t for peer, t in best.items() if peer != "lucidgraph")
        print(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)
    for process in running.values():
        process.communicate()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        serve(sys.argv[2])
    else:
        main(sys.argv[1:] or list(WORKLOADS))
