"""Chapter attention: tiles of queries by keys, some rows of which a thread has in its cache."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, inf, prod
from typing import Final

import numpy as np

from ...dtypes import DType
from ...errors import UnsupportedError
from ...ir import Graph, Node, TensorType
from ...ir.op import get
from ...ir.ops.core import Input
from . import blas
from .flash import BACKWARD, FORWARD, Backward, Forward
from .flash_tiles import Form
from .plan import Planner, Rule
from .views import View

_ROWS: Final = 64
_TILE: Final = 1 << 17
"""The bytes of a tile of scores: with what is multiplied by it, it fits a core's second cache."""
_SMALL: Final = 10**6
"""Products of at most so many multiplications OpenBLAS runs from where the operands lie: 105 GFLOP/s where those that
it packs first reach 90 (on a core of 112)."""
_TURNED_FROM: Final = 256
"""So many queries (half of them in a causal order) repay a turned copy of the keys: products with a turned operand
reach 83 GFLOP/s where others reach 105, and turning takes as long as 150 queries gain."""


def _bits(number: float) -> int:
    """A double among integer arguments."""
    return int(np.float64(number).view(np.int64))


class _Call:
    """The arguments of one command, as they come together."""

    def __init__(self, planner: Planner, node: Node, words: Sequence[str], tiles: int) -> None:
        self.planner, self.node, self.names = planner, node, words
        q, k, v = (o.type for o in node.operands[:3])
        _, heads, queries, n = q.shape
        self.dtype: DType = q.dtype
        share = heads // max(k.shape[1], 1)
        keys, width = k.shape[2], v.shape[3]
        rows = max(1, min(_ROWS, queries))
        span = max(1, min(keys, _TILE // tiles // self.dtype.itemsize // rows))
        span = min(span, max(_SMALL // rows // max(n, width, 1), 16))
        if span < keys:
            # Whole lines of the cache.
            span = max(span // 16 * 16, 16)
        self.blocks = -(-queries // rows)
        scale, over = node.attrs["scale"], node.attrs["over"]
        if scale == 0:
            # CBLAS reads nothing then, and 0 times NaN or an infinity is NaN.
            scale, over = 1.0, inf
        self.divided = over != 1
        self.values = {
            "heads": heads, "share": share, "queries": queries, "keys": keys, "features": n, "width": width,
            "rows": rows, "span": span, "blocks": self.blocks, "scale": _bits(scale), "over": _bits(over),
            "hidden": _bits(node.attrs["hidden"]),
            "scratch_stride": -(-(tiles * rows * span + rows) * self.dtype.itemsize // 64) * 64,
        }  # fmt: skip
        self.pointers: list[tuple[int, View]] = []
        self.mask: tuple[DType, str] | None = None
        repaid = share * queries // (2 if node.attrs["causal"] else 1) >= _TURNED_FROM
        self.flag = blas.TURNED if repaid else None
        """How matrices should lie that the products use turned."""

    def point(self, name: str, view: View) -> None:
        self.pointers.append((self.names.index(name), view))

    def matrix(self, name: str, x: View, wanted: int | None = None) -> None:
        """An operand (batch, heads, rows, columns), copied where CBLAS cannot read it, or not in the way ``wanted``."""
        found = blas.leading(x.strides[-2:], x.shape[-2:], x.dtype.itemsize)  # type: ignore[arg-type]
        if found is None or wanted not in (None, found[0]):
            order = (0, 1, 3, 2) if wanted == blas.TURNED else (0, 1, 2, 3)
            source = x.permuted(order)
            copy = self.planner.temporary(source.shape, x.dtype)
            self.planner.copy(source, copy)
            x = copy.permuted(order)
            found = blas.leading(x.strides[-2:], x.shape[-2:], x.dtype.itemsize)  # type: ignore[arg-type]
        assert found is not None
        turn, pitch = found
        library = self.planner.system.blas()
        most = max(*x.shape[-2:], pitch)
        if most >> (library.integer.width - 1):
            raise UnsupportedError(
                f"{library.name} takes matrices of less than 2^{library.integer.width - 1} rows, columns and pitch, "
                f"not {most}",
                source=self.node.source,
                hint="attend to parts of the sequence",
            )
        move = x.dtype.itemsize * (pitch if turn == blas.PLAIN else 1)
        facts = {"batch": x.strides[0], "head": x.strides[1], "move": move, "pitch": pitch, "turn": turn}
        self.values.update({f"{name}_{k}": value for k, value in facts.items()})
        self.point(name, x)

    def add_mask(self, masks: Sequence[Node]) -> None:
        if not masks:
            return
        view = self.planner.view(masks[0])
        view = view.broadcast_to((*self.node.operands[0].shape[:3], self.values["keys"]))
        step = view.strides[3]
        access = "same" if step == 0 else "adjacent" if step == view.dtype.itemsize else "strided"
        self.mask = view.dtype, access
        names = ("mask_batch", "mask_head", "mask_row", "mask_column")
        self.values.update(dict(zip(names, view.strides, strict=True)))
        self.point("mask", view)

    def run(self, made: type[Forward] | type[Backward], facts: tuple[frozenset[str], ...], blind: float, items: int,
            work: int, outputs: dict[str, View]) -> None:  # fmt: skip
        planner, attrs = self.planner, self.node.attrs
        for name, view in outputs.items():
            self.point(name, view)
        hiding = "added" if attrs["added"] else "gone" if attrs["hidden"] == -inf else "replaced"
        form = Form(self.dtype, self.mask, attrs["causal"], self.divided, hiding, blind)
        library = planner.system.blas()
        self.values["gemm"] = blas.gemm(self.dtype, library)
        key = f"{made.__name__} {[sorted(f) for f in facts]} {form} {library.name}"
        code = planner.code(key, lambda: made(*facts, form, library, planner.machine).emit())
        cost = sum(view.nbytes for _, view in self.pointers) + work // (2 if form.causal else 1)
        command = planner.command(
            self.node.name, code, [self.values.get(name, 0) for name in self.names], self.pointers, items, cost,
            len(outputs), node=self.node,
        )  # fmt: skip
        command.products = {self.names.index("gemm"): blas.product_name(self.dtype)}
        planner.scratch_of.append((command, self.names.index("scratch")))
        planner.plan.scratch = max(planner.plan.scratch, self.values["scratch_stride"] * planner.threads)


def _together(planner: Planner, node: Node, *besides: str) -> list[Node]:
    """The nodes made at once with ``node``: of the same operands and attributes, but for those of such names."""

    def own(n: Node) -> dict[str, object]:
        return {k: v for k, v in n.attrs.items() if k not in besides}

    return [n for n in planner.alike[node.operands] if n.name in OPS and own(n) == own(node)]


def attend(planner: Planner, node: Node) -> View:
    """The result, and what its gradient needs of the rows: made by whichever comes first."""
    if node in planner.views:
        return planner.view(node)
    alike = _together(planner, node, "blind")
    results = [n for n in alike if n.name == "attend"]
    blind = results[0].attrs["blind"] if results else 0.0
    q, v = node.operands[0], node.operands[2]
    shape = (*q.shape[:3], v.shape[3])
    y = planner.temporary(shape, q.dtype)
    totals = planner.temporary((*q.shape[:3], 2), q.dtype)
    for n in alike:
        planner.views[n] = (y if n.name == "attend" else totals,)
    if totals.size:
        made = _Call(planner, node, FORWARD, 1)
        for name, operand, wanted in zip("qkv", node.operands, (None, made.flag, None), strict=False):
            made.matrix(name, planner.view(operand), wanted)
        made.add_mask(node.operands[3:])
        work = prod(q.shape) * made.values["keys"] // 2 + y.size * made.values["keys"] // 2
        made.run(Forward, (), blind, prod(q.shape[:2]) * made.blocks, work, {"y": y, "totals": totals})
    return planner.view(node)


def attend_gradient(planner: Planner, node: Node) -> View:
    """All gradients that are wanted at once."""
    if node in planner.views:
        return planner.view(node)
    alike = {n.attrs["wrt"]: n for n in _together(planner, node, "wrt")}
    made = {name: planner.temporary(n.shape, n.dtype) for name, n in alike.items()}
    for name, n in alike.items():
        planner.views[n] = (made[name],)
    q, k, v, g, y, rows = node.operands[:6]
    if not q.type.size or not k.type.size or not v.type.size:
        for view in made.values():
            if view.size:
                planner.fill(planner.constant(np.zeros((1,) * len(view.shape)), view.dtype), view)
        return planner.view(node)
    call = _Call(planner, node, BACKWARD, 2)
    wanted = {"v": call.flag, "s": call.flag, "g": blas.PLAIN}
    for name, operand in zip("qkvgs", (q, k, v, g, k), strict=True):
        call.matrix(name, planner.view(operand), wanted.get(name))
    call.add_mask(node.operands[6:])
    for name, operand in (("y", y), ("totals", rows)):
        call.point(name, planner.contiguous(planner.view(operand)))
    pairs = prod(k.shape[:2])
    share = call.values["share"]
    # Items enough for an even split. One thread does the chunks of two.
    threads = max(planner.threads, 2)
    chunks = min(share * call.blocks, threads // gcd(pairs, threads))
    call.values.update(chunks=chunks, pairs=pairs)
    outputs = {f"to_{name}": view for name, view in made.items()}
    if "scores" in made and node.attrs["causal"]:
        planner.fill(planner.constant(np.zeros((1,) * 4), q.dtype), made["scores"])
    for name in ("k", "v"):
        if name in made and chunks > 1:
            outputs[f"to_{name}"] = planner.temporary((chunks, *made[name].shape), q.dtype)
    products = {"q": q.type.size, "k": q.type.size, "v": y.type.size, "scores": 0}
    work = (q.type.size + y.type.size + sum(products[name] for name in made)) * k.shape[2] // 2
    call.run(Backward, (frozenset(made),), node.attrs["blind"], pairs * chunks, work, outputs)
    for name in ("k", "v"):
        if name in made and chunks > 1:
            _added(planner, outputs[f"to_{name}"], made[name])
    return planner.view(node)


def _added(planner: Planner, parts: View, out: View) -> None:
    """The sum over the first axis."""
    t = TensorType(parts.shape, parts.dtype)
    operand = Node(Input, (), {}, (t,))
    attrs = {"axis": (0,), "keepdims": False, "dtype": parts.dtype}
    total = Node(get("sum"), (operand,), attrs, (TensorType(out.shape, out.dtype),))
    planner.fused(Graph([operand], [total], [total], "explicit"), [parts], [out])


OPS: Final[dict[str, Rule]] = {"attend": attend, "attend_rows": attend, "attend_gradient": attend_gradient}
