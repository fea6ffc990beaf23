"""Random programs: elementwise trees with broadcasting, reductions, views, products, gathers, scatters, casts.

A program is named by a seed and a size. An *exact* one computes with small integers in every dtype, so that whatever
the order of its sums its results are equal to the bit. A *smooth* one has continuous elementary functions of floats.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

import lucidgraph as lg
from lucidgraph import dtypes
from lucidgraph.dtypes import DType

SIZES = (1, 2, 2, 3, 4, 5, 8, 17, 19)
EVERY = tuple(dtypes.ALL)
LARGEST = 1500
BOUND = 16


class Generated(NamedTuple):
    """A function of arrays, and arrays for it."""

    fn: Callable[..., Any]
    args: tuple[np.ndarray, ...]


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, exact: bool) -> np.ndarray:
    if not exact:
        return rng.standard_normal(shape).astype(dtype.numpy)
    values = rng.integers(0 if dtype.kind == "u" else -6, 7, shape)
    if dtype.is_complex:
        values = values + 1j * rng.integers(-6, 7, shape)
    return values.astype(dtype.numpy)


def generate(seed: int, size: int, exact: bool = True, dtype: DType | None = None, empty: bool = True) -> Generated:
    """The program of this seed with about ``size`` operations; all its floats are of ``dtype``, or of any."""
    rng = np.random.default_rng([seed, size, exact])
    full = tuple(int(n) for n in rng.choice(SIZES, rng.choice((0, 1, 2, 2, 3, 3, 4))))
    if len(full) > 1 and rng.random() < 0.3:
        full = (full[0], full[0], *full[2:])
    while prod(full) > LARGEST:
        full = full[1:]
    if full and empty and rng.random() < 0.04:
        full = (*full[:-1], 0)
    shapes = [full, full]
    shapes += [tuple(1 if rng.random() < 0.5 else n for n in full) for _ in range(rng.integers(0, 3))]
    if full:
        shapes.append(full[rng.integers(len(full)) :])
    # Few dtypes in one program, so that much of it fuses.
    choices = [dtype] if dtype else [EVERY[k] for k in rng.choice(len(EVERY), 2)]
    kinds = [choices[k] for k in rng.integers(0, len(choices), len(shapes))]
    args = tuple(numbers(rng, s, d, exact) for s, d in zip(shapes, kinds, strict=True))
    choice = int(rng.integers(2**32))

    def fn(*xs: Any) -> Any:
        return _Writer(choice, exact, empty).write(xs, size)

    return Generated(fn, args)


class _Writer:
    """Appends random operations to a growing list of values."""

    def __init__(self, seed: int, exact: bool, empty: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.exact = exact
        self.empty = empty
        self.values: list[Any] = []
        self.bounds: list[float] = []

    def write(self, xs: tuple[Any, ...], size: int) -> tuple[Any, ...]:
        for x in xs:
            self.push(lg.asarray(x), 6.0)
        for _ in range(size):
            self.step()
        # The latest, and some others, which keeps intermediate values alive.
        last = len(self.values) - 1
        picked = {last, *(int(k) for k in self.rng.integers(0, last + 1, self.rng.integers(1, 7)))}
        return tuple(self.values[k] for k in sorted(picked))

    # -- the pool

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def any_of(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def push(self, x: Any, bound: float) -> None:
        """Keep a value; floats that have grown are clipped, so that they stay exact (or smooth)."""
        if self.exact and x.dtype.is_inexact and bound > BOUND:
            x, bound = self.clipped(x), 8.0
        self.values.append(x)
        self.bounds.append(bound)

    def clipped(self, x: Any) -> Any:
        if x.dtype.is_complex:
            return self.clipped(lg.real(x)) + self.clipped(lg.imag(x)) * 1j
        return lg.minimum(lg.maximum(x, -8), 8)

    def pick(self, fits: Callable[[Any], bool] = lambda x: True) -> tuple[Any, float] | None:
        """A value, more often a late one."""
        count = len(self.values)
        for _ in range(6):
            k = (
                count - 1 - int(min(self.rng.exponential(4.0), count - 1))
                if self.chance(0.8)
                else int(self.rng.integers(count))
            )
            if fits(self.values[k]):
                return self.values[k], self.bounds[k]
        return None

    def partner(self, x: Any) -> tuple[Any, float]:
        """Something to combine with ``x``: another value, a part of it, or a number."""

        def fits(y: Any) -> bool:
            try:
                shape = np.broadcast_shapes(x.shape, y.shape)
            except ValueError:
                return False
            return prod(shape) <= LARGEST

        found = self.pick(fits)
        if found is None or self.chance(0.1):
            return lg.asarray(np.asarray(2).astype(x.dtype.numpy)), 2.0
        return found

    # -- operations

    def step(self) -> None:
        kinds = (
            self.unary, self.binary, self.binary, self.binary, self.view, self.view, self.reduction, self.reduction,
            self.normal, self.normal, self.cast, self.moved, self.indexed, self.product, self.choice,
        )  # fmt: skip
        self.any_of(kinds)()

    def unary(self) -> None:
        x, bound = self.pick() or (self.values[-1], self.bounds[-1])
        if not self.exact:
            fn = self.any_of((lg.tanh, lg.sin, lg.sigmoid, lg.square, lambda v: lg.exp(-v * v), lg.cos,
                              lambda v: lg.sqrt(1 + v * v), lambda v: lg.log(1 + v * v), lambda v: v / (1 + v * v),
                              lg.erf, lg.atan, lambda v: -v, lambda v: v * 0.5 + 1.0))  # fmt: skip
            self.push(lg.tanh(fn(x)) if fn is lg.square else fn(x), 1.0)
            return
        kind = x.dtype.kind
        if kind == "c":
            fn = self.any_of((lg.negative, lg.conj, lg.real, lg.imag))
        elif kind == "b":
            fn = self.any_of((lg.logical_not, lg.bitwise_invert, lambda v: v))
        else:
            fn = self.any_of((lg.abs, lg.sign, lg.square, lg.negative, lg.isnan, lg.floor))
            if fn is lg.square:
                bound = bound * bound
        self.push(fn(x), bound)

    def binary(self) -> None:
        x, a = self.pick() or (self.values[-1], self.bounds[-1])
        y, b = self.partner(x)
        if self.chance(0.5):
            x, y, a, b = y, x, b, a
        self.combine(x, y, a, b)

    def combine(self, x: Any, y: Any, a: float, b: float) -> None:
        options = ["add", "subtract", "multiply", "maximum", "minimum"]
        kinds = x.dtype.kind + y.dtype.kind
        if not self.exact:
            options = ["add", "subtract", "multiply", "maximum", "minimum", "quotient"]
        elif "c" in kinds:
            options = ["add", "subtract", "multiply", "equal"]
        elif kinds == "bb":
            options = ["logical_and", "bitwise_xor", "maximum", "minimum", "equal"]
        else:
            options += ["less", "equal", "greater_equal"]
            if set(kinds) <= {"i", "u"} and kinds[0] == kinds[1]:
                options += ["floor_divide", "remainder", "bitwise_and", "bitwise_or"]
        name = self.any_of(options)
        if name == "quotient":
            self.push(x / (1.0 + y * y), 1.0)
            return
        # Large integers that become floats count as grown, and so does what was promoted.
        wide = 2.0**60 if x.dtype is not y.dtype else 0.0
        z = getattr(lg, name)(x, y)
        if not self.exact and name == "multiply":
            z = lg.tanh(z)
        self.push(z, max(wide, a * b * (2 if "c" in kinds else 1) if name == "multiply" else a + b))

    def view(self) -> None:
        x, bound = self.pick(lambda v: v.ndim > 0) or (self.values[0], self.bounds[0])
        rank = x.ndim
        kind = self.any_of(("permute", "flip", "slice", "expand", "squeeze", "reshape", "broadcast"))
        if kind == "permute":
            x = lg.permute_dims(x, tuple(int(k) for k in self.rng.permutation(rank)))
        elif kind == "flip" and rank:
            x = lg.flip(x, axis=int(self.rng.integers(rank)))
        elif kind == "slice" and rank:
            low = 0 if self.empty and self.chance(0.05) else 1
            x = x[tuple(self.part(n, low) for n in x.shape)]
        elif kind == "expand" and rank < 4:
            x = lg.expand_dims(x, axis=int(self.rng.integers(rank + 1)))
        elif kind == "squeeze" and 1 in x.shape:
            x = lg.squeeze(x, axis=self.any_of([k for k, n in enumerate(x.shape) if n == 1]))
        elif kind == "reshape" and x.size:
            x = lg.reshape(x, self.factors(x.size))
        elif kind == "broadcast" and rank < 4 and x.size * 3 <= LARGEST:
            x = lg.broadcast_to(x, (int(self.rng.integers(1, 4)), *x.shape))
        self.push(x, bound)

    def part(self, n: int, least: int) -> slice:
        if self.chance(0.4) or n <= least:
            return slice(None)
        start = int(self.rng.integers(0, n))
        stop = int(self.rng.integers(start + least, n + 1)) if start + least <= n else n
        step = int(self.rng.integers(1, 4))
        return slice(start, stop, step) if self.chance(0.6) else slice(stop - 1, start - 1 if start else None, -step)

    def factors(self, size: int) -> tuple[int, ...]:
        shape = []
        for p in (2, 3, 5, 17, 19):
            while size % p == 0:
                size //= p
                shape.append(p)
        self.rng.shuffle(shape)
        while len(shape) > 1 and (len(shape) > 4 or self.chance(0.5)):
            k = int(self.rng.integers(len(shape) - 1))
            shape[k : k + 2] = [shape[k] * shape[k + 1]]
        return (*shape, size) if size > 1 or self.chance(0.2) else tuple(shape)

    def axes(self, x: Any) -> tuple[int, ...]:
        if x.ndim and self.chance(0.5):
            return (int(self.rng.integers(x.ndim)),)
        return tuple(k for k in range(x.ndim) if self.chance(0.5))

    def reduced(self, x: Any, bound: float, keepdims: bool, axis: tuple[int, ...]) -> tuple[Any, float]:
        count = prod(x.shape[k] for k in axis)
        names = ["sum", "sum"]
        if not self.exact:
            names += ["mean", "mean", "logsumexp"] + (["max", "min", "var"] if count else [])
        else:
            if not x.dtype.is_complex:
                names += ["any", "all"] + (["max", "min", "argmax", "argmin"] if count else [])
            if count and count & (count - 1) == 0 and x.dtype.is_inexact and not x.dtype.is_half:
                names.append("mean")
        if not count and "mean" in names:
            names = ["sum"]
        name = self.any_of(names)
        if name in ("argmax", "argmin"):
            if not x.ndim or not x.size:
                return x, bound
            return getattr(lg, name)(x, axis=axis[0] if axis else 0, keepdims=keepdims), float(LARGEST)
        y = getattr(lg, name)(x, axis=axis, keepdims=keepdims)
        if name == "mean" and self.exact:
            y = lg.floor(y) if not y.dtype.is_complex else y * count
        if not self.exact:
            y = y * (1.0 / max(count, 1)) if name == "sum" else y
        return y, bound * max(count, 1)

    def reduction(self) -> None:
        x, bound = self.pick(lambda v: v.ndim > 0) or (self.values[0], self.bounds[0])
        self.push(*self.reduced(x, bound, self.chance(0.5), self.axes(x)))

    def normal(self) -> None:
        """A value with a reduction of itself, as softmax and layer norm have."""
        x, bound = self.pick(lambda v: v.ndim > 0) or (self.values[0], self.bounds[0])
        row, high = self.reduced(x, bound, True, self.axes(x))
        self.push(row, high)
        row, high = self.values[-1], self.bounds[-1]
        if row.ndim and self.chance(0.2):
            # No longer in the order of the rows.
            row = lg.flip(row) if self.chance(0.5) else lg.permute_dims(row, tuple(range(row.ndim))[::-1])
        if row.ndim == x.ndim and prod(np.broadcast_shapes(*self.compatible(x, row))) <= LARGEST:
            self.combine(x, row, bound, high)

    def compatible(self, x: Any, y: Any) -> tuple[tuple[int, ...], ...]:
        """The shapes of both, or one too large where they do not broadcast."""
        good = all(m == n or 1 in (m, n) for m, n in zip(x.shape, y.shape, strict=True))
        return (x.shape, y.shape) if good else ((2 * LARGEST,),)

    def cast(self) -> None:
        x, bound = self.pick() or (self.values[-1], self.bounds[-1])
        if not self.exact:
            return
        dtype = self.any_of(EVERY)
        if x.dtype.is_complex and not dtype.is_complex:
            x = lg.real(x)
        if x.dtype.is_inexact and dtype.kind == "u":
            x = lg.abs(x)
        self.push(lg.astype(x, dtype), bound if x.dtype.is_inexact or x.dtype.is_bool else 2.0**60)

    def moved(self) -> None:
        x, bound = self.pick(lambda v: v.ndim > 0 and 2 * v.size + 60 < LARGEST) or (None, 0.0)
        if x is None:
            return
        axis = int(self.rng.integers(x.ndim))
        kind = self.any_of(("concat", "stack", "pad", "roll"))
        if kind == "concat":
            x = lg.concat([x, lg.flip(x, axis=axis)], axis=axis)
        elif kind == "stack" and x.ndim < 4:
            x = lg.stack([x, x], axis=axis)
        elif kind == "pad":
            x = lg.pad(x, [(int(self.rng.integers(2)), int(self.rng.integers(3))) for _ in x.shape])
            if x.size > LARGEST:
                return
        elif kind == "roll":
            x = lg.roll(x, int(self.rng.integers(-3, 4)), axis=axis)
        self.push(x, bound)

    def indexed(self) -> None:
        x, bound = self.pick(lambda v: v.ndim > 0 and v.size > 0) or (None, 0.0)
        if x is None:
            return
        axis = int(self.rng.integers(x.ndim))
        n = x.shape[axis]
        found = self.pick(lambda v: v.dtype.kind == "i" and v.ndim == 1 and 0 < v.size <= 20)
        places: Any = self.rng.integers(-n, n, int(self.rng.integers(1, 6)))
        if found is not None:
            places = lg.remainder(found[0], n) if n < 100 else places
        if x.size // n * places.shape[0] > LARGEST:
            return
        y = lg.take(x, places, axis=axis)
        if self.chance(0.5) and not x.dtype.is_bool:
            self.push(lg.scatter_add(x, places, y, axis=axis), bound * (1 + places.shape[0]))
        else:
            self.push(y, bound)

    def product(self) -> None:
        x, bound = self.pick(lambda v: v.ndim > 1 and v.shape[-2] < 20 and v.dtype.kind != "b") or (None, 0.0)
        if x is None or prod(x.shape[:-1]) * x.shape[-2] > LARGEST:
            return
        y = lg.matmul(x, lg.matrix_transpose(x))
        if not self.exact:
            y = lg.tanh(y)
        self.push(y, bound * bound * 2 * max(x.shape[-1], 1))

    def choice(self) -> None:
        x, a = self.pick() or (self.values[-1], self.bounds[-1])
        y, b = self.partner(x)
        if not self.exact:
            return
        condition, _ = self.partner(x)
        if prod(np.broadcast_shapes(x.shape, y.shape)) > LARGEST:
            return
        try:
            shape = np.broadcast_shapes(x.shape, y.shape, condition.shape)
        except ValueError:
            return
        if prod(shape) <= LARGEST:
            wide = 2.0**60 if x.dtype is not y.dtype else 0.0
            self.push(lg.where(lg.not_equal(condition, 0), x, y), max(a, b, wide))
