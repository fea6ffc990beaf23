"""Contractions in register tiles: y[p, f] = Σ_r x[P(p) + R(r)] · w[W(r) + f], where P, R and W are sums of strides.

Convolutions and their gradients are of this form over strided windows, so no window is ever copied. A tile is a few
points times a few vectors of outputs, held in registers while the sum runs: of each term, the elements of x are spread
over the lanes of w (or, lane by lane, are vectors of their own: ``adjacent``). Where the part of w that a sum reads
would not stay in cache, the sum's outer axes run outside the tiles and y holds what there is so far.

Which terms are added in which order depends on sizes alone, not on threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Final, final

from llvmlite import ir

from ...dtypes import DType
from ...ir import Graph, Node, TensorType
from ...ir.op import get
from ...ir.ops.core import Input
from .machine import Machine
from .plan import Planner
from .values import I64, PTR, register_type
from .views import View
from .writing import KernelWriter

_CACHE_BYTES: Final = 1 << 17
"""How much of w a tile's sum may read: it should stay near while all tiles of a block pass."""
_BLOCK: Final = 512
"""Points a block may have: their addresses lie on the stack."""
_ITEMS: Final = 16
"""Fewer items are split along the sum."""
_POINTERS: Final = 10
"""More points than this in a tile have their addresses spilled."""


@dataclass(frozen=True, slots=True)
class Moves:
    """An axis: its size, and the bytes by which two operands move along it."""

    size: int
    x: int
    other: int


def joined(axes: Sequence[Moves]) -> list[Moves]:
    """The axes in the order in which x lies in memory, without those of size 1, neighbours in one where they can be."""
    out: list[Moves] = []
    for axis in sorted((a for a in axes if a.size != 1), key=lambda a: (-abs(a.x), -abs(a.other))):
        if out and out[-1].x == axis.size * axis.x and out[-1].other == axis.size * axis.other:
            out[-1] = Moves(out[-1].size * axis.size, axis.x, axis.other)
        else:
            out.append(axis)
    return out or [Moves(1, 0, 0)]


@dataclass(frozen=True, slots=True)
class Tile:
    """What is fixed in a kernel's code: ``rows`` points by ``vectors``; how many axes the points, the sum outside the
    tiles and the sum inside have; whether outputs, and the elements of w, end within a vector."""

    dtype: DType
    rows: int
    vectors: int
    points: int
    outer: int
    inner: int
    adjacent: bool
    masked: bool
    masked_w: bool
    lanes: int

    @property
    def words(self) -> tuple[str, ...]:
        axes = [(f"{kind}{k}", *parts) for kind, count, parts in (
            ("point", self.points, ("x", "y")), ("outer", self.outer, ("x", "w")), ("inner", self.inner, ("x", "w")),
        ) for k in range(count)]  # fmt: skip
        return (
            "points", "block", "blocks", "groups", "slab", "panels", "shares", "share", "width", "panel_x", "panel_w",
            "group_x", "group_w", "group_y", "slab_y", "x", "w", "y",
            *(f"{name} {part}" for name, *parts in axes for part in ("size", *parts)),
        )  # fmt: skip


def lanes_of(machine: Machine, dtype: DType) -> int:
    """How many elements fill a register."""
    return machine.lanes * 4 // dtype.itemsize


def registers(machine: Machine) -> int:
    """The vector registers that a tile may use."""
    return 32 if machine.masks or not machine.triple.startswith("x86_64") else 16


def tile_sizes(machine: Machine, dtype: DType, points: int, width: int) -> tuple[int, int, int]:
    """(points, vectors, lanes of each) of a tile for so many points and outputs: half a register's lanes where whole
    ones would be left empty."""
    have, lanes = registers(machine), lanes_of(machine, dtype)
    while lanes > 4 and 5 * (-(-width // (lanes // 2)) * (lanes // 2)) <= 4 * (-(-width // lanes) * lanes):
        lanes //= 2
    vectors = -(-width // lanes)
    panels = -(-vectors // (4 if have == 32 else 2))
    vectors = -(-vectors // panels)
    rows = min((have - vectors - 1) // vectors, _POINTERS)
    rows = min(rows, points)
    tiles = -(-points // rows)
    return -(-points // tiles) if tiles <= 4 else rows, vectors, lanes


@final
class TileKernel(KernelWriter):
    """Items are shares of the panels, for each block of points, for each group, for each slab of the sum's first
    axis."""

    def __init__(self, tile: Tile, machine: Machine) -> None:
        self.module = ir.Module(name="tiles")
        super().__init__(self.module, machine, tile.lanes)
        self.tile = tile
        self.element = register_type(tile.dtype)
        self.type = self.lanes.vector(self.element)
        self.size = tile.dtype.itemsize
        self.w = {name: self.argument(k) for k, name in enumerate(tile.words)}
        self.accumulators = [[self.variable(self.type) for _ in range(tile.vectors)] for _ in range(tile.rows)]
        room = ir.ArrayType(I64, _BLOCK + tile.rows)
        self.places_x, self.places_y = (
            self.b.inttoptr(self.b.ptrtoint(self.variable(room), I64), PTR) for _ in range(2)
        )

    def size_of(self, kind: str, axis: int) -> ir.Value:
        return self.w[f"{kind}{axis} size"]

    def emit(self) -> ir.Module:
        b, w = self.b, self.w
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            share, rest = b.srem(item, w["shares"]), b.sdiv(item, w["shares"])
            begin = b.mul(share, w["share"])
            end = self.smaller(b.add(begin, w["share"]), w["panels"])
            block, rest = b.srem(rest, w["blocks"]), b.sdiv(rest, w["blocks"])
            group, slab = b.srem(rest, w["groups"]), b.sdiv(rest, w["groups"])
            count = self.block(block)
            x, second, y = (b.add(w[n], b.mul(group, w[f"group_{n}"])) for n in ("x", "w", "y"))
            y = b.add(y, b.mul(slab, w["slab_y"]))
            with self.outer_loops(slab) as (dx, dw, begun):
                self.panels(begin, end, count, b.add(x, dx), b.add(second, dw), y, begun)
        b.ret_void()
        return self.module

    def place(self, array: ir.Value, k: ir.Value) -> ir.Value:
        return self.b.gep(array, [k], source_etype=I64)

    def block(self, block: ir.Value) -> ir.Value:
        """Where the points of a block lie in x and y; their number. The last point fills up its tile."""
        b, w, tile = self.b, self.w, self.tile
        first = b.mul(block, w["block"])
        count = self.smaller(w["block"], b.sub(w["points"], first))
        indices = [self.variable(I64) for _ in range(tile.points)]
        rest = first
        for k in reversed(range(tile.points)):
            size = self.size_of("point", k)
            b.store(b.srem(rest, size) if k else rest, indices[k])
            rest = b.sdiv(rest, size)
        padded = b.mul(b.sdiv(b.add(count, I64(tile.rows - 1)), I64(tile.rows)), I64(tile.rows))
        with self.loop(I64(0), padded) as k:
            at = [b.load(p, typ=I64) for p in indices]
            for array, part in ((self.places_x, "x"), (self.places_y, "y")):
                total: ir.Value = I64(0)
                for d, index in enumerate(at):
                    total = b.add(total, b.mul(index, w[f"point{d} {part}"]))
                b.store(total, self.place(array, k))
            going = b.icmp_signed("<", b.add(k, I64(1)), count)
            for d in reversed(range(tile.points)):
                following = b.add(at[d], b.zext(going, I64))
                over = b.icmp_signed("==", following, self.size_of("point", d)) if d else ir.Constant(ir.IntType(1), 0)
                b.store(b.select(over, I64(0), following), indices[d])
                going = over
        return count

    @contextmanager
    def outer_loops(self, slab: ir.Value) -> Iterator[tuple[ir.Value, ir.Value, ir.Value | None]]:
        """Loops over the sum's outer axes, of the first of them one slab; the bytes moved, and whether y has begun."""
        b, w = self.b, self.w
        if not self.tile.outer:
            yield I64(0), I64(0), None
            return
        start = b.mul(slab, w["slab"])
        stop = self.smaller(b.add(start, w["slab"]), self.size_of("outer", 0))
        with self.nested("outer", 0, start, stop, I64(0), I64(0)) as (dx, dw, index):
            begun = b.icmp_signed("!=", index[0], start)
            for other in index[1:]:
                begun = b.or_(begun, b.icmp_signed("!=", other, I64(0)))
            yield dx, dw, begun

    @contextmanager
    def nested(
        self, kind: str, axis: int, start: ir.Value, stop: ir.Value, dx: ir.Value, dw: ir.Value
    ) -> Iterator[tuple[ir.Value, ir.Value, list[ir.Value]]]:
        """Loops over the axes of the sum from ``axis`` on; the bytes that x and w move, and the indices."""
        b, w = self.b, self.w
        last = axis + 1 == (self.tile.outer if kind == "outer" else self.tile.inner)
        with self.loop(start, stop) as k:
            x = b.add(dx, b.mul(k, w[f"{kind}{axis} x"]))
            second = b.add(dw, b.mul(k, w[f"{kind}{axis} w"]))
            if last:
                yield x, second, [k]
            else:
                with self.nested(kind, axis + 1, I64(0), self.size_of(kind, axis + 1), x, second) as (x, second, rest):
                    yield x, second, [k, *rest]

    def panels(
        self, begin: ir.Value, end: ir.Value, count: ir.Value, x: ir.Value, second: ir.Value, y: ir.Value,
        begun: ir.Value | None,
    ) -> None:  # fmt: skip
        b, w, tile = self.b, self.w, self.tile
        wide = I64(tile.vectors * self.lanes.count)
        with self.loop(begin, end) as panel:
            px = b.add(x, b.mul(panel, w["panel_x"]))
            pw = b.add(second, b.mul(panel, w["panel_w"]))
            done = b.mul(panel, wide)
            py = b.add(y, b.mul(done, I64(self.size)))
            masks: list[ir.Value | None] = [None] * tile.vectors
            if tile.masked:
                left = b.sub(w["width"], done)
                masks = [self.mask(b.sub(left, I64(v * self.lanes.count))) for v in range(tile.vectors)]
            with self.loop(I64(0), count, tile.rows) as first:
                self.one(first, px, pw, py, begun, masks)

    def one(
        self, first: ir.Value, x: ir.Value, second: ir.Value, y: ir.Value, begun: ir.Value | None,
        masks: Sequence[ir.Value | None],
    ) -> None:  # fmt: skip
        """One tile."""
        b, tile = self.b, self.tile
        rows = range(tile.rows)
        at_x = [b.add(x, b.load(self.place(self.places_x, b.add(first, I64(j))), typ=I64)) for j in rows]
        at_y = [b.add(y, b.load(self.place(self.places_y, b.add(first, I64(j))), typ=I64)) for j in rows]
        zero = ir.Constant(self.type, None)
        for line in self.accumulators:
            for place in line:
                b.store(zero, place)
        if begun is not None:
            with b.if_then(begun):
                for j in rows:
                    for v, mask in enumerate(masks):
                        b.store(self.vector(at_y[j], v, mask), self.accumulators[j][v])
        self.sum(at_x, second, masks)
        for j in rows:
            for v, mask in enumerate(masks):
                value = b.load(self.accumulators[j][v], typ=self.type)
                self.lanes.store(value, tile.dtype, self.pointer(at_y[j], v), None, mask)

    def pointer(self, address: ir.Value, vector: int) -> ir.Value:
        return self.b.inttoptr(self.b.add(address, I64(vector * self.lanes.count * self.size)), PTR)

    def vector(self, address: ir.Value, vector: int, mask: ir.Value | None) -> ir.Value:
        return self.lanes.load(self.tile.dtype, self.pointer(address, vector), None, mask)

    def sum(self, at_x: Sequence[ir.Value], second: ir.Value, masks: Sequence[ir.Value | None]) -> None:
        """The sum over the inner axes: of the last one in the innermost loop, with offsets that grow."""
        b, tile = self.b, self.tile
        last = tile.inner - 1

        def along(dx: ir.Value, dw: ir.Value) -> None:
            bases, base = [b.add(p, dx) for p in at_x], b.add(second, dw)
            step_x, step_w = self.w[f"inner{last} x"], self.w[f"inner{last} w"]
            offset_x, offset_w = self.variable(I64), self.variable(I64)
            b.store(I64(0), offset_x)
            b.store(I64(0), offset_w)
            with self.loop(I64(0), self.size_of("inner", last)):
                ox, ow = b.load(offset_x, typ=I64), b.load(offset_w, typ=I64)
                self.term(bases, ox, b.add(base, ow), masks)
                b.store(b.add(ox, step_x), offset_x)
                b.store(b.add(ow, step_w), offset_w)

        if last:
            size = self.size_of("inner", 0)
            with self.nested_but_last(0, size, I64(0), I64(0)) as (dx, dw):
                along(dx, dw)
        else:
            along(I64(0), I64(0))

    @contextmanager
    def nested_but_last(
        self, axis: int, size: ir.Value, dx: ir.Value, dw: ir.Value
    ) -> Iterator[tuple[ir.Value, ir.Value]]:
        b, w = self.b, self.w
        with self.loop(I64(0), size) as k:
            x, second = (b.add(d, b.mul(k, w[f"inner{axis} {n}"])) for d, n in ((dx, "x"), (dw, "w")))
            if axis + 2 == self.tile.inner:
                yield x, second
            else:
                with self.nested_but_last(axis + 1, self.size_of("inner", axis + 1), x, second) as deeper:
                    yield deeper

    def term(
        self, bases: Sequence[ir.Value], offset: ir.Value, second: ir.Value, masks: Sequence[ir.Value | None]
    ) -> None:  # fmt: skip
        """One term of the sum for every element of the tile."""
        b, tile = self.b, self.tile
        factors = [self.vector(second, v, m if tile.masked_w else None) for v, m in enumerate(masks)]
        for j, base in enumerate(bases):
            address = b.add(base, offset)
            if not tile.adjacent:
                one = b.load(b.inttoptr(address, PTR), typ=self.element, align=self.size)
                spread = self.lanes.splat(one)
            for v, factor in enumerate(factors):
                value = self.vector(address, v, masks[v]) if tile.adjacent else spread
                place = self.accumulators[j][v]
                old = b.load(place, typ=self.type)
                if self.machine.fma:
                    new = self.lanes.intrinsic("fma", self.type, [value, factor, old])
                else:
                    new = b.fadd(old, b.fmul(value, factor))
                b.store(new, place)


def contract(
    planner: Planner, x: View, w: View, out: View, points: Sequence[Moves], reduced: Sequence[Moves], width: int,
    groups: tuple[int, int, int, int], panel_w: int, padded: bool, adjacent: bool, node: Node,
) -> None:  # fmt: skip
    """Append y = Σ x w. ``groups``: how many, and the bytes by which x, w and out move from one to the next; elements
    of w lie next to each other, panels ``panel_w`` bytes apart, filled up to whole tiles where ``padded``."""
    machine = planner.machine
    points, reduced = joined(points), joined(reduced)
    count = prod(a.size for a in points)
    rows, vectors, lanes = tile_sizes(machine, out.dtype, count, width)
    wide = vectors * lanes
    panels = -(-width // wide)
    itemsize = out.dtype.itemsize
    # The axes whose part of w stays in cache are inner ones; at least one.
    split = len(reduced) - 1
    while split and prod(a.size for a in reduced[split - 1 :]) * wide * itemsize <= _CACHE_BYTES:
        split -= 1
    masked = bool(width % wide)
    terms = prod(a.size for a in reduced)
    block = min(_BLOCK // rows * rows, -(-count // rows) * rows)
    slabs, slab = 1, reduced[0].size
    # A sum longer than the points are many (that of a kernel's gradient) is shared, rather than the points.
    if split and terms > count and out.contiguous and groups[0] * count * width == out.size:
        items = -(-count // block) * groups[0]
        slabs = min(-(-_ITEMS // items), reduced[0].size)
        slab = -(-reduced[0].size // slabs)
        slabs = -(-reduced[0].size // slab)
    while slabs * groups[0] * -(-count // block) < 8 * planner.threads and block >= 8 * rows:
        block = -(-block // (2 * rows)) * rows
    blocks = -(-count // block)
    shares = min(panels, max(1, 4 * planner.threads // (slabs * groups[0] * blocks)))
    share = -(-panels // shares)
    shares = -(-panels // share)
    tile = Tile(
        out.dtype, rows, vectors, len(points), split, len(reduced) - split, adjacent, masked, masked and not padded,
        lanes,
    )
    y = out if slabs == 1 else planner.temporary((slabs, out.nbytes // itemsize), out.dtype)
    values = {
        "points": count, "block": block, "blocks": blocks, "groups": groups[0], "slab": slab, "panels": panels,
        "shares": shares, "share": share,
        "width": width, "panel_x": wide * itemsize if adjacent else 0, "panel_w": panel_w, "group_x": groups[1],
        "group_w": groups[2], "group_y": groups[3], "slab_y": out.nbytes,
    }  # fmt: skip
    for kind, axes, parts in (
        ("point", points, "xy"), ("outer", reduced[:split], "xw"), ("inner", reduced[split:], "xw")
    ):  # fmt: skip
        for k, axis in enumerate(axes):
            for part, value in zip(("size", *parts), (axis.size, axis.x, axis.other), strict=True):
                values[f"{kind}{k} {part}"] = value
    words = [values.get(name, 0) for name in tile.words]
    pointers = [(tile.words.index(n), v) for n, v in (("x", x), ("w", w), ("y", y))]
    cost = x.nbytes + w.nbytes + out.nbytes + groups[0] * count * terms * width // 2
    code = planner.code(f"tiles {tile}", lambda: TileKernel(tile, machine).emit())
    planner.command("contraction", code, words, pointers, slabs * groups[0] * blocks * shares, cost, 1, node=node)
    if slabs > 1:
        t = TensorType(y.shape, y.dtype)
        operand = Node(Input, (), {}, (t,))
        flat = TensorType((y.shape[1],), y.dtype)
        total = Node(get("sum"), (operand,), {"axis": (0,), "keepdims": False, "dtype": None}, (flat,))
        whole = replace(out, shape=flat.shape, strides=(itemsize,))
        planner.fused(Graph([operand], [total], [total], "explicit"), [y], [whole])


__all__ = ["Moves", "Tile", "TileKernel", "contract", "joined", "lanes_of", "tile_sizes"]
