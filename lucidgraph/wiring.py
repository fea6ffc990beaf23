"""The one place where parts meet: backends by name, and the hooks that graphs and tensors declare."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from .config import config
from .dtypes import DType, as_dtype
from .errors import BackendError, DTypeError, ShapeError
from .ir import HOOKS as GRAPH_HOOKS
from .ir import Graph, Node, TensorType
from .lang.deferred import HOOKS as TENSOR_HOOKS
from .lang.tensor import Tensor, asarray, is_array
from .passes import backward, explicit, pipeline, run_passes
from .runtime.backend import Executable, IBackend, host_array
from .runtime.cache import Cache

BACKENDS: Final[dict[str, str]] = {
    "reference": "lucidgraph.runtime.reference",
    "mlx": "lucidgraph.runtime.mlx",
}
"""Each module has ``create() -> IBackend``, which raises :class:`BackendError` where it cannot work."""

SHOW: Final[dict[str, tuple[str, str]]] = {
    "residuals": ("lucidgraph.show.residuals", "residuals"),
    "cost": ("lucidgraph.show.cost", "cost"),
    "memory": ("lucidgraph.show.memory", "memory"),
    "to_networkx": ("lucidgraph.show.networkx", "to_networkx"),
    "to_dot": ("lucidgraph.show.dot", "to_dot"),
    "to_mermaid": ("lucidgraph.show.mermaid", "to_mermaid"),
    "to_python": ("lucidgraph.show.python", "to_python"),
    "to_html": ("lucidgraph.show.page", "to_html"),
    "repr_html": ("lucidgraph.show.page", "repr_html"),
    "explain": ("lucidgraph.show.explain", "explain"),
}
"""Loaded when first asked for: networkx, and all of ``show``, cost nothing until then."""

_made: dict[str, IBackend | BackendError] = {}
_lock = threading.Lock()


def _load(name: str) -> IBackend | BackendError:
    with _lock:
        if name not in _made:
            try:
                module = importlib.import_module(BACKENDS[name])
                _made[name] = module.create()
            except BackendError as error:
                _made[name] = error
        return _made[name]


def backend(name: str = "auto") -> IBackend:
    """The backend called ``name``; ``"auto"`` is the one of the configuration, or the best there is.

    Raises :class:`BackendError` for a name that does not exist or a backend that does not work here, with the reason.
    """
    if name == "auto":
        name = config.backend
    if name == "auto":
        return _best()
    if name not in BACKENDS:
        raise BackendError(f"no backend is called {name!r}", hint=f"one of auto, {', '.join(BACKENDS)}")
    found = _load(name)
    if isinstance(found, BackendError):
        raise BackendError(f"the {name} backend does not work here: {found.message}", hint=found.hint)
    return found


def _best() -> IBackend:
    """MLX where there is one, else the reference."""
    for name in ("mlx", "reference"):
        found = _load(name)
        if isinstance(found, IBackend):
            return found
    raise BackendError("no backend works here")


def backends() -> dict[str, str]:
    """Each backend's name, and ``"available"`` or why it is not.

    >>> backends()["reference"]
    'available'
    """
    found = {name: _load(name) for name in BACKENDS}
    table = {name: b.message if isinstance(b, BackendError) else "available" for name, b in found.items()}
    return {"auto": f"{_best().name}", **table}


# -- graphs that run


def lowered(graph: Graph, be: IBackend, observe: Callable[[str, Graph], None] | None = None) -> Graph:
    """The graph as the backend gets it. Checks that the backend has the dtypes."""
    final = run_passes(graph, pipeline(be.takes), observe)
    be.require_dtypes(final)
    return final


_executables: Cache[tuple[str, str, tuple[int, ...]], Executable] = Cache(4 * config.cache_entries)


def executable(final: Graph, be: IBackend) -> Executable:
    """The executable of a lowered graph, shared between equal graphs over the same captured arrays."""
    arrays = tuple(id(node.attrs["value"]) for node in final.captured)
    if arrays:
        # Captured arrays belong to one program; they must not outlive it in a shared cache.
        return be.compile(final)
    key = (be.name, final.digest, arrays)
    found = _executables.get(key)
    return found if found is not None else _executables.put(key, be.compile(final))


def to_family(buffer: Any, t: TensorType, family: str, be: IBackend) -> Any:
    """A backend's buffer as an array of a family."""
    if family == "mlx":
        return to_mlx(buffer, t.user_dtype)
    array = be.to_numpy(buffer)
    return array if array.flags.writeable or family != "numpy" else array.copy()


def run_graph(graph: Graph, args: Sequence[Any], name: str) -> list[Any]:
    """``Graph.run``."""
    be = backend(name)
    if len(args) != len(graph.inputs):
        raise ShapeError(f"the graph has {len(graph.inputs)} inputs, {len(args)} were given")
    labels = [label or f"input {k}" for k, label in enumerate(graph.input_names)]
    values = [_fitting(arg, node.type, label) for arg, node, label in zip(args, graph.inputs, labels, strict=True)]
    final = lowered(graph, be)
    results = executable(final, be)([be.to_buffer(v, n.type) for v, n in zip(values, graph.inputs, strict=True)])
    family = "mlx" if any(type(a).__module__ == "mlx.core" for a in args) else "numpy"
    if family != "mlx":
        be.settle(results)
    return [to_family(r, n.type, family, be) for r, n in zip(results, final.outputs, strict=True)]


def _fitting(value: Any, t: TensorType, label: str) -> Any:
    """An argument of a graph as an array of its input's type; Python numbers and lists take that dtype."""
    array = value
    if not is_array(value):
        array = asarray(value, None if t.weak else t.dtype)
    elif not t.weak and as_dtype(value.dtype) is not t.dtype:
        raise DTypeError(f"{label} is {t}, an array of {as_dtype(value.dtype).name} was given", hint="cast it before")
    if tuple(array.shape) != t.shape:
        raise ShapeError(f"{label} is {t}, an array of shape {tuple(array.shape)} was given")
    return array._concrete("Graph.run") if isinstance(array, Tensor) else array


# -- deferred values

_seen: Cache[str, bool] = Cache(4 * config.cache_entries)


def evaluate_deferred(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """Values of deferred tensors: op by op the first time, as one compiled program when it comes again."""
    be = backend("auto")
    buffers = [be.to_buffer(a, n.type) for a, n in zip(arrays, graph.inputs, strict=True)]
    digest = f"{be.name}:{graph.digest}"
    if _seen.get(digest):
        results = executable(lowered(graph, be), be)(buffers)
    else:
        _seen.put(digest, True)
        results = run_singly(explicit(graph), be, buffers)
    be.settle(results)
    return results


def run_singly(graph: Graph, be: IBackend, buffers: Sequence[Any]) -> list[Any]:
    """An explicit graph through each op's ``dispatch``."""
    be.require_dtypes(graph)
    values: dict[Node, Any] = dict(zip(graph.inputs, buffers, strict=True))
    for node in graph.nodes:
        values[node] = node.op.launch(be, node, [values[operand] for operand in node.operands])
    return [values[node] for node in graph.outputs]


def to_numpy(buffer: Any) -> np.ndarray[Any, Any]:
    return host_array(buffer)


def to_mlx(buffer: Any, dtype: DType) -> Any:
    """Any buffer as an MLX array."""
    if type(buffer).__module__ == "mlx.core":
        return buffer
    return backend("mlx").to_buffer(buffer, TensorType(tuple(buffer.shape), dtype))


# -- hooks


def shown(name: str) -> Callable[..., Any]:
    """A function of ``show``, imported when it is called."""
    module, attribute = SHOW[name]

    def call(*args: Any) -> Any:
        return getattr(importlib.import_module(module), attribute)(*args)

    return call


def connect() -> None:
    """Fill the hooks. Called once, by ``lucidgraph/__init__``."""
    GRAPH_HOOKS.update({name: shown(name) for name in SHOW})
    GRAPH_HOOKS["run"] = run_graph
    GRAPH_HOOKS["backward"] = lambda graph, wrt: backward(explicit(graph), wrt)
    TENSOR_HOOKS.update(evaluate=evaluate_deferred, to_numpy=to_numpy, to_mlx=to_mlx)


__all__ = ["BACKENDS", "backend", "backends", "connect", "executable", "lowered", "shown", "to_family"]
