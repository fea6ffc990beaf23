"""The Python source of a graph runs and computes the same."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.errors import UnsupportedError
from lucidgraph.ir import Graph, Node
from lucidgraph.ir.op import get
from tests.checking import on_backend
from tests.show.corpus import GRAPHS, NAMES, array, printing


def function(graph: Graph) -> Any:
    namespace: dict[str, Any] = {}
    exec(compile(graph.to_python(), "<graph>", "exec", dont_inherit=True), namespace)
    return namespace["f"]


def extra(graph: Graph) -> dict[str, Any]:
    arrays = [node.attrs["value"].array for node in graph.captured]
    return {"captured": arrays} if arrays else {}


def same(actual: Any, expected: Any) -> None:
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        value = a.numpy() if isinstance(a, lg.Tensor) else np.asarray(a)
        assert (value.dtype, value.shape) == (e.dtype, e.shape)
        np.testing.assert_array_equal(value, e)


@pytest.mark.parametrize("name", NAMES)
def test_the_function_computes_what_the_graph_does(name: str) -> None:
    graph, args = GRAPHS[name]
    expected = graph.run(*args, backend="reference")
    fn = function(graph)
    with on_backend("reference"):
        same(fn(*args, **extra(graph)), expected)
    same(lg.compile(lambda *xs: fn(*xs, **extra(graph)), backend="reference")(*args), expected)


@pytest.mark.parametrize("name", NAMES)
def test_tracing_the_function_gives_the_graph_back(name: str) -> None:
    graph, args = GRAPHS[name]
    fn = function(graph)
    again = lg.trace(lambda *xs: fn(*xs, **extra(graph)), *args)
    assert [node.name for node in again.nodes if node.operands] == [n.name for n in graph.nodes if n.operands]
    assert [node.type for node in again.outputs] == [node.type for node in graph.outputs]


def test_it_reads_like_a_program() -> None:
    graph, _ = GRAPHS["counts"]
    source = graph.to_python()
    assert source.startswith("from functools import partial\n\nimport lucidgraph as lg\n")
    assert 'sum_ = partial(apply, get("sum"))' in source
    assert "v1 = cast(x, dtype=lg.int64)  # int64[5,4]  promote: sum counts bool in int64" in source
    assert ": return lg.sum(x, axis=0), lg.sum(x, axis=()), lg.mean(x)\n" in source
    tree = ast.parse(source)
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] == ["f"]


def test_hostile_names_stay_names_and_comments_stay_comments() -> None:
    graph, args = GRAPHS["hostile"]
    tree = ast.parse(graph.to_python())
    (made,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    arguments = [a.arg for a in made.args.args]
    assert len(set(arguments)) == len(args)
    assert all(a.isidentifier() and a not in ("class", "lg") for a in arguments)
    # Nothing but assignments of calls and the return: no name has become a statement.
    assert {type(statement) for statement in made.body} == {ast.Assign, ast.Return}


def test_constants_keep_every_bit() -> None:
    odd = (-0.0, float("nan"), complex(-0.0, -0.0), complex(0.0, float("inf")))
    graph = lg.trace(lambda x: [x * c for c in odd], array(1))
    literals = [n for n in graph.nodes if n.name == "constant"]
    again = lg.trace(function(graph), array(1))
    values = [n.attrs["value"] for n in again.nodes if n.name == "constant"]
    assert [repr(v) for v in values] == [repr(n.attrs["value"]) for n in literals]


def test_an_effect_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    fn = function(printing())
    lg.compile(fn, backend="reference")(np.zeros(2, np.float32))
    assert capsys.readouterr().out == "[0. 0.]\n"


def test_what_cannot_be_written_is_an_error() -> None:
    x = GRAPHS["chain"][0].inputs[0]
    graph = Graph([x], [node := Node(get("exp"), (x,), {}, (x.type, x.type))], [node], "explicit")
    with pytest.raises(UnsupportedError, match="exp has several results"):
        graph.to_python()
    graph = Graph([x], [node := Node(get("exp"), (x,), {"axis": object()}, (x.type,))], [node], "explicit")
    with pytest.raises(UnsupportedError, match="attribute of object"):
        graph.to_python()
