"""A value as it lies in memory: a buffer, an offset, strides. Ops that only change strides cost nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from ...dtypes import DType
from ...ir import Node
from ...ir.ops.window import WindowsBackward, positions
from ...ir.types import Shape

_BESIDE: Final = 64
"""How many bytes lie between operands, at most, that have one pointer: the code has the distance in it."""


@dataclass(frozen=True, slots=True)
class View:
    """``shape`` elements of ``dtype``, ``strides`` bytes apart, from byte ``offset`` of a buffer on."""

    buffer: int
    offset: int
    shape: Shape
    strides: tuple[int, ...]
    dtype: DType

    @staticmethod
    def whole(buffer: int, shape: Shape, dtype: DType) -> View:
        """A buffer's elements in row-major order."""
        return View(buffer, 0, shape, row_major(shape, dtype.itemsize), dtype)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def touched(self) -> int:
        """The bytes that reading it touches: a broadcast element once."""
        return prod(n for n, s in zip(self.shape, self.strides, strict=True) if s or not n) * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        natural = row_major(self.shape, self.dtype.itemsize)
        return not self.size or all(s == t or n == 1 for n, s, t in zip(self.shape, self.strides, natural, strict=True))

    def lies_as(self, other: View) -> bool:
        """Whether it is the same elements, in the same shape."""
        mine, theirs = zip(self.shape, self.strides, strict=True), zip(other.shape, other.strides, strict=True)
        where = (self.buffer, self.offset, self.shape) == (other.buffer, other.offset, other.shape)
        return where and all(a == b or a[0] == 1 for a, b in zip(mine, theirs, strict=True))

    def broadcast_to(self, shape: Shape) -> View:
        added = len(shape) - len(self.shape)
        own = zip(self.shape, self.strides, shape[added:], strict=True)
        return replace(self, shape=shape, strides=(0,) * added + tuple(0 if m == 1 != n else s for m, s, n in own))

    def reshaped(self, shape: Shape) -> View | None:
        """The view of another shape over the same elements in the same order; None where strides cannot say it."""
        if self.contiguous or not self.size:
            return replace(self, shape=shape, strides=row_major(shape, self.dtype.itemsize))
        old = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        strides: list[int] = []
        k = 0
        remaining = list(shape)
        while remaining:
            n = remaining.pop(0)
            if n == 1:
                strides.append(0)
                continue
            if k == len(old):
                return None
            group, grown = [n], n
            last = k
            have = old[k][0]
            while grown != have:
                if grown < have:
                    if not remaining:
                        return None
                    group.append(remaining.pop(0))
                    grown *= group[-1]
                else:
                    last += 1
                    if last == len(old) or old[last - 1][1] != old[last][0] * old[last][1]:
                        return None
                    have *= old[last][0]
            step = old[last][1]
            inner: list[int] = []
            for m in reversed(group):
                inner.insert(0, step)
                step *= m
            strides.extend(inner)
            k = last + 1
        return replace(self, shape=shape, strides=tuple(strides))

    def sliced(self, start: tuple[int, ...], stop: tuple[int, ...], step: tuple[int, ...]) -> View:
        shape = tuple(len(range(a, b, s)) for a, b, s in zip(start, stop, step, strict=True))
        offset = self.offset + (sum(a * s for a, s in zip(start, self.strides, strict=True)) if prod(shape) else 0)
        strides = tuple(s * t for s, t in zip(self.strides, step, strict=True))
        return replace(self, offset=offset, shape=shape, strides=strides)

    def permuted(self, axes: tuple[int, ...]) -> View:
        return replace(self, shape=tuple(self.shape[k] for k in axes), strides=tuple(self.strides[k] for k in axes))

    def windowed(self, axis: int, kernel: Shape, stride: tuple[int, ...], dilation: tuple[int, ...]) -> View:
        """The windows of the axes from ``axis`` on, which must fit."""
        sizes = self.shape[axis : axis + len(kernel)]
        count = positions("windows", sizes, kernel, stride, dilation)
        shape = (*self.shape[:axis], *count, *kernel, *self.shape[axis + len(kernel) :])
        strides = WindowsBackward.strides(self.strides, axis=axis, kernel=kernel, stride=stride, dilation=dilation)
        return replace(self, shape=shape, strides=strides)


def moved(views: Iterable[View]) -> int:
    """The bytes that pass between memory and the caches where these are read or written: what a stencil reads at
    several places of a buffer, once."""
    spans: dict[int, list[tuple[int, int, int]]] = {}
    for view in views:
        if view.size:
            steps = [s * (n - 1) for n, s in zip(view.shape, view.strides, strict=True)]
            low = view.offset + sum(s for s in steps if s < 0)
            high = view.offset + sum(s for s in steps if s > 0) + view.dtype.itemsize
            spans.setdefault(view.buffer, []).append((low, high, view.touched))
    total = 0
    for of in spans.values():
        lows, highs, touched = zip(*of, strict=True)
        total += min(max(highs) - min(lows), sum(touched))
    return total


def beside(inputs: Sequence[View], access: Sequence[str]) -> tuple[tuple[int, int, int], ...]:
    """The inputs that lie next to an earlier one, wherever that is: which, of which, and how many bytes after it."""
    first: dict[tuple[int, Shape, tuple[int, ...], DType], list[int]] = {}
    found = []
    for k, view in enumerate(inputs):
        if access[k] == "adjacent":
            others = first.setdefault((view.buffer, view.shape, view.strides, view.dtype), [])
            near = next((j for j in others if abs(view.offset - inputs[j].offset) <= _BESIDE), None)
            if near is None:
                others.append(k)
            else:
                found.append((k, near, view.offset - inputs[near].offset))
    return tuple(found)


def row_major(shape: Shape, itemsize: int) -> tuple[int, ...]:
    strides: list[int] = []
    step = itemsize
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return tuple(strides)


def viewed(node: Node, x: View) -> View | None:
    """The result of a view op over ``x``; None where the elements must be copied first."""
    attrs = node.attrs
    if node.name == "broadcast_to":
        return x.broadcast_to(attrs["shape"])
    if node.name == "permute_dims":
        return x.permuted(attrs["axes"])
    if node.name == "slice":
        return x.sliced(attrs["start"], attrs["stop"], attrs["step"])
    if node.name == "windows":
        return x.windowed(attrs["axis"], attrs["kernel"], attrs["stride"], attrs["dilation"])
    if node.name == "expand_dims":
        sizes = iter(zip(x.shape, x.strides, strict=True))
        both = [(1, 0) if k in attrs["axis"] else next(sizes) for k in range(len(node.shape))]
        return replace(x, shape=node.shape, strides=tuple(s for _, s in both))
    if node.name == "squeeze":
        kept = [k for k in range(len(x.shape)) if k not in attrs["axis"]]
        return replace(x, shape=node.shape, strides=tuple(x.strides[k] for k in kept))
    return x.reshaped(node.shape)
