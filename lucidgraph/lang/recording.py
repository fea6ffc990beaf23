"""The state of a thread that records: which trace is open, which autocast policy and module path hold."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, NoReturn, final

from .. import epoch, sources
from ..dtypes import DType
from ..errors import LucidGraphError
from ..ir import Node, Op, TensorType, topological
from ..ir.evaluate import constant_array, evaluate_node
from ..ir.ops.core import Captured, CastBackward, Constant
from ..ir.types import Scalar, scalar_type


class StaticNeeded(BaseException):
    """Raised inside a trace when a Python value is asked of lifted scalar arguments: they must become static.

    Derives from BaseException so that the traced function's own ``except Exception`` does not swallow it.
    """

    def __init__(self, positions: Sequence[int]) -> None:
        super().__init__("a lifted Python scalar was used as a value")
        self.positions = tuple(positions)
        """Which of the trace's inputs."""


class Strayed(NamedTuple):
    """A write that NumPy would have made in a view's base: the tensor, which stays alive, what it was before, and the
    error that the write is for NumPy's arrays."""

    tensor: Any
    view: Node
    error: LucidGraphError


@final
class Trace:
    """A recording in progress: its nodes in order, and the arrays it captured."""

    __slots__ = ("arrays", "asked", "bounds", "inputs", "name", "nodes", "open", "strayed")

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.inputs: list[Node] = []
        self.arrays: dict[int, tuple[Any, Node]] = {}
        self.bounds: dict[Node, tuple[int, int]] = {}
        """What a lifted Python integer has to lie between to fit the arrays it meets, by its input."""
        self.asked: dict[Node, None] = {}
        """The lifted Python scalars whose values were asked for."""
        self.strayed: dict[int, Strayed] = {}
        """Writes to what NumPy has as views, by the identity of the tensor, while its base does not have them too."""
        self.open = True

    def lifted(self, node: Node) -> list[Node]:
        """The lifted Python scalars that a value is made of, or nothing where arrays are involved as well."""
        found = []
        for origin in topological([node]):
            if not origin.operands and origin.op is not Constant:
                if not (origin.type.weak and origin in self.inputs):
                    return []
                found.append(origin)
        return found

    def require_value(self, scalars: Sequence[Node]) -> NoReturn:
        """Make these inputs static: the trace ends here and starts again."""
        self.asked.update(dict.fromkeys(scalars))
        raise StaticNeeded([self.inputs.index(node) for node in self.asked])

    def require_asked(self) -> None:
        """End the trace where a value was asked for, even if somebody has caught what that raised."""
        if self.asked:
            self.require_value(())

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
        self.recorded = 0
        """Nodes recorded outside traces since everything deferred was last computed."""
        self.uncompiled = False

    @property
    def marks(self) -> int:
        """How much of it makes calls of compiled functions unusual."""
        return len(self.traces) + len(self.policies) + self.tapes + self.uncompiled


STATE: Final = State()
os.register_at_fork(after_in_child=lambda: epoch.restart(STATE.marks))


def hold_policy(dtype: DType | None) -> None:
    """Let the autocast dtype, or None for off, hold on this thread until it is dropped."""
    epoch.mark(1)
    STATE.policies.append(dtype)


def drop_policy() -> None:
    """Let hold again what held before the latest."""
    STATE.policies.pop()
    epoch.mark(-1)


def run_uncompiled(on: bool) -> None:
    """Whether compiled functions run op by op on this thread."""
    change = on - STATE.uncompiled
    STATE.uncompiled = on
    epoch.mark(change)


@contextmanager
def taping() -> Iterator[None]:
    """Deferred values keep their history, so that one can be asked for without losing its gradient."""
    epoch.mark(1)
    STATE.tapes += 1
    try:
        yield
    finally:
        STATE.tapes -= 1
        epoch.mark(-1)


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
    epoch.mark(1)
    STATE.traces.append(trace)
    try:
        yield trace
    finally:
        STATE.traces.remove(trace)
        epoch.mark(-1)
        trace.open = False


@contextmanager
def policy(dtype: DType | None) -> Iterator[None]:
    """Let the autocast dtype, or None for off, hold on this thread."""
    hold_policy(dtype)
    try:
        yield
    finally:
        drop_policy()


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
    results, lint = _inferred(op, types, tuple(attrs.items()), held)  # type: ignore[arg-type]
    if any(t.weak and t.dtype.is_integer for t in types):
        _check_range(op, operands, types, attrs, held)
    if results[0].weak and current_trace() is None and all(o.op is Constant for o in operands):
        return _number(op, operands, types, attrs, results[0])
    return keep(
        Node(
            op, tuple(operands), attrs, results,
            source=sources.here(), scope=STATE.scope, policy=held, lint=lint,
        )
    )  # fmt: skip


@functools.lru_cache(maxsize=8192)
def _inferred(
    op: type[Op], types: tuple[TensorType, ...], attrs: tuple[tuple[str, Any], ...], held: DType | None
) -> tuple[tuple[TensorType, ...], str]:
    """The result types, and a remark on them; the same ones are asked for again and again."""
    return op.recorded(types, dict(attrs), held), op.lint(types)


def keep(node: Node) -> Node:
    """Put a node into the trace that records, if one does."""
    trace = current_trace()
    if trace is not None:
        trace.nodes.append(node)
    else:
        STATE.recorded += 1
    return node


def _number(
    op: type[Op], operands: Sequence[Node], types: tuple[TensorType, ...], attrs: Mapping[str, Any], t: TensorType
) -> Node:
    """An operation on Python numbers outside a trace: its value at Python's own width, again weak."""
    dtypes = op.promoted(types, attrs, None)
    given = [TensorType((), dtype) for dtype in dtypes]
    arrays = [constant_array(o.attrs["value"], g) for o, g in zip(operands, given, strict=True)]
    inputs = tuple(Node(Constant, (), o.attrs, (g,)) for o, g in zip(operands, given, strict=True))
    value = evaluate_node(Node(op, inputs, attrs, (TensorType((), t.dtype),)), arrays)
    return constant_node(value.item(), t)


def _check_range(
    op: type[Op], operands: Sequence[Node], types: tuple[TensorType, ...], attrs: Mapping[str, Any], held: DType | None
) -> None:
    """A Python integer that does not fit the dtype of the arrays it meets is an error, as in NumPy.

    Of a lifted one the trace remembers what fits; one computed from lifted ones becomes static.
    """
    to = (attrs["dtype"],) if op is CastBackward else op.promoted(types, attrs, held)
    for node, t, dtype in zip(operands, types, to, strict=True):
        if not (t.weak and t.dtype.is_integer and dtype.is_integer) or dtype is t.dtype:
            continue
        low, high = dtype.range
        trace = current_trace()
        if node.op is Constant:
            if not low <= node.attrs["value"] <= high:
                where = sources.here()
                at = f" (at {where})" if where else ""
                raise OverflowError(f"{node.attrs['value']} does not fit {dtype.name} in {op.schema_v1.name}{at}")
        elif trace is not None and node in trace.inputs:
            below, above = trace.bounds.get(node, (low, high))
            trace.bounds[node] = max(low, below), min(high, above)
        elif trace is not None and (scalars := trace.lifted(node)):
            trace.require_value(scalars)


def constant_node(value: Scalar, t: TensorType) -> Node:
    """A constant of a Python number in the type ``t``."""
    return keep(Node(Constant, (), {"value": value}, (t,), source=sources.here(), scope=STATE.scope))


def scalar_node(value: Scalar) -> Node:
    """A weak constant: a Python number that takes the dtype of what it meets."""
    return constant_node(value, scalar_type(value))


def captured_node(value: Any, t: TensorType) -> Node:
    """A node of an array (inside a ``CapturedArray``) that the program uses."""
    return keep(Node(Captured, (), {"value": value}, (t,), source=sources.here(), scope=STATE.scope))
