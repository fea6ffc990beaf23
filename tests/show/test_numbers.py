"""Residuals, cost and memory against facts that can be worked out by hand, and against definitions written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.ir import Graph, Node
from lucidgraph.ir.evaluate import evaluate_node
from lucidgraph.ir.op import REGISTRY
from lucidgraph.show.residuals import Residual
from tests.show.corpus import GRAPHS, NAMES, array, op


def kept(fn: Any, *args: Any) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(e.value.name, e.nbytes, e.needed_by) for e in lg.trace(fn, *args).residuals()]


def first_rows(x: Any, count: int) -> Any:
    return op("slice", x, start=(0, 0), stop=(count, 3), step=(1, 1))


# -- residuals

X = array(4, 3)


@pytest.mark.parametrize(
    "fn",
    [
        lg.sum,
        lambda x: lg.mean(x, axis=1),
        lambda x: x + x,
        lambda x: x - 2.0,
        lambda x: x * 2.0,
        lambda x: x / 3.0,
        lambda x: -x,
        lambda x: op("reshape", x, shape=(12,)),
        lambda x: op("broadcast_to", x, shape=(5, 4, 3)),
        lambda x: op("stop_gradient", x) + x,
    ],
)
def test_linear_programs_keep_nothing(fn: Any) -> None:
    found = lg.trace(fn, X).residuals()
    assert list(found) == []
    assert found.nbytes == 0
    assert str(found) == "backward keeps nothing"


def test_what_is_kept_of_known_programs() -> None:
    assert kept(lambda x: x * x, X) == [("input", 48, ("multiply",))]
    assert kept(lambda x: op("exp", x), X) == [("exp", 48, ("exp",))]
    assert kept(lambda x: op("tanh", x), X) == [("tanh", 48, ("tanh",))]
    assert kept(lambda x: op("matmul", x, array(3, 5)), X) == [("captured", 60, ("matmul",))]
    assert kept(lambda x, w: op("matmul", x, w), X, array(3, 5)) == [
        ("input", 48, ("matmul",)),
        ("input", 60, ("matmul",)),
    ]
    # Of where only the condition, one byte an element; its operands are read by nobody.
    assert kept(lambda c, x, y: op("where", c, x, y), X > 0, X, X) == [("input", 12, ("where",))]
    # One value for two gradients is kept once.
    assert kept(lambda x: op("exp", x) * op("sin", op("exp", x)), X)[0] == ("exp", 48, ("multiply", "exp"))


def test_a_broadcast_is_kept_as_what_was_broadcast() -> None:
    assert kept(lambda x, b: x * b, X, array(3)) == [("input", 48, ("multiply",)), ("input", 12, ("multiply",))]
    assert kept(lambda x: op("permute_dims", x, axes=(1, 0)) * op("reshape", x, shape=(3, 4)), X) == [
        ("input", 48, ("multiply",))
    ]
    # A slice is kept itself: what it was taken from is larger.
    assert kept(lambda x: first_rows(x, 1) * first_rows(x, 1), X)[0] == ("slice", 12, ("multiply",))


def test_wrt_leaves_out_what_other_gradients_need() -> None:
    graph = lg.trace(lambda x, w: op("matmul", x, w), X, array(3, 5))
    assert [e.value for e in graph.residuals(wrt=[1])] == [graph.inputs[0]]
    assert [e.value for e in graph.residuals(wrt=[0])] == [graph.inputs[1]]
    assert list(graph.residuals(wrt=[])) == []


def test_residuals_print_as_a_table() -> None:
    graph = lg.trace(lambda x: lg.sum(op("exp", x) * x), X)
    found = graph.residuals()
    head, *rows, total = str(found).split("\n")
    assert head.split()[:4] == ["value", "op", "type", "bytes"]
    assert [row.split()[0] for row in rows] == ["%0", "%1"]
    assert "multiply, exp" in rows[1]
    assert "corpus.py:" in rows[1]  # where the op was recorded
    assert total == "96 B kept, 48 B of it not inputs or captured arrays"
    assert (found.nbytes, found.own_nbytes) == (96, 48)


@pytest.mark.parametrize("name", ["chain", "moves", "choice", "network", "half", "captures", "lookup"])
def test_backward_runs_from_what_is_kept_and_from_nothing_less(name: str) -> None:
    """The gradient's nodes are computed from the kept values, constants and their views alone; each one is needed."""
    graph, args = GRAPHS[name]
    # The forward part as backward takes it, with composites written out, so that both share their nodes.
    written_out = graph.backward().outputs[: len(graph.outputs)]
    graph = Graph.from_outputs(graph.inputs, written_out, "explicit", graph.input_names)
    forward, residuals, joint = set(graph.nodes), graph.residuals(), graph.backward()
    cotangents = [np.full(n.shape, 0.5, n.dtype.numpy) for n in joint.inputs[len(graph.inputs) :]]
    whole = Graph(joint.inputs, joint.nodes, [*graph.nodes, *graph.inputs, *joint.outputs], "explicit")
    values = whole.run(*args, *cotangents, backend="reference")
    known = dict(zip([*graph.nodes, *graph.inputs], values, strict=False))
    expected = values[len(known) + len(graph.outputs) :]
    outputs = joint.outputs[len(graph.outputs) :]

    def run(entries: list[Residual]) -> list[Any]:
        have: dict[Node, Any] = {e.value: known[e.value] for e in entries}
        have.update(zip(joint.inputs[len(graph.inputs) :], cotangents, strict=True))
        for node in joint.nodes:
            remade = not node.op.captures and (node not in forward or node.op.moves_data or _constant(node))
            if node not in have and remade and all(o in have for o in node.operands):
                have[node] = evaluate_node(node, [have[o] for o in node.operands])
        return [have[node] for node in outputs]

    for got, value in zip(run(list(residuals)), expected, strict=True):
        np.testing.assert_array_equal(got, value)
    for entry in residuals:
        with pytest.raises(KeyError):
            run([e for e in residuals if e is not entry])


def _constant(node: Node) -> bool:
    return not node.operands or all(_constant(o) for o in node.operands) if node.name != "input" else False


UNARY = [
    name
    for name, cls in REGISTRY.items()
    if cls.elementwise and cls.schema_v1.arity == 1 and not cls.composite and name not in ("cast", "debug_print")
    if not cls.zero_gradient and not cls.not_differentiable and len(cls.operand_names()) == 1
]


@pytest.mark.parametrize("name", UNARY)
def test_ops_keep_what_they_say(name: str) -> None:
    graph = lg.trace(lambda x: op(name, x), X)
    if not graph.outputs[0].dtype.is_inexact or graph.outputs[0].operands != graph.inputs:
        pytest.skip("not one float op")
    cls = REGISTRY[name]
    stated = ((graph.inputs[0], cls.kSavesInput), (graph.outputs[0], cls.kSavesOutput))
    declared = [node for node, saved in stated if saved]
    assert [e.value for e in graph.residuals()] == declared


# -- cost


def costs(fn: Any, *args: Any) -> dict[str, tuple[int, int]]:
    return {e.node.name: (e.flops, e.nbytes) for e in lg.trace(fn, *args).cost()}


def test_matmul_is_two_m_n_k() -> None:
    assert costs(lambda a, b: op("matmul", a, b), array(5, 7), array(7, 3)) == {
        "matmul": (2 * 5 * 7 * 3, 4 * (35 + 21 + 15))
    }
    assert costs(lambda a, b: op("matmul", a, b), array(2, 5, 7), array(2, 7, 3))["matmul"][0] == 2 * 2 * 5 * 7 * 3


def test_bytes_are_those_of_different_operands_and_the_result() -> None:
    assert costs(lambda x: x * x, X) == {"multiply": (12, 96)}
    assert costs(lambda x, y: x * y, X, X) == {"multiply": (12, 144)}
    assert costs(lambda x: lg.sum(x, axis=1), X) == {"sum": (12, 64)}
    assert costs(lambda x: x * 2.0, X) == {"constant": (0, 0), "broadcast_to": (0, 0), "multiply": (12, 96)}
    assert costs(lambda x, b: x + b, X, array(3)) == {"broadcast_to": (0, 0), "add": (12, 48 + 12 + 48)}
    assert costs(lambda x: -first_rows(x, 2), X) == {"slice": (0, 0), "negative": (6, 48)}
    assert costs(lambda x: op("concat", x, x, axis=0), X) == {"concat": (0, 48 + 96)}
    assert costs(lambda x: op("cast", x, dtype=lg.float16), X) == {"cast": (0, 72)}


def test_a_composite_costs_what_it_is_made_of() -> None:
    graph = lg.trace(lambda x: op("var", x, axis=(1,), keepdims=False, correction=0.0), X)
    # mean 12, subtract 12, square 12, the sum of squares 12 and of deviations 12, and five operations a row at most.
    (entry,) = graph.cost()
    assert 60 <= entry.flops <= 60 + 5 * 4
    assert entry.nbytes == 48 + 16
    assert lg.trace(lambda x: op("gelu", x, approximate="none"), X).cost().flops > 12


def test_totals_and_table() -> None:
    graph = lg.trace(lambda a, b: lg.sum(op("matmul", a, b)), array(5, 7), array(7, 3))
    found = graph.cost()
    assert (found.flops, found.nbytes) == (210 + 15, 284 + 64)
    assert found.intensity == pytest.approx(225 / 348)
    assert list(found.by_op()) == ["matmul", "sum"]
    assert found.by_op()["sum"] == (1, 15, 64)
    head, *rows = str(found).split("\n")
    assert head.split() == ["value", "op", "type", "flops", "bytes", "moved", "flops/byte", "line"]
    assert rows[0].split()[:5] == ["%2", "matmul", "float32[5,3]", "210", "flop"]
    assert rows[-1].split()[:5] == ["total", "225", "flop", "348", "B"]
    assert lg.trace(lambda x: x, X).cost().intensity == 0.0


# -- memory


def negated(x: Any, times: int) -> Any:
    for _ in range(times):
        x = -x
    return x


def test_a_chain_holds_two_values_beside_its_input() -> None:
    found = lg.trace(lambda x: negated(x, 4), array(1000)).memory()
    assert found.held == 4000
    assert [s.running for s in found] == [8000, 12000, 12000, 12000]
    assert [s.alive for s in found] == [8000, 8000, 8000, 8000]
    assert (found.peak, found.peak_at) == (12000, found[1].node)


def test_a_value_that_is_used_late_is_held() -> None:
    def fn(x: Any) -> Any:
        early = -x
        return lg.sum(negated(early, 2)) + lg.sum(early)

    found = lg.trace(fn, array(1000)).memory()
    assert found.peak == 4 * 4000  # the input, early, and two of the chain
    assert [s.alive for s in found] == [8000, 12000, 12000, 8004, 4008, 4004]


def test_views_take_nothing_and_hold_what_they_show() -> None:
    found = lg.trace(lambda x: op("reshape", -x, shape=(10, 100)), array(1000)).memory()
    assert [s.alive for s in found] == [8000, 8000]
    broadcast = lg.trace(lambda x: lg.sum(op("broadcast_to", -x, shape=(1000, 10))), array(10)).memory()
    assert [s.running for s in broadcast] == [80, 80, 84]


def test_a_program_without_nodes() -> None:
    found = lg.trace(lambda x: x, X).memory()
    assert (len(found), found.peak, found.peak_at) == (0, 48, None)
    assert str(found).endswith("peak 48 B, 48 B of it inputs and captured arrays")


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_what_the_definition_says(name: str) -> None:
    """After each node: the owners of all values that exist and that a later node or an output reads."""
    graph, _ = GRAPHS[name]

    def owner(node: Node) -> Node:
        while node.op.moves_data and len(node.operands) == 1:
            node = node.operands[0]
        return node

    def size(nodes: set[Node]) -> int:
        return sum(n.type.nbytes for n in nodes if n.name != "constant")

    held = {*graph.inputs, *graph.captured}
    found = graph.memory()
    before = held
    for k, step in enumerate(found):
        later = {o for n in graph.nodes[k + 1 :] for o in n.operands} | set(graph.outputs)
        made = {*graph.inputs, *graph.nodes[: k + 1]}
        after = held | {owner(n) for n in later & made}
        assert step.node is graph.nodes[k]
        assert step.alive == size(after)
        assert step.running == size(before | {owner(step.node)})
        before = after
    assert found.peak == max([s.running for s in found], default=found.held)
    assert len(str(found).split("\n")) == len(found) + 2


def test_recorded_graphs_are_made_explicit_first() -> None:
    graph = lg.trace(lambda x: lg.sum(x), X > 0, passes=())
    assert [e.node.name for e in graph.cost()] == ["cast", "sum"]
    assert graph.memory().peak == 12 + 96 + 8
    assert list(graph.residuals()) == []
