"""What every picture of a graph says about a node, worked out once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..ir import Graph, Node
from ..ir.text import format_attrs, format_types, names_of

__all__ = ["STAGES", "Item", "by_scope", "items"]

STAGES: Final = ("input", "constant", "captured", "program", "promote", "broadcast", "backward", "expand", "other")
"""The kinds of nodes that pictures tell apart: leaves, what the user wrote, and what passes added."""


@dataclass(frozen=True, slots=True)
class Item:
    """A node as it is shown. ``name`` is the one of the printed graph, ``title`` the op with its attributes."""

    node: Node
    position: int
    name: str
    title: str
    type: str
    stage: str
    operands: tuple[int, ...]
    """The positions of the operands."""
    results: tuple[int, ...]
    """Which of the graph's outputs it is."""

    @property
    def why(self) -> str:
        """The pass that made it and its reason; empty for what the user wrote."""
        return str(self.node.origin) if self.node.origin else ""

    @property
    def where(self) -> str:
        return str(self.node.source) if self.node.source else ""


def items(graph: Graph) -> list[Item]:
    """The inputs, then the nodes in order."""
    names = names_of(graph)
    places = {node: k for k, node in enumerate(names)}
    results: dict[Node, list[int]] = {}
    for k, node in enumerate(graph.outputs):
        results.setdefault(node, []).append(k)
    labels = dict(zip(graph.inputs, graph.input_names, strict=True))
    found, slot = [], 0
    for node, place in places.items():
        if node in labels:
            title = labels[node] or f"input {place}"
        else:
            title = node.name + format_attrs(node, slot)
            slot += node.op.captures
        found.append(
            Item(
                node, place, names[node], title, format_types(node.types), _stage(node),
                tuple(places[operand] for operand in node.operands), tuple(results.get(node, ())),
            )
        )  # fmt: skip
    return found


def _stage(node: Node) -> str:
    if not node.operands and node.name in STAGES:
        return node.name
    if node.origin is None:
        return "program"
    return node.origin.stage if node.origin.stage in STAGES else "other"


def by_scope(shown: list[Item]) -> Iterator[tuple[str, list[Item]]]:
    """The items of each module path, the ones outside any module under an empty path."""
    groups: dict[str, list[Item]] = {"": []}
    for item in shown:
        groups.setdefault(item.node.scope, []).append(item)
    yield from groups.items()
