"""The Accelerate backend: one native call per graph."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from ...dtypes import ALL
from ...errors import IndexOutOfRangeError, ShapeError
from ...ir import Graph, Node, TensorType
from ...ir.op import as_result
from ...ir.ops.core import Input, Kernel
from ...locks import renewed_in_child
from ..backend import Executable, IBackend, host_array
from ..cache import Cache
from .executor import COMMAND_WORDS, EXECUTOR, Executor
from .host import HostCode
from .memory import BLOCKS, LARGE, Block, empty
from .plan import STOP, Plan, Planner
from .system import SYSTEM, System
from .tables import TABLE


@final
class _Instance:
    """The memory of one run of a plan at a time: the command table, the arguments, the temporaries."""

    def __init__(self, plan: Plan, executor: Executor) -> None:
        self.plan = plan
        self.executor = executor
        kernels = [command.code.address("kernel") for command in plan.commands]
        words: list[int] = []
        starts = []
        places, buffers, offsets = [], [], []
        for command in plan.commands:
            starts.append(len(words))
            for slot, number, offset in command.pointers:
                places.append(len(words) + slot)
                buffers.append(number)
                offsets.append(offset if number == STOP else offset + plan.buffers[number].offset)
            words.extend(command.words)
        self.words = np.array(words or [0], np.int64)
        base = self.words.ctypes.data
        rows = [
            (kernel, base + 8 * start, c.items, int(c.split), c.cost)
            for c, kernel, start in zip(plan.commands, kernels, starts, strict=True)
        ]
        self.table = np.array(rows, np.int64).reshape(len(rows), COMMAND_WORDS)
        self.places = np.array(places, np.int64)
        self.buffers = np.array(buffers, np.int64)
        self.offsets = np.array(offsets, np.int64)
        self.stop = np.zeros(2, np.int64)
        self.addresses = np.zeros(len(plan.buffers) + 1, np.int64)
        self.addresses[STOP] = self.stop.ctypes.data
        self.arena: Block | None = None
        self.temporaries = [k for k, b in enumerate(plan.buffers) if b.kind == "temporary"]
        for k, buffer in enumerate(plan.buffers):
            if buffer.kind == "captured":
                self.addresses[k] = plan.captured[buffer.index].ctypes.data
        self.inputs = [(k, b.index) for k, b in enumerate(plan.buffers) if b.kind == "input"]
        self.outputs = [(k, b.index) for k, b in enumerate(plan.buffers) if b.kind == "output"]
        self.cost = plan.cost

    def run(self, arrays: Sequence[np.ndarray[Any, Any]], results: Sequence[np.ndarray[Any, Any]]) -> None:
        plan = self.plan
        addresses = self.addresses
        for k, index in self.inputs:
            addresses[k] = arrays[index].ctypes.data
        for k, index in self.outputs:
            addresses[k] = results[index].ctypes.data
        if plan.arena and self.arena is None:
            self.arena = BLOCKS.take(plan.arena)
            addresses[self.temporaries] = self.arena.address
        self.words[self.places] = addresses[self.buffers] + self.offsets
        self.stop[0] = 0
        try:
            self.executor.run(
                self.table.ctypes.data, len(plan.commands), self.cost, self.stop.ctypes.data, plan.threads
            )
        finally:
            if self.arena is not None and plan.arena >= LARGE:
                BLOCKS.give(self.arena)
                self.arena = None


@final
class _Prepared:
    """A plan, and the instances of it that no call is using."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.free: list[_Instance] = []
        self.host = [command.code for command in plan.commands if isinstance(command.code, HostCode)]


Strides = tuple[tuple[int, tuple[int, ...]], ...]
"""The inputs that are not in row-major order, with their strides."""


@final
class AccelerateExecutable(Executable):
    """A graph's plan; one more for each way in which inputs that are not in row-major order have been laid out, and
    for each number of threads."""

    def __init__(
        self,
        graph: Graph,
        donated: frozenset[int] = frozenset(),
        executor: Executor = EXECUTOR,
        system: System = SYSTEM,
    ) -> None:
        self.graph = graph
        self.executor = executor
        self.types = [n.type for n in graph.inputs]
        self.system = system
        self.donated = donated
        self._lock = threading.RLock()
        renewed_in_child(self)
        self._plain = self._prepared(())
        self._others: Cache[tuple[int, Strides], _Prepared] = Cache(_LAYOUTS)

    def _prepared(self, strides: Strides) -> _Prepared:
        threads = self.executor.threads
        return _Prepared(Planner(self.graph, threads, TABLE, dict(strides), self.donated, self.system).run())

    @property
    def plan(self) -> Plan:
        return self._plain.plan

    @property
    def source(self) -> str:  # type: ignore[override]
        """The commands in order, and where their results lie."""
        plan, threads = self.plan, self.executor.threads
        lines = [f"arena {plan.arena:,} bytes, {len(plan.commands)} commands on {threads} threads"]
        for k, c in enumerate(self.plan.commands):
            where = [
                f"{self.plan.buffers[b].kind}{self.plan.buffers[b].index}+{o}" for _, b, o in c.pointers if b != STOP
            ]
            split = "split" if c.split else "one thread"
            lines.append(f"  {k}. {c.name}: {c.items} items, {split}, {c.cost:,} bytes: {', '.join(where)}")
        return "\n".join(lines)

    def __call__(self, buffers: Sequence[Any]) -> list[Any]:
        arrays = [_native(b, t) for b, t in zip(buffers, self.types, strict=True)]
        strides: Strides = tuple((k, a.strides) for k, a in enumerate(arrays) if not a.flags.c_contiguous)
        prepared = self._plain
        threads = self.executor.threads
        if strides or prepared.plan.threads != threads:
            found = self._others.get((threads, strides))
            prepared = found if found is not None else self._others.put((threads, strides), self._prepared(strides))
        reused = prepared.plan.reused
        taken = {k: arrays[place] for k, place in reused.items() if _may_be_overwritten(arrays, place)}
        results = [
            taken[k] if k in taken else empty(t.shape, t.dtype.numpy) for k, t in enumerate(prepared.plan.outputs)
        ]
        with self._lock:
            instance = prepared.free.pop() if prepared.free else None
        if instance is None:
            instance = _Instance(prepared.plan, self.executor)
        try:
            instance.run(arrays, results)
            number, index = (int(word) for word in instance.stop)
        finally:
            with self._lock:
                prepared.free.append(instance)
        for code in prepared.host:
            code.raise_pending()
        if number:
            node = prepared.plan.commands[number - 1].node
            raise IndexOutOfRangeError(
                f"index {index} is out of range in {node.name if node else 'a gather'}",
                source=node.source if node else None,
            )
        return list(results)


def _may_be_overwritten(arrays: Sequence[np.ndarray[Any, Any]], place: int) -> bool:
    """Whether a donated array is writable and none of the other arguments lies in its memory."""
    mine = arrays[place]
    return mine.flags.writeable and not any(
        np.may_share_memory(mine, other) for k, other in enumerate(arrays) if k != place
    )


_LAYOUTS = 16


def _native(buffer: Any, t: TensorType) -> np.ndarray[Any, Any]:
    """The array as kernels read it: of this dtype, aligned; any strides."""
    array = host_array(buffer)
    if array.dtype != t.dtype.numpy or not array.flags.aligned:
        array = np.ascontiguousarray(array, t.dtype.numpy)
    if array.shape != t.shape:
        raise ShapeError(f"an array of shape {array.shape} was given for {t}")
    return array


@final
class AccelerateBackend(IBackend):
    """Runs graphs on the CPU through generated kernels: on this machine and system, unless others are given."""

    name = "accelerate"
    dtypes = frozenset(ALL)
    fuses = True

    def __init__(self, executor: Executor = EXECUTOR, system: System = SYSTEM) -> None:
        self._executor = executor
        self._system = system
        self._single: Cache[Any, AccelerateExecutable] = Cache(1024)

    def compile(self, graph: Graph, donated: frozenset[int] = frozenset()) -> Executable:
        return AccelerateExecutable(graph, donated, self._executor, self._system)

    def planned_bytes(self, graph: Graph) -> int | None:
        plan = Planner(graph, self._executor.threads, TABLE, system=self._system).run()
        return plan.arena + sum(t.nbytes for t in plan.outputs)

    def set_threads(self, count: int) -> None:
        self._executor.set_threads(count)

    def run_op(self, node: Node, buffers: Sequence[Any]) -> Any:
        single = self._alone(node)
        key = single.digest
        found = None if single.captured else self._single.get(key)
        if found is None:
            found = AccelerateExecutable(single, executor=self._executor, system=self._system)
            if not single.captured:
                self._single.put(key, found)
        results = found(buffers)
        return results[0] if len(results) == 1 else tuple(results)

    def _alone(self, node: Node) -> Graph:
        """A graph of this node: inside a kernel where it can be."""
        inputs = [Node(Input, (), {}, (TensorType(o.shape, o.dtype),)) for o in node.operands]
        alone = node.replace(operands=tuple(inputs))
        if node.op.elementwise or node.op.reduces:
            inner = [Node(Input, (), {}, n.types) for n in inputs]
            body_node = node.replace(operands=tuple(inner))
            body = Graph(inner, [body_node], [body_node], "explicit")
            alone = Node(Kernel, tuple(inputs), {"body": body}, node.types, source=node.source)
        return Graph(inputs, [alone], [alone], "explicit")

    def to_buffer(self, value: Any, t: TensorType) -> Any:
        with np.errstate(all="ignore"):
            return as_result(host_array(value), t)

    def to_numpy(self, buffer: Any) -> np.ndarray[Any, Any]:
        return np.asarray(buffer)


def create() -> IBackend:
    return AccelerateBackend()
