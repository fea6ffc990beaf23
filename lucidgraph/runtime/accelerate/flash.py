"""Attention in tiles: softmax(scale q kᵀ + mask) v without the matrix of scores.

A tile is some queries by a span of keys; it lies in cache. Per row it keeps the greatest score m and the total
l = Σ exp(score - m) of the spans so far; what was summed of v is rescaled where they change. After Milakov and
Gimelshein (Online normalizer calculation for softmax, 2018) and Dao (FlashAttention-2, 2023), with weights that are
normal at all times, so that nothing overflows which does not in the formula.

Keys behind the last query of a tile are not looked at, where the order is causal and where that changes nothing:
their weights are 0, but 0 times an infinity or NaN is NaN.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

from llvmlite import ir

from ... import dtypes
from ...dtypes import DType
from .blas import PLAIN, TURNED, Cblas
from .machine import Machine
from .math import call
from .values import F32, F64, I32, I64, PTR, Lanes, Routine
from .writing import KernelWriter

_ROW_MAJOR: Final = 101

_SIZES: Final = (
    "heads", "share", "queries", "keys", "features", "width", "rows", "span", "blocks", "scale", "over",
    "hidden", "scratch", "scratch_stride",
)  # fmt: skip
_MATRIX: Final = ("", "_batch", "_head", "_move", "_pitch", "_turn")
_MASK: Final = ("mask", "mask_batch", "mask_head", "mask_row", "mask_column")

FORWARD: Final = (*_SIZES, *(x + f for x in "qkv" for f in _MATRIX), *_MASK, "y", "totals")
"""Arguments: sizes; per operand its address, the bytes between batches, heads and rows, and how CBLAS reads it. Backward
``s`` is k again, as it is best for scores."""
BACKWARD: Final = (
    *_SIZES, "chunks", "pairs", *(x + f for x in "qkvgs" for f in _MATRIX), *_MASK, "y", "totals",
    "to_q", "to_k", "to_v", "to_scores",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Form:
    """What a kernel's code depends on. ``mask`` is the dtype of the mask and how it lies along the keys: adjacent, the
    same for all, or strided; None where there is none. ``hiding``: hidden scores are ``"gone"`` (-∞), ``"replaced"`` by
    a number, or one is ``"added"``."""

    dtype: DType
    mask: tuple[DType, str] | None
    causal: bool
    divided: bool
    hiding: str
    blind: float


class _Tiles(KernelWriter, ABC):
    """Base of both kernels."""

    def __init__(self, words: tuple[str, ...], form: Form, library: Cblas, machine: Machine) -> None:
        dtype = form.dtype
        super().__init__(ir.Module(name="attention"), machine, machine.lanes * 4 // dtype.itemsize)
        self.form, self.dtype, self.mask_type, self.causal = form, dtype, form.mask, form.causal
        self.library = library
        self.real = F32 if dtype is dtypes.float32 else F64
        self.size = I64(dtype.itemsize)
        self.blind = self.real(form.blind)
        self.zero, self.one, self.lowest = self.real(0.0), self.real(1.0), self.real(float("-inf"))
        self.finite_fn = self._over_matrix("finite", self._times_zero, "fadd")
        self.peak_fn = self._over_matrix("peak", self._size, "max") if form.hiding == "added" else None
        self.w = {name: self.argument(k) for k, name in enumerate(words)}
        self.scale, self.over, self.hidden = (self.number(self.w[name]) for name in ("scale", "over", "hidden"))
        self.shift = self.b.sub(self.w["keys"], self.w["queries"])
        self.pitch = self.b.mul(self.w["span"], self.size)
        self.scratch = self.place(self.w["scratch"], self.b.mul(self.fn.args[3], self.w["scratch_stride"]))

    def emit(self) -> ir.Module:
        b, library = self.b, self.library
        before = None
        if library.get_threading:
            before = b.call(Routine(library.get_threading, ir.FunctionType(I32, [])), [])
        threading = Routine(library.set_threading, ir.FunctionType(I32, [I32]))
        if library.set_threading:
            b.call(threading, [I32(1)])
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            self.item(item)
        if before is not None:
            b.call(threading, [before])
        b.ret_void()
        return self.fn.module

    @abstractmethod
    def item(self, item: ir.Value) -> None:
        """What one item is."""

    # -- places

    def place(self, base: ir.Value, *offsets: ir.Value) -> ir.Value:
        pointer = self.b.inttoptr(base, PTR) if base.type == I64 else base
        for offset in offsets:
            pointer = self.lanes.offset(pointer, offset)
        return pointer

    def matrix(self, name: str, batch: ir.Value, head: ir.Value, row: ir.Value) -> ir.Value:
        """The place of a row of an operand."""
        b, w = self.b, self.w
        return self.place(
            w[name], b.mul(batch, w[f"{name}_batch"]), b.mul(head, w[f"{name}_head"]), b.mul(row, w[f"{name}_move"])
        )

    def row(self, base: ir.Value, k: ir.Value, pitch: ir.Value) -> ir.Value:
        return self.lanes.offset(base, self.b.mul(k, pitch))

    @contextmanager
    def spans(self, start: ir.Value, stop: ir.Value) -> Iterator[tuple[ir.Value, ir.Value]]:
        """The spans of keys from ``start`` to ``stop``: where each starts, and how many keys it has."""
        b, span = self.b, self.w["span"]
        count = b.sdiv(b.add(b.sub(stop, start), b.sub(span, I64(1))), span)
        with self.loop(I64(0), count) as k:
            at = b.add(start, b.mul(k, span))
            yield at, self.smaller(span, b.sub(stop, at))

    # -- numbers

    def number(self, bits: ir.Value) -> ir.Value:
        """An argument that holds the bits of a double."""
        wide = self.b.bitcast(bits, F64)
        return self.b.fptrunc(wide, F32) if self.real == F32 else wide

    def larger(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.select(self.b.icmp_signed(">", x, y), x, y)

    def read(self, pointer: ir.Value, k: int = 0) -> ir.Value:
        return self.b.load(self.b.gep(pointer, [I64(k)], source_etype=self.real), typ=self.real)

    def write(self, value: ir.Value, pointer: ir.Value, k: int = 0) -> None:
        self.b.store(value, self.b.gep(pointer, [I64(k)], source_etype=self.real))

    def exp(self, x: ir.Value) -> ir.Value:
        return call(self.lanes, "exp", x)

    def across(self, v: ir.Value, joined: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
        """All lanes of a vector joined."""
        width = v.type.count
        while width > 1:
            width //= 2
            halves = []
            for start in (0, width):
                order = ir.Constant(ir.VectorType(I32, width), [I32(start + k) for k in range(width)])
                halves.append(self.b.shuffle_vector(v, ir.Constant(v.type, ir.Undefined), order))
            v = joined(*halves)
        return self.b.extract_element(v, I32(0))

    def greater(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The greater one; of a number and NaN the number: NaN comes in through exp."""
        return self.b.select(self.b.fcmp_ordered(">", x, y), x, y)

    def from_top(self, top: ir.Value) -> ir.Value:
        """What is subtracted from the scores of a row: its top, but 0 where that is -∞."""
        return self.b.select(self.b.fcmp_ordered("==", top, self.lowest), self.zero, top)

    def inverse(self, total: ir.Value, of_nothing: ir.Value) -> ir.Value:
        return self.b.select(
            self.b.fcmp_ordered("==", total, self.zero), of_nothing, self.b.fdiv(self.one, total)
        )

    # -- vectors

    def load(self, pointer: ir.Value, at: ir.Value, mask: ir.Value | None) -> ir.Value:
        return self.lanes.load(self.dtype, self.row(pointer, at, self.size), None, mask)

    def store(self, value: ir.Value, pointer: ir.Value, at: ir.Value, mask: ir.Value | None) -> None:
        self.lanes.store(value, self.dtype, self.row(pointer, at, self.size), None, mask)

    def fill(self, pointer: ir.Value, start: ir.Value, stop: ir.Value, value: ir.Value) -> None:
        vector = self.lanes.splat(value)
        self.span(start, stop, lambda at, mask: self.store(vector, pointer, at, mask), once=True)

    def folded(
        self, start: ir.Value, stop: ir.Value, first: ir.Value, take: Callable[[ir.Value, ir.Value | None], ir.Value],
        joined: Callable[[ir.Value, ir.Value], ir.Value],
    ) -> ir.Value:  # fmt: skip
        """The vectors that ``take`` makes from ``start`` to ``stop``, joined; beyond the end they are ``first``."""
        nothing = self.lanes.splat(first)
        state = self.variable(nothing.type)
        self.b.store(nothing, state)

        def step(at: ir.Value, mask: ir.Value | None) -> None:
            value = take(at, mask)
            if mask is not None:
                value = self.b.select(mask, value, nothing)
            self.b.store(joined(self.b.load(state, typ=nothing.type), value), state)

        self.span(start, stop, step, once=True)
        return self.across(self.b.load(state, typ=nothing.type), joined)

    # -- matrices

    def product(
        self, size: tuple[ir.Value, ir.Value, ir.Value], a: tuple[ir.Value, ir.Value, ir.Value],
        second: tuple[ir.Value, ir.Value, ir.Value], c: tuple[ir.Value, ir.Value], alpha: ir.Value, beta: ir.Value,
    ) -> None:  # fmt: skip
        """c = alpha a b + beta c; operands are (address, pitch, flag), c is (address, pitch)."""
        b, size_t = self.b, self.library.integer

        def sized(value: ir.Value) -> ir.Value:
            return value if size_t == I64 else b.trunc(value, size_t)

        types = [I32] * 3 + [size_t] * 3 + [self.real, PTR, size_t, PTR, size_t, self.real, PTR, size_t]
        name = "sgemm" if self.real == F32 else "dgemm"
        gemm = Routine(self.library.address(name), ir.FunctionType(ir.VoidType(), types))
        flags = [b.trunc(x[2], I32) for x in (a, second)]
        args = [I32(_ROW_MAJOR), *flags, *map(sized, size), alpha, a[0], sized(a[1]), second[0], sized(second[1])]
        b.call(gemm, [*args, beta, c[0], sized(c[1])])

    def turned(self, flag: ir.Value) -> ir.Value:
        return self.b.sub(I64(PLAIN + TURNED), flag)

    def _times_zero(self, lanes: Lanes, x: ir.Value) -> ir.Value:
        return lanes.b.fmul(x, ir.Constant(x.type, [self.zero] * lanes.count))

    def _size(self, lanes: Lanes, x: ir.Value) -> ir.Value:
        return lanes.intrinsic("fabs", x.type, [x])

    def _over_matrix(self, name: str, of: Callable[[Lanes, ir.Value], ir.Value], joined: str) -> ir.Function:
        """``real name(matrix, outer, inner, pitch)``: what is made of all elements."""
        fn = ir.Function(self.fn.module, ir.FunctionType(self.real, [PTR, I64, I64, I64]), name)
        fn.linkage = "internal"
        saved = self.fn, self.b, self.lanes
        self.fn, self.b = fn, ir.IRBuilder(fn.append_basic_block("entry"))
        self.lanes = Lanes(self.b, saved[2].count, self.machine)
        join = self.b.fadd if joined == "fadd" else self.greater
        base, outer, inner, pitch = fn.args
        nothing = self.lanes.splat(self.zero)
        total = self.variable(nothing.type)
        self.b.store(nothing, total)
        with self.loop(I64(0), outer) as k:
            row = self.row(base, k, pitch)

            def step(at: ir.Value, mask: ir.Value | None) -> None:
                value = of(self.lanes, self.load(row, at, mask))
                if mask is not None:
                    value = self.b.select(mask, value, nothing)
                self.b.store(join(self.b.load(total, typ=nothing.type), value), total)

            self.span(I64(0), inner, step, once=True)
        self.b.ret(self.across(self.b.load(total, typ=nothing.type), join))
        self.fn, self.b, self.lanes = saved
        return fn

    def overall(
        self, fn: ir.Function, name: str, place: ir.Value, rows: ir.Value, columns: ir.Value
    ) -> ir.Value:
        """What ``fn`` makes of so many rows of an operand, from a place on."""
        b, w = self.b, self.w
        plain = b.icmp_signed("==", w[f"{name}_turn"], I64(PLAIN))
        outer, inner = b.select(plain, rows, columns), b.select(plain, columns, rows)
        return b.call(fn, [place, outer, inner, b.mul(w[f"{name}_pitch"], self.size)])

    def finite(self, name: str, place: ir.Value, rows: ir.Value, columns: ir.Value) -> ir.Value:
        """Whether so many rows of an operand, from a place on, are finite."""
        found = self.overall(self.finite_fn, name, place, rows, columns)
        return self.b.fcmp_ordered("==", found, self.zero)

    def vanishing(
        self, q: ir.Value, count: ir.Value, batch: ir.Value, shared: ir.Value, near: ir.Value, totals: ir.Value
    ) -> ir.Value:
        """Whether the weights of all keys from ``near`` on are 0 for these queries, given the tops of their rows, and
        change nothing."""
        b, w = self.b, self.w
        far = b.sub(w["keys"], near)
        found = self.finite("v", self.matrix("v", batch, shared, near), far, w["width"])
        if self.form.hiding == "gone":
            return found
        most = self.hidden
        if self.peak_fn is not None:
            k = self.matrix("k", batch, shared, near)
            for name, place, rows in (("k", k, far), ("q", q, count)):
                found = b.and_(found, self.finite(name, place, rows, w["features"]))
            sizes = [
                self.overall(self.peak_fn, name, place, rows, w["features"])
                for name, place, rows in (("k", k, far), ("q", q, count))
            ]
            # No score is greater: Hölder's inequality, and some room for rounding.
            bound = b.fmul(b.fmul(*sizes), b.sitofp(b.add(w["features"], I64(2)), self.real))
            bound = b.fmul(bound, b.fdiv(self.magnitude(self.scale), self.magnitude(self.over)))
            most = b.fadd(most, bound)
        place = self.variable(ir.IntType(1))
        b.store(found, place)
        bottom = self.real(-105.0 if self.real == F32 else -747.0)
        with self.loop(I64(0), count) as k:
            top = self.read(self.row(totals, k, b.mul(self.size, I64(2))))
            low = b.fcmp_ordered("<", b.fsub(most, top), bottom)
            b.store(b.and_(b.load(place, typ=ir.IntType(1)), low), place)
        return b.load(place, typ=ir.IntType(1))

    def magnitude(self, x: ir.Value) -> ir.Value:
        return self.lanes.intrinsic("fabs", x.type, [x])

    # -- scores

    def scores(self, name: str, q: ir.Value, count: ir.Value, k: ir.Value, n: ir.Value) -> None:
        """The products of ``count`` queries and ``n`` keys, scaled. Of one query as those of the keys and it: CBLAS would
        pack the keys to turn them."""
        b, w = self.b, self.w
        single = b.and_(b.icmp_signed("==", count, I64(1)), b.icmp_signed("==", w["q_turn"], I64(PLAIN)))

        def either(x: ir.Value, y: ir.Value) -> ir.Value:
            return b.select(single, x, y)

        pitch, turn, one = w[f"{name}_pitch"], w[f"{name}_turn"], I64(1)
        self.product(
            (either(n, count), either(one, n), w["features"]),
            (either(k, q), either(pitch, w["q_pitch"]), either(turn, w["q_turn"])),
            (either(q, k), either(one, pitch), either(I64(PLAIN), self.turned(turn))),
            (self.scratch, either(one, w["span"])), self.scale, self.zero,
        )  # fmt: skip

    def reach(self, last: ir.Value) -> ir.Value:
        """How many keys a query may see."""
        most = self.smaller(self.b.add(last, self.b.add(self.shift, I64(1))), self.w["keys"])
        return self.larger(most, I64(0))

    def seen(self, row: ir.Value, start: ir.Value, count: ir.Value) -> ir.Value:
        """How many of the keys of a span a query may see."""
        if not self.causal:
            return count
        return self.larger(self.smaller(self.b.sub(self.reach(row), start), count), I64(0))

    def mask_row(self, batch: ir.Value, head: ir.Value, row: ir.Value, start: ir.Value) -> ir.Value:
        b, w = self.b, self.w
        parts = zip((batch, head, row, start), ("batch", "head", "row", "column"), strict=True)
        return self.place(w["mask"], *(b.mul(k, w[f"mask_{name}"]) for k, name in parts))

    def scored(
        self, scores: ir.Value, row: ir.Value | None, at: ir.Value, lanes_mask: ir.Value | None
    ) -> tuple[ir.Value, ir.Value | None]:
        """A vector of products as scores, and what the mask lets be seen, if it is a choice."""
        b, lanes = self.b, self.lanes
        if self.form.divided:
            scores = b.fdiv(scores, lanes.splat(self.over))
        if row is None or self.mask_type is None:
            return scores, None
        dtype, access = self.mask_type
        step = self.w["mask_column"]
        if access == "same":
            value = lanes.load_same(dtype, row)
        else:
            place = self.row(row, at, step)
            value = lanes.load(dtype, place, None if access == "adjacent" else step, lanes_mask)
        if not dtype.is_bool:
            return b.fadd(scores, value), None
        return b.select(value, scores, self.hide(scores)), value

    def hide(self, scores: ir.Value) -> ir.Value:
        """Scores that are hidden."""
        hidden = self.lanes.splat(self.hidden)
        return self.b.fadd(scores, hidden) if self.form.hiding == "added" else hidden


class Forward(_Tiles):
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


class Backward(_Tiles):
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


__all__ = ["BACKWARD", "FORWARD", "Backward", "Form", "Forward"]
