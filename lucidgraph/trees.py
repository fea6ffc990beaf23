"""Nested containers of arrays: dict, list, tuple, namedtuple, dataclass, None, and what optree knows.

Dictionaries are taken in key order, so ``{'b': 1, 'a': 2}`` and ``{'a': 2, 'b': 1}`` have one structure. A dataclass is
registered when first seen.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import optree

from .locks import renewed_in_child

_NAMESPACE = "lucidgraph"
_registered: set[type] = set()
_lock = threading.RLock()
renewed_in_child(sys.modules[__name__])
_UNSET = object()

_PLAIN = (None, type(None), tuple, list, dict)

TreeDef = optree.PyTreeSpec


def _register_dataclass(cls: type) -> None:
    with _lock:
        if cls in _registered:
            return
        fields = tuple(f.name for f in dataclasses.fields(cls))

        def split(value: Any) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[str, ...]]:
            # Attributes that are no fields, as __post_init__ sets them, and fields that were never set.
            extra = getattr(value, "__dict__", {}).keys() - set(fields)
            names = (*(n for n in fields if getattr(value, n, _UNSET) is not _UNSET), *sorted(extra))
            return tuple(getattr(value, name) for name in names), names, names

        def join(names: Any, children: Iterable[Any]) -> Any:
            value: Any = object.__new__(cls)
            for name, child in zip(names, children, strict=True):
                object.__setattr__(value, name, child)
            return value

        optree.register_pytree_node(cls, split, join, path_entry_type=optree.GetAttrEntry, namespace=_NAMESPACE)
        _registered.add(cls)


def _unseen_dataclass(value: Any) -> bool:
    cls = type(value)
    if cls not in _registered and dataclasses.is_dataclass(cls):
        _register_dataclass(cls)
        return True
    return False


def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """The leaves, and the structure that :func:`unflatten` puts them back into."""
    while True:
        leaves, spec = optree.tree_flatten(tree, none_is_leaf=False, namespace=_NAMESPACE)
        # A list, not a generator: every new dataclass among the leaves is registered before the next attempt.
        if not sum([_unseen_dataclass(leaf) for leaf in leaves]):
            return leaves, spec


def unflatten(spec: TreeDef, leaves: Sequence[Any]) -> Any:
    return optree.tree_unflatten(spec, leaves)


def is_namedtuple(kind: Any) -> bool:
    """Whether a class is that of a named tuple."""
    return isinstance(kind, type) and optree.is_namedtuple_class(kind)


def is_plain(spec: TreeDef) -> bool:
    """Whether a structure has nothing but leaves, None, tuples, named ones too, lists and dictionaries."""
    stack = [spec]
    while stack:
        part = stack.pop()
        if part.type not in _PLAIN and not is_namedtuple(part.type):
            return False
        stack += part.children()
    return True


def paths(spec: TreeDef) -> list[str]:
    """A name for each leaf: ``[0]['w']`` as one would write it after the tree's name."""
    return ["".join(entry.codify("") for entry in accessor) for accessor in spec.accessors()]


def describe(spec: TreeDef) -> str:
    """A structure in a few words: ``(*, {'a': *})``."""
    return str(spec).removeprefix("PyTreeSpec(").removesuffix(f", namespace={_NAMESPACE!r})").removesuffix(")")


def map_leaves(fn: Callable[..., Any], tree: Any) -> Any:
    """The tree with ``fn`` applied to each leaf."""
    leaves, spec = flatten(tree)
    return unflatten(spec, [fn(leaf) for leaf in leaves])
