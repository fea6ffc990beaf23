"""The compiled function: which program serves a call, and why another was needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, final

from .. import epoch, sources, trees
from ..calls import Form
from ..config import config
from ..dtypes import DType
from ..errors import AxisError, UnsupportedError, warn
from ..ir import Graph
from ..ir.types import Scalar
from ..lang.axes import whole
from ..lang.recording import STATE, StaticNeeded, current_policy, current_trace, policy
from ..lang.tensor import Tensor
from ..locks import renewed_in_child
from .forms import form_of
from .keys import is_dead
from .signatures import Call, Signature, Signatures, family_of
from .tracer import Traced, trace

STATIC_VALUES_WARNING: Final = 64
_HISTORY: Final = 256
_REMEMBERED: Final = 64
_WAYS: Final = 16
"""How many forms of calls are known at a time."""
_TRIES: Final = 8
"""How many forms are made for one program: what keeps changing outside is not worth it."""


class Program(Protocol):
    """What ``prepare`` makes of a recorded graph."""

    def __call__(self, arrays: Sequence[Any], family: str) -> list[Any]: ...

    @property
    def executable(self) -> Any:
        """What runs it on its backend."""

    @property
    def reads_buffers(self) -> bool:
        """Whether it takes the memory of arrays of other libraries as it is."""

    def short(self, family: str) -> Callable[[Sequence[Any]], list[Any]]:
        """The same for arguments that have passed the checks of a form."""

    def takers(self, family: str) -> list[Callable[[Any], Any]] | None:
        """What makes arrays of a family of NumPy's, one for each result; None where they come in another way."""


@dataclass(slots=True)
class Entry:
    traced: Traced
    program: Program
    tries: tuple[int, int] = (0, 0)
    """The epoch, and how many forms have been made for this program in it."""


@dataclass(slots=True, eq=False)
class Way:
    """A form of call whose program is known."""

    form: Form
    signature: Signature
    entry: Entry
    run: Callable[[Sequence[Any]], list[Any]]
    family: str
    epoch: int
    native: Any = None
    """What the native entry makes of it; it has ``hits`` of its own."""
    hits: int = 0
    seen: int = 0
    """The calls that the cache knows of."""

    @property
    def total(self) -> int:
        return self.hits + (self.native.hits if self.native is not None else 0)


class Retrace(NamedTuple):
    """Why a program was made: ``reason`` in one sentence, and the line of the call."""

    reason: str
    at: sources.SourceLine | None

    def __str__(self) -> str:
        return self.reason + (f", at {self.at}" if self.at else "")


@final
class _Around:
    """The policy of the call: what ``compile(autocast=None)`` means."""


AROUND: Final = _Around()


class Core:
    """The part of a compiled function that does not depend on the backend: calls, cache, history."""

    def __init__(
        self,
        fn: Callable[..., Any],
        prepare: Callable[[Graph, frozenset[int]], Program],
        static_argnames: Sequence[str] | str,
        cache: Any,
        fixed_policy: Any,
        donate: Sequence[int] = (),
    ) -> None:
        self.fn = fn
        self.prepare = prepare
        self.signatures = Signatures(fn, static_argnames)
        self.cache = cache
        self.fixed_policy = fixed_policy
        self.donate = frozenset(whole(k, "donate") for k in donate)
        if min(self.donate, default=0) < 0:
            raise AxisError(f"donate={tuple(donate)}: arguments are counted from 0")
        most = self.signatures.most_positional
        if most is not None and max(self.donate, default=-1) >= most:
            raise AxisError(f"donate={tuple(donate)}: {self.label} takes {most} positional arguments, counted from 0")
        self.history: list[Retrace] = []
        self._seen: list[Signature] = []
        self._static_values: dict[str, set[Any]] = {}
        self._warned: set[str] = set()
        self.ways: tuple[Way, ...] = ()
        """The latest forms of calls, newest first."""
        self.on_ways: Callable[[], None] | None = None
        """Called when they have changed, or when one of them was taken from Python."""
        self._earlier_hits = 0
        self._lock = threading.RLock()
        renewed_in_child(self)

    def held_policy(self) -> DType | None:
        return current_policy() if self.fixed_policy is AROUND else self.fixed_policy

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        held = None if self.fixed_policy is AROUND else self.fixed_policy
        if epoch.unusual():
            if current_trace() is not None or STATE.tapes:
                return self.inline(args, kwargs)
            if STATE.uncompiled:
                return self.singly(args, kwargs)
            held = self.held_policy()
        now = epoch.now()
        for way in self.ways:
            if way.epoch == now and way.signature.policy is held:
                inputs = way.form.taken(args, kwargs)
                if inputs is not None:
                    way.hits += 1
                    if way.native is not None and self.on_ways is not None:
                        self.on_ways()
                    return way.entry.traced.result(way.run(inputs))
        call, entry, known = self.entry(args, kwargs)
        results = entry.program(call.arrays, call.family)
        if known:
            self._learn(call, entry, args, kwargs)
        return entry.traced.result(results)

    def _learn(self, call: Call, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Know such a call again, if that is cheap."""
        now = epoch.now()
        tries = entry.tries[1] if entry.tries[0] == now else 0
        if tries >= _TRIES:
            return
        entry.tries = now, tries + 1
        marked = self.signatures.marked(args, kwargs)
        form = form_of(call, *marked, self.signatures.outside, entry.traced.bounds, entry.program.reads_buffers)
        # What is outside was read again: it must still be what the program was found for.
        if form is None or self.take(args, kwargs).signature != call.signature:
            return
        way = Way(form, call.signature, entry, entry.program.short(call.family), call.family, now)
        self._change_ways((way, *self.ways))

    def _change_ways(self, ways: Sequence[Way]) -> None:
        with self._lock:
            now = epoch.now()
            kept = tuple(way for way in ways if way.epoch == now and way.signature in self.cache)[:_WAYS]
            self._earlier_hits += sum(way.total for way in self.ways if way not in kept)
            self.ways = kept
        if self.on_ways is not None:
            self.on_ways()

    def short_hits(self) -> int:
        """The calls that found their program by their form."""
        return self._earlier_hits + sum(way.total for way in self.ways)

    def clear(self) -> None:
        """Drop all programs."""
        self.cache.clear()
        self._change_ways(())
        self._earlier_hits = 0

    def inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function's operations into the trace or gradient that records.

        It gets tensors of its own, as it would compiled: what it writes to them stays inside.
        """
        args, kwargs = self.signatures.owned(args, kwargs)
        with policy(self.held_policy()):
            return self.fn(*args, **kwargs)

    def singly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function's operations one by one; results in the family they have compiled."""
        family = family_of(trees.flatten((args, kwargs))[0])
        result = self.inline(args, kwargs)
        if family == "tensor":
            return result
        return trees.map_leaves(lambda v: _in_family(v, family) if isinstance(v, Tensor) else v, result)

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any], search: bool = False) -> Call:
        return self.signatures.take(args, kwargs, self.held_policy(), search)

    def entry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Call, Entry, bool]:
        """The program for a call, and whether it comes from the cache or was traced now. Nothing is kept when tracing
        fails."""
        call = self.take(args, kwargs)
        found = self.cache.get(call.signature)
        if found is None:
            # Names outside are bound late, and functions rebound: read the code again before it runs.
            again = self.take(args, kwargs, search=True)
            if again.signature in self.cache:
                call, found = again, self.cache.get(again.signature)
        if found is not None:
            _require_no_strayed(call, found.traced)
            return call, found, True
        call, traced = self.trace(args, kwargs)
        entry = Entry(traced, self.prepare(traced.graph, self.donated(call)))
        self.cache.discard(is_dead)
        for way in self.ways:
            if way.total > way.seen:
                way.seen = way.total
                self.cache.touch(way.signature)
        self._note(call)
        kept = self.cache.put(call.signature, entry)
        if self.ways:
            self._change_ways(self.ways)
        return call, kept, False

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Call, Traced]:
        """Record the function for a call; a scalar whose value it asks for becomes static, and it is recorded again."""
        while True:
            call = self.take(args, kwargs, search=True)
            try:
                with policy(call.signature.policy):
                    traced = trace(self.fn, call.signature.spec, call.leaves, call.types, call.names)
            except StaticNeeded as needed:
                self.signatures.ask(call, needed.positions)
                continue
            if self.signatures.bound(call, traced.bounds):
                _require_no_strayed(call, traced)
                return self.signatures.settled(call), traced

    def donated(self, call: Call) -> frozenset[int]:
        """The inputs of the graph that came in arguments named by ``donate``."""
        if not self.donate:
            return frozenset()
        given = [a for a, t in zip(call.signature.spec.accessors(), call.types, strict=True) if t is not None]
        return frozenset(k for k, (which, key, *_) in enumerate(given) if which.entry == 0 and key.entry in self.donate)

    def _note(self, call: Call) -> None:
        """Remember why a program was made; warn where a static value keeps changing."""
        signature = call.signature
        with self._lock:
            self.history.append(Retrace(self.why(signature), sources.here()))
            del self.history[:-_HISTORY]
            self._seen.append(signature)
            del self._seen[:-_REMEMBERED]
            crowded = [
                name
                for name, leaf, t in zip(call.names, call.leaves, call.types, strict=True)
                if t is None and type(leaf) in (int, float, complex) and self._is_crowded(name, leaf)
            ]
        for name in crowded:
            warn(
                f"{name} of {self.label} has had more than {STATIC_VALUES_WARNING} values, each with a program of its "
                "own: the function uses its value in Python. Pass an array, or use it only in array operations"
            )

    def why(self, signature: Signature) -> str:
        """Why a program for ``signature`` is needed, against the most similar of the latest ones."""
        if not self._seen:
            return "the first call"
        nearest = max(reversed(self._seen[-8:]), key=lambda old: _likeness(old, signature))
        return self.signatures.difference(nearest, signature)

    def _is_crowded(self, name: str, value: Scalar) -> bool:
        """Whether a static argument has had too many values, said once."""
        values = self._static_values.setdefault(name, set())
        values.add(value)
        if len(values) <= STATIC_VALUES_WARNING or name in self._warned:
            return False
        self._warned.add(name)
        return True

    @property
    def label(self) -> str:
        return str(getattr(self.fn, "__qualname__", type(self.fn).__name__))

    def warn_full(self) -> None:
        warn(
            f"{self.label} has been traced for more than {config.cache_entries} signatures; the least recently used "
            "programs are dropped. explain() says why each was needed"
        )


def _require_no_strayed(call: Call, traced: Traced) -> None:
    error = traced.strayed
    if error is not None and call.family == "numpy":
        raise UnsupportedError(error.message, source=error.source, hint=error.hint)


def _in_family(tensor: Tensor, family: str) -> Any:
    return tensor.mlx() if family == "mlx" else tensor.numpy()


def _likeness(old: Signature, new: Signature) -> int:
    if old.spec != new.spec:
        return -1
    before = dict(old.outside)
    outside = sum(1 for name, key in new.outside if before.get(name) == key)
    return (old.policy is new.policy) + outside + sum(1 for a, b in zip(old.leaves, new.leaves, strict=True) if a == b)


__all__ = ["AROUND", "Call", "Core", "Entry", "Program", "Retrace", "Signature", "Way"]
