"""Every change of dtype becomes a ``cast`` node with its reason: the schema's policy, and autocast's.

    operands of an op go to the dtypes that ``Op.promoted`` names; a Python number takes its dtype here
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ..dtypes import DType, float32
from ..ir import Accumulate, AmpPolicy, Builder, Graph, Node, Origin, TensorType
from ..ir.ops.core import CastBackward, Constant
from .rebuild import rebuild

_RESULT: Final = "a result made of Python numbers has the default dtype"


def promote(graph: Graph) -> Graph:
    """The graph with operands of equal dtype wherever an op shares one. A value is cast once to each dtype."""
    casts: dict[tuple[Node, DType], Node] = {}

    def converted(builder: Builder, operand: Node, dtype: DType, reason: Callable[[], str]) -> Node:
        if operand.dtype is dtype and (not operand.type.weak or operand.name == "input"):
            return operand
        key = (operand, dtype)
        if key not in casts:
            builder.origin = Origin("promote", reason())
            if operand.name == "constant":
                casts[key] = builder.append(Constant, (), operand.attrs, (TensorType((), dtype),))
            else:
                casts[key] = builder.emit(CastBackward, (operand,), {"dtype": dtype})
        return casts[key]

    def visit(builder: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if not operands:
            return None
        wanted = node.op.promoted(tuple(o.type for o in node.operands), node.attrs, node.policy)
        new = []
        for operand, old, dtype in zip(operands, node.operands, wanted, strict=True):
            new.append(converted(builder, operand, dtype, partial(_reason, node, old, dtype)))
        strong = tuple(TensorType(t.shape, t.dtype) for t in node.types)
        if tuple(new) == node.operands and strong == node.types:
            return None
        return builder.add(node.replace(operands=tuple(new), types=strong))

    promoted = rebuild(graph, visit)
    builder = Builder()
    outputs = []
    for node, old in zip(promoted.outputs, graph.outputs, strict=True):
        with builder.at(old, None):
            outputs.append(converted(builder, node, old.type.user_dtype, lambda: _RESULT))
    order = [n for n in (*promoted.nodes, *builder.nodes) if not (n.type.weak and not n.operands)]
    return Graph.from_outputs(promoted.inputs, outputs, promoted.form, promoted.input_names, order)


def _reason(node: Node, operand: Node, dtype: DType) -> str:
    """Why this operand of ``node`` is cast."""
    name, schema, have = node.name, node.op.schema_v1, operand.type
    if have.weak:
        return f"a Python {_said(have)} meets {dtype.name}"
    if node.policy is not None and have.dtype.is_floating and dtype in (node.policy, float32):
        if schema.contraction:
            return f"autocast runs {name} in {dtype.name}"
        if schema.amp_policy is AmpPolicy.FORCE_FP32 and have.dtype.is_half:
            return f"autocast runs {name} in float32"
    if schema.accumulate is Accumulate.WIDE and node.attrs.get("dtype") is None and not have.dtype.is_inexact:
        return f"{name} counts {have.dtype.name} in {dtype.name}"
    if node.attrs.get("dtype") is dtype:
        return f"{name} was asked for in {dtype.name}"
    if not have.dtype.is_inexact and schema.takes_reals_only:
        return f"{name} takes reals"
    others = sorted({_said(o.type) for o in node.operands if o.type.dtype is not have.dtype})
    return f"{name} of {have.dtype.name} with {' and '.join(others)}"


def _said(t: TensorType) -> str:
    """A dtype's name; Python's for a weak one."""
    return t.dtype.name.rstrip("0123456789") if t.weak else t.dtype.name
