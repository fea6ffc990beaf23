"""Writes ``docs/ops.md`` from the registry: ``python docs/make_ops.py``. A test keeps the page fresh."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lucidgraph.ir import Composite, Op
from lucidgraph.ir.ops import REGISTRY
from lucidgraph.ir.schema import Accumulate

PAGE = Path(__file__).with_name("ops.md")
HEAD = """\
# The ops

Written by `python docs/make_ops.py` from the registry; do not edit. Each op is one class in `lucidgraph/ir/ops/`.

* *policy*: what happens to operand dtypes and what autocast may do (`lg.AmpPolicy`); *wide*: accumulates integers in
  64 bits and half precision in float32; *contraction*: autocast runs it in half precision.
* *saves*: the values its gradient reads, which the backward pass keeps alive.
* *gradient*: the formula (g is the gradient of the value); *as expanded* where it is that of the ops it is written in;
  *zero* or *none* with the reason.
* *deterministic* unless noted; *internal* ops are written by passes, never by users.
"""


def chapters() -> Iterator[tuple[str, list[type[Op]]]]:
    """The package's own ops by chapter, in the order of their registration."""
    found: dict[str, list[type[Op]]] = {}
    for op in REGISTRY.values():
        package, _, chapter = op.__module__.rpartition(".")
        if package == "lucidgraph.ir.ops":
            found.setdefault(chapter, []).append(op)
    yield from sorted(found.items())


def policy(op: type[Op]) -> str:
    schema = op.schema_v1
    notes = [
        schema.amp_policy.name,
        "wide" if schema.accumulate is Accumulate.WIDE else "",
        "contraction" if schema.contraction else "",
        "" if schema.deterministic else f"not deterministic: {schema.note}",
        "internal" if schema.internal else "",
    ]
    return ", ".join(note for note in notes if note)


def saves(op: type[Op]) -> str:
    if issubclass(op, Composite) and not op.has_own_gradient():
        return "as expanded"
    operands = op.kSavesInput
    names = ["operands"] if operands is True else list(operands or ())
    return ", ".join([*names, *(["result"] if op.kSavesOutput else [])]) or "nothing"


def stated(op: type[Op]) -> tuple[str, str]:
    """What the class's docstring says in its first paragraph: the value, and the gradient after a wide gap."""
    first = (op.__doc__ or "").strip().partition("\n\n")[0]
    value, *slopes = re.split(r"(?:\n *| {3,})(?=∂)", first)
    slope = " ".join(slopes)
    return _cell(value), _cell(slope)


def gradient(op: type[Op]) -> str:
    if op.zero_gradient:
        return f"zero: {op.zero_gradient}"
    if op.not_differentiable:
        return f"none: {op.not_differentiable}"
    slope = stated(op)[1] or "by its formula"
    return f"as expanded: {slope}".removesuffix(": by its formula") if saves(op) == "as expanded" else slope


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("|", r"\|")


def text() -> str:
    lines = [HEAD]
    for chapter, ops in chapters():
        lines += [f"## {chapter}", "", "| op | value | gradient | saves | policy |", "|---|---|---|---|---|"]
        lines += [
            f"| `{op.schema_v1.name}` | {stated(op)[0]} | {gradient(op)} | {saves(op)} | {policy(op)} |" for op in ops
        ]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    print(f"wrote {PAGE}: {sum(len(ops) for _, ops in chapters())} ops")
