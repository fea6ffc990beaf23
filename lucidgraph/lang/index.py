"""Reading by index as NumPy has it: ``x[key]``, take and take_along_axis.

A key is taken apart into items; a :class:`Plan` says what a key means for one shape: a slice of every axis, axes
dropped and added, and arrays that index some of the axes left. Reading is slice, squeeze, expand_dims and one take.

Python numbers, lists and NumPy arrays in a key are checked at once. Tensors in a key are data: checked by backends
that do (see API.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from types import EllipsisType
from typing import Any, TypeGuard, final

import numpy as np

from ..dtypes import DEFAULT_INT
from ..errors import (
    ConcretizationError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
)  # fmt: skip
from ..ir.op import broadcast_shapes, get
from ..ir.ops.index import in_range
from ..ir.types import Shape
from .axes import one_axis, whole
from .tensor import Tensor, apply, array_type, asarray, copy_of, is_mlx, known_value, view_of

__all__ = ["take", "take_along_axis"]

Indices = np.ndarray[Any, Any] | Tensor
"""NumPy arrays are in range and from 0 on by then; tensors are data."""
Item = int | slice | EllipsisType | Indices | None

# -- a key taken apart


def _item(part: Any) -> Item:
    """One part of a key in canonical form. Integers of no axes are ints, lists are arrays."""
    if part is None or isinstance(part, slice | EllipsisType):
        return part
    if isinstance(part, list | tuple):
        part = _listed(part)
    elif is_mlx(part):
        part = asarray(part)
    if isinstance(part, Tensor):
        if not (part.dtype.is_integer or part.dtype.is_bool):
            raise DTypeError(f"an index is an integer or a boolean array, not {part._node.type}")
        if not part.ndim and part._node.type.weak:
            return whole(part, "an index")
        value = known_value(part)
        # A value that is there already is checked as NumPy's is.
        return part if value is None else _item(value)
    if isinstance(part, bool | np.bool_):
        return np.asarray(part)
    if isinstance(part, np.ndarray):
        dtype = array_type(part).dtype
        if not (dtype.is_integer or dtype.is_bool):
            raise DTypeError(f"an index is an integer or a boolean array, not one of {dtype.name}")
        return part if part.ndim or dtype.is_bool else int(part)
    return whole(part, "an index")


def _listed(part: Sequence[Any]) -> Any:
    """An array of nested lists; with tensors among them, a tensor."""
    if any(isinstance(v, Tensor) for v in part):
        rows = [asarray(v, dtype=DEFAULT_INT) for v in part]
        return apply(get("concat"), *(apply(get("expand_dims"), r, axis=(0,)) for r in rows), axis=0)
    try:
        found = np.asarray(part)
    except ValueError as error:
        raise ShapeError(f"nested lists of unequal lengths as an index: {part!r:.80}") from error
    return found.astype(np.int64) if not found.size and found.dtype.kind == "f" else found


def is_mask(item: object) -> TypeGuard[Indices]:
    """Whether an item is a boolean array."""
    if isinstance(item, Tensor):
        return item.dtype.is_bool
    return isinstance(item, np.ndarray) and item.dtype.kind == "b"


def items_of(x: Tensor, key: Any) -> list[Item]:
    """The parts of a key, with as many full slices as its axes need; an Ellipsis stays as a mark of length 0."""
    items = [_item(part) for part in (key if isinstance(key, tuple) else (key,))]
    used = 0
    for item in items:
        if is_mask(item):
            used += item.ndim
        elif item is not None and item is not Ellipsis:
            used += 1
    if used > x.ndim:
        raise IndexOutOfRangeError(f"{used} indices for the {x.ndim} axes of {x._node.type}")
    at = [k for k, item in enumerate(items) if item is Ellipsis]
    if len(at) > 1:
        raise ShapeError("an index has one Ellipsis at most")
    place = at[0] + 1 if at else len(items)
    return [*items[:place], *[slice(None)] * (x.ndim - used), *items[place:]]


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What a key means for one shape."""

    start: Shape
    stop: Shape
    step: Shape
    region: Shape
    """The shape of that slice of every axis."""
    whole: bool
    """The slice is all of the array."""
    dropped: Shape
    """Axes that integers take away."""
    added: Shape
    """Places, in what is left, of axes of size 1."""
    shape: Shape
    """Of what is left."""
    indexed: tuple[tuple[int, Indices], ...]
    """Its axes that arrays index; a mask of n axes stands at the first."""
    front: bool
    """The arrays are separated: their axes come first in the result."""

    def resolved(self) -> Plan:
        """The plan with masks as the indices of their True elements, one array per axis."""
        found: list[tuple[int, Indices]] = []
        for at, item in self.indexed:
            if is_mask(item):
                places = np.nonzero(_mask_value(item) if isinstance(item, Tensor) else item)
                found.extend((at + k, p) for k, p in enumerate(places))
            else:
                found.append((at, item))
        return replace(self, indexed=tuple(found))

    @property
    def order(self) -> tuple[int, ...]:
        """The axes of what is left, the indexed ones first where they are separated."""
        axes, every = [at for at, _ in self.indexed], range(len(self.shape))
        return (*axes, *(k for k in every if k not in axes)) if self.front else tuple(every)


def plan_of(x: Tensor, items: Sequence[Item]) -> Plan:
    parts: list[tuple[int, int, int]] = []
    dropped, added = [], []
    shape: list[int] = []
    indexed: list[tuple[int, Indices]] = []
    pointed = []  # the items that NumPy counts as arrays where one is
    for k, item in enumerate(items):
        axis = len(parts)
        if item is Ellipsis:
            continue
        if item is None:
            added.append(len(shape))
            shape.append(1)
        elif isinstance(item, slice):
            parts.append(_normal(item, x.shape[axis]))
            shape.append(len(range(*parts[-1])))
        elif isinstance(item, int):
            i = int(in_range(item, x.shape[axis], axis, "an index"))
            parts.append((i, i + 1, 1))
            dropped.append(axis)
            pointed.append(k)
        elif is_mask(item):
            pointed.append(k)
            if not item.ndim:
                # True and False index a new axis of size 1.
                added.append(len(shape))
                item = reshape(item, (1,)) if isinstance(item, Tensor) else item.reshape(1)
            else:
                sizes = x.shape[axis : axis + item.ndim]
                if item.shape != sizes:
                    raise ShapeError(f"a mask of shape {item.shape} for the axes of sizes {sizes} of {x._node.type}")
                parts.extend((0, n, 1) for n in sizes)
            indexed.append((len(shape), item))
            shape.extend(item.shape)
        elif isinstance(item, Tensor | np.ndarray):
            pointed.append(k)
            size = x.shape[axis]
            parts.append((0, size, 1))
            places = item if isinstance(item, Tensor) else in_range(item, size, axis, "an index")
            indexed.append((len(shape), places))
            shape.append(size)
    start, stop, step = (tuple(part[k] for part in parts) for k in range(3))
    region = tuple(len(range(*part)) for part in parts)
    whole = parts == [(0, n, 1) for n in x.shape]
    # Separated by a slice, None or Ellipsis, even one that stands for no axis.
    front = bool(pointed) and len(pointed) <= pointed[-1] - pointed[0]
    return Plan(
        start, stop, step, region, whole, tuple(dropped), tuple(added), tuple(shape), tuple(indexed), front
    )  # fmt: skip


def _normal(item: slice, size: int) -> tuple[int, int, int]:
    """A slice of an axis in the op's normal form, and the same one for all ways to write it."""
    bounds = [None if b is None else whole(b, "a slice") for b in (item.start, item.stop, item.step)]
    if bounds[2] == 0:
        raise ShapeError("a slice's step is not 0")
    start, stop, step = slice(*bounds).indices(size)
    count = len(range(start, stop, step))
    if count < 2:
        return (start, start + 1, 1) if count else (0, 0, 1)
    last = start + (count - 1) * step
    if last == size - 1 and step > 0:
        return start, size, step
    return start, last + (1 if step > 0 else -1), step


def _mask_value(mask: Tensor) -> np.ndarray[Any, Any]:
    try:
        return mask.numpy()
    except ConcretizationError as error:
        raise ConcretizationError(
            f"a boolean mask selects as many elements as it has True ones, which is not known while tracing; "
            f"{error.message}",
            source=error.source,
            hint="lucidgraph.where(mask, x, 0) keeps the shape; x[mask] = number works as well",
        ) from None


# -- reading


def getitem(x: Tensor, key: Any) -> Tensor:
    """``x[key]`` by NumPy's rules: a new tensor, never a view.

    Raises :class:`IndexOutOfRangeError`, which names the axis; :class:`ConcretizationError` for a mask that is traced.

    >>> getitem(asarray([[1, 2], [3, 4]]), (slice(None), 1)).tolist()
    [2, 4]
    """
    plan = plan_of(x, items_of(x, key))
    y = basic(x, plan)
    if not plan.indexed:
        return y
    z, axis, places = merged(y, plan.resolved())
    return apply(get("take"), z, places, axis=axis)


def basic(x: Tensor, plan: Plan) -> Tensor:
    """The plan's slice, with axes dropped and added."""
    y = x if plan.whole else apply(get("slice"), x, start=plan.start, stop=plan.stop, step=plan.step)
    if plan.dropped:
        y = apply(get("squeeze"), y, axis=plan.dropped)
    if plan.added:
        y = apply(get("expand_dims"), y, axis=plan.added)
    return view_of(x, copy_of(y)) if y is x else y


def merged(y: Tensor, plan: Plan) -> tuple[Tensor, int, Indices]:
    """``y`` with its indexed axes as one, which axis that is, and the indices into it. The plan is resolved."""
    axes = [at for at, _ in plan.indexed]
    if plan.order != tuple(range(y.ndim)):
        y = apply(get("permute_dims"), y, axes=plan.order)
    axis = 0 if plan.front else axes[0]
    sizes = y.shape[axis : axis + len(axes)]
    if len(axes) > 1:
        y = apply(get("reshape"), y, shape=(*y.shape[:axis], prod(sizes), *y.shape[axis + len(axes) :]))
    return y, axis, linear([places for _, places in plan.indexed], sizes)


def linear(indices: Sequence[Indices], sizes: Shape) -> Indices:
    """Row-major places in axes of ``sizes`` merged into one. One that is outside its axis is outside the merged one."""
    if len(indices) == 1:
        return indices[0]
    strides = [prod(sizes[k + 1 :]) for k in range(len(sizes))]
    fixed: np.ndarray[Any, Any] = np.zeros((), np.int64)
    total: Tensor | None = None
    outside: Tensor | None = None
    shape = broadcast_shapes([i.shape for i in indices], "index arrays")
    for places, size, stride in zip(indices, sizes, strides, strict=True):
        if not isinstance(places, Tensor):
            fixed = fixed + places * stride
            continue
        wide = asarray(places, dtype=DEFAULT_INT)
        below = apply(get("less"), wide, 0)
        wrapped = apply(get("where"), below, apply(get("add"), wide, size), wide)
        beyond = apply(get("less"), wrapped, 0), apply(get("greater_equal"), wrapped, size)
        bad = apply(get("logical_or"), *beyond)
        outside = bad if outside is None else apply(get("logical_or"), outside, bad)
        part = apply(get("multiply"), wrapped, stride)
        total = part if total is None else apply(get("add"), total, part)
    if total is None or outside is None:
        return np.broadcast_to(fixed, shape)
    if np.any(fixed):
        total = apply(get("add"), total, fixed)
    return apply(get("where"), outside, prod(sizes), broadcast(total, shape))


def broadcast(x: Tensor, shape: Shape) -> Tensor:
    return x if x.shape == shape else apply(get("broadcast_to"), x, shape=shape)


def reshape(x: Tensor, shape: Shape) -> Tensor:
    return x if x.shape == shape else apply(get("reshape"), x, shape=shape)


# -- functions


def indices_for(indices: Any, size: int, axis: int, what: str) -> Indices:
    """Indices given to a function, checked where their values are known."""
    item = _item(indices)
    if isinstance(item, int):
        item = np.asarray(item)
    if item is None or isinstance(item, slice | EllipsisType) or is_mask(item):
        raise DTypeError(f"{what} takes integer indices, not {indices!r:.40}")
    return item if isinstance(item, Tensor) else in_range(item, size, axis, what)


def take(x: Any, indices: Any, axis: int | None = None) -> Tensor:
    """The elements at ``indices`` along ``axis`` (None: of the flattened array), which the axes of ``indices`` replace.

    Raises :class:`IndexOutOfRangeError`, :class:`DTypeError` for indices that are not integers.

    >>> take(asarray([10, 20, 30]), [2, 0, -1]).tolist()
    [30, 10, 30]
    """
    x, k = flat_or(x, axis, "take")
    return apply(get("take"), x, indices_for(indices, x.shape[k], k, "take"), axis=k)


def flat_or(x: Any, axis: int | None, what: str) -> tuple[Tensor, int]:
    x = asarray(x)
    return (reshape(x, (x.size,)), 0) if axis is None else (x, one_axis(axis, x.ndim, what))


def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Tensor:
    """``y[i, j] = x[indices[i, j], j]`` for axis 0, and so on; the other axes broadcast. None flattens both.

    >>> take_along_axis(asarray([[1, 2], [3, 4]]), [[1], [0]], axis=1).tolist()
    [[2], [3]]
    """
    x, k = flat_or(x, axis, "take_along_axis")
    places = indices_for(indices, x.shape[k], k, "take_along_axis")
    return apply(get("take_along_axis"), x, flattened(places) if axis is None else places, axis=k)


def flattened(places: Indices) -> Indices:
    return reshape(places, (places.size,)) if isinstance(places, Tensor) else places.reshape(-1)
