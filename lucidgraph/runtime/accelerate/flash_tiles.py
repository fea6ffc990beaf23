"""What the kernels of attention are written with: operands and their tiles, rows of scores, masks, products."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from ... import dtypes
from ...dtypes import DType
from .blas import PLAIN, TURNED, Cblas
from .machine import Machine
from .math import call
from .values import F32, F64, I32, I64, PTR, Lanes, Routine
from .writing import KernelWriter

_ROW_MAJOR: Final = 101


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


class Tiles(KernelWriter, ABC):
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
        gemm = Routine(b.inttoptr(self.w["gemm"], PTR), ir.FunctionType(ir.VoidType(), types))
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
        """The products of ``count`` queries and ``n`` keys, scaled. Of one query as those of the keys and it: CBLAS
        would pack the keys to turn them."""
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


__all__ = ["Form", "Tiles"]
