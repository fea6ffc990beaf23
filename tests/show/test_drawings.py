"""networkx, Graphviz and Mermaid: the same graph, whatever its names are."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from typing import Any

import networkx as nx
import pytest

import lucidgraph as lg
from lucidgraph.dtypes import from_name
from lucidgraph.ir import Graph, Node
from lucidgraph.ir.op import get
from lucidgraph.ir.text import names_of
from tests.show.corpus import GRAPHS, HOSTILE, NAMES, array


def edges_of(graph: Graph) -> Counter[tuple[int, int, int]]:
    """(operand, user, position), by place: inputs first, then nodes."""
    place = {node: k for k, node in enumerate((*graph.inputs, *graph.nodes))}
    return Counter((place[o], place[n], k) for n in graph.nodes for k, o in enumerate(n.operands))


# -- networkx


@pytest.mark.parametrize("name", NAMES)
def test_networkx_holds_the_whole_graph(name: str) -> None:
    """A graph built again from the attributes and edges alone is the same program."""
    graph, _ = GRAPHS[name]
    drawn = graph.to_networkx()
    assert isinstance(drawn, nx.MultiDiGraph)
    assert nx.is_directed_acyclic_graph(drawn)
    made: dict[str, Node] = {}
    for key in list(nx.lexicographical_topological_sort(drawn, key=lambda k: int(k[1:]))):
        at = drawn.nodes[key]
        operands = {position: made[u] for u, _, position in drawn.in_edges(key, data="position")}
        in_order = tuple(operands[k] for k in range(len(operands)))
        policy = from_name(at["policy"]) if at["policy"] else None
        made[key] = Node(get(at["op"]), in_order, at["attrs"], at["types"], scope=at["scope"], policy=policy)
    inputs = [made[key] for key in drawn.graph["inputs"]]
    outputs = [made[key] for key in drawn.graph["outputs"]]
    labels = [drawn.nodes[key]["label"] for key in drawn.graph["inputs"]]
    nodes = [node for node in made.values() if node not in set(inputs)]
    assert Graph(inputs, nodes, outputs, drawn.graph["form"], labels).digest == graph.digest
    assert tuple(labels) == graph.input_names


def test_networkx_nodes_say_where_they_come_from() -> None:
    graph, _ = GRAPHS["network"]
    drawn = graph.to_networkx()
    names = names_of(graph)
    assert list(drawn) == list(names.values())
    for node, key in names.items():
        at = drawn.nodes[key]
        assert (at["op"], at["type"], at["scope"]) == (node.name, str(node.type), node.scope)
        assert at["source"] == (str(node.source) if node.source else "")
        assert at["input"] == (graph.inputs.index(node) if node in graph.inputs else None)
        assert at["outputs"] == tuple(k for k, out in enumerate(graph.outputs) if out is node)
    assert {at for _, at in drawn.nodes(data="scope")} == {"", "layers.0", "layers.1"}
    casts = [at for _, at in GRAPHS["counts"][0].to_networkx().nodes(data=True) if at["op"] == "cast"]
    assert casts[0]["origin"] == "promote: sum counts bool in int64"


# -- Graphviz: a strict reader of the language's statements, without what we do not write

_DOT = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<word>[A-Za-z_][\w.]*|[\d.]+)|(?P<mark>->|[{}\[\]=;,]))', re.DOTALL
)


class Dot:
    """``nodes``: id to attributes; ``edges``: (tail, head, attributes); ``clusters``: label to node ids."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            match = _DOT.match(text, at)
            assert match, f"no token at {text[at : at + 20]!r}"
            self.tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            at = match.end()
        self.nodes: dict[str, dict[str, str]] = {}
        self.edges: list[tuple[str, str, dict[str, str]]] = []
        self.clusters: dict[str, list[str]] = {}
        self.take("digraph")
        self.take("lucidgraph")
        self.statements(None)
        assert not self.tokens, f"left over: {self.tokens[:3]}"

    def take(self, token: str | None = None) -> str:
        kind, text = self.tokens.pop(0)
        assert token is None or text == token, f"{token} expected, {text} found"
        return _unquoted(text) if kind == "string" else text

    def peek(self) -> str:
        return self.tokens[0][1]

    def attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.peek() == "[":
            self.take("[")
            while self.peek() != "]":
                key = self.take()
                self.take("=")
                found[key] = self.take()
                if self.peek() != "]":
                    self.take(",")
            self.take("]")
        return found

    def statements(self, members: list[str] | None) -> str:
        self.take("{")
        label = ""
        while self.peek() != "}":
            head = self.take()
            if head == "subgraph":
                self.take()
                inside: list[str] = []
                self.clusters[self.statements(inside)] = inside
                continue
            if self.peek() == "=":
                self.take("=")
                value = self.take()
                label = value if head == "label" else label
            elif self.peek() == "->":
                self.take("->")
                self.edges.append((head, self.take(), self.attributes()))
            else:
                found = self.attributes()
                if head not in ("node", "edge"):
                    assert head not in self.nodes
                    self.nodes[head] = found
                    if members is not None:
                        members.append(head)
            self.take(";")
        self.take("}")
        return label


def _unquoted(text: str) -> str:
    """What Graphviz shows: an escaped quote or backslash is itself, ``\\n`` ends a line."""
    return re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), text[1:-1], flags=re.DOTALL)


def shown(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


@pytest.mark.parametrize("name", NAMES)
def test_dot_draws_every_node_and_edge(name: str) -> None:
    graph, _ = GRAPHS[name]
    dot = Dot(graph.to_dot())
    found: Counter[tuple[int, int, int]] = Counter()
    for tail, head, attributes in dot.edges:
        found[int(tail[1:]), int(head[1:]), int(attributes.get("label", "0"))] += 1
    assert found == edges_of(graph)
    for k, node in enumerate((*graph.inputs, *graph.nodes)):
        title, type_ = dot.nodes[f"n{k}"]["label"].split("\n")
        assert title == shown(graph.input_names[k]) if k < len(graph.inputs) else title.startswith(node.name)
        assert type_ == str(node.type)
        assert ("penwidth" in dot.nodes[f"n{k}"]) == (node in graph.outputs)
    assert len(dot.nodes) == len(graph.inputs) + len(graph.nodes)


def test_dot_draws_modules_as_clusters() -> None:
    dot = Dot(GRAPHS["network"][0].to_dot())
    assert {label: len(inside) for label, inside in dot.clusters.items()} == {"layers.0": 2, "layers.1": 1}


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_reads_what_we_write() -> None:
    for name in ("hostile", "network"):
        source = GRAPHS[name][0].to_dot()
        done = subprocess.run(["dot", "-Tplain"], input=source, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        nodes = [line for line in done.stdout.split("\n") if line.startswith("node ")]
        assert len(nodes) == source.count("fillcolor=")


# -- Mermaid

_MERMAID = [
    re.compile(r"flowchart TD"),
    re.compile(
        r'  (?:  )?n(?P<node>\d+)(?:\(\[|\[/|\[)"(?P<title>[^"<>`]*)<br/>(?P<type>[^"<>`]*)"'
        r"(?:\]\)|/\]|\]):::(?P<kind>\w+)"
    ),
    re.compile(r"  n(?P<tail>\d+) -->(?:\|(?P<position>\d+)\|)? n(?P<head>\d+)"),
    re.compile(r'  subgraph s\d+\["(?P<scope>[^"<>`]*)"\]'),
    re.compile(r"  end"),
    re.compile(r"  classDef (?P<defined>\w+) fill:#\w+,stroke:#\w+,color:#\w+"),
    re.compile(r"  style (?P<outputs>n\d+(?:,n\d+)*) stroke-width:3px"),
]


def mermaid(text: str) -> list[dict[str, Any]]:
    """Each line by the one form that it has."""
    lines = text.rstrip("\n").split("\n")
    matches = [next((m for form in _MERMAID if (m := form.fullmatch(line))), None) for line in lines]
    for line, match in zip(lines, matches, strict=True):
        assert match, f"no statement: {line!r}"
    return [match.groupdict() for match in matches if match]


def decoded(text: str) -> str:
    return re.sub(r"#(\d+);", lambda m: chr(int(m[1])), text)


@pytest.mark.parametrize("name", NAMES)
def test_mermaid_draws_every_node_and_edge(name: str) -> None:
    graph, _ = GRAPHS[name]
    lines = mermaid(graph.to_mermaid())
    found = Counter((int(m["tail"]), int(m["head"]), int(m["position"] or 0)) for m in lines if m.get("head"))
    assert found == edges_of(graph)
    nodes = {int(m["node"]): m for m in lines if m.get("node")}
    for k, node in enumerate((*graph.inputs, *graph.nodes)):
        title = decoded(nodes[k]["title"])
        assert title == shown(graph.input_names[k]) if k < len(graph.inputs) else title.startswith(node.name)
        assert decoded(nodes[k]["type"]) == str(node.type)
    assert {m["kind"] for m in nodes.values()} == {m["defined"] for m in lines if m.get("defined")}
    drawn = {name for m in lines if m.get("outputs") for name in m["outputs"].split(",")}
    place = {node: f"n{k}" for k, node in enumerate((*graph.inputs, *graph.nodes))}
    assert drawn == {place[node] for node in graph.outputs}
    assert [m["scope"] for m in lines if m.get("scope")] == list(dict.fromkeys(n.scope for n in graph.nodes if n.scope))


def test_hostile_names_are_really_in_the_corpus() -> None:
    assert set(GRAPHS["hostile"][0].input_names) == set(HOSTILE)


def test_an_attribute_that_is_text_is_escaped_everywhere() -> None:
    graph = lg.trace(lambda x: [-x, lg.asarray(x)][0], array(2))
    noisy = Node(get("debug_print"), (graph.inputs[0],), {"format": 'a"]; evil -> n0 [label="\\\n{}'}, get(
        "debug_print").result_types([graph.inputs[0].type], {"format": ""}))  # fmt: skip
    graph = Graph(graph.inputs, [*graph.nodes, noisy], graph.outputs, "explicit", graph.input_names)
    dot = Dot(graph.to_dot())
    assert set(dot.nodes) == {"n0", "n1", "n2"}
    assert "evil" in dot.nodes["n2"]["label"]
    assert sum(1 for m in mermaid(graph.to_mermaid()) if m.get("node")) == 3
