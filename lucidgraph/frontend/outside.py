"""What a function reads from outside, so that a change there traces it again.

Its own code names closure cells, globals, attributes of modules and of objects; the users' functions and methods that
it reaches that way are read in turn. Looked at before each call: numbers and strings by value, arrays and functions by
identity, containers and objects by what they hold, as far as code names it.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple, final

import numpy as np

from ..lang.tensor import Tensor, is_array
from .keys import PLAIN, ArrayKey, Identity, Parts, array_key, changed, joined, object_key, static_key

MOST_PARTS: Final = 2000
"""How many values are looked at before a call."""
MOST_FUNCTIONS: Final = 200
MOST_VIEWS: Final = 64

_NUMBERS = (float, int, str, bool)
FUNCTIONS = (FunctionType, BuiltinFunctionType, np.ufunc)
_CONTAINERS = (tuple, list, dict, MethodType, functools.partial)
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_OPAQUE = (sys.stdlib_module_names - {"argparse", "types", "__main__"}) | {
    "lucidgraph", "ml_dtypes", "mlx", "nanobind", "numpy", "optree",
}  # fmt: skip
"""Top-level modules whose objects are looked at as one thing."""

Named = tuple[str, Any]


# -- what code names


class _Names(NamedTuple):
    """Of a code object and those inside it: the globals, each also with the attributes read from it in a row
    (``("config", "train", "rate")``), and all attributes."""

    chains: tuple[tuple[str, ...], ...]
    attributes: frozenset[str]


@functools.lru_cache(maxsize=2048)
def _names_in(code: CodeType) -> _Names:
    chains: dict[tuple[str, ...], None] = {}
    attributes: set[str] = set()
    stack = [code]
    while stack:
        inner = stack.pop()
        chain: tuple[str, ...] = ()
        for instruction in dis.get_instructions(inner):
            name = str(instruction.argval)
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
                chain = (name,)
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                attributes.add(name)
                chain = (*chain, name) if chain else ()
            elif instruction.opname.startswith("LOAD_SUPER"):  # one instruction for super().name from Python 3.12 on
                attributes.add(name)
                chain = ()
            else:
                chain = ()
            if chain:
                chains[chain] = None
        stack.extend(const for const in inner.co_consts if isinstance(const, CodeType))
    return _Names(tuple(chains), frozenset(attributes))


def _library(filename: str) -> bool:
    """Whether a file belongs to Python, to this package or to an installed one: nothing in it is the user's state."""
    return filename.startswith((_STANDARD, _OURS, "<frozen")) or "-packages" in filename


def _package(value: Any) -> str:
    """The top-level module that a function or a class comes from."""
    return str(value.__module__).partition(".")[0]


def _opaque(cls: type) -> bool:
    return _package(cls) in _OPAQUE


# -- places


class Place(NamedTuple):
    """A place outside, as code spells it: a cell, or a key in a namespace."""

    name: str
    where: CellType | Mapping[str, Any]
    key: str = ""

    @property
    def value(self) -> Any:
        if isinstance(self.where, CellType):
            try:
                return self.where.cell_contents
            except ValueError:  # not bound yet
                return None
        return self.where.get(self.key)


def _layers(fn: Any) -> Iterator[Any]:
    """A callable taken apart, outermost first: the Python functions of partials, methods and decorators, and the
    objects they hold or are called on."""
    seen: set[int] = set()
    stack = [fn]
    while stack:
        fn = stack.pop()
        if id(fn) in seen or isinstance(fn, type):
            continue
        seen.add(id(fn))
        if isinstance(fn, functools.partial):
            yield from (fn.args, fn.keywords)
            stack.append(fn.func)
        elif isinstance(fn, MethodType):
            yield fn.__self__
            stack.append(fn.__func__)
        else:
            yield fn
        wrapped = inspect.getattr_static(fn, "__wrapped__", None)
        if wrapped is not None:
            stack.append(wrapped)


@final
class _Search:
    """All places that a function reads, found by reading code."""

    def __init__(self, fn: Any, objects: Sequence[Named]) -> None:
        self.places: dict[tuple[str, int], Place] = {}
        self.attributes: set[str] = set()
        self._home = next((_package(f) for f in _layers(fn) if self._is_users(f, "")), "")
        self._codes: set[CodeType] = set()
        self._functions: list[FunctionType] = []
        self._objects: list[Any] = []
        for layer in _layers(fn):
            if not isinstance(layer, FunctionType):
                label = "partial" if isinstance(layer, tuple | dict) else type(layer).__name__
                self._add(Place(label, {label: layer}, label))
        for value in (fn, *(value for _, value in objects)):
            self._visit(value)
        while True:
            while self._functions:
                self._read(self._functions.pop())
            for value in _objects_in(self._objects, self.attributes):
                for method in _methods(type(value), self.attributes):
                    self._visit(method)
            if not self._functions:
                break

    def _is_users(self, fn: Any, home: str) -> bool:
        if not isinstance(fn, FunctionType) or fn.__code__.co_filename.startswith(_OURS):
            return False
        return not _library(fn.__code__.co_filename) or home in ("", _package(fn))

    def _add(self, place: Place) -> None:
        key = (place.name, id(place.where))
        if key not in self.places:
            taken = any(name == place.name for name, _ in self.places)
            self.places[key] = place._replace(name=f"{place.name} ({len(self.places)})") if taken else place

    def _visit(self, value: Any) -> None:
        if not callable(value):
            self._objects.append(value)
            return
        for layer in _layers(value):
            if isinstance(layer, FunctionType):
                new = layer.__code__ not in self._codes and len(self._codes) < MOST_FUNCTIONS
                if new and self._is_users(layer, self._home):
                    self._codes.add(layer.__code__)
                    self._functions.append(layer)
            elif not isinstance(layer, FUNCTIONS):
                self._objects.append(layer)

    def _read(self, fn: FunctionType) -> None:
        names = _names_in(fn.__code__)
        self.attributes |= names.attributes
        cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
        for chain in names.chains:
            if chain[0] in cells:
                self._resolve(Place(chain[0], cells[chain[0]]), chain[1:])
            elif chain[0] in fn.__globals__:
                self._resolve(Place(chain[0], fn.__globals__, chain[0]), chain[1:])

    def _resolve(self, place: Place, rest: tuple[str, ...]) -> None:
        """A name, or what it finds in a module: functions of libraries do not change."""
        value, theirs = place.value, False
        while isinstance(value, ModuleType) and rest:
            theirs = _library(getattr(value, "__file__", None) or "<frozen")
            place = Place(f"{place.name}.{rest[0]}", vars(value), rest[0])
            value, rest = place.value, rest[1:]
        if not isinstance(value, ModuleType) and not (theirs and callable(value)):
            self._add(place)
            self._visit(value)


def _objects_in(roots: Iterable[Any], attributes: set[str]) -> list[Any]:
    """The objects of users' classes among ``roots`` and in what they hold."""
    found: list[Any] = []
    seen: set[int] = set()
    stack = list(roots)
    while stack and len(seen) < MOST_PARTS:
        value = stack.pop()
        if id(value) in seen or is_array(value) or isinstance(value, (*PLAIN, *FUNCTIONS, float, complex)):
            continue
        seen.add(id(value))
        held = _held_by(value, attributes)
        if held is not None:
            if not isinstance(value, _CONTAINERS) or not _opaque(type(value)):
                found.append(value)
            stack.extend(held.values())
    return found


def _methods(cls: type, attributes: set[str]) -> Iterator[Any]:
    """The methods of a class that code may call: those it names, and those that operators and calls find."""
    for base in cls.__mro__:
        if not _opaque(base):
            for name, value in vars(base).items():
                if name in attributes or (name.startswith("__") and name not in ("__init__", "__new__", "__repr__")):
                    inner = getattr(value, "fget", None) or getattr(value, "func", None) or value
                    inner = getattr(inner, "__func__", inner)
                    if callable(inner) and not isinstance(inner, type):
                        yield inner


def _held_by(value: Any, attributes: frozenset[str] | set[str]) -> dict[str, Any] | None:
    """What a value holds, by the ends of its parts' names (``[0]``, ``.rate``); None where it counts as one thing."""
    kind = type(value)
    if kind is tuple or kind is list:
        return {f"[{k}]": v for k, v in enumerate(value)}
    if kind is dict:
        return {f"[{k!r}]": v for k, v in value.items()}
    if isinstance(value, MethodType):
        return {".__func__": value.__func__, ".__self__": value.__self__}
    if isinstance(value, functools.partial):
        return {".func": value.func, ".args": value.args, ".keywords": value.keywords}
    held: dict[str, Any] = {}
    if isinstance(value, dict):
        held = {f"[{k!r}]": v for k, v in dict.items(value)}
    elif isinstance(value, tuple | list):
        held = {f"[{k}]": v for k, v in enumerate(value)}
    elif _opaque(kind):
        return None
    for base in reversed(kind.__mro__):
        for name in sorted(vars(base).keys() & attributes):
            part = vars(base)[name]
            if inspect.ismemberdescriptor(part):
                held[f".{name}"] = getattr(value, name, None)
            elif not callable(part) and inspect.getattr_static(type(part), "__get__", None) is None:
                held[f".{name}"] = part
    for name, part in (getattr(value, "__dict__", None) or {}).items():
        if name in attributes:
            held[f".{name}"] = part
    return held


# -- keys


class View(NamedTuple):
    """Where to look before a call."""

    places: tuple[Place, ...]
    attributes: frozenset[str]


@final
class Outside:
    """The places that a function reads, and what tracing itself was seen to change there."""

    def __init__(self, fn: Any) -> None:
        self._fn = fn
        self._views: dict[tuple[type, ...], View] = {}
        self._skipped: dict[str, Any] = {}

    def search(self, objects: Sequence[Named]) -> View:
        """Read the code, again since names are bound late. ``objects`` are arguments that are no arrays."""
        found = _Search(self._fn, objects)
        view = View(tuple(found.places.values()), frozenset(found.attributes))
        if len(self._views) >= MOST_VIEWS:
            self._views.clear()
        self._views[_types(objects)] = view
        return view

    def view(self, objects: Sequence[Named]) -> View:
        """Where to look before a call with these objects."""
        return self._views.get(_types(objects)) or self.search(objects)

    def keys(self, objects: Sequence[Named], view: View | None = None) -> tuple[Named, ...]:
        """The key of what is at each place now, and in each object among the arguments."""
        view = view or self.view(objects)
        look, skipped = _Look(view.attributes), self._skipped
        found = [(place.name, look.key(place.value, skipped.get(place.name))) for place in view.places]
        found += [(name, look.key(value, skipped.get(name))) for name, value in objects]
        return tuple(found)

    def skipped(self, name: str) -> Any:
        """What is not looked at in a place: True for all of it, a dict for parts of it, None for nothing."""
        return self._skipped.get(name)

    def key(self, place: Place, view: View) -> Any:
        """The key of what is at one place now."""
        return self.key_of(place.name, place.value, view)

    def key_of(self, name: str, value: Any, view: View) -> Any:
        """The key of a value that the function calls by this name."""
        return _Look(view.attributes).key(value, self._skipped.get(name))

    def holds(self, place: Place, view: View, expected: Any) -> bool:
        """Whether it still has this key."""
        return bool(self.key(place, view) == expected)

    def skip(self, before: Sequence[Named], after: Sequence[Named]) -> None:
        """Look no more at what tracing changes itself: counters, logs, caches."""
        for (name, old), (_, new) in zip(before, after, strict=True):
            what = changed(old, new)
            if what is not None:
                self._skipped[name] = joined(self._skipped.get(name), what)


def _types(objects: Sequence[Named]) -> tuple[type, ...]:
    return tuple(type(value) for _, value in objects)


@final
class _Look:
    """One look at everything outside."""

    def __init__(self, attributes: frozenset[str]) -> None:
        self._attributes = attributes
        self._left = MOST_PARTS
        self._inside: set[int] = set()

    def key(self, value: Any, skip: Any = None) -> Any:
        if skip is True:
            return None
        kind = type(value)
        if kind in _NUMBERS or value is None:
            return kind, (repr(value) if kind is float else value)
        if kind is np.ndarray or kind is Tensor:
            return ArrayKey(value)
        if is_array(value):
            return array_key(value)
        if isinstance(value, FunctionType):
            return Identity(value)
        if isinstance(value, (*PLAIN, *FUNCTIONS)):
            return kind, value
        held = _held_by(value, self._attributes)
        if held is None:
            return static_key(value)
        if id(value) in self._inside or self._left <= 0:
            return kind, Identity(value)
        self._inside.add(id(value))
        if skip is not None:
            held = {name: part for name, part in held.items() if skip.get(name) is not True}
        self._left -= len(held)
        keys = tuple(self.key(part, None if skip is None else skip.get(name)) for name, part in held.items())
        self._inside.discard(id(value))
        head = (kind, len(held)) if kind is list or kind is tuple else kind
        return Parts(head if isinstance(value, _CONTAINERS) else object_key(value), tuple(held), keys)


__all__ = ["FUNCTIONS", "Outside", "Place", "View"]
