"""The MLX backend and its executables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, final

import mlx.core as mx
import numpy as np

from ...dtypes import ALL, complex128, float64
from ...errors import BackendError, DTypeError
from ...ir import Graph, Node, TensorType
from ...ir.evaluate import evaluate_node
from ...ir.op import as_result, get
from ...ir.ops.core import CastBackward
from ...ir.text import format_attrs
from ..backend import Direct, Executable, IBackend, host_array
from ..cache import Cache
from .lowering import FILE, Program, lower
from .tables import TAKES
from .writing import dtype_text

__all__ = ["MLXBackend", "MLXExecutable"]

_DTYPES: Final = {d: getattr(mx, dtype_text(d).removeprefix("mx.")) for d in ALL if d is not complex128}

_REFUSALS: Final = (ValueError, RuntimeError, TypeError, IndexError)
"""How MLX says that it cannot."""


def _to_mlx(value: Any, t: TensorType) -> mx.array:
    """Any array as MLX's, of exactly this dtype; an MLX array of it as it is."""
    if isinstance(value, mx.array):
        return value if value.dtype == _DTYPES[t.dtype] else value.astype(_DTYPES[t.dtype])
    with np.errstate(all="ignore"):
        array = as_result(host_array(value), t)
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    return mx.array(array, dtype=_DTYPES[t.dtype])


@final
class MLXExecutable(Executable):
    """A program compiled by ``mx.compile`` (which ``MLX_DISABLE_COMPILE`` turns off).

    Results are lazy. They may be used on other threads once they have been evaluated, as MLX's rule is.
    """

    def __init__(self, graph: Graph) -> None:
        self.source = ""
        self._program = program = lower(graph)
        self._inputs = graph.inputs
        self.source = program.source
        self._function = mx.compile(program.function)
        self._arrays = [_to_mlx(array, t) for array, t in program.arrays]
        self._numbers = None if program.prints else _numbers(program, graph)
        """The Python numbers that it takes as they are, with their dtypes; None where more is to do before or after."""
        # Used by any thread from now on, so there must be nothing left to compute.
        mx.eval(self._arrays)

    def __call__(self, buffers: Sequence[Any]) -> list[Any]:
        program = self._program
        arguments = [_to_mlx(buffers[k], self._inputs[k].type) for k in program.given]
        if program.host_results:
            arguments += self._host_values(buffers)
        try:
            results = self._function(*arguments, *self._arrays)
        except _REFUSALS as error:
            raise _failure(error, program) from error
        if program.prints:
            _print(program, results[program.results :])
            return results[: program.results]
        return results

    def direct(self, values: Sequence[Any]) -> list[Any] | None:
        if self._numbers is None:
            return None
        given = [values[k] for k in self._program.given]
        if not all(type(v) is mx.array for v in given):
            return None
        program = self._program
        for k, dtype in self._numbers:
            given.append(mx.array(values[k], dtype))
        try:
            return self._function(*given, *self._arrays)
        except _REFUSALS as error:
            raise _failure(error, program) from error

    def bare(self) -> Direct | None:
        plain = self._numbers == [] and self._program.given == tuple(range(len(self._inputs)))
        return Direct(self._function, tuple(self._arrays), _REFUSALS) if plain else None

    def _host_values(self, buffers: Sequence[Any]) -> list[mx.array]:
        """What is made of Python numbers alone, as arrays of the dtype it is used in."""
        values: dict[Node, Any] = {
            node: as_result(host_array(buffer), node.type)
            for node, buffer in zip(self._inputs, buffers, strict=True)
            if node.type.weak
        }
        for node in self._program.host:
            operands = [values[o] if o in values else evaluate_node(o, ()) for o in node.operands]
            values[node] = evaluate_node(node, operands)
        return [_to_mlx(values[node], node.type) for node in self._program.host_results]


def _numbers(program: Program, graph: Graph) -> list[tuple[int, Any]] | None:
    """The numbers among the inputs that a program takes, in their order, with the dtypes it takes them in; None where
    more than MLX's own conversion is between."""
    places = {node: k for k, node in enumerate(graph.inputs)}
    found = []
    for node in program.host_results:
        source = node.operands[0] if node.op is CastBackward else node
        kind = source.dtype.kind
        # In half precision MLX would round twice.
        if source not in places or kind not in "fi" or node.dtype.kind != kind or node.dtype.is_half:
            return None
        found.append((places[source], _DTYPES[node.dtype]))
    return found


def _print(program: Program, values: Sequence[mx.array]) -> None:
    """Run the prints of a program, in order, each with as many of the values as it has operands."""
    at = 0
    for node in program.prints:
        count = len(node.operands)
        evaluate_node(node, [host_array(v) for v in values[at : at + count]])
        at += count


def _failure(error: Exception, program: Program) -> BackendError:
    """MLX's error with the user's line whose operation it refused."""
    source = None
    frame: TracebackType | None = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == FILE:
            source = program.lines.get(frame.tb_lineno)
        frame = frame.tb_next
    return BackendError(f"mlx refused the program: {error}", source=source, hint='backend="reference" runs every op')


@final
class MLXBackend(IBackend):
    """Runs graphs through ``mlx.core``, on its default device. float64 computes on the CPU device only."""

    name = "mlx"
    computes_in = "mlx"
    takes = TAKES
    dtypes = frozenset(_DTYPES)

    def __init__(self) -> None:
        self._single: Cache[tuple[Any, ...], Callable[[Sequence[Any]], Any]] = Cache(1024)

    @property
    def on_gpu(self) -> bool:
        return bool(mx.default_device() == mx.gpu)

    def compile(self, graph: Graph, donated: frozenset[int] = frozenset()) -> Executable:
        return MLXExecutable(graph)

    def run_op(self, node: Node, buffers: Sequence[Any]) -> Any:
        """Run one node. Python numbers, and 0-d values made of them alone, stay with NumPy."""
        if node.op.captures:
            return _to_mlx(evaluate_node(node, ()), node.type)
        if node.shape == () and node.op.elementwise | (node.name == "constant") and _on_host(buffers):
            return evaluate_node(node, [np.asarray(b) for b in buffers])
        if node.op.effect:
            return evaluate_node(node, [host_array(b) for b in buffers])
        if node.name == "result":
            return buffers[0][node.attrs["index"]]
        types = tuple(TensorType(o.shape, o.dtype) for o in node.operands)
        key = (node.op, format_attrs(node), types)
        run = self._single.get(key)
        if run is None:
            run = self._single.put(key, _single(node, types))
        return run(buffers)

    def to_buffer(self, value: Any, t: TensorType) -> Any:
        if t.weak:
            with np.errstate(all="ignore"):
                return as_result(host_array(value), t)
        return _to_mlx(value, t)

    def taker(self, t: TensorType) -> Callable[[Any], Any]:
        dtype = _DTYPES[t.dtype]
        if mx.array(np.zeros((), t.dtype.numpy)).dtype == dtype:  # all but float64
            return mx.array
        return super().taker(t)

    def to_numpy(self, buffer: Any) -> np.ndarray[Any, Any]:
        return host_array(buffer)

    def settle(self, buffers: Sequence[Any]) -> None:
        mx.async_eval([b for b in buffers if isinstance(b, mx.array)])  # type: ignore[no-untyped-call]

    def require_dtypes(self, graph: Graph) -> None:
        super().require_dtypes(graph)
        if mx.default_device().type == mx.cpu:
            return
        for node in (*graph.inputs, *graph.nodes):
            if node.dtype is float64 and not node.type.weak:
                raise DTypeError(
                    f"MLX has no float64 on a GPU, which {node.name} gives: {node.type}",
                    source=node.source,
                    hint="cast to float32, mlx.core.set_default_device(mlx.core.cpu), or another backend",
                )


def _on_host(buffers: Sequence[Any]) -> bool:
    return not any(isinstance(b, mx.array) for b in buffers)


def _single(node: Node, types: tuple[TensorType, ...]) -> Callable[[Sequence[Any]], Any]:
    """A function of buffers that runs one node, from the same tables as whole programs; not compiled."""
    if len(node.types) > 1:
        raise BackendError(f"mlx runs {node.name}, with several results, in whole programs only", source=node.source)
    inputs = [Node(get("input"), (), {}, (t,)) for t in types]
    alone = node.replace(operands=tuple(inputs))
    program = lower(Graph(inputs, [alone], [alone], "explicit"))
    arrays = [_to_mlx(array, t) for array, t in program.arrays]
    mx.eval(arrays)

    def run(buffers: Sequence[Any]) -> Any:
        arguments = [_to_mlx(b, t) for b, t in zip(buffers, types, strict=True)]
        try:
            return program.function(*arguments, *arrays)[0]
        except _REFUSALS as error:
            raise _failure(error, program) from error

    return run
