"""Keys of values that shape a program without being inputs of it: by value where they are plain, else by identity."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any, Final, NamedTuple, final

import numpy as np

from ..dtypes import DType
from ..lang.tensor import Tensor, is_array

PLAIN: Final = (bool, int, str, bytes, type(None), type(Ellipsis), DType, type, np.dtype, range)
"""Types whose values are their own keys."""
NONE: Final = (type(None), None)
_BY_IDENTITY: Final[Any] = object.__eq__


class Identity:
    """A key for an object compared by identity, which it does not keep alive."""

    __slots__ = ("hash", "ref")

    def __init__(self, value: object) -> None:
        self.hash = id(value)
        try:
            self.ref: Callable[[], object] = weakref.ref(value)
        except TypeError:
            self.ref = lambda: value

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identity):
            return False
        mine = self.ref()
        return mine is not None and mine is other.ref()

    def __repr__(self) -> str:
        value = self.ref()
        return str(getattr(value, "__qualname__", None) or f"a {type(value).__name__}")


@final
class ArrayKey(Identity):
    """An array outside: this object, as often written to."""

    __slots__ = ("writes",)

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        self.writes = array._writes if type(array) is Tensor else 0

    __hash__ = Identity.__hash__

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, ArrayKey) and self.writes == other.writes


class Parts(NamedTuple):
    """The key of a container or an object: what it is, the names of its parts as code spells them, and their keys."""

    head: Any
    names: tuple[str, ...]
    keys: tuple[Any, ...]


def is_dead(key: Any) -> bool:
    """Whether a key speaks of an object that is gone, so that nothing equals it any more."""
    if isinstance(key, Identity):
        return key.ref() is None
    return isinstance(key, tuple | frozenset) and any(map(is_dead, key))


def array_key(value: Any) -> Any:
    """The key of an array outside, by identity; NumPy's scalars by value."""
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
    return ArrayKey(value)


def static_key(value: Any) -> Any:
    """A hashable key that tells static values apart: by type and value, objects by identity. NaN equals NaN."""
    kind = type(value)
    if isinstance(value, PLAIN):
        return kind, value
    if isinstance(value, float | complex) and not isinstance(value, np.generic):
        return kind, repr(value)
    if isinstance(value, np.ndarray):
        return kind, value.shape, value.dtype.str, value.tobytes()
    if is_array(value):
        return array_key(value)
    if isinstance(value, tuple | list):
        return kind, tuple(map(static_key, value))
    if isinstance(value, dict):
        return kind, tuple((static_key(k), static_key(v)) for k, v in value.items())
    if isinstance(value, set | frozenset):
        return kind, frozenset(map(static_key, value))
    if isinstance(value, slice):
        return kind, static_key((value.start, value.stop, value.step))
    if isinstance(value, MethodType):
        return kind, Identity(value.__func__), Identity(value.__self__)
    if isinstance(value, functools.partial):
        return kind, static_key(value.func), static_key(value.args), static_key(value.keywords)
    return object_key(value)


def object_key(value: Any) -> Any:
    """The key of an object: itself where its class says what is equal, else its identity."""
    kind = type(value)
    if kind.__hash__ is not None and kind.__eq__ is not _BY_IDENTITY:
        return kind, value
    return kind, Identity(value)


def changed(old: Any, new: Any) -> Any:
    """What differs between two keys of one place: True for all of it, a dict for parts of it, None for nothing.

    What was None before has only been filled: no difference.
    """
    if old in (new, NONE):
        return None
    if not (isinstance(old, Parts) and isinstance(new, Parts) and old.head == new.head):
        return True
    before, after = _parts(old), _parts(new)
    parts = {name: changed(before.get(name), after.get(name)) for name in {**before, **after}}
    return {name: part for name, part in parts.items() if part is not None} or None


def joined(a: Any, b: Any) -> Any:
    """Two results of :func:`changed` as one."""
    if a is None or b is None:
        return b if a is None else a
    if a is True or b is True:
        return True
    return {name: joined(a.get(name), b.get(name)) for name in {**a, **b}}


def difference(name: str, old: Any, new: Any) -> tuple[str, Any, Any]:
    """The first place, inside ``name``, where two keys differ, as code spells it, and the keys there."""
    if isinstance(old, Parts) and isinstance(new, Parts) and old.head == new.head:
        before, after = _parts(old), _parts(new)
        for part in {**before, **after}:
            if before.get(part) != after.get(part):
                return difference(name + part, before.get(part), after.get(part))
    return name, old, new


def _parts(key: Parts) -> dict[str, Any]:
    return dict(zip(key.names, key.keys, strict=True))


__all__ = [
    "NONE", "PLAIN", "ArrayKey", "Identity", "Parts", "array_key", "changed", "difference", "is_dead", "joined",
    "object_key", "static_key",
]  # fmt: skip
