"""The Accelerate backend: one native call per graph."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, final

import numpy as np

from ...config import config
from ...dtypes import ALL
from ...errors import IndexOutOfRangeError, ShapeError
from ...ir import Graph, Node, TensorType
from ...ir.op import as_result
from ...ir.ops.core import Input, Kernel
from ..backend import Executable, IBackend, Ready, Strides, host_array
from ..cache import Cache
from . import attention, recalled
from .commands import STOP, Plan
from .executor import COMMAND_WORDS, EXECUTOR, Executor
from .host import HostCode
from .layouts import data_address
from .listing import listed
from .math import KEEPS
from .memory import BLOCKS, LARGE, empty
from .plan import Planner
from .system import SYSTEM, System
from .tables import TABLE


class Fixup(NamedTuple):
    """The word at ``address`` is that of an input or, counted after those, of an output, and ``offset`` bytes more."""

    address: int
    data: int
    offset: int


@final
class Instance:
    """The memory of one run of a plan at a time: the command table, the arguments, the temporaries."""

    def __init__(self, plan: Plan, inputs: int) -> None:
        kernels = [command.code.address("kernel") for command in plan.commands]
        words: list[int] = []
        rows: list[int] = []
        pointers: list[tuple[int, int, int]] = []
        for command, kernel in zip(plan.commands, kernels, strict=True):
            pointers += [(len(words) + slot, number, offset) for slot, number, offset in command.pointers]
            items = 0 if command.idle else command.items
            rows += (kernel, len(words), items, int(command.split), command.cost)
            first = len(words)
            words += command.words
            for slot, called in command.calls.items():
                words[first + slot] = called.address("kernel")
        self._words = memory = (ctypes.c_int64 * max(len(words), 1))(*words)
        self._table = (ctypes.c_int64 * max(len(rows), 1))(*rows)
        self.stop = (ctypes.c_int64 * 2)()
        base = ctypes.addressof(memory)
        for k in range(1, len(rows), COMMAND_WORDS):
            self._table[k] = base + 8 * rows[k]
        self.table_address = ctypes.addressof(self._table)
        self.stop_address = ctypes.addressof(self.stop)
        self.fixups: list[Fixup] = []
        self._places: list[tuple[int, int, int]] = []
        self._temporaries: list[tuple[int, int]] = []
        self._large = plan.arena if plan.arena >= LARGE else 0
        self._arena = BLOCKS.take(plan.arena) if plan.arena and not self._large else None
        for place, number, offset in pointers:
            if number == STOP:
                memory[place] = self.stop_address + offset
                continue
            buffer = plan.buffers[number]
            if buffer.kind in ("input", "output"):
                data = buffer.index + (inputs if buffer.kind == "output" else 0)
                offset += buffer.offset
                self.fixups.append(Fixup(base + 8 * place, data, offset))
                self._places.append((place, data, offset))
            elif buffer.kind == "captured":
                memory[place] = plan.captured[buffer.index].ctypes.data + offset
            elif self._arena is not None:
                memory[place] = self._arena.address + buffer.offset + offset
            else:
                self._temporaries.append((place, buffer.offset + offset))

    def run(self, plan: Plan, executor: Executor, data: Sequence[int]) -> tuple[int, int]:
        """Run the plan on the inputs and outputs at these addresses: what it was stopped by, and with which index."""
        words = self._words
        for place, number, offset in self._places:
            words[place] = data[number] + offset
        arena = BLOCKS.take(self._large) if self._large else None
        if arena is not None:
            for place, offset in self._temporaries:
                words[place] = arena.address + offset
        self.stop[0] = 0
        try:
            executor.run(self.table_address, len(plan.commands), plan.cost, self.stop_address, plan.threads)
        finally:
            if arena is not None:
                BLOCKS.give(arena)
        return self.stop[0], self.stop[1]


@final
class _Prepared:
    """A plan, and the instances of it that no call is using."""

    def __init__(self, plan: Plan, inputs: int) -> None:
        self.plan = plan
        self.inputs = inputs
        self.free: list[Instance] = []
        self.host = [command.code for command in plan.commands if isinstance(command.code, HostCode)]
        self.makers = [functools.partial(empty, t.shape, t.dtype.numpy) for t in plan.outputs]

    def instance(self) -> Instance:
        return Instance(self.plan, self.inputs)

    def stopped(self, number: int, index: int) -> NoReturn:
        """Raise the error of the command that ended a run."""
        node = self.plan.commands[number - 1].node
        raise IndexOutOfRangeError(
            f"index {index} is out of range in {node.name if node else 'a gather'}",
            source=node.source if node else None,
        )


class Run(NamedTuple):
    """A plan as the native entry runs it: ``results`` are, of each, what to call for it (None for NumPy's own), its
    shape and its dtype; ``address`` is the executor's function, then its arguments."""

    instance: Callable[[], Instance]
    results: tuple[tuple[Callable[[], Any] | None, tuple[int, ...], np.dtype[Any]], ...]
    stopped: Callable[[int, int], NoReturn]
    address: int
    commands: int
    most: int
    cost: int


@final
class AccelerateExecutable(Executable):
    """A graph's plan; one more for each way in which inputs that are not in row-major order have been laid out, and
    for each number of threads."""

    def __init__(
        self,
        graph: Graph | Callable[[], Graph],
        donated: frozenset[int] = frozenset(),
        executor: Executor = EXECUTOR,
        system: System = SYSTEM,
        known: tuple[Plan, Sequence[TensorType]] | None = None,
    ) -> None:
        """``known`` is a plan that is there already, with the inputs' types; the graph is then asked for when another
        one is needed."""
        self._graph = graph
        self.executor = executor
        self.types = [n.type for n in self.graph.inputs] if known is None else list(known[1])
        self.system = system
        self.donated = donated
        self._plain = self._prepared(()) if known is None else _Prepared(known[0], len(self.types))
        self._others: Cache[tuple[int, Strides], _Prepared] = Cache(_LAYOUTS)

    @property
    def graph(self) -> Graph:
        if not isinstance(self._graph, Graph):
            self._graph = self._graph()
        return self._graph

    def _prepared(self, strides: Strides) -> _Prepared:
        threads = self.executor.threads
        plan = Planner(self.graph, threads, TABLE, dict(strides), self.donated, self.system).run()
        return _Prepared(plan, len(self.types))

    def _for(self, strides: Strides) -> _Prepared:
        prepared, threads = self._plain, self.executor.threads
        if strides or prepared.plan.threads != threads:
            found = self._others.get((threads, strides))
            prepared = found if found is not None else self._others.put((threads, strides), self._prepared(strides))
        return prepared

    @property
    def plan(self) -> Plan:
        return self._plain.plan

    @property
    def source(self) -> str:  # type: ignore[override]
        """The commands in order, and where their results lie."""
        return listed(self.plan)

    def __call__(self, buffers: Sequence[Any]) -> list[Any]:
        return self._launched([_native(b, t) for b, t in zip(buffers, self.types, strict=True)])

    def direct(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for arrays of the inputs' dtypes, NumPy's aligned, and Python numbers for weak inputs."""
        return self._launched(
            [v if type(v) is np.ndarray else np.array(v, t.dtype.numpy) if t.weak else _native(v, t)
             for v, t in zip(values, self.types, strict=True)]
        )  # fmt: skip

    def run(self, strides: Strides) -> Run | None:
        """What the native entry needs for inputs laid out like this; None for plans that take some Python."""
        prepared = self._for(strides)
        plan = prepared.plan
        if prepared.host or plan.reused or plan.arena >= LARGE or not plan.commands:
            return None
        results = tuple(
            (make if t.nbytes >= LARGE else None, t.shape, t.dtype.numpy)
            for make, t in zip(prepared.makers, plan.outputs, strict=True)
        )
        address = self.executor.address()
        return Run(
            prepared.instance, results, prepared.stopped, address, len(plan.commands), plan.threads, plan.cost
        )

    def _launched(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
        strides: Strides = tuple([(k, a.strides) for k, a in enumerate(arrays) if not a.flags.c_contiguous])
        prepared = self._for(strides)
        reused = prepared.plan.reused
        taken = {k: arrays[place] for k, place in reused.items() if _may_be_overwritten(arrays, place)}
        results = [taken[k] if k in taken else make() for k, make in enumerate(prepared.makers)]
        try:
            instance = prepared.free.pop()
        except IndexError:
            instance = prepared.instance()
        try:
            number, index = instance.run(
                prepared.plan, self.executor, [*map(data_address, arrays), *map(data_address, results)]
            )
        finally:
            prepared.free.append(instance)
        for code in prepared.host:
            code.raise_pending()
        if number:
            prepared.stopped(number, index)
        return results


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
    takes = frozenset(attention.OPS)
    keeps = KEEPS

    def __init__(self, executor: Executor = EXECUTOR, system: System = SYSTEM) -> None:
        self._executor = executor
        self._system = system
        executor.order()
        self._recalled: weakref.WeakValueDictionary[bytes, AccelerateExecutable] = weakref.WeakValueDictionary()
        self._single: Cache[Any, AccelerateExecutable] = Cache(1024)

    def compile(self, graph: Graph, donated: frozenset[int] = frozenset()) -> Executable:
        return AccelerateExecutable(graph, donated, self._executor, self._system)

    def recall(self, graph: Graph, donated: frozenset[int], lower: Callable[[], Graph]) -> Ready | None:
        compiler, library = self._system.compiler, self._system.blas
        kept = compiler.kept()
        if kept is None or not recalled.may_be_kept(graph):
            return None
        name = self._entry(graph, donated)
        made = self._recalled.get(name)
        if made is None:
            plan = recalled.stored(kept, name, lambda data: recalled.read(data, graph, compiler, library))
            if plan is None:
                return None
            known = plan, [n.type for n in graph.inputs]
            made = AccelerateExecutable(lower, donated, self._executor, self._system, known)
            self._recalled[name] = made
        return Ready(made, made.plan.outputs)

    def keep(self, graph: Graph, donated: frozenset[int], ready: Ready) -> None:
        kept = self._system.compiler.kept()
        if kept is None or not recalled.may_be_kept(graph) or not isinstance(ready.executable, AccelerateExecutable):
            return
        text = recalled.written(ready.executable.plan, graph, self._system.blas)
        if text is not None:
            name = self._entry(graph, donated)
            self._recalled[name] = ready.executable
            kept.put(name, text)

    def _entry(self, graph: Graph, donated: frozenset[int]) -> bytes:
        system = self._system
        settings = (config.rules, config.veclib, self._executor.threads, system.pool.__name__, system.cache)
        return system.compiler.entry("plan", graph.digest, repr((settings, sorted(donated))))

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
        if type(value) is np.ndarray and value.dtype == t.dtype.numpy:
            return value
        with np.errstate(all="ignore"):
            return as_result(host_array(value), t)

    def to_numpy(self, buffer: Any) -> np.ndarray[Any, Any]:
        return np.asarray(buffer)


def create() -> IBackend:
    return AccelerateBackend()
