"""The one place where parts meet: backends by name, and the hooks that graphs and tensors declare."""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np

from .config import config
from .dtypes import DType, as_dtype
from .errors import BackendError, DTypeError, ShapeError
from .ir import HOOKS as GRAPH_HOOKS
from .ir import Graph, Node, TensorType
from .ir.ops.core import Kernel
from .lang.deferred import HOOKS as TENSOR_HOOKS
from .lang.tensor import Tensor, asarray, is_array
from .locks import renewed_in_child
from .passes import backward, cse, dce, expand, explicit, pipeline, run_passes
from .runtime.accelerate import layouts
from .runtime.backend import Executable, IBackend, Ready, host_array
from .runtime.cache import Cache

BACKENDS: Final[dict[str, str]] = {
    "reference": "lucidgraph.runtime.reference",
    "mlx": "lucidgraph.runtime.mlx",
    "accelerate": "lucidgraph.runtime.accelerate.backend",
}
"""Each module has ``create() -> IBackend``, which raises :class:`BackendError` where it cannot work."""

NATIVE: Final = "lucidgraph.runtime.accelerate.ways"

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
_lock = threading.RLock()
renewed_in_child(sys.modules[__name__])


def _load(name: str) -> IBackend | BackendError:
    with _lock:
        if name not in _made:
            try:
                module = importlib.import_module(BACKENDS[name])
                _made[name] = module.create()
            except BackendError as error:
                _made[name] = error
            except ModuleNotFoundError as error:
                if (error.name or "").startswith("lucidgraph"):
                    raise
                _made[name] = BackendError(f"{error.name} is not installed", hint=f"pip install {error.name}")
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
    """MLX where it has a GPU, else Accelerate, else what there is."""
    found = [b for name in ("mlx", "accelerate", "mlx", "reference") if isinstance(b := _load(name), IBackend)]
    return found[0] if found[0].on_gpu or found[0].name != "mlx" else found[1]


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
    final = run_passes(graph, pipeline(be.takes, be.fuses, be.keeps), observe)
    be.require_dtypes(final)
    return final


_executables: weakref.WeakValueDictionary[tuple[str, str], Executable] = weakref.WeakValueDictionary()


def executable(final: Graph, be: IBackend, donated: frozenset[int] = frozenset()) -> Executable:
    """The executable of a lowered graph, shared between equal graphs while any of them is alive."""
    if final.captured or donated:
        # Captured arrays belong to one program, and the digest does not tell them apart.
        return be.compile(final, donated)
    key = (be.name, final.digest)
    found = _executables.get(key)
    if found is None:
        found = _executables[key] = be.compile(final)
    return found


def ready(recorded: Graph, be: IBackend, donated: frozenset[int] = frozenset()) -> Ready:
    """A recorded graph ready to run: as an earlier process has left it, or lowered now."""
    # Where passes are verified, they run.
    found = None if config.verify_passes else be.recall(recorded, donated, lambda: lowered(recorded, be))
    if found is None:
        final = lowered(recorded, be)
        found = Ready(executable(final, be, donated), [node.type for node in final.outputs])
        if not config.verify_passes:
            be.keep(recorded, donated, found)
    return found


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


# -- the native way into compiled functions


@functools.cache
def native() -> Any:
    """The module of native entries. Raises :class:`BackendError` where it does not work, saying why."""
    layouts.require()
    backend("accelerate")
    return importlib.import_module(NATIVE)


def callable_type(base: type) -> type:
    """A subclass of ``base`` that can be entered natively; ``base`` itself where that does not work."""
    try:
        layouts.require()
    except BackendError:
        return base
    return layouts.callable_type(base)


def why_not_native() -> str:
    """Why compiled functions are entered through Python; empty where they are entered natively."""
    if not config.native_calls:
        return "native_calls is off"
    try:
        native()
    except BackendError as error:
        return error.message
    return ""


# -- deferred values

_deferred: Cache[tuple[str, str], Executable | Literal["seen once"]] = Cache(4 * config.cache_entries)


def evaluate_deferred(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """Values of deferred tensors: op by op the first time, as one compiled program when it comes again."""
    be = backend("auto")
    buffers = [be.to_buffer(a, n.type) for a, n in zip(arrays, graph.inputs, strict=True)]
    key = (be.name, graph.digest)
    found = _deferred.get(key)
    if found is None:
        _deferred.put(key, "seen once")
        results = run_singly(dce(cse(expand(explicit(graph), be.takes))), be, buffers)
    else:
        if isinstance(found, str):
            found = executable(lowered(graph, be), be)
            _deferred.replace(key, found)
        results = found(buffers)
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

    def call(*args: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), attribute)(*args, **options)

    return call


def memory(graph: Graph) -> Any:
    """``Graph.memory``: a graph as run says what its backend planned."""
    planned = backend("accelerate").planned_bytes(graph) if any(n.op is Kernel for n in graph.nodes) else None
    return shown("memory")(graph, planned)


def connect() -> None:
    """Fill the hooks. Called once, by ``lucidgraph/__init__``."""
    GRAPH_HOOKS.update({name: shown(name) for name in SHOW})
    GRAPH_HOOKS["run"] = run_graph
    GRAPH_HOOKS["memory"] = memory
    GRAPH_HOOKS["backward"] = lambda graph, wrt: backward(explicit(graph), wrt)
    TENSOR_HOOKS.update(evaluate=evaluate_deferred, to_numpy=to_numpy, to_mlx=to_mlx)


__all__ = [
    "BACKENDS", "backend", "backends", "callable_type", "connect", "executable", "lowered", "native", "ready", "shown",
    "to_family", "why_not_native",
]  # fmt: skip
