"""Matrix products of our own, for sizes at which a call of CBLAS costs more than it gains.

A tile of the result, some rows high and two vectors wide, stays in registers while k runs: each step multiplies two
vectors of b by as many numbers of a as the tile has rows. a is read wherever it lies; b where its rows are adjacent,
else from a panel copied to the stack. The sum over k is cut into blocks of fixed length, so an element depends on
nothing but its row and its column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from llvmlite import ir

from ...dtypes import DType
from .body import Body
from .finishing import FINISH, Finish, FinishLayout
from .machine import Machine
from .values import I8, I32, I64, PTR, Routine, memory_type
from .writing import KernelWriter

WORDS: Final = ("m", "n", "k", "row_a", "step_a", "step_b", "column_b", "row_c", "pieces", "step", "by_rows", "packs",
                "height", "batch_a", "batch_b", "batch_c", "keeps", "finish", "a", "b", "c")  # fmt: skip
"""A product's arguments: sizes; the bytes between rows of a, along k in a and b, between columns of b, between rows of
c; the pieces each product is split into, of ``step`` rows or columns; whether b is copied even where it need not be;
how many rows are gone over before the next columns; the bytes between products of a batch; whether the product is
written; the address of its epilogue, or 0; pointers. An epilogue's own arguments follow."""

DEPTH: Final = 256
"""How long the blocks of k are. A longer product's sums lie in ``c`` from block to block."""
_HEIGHT: Final = 256
"""How many rows of a are gone over before the next block of k: with their block of a they stay in the second cache."""
_NEAR: Final = 1 << 17
"""The bytes of a b that is found in the second cache again: then the result is written row by row of tiles, as the
processor expects it, not column by column."""
_VECTORS: Final = 2
_Masks = list[ir.Value | None]


def _rows_of_tile(machine: Machine) -> int:
    """As many as leave registers for a step's operands: of 32 the tile takes half."""
    return 8 if machine.masks or machine.triple.startswith(("arm64", "aarch64")) else 4


def tile(dtype: DType, machine: Machine) -> tuple[int, int]:
    """A tile's rows and columns."""
    return _rows_of_tile(machine), _VECTORS * machine.lanes * 4 // dtype.itemsize


def rows_together(m: int, n: int, k: int, packs: bool, dtype: DType, machine: Machine) -> int:
    """How many rows are gone over before the next columns."""
    near = not packs and k <= DEPTH and k * n * dtype.itemsize <= _NEAR
    return _rows_of_tile(machine) if near and m * n * dtype.itemsize > _NEAR else _HEIGHT


def finish_kernel(body: Body, layout: FinishLayout, dtype: DType, machine: Machine) -> ir.Module:
    """The code of an epilogue of products in ``dtype``."""
    count = _lanes(dtype, machine)
    module = ir.Module(name="finish")
    Finish(module, body, layout, dtype, machine, count, count * _VECTORS)
    return module


def _lanes(dtype: DType, machine: Machine) -> int:
    return machine.lanes * 4 // dtype.itemsize


def product_kernel(dtype: DType, machine: Machine) -> ir.Module:
    """The kernel of products in ``dtype``: items are the pieces of a batch of products, as CBLAS's are."""
    module = ir.Module(name="product")
    block = _Block(module, dtype, machine).fn
    w = KernelWriter(module, machine, 1)
    b = w.b
    args = {name: w.argument(k) for k, name in enumerate(WORDS)}
    rows = b.icmp_signed("!=", args["by_rows"], I64(0))
    size = I64(dtype.itemsize)
    at = w.variable(I64)
    b.store(w.fn.args[1], at)
    head, body, after = (b.append_basic_block(n) for n in ("head", "body", "after"))
    b.branch(head)
    b.position_at_end(head)
    item = b.load(at, typ=I64)
    b.cbranch(b.icmp_signed("<", item, w.fn.args[2]), body, after)
    b.position_at_end(body)
    # Neighbouring pieces of one product are one piece.
    which = b.sdiv(item, args["pieces"])
    first = b.mul(which, args["pieces"])
    last = w.smaller(w.fn.args[2], b.add(first, args["pieces"]))
    start, stop = (b.mul(b.sub(k, first), args["step"]) for k in (item, last))
    m = b.select(rows, b.sub(w.smaller(stop, args["m"]), start), args["m"])
    n = b.select(rows, args["n"], b.sub(w.smaller(stop, args["n"]), start))

    def moved(name: str, along: ir.Value) -> ir.Value:
        return b.gep(b.inttoptr(args[name], PTR), [b.add(along, b.mul(which, args[f"batch_{name}"]))], source_etype=I8)

    none = I64(0)
    pointers = [
        moved("a", b.select(rows, b.mul(start, args["row_a"]), none)),
        moved("b", b.select(rows, none, b.mul(start, args["column_b"]))),
        moved("c", b.mul(start, b.select(rows, args["row_c"], size))),
    ]
    strides = [args[name] for name in ("row_a", "step_a", "step_b", "column_b", "row_c")]
    place = [w.fn.args[0], which, b.select(rows, start, none), b.select(rows, none, start)]
    how = [args[name] for name in ("packs", "height", "keeps", "finish")]
    b.call(block, [m, n, args["k"], *strides, *how, *pointers, *place])
    b.store(last, at)
    b.branch(head)
    b.position_at_end(after)
    b.ret_void()
    return module


class _Block:
    """``void block(m, n, k, row_a, step_a, step_b, column_b, row_c, packs, height, keeps, finish, a, b, c, args,
    product, row, column)``: one product. What its epilogue needs comes last: the kernel's arguments, the number of the
    product, and the first row and column."""

    def __init__(self, module: ir.Module, dtype: DType, machine: Machine) -> None:
        self.dtype = dtype
        self.machine = machine
        self.element = memory_type(dtype)
        self.size = dtype.itemsize
        self.count = _lanes(dtype, machine)
        self.width = self.count * _VECTORS
        arguments = [I64] * 12 + [PTR] * 4 + [I64] * 3
        w = KernelWriter(module, machine, self.count, name="block", args=arguments)
        w.fn.linkage = "internal"
        self.w, self.b, self.lanes, self.fn = w, w.b, w.lanes, w.fn
        (self.m, self.n, self.k, self.row_a, self.step_a, self.step_b, self.column_b, self.row_c, packs, high,
         keeps, self.finish, self.a, self.bs, self.c, *self.place) = w.fn.args  # fmt: skip
        self.keeps = self.b.icmp_signed("!=", keeps, I64(0))
        panel = w.variable(ir.ArrayType(I8, DEPTH * self.width * self.size))
        panel.align = 64
        self.panel = w.b.inttoptr(w.b.ptrtoint(panel, I64), PTR)
        tile = w.variable(ir.ArrayType(I8, _rows_of_tile(machine) * self.width * self.size))
        tile.align = 64
        self.tile = w.b.inttoptr(w.b.ptrtoint(tile, I64), PTR)
        self.packs = self.b.icmp_signed("!=", packs, I64(0))
        with w.loop(I64(0), self.m, high) as self.row, self._depths() as (self.k0, self.depth):
            self.height = w.smaller(self.b.sub(self.m, self.row), high)
            self.inner = self.b.icmp_signed(">", self.k0, I64(0))
            self.last = self.b.icmp_signed(">=", self.b.add(self.k0, I64(DEPTH)), self.k)
            with w.loop(I64(0), self.n, self.width) as self.column:
                self._panel()
        self.b.ret_void()

    @contextmanager
    def _depths(self) -> Iterator[tuple[ir.Value, ir.Value]]:
        """Blocks of k: one at least, for an empty sum is 0."""
        b = self.b
        stop = b.select(b.icmp_signed(">", self.k, I64(1)), self.k, I64(1))
        with self.w.loop(I64(0), stop, DEPTH) as k0:
            yield k0, self.w.smaller(b.sub(self.k, k0), I64(DEPTH))

    def _panel(self) -> None:
        """Two vectors' columns of the result, all rows."""
        b, w = self.b, self.w
        left = b.sub(self.n, self.column)
        masks = [w.mask(b.sub(left, I64(v * self.count))) for v in range(_VECTORS)]
        source = self._moved(self.bs, b.add(b.mul(self.k0, self.step_b), b.mul(self.column, self.column_b)))
        packs = self.packs
        if not self.machine.masks:
            packs = b.or_(packs, b.icmp_signed("<", left, I64(self.width)))
        at, step = w.variable(PTR), w.variable(I64)
        with b.if_else(packs) as (then, otherwise):
            with then:
                self._pack(source, left, masks)
                b.store(self.panel, at)
                b.store(I64(self.width * self.size), step)
            with otherwise:
                b.store(source, at)
                b.store(self.step_b, step)
        where, move = b.load(at, typ=PTR), b.load(step, typ=I64)
        # In a panel every lane is there; where b lies, the last may not be.
        reads = [b.or_(mask, self.lanes.splat(packs)) for mask in masks] if self.machine.masks else [None] * _VECTORS
        narrow = b.icmp_signed("<=", left, I64(self.count))
        with b.if_else(narrow) as (then, otherwise):
            with then:
                self._rows(where, move, reads[:1], masks[:1])
            with otherwise:
                self._rows(where, move, [None, *reads[1:]], [None, *masks[1:]])

    def _moved(self, pointer: ir.Value, offset: ir.Value) -> ir.Value:
        return self.lanes.offset(pointer, offset)

    # -- a panel of b

    def _pack(self, source: ir.Value, left: ir.Value, masks: list[ir.Value]) -> None:
        """Copy a panel, 0 where there is no column. Columns that are adjacent in memory are turned in squares."""
        b, w = self.b, self.w
        turned = b.and_(b.icmp_signed("==", self.step_b, I64(self.size)), b.icmp_signed(">=", left, I64(self.width)))
        whole = b.select(turned, b.and_(self.depth, I64(-self.count)), I64(0))
        with w.loop(I64(0), whole, self.count) as kk, w.loop(I64(0), I64(self.width), self.count) as column:
            self._square(source, kk, column)
        flat = b.icmp_signed("==", self.column_b, I64(self.size))
        with b.if_else(flat) as (then, otherwise):
            for adjacent, part in ((True, then), (False, otherwise)):
                with part, w.loop(whole, self.depth) as kk:
                    row = self._moved(source, b.mul(kk, self.step_b))
                    for v, mask in enumerate(masks):
                        place = self._moved(row, b.mul(I64(v * self.count), self.column_b))
                        got = self.lanes.load(self.dtype, place, None if adjacent else self.column_b, mask)
                        self._put(got, kk, I64(v * self.count))

    def _put(self, value: ir.Value, kk: ir.Value, column: ir.Value) -> None:
        place = self.b.mul(self.b.add(self.b.mul(kk, I64(self.width)), column), I64(self.size))
        self.b.store(value, self._moved(self.panel, place), align=self.count * self.size)

    def _square(self, source: ir.Value, kk: ir.Value, column: ir.Value) -> None:
        """As many columns as a vector has lanes, as far along k."""
        b = self.b
        typ = self.lanes.vector(self.element)
        start = self._moved(source, b.mul(kk, I64(self.size)))
        columns = [
            b.load(self._moved(start, b.mul(b.add(column, I64(k)), self.column_b)), typ=typ, align=self.size)
            for k in range(self.count)
        ]
        for k, row in enumerate(transposed(b, columns)):
            self._put(row, b.add(kk, I64(k)), column)

    # -- tiles

    def _rows(self, where: ir.Value, move: ir.Value, reads: _Masks, masks: _Masks) -> None:
        """All rows of a panel: tiles of full height, and a last one of that or half of it, which repeats its last row
        where there are fewer."""
        b, w = self.b, self.w
        height = _rows_of_tile(self.machine)
        left = b.and_(self.height, I64(height - 1))
        many = b.icmp_signed(">", left, I64(height // 2))
        stop = b.add(self.row, self.height)
        short = b.select(b.or_(many, b.icmp_signed("==", left, I64(0))), stop, b.sub(stop, left))
        with w.loop(self.row, short, height) as i:
            self._tile(height, i, where, move, reads, masks)
        with b.if_then(b.icmp_signed("<", short, stop)):
            self._tile(height // 2, short, where, move, reads, masks)

    def _tile(
        self, height: int, i: ir.Value, where: ir.Value, move: ir.Value, reads: _Masks, masks: _Masks
    ) -> None:  # fmt: skip
        b, w, lanes = self.b, self.w, self.lanes
        typ = lanes.vector(self.element)
        sums = [[w.variable(typ) for _ in masks] for _ in range(height)]
        for place in (p for row in sums for p in row):
            b.store(ir.Constant(typ, None), place)
        last = b.sub(b.sub(b.add(self.row, self.height), i), I64(1))
        rows = [w.smaller(I64(k), last) for k in range(height)]
        offsets = [b.mul(k, self.row_a) for k in rows]
        first = self._moved(self.a, b.add(b.mul(i, self.row_a), b.mul(self.k0, self.step_a)))
        with self._steps(first, where, move) as (at_a, at_b):
            vectors = [
                lanes.load(self.dtype, self._moved(at_b, I64(v * self.count * self.size)), None, mask)
                for v, mask in enumerate(reads)
            ]
            for offset, row in zip(offsets, sums, strict=True):
                number = lanes.splat(b.load(self._moved(at_a, offset), typ=self.element))
                for place, vector in zip(row, vectors, strict=True):
                    b.store(self._fma(number, vector, b.load(place, typ=typ)), place)
        out = self._moved(self.c, b.add(b.mul(i, self.row_c), b.mul(self.column, I64(self.size))))
        with b.if_then(self.inner):
            self._each(sums, rows, masks, out, lambda row, mask, place: b.store(
                b.fadd(lanes.load(self.dtype, place, None, mask), b.load(row, typ=typ)), row))  # fmt: skip
        with b.if_then(b.or_(self.keeps, b.not_(self.last))):
            self._each(sums, rows, masks, out, lambda row, mask, place: lanes.store(
                b.load(row, typ=typ), self.dtype, place, None, mask))  # fmt: skip
        with b.if_then(b.and_(self.last, b.icmp_signed("!=", self.finish, I64(0)))):
            self._finish(sums, i, w.smaller(I64(height), b.add(last, I64(1))))

    def _finish(self, sums: list[list[ir.Value]], i: ir.Value, rows: ir.Value) -> None:
        """The epilogue of a tile, of its first ``rows`` rows."""
        b, unit = self.b, self.count * self.size
        for k, row in enumerate(sums):
            for v, place in enumerate(row):
                at = self._moved(self.tile, I64((k * _VECTORS + v) * unit))
                b.store(b.load(place, typ=self.lanes.vector(self.element)), at, align=unit)
        args, product, row, column = self.place
        columns = self.w.smaller(b.sub(self.n, self.column), I64(self.width))
        b.call(Routine(b.inttoptr(self.finish, PTR), FINISH), [
            args, product, b.add(row, i), b.add(column, self.column), rows, columns, self.tile
        ])  # fmt: skip

    def _each(
        self, sums: list[list[ir.Value]], rows: list[ir.Value], masks: _Masks, out: ir.Value,
        act: Callable[[ir.Value, ir.Value | None, ir.Value], None],
    ) -> None:  # fmt: skip
        for k, row in zip(rows, sums, strict=True):
            line = self._moved(out, self.b.mul(k, self.row_c))
            for v, (place, mask) in enumerate(zip(row, masks, strict=True)):
                act(place, mask, self._moved(line, I64(v * self.count * self.size)))

    @contextmanager
    def _steps(self, a: ir.Value, where: ir.Value, move: ir.Value) -> Iterator[tuple[ir.Value, ir.Value]]:
        """Along k: the places in a and in b."""
        b, w = self.b, self.w
        at_a, at_b = w.variable(PTR), w.variable(PTR)
        b.store(a, at_a)
        b.store(where, at_b)
        with w.loop(I64(0), self.depth):
            one, two = b.load(at_a, typ=PTR), b.load(at_b, typ=PTR)
            yield one, two
            b.store(self._moved(one, self.step_a), at_a)
            b.store(self._moved(two, move), at_b)

    def _fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        if self.machine.fma:
            return self.lanes.intrinsic("fma", x.type, [x, y, z])
        return self.b.fadd(self.b.fmul(x, y), z)


def transposed(b: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """A square of vectors turned: row r, lane c goes to row c, lane r. In each step, blocks of two rows swap."""
    count = len(rows)
    half = count // 2
    while half:
        out = list(rows)
        for r in range(count):
            if not r & half:
                x, y = rows[r], rows[r + half]
                low = [c if not c & half else count + c - half for c in range(count)]
                high = [c + half if not c & half else count + c for c in range(count)]
                out[r] = b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, count), [I32(k) for k in low]))
                out[r + half] = b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, count), [I32(k) for k in high]))
        rows = out
        half //= 2
    return rows


__all__ = ["DEPTH", "WORDS", "finish_kernel", "product_kernel", "rows_together", "tile"]
