"""A graph as one HTML page that needs nothing else: no script, no network."""

from __future__ import annotations

import html
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ..errors import NotDifferentiableError
from ..ir import Graph
from .cost import cost
from .labels import STAGES, Item, items
from .memory import memory
from .picture import STYLE, escaped, picture
from .residuals import residuals
from .text import amount

__all__ = ["repr_html", "to_html"]

DRAWN: Final = 150
"""Graphs with more nodes than this are not drawn; the text and the table have everything."""

_STYLE: Final = """
:root { color-scheme: light dark; --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  --paper: #ffffff; --panel: #f8fafc; --ink: #0f172a; --soft: #64748b;
  --line: #cbd5e1; --edge: #94a3b8; --accent: #2563eb;
  --input: #dbeafe; --constant: #f1f5f9; --captured: #e0e7ff; --program: #ffffff; --promote: #fef3c7;
  --broadcast: #ecfccb; --backward: #fce7f3; --expand: #ede9fe; --other: #f5f5f4; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #0b1120; --panel: #111a2e; --ink: #e2e8f0; --soft: #94a3b8;
  --line: #334155; --edge: #64748b; --accent: #60a5fa;
  --input: #1e3a5f; --constant: #1e293b; --captured: #312e63; --program: #16203a; --promote: #4a3a10;
  --broadcast: #2c4011; --backward: #501f3c; --expand: #382a5e; --other: #292524; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 20px 24px; background: var(--paper); color: var(--ink);
  font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 20px; margin: 0 0 10px; } h1 small { color: var(--soft); font-weight: normal; font-size: 13px; }
h2 { font-size: 15px; margin: 26px 0 8px; } p { margin: 6px 0; color: var(--soft); }
code, pre, td, .mono { font-family: var(--mono); font-size: 12px; }
dl { display: flex; flex-wrap: wrap; gap: 8px; margin: 0; }
dl div { border: 1px solid var(--line); border-radius: 8px; padding: 6px 12px; background: var(--panel); }
dt { color: var(--soft); font-size: 11px; } dd { margin: 0; font-size: 15px; font-variant-numeric: tabular-nums; }
.scroll { overflow: auto; border: 1px solid var(--line); border-radius: 8px; }
.scroll.drawing { max-height: 80vh; background: var(--panel); } .drawing svg { margin: 0 auto; }
table { border-collapse: collapse; width: 100%; }
th { position: sticky; top: 0; background: var(--panel); text-align: left; font-size: 11px; color: var(--soft); }
th, td { padding: 4px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.wrap { white-space: normal; min-width: 18em; }
tr.line td { background: var(--panel); white-space: pre-wrap; } tr.line b { color: var(--accent); font-weight: 600; }
tr:target td { outline: 2px solid var(--accent); outline-offset: -2px; }
a { color: inherit; text-decoration: none; } td a:hover { text-decoration: underline; color: var(--accent); }
.mark { display: inline-block; padding: 0 7px; border-radius: 9px; border: 1px solid var(--line); font-size: 11px; }
.bar { display: inline-block; height: 8px; background: var(--accent); opacity: .55; border-radius: 2px; }
pre { margin: 0; padding: 12px; overflow: auto; background: var(--panel); border: 1px solid var(--line);
  border-radius: 8px; } summary { cursor: pointer; margin: 26px 0 8px; font-weight: 600; font-size: 15px; }
"""


def to_html(graph: Graph, path: Any = None) -> str:
    """The page: sums, a picture of small graphs, every node under the user's line it comes from, what backward keeps,
    and the graph's text. Written to ``path`` in UTF-8 when given, whole or not at all.

    >>> import lucidgraph as lg, numpy as np
    >>> page = to_html(lg.trace(lambda x: lg.sum(x), np.ones(3, np.float32)))
    >>> page.startswith("<!doctype html>"), "<script" in page
    (True, False)
    """
    page = _page(graph, DRAWN, None)
    if path is not None:
        _write(Path(path), page)
    return page


def repr_html(graph: Graph) -> str:
    """The page for a notebook, in a frame of its own that runs no scripts; long graphs are cut."""
    page = _page(graph, 60, 200)
    height = min(620, 330 + 30 * len(graph.nodes))
    return (
        f'<iframe sandbox="" srcdoc="{html.escape(page, quote=True)}" title="lucidgraph graph" '
        f'style="width: 100%; height: {height}px; border: 1px solid #94a3b8; border-radius: 8px"></iframe>'
    )


def _write(path: Path, page: str) -> None:
    """The whole file takes its name at once, so that nobody reads half of it."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with beside.open("x", encoding="utf-8", newline="\n") as file:
            file.write(page)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _page(graph: Graph, drawn: int, rows: int | None) -> str:
    shown = items(graph)
    title = f"{graph.form} graph of {len(graph.nodes)} nodes"
    body = [
        f"<h1>lucidgraph <small>{title} · {graph.digest[:12]}</small></h1>",
        _summary(graph),
        "<h2>Picture</h2>",
        _drawing(shown, drawn),
        "<h2>Program</h2>",
        _program(graph, shown, rows),
        "<h2>What backward keeps</h2>",
        _kept(graph),
        f"<details><summary>Text</summary><pre>{_multiline(_text(graph, rows))}</pre></details>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>lucidgraph: {title}</title>\n<style>{_STYLE}{STYLE}{_stage_styles()}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _stage_styles() -> str:
    return "".join(f"svg .s-{s} rect {{ fill: var(--{s}) }} .mark.s-{s} {{ background: var(--{s}) }}\n" for s in STAGES)


def _multiline(text: str) -> str:
    return "\n".join(escaped(line) for line in text.split("\n"))


def _text(graph: Graph, rows: int | None) -> str:
    lines = str(graph).split("\n")
    if rows is None or len(lines) <= rows:
        return "\n".join(lines)
    return "\n".join([*lines[:rows], f"… {len(lines) - rows} lines more"])


def _summary(graph: Graph) -> str:
    work, bytes_alive = cost(graph), memory(graph)
    facts = [
        ("inputs", str(len(graph.inputs))),
        ("outputs", str(len(graph.outputs))),
        ("work", amount(work.flops, "flop")),
        ("moved, unfused", amount(work.nbytes, "B")),
        ("intensity", f"{work.intensity:.3g} flop/B"),
        ("peak memory", amount(bytes_alive.peak, "B")),
        ("inputs and captured", amount(bytes_alive.held, "B")),
    ]
    return "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts) + "</dl>"


def _drawing(shown: Sequence[Item], limit: int) -> str:
    if len(shown) > limit:
        return f"<p>Graphs of more than {limit} nodes are not drawn; this one has {len(shown)} with its inputs.</p>"
    present = dict.fromkeys(item.stage for item in shown)
    legend = " ".join(f'<span class="mark s-{stage}">{stage}</span>' for stage in present)
    return f'<p>{legend} · a strong border is an output</p><div class="scroll drawing">{picture(shown)}</div>'


def _program(graph: Graph, shown: Sequence[Item], limit: int | None) -> str:
    """A row per node, under the line of the user's that led to it."""
    explicit_form = graph.form == "explicit"
    work = {entry.node: entry for entry in cost(graph)} if explicit_form else {}
    bytes_alive = memory(graph) if explicit_form else None
    alive = {step.node: step.running for step in bytes_alive} if bytes_alive else {}
    most = bytes_alive.peak if bytes_alive else 0
    rows: list[str] = []
    line = None
    for item in shown[:limit]:
        source = item.node.source
        if source is not None and (source.file, source.line) != line:
            line = source.file, source.line
            said = f"<b>{escaped(str(source))}</b>  {escaped(source.text)}"
            rows.append(f'<tr class="line"><td colspan="{len(_PROGRAM)}">{said}</td></tr>')
        entry = work.get(item.node)
        bar = f'<span class="bar" style="width:{90 * alive.get(item.node, 0) / most:.0f}px"></span>' if most else ""
        peak = " peak" if bytes_alive and item.node is bytes_alive.peak_at else ""
        cells = [
            item.name,
            _operation(item, shown),
            escaped(item.type),
            amount(entry.flops, "flop") if entry and entry.flops else "",
            amount(entry.nbytes, "B") if entry and entry.nbytes else "",
            f"{bar}{peak}" if item.node.operands else "",
            _remarks(item),
        ]
        rows.append(_row(cells, _PROGRAM, f"n{item.position}"))
    left = 0 if limit is None else len(shown) - limit
    cut = f"<p>and {left} nodes more.</p>" if left > 0 else ""
    note = "" if explicit_form else "<p>Sums above are those of the explicit form.</p>"
    return note + _table(_PROGRAM, rows) + cut


def _operation(item: Item, shown: Sequence[Item]) -> str:
    if not item.node.operands and item.stage == "input":
        return f"<b>{escaped(item.title)}</b>"
    operands = ", ".join(f'<a href="#n{o}">{shown[o].name}</a>' for o in item.operands)
    scope = f' <span class="mark">{escaped(item.node.scope)}</span>' if item.node.scope else ""
    return f"{escaped(item.title)}({operands}){scope}"


def _remarks(item: Item) -> str:
    marks = [f'<span class="mark s-{item.stage}">{item.stage}</span>']
    if item.node.origin and item.node.origin.reason:
        marks.append(escaped(item.node.origin.reason if item.stage != "other" else item.why))
    if item.node.policy:
        marks.append(f"under {item.node.policy.name}")
    if item.node.lint:
        marks.append(f"<b>lint: {escaped(item.node.lint)}</b>")
    if item.results:
        marks.append(f"<b>output {', '.join(map(str, item.results))}</b>")
    return " ".join(marks)


def _kept(graph: Graph) -> str:
    try:
        kept = residuals(graph)
    except NotDifferentiableError as error:
        return f"<p>There is no backward pass: {escaped(str(error.message))}</p>"
    if not kept:
        return "<p>Nothing.</p>"
    rows = []
    for e in kept:
        cells = [kept.name(e), e.value.name, str(e.value.type), amount(e.nbytes, "B"), ", ".join(e.needed_by)]
        rows.append(_row([escaped(cell) for cell in (*cells, str(e.value.source or ""))], _KEPT))
    held = amount(kept.nbytes - kept.own_nbytes, "B")
    total = f"<p>{amount(kept.nbytes, 'B')}, of which inputs and captured arrays are {held}.</p>"
    return _table(_KEPT, rows) + total


_Columns = Sequence[tuple[str, str]]
_PROGRAM: Final[_Columns] = (
    ("value", ""), ("operation", ""), ("type", ""), ("flops", "number"), ("bytes moved", "number"), ("memory", ""),
    ("made by", "wrap"),
)  # fmt: skip
_KEPT: Final[_Columns] = (
    ("value", ""), ("operation", ""), ("type", ""), ("bytes", "number"), ("needed by the gradient of", "wrap"),
    ("line", ""),
)  # fmt: skip
"""The headers of a table and the style of each column."""


def _row(cells: Sequence[str], columns: _Columns, identity: str = "") -> str:
    kinds = (f' class="{kind}"' if kind else "" for _, kind in columns)
    mark = f' id="{identity}"' if identity else ""
    return f"<tr{mark}>" + "".join(f"<td{k}>{cell}</td>" for k, cell in zip(kinds, cells, strict=True)) + "</tr>"


def _table(columns: _Columns, rows: Sequence[str]) -> str:
    head = "".join(f'<th class="{kind}">{name}</th>' if kind else f"<th>{name}</th>" for name, kind in columns)
    body = "\n".join(rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
