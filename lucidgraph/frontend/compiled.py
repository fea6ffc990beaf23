"""The compiled function: what a call's signature is, which program serves it, and why another was needed."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from .. import sources, trees
from ..config import config
from ..dtypes import DType
from ..errors import DTypeError, LucidGraphWarning
from ..ir import Graph, TensorType
from ..ir.types import Scalar
from ..lang.recording import STATE, StaticNeeded, current_policy, current_trace, policy
from ..lang.tensor import Tensor, is_array, is_mlx
from .tracer import Traced, leaf_type, trace

STATIC_VALUES_WARNING = 64


class Program(Protocol):
    """What ``prepare`` makes of a recorded graph."""

    def __call__(self, arrays: Sequence[Any], family: str) -> list[Any]: ...


# -- static values and guards


@final
class _Identity:
    """A key for an object compared by identity, which it does not keep alive."""

    __slots__ = ("hash", "keep", "ref")

    def __init__(self, value: object) -> None:
        self.hash = id(value)
        self.keep: object = None
        try:
            self.ref: Callable[[], object] = weakref.ref(value)
        except TypeError:
            self.keep = value
            self.ref = lambda: value

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Identity):
            return False
        mine = self.ref()
        return mine is not None and mine is other.ref()

    def __repr__(self) -> str:
        return repr(self.ref())

    @property
    def dead(self) -> bool:
        return self.ref() is None


_PLAIN = (bool, int, float, complex, str, bytes, type(None), DType, type, np.dtype)


def static_key(value: Any) -> Any:
    """A hashable key that tells static values apart: by type and value, objects by identity. NaN equals NaN."""
    if isinstance(value, float | complex):
        return type(value), repr(value)
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, tuple | list):
        return type(value), tuple(static_key(v) for v in value)
    if isinstance(value, dict):
        return type(value), tuple((static_key(k), static_key(v)) for k, v in value.items())
    return type(value), _Identity(value), _attributes(value)


def _attributes(value: Any) -> tuple[Any, ...]:
    """Guards for an object's own attributes: a method reads them as a function reads its globals."""
    if isinstance(value, FunctionType | MethodType):
        return ()
    try:
        own = vars(value)
    except TypeError:
        return ()
    return tuple((name, guard) for name, v in own.items() if (guard := _guarded(v)) is not None)


def _is_dead(key: Any) -> bool:
    if isinstance(key, _Identity):
        return key.dead
    return isinstance(key, tuple) and any(_is_dead(part) for part in key)


class _Reads(NamedTuple):
    """The names that a function's own code reads from outside."""

    cells: tuple[tuple[str, Any], ...]
    globals: tuple[str, ...]
    namespace: dict[str, Any]


def _innermost(fn: Any) -> Any:
    """The Python function behind partials, methods and callable objects, or None."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    if inspect.ismethod(fn):
        return fn.__func__
    if inspect.isfunction(fn):
        return fn
    call = type(fn).__call__
    return call if inspect.isfunction(call) else None


def _reads(fn: Any) -> _Reads:
    inner = _innermost(fn)
    if inner is None:
        return _Reads((), (), {})
    code: CodeType = inner.__code__
    cells = tuple(zip(code.co_freevars, inner.__closure__ or (), strict=True))
    return _Reads(cells, tuple(n for n in code.co_names if n in inner.__globals__), inner.__globals__)


def _guarded(value: Any) -> Any:
    """A guard for a value that shapes the program from outside, or None for one that is not guarded."""
    if isinstance(value, Tensor):
        return "array", id(value), id(value._node)
    if is_array(value):
        return "array", _Identity(value)
    if isinstance(value, bool | int | float | complex | str):
        return static_key(value)
    return None


# -- signatures


class Signature(NamedTuple):
    """What a program was traced for. Equal signatures share one program."""

    spec: trees.TreeDef
    leaves: tuple[Any, ...]
    policy: DType | None
    guards: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call taken apart: its leaves, their types (None: static) and its signature."""

    signature: Signature
    leaves: list[Any]
    types: list[TensorType | None]
    names: tuple[str, ...]
    family: str


@dataclass(frozen=True, slots=True)
class Entry:
    traced: Traced
    program: Program


def family_of(leaves: Sequence[Any]) -> str:
    """``"mlx"``, ``"tensor"`` or ``"numpy"``: the family of a call's results; Tensor where no array was given."""
    found = "none"
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            found = "tensor"
        elif is_mlx(leaf):
            return "mlx"
        elif found == "none" and isinstance(leaf, np.ndarray | np.generic):
            found = "numpy"
    return "tensor" if found == "none" else found


class _Bound(NamedTuple):
    """Argument names by position, for error messages and ``explain``."""

    positional: tuple[str, ...]
    variadic: str


def _argument_names(fn: Any) -> _Bound:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return _Bound((), "args")
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    variadic = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), "args")
    return _Bound(tuple(p.name for p in parameters if p.kind in kinds), variadic)


class Signatures:
    """Takes calls of one function apart, remembers which scalars are static, and says what changed between calls."""

    def __init__(self, fn: Callable[..., Any], static_argnames: Sequence[str] | str) -> None:
        self.fn = fn
        names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
        self.arguments = _argument_names(fn)
        self.static = frozenset(names)
        self.lifted_static: set[tuple[trees.TreeDef, int]] = set()
        self.reads = _reads(fn)
        self._names: dict[trees.TreeDef, tuple[str, ...]] = {}

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any], held: DType | None) -> Call:
        """The call of these arguments. Raises :class:`DTypeError` for arrays that do not compute."""
        args, kwargs = self._with_statics(args, kwargs)
        leaves, spec = trees.flatten((args, kwargs))
        types: list[TensorType | None] = []
        keys: list[Any] = []
        for k, leaf in enumerate(leaves):
            if isinstance(leaf, _StaticArgument):
                leaves[k] = leaf = leaf.value
                t = None
            else:
                t = leaf_type(leaf)
                if t is not None and t.weak and (spec, k) in self.lifted_static:
                    t = None
            types.append(t)
            keys.append(t if t is not None else static_key(leaf))
        signature = Signature(spec, tuple(keys), held, self._guards())
        return Call(signature, leaves, types, self.names(spec), family_of(leaves))

    def _with_statics(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not self.static:
            return args, kwargs
        named = self.arguments.positional
        new = tuple(
            _StaticArgument(v) if k < len(named) and named[k] in self.static else v for k, v in enumerate(args)
        )
        return new, {k: _StaticArgument(v) if k in self.static else v for k, v in kwargs.items()}

    def names(self, spec: trees.TreeDef) -> tuple[str, ...]:
        """A name per leaf: ``params['w']``."""
        known = self._names.get(spec)
        if known is None:
            named, variadic = self.arguments
            labels = []
            for accessor in spec.accessors():
                which, key, *rest = accessor
                if which.entry == 0:
                    k = key.entry
                    head = named[k] if k < len(named) else f"{variadic}[{k - len(named)}]"
                else:
                    head = str(key.entry)
                labels.append(head + "".join(entry.codify("") for entry in rest))
            known = self._names[spec] = tuple(labels)
        return known

    def _guards(self) -> tuple[Any, ...]:
        guards: list[Any] = []
        for name, cell in self.reads.cells:
            try:
                guards.append((name, _guarded(cell.cell_contents)))
            except ValueError:  # not bound yet
                guards.append((name, None))
        guards += [(name, _guarded(self.reads.namespace.get(name))) for name in self.reads.globals]
        return tuple(guards)

    def difference(self, old: Signature, new: Signature) -> str:
        """One sentence: what ``new`` has that ``old`` had not."""
        if old.spec != new.spec:
            return f"the arguments' structure was {_short(old.spec)} before, is {_short(new.spec)} now"
        for name, a, b in zip(self.names(new.spec), old.leaves, new.leaves, strict=True):
            if a != b:
                return f"{name}: {_described(a)} before, {_described(b)} now"
        if old.policy is not new.policy:
            return f"autocast: {_policy(old.policy)} before, {_policy(new.policy)} now"
        for (name, a), (_, b) in zip(old.guards, new.guards, strict=True):
            if a != b:
                return f"{name}, read from outside the function: {_described(a)} before, {_described(b)} now"
        return "its program had been dropped from the cache"


@final
class _StaticArgument:
    """Marks an argument named in ``static_argnames`` through flattening: a leaf, whatever it holds."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _described(key: Any) -> str:
    if isinstance(key, TensorType):
        return f"a Python {_python_kind(key)}" if key.weak else str(key)
    if isinstance(key, tuple) and key and key[0] == "array":
        return "another array"
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], type):
        return str(key[1]) if key[0] in (float, complex) else repr(key[1])
    return repr(key)


def _python_kind(t: TensorType) -> str:
    return {"i": "int", "f": "float", "c": "complex"}.get(t.dtype.kind, t.dtype.name)


def _policy(dtype: DType | None) -> str:
    return "off" if dtype is None else dtype.name


def _short(spec: trees.TreeDef) -> str:
    text = str(spec)
    return text if len(text) < 100 else text[:97] + "..."


# -- the function


class Retrace(NamedTuple):
    """Why a program was made: ``reason`` in one sentence, and the line of the call."""

    reason: str
    at: sources.SourceLine | None

    def __str__(self) -> str:
        return self.reason + (f", at {self.at}" if self.at else "")


class Core:
    """The part of a compiled function that does not depend on the backend: calls, cache, history."""

    def __init__(
        self,
        fn: Callable[..., Any],
        prepare: Callable[[Graph], Program],
        static_argnames: Sequence[str] | str,
        cache: Any,
        fixed_policy: Any,
    ) -> None:
        self.fn = fn
        self.prepare = prepare
        self.signatures = Signatures(fn, static_argnames)
        self.cache = cache
        self.fixed_policy = fixed_policy
        self.history: list[Retrace] = []
        self._seen: list[Signature] = []
        self._static_values: dict[str, set[Any]] = {}
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def held_policy(self) -> DType | None:
        return current_policy() if self.fixed_policy is _AROUND else self.fixed_policy

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if STATE.uncompiled or current_trace() is not None:
            return self.inline(args, kwargs)
        call, entry = self.entry(args, kwargs)
        arrays = [leaf for leaf, t in zip(call.leaves, call.types, strict=True) if t is not None]
        return entry.traced.result(entry.program(arrays, call.family))

    def inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function's operations one by one, or into the trace that records."""
        if self.fixed_policy is _AROUND:
            return self.fn(*args, **kwargs)
        with policy(self.fixed_policy):
            return self.fn(*args, **kwargs)

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        return self.signatures.take(args, kwargs, self.held_policy())

    def entry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Call, Entry]:
        """The program for a call: from the cache, or traced now. Nothing is kept when tracing fails."""
        call = self.take(args, kwargs)
        found = self.cache.get(call.signature)
        if found is not None:
            return call, found
        call, traced = self.trace(args, kwargs)
        entry = Entry(traced, self.prepare(traced.graph))
        self.cache.discard(_is_dead)
        self._note(call)
        return call, self.cache.put(call.signature, entry)

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Call, Traced]:
        """Record the function for a call; a scalar whose value it asks for becomes static, and it is recorded again."""
        while True:
            call = self.take(args, kwargs)
            try:
                with policy(call.signature.policy):
                    traced = trace(self.fn, call.signature.spec, call.leaves, call.types, call.names)
                return call, traced
            except StaticNeeded as needed:
                inputs = [k for k, t in enumerate(call.types) if t is not None]
                with self._lock:
                    for position in needed.positions:
                        self.signatures.lifted_static.add((call.signature.spec, inputs[position]))

    def _note(self, call: Call) -> None:
        """Remember why a program was made; warn where a static value keeps changing."""
        signature = call.signature
        with self._lock:
            reason = self.why(signature)
            self._seen.append(signature)
            del self._seen[:-64]
            self.history.append(Retrace(reason, sources.here()))
            del self.history[:-256]
            for name, leaf, t in zip(call.names, call.leaves, call.types, strict=True):
                if t is None and isinstance(leaf, int | float | complex) and not isinstance(leaf, bool):
                    self._count_static(name, leaf)

    def why(self, signature: Signature) -> str:
        """Why a program for ``signature`` is needed, against the most similar of the latest ones."""
        if not self._seen:
            return "the first call"
        nearest = max(self._seen[-8:], key=lambda old: _likeness(old, signature))
        return self.signatures.difference(nearest, signature)

    def _count_static(self, name: str, value: Scalar) -> None:
        values = self._static_values.setdefault(name, set())
        values.add(value)
        if len(values) > STATIC_VALUES_WARNING and name not in self._warned:
            self._warned.add(name)
            warnings.warn(
                f"{name} of {self.label} has had {len(values)} values, each with a program of its own: the function "
                "uses its value in Python. Pass an array, or use it only in array operations",
                LucidGraphWarning,
                stacklevel=2,
            )

    @property
    def label(self) -> str:
        return str(getattr(self.fn, "__qualname__", type(self.fn).__name__))

    def warn_full(self) -> None:
        warnings.warn(
            f"{self.label} has been traced for more than {config.cache_entries} signatures; the least recently used "
            "programs are dropped. explain() says why each was needed",
            LucidGraphWarning,
            stacklevel=2,
        )


def _likeness(old: Signature, new: Signature) -> int:
    if old.spec != new.spec:
        return -1
    return sum(a == b for a, b in zip(old.leaves, new.leaves, strict=True))


@final
class _Around:
    """The policy of the call: what ``compile(autocast=None)`` means."""


_AROUND = _Around()
AROUND = _AROUND


def require_callable(fn: Any) -> None:
    if not callable(fn):
        raise DTypeError(f"compile takes a function, not {type(fn).__name__}")


__all__ = ["AROUND", "Call", "Core", "Entry", "Program", "Retrace", "Signature", "require_callable"]
