"""Running a function once on stand-in values, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import trees
from ..errors import ConcretizationError, DTypeError, LucidGraphError
from ..ir import CapturedArray, Graph, Node, TensorType
from ..ir.op import get
from ..ir.types import scalar_type
from ..lang.recording import Trace, captured_node, tracing
from ..lang.tensor import Tensor, array_type, is_array, node_of

NUMBERS = (int, float, complex)


@dataclass(frozen=True, slots=True)
class Static:
    """An output leaf that is no array: returned as it is."""

    value: Any


@dataclass(frozen=True, slots=True)
class Traced:
    """A recorded graph, and how its outputs make up what the function returned.

    ``outputs[k]`` is a position among the graph's outputs, or a :class:`Static`.
    """

    graph: Graph
    outputs: tuple[int | Static, ...]
    spec: trees.TreeDef
    bounds: Mapping[int, tuple[int, int]]
    """What the lifted Python integers among the inputs, by position, have to lie between."""
    strayed: LucidGraphError | None
    """What is wrong with the function for NumPy's arrays: a write to a view, which would change its base as well."""

    def result(self, arrays: Sequence[Any]) -> Any:
        """The function's result, for one array per output of the graph."""
        leaves = [out.value if isinstance(out, Static) else arrays[out] for out in self.outputs]
        return trees.unflatten(self.spec, leaves)


def leaf_type(leaf: Any) -> TensorType | None:
    """The type of a leaf that becomes an input of the graph; None for one that is static."""
    if isinstance(leaf, Tensor):
        return TensorType(leaf.shape, leaf.dtype)
    if is_array(leaf):
        return array_type(leaf)
    if type(leaf) in NUMBERS:
        return scalar_type(leaf)
    return None


def trace(
    fn: Callable[..., Any],
    spec: trees.TreeDef,
    leaves: Sequence[Any],
    types: Sequence[TensorType | None],
    names: Sequence[str],
) -> Traced:
    """Record ``fn(*args, **kwargs)``, where ``(args, kwargs)`` is ``leaves`` in the structure ``spec``.

    Leaves whose type is not None become inputs, called by their names; the others are passed as they are.
    """
    recording = Trace(_name(fn))
    with tracing(recording):
        stand_ins, labels = [], []
        for leaf, t, name in zip(leaves, types, names, strict=True):
            if t is None:
                stand_ins.append(leaf)
            else:
                node = Node(get("input"), (), {}, (t,))
                recording.inputs.append(node)
                labels.append(name)
                stand_ins.append(Tensor.of_node(node))
        args, kwargs = trees.unflatten(spec, stand_ins)
        returned, out_spec = trees.flatten(_run(recording, fn, args, kwargs))
        outputs: list[int | Static] = []
        nodes: list[Node] = []
        for leaf in returned:
            result = _output_node(leaf)
            if result is None:
                outputs.append(Static(leaf))
            else:
                outputs.append(len(nodes))
                nodes.append(result)
    graph = Graph.from_outputs(recording.inputs, nodes, "recorded", labels, order=recording.nodes)
    bounds = {recording.inputs.index(node): limits for node, limits in recording.bounds.items()}
    strayed = next((write.error for write in recording.strayed.values()), None)
    return Traced(graph, tuple(outputs), out_spec, bounds, strayed)


def _run(recording: Trace, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """``fn(*args, **kwargs)``, whatever the function or NumPy make of what is raised where a value is missing."""
    try:
        returned = fn(*args, **kwargs)
    except ValueError as error:
        recording.require_asked()
        # NumPy's words for whatever goes wrong in array[k] = x.
        if isinstance(error.__cause__, ConcretizationError) and str(error).startswith("setting an array element"):
            raise error.__cause__ from None
        raise
    except BaseException:
        recording.require_asked()
        raise
    recording.require_asked()
    return returned


def require_callable(fn: Any, what: str) -> None:
    """Raise :class:`DTypeError` for what is no function."""
    if not callable(fn):
        raise DTypeError(f"{what} takes a function, not {type(fn).__name__}: {fn!r:.80}")


def _output_node(leaf: Any) -> Node | None:
    if isinstance(leaf, Tensor):
        return node_of(leaf)
    if is_array(leaf):
        array = np.array(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf
        return captured_node(CapturedArray(array), array_type(leaf))
    if isinstance(leaf, bool | int | float | complex | str | bytes) or leaf is None:
        return None
    raise DTypeError(
        f"a traced function returned {type(leaf).__name__}: {leaf!r:.80}", hint="return arrays and numbers"
    )


def _name(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__qualname__", None) or getattr(getattr(fn, "func", None), "__qualname__", None)
    return str(name or type(fn).__name__)
