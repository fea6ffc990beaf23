"""The rules of the IR, checked."""

from __future__ import annotations

import builtins
import inspect
import types
import typing
from typing import Any, get_args, get_origin

from ..dtypes import DType, bool_
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
    if node.op.schema_v1.arity is not None and len(node.operands) != node.op.schema_v1.arity:
        raise broken(f"takes {node.op.schema_v1.arity} operands, not {len(node.operands)}")
    if explicit and any(t.weak for t in node.types):
        raise broken("is weak in an explicit graph")
    if node.name == "constant":
        _verify_constant(node)
    elif node.name == "captured":
        if len(node.types) != 1 or set(node.attrs) != {"value"} or not isinstance(node.attrs["value"], CapturedArray):
            raise broken("is not one captured array")
        array = node.attrs["value"].array
        if array is not None and tuple(array.shape) != node.shape:
            raise broken(f"holds an array of shape {tuple(array.shape)}")
    elif node.name == "result":
        types = node.operands[0].types
        index = node.attrs.get("index")
        if not isinstance(index, int) or not 0 <= index < len(types) or node.types != (types[index],):
            raise broken(f"result {index} of {types} is not {node.types}")
    else:
        if (wrong := _wrong_attribute(node)) is not None:
            raise broken(wrong)
        expected = _expected(node, explicit)
        if not all(isinstance(t, TensorType) and isinstance(t.dtype, DType) for t in expected):
            raise broken("the type rule gives no type for these attributes")
        # Between promotion and broadcasting, what is made of Python numbers has its dtype already.
        chosen = tuple(TensorType(t.shape, t.dtype) for t in expected)
        if node.types != expected and (explicit or node.types != chosen):
            raise broken(f"the type rule says {', '.join(map(str, expected))}")


def _verify_constant(node: Node) -> None:
    value, t = node.attrs.get("value"), node.types[0] if node.types else TensorType((0,), bool_)
    numbers = (bool, int, float, complex)
    if len(node.types) != 1 or t.shape != () or set(node.attrs) != {"value"} or type(value) not in numbers:
        raise VerifyError(f"{node!r}: a constant is one 0-d number", source=node.source)
    if isinstance(value, int) and not t.dtype.is_inexact:
        low, high = t.dtype.range
        if not low <= value <= high:
            raise VerifyError(f"{node!r}: {value} does not fit {t.dtype.name}", source=node.source)
    least = {float: "fc", complex: "c"}.get(type(value), "biufc")
    if t.dtype.kind not in least:
        raise VerifyError(f"{node!r}: {value!r} is no {t.dtype.name}", source=node.source)


def _wrong_attribute(node: Node) -> str | None:
    """What is wrong with the attributes' names or types, if anything."""
    known = node.op.attributes()
    for key, value in node.attrs.items():
        if key not in known:
            return f"has no attribute {key}"
        if not _fits(value, known[key].annotation):
            return f"{key}={value!r} is no {inspect.formatannotation(known[key].annotation)}"
    for key, parameter in known.items():
        if key not in node.attrs and parameter.default is inspect.Parameter.empty:
            return f"lacks the attribute {key}"
    return None


def _fits(value: Any, hint: Any) -> bool:
    """Whether an attribute's value is of the type that the op's signature states. An integer is a float as well."""
    match get_origin(hint):
        case types.UnionType | typing.Union:
            return any(_fits(value, part) for part in get_args(hint))
        case builtins.tuple:
            parts = get_args(hint)
            if parts[-1:] == (Ellipsis,):
                return isinstance(value, tuple) and all(_fits(v, parts[0]) for v in value)
            return isinstance(value, tuple) and len(value) == len(parts) and all(map(_fits, value, parts))
    if hint is float:
        return type(value) in (int, float)
    if hint is None or hint is type(None):
        return value is None
    if hint in (int, bool, str, complex):
        return type(value) is hint
    return not isinstance(hint, type) or isinstance(value, hint)


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
