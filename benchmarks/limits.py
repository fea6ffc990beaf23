"""What the machine can do: ``python -m benchmarks.limits``.

Bandwidth of loops made by LLVM for this processor, each array counted once (what a store reads first is not counted),
and the rate of single-precision matrix products. The table of benchmarks puts both beside its rows.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llvmlite.binding as llvm
import numpy as np

__all__ = ["LOOPS", "Machine", "THREADS"]

THREADS = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
LANES, STEP = 16, 64  # four vectors of 16 float32 a round
LOOPS = {"copy": 2, "triad": 3, "fill": 1, "sum": 1}  # and how many arrays each touches

# a, b, c: addresses; %n floats, a multiple of STEP; %times passes.
FRAME = """
define void @{name}(ptr %a, ptr %b, ptr %c, i64 %n, i64 %times) "prefer-vector-width"="512" {{
entry:
  br label %pass
pass:
  %t = phi i64 [ 0, %entry ], [ %t1, %end ]
  br label %loop
loop:
  %i = phi i64 [ 0, %pass ], [ %i1, %loop ]
{carried}{body}
  %i1 = add i64 %i, {step}
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %loop, label %end
end:
{after}
  %t1 = add i64 %t, 1
  %again = icmp ult i64 %t1, %times
  br i1 %again, label %pass, label %done
done:
  ret void
}}
"""


def loop(name: str, streaming: bool) -> str:
    """LLVM's text of one loop; ``streaming``: with stores that go past the cache."""
    vector = f"<{LANES} x float>"
    body, carried, after = [], [], []
    hint = ", !nontemporal !0" if streaming else ""
    for k in range(STEP // LANES):
        body.append(f"  %i.{k} = add i64 %i, {k * LANES}")
        for array in {"copy": "b", "triad": "bc", "sum": "b", "fill": ""}[name]:
            body.append(f"  %p{array}{k} = getelementptr float, ptr %{array}, i64 %i.{k}")
            body.append(f"  %{array}{k} = load {vector}, ptr %p{array}{k}, align 64")
        value = {"copy": f"%b{k}", "triad": f"%sum{k}", "fill": "zeroinitializer", "sum": ""}[name]
        if name == "triad":
            body.append(f"  %sum{k} = fadd {vector} %b{k}, %c{k}")
        if name == "sum":
            carried.append(f"  %s{k} = phi {vector} [ zeroinitializer, %pass ], [ %n{k}, %loop ]\n")
            body.append(f"  %n{k} = fadd {vector} %s{k}, %b{k}")
            after.append(f"  %o{k} = getelementptr float, ptr %a, i64 {k * LANES}")
            after.append(f"  store {vector} %n{k}, ptr %o{k}, align 64")
        else:
            body.append(f"  %pa{k} = getelementptr float, ptr %a, i64 %i.{k}")
            body.append(f"  store {vector} {value}, ptr %pa{k}, align 64{hint}")
    parts = {"carried": "".join(carried), "body": "\n".join(body), "after": "\n".join(after)}
    return FRAME.format(name=f"{name}_{streaming:d}", step=STEP, **parts)


def aligned(count: int) -> np.ndarray:
    """float32 on a cache line's boundary, in memory that is there: written once."""
    room = np.full(count + 16, 0.5, np.float32)
    start = -room.ctypes.data % 64 // 4
    return room[start : start + count]


class Machine:
    """The loops, compiled, and the threads that run them."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
        )
        text = "".join(loop(name, streaming) for name in LOOPS for streaming in (False, True)) + "\n!0 = !{i32 1}\n"
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), target)
        self.engine.finalize_object()
        self.pool = ThreadPoolExecutor(THREADS)
        self.arrays: dict[int, list[np.ndarray]] = {}

    def passes(
        self, name: str, total: int, streaming: bool = True, threads: int = THREADS, seconds: float = 0.1
    ) -> list[float]:
        """Durations of a pass of a loop over ``total`` bytes, all its arrays together."""
        share = max(STEP, total // 4 // LOOPS[name] // threads // STEP * STEP)
        if share * threads not in self.arrays:
            self.arrays = {share * threads: [aligned(share * threads) for _ in range(3)]}
        a, b, c = (array.ctypes.data for array in self.arrays[share * threads])
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)(
            self.engine.get_function_address(f"{name}_{streaming:d}")
        )

        def run(times: int) -> float:
            began = time.perf_counter()
            at = [4 * share * i for i in range(threads)]
            for done in [self.pool.submit(call, a + o, b + o, c + o, share, times) for o in at]:
                done.result()
            return (time.perf_counter() - began) / times

        times = max(1, round(seconds / 10 / max(run(1), 1e-7)))  # so that handing over to the threads costs nothing
        return [run(times) for _ in range(10)]

    def bandwidth(self, name: str, total: int, streaming: bool, threads: int = THREADS) -> float:
        """Bytes a second, in the best pass."""
        return total / min(self.passes(name, total, streaming, threads))

    def rates(self, size: int = 1024, threads: int = THREADS, seconds: float = 0.1) -> list[float]:
        """Operations a second of products of square float32 matrices, in the best BLAS here."""
        x, y, out = (aligned(size * size).reshape(size, size) for _ in range(3))
        best: list[float] = []
        for product in products(threads):
            taken: list[float] = []
            end = time.perf_counter() + seconds
            product(x, y, out)
            while len(taken) < 3 or time.perf_counter() < end:
                began = time.perf_counter()
                product(x, y, out)
                taken.append(2.0 * size**3 / (time.perf_counter() - began))
            best = max(best, taken, key=lambda rates: sum(rates) / len(rates) if rates else 0.0)
        return best


Product = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]


def products(threads: int) -> list[Product]:
    """NumPy's product, where all threads are asked for, and scipy-openblas32's."""

    def by_numpy(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> Any:
        return np.matmul(x, y, out=out)

    found: list[Product] = [by_numpy] if threads == THREADS else []
    try:
        import scipy_openblas32 as blas
    except ImportError:
        return found
    library = ctypes.CDLL(os.path.join(blas.get_lib_dir(), blas.get_library(fullname=True)))
    sgemm = library.scipy_cblas_sgemm
    sgemm.argtypes = [ctypes.c_int] * 6 + [ctypes.c_float, *[ctypes.c_void_p, ctypes.c_int] * 2, ctypes.c_float,
                                           ctypes.c_void_p, ctypes.c_int]  # fmt: skip

    def by_openblas(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> Any:
        n = len(x)
        sgemm(101, 111, 111, n, n, n, 1.0, x.ctypes.data, n, y.ctypes.data, n, 0.0, out.ctypes.data, n)

    library.scipy_openblas_set_num_threads(threads)
    return [*found, by_openblas]


def report() -> Iterator[str]:
    machine = Machine()
    sizes = {"80 MB": 80e6, "40 MB": 40e6, "4 MB": 4e6, "256 KB": 256e3}
    yield f"GB/s, each array counted once, on 1 / {THREADS} threads\n\n| arrays of | {' | '.join(sizes)} |"
    yield "|---" * (len(sizes) + 1) + "|"
    for name, count in LOOPS.items():
        for streaming in (False, True)[: 1 + (name != "sum")]:
            cells = []
            for size in sizes.values():
                rates = [machine.bandwidth(name, int(size) * count, streaming, t) / 1e9 for t in (1, THREADS)]
                cells.append(" / ".join(f"{r:.0f}" for r in rates))
            yield f"| {name}{', past the cache' if streaming else ''} | {' | '.join(cells)} |"
    shapes = (64, 128, 256, 512, 1024, 2048)
    yield f"\nGFLOP/s of sgemm, square, on 1 / {THREADS} threads\n\n| {' | '.join(map(str, shapes))} |"
    yield "|---" * len(shapes) + "|"
    cells = [" / ".join(f"{max(machine.rates(n, t)) / 1e9:.0f}" for t in (1, THREADS)) for n in shapes]
    yield f"| {' | '.join(cells)} |"


def serve() -> None:
    """Answer the runner: ``["triad", bytes]`` with durations of a pass, ``["sgemm"]`` with operations a second."""
    machine = Machine()
    print(json.dumps({"version": f"{THREADS} threads"}), flush=True)
    for line in sys.stdin:
        what, *rest = json.loads(line)
        times = machine.passes("triad", *rest) if what == "triad" else machine.rates()
        print(json.dumps({"times": times}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        for line in report():
            print(line, flush=True)
