"""Axis arguments, checked and put in normal form."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import AxisError, DTypeError, LucidGraphError


def whole(value: Any, what: str) -> int:
    """An integer, Python's or one that says it is. Raises :class:`DTypeError`, and for a traced one what it raises."""
    try:
        return operator.index(value)
    except LucidGraphError:
        raise
    except TypeError:
        raise DTypeError(f"{what} takes an integer here, not {value!r:.40}") from None


def one_axis(axis: Any, ndim: int, what: str) -> int:
    """An axis as a number from 0 to ``ndim - 1``. Raises :class:`AxisError` naming the axis."""
    if isinstance(axis, bool):
        raise DTypeError(f"{what}: an axis is an integer, not {axis}", hint="name the argument: keepdims=True")
    k = whole(axis, what)
    if not -ndim <= k < ndim:
        raise AxisError(f"{what}: axis {k} is out of range for {ndim} axes", hint=f"an axis from {-ndim} to {ndim - 1}")
    return k % ndim


def many_axes(axis: int | Iterable[int] | None, ndim: int, what: str) -> tuple[int, ...]:
    """Axes as ascending distinct numbers: None is all of them, () none. Raises :class:`AxisError`."""
    if axis is None:
        return tuple(range(ndim))
    # Arrays without axes say they are iterable, and are not.
    asked: Sequence[Any] = list(axis) if isinstance(axis, Iterable) and getattr(axis, "ndim", 1) > 0 else [axis]
    axes = [one_axis(k, ndim, what) for k in asked]
    if len(set(axes)) < len(axes):
        raise AxisError(f"{what}: axes {tuple(asked)} name one axis twice", hint="name every axis once")
    return tuple(sorted(axes))
