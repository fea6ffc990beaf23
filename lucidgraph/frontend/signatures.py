"""Calls taken apart: which arguments become inputs, which are static, and what distinguishes one call from another."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np

from .. import trees
from ..config import config
from ..dtypes import DType
from ..errors import DTypeError
from ..ir import TensorType
from ..lang.tensor import Tensor, is_array, is_mlx, node_of
from ..locks import renewed_in_child
from .keys import NONE, PLAIN, ArrayKey, Parts, difference, static_key
from .outside import Named, Outside, View
from .tracer import NUMBERS, leaf_type

_WIDEST = range(-(2**63), 2**63)
_STRUCTURES = 1024


class Signature(NamedTuple):
    """What a program was traced for. Equal signatures share one program."""

    spec: trees.TreeDef
    leaves: tuple[Any, ...]
    policy: DType | None
    settings: tuple[str, ...]
    outside: tuple[Named, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call taken apart: its leaves, their types (None: static) and its signature."""

    signature: Signature
    leaves: list[Any]
    types: list[TensorType | None]
    names: tuple[str, ...]
    family: str
    objects: list[Named]
    view: View | None

    @property
    def arrays(self) -> list[Any]:
        """The leaves that are inputs."""
        return [leaf for leaf, t in zip(self.leaves, self.types, strict=True) if t is not None]

    @property
    def inputs(self) -> list[int]:
        """Where among the leaves the inputs are."""
        return [k for k, t in enumerate(self.types) if t is not None]


def family_of(leaves: Sequence[Any]) -> str:
    """``"mlx"``, ``"tensor"`` or ``"numpy"``: the family of a call's results; Tensor where no array was given."""
    if any(is_mlx(leaf) for leaf in leaves):
        return "mlx"
    numpy = any(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves)
    return "numpy" if numpy and not any(isinstance(leaf, Tensor) for leaf in leaves) else "tensor"


@final
class _StaticArgument:
    """Marks an argument named in ``static_argnames`` through flattening: a leaf, whatever it holds."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _owned(leaf: Any) -> Any:
    if isinstance(leaf, _StaticArgument):
        return leaf.value
    return Tensor.of_node(node_of(leaf)) if is_array(leaf) else leaf


class _Arguments(NamedTuple):
    """A function's parameters, as far as they are known."""

    positional: tuple[str, ...]
    variadic: str
    named: frozenset[str] | None
    """The names that keywords may have, None for any."""
    most: int | None
    """How many positional arguments there can be, None for any number."""


def _arguments_of(fn: Any) -> _Arguments:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return _Arguments((), "args", None, None)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    variadic = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    named = None if takes_any else frozenset(p.name for p in parameters)
    positional = tuple(p.name for p in parameters if p.kind in kinds)
    return _Arguments(positional, variadic or "args", named, len(positional) if variadic is None else None)


class Signatures:
    """Takes calls of one function apart, remembers which scalars are static, and says what changed between calls."""

    def __init__(self, fn: Callable[..., Any], static_argnames: Sequence[str] | str) -> None:
        names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
        self._arguments = _arguments_of(fn)
        self._static = frozenset(names)
        known = self._arguments.named
        for name in names:
            if not isinstance(name, str) or (known is not None and name not in known):
                raise DTypeError(
                    f"static_argnames names {name!r}, which is no argument of the function",
                    hint=f"one of {', '.join(sorted(known or ()))}" if known else "strings",
                )
        self.most_positional = self._arguments.most
        self._outside = Outside(fn)
        self._asked: set[tuple[trees.TreeDef, int]] = set()
        self._bounds: dict[tuple[trees.TreeDef, int], tuple[int, int]] = {}
        self._names: dict[trees.TreeDef, tuple[str, ...]] = {}
        self._lock = threading.RLock()
        renewed_in_child(self)

    def take(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], held: DType | None, search: bool = False
    ) -> Call:
        """The call of these arguments; ``search`` reads anew what the function names outside.

        Raises :class:`DTypeError` for arrays that do not compute and for iterators, which tracing would use up.
        """
        leaves, spec = trees.flatten(self._with_statics(args, kwargs))
        names = self._names_of(spec)
        types: list[TensorType | None] = []
        keys: list[Any] = []
        objects: list[Named] = []
        for k, leaf in enumerate(leaves):
            t = None
            if isinstance(leaf, _StaticArgument):
                leaves[k] = leaf = leaf.value
            elif isinstance(leaf, Iterator):
                raise DTypeError(f"{names[k]} is an iterator, which tracing would use up", hint="pass a list")
            else:
                t = leaf_type(leaf)
                if t is not None and t.weak and self._is_static(spec, k, leaf):
                    t = None
            if t is None and not isinstance(leaf, (*PLAIN, *NUMBERS)) and not is_array(leaf):
                objects.append((names[k], leaf))
            types.append(t)
            keys.append(t if t is not None else static_key(leaf))
        view = self._outside.search(objects) if search else None
        outside = self._outside.keys(objects, view)
        signature = Signature(spec, tuple(keys), held, (config.backend, config.rules), outside)
        return Call(signature, leaves, types, names, family_of(leaves), objects, view)

    def owned(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with a tensor of its own for each array, as a compiled function gets them."""
        leaves, spec = trees.flatten(self._with_statics(args, kwargs))
        args, kwargs = trees.unflatten(spec, [_owned(leaf) for leaf in leaves])
        return args, kwargs

    def _is_static(self, spec: trees.TreeDef, k: int, leaf: Any) -> bool:
        """Whether a Python number was asked for its value, or does not fit the integers that it meets."""
        if (spec, k) in self._asked:
            return True
        if type(leaf) is not int:
            return False
        low, high = self._bounds.get((spec, k), (_WIDEST[0], _WIDEST[-1]))
        return not low <= leaf <= high

    def ask(self, call: Call, positions: Sequence[int]) -> None:
        """Make these inputs static from now on: the function asks for their values."""
        with self._lock:
            self._asked.update((call.signature.spec, call.inputs[position]) for position in positions)

    def bound(self, call: Call, bounds: Mapping[int, tuple[int, int]]) -> bool:
        """Remember what fits the inputs at these positions; whether the numbers of this call do."""
        spec, fits = call.signature.spec, True
        for position, (low, high) in bounds.items():
            k = call.inputs[position]
            with self._lock:
                below, above = self._bounds.get((spec, k), (low, high))
                self._bounds[spec, k] = max(low, below), min(high, above)
            fits = fits and low <= call.leaves[k] <= high
        return fits

    def settled(self, call: Call) -> Call:
        """The call after it was traced: what tracing itself changed outside does not count."""
        after = self._outside.keys(call.objects, call.view)
        if after == call.signature.outside:
            return call
        with self._lock:
            self._outside.skip(call.signature.outside, after)
        outside = self._outside.keys(call.objects, call.view)
        return replace(call, signature=call.signature._replace(outside=outside))

    def _with_statics(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not self._static:
            return args, kwargs
        named = self._arguments.positional
        new = tuple(
            _StaticArgument(v) if k < len(named) and named[k] in self._static else v for k, v in enumerate(args)
        )
        return new, {k: _StaticArgument(v) if k in self._static else v for k, v in kwargs.items()}

    def _names_of(self, spec: trees.TreeDef) -> tuple[str, ...]:
        """A name per leaf: ``params['w']``."""
        known = self._names.get(spec)
        if known is None:
            named, variadic = self._arguments.positional, self._arguments.variadic
            labels = []
            for accessor in spec.accessors():
                which, key, *rest = accessor
                if which.entry == 0:
                    k = key.entry
                    head = named[k] if k < len(named) else f"{variadic}[{k - len(named)}]"
                else:
                    head = str(key.entry)
                labels.append(head + "".join(entry.codify("") for entry in rest))
            if len(self._names) >= _STRUCTURES:
                self._names.clear()
            known = self._names[spec] = tuple(labels)
        return known

    def difference(self, old: Signature, new: Signature) -> str:
        """One sentence: what ``new`` has that ``old`` had not."""
        if old.spec != new.spec:
            return f"the arguments' structure was {_short(old.spec)} before, is {_short(new.spec)} now"
        for name, a, b in zip(self._names_of(new.spec), old.leaves, new.leaves, strict=True):
            if a != b:
                return f"{name}: {_described(a)} before, {_described(b)} now"
        if old.policy is not new.policy:
            return f"autocast: {_policy(old.policy)} before, {_policy(new.policy)} now"
        if old.settings != new.settings:
            return f"configuration: {', '.join(old.settings)} before, {', '.join(new.settings)} now"
        before = dict(old.outside)
        for name, key in new.outside:
            if before.get(name) != key:
                place, a, b = difference(name, before.get(name), key)
                return f"{place}, read from outside the function: {_described(a)} before, {_described(b)} now"
        return "its program had been dropped from the cache"


def _described(key: Any) -> str:
    if isinstance(key, TensorType):
        return f"a Python {_python_kind(key)}" if key.weak else str(key)
    if isinstance(key, ArrayKey):
        return "another array"
    if key is None or key == NONE:
        return "nothing" if key is None else "None"
    if isinstance(key, Parts):
        kind = key.head if isinstance(key.head, type) else key.head[0]
        return f"a {kind.__name__} of {len(key.names)}" if kind in (dict, list, tuple) else f"another {kind.__name__}"
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], type):
        return str(key[1]) if key[0] in (float, complex) else repr(key[1])
    return repr(key)


def _python_kind(t: TensorType) -> str:
    return {"i": "int", "f": "float", "c": "complex"}.get(t.dtype.kind, t.dtype.name)


def _policy(dtype: DType | None) -> str:
    return "off" if dtype is None else dtype.name


def _short(spec: trees.TreeDef) -> str:
    text = trees.describe(spec)
    return text if len(text) < 100 else text[:97] + "..."


__all__ = ["Call", "Signature", "Signatures", "family_of"]
