"""The rules of the IR, checked."""

from __future__ import annotations

from ..errors import LucidGraphError, VerifyError
from .graph import CapturedArray, Graph, Node
from .text import format_value
from .types import TensorType


def verify(graph: Graph) -> Graph:
    """Return ``graph``, or raise :class:`VerifyError` naming the first node that breaks a rule.

    * every operand is an input or an earlier node; no node stands twice;
    * attributes have a text form and are those the op knows;
    * the result types are what the op's type rule says: of the operands as they are in an explicit graph, after
      promotion and broadcasting in a recorded one;
    * in an explicit graph only inputs are weak.
    """
    if len(graph.input_names) != len(graph.inputs):
        raise VerifyError("there is not one name per input")
    known: set[Node] = set()
    for node in graph.inputs:
        if node.name != "input" or node in known:
            raise VerifyError(f"{node!r} is not an input, or is listed twice")
        known.add(node)
    for node in graph.nodes:
        _verify_node(node, known, graph.form == "explicit")
        known.add(node)
    for node in graph.outputs:
        if node not in known:
            raise VerifyError(f"the output {node!r} is not in the graph")
    return graph


def _verify_node(node: Node, known: set[Node], explicit: bool) -> None:
    def broken(what: str) -> VerifyError:
        return VerifyError(f"{node!r}: {what}", source=node.source)

    if node in known:
        raise broken("stands twice")
    if node.name == "input":
        raise broken("an input stands among the nodes")
    for operand in node.operands:
        if operand not in known:
            raise broken(f"its operand {operand!r} is not defined before it")
    for value in node.attrs.values():
        format_value(value)
    if explicit and any(t.weak for t in node.types):
        raise broken("is weak in an explicit graph")
    if node.name == "constant":
        _verify_constant(node)
    elif node.name == "captured":
        if not isinstance(node.attrs.get("value"), CapturedArray):
            raise broken("holds no captured array")
    elif node.name == "result":
        types = node.operands[0].types
        index = node.attrs.get("index")
        if not isinstance(index, int) or not 0 <= index < len(types) or node.types != (types[index],):
            raise broken(f"result {index} of {types} is not {node.types}")
    else:
        expected = _expected(node, explicit)
        if node.types != expected:
            raise broken(f"the type rule says {', '.join(map(str, expected))}")


def _verify_constant(node: Node) -> None:
    value, t = node.attrs.get("value"), node.type
    if len(node.types) != 1 or t.shape != () or type(value) not in (bool, int, float, complex):
        raise VerifyError(f"{node!r}: a constant is one 0-d number", source=node.source)
    if isinstance(value, int) and not t.dtype.is_inexact:
        low, high = t.dtype.range
        if not low <= value <= high:
            raise VerifyError(f"{node!r}: {value} does not fit {t.dtype.name}", source=node.source)
    elif isinstance(value, float) and not t.dtype.is_inexact:
        raise VerifyError(f"{node!r}: {value!r} is no {t.dtype.name}", source=node.source)


def _expected(node: Node, explicit: bool) -> tuple[TensorType, ...]:
    types = [operand.type for operand in node.operands]
    try:
        if explicit:
            return node.op.result_types(types, node.attrs)
        return node.op.recorded(tuple(types), node.attrs, node.policy)
    except VerifyError:
        raise
    except LucidGraphError as error:
        raise VerifyError(f"{node!r}: {error.message}", source=node.source) from error
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise VerifyError(f"{node!r}: the type rule fails with {error!r}", source=node.source) from error
