"""Oracles the tests share: every backend, traced and deferred, against NumPy; gradients against differences."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import lucidgraph as lg
from lucidgraph.config import config

BACKENDS = [name for name, why in lg.backends().items() if why == "available"]
if os.environ.get("HYPOTHESIS_PROFILE") == "quick":
    BACKENDS = list(dict.fromkeys(["reference", lg.backends()["auto"]]))

# Relative to the largest magnitude of the expected result.
TOLERANCE = {
    "float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6, "float64": 1e-13, "complex64": 2e-6, "complex128": 1e-13,
}  # fmt: skip


def as_float64(array: Any) -> np.ndarray:
    """An array as float64 or complex128, for comparison; integers and booleans unchanged."""
    array = np.asarray(array)
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def assert_close(actual: Any, expected: Any, dtype: Any = None, scale: float = 1.0) -> None:
    """Equal shapes; equal integers, NaNs and infinities; floats within the tolerance of ``dtype`` times ``scale``."""
    actual = actual.numpy() if isinstance(actual, lg.Tensor) else np.asarray(actual)
    name = str(dtype or actual.dtype).rpartition(".")[2]
    expected = np.asarray(expected)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    if actual.dtype.kind in "biu":
        np.testing.assert_array_equal(actual, expected)
        return
    bound = TOLERANCE[name] * scale
    finite = np.abs(as_float64(expected)[np.isfinite(as_float64(expected))])
    np.testing.assert_allclose(
        as_float64(actual), as_float64(expected), rtol=bound, atol=bound * float(finite.max(initial=1e-30))
    )


class on_backend:  # noqa: N801
    """Let deferred values, and compiled functions of backend "auto", run on one backend."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.saved, config.backend = config.backend, self.name

    def __exit__(self, *exc: object) -> None:
        config.backend = self.saved


def results(fn: Callable[..., Any], *args: Any, backend: str) -> list[tuple[str, Any]]:
    """``fn(*args)`` compiled, and op by op, on a backend: (how, result as NumPy)."""
    with on_backend(backend):
        compiled = lg.compile(fn)(*args)
        deferred = fn(*(lg.asarray(a) if isinstance(a, np.ndarray) else a for a in args))
        return [("compiled", _numpy(compiled)), ("deferred", _numpy(deferred))]


def _numpy(value: Any) -> Any:
    if isinstance(value, lg.Tensor):
        return value.numpy()
    if isinstance(value, tuple | list):
        return type(value)(_numpy(v) for v in value)
    return value


def check(fn: Callable[..., Any], *args: Any, expected: Any, dtype: Any = None, backends: Sequence[str] | None = None,
          scale: float = 1.0) -> None:  # fmt: skip
    """``fn(*args)`` equals ``expected`` in value, shape and, when given, dtype, on every backend, in both ways."""
    for backend in backends or BACKENDS:
        for how, value in results(fn, *args, backend=backend):
            try:
                if dtype is not None:
                    assert value.dtype == lg.dtypes.as_dtype(dtype).numpy, f"dtype {value.dtype}, expected {dtype}"
                assert_close(value, expected, scale=scale)
            except AssertionError as error:
                raise AssertionError(f"{backend}, {how}: {error}") from None


def check_gradient(
    fn: Callable[..., Any], *args: np.ndarray, order: int = 2, eps: float = 1e-6, rtol: float = 2e-5
) -> None:
    """Gradients of ``fn`` at float64 arguments against central differences along random directions, to ``order``.

    ``fn`` returns an array of any shape; it is projected on random weights. The second order differentiates the
    gradient's own projection.
    """
    rng = np.random.default_rng(7)
    places = tuple(range(len(args)))
    with on_backend("reference"):
        shape = fn(*map(lg.asarray, args)).shape
        weights = lg.asarray(rng.standard_normal(shape))

        def projected(*xs: Any) -> Any:
            return lg.sum(fn(*xs) * weights)

        _check_directional(projected, args, rng, eps, rtol)
        if order > 1:
            twists = [lg.asarray(rng.standard_normal(a.shape)) for a in args]

            def slope(*xs: Any) -> Any:
                gradients = lg.grad(projected, argnums=places)(*xs)
                total = lg.sum(gradients[0] * twists[0])
                for g, t in zip(gradients[1:], twists[1:], strict=True):
                    total = total + lg.sum(g * t)
                return total

            _check_directional(slope, args, rng, eps, rtol * 10)


def _check_directional(fn: Callable[..., Any], args: Sequence[np.ndarray], rng: Any, eps: float, rtol: float) -> None:
    gradients = lg.compile(lg.grad(fn, argnums=tuple(range(len(args)))), backend="reference")(*args)
    value = lg.compile(fn, backend="reference")
    for _ in range(2):
        steps = [rng.standard_normal(a.shape) for a in args]
        ahead = float(value(*(a + eps * s for a, s in zip(args, steps, strict=True))))
        behind = float(value(*(a - eps * s for a, s in zip(args, steps, strict=True))))
        numeric = (ahead - behind) / (2 * eps)
        exact = sum(float(np.sum(g * s)) for g, s in zip(gradients, steps, strict=True))
        size = max(abs(numeric), *(float(np.abs(g).max(initial=0.0)) for g in gradients), 1e-3)
        assert abs(numeric - exact) <= rtol * size + 1e-7, f"difference quotient {numeric}, gradient {exact}"
    for g, a in zip(gradients, args, strict=True):
        assert g.shape == a.shape, f"gradient of shape {g.shape} for an operand of shape {a.shape}"
