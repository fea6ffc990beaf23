"""Chapter scan: prefix sums, products, extremes, and linear recurrences.

Along a contiguous axis vectors hold neighbours: each is scanned in log steps of shuffles, then joined with what came
before it. Rows that are few and long are cut into blocks of fixed length, whose totals are scanned first, so that
threads can share them. Along another axis vectors hold elements of different rows. Sums and products of floats are
carried in double.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final, final

from llvmlite import ir

from ... import dtypes
from ...dtypes import DType
from ...ir import Node
from .arithmetic import choose, is_zero, multiply_values
from .machine import Code, Machine
from .math import converted
from .plan import Planner, Rule
from .reduce import FOLDS, Fold, State
from .values import I64, PTR, Lanes, Pair, Value
from .views import View
from .writing import KernelWriter

_FOLD: Final = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min"}
_BLOCK: Final = 1 << 13
_SPLIT_POINTS: Final = 1 << 16


def _wide(name: str, dtype: DType) -> DType:
    """The dtype that partial results are held in."""
    if name in ("cummax", "cummin") or not dtype.is_inexact:
        return dtype
    return dtypes.complex128 if dtype.is_complex else dtypes.float64


@final
class _Recurrence(Fold):
    """y = b + a y as a fold of pairs: (A, B) stands for y = B + A y, and pairs compose. What is 0 stays 0."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.wide = _wide(node.name, node.dtype)

    def neutral(self, lanes: Lanes) -> Value:
        return lanes.number(1, self.dtype), lanes.number(0, self.dtype)

    def start(self, lanes: Lanes) -> State:
        return [*_parts(lanes.number(1, self.wide)), *_parts(lanes.number(0, self.wide))]

    def take(self, lanes: Lanes, state: State, value: Value, index: ir.Value) -> State:
        """``value`` is an a and a b."""
        pair = [converted(lanes, v, self.dtype, self.wide) for v in value]
        return self.join(lanes, state, [*_parts(pair[0]), *_parts(pair[1])])

    def join(self, lanes: Lanes, a: State, b: State) -> State:
        half = len(a) // 2
        (scale, before), (factor, own) = ((_value(s[:half]), _value(s[half:])) for s in (a, b))
        reached = _parts(self.times(lanes, before, factor))
        total = [lanes.b.fadd(x, y) for x, y in zip(_parts(own), reached, strict=True)]
        return [*_parts(self.times(lanes, scale, factor)), *total]

    def times(self, lanes: Lanes, x: Value, factor: Value) -> Value:
        return choose(lanes, is_zero(lanes, x), x, multiply_values(lanes, x, factor, is_float=True))

    def finish(self, lanes: Lanes, state: State, count: ir.Value) -> Value:
        return converted(lanes, _value(state[len(state) // 2 :]), self.wide, self.dtype)


def _parts(value: Value) -> State:
    return list(value) if isinstance(value, Pair) else [value]


def _value(parts: State) -> Value:
    return Pair(*parts) if len(parts) == 2 else parts[0]


def _fold(node: Node) -> Fold:
    return FOLDS[_FOLD[node.name]](node) if node.name in _FOLD else _Recurrence(node)


class _Scan(KernelWriter):
    """Base of the kernels of scans; ``words`` names their arguments."""

    words: tuple[str, ...]

    def __init__(self, node: Node, lanes: int, machine: Machine) -> None:
        self.module = ir.Module(name="scan")
        super().__init__(self.module, machine, lanes)
        self.node = node
        self.name = node.name
        self.dtype = node.dtype
        self.wide = _wide(node.name, node.dtype)
        self.reverse: bool = node.attrs["reverse"]
        self.inclusive: bool = node.attrs.get("inclusive", True)
        self.fold = _fold(node)
        self.w = {name: self.argument(k) for k, name in enumerate(self.words)}

    def element(self, read: Callable[[str], Value]) -> Value:
        """What the fold takes, of the operands that ``read`` reads."""
        return (read("a"), read("x")) if isinstance(self.fold, _Recurrence) else read("x")

    def at(self, name: str, *offsets: ir.Value) -> ir.Value:
        """The place of an operand, moved by bytes."""
        pointer = self.b.inttoptr(self.w[name], PTR)
        for offset in offsets:
            pointer = self.lanes.offset(pointer, offset)
        return pointer


@final
class _Rows(_Scan):
    """Items are the blocks of each row, in the order of the scan. ``carry`` holds what comes before each block, where
    there are several; with ``totals`` only that of each block's elements is written to y."""

    words = ("n", "blocks", "block", "a", "x", "carry", "y")

    def __init__(self, node: Node, carried: bool, totals: bool, machine: Machine) -> None:
        super().__init__(node, machine.lanes, machine)
        self.carried, self.totals = carried, totals

    def emit(self) -> ir.Module:
        b, w = self.b, self.w
        nothing = self.fold.start(self.lanes)
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            row, block = b.sdiv(item, w["blocks"]), b.srem(item, w["blocks"])
            start = b.mul(block, w["block"])
            stop = self.smaller(b.add(start, w["block"]), w["n"])
            first = b.mul(row, w["n"])
            before = [self.variable(v.type) for v in nothing]
            for place, value in zip(before, self.carry(item) if self.carried else nothing, strict=True):
                b.store(value, place)
            self.span(start, stop, lambda v, mask: self.vector(first, v, mask, before, nothing))
            if self.totals:
                single = Lanes(b, 1, self.machine)
                last = [self.first_lane(single, b.load(p, typ=v.type)) for p, v in zip(before, nothing, strict=True)]
                place = self.at("y", b.mul(item, I64(self.wide.itemsize)))
                single.store(self.fold.suspend(single, last), self.wide, place, None, None)
        b.ret_void()
        return self.module

    def first_lane(self, single: Lanes, v: ir.Value) -> ir.Value:
        zero = ir.IntType(32)(0)
        one = self.b.extract_element(v, zero)
        return self.b.insert_element(ir.Constant(single.vector(one.type), ir.Undefined), one, zero)

    def carry(self, item: ir.Value) -> State:
        place = self.at("carry", self.b.mul(item, I64(self.wide.itemsize)))
        return self.fold.resume(self.lanes, self.lanes.load_same(self.wide, place))

    def vector(self, row: ir.Value, v: ir.Value, mask: ir.Value | None, before: list[ir.Value], nothing: State) -> None:
        """Scan the vector at ``v``, counted in the order of the scan."""
        b, lanes = self.b, self.lanes
        width, size = lanes.count, I64(self.dtype.itemsize)
        place = b.add(row, b.sub(b.sub(self.w["n"], v), I64(width)) if self.reverse else v)
        offset = b.mul(place, size)
        stored_mask = mask if mask is None or not self.reverse else self.turned(mask)

        def read(name: str) -> Value:
            return self.in_order(lanes.load(self.dtype, self.at(name, offset), None, stored_mask))

        state = self.fold.take(lanes, nothing, self.element(read), lanes.iota())
        if mask is not None:
            state = [b.select(mask, s, n) for s, n in zip(state, nothing, strict=True)]
        distance = 1
        while distance < width:
            order = [k if k < distance else width + k - distance for k in range(width)]
            moved = [self.shuffled(n, s, order) for n, s in zip(nothing, state, strict=True)]
            state = self.fold.join(lanes, moved, state)
            distance *= 2
        old = [b.load(p, typ=n.type) for p, n in zip(before, nothing, strict=True)]
        state = self.fold.join(lanes, old, state)
        for p, s in zip(before, state, strict=True):
            b.store(self.shuffled(s, s, [width - 1] * width), p)
        if self.totals:
            return
        if not self.inclusive:
            order = [0, *range(width, 2 * width - 1)]
            state = [self.shuffled(o, s, order) for o, s in zip(old, state, strict=True)]
        result = self.in_order(self.fold.finish(lanes, state, I64(1)))
        lanes.store(result, self.dtype, self.at("y", offset), None, stored_mask)

    def shuffled(self, x: ir.Value, y: ir.Value, order: list[int]) -> ir.Value:
        i32 = ir.IntType(32)
        mask = ir.Constant(ir.VectorType(i32, len(order)), [i32(k) for k in order])
        return self.b.shuffle_vector(x, y, mask)

    def turned(self, x: ir.Value) -> ir.Value:
        return self.shuffled(x, x, list(range(self.lanes.count))[::-1])

    def in_order(self, value: Value) -> Value:
        """Lanes in the order of the scan, from that of memory, or back."""
        if not self.reverse:
            return value
        return Pair(*map(self.turned, value)) if isinstance(value, Pair) else self.turned(value)


@final
class _Columns(_Scan):
    """Operands are (outer, n, inner); items are vectors along the last axis for each of the first."""

    words = ("n", "inner", "vectors", "a", "x", "y")

    def __init__(self, node: Node, lanes: int, machine: Machine) -> None:
        super().__init__(node, lanes, machine)
        self.step = self.b.mul(self.w["inner"], I64(self.dtype.itemsize))

    def emit(self) -> ir.Module:
        b, w, width = self.b, self.w, I64(self.lanes.count)
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            outer, start = b.sdiv(item, w["vectors"]), b.mul(b.srem(item, w["vectors"]), width)
            offset = b.add(b.mul(b.mul(outer, w["n"]), self.step), b.mul(start, I64(self.dtype.itemsize)))
            stop = self.smaller(b.add(start, width), w["inner"])
            self.span(start, stop, lambda v, mask: self.column(offset, mask))
        b.ret_void()
        return self.module

    def column(self, offset: ir.Value, mask: ir.Value | None) -> None:
        b, w = self.b, self.w
        nothing = self.fold.start(self.lanes)
        places = [self.variable(v.type) for v in nothing]
        for p, v in zip(places, nothing, strict=True):
            b.store(v, p)
        with self.loop(I64(0), w["n"]) as k:
            at = b.sub(b.sub(w["n"], k), I64(1)) if self.reverse else k
            here = b.add(offset, b.mul(at, self.step))
            old = [b.load(p, typ=v.type) for p, v in zip(places, nothing, strict=True)]
            value = self.element(lambda name: self.lanes.load(self.dtype, self.at(name, here), None, mask))
            new = self.fold.take(self.lanes, old, value, self.lanes.iota())
            for p, v in zip(places, new, strict=True):
                b.store(v, p)
            result = self.fold.finish(self.lanes, new if self.inclusive else old, I64(1))
            self.lanes.store(result, self.dtype, self.at("y", here), None, mask)


def scan(planner: Planner, node: Node) -> View:
    """A scan of a contiguous copy, where the operand is not contiguous."""
    views = [planner.contiguous(planner.view(o)) for o in node.operands]
    out = planner.temporary(node.shape, node.dtype)
    if not out.size:
        return out
    axis = node.attrs["axis"]
    outer, n, inner = prod(node.shape[:axis]), node.shape[axis], prod(node.shape[axis + 1 :])
    if inner == 1:
        _by_rows(planner, node, views, out, outer, n)
    else:
        _by_columns(planner, node, views, out, outer, n, inner)
    return out


def _key(node: Node, *facts: object) -> str:
    return f"{node.name} {node.dtype.name} {node.attrs['reverse']} {node.attrs.get('inclusive')} {facts}"


def _by_rows(planner: Planner, node: Node, views: Sequence[View], out: View, rows: int, n: int) -> None:
    cost = out.nbytes + sum(v.nbytes for v in views)
    whole = planner.threads == 1 or rows >= 4 * planner.threads or n < _SPLIT_POINTS
    if whole or node.name not in _FOLD:
        _row_command(planner, node, views, None, out, rows, n, n, cost)
        return
    blocks = -(-n // _BLOCK)
    wide = _wide(node.name, node.dtype)
    totals, before = (planner.temporary((rows, blocks), wide) for _ in range(2))
    _row_command(planner, node, views, None, totals, rows, n, _BLOCK, cost, totals=True)
    # What comes before each block: these scans run along the blocks in the scan's own order.
    operand = node.operands[0].replace(types=(node.type.with_dtype(wide),))
    attrs = {**node.attrs, "reverse": False, "inclusive": False}
    above = node.replace(operands=(operand,), attrs=attrs, types=operand.types)
    _row_command(planner, above, [totals], None, before, rows, blocks, blocks, totals.nbytes)
    _row_command(planner, node, views, before, out, rows, n, _BLOCK, cost)


def _row_command(
    planner: Planner, node: Node, views: Sequence[View], carry: View | None, y: View, rows: int, n: int, block: int,
    cost: int, totals: bool = False,
) -> None:  # fmt: skip
    carried = carry is not None
    blocks = -(-n // block)
    code = planner.code(
        _key(node, "rows", carried, totals), lambda: _Rows(node, carried, totals, planner.machine).emit()
    )
    operands = [*zip(("a", "x")[-len(views) :], views, strict=True), ("carry", carry), ("y", y)]
    values = {"n": n, "blocks": blocks, "block": block}
    _command(planner, node, _Rows.words, code, values, operands, rows * blocks, cost)


def _by_columns(planner: Planner, node: Node, views: list[View], out: View, outer: int, n: int, inner: int) -> None:
    width = planner.machine.lanes
    lanes = width * 2 if inner > width else width
    vectors = -(-inner // lanes)
    code = planner.code(_key(node, "columns", lanes), lambda: _Columns(node, lanes, planner.machine).emit())
    values = {"n": n, "inner": inner, "vectors": vectors}
    operands = [*zip(("a", "x")[-len(views) :], views, strict=True), ("y", out)]
    cost = out.nbytes + sum(v.nbytes for v in views)
    _command(planner, node, _Columns.words, code, values, operands, outer * vectors, cost)


def _command(
    planner: Planner, node: Node, names: Sequence[str], code: Code, values: Mapping[str, int],
    operands: Sequence[tuple[str, View | None]], items: int, cost: int,
) -> None:  # fmt: skip
    words = [values.get(name, 0) for name in names]
    pointers = [(names.index(name), view) for name, view in operands if view is not None]
    planner.command(node.name, code, words, pointers, items, cost, 1, node=node)


OPS: Final[dict[str, Rule]] = dict.fromkeys((*_FOLD, "recurrence"), scan)

__all__ = ["scan"]
