"""A graph as an SVG picture."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from .labels import Item
from .layout import Placement, place
from .text import plain

__all__ = ["STYLE", "escaped", "picture"]

_CHARACTER: Final = 6.7
_HEIGHT: Final = 38.0
_STEP: Final = 68.0
_MARGIN: Final = 12.0
_LONGEST: Final = 34

STYLE: Final = """
svg { display: block; font: 11px var(--mono); }
svg rect { stroke: var(--line); fill: var(--program); }
svg .result rect { stroke: var(--ink); stroke-width: 2; }
svg text { fill: var(--ink); text-anchor: middle; }
svg text.type { fill: var(--soft); font-size: 10px; }
svg path { fill: none; stroke: var(--edge); }
svg path.head { fill: var(--edge); stroke: none; }
svg a:hover rect { stroke: var(--accent); stroke-width: 2; }
"""


def escaped(text: str) -> str:
    """Text that HTML shows as it is."""
    return html.escape(plain(text), quote=True)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def picture(shown: Sequence[Item]) -> str:
    """The picture: operands above, users below; a click on a box leads to its row, which has the id ``n<position>``."""
    titles = [_short(item.title) for item in shown]
    widths = [_CHARACTER * max(len(t), len(_short(item.type)), 6) + 18 for t, item in zip(titles, shown, strict=True)]
    edges = [(operand, item.position) for item in shown for operand in item.operands]
    placed = place(widths, _HEIGHT, _STEP, edges)
    width, height = placed.width + 2 * _MARGIN, placed.height + 2 * _MARGIN
    parts = [f'<svg role="img" aria-label="the graph" width="{width:.0f}" height="{height:.0f}" '
             f'viewBox="{-_MARGIN:g} {-_MARGIN:g} {width:.0f} {height:.0f}">']  # fmt: skip
    parts += _edges(placed)
    for item, title, w, (x, y) in zip(shown, titles, widths, placed.centres, strict=True):
        more = [text for text in (f"{item.name}: {item.type} = {item.title}", item.why, item.where) if text]
        radius = _HEIGHT / 2 if item.stage == "input" else 5
        left, top = x - w / 2, y - _HEIGHT / 2
        parts.append(
            f'<a href="#n{item.position}"><g class="s-{item.stage}{" result" if item.results else ""}">'
            f"<title>{escaped(' · '.join(more))}</title>"
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{w:.1f}" height="{_HEIGHT:g}" rx="{radius:g}"/>'
            f'<text x="{x:.1f}" y="{y - 3:.1f}">{escaped(title)}</text>'
            f'<text class="type" x="{x:.1f}" y="{y + 12:.1f}">{escaped(_short(item.type))}</text></g></a>'
        )
    return "".join([*parts, "</svg>"])


def _edges(placed: Placement) -> list[str]:
    """Curves, and heads where they arrive."""
    parts = []
    for route in placed.routes:
        (x, y), *_ = route
        line = [f"M{x:.1f} {y:.1f}"]
        for (x0, y0), (x1, y1) in pairwise(route):
            bend = f"C{x0:.1f} {(y0 + y1) / 2:.1f} {x1:.1f} {(y0 + y1) / 2:.1f} {x1:.1f} {y1:.1f}"
            line.append(bend if x0 != x1 else f"V{y1:.1f}")
        x, y = route[-1]
        parts.append(f'<path d="{"".join(line)}"/><path class="head" d="M{x:.1f} {y:.1f}l-3 -6h6z"/>')
    return parts
