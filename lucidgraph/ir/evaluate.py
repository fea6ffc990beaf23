"""The meaning of the IR in NumPy: the oracle of the tests, the constant folder and the reference backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import LucidGraphError, ShapeError, VerifyError
from .builder import Builder, Var
from .graph import Graph, Node
from .op import Composite, as_result
from .ops.core import Captured, Kernel
from .types import TensorType

Array = np.ndarray[Any, Any]


def constant_array(value: Any, t: TensorType) -> Array:
    """A Python number rounded once to the type."""
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(t.dtype.numpy) if t.dtype.is_inexact else np.asarray(value, t.dtype.numpy)


def evaluate_node(node: Node, arrays: Sequence[Any]) -> Any:
    """The value of one explicit node: an array, or a tuple of arrays where it has several results.

    Half-precision operands are computed with in float32 and the result is rounded once.
    """
    op = node.op
    if node.name == "constant":
        return constant_array(node.attrs["value"], node.type)
    if node.name == "captured":
        return np.asarray(Captured.array(node.attrs["value"]))
    if op is Kernel:
        results = evaluate(node.attrs["body"], arrays)
        return tuple(results) if len(results) > 1 else results[0]
    if issubclass(op, Composite) and op.evaluate.__func__ is Composite.evaluate.__func__:  # type: ignore[attr-defined]
        return evaluate(expansion_graph(node), arrays)[0]
    if not op.moves_data:
        arrays = [_widened(a) for a in arrays]
    try:
        with np.errstate(all="ignore"):
            value = op.evaluate(*arrays, **node.attrs)
    except LucidGraphError as error:
        error.source = node.source or error.source
        raise
    if len(node.types) > 1:
        return tuple(as_result(v, t) for v, t in zip(value, node.types, strict=True))
    with np.errstate(all="ignore"):
        return as_result(value, node.type)


def _widened(array: Any) -> Any:
    if isinstance(array, np.ndarray) and array.dtype.itemsize == 2 and array.dtype.kind not in "iu":
        return array.astype(np.float32)
    return array


def expansion_graph(node: Node) -> Graph:
    """The expansion of one composite node as a graph of its operands."""
    builder = Builder()
    inputs = [builder.input(TensorType(o.type.shape, o.type.dtype)) for o in node.operands]
    assert issubclass(node.op, Composite)
    out = node.op.expansion([Var(builder, i) for i in inputs], node.attrs)
    return Graph.from_outputs(inputs, [out.node], "explicit")


def evaluate(graph: Graph, inputs: Sequence[Any], keep: Mapping[Node, Any] | None = None) -> list[Array]:
    """The outputs of an explicit graph for arrays of its inputs' types. Values are dropped after their last use."""
    if graph.form != "explicit":
        raise VerifyError("only explicit graphs have a value", hint="run the promote and broadcast passes first")
    if len(inputs) != len(graph.inputs):
        raise ShapeError(f"the graph has {len(graph.inputs)} inputs, {len(inputs)} were given")
    values: dict[Node, Any] = dict(keep or {})
    for node, value in zip(graph.inputs, inputs, strict=True):
        array = as_result(value, node.type)
        if array.shape != node.shape:
            raise ShapeError(f"an input of shape {array.shape} was given for {node.type}")
        values[node] = array
    remaining: dict[Node, int] = {}
    for node in graph.nodes:
        for operand in node.operands:
            remaining[operand] = remaining.get(operand, 0) + 1
    for node in graph.outputs:
        remaining[node] = remaining.get(node, 0) + 1
    for node in graph.nodes:
        values[node] = evaluate_node(node, [values[operand] for operand in node.operands])
        for operand in node.operands:
            remaining[operand] -= 1
            if not remaining[operand]:
                values.pop(operand, None)
    return [np.array(values[node], copy=True) for node in graph.outputs]
