"""The right values: the workload in NumPy's float64, gradients by central differences along random directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.peers import chosen, each, over_numpy
from benchmarks.workloads import Workload, leaves

__all__ = ["exact", "greatest_error"]

DIRECTIONS = 2
STEP = 1e-7


def signs(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).choice(np.array([-1.0, 1.0], np.float32), shape)


class Slope:
    """A gradient, known by its products with directions; it takes part in what a descent step does with it."""

    __array_ufunc__ = None

    def __init__(self, shape: tuple[int, ...], products: np.ndarray, length: float) -> None:
        self.shape, self.products, self.length = shape, products, length

    def __rmul__(self, factor: float) -> Slope:
        return Slope(self.shape, factor * self.products, abs(factor) * self.length)

    def __rsub__(self, array: np.ndarray) -> Slope:
        return Slope(self.shape, along(array) - self.products, self.length)


def along(array: np.ndarray) -> np.ndarray:
    """The products with the directions."""
    flat = array.astype(np.float64)
    return np.array([np.sum(flat * signs(array.shape, seed)) for seed in range(DIRECTIONS)])


def differences(loss: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    def slope(args: tuple[Any, ...], at: int, leaf: int) -> Slope:
        """Of the ``leaf``-th array of argument ``at``."""
        array, products = leaves(args[at])[leaf], []

        def value(moved: np.ndarray) -> float:
            arrays = iter([moved if i == leaf else a for i, a in enumerate(leaves(args[at]))])
            return float(loss(*args[:at], each(lambda _: next(arrays), args[at]), *args[at + 1 :]))

        for seed in range(DIRECTIONS):
            step = STEP * signs(array.shape, seed)
            products.append((value(array + step) - value(array - step)) / (2 * STEP))
        return Slope(array.shape, np.array(products), float(np.linalg.norm(products)) / DIRECTIONS**0.5)

    def call(*args: Any) -> Any:
        trees = []
        for at in chosen(argnums):
            counted: Iterator[int] = iter(range(len(leaves(args[at]))))
            trees.append(each(lambda _, at=at, counted=counted: slope(args, at, next(counted)), args[at]))
        return loss(*args), trees[0] if isinstance(argnums, int) else tuple(trees)

    return call


def exact(work: Workload, args: tuple[Any, ...]) -> Any:
    wide = each(lambda a: a.astype(np.float64) if a.dtype.kind == "f" else a, args)
    return work.fn(over_numpy(value_and_grad=differences))(*wide)


def greatest_error(found: Any, expected: Any) -> float:
    """Relative to the greatest number of a result, to the length of a gradient; infinite where shapes differ."""
    pairs = list(zip(leaves(found), leaves(expected), strict=True))
    return max(one_error(np.asarray(a), b) for a, b in pairs)


def one_error(found: np.ndarray, expected: Any) -> float:
    if found.shape != np.shape(expected) if not isinstance(expected, Slope) else found.shape != expected.shape:
        return float("inf")
    if isinstance(expected, Slope):
        error = np.abs(along(found) - expected.products).max() / expected.length
    else:
        error = np.abs(found.astype(np.float64) - expected).max() / max(np.abs(expected).max(), 1e-300)
    return float(error) if np.isfinite(error) else float("inf")
