"""The HTML page: well formed, complete, closed to the outside; and the places of the picture's boxes."""

from __future__ import annotations

import random
import re
import stat
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

import lucidgraph as lg
from lucidgraph.ir import Graph, OpSchema
from lucidgraph.ir.op import Unary
from lucidgraph.lang.tensor import apply
from lucidgraph.show.layout import place
from tests.show.corpus import GRAPHS, HOSTILE, NAMES, array

_VOID = {"meta", "br", "hr", "img", "input", "link"}
_CLOSED = {"rect", "path"}


class Page(HTMLParser):
    """Reads a page strictly: every element closed in its turn, each id once."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self.srcdoc = ""
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"
        assert len(set(self.ids)) == len(self.ids)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in _VOID:
            self.open.append(tag)
        for key, value in attrs:
            self.attributes.append((tag, key, value))
            if key == "id":
                self.ids.append(str(value))
            elif key == "href":
                self.links.append(str(value))
            elif key == "srcdoc":
                self.srcdoc = str(value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _CLOSED, f"<{tag}/> is no empty element"
        self.tags.add(tag)
        self.attributes += [(tag, key, value) for key, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


KNOWN = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "small", "dl", "div", "dt", "dd", "p", "span", "svg",
    "a", "g", "rect", "text", "path", "table", "thead", "tbody", "tr", "th", "td", "b", "details", "summary", "pre",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_whole_and_closed_to_the_outside(name: str) -> None:
    graph, _ = GRAPHS[name]
    source = graph.to_html()
    page = Page(source)
    assert page.tags <= KNOWN
    assert not [key for _, key, _ in page.attributes if key.startswith("on") or key in ("src", "xlink:href", "action")]
    assert all(link[0] == "#" and link[1:] in page.ids for link in page.links)
    assert "url(" not in source and "@import" not in source and "://" not in source
    assert page.ids == [f"n{k}" for k in range(len(graph.inputs) + len(graph.nodes))]
    for line in str(graph).split("\n"):
        assert "".join(c if c.isprintable() else " " for c in line) in page.text


def test_names_are_text_and_nothing_else() -> None:
    page = Page(GRAPHS["hostile"][0].to_html())
    for name in HOSTILE:
        assert "".join(c if c.isprintable() else " " for c in name) in page.text
    assert "script" not in page.tags


def test_the_page_says_what_it_is_about() -> None:
    graph, _ = GRAPHS["network"]
    text = re.sub(r"\s+", " ", Page(graph.to_html()).text)
    assert f"explicit graph of {len(graph.nodes)} nodes" in text
    assert "needed by the gradient of" in text
    assert "layers.0" in text
    for source in {(n.source.line, n.source.text) for n in graph.nodes if n.source}:
        assert f"corpus.py:{source[0]} {source[1]}" in text
    kept = graph.residuals()
    assert all(kept.name(entry) in text for entry in kept)


def test_large_graphs_are_not_drawn_and_long_ones_are_cut_in_notebooks() -> None:
    def fn(x: object) -> object:
        for _ in range(300):
            x = -x  # type: ignore[operator]
        return x

    graph = lg.trace(fn, array(2))
    page = Page(graph.to_html())
    assert "svg" not in page.tags
    assert "more than 150 nodes are not drawn" in page.text
    assert page.text.count("negative(%") == 2 * 300  # in the table and in the text
    short = Page(Page(graph._repr_html_()).srcdoc)
    assert short.text.count("negative(%") == 199 + 199  # 200 rows with the input; 200 lines with the first
    assert "and 101 nodes more" in short.text
    assert "103 lines more" in short.text


class Opaque(Unary):
    """An op without a gradient."""

    schema_v1 = OpSchema("opaque")
    not_differentiable = "nobody has <worked> it out"


def test_a_program_without_a_backward_pass_says_why() -> None:
    graph = lg.trace(lambda x: apply(Opaque, x), array(2))
    assert "There is no backward pass: opaque has no gradient: nobody has <worked> it out" in Page(graph.to_html()).text


def test_notebooks_get_a_frame_without_scripts() -> None:
    graph, _ = GRAPHS["hostile"]
    outer = Page(graph._repr_html_())
    assert outer.tags == {"iframe"}
    assert ("iframe", "sandbox", "") in outer.attributes
    assert Page(outer.srcdoc).tags <= KNOWN


def test_recorded_graphs_have_a_page() -> None:
    graph = lg.trace(lambda x: lg.sum(x * 2.0), array(3) > 0, passes=())
    page = Page(graph.to_html())
    assert "recorded graph of" in page.text
    assert "of the explicit form" in page.text


def test_the_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = GRAPHS["hostile"]
    path = tmp_path / "graph.html"
    path.write_text("before")
    page = graph.to_html(str(path))
    assert path.read_bytes().decode("utf-8") == page
    assert "π" in page
    assert [p.name for p in tmp_path.iterdir()] == ["graph.html"]
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    plain.unlink()

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full)
    path.write_text("before")
    with pytest.raises(OSError, match="no space"):
        graph.to_html(path)
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["graph.html"]
    with pytest.raises(FileNotFoundError):
        graph.to_html(tmp_path / "nowhere" / "graph.html")


# -- where the boxes go


def check_placement(widths: list[float], edges: list[tuple[int, int]]) -> None:
    height, step = 30.0, 50.0
    placed = place(widths, height, step, edges)
    rows: dict[float, list[tuple[float, float]]] = {}
    for (x, y), w in zip(placed.centres, widths, strict=True):
        assert x - w / 2 >= -1e-6 and x + w / 2 <= placed.width + 1e-6
        assert y - height / 2 >= 0 and y + height / 2 <= placed.height
        rows.setdefault(y, []).append((x - w / 2, x + w / 2))
    for spans in rows.values():
        spans.sort()
        assert all(right < left for (_, right), (left, _) in pairwise(spans))
    ends: dict[int, list[float]] = {}
    for (u, v), route in zip(edges, placed.routes, strict=True):
        (x0, y0), (x1, y1) = route[0], route[-1]
        assert placed.centres[v][1] >= placed.centres[u][1] + step
        assert (x0, y0) == (placed.centres[u][0], placed.centres[u][1] + height / 2)
        assert y1 == placed.centres[v][1] - height / 2
        assert abs(x1 - placed.centres[v][0]) <= widths[v] / 2
        assert [y for _, y in route] == sorted(y for _, y in route)
        ends.setdefault(v, []).append(x1)
        # A line that passes a row of boxes does so between them.
        for x, y in route[1:-1]:
            (passed,) = (spans for m, spans in rows.items() if abs(m - y) <= height / 2 + 1e-6)
            assert all(not left < x < right for left, right in passed)
    assert all(xs == sorted(xs) for xs in ends.values())


def test_boxes_do_not_overlap_and_lines_run_down_between_them() -> None:
    check_placement([], [])
    check_placement([50.0], [])
    for seed in range(25):
        rng = random.Random(seed)
        count = rng.randrange(2, 40)
        edges = [(rng.randrange(v), v) for v in range(1, count) for _ in range(rng.randrange(4))]
        check_placement([rng.uniform(40, 200) for _ in range(count)], edges)


def test_constants_stand_beside_who_uses_them() -> None:
    # 0 -> 1 -> 2 -> 3, and a leaf 4 with its broadcast 5 that only 6 reads, as does 3.
    edges = [(0, 1), (1, 2), (2, 3), (4, 5), (3, 6), (5, 6)]
    placed = place([60.0] * 7, 30.0, 50.0, edges)
    depth = [round((y - 15) / 50) for _, y in placed.centres]
    assert depth == [0, 1, 2, 3, 2, 3, 4]


def test_a_chain_is_drawn_straight() -> None:
    placed = place([60.0, 120.0, 80.0], 30.0, 50.0, [(0, 1), (1, 2)])
    assert len({round(x, 6) for x, _ in placed.centres}) == 1


@pytest.mark.slow
def test_views_of_a_very_long_chain() -> None:
    """All at Python's own recursion limit."""
    graph = Graph.parse(
        'graph explicit(%0 "x": float32[2]) {\n'
        + "\n".join(f"  %{k}: float32[2] = exp(%{k - 1})" for k in range(1, 20001))
        + "\n  return %20000\n}"
    )
    assert len(graph.residuals()) == 20000
    assert graph.cost().flops == 40000
    assert graph.memory().peak == 24
    assert graph.to_dot().count("->") == graph.to_mermaid().count("-->") == 20000
    assert graph.to_networkx().number_of_edges() == 20000
    compile(graph.to_python(), "<graph>", "exec")
    assert graph.to_html().count("<tr") > 40000
