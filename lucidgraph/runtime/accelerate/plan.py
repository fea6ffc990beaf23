"""From a fused graph to a table of commands: where each value lies, which kernel makes it, from which addresses.

The table is data. Kernels are shared between plans, whatever their sizes; only numbers differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import UnsupportedError
from ...ir import Graph, Node, TensorType
from ...ir.evaluate import constant_array
from ...ir.ops.core import Captured, CastBackward, Constant, Input, Kernel, Result, StopGradientBackward
from ...ir.types import Shape
from . import gathered, loops, pieces, tiles
from .body import MOST, NEAR, PADDING, Body, Kept, Layout, Slots, kernel_key, lane_count, most_registers, name_of
from .chains import chain_kernel, lead_of
from .commands import STOP, Addressed, Command, Plan
from .domain import Axis, axes_of, by_memory, collapsed, forward, ordered, short_rows
from .executor import BRIEF_COST, SHARED_COST
from .finishing import followers
from .gathered import INDICES, Gathered
from .pieces import Pieces
from .placing import Placing
from .settling import Settling
from .steps import Halves, Levels, Split, Steps, holds_up_rows, in_levels, kept_stride, split_of
from .system import SYSTEM, System
from .tiles import Tile, tile_of
from .turning import WORDS as TURNING
from .turning import turning, turning_kernel
from .unrolled import unrolled
from .views import View, beside, moved, viewed

_CHUNK: Final = 1 << 14
_CACHE_SHARE: Final = 1.6
_SHARE_BESIDE_BLOCKS: Final = 0.75
"""What a command moves, as a share of the last cache, from which its results are written past the caches: by columns,
blocks that are gone over several times need the room."""
_KEPT_BYTES: Final = 1 << 22
_BLOCK_BYTES: Final = 1 << 21
_STRIP_BYTES: Final = 1 << 19
_STRIP: Final = 64
"""A block of columns of more bytes, which is gone over several times, is made of strips that the second cache keeps:
pieces of rows cost less than reading from further away again, if they are of so many columns."""
_NO_LIMIT: Final = (1 << 62) - 1

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
        self.alike: dict[tuple[Node, ...], list[Node]] = {}
        """The nodes of several operands, by these: some are made together."""
        for node in graph.nodes:
            if len(node.operands) > 2:
                self.alike.setdefault(node.operands, []).append(node)
        self.moves: list[tuple[int, int, int]] = []
        """Commands that only copy one buffer's elements to the same places of another."""
        self.pieces: dict[Node, Pieces] = {}
        self.lazy = pieces.lazy(graph)
        self.shared = threads > 1 and sum(n.type.nbytes for n in (*graph.inputs, *graph.nodes)) >= SHARED_COST
        """Whether threads are likely to share the work."""
        self.followers = followers(graph, "matmul")
        """What reads each product, where a kernel does that may be its epilogue."""
        self.through = gathered.lazy(graph)
        """The gathers that kernels read through."""
        # Of the plan, not of the planner: that would be a circle, and hold what the graph captured.
        self.placing = Placing(graph, donated, partial(_room, self.plan))

    def run(self) -> Plan:
        for k, node in enumerate(self.graph.inputs):
            view = View.whole(self.plan.buffer("input", node.type.nbytes, k), node.shape, node.dtype)
            self.views[node] = (replace(view, strides=self.strides.get(k, view.strides)),)
        for node in self.graph.nodes:
            self.place(node)
        self.finish_outputs()
        Settling(self.plan, self.donated, self.moves, self.scratch_of).run(
            lambda: self.code("chain", lambda: chain_kernel(self.machine))
        )
        return self.plan

    # -- buffers

    def temporary(self, shape: Shape, dtype: DType) -> View:
        return View.whole(self.plan.buffer("temporary", prod(shape) * dtype.itemsize), shape, dtype)

    def constant(self, array: np.ndarray[Any, Any], dtype: DType) -> View:
        """A value known now."""
        array = np.ascontiguousarray(array, dtype.numpy).reshape(np.shape(array))
        self.plan.captured.append(array)
        return View.whole(self.plan.buffer("captured", array.nbytes, len(self.plan.captured) - 1), array.shape, dtype)

    def view(self, node: Node) -> View:
        """Where a value lies. What is in pieces so far is put together, what is to be read through indices is gathered,
        and a view that strides cannot say is copied, when it is first asked for."""
        found = self.views.get(node)
        if found is None:
            found = self.views[node] = (self.put_together(node),)
        return found[0]

    def put_together(self, node: Node) -> View:
        if node in self.through:
            return self.table[node.name](self, node)
        made = self.pieces.get(node)
        if made is None:
            seen = viewed(node, self.contiguous(self.view(node.operands[0])))
            assert seen is not None
            return seen
        out = self.temporary(node.shape, node.dtype)
        for part in made.parts:
            self.copy(part.view, out.sliced(part.start, part.stop, (1,) * len(node.shape)))
        return out

    def seen_as(self, node: Node, shape: Shape) -> View | None:
        """A value in another shape, without a copy where there need not be one; None where there must."""
        if node not in self.views and node not in self.pieces and node.name == "reshape":
            return self.view(node.operands[0]).reshaped(shape)
        return self.view(node).reshaped(shape)

    def seen(self, node: Node) -> View | Pieces:
        """Where a value lies, or the pieces that it is of."""
        return self.pieces[node] if node in self.pieces and node not in self.views else self.view(node)

    def in_pieces(self, node: Node) -> Pieces | None:
        """A value that is only read in pieces."""
        if node not in self.lazy:
            return None
        if not node.op.view:
            return None if self.placing.takes(node) else pieces.made(node, [self.seen(o) for o in node.operands])
        x = self.seen(node.operands[0])
        return pieces.seen(node, x) if isinstance(x, Pieces) else None

    def ready(self, node: Node) -> View | None:
        """Where a value lies, if it is there by now, or a view of what is."""
        views: list[Node] = []
        while node not in self.views:
            if node.op is Result and node.operands[0] in self.views:
                self.place(node)
                break
            if not node.op.view:
                return None
            views.append(node)
            node = node.operands[0]
        x: View | None = self.views[node][0]
        for view in reversed(views):
            x = viewed(view, x) if x is not None else None
        return x

    # -- nodes

    def place(self, node: Node) -> None:
        if node.op is Kernel and node in self.views:
            return  # made with what it reads
        whole = self.in_pieces(node)
        if whole is not None:
            self.pieces[node] = whole
        elif node in self.through:
            for operand in node.operands:
                self.view(operand)
        elif node.op is Kernel:
            self.kernel(node)
        elif node.op is Result:
            self.views[node] = (self.views[node.operands[0]][node.attrs["index"]],)
        elif node.op is Constant:
            self.views[node] = (self.constant(constant_array(node.attrs["value"], node.type), node.dtype),)
        elif node.op is Captured:
            self.views[node] = (self.constant(np.asarray(Captured.array(node.attrs["value"])), node.dtype),)
        elif node.op.view:
            seen = viewed(node, self.view(node.operands[0]))
            if seen is not None:
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
        made = self.results(node)
        apart = [o for o in node.operands if o not in self.views and (o in self.pieces or o in self.through)]
        if apart and all(o in self.through for o in apart):
            self.by_index(node, made)
            return
        for operand in apart:
            if operand in self.through:
                self.view(operand)
        if not apart or not self.by_boxes(node, made):
            self.fused(body, [self.view(o) for o in node.operands], made, node)

    def results(self, node: Node) -> tuple[View, ...]:
        """Where a kernel's results will lie."""
        made = self.views[node] = tuple(
            self.placing.of_kernel(node, k) or self.temporary(t.shape, t.dtype) for k, t in enumerate(node.types)
        )
        return made

    def by_index(self, node: Node, outputs: Sequence[View]) -> None:
        """An elementwise kernel that reads through indices."""
        takes = [o for o in node.operands if o not in self.views and o in self.through]
        inputs = [self.taken(o) if o in takes else self.view(o) for o in node.operands]
        self.through_indices(node.attrs["body"], inputs, outputs, takes[0])

    def taken(self, node: Node) -> Gathered:
        """What a gather reads."""
        x, indices = (self.view(o) for o in node.operands)
        return gathered.gathered(node, x, indices if indices.dtype in INDICES else self.cast(indices, dtypes.int64))

    def through_indices(
        self, graph: Graph, inputs: Sequence[View | Gathered], outputs: Sequence[View], node: Node
    ) -> None:
        """One command: elementwise, reading through indices; ``node`` is whose they are."""
        body = Body(graph, Kernel.domain(graph)[0])
        given = gathered.arguments(body.full, inputs, outputs, self.machine)
        code = self.code(
            kernel_key(body, given.layout), lambda: gathered.build(body, given.layout, self.machine)
        )
        cost = sum(view.touched for _, view in given.pointers)
        cost += prod(body.full) * sum(n.op.work for n in body.graph.nodes) // 2
        name = node.name if name_of(body) in ("copy", "stop_gradient") else f"{node.name} {name_of(body)}"
        made = self.command(
            name, code, given.words, given.pointers, given.items, cost, len(outputs), node=node
        )
        made.pointers.append((given.stop, STOP, 0))
        made.number = given.number
        made.form = "by rows, through indices"

    def by_boxes(self, node: Node, outputs: Sequence[View]) -> bool:
        """An elementwise kernel over arrays in pieces, box by box; False where it would be too many."""
        body = Body(node.attrs["body"], Kernel.domain(node.attrs["body"])[0])
        values = [Pieces.of(self.seen(o)) for o in node.operands]
        boxes = pieces.boxes(body.full, values)
        if not boxes:
            return False
        values += map(Pieces.of, outputs)
        views = [[pieces.within(value, *box) for value in values] for box in boxes]
        inputs = len(node.operands)
        axes, columns = pieces.arranged(
            [box[0].shape for box in views], [[v.strides for v in box] for box in views],
            [v.dtype.itemsize for v in views[0]], lane_count(body, self.machine), inputs,
        )  # fmt: skip
        known: dict[Layout, Addressed] = {}
        for box, own in zip(views, axes, strict=True):
            self.nest(body, own, columns, box[:inputs], box[inputs:], node, most=MOST, known=known)
        return True

    # -- commands

    def command(
        self, name: str, code: Addressed, words: list[int], pointers: Sequence[tuple[int, View]], items: int, cost: int,
        writes: int, split: bool = True, node: Node | None = None,
    ) -> Command:  # fmt: skip
        """Append a command; the last ``writes`` pointers are what it writes."""
        number = len(self.plan.commands)
        placed = [(slot, view.buffer, view.offset) for slot, view in pointers]
        split = split and items > 1 and cost >= BRIEF_COST
        passed = moved(view for _, view in pointers)
        made = Command(name, code, words, placed, items, split, cost, node, moved=passed, writes=writes)
        made.touch(self.plan.buffers, number)
        self.plan.commands.append(made)
        return made

    def fused(
        self, graph: Graph, inputs: Sequence[View], outputs: Sequence[View], node: Node | None = None,
        count: int | None = None, domain: tuple[Shape, tuple[int, ...]] | None = None,
    ) -> None:  # fmt: skip
        """A kernel command over views. ``count`` is what a mean divides by, where not the points reduced; ``domain``
        the full shape and the axes that row values are without, where nothing in the body says so."""
        full, reduced = domain or Kernel.domain(graph)
        if not any(view.size for view in outputs):
            return
        if count is None and any(run(self, graph, inputs, outputs, node) for run in self.system.singles):
            return
        if [n.op for n in graph.nodes] == [StopGradientBackward] and self.turned(inputs[0], outputs[0]):
            return
        body = Body(graph, full)
        made_here = any(self.plan.buffers[v.buffer].kind == "temporary" for v in inputs)
        if count is None and self.shared and made_here and holds_up_rows(body, reduced, inputs):
            halves = Halves(graph, full)
            made = [outputs[k] for k in halves.full_outputs]
            self.fused(halves.full, [inputs[k] for k in halves.full_inputs], made, node)
            read = [*(inputs[k] for k in halves.rows_inputs), *(made[k] for k in halves.rows_made)]
            self.fused(halves.rows, read, [outputs[k] for k in halves.rows_outputs], node)
            return
        given = inputs = self.straightened(body, reduced, inputs, outputs)
        axes, starts = forward(body, axes_of(body, full, reduced, [*inputs, *outputs]))
        if not any(n.op.reduces for n in graph.nodes):
            axes = [replace(axis, reduced=False) for axis in axes]
        inputs = [replace(v, offset=v.offset + start) for v, start in zip(inputs, starts, strict=False)]
        axes = collapsed(by_memory(body, axes))
        items = [v.dtype.itemsize for v in (*inputs, *outputs)]
        tile = tile_of(body, axes, items, self.machine, self.threads)
        if tile is not None:
            self.tiled(body, tile, [*inputs, *outputs], node, count)
            return
        axes, columns = ordered(axes, items, lane_count(body, self.machine), len(inputs))
        few = unrolled(graph, full, reduced, given, outputs) if columns and count is None else None
        if few is not None:
            self.fused(few.graph, few.inputs, few.outputs, node)
            return
        levels = in_levels(body, axes, columns, lane_count(body, self.machine))
        if levels is not None:
            self.level_by_level(levels, (full, reduced), given, outputs, node, count)
            return
        split = split_of(body, axes, columns, lane_count(body, self.machine))
        if split is not None:
            self.in_two_steps(body, axes, columns, split, inputs, outputs, node)
            return
        self.nest(body, axes, columns, inputs, outputs, node, count=count)

    def straightened(
        self, body: Body, reduced: tuple[int, ...], inputs: Sequence[View], outputs: Sequence[View]
    ) -> list[View]:
        """The inputs, copied where the kernel's vectors would jump from line to line in them."""
        if not any(v.shape == body.full and turning(v, _row_major(v)) for v in inputs):
            return list(inputs)
        views = [*inputs, *outputs]
        axes = collapsed(by_memory(body, axes_of(body, body.full, reduced, views)))
        items = [v.dtype.itemsize for v in views]
        vector = ordered(axes, items, lane_count(body, self.machine), len(inputs))[0][-1]
        return [
            self.contiguous(v)
            if v.shape == body.full and vector.strides[k] not in (0, v.dtype.itemsize) and turning(v, _row_major(v))
            else v
            for k, v in enumerate(inputs)
        ]

    def nest(
        self, body: Body, axes: list[Axis], columns: bool, inputs: Sequence[View], outputs: Sequence[View],
        node: Node | None, limit: int = _NO_LIMIT, pieces: int = _NO_LIMIT, count: int | None = None,
        most: int | None = None, known: dict[Layout, Addressed] | None = None, across: bool = False,
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
        if most is None:
            most = most_registers(body, columns, vector.size, self.machine)
        within, block = short_rows(body, columns, outer, vector)
        next_to = beside(inputs, access) if known is None else ()
        layout = Layout(columns, len(outer), len(inner), tuple(access), most, columns or across, within, next_to)
        code = known.get(layout) if known is not None else None
        if code is None:
            code = self.code(kernel_key(body, layout), lambda: loops.build(body.graph, body.full, layout, self.machine))
        if known is not None:
            known[layout] = code
        slots = Slots(layout)
        items = [v.dtype.itemsize for v in views]
        lanes = lane_count(body, self.machine, most)
        words = [0] * slots.total
        points = prod(a.size for a in axes)
        rows = prod(a.size for a in outer)
        folded = prod(a.size for a in axes if a.reduced)
        kept = Kept(body)
        chunk = self.columns_together(body, vector.size, rows, folded, lanes, kept) if columns else vector.size
        chunks = -(-vector.size // chunk) if columns else 1
        span = chunk if columns else -(-vector.size // PADDING) * PADDING
        kept_stride = (prod(a.size for a in inner) * span + PADDING) * kept.cell
        touched = sum(v.touched for v in views)
        written = sum(v.nbytes for v, n in zip(outputs, body.graph.outputs, strict=True) if n.shape == body.full)
        share = _SHARE_BESIDE_BLOCKS if columns and body.passes > 1 else _CACHE_SHARE
        head = {
            "vector": vector.size, "chunk": max(chunk, 1), "chunks": max(chunks, 1), "limit": limit, "pieces": pieces,
            "count": folded if count is None else count, "kept_stride": kept_stride,
            "scratch_stride": kept_stride * kept.count,
            "past": int(written > 0 and moved(views) > self.system.cache * share), "block": block, "blocks": 1,
        }  # fmt: skip
        items_of = rows * chunks
        if within:
            head["blocks"] = -(-outer[-within].size // block)
            items_of = prod(a.size for a in outer[:-within]) * head["blocks"]
        for name, value in head.items():
            words[slots.head(name)] = value
        for k, axis in enumerate([*outer, *inner]):
            words[slots.sizes + k] = axis.size
            for operand, stride in enumerate(axis.strides):
                words[slots.stride(operand, k)] = stride
        for operand, stride in enumerate(vector.strides):
            words[slots.stride(operand, layout.axes - 1)] = stride
        cost = touched + points * sum(n.op.work for n in body.graph.nodes) // 2
        pointers = [(slots.pointers + k, view) for k, view in enumerate(views)]
        made = self.command(
            name_of(body), code, words, pointers, items_of, cost, len(outputs), node=node,
        )  # fmt: skip
        made.replaces = _replaceable(body, inputs, outputs)
        made.form = f"by {'columns' if columns else 'rows'}"
        if body.passes > 1:
            made.form += f", {body.passes} times over each"
        if limit == _NO_LIMIT:
            made.lead = lead_of(slots, outer, inner, vector, items, items_of, (chunk, block))
        if kept.count:
            self.scratch_of.append((made, slots.head("scratch")))
            self.plan.scratch = max(self.plan.scratch, head["scratch_stride"] * self.threads)

    def tiled(self, body: Body, tile: Tile, views: Sequence[View], node: Node | None, count: int | None) -> None:
        """One command: a reduction over broadcast operands."""
        code = self.code(kernel_key(body, tile.layout), lambda: tiles.build(body, tile.layout, self.machine))
        if count is None:
            count = prod(a.size for a in tile.axes if a.reduced)
        outputs = views[len(body.graph.inputs) :]
        cost = sum(v.touched for v in views)
        cost += tile.points * sum(n.op.work for n in body.graph.nodes) // 2
        pointers = [(tile.pointer(k), view) for k, view in enumerate(views)]
        name, writes = name_of(body), len(outputs)
        made = self.command(name, code, tile.words(count), pointers, tile.items, cost, writes, node=node)
        made.form = f"in tiles of {tile.block} rows, {tile.layout.several} steps at a time"

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
            column = folded * sum(n.dtype.itemsize for n in body.graph.inputs if body.is_full[n])
            if body.passes > 1 and _STRIP * column <= _STRIP_BYTES and wanted * column > _BLOCK_BYTES:
                wanted = _STRIP_BYTES // column
        return max(min(wanted, size + lanes - 1), lanes) // lanes * lanes

    # -- one long reduction, in pieces

    def level_by_level(
        self, levels: Levels, domain: tuple[Shape, tuple[int, ...]], inputs: Sequence[View], outputs: Sequence[View],
        node: Node | None, count: int | None,
    ) -> None:  # fmt: skip
        """The folds of a kernel's first pass, then the rest."""
        totals = {k: outputs[place] for place, k in levels.given.items()}
        folds = [totals.get(k) or self.temporary(f.shape, f.dtype) for k, f in enumerate(levels.folds)]
        self.fused(levels.first, [inputs[k] for k in levels.first_inputs], folds, node, count)
        read = [inputs[k] for k in levels.second_inputs]
        self.fused(levels.second, [*read, *folds], [outputs[k] for k in levels.left], node, count, domain)

    def in_two_steps(
        self, body: Body, axes: list[Axis], columns: bool, split: Split, inputs: Sequence[View],
        outputs: Sequence[View], node: Node | None,
    ) -> None:  # fmt: skip
        """Partial results of fixed pieces, then theirs: the pieces do not depend on the number of threads."""
        place, piece, pieces = split.place, split.piece, split.pieces
        cut_axis = axes[place]
        steps = Steps(body.graph, body.full, pieces)
        partials = [self.temporary(t.shape, t.dtype) for t in steps.partial_types]
        read = [inputs[k] for k in steps.partial_inputs]
        outer = Axis(pieces, False, tuple(s * piece for s in cut_axis.strides))
        inner = [] if split.outermost else [Axis(piece, True, cut_axis.strides)]
        cut = [*axes[:place], *inner, *axes[place + 1 :]]
        first = next((k for k, a in enumerate(cut) if a.reduced), len(cut) - 1)
        cut.insert(0 if split.outermost else first, outer)
        # Strides of the operands read, then of the partial results: along the kept axes in their order, pieces last.
        kept = [a for a in axes if not a.reduced]
        table = []
        for axis in cut:
            moves = [axis.strides[k] for k in steps.partial_inputs]
            full = [axis.strides[len(inputs) + k] for k in steps.written]
            for view in partials:
                if axis is outer:
                    moves.append(view.strides[-1])
                else:
                    moves.append(0 if axis.reduced else kept_stride(view, kept, axis))
            table.append(Axis(axis.size, axis.reduced, (*moves, *full)))
        partial = Body(steps.partial, body.full)
        results = [*partials, *(outputs[k] for k in steps.written)]
        if split.outermost:
            self.nest(partial, table, columns, read, results, node)
        else:
            self.nest(partial, table, columns, read, results, node, limit=cut_axis.size, pieces=pieces,
                      across=place < len(axes) - 1)  # fmt: skip
        finals = [steps.row_view(inputs[k]) for k in steps.final_inputs]
        count = prod(a.size for a in axes if a.reduced)
        rows = [steps.row_view(outputs[k]) for k in steps.rows]
        self.fused(steps.final, [*partials, *finals], rows, node, count=count)

    # -- copies and conversions

    def copy(self, x: View, out: View) -> None:
        """Elements of ``x`` to the places of ``out``, which has the same shape."""
        if x.size:
            number = len(self.plan.commands)
            self.fused(single(StopGradientBackward, x.shape, x.dtype, {}), [x], [out])
            if (x.offset, x.strides) == (out.offset, out.strides):
                self.moves.append((number, x.buffer, out.buffer))

    def turned(self, x: View, out: View) -> bool:
        """A copy by square tiles, where one is called for."""
        values = turning(x, out)
        if values is None:
            return False
        size = x.dtype.itemsize
        code = self.code(f"turning {size}", lambda: turning_kernel(size, self.machine))
        words = [values.get(name, 0) for name in TURNING]
        pointers = [(TURNING.index("x"), x), (TURNING.index("y"), out)]
        made = self.command("copy", code, words, pointers, values["first"] * values["blocks"], 2 * x.nbytes, 1)
        made.form = "in tiles, turned"
        return True

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
        self.fused(single(CastBackward, x.shape, x.dtype, {"dtype": dtype}), [x], [out])
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
            self.plan.outputs.append(node.type)


def _row_major(view: View) -> View:
    return View.whole(-1, view.shape, view.dtype)


def _room(plan: Plan, node: Node) -> View:
    return View.whole(plan.buffer("temporary", node.type.nbytes), node.shape, node.dtype)


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


def single(op: Any, shape: Shape, dtype: DType, attrs: dict[str, Any]) -> Graph:
    """A body of one op over one input."""
    t = TensorType(shape, dtype)
    operand = Node(Input, (), {}, (t,))
    node = Node(op, (operand,), attrs, op.result_types([t], attrs))
    return Graph([operand], [node], [node], "explicit")


Rule = Callable[[Planner, Node], View]
"""How an op that is not fused becomes commands; the view of its result."""
