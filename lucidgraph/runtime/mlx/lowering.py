"""A graph as one flat Python function of ``mlx.core`` calls.

    def program(x, w):
        v2 = x @ w  # model.py:12
        v3 = mx.maximum(v2, 0.0)  # model.py:13
        return [v3]

``v3`` is ``%3`` of the printed graph. What the function is given: the graph's inputs; then what NumPy computed of
Python numbers before the call; then the captured arrays.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import mlx.core as mx
import numpy as np

from ...errors import UnsupportedError
from ...ir import Builder, Composite, Graph, Node, Origin, Var
from ...ir.evaluate import constant_array, evaluate_node
from ...ir.op import broadcast_shapes
from ...ir.ops.core import Captured
from ...ir.text import format_attrs
from ...ir.types import Shape
from ...sources import SourceLine
from . import corrected
from .tables import TABLE, entry
from .writing import NAMES, dtype_text, number_text

__all__ = ["FILE", "Program", "lower"]

FILE: Final = "<lucidgraph: mlx program>"
_NAMESPACE: Final = {"mx": mx, "corrected": corrected, "at": np.s_, **NAMES}


@final
@dataclass(frozen=True, slots=True)
class Program:
    """The generated function and how to call it: ``function(*inputs, *host values, *arrays)``.

    ``given`` are the positions of the graph's inputs that it takes; ``host`` the nodes that NumPy computes before each
    call, in order, of which ``host_results`` are passed; ``arrays`` are fixed. Its result holds ``results`` values, and
    behind them the operands of each node of ``prints``, one after another.
    """

    source: str
    function: Callable[..., list[mx.array]]
    given: tuple[int, ...]
    host: tuple[Node, ...]
    host_results: tuple[Node, ...]
    arrays: tuple[Any, ...]
    results: int
    prints: tuple[Node, ...]
    lines: dict[int, SourceLine]
    """The user's line of each line of ``source``."""


def lower(graph: Graph) -> Program:
    """The program of an explicit graph.

    Raises :class:`UnsupportedError`, which names the op and its line, for what MLX cannot do.
    """
    return _Lowering(_written_out(graph)).program()


# -- composites


def _is_whole(node: Node) -> bool:
    """Whether the node is lowered as it is: a primitive, or a composite that MLX has for these types."""
    if not issubclass(node.op, Composite):
        return True
    how = TABLE.get(node.name)
    return callable(how) and how(node, ["x"] * len(node.operands)) is not None


def _written_out(graph: Graph) -> Graph:
    """The graph without composites that MLX does not take whole."""
    while not all(map(_is_whole, graph.nodes)):
        builder = Builder()
        new: dict[Node, Node] = {}
        for node in graph.nodes:
            operands = tuple(new.get(operand, operand) for operand in node.operands)
            if _is_whole(node):
                new[node] = builder.add(node if operands == node.operands else node.replace(operands=operands))
                continue
            with builder.at(node, Origin("expand", node.name)):
                assert issubclass(node.op, Composite)
                new[node] = node.op.expansion([Var(builder, operand) for operand in operands], node.attrs).node
        outputs = [new.get(node, node) for node in graph.outputs]
        graph = Graph(graph.inputs, builder.nodes, outputs, graph.form, graph.input_names)
    return graph


# -- what each node reads


@dataclass(frozen=True, slots=True)
class _Reads:
    """The operands of a node as they are written: nodes, or the text of a number."""

    operands: tuple[Node | str, ...]
    expression: Callable[[Sequence[str]], str | None]

    @property
    def nodes(self) -> Iterator[Node]:
        return (o for o in self.operands if isinstance(o, Node))


def _peeked(node: Node) -> list[Node]:
    """The operands without ``broadcast_to`` where the operation itself broadcasts to the same shape."""
    operands = list(node.operands)
    if len(operands) < 2 or not node.op.elementwise:
        return operands
    for k, operand in enumerate(operands):
        source = operand
        while source.name == "broadcast_to":
            source = source.operands[0]
        if source is not operand:
            shapes: list[Shape] = [o.shape for o in operands]
            shapes[k] = source.shape
            if broadcast_shapes(shapes, node.name) == node.shape:
                operands[k] = source
    return operands


def _with_numbers(node: Node, operands: Sequence[Node]) -> tuple[Node | str, ...]:
    """Constants as Python numbers, where another operand brings the dtype."""
    shared = node.op.shared_operands(len(operands)) if node.op.elementwise else ()
    if all(operands[k].name == "constant" for k in shared):
        return tuple(operands)
    found: list[Node | str] = list(operands)
    for k in shared:
        if operands[k].name == "constant":
            text = number_text(operands[k].attrs["value"], operands[k].dtype)
            found[k] = operands[k] if text is None else text
    return tuple(found)


def _reads(node: Node) -> _Reads:
    """What is written for a node. Whatever the op, a result without elements is plain zeros."""
    if len(node.types) == 1 and node.type.size == 0:
        blank = f"mx.zeros({node.shape}, {dtype_text(node.dtype)})"
        return _Reads((), lambda names: blank)
    how = entry(node)
    if isinstance(how, str):
        return _Reads(_with_numbers(node, _peeked(node)), lambda names: how.format(*names))
    assert callable(how)
    if node.name == "broadcast_to" and node.operands[0].name == "constant":
        text = how(node, [""])
        if text is not None and text.startswith("mx.full"):
            return _Reads((), lambda names: text)
    return _Reads(tuple(_peeked(node)), lambda names: how(node, names))


# -- the function


@dataclass
class _Lowering:
    graph: Graph
    arrays: list[Any] = field(default_factory=list)
    array_names: list[str] = field(default_factory=list)
    body: list[tuple[str, SourceLine | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        graph = self.graph
        self.names = {node: f"v{k}" for k, node in enumerate([*graph.inputs, *graph.nodes])}
        taken = {"mx", "corrected", "at", "program", *NAMES}
        for node, label in zip(graph.inputs, graph.input_names, strict=True):
            usable = label.isidentifier() and not keyword.iskeyword(label) and not re.fullmatch(r"v\d+", label)
            if usable and label not in taken:
                taken.add(label)
                self.names[node] = label
        self.host = self._host_nodes()
        self.reads: dict[Node, _Reads] = {}
        self.needed = self._needed()

    def _host_nodes(self) -> set[Node]:
        """0-d values made of Python numbers alone: NumPy computes them, so that no float64 reaches a GPU and no value
        is compiled into the program."""
        host = {node for node in self.graph.inputs if node.type.weak}
        known = set(host)
        for node in self.graph.nodes:
            if node.name == "constant":
                known.add(node)
            elif (
                node.operands
                and not host.isdisjoint(node.operands)
                and known.issuperset(node.operands)
                and node.op.elementwise
                and node.shape == ()
                and not node.op.effect
            ):
                host.add(node)
                known.add(node)
        return host

    def _needed(self) -> set[Node]:
        """The nodes whose values the function uses."""
        needed = set(self.graph.outputs)
        for node in reversed(self.graph.nodes):
            if node.op.effect:
                if node.name != "debug_print":
                    entry(node)
                    raise UnsupportedError(f"the mlx backend has no effect {node.name}", source=node.source)
                needed.update(node.operands)
            if node in needed and node not in self.host and not node.op.captures and node.name != "constant":
                self.reads[node] = _reads(node)
                needed.update(self.reads[node].nodes)
        return needed

    def program(self) -> Program:
        graph = self.graph
        for node in graph.nodes:
            if node in self.needed and node not in self.host:
                self._write(node)
        given = [k for k, node in enumerate(graph.inputs) if not node.type.weak]
        passed = [node for node in (*graph.inputs, *graph.nodes) if node in self.host and node in self.needed]
        prints = [node for node in graph.nodes if node.op.effect]
        values = [*self._results(), *(self.names[o] for node in prints for o in node.operands)]
        parameters = [self.names[graph.inputs[k]] for k in given]
        parameters += [self.names[node] for node in passed] + self.array_names
        source, lines = self._text(parameters, values, prints)
        namespace: dict[str, Any] = dict(_NAMESPACE)
        exec(compile(source, FILE, "exec"), namespace)
        return Program(
            source,
            namespace["program"],
            tuple(given),
            tuple(node for node in graph.nodes if node in self.host),
            tuple(passed),
            tuple(self.arrays),
            len(graph.outputs),
            tuple(prints),
            lines,
        )

    def _write(self, node: Node) -> None:
        if node.op.captures:
            self._pass(node, Captured.array(node.attrs["value"]))
            return
        if node.name == "constant":
            text: str | None = number_text(node.attrs["value"], node.dtype)
            if text is None:
                self._pass(node, constant_array(node.attrs["value"], node.type))
                return
            text = f"mx.array({text}, {dtype_text(node.dtype)})"
        else:
            reads = self.reads[node]
            text = reads.expression([o if isinstance(o, str) else self.names[o] for o in reads.operands])
        if text is None:
            assert not node.operands
            self._pass(node, evaluate_node(node, ()))
        elif text.isidentifier():
            self.names[node] = text
        else:
            self.body.append((f"{self.names[node]} = {text}", node.source))

    def _pass(self, node: Node, array: Any) -> None:
        """Make an array an argument of the function."""
        self.arrays.append((array, node.type))
        self.array_names.append(self.names[node])

    def _results(self) -> list[str]:
        """The outputs, none of which shares memory with an argument or another."""
        given = {node for node in self.graph.nodes if node.op.captures} | set(self.graph.inputs) | self.host
        seen: set[Node] = set()
        texts = []
        for node in self.graph.outputs:
            root, repeats = node, False
            while root not in given and (root.op.view or self.names[root] == self._operand_name(root)):
                repeats = repeats or root.name == "broadcast_to"
                root = root.operands[0]
            shared = root in given or root in seen or repeats
            seen.add(root)
            texts.append(f"corrected.copied({self.names[node]})" if shared else self.names[node])
        return texts

    def _operand_name(self, node: Node) -> str:
        return self.names.get(node.operands[0], "") if node.operands else ""

    def _text(
        self, parameters: Sequence[str], values: Sequence[str], prints: Sequence[Node]
    ) -> tuple[str, dict[int, SourceLine]]:
        head = []
        for node in self.graph.nodes:
            if node in self.host:
                operands = ", ".join(self.names.get(o, "") for o in node.operands)
                text = f"{self.names[node]} = {node.name}{format_attrs(node)}({operands})"
                head.append(f"# by NumPy, before each call: {text}")
        head.append(f"def program({', '.join(parameters)}):")
        lines: dict[int, SourceLine] = {}
        for k, (text, source) in enumerate(self.body, start=len(head) + 1):
            if source is None:
                head.append(f"    {text}")
            else:
                lines[k] = source
                head.append(f"    {text}  # {source}")
        if prints:
            head.append(f"    # the last {sum(len(n.operands) for n in prints)} are printed")
        head.append(f"    return [{', '.join(values)}]")
        return "\n".join(head) + "\n", lines
