"""Text that people read: tables, amounts, and what a pass did to a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from ..ir import Graph, Node

__all__ = ["amount", "changes", "plain", "stages", "table"]


def amount(count: float, unit: str) -> str:
    """A number with a unit, to three digits.

    >>> amount(512, "B"), amount(1_500_000, "flop"), amount(123_456, "B")
    ('512 B', '1.50 Mflop', '123 kB')
    """
    if count < 1000:
        return f"{count:g} {unit}"
    power = next((k for k in range(1, 5) if count < 999.5 * 1000**k), 5)
    count /= 1000**power
    return f"{count:.{0 if count >= 99.95 else 1 if count >= 9.995 else 2}f} {'kMGTP'[power - 1]}{unit}"


def plain(text: str) -> str:
    """Text on one line, without characters that end a line, a comment or a string unseen.

    >>> plain("a\\nb\\0")
    'a b '
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Columns under their headers; those in ``right`` stand to the right.

    >>> print(table(["op", "flops"], [["exp", "12"], ["matmul", "3"]], right=[1]))
    op      flops
    exp        12
    matmul      3
    """
    cells = [list(headers), *(list(map(plain, row)) for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(headers))]
    to_right = set(right)

    def line(row: Sequence[str]) -> str:
        parts = [c.rjust(w) if k in to_right else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
        return "  ".join(parts).rstrip()

    return "\n".join(map(line, cells))


# -- what a pass did


def changes(before: Graph, after: Graph) -> list[str]:
    """What ``after`` has that ``before`` had not: the balance of nodes by op in the first line, then the reasons that
    passes gave for new nodes. Empty where nothing changed.

    >>> import lucidgraph as lg, numpy as np
    >>> x = np.array([True, False])
    >>> changes(lg.trace(lg.sum, x, passes=()), lg.trace(lg.sum, x))
    ['+1 cast', '  sum counts bool in int64']
    """
    new, old = (Counter(node.name for node in graph.nodes) for graph in (after, before))
    why, known = (Counter(_reason(node) for node in graph.nodes) for graph in (after, before))
    balance = [f"+{count} {name}" for name, count in (new - old).items()]
    balance += [f"-{count} {name}" for name, count in (old - new).items()]
    reasons = [(text, times) for text, times in (why - known).items() if text]
    if not balance and not reasons:
        return []
    lines = [", ".join(balance) or "rewritten in place"]
    lines += [f"  {plain(text)}{f' ({times} nodes)' if times > 1 else ''}" for text, times in reasons[:_REASONS]]
    if len(reasons) > _REASONS:
        lines.append(f"  and {len(reasons) - _REASONS} reasons more")
    return lines


_REASONS: Final = 6


def _reason(node: Node) -> str:
    return node.origin.reason if node.origin else ""


def stages(graphs: Sequence[tuple[str, Graph]]) -> str:
    """A program's way through the passes: for each ``(pass, graph after it)`` the number of nodes and what changed.

    >>> import lucidgraph as lg, numpy as np
    >>> x = np.array([True, False])
    >>> print(stages([("record", lg.trace(lg.sum, x, passes=())), ("promote", lg.trace(lg.sum, x))]))
    record       1 nodes
    promote      2 nodes  +1 cast
                            sum counts bool in int64
    """
    width = max((len(name) for name, _ in graphs), default=0)
    lines = []
    for k, (name, graph) in enumerate(graphs):
        head = f"{name.ljust(width)}  {len(graph.nodes):5} nodes"
        did = changes(graphs[k - 1][1], graph) or ["="] if k else [""]
        lines.append(f"{head}  {did[0]}".rstrip())
        lines += [" " * (width + 15) + line for line in did[1:]]
    return "\n".join(lines)
