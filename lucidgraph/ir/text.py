"""The text of a graph, and back. The text is complete: parsing what was printed prints the same again.

    graph explicit(%0 "x": bool[4,3]) {
      %1: int64[4,3] = cast[int64](%0)  # promote: sum counts bool in int64 (model.py:12)
      %2: int64[4] = sum[axis=(1,), keepdims=False](%1)  # (model.py:12)
      return %2
    }

After the operands may stand ``in layers.3`` (the module path) and ``under bfloat16`` (the autocast dtype). A captured
array prints as ``captured[0]``, its slot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError, VerifyError
from ..sources import SourceLine
from . import op as ops
from .graph import CapturedArray, Form, Graph, Node, Origin
from .types import TensorType

_INDENT = "  "


# -- printing


def format_value(value: Any, slot: int = 0, depth: int = 0) -> str:
    """An attribute's value as text; :class:`VerifyError` for a value that has none."""
    kind = type(value)
    if kind in (bool, int, str) or value is None:
        return repr(value)
    if kind is float or kind is complex:
        return repr(value).strip("()")
    if kind is DType:
        return str(value.name)
    if kind is tuple:
        items = ", ".join(format_value(v, slot, depth) for v in value)
        return f"({items},)" if len(value) == 1 else f"({items})"
    if kind is CapturedArray:
        return str(slot)
    if kind is Graph:
        return print_graph(value, depth + 1)
    raise VerifyError(f"attribute value {value!r} of {kind.__name__} has no text form")


def format_attrs(node: Node, slot: int = 0, depth: int = 0) -> str:
    parts = [
        (format_value(v, slot, depth) if k == node.op.bare else f"{k}={format_value(v, slot, depth)}")
        for k, v in node.attrs.items()
        if v is not None
    ]
    return f"[{', '.join(parts)}]" if parts else ""


def format_types(types: tuple[TensorType, ...]) -> str:
    return str(types[0]) if len(types) == 1 else f"({', '.join(map(str, types))})"


def format_comment(node: Node) -> str:
    """``  # stage: reason | lint: remark (file.py:12)``, without what is not there.

    Backslash, newline and ``|`` are written ``\\\\``, ``\\n`` and ``\\p`` in the free texts. A text that ends in a
    bracket is followed by ``()`` where there is no source, so that the last bracket always is the source.
    """
    parts = []
    if node.origin:
        stage, reason = _escaped(node.origin.stage).replace(":", "\\c"), _escaped(node.origin.reason)
        parts.append(f"{stage}: {reason}" if reason else stage)
    if node.lint:
        parts.append(f"| lint: {_escaped(node.lint)}")
    if node.source:
        parts.append(f"({_escaped(str(node.source))})")
    elif parts and parts[-1].endswith(")"):
        parts.append("()")
    return f"  # {' '.join(parts)}" if parts else ""


_ESCAPES = {"\\": "\\", "\n": "n", "\r": "r", "|": "p", ":": "c"}
_UNESCAPES = {letter: char for char, letter in _ESCAPES.items()}


def _escaped(text: str) -> str:
    for char in "\\\n\r|":
        text = text.replace(char, "\\" + _ESCAPES[char])
    return text


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r"\\(.)", lambda m: _UNESCAPES.get(m[1], m[0]), text)


def names_of(graph: Graph) -> dict[Node, str]:
    """``%0``, ``%1``, …: inputs first, then nodes in order."""
    return {node: f"%{k}" for k, node in enumerate([*graph.inputs, *graph.nodes])}


def node_lines(graph: Graph, depth: int = 0, comments: bool = True) -> Iterator[str]:
    """One line per node."""
    names = names_of(graph)
    slot = 0
    for node in graph.nodes:
        attrs = format_attrs(node, slot, depth)
        slot += node.op.captures
        operands = ", ".join(names[operand] for operand in node.operands)
        line = f"{names[node]}: {format_types(node.types)} = {node.name}{attrs}({operands})"
        if node.scope:
            line += f" in {node.scope if _WORD.fullmatch(node.scope) else _quoted(node.scope)}"
        if node.policy:
            line += f" under {node.policy.name}"
        yield line + (format_comment(node) if comments else "")


def print_graph(graph: Graph, depth: int = 0) -> str:
    names = names_of(graph)
    labels = [f" {_quoted(name)}" if name else "" for name in graph.input_names]
    inputs = ", ".join(f"{names[n]}{label}: {n.type}" for n, label in zip(graph.inputs, labels, strict=True))
    pad = _INDENT * (depth + 1)
    lines = [f"graph {graph.form}({inputs}) {{"]
    lines += [pad + line for line in node_lines(graph, depth)]
    lines.append(f"{pad}return {', '.join(names[node] for node in graph.outputs)}".rstrip())
    lines.append(_INDENT * depth + "}")
    return "\n".join(lines)


def skeleton(graph: Graph) -> str:
    """What the digest is taken of: the program with each op's schema, without names, sources and reasons."""
    names = names_of(graph)
    schemas = sorted({f"{node.name}:{node.op.schema_v1.digest}" for node in graph.nodes})
    lines = [graph.form, *(str(node.type) for node in graph.inputs), *node_lines(graph, comments=False)]
    return "\n".join([*lines, " ".join(names[node] for node in graph.outputs), *schemas])


# -- parsing

_FLOAT = r"(?:\d[\d.]*(?:[eE][-+]?\d+)?|inf\b|nan\b|inf(?=j)|nan(?=j))"
_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<comment>\#[^\n]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<name>%\d+)
    | (?P<number>[-+]?(?:{_FLOAT}[-+])?{_FLOAT}j|[-+]?{_FLOAT})
    | (?P<word>~?[A-Za-z_][\w.]*)
    | (?P<mark>[()\[\]{{}},:=])
    | (?P<end>$)
    )""",
    re.VERBOSE,
)
_WORD = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_LITERALS = {"True": True, "False": False, "None": None}
_SOURCE = re.compile(r"(?:^|\s)\(([^()]*):(\d+)\)$")


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = self.start = 0
        self.kind = ""
        self.token = ""
        self.comments: dict[str, tuple[SourceLine | None, Origin | None, str]] = {}
        self.advance()

    def fail(self, what: str) -> VerifyError:
        line = self.text.count("\n", 0, self.start) + 1
        return VerifyError(f"graph text, line {line}: {what}, found {self.token!r}")

    def advance(self) -> str:
        previous = self.token
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            rest = self.text[self.at :].lstrip()
            self.kind, self.token, self.start = "bad", rest[:10], len(self.text) - len(rest)
            raise self.fail("a token was expected")
        self.at = match.end()
        self.kind = match.lastgroup or "bad"
        self.token = match.group(self.kind)
        self.start = match.start(self.kind)
        return previous

    def take(self, token: str) -> None:
        if self.token != token:
            raise self.fail(f"{token!r} was expected")
        self.advance()

    def accept(self, token: str) -> bool:
        if self.token == token and self.kind in ("mark", "word"):
            self.advance()
            return True
        return False

    def expect(self, kind: str) -> str:
        if self.kind != kind:
            raise self.fail(f"a {kind} was expected")
        return self.advance()

    def graph(self) -> Graph:
        self.take("graph")
        form = self.expect("word")
        if form not in ("recorded", "explicit"):
            raise self.fail("'recorded' or 'explicit' was expected")
        known: dict[str, Node] = {}
        inputs: list[Node] = []
        labels: list[str] = []
        self.take("(")
        while not self.accept(")"):
            name = self.fresh(known)
            labels.append(_unquote(self.advance()) if self.kind == "string" else "")
            self.take(":")
            inputs.append(Node(ops.get("input"), (), {}, (self.type(),)))
            known[name] = inputs[-1]
            self.accept(",")
        self.take("{")
        nodes: list[Node] = []
        while self.token != "return":
            name, node = self.node(known)
            known[name] = node
            nodes.append(node)
        self.take("return")
        outputs: list[Node] = []
        while self.kind == "name":
            outputs.append(self.operand(known))
            self.accept(",")
        self.take("}")
        valid: Form = "recorded" if form == "recorded" else "explicit"
        return Graph(inputs, nodes, outputs, valid, labels)

    def operand(self, known: dict[str, Node]) -> Node:
        if self.kind == "name" and self.token not in known:
            raise self.fail("a name that is defined already was expected")
        return known[self.expect("name")]

    def fresh(self, known: dict[str, Node]) -> str:
        if self.token in known:
            raise self.fail("a name that is not taken was expected")
        return self.expect("name")

    def dtype(self) -> DType:
        try:
            found = dtypes.from_name(self.token.removeprefix("~"))
        except DTypeError as error:
            raise self.fail("a dtype was expected") from error
        self.expect("word")
        return found

    def op(self) -> type[ops.Op]:
        if self.token not in ops.REGISTRY:
            raise self.fail("the name of an op was expected")
        return ops.REGISTRY[self.expect("word")]

    def node(self, known: dict[str, Node]) -> tuple[str, Node]:
        name = self.fresh(known)
        self.take(":")
        if self.accept("("):
            types = []
            while not self.accept(")"):
                types.append(self.type())
                self.accept(",")
        else:
            types = [self.type()]
        self.take("=")
        op = self.op()
        attrs = self.attributes(op)
        self.take("(")
        operands: list[Node] = []
        while not self.accept(")"):
            operands.append(self.operand(known))
            self.accept(",")
        scope = ""
        if self.accept("in"):
            scope = _unquote(self.advance()) if self.kind == "string" else self.expect("word")
        policy = self.dtype() if self.accept("under") else None
        source, origin, lint = None, None, ""
        if self.kind == "comment":
            source, origin, lint = self.comment()
        where: dict[str, Any] = {"source": source, "scope": scope, "policy": policy, "origin": origin, "lint": lint}
        return name, Node(op, tuple(operands), attrs, tuple(types), **where)

    def comment(self) -> tuple[SourceLine | None, Origin | None, str]:
        comment = self.advance()
        if comment not in self.comments:
            self.comments[comment] = _parsed_comment(comment[2:])
        return self.comments[comment]

    def attributes(self, op: type[ops.Op]) -> dict[str, Any]:
        attrs: dict[str, Any] = {}
        if not self.accept("["):
            return attrs
        while not self.accept("]"):
            key = ""
            if self.kind == "word":
                saved = self.at, self.kind, self.token
                word = self.advance()
                if self.accept("="):
                    key = word
                else:
                    self.at, self.kind, self.token = saved
            value = self.value()
            attrs[key or op.bare] = CapturedArray() if op.captures else value
            self.accept(",")
        return attrs

    def value(self) -> Any:
        if self.accept("("):
            items = []
            while not self.accept(")"):
                items.append(self.value())
                self.accept(",")
            return tuple(items)
        if self.kind == "number":
            return _number(self.advance())
        if self.kind == "string":
            return _unquote(self.advance())
        if self.token == "graph":
            return self.graph()
        if self.token in _LITERALS:
            return _LITERALS[self.advance()]
        return self.dtype()

    def type(self) -> TensorType:
        weak = self.token.startswith("~")
        dtype = self.dtype()
        self.take("[")
        sizes = []
        while not self.accept("]"):
            if not self.token.isdecimal():
                raise self.fail("a size was expected")
            sizes.append(int(self.advance()))
            self.accept(",")
        return TensorType(tuple(sizes), dtype, weak)


def _parsed_comment(text: str) -> tuple[SourceLine | None, Origin | None, str]:
    """What stands after ``# ``."""
    source, origin = None, None
    if (match := _SOURCE.search(text)) is not None:
        source = SourceLine(_unescaped(match[1]), int(match[2]))
        text = text[: match.start()]
    elif text.endswith(" ()"):
        text = text[:-3]
    head, _, lint = text.partition("| lint: ")
    head = head.removesuffix(" ") if lint else head
    if head:
        stage, _, reason = head.partition(": ")
        origin = Origin(_unescaped(stage), _unescaped(reason))
    return source, origin, _unescaped(lint)


def _number(text: str) -> int | float | complex:
    if text.endswith("j"):
        return complex(text)
    try:
        return int(text)
    except ValueError:
        return float(text)


def _quoted(text: str) -> str:
    """``text`` in double quotes, with Python's escapes."""
    plain = (c if c.isprintable() and c not in '"\\' else _escape(c) for c in text)
    return f'"{"".join(plain)}"'


def _escape(char: str) -> str:
    return f"\\{char}" if char in '"\\' else char.encode("unicode_escape").decode("ascii")


def _unquote(text: str) -> str:
    return text[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape")


def parse_graph(text: str) -> Graph:
    """The graph of a text; :class:`VerifyError` with the line where it is malformed or breaks a rule of the IR."""
    parser = _Parser(text)
    graph = parser.graph()
    if parser.kind != "end":
        raise parser.fail("the end was expected")
    return graph.verify()
