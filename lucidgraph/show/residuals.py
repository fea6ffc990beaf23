"""What the backward pass keeps alive between the forward pass and itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final, overload

from ..ir import Composite, Graph, Node
from ..ir.text import names_of
from ..passes import backward, explicit
from ..passes.expand import expand_where
from .storage import is_view, nbytes_of
from .text import amount, table

__all__ = ["Residual", "Residuals", "residuals"]


class Residual(NamedTuple):
    """One value that is kept. ``needed_by`` names the ops whose gradients read it."""

    value: Node
    nbytes: int
    needed_by: tuple[str, ...]


@final
class Residuals(Sequence[Residual]):
    """The values that a backward pass keeps, in the order in which they come about; prints as a table.

    ``nbytes`` is the sum, ``own_nbytes`` without the inputs and captured arrays, which the caller holds anyway.
    """

    def __init__(self, entries: Sequence[Residual], names: dict[Node, str]) -> None:
        self._entries = tuple(entries)
        self._names = names

    @overload
    def __getitem__(self, index: int) -> Residual: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Residual]: ...
    def __getitem__(self, index: int | slice) -> Residual | Sequence[Residual]:
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self)

    @property
    def own_nbytes(self) -> int:
        return sum(entry.nbytes for entry in self if entry.value.operands)

    def name(self, entry: Residual) -> str:
        """The value's name in the printed graph, with an input's label."""
        return self._names[entry.value]

    def __repr__(self) -> str:
        return f"<{len(self)} residuals, {amount(self.nbytes, 'B')}>"

    def __str__(self) -> str:
        if not self:
            return "backward keeps nothing"
        rows = [
            [self.name(e), e.value.name, str(e.value.type), amount(e.nbytes, "B"), ", ".join(e.needed_by),
             str(e.value.source or "")] for e in self
        ]  # fmt: skip
        total = f"{amount(self.nbytes, 'B')} kept, {amount(self.own_nbytes, 'B')} of it not inputs or captured arrays"
        headers = ["value", "op", "type", "bytes", "needed by the gradient of", "line"]
        return f"{table(headers, rows, right=[3])}\n{total}"


def residuals(graph: Graph, wrt: Sequence[int] | None = None) -> Residuals:
    """What the joint graph's backward part reads of its forward part, for the gradients of the inputs ``wrt``.

    A value that can be had again for nothing does not count: what is made of constants alone. A value that only shows
    another one's elements (a broadcast, a reshape, a transpose) counts as the one it shows. Composites without a
    gradient of their own are written out first, as backward does.

    >>> import lucidgraph as lg, numpy as np
    >>> x = np.ones((4, 3), np.float32)
    >>> [(e.value.name, e.nbytes, e.needed_by) for e in residuals(lg.trace(lambda x: lg.sum(x * x), x))]
    [('input', 48, ('multiply',))]
    >>> print(residuals(lg.trace(lg.sum, x)))
    backward keeps nothing
    """
    graph = explicit(graph)
    names = dict(names_of(graph))
    names.update((n, f"{names[n]} {label}") for n, label in zip(graph.inputs, graph.input_names, strict=True) if label)
    forward = expand_where(graph, lambda n: issubclass(n.op, Composite) and not n.op.has_own_gradient())
    joint = backward(forward, wrt)
    before = {*forward.inputs, *forward.nodes}
    free = _free(forward)
    kept: dict[Node, dict[str, None]] = {}
    for node in joint.nodes:
        if node in before:
            continue
        reader = node.origin.reason.removeprefix("gradient of ") if node.origin else node.name
        for operand in node.operands:
            if operand in before and operand not in free:
                kept.setdefault(_shown_by(operand), {})[reader] = None
    # The gradient of an output that is an input, or copies one, reads nothing: results of backward are no readers.
    order = [node for node in (*forward.inputs, *forward.nodes) if node in kept]
    names.update((node, f"in {node.origin.reason}" if node.origin else "") for node in order if node not in names)
    return Residuals([Residual(node, nbytes_of(node), tuple(kept[node])) for node in order], names)


def _free(graph: Graph) -> set[Node]:
    """The nodes made of constants alone, which backward can make again from nothing."""
    found: set[Node] = set()
    for node in graph.nodes:
        leaf = not node.operands and not node.op.captures
        if node.op.schema_v1.deterministic and (leaf or (node.operands and found.issuperset(node.operands))):
            found.add(node)
    return found


def _shown_by(node: Node) -> Node:
    """The value whose elements a node shows, as long as it takes no more memory than what is shown."""
    while is_view(node) and nbytes_of(node.operands[0]) <= nbytes_of(node):
        node = node.operands[0]
    return node
