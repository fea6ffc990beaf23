"""What became of a compiled function, told in words."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent

from ..ir import Graph
from .cost import cost
from .memory import memory
from .text import amount, plain, stages

__all__ = ["explain"]


def explain(
    label: str,
    backend: str,
    history: Sequence[object],
    retrace: str = "",
    passes: Sequence[tuple[str, Graph]] = (),
    source: str = "",
    dispatch: str = "",
) -> str:
    """A report on the function ``label``: its programs, ``history`` saying why each was made.

    With ``passes``, the recorded graph of one call and the graph after each pass, by name: whether the call needs a
    new program (``retrace`` says why, or is empty), what every pass does, the graph that runs, its cost, and the code,
    ``source``. ``dispatch``: how calls come in.

    >>> print(explain("step", "reference", ["the first call, at train.py:31"]))
    step on the reference backend: 1 program traced
      1. the first call, at train.py:31
    """
    count = len(history)
    lines = [f"{label} on the {backend} backend: {count or 'no'} program{'' if count == 1 else 's'} traced"]
    if dispatch:
        lines[0] += f"; calls come in {dispatch}"
    lines += [f"  {k}. {plain(str(event))}" for k, event in enumerate(history, 1)]
    if not passes:
        return "\n".join(lines)
    final = passes[-1][1]
    verdict = f"needs a new program: {plain(retrace)}" if retrace else "finds its program"
    work = cost(final)
    lines += [
        f"A call with these arguments {verdict}",
        "",
        "Passes",
        indent(stages(passes), "  "),
        "",
        "The graph that runs",
        indent(str(final), "  "),
        "",
        f"{amount(work.flops, 'flop')}, {amount(work.nbytes, 'B')} moved if nothing is fused, "
        f"{amount(memory(final).peak, 'B')} alive at most",
        "",
        f"Code for {backend}",
    ]
    lines.append("  it runs the graph, node by node" if source == str(final) else indent(source, "  "))
    return "\n".join(lines)
