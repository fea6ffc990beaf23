"""A graph as a Python program."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable
from typing import Any, Final

from ..dtypes import DType
from ..errors import UnsupportedError
from ..ir import Graph, Node
from ..passes import explicit
from .text import plain

__all__ = ["to_python"]

_OWN: Final = ("lg", "partial", "get", "apply", "captured", "f")
_TAKEN: Final = frozenset((*_OWN, *keyword.kwlist, *keyword.softkwlist, *dir(builtins)))


def to_python(graph: Graph) -> str:
    """The source of a module with a function ``f(*inputs)`` that returns the list of the graph's outputs.

    It takes tensors, arrays or numbers, runs deferred, under ``lucidgraph.compile`` or in a trace, and records the
    explicit form of the graph again. Captured arrays are its argument ``captured``: those of ``graph.captured``, in
    that order. Each statement says the type, the reason where a pass wrote it, and the user's line stands above those
    it led to.

    Raises :class:`UnsupportedError` for a node with several results.

    >>> import lucidgraph as lg, numpy as np
    >>> source = to_python(lg.trace(lambda x: lg.sum(x * 2.0), np.ones(3, np.float32)))
    >>> namespace = {}
    >>> exec(source, namespace)
    >>> [out.item() for out in namespace["f"](np.ones(3, np.float32))]
    [6.0]
    """
    graph = explicit(graph)
    ops = list(dict.fromkeys(node.name for node in graph.nodes if node.operands or not _is_leaf(node)))
    used: set[str] = set()
    calls = {name: _identifier(name, "op", used) for name in ops}
    names: dict[Node, str] = {}
    for k, (node, label) in enumerate(zip(graph.inputs, graph.input_names, strict=True)):
        names[node] = _identifier(label, f"x{k}", used)
    arguments = [*names.values(), *(["captured"] if graph.captured else [])]
    body: list[str] = []
    line = ""
    slot = 0
    for k, node in enumerate(graph.nodes, len(graph.inputs)):
        if len(node.types) > 1:
            raise UnsupportedError(
                f"{node.name} has several results, which to_python cannot write", source=node.source
            )  # fmt: skip
        said = plain(": ".join(filter(None, (str(node.source), node.source.text)))) if node.source else ""
        if said and said != line:
            body += ["", f"# {said}"]
            line = said
        names[node] = _identifier(f"v{k}", f"v{k}", used)
        body.append(f"{names[node]} = {_expression(node, names, calls, slot)}  # {_remark(node)}")
        slot += node.op.captures
    inputs = ", ".join(f"{names[node]}: {node.type}" for node in graph.inputs)
    header = ["import lucidgraph as lg"]
    if calls:
        header += ["from lucidgraph.ir.op import get", "from lucidgraph.lang.tensor import apply"]
        header = ["from functools import partial", "", *header, ""]
        header += [f'{call} = partial(apply, get("{name}"))' for name, call in calls.items()]
    lines = [*header, "", "", f"def f({', '.join(arguments)}):"]
    if inputs:
        lines.append(f"    # {inputs}")
    lines += [f"    {text}" if text else "" for text in body]
    lines.append(f"    return [{', '.join(names[node] for node in graph.outputs)}]")
    return "\n".join(lines) + "\n"


def _is_leaf(node: Node) -> bool:
    return node.name == "constant" or node.op.captures


def _identifier(text: str, otherwise: str, used: set[str]) -> str:
    """A free Python name close to ``text``: ``params['w']`` becomes ``params_w``."""
    base = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or otherwise
    if base[0].isdigit() or base in _TAKEN:
        base = f"{base}_" if not base[0].isdigit() else f"x{base}"
    name, k = base, 2
    while name in used:
        name, k = f"{base}_{k}", k + 1
    used.add(name)
    return name


def _expression(node: Node, names: dict[Node, str], calls: dict[str, str], slot: int) -> str:
    if node.name == "constant":
        return f"lg.asarray({_literal(node.attrs['value'], node)}, dtype={_literal(node.dtype, node)})"
    if node.op.captures:
        return f"lg.asarray(captured[{slot}], dtype={_literal(node.dtype, node)})"
    parts: Iterable[str] = (f"{key}={_literal(value, node)}" for key, value in node.attrs.items() if value is not None)
    return f"{calls[node.name]}({', '.join([*(names[operand] for operand in node.operands), *parts])})"


def _remark(node: Node) -> str:
    parts = [str(node.type)]
    if node.scope:
        parts.append(f"in {node.scope}")
    if node.origin:
        parts.append(str(node.origin))
    if node.lint:
        parts.append(f"lint: {node.lint}")
    return plain("  ".join(parts))


def _literal(value: Any, node: Node) -> str:
    """An attribute as a Python expression."""
    kind = type(value)
    if kind is DType:
        return f"lg.{'bool_' if value.is_bool else value.name}"
    if kind is tuple:
        inner = ", ".join(_literal(v, node) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if kind is float:
        text = repr(value)
        return f'float("{text}")' if text.lstrip("-") in ("inf", "nan") else text
    if kind is complex:
        return f"complex({_literal(value.real, node)}, {_literal(value.imag, node)})"
    if kind is Graph:
        return f"lg.Graph.parse({str(value)!r})"
    if kind in (bool, int, str):
        return repr(value)
    raise UnsupportedError(
        f"{node.name} has an attribute of {kind.__name__}, which to_python cannot write", source=node.source
    )  # fmt: skip
