"""Writing by index: ``x[key] = v``, ``x.at[key].add(v)``, and functions.

What a key selects is read, changed, and put back with slice_update; where arrays point, with a scatter or, for ``set``,
with a gather of what was written there last.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final, final

import numpy as np

from ..dtypes import int32
from ..errors import AxisError, DTypeError, ShapeError, UnsupportedError
from ..ir import Node
from ..ir.op import broadcast_shapes, get
from ..ir.types import Shape
from .axes import one_axis
from .creation import arange, full, scalar
from .index import (
    Indices,
    Plan,
    basic,
    broadcast,
    flat_or,
    flattened,
    getitem,
    indices_for,
    is_mask,
    items_of,
    linear,
    merged,
    plan_of,
    reshape,
)
from .recording import current_trace
from .tensor import Tensor, apply, asarray, copy_of, rebind

__all__ = ["put_along_axis", "scatter_add"]

_ROUNDS: Final = 64
"""How often a place may be named in a multiplying write."""


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """``x[key] = value``: changes this tensor object, under every name it has, and no other.

    ``value`` is broadcast and cast to the dtype of ``x``; of duplicate places the last one wins. Raises as
    :func:`getitem`, :class:`ShapeError` where the value does not fit, ``OverflowError`` for a Python integer that does
    not, :class:`UnsupportedError` while tracing for a tensor from outside.

    >>> x = asarray([1, 2, 3])
    >>> setitem(x, slice(0, 2), 7)
    >>> x.tolist()
    [7, 7, 3]
    """
    new = updated(x, key, value, "set")
    trace = current_trace()
    # x[key] += v reads x[key], adds to that, and comes back here.
    strayed = None if trace is None else trace.strayed.get(id(value))
    if trace and strayed and _same_part(strayed.view, getitem(x, key)._node):
        del trace.strayed[id(value)]
    rebind(x, new)


def _same_part(x: Node, y: Node) -> bool:
    """Whether both take the same part of the same value, by the same steps."""
    while x is not y:
        if not (x.op is y.op and x.op.aliases and x.attrs == y.attrs):
            return False
        x, y = x.operands[0], y.operands[0]
    return True


def updated(x: Tensor, key: Any, value: Any, how: str) -> Tensor:
    """``x`` with the elements at ``key`` set to ``value``, or combined with it: ``how`` is an op's name, or ``set``."""
    items = items_of(x, key)
    value = _value_for(x, value)
    if how == "subtract":
        how, value = "add", apply(get("negative"), value)
    plan = plan_of(x, items)
    if len(plan.indexed) == 1 and is_mask(plan.indexed[0][1]):
        masked = _masked(x, plan, value, how)
        if masked is not None:
            return masked
    if plan.indexed:
        new = _scattered(basic(x, plan), plan.resolved(), value, how)
    else:
        value = _fitted(value, plan.shape)
        new = value if how == "set" else _combined(how, basic(x, plan), value)
    return _put_back(x, plan, new)


def _put_back(x: Tensor, plan: Plan, new: Tensor) -> Tensor:
    """``x`` with ``new``, of what the plan left or a scalar, in its place."""
    if plan.whole and not plan.dropped and not plan.added:
        whole = broadcast(new, x.shape)
        return copy_of(whole) if whole is new else whole
    if new.ndim:
        new = reshape(broadcast(new, plan.shape), plan.region)
    return apply(get("slice_update"), x, new, start=plan.start, stop=plan.stop, step=plan.step)


def _value_for(x: Tensor, value: Any) -> Tensor:
    """A value to write, in the dtype of ``x``."""
    if type(value) in (bool, int, float, complex):
        return scalar(value, x.dtype)
    value = value if isinstance(value, Tensor) else asarray(value)
    if value.dtype.is_complex and not x.dtype.is_complex:
        raise DTypeError(f"{value._node.type} does not go into {x._node.type}", hint="write its real part")
    return asarray(value, dtype=x.dtype)


def _fitted(value: Tensor, shape: Shape) -> Tensor:
    """A value that broadcasts to ``shape``; leading axes of size 1 too many are dropped, as NumPy does."""
    extra = value.ndim - len(shape)
    if extra > 0 and all(n == 1 for n in value.shape[:extra]):
        value = reshape(value, value.shape[extra:])
    trailing = shape[len(shape) - value.ndim :]
    if value.ndim > len(shape) or any(m not in (1, n) for m, n in zip(value.shape, trailing, strict=True)):
        raise ShapeError(f"a value of shape {value.shape} does not go where shape {shape} is selected")
    return value


def _combined(how: str, old: Tensor, value: Tensor) -> Tensor:
    """``old`` combined with ``value``, in the dtype of ``old``."""
    if how == "set":
        return value
    if how == "divide" and not old.dtype.is_inexact:
        raise DTypeError(f"divide does not stay in {old.dtype.name}", hint="astype(x, lucidgraph.float32) first")
    return apply(get(how), old, value)


def _masked(x: Tensor, plan: Plan, value: Tensor, how: str) -> Tensor | None:
    """A write through one mask of a value that is the same for all its True elements, as a ``where``; else None."""
    ((at, mask),) = plan.indexed
    after = len(plan.shape) - at - mask.ndim
    if plan.front or (value.ndim > after and value.shape[-after - 1] != 1):
        return None
    value = _fitted(value, (*plan.shape[:at], 1, *plan.shape[at + mask.ndim :]))
    if value.ndim > after:
        cut = value.ndim - after
        value = reshape(value, (*value.shape[: cut - 1], *(1,) * mask.ndim, *value.shape[cut:]))
    value = _fitted(value, plan.shape)
    y = basic(x, plan)
    spread = (1,) * at + mask.shape + (1,) * after
    there = reshape(mask, spread) if isinstance(mask, Tensor) else mask.reshape(spread)
    return _put_back(x, plan, apply(get("where"), there, _combined(how, y, value), y))


def _scattered(y: Tensor, plan: Plan, value: Tensor, how: str) -> Tensor:
    """``y`` changed where arrays point."""
    z, axis, places = merged(y, plan)
    shape = (*z.shape[:axis], *places.shape, *z.shape[axis + 1 :])
    value = _fitted(value, shape)
    if prod(places.shape):
        if value.ndim or how != "set":
            value = broadcast(value, shape)
        z = _scatter(z, places, value, axis, how)
    order = plan.order
    z = reshape(z, tuple(plan.shape[k] for k in order))
    undo = tuple(order.index(k) for k in range(len(order)))
    return z if undo == tuple(range(len(order))) else apply(get("permute_dims"), z, axes=undo)


_SCATTERS: Final = {"add": "scatter_add", "maximum": "scatter_max", "minimum": "scatter_min"}


def _scatter(z: Tensor, places: Indices, value: Tensor, axis: int, how: str) -> Tensor:
    """``z`` with ``value`` at ``places`` along ``axis``; each time a place is named counts, or the last one for set."""
    if how in _SCATTERS:
        return apply(get(_SCATTERS[how]), z, places, value, axis=axis)
    count = prod(places.shape)
    if value.ndim:
        value = reshape(value, (*z.shape[:axis], count, *z.shape[axis + 1 :]))
    if isinstance(places, Tensor):
        flat: Indices = reshape(places, (count,))
    else:
        flat = places.reshape(-1)
    if how == "set":
        return _placed(z, flat, value, axis)
    if isinstance(flat, Tensor):
        raise UnsupportedError(
            f"at[…].{how} with indices that are data: duplicates may multiply",
            hint="add, set, maximum and minimum work; so does a NumPy array of indices",
        )
    rounds = _occurrence(flat)
    if rounds.max() >= _ROUNDS:
        raise UnsupportedError(f"at[…].{how} names one place {rounds.max() + 1} times, {_ROUNDS} are supported")
    for k in range(int(rounds.max()) + 1):
        now = np.flatnonzero(rounds == k)
        old = apply(get("take"), z, flat[now], axis=axis)
        z = _placed(z, flat[now], _combined(how, old, apply(get("take"), value, now, axis=axis)), axis)
    return z


def _occurrence(places: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For each place, how often it was named before.

    >>> _occurrence(np.array([3, 1, 3, 3])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    rank = np.empty_like(order)
    rank[order] = np.arange(places.size) - np.searchsorted(ordered, ordered)
    return rank


def _placed(z: Tensor, places: Indices, value: Tensor, axis: int) -> Tensor:
    """``z`` with ``value`` (a scalar, or one slice per place) at ``places``, the last one where a place is named twice.

    Each element of the result asks which update was its last one, and takes that: a gather, deterministic everywhere,
    whose gradient goes to the last update only.
    """
    size, count = z.shape[axis], places.shape[0]
    spread = (size,) + (1,) * (z.ndim - axis - 1)
    if isinstance(places, Tensor):
        none = full((size,), -1, int32)
        winner: Indices = apply(get("scatter_max"), none, places, arange(count, dtype=int32), axis=0)
        there: Indices = reshape(apply(get("greater_equal"), winner, 0), spread)
        source: Indices = apply(get("maximum"), winner, 0)
    else:
        winner = np.full(size, -1)
        winner[places] = np.arange(count)
        there, source = (winner >= 0).reshape(spread), np.maximum(winner, 0)
    if value.ndim:
        value = apply(get("take"), value, source, axis=axis)
    return apply(get("where"), there, value, z)


@final
class At:
    """``x.at``: ``x.at[key].add(v)`` is a new tensor."""

    __slots__ = ("_x",)

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __getitem__(self, key: Any) -> AtKey:
        return AtKey(self._x, key)


@final
class AtKey:
    """``x.at[key]``: its methods give ``x`` with the elements at ``key`` changed, and leave ``x`` alone.

    Where a key names one place several times every value counts, but for ``set``, where the last one does.

    >>> At(asarray([1, 2]))[np.array([0, 0])].add(5).tolist()
    [11, 2]
    """

    __slots__ = ("_key", "_x")

    def __init__(self, x: Tensor, key: Any) -> None:
        self._x = x
        self._key = key

    def get(self) -> Tensor:
        return getitem(self._x, self._key)

    def set(self, value: Any) -> Tensor:
        return updated(self._x, self._key, value, "set")

    def add(self, value: Any) -> Tensor:
        return updated(self._x, self._key, value, "add")

    def subtract(self, value: Any) -> Tensor:
        return updated(self._x, self._key, value, "subtract")

    def multiply(self, value: Any) -> Tensor:
        return updated(self._x, self._key, value, "multiply")

    def divide(self, value: Any) -> Tensor:
        return updated(self._x, self._key, value, "divide")

    def maximum(self, value: Any) -> Tensor:
        return updated(self._x, self._key, value, "maximum")

    def minimum(self, value: Any) -> Tensor:
        return updated(self._x, self._key, value, "minimum")


def assign(x: Tensor, value: Any) -> None:
    """Let ``x`` hold ``value``, in the dtype and shape it has: what ``x += v`` and ``out=x`` do.

    Raises :class:`DTypeError` where that would lose the kind (float into int), :class:`ShapeError` for another shape.

    >>> x = asarray([1, 2])
    >>> assign(x, x * 2)
    >>> x.tolist()
    [2, 4]
    """
    new = asarray(value)
    if "biufc".index(new.dtype.kind) > "biufc".index(x.dtype.kind) and (x.dtype.is_bool or new.dtype.is_inexact):
        raise DTypeError(f"{new._node.type} does not go into {x._node.type}", hint="write x = x + … for a new array")
    if new.shape != x.shape:
        raise ShapeError(f"a value of shape {new.shape} does not go into {x._node.type}")
    new = asarray(new, dtype=x.dtype)
    rebind(x, new)


# -- functions


def put_along_axis(x: Any, indices: Any, values: Any, axis: int | None = None) -> Tensor:
    """``x`` with ``y[indices[i, j], j] = values[i, j]`` for axis 0, and so on: a new tensor. The last duplicate wins.

    >>> put_along_axis(asarray([[1, 2], [3, 4]]), [[1], [0]], 0, axis=1).tolist()
    [[1, 0], [0, 4]]
    """
    whole = asarray(x)
    x, k = flat_or(whole, axis, "put_along_axis")
    places = indices_for(indices, x.shape[k], k, "put_along_axis")
    if axis is None:
        places = flattened(places)
    if places.ndim != x.ndim:
        raise AxisError(f"put_along_axis: indices of shape {places.shape} for {x._node.type}: equally many axes")
    value = _value_for(x, values)
    others = [n if a != k else places.shape[k] for a, n in enumerate(x.shape)]
    grid: list[Indices] = list(np.ogrid[tuple(slice(n) for n in others)])
    grid[k] = places
    shape = broadcast_shapes([g.shape for g in grid], "put_along_axis")
    if shape != tuple(others):
        raise ShapeError(f"put_along_axis: indices of shape {places.shape} do not fit {x._node.type}")
    if not prod(shape):
        return copy_of(whole)
    value = broadcast(_fitted(value, shape), shape)
    flat = linear(grid, x.shape)
    if isinstance(flat, np.ndarray):
        flat = np.broadcast_to(flat, shape)
    placed = _placed(reshape(x, (x.size,)), flattened(flat), reshape(value, (value.size,)), 0)
    return reshape(placed, whole.shape)


def scatter_add(x: Any, indices: Any, updates: Any, axis: int = 0) -> Tensor:
    """``x`` with ``updates`` added at ``indices`` along ``axis``; duplicates add up. A new tensor of dtype of ``x``.

    ``updates`` broadcasts to the shape of ``take(x, indices, axis)``. Raises as :func:`take`.

    >>> scatter_add(asarray([0.0, 0.0]), [1, 1], [1.0, 2.0]).tolist()
    [0.0, 3.0]
    """
    x = asarray(x)
    k = one_axis(axis, x.ndim, "scatter_add")
    places = indices_for(indices, x.shape[k], k, "scatter_add")
    value = _fitted(_value_for(x, updates), (*x.shape[:k], *places.shape, *x.shape[k + 1 :]))
    return apply(get("scatter_add"), x, places, value, axis=k)
