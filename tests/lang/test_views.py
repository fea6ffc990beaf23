"""Writes to what NumPy has as views: refused where they would go astray, fine where they come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)


def row(x: Any) -> Any:
    y = x[0]
    y += 1
    return x.sum() + y


def twice_indexed(x: Any) -> Any:
    x = x * 1
    x[0][1] = 5
    return x


def transposed(x: Any) -> Any:
    x = x + 0
    x.T[0] += 1
    return x


def every_row(x: Any) -> Any:
    x = x * 2
    for k in range(3):
        y = x[k]
        y *= k
    return x


def flat(x: Any) -> Any:
    y = np.ravel(x)
    y[3] = 0
    return y


def whole(x: Any) -> Any:
    x = x * 2
    y = x[:]
    y -= 1
    return x


def into(x: Any) -> Any:
    x = x * 2
    np.add(x[1], x[2], out=x[0])
    return x


def elsewhere(x: Any) -> Any:
    x = x * 2
    y = x[0]
    y += 1
    x[1] = y
    return x


@pytest.mark.parametrize("fn", [row, twice_indexed, transposed, every_row, flat, whole, into, elsewhere])
def test_a_write_to_a_view_is_refused(fn: Callable[[Any], Any]):
    compiled = lg.compile(fn)
    for _ in range(2):
        with pytest.raises(lg.UnsupportedError, match="view of another array") as caught:
            compiled(X.copy())
    assert caught.value.source is not None
    assert caught.value.source.function == fn.__name__
    assert compiled.cache_info().currsize == 0


def augmented(x: Any) -> Any:
    x = x * 2
    x[0] += 1
    x[1:, ::2] *= x[0, 1]
    x[..., 1] -= 3
    x[:] /= 2
    return x


def of_a_copy(x: Any) -> Any:
    y = x[0].copy()
    y += 1
    z = np.copy(x[1])
    z[0] = 7
    w = x.flatten()
    w[1] = 2
    return x, y, z, w


def of_what_is_gone(x: Any) -> Any:
    y = (x * 2).reshape(2, 6)
    y += 1
    return y


def by_a_list(x: Any) -> Any:
    y = x[[0, 2]]
    y += 1
    return x, y


def plainly(x: Any) -> Any:
    y = x[0]
    y = y + 1
    return x, y


@pytest.mark.parametrize("fn", [augmented, of_a_copy, of_what_is_gone, by_a_list, plainly])
def test_other_writes_are_as_numpy_makes_them(fn: Callable[[Any], Any]):
    expected = fn(X.copy())
    found = lg.compile(fn)(X)
    for ours, theirs in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, expected)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_tensor_is_no_view():
    compiled = lg.compile(row)
    x = lg.asarray(X)
    expected = X.sum() + X[0] + 1
    np.testing.assert_array_equal(compiled(x).numpy(), expected)
    with pytest.raises(lg.UnsupportedError, match="view of another array"):
        compiled(X)  # the same program, for NumPy's arrays
    np.testing.assert_array_equal(compiled(x).numpy(), expected)
    np.testing.assert_array_equal(row(lg.asarray(X)).numpy(), expected)
