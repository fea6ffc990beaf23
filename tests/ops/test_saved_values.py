"""What an op says its gradient reads is what it reads."""

from __future__ import annotations

import pytest

from lucidgraph.dtypes import bool_, float64
from lucidgraph.ir import Builder, Composite, Node, Op, TensorType, Var
from lucidgraph.ir.op import REGISTRY, ZERO

ATTRS = {"gelu": ({"approximate": "none"}, {"approximate": "tanh"})}
CHAPTERS = ("arithmetic", "compare", "bitwise", "math", "activation")


def own_gradients() -> list[type[Op]]:
    ops = [op for op in REGISTRY.values() if op.__module__.rpartition(".")[2] in CHAPTERS and not op.zero_gradient]
    return [op for op in ops if not issubclass(op, Composite) or op.has_own_gradient()]


def read_by(op: type[Op], attrs: dict[str, object]) -> tuple[set[str], bool]:
    """The operands, and whether the result, that the gradient of one float64 node reads."""
    builder, x = Builder(), TensorType((2, 3), float64)
    names = op.operand_names()
    operands = [builder.input(TensorType((2, 3), bool_) if name == "condition" else x) for name in names]
    node = builder.emit(op, operands, attrs)
    cotangent = builder.input(node.type)
    gradients = op(node, builder).grad_formula(Var(builder, cotangent))
    assert len(gradients) == len(operands)
    todo = [g.node for g in gradients if g is not ZERO]
    seen: set[Node] = set()
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            todo += [] if at is node else at.operands
    return {name for name, operand in zip(names, operands, strict=True) if operand in seen}, node in seen


@pytest.mark.parametrize("op", own_gradients(), ids=lambda op: op.schema_v1.name)
def test_saved_values_are_those_the_gradient_reads(op):
    for attrs in ATTRS.get(op.schema_v1.name, ({},)):
        operands, result = read_by(op, attrs)
        said = op.kSavesInput if isinstance(op.kSavesInput, tuple) else op.operand_names() if op.kSavesInput else ()
        assert (operands, result) == (set(said), op.kSavesOutput)


def test_the_whole_of_the_chapters_is_covered():
    assert {"exp", "pow", "gelu", "relu", "divide", "atan2", "where"} <= {op.schema_v1.name for op in own_gradients()}
