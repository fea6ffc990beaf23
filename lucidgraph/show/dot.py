"""A graph for Graphviz."""

from __future__ import annotations

from typing import Final

from ..ir import Graph
from .labels import Item, by_scope, items
from .text import plain

__all__ = ["to_dot"]

FILL: Final = {
    "input": "#dbeafe", "constant": "#f1f5f9", "captured": "#e0e7ff", "program": "#ffffff", "promote": "#fef3c7",
    "broadcast": "#ecfccb", "backward": "#fce7f3", "expand": "#ede9fe", "other": "#f5f5f4",
}  # fmt: skip


def to_dot(graph: Graph) -> str:
    """Graphviz source: one box per node, one cluster per module path, a thick border around outputs.

    Colours tell inputs, constants, what the user wrote and what each pass added apart; an edge says which operand it is
    where there are several. The tooltip has the reason and the user's line.

    >>> import lucidgraph as lg, numpy as np
    >>> print(to_dot(lg.trace(lambda x: -x, np.ones(2, np.float32))).splitlines()[4])
      n0 [label="x\\nfloat32[2]", shape=ellipse, fillcolor="#dbeafe"];
    """
    shown = items(graph)
    lines = [
        "digraph lucidgraph {",
        "  rankdir=TB;",
        '  node [shape=box, style="filled,rounded", fontname="Menlo,Consolas,monospace", fontsize=10];',
        '  edge [fontname="Menlo,Consolas,monospace", fontsize=8, color="#64748b"];',
    ]
    for k, (scope, group) in enumerate(by_scope(shown)):
        if not scope:
            lines += [f"  {_node(item)};" for item in group]
            continue
        lines.append(f"  subgraph cluster_{k} {{")
        lines.append(f'    label={_quoted(scope)}; color="#94a3b8"; fontname="Menlo,Consolas,monospace"; fontsize=10;')
        lines += [f"    {_node(item)};" for item in group]
        lines.append("  }")
    for item in shown:
        several = len(item.operands) > 1
        for place, operand in enumerate(item.operands):
            mark = f' [label="{place}"]' if several else ""
            lines.append(f"  n{operand} -> n{item.position}{mark};")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _node(item: Item) -> str:
    marks = [f"label={_quoted(item.title, item.type)}"]
    if item.stage == "input":
        marks.append("shape=ellipse")
    elif item.stage in ("constant", "captured"):
        marks.append("shape=note")
    marks.append(f'fillcolor="{FILL[item.stage]}"')
    if item.results:
        marks.append("penwidth=2.5")
    tip = [text for text in (item.name if item.node.operands else "", item.why, item.node.lint, item.where) if text]
    if tip:
        marks.append(f"tooltip={_quoted(*tip)}")
    return f"n{item.position} [{', '.join(marks)}]"


def _quoted(*lines: str) -> str:
    """A quoted string of these lines. A backslash begins an escape in Graphviz, so it is doubled."""
    escaped = [plain(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return '"' + "\\n".join(escaped) + '"'
