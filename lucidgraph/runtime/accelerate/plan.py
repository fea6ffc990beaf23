"""From a fused graph to a table of commands: where each value lies, which kernel makes it, from which addresses.

The table is data. Kernels are shared between plans, whatever their sizes; only numbers differ.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Any, Final, Protocol, final

import numpy as np

from ...dtypes import DType
from ...errors import UnsupportedError
from ...ir import Graph, Node, TensorType
from ...ir.evaluate import constant_array
from ...ir.ops.core import Captured, CastBackward, Constant, Input, Kernel, StopGradientBackward
from ...ir.text import format_value
from ...ir.types import Shape
from . import loops
from .arena import Arena, aligned
from .body import NEAR, PADDING, Body, Kept, Layout, Slots, lane_count
from .domain import Axis, axes_of, collapsed, forward, ordered
from .executor import PARALLEL_COST
from .steps import Steps
from .system import SYSTEM, System
from .views import View, viewed

_CHUNK: Final = 1 << 14
_SPLIT_POINTS: Final = 1 << 15
_SPLIT_BLOCKS: Final = 1 << 18
_PIECE: Final = 1 << 13
_CACHE_SHARE: Final = 0.75
"""What a command moves, as a share of the last cache, from which its results are written past the caches."""
_KEPT_BYTES: Final = 1 << 22
_NO_LIMIT: Final = (1 << 62) - 1

STOP: Final = -1
"""In place of a buffer: the two words through which a kernel ends a run."""


@dataclass(slots=True)
class Buffer:
    """Memory of a plan: ``kind`` is ``"input"``, ``"captured"``, ``"temporary"`` or ``"output"``, ``index`` its place
    among those. ``first`` and ``last`` are the commands that write it first and read it last."""

    kind: str
    nbytes: int
    index: int = 0
    first: int = -1
    last: int = -1
    offset: int = 0


class Addressed(Protocol):
    """Code with a kernel in it: compiled, or of the host."""

    def address(self, name: str) -> int: ...


@dataclass(slots=True)
class Command:
    """A kernel's run: its arguments, with pointers still as (place, buffer, offset)."""

    name: str
    code: Addressed
    words: list[int]
    pointers: list[tuple[int, int, int]]
    items: int
    split: bool
    cost: int
    node: Node | None = None
    replaces: dict[int, list[int]] = field(default_factory=dict)
    """For a buffer written: the buffers read whose places it may take, element for element."""


@dataclass(slots=True)
class Plan:
    """Everything a call needs but addresses."""

    commands: list[Command] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    captured: list[np.ndarray[Any, Any]] = field(default_factory=list)
    outputs: list[TensorType] = field(default_factory=list)
    reused: dict[int, int] = field(default_factory=dict)
    """Outputs that lie in a donated input, by their numbers."""
    arena: int = 0
    scratch: int = 0
    threads: int = 1
    """At most so many may run it: each has its part of the scratch memory."""

    @property
    def cost(self) -> int:
        return sum(c.cost for c in self.commands)


@final
class Planner:
    """``table`` says of each op that is not fused how it becomes commands; ``strides`` how inputs lie that are not in
    row-major order; ``donated`` which inputs' memory may become an output's; ``system`` what it is planned for."""

    def __init__(
        self,
        graph: Graph,
        threads: int,
        table: Mapping[str, Rule],
        strides: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
        donated: frozenset[int] = frozenset(),
        system: System = SYSTEM,
    ) -> None:
        self.graph = graph
        self.threads = threads
        self.table = table
        self.strides = strides
        self.donated = donated
        self.system = system
        self.machine = system.compiler.machine
        self.code = system.compiler.code
        self.plan = Plan(threads=threads)
        self.views: dict[Node, tuple[View, ...]] = {}
        self.scratch_of: list[tuple[Command, int]] = []
        self.replaced: set[int] = set()

    def run(self) -> Plan:
        for k, node in enumerate(self.graph.inputs):
            view = View.whole(self.buffer("input", node.type.nbytes, k), node.shape, node.dtype)
            self.views[node] = (replace(view, strides=self.strides.get(k, view.strides)),)
        for node in self.graph.nodes:
            self.place(node)
        self.finish_outputs()
        self.reuse_donated()
        self.assign()
        return self.plan

    # -- buffers

    def buffer(self, kind: str, nbytes: int, index: int = 0) -> int:
        self.plan.buffers.append(Buffer(kind, nbytes, index))
        return len(self.plan.buffers) - 1

    def temporary(self, shape: Shape, dtype: DType) -> View:
        return View.whole(self.buffer("temporary", prod(shape) * dtype.itemsize), shape, dtype)

    def constant(self, array: np.ndarray[Any, Any], dtype: DType) -> View:
        """A value known now."""
        array = np.ascontiguousarray(array, dtype.numpy).reshape(np.shape(array))
        self.plan.captured.append(array)
        return View.whole(self.buffer("captured", array.nbytes, len(self.plan.captured) - 1), array.shape, dtype)

    def view(self, node: Node) -> View:
        return self.views[node][0]

    # -- nodes

    def place(self, node: Node) -> None:
        if node.op is Kernel:
            self.kernel(node)
        elif node.name == "result":
            self.views[node] = (self.views[node.operands[0]][node.attrs["index"]],)
        elif node.op is Constant:
            self.views[node] = (self.constant(constant_array(node.attrs["value"], node.type), node.dtype),)
        elif node.op is Captured:
            self.views[node] = (self.constant(np.asarray(Captured.array(node.attrs["value"])), node.dtype),)
        elif node.op.view:
            x = self.view(node.operands[0])
            seen = viewed(node, x)
            if seen is None:
                seen = viewed(node, self.contiguous(x))
                assert seen is not None
            self.views[node] = (seen,)
        else:
            rule = self.table.get(node.name)
            if rule is None:
                raise UnsupportedError(
                    f"the accelerate backend has no {node.name}", source=node.source, hint='backend="reference" has it'
                )
            self.views[node] = (rule(self, node),)

    def kernel(self, node: Node) -> None:
        body: Graph = node.attrs["body"]
        made = tuple(self.temporary(t.shape, t.dtype) for t in node.types)
        self.views[node] = made
        self.fused(body, [self.view(o) for o in node.operands], made, node)

    # -- commands

    def command(
        self, name: str, code: Addressed, words: list[int], pointers: Sequence[tuple[int, View]], items: int, cost: int,
        writes: int, split: bool = True, node: Node | None = None,
    ) -> Command:  # fmt: skip
        """Append a command; the last ``writes`` pointers are what it writes."""
        number = len(self.plan.commands)
        for k, (_, view) in enumerate(pointers):
            buffer = self.plan.buffers[view.buffer]
            buffer.last = number
            if buffer.first < 0 and k >= len(pointers) - writes:
                buffer.first = number
        placed = [(slot, view.buffer, view.offset) for slot, view in pointers]
        made = Command(name, code, words, placed, items, split and items > 1 and cost >= PARALLEL_COST, cost, node)
        self.plan.commands.append(made)
        return made

    def fused(
        self, graph: Graph, inputs: Sequence[View], outputs: Sequence[View], node: Node | None = None,
        count: int | None = None,
    ) -> None:  # fmt: skip
        """A kernel command over views. ``count`` is what a mean divides by, where not the points reduced."""
        full, reduced = Kernel.domain(graph)
        if not any(view.size for view in outputs):
            return
        if count is None and any(run(self, graph, inputs, outputs, node) for run in self.system.singles):
            return
        body = Body(graph, full)
        axes, starts = forward(body, axes_of(body, full, reduced, [*inputs, *outputs]))
        inputs = [replace(v, offset=v.offset + start) for v, start in zip(inputs, starts, strict=False)]
        axes = collapsed(axes)
        items = [v.dtype.itemsize for v in (*inputs, *outputs)]
        axes, columns = ordered(axes, items, lane_count(body, self.machine), len(inputs))
        if self.worth_splitting(body, axes, columns):
            self.in_two_steps(body, axes, columns, inputs, outputs, node)
            return
        self.nest(body, axes, columns, inputs, outputs, node, count=count)

    def nest(
        self, body: Body, axes: list[Axis], columns: bool, inputs: Sequence[View], outputs: Sequence[View],
        node: Node | None, limit: int = _NO_LIMIT, pieces: int = _NO_LIMIT, count: int | None = None,
        across: bool = False,
    ) -> None:  # fmt: skip
        """One command: the axes in the order outer, reduced, vector."""
        vector = axes[-1]
        outer = [a for a in axes[:-1] if not a.reduced]
        inner = [a for a in axes[:-1] if a.reduced]
        views = [*inputs, *outputs]
        access = []
        for k, view in enumerate(views):
            row = k < len(inputs) and not body.is_full[body.graph.inputs[k]]
            row = row or (k >= len(inputs) and body.graph.outputs[k - len(inputs)].shape != body.full)
            if row and not columns:
                access.append("same")
            elif vector.size == 1 or vector.strides[k] == view.dtype.itemsize:
                access.append("adjacent")
            elif vector.strides[k] == 0 and k < len(inputs):
                access.append("same")
            else:
                step = vector.strides[k] // view.dtype.itemsize
                near = k < len(inputs) and not view.dtype.is_complex and vector.strides[k] == step * view.dtype.itemsize
                access.append(NEAR.get(step, "strided") if near else "strided")
        short = vector.size < 2 * self.machine.lanes
        layout = Layout(columns, len(outer), len(inner), tuple(access), short, across=columns or across)
        code = self.code(kernel_key(body, layout), lambda: loops.build(body.graph, body.full, layout, self.machine))
        slots = Slots(layout)
        lanes = lane_count(body, self.machine, short)
        words = [0] * slots.total
        points = prod(a.size for a in axes)
        rows = prod(a.size for a in outer)
        folded = prod(a.size for a in axes if a.reduced)
        kept = Kept(body)
        chunk = self.columns_together(body, vector.size, rows, folded, lanes, kept) if columns else vector.size
        chunks = -(-vector.size // chunk) if columns else 1
        span = chunk if columns else -(-vector.size // PADDING) * PADDING
        kept_stride = (prod(a.size for a in inner) * span + PADDING) * kept.cell
        moved = sum(v.nbytes for v in outputs) + sum(self.bytes_read(v) for v in inputs)
        written = sum(v.nbytes for v, n in zip(outputs, body.graph.outputs, strict=True) if n.shape == body.full)
        head = {
            "vector": vector.size, "chunk": max(chunk, 1), "chunks": max(chunks, 1), "limit": limit, "pieces": pieces,
            "count": folded if count is None else count, "kept_stride": kept_stride,
            "scratch_stride": kept_stride * kept.count,
            "past": int(written > 0 and moved > self.system.cache * _CACHE_SHARE),
        }  # fmt: skip
        for name, value in head.items():
            words[slots.head(name)] = value
        for k, axis in enumerate([*outer, *inner]):
            words[slots.sizes + k] = axis.size
            for operand, stride in enumerate(axis.strides):
                words[slots.stride(operand, k)] = stride
        for operand, stride in enumerate(vector.strides):
            words[slots.stride(operand, layout.axes - 1)] = stride
        cost = moved + points * sum(n.op.flops_per_element for n in body.graph.nodes) // 2
        pointers = [(slots.pointers + k, view) for k, view in enumerate(views)]
        made = self.command(
            " ".join(dict.fromkeys(n.name for n in body.graph.nodes if not n.op.view)) or "copy",
            code, words, pointers, rows * chunks, cost, len(outputs), node=node,
        )  # fmt: skip
        made.replaces = _replaceable(body, inputs, outputs)
        if kept.count:
            self.scratch_of.append((made, slots.head("scratch")))
            self.plan.scratch = max(self.plan.scratch, head["scratch_stride"] * self.threads)

    def columns_together(self, body: Body, size: int, rows: int, folded: int, lanes: int, kept: Kept) -> int:
        """How many columns an item of work takes: many for long reads, but the kept values of all should stay near, and
        there should be items for all threads."""
        if not any(n.op.reduces for n in body.graph.nodes):
            wanted = _CHUNK
        else:
            wanted = body.block * lanes
            if kept.count:
                wanted = min(wanted, _KEPT_BYTES // max(folded * kept.cell * kept.count, 1))
            wanted = min(wanted, -(-size * rows // self.threads))
        return max(min(wanted, size + lanes - 1), lanes) // lanes * lanes

    def bytes_read(self, view: View) -> int:
        return prod(n for n, s in zip(view.shape, view.strides, strict=True) if s) * view.dtype.itemsize

    # -- one long reduction, in pieces

    def worth_splitting(self, body: Body, axes: list[Axis], columns: bool) -> bool:
        """Whether few results of many points each should be reduced piece by piece, so that threads can share."""
        folds = [n for n in body.graph.nodes if n.op.reduces]
        if not folds or not all(n.op.partial and body.level[n.operands[0]] == 0 for n in folds):
            return False
        if any(n.shape == body.full for n in body.graph.outputs):
            return False
        if not any(a.reduced for a in axes):
            return False
        items = prod(a.size for a in axes[:-1] if not a.reduced)
        split = axes[_cut(axes, columns)]
        points = prod(a.size for a in axes if a.reduced)
        least = _SPLIT_POINTS
        if columns:
            items *= -(-axes[-1].size // (lane_count(body, self.machine) * body.block))
            points, least = points * axes[-1].size, _SPLIT_BLOCKS
        return items < 8 and split.size >= 16 and points >= least

    def in_two_steps(
        self, body: Body, axes: list[Axis], columns: bool, inputs: Sequence[View], outputs: Sequence[View],
        node: Node | None,
    ) -> None:  # fmt: skip
        """Partial results of fixed pieces, then theirs: the pieces do not depend on the number of threads."""
        place = _cut(axes, columns)
        split = axes[place]
        beside = prod(a.size for a in axes if a.reduced) // split.size
        # By columns, a piece is as many whole rows of the block as make up its points.
        piece = max(16, _SPLIT_BLOCKS // beside // axes[-1].size) if columns else max(1, _PIECE // beside)
        pieces = -(-split.size // piece)
        steps = Steps(body.graph, body.full, pieces)
        partials = [self.temporary(t.shape, t.dtype) for t in steps.partial_types]
        read = [inputs[k] for k in steps.partial_inputs]
        outer = Axis(pieces, False, tuple(s * piece for s in split.strides))
        cut = [*axes[:place], Axis(piece, True, split.strides), *axes[place + 1 :]]
        first = next((k for k, a in enumerate(cut) if a.reduced), len(cut) - 1)
        cut.insert(first, outer)
        # Strides of the operands read, then of the partial results: along the kept axes in their order, pieces last.
        kept = [a for a in axes if not a.reduced]
        table = []
        for axis in cut:
            moves = [axis.strides[k] for k in steps.partial_inputs]
            for view in partials:
                if axis is outer:
                    moves.append(view.strides[-1])
                else:
                    moves.append(0 if axis.reduced else _kept_stride(view, kept, axis))
            table.append(Axis(axis.size, axis.reduced, tuple(moves)))
        partial = Body(steps.partial, body.full)
        self.nest(partial, table, columns, read, partials, node, limit=split.size, pieces=pieces,
                  across=place < len(axes) - 1)  # fmt: skip
        finals = [steps.row_view(inputs[k]) for k in steps.final_inputs]
        count = prod(a.size for a in axes if a.reduced)
        self.fused(steps.final, [*partials, *finals], [steps.row_view(v) for v in outputs], node, count=count)

    # -- copies and conversions

    def copy(self, x: View, out: View) -> None:
        """Elements of ``x`` to the places of ``out``, which has the same shape."""
        if x.size:
            self.fused(_single(StopGradientBackward, x, {}), [x], [out])

    def contiguous(self, x: View) -> View:
        if x.contiguous:
            return x
        out = self.temporary(x.shape, x.dtype)
        self.copy(x, out)
        return out

    def cast(self, x: View, dtype: DType) -> View:
        if x.dtype is dtype:
            return x
        out = self.temporary(x.shape, dtype)
        self.fused(_single(CastBackward, x, {"dtype": dtype}), [x], [out])
        return out

    def fill(self, value: View, out: View) -> None:
        """One element everywhere."""
        self.copy(value.broadcast_to(out.shape), out)

    # -- the end

    def finish_outputs(self) -> None:
        """Each output gets a buffer of its own: that of its value where nothing else wants it."""
        taken: set[int] = set()
        for k, node in enumerate(self.graph.outputs):
            view = self.view(node)
            buffer = self.plan.buffers[view.buffer]
            owns = buffer.kind == "temporary" and view.contiguous and view.nbytes == buffer.nbytes and not view.offset
            if not owns or view.buffer in taken:
                out = self.temporary(node.shape, node.dtype)
                self.copy(view, out)
                view, buffer = out, self.plan.buffers[out.buffer]
            taken.add(view.buffer)
            buffer.kind, buffer.index = "output", k
            self.plan.outputs.append(TensorType(node.shape, node.dtype))

    def dying(self, buffer: Buffer) -> Buffer | None:
        """A temporary read for the last time by the command that writes ``buffer``, which may lie in its place."""
        if buffer.first < 0:
            return None
        command = self.plan.commands[buffer.first]
        for place in command.replaces.get(self.number_of[id(buffer)], ()):
            other = self.plan.buffers[place]
            dies = other.kind == "temporary" and other.last == buffer.first and other.nbytes == buffer.nbytes
            if dies and id(other) not in self.replaced:
                self.replaced.add(id(other))
                return other
        return None

    def reuse_donated(self) -> None:
        """Put outputs where donated inputs lay, if nothing reads those later."""
        for number, buffer in enumerate(self.plan.buffers):
            if buffer.kind != "output" or buffer.first < 0:
                continue
            for place in self.plan.commands[buffer.first].replaces.get(number, ()):
                other = self.plan.buffers[place]
                free = other.kind == "input" and other.index in self.donated and other.last == buffer.first
                if free and other.nbytes == buffer.nbytes and other.index not in self.plan.reused.values():
                    self.plan.reused[buffer.index] = other.index
                    break

    def assign(self) -> None:
        """Offsets in the arena: first fit, in the order in which the temporaries are written."""
        self.number_of = {id(b): k for k, b in enumerate(self.plan.buffers)}
        temporaries = sorted(
            (b for b in self.plan.buffers if b.kind == "temporary" and b.nbytes), key=lambda b: b.first
        )
        arena = Arena()
        # By the command that reads them last; what another has replaced does not come free.
        ends: list[tuple[int, int]] = []
        for k, buffer in enumerate(temporaries):
            while ends and ends[0][0] < buffer.first:
                dead = temporaries[heapq.heappop(ends)[1]]
                if id(dead) not in self.replaced:
                    arena.give(dead.offset, dead.nbytes)
            dying = self.dying(buffer)
            buffer.offset = arena.take(buffer.nbytes) if dying is None else dying.offset
            heapq.heappush(ends, (buffer.last, k))
        self.plan.arena = arena.size
        scratch = self.plan.arena
        if self.plan.scratch:
            self.plan.arena += aligned(self.plan.scratch)
            self.plan.buffers.append(Buffer("temporary", self.plan.scratch, offset=scratch))
            for command, slot in self.scratch_of:
                command.pointers.append((slot, len(self.plan.buffers) - 1, 0))


def _replaceable(body: Body, inputs: Sequence[View], outputs: Sequence[View]) -> dict[int, list[int]]:
    """The inputs that an output may overwrite: read at the same places, and before any full value is written."""
    full = [k for k, n in enumerate(body.graph.outputs) if n.shape == body.full]
    if any(body.level[body.graph.outputs[k]] != body.passes - 1 for k in full):
        return {}
    found: dict[int, list[int]] = {}
    for k in full:
        out = outputs[k]
        same = [v.buffer for v in inputs if (v.strides, v.shape, v.offset) == (out.strides, out.shape, out.offset)]
        others = [v.buffer for v in inputs if (v.strides, v.shape, v.offset) != (out.strides, out.shape, out.offset)]
        found[out.buffer] = [b for b in same if b not in others]
    return found


def _cut(axes: Sequence[Axis], columns: bool) -> int:
    """The axis along which pieces are cut: the vectors' only where that is long, or the only one reduced."""
    across = columns or (len(axes) > 1 and axes[-2].reduced and axes[-1].size < _PIECE)
    return len(axes) - (2 if across else 1)


def _kept_stride(view: View, kept: Sequence[Axis], axis: Axis) -> int:
    """The stride of a partial result (kept axes in order, then pieces) along a kept axis of the domain."""
    stride = view.strides[-1] * view.shape[-1]
    for other in reversed(kept):
        if other is axis:
            return stride
        stride *= other.size
    raise AssertionError("the axis is a kept one")


def _single(op: Any, x: View, attrs: dict[str, Any]) -> Graph:
    """A body of one op over one input."""
    t = TensorType(x.shape, x.dtype)
    operand = Node(Input, (), {}, (t,))
    node = Node(op, (operand,), attrs, op.result_types([t], attrs))
    return Graph([operand], [node], [node], "explicit")


def kernel_key(body: Body, layout: Layout) -> str:
    """What a kernel's code depends on: not shapes."""
    numbers = {node: k for k, node in enumerate([*body.graph.inputs, *body.graph.nodes])}
    lines = [repr(layout)]
    lines += [f"{n.dtype.name} {body.is_full[n]}" for n in body.graph.inputs]
    for n in body.graph.nodes:
        attrs = "" if n.op.view or n.op.reduces else " ".join(f"{k}={format_value(v)}" for k, v in n.attrs.items())
        operands = " ".join(str(numbers[o]) for o in n.operands)
        lines.append(f"{n.name}[{attrs}]({operands}) {n.dtype.name} {body.is_full[n]} {body.level[n]}")
    lines += [f"{numbers[n]} {n.shape == body.full}" for n in body.graph.outputs]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


Rule = Callable[[Planner, Node], View]
"""How an op that is not fused becomes commands; the view of its result."""
