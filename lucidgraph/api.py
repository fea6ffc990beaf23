"""What people type first: compile, trace, and switches."""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

from . import trees, wiring
from .calls import Make
from .config import config
from .dtypes import DType, as_dtype, bfloat16
from .errors import DTypeError, UnsupportedError
from .frontend.compiled import AROUND, Core, Way
from .frontend.forms import build_of, inputs_with_strides, is_in_memory, is_of_mlx
from .frontend.tracer import require_callable
from .ir import Graph, TensorType
from .lang import recording
from .lang.axes import whole
from .lang.deferred import value_of
from .lang.tensor import Tensor, concrete
from .passes import by_name, explicit, run_passes
from .runtime.backend import IBackend
from .runtime.cache import Cache, CacheInfo


@final
class _Program:
    """A lowered graph on a backend, between arrays of any family."""

    def __init__(self, graph: Graph, be: IBackend, donated: frozenset[int]) -> None:
        self.be = be
        self.types = [node.type for node in graph.inputs]
        self.donated = donated
        self.executable, self.results = wiring.ready(graph, be, donated)

    def __call__(self, arrays: Sequence[Any], family: str) -> list[Any]:
        be = self.be
        tensors = [a for a in arrays if isinstance(a, Tensor)]
        if tensors:
            concrete(tensors, "a compiled call")
        given = [value_of(a._node) if isinstance(a, Tensor) else a for a in arrays]
        for k in self.donated:
            if isinstance(arrays[k], Tensor):  # whose memory other tensors may share
                given[k] = be.to_numpy(given[k]).copy()
        buffers = self.executable([be.to_buffer(a, t) for a, t in zip(given, self.types, strict=True)])
        if family != "mlx":
            be.settle(buffers)
        if family == "tensor":
            return [Tensor.of_value(b, t) for b, t in zip(buffers, self.results, strict=True)]
        return [wiring.to_family(b, t, family, be) for b, t in zip(buffers, self.results, strict=True)]


    @property
    def reads_buffers(self) -> bool:
        return self.be.computes_in == "numpy"

    def short(self, family: str) -> Callable[[Sequence[Any]], list[Any]]:
        """The same for arguments known to be arrays of the inputs' dtypes, and Python numbers."""
        whole = functools.partial(self, family=family)
        direct, takers = self.executable.direct, self.takers(family)
        if takers is None:
            return whole

        def run(inputs: Sequence[Any]) -> list[Any]:
            results = direct(inputs)
            if results is None:
                return whole(inputs)
            return [take(r) for take, r in zip(takers, results, strict=True)] if takers else results

        return run

    def takers(self, family: str) -> list[Callable[[Any], Any]] | None:
        """What makes arrays of a family of the backend's own, one for each result: none where those are of it; None
        where they come in another way."""
        if family == self.be.computes_in:
            return []
        if family != "mlx":
            return None
        return [wiring.backend("mlx").taker(TensorType(t.shape, t.user_dtype)) for t in self.results]


@final
class Lowered:
    """A function lowered for the arguments it was given: ``graph`` as the backend runs it; ``compile()``."""

    def __init__(self, graph: Graph, be: IBackend) -> None:
        self.graph = graph
        self.backend = be.name
        self._be = be

    def compile(self) -> Any:
        """The executable; its ``source`` is the generated code."""
        return wiring.executable(self.graph, self._be)

    def __str__(self) -> str:
        return str(self.graph)


@final
class CompiledFunction:
    """A function that is traced on its first call with a new signature, and runs as one program from then on."""

    def __init__(
        self,
        fn: Callable[..., Any],
        backend: str,
        static_argnames: Sequence[str] | str,
        autocast: Any,
        donate: Sequence[int] = (),
    ) -> None:
        require_callable(fn, "compile")
        self._backend = backend
        self._leading: tuple[Any, ...] = ()

        def full() -> None:
            core = known()
            if core is not None:
                core.warn_full()

        cache: Cache[Any, Any] = Cache(config.cache_entries, on_full=full)

        def prepare(graph: Graph, donated: frozenset[int]) -> _Program:
            return _Program(graph, wiring.backend(backend), donated)

        self._core = Core(fn, prepare, static_argnames, cache, autocast, donate)
        known = weakref.ref(self._core)  # no circle: a dropped function frees what it captured at once
        mine = weakref.ref(self)

        def changed() -> None:
            called = mine()
            # A signal's handler may call in the middle of it: such a call comes in through Python.
            if called is not None and not called._entering:
                called._entering = True
                try:
                    called._enter_natively()
                finally:
                    called._entering = False

        self._core.on_ways = changed
        self._entry: Any = None
        self._entering = False
        self._copied = False
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._core(self._leading + args, kwargs)

    def _enter_natively(self) -> None:
        """Let the native entry know the forms of calls that have come."""
        core = self._core
        if type(self) is CompiledFunction or wiring.why_not_native():
            return
        native = wiring.native()
        fixed = None if core.fixed_policy is AROUND else core.fixed_policy
        ways = [way for way in core.ways if way.signature.policy is fixed]
        for way in ways:
            if way.native is None:
                way.native = _native_way(native, way)
            elif not way.native.is_free:
                way.native.grow()
        if self._entry is None:
            self._entry = native.EntryPoint(self, CompiledFunction.__basicsize__, CompiledFunction.__call__)
        self._entry.install([way.native for way in ways])

    @property
    def dispatch(self) -> str:
        """How calls come in: ``"native"``, or ``"python: "`` and why."""
        why = wiring.why_not_native() or ("this object is a copy, as that of a method is" if self._copied else "")
        return f"python: {why}" if why else "native"

    def _told(self) -> str:
        """The same in words, once calls have found their program by their form."""
        core, why = self._core, self.dispatch.partition(": ")[2]
        short, forms = core.short_hits(), len(core.ways)
        if not short:
            return ""
        how = f"through Python ({why})" if why else "natively"
        return f"{how}: {short} so far, by {forms} known form{'' if forms == 1 else 's'}"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: the same function, its programs included, with its first argument given."""
        if instance is None:
            return self
        bound = copy.copy(self)
        bound._leading = (*self._leading, instance)
        return bound

    def __copy__(self) -> CompiledFunction:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._copied = True
        return twin

    def __deepcopy__(self, memo: Any) -> CompiledFunction:
        return self  # as functions are

    def __reduce__(self) -> str | tuple[Any, ...]:
        # By name, as functions and methods are.
        if self._leading:
            return getattr, (self._leading[-1], self.__name__)  # type: ignore[attr-defined]
        return str(self.__qualname__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<compiled {self._core.label}>"

    def trace(self, /, *args: Any, **kwargs: Any) -> Graph:
        """The graph for these arguments after promotion and broadcasting."""
        return explicit(self._core.trace(self._leading + args, kwargs)[1].graph)

    def graph(self, /, *args: Any, **kwargs: Any) -> Graph:
        """The graph for these arguments as it is run."""
        return self.lower(*args, **kwargs).graph

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """The function lowered for these arguments, on its backend."""
        be = wiring.backend(self._backend)
        return Lowered(wiring.lowered(self._core.trace(self._leading + args, kwargs)[1].graph, be), be)

    def explain(self, /, *args: Any, **kwargs: Any) -> str:
        """What became of the function: its programs and why each was made; for the arguments, if given, whether a
        call would need another, what every pass does to it, the graph that runs, and the code."""
        core, be = self._core, wiring.backend(self._backend)
        report = wiring.shown("explain")
        if not (args or kwargs):
            return str(report(core.label, be.name, core.history, dispatch=self._told()))
        args = self._leading + args
        signature = core.take(args, kwargs, search=True).signature
        retrace = "" if signature in core.cache else core.why(signature)
        recorded = core.trace(args, kwargs)[1].graph
        after = [("record", recorded)]
        final = wiring.lowered(recorded, be, lambda name, graph: after.append((name, graph)))
        source = wiring.executable(final, be).source
        return str(report(core.label, be.name, core.history, retrace, after, source, self._told()))

    def cache_info(self) -> CacheInfo:
        """Hits, misses, the bound and the number of programs."""
        info: CacheInfo = self._core.cache.info()
        return info._replace(hits=info.hits + self._core.short_hits())

    def cache_clear(self) -> None:
        """Drop all programs."""
        self._core.clear()


def _native_way(native: Any, way: Way) -> Any:
    """A form of call for the native entry: with a plan where it can run it, else with the Python function that does."""
    traced, run, program = way.entry.traced, way.run, way.entry.program
    build, takers = build_of(traced), program.takers(way.family)
    plan = None
    if build is not None and takers is not None and is_in_memory(way.form):
        plan = program.executable.run(inputs_with_strides(way.form))
    if build is not None and takers:
        made: list[tuple[Make, Any]] = []
        for what, of in build:
            made += [(what, of), (Make.CALL, takers[of])] if what is Make.RESULT else [(what, of)]
        build = tuple(made)
    if plan is not None:
        return native.Way(way.form, build, plan)
    bare = program.executable.bare() if build is not None and takers == [] and is_of_mlx(way.form) else None

    def python(*inputs: Any) -> Any:
        return traced.result(run(inputs))

    return native.Way(way.form, build or (), None, python, bare, len(traced.graph.outputs))


_Compiled: Final[type[CompiledFunction]] = wiring.callable_type(CompiledFunction)


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    backend: str = "auto",
    frontend: str = "auto",
    inputs: Any = None,
    outputs: Any = None,
    static_argnames: Sequence[str] | str = (),
    dynamic: Mapping[str, Mapping[int, str]] | bool | None = None,
    autocast: Any = None,
    donate: Sequence[int] = (),
) -> Any:
    """Compile a function of arrays; a decorator with or without arguments.

    The function is recorded once per signature (structure, shapes, dtypes, static values, autocast policy, guarded
    outside values), rewritten by the passes and run as one program on ``backend``. Results come in the family of the
    arguments: MLX before Tensor before NumPy.

    ``static_argnames`` names arguments that shape the program; Python bool, str and None always do, Python numbers as
    soon as the function asks for their value. ``autocast``: a dtype, ``False`` for off, None for the policy around the
    call. ``donate`` lists positions of arguments whose memory results may take: their arrays must not be read
    afterwards. Raises :class:`BackendError` for an unknown backend.

    >>> import numpy as np
    >>> @compile
    ... def scaled(x, a):
    ...     return x * a
    >>> scaled(np.ones(2, np.float32), 3.0)
    array([3., 3.], dtype=float32)
    """
    if fn is None:
        return functools.partial(
            compile, backend=backend, frontend=frontend, inputs=inputs, outputs=outputs,
            static_argnames=static_argnames, dynamic=dynamic, autocast=autocast, donate=donate,
        )  # fmt: skip
    if frontend not in ("auto", "trace"):
        raise UnsupportedError(f"frontend={frontend!r} is not there yet", hint='frontend="auto"')
    for name, value in (("inputs", inputs), ("outputs", outputs), ("dynamic", dynamic)):
        if value is not None:
            raise UnsupportedError(f"compile({name}=…) is not there yet")
    if backend != "auto" and backend not in wiring.BACKENDS:
        wiring.backend(backend)
    held = AROUND if autocast is None else (None if autocast is False else _half(autocast))
    return _Compiled(fn, backend, static_argnames, held, donate)


def trace(fn: Callable[..., Any], /, *args: Any, passes: Sequence[str] | None = None, **kwargs: Any) -> Graph:
    """The graph of ``fn(*args, **kwargs)``: after promotion and broadcasting, hence explicit.

    ``passes=()`` gives the program as it was recorded, a list of names those passes in that order.

    >>> import numpy as np
    >>> print(trace(lambda x: x + 1, np.ones(2, np.float32), passes=("promote",)).nodes[-1].type)
    float32[2]
    """
    if isinstance(fn, CompiledFunction):
        recorded = fn._core.trace(fn._leading + args, kwargs)[1].graph
    else:
        require_callable(fn, "trace")
        recorded = Core(fn, _no_program, (), None, AROUND).trace(args, kwargs)[1].graph
    return explicit(recorded) if passes is None else run_passes(recorded, by_name(passes))


def _no_program(graph: Graph, donated: frozenset[int]) -> Any:
    raise UnsupportedError(f"a traced function is not run: {graph!r}")


def eval(*values: Any) -> None:
    """Compute all deferred tensors in these trees now, together. Raises :class:`ConcretizationError` while tracing.

    >>> import lucidgraph as lg
    >>> a = lg.asarray([1.0, 2.0]) * 2
    >>> eval(a, {"b": [a + 1]})
    """
    concrete([leaf for leaf in trees.flatten(values)[0] if isinstance(leaf, Tensor)], "eval")


class _DisableCompile:
    """``with disable_compile():`` or, as a plain call, a switch until ``enable_compile()``."""

    def __init__(self) -> None:
        self._saved = recording.STATE.uncompiled
        recording.run_uncompiled(True)

    def __enter__(self) -> None:
        recording.run_uncompiled(True)

    def __exit__(self, *exc: object) -> None:
        recording.run_uncompiled(self._saved)


def disable_compile() -> _DisableCompile:
    """Run compiled functions op by op on this thread: inside ``with``, or until :func:`enable_compile`.

    >>> with disable_compile():
    ...     compile(lambda x: float(x))(2.0)
    2.0
    """
    return _DisableCompile()


def enable_compile() -> None:
    """Undo :func:`disable_compile`.

    >>> switched = disable_compile()
    >>> enable_compile()
    """
    recording.run_uncompiled(False)


def set_threads(count: int) -> None:
    """Let the Accelerate backend use ``count`` threads, in all programs compiled from now on or before.

    Results on one and on two threads are equal to the bit, those of scans of floats aside, whose rows are cut among the
    threads: reductions are cut into pieces of fixed sizes. On more, a matrix product is cut into more pieces, and may
    differ in the last place. Raises ``ValueError`` for less than one
    thread, :class:`DTypeError` for no integer, :class:`BackendError` where there is no Accelerate backend.

    >>> set_threads(2)
    """
    count = whole(count, "set_threads")
    if count < 1:
        raise ValueError(f"set_threads({count}): at least one thread")
    wiring.backend("accelerate").set_threads(count)


def _half(dtype: Any) -> DType:
    found = as_dtype(dtype)
    if not found.is_half:
        raise DTypeError(f"autocast goes to float16 or bfloat16, not {found.name}")
    return found


class autocast:  # noqa: N801
    """Let contractions run in half precision and what needs range in float32: a context manager and a decorator.

    Reusable, re-entrant, and of its thread alone. ``enabled=False`` switches it off inside.

    >>> import lucidgraph as lg
    >>> with autocast(lg.bfloat16):
    ...     (lg.ones((2, 2)) @ lg.ones((2, 2))).dtype
    lucidgraph.bfloat16
    """

    def __init__(self, dtype: Any = bfloat16, enabled: bool = True) -> None:
        self._policy = _half(dtype) if enabled else None

    def __enter__(self) -> autocast:
        recording.hold_policy(self._policy)
        return self

    def __exit__(self, *exc: object) -> None:
        recording.drop_policy()

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return wrapped


__all__ = [
    "CompiledFunction", "Lowered", "autocast", "compile", "disable_compile", "enable_compile", "eval", "set_threads",
    "trace",
]  # fmt: skip
