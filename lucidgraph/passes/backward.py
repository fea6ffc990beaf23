"""Reverse-mode differentiation as a graph transform.

    cotangent(x) = Σ over the uses u of x of grad_formula_u(cotangent(u))

Forward and backward become one graph of ordinary nodes. Cotangents of several uses of one half-precision value are
added in float32; a cast's gradient takes that sum as it is, so a float32 master weight gets it unrounded.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import float32
from ..errors import AxisError, NotDifferentiableError
from ..ir import ZERO, Builder, Composite, Graph, Node, Origin, TensorType, Var
from .attention import attention
from .expand import expand_where


def differentiable_inputs(graph: Graph) -> tuple[int, ...]:
    """The positions of the inputs that a gradient can flow to."""
    return tuple(k for k, node in enumerate(graph.inputs) if node.dtype.is_inexact and not node.type.weak)


def backward(graph: Graph, wrt: Sequence[int] | None = None) -> Graph:
    """The joint graph of an explicit graph.

    Inputs: the graph's, then one cotangent per output, of the output's type. Outputs: the graph's, then one gradient
    per input in ``wrt`` (by default all floating and complex ones), each of its input's type.
    """
    places = differentiable_inputs(graph) if wrt is None else tuple(wrt)
    for k in places:
        if not 0 <= k < len(graph.inputs):
            raise AxisError(f"wrt names input {k} of a graph of {len(graph.inputs)}")
        if not graph.inputs[k].dtype.is_inexact:
            raise NotDifferentiableError(
                f"a gradient with respect to input {k} ({graph.inputs[k].type}) was asked for: only floating and "
                "complex inputs have one",
                hint="cast the input to a floating dtype, or leave it out",
            )
    graph = attention(_with_rules(graph, places))
    active = _active(graph, places)

    builder = Builder()
    cotangents = [builder.input(TensorType(node.shape, node.type.user_dtype)) for node in graph.outputs]
    contributions: dict[Node, list[Var]] = {}
    for node, cotangent in zip(graph.outputs, cotangents, strict=True):
        if node in active and node.dtype.is_inexact:
            contributions.setdefault(node, []).append(Var(builder, cotangent))
    for node in reversed(graph.nodes):
        if node not in contributions:
            continue
        with builder.at(node, Origin("backward", f"gradient of {node.name}")):
            total = _added(contributions.pop(node))
            if not node.op.takes_wide_gradient:
                total = total.astype(node.dtype)
            _require_rule(node, active)
            gradients = node.op(node, builder).grad_formula(total)
            for operand, gradient in zip(node.operands, gradients, strict=True):
                if gradient is not ZERO and operand in active and operand.dtype.is_inexact:
                    assert isinstance(gradient, Var)
                    contributions.setdefault(operand, []).append(gradient)
    gradients_out = []
    for k in places:
        node = graph.inputs[k]
        builder.origin = Origin("backward", f"gradient of {graph.input_names[k] or f'input {k}'}")
        if node in contributions:
            gradients_out.append(_added(contributions[node]).astype(node.dtype).node)
        else:
            zero = Var(builder, builder.constant(0.0, node.dtype))
            gradients_out.append(zero.broadcast_to(node.shape).node)
    return Graph.from_outputs(
        [*graph.inputs, *cotangents],
        [*graph.outputs, *gradients_out],
        "explicit",
        [*graph.input_names, *(f"cotangent{k}" for k in range(len(cotangents)))],
        order=graph.nodes,
    )


def _with_rules(graph: Graph, places: Sequence[int]) -> Graph:
    """The graph in which every composite that a gradient flows through has one of its own: others are written out,
    and so are those inside their expansions."""
    while True:
        lacking = {n for n in _active(graph, places) if issubclass(n.op, Composite) and not n.op.has_own_gradient()}
        if not lacking:
            return graph
        graph = expand_where(graph, lacking.__contains__)


def _active(graph: Graph, places: Sequence[int]) -> set[Node]:
    """The nodes that depend on an input a gradient is wanted for, but for what zero gradients lie between."""
    active = {graph.inputs[k] for k in places}
    for node in graph.nodes:
        if not node.op.zero_gradient and not active.isdisjoint(node.operands):
            active.add(node)
    return active


def _added(parts: list[Var]) -> Var:
    """The sum of cotangents: of half-precision ones in float32, where there are several."""
    if len(parts) == 1:
        return parts[0]
    if any(p.dtype.is_half for p in parts):
        parts = [p.astype(float32) for p in parts]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _require_rule(node: Node, active: set[Node]) -> None:
    """:class:`NotDifferentiableError` with the way from the input to a float op without a rule."""
    if not node.op.not_differentiable:
        return
    way, at = [node.name], node
    while len(way) < 12:
        following = next((operand for operand in at.operands if operand in active), None)
        if following is None:
            break
        way.append(following.name)
        at = following
    raise NotDifferentiableError(
        f"{node.name} has no gradient: {node.op.not_differentiable} (on the way {' -> '.join(reversed(way))})",
        source=node.source,
        hint="put lucidgraph.stop_gradient around its operand if no gradient is wanted",
    )
