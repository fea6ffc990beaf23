"""Values of what was recorded outside traces: which nodes have one, and how those that do not are computed together."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, final

from ..config import config
from ..ir import Graph, Node, topological
from ..ir.op import get
from ..ir.ops.core import Captured
from .recording import STATE

HOOKS: Final[dict[str, Callable[..., Any]]] = {}
"""Filled by ``wiring``: ``evaluate(graph, arrays) -> arrays``, ``to_numpy(buffer)``, ``to_mlx(buffer)``."""


class Deferred(Protocol):
    """What a tensor is to this file."""

    _node: Node

    def _settle(self) -> None: ...


_values: Final[weakref.WeakKeyDictionary[Node, Any]] = weakref.WeakKeyDictionary()
"""What nodes outside traces have been computed to."""


def value_of(node: Node) -> Any:
    """The array of a node that has one, or None."""
    if node.op is Captured:
        return Captured.array(node.attrs["value"])
    return _values.get(node)


def remember(node: Node, value: Any) -> None:
    """Let ``value`` be what the node has been computed to."""
    _values[node] = value


def has_value(node: Node) -> bool:
    return node.op is Captured or node in _values


@final
class _Pending:
    """The tensors without a value, of all threads; each with the thread that recorded it. Holds none alive."""

    def __init__(self) -> None:
        self._tensors: dict[int, tuple[weakref.ref[Any], int]] = {}

    def add(self, tensor: Deferred) -> None:
        key = id(tensor)

        def gone(ref: weakref.ref[Any]) -> None:
            # No lock: this may run in the middle of anything. An id in use again has another reference by now.
            entry = self._tensors.get(key)
            if entry is not None and entry[0] is ref:
                self._tensors.pop(key, None)

        self._tensors[key] = (weakref.ref(tensor, gone), threading.get_ident())

    def remove(self, tensor: Deferred) -> None:
        self._tensors.pop(id(tensor), None)

    def alive(self) -> list[tuple[Any, bool]]:
        """Each tensor, and whether this thread recorded it."""
        me = threading.get_ident()
        entries = self._tensors.copy().values()  # one step for other threads: nothing changes underneath
        return [(tensor, owner == me) for ref, owner in entries if (tensor := ref()) is not None]


pending: Final = _Pending()


def evaluate(tensors: Sequence[Deferred]) -> None:
    """Compute the values of deferred tensors, and of all that are alive on the way to them.

    Tensors of this thread forget how their value came about, unless a gradient is being recorded.
    """
    wanted = [t._node for t in tensors if not has_value(t._node)]
    if not wanted:
        return
    order = topological(wanted, stop=has_value)
    inside = set(order)
    alive = [(t, mine) for t, mine in pending.alive() if t._node in inside]
    outputs = list(dict.fromkeys([*wanted, *(t._node for t, _ in alive if not has_value(t._node))]))
    _compute(order, outputs)
    for t, mine in alive:
        pending.remove(t)
        if mine and not STATE.tapes:
            t._settle()


def _compute(order: Sequence[Node], outputs: Sequence[Node]) -> None:
    """Values for ``outputs``; ``order`` is what they depend on, down to nodes that have values."""
    leaves = [node for node in order if has_value(node)]
    # Fresh inputs in place of the values, so that a cached program holds no array.
    new = {node: Node(get("input"), (), {}, node.types) for node in leaves}
    inputs = list(new.values())
    nodes = []
    for node in order:
        if node not in new:
            new[node] = node.replace(operands=tuple(new[o] for o in node.operands))
            nodes.append(new[node])
    graph = Graph(inputs, nodes, [new[n] for n in outputs], "recorded")
    results = HOOKS["evaluate"](graph, [value_of(n) for n in leaves])
    for node, value in zip(outputs, results, strict=True):
        _values[node] = value


def bound_history() -> None:
    """Evaluate everything, once this thread has recorded as many nodes as may wait: long loops flush by themselves."""
    if STATE.recorded > config.deferred_limit:
        STATE.recorded = 0
        evaluate([t for t, mine in pending.alive() if mine])


__all__ = ["HOOKS", "Deferred", "bound_history", "evaluate", "has_value", "pending", "remember", "value_of"]
