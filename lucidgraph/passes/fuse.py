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

from collections.abc import Iterable, Sequence
from typing import Final

from ..ir import Graph, Node, Origin, TensorType, topological
from ..ir.ops.core import Constant, Input, Kernel, Result
from ..ir.types import Shape

MAX_MEMBERS: Final = 96
"""Longer chains are cut, so that code stays small and equal pieces share one kernel."""
_LOOKED_AT: Final = 1024
"""How many reads are followed to find out whether a kernel may take a node in; beyond, it does not."""
_GAP: Final = 1 << 128


class _Unit:
    """A kernel in the making, or one node outside kernels: ``full`` is None."""

    __slots__ = ("at", "axes", "following", "full", "members", "number", "previous", "reads", "rows")

    def __init__(self, number: int, full: Shape | None) -> None:
        self.number = number
        self.full = full
        self.axes: tuple[int, ...] | None = None
        self.members: dict[Node, bool] = {}
        """Each member, and whether it is a row value."""
        self.reads: dict[Node, None] = {}
        """What members read, through views."""
        self.rows: tuple[Shape, ...] = ()
        """The shapes of row values."""
        self.at = 0
        self.previous: _Unit = self
        self.following: _Unit = self

    def set_axes(self, axes: tuple[int, ...]) -> None:
        assert self.full is not None
        self.axes = axes
        kept = tuple(1 if k in axes else n for k, n in enumerate(self.full))
        self.rows = (tuple(n for k, n in enumerate(self.full) if k not in axes), kept)

    @property
    def kept(self) -> Shape:
        """The full shape with reduced axes of size 1."""
        return self.rows[1]


class _Order:
    """Units in a line, each after all that it reads. Neighbours can be asked for, and places compared, at once."""

    def __init__(self) -> None:
        self.first = _Unit(-1, None)

    def append(self, unit: _Unit) -> None:
        self.insert([unit], self.first)

    def insert(self, units: Sequence[_Unit], after: _Unit) -> None:
        """Put units, in their order, before ``after``; before the first means at the end."""
        before = after.previous
        low = before.at
        gap = _GAP if after is self.first else (after.at - low) // (len(units) + 1)
        for unit in units:
            low += gap
            unit.at = low
            unit.previous, before.following = before, unit
            before = unit
        before.following, after.previous = after, before
        if not gap:
            self.spread()

    def remove(self, unit: _Unit) -> None:
        unit.previous.following, unit.following.previous = unit.following, unit.previous

    def spread(self) -> None:
        """Number the line anew."""
        unit, at = self.first.following, 0
        while unit is not self.first:
            at += _GAP
            unit.at = at
            unit = unit.following


class _Fusion:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.count = 0
        self.order = _Order()
        self.unit_of: dict[Node, _Unit] = {}
        self.base: dict[Node, Node] = {}
        """What a chain of views starts from."""
        self.place_of = {node: k for k, node in enumerate(graph.nodes)}

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if node.op.view:
                self.base[node] = self.base.get(node.operands[0], node.operands[0])
            elif (node.op.elementwise or node.op.reduces) and len(node.types) == 1:
                self.place(node)
            elif node.op is not Constant:
                self.join(node, self.unit(None), False)
        fused = self.rebuilt()
        # The units stand in a ring: the nodes in them, with the arrays they hold, must not wait for its collection.
        for unit in self.unit_of.values():
            unit.members.clear()
            unit.reads.clear()
        return fused

    def unit(self, full: Shape | None) -> _Unit:
        made = _Unit(self.count, full)
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
        self.join(node, self.unit(node.operands[0].shape if node.op.reduces else node.shape), node.op.reduces)

    def candidates(self, node: Node) -> list[_Unit]:
        """The kernels of the operands, the latest first."""
        found = {u.number: u for o in self.read(node) if (u := self.unit_of.get(o)) is not None and u.full is not None}
        return [found[k] for k in sorted(found, reverse=True)]

    def fits(self, node: Node, unit: _Unit) -> bool | None:
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

    def readable(self, node: Node, unit: _Unit, row: bool) -> bool:
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

    def is_row_view(self, operand: Node, base: Node, unit: _Unit, row: bool) -> bool:
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

    def pulled(self, nodes: Iterable[Node], unit: _Unit, besides: _Unit | None = None) -> bool:
        """Move what makes these nodes before ``unit``, if it does not depend on ``unit``.

        Direct reads of ``unit`` do not count, nor do those of ``besides``.
        """
        needed: set[_Unit] = set()
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

    def join(self, node: Node, unit: _Unit, row: bool) -> None:
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

    def merged(self, other: _Unit, unit: _Unit) -> _Unit:
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
            self.unit_of[node] = other
            other.members[node] = row
        other.reads.update(unit.reads)
        if other.axes is None and unit.axes is not None:
            other.set_axes(unit.axes)
        other.number = unit.number
        return other

    # -- the new graph

    def rebuilt(self) -> Graph:
        order: list[Node | _Unit] = []
        seen: set[Node | _Unit] = set(self.graph.inputs)
        for start in (*(n for n in self.graph.nodes if n.op.effect), *self.graph.outputs):
            stack: list[tuple[Node | _Unit, bool]] = [(self.home(start), False)]
            while stack:
                unit, done = stack.pop()
                if done:
                    order.append(unit)
                elif unit not in seen:
                    seen.add(unit)
                    stack.append((unit, True))
                    reads = self.externals(unit) if isinstance(unit, _Unit) else unit.operands
                    stack.extend((self.home(o), False) for o in reversed(reads))
        users = self.used_outside(order)
        new: dict[Node, Node] = {node: node for node in self.graph.inputs}
        nodes: list[Node] = []
        for unit in order:
            if isinstance(unit, _Unit):
                self.emit(unit, users, new, nodes)
            else:
                operands = tuple(new[o] for o in unit.operands)
                new[unit] = unit if operands == unit.operands else unit.replace(operands=operands)
                nodes.append(new[unit])
        outputs = [new[node] for node in self.graph.outputs]
        return Graph(self.graph.inputs, nodes, outputs, "explicit", self.graph.input_names)

    def home(self, node: Node) -> Node | _Unit:
        """The kernel that makes a value, or the node itself."""
        unit = self.unit_of.get(node)
        return node if unit is None or unit.full is None else unit

    def inside(self, operand: Node, unit: _Unit) -> bool:
        """Whether an operand is made inside the kernel: a member, a view of a row value, or a constant."""
        base = self.base.get(operand, operand)
        return base.op is Constant or base in unit.members

    def externals(self, unit: _Unit) -> list[Node]:
        reads = dict.fromkeys(o for node in unit.members for o in node.operands if not self.inside(o, unit))
        return list(reads)

    def used_outside(self, order: Sequence[Node | _Unit]) -> set[Node]:
        """The members whose value leaves their kernel."""
        used = set(self.graph.outputs)
        for unit in order:
            used.update(self.externals(unit) if isinstance(unit, _Unit) else unit.operands)
        return used

    def emit(self, unit: _Unit, users: set[Node], new: dict[Node, Node], nodes: list[Node]) -> None:
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
        leaving = [node for node in members if node in users]
        inner = Graph([local[n] for n in externals], body, [local[n] for n in leaving], "explicit")
        kernel = Node(
            Kernel, tuple(new[n] for n in externals), {"body": inner}, tuple(n.type for n in leaving),
            source=members[-1].source, scope=members[-1].scope, origin=Origin("fuse", _names(members)),
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


def _names(members: Sequence[Node]) -> str:
    names = list(dict.fromkeys(node.name for node in members))
    return " ".join(names if len(names) <= 8 else [*names[:7], "…"])


def fuse(graph: Graph) -> Graph:
    """The graph with every elementwise op and reduction inside a Kernel node."""
    return _Fusion(graph).run()
