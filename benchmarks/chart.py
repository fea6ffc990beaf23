"""Pictures without a plotting library: bars of ratios and lines over sizes, both on logarithmic axes, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10

__all__ = ["bars", "lines"]

COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a", "#0a8a8a", "#bf3989")
STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#24292f}.axis{stroke:#d0d7de}.one{stroke:#24292f}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.axis{stroke:#3d444d}.one{stroke:#e6edf3}}"
)


def framed(width: int, height: int, parts: Iterator[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>\n"])


def text(x: float, y: float, what: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(what)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "axis") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def power(exponent: int) -> str:
    return f"{10.0**exponent:g}" if -3 <= exponent <= 4 else f"1e{exponent}"


def bars(title: str, values: Mapping[str, tuple[float, str]]) -> str:
    """A bar for each name, from 1 to its value, with a remark behind it; those below 1 point left."""
    pitch, left, width = 16, 120, 760
    height = 46 + pitch * len(values)
    low = floor(min(0.0, *(log10(v) for v, _ in values.values())))
    high = ceil(max(1.0, *(log10(v) for v, _ in values.values())))

    def at(value: float) -> float:
        return left + (log10(value) - low) / (high - low) * (width - left - 120)

    def parts() -> Iterator[str]:
        yield text(4, 14, title)
        for exponent in range(low, high + 1):
            x = at(10.0**exponent)
            yield line(x, 34, x, height - 4, "axis" if exponent else "one")
            yield text(x, 29, f"{power(exponent)}×", "middle")
        for k, (name, (value, remark)) in enumerate(values.items()):
            y = 38 + pitch * k
            start, end = sorted((at(1.0), at(value)))
            colour = COLOURS[0] if value >= 1 else COLOURS[1]
            yield text(left - 6, y + 10, name, "end")
            yield f'<rect x="{start:.1f}" y="{y}" width="{end - start:.1f}" height="{pitch - 4}" fill="{colour}"/>'
            yield text(max(end, at(1.0)) + 4, y + 10, f"{value:.2f} {remark}")

    return framed(width, height, parts())


def lines(title: str, across: str, up: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """A line through the points of each name."""
    left, top, right, bottom, width, height = 62, 30, 560, 350, 760, 390
    xs = [log10(x) for points in series.values() for x, _ in points]
    ys = [log10(y) for points in series.values() for _, y in points]
    x0, x1, y0, y1 = floor(min(xs)), ceil(max(xs)), floor(min(ys)), ceil(max(ys))

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + (log10(x) - x0) / max(x1 - x0, 1) * (right - left),
            bottom - (log10(y) - y0) / max(y1 - y0, 1) * (bottom - top),
        )

    def parts() -> Iterator[str]:
        yield text(4, 14, title)
        for exponent in range(x0, x1 + 1):
            x, _ = at(10.0**exponent, 10.0**y0)
            yield line(x, top, x, bottom)
            yield text(x, bottom + 15, power(exponent), "middle")
        for exponent in range(y0, y1 + 1):
            _, y = at(10.0**x0, 10.0**exponent)
            yield line(left, y, right, y)
            yield text(left - 5, y + 4, power(exponent), "end")
        yield text((left + right) / 2, bottom + 32, across, "middle")
        yield text(14, (top + bottom) / 2, up, "middle", f' transform="rotate(-90 14 {(top + bottom) / 2})"')
        for k, (name, points) in enumerate(series.items()):
            colour = COLOURS[k % len(COLOURS)]
            placed = [at(*point) for point in points]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
            yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in placed)
            yield f'<rect x="{right + 14}" y="{top + 18 * k}" width="10" height="10" fill="{colour}"/>'
            yield text(right + 30, top + 18 * k + 9, name)

    return framed(width, height, parts())
