"""``kSavesInput`` and ``kSavesOutput`` are true: each op's gradient is built, and what it reads is looked up."""

from __future__ import annotations

import pytest

from lucidgraph.ir import Composite, Graph, Node, Op, topological
from lucidgraph.ir.op import REGISTRY
from lucidgraph.passes import backward
from tests.samples import SAMPLES, Sample, graph_of, node_of

WITHOUT = ("primal", "result")  # a mark of traces, and the reading of a node that has its gradient as a whole
DIFFERENTIABLE = sorted(
    name
    for name, op in REGISTRY.items()
    if not op.zero_gradient and not op.not_differentiable and op.schema_v1.arity != 0 and name not in WITHOUT
)


def operand_name(op: type[Op], place: int) -> str:
    """The name of an operand; those of a variadic op share one."""
    names = op.operand_names()
    return names[min(place, len(names) - 1)]


def reads(name: str, sample: Sample) -> set[str] | None:
    """The names of the operands, and "the result", whose values the gradient reads; None where it has none.

    A composite without a gradient of its own is written out: what its gradient reads of the inside counts as read from
    the operands that it is made of.
    """
    node = node_of(name, sample)
    wrt = [k for k, operand in enumerate(node.operands) if operand.dtype.is_inexact]
    if not wrt or not node.dtype.is_inexact:
        return None
    # An identity behind the node keeps its result apart from a composite's inside.
    joint = backward(graph_of(node), wrt)
    outputs = joint.outputs[1:]
    forward = set(topological([joint.outputs[0]]))
    inside = set(joint.inputs[: len(node.operands)])
    part = [n for n in topological(outputs, stop=forward.__contains__) if n not in forward]
    read = {operand for n in part for operand in n.operands if operand in forward} - _constants(joint)
    found = set()
    for value in read:
        if value is joint.outputs[0] and not _is_written_out(node):
            found.add("the result")
            continue
        for source in topological([value]):
            if source in inside:
                found.add(operand_name(node.op, joint.inputs.index(source)))
    return found


def _is_written_out(node: Node) -> bool:
    return issubclass(node.op, Composite) and not node.op.has_own_gradient()


def _constants(graph: Graph) -> set[Node]:
    """Nodes that are known without running anything."""
    known: set[Node] = set()
    for node in graph.nodes:
        if node.name == "constant" or (node.operands and known.issuperset(node.operands)):
            known.add(node)
    return known


def declared(op: type[Op]) -> set[str]:
    operands = set(op.operand_names()) if op.kSavesInput is True else set(op.kSavesInput or ())
    return operands | ({"the result"} if op.kSavesOutput else set())


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_reads_exactly_what_is_declared(name: str) -> None:
    found = [r for sample in SAMPLES.get(name, ()) if (r := reads(name, sample)) is not None]
    assert found, "no sample has a gradient"
    assert set().union(*found) == declared(REGISTRY[name])
