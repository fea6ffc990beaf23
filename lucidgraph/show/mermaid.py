"""A graph for Mermaid."""

from __future__ import annotations

from ..ir import Graph
from .dot import FILL
from .labels import Item, by_scope, items
from .text import plain

__all__ = ["to_mermaid"]

_HARMLESS = frozenset(" _.,:=()[]/+*")


def to_mermaid(graph: Graph) -> str:
    """A Mermaid flowchart, with the colours of :func:`~lucidgraph.show.dot.to_dot`.

    Mermaid itself draws up to 500 edges and 50,000 characters unless ``maxEdges`` and ``maxTextSize`` are raised.

    >>> import lucidgraph as lg, numpy as np
    >>> print(to_mermaid(lg.trace(lambda x: -x, np.ones(2, np.float32))))
    flowchart TD
      n0(["x<br/>float32[2]"]):::input
      n1["negative<br/>float32[2]"]:::program
      n0 --> n1
      classDef input fill:#dbeafe,stroke:#64748b,color:#0f172a
      classDef program fill:#ffffff,stroke:#64748b,color:#0f172a
      style n1 stroke-width:3px
    <BLANKLINE>
    """
    shown = items(graph)
    lines = ["flowchart TD"]
    for k, (scope, group) in enumerate(by_scope(shown)):
        if not scope:
            lines += [f"  {_node(item)}" for item in group]
            continue
        lines.append(f'  subgraph s{k}["{_escaped(scope)}"]')
        lines += [f"    {_node(item)}" for item in group]
        lines.append("  end")
    for item in shown:
        arrow = "-->|{}|" if len(item.operands) > 1 else "-->"
        lines += [f"  n{o} {arrow.format(place)} n{item.position}" for place, o in enumerate(item.operands)]
    used = dict.fromkeys(item.stage for item in shown)
    lines += [f"  classDef {stage} fill:{FILL[stage]},stroke:#64748b,color:#0f172a" for stage in used]
    results = [f"n{item.position}" for item in shown if item.results]
    if results:
        lines.append(f"  style {','.join(results)} stroke-width:3px")
    return "\n".join(lines) + "\n"


def _node(item: Item) -> str:
    opening, closing = {"input": ("([", "])"), "constant": ("[/", "/]"), "captured": ("[/", "/]")}.get(
        item.stage, ("[", "]")
    )
    return f'n{item.position}{opening}"{_escaped(item.title)}<br/>{_escaped(item.type)}"{closing}:::{item.stage}'


def _escaped(text: str) -> str:
    """Everything but letters, digits and harmless marks as Mermaid's decimal character codes."""
    return "".join(
        c if c in _HARMLESS or (c.isascii() and c.isalnum()) else f"#{ord(c)};" for c in plain(text)
    )  # fmt: skip
