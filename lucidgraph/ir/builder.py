"""Writing nodes: a builder keeps them in order, a :class:`Var` lets rules be written as algebra."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..sources import SourceLine
from .graph import Node, Origin
from .types import Scalar, Shape, TensorType

if TYPE_CHECKING:
    from .op import Op

LOOKUP: Final[dict[str, Callable[[str], type[Op]]]] = {}
"""How a builder finds an op by name; ``ir`` fills it, so that this file can stay below ``op``."""


def _op(name: str) -> type[Op]:
    return LOOKUP["op"](name)


@final
class Builder:
    """Appends explicit nodes; each carries the source, scope, policy and origin that are set at that time."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.source: SourceLine | None = None
        self.scope: str = ""
        self.policy: DType | None = None
        self.origin: Origin | None = None
        self._scalars: dict[tuple[str, DType], Node] = {}

    def input(self, t: TensorType) -> Node:
        return Node(_op("input"), (), {}, (t,))

    def emit(self, op: type[Op], operands: Sequence[Node], attrs: Mapping[str, Any], lint: str = "") -> Node:
        """A node of ``op`` over operands that fit it as they are."""
        types = op.result_types([operand.type for operand in operands], attrs)
        return self.append(op, operands, attrs, types, lint)

    def append(
        self,
        op: type[Op],
        operands: Sequence[Node],
        attrs: Mapping[str, Any],
        types: tuple[TensorType, ...],
        lint: str = "",
    ) -> Node:
        """A node whose result types are known already."""
        node = Node(
            op, tuple(operands), attrs, types,
            source=self.source, scope=self.scope, policy=self.policy, origin=self.origin, lint=lint,
        )  # fmt: skip
        self.nodes.append(node)
        return node

    def add(self, node: Node) -> Node:
        """Keep a node made elsewhere."""
        self.nodes.append(node)
        return node

    def constant(self, value: Scalar, dtype: DType) -> Node:
        """A 0-d constant of ``dtype``, one node per value."""
        if dtype.is_floating and type(value) is int and float(value) == value:
            value = float(value)
        key = (repr(value), dtype)
        node = self._scalars.get(key)
        if node is None:
            node = self.append(_op("constant"), (), {"value": value}, (TensorType((), dtype),))
            self._scalars[key] = node
        return node

    @contextmanager
    def at(self, node: Node, origin: Origin | None) -> Iterator[None]:
        """Write nodes on behalf of ``node``: its source, scope and policy, and a new origin."""
        saved = self.source, self.scope, self.policy, self.origin
        self.source, self.scope, self.policy, self.origin = node.source, node.scope, node.policy, origin
        try:
            yield
        finally:
            self.source, self.scope, self.policy, self.origin = saved


@final
class Var:
    """A node and its builder: expressions over it append explicit nodes.

    Shapes are broadcast with ``broadcast_to`` nodes, Python numbers become constants of this dtype; dtypes must match.
    """

    __slots__ = ("builder", "node")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: Builder, node: Node) -> None:
        self.builder = builder
        self.node = node

    @property
    def type(self) -> TensorType:
        return self.node.type

    @property
    def shape(self) -> Shape:
        return self.node.type.shape

    @property
    def dtype(self) -> DType:
        return self.node.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.node.type.shape)

    @property
    def size(self) -> int:
        return self.node.type.size

    def __repr__(self) -> str:
        return f"Var({self.node!r})"

    def scalar(self, value: Scalar) -> Var:
        """A 0-d constant of this dtype."""
        return Var(self.builder, self.builder.constant(value, self.dtype))

    def full(self, value: Scalar) -> Var:
        """A constant of this shape and dtype."""
        return self.scalar(value).broadcast_to(self.shape)

    def emit(self, name: str, *others: Var, **attrs: Any) -> Var:
        return Var(self.builder, self.builder.emit(_op(name), [self.node, *(o.node for o in others)], attrs))

    def binary(self, name: str, other: Var | Scalar, swap: bool = False) -> Var:
        """An elementwise op of two, shapes broadcast."""
        right = other if isinstance(other, Var) else self.scalar(other)
        if right.dtype is not self.dtype:
            raise DTypeError(f"{name} needs equal dtypes, not {self.type} and {right.type}")
        a, b = broadcast_together(self, right)
        return b.emit(name, a) if swap else a.emit(name, b)

    def __add__(self, other: Var | Scalar) -> Var:
        return self.binary("add", other)

    def __radd__(self, other: Scalar) -> Var:
        return self.binary("add", other, swap=True)

    def __sub__(self, other: Var | Scalar) -> Var:
        return self.binary("subtract", other)

    def __rsub__(self, other: Scalar) -> Var:
        return self.binary("subtract", other, swap=True)

    def __mul__(self, other: Var | Scalar) -> Var:
        return self.binary("multiply", other)

    def __rmul__(self, other: Scalar) -> Var:
        return self.binary("multiply", other, swap=True)

    def __truediv__(self, other: Var | Scalar) -> Var:
        return self.binary("divide", other)

    def __rtruediv__(self, other: Scalar) -> Var:
        return self.binary("divide", other, swap=True)

    def __neg__(self) -> Var:
        return self.emit("negative")

    def __gt__(self, other: Var | Scalar) -> Var:
        return self.binary("greater", other)

    def __ge__(self, other: Var | Scalar) -> Var:
        return self.binary("greater_equal", other)

    def __lt__(self, other: Var | Scalar) -> Var:
        return self.binary("less", other)

    def __le__(self, other: Var | Scalar) -> Var:
        return self.binary("less_equal", other)

    def __eq__(self, other: object) -> Var:  # type: ignore[override]
        if not isinstance(other, Var | bool | int | float | complex):
            return NotImplemented
        return self.binary("equal", other)

    def __ne__(self, other: object) -> Var:  # type: ignore[override]
        if not isinstance(other, Var | bool | int | float | complex):
            return NotImplemented
        return self.binary("not_equal", other)

    def __and__(self, other: Var) -> Var:
        return self.binary("logical_and", other)

    def __or__(self, other: Var) -> Var:
        return self.binary("logical_or", other)

    def __invert__(self) -> Var:
        return self.emit("logical_not")

    def astype(self, dtype: DType) -> Var:
        """A ``cast`` node, or this value when the dtype is right already."""
        return self if dtype is self.dtype else self.emit("cast", dtype=dtype)

    def broadcast_to(self, shape: Shape) -> Var:
        """A ``broadcast_to`` node, or this value when the shape is right already."""
        return self if shape == self.shape else self.emit("broadcast_to", shape=shape)

    def reshape(self, shape: Shape) -> Var:
        return self if shape == self.shape else self.emit("reshape", shape=shape)

    def permute(self, axes: tuple[int, ...]) -> Var:
        return self if axes == tuple(range(self.ndim)) else self.emit("permute_dims", axes=axes)

    def swap_last(self) -> Var:
        """The last two axes exchanged."""
        axes = tuple(range(self.ndim))
        return self.permute((*axes[:-2], axes[-1], axes[-2]))

    def expand_dims(self, axis: tuple[int, ...]) -> Var:
        return self if not axis else self.emit("expand_dims", axis=axis)

    def squeeze(self, axis: tuple[int, ...]) -> Var:
        return self if not axis else self.emit("squeeze", axis=axis)

    def sum(self, axis: tuple[int, ...], keepdims: bool = False) -> Var:
        """Sum in this dtype over axes given as non-negative numbers; this value when there are none."""
        if not axis:
            return self
        return self.emit("sum", axis=axis, keepdims=keepdims, dtype=None if self.dtype.is_inexact else self.dtype)

    def sum_to(self, shape: Shape) -> Var:
        """Undo a broadcast from ``shape``: sum over the axes that it added or stretched, if any."""
        added = self.ndim - len(shape)
        stretched = tuple(k for k in range(added, self.ndim) if shape[k - added] == 1 and self.shape[k] != 1)
        out = self.sum(tuple(range(added)) + stretched, keepdims=False) if added or stretched else self
        return out.reshape(shape)


def broadcast_together(a: Var, b: Var) -> tuple[Var, Var]:
    if a.shape == b.shape:
        return a, b
    rank = max(a.ndim, b.ndim)
    pairs = zip((1,) * (rank - a.ndim) + a.shape, (1,) * (rank - b.ndim) + b.shape, strict=True)
    shape = []
    for m, n in pairs:
        if m != n and 1 not in (m, n):
            raise ShapeError(f"cannot broadcast {a.type} with {b.type}")
        shape.append(n if m == 1 else m)
    return a.broadcast_to(tuple(shape)), b.broadcast_to(tuple(shape))
