"""Chapter scan: prefix sums, products, extremes, and linear recurrences.

Along a contiguous axis a step takes a few vectors of neighbours, dealt out so that each lane holds some in a row: they
are scanned lane by lane, then the lanes' totals in log steps of shuffles, then both joined with what came before. Along
another axis vectors hold elements of different rows, some vectors side by side, so that memory is read in long pieces.
Where there are fewer rows than threads each row is cut into as many parts, the totals of which come first. Sums and
products of floats are carried in double.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Final, final

from llvmlite import ir

from ... import dtypes
from ...dtypes import DType
from ...ir import Graph, Node, TensorType
from ...ir.op import get
from ...ir.ops.core import CastBackward, Input
from .arithmetic import choose, extremum, is_zero, multiply_values
from .machine import Machine
from .math import converted
from .plan import Planner, Rule
from .reduce import FOLDS, Fold, State, worst
from .values import I64, PTR, Lanes, Pair, Value
from .views import View
from .writing import KernelWriter

_FOLD: Final = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min"}
_SPLIT_POINTS: Final = 1 << 16
_DEALT: Final = 4
"""How many neighbours a lane holds."""
_ROWS: Final = 4
_COLUMNS: Final = 8192
"""How many columns may have their states on the stack."""


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


@final
class _Extremum(Fold):
    """The extreme so far in one vector: NaN wins."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.largest = node.name == "cummax"

    def neutral(self, lanes: Lanes) -> Value:
        return worst(lanes, self.dtype, self.largest)

    def start(self, lanes: Lanes) -> State:
        return [worst(lanes, self.dtype, self.largest)]

    def take(self, lanes: Lanes, state: State, value: Value, index: ir.Value) -> State:
        return self.join(lanes, state, [value])

    def join(self, lanes: Lanes, a: State, b: State) -> State:
        build = lanes.b
        if self.dtype.is_bool:
            return [(build.or_ if self.largest else build.and_)(a[0], b[0])]
        if not self.dtype.is_floating:
            return [extremum(lanes, a[0], b[0], self.dtype.kind, self.largest)]
        beats = build.fcmp_ordered(">" if self.largest else "<", b[0], a[0])
        beats = build.or_(beats, build.fcmp_unordered("uno", b[0], b[0]))
        # What is NaN stays the first NaN.
        return [build.select(build.fcmp_unordered("uno", a[0], a[0]), a[0], build.select(beats, b[0], a[0]))]

    def finish(self, lanes: Lanes, state: State, count: ir.Value) -> Value:
        return state[0]


def _parts(value: Value) -> State:
    return list(value) if isinstance(value, Pair) else [value]


def _value(parts: State) -> Value:
    return Pair(*parts) if len(parts) == 2 else parts[0]


def _fold(node: Node) -> Fold:
    if node.name in ("cummax", "cummin"):
        return _Extremum(node)
    return FOLDS[_FOLD[node.name]](node) if node.name in _FOLD else _Recurrence(node)


def _mapped(change: Callable[[ir.Value], ir.Value], value: Value) -> Value:
    return Pair(*map(change, value)) if isinstance(value, Pair) else change(value)


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


    def resumed(self, lanes: Lanes, item: ir.Value, load: Callable[[ir.Value], Value]) -> list[ir.Value]:
        """Variables with the state before a part: that of nothing, or of the parts before it."""
        nothing = self.fold.start(lanes)
        before = [self.variable(v.type) for v in nothing]
        for place, value in zip(before, nothing, strict=True):
            self.b.store(value, place)
        part = self.b.srem(item, self.w["parts"])
        with self.b.if_then(self.b.icmp_signed("!=", part, I64(0))):
            others = self.b.sub(self.w["parts"], I64(1))
            number = self.b.mul(self.b.sdiv(item, self.w["parts"]), others)
            value = load(self.b.sub(self.b.add(number, part), I64(1)))
            for place, one in zip(before, self.fold.resume(lanes, value), strict=True):
                self.b.store(one, place)
        return before

    def read(self, lanes: Lanes, places: Sequence[ir.Value]) -> State:
        return [self.b.load(p, typ=v.type) for p, v in zip(places, self.fold.start(lanes), strict=True)]


@final
class _Rows(_Scan):
    """Items are the parts of each row, in the order of the scan. ``carry`` holds what comes before each but the
    first."""

    words = ("n", "parts", "part", "a", "x", "carry", "y")

    def __init__(self, node: Node, carried: bool, machine: Machine) -> None:
        wide = _wide(node.name, node.dtype)
        width = max(2, min(machine.lanes, machine.lanes * 4 // wide.itemsize))
        self.dealt = 1 if node.dtype.is_complex else _DEALT
        super().__init__(node, width * self.dealt, machine)
        self.narrow = Lanes(self.b, width, machine)
        self.carried = carried

    def emit(self) -> ir.Module:
        b, w = self.b, self.w
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            row, part = b.sdiv(item, w["parts"]), b.srem(item, w["parts"])
            start = b.mul(part, w["part"])
            stop = self.smaller(b.add(start, w["part"]), w["n"])
            first = b.mul(row, w["n"])
            if self.carried:
                before = self.resumed(self.narrow, item, lambda k: self.narrow.load_same(
                    self.wide, self.at("carry", b.mul(k, I64(self.wide.itemsize)))))  # fmt: skip
            else:
                before = [self.variable(v.type) for v in self.fold.start(self.narrow)]
                for place, value in zip(before, self.fold.start(self.narrow), strict=True):
                    b.store(value, place)
            self.span(start, stop, lambda v, mask: self.vectors(first, v, mask and b.sub(stop, v), before))
        b.ret_void()
        return self.module

    def within(self, left: ir.Value, order: Sequence[int]) -> ir.Value:
        """Of these numbers, which are less than ``left``."""
        i32 = ir.IntType(32)
        numbers = ir.Constant(ir.VectorType(i32, len(order)), [i32(k) for k in order])
        bound = Lanes(self.b, len(order), self.machine).splat(self.b.trunc(left, i32))
        return self.b.icmp_signed("<", numbers, bound)

    def vectors(self, row: ir.Value, v: ir.Value, left: ir.Value | None, before: list[ir.Value]) -> None:
        """Scan the elements from ``v`` on, counted in the order of the scan, of which there are ``left``."""
        b, fold, narrow = self.b, self.fold, self.narrow
        width, dealt = narrow.count, self.dealt
        total = width * dealt
        place = b.add(row, b.sub(b.sub(self.w["n"], v), I64(total)) if self.reverse else v)
        offset = b.mul(place, I64(self.dtype.itemsize))
        numbers = range(total)[::-1] if self.reverse else range(total)
        mask = None if left is None else self.within(left, numbers)
        order = [[lane * dealt + k for lane in range(width)] for k in range(dealt)]
        if self.reverse:
            order = [[total - 1 - k for k in line] for line in order]

        def read(name: str) -> list[Value]:
            whole = self.lanes.load(self.dtype, self.at(name, offset), None, mask)
            return [_mapped(lambda x, line=line: self.shuffled(x, x, line), whole) for line in order]  # type: ignore[misc]

        operands = {name: read(name) for name in (("a", "x") if isinstance(fold, _Recurrence) else ("x",))}
        nothing = fold.start(narrow)
        states: list[State] = []
        for k in range(dealt):
            value = self.element(lambda name, k=k: operands[name][k])  # type: ignore[misc]
            if left is not None:
                inside = self.within(left, range(k, total, dealt))
                value = self.chosen(inside, value, fold.neutral(narrow))
            states.append(fold.take(narrow, states[-1] if states else nothing, value, narrow.iota()))
        # The lanes' totals, scanned.
        lanes = states[-1]
        distance = 1
        while distance < width:
            moved = [self.moved(n, s, distance) for n, s in zip(nothing, lanes, strict=True)]
            lanes = fold.join(narrow, moved, lanes)
            distance *= 2
        old = self.read(narrow, before)
        above = fold.join(narrow, old, [self.moved(n, s, 1) for n, s in zip(nothing, lanes, strict=True)])
        last = fold.join(narrow, old, [self.shuffled(s, s, [width - 1] * width) for s in lanes])
        for p, s in zip(before, last, strict=True):
            b.store(s, p)
        reached = [fold.join(narrow, above, s) for s in states]
        if not self.inclusive:
            reached = [above, *reached[:-1]]
        finished = [fold.finish(narrow, s, I64(1)) for s in reached]
        if isinstance(finished[0], Pair):
            result: Value = Pair(*(self.together([f[k] for f in finished]) for k in range(2)))
        else:
            result = self.together(finished)
        self.lanes.store(result, self.dtype, self.at("y", offset), None, mask)

    def chosen(self, mask: ir.Value, value: Value, other: Value) -> Value:
        if isinstance(value, tuple) and not isinstance(value, Pair):
            return tuple(choose(self.narrow, mask, x, y) for x, y in zip(value, other, strict=True))
        return choose(self.narrow, mask, value, other)

    def moved(self, nothing: ir.Value, v: ir.Value, distance: int) -> ir.Value:
        """Lanes ``distance`` further up."""
        width = self.narrow.count
        return self.shuffled(nothing, v, [k if k < distance else width + k - distance for k in range(width)])

    def together(self, vectors: list[ir.Value]) -> ir.Value:
        """Vectors dealt out as one, in the order of memory."""
        width, dealt = self.narrow.count, len(vectors)
        while len(vectors) > 1:
            size = vectors[0].type.count
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [self.shuffled(x, y, list(range(2 * size))) for x, y in pairs]
        order = [k * width + lane for lane in range(width) for k in range(dealt)]
        return self.shuffled(vectors[0], vectors[0], order[::-1] if self.reverse else order)

    def shuffled(self, x: ir.Value, y: ir.Value, order: list[int]) -> ir.Value:
        i32 = ir.IntType(32)
        mask = ir.Constant(ir.VectorType(i32, len(order)), [i32(k) for k in order])
        return self.b.shuffle_vector(x, y, mask)


@final
class _Columns(_Scan):
    """Operands are (outer, n, inner); items are blocks along the last axis, for each part of the second, for each of
    the first. States lie on the stack, or, where a block is ``single``, in a vector."""

    words = ("n", "inner", "blocks", "block", "parts", "part", "a", "x", "carry", "y")

    def __init__(self, node: Node, lanes: int, carried: bool, single: bool, machine: Machine) -> None:
        super().__init__(node, lanes, machine)
        self.carried, self.single = carried, single
        self.size = I64(self.dtype.itemsize)
        self.step = self.b.mul(self.w["inner"], self.size)

    def emit(self) -> ir.Module:
        b, w = self.b, self.w
        with self.loop(self.fn.args[1], self.fn.args[2]) as item:
            block, rest = b.srem(item, w["blocks"]), b.sdiv(item, w["blocks"])
            outer, part = b.sdiv(rest, w["parts"]), b.srem(rest, w["parts"])
            begin = b.mul(part, w["part"])
            end = self.smaller(b.add(begin, w["part"]), w["n"])
            row = b.mul(b.mul(outer, w["n"]), self.step)
            start = b.mul(block, w["block"])
            stop = self.smaller(b.add(start, w["block"]), w["inner"])
            if self.single:
                self.span(start, stop, lambda v, mask: self.column(rest, row, v, mask, begin, end))
            else:
                self.columns(rest, row, start, stop, begin, end)
        b.ret_void()
        return self.module

    def before(self, item: ir.Value, v: ir.Value, mask: ir.Value | None) -> list[ir.Value]:
        if self.carried:
            return self.resumed(self.lanes, item, lambda k: self.lanes.load(self.wide, self.at("carry", self.b.mul(
                self.b.add(self.b.mul(k, self.w["inner"]), v), I64(self.wide.itemsize))), None, mask))  # fmt: skip
        nothing = self.fold.start(self.lanes)
        places = [self.variable(value.type) for value in nothing]
        for place, value in zip(places, nothing, strict=True):
            self.b.store(value, place)
        return places

    def column(
        self, item: ir.Value, row: ir.Value, v: ir.Value, mask: ir.Value | None, begin: ir.Value, end: ir.Value
    ) -> None:  # fmt: skip
        places = self.before(item, v, mask)
        with self.loop(begin, end) as k:
            self.points([self.b.add(self.line(row, k), self.b.mul(v, self.size))], mask, places)

    def columns(
        self, item: ir.Value, row: ir.Value, start: ir.Value, stop: ir.Value, begin: ir.Value, end: ir.Value
    ) -> None:  # fmt: skip
        b, width = self.b, self.lanes.count
        kinds = [v.type for v in self.fold.start(self.lanes)]
        stacks = []
        for kind in kinds:
            lying = self.variable(ir.ArrayType(kind, _COLUMNS // width))
            lying.align = 64
            stacks.append(b.inttoptr(b.ptrtoint(lying, I64), PTR))

        def places(v: ir.Value) -> list[ir.Value]:
            k = b.sdiv(b.sub(v, start), I64(width))
            return [b.gep(s, [k], source_etype=kind) for s, kind in zip(stacks, kinds, strict=True)]

        def begun(v: ir.Value, mask: ir.Value | None) -> None:
            values = self.read(self.lanes, self.before(item, v, mask))
            for place, value in zip(places(v), values, strict=True):
                b.store(value, place)

        self.span(start, stop, begun)
        # Some rows at a time: states are read and written once for all of them.
        whole = b.add(begin, b.and_(b.sub(end, begin), I64(-_ROWS)))
        for first, last, count in ((begin, whole, _ROWS), (whole, end, 1)):
            with self.loop(first, last, count) as k:
                lines = [self.line(row, b.add(k, I64(j))) for j in range(count)]
                self.span(start, stop, lambda v, mask, lines=lines: self.points(  # type: ignore[misc]
                    [b.add(line, b.mul(v, self.size)) for line in lines], mask, places(v)))  # fmt: skip

    def line(self, row: ir.Value, k: ir.Value) -> ir.Value:
        at = self.b.sub(self.b.sub(self.w["n"], k), I64(1)) if self.reverse else k
        return self.b.add(row, self.b.mul(at, self.step))

    def points(self, rows: Sequence[ir.Value], mask: ir.Value | None, places: Sequence[ir.Value]) -> None:
        """One vector of each of these rows, one after the other."""
        lanes = self.lanes
        state = self.read(lanes, places)
        for here in rows:
            old = state
            value = self.element(lambda name, here=here: lanes.load(self.dtype, self.at(name, here), None, mask))  # type: ignore[misc]
            state = self.fold.take(lanes, old, value, lanes.iota())
            result = self.fold.finish(lanes, state if self.inclusive else old, I64(1))
            lanes.store(result, self.dtype, self.at("y", here), None, mask)
        for p, v in zip(places, state, strict=True):
            self.b.store(v, p)


def scan(planner: Planner, node: Node) -> View:
    """A scan of a contiguous copy, where the operand is not contiguous."""
    views = [planner.contiguous(planner.view(o)) for o in node.operands]
    out = planner.temporary(node.shape, node.dtype)
    if not out.size:
        return out
    axis = node.attrs["axis"]
    shape = prod(node.shape[:axis]), node.shape[axis], prod(node.shape[axis + 1 :])
    _scanned(planner, node, views, out, shape)
    return out


def _scanned(planner: Planner, node: Node, views: Sequence[View], out: View, shape: tuple[int, int, int]) -> None:
    """The scan of (outer, n, inner) along the second axis: by rows, or by columns a block at a time."""
    outer, n, inner = shape
    machine, threads = planner.machine, planner.threads
    width = max(2, min(machine.lanes, machine.lanes * 4 // _wide(node.name, node.dtype).itemsize))
    blocks, block = 1, 1
    if inner > 1:
        blocks = -(-inner // _COLUMNS)
        if blocks > 1:
            blocks = -(-blocks // threads) * threads
        block = -(-inner // (blocks * width)) * width
        blocks = -(-inner // block)
    parts, part = 1, n
    items = outer * blocks
    if node.name in _FOLD and items < 4 * threads and items % threads and outer * n * inner >= _SPLIT_POINTS:
        part = -(-n // (threads * 64)) * 64
        parts = -(-n // part)
    before = _before(planner, node, views[0], shape, parts, part) if parts > 1 else None
    words: tuple[str, ...]
    if inner == 1:
        code = planner.code(_key(node, "rows", parts > 1), lambda: _Rows(node, parts > 1, machine).emit())
        words = _Rows.words
    else:
        single = block <= width
        code = planner.code(
            _key(node, "columns", width, parts > 1, single),
            lambda: _Columns(node, width, parts > 1, single, machine).emit(),
        )
        words = _Columns.words
    values = {"n": n, "inner": inner, "blocks": blocks, "block": block, "parts": parts, "part": part}
    operands = [*zip(("a", "x")[-len(views) :], views, strict=True), ("carry", before), ("y", out)]
    pointers = [(words.index(name), view) for name, view in operands if view is not None]
    cost = out.nbytes + sum(v.nbytes for v in views)
    filled = [values.get(name, 0) for name in words]
    planner.command(node.name, code, filled, pointers, items * parts, cost, 1, node=node)


def _before(
    planner: Planner, node: Node, x: View, shape: tuple[int, int, int], parts: int, part: int
) -> View:  # fmt: skip
    """What comes before each part but the first, (outer, parts - 1, inner): the totals of parts, scanned."""
    outer, n, inner = shape
    wide = _wide(node.name, node.dtype)
    row, step = inner * n * x.dtype.itemsize, inner * x.dtype.itemsize
    reverse = node.attrs["reverse"]
    seen = replace(
        x, shape=(outer, parts - 1, part, inner), offset=x.offset + (n - part) * step * reverse,
        strides=(row, part * step * (-1 if reverse else 1), step, x.dtype.itemsize),
    )  # fmt: skip
    totals = planner.temporary((outer, parts - 1, inner), wide)
    operand = Node(Input, (), {}, (TensorType(seen.shape, x.dtype),))
    body, value = [], operand
    if wide is not x.dtype:
        value = Node(CastBackward, (operand,), {"dtype": wide}, (TensorType(seen.shape, wide),))
        body.append(value)
    attrs = {"axis": (2,), "keepdims": False, "dtype": wide}
    total = Node(get(_FOLD[node.name]), (value,), attrs, (TensorType(totals.shape, wide),))
    planner.fused(Graph([operand], [*body, total], [total], "explicit"), [seen], [totals])
    if parts == 2:
        return totals
    given = node.operands[0].replace(types=(TensorType(totals.shape, wide),))
    above = node.replace(
        operands=(given,), types=given.types, attrs={**node.attrs, "reverse": False, "inclusive": True}
    )  # fmt: skip
    before = planner.temporary(totals.shape, wide)
    _scanned(planner, above, [totals], before, (outer, parts - 1, inner))
    return before


def _key(node: Node, *facts: object) -> str:
    return f"{node.name} {node.dtype.name} {node.attrs['reverse']} {node.attrs.get('inclusive')} {facts}"


OPS: Final[dict[str, Rule]] = dict.fromkeys((*_FOLD, "recurrence"), scan)

__all__ = ["scan"]
