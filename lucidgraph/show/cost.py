"""An estimate of the work: floating-point operations and bytes moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final, overload

from ..ir import Graph, Node, Op
from ..ir.evaluate import expansion_graph
from ..ir.text import names_of
from ..passes import expand, explicit
from .storage import is_view, nbytes_of
from .text import amount, table

__all__ = ["Cost", "NodeCost", "cost"]


class NodeCost(NamedTuple):
    """The work of one node run alone: ``flops``, and the bytes it reads and writes."""

    node: Node
    flops: int
    nbytes: int

    @property
    def intensity(self) -> float:
        """Operations per byte moved."""
        return self.flops / self.nbytes if self.nbytes else 0.0


@final
class Cost(Sequence[NodeCost]):
    """One entry per node, in order; ``flops``, ``nbytes`` and ``intensity`` of all together. Prints as a table."""

    def __init__(self, entries: Sequence[NodeCost], names: dict[Node, str]) -> None:
        self._entries = tuple(entries)
        self._names = names

    @overload
    def __getitem__(self, index: int) -> NodeCost: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[NodeCost]: ...
    def __getitem__(self, index: int | slice) -> NodeCost | Sequence[NodeCost]:
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def flops(self) -> int:
        return sum(entry.flops for entry in self)

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self)

    @property
    def intensity(self) -> float:
        nbytes = self.nbytes
        return self.flops / nbytes if nbytes else 0.0

    def by_op(self) -> dict[str, tuple[int, int, int]]:
        """For each op how often it runs, its flops and its bytes; the most flops first."""
        sums: dict[str, tuple[int, int, int]] = {}
        for node, flops, nbytes in self:
            times, f, b = sums.get(node.name, (0, 0, 0))
            sums[node.name] = times + 1, f + flops, b + nbytes
        return dict(sorted(sums.items(), key=lambda entry: entry[1][1:], reverse=True))

    def __repr__(self) -> str:
        return f"<cost: {amount(self.flops, 'flop')}, {amount(self.nbytes, 'B')} moved>"

    def __str__(self) -> str:
        rows = [
            [self._names[e.node], e.node.name, str(e.node.type), amount(e.flops, "flop"), amount(e.nbytes, "B"),
             f"{e.intensity:.3g}", str(e.node.source or "")] for e in self
        ]  # fmt: skip
        sums = [amount(self.flops, "flop"), amount(self.nbytes, "B"), f"{self.intensity:.3g}"]
        rows.append(["total", "", "", *sums, ""])
        headers = ["value", "op", "type", "flops", "bytes moved", "flops/byte", "line"]
        return table(headers, rows, right=[3, 4, 5])


def cost(graph: Graph) -> Cost:
    """The work of a graph in which every node runs alone, nothing fused: an upper bound of the bytes.

    A node reads each different operand once and writes its result; a broadcast operand is read as the value that was
    broadcast. Nodes that only show another value's elements, and constants, move nothing. A composite is counted as
    the operations it is made of, reading its operands and writing its result.

    >>> import lucidgraph as lg, numpy as np
    >>> c = cost(lg.trace(lambda x, y: lg.sum(x * y), np.ones(8, np.float32), np.ones(8, np.float32)))
    >>> [(entry.node.name, entry.flops, entry.nbytes) for entry in c], c.flops
    ([('multiply', 8, 96), ('sum', 8, 36)], 16)
    """
    graph = explicit(graph)
    read = {node: nbytes_of(node) for node in graph.inputs}
    entries = []
    for node in graph.nodes:
        if is_view(node):
            # Reading a broadcast touches the original, reading a slice the slice.
            read[node] = min(read[node.operands[0]], nbytes_of(node))
        else:
            read[node] = nbytes_of(node)
        if not node.operands or is_view(node):
            entries.append(NodeCost(node, 0, 0))
            continue
        moved = nbytes_of(node) + sum(read[operand] for operand in dict.fromkeys(node.operands))
        entries.append(NodeCost(node, _flops(node), moved))
    return Cost(entries, names_of(graph))


def _flops(node: Node) -> int:
    """What the op states; for a composite that states nothing of its own, the sum over what it is made of."""
    states = node.op.flops.__func__ is not Op.flops.__func__  # type: ignore[attr-defined]
    parts = [node] if states or not node.op.composite else expand(expansion_graph(node)).nodes
    return sum(part.op.flops([operand.type for operand in part.operands], part.types, part.attrs) for part in parts)
