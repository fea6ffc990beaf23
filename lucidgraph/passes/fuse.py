"""Elementwise ops and reductions that can share a loop become Kernel nodes, which hold them as a graph.

A kernel has a domain: a full shape S and at most one set of reduced axes A. Its members are *full* values, one
element per point of S, and *row* values, one per point of S without A. Row values are broadcast back to S inside
the kernel, so a whole softmax, or a layer norm and its gradient, is one kernel. Constants are repeated in every
kernel that reads them. Which ops join is asked of the ops: ``elementwise``, ``reduces``, ``view``.

Kernels and the nodes between them are units kept in an order in which each stands after what it reads. A node that
joins a kernel may need units that stand after it: they are moved before it, unless they depend on it (the new edges
would close a cycle). That search looks only at what stands between, so a chain takes time linear in its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ..ir import Builder, Graph, Node, Origin, TensorType, Var, topological
from ..ir.ops.core import Constant, Input, Kernel, Result
from ..ir.ops.reduce import Reduction
from ..ir.types import Shape
from .rebuild import rebuild
from .share import Sharing
from .units import Order, Unit

MAX_MEMBERS: Final = 96
"""Longer chains are cut, so that code stays small and equal pieces share one kernel."""
_LOOKED_AT: Final = 1024
"""How many reads are followed to find out whether a kernel may take a node in; beyond, it does not."""


class _Fusion:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.count = 0
        self.order = Order()
        self.unit_of: dict[Node, Unit] = {}
        self.base: dict[Node, Node] = {}
        """What a chain of views starts from."""
        self.place_of = {node: k for k, node in enumerate(graph.nodes)}
        self.sharing: Sharing | None = None
        self.in_two: dict[Node, tuple[int, ...]] = {}
        """Reductions that could begin in the kernel of what they read, over these of their axes."""

    def run(self) -> None:
        for node in self.graph.nodes:
            if node.op.view:
                self.base[node] = self.base.get(node.operands[0], node.operands[0])
            elif (node.op.elementwise or node.op.reduces) and len(node.types) == 1:
                self.place(node)
            elif node.op is not Constant:
                self.join(node, self.unit(None), False)

    def finished(self) -> Graph:
        self.sharing = Sharing(self.order, self.unit_of, self.base, self.graph.outputs, self.merged, MAX_MEMBERS)
        self.sharing.run()
        fused = self.rebuilt()
        self.dropped()
        return fused

    def dropped(self) -> None:
        """Break the ring of units, and the one with ``sharing``: nodes, with the arrays they hold, must not wait for
        their collection."""
        self.sharing = None
        for unit in {*self.order, *self.unit_of.values()}:
            unit.members.clear()
            unit.reads.clear()

    def unit(self, full: Shape | None) -> Unit:
        made = Unit(self.count, full)
        self.count += 1
        self.order.append(made)
        return made

    def read(self, node: Node) -> Iterable[Node]:
        """The operands of a node, through views."""
        return (self.base.get(o, o) for o in node.operands)

    # -- where a node goes

    def place(self, node: Node) -> None:
        for unit in self.candidates(node):
            row = self.fits(node, unit)
            if row is not None and self.pulled(self.read(node), unit):
                self.join(node, unit, row)
                return
        if node.op.reduces:
            self.consider_two(node)
        self.join(node, self.unit(node.operands[0].shape if node.op.reduces else node.shape), node.op.reduces)

    def consider_two(self, node: Node) -> None:
        """Note where a reduction over more axes than its operand's kernel has could begin in that kernel."""
        operand, axes = node.operands[0], node.attrs["axis"]
        unit = self.unit_of.get(operand)
        if unit is not None and unit.full == operand.shape and unit.axes and set(unit.axes) < set(axes):
            self.in_two[node] = unit.axes

    def candidates(self, node: Node) -> list[Unit]:
        """The kernels of the operands, the latest first."""
        found = {u.number: u for o in self.read(node) if (u := self.unit_of.get(o)) is not None and u.full is not None}
        return [found[k] for k in sorted(found, reverse=True)]

    def fits(self, node: Node, unit: Unit) -> bool | None:
        """Whether ``node`` would be a row value of ``unit`` (True), a full one (False), or does not fit (None)."""
        if len(unit.members) >= MAX_MEMBERS:
            return None
        if node.op.reduces:
            axes = node.attrs["axis"]
            if node.operands[0].shape != unit.full or unit.axes not in (None, axes) or not axes:
                return None
            return True if self.readable(node, unit, row=False) else None
        if node.shape == unit.full and self.readable(node, unit, row=False):
            return False
        if node.shape in unit.rows and self.readable(node, unit, row=True):
            return True
        return None

    def readable(self, node: Node, unit: Unit, row: bool) -> bool:
        """Whether a full (or row) value of a kernel can read what is made in ``unit`` there: at the same point."""
        for operand in node.operands:
            base = self.base.get(operand, operand)
            inside = unit.members.get(base)
            if inside is None:
                continue
            if inside:
                if not self.is_row_view(operand, base, unit, row):
                    return False
            elif row or operand is not base:
                return False
        return True

    def is_row_view(self, operand: Node, base: Node, unit: Unit, row: bool) -> bool:
        """Whether a chain of views over a row value only adds, drops or repeats the reduced axes.

        The two shapes of row values differ in rank, and the elements of both stand in the same order: a view that
        turns one into the other moves nothing. A view from a shape to itself does (it flips, it transposes).
        """
        while operand is not base:
            source = operand.operands[0]
            spread = not row and operand.shape == unit.full and source.shape == unit.kept
            if operand.shape == source.shape or not (spread or operand.shape in unit.rows):
                return False
            operand = source
        return True

    def pulled(self, nodes: Iterable[Node], unit: Unit, besides: Unit | None = None) -> bool:
        """Move what makes these nodes before ``unit``, if it does not depend on ``unit``.

        Direct reads of ``unit`` do not count, nor do those of ``besides``.
        """
        needed: set[Unit] = set()
        stack = [u for n in nodes if (u := self.unit_of.get(n)) is not None and u is not unit and u is not besides]
        left = _LOOKED_AT
        while stack:
            u = stack.pop()
            if u.at < unit.at or u in needed:
                continue
            left -= len(u.reads)
            if u is unit or left < 0:
                return False
            needed.add(u)
            stack.extend(v for n in u.reads if (v := self.unit_of.get(n)) is not None and v is not u)
        if needed:
            found = sorted(needed, key=lambda u: u.at)
            for u in found:
                self.order.remove(u)
            self.order.insert(found, unit)
        return True

    def join(self, node: Node, unit: Unit, row: bool) -> None:
        """Make a node a member, and the kernels that it reads one with its own where that can be."""
        if unit.full is not None and node.op.reduces and unit.axes is None:
            unit.set_axes(node.attrs["axis"])
        unit.members[node] = row
        unit.reads.update(dict.fromkeys(self.read(node)))
        self.unit_of[node] = unit
        if unit.full is not None:
            for other in self.candidates(node):
                if other is not unit:
                    unit = self.merged(other, unit)

    def merged(self, other: Unit, unit: Unit) -> Unit:
        """``unit`` in one with ``other``, which it reads, where both have one domain and no third lies between them."""
        if other.full != unit.full or len(other.members) + len(unit.members) > MAX_MEMBERS:
            return unit
        if other.axes is not None and unit.axes is not None and other.axes != unit.axes:
            return unit
        if not all(self.readable(node, other, row) for node, row in unit.members.items()):
            return unit
        if not self.pulled(unit.reads, other, unit):
            return unit
        self.order.remove(unit)
        for node, row in unit.members.items():
            if self.unit_of[node] is unit:
                self.unit_of[node] = other
            other.members[node] = row
        other.reads.update(unit.reads)
        if other.axes is None and unit.axes is not None:
            other.set_axes(unit.axes)
        other.number = unit.number
        return other

    # -- the new graph

    def rebuilt(self) -> Graph:
        order: list[Node | Unit] = []
        seen: set[Node | Unit] = set(self.graph.inputs)
        for start in (*(n for n in self.graph.nodes if n.op.effect), *self.graph.outputs):
            stack: list[tuple[Node | Unit, bool]] = [(self.home(start), False)]
            while stack:
                unit, done = stack.pop()
                if done:
                    order.append(unit)
                elif unit not in seen:
                    seen.add(unit)
                    stack.append((unit, True))
                    reads = self.externals(unit) if isinstance(unit, Unit) else unit.operands
                    stack.extend((self.home(o), False) for o in reversed(reads))
        users = self.used_outside(order)
        new: dict[Node, Node] = {node: node for node in self.graph.inputs}
        nodes: list[Node] = []
        for unit in order:
            if isinstance(unit, Unit):
                self.emit(unit, users, new, nodes)
            else:
                operands = tuple(new[o] for o in unit.operands)
                new[unit] = unit if operands == unit.operands else unit.replace(operands=operands)
                nodes.append(new[unit])
        outputs = [new[node] for node in self.graph.outputs]
        return Graph(self.graph.inputs, nodes, outputs, "explicit", self.graph.input_names)

    def home(self, node: Node) -> Node | Unit:
        """The kernel that makes a value, or the node itself."""
        unit = self.unit_of.get(node)
        return node if unit is None or unit.full is None else unit

    def inside(self, operand: Node, unit: Unit) -> bool:
        """Whether an operand is made inside the kernel: a member, a view of a row value, or a constant."""
        base = self.base.get(operand, operand)
        return base.op is Constant or base in unit.members

    def externals(self, unit: Unit) -> list[Node]:
        reads = dict.fromkeys(o for node in unit.members for o in node.operands if not self.inside(o, unit))
        return list(reads)

    def used_outside(self, order: Sequence[Node | Unit]) -> set[Node]:
        """The members whose value leaves their kernel."""
        used = set(self.graph.outputs)
        for unit in order:
            used.update(self.externals(unit) if isinstance(unit, Unit) else unit.operands)
        return used

    def emit(self, unit: Unit, users: set[Node], new: dict[Node, Node], nodes: list[Node]) -> None:
        externals = self.externals(unit)
        members = sorted(unit.members, key=self.place_of.__getitem__)
        local: dict[Node, Node] = {}
        for node in externals:
            local[node] = Node(Input, (), {}, (TensorType(node.shape, node.dtype),))
        body: list[Node] = []

        # Views and constants are written where they are first read.
        for node in topological(members, stop=local.__contains__):
            if node not in local:
                operands = tuple(local[operand] for operand in node.operands)
                local[node] = node if operands == node.operands else node.replace(operands=operands)
                body.append(local[node])
        leaving = [node for node in members if node in users and self.unit_of[node] is unit]
        inner = Graph([local[n] for n in externals], body, [local[n] for n in leaving], "explicit")
        kernel = Node(
            Kernel, tuple(new[n] for n in externals), {"body": inner}, tuple(n.type for n in leaving),
            source=members[-1].source, scope=members[-1].scope, origin=Origin("fuse", self.told(unit, members)),
        )  # fmt: skip
        nodes.append(kernel)
        for k, node in enumerate(leaving):
            if len(leaving) == 1:
                new[node] = kernel
            else:
                new[node] = Node(
                    Result, (kernel,), {"index": k}, (node.type,), source=node.source, origin=kernel.origin
                )
                nodes.append(new[node])


    def told(self, unit: Unit, members: Sequence[Node]) -> str:
        """What a kernel is made of, and what it makes again rather than read."""
        again = [node for node in members if self.unit_of[node] is not unit]
        if not again:
            return _names(members)
        values = [node for node in again if not any(node in user.operands for user in again)]
        nbytes = sum(node.type.nbytes for node in values)
        work = sum(node.op.work for node in again)
        return f"{_names(members)}; again {_names(again)}: {work} instructions an element, not {nbytes:,} bytes read"


def _names(members: Sequence[Node]) -> str:
    names = list(dict.fromkeys(node.name for node in members))
    return " ".join(names if len(names) <= 8 else [*names[:7], "…"])


def _in_two(graph: Graph, first: Mapping[Node, tuple[int, ...]]) -> Graph:
    """The graph with these reductions as two: over some of their axes first, then over the others."""

    def visit(builder: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        axes = first.get(node)
        if axes is None or not issubclass(node.op, Reduction):
            return None
        rest = tuple(k for k in node.attrs["axis"] if k not in axes)
        made = node.op.in_two(Var(builder, operands[0]), axes, rest)
        return None if made is None else made.reshape(node.shape).node

    return rebuild(graph, visit, stage="fuse")


def fuse(graph: Graph) -> Graph:
    """The graph with every elementwise op and reduction inside a Kernel node."""
    fusion = _Fusion(graph)
    fusion.run()
    if fusion.in_two:
        fusion.dropped()
        fusion = _Fusion(_in_two(graph, fusion.in_two))
        fusion.run()
    return fusion.finished()
