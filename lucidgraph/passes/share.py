"""What kernels compute again rather than store, and which kernels share what they load.

A full value that another kernel reads is stored and loaded again. Where its producers are cheaper than that, the other
kernel gets them as members of its own: the value is never stored if nobody else reads it. The gradient of a pairwise
distance is the extreme case: what is summed over two axes, for two gradients, is a difference of small arrays.

    stored:       bytes written once (``WRITTEN``) + bytes read by each reader
    made again:   for each reader, instructions an element / ``WORK_PER_BYTE`` + bytes of operands it reads only now

Then kernels of one domain that read the same array become one, if neither depends on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Final, NamedTuple

from ..ir import Node
from ..ir.ops.core import Constant
from .units import Order, Unit

WORK_PER_BYTE: Final = 2.5
"""How many vector instructions a processor runs on an element while it moves a byte from memory: measured as 180 G
instructions a second on float32, at 70 GB/s, on two threads."""
WRITTEN: Final = 1.5
"""What a byte written costs, against a byte read: a cache line is often fetched before it is written."""
LEAST: Final = 1 << 16
"""Bytes from which a value is worth the thought; smaller ones stay in the nearest cache."""


class Again(NamedTuple):
    """What a kernel makes again in place of reading one value, and the operands that it then reads."""

    nodes: list[Node]
    reads: list[Node]
    cost: float


class Sharing:
    """``base`` says what a chain of views starts from, ``merge`` makes two units one where that can be."""

    def __init__(
        self,
        order: Order,
        unit_of: Mapping[Node, Unit],
        base: Mapping[Node, Node],
        outputs: Iterable[Node],
        merge: Callable[[Unit, Unit], Unit],
        most: int,
    ) -> None:
        self.order = order
        self.unit_of = unit_of
        self.base = base
        self.outputs = [self.start(node) for node in outputs]
        self.merge = merge
        self.most = most
        self.again: dict[Unit, list[Node]] = {}
        """The values that a unit makes again."""

    def run(self) -> None:
        self.make_again()
        if self.again:
            self.prune()
        self.share()

    def start(self, node: Node) -> Node:
        return self.base.get(node, node)

    # -- made again

    def make_again(self) -> None:
        stored = set(self.outputs)
        readers: dict[Node, list[Unit]] = {}
        for unit in self.order:
            for node in unit.members:
                for operand in node.operands:
                    value = self.start(operand)
                    home = self.unit_of.get(value)
                    if home is None or home.full is None or home is unit:
                        continue
                    if operand is value and not home.members[value] and value.shape == unit.full:
                        found = readers.setdefault(value, [])
                        if not found or found[-1] is not unit:
                            found.append(unit)
                    else:
                        stored.add(value)
        # What kernels of one domain read, they will share.
        self.shared: dict[tuple[object, object], set[Node]] = {}
        for unit in self.order:
            if unit.full is not None:
                self.shared.setdefault((unit.full, unit.axes), set()).update(unit.reads)
        # In the order of the line: what a reader makes again, later ones can make again too.
        for value, units in readers.items():
            nbytes = value.type.nbytes
            if nbytes < LEAST:
                continue
            ways = [(unit, self.way(value, unit)) for unit in units]
            possible = [(unit, way) for unit, way in ways if way is not None]
            whole = value not in stored and len(possible) == len(units)
            if not whole or sum(way.cost for _, way in possible) >= nbytes * (len(units) + WRITTEN):
                possible = [(unit, way) for unit, way in possible if way.cost < nbytes]
            for unit, way in possible:
                self.take(value, way, unit)

    def way(self, value: Node, unit: Unit) -> Again | None:
        """How ``unit`` could make a value again: from what the value's own kernel reads, and its row values."""
        home = self.unit_of[value]
        nodes: dict[Node, None] = {}
        reads: dict[Node, None] = {}
        stack = [value]
        while stack:
            node = stack.pop()
            if node in nodes or node in unit.members:
                continue
            start = self.start(node)
            if start.op is Constant:
                continue
            if home.members.get(start) is False:
                nodes[node] = None
                stack.extend(node.operands)
            else:
                reads[node] = None
        if len(unit.members) + len(nodes) > self.most:
            return None
        assert unit.full is not None
        known = self.shared[unit.full, unit.axes]
        cost = prod(unit.full) * sum(node.op.work for node in nodes) / WORK_PER_BYTE
        cost += sum(
            min(node.type.nbytes, self.start(node).type.nbytes) for node in reads if self.start(node) not in known
        )
        return Again(list(nodes), list(reads), cost)

    def take(self, value: Node, way: Again, unit: Unit) -> None:
        unit.members.update(dict.fromkeys(way.nodes, False))
        unit.reads.update(dict.fromkeys(self.start(node) for node in way.reads))
        unit.reads.pop(value, None)
        self.shared[unit.full, unit.axes].update(unit.reads)
        self.again.setdefault(unit, []).append(value)

    def prune(self) -> None:
        """Drop the members whose values nobody reads any more."""
        wanted = set(self.outputs)
        for unit in reversed(list(self.order)):
            if unit.full is not None:
                needed: dict[Node, None] = {}
                stack = [n for n in unit.members if n in wanted and self.unit_of[n] is unit]
                reads: dict[Node, None] = {}
                while stack:
                    node = stack.pop()
                    if node in needed:
                        continue
                    needed[node] = None
                    for operand in node.operands:
                        start = self.start(operand)
                        if start in unit.members:
                            stack.append(start)
                        else:
                            reads[start] = None
                unit.members = {n: row for n, row in unit.members.items() if n in needed}
                unit.reads = {**{n: None for n in unit.reads if n in needed or n in reads}, **reads}
                if not needed:
                    self.order.remove(unit)
            wanted.update(unit.reads)

    # -- one kernel for what reads the same

    def share(self) -> None:
        latest: dict[tuple[Node, object], Unit] = {}
        for unit in self.order:
            if unit.full is None:
                continue
            for node in list(unit.reads):
                if node.type.nbytes < LEAST or node.op is Constant:
                    continue
                key = node, unit.full
                other = latest.get(key)
                if other is not None and other is not unit and self.gains(unit, node):
                    unit = self.merge(other, unit)
                latest[key] = unit

    def gains(self, unit: Unit, node: Node) -> bool:
        """Whether reading ``node`` once less is worth having the unit's results earlier than they are needed."""
        results = sum(n.type.nbytes for n, row in unit.members.items() if not row and self.unit_of[n] is unit)
        return results <= node.type.nbytes or unit.axes is not None


__all__ = ["Sharing"]
