"""Elementwise ops and reductions that can share a loop become Kernel nodes, which hold them as a graph.

A kernel has a domain: a full shape S and at most one set of reduced axes A. Its members are *full* values, one
element per point of S, and *row* values, one per point of S without A. Row values are broadcast back to S inside
the kernel, so a whole softmax, or a layer norm and its gradient, is one kernel. Constants are repeated in every
kernel that reads them. Which ops join is asked of the ops: ``elementwise``, ``reduces``, ``view``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import Graph, Node, Origin
from ..ir.ops.core import Constant, Input, Kernel, Result
from ..ir.ops.shape import BroadcastBackward
from ..ir.types import Shape

MAX_MEMBERS = 96
"""Longer chains are cut, so that code stays small and equal pieces share one kernel."""


class _Group:
    """A kernel in the making."""

    __slots__ = ("axes", "below", "full", "members", "number", "rows")

    def __init__(self, number: int, full: Shape) -> None:
        self.number = number
        self.full = full
        self.axes: tuple[int, ...] | None = None
        self.members: dict[Node, bool] = {}
        """Each member, and whether it is a row value."""
        self.below = 0
        """The numbers of all groups this one depends on, as bits."""
        self.rows: set[Shape] = set()

    def set_axes(self, axes: tuple[int, ...]) -> None:
        self.axes = axes
        self.rows = {
            tuple(n for k, n in enumerate(self.full) if k not in axes),
            tuple(1 if k in axes else n for k, n in enumerate(self.full)),
        }


class _Fusion:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.groups: list[_Group] = []
        self.group_of: dict[Node, _Group] = {}
        self.below: dict[Node, int] = dict.fromkeys(graph.inputs, 0)
        """The groups that a node outside groups depends on."""
        self.base: dict[Node, Node] = {}
        """What a chain of views starts from."""
        self.place_of = {node: k for k, node in enumerate(graph.nodes)}

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.base[node] = self.base.get(node.operands[0], node.operands[0]) if node.op.view else node
            if (node.op.elementwise or node.op.reduces) and len(node.types) == 1:
                self.place(node)
            else:
                self.below[node] = self.reach(node.operands)
        return self.rebuilt()

    # -- where a node goes

    def reach(self, operands: Sequence[Node]) -> int:
        """All groups that these values depend on, their own included."""
        bits = 0
        for operand in operands:
            group = self.group_of.get(operand)
            bits |= self.below[operand] if group is None else group.below | (1 << group.number)
        return bits

    def place(self, node: Node) -> None:
        for group in self.candidates(node):
            row = self.fits(node, group)
            if row is not None:
                self.join(node, group, row)
                return
        full = node.operands[0].shape if node.op.reduces else node.shape
        group = _Group(len(self.groups), full)
        self.groups.append(group)
        self.join(node, group, node.op.reduces)

    def candidates(self, node: Node) -> list[_Group]:
        """The groups of the operands, the latest first."""
        found = {g.number: g for o in node.operands if (g := self.group_of.get(self.base.get(o, o))) is not None}
        return [found[k] for k in sorted(found, reverse=True)]

    def fits(self, node: Node, group: _Group) -> bool | None:
        """Whether ``node`` would be a row value of ``group`` (True), a full one (False), or does not fit (None)."""
        if len(group.members) >= MAX_MEMBERS:
            return None
        if node.op.reduces:
            axes = node.attrs["axis"]
            if node.operands[0].shape != group.full or group.axes not in (None, axes) or not axes:
                return None
            return True if self.readable(node, group, row=False) else None
        if node.shape == group.full and self.readable(node, group, row=False):
            return False
        if node.shape in group.rows and self.readable(node, group, row=True):
            return True
        return None

    def readable(self, node: Node, group: _Group, row: bool) -> bool:
        """Whether all operands can be read at a full (or row) point of ``group``, without a cycle between kernels."""
        for operand in node.operands:
            base = self.base.get(operand, operand)
            if base.op is Constant:
                continue
            inside = group.members.get(base)
            if inside is None:
                if self.reach([operand]) >> group.number & 1:
                    return False
            elif inside:
                if not self.is_row_view(operand, base, group, row):
                    return False
            elif row or operand is not base:
                return False
        return True

    def is_row_view(self, operand: Node, base: Node, group: _Group, row: bool) -> bool:
        """Whether a chain of views over a row value only adds, drops or repeats the reduced axes."""
        while operand is not base:
            if not operand.op.keeps_order and operand.op is not BroadcastBackward:
                return False
            spread = operand.shape == group.full and operand.operands[0].shape == _kept(group)
            if operand.shape not in group.rows and not (spread and not row):
                return False
            operand = operand.operands[0]
        return True

    def join(self, node: Node, group: _Group, row: bool) -> None:
        if node.op.reduces and group.axes is None:
            group.set_axes(node.attrs["axis"])
        group.members[node] = row
        self.group_of[node] = group
        for other in self.candidates(node):
            if other is not group:
                self.merge(other, group)
        group = self.group_of[node]
        outside = [o for o in node.operands if self.group_of.get(self.base.get(o, o)) is not group]
        self.raise_below(group, self.reach(outside))

    def raise_below(self, group: _Group, bits: int) -> None:
        """Add dependences to a group and to all that depend on it."""
        if bits & ~group.below:
            group.below |= bits
            mark = 1 << group.number
            for other in self.groups:
                if other.below & mark:
                    other.below |= bits
            for node, below in self.below.items():
                if below & mark:
                    self.below[node] = below | bits

    def merge(self, other: _Group, group: _Group) -> None:
        """Take ``other`` into ``group`` where both have one domain and no third kernel lies between them."""
        if other.full != group.full or len(other.members) + len(group.members) > MAX_MEMBERS:
            return
        if other.axes is not None and group.axes is not None and other.axes != group.axes:
            return
        mark, own = 1 << other.number, 1 << group.number
        if not self.mergeable(group, other, mark) or not self.mergeable(other, group, own):
            return
        for node, row in other.members.items():
            self.group_of[node] = group
            group.members[node] = row
        if group.axes is None and other.axes is not None:
            group.set_axes(other.axes)
        for g in self.groups:
            if g.below & mark:
                g.below = g.below & ~mark | own
        for node, below in self.below.items():
            if below & mark:
                self.below[node] = below & ~mark | own
        group.below = (group.below | other.below) & ~own & ~mark
        other.members = {}
        self.raise_below(group, other.below & ~own)

    def mergeable(self, group: _Group, other: _Group, mark: int) -> bool:
        """Whether ``group`` reads ``other`` only in ways that one kernel can, and nothing else between them."""
        for node, row in group.members.items():
            for operand in node.operands:
                base = self.base.get(operand, operand)
                if base in group.members or base.op is Constant:
                    continue
                if base not in other.members:
                    if self.reach([operand]) & mark:
                        return False
                elif other.members[base]:
                    if not self.is_row_view(operand, base, other, row):
                        return False
                elif operand is not base or row:
                    return False
        return True

    # -- the new graph

    def rebuilt(self) -> Graph:
        order: list[Node | _Group] = []
        seen: set[Node | _Group] = set(self.graph.inputs)
        for start in (*(n for n in self.graph.nodes if n.op.effect), *self.graph.outputs):
            stack: list[tuple[Node | _Group, bool]] = [(self.group_of.get(start, start), False)]
            while stack:
                unit, done = stack.pop()
                if done:
                    order.append(unit)
                elif unit not in seen:
                    seen.add(unit)
                    stack.append((unit, True))
                    reads = self.externals(unit) if isinstance(unit, _Group) else unit.operands
                    stack.extend((self.group_of.get(o, o), False) for o in reversed(reads))
        users = self.used_outside(order)
        new: dict[Node, Node] = {node: node for node in self.graph.inputs}
        nodes: list[Node] = []
        for unit in order:
            if isinstance(unit, _Group):
                self.emit(unit, users, new, nodes)
            else:
                operands = tuple(new[o] for o in unit.operands)
                new[unit] = unit if operands == unit.operands else unit.replace(operands=operands)
                nodes.append(new[unit])
        outputs = [new[node] for node in self.graph.outputs]
        return Graph(self.graph.inputs, nodes, outputs, "explicit", self.graph.input_names)

    def inside(self, operand: Node, group: _Group) -> bool:
        """Whether an operand is made inside the kernel: a member, a view of a row value, or a constant."""
        base = self.base.get(operand, operand)
        return base.op is Constant or base in group.members

    def externals(self, group: _Group) -> list[Node]:
        reads = dict.fromkeys(o for node in group.members for o in node.operands if not self.inside(o, group))
        return list(reads)

    def used_outside(self, order: Sequence[Node | _Group]) -> set[Node]:
        """The members whose value leaves their kernel."""
        used = set(self.graph.outputs)
        for unit in order:
            used.update(self.externals(unit) if isinstance(unit, _Group) else unit.operands)
        return used

    def emit(self, group: _Group, users: set[Node], new: dict[Node, Node], nodes: list[Node]) -> None:
        externals = self.externals(group)
        members = sorted(group.members, key=self.place_of.__getitem__)
        local: dict[Node, Node] = {}
        for node in externals:
            local[node] = Node(Input, (), {}, (node.type,))
        body: list[Node] = []

        def made(node: Node) -> Node:
            """The node inside the body; views and constants are written where they are first read."""
            if node not in local:
                operands = tuple(made(operand) for operand in node.operands)
                local[node] = node if operands == node.operands else node.replace(operands=operands)
                body.append(local[node])
            return local[node]

        for node in members:
            made(node)
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


def _kept(group: _Group) -> Shape:
    """The full shape with reduced axes of size 1."""
    assert group.axes is not None
    return tuple(1 if k in group.axes else n for k, n in enumerate(group.full))


def _names(members: Sequence[Node]) -> str:
    names = list(dict.fromkeys(node.name for node in members))
    return " ".join(names if len(names) <= 8 else [*names[:7], "…"])


def fuse(graph: Graph) -> Graph:
    """The graph with every elementwise op and reduction inside a Kernel node."""
    return _Fusion(graph).run()
