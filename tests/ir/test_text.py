"""The text of a graph is complete: it comes back as the same graph, and what is malformed is refused with its line."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import lucidgraph as lg
from lucidgraph.dtypes import float32, int64
from lucidgraph.errors import ShapeError, VerifyError
from lucidgraph.ir import CapturedArray, Graph, Node, Origin, TensorType
from lucidgraph.ir.op import get
from lucidgraph.sources import SourceLine
from tests.corpus import PROGRAMS
from tests.ir.graphs import graphs


def remarks(node: Node) -> Any:
    return str(node.source) if node.source else None, node.scope, node.policy, node.origin, node.lint


@given(graphs())
def test_text_comes_back(graph: Graph) -> None:
    text = str(graph.verify())
    back = Graph.parse(text)
    assert str(back) == text
    assert back.digest == graph.digest
    assert back.input_names == graph.input_names
    assert [n.types for n in back.nodes] == [n.types for n in graph.nodes]
    assert [remarks(n) for n in back.nodes] == [remarks(n) for n in graph.nodes]
    for a, b in zip(graph.nodes, back.nodes, strict=True):
        # None is the default of every attribute that may be None, and is not printed.
        given_attrs = {k: v for k, v in a.attrs.items() if v is not None}
        assert repr(given_attrs) == repr(dict(b.attrs)) or a.op.captures
        assert [type(v) for v in given_attrs.values()] == [type(v) for v in b.attrs.values()]


@given(graphs())
def test_pickle_and_copies(graph: Graph) -> None:
    assert str(pickle.loads(pickle.dumps(graph))) == str(graph)
    assert copy.deepcopy(graph) is graph and copy.copy(graph) is graph


@pytest.mark.parametrize("form", ["recorded", "explicit"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_come_back(name: str, form: str) -> None:
    program = PROGRAMS[name]
    graph = program.recorded() if form == "recorded" else lg.trace(program.fn, *program.args)
    back = Graph.parse(str(graph))
    assert (str(back), back.digest, back.form) == (str(graph), graph.digest, form)
    bound = back.bind([node.attrs["value"].array for node in graph.captured])
    assert bound.digest == graph.digest
    if form == "explicit":
        before, after = (g.run(*program.args, backend="reference") for g in (graph, bound))
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)


def test_graphs_inside_attributes_come_back() -> None:
    t = TensorType((2,), float32)
    x, y = Node(get("input"), (), {}, (t,)), Node(get("input"), (), {}, (t,))
    held = Node(get("captured"), (), {"value": CapturedArray(np.ones(2, np.float32))}, (t,))
    inner = Graph([x], [held, node := Node(get("add"), (x, held), {}, (t,))], [node], "explicit", ["a"])

    class Kernel(get("negative")):  # type: ignore[misc]
        schema_v1 = lg.OpSchema("kernel_for_text_test", internal=True)

        @classmethod
        def infer(cls, x: TensorType, *, body: Graph) -> TensorType:
            return body.outputs[0].type

    registry = lg.ir.op.REGISTRY
    registry["kernel_for_text_test"] = Kernel
    try:
        graph = Graph([y], [k := Node(Kernel, (y,), {"body": inner}, (t,))], [k], "explicit").verify()
        back = Graph.parse(str(graph))
        assert str(back) == str(graph)
        assert back.digest == graph.digest
        assert str(back.nodes[0].attrs["body"]) == str(inner)
    finally:
        del registry["kernel_for_text_test"]


GOOD = """graph explicit(%0 "x": float32[3], %1: int64[]) {
  %2: float32[3] = negative(%0)  # (model.py:3)
  %3: int64[3] = cast[int64](%2)  # promote: because (model.py:4)
  return %3, %0
}"""


def test_the_good_text_is_good() -> None:
    graph = Graph.parse(GOOD)
    assert str(graph) == GOOD
    assert graph.nodes[1].origin == Origin("promote", "because")
    assert graph.nodes[0].source == SourceLine("model.py", 3)
    assert graph.nodes[1].attrs["dtype"] is int64


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("graph explicit", "grpah explicit", 1),
        ("explicit", "implicit", 1),
        ("float32[3], %1", "float33[3], %1", 1),
        ("[3], %1", "[-], %1", 1),
        ("negative(%0)", "negativ(%0)", 2),
        ("negative(%0)", "negative(%9)", 2),
        ("negative(%0)", "negative(%0", 2),
        ("negative(%0)", "negative(0)", 2),
        ("%3: int64", "%2: int64", 3),
        ("cast[int64]", "cast[int65]", 3),
        ("cast[int64]", "cast[", 3),
        ("cast[int64]", "cast[~]", 3),
        ("= cast", "cast", 3),
        ("return %3, %0", "return %7", 4),
        ("return %3, %0", "", 5),
        ("}", "} more", 5),
        ("}", "", 5),
        ("%1: int64[]", '%1 "x: int64[]', 1),
        ("%1: int64[]", "%0: int64[]", 1),
        ("negative(%0)", "negative(%0) in", 2),
        ("negative(%0)", "negative(%0) under float31", 2),
        ("(%2)", "(%2) ?", 3),
    ],
)  # fmt: skip
def test_malformed_text_is_refused_with_its_line(old: str, new: str, line: int) -> None:
    assert old in GOOD
    with pytest.raises(VerifyError, match=f"line {line}:"):
        Graph.parse(GOOD.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float32[3] = negative", "float32[4] = negative"),
        ("int64[3] = cast", "int32[3] = cast"),
        ("negative(%0)", "negative(%0, %0)"),
        ("negative(%0)", "negative[axis=3](%0)"),
        ("negative(%0)", "add(%0, %1)"),
        ("cast[int64]", "cast"),
        ("cast[int64]", "cast[1.5]"),
        ("float32[3] = negative", "~float32[3] = negative"),
    ],
)
def test_well_formed_nonsense_is_refused(old: str, new: str) -> None:
    assert old in GOOD
    with pytest.raises(VerifyError):
        Graph.parse(GOOD.replace(old, new))


@pytest.mark.parametrize("text", ["", "graph", "{", "%0", "\x00", "graph explicit() {\n", "#", "graph explicit(("])
def test_any_text_is_a_graph_or_refused(text: str) -> None:
    with pytest.raises(VerifyError, match="line"):
        Graph.parse(text)


# -- captured arrays


def holding(array: Any) -> Graph:
    return lg.trace(lambda x: x + array, np.ones(3, np.float32))


def test_digest_and_text_do_not_hold_the_array() -> None:
    one, other = holding(np.ones(3, np.float32)), holding(np.zeros(3, np.float32))
    assert one.digest == other.digest
    assert str(one) == str(other)
    assert one.digest != holding(np.ones(1, np.float32)).digest


def test_bind_fills_the_slots_in_order() -> None:
    graph = lg.trace(lambda x: (x + np.ones(3, np.float32)) * np.full(3, 5, np.float32), np.ones(3, np.float32))
    back = Graph.parse(str(graph))
    with pytest.raises(VerifyError, match="unbound"):
        back.run(np.ones(3, np.float32), backend="reference")
    bound = back.bind([np.full(3, 2, np.float32), np.full(3, 7, np.float32)])
    (result,) = bound.run(np.ones(3, np.float32), backend="reference")
    np.testing.assert_array_equal(result, 21)


@pytest.mark.parametrize(
    "arrays", [[], [np.ones(3), np.ones(3)], [np.ones(4)], [np.ones((3, 1))]], ids=["none", "two", "size", "rank"]
)
def test_bind_refuses_what_does_not_fit(arrays: list[np.ndarray]) -> None:
    with pytest.raises(ShapeError):
        holding(np.ones(3, np.float32)).bind([a.astype(np.float32) for a in arrays])


def test_bind_refuses_another_dtype() -> None:
    with pytest.raises(lg.errors.DTypeError):
        holding(np.ones(3, np.float32)).bind([np.ones(3, np.float64)])
