"""Attention in tiles: softmax(scale q kᵀ + mask) v without the matrix of scores.

A tile is some queries by a span of keys; it lies in cache. Per row it keeps the greatest score m and the total
l = Σ exp(score - m) of the spans so far; what was summed of v is rescaled where they change. After Milakov and
Gimelshein (Online normalizer calculation for softmax, 2018) and Dao (FlashAttention-2, 2023), with weights that are
normal at all times, so that nothing overflows which does not in the formula.

Keys behind the last query of a tile are not looked at, where the order is causal and where that changes nothing:
their weights are 0, but 0 times an infinity or NaN is NaN.
"""

from __future__ import annotations

from math import isnan
from typing import Any, Final

from llvmlite import ir

from .blas import PLAIN, TURNED
from .flash_tiles import Tiles
from .values import I64

_SIZES: Final = (
    "heads", "share", "queries", "keys", "features", "width", "rows", "span", "blocks", "scale", "over",
    "hidden", "scratch", "scratch_stride", "gemm",
)  # fmt: skip
_MATRIX: Final = ("", "_batch", "_head", "_move", "_pitch", "_turn")
_MASK: Final = ("mask", "mask_batch", "mask_head", "mask_row", "mask_column")

FORWARD: Final = (*_SIZES, *(x + f for x in "qkv" for f in _MATRIX), *_MASK, "y", "totals")
"""Arguments: sizes; the address of the library's product, so that the code holds in every process; per operand its
address, the bytes between batches, heads and rows, and how CBLAS reads it. Backward, ``s`` is k again, as it is best
for scores."""
BACKWARD: Final = (
    *_SIZES, "chunks", "pairs", *(x + f for x in "qkvgs" for f in _MATRIX), *_MASK, "y", "totals",
    "to_q", "to_k", "to_v", "to_scores",
)  # fmt: skip


class Forward(Tiles):
    """Items are the blocks of queries of each head."""

    def __init__(self, *args: Any) -> None:
        super().__init__(FORWARD, *args)

    def item(self, item: ir.Value) -> None:
        b, w = self.b, self.w
        which, turn = b.sdiv(item, w["blocks"]), b.srem(item, w["blocks"])
        batch, head = b.sdiv(which, w["heads"]), b.srem(which, w["heads"])
        block = _folded_order(b, turn, w["blocks"])
        first = b.mul(block, w["rows"])
        count = self.smaller(w["rows"], b.sub(w["queries"], first))
        shared = b.sdiv(head, w["share"])
        totals = self.place(w["totals"], b.mul(b.add(b.mul(which, w["queries"]), first), I64(2 * self.dtype.itemsize)))
        wide = b.mul(w["width"], self.size)
        y = self.place(w["y"], b.mul(b.add(b.mul(which, w["queries"]), first), wide))
        with self.loop(I64(0), count) as k:
            pair = self.row(totals, k, b.mul(self.size, I64(2)))
            self.write(self.lowest, pair)
            self.write(self.zero, pair, 1)
            self.fill(self.row(y, k, wide), I64(0), w["width"], self.zero)
        q = self.matrix("q", batch, head, first)
        if not self.causal:
            self.attend(batch, head, first, count, q, totals, y, I64(0), w["keys"])
        else:
            # The keys that the last query sees, then the others, if they matter.
            near = self.reach(b.sub(b.add(first, count), I64(1)))
            stop = self.variable(I64)
            with self.loop(I64(0), I64(2)) as turn:
                b.store(near, stop)
                start = b.select(b.icmp_signed("==", turn, I64(0)), I64(0), near)
                with b.if_then(b.icmp_signed("==", turn, I64(1))):
                    vain = self.vanishing(q, count, batch, shared, near, totals)
                    b.store(b.select(vain, near, w["keys"]), stop)
                self.attend(batch, head, first, count, q, totals, y, start, b.load(stop, typ=I64))
        if isnan(self.blind.constant):
            with self.loop(I64(0), count) as k:
                total = self.read(self.row(totals, k, b.mul(self.size, I64(2))), 1)
                with b.if_then(b.fcmp_ordered("==", total, self.zero)):
                    self.fill(self.row(y, k, wide), I64(0), w["width"], self.blind)

    def attend(
        self, batch: ir.Value, head: ir.Value, first: ir.Value, count: ir.Value, q: ir.Value, totals: ir.Value,
        y: ir.Value, begin: ir.Value, end: ir.Value,
    ) -> None:  # fmt: skip
        """What the keys from ``begin`` to ``end`` add to the results of some queries."""
        b, w = self.b, self.w
        shared = b.sdiv(head, w["share"])
        wide = b.mul(w["width"], self.size)
        with self.spans(begin, end) as (start, n):
            self.scores("k", q, count, self.matrix("k", batch, shared, start), n)
            again = b.icmp_signed(">", start, I64(0))
            with self.loop(I64(0), count) as k:
                self.weights(batch, head, b.add(first, k), start, n, self.row(self.scratch, k, self.pitch),
                             self.row(totals, k, b.mul(self.size, I64(2))), self.row(y, k, wide), again)  # fmt: skip
            self.product(
                (count, w["width"], n), (self.scratch, w["span"], I64(PLAIN)),
                (self.matrix("v", batch, shared, start), w["v_pitch"], w["v_turn"]), (y, w["width"]), self.one,
                b.select(again, self.one, self.zero),
            )  # fmt: skip

    def weights(
        self, batch: ir.Value, head: ir.Value, row: ir.Value, start: ir.Value, n: ir.Value, scores: ir.Value,
        totals: ir.Value, y: ir.Value, again: ir.Value,
    ) -> None:  # fmt: skip
        """Scores become weights, normal with those before them."""
        b, lanes = self.b, self.lanes
        mask_row = self.mask_row(batch, head, row, start) if self.mask_type is not None else None
        seen = self.seen(row, start, n)

        def score(at: ir.Value, mask: ir.Value | None) -> ir.Value:
            value = self.load(scores, at, mask)
            if mask_row is not None or self.form.divided:
                value, _ = self.scored(value, mask_row, at, mask)
                self.store(value, scores, at, mask)
            return value

        def unseen(at: ir.Value, mask: ir.Value | None) -> ir.Value:
            value = self.hide(self.scored(self.load(scores, at, mask), mask_row, at, mask)[0])
            self.store(value, scores, at, mask)
            return value

        old = self.read(totals)
        top = self.greater(old, self.folded(I64(0), seen, self.lowest, score, self.greater))
        if self.causal and self.form.hiding != "gone":
            top = self.greater(top, self.folded(seen, n, self.lowest, unseen, self.greater))
            seen = n
        less = self.from_top(top)
        spread = lanes.splat(less)

        def power(at: ir.Value, mask: ir.Value | None) -> ir.Value:
            value = self.exp(b.fsub(self.load(scores, at, mask), spread))
            self.store(value, scores, at, mask)
            return value

        here = self.folded(I64(0), seen, self.zero, power, b.fadd)
        before = self.variable(self.real)
        b.store(self.zero, before)
        with b.if_then(again):
            b.store(b.fmul(self.read(totals, 1), self.exp(b.fsub(old, less))), before)
        kept = b.load(before, typ=self.real)
        total = b.fadd(kept, here)
        by = self.inverse(total, self.zero)
        factor = lanes.splat(by)
        self.span(
            I64(0), seen, lambda at, mask: self.store(b.fmul(self.load(scores, at, mask), factor), scores, at, mask),
            once=True,
        )  # fmt: skip
        if self.causal and self.form.hiding == "gone":
            self.fill(scores, seen, n, b.fmul(by, self.zero))
        self.write(top, totals)
        self.write(total, totals, 1)
        with b.if_then(again):
            keep = lanes.splat(b.fmul(kept, by))
            self.span(
                I64(0), self.w["width"],
                lambda at, mask: self.store(b.fmul(self.load(y, at, mask), keep), y, at, mask), once=True,
            )  # fmt: skip


class Backward(Tiles):
    """Items are chunks of the blocks of queries that see one head of keys: ``wants`` names what is computed. Each has
    its own sums for the keys and values, which are added up later where there are several chunks."""

    def __init__(self, wants: frozenset[str], *args: Any) -> None:
        super().__init__(BACKWARD, *args)
        self.wants = wants

    def item(self, item: ir.Value) -> None:
        b, w = self.b, self.w
        which, chunk = b.sdiv(item, w["chunks"]), b.srem(item, w["chunks"])
        of_keys = b.sdiv(w["heads"], w["share"])
        batch, shared = b.sdiv(which, of_keys), b.srem(which, of_keys)
        # Of each chunk its sums for all heads: what is added up later lies at equal distances.
        place = b.add(b.mul(chunk, w["pairs"]), which)
        sums = {}
        for name, columns in (("k", w["features"]), ("v", w["width"])):
            if name in self.wants:
                each = b.mul(w["keys"], columns)
                sums[name] = self.place(w[f"to_{name}"], b.mul(b.mul(place, each), self.size))
                self.fill(sums[name], I64(0), each, self.zero)
        total = b.mul(w["share"], w["blocks"])
        mine = b.sdiv(b.add(b.sub(total, chunk), b.sub(w["chunks"], I64(1))), w["chunks"])
        with self.loop(I64(0), mine) as k:
            step = b.add(chunk, b.mul(k, w["chunks"]))
            head = b.add(b.mul(shared, w["share"]), b.sdiv(step, w["blocks"]))
            self.block(batch, shared, head, b.srem(step, w["blocks"]), sums)

    def block(
        self, batch: ir.Value, shared: ir.Value, head: ir.Value, block: ir.Value, sums: dict[str, ir.Value]
    ) -> None:
        b, w = self.b, self.w
        first = b.mul(block, w["rows"])
        count = self.smaller(w["rows"], b.sub(w["queries"], first))
        before = b.add(b.mul(b.add(b.mul(batch, w["heads"]), head), w["queries"]), first)
        pair = b.mul(self.size, I64(2))
        totals = self.place(w["totals"], b.mul(before, pair))
        wide, narrow = b.mul(w["width"], self.size), b.mul(w["features"], self.size)
        y = self.place(w["y"], b.mul(before, wide))
        g, q = (self.matrix(name, batch, head, first) for name in "gq")
        arriving = self.place(self.scratch, b.mul(w["rows"], self.pitch))
        # Σ g ∘ y of each row, which is that of the scores' gradients by their weights.
        shares = self.place(arriving, b.mul(w["rows"], self.pitch))
        g_pitch = b.mul(w["g_pitch"], self.size)
        sound = self.variable(ir.IntType(1))
        b.store(ir.IntType(1)(1), sound)
        with self.loop(I64(0), count) as k:
            here, result = self.row(g, k, g_pitch), self.row(y, k, wide)

            def term(at: ir.Value, mask: ir.Value | None) -> ir.Value:
                cotangent = self.load(here, at, mask)
                zero = ir.Constant(cotangent.type, None)
                times = b.fmul(cotangent, self.load(result, at, mask))
                return b.select(b.fcmp_ordered("==", cotangent, zero), zero, times)

            self.write(self.folded(I64(0), w["width"], self.zero, term, b.fadd), self.row(shares, k, self.size))
            total = self.read(self.row(totals, k, pair), 1)
            b.store(b.and_(b.load(sound, typ=ir.IntType(1)), b.fcmp_ordered("==", total, total)), sound)
        limit = w["keys"]
        if self.causal:
            near = self.reach(b.sub(b.add(first, count), I64(1)))
            far = b.sub(w["keys"], near)
            vain = b.and_(b.load(sound, typ=ir.IntType(1)), self.finite("g", g, count, w["width"]))
            vain = b.and_(vain, self.finite("q", q, count, w["features"]))
            vain = b.and_(vain, self.finite("k", self.matrix("k", batch, shared, near), far, w["features"]))
            vain = b.and_(vain, self.vanishing(q, count, batch, shared, near, totals))
            limit = b.select(vain, near, limit)
        slope = b.fdiv(self.scale, self.over) if self.form.divided else self.scale
        to_q = None
        if "q" in self.wants:
            to_q = self.place(w["to_q"], b.mul(before, narrow))
            with b.if_then(b.icmp_signed("==", limit, I64(0))):
                self.fill(to_q, I64(0), b.mul(count, w["features"]), self.zero)
        with self.spans(I64(0), limit) as (start, n):
            k_there, v_there = self.matrix("k", batch, shared, start), self.matrix("v", batch, shared, start)
            self.scores("s", q, count, self.matrix("s", batch, shared, start), n)
            if self.wants != {"v"}:
                self.product(
                    (count, n, w["width"]), (g, w["g_pitch"], w["g_turn"]),
                    (v_there, w["v_pitch"], self.turned(w["v_turn"])), (arriving, w["span"]), self.one, self.zero,
                )  # fmt: skip
            with self.loop(I64(0), count) as k:
                self.moved(batch, head, b.add(first, k), start, n, self.row(self.scratch, k, self.pitch),
                           self.row(arriving, k, self.pitch), self.row(totals, k, pair),
                           self.read(self.row(shares, k, self.size)))  # fmt: skip
            weights, moved = (self.scratch, w["span"]), (arriving, w["span"])
            if "v" in self.wants:
                self.product(
                    (n, w["width"], count), (*weights, I64(TURNED)), (g, w["g_pitch"], w["g_turn"]),
                    (self.row(sums["v"], start, wide), w["width"]), self.one, self.one,
                )  # fmt: skip
            if to_q is not None:
                self.product(
                    (count, w["features"], n), (*moved, I64(PLAIN)), (k_there, w["k_pitch"], w["k_turn"]),
                    (to_q, w["features"]), slope,
                    b.select(b.icmp_signed(">", start, I64(0)), self.one, self.zero),
                )  # fmt: skip
            if "k" in self.wants:
                self.product(
                    (n, w["features"], count), (*moved, I64(TURNED)), (q, w["q_pitch"], w["q_turn"]),
                    (self.row(sums["k"], start, narrow), w["features"]), slope, self.one,
                )  # fmt: skip
            if "scores" in self.wants:
                self.copied(arriving, before, count, start, n)

    def copied(
        self, arriving: ir.Value, before: ir.Value, count: ir.Value, start: ir.Value, n: ir.Value
    ) -> None:
        b, w = self.b, self.w
        pitch = b.mul(w["keys"], self.size)
        place = self.place(w["to_scores"], b.mul(before, pitch), b.mul(start, self.size))
        with self.loop(I64(0), count) as k:
            source, to = self.row(arriving, k, self.pitch), self.row(place, k, pitch)
            self.span(
                I64(0), n, lambda at, mask: self.store(self.load(source, at, mask), to, at, mask), once=True
            )

    def moved(
        self, batch: ir.Value, head: ir.Value, row: ir.Value, start: ir.Value, n: ir.Value, scores: ir.Value,
        arriving: ir.Value, totals: ir.Value, share: ir.Value,
    ) -> None:  # fmt: skip
        """Scores become weights, and what arrives at the weights what arrives at the scores. An exact 0 stays 0."""
        b, lanes = self.b, self.lanes
        mask_row = self.mask_row(batch, head, row, start) if self.mask_type is not None else None
        seen = self.seen(row, start, n)
        less, taken = lanes.splat(self.from_top(self.read(totals))), lanes.splat(share)
        by = self.inverse(self.read(totals, 1), self.blind)
        factor, zero = lanes.splat(by), lanes.splat(self.zero)

        def step(at: ir.Value, mask: ir.Value | None, weight: ir.Value, choice: ir.Value | None = None) -> None:
            self.store(weight, scores, at, mask)
            if self.wants != {"v"}:
                rest = b.fsub(self.load(arriving, at, mask), taken)
                rest = b.select(b.fcmp_ordered("==", rest, zero), rest, b.fmul(rest, weight))
                self.store(rest if choice is None else b.select(choice, rest, zero), arriving, at, mask)

        def weight(value: ir.Value) -> ir.Value:
            return b.fmul(self.exp(b.fsub(value, less)), factor)

        def visible(at: ir.Value, mask: ir.Value | None) -> None:
            value, choice = self.scored(self.load(scores, at, mask), mask_row, at, mask)
            step(at, mask, weight(value), choice if self.form.hiding == "replaced" else None)

        def unseen(at: ir.Value, mask: ir.Value | None) -> None:
            value, choice = self.scored(self.load(scores, at, mask), mask_row, at, mask)
            none = ir.Constant(ir.VectorType(ir.IntType(1), lanes.count), None)
            step(at, mask, weight(self.hide(value)), none if self.form.hiding == "replaced" else choice)

        self.span(I64(0), seen, visible, once=True)
        if self.causal and self.form.hiding == "gone":
            nothing = lanes.splat(b.fmul(by, self.zero))
            self.span(seen, n, lambda at, mask: step(at, mask, nothing), once=True)
        elif self.causal:
            self.span(seen, n, unseen, once=True)


def _folded_order(b: ir.IRBuilder, turn: ir.Value, count: ir.Value) -> ir.Value:
    """First, last, second, last but one, …: any run of these has its share of long and of short rows."""
    half = b.ashr(turn, I64(1))
    odd = b.trunc(turn, ir.IntType(1))
    return b.select(odd, b.sub(b.sub(count, I64(1)), half), half)


__all__ = ["BACKWARD", "FORWARD", "Backward", "Forward"]
