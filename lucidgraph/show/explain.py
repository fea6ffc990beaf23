"""What became of a compiled function, told in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent

from ..ir import Graph
from .cost import cost
from .memory import memory
from .text import amount, plain, stages

__all__ = ["Lowering", "explain"]


@dataclass(frozen=True, slots=True)
class Lowering:
    """What one call comes to: ``retrace`` says why it needs a new program (empty where it finds one), ``passes`` are
    the recorded graph and the graph after each pass, by name, ``source`` is the code that runs."""

    retrace: str
    passes: Sequence[tuple[str, Graph]]
    source: str


def explain(label: str, backend: str, history: Sequence[object], call: Lowering | None = None) -> str:
    """A report on the function ``label``: its programs, ``history`` saying why each was made; and for one call whether
    it needs another, what every pass does, the graph that runs, its cost, and the code.

    >>> print(explain("step", "reference", ["the first call, at train.py:31"]))
    step on the reference backend: 1 program traced
      1. the first call, at train.py:31
    """
    count = len(history)
    lines = [f"{label} on the {backend} backend: {count or 'no'} program{'' if count == 1 else 's'} traced"]
    lines += [f"  {k}. {plain(str(event))}" for k, event in enumerate(history, 1)]
    if call is None:
        return "\n".join(lines)
    final = call.passes[-1][1]
    verdict = f"needs a new program: {plain(call.retrace)}" if call.retrace else "finds its program"
    work = cost(final)
    lines += [
        f"A call with these arguments {verdict}",
        "",
        "Passes",
        indent(stages(call.passes), "  "),
        "",
        "The graph that runs",
        indent(str(final), "  "),
        "",
        f"{amount(work.flops, 'flop')}, {amount(work.nbytes, 'B')} moved if nothing is fused, "
        f"{amount(memory(final).peak, 'B')} alive at most",
        "",
        f"Code for {backend}",
    ]
    lines.append("  it runs the graph, node by node" if call.source == str(final) else indent(call.source, "  "))
    return "\n".join(lines)
