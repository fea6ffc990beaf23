"""Where the boxes of a picture go: layers by longest path, few crossings, straight lines where possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Placement", "place"]

Point = tuple[float, float]

_GAP = 22.0
_LANE = 10.0
_SWEEPS = 12
_STRAIGHT = 8.0
"""How much more a lane wants to run straight than a box wants to stand under its operand."""


@dataclass(frozen=True, slots=True)
class Placement:
    """``centres`` of the boxes; ``routes`` of the edges, each a list of points from box to box; the picture's size."""

    centres: list[Point]
    routes: list[list[Point]]
    width: float
    height: float


def place(widths: Sequence[float], height: float, step: float, edges: Sequence[tuple[int, int]]) -> Placement:
    """Boxes of ``widths`` and one ``height``, in layers ``step`` apart.

    ``edges`` go from a smaller number to a larger one, in the order of the larger one's operands. Each box stands one
    layer below the lowest of its operands, but inputs and constants, and what is made of one of them alone, are pulled
    down to who uses them. An edge over several layers has a lane in each, shared with others from the same box.
    """
    layers = _layers(len(widths), edges)
    # Lanes are numbered after the boxes: lane[(box, layer)].
    lanes: dict[tuple[int, int], int] = {}
    layer_of = list(layers)
    size = list(widths)
    ends = _ends(edges, widths)
    # From layer to layer, and how far right of the middle a line ends.
    short: dict[tuple[int, int], float] = {}
    for (u, v), end in zip(edges, ends, strict=True):
        at = u
        for layer in range(layers[u] + 1, layers[v]):
            lane = lanes.get((u, layer))
            if lane is None:
                lane = lanes[u, layer] = len(size)
                size.append(_LANE)
                layer_of.append(layer)
            short[at, lane] = 0.0
            at = lane
        short.setdefault((at, v), end)
    rows: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for k, layer in enumerate(layer_of):
        rows[layer].append(k)
    above: list[list[int]] = [[] for _ in size]
    below: list[list[int]] = [[] for _ in size]
    for u, v in short:
        above[v].append(u)
        below[u].append(v)
    _untangle(rows, above, below, short)
    x = _columns(rows, size, above, below)
    centres = [(x[k], height / 2 + layer_of[k] * step) for k in range(len(size))]
    routes = []
    for (u, v), end in zip(edges, ends, strict=True):
        points = [(centres[u][0], centres[u][1] + height / 2)]
        for layer in range(layers[u] + 1, layers[v]):
            across, down = centres[lanes[u, layer]]
            points += [(across, down - height / 2), (across, down + height / 2)]
        routes.append([*points, (centres[v][0] + end, centres[v][1] - height / 2)])
    right = max((x[k] + size[k] / 2 for k in range(len(size))), default=0.0)
    return Placement(centres[: len(widths)], routes, right, len(rows) * step - (step - height) if rows else 0.0)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    layers = [0] * count
    users: list[list[int]] = [[] for _ in range(count)]
    operands: list[set[int]] = [set() for _ in range(count)]
    for u, v in edges:
        operands[v].add(u)
        users[u].append(v)
    loose = [False] * count
    for v in range(count):
        layers[v] = max((layers[u] + 1 for u in operands[v]), default=0)
        loose[v] = len(operands[v]) <= 1 and all(loose[u] for u in operands[v])
    for u in reversed(range(count)):
        if loose[u] and users[u]:
            layers[u] = min(layers[v] for v in users[u]) - 1
    return layers


def _untangle(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]], ends: Mapping[tuple[int, int], float]
) -> None:
    """Order each row by the mean place of its neighbours, down and up in turn; operands of one box as it takes them."""
    place: dict[int, float] = {}
    for row in rows:
        place.update((k, float(i)) for i, k in enumerate(row))
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else rows[::-1]:
            wanted = {}
            for k in row:
                near = [place[u] for u in above[k]] if down else [place[v] + ends[k, v] / 1000 for v in below[k]]
                wanted[k] = sum(near) / len(near) if near else place[k]
            row.sort(key=wanted.__getitem__)
            place.update((k, float(i)) for i, k in enumerate(row))


def _columns(
    rows: list[list[int]], size: list[float], above: list[list[int]], below: list[list[int]]
) -> dict[int, float]:
    """Each box at the mean of its neighbours, as near as the order and the gaps allow."""
    x: dict[int, float] = {}
    offsets: list[list[float]] = []
    for row in rows:
        at, starts = 0.0, []
        for k in row:
            starts.append(at + size[k] / 2)
            at += size[k] + _GAP
        offsets.append(starts)
        x.update(zip(row, (s - at / 2 for s in starts), strict=True))
    for sweep in range(5 * _SWEEPS):
        order = list(zip(rows, offsets, strict=True))
        for row, starts in order if sweep % 2 == 0 else order[::-1]:
            wanted, weights = [], []
            for k, start in zip(row, starts, strict=True):
                near = [(x[o], _STRAIGHT if size[k] == size[o] == _LANE else 1.0) for o in (*above[k], *below[k])]
                weight = sum(w for _, w in near)
                wanted.append((sum(v * w for v, w in near) / weight if near else x[k]) - start)
                weights.append(weight or 1.0)
            x.update((k, y + s) for k, y, s in zip(row, _ascending(wanted, weights), starts, strict=True))
    left = min((x[k] - size[k] / 2 for k in x), default=0.0)
    return {k: v - left for k, v in x.items()}


def _ascending(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing numbers nearest to ``wanted`` by least squares: neighbours that disagree are pooled."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(wanted, weights, strict=True):
        total, heavy, count = value * weight, weight, 1
        while pools and pools[-1][0] / pools[-1][1] > total / heavy:
            t, h, c = pools.pop()
            total, heavy, count = total + t, heavy + h, count + c
        pools.append((total, heavy, count))
    return [total / heavy for total, heavy, count in pools for _ in range(count)]


def _ends(edges: Sequence[tuple[int, int]], widths: Sequence[float]) -> list[float]:
    """How far from the middle of its box each edge ends: the operands side by side, in order."""
    count = [0] * len(widths)
    for _, v in edges:
        count[v] += 1
    seen = [0] * len(widths)
    ends = []
    for _, v in edges:
        room = min(14.0, (widths[v] - 12) / max(count[v] - 1, 1))
        ends.append((seen[v] - (count[v] - 1) / 2) * room)
        seen[v] += 1
    return ends
