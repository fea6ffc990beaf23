"""A program: immutable nodes, and the graph that puts them in order.

A node is one operation and its result at once. A node with several results is read through ``result`` nodes.
Identity is the object; names exist only in print.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, final

from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..sources import SourceLine
from .types import Shape, TensorType

if TYPE_CHECKING:
    from .op import Op

Form = Literal["recorded", "explicit"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The pass that made a node, and why."""

    stage: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.stage}: {self.reason}" if self.reason else self.stage


@final
class CapturedArray:
    """An array that the program uses without being given it as an argument.

    Only its type is part of the program's identity; ``array`` is None after a graph was read from text, until
    :meth:`Graph.bind` fills it.
    """

    __slots__ = ("array",)

    def __init__(self, array: Any = None) -> None:
        self.array = array

    def __repr__(self) -> str:
        return "<captured>" if self.array is not None else "<unbound>"


@final
class Node:
    """One operation: ``op`` (its class), operands, attributes, result types; and where it came from.

    ``source`` is the user's line, ``scope`` the module path, ``policy`` the autocast dtype of its region (None when
    autocast is off), ``origin`` the pass that made it, ``lint`` a remark for the user.
    """

    __slots__ = (
        "__weakref__", "attrs", "lint", "op", "operands", "origin", "policy", "scope", "source", "types",
    )  # fmt: skip

    def __init__(
        self,
        op: type[Op],
        operands: tuple[Node, ...],
        attrs: Mapping[str, Any],
        types: tuple[TensorType, ...],
        *,
        source: SourceLine | None = None,
        scope: str = "",
        policy: DType | None = None,
        origin: Origin | None = None,
        lint: str = "",
    ) -> None:
        self.op = op
        self.operands = operands
        self.attrs: Mapping[str, Any] = MappingProxyType(dict(attrs))
        self.types = types
        self.source = source
        self.scope = scope
        self.policy = policy
        self.origin = origin
        self.lint = lint

    @property
    def type(self) -> TensorType:
        """The type of the first result; most ops have one."""
        return self.types[0]

    @property
    def shape(self) -> Shape:
        return self.types[0].shape

    @property
    def dtype(self) -> DType:
        return self.types[0].dtype

    @property
    def name(self) -> str:
        """The op's name, ``"sum"``."""
        return self.op.schema_v1.name

    def replace(self, **changes: Any) -> Node:
        """A copy with some fields changed."""
        fields: dict[str, Any] = {
            "op": self.op, "operands": self.operands, "attrs": self.attrs, "types": self.types, "source": self.source,
            "scope": self.scope, "policy": self.policy, "origin": self.origin, "lint": self.lint,
        }  # fmt: skip
        fields.update(changes)
        return Node(**fields)

    def __repr__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return f"<{self.name} -> {', '.join(map(str, self.types))}{where}>"


def topological(outputs: Iterable[Node], stop: Callable[[Node], bool] = lambda node: False) -> list[Node]:
    """All nodes that ``outputs`` depend on, operands first. Nodes for which ``stop`` holds are listed, not entered."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(list(outputs))]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if not stop(node):
                stack.extend((operand, False) for operand in reversed(node.operands) if operand not in seen)
    return order


HOOKS: dict[str, Callable[..., Any]] = {}
"""What a graph can do that needs passes, backends or views: filled by ``wiring``, and by ``ir`` for text."""


@final
class Graph:
    """A program with inputs, nodes in topological order (inputs not among them) and outputs.

    ``form`` is ``"recorded"`` (as the user wrote it: operands may differ in dtype and shape) or ``"explicit"``
    (every cast and broadcast is a node). Immutable; ``str(graph)`` is its text.
    """

    __slots__ = ("__weakref__", "_digest", "form", "input_names", "inputs", "nodes", "outputs")

    def __init__(
        self,
        inputs: Sequence[Node],
        nodes: Sequence[Node],
        outputs: Sequence[Node],
        form: Form,
        input_names: Sequence[str] = (),
    ) -> None:
        self.inputs = tuple(inputs)
        self.nodes = tuple(nodes)
        self.outputs = tuple(outputs)
        self.form: Form = form
        self.input_names = tuple(input_names) if input_names else ("",) * len(self.inputs)
        self._digest: str | None = None

    @staticmethod
    def from_outputs(
        inputs: Sequence[Node],
        outputs: Sequence[Node],
        form: Form,
        input_names: Sequence[str] = (),
        order: Iterable[Node] = (),
    ) -> Graph:
        """The graph of everything in ``order`` and everything ``outputs`` need, in that order as far as it goes."""
        given = set(inputs)
        nodes = [node for node in topological([*order, *outputs], stop=given.__contains__) if node not in given]
        return Graph(inputs, nodes, outputs, form, input_names)

    # -- what it is made of

    @property
    def captured(self) -> tuple[Node, ...]:
        """The nodes of captured arrays, in slot order."""
        return tuple(node for node in self.nodes if node.op.captures)

    def bind(self, constants: Sequence[Any]) -> Graph:
        """The same graph with arrays in its captured slots.

        Raises :class:`ShapeError` when the number of arrays or a shape differs, :class:`DTypeError` for a dtype.
        """
        slots = self.captured
        if len(slots) != len(constants):
            raise ShapeError(f"the graph has {len(slots)} captured arrays, {len(constants)} were given")
        for k, (slot, array) in enumerate(zip(slots, constants, strict=True)):
            if tuple(array.shape) != slot.shape:
                raise ShapeError(f"captured array {k} is {slot.type}, the one given has shape {tuple(array.shape)}")
            if slot.dtype != array.dtype:
                raise DTypeError(f"captured array {k} is {slot.type}, the one given has dtype {array.dtype}")
        new: dict[Node, Node] = {}
        for slot, array in zip(slots, constants, strict=True):
            new[slot] = slot.replace(attrs={"value": CapturedArray(array)})
        for node in self.nodes:
            if node not in new and any(operand in new for operand in node.operands):
                new[node] = node.replace(operands=tuple(new.get(operand, operand) for operand in node.operands))
        return Graph(
            self.inputs,
            [new.get(node, node) for node in self.nodes],
            [new.get(node, node) for node in self.outputs],
            self.form,
            self.input_names,
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the program: ops with their schemas, attributes, types and wiring; not sources or names."""
        if self._digest is None:
            self._digest = hashlib.sha256(HOOKS["skeleton"](self).encode()).hexdigest()
        return self._digest

    # -- text

    def __str__(self) -> str:
        return str(HOOKS["text"](self))

    def __repr__(self) -> str:
        return f"<Graph {self.form}: {len(self.inputs)} inputs, {len(self.nodes)} nodes, {len(self.outputs)} outputs>"

    @staticmethod
    def parse(text: str) -> Graph:
        """The graph of a text that ``str(graph)`` printed. Captured arrays are unbound until :meth:`bind`."""
        return HOOKS["parse"](text)  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[object, ...]:
        # Through the text: flat, whatever the depth of the graph, and loading it runs no code.
        return (Graph.parse, (str(self),))

    def __copy__(self) -> Graph:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        return self

    # -- what can be done with it

    def verify(self) -> Graph:
        """Check every rule of the IR; the graph itself, or :class:`VerifyError`."""
        return HOOKS["verify"](self)  # type: ignore[no-any-return]

    def run(self, *args: Any, backend: str = "auto") -> Any:
        """The outputs for arrays given in the order of ``inputs``: a list, one array per output."""
        return HOOKS["run"](self, args, backend)

    def backward(self, wrt: Sequence[int] | None = None) -> Graph:
        """The joint graph. Inputs: this graph's, then one cotangent per output. Outputs: this graph's, then one
        gradient per input named by position in ``wrt`` (all floating and complex inputs when None)."""
        return HOOKS["backward"](self, wrt)  # type: ignore[no-any-return]

    def residuals(self, wrt: Sequence[int] | None = None) -> Any:
        """What the backward pass keeps alive: a sequence of (value, nbytes, needed_by).

        ``wrt`` as in :meth:`backward`."""
        return HOOKS["residuals"](self, wrt)

    def cost(self) -> Any:
        """Floating-point operations and bytes moved, per node and in total."""
        return HOOKS["cost"](self)

    def memory(self) -> Any:
        """The bytes alive after each node when run in order, and the peak."""
        return HOOKS["memory"](self)

    def to_networkx(self) -> Any:
        """A ``networkx.MultiDiGraph`` with one node per operation; edges carry the operand's position."""
        return HOOKS["to_networkx"](self)

    def to_dot(self) -> str:
        """Graphviz source."""
        return str(HOOKS["to_dot"](self))

    def to_mermaid(self) -> str:
        """A Mermaid flowchart."""
        return str(HOOKS["to_mermaid"](self))

    def to_python(self) -> str:
        """Python source of a function ``f(*inputs)`` that computes the same through ``lucidgraph``."""
        return str(HOOKS["to_python"](self))

    def to_html(self, path: Any = None) -> str:
        """One self-contained page; written to ``path`` when given."""
        return str(HOOKS["to_html"](self, path))

    def _repr_html_(self) -> str:
        return str(HOOKS["repr_html"](self))
