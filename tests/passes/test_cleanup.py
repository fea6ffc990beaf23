"""What is merged, what never is, what is thrown away and what is folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.dtypes import bfloat16, complex64, float32, int32
from lucidgraph.ir import Builder, CapturedArray, Graph, Node, TensorType, Var
from lucidgraph.ir.op import get
from lucidgraph.lang import arithmetic, compare, math, shape
from lucidgraph.lang.tensor import apply
from lucidgraph.passes import cse, dce, fold, pipeline, run_passes
from tests.passes.test_passes import same_bits, values

X = np.array([0.5, -1.5, 2.0, np.nan], np.float32)
Y = np.array([3.0, -0.0, 1.0, np.nan], np.float32)


def merged(fn: Callable[..., Any], *args: np.ndarray) -> Graph:
    before = lg.trace(fn, *args)
    after = cse(before).verify()
    for a, b in zip(values(before, args), values(after, args), strict=True):
        assert same_bits(a, b)
    return after


# -- common subexpressions


def test_equal_operations_become_one() -> None:
    graph = merged(lambda x, y: (math.exp(x + y), math.exp(y + x), x - y, y - x), X, Y)
    assert graph.outputs[0] is graph.outputs[1]
    assert graph.outputs[2] is not graph.outputs[3], "subtraction does not commute"


def test_which_node_stays_does_not_depend_on_addresses() -> None:
    texts = {str(merged(lambda x, y: (x * y) + (y * x) + x * 2 + 2 * x, X, Y)) for _ in range(20)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (math.log, math.log2),
        (lambda x: lg.sum(x, keepdims=True), lambda x: shape.reshape(lg.sum(x), (1,))),
        (lambda x: x * 0.0, lambda x: x * -0.0),
        (lambda x: x * 1, lambda x: compare.equal(x, True)),
        (lambda x: arithmetic.where(compare.greater(x, 0), x, float("nan")), lambda x: x),
        (lambda x: apply(get("stop_gradient"), x), lambda x: x),
        (lambda x: compare.array_equal(x, X), lambda x: compare.array_equal(x, X, equal_nan=True)),
        (lambda x: arithmetic.maximum(x, 0.0), lambda x: arithmetic.maximum(0.0, x)),
    ],
    ids=["log", "keepdims", "zeros", "one", "nan", "stop_gradient", "equal_nan", "order of maximum"],
)
def test_different_operations_stay_apart(one: Any, other: Any) -> None:
    graph = merged(lambda x: (one(x), other(x)), X)
    assert graph.outputs[0] is not graph.outputs[1]


def test_nan_constants_are_one_and_signed_zeros_two() -> None:
    graph = merged(lambda x: (x + float("nan"), x + float("nan"), x + 0.0, x + -0.0), X)
    assert graph.outputs[0] is graph.outputs[1]
    assert graph.outputs[2] is not graph.outputs[3]


def test_value_with_and_without_stop_gradient_has_two_gradients() -> None:
    def loss(x: Any) -> Any:
        return lg.sum(x * apply(get("stop_gradient"), x) + x * x)

    x = np.array([1.0, 2.0], np.float32)
    np.testing.assert_array_equal(lg.compile(lg.grad(loss), backend="reference")(x), 3 * x)
    joint = cse(lg.trace(loss, x)).backward()
    (_, gradient) = values(joint, [x, np.float32(1)])
    np.testing.assert_array_equal(gradient, 3 * x)


def test_captured_arrays_are_one_where_they_are_one_array() -> None:
    builder = Builder()
    t, array = TensorType((2,), float32), np.ones(2, np.float32)
    same = [builder.append(get("captured"), (), {"value": CapturedArray(array)}, (t,)) for _ in range(2)]
    other = builder.append(get("captured"), (), {"value": CapturedArray(array.copy())}, (t,))
    graph = cse(Graph([], builder.nodes, [*same, other], "explicit"))
    assert graph.outputs[0] is graph.outputs[1]
    assert graph.outputs[2] is not graph.outputs[1]


def test_recorded_nodes_of_two_policies_stay_apart() -> None:
    x = np.ones((2, 2), np.float16)

    def fn(v: Any) -> Any:
        with lg.autocast(lg.bfloat16):
            inside = arithmetic.negative(v)
        return inside, arithmetic.negative(v)

    graph = cse(lg.trace(fn, x, passes=()))
    assert [n.policy for n in graph.outputs] == [bfloat16, None]


def _printing(x: Any) -> Any:
    y = x * 2
    lg_debug(y)
    lg_debug(y)
    math.exp(y)
    return x


def lg_debug(value: Any) -> None:
    apply(get("debug_print"), value, format="{}")


def test_effects_stay_each_and_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    final = run_passes(lg.trace(_printing, X), pipeline()[2:])
    assert [n.name for n in final.nodes].count("debug_print") == 2
    assert "exp" not in [n.name for n in final.nodes]
    values(final, [X])
    assert capsys.readouterr().out.count("[") == 2


def test_dead_code_goes() -> None:
    graph = dce(lg.trace(lambda x: (x * 2, math.exp(x))[0], X))
    assert [n.name for n in graph.nodes] == ["constant", "broadcast_to", "multiply"]
    assert dce(graph) is graph


# -- constants


def constant(value: Any, dtype: Any = float32, shape: tuple[int, ...] = ()) -> Callable[[Any], Var]:
    def made(builder: Builder) -> Var:
        return Var(builder, builder.constant(value, dtype)).broadcast_to(shape)

    return made


def fold_of(build: Callable[[Builder], Var]) -> Node:
    builder = Builder()
    output = build(builder).node
    before = Graph([], builder.nodes, [output], "explicit").verify()
    after = fold(before).verify()
    assert same_bits(*(values(g, [])[0] for g in (before, after)))
    return after.outputs[0]


@pytest.mark.parametrize(
    "build",
    [
        lambda b: constant(0.1)(b) * 3.0,
        lambda b: constant(0.1, float32, (2, 3))(b) * 3.0 + 1.0,
        lambda b: constant(3, int32)(b) * 2**30,
        lambda b: constant(1.0)(b) / 0.0,
        lambda b: constant(2.0)(b).emit("sqrt"),
        lambda b: constant(1.0, float32, (3,))(b).astype(bfloat16),
        lambda b: (constant(1.0, float32, (3,))(b) > 2.0).emit("logical_not"),
        lambda b: constant(1.0, float32, (2, 3))(b).permute((1, 0)).reshape((6,)),
        lambda b: constant(7.0, float32, (2,))(b).emit("concat", constant(7.0, float32, (1,))(b), axis=0),
        lambda b: constant(-0.0)(b).emit("negative"),
        lambda b: constant(65519.0, bfloat16)(b) + 1.0,
    ],
)  # fmt: skip
def test_what_every_backend_computes_alike_is_folded(build: Any) -> None:
    node = fold_of(build)
    while node.name == "broadcast_to":
        node = node.operands[0]
    assert node.name == "constant"


@pytest.mark.parametrize(
    "build",
    [
        lambda b: constant(0.5)(b).emit("exp"),  # differs between backends in the last bit
        lambda b: constant(3e38)(b).astype(int32),  # whatever the machine makes of it
        lambda b: constant(1 + 2j, complex64)(b) * constant(2 - 1j, complex64)(b),
        lambda b: constant(1.0, float32, (4,))(b).sum((0,)),
        lambda b: constant(7.0, float32, (2,))(b).emit("concat", constant(-7.0, float32, (1,))(b), axis=0),
        lambda b: constant(0.0, float32, (2,))(b).emit("concat", constant(-0.0, float32, (1,))(b), axis=0),
        lambda b: constant(0.0)(b).emit("maximum", constant(-0.0)(b)),
        lambda b: constant(0, int32, (2,))(b).emit("take", constant(0, int32, (1,))(b), axis=0),
    ],
)  # fmt: skip
def test_the_rest_is_left_to_run_time(build: Any) -> None:
    node = fold_of(build)
    while node.name == "broadcast_to":
        node = node.operands[0]
    assert node.name != "constant"


def test_scalar_algebra_of_a_gradient_collapses() -> None:
    joint = lg.trace(lambda x: lg.mean(x / 4.0 * 2.0), np.ones((2, 3), np.float32)).backward()
    final = run_passes(joint, pipeline()[2:])
    names = {node.name for node in final.nodes}
    assert names.isdisjoint({"divide", "masked_divide", "masked_multiply"})
