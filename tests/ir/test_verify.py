"""The verifier catches what it should: valid graphs are changed in every way there is, and each change is caught."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.dtypes import ALL, float32, float64, int8
from lucidgraph.errors import LucidGraphError, VerifyError
from lucidgraph.ir import CapturedArray, Graph, Node, TensorType
from lucidgraph.ir.op import get
from lucidgraph.passes import backward
from tests.corpus import PROGRAMS
from tests.samples import SAMPLES, graph_of, node_of

T = TensorType((2, 3), float32)


def explicit(name: str) -> Graph:
    program = PROGRAMS[name]
    return lg.trace(program.fn, *program.args)


def with_node(graph: Graph, place: int, node: Node) -> Graph:
    """The graph with another node in one place, and everything behind it rebuilt over it."""
    new = {graph.nodes[place]: node}
    nodes = list(graph.nodes)
    nodes[place] = node
    for k in range(place + 1, len(nodes)):
        if any(o in new for o in nodes[k].operands):
            new[nodes[k]] = nodes[k].replace(operands=tuple(new.get(o, o) for o in nodes[k].operands))
            nodes[k] = new[nodes[k]]
    return Graph(graph.inputs, nodes, [new.get(n, n) for n in graph.outputs], graph.form, graph.input_names)


def refused(graph: Graph) -> None:
    with pytest.raises(VerifyError):
        graph.verify()


@pytest.mark.parametrize("name", PROGRAMS)
def test_valid_graphs_are_valid(name: str) -> None:
    graph = explicit(name)
    assert graph.verify() is graph
    PROGRAMS[name].recorded().verify()
    backward(graph).verify()


# -- changes of one node, tried on every op

Mutation = Callable[[Node], Iterator[Node]]


def fewer_operands(node: Node) -> Iterator[Node]:
    arity = node.op.schema_v1.arity
    if arity is not None and node.operands:
        yield node.replace(operands=node.operands[:-1])


def more_operands(node: Node) -> Iterator[Node]:
    if node.op.schema_v1.arity is not None and node.operands:
        yield node.replace(operands=(*node.operands, node.operands[-1]))


def other_result_shape(node: Node) -> Iterator[Node]:
    t = node.types[0]
    yield node.replace(types=(t.with_shape((*t.shape, 1)), *node.types[1:]))
    if t.shape:
        yield node.replace(types=(t.with_shape((t.shape[0] + 1, *t.shape[1:])), *node.types[1:]))


def other_result_dtype(node: Node) -> Iterator[Node]:
    t = node.types[0]
    if not node.op.captures and node.name != "constant":
        yield node.replace(types=(t.with_dtype(next(d for d in ALL if d is not t.dtype)), *node.types[1:]))


def more_results(node: Node) -> Iterator[Node]:
    if not node.op.captures:
        yield node.replace(types=(*node.types, T))


def no_results(node: Node) -> Iterator[Node]:
    if not node.op.captures and node.name != "constant":
        yield node.replace(types=())


def weak_result(node: Node) -> Iterator[Node]:
    yield node.replace(types=tuple(dataclasses.replace(t, weak=True) for t in node.types))


def unknown_attribute(node: Node) -> Iterator[Node]:
    yield node.replace(attrs={**node.attrs, "wolf": 1})


def missing_attribute(node: Node) -> Iterator[Node]:
    for key, value in node.attrs.items():
        if value is not None and key not in OPTIONAL:
            yield node.replace(attrs={k: v for k, v in node.attrs.items() if k != key})


def attribute_without_text(node: Node) -> Iterator[Node]:
    for key in node.attrs:
        yield node.replace(attrs={**node.attrs, key: object()})
        yield node.replace(attrs={**node.attrs, key: np.float32(1)})
        yield node.replace(attrs={**node.attrs, key: [1, 2]})


# Attributes with a default: a node without them means the same.
OPTIONAL = {"dtype"}
MUTATIONS: tuple[Mutation, ...] = (
    fewer_operands, more_operands, other_result_shape, other_result_dtype, more_results, no_results, weak_result,
    unknown_attribute, missing_attribute, attribute_without_text,
)  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.__name__)
def test_every_op_refuses(mutation: Mutation) -> None:
    tried = 0
    accepted = []
    for name, samples in SAMPLES.items():
        for sample in samples[:3]:
            for changed in mutation(node_of(name, sample)):
                tried += 1
                try:
                    graph_of(changed).verify()
                except VerifyError:
                    continue
                accepted.append((name, str(sample), changed.attrs, changed.types))
    assert tried
    assert not accepted


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.__name__)
def test_every_node_of_a_program_refuses(mutation: Mutation) -> None:
    graph = explicit("network")
    for place, node in enumerate(graph.nodes):
        for changed in mutation(node):
            refused(with_node(graph, place, changed))


# -- changes of values


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("sum", {"axis": (2,)}),
        ("sum", {"axis": (-1,)}),
        ("sum", {"axis": (1, 0)}),
        ("sum", {"axis": (0, 0)}),
        ("sum", {"axis": 0}),
        ("sum", {"keepdims": "yes"}),
        ("sum", {"dtype": 7}),
        ("max", {"axis": (5,)}),
        ("argmax", {"axis": (0, 1)}),
        ("broadcast_to", {"shape": (3, 3)}),
        ("broadcast_to", {"shape": (3,)}),
        ("broadcast_to", {"shape": (2.0, 3.0)}),
        ("reshape", {"shape": (5,)}),
        ("reshape", {"shape": (-1,)}),
        ("permute_dims", {"axes": (0, 0)}),
        ("permute_dims", {"axes": (0,)}),
        ("expand_dims", {"axis": (4,)}),
        ("expand_dims", {"axis": (1, 0)}),
        ("squeeze", {"axis": (0,)}),
        ("slice", {"start": (0, 0), "stop": (2, 4), "step": (1, 1)}),
        ("slice", {"start": (0, 0), "stop": (2, 3), "step": (1, 0)}),
        ("slice", {"start": (0,), "stop": (2,), "step": (1,)}),
        ("slice", {"start": (0, -2), "stop": (2, 3), "step": (1, 1)}),
        ("concat", {"axis": 2}),
        ("concat", {"axis": -1}),
        ("cast", {"dtype": "float32"}),
        ("cast", {"dtype": None}),
        ("softmax", {"axis": 9}),
    ],
)
def test_wrong_attribute_values_are_refused(name: str, attrs: dict[str, Any]) -> None:
    op, x = get(name), Node(get("input"), (), {}, (T,))
    defaults: dict[str, Any] = {"axis": (0,), "keepdims": False} if name in ("sum", "max", "argmax") else {}
    attrs = {**defaults, **attrs}
    # Claim what the type rule says, if it says anything: the value itself is wrong.
    try:
        types = (T,) if name == "cast" else op.result_types([T], attrs)
    except (LucidGraphError, TypeError, AttributeError):
        types = (T,)
    refused(Graph([x], [node := Node(op, (x,), attrs, types)], [node], "explicit"))


@pytest.mark.parametrize(
    ("value", "t"),
    [
        (300, TensorType((), int8)),
        (-1, TensorType((), lg.dtypes.uint8)),
        (1.5, TensorType((), int8)),
        (1j, TensorType((), float32)),
        (1.0, TensorType((1,), float32)),
        ("1", TensorType((), float32)),
        (None, TensorType((), float32)),
        (np.float64(1), TensorType((), float32)),
        (2, TensorType((), lg.dtypes.bool_)),
    ],
    ids=str,
)
def test_wrong_constants_are_refused(value: Any, t: TensorType) -> None:
    refused(Graph([], [node := Node(get("constant"), (), {"value": value}, (t,))], [node], "explicit"))


# -- changes of wiring


def chain() -> tuple[Node, Node, Node]:
    x = Node(get("input"), (), {}, (T,))
    y = Node(get("negative"), (x,), {}, (T,))
    return x, y, Node(get("add"), (x, y), {}, (T,))


def test_wiring() -> None:
    x, y, z = chain()
    stranger = Node(get("input"), (), {}, (T,))
    Graph([x], [y, z], [z], "explicit").verify()
    refused(Graph([x], [z, y], [z], "explicit"))  # used before it is defined
    refused(Graph([x], [z], [z], "explicit"))  # not there at all
    refused(Graph([], [y, z], [z], "explicit"))  # the input is not listed
    refused(Graph([x], [y, z, y], [z], "explicit"))  # twice
    refused(Graph([x], [y], [z], "explicit"))  # an output from elsewhere
    refused(Graph([x, x], [y, z], [z], "explicit"))  # an input twice
    refused(Graph([x, y], [z], [z], "explicit"))  # an input that is none
    refused(Graph([x], [stranger, y, z], [z], "explicit"))  # an input among the nodes
    refused(Graph([x], [y, z], [z], "explicit", ["a", "b"]))  # one name too many


def test_operands_exchanged_for_others() -> None:
    x, y, z = chain()
    for t in (TensorType((2, 1), float32), TensorType((2, 3), float64), TensorType((2, 3, 1), float32)):
        other = Node(get("input"), (), {}, (t,))
        refused(Graph([x, other], [y, changed := z.replace(operands=(other, y))], [changed], "explicit"))


def test_ops_exchanged_for_others() -> None:
    graph = explicit("statistics")
    for place, node in enumerate(graph.nodes):
        for name in ("sum", "matmul", "isnan", "concat", "where"):
            other = get(name)
            if other is node.op or (name == "sum" and node.name in ("max", "prod", "min", "mean")):
                continue
            refused(with_node(graph, place, node.replace(op=other)))


def test_results_of_nodes_with_several() -> None:
    class Pair(get("negative")):  # type: ignore[misc]
        schema_v1 = lg.OpSchema("pair_for_verifier_test", internal=True)

        @classmethod
        def infer(cls, x: TensorType) -> tuple[TensorType, TensorType]:  # type: ignore[override]
            return x, TensorType((), x.dtype)

    x = Node(get("input"), (), {}, (T,))
    pair = Node(Pair, (x,), {}, (T, TensorType((), float32)))

    def graph(index: Any, t: TensorType) -> Graph:
        result = Node(get("result"), (pair,), {"index": index}, (t,))
        return Graph([x], [pair, result], [result], "explicit")

    graph(1, TensorType((), float32)).verify()
    for index, t in ((0, TensorType((), float32)), (1, T), (2, T), (-1, T), ("0", T), (None, T)):
        refused(graph(index, t))


def test_captured_arrays_are_held() -> None:
    for value in (np.ones(3), None, 1.0):
        refused(Graph([], [node := Node(get("captured"), (), {"value": value}, (T,))], [node], "explicit"))
    Graph([], [node := Node(get("captured"), (), {"value": CapturedArray()}, (T,))], [node], "explicit").verify()


def test_recorded_types_follow_the_policy_of_the_region() -> None:
    graph = PROGRAMS["autocast"].recorded()
    place = next(k for k, node in enumerate(graph.nodes) if node.name == "matmul")
    graph.verify()
    refused(with_node(graph, place, graph.nodes[place].replace(policy=None)))


def test_the_message_names_the_node_and_the_line() -> None:
    graph = explicit("polynomial")
    place = next(k for k, node in enumerate(graph.nodes) if node.name == "add")
    wrong = graph.nodes[place].replace(types=(TensorType((9,), graph.nodes[place].dtype),))
    with pytest.raises(VerifyError, match=r"add.*float32\[9\].*corpus\.py:\d+") as caught:
        with_node(graph, place, wrong).verify()
    assert caught.value.source == graph.nodes[place].source


