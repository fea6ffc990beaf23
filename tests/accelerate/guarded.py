"""Runs programs with every array between pages that may not be touched: ``python -m tests.accelerate.guarded end``.

Inputs, captured arrays, results and each temporary lie at the end of a mapping, or at its start; the pages around are
protected, so that one byte read or written outside kills the process. Results are compared with the reference.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import lucidgraph as lg
from lucidgraph import passes
from lucidgraph.ir.evaluate import evaluate
from lucidgraph.runtime.accelerate import backend as module
from lucidgraph.runtime.accelerate.memory import LARGE
from lucidgraph.wiring import backend
from tests.accelerate.generated import generate

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)
ALIGN = 64


class Guarded:
    """``nbytes`` of memory that ends at a protected page, or starts after one."""

    def __init__(self, nbytes: int, at_end: bool) -> None:
        body = -(-max(nbytes, 1) // PAGE) * PAGE
        self.mapping = mmap.mmap(-1, body + 2 * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.mapping))
        for page in (base, base + PAGE + body):
            if LIBC.mprotect(ctypes.c_void_p(page), PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.offset = PAGE + (body - nbytes if at_end else 0)
        self.address = base + self.offset


def guarded_array(shape: Sequence[int], dtype: Any, at_end: bool) -> np.ndarray:
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    guarded = Guarded(size, at_end)
    return np.frombuffer(guarded.mapping, np.uint8, size, guarded.offset).view(dtype).reshape(shape)


def guarded_copy(array: np.ndarray, at_end: bool) -> np.ndarray:
    """The same elements in guarded memory, with gaps between them where ``array`` has negative or wide strides."""
    out = guarded_array(array.shape, array.dtype, at_end)
    out[...] = array
    return out


def spread(plan: Any, at_end: bool) -> list[tuple[int, int]]:
    """Give each temporary pages of its own in the arena; the guards between, as (offset, size)."""
    for command in plan.commands:
        command.idle = False
    at = PAGE
    guards = [(0, PAGE)]
    for buffer in plan.buffers:
        if buffer.kind == "temporary" and buffer.nbytes:
            body = -(-buffer.nbytes // PAGE) * PAGE
            buffer.offset = at + (body - buffer.nbytes if at_end else 0)
            guards.append((at + body, PAGE))
            at += body + PAGE
    if plan.arena:
        plan.arena = max(at, LARGE)
    return guards


class GuardedBlock:
    """In the place of a block of the arena."""

    def __init__(self, size: int, guards: list[tuple[int, int]]) -> None:
        self.mapping = mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.mapping))
        for offset, length in guards:
            if LIBC.mprotect(ctypes.c_void_p(self.address + offset), length, 0):
                raise OSError(ctypes.get_errno(), "mprotect")


class Blocks:
    """In the place of the pool."""

    def __init__(self, guards: list[tuple[int, int]]) -> None:
        self.guards = guards

    def take(self, nbytes: int) -> GuardedBlock:
        return GuardedBlock(nbytes, self.guards)

    def give(self, block: GuardedBlock) -> None:
        block.mapping = None  # type: ignore[assignment]


def run(name: str, fn: Callable[..., Any], args: Sequence[np.ndarray], at_end: bool, exact: bool = True) -> None:
    """One program under guard."""
    print(name, flush=True)
    be = backend("accelerate")
    graph = passes.run_passes(lg.trace(fn, *args, passes=()), passes.pipeline(be.takes, be.fuses))
    executable: Any = be.compile(graph)
    plan = executable.plan
    plan.captured[:] = [guarded_copy(a, at_end) for a in plan.captured]
    module.BLOCKS = Blocks(spread(plan, at_end))  # type: ignore[assignment]
    module.empty = lambda shape, dtype: guarded_array(shape, dtype, at_end)  # type: ignore[assignment]
    results = executable([guarded_copy(a, at_end) for a in args])
    with np.errstate(all="ignore"):
        wanted = evaluate(graph, list(args))
    for expected, actual in zip(wanted, results, strict=True):
        if exact:
            np.testing.assert_array_equal(actual, expected)
        else:
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def _long(x: Any) -> Any:
    return lg.sum(x), lg.max(x), lg.argmax(x), lg.any(x)


def _rows(x: Any) -> Any:
    return lg.softmax(x, axis=-1), lg.sum(x, axis=0), lg.sum(x, axis=-1), lg.mean(x * x, axis=-1, keepdims=True)


def _views(x: Any) -> Any:
    return x[::-1] * 2 + x.T[: x.shape[0], : x.shape[1]] if x.shape[0] == x.shape[1] else x[::2, ::-3] + 1


def _near(x: Any) -> Any:
    return x[:, ::2] + 1, x[:, ::-1] * 2, lg.sum(x[:, ::3], axis=1), lg.max(x[:, ::4], axis=0)


def _moved(x: Any) -> Any:
    n = x.shape[0]
    places = np.array([n - 1, 0, -n])
    return (lg.take(x, places, axis=0), lg.scatter_add(x, places, lg.take(x, places, axis=0), axis=0),
            lg.pad(x, ((1, 2), (0, 3))), lg.concat([x, x], axis=1), lg.roll(x, 1, axis=1))  # fmt: skip


def _product(x: Any) -> Any:
    return lg.minimum(x @ x.T, 7), x.T @ x


def _pairs(x: Any) -> Any:
    return lg.sum(lg.square(x[:, None, :] - x[None, :, :]), axis=-1), lg.sum(x[:, None, :] * x[None, :, :], axis=0)


def _placed(x: Any) -> Any:
    inner = x[1:-1, 1:-1] * 2
    return lg.pad(x * 2, ((1, 2), (0, 3))), x.at[1:-1, 1:-1].set(inner), lg.concat([x + 1, x * 2], axis=1)


def _rows_by_index(x: Any) -> Any:
    places = np.array([x.shape[0] - 1, 0, -x.shape[0]])
    return lg.take(x, places, axis=0) * 2 + x[:1]


def _casts(x: Any) -> Any:
    targets = (lg.float16, lg.bfloat16, lg.float64, lg.int8, lg.int64, lg.bool_, lg.complex64)
    return tuple(lg.astype(x, d) for d in targets)


def _attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    def loss(q: Any, k: Any, v: Any, mask: Any) -> Any:
        y = lg.nn.scaled_dot_product_attention(q, k, v, mask=mask)
        return lg.sum(y * y) + lg.sum(lg.nn.scaled_dot_product_attention(q, k, v, mask="causal"))

    return lg.value_and_grad(loss, argnums=(0, 1, 2) if mask.dtype == lg.bool_ else (0, 1, 2, 3))(q, k, v, mask)


FUNCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    "float32": (_rows, _long, _moved, _views, _near, _product, _casts, _pairs, _placed, _rows_by_index),
    "float64": (_rows, _long, _product, _pairs),
    "int8": (_rows, _long, _moved, _views, _near, _product, _casts),
    "float16": (_rows, _long, _moved, _product),
    "bool": (_long, _casts),
    "complex64": (_moved, _views),
}
SHAPES = ((1, 1), (3, 5), (17, 1), (15, 33), (7, 129), (1, 4097), (4099, 1), (131, 517))


def programs() -> Iterator[tuple[str, Callable[..., Any], list[np.ndarray], bool]]:
    rng = np.random.default_rng(0)
    for dtype, functions in FUNCTIONS.items():
        for shape in SHAPES if dtype == "float32" else SHAPES[1:5:2]:
            x = rng.integers(0 if dtype == "bool" else -4, 5, shape).astype(dtype)
            for fn in functions:
                if fn not in (_product, _pairs) or max(shape) < 200:
                    exact = fn is not _rows and (fn is not _product or dtype != "float16")
                    yield f"{fn.__name__} {dtype}{list(shape)}", fn, [x], exact
    big = rng.integers(-3, 4, (1, 262_147)).astype(np.float32)
    yield "long", _long, [big], True
    yield "long rows", _rows, [big], False
    for heads, queries, keys, n, m in ((1, 1, 1, 1, 1), (3, 7, 5, 3, 4), (2, 65, 130, 17, 33), (1, 3, 700, 8, 8)):
        shapes = (2, heads, queries, n), (2, 1, keys, n), (2, 1, keys, m)
        q, k, v = (rng.standard_normal(s).astype(np.float32) for s in shapes)
        bias = rng.standard_normal((heads, 1, keys)).astype(np.float32)
        for mask in (bias, rng.random((2, 1, queries, keys)) < 0.7):
            yield f"attention {q.shape} {k.shape} {mask.dtype}", _attention, [q, k, v, mask], False
    for seed in range(8):
        made = generate(seed, 20)
        yield f"generated {seed}", made.fn, list(made.args), True


def main(where: str, threads: int) -> None:
    faulthandler.enable()
    lg.set_threads(threads)
    for name, fn, args, exact in programs():
        run(name, fn, args, where == "end", exact)
    print("done")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2)
