"""The state of a thread that records: which trace is open, which autocast policy and module path hold."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

from .. import sources
from ..dtypes import DType
from ..ir import Node, Op, TensorType
from ..ir.ops.core import Captured, Constant
from ..ir.types import Scalar, scalar_type


class StaticNeeded(BaseException):
    """Raised inside a trace when a Python value is asked of lifted scalar arguments: they must become static.

    Derives from BaseException so that the traced function's own ``except Exception`` does not swallow it.
    """

    def __init__(self, positions: Sequence[int]) -> None:
        super().__init__("a lifted Python scalar was used as a value")
        self.positions = tuple(positions)
        """Which of the trace's inputs."""


_serial = itertools.count()


@final
class Trace:
    """A recording in progress: its nodes in order, and the arrays it captured."""

    __slots__ = ("arrays", "inputs", "name", "nodes", "open", "serial")

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.inputs: list[Node] = []
        self.arrays: dict[int, tuple[Any, Node]] = {}
        self.open = True
        self.serial = next(_serial)

    def __repr__(self) -> str:
        return f"<trace of {self.name}>"


class State(threading.local):
    """What holds on this thread."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.policies: list[DType | None] = []
        self.scope: str = ""
        self.tapes = 0
        """How many eager gradients are being recorded: deferred values keep their history meanwhile."""
        self.uncompiled = False


STATE: Final = State()


def current_trace() -> Trace | None:
    traces = STATE.traces
    return traces[-1] if traces else None


def current_policy() -> DType | None:
    """The autocast dtype that holds now, or None."""
    policies = STATE.policies
    return policies[-1] if policies else None


@contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    """Make ``trace`` the one that records on this thread."""
    STATE.traces.append(trace)
    try:
        yield trace
    finally:
        STATE.traces.remove(trace)
        trace.open = False


@contextmanager
def policy(dtype: DType | None) -> Iterator[None]:
    """Let the autocast dtype, or None for off, hold on this thread."""
    STATE.policies.append(dtype)
    try:
        yield
    finally:
        STATE.policies.pop()


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Put ``name`` on the module path of what is recorded meanwhile: ``layers.3``."""
    saved = STATE.scope
    STATE.scope = f"{saved}.{name}" if saved else name
    try:
        yield
    finally:
        STATE.scope = saved


def record(op: type[Op], operands: Sequence[Node], attrs: Mapping[str, Any]) -> Node:
    """A node of ``op`` over operands as the user gave them: their dtypes and shapes may differ."""
    types = tuple(operand.type for operand in operands)
    held = current_policy()
    results = op.recorded(types, attrs, held)
    _refuse_overflow(op, operands, types, attrs, held)
    return keep(
        Node(
            op, tuple(operands), attrs, results,
            source=sources.here(), scope=STATE.scope, policy=held, lint=op.lint(types),
        )
    )  # fmt: skip


def keep(node: Node) -> Node:
    """Put a node into the trace that records, if one does."""
    trace = current_trace()
    if trace is not None:
        trace.nodes.append(node)
    return node


def _refuse_overflow(
    op: type[Op], operands: Sequence[Node], types: tuple[TensorType, ...], attrs: Mapping[str, Any], held: DType | None
) -> None:
    """A Python integer that does not fit the dtype of the arrays it meets is an error, as in NumPy."""
    for k, node in enumerate(operands):
        if node.op is Constant and types[k].weak and types[k].dtype.is_integer:
            dtype = op.promoted(types, attrs, held)[k]
            if not dtype.is_inexact:
                low, high = dtype.range
                if not low <= node.attrs["value"] <= high:
                    where = sources.here()
                    at = f" (at {where})" if where else ""
                    raise OverflowError(f"{node.attrs['value']} does not fit {dtype.name} in {op.schema_v1.name}{at}")


def constant_node(value: Scalar, t: TensorType) -> Node:
    """A constant of a Python number in the type ``t``."""
    return keep(Node(Constant, (), {"value": value}, (t,), source=sources.here(), scope=STATE.scope))


def scalar_node(value: Scalar) -> Node:
    """A weak constant: a Python number that takes the dtype of what it meets."""
    return constant_node(value, scalar_type(value))


def captured_node(value: Any, t: TensorType) -> Node:
    """A node of an array (inside a ``CapturedArray``) that the program uses."""
    return keep(Node(Captured, (), {"value": value}, (t,), source=sources.here(), scope=STATE.scope))
