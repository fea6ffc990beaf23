"""Chapter linalg: matrix products, in tiles of our own or through CBLAS, split by rows or columns among our threads."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Final

from ... import dtypes
from ...errors import UnsupportedError
from ...ir import Graph, Node, TensorType
from ...ir.op import get
from ...ir.ops.core import Input, Kernel
from . import blas, gemm
from .body import Body, kernel_key, name_of
from .chains import Lead
from .commands import Addressed, Command
from .finishing import Epilogue
from .plan import Planner, Rule
from .steps import Halves, holds_up_rows
from .views import View

_CALL: Final = 1 << 14
"""A product of so many multiplications takes as long as a call of CBLAS and its setting up."""
_THIN: Final = 3
"""Up to so many columns CBLAS multiplies along k."""
_DOT: Final = 64
"""The length from which two vectors are multiplied by a reduction."""
_PACKING: Final = 6
"""The rows of a tile that can be computed while a column of b is copied."""
_FAR: Final = 4096
"""Rows of b this far apart fall on one place of the nearest cache, and on a page each."""
_PACKED: Final = 1024
"""The most rows that CBLAS is given at a time: it copies a block of all of them, 1.8 KB for each, which should stay
near and take little memory."""
_AGAIN: Final = 4
"""How many tiles must read a panel of b before it is worth a copy."""

_NEAR: Final = 1 << 20
"""What a kernel may read, in bytes, that its full values are an epilogue and are read again for its reductions."""


def matmul(planner: Planner, node: Node) -> View:
    """c[…, m, n] = Σ_k a[…, m, k] b[…, k, n]. Half precision is multiplied in float32 and rounded once."""
    a, b = (planner.view(o) for o in node.operands)
    followed = _with_epilogue(planner, node, a, b)
    if followed is not None:
        return followed
    out = planner.temporary(node.shape, node.dtype)
    if not out.size:
        return out
    if not node.dtype.is_inexact or _is_dot(planner, a, b, out):
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
    a, b, out, vector = _arranged(planner, a, b, out)
    *batch, m, n = out.shape
    k = a.shape[-1]
    library = planner.system.blas()
    if not vector and _is_ours(planner, a, b, out):
        _in_tiles(planner, a, b, out, node)
        return
    a, first = _readable(planner, a)
    b, second = _strided(planner, b) if vector else _readable(planner, b)
    count = prod(batch)
    flat_a, step_a = _batched(planner, a, tuple(batch))
    flat_b, step_b = _batched(planner, b, tuple(batch))
    if flat_a is not a:
        a, first = _readable(planner, flat_a)
    if flat_b is not b:
        b, second = _strided(planner, flat_b) if vector else _readable(planner, flat_b)
    itemsize = out.dtype.itemsize
    # One thread does the pieces of two: their edges show in the last bit of double products.
    threads = max(planner.threads, 2)
    by_rows = m >= n or m > threads * _PACKED
    long = m if by_rows else n
    pieces = 1 if count >= 2 * threads or 2 * m * n * k < 1 << 18 else min(threads, -(-long // 16))
    if by_rows:
        pieces *= -(-m // (pieces * _PACKED))
    step = -(-long // pieces)
    step = -(-step // 16) * 16 if pieces > 1 else step
    pieces = -(-long // step)
    values = {
        "m": m, "n": n, "k": k, "turn_a": first[0], "turn_b": second[0], "lda": first[1], "ldb": second[1], "ldc": n,
        "pieces": pieces, "step": step, "by_rows": int(by_rows), "move_a": a.strides[-2], "move_b": b.strides[-1],
        "batch_a": step_a, "batch_b": step_b, "batch_c": m * n * itemsize,
    }  # fmt: skip
    values["gemm"] = blas.gemm(out.dtype, library, vector)
    sizes = (n, k, first[1], second[1], step if by_rows else m)
    if max(sizes) >> (library.integer.width - 1):
        raise UnsupportedError(
            f"{library.name} takes matrices of less than 2^{library.integer.width - 1} rows, columns and pitch, not "
            f"{max(sizes)}",
            source=node.source if node else None,
            hint="multiply parts of the matrix",
        )
    name = f"product {'by a vector ' if vector else ''}{library.name}"
    code = planner.code(f"{name} {out.dtype.name}", lambda: blas.product_kernel(out.dtype, library, vector))
    made = _command(planner, name, code, blas.WORDS, values, a, b, out, count * pieces, node)
    made.products = {blas.WORDS.index("gemm"): blas.product_name(out.dtype, vector)}


def _arranged(planner: Planner, a: View, b: View, out: View) -> tuple[View, View, View, bool]:
    """A product as it is computed: of one matrix for the whole batch, one tall product; of a row and a matrix, its
    transpose; and whether it is a matrix by a vector for the library."""
    *batch, m, n = out.shape
    k = a.shape[-1]
    if len(b.shape) == 2 and len(a.shape) > 2:
        flat = a.reshaped((prod(batch) * m, k))
        if flat is not None:
            a, m = flat, prod(batch) * m
            out = replace(out, shape=(m, n), strides=(n * out.dtype.itemsize, out.dtype.itemsize))
    library = planner.system.blas()
    vector = bool(library.vectors) and min(m, n) == 1 and m * n * k >= library.vectors
    if vector and n > 1:
        a, b = _turned(b), _turned(a)
        out = replace(out, shape=(*out.shape[:-2], n, m))
    return a, b, out, vector


def _with_epilogue(planner: Planner, node: Node, a: View, b: View) -> View | None:
    """A product of ours, and an elementwise kernel that reads it, in one command; None where there is no such. If the
    kernel goes on to reduce over rows, that comes after."""
    place = View.whole(-1, node.shape, node.dtype)
    readers = planner.followers.get(node, [])
    if not readers or not place.size or not node.dtype.is_floating or node.dtype.is_half:
        return None
    if _is_dot(planner, a, b, place):
        return None
    a, b, out, vector = _arranged(planner, a, b, place)
    if vector or not _is_ours(planner, a, b, out):
        return None
    for kernel in (n for n in readers if n.op is Kernel):
        graph, (full, reduced) = kernel.attrs["body"], Kernel.domain(kernel.attrs["body"])
        views = [place if o is node else planner.ready(o) for o in kernel.operands]
        found = [v for v in views if v is not None]
        if full != node.shape or len(found) < len(views) or found.count(place) != 1:
            continue
        halves = None
        if any(n.op.reduces for n in graph.nodes):
            if not holds_up_rows(Body(graph, full), reduced, found, _NEAR):
                continue
            halves = Halves(graph, full)
            graph = halves.full
        given = [found[k] for k in halves.full_inputs] if halves else found
        if place not in given or any(v.shape != full for v in given):
            continue
        made = planner.results(kernel)
        written = [made[k] for k in halves.full_outputs] if halves else list(made)
        keeps = len(readers) > 1 or node in planner.graph.outputs
        keeps = keeps or (halves is not None and place in [found[k] for k in halves.rows_inputs])
        shape = (prod(out.shape[:-2]), *out.shape[-2:])
        flat = [v.reshaped(shape) for v in (*given, *written)]
        seen = [v for v in flat if v is not None]
        product_of = planner.temporary(node.shape, node.dtype) if keeps or a.shape[-1] > gemm.DEPTH else place
        if len(seen) < len(flat):
            return None
        after = Epilogue(Body(graph, full), seen, given.index(place), keeps)
        _in_tiles(planner, a, b, replace(out, buffer=product_of.buffer), node, after)
        if halves is not None:
            read = [found[k] if found[k] is not place else product_of for k in halves.rows_inputs]
            read += [written[k] for k in halves.rows_made]
            planner.fused(halves.rows, read, [made[k] for k in halves.rows_outputs], kernel)
        return product_of
    return None


def _command(
    planner: Planner, name: str, code: Addressed, names: tuple[str, ...], values: dict[str, int], a: View, b: View,
    out: View, items: int, node: Node | None,
) -> Command:  # fmt: skip
    words = [values.get(name, 0) for name in names]
    pointers = [(names.index(name), view) for name, view in (("a", a), ("b", b), ("c", out))]
    return planner.command(name, code, words, pointers, items, _cost(a, b, out), 1, node=node)


def _cost(a: View, b: View, out: View) -> int:
    return a.nbytes + b.nbytes + out.nbytes + out.size * a.shape[-1] // 2


def _turned(x: View) -> View:
    return x.permuted((*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2))


def _is_dot(planner: Planner, a: View, b: View, out: View) -> bool:
    """Whether a product is of two vectors, long enough to be a reduction."""
    return (
        a.shape[-2] == b.shape[-1] == 1
        and a.shape[-1] >= _DOT
        and not (out.dtype.is_complex or out.dtype.is_half)
        and bool(planner.system.blas().tiles)
    )


def _is_ours(planner: Planner, a: View, b: View, out: View) -> bool:
    """Whether our tiles are faster than the system's CBLAS: where that gains nothing by copying both operands, and the
    tile, of two vectors of columns, is not nearly empty."""
    if out.dtype.is_complex:
        return False
    m, k = a.shape[-2:]
    n = out.shape[-1]
    turned = b.strides[-1] != b.dtype.itemsize
    thin = n <= _THIN or (turned and m < _THIN)
    return m * n * k < planner.system.blas().tiles and (not thin or m * n * k < _CALL)


def _in_tiles(
    planner: Planner, a: View, b: View, out: View, node: Node | None, after: Epilogue | None = None
) -> None:  # fmt: skip
    """A product by our own kernel, which reads operands of any strides. Threads share rows or columns, as leaves the
    most loaded one less to do; copying b is part of that."""
    *batch, m, n = out.shape
    k = a.shape[-1]
    count = prod(batch)
    a, step_a = _batched(planner, a, tuple(batch))
    b, step_b = _batched(planner, b, tuple(batch))
    itemsize = out.dtype.itemsize
    rows, width = gemm.tile(out.dtype, planner.machine)
    packs = b.strides[-1] != itemsize or (b.strides[-2] >= _FAR and m > _AGAIN * rows)
    threads = 1 if count % planner.threads == 0 or count >= 4 * planner.threads else planner.threads

    def share(long: int, unit: int) -> int:
        """The rows or columns of a thread: whole tiles."""
        return -(-long // (threads * unit)) * unit

    def work(high: int, wide: int) -> int:
        return (high + packs * _PACKING) * wide

    # In rows they can go on with what they have in their caches.
    by_rows = 4 * work(share(m, rows), n) <= 5 * work(m, share(n, width))
    long, unit = (m, rows) if by_rows else (n, width)
    step = share(long, unit) if threads > 1 else long
    pieces = -(-long // step)
    values = {
        "m": m, "n": n, "k": k, "row_a": a.strides[-2], "step_a": a.strides[-1], "step_b": b.strides[-2],
        "column_b": b.strides[-1], "row_c": n * itemsize, "pieces": pieces, "step": step, "by_rows": int(by_rows),
        "packs": int(packs), "height": gemm.rows_together(m, n, k, packs, out.dtype, planner.machine),
        "batch_a": step_a, "batch_b": step_b, "batch_c": m * n * itemsize,
    }  # fmt: skip
    code = planner.code(f"tiles {out.dtype.name}", lambda: gemm.product_kernel(out.dtype, planner.machine))
    if after is None:
        values["keeps"] = 1
        made = _command(planner, "product", code, gemm.WORDS, values, a, b, out, count * pieces, node)
    else:
        values["keeps"] = int(after.keeps)
        made = _finished(planner, code, a, b, out, values, count * pieces, node, after)
    given = [(a, step_a, a.strides[-2]), (b, step_b, 0), *_beside(out, after)]
    if count > 1:
        made.lead = Lead(count, [_apart(x, step) for x, step, _ in given], pieces)
    elif by_rows:
        moves = [_apart(x, step, rows=1) for x, _, step in given]
        made.lead = Lead(m, moves, step=gemm.WORDS.index("step"), count=gemm.WORDS.index("pieces"), most=m)


def _beside(out: View, after: Epilogue | None) -> list[tuple[View, int, int]]:
    """What a product reads and writes besides its operands, in the order of its pointers, with the bytes from product
    to product and from row to row."""
    itemsize = out.dtype.itemsize
    *_, m, n = out.shape
    own = [(out, m * n * itemsize, n * itemsize)] if out.buffer >= 0 else []
    if after is None:
        return own
    views = [v for k, v in enumerate(after.views) if k != after.place]
    first = len(views) - len(after.outputs)
    others = [(v, v.strides[0], v.strides[1]) for v in views]
    return [*others[:first], *own, *others[first:]]


def _finished(
    planner: Planner, code: Addressed, a: View, b: View, out: View, values: dict[str, int], items: int,
    node: Node | None, after: Epilogue,
) -> Command:  # fmt: skip
    """The command of a product with an epilogue."""
    layout = after.layout(len(gemm.WORDS))
    finish = planner.code(
        f"epilogue {out.dtype.name} {kernel_key(after.body, layout)}",
        lambda: gemm.finish_kernel(after.body, layout, out.dtype, planner.machine),
    )
    places = [(layout.slot(k), v) for k, v in enumerate(after.views) if k != after.place]
    first = len(places) - len(after.outputs)
    own = [(gemm.WORDS.index("c"), out)] if out.buffer >= 0 else []
    pointers = [(gemm.WORDS.index("a"), a), (gemm.WORDS.index("b"), b), *places[:first], *own, *places[first:]]
    words = [*(values.get(name, 0) for name in gemm.WORDS), *after.words]
    cost = _cost(a, b, out) + sum(v.touched for _, v in places)
    cost += out.size * sum(n.op.work for n in after.body.graph.nodes) // 2
    writes = len(own) + len(after.outputs)
    made = planner.command(f"product {name_of(after.body)}", code, words, pointers, items, cost, writes, node=node)
    made.replaces = after.replaces([a, b])
    made.form = "with an epilogue"
    made.calls = {gemm.WORDS.index("finish"): finish}
    return made


def _apart(x: View, step: int, rows: int = 2) -> int:
    """``step``, where matrices (``rows`` 2) or rows (1) so many bytes apart do not overlap; else 0."""
    inside = list(zip(x.shape, x.strides, strict=True))[-rows:]
    extent = x.dtype.itemsize + sum(s * (n - 1) for n, s in inside)
    return step if extent <= step and all(s >= 0 for _, s in inside) else 0


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


def _strided(planner: Planner, x: View) -> tuple[View, tuple[int, int]]:
    """A column (or batch) as CBLAS can read it, copied where it cannot; no flag, and its step in elements."""
    itemsize = x.dtype.itemsize
    if x.shape[-2] > 1 and (x.strides[-2] <= 0 or x.strides[-2] % itemsize):
        x = planner.contiguous(x)
    return x, (0, x.strides[-2] // itemsize if x.shape[-2] > 1 else 1)


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
    """Integers and vectors: a fused product and sum over k; sums of integers wrap in the operands' dtype."""
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

    views = [spread(a, 1), spread(_turned(b), 0)]
    t = TensorType(full, out.dtype)
    inputs = [Node(Input, (), {}, (t,)) for _ in range(2)]
    times = Node(get("multiply"), tuple(inputs), {}, (t,))
    attrs = {"axis": (rank - 1,), "keepdims": False, "dtype": out.dtype}
    total = Node(get("sum"), (times,), attrs, (TensorType(out.shape, out.dtype),))
    planner.fused(Graph(inputs, [times, total], [total], "explicit"), views, [out])


def _inserted(pair: tuple[int, ...], at: int, value: int = 1) -> tuple[int, ...]:
    return (*pair[:at], value, *pair[at:])


OPS: Final[dict[str, Rule]] = {"matmul": matmul}
