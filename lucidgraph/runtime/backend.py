"""What a backend is: data (ops taken whole, dtypes) and two doors, whole graphs and single ops."""

from __future__ import annotations

import functools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..dtypes import DType, bfloat16
from ..errors import DTypeError, UnsupportedError
from ..ir import Graph, Node, Op, TensorType
from ..ir.op import get
from ..ir.types import Shape

Axes = tuple[int, ...]
Strides = tuple[tuple[int, tuple[int, ...]], ...]
"""The inputs that are not in row-major order, with their strides."""


class Direct(NamedTuple):
    """``function(*inputs, *arrays)`` gives the outputs in a list, for inputs that are arrays of the library the backend
    computes in. Where it raises one of ``errors``, the executable itself has more to say."""

    function: Callable[..., list[Any]]
    arrays: tuple[Any, ...]
    errors: tuple[type[Exception], ...]


class Executable(ABC):
    """A graph made ready to run. ``source`` is the generated code, for people to read."""

    source: str = ""

    @abstractmethod
    def __call__(self, buffers: Sequence[Any]) -> list[Any]:
        """The outputs, as buffers of the backend, for one buffer or array per input of the graph."""

    def direct(self, values: Sequence[Any]) -> list[Any] | None:
        """The outputs, as new arrays of the library whose arrays the backend computes in, for arrays of the inputs'
        dtypes and Python numbers; None where it has no shorter way to them."""
        return None

    def bare(self) -> Direct | None:
        """The library's own function under this executable, where it can be called as it is."""
        return None

    def run(self, strides: Strides) -> Any:
        """What the native entry runs for inputs laid out like this; None where it cannot."""
        return None


class Ready(NamedTuple):
    """A recorded graph, lowered and ready to run, and the types of its results."""

    executable: Executable
    results: list[TensorType]


class IBackend(ABC):
    """A place to run programs.

    ``takes`` names the composites it lowers whole; ``dtypes`` those it computes in.
    """

    name: ClassVar[str]
    takes: ClassVar[frozenset[str]] = frozenset()
    fuses: ClassVar[bool] = False
    """Whether the pipeline makes Kernel nodes for it."""
    keeps: ClassVar[frozenset[str]] = frozenset()
    """The laws of rounding that its arithmetic keeps to the bit, as ``passes/rules`` writes them."""
    computes_in: ClassVar[str] = "numpy"
    """The library whose arrays its buffers are; NumPy's may lie in the memory of any other's."""
    dtypes: ClassVar[frozenset[DType]]

    @property
    def on_gpu(self) -> bool:
        """Whether programs run on a GPU here."""
        return False

    @abstractmethod
    def compile(self, graph: Graph, donated: frozenset[int] = frozenset()) -> Executable:
        """Make an explicit graph, expanded but for ``takes``, ready to run. The graph's captured arrays are bound; the
        memory of ``donated`` inputs may become that of outputs."""

    def recall(self, graph: Graph, donated: frozenset[int], lower: Callable[[], Graph]) -> Ready | None:
        """What an earlier process made of a recorded graph; ``lower`` lowers it, if need be. None where nothing is
        kept."""
        return None

    def keep(self, graph: Graph, donated: frozenset[int], ready: Ready) -> None:  # noqa: B027
        """Keep what a recorded graph became for later processes, where that can be."""

    @abstractmethod
    def run_op(self, node: Node, buffers: Sequence[Any]) -> Any:
        """Run one explicit node on buffers, now, without compiling anything."""

    @abstractmethod
    def to_buffer(self, value: Any, t: TensorType) -> Any:
        """An array from anywhere as a buffer of this backend, of exactly this dtype."""

    @abstractmethod
    def to_numpy(self, buffer: Any) -> np.ndarray[Any, Any]:
        """A buffer as a NumPy array; may share memory."""

    def taker(self, t: TensorType) -> Callable[[Any], Any]:
        """``to_buffer`` for NumPy arrays of this type."""
        return functools.partial(self.to_buffer, t=t)

    def settle(self, buffers: Sequence[Any]) -> None:  # noqa: B027
        """Start computing what is still lazy in ``buffers``, together: they are read next, maybe by another thread."""

    def set_threads(self, count: int) -> None:
        """Use ``count`` threads. Raises :class:`UnsupportedError` where the backend does not say how many it uses."""
        raise UnsupportedError(f"the {self.name} backend decides on its threads itself")

    def planned_bytes(self, graph: Graph) -> int | None:
        """The most memory a run of a lowered graph takes beyond its inputs; None where the backend does not plan it."""
        return None

    def require_dtypes(self, graph: Graph) -> None:
        """Raise :class:`DTypeError` at the first node whose dtype this backend does not compute in."""
        for node in (*graph.inputs, *graph.nodes):
            for t in node.types:
                if t.dtype not in self.dtypes and not t.weak:
                    raise DTypeError(
                        f"the {self.name} backend has no {t.dtype.name}, which {node.name} gives: {t}",
                        source=node.source,
                        hint="cast to a dtype it has, or choose another backend",
                    )

    # -- the doors of single reductions: sum of ``a`` (of shape ``in_shape``) over ``axes``, taken in dtype ``dt``

    def _reduce(self, op: type[Op], a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        attrs = {"axis": tuple(axes), "keepdims": bool(keepdims), "dtype": dt}
        t = TensorType(tuple(in_shape), dt)
        operand = Node(get("input"), (), {}, (t,))
        node = Node(op, (operand,), attrs, op.result_types([t], attrs))
        return self.run_op(node, [self.to_buffer(a, t)])

    def reduce_sum(self, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        """Σ over ``axes``; 0 where there is nothing to add. ``dt`` is the dtype of the sum and of the result."""
        return self._reduce(get("sum"), a, in_shape, axes, keepdims, dt)

    def reduce_mean(self, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return self._reduce(get("mean"), a, in_shape, axes, keepdims, dt)

    def reduce_prod(self, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return self._reduce(get("prod"), a, in_shape, axes, keepdims, dt)

    def reduce_max(self, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return self._reduce(get("max"), a, in_shape, axes, keepdims, dt)

    def reduce_min(self, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return self._reduce(get("min"), a, in_shape, axes, keepdims, dt)

    def reduce_any(self, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return self._reduce(get("any"), a, in_shape, axes, keepdims, dt)

    def reduce_all(self, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return self._reduce(get("all"), a, in_shape, axes, keepdims, dt)

    def reduce_argmax(self, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return self._reduce(get("argmax"), a, in_shape, axes, keepdims, dt)

    def reduce_argmin(self, a: Any, in_shape: Shape, axes: Axes, keepdims: bool, dt: DType) -> Any:
        return self._reduce(get("argmin"), a, in_shape, axes, keepdims, dt)


def host_array(value: Any) -> np.ndarray[Any, Any]:
    """An array from anywhere as NumPy's, without a copy where its memory can be shared.

    MLX's bfloat16 arrives through the buffer protocol, which NumPy cannot name: its bits are reinterpreted.
    """
    kind = type(value)
    if kind.__module__ == "mlx.core":
        if str(value.dtype).endswith("bfloat16"):
            return np.asarray(value.view(sys.modules[kind.__module__].uint16)).view(bfloat16.numpy)
        return np.asarray(value)
    return np.asarray(value)
