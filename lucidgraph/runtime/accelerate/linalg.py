"""Chapter linalg: matrix products through CBLAS, split by rows or columns among our threads."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Final

from ... import dtypes
from ...errors import UnsupportedError
from ...ir import Graph, Node, TensorType
from ...ir.op import get
from ...ir.ops.core import Input
from . import blas
from .plan import Planner, Rule
from .views import View


def matmul(planner: Planner, node: Node) -> View:
    """c[…, m, n] = Σ_k a[…, m, k] b[…, k, n]. Half precision is multiplied in float32 and rounded once."""
    a, b = (planner.view(o) for o in node.operands)
    out = planner.temporary(node.shape, node.dtype)
    if not out.size:
        return out
    if not node.dtype.is_inexact:
        _by_loops(planner, a, b, out)
        return out
    if node.dtype.is_half:
        wide = planner.temporary(node.shape, dtypes.float32)
        product(planner, planner.cast(a, dtypes.float32), planner.cast(b, dtypes.float32), wide, node)
        return planner.cast(wide, node.dtype)
    product(planner, a, b, out, node)
    return out


def product(planner: Planner, a: View, b: View, out: View, node: Node | None = None) -> None:
    """``out = a @ b`` in float32, float64 or complex; ``out`` is contiguous."""
    *batch, m, n = out.shape
    k = a.shape[-1]
    if len(b.shape) == 2 and len(a.shape) > 2:
        flat = a.reshaped((prod(batch) * m, k))
        if flat is not None:
            # One matrix for the whole batch: one tall product.
            a, out, batch, m = (
                flat,
                replace(out, shape=(prod(batch) * m, n), strides=(n * out.dtype.itemsize, out.dtype.itemsize)),
                [],
                prod(batch) * m,
            )
    a, first = _readable(planner, a)
    b, second = _readable(planner, b)
    count = prod(batch)
    flat_a, step_a = _batched(planner, a, tuple(batch))
    flat_b, step_b = _batched(planner, b, tuple(batch))
    if flat_a is not a:
        a, first = _readable(planner, flat_a)
    if flat_b is not b:
        b, second = _readable(planner, flat_b)
    itemsize = out.dtype.itemsize
    # One thread does the pieces of two: their edges show in the last bit of double products.
    threads = max(planner.threads, 2)
    by_rows = m >= n
    long = m if by_rows else n
    pieces = 1 if count >= 2 * threads or 2 * m * n * k < 1 << 18 else min(threads, -(-long // 16))
    step = -(-long // pieces)
    step = -(-step // 16) * 16 if pieces > 1 else step
    pieces = -(-long // step)
    values = {
        "m": m, "n": n, "k": k, "turn_a": first[0], "turn_b": second[0], "lda": first[1], "ldb": second[1], "ldc": n,
        "pieces": pieces, "step": step, "by_rows": int(by_rows), "move_a": a.strides[-2], "move_b": b.strides[-1],
        "batch_a": step_a, "batch_b": step_b, "batch_c": m * n * itemsize,
    }  # fmt: skip
    library = planner.system.blas()
    values["gemm"] = blas.gemm(out.dtype, library)
    words = [values.get(name, 0) for name in blas.WORDS]
    sizes = (n, k, first[1], second[1], step if by_rows else m)
    if max(sizes) >> (library.integer.width - 1):
        raise UnsupportedError(
            f"{library.name} takes matrices of less than 2^{library.integer.width - 1} rows, columns and pitch, not "
            f"{max(sizes)}",
            source=node.source if node else None,
            hint="multiply parts of the matrix",
        )
    pointers = [(blas.WORDS.index(name), view) for name, view in (("a", a), ("b", b), ("c", out))]
    cost = a.nbytes + b.nbytes + out.nbytes + count * m * n * k // 2
    code = planner.code(f"product {out.dtype.name} {library.name}", lambda: blas.product_kernel(out.dtype, library))
    planner.command("product", code, words, pointers, count * pieces, cost, 1, node=node)


def _readable(planner: Planner, x: View) -> tuple[View, tuple[int, int]]:
    """A matrix (or batch) as CBLAS can read it, copied where it cannot; its flag and leading dimension."""
    found = blas.leading(x.strides[-2:], x.shape[-2:], x.dtype.itemsize)  # type: ignore[arg-type]
    if found is None:
        x = planner.contiguous(x) if not x.contiguous else x
        out = planner.temporary(x.shape, x.dtype)
        planner.copy(x, out)
        x = out
        found = blas.leading(x.strides[-2:], x.shape[-2:], x.dtype.itemsize)  # type: ignore[arg-type]
        assert found is not None
    return x, found


def _batched(planner: Planner, x: View, batch: tuple[int, ...]) -> tuple[View, int]:
    """A batch of matrices at equal distances, and that distance in bytes; copied where the distances differ."""
    if len(x.shape) == 2 or not batch:
        return x, 0
    distance = replace(x, shape=x.shape[:-2], strides=x.strides[:-2])
    flat = distance.reshaped((prod(batch),)) if not distance.contiguous else None
    if flat is None:
        sizes = [(n, s) for n, s in zip(distance.shape, distance.strides, strict=True) if n != 1]
        for (_, s), (n, t) in pairwise(sizes):
            if s != n * t:
                copy = planner.temporary(x.shape, x.dtype)
                planner.copy(x, copy)
                return copy, prod(x.shape[-2:]) * x.dtype.itemsize
        return x, sizes[-1][1] if sizes else 0
    return x, flat.strides[0]


def _by_loops(planner: Planner, a: View, b: View, out: View) -> None:
    """Integers: a fused product and sum over k; sums wrap in the operands' dtype."""
    *batch, m, n = out.shape
    k = a.shape[-1]
    full = (*batch, m, n, k)
    rank = len(full)

    def spread(x: View, at: int) -> View:
        x = replace(
            x,
            shape=(*x.shape[:-2], *_inserted(x.shape[-2:], at)),
            strides=(*x.strides[:-2], *_inserted(x.strides[-2:], at, 0)),
        )
        return x.broadcast_to(full)

    turned = b.permuted((*range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2))
    views = [spread(a, 1), spread(turned, 0)]
    t = TensorType(full, out.dtype)
    inputs = [Node(Input, (), {}, (t,)) for _ in range(2)]
    times = Node(get("multiply"), tuple(inputs), {}, (t,))
    attrs = {"axis": (rank - 1,), "keepdims": False, "dtype": out.dtype}
    total = Node(get("sum"), (times,), attrs, (TensorType(out.shape, out.dtype),))
    planner.fused(Graph(inputs, [times, total], [total], "explicit"), views, [out])


def _inserted(pair: tuple[int, ...], at: int, value: int = 1) -> tuple[int, ...]:
    return (*pair[:at], value, *pair[at:])


OPS: Final[dict[str, Rule]] = {"matmul": matmul}
