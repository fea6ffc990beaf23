"""Indexing with NumPy as the oracle: keys of every form, reads, writes, their gradients; gathers and scatters."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucidgraph as lg
from lucidgraph.errors import (
    AxisError,
    ConcretizationError,
    DTypeError,
    IndexOutOfRangeError,
    LucidGraphError,
    ShapeError,
    UnsupportedError,
)
from lucidgraph.ir.op import get
from lucidgraph.lang import index as li
from lucidgraph.lang import update as lu
from lucidgraph.lang.index import getitem
from lucidgraph.lang.tensor import apply
from tests.checking import check, check_gradient


def counting(*shape, dtype=np.float32):
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)


def written(x, key, value, how="set"):
    """What NumPy makes of a write."""
    out = np.array(x)
    if how == "set":
        out[key] = value
    else:
        # Broadcast beforehand: NumPy's add.at misreads a value of fewer axes than its index.
        shape = out[key].shape
        value = np.asarray(value, out.dtype)
        value = value.reshape(value.shape[max(0, value.ndim - len(shape)) :])
        getattr(np, how).at(out, key, np.broadcast_to(value, shape).copy())
    return out


# -- keys

HOWS = ("add", "subtract", "multiply", "maximum", "minimum")


@st.composite
def shapes_and_keys(draw):
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    common = draw(st.sampled_from([(), (2,), (3,), (2, 3), (0,)]))
    items, axis, ellipsis = [], 0, False
    kinds = ["slice", "int", "array", "list", "none", "ellipsis", "mask", "bool"]
    while axis < len(shape) and draw(st.integers(0, 9)):
        size, kind = shape[axis], draw(st.sampled_from(kinds))
        inside = st.integers(-size, size - 1) if size else st.just(0)
        if kind == "slice":
            bound = st.none() | st.integers(-5, 5)
            items.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, -1, -2]))))
            axis += 1
        elif kind == "int":
            items.append(draw(inside))
            axis += 1
        elif kind in ("array", "list"):
            sizes = tuple(draw(st.sampled_from([n, 1])) for n in common[draw(st.integers(0, len(common))) :])
            if not size:
                sizes = (0,)
            count, dtype = int(np.prod(sizes)), draw(st.sampled_from(["int8", "int64"]))
            array = np.array(draw(st.lists(inside, min_size=count, max_size=count)), dtype).reshape(sizes)
            items.append(array.tolist() if kind == "list" and array.size else array)
            axis += 1
        elif kind == "none":
            items.append(None)
        elif kind == "ellipsis" and not ellipsis:
            ellipsis = True
            items.append(...)
            left = draw(st.integers(0, len(shape) - axis))
            items.extend([slice(None, None, -1)] * left)
            axis = len(shape)
        elif kind == "mask":
            ndim = draw(st.integers(0, min(2, len(shape) - axis)))
            sizes = shape[axis : axis + ndim]
            flat = draw(st.lists(st.booleans(), min_size=int(np.prod(sizes)), max_size=int(np.prod(sizes))))
            items.append(np.array(flat, bool).reshape(sizes))
            axis += ndim
        elif kind == "bool":
            items.append(draw(st.booleans()))
    key = tuple(items)
    return shape, key[0] if len(key) == 1 and draw(st.booleans()) else key


@settings(max_examples=300)
@given(shapes_and_keys(), st.integers(0, 2**32 - 1))
def test_keys_are_numpys(shape_and_key, seed):
    """Reads, writes and accumulating writes agree with NumPy, and refuse where it refuses."""
    shape, key = shape_and_key
    x = counting(*shape)
    tensor = lg.asarray(x)
    try:
        expected = x[key]
    except (IndexError, ValueError):
        with pytest.raises(LucidGraphError):
            getitem(tensor, key)
        return
    got = getitem(tensor, key).numpy()
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)
    rng = np.random.default_rng(seed)
    sizes = [n if rng.random() < 0.7 else 1 for n in expected.shape][rng.integers(0, expected.ndim + 1) :]
    value = np.asarray(rng.standard_normal(sizes), np.float32)
    lu.setitem(tensor, key, value)
    np.testing.assert_array_equal(tensor.numpy(), written(x, key, value))
    how = HOWS[rng.integers(len(HOWS))]
    changed = getattr(lu.At(lg.asarray(x))[key], how)(value).numpy()
    np.testing.assert_allclose(changed, written(x, key, value, how), rtol=1e-5, atol=1e-5)


@settings(max_examples=80)
@given(shapes_and_keys())
def test_the_gradient_of_a_read_adds_up(shape_and_key):
    shape, key = shape_and_key
    x = counting(*shape)
    try:
        weights = np.asarray(counting(*x[key].shape) + 1)
    except (IndexError, ValueError):
        return
    gradient = lg.grad(lambda v: lg.sum(getitem(v, key) * weights))(lg.asarray(x))
    np.testing.assert_array_equal(gradient.numpy(), written(np.zeros_like(x), key, weights, "add"))


X = counting(3, 4, 2)
KEYS = {
    "int": 1,
    "negative": (-1, ..., 0),
    "slices": np.s_[::-2, 1:3, None],
    "list": [0, 0, 1],
    "matrix of indices": np.array([[0, -1], [2, 2]]),
    "two arrays": (np.array([0, 2]), np.array([[1], [3]])),
    "separated": (np.array([0, 2]), slice(1, None), np.array([1, 0])),
    "int between": (slice(None), [1, 1], 0),
    "int separated": (0, slice(None), [1, 0, 1]),
    "mask": counting(3, 4) % 3 == 0,
    "mask and array": (np.array([True, False, True]), slice(None), [1, 0]),
    "nothing": np.s_[1:1],
}


@pytest.mark.parametrize("name", KEYS)
def test_compiled_and_differentiated(name):
    key = KEYS[name]
    check(lambda x: getitem(x, key), X, expected=X[key], dtype="float32")
    check_gradient(lambda x: getitem(x * x, key), X.astype(np.float64) / 9)


@pytest.mark.parametrize("how", ["set", "add", "subtract", "multiply", "divide", "maximum", "minimum"])
@pytest.mark.parametrize("name", KEYS)
def test_writes_compiled_and_differentiated(name, how):
    key, rng = KEYS[name], np.random.default_rng(3)
    value = np.asarray(rng.standard_normal(X[key].shape), np.float32) * 10 + 30
    check(lambda x, v: lu.updated(x, key, v, how), X, value, expected=written(X, key, value, how), dtype="float32")
    x = rng.standard_normal(X.shape)
    check_gradient(lambda x, v: lu.updated(x * x, key, v * v, how), x, rng.standard_normal(X[key].shape) + 1.5)


@pytest.mark.parametrize("value", [7, np.float32(3), np.ones((1, 1, 1, 2), np.float32), np.ones((4, 1), np.int8)])
def test_writes_broadcast_and_cast(value):
    for key in (1, np.s_[:2], [0, 2, 0], ..., np.array([True, False, True])):
        check(lambda x, key=key: lu.updated(x, key, value, "set"), X, expected=written(X, key, value), dtype="float32")


def test_indices_as_data():
    """Tensors as indices: negative ones, several of them, with ints, slices and arrays in between."""
    i, j = np.array([0, -1, 2], np.int32), np.array([1, -4, 1], np.int8)
    check(lambda x, i: getitem(x, i), X, i, expected=X[i])
    check(lambda x, i: getitem(x, (..., getitem(i, 0))), X, i, expected=X[..., 0])
    check(lambda x, i, j: getitem(x, (i, j)), X, i, j, expected=X[i, j])
    check(lambda x, i, j: getitem(x, (i, slice(None), getitem(j, np.s_[:, None]))), counting(3, 2, 4), i, j,
          expected=counting(3, 2, 4)[i, :, j[:, None]])  # fmt: skip
    check(lambda x, j: getitem(x, (np.arange(3), j)), X, j, expected=X[np.arange(3), j])
    check(lambda x, i: getitem(x, [getitem(i, 0), getitem(i, 2)]), X, i, expected=X[[0, 2]])
    check_gradient(lambda x: getitem(x * x, (lg.asarray(i), lg.asarray(j))), X.astype(np.float64))


@pytest.mark.parametrize("how", ["set", "add", "maximum", "minimum"])
def test_writes_where_data_points(how):
    i, j = np.array([0, -1, 0, 2]), np.array([1, 3, -3, 3])
    value = np.random.default_rng(1).standard_normal((4, 2)).astype(np.float32) * 20 + 5
    check(lambda x, i, v: lu.updated(x, i, v, how), X[:, 0], i, value, expected=written(X[:, 0], i, value, how))
    check(
        lambda x, i, j, v: lu.updated(x, (i, j), v, how), X, i, j, value, expected=written(X, (i, j), value, how)
    )  # fmt: skip
    check(lambda x, i: lu.updated(x, i, 5, how), X, i, expected=written(X, i, 5, how))

    def fn(x, v):
        # A fixed array that is data all the same: a function of a traced one.
        data = lg.argmax(x) * 0 + lg.asarray(i)
        return lu.updated(x * x, data, v * v, how)

    rng = np.random.default_rng(5)
    check_gradient(fn, rng.standard_normal((3, 2)), rng.standard_normal((4, 2)))


def test_data_out_of_range_is_refused_by_the_reference():
    i = np.array([0, 3])
    run = partial(lg.compile, backend="reference")
    for fn in (
        getitem,
        lambda x, i: getitem(x, (i, 0)),
        lambda x, i: getitem(x, (i, i)),
        lambda x, i: lu.updated(x, i, 1, "add"),
        lambda x, i: lu.updated(x, (i, i), 1, "set"),
        lambda x, i: li.take_along_axis(x, getitem(i, np.s_[:, None, None]), 0),
    ):
        for bad in (i, -1 - i, np.array([2**63 + 5], np.uint64)):
            with pytest.raises(IndexOutOfRangeError, match="out of range"):
                run(fn)(X, bad)


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        (3, IndexOutOfRangeError, "index 3 is out of range for axis 0, which has 3"),
        ((0, -5), IndexOutOfRangeError, "axis 1"),
        ((slice(None), [0, 4]), IndexOutOfRangeError, "index 4 is out of range for axis 1"),
        ((0, 0, 0, 0), IndexOutOfRangeError, "4 indices for the 3 axes"),
        ((..., ...), ShapeError, "one Ellipsis"),
        (1.0, DTypeError, "integer"),
        ("a", DTypeError, "integer"),
        ([0.5], DTypeError, "float64"),
        (np.array(["a"]), DTypeError, "do not compute"),
        (slice(None, None, 0), ShapeError, "step"),
        (slice(0.5), DTypeError, "integer"),
        (np.array([True]), ShapeError, "mask"),
        (([0, 1], [0, 1, 2]), ShapeError, "broadcast"),
        ([[0], [0, 1]], ShapeError, "unequal"),
    ],
)
def test_bad_keys_are_refused_at_trace_time(key, error, text):
    for run in (lambda fn: fn(lg.asarray(X)), lambda fn: lg.trace(fn, X)):
        for fn in (lambda x: getitem(x, key), lambda x: lu.updated(x, key, 1, "set")):
            with pytest.raises(error, match=text) as caught:
                run(fn)
            assert "test_index.py" in str(caught.value)


def above(x, bound):
    return apply(get("greater"), x, bound)


def test_a_traced_mask_says_what_to_write():
    with pytest.raises(ConcretizationError, match="where") as caught:
        lg.trace(lambda x: getitem(x, above(x, 3)), X)
    assert "test_index.py" in str(caught.value)
    tensor = lg.asarray(X)
    np.testing.assert_array_equal(getitem(tensor, above(tensor, 3)).numpy(), X[X > 3])


@pytest.mark.parametrize("how", ["set", "add", "multiply"])
def test_writes_through_a_traced_mask(how):
    check(lambda x: lu.updated(x, above(x, 5), 2, how), X, expected=written(X, X > 5, 2, how))
    rows, first = np.array([0, 1], np.float32), X[..., 0] > 5
    check(lambda x: lu.updated(x, above(getitem(x, np.s_[..., 0]), 5), rows, how), X,
          expected=written(X, first, rows, how))  # fmt: skip
    check(lambda x: lu.updated(x, (1, above(getitem(x, (1, slice(None), 0)), 9)), 3, how), X,
          expected=written(X, (1, X[1, :, 0] > 9), 3, how))  # fmt: skip


def test_a_lifted_number_indexes():
    row = lg.compile(lambda x, k: getitem(x, k))
    for k in (0, 2, -1):
        np.testing.assert_array_equal(row(X, k), X[k])
    with pytest.raises(IndexOutOfRangeError):
        row(X, 3)


# -- what a write is


def test_a_write_changes_one_object_under_every_name():
    x = lg.asarray([1.0, 2.0, 3.0])
    same, row, twin = x, getitem(x, np.s_[:]), lg.asarray(x, copy=True)
    lu.setitem(x, 0, 9)
    assert same.tolist() == [9, 2, 3]
    assert row.tolist() == twin.tolist() == [1, 2, 3]
    y = getitem(x, 1)
    lu.assign(y, y + 1)
    assert (x.tolist(), y.item()) == ([9, 2, 3], 3)


def test_a_write_while_tracing_stays_inside():
    def fn(x):
        before = x * 1
        lu.setitem(x, 0, getitem(x, 1) * 2)
        lu.setitem(x, np.array([1, 1]), np.float32([5, 6])[:, None])
        return x, before

    source = np.ones((3, 2), np.float32)
    out, before = lg.compile(fn)(source)
    np.testing.assert_array_equal(source, 1)
    np.testing.assert_array_equal(before, 1)
    np.testing.assert_array_equal(out, [[2, 2], [6, 6], [1, 1]])


def test_a_write_to_a_tensor_from_outside_is_refused_while_tracing():
    outside = lg.asarray([1.0])
    with pytest.raises(UnsupportedError, match="copy"):
        lg.trace(lambda x: lu.setitem(outside, 0, x), np.float32(1))
    assert outside.tolist() == [1]


def test_gradient_of_a_row_written():
    """G with respect to v of zeros((1, 2)) with row set to v is [1, 1]; the last duplicate takes all of it."""

    def row(v):
        x = lg.asarray(np.zeros((1, 2), np.float32))
        lu.setitem(x, 0, v)
        return lg.sum(x)

    assert lg.grad(row)(lg.asarray([3.0, 4.0])).tolist() == [1, 1]
    v = np.float32([1, 2, 3])
    for key in ([0, 0, 1], lg.asarray([0, 0, 1])):
        gradient = lg.grad(lambda v, key=key: lg.sum(lu.updated(np_zeros(2), key, v, "set")))(v)
        assert gradient.tolist() == [0, 1, 1]
    assert lg.grad(lambda x: lg.sum(getitem(x, [0, 0, 1])))(v).tolist() == [2, 1, 0]


def np_zeros(*shape):
    return lg.asarray(np.zeros(shape, np.float32))


def test_overwritten_elements_get_no_gradient():
    x, v = np.full((3,), np.inf, np.float32), np.float32([1])
    dx, dv = lg.grad(lambda x, v: lg.sum(lu.updated(x, [1], v, "set") * x), argnums=(0, 1))(x, v)
    np.testing.assert_array_equal(dx.numpy(), [np.inf, 1, np.inf])
    assert dv.tolist() == [np.inf]


def test_indices_contribute_zero():
    assert lg.grad(lambda w: lg.sum(getitem(w * 2, lg.argmax(w))))(np.float32([1, 5, 2])).tolist() == [0, 2, 0]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "complex64"])
def test_every_dtype_goes_through(dtype):
    numpy_dtype = lg.dtypes.as_dtype(dtype).numpy
    x, v = counting(4).astype(numpy_dtype), np.array([1, 0]).astype(numpy_dtype)
    check(lambda x: getitem(x, [2, 2, 0]), x, expected=x[[2, 2, 0]], dtype=dtype)
    check(lambda x, v: lu.updated(x, [1, 1], v, "set"), x, v, expected=written(x, [1, 1], v), dtype=dtype)
    for key in (np.s_[::2], [1, 1]):
        expected = written(x, key, v, "add")
        check(lambda x, v, key=key: lu.updated(x, key, v, "add"), x, v, expected=expected, dtype=dtype)


def test_half_precision_adds_up_in_float32():
    """2048 + 1 + 1 is 2048 where float16 rounds in between."""
    ones = np.ones(2, np.float16)
    check(lambda x, v: lu.updated(x, [0, 0], v, "add"), np.float16([2048]), ones, expected=[2050.0], dtype="float16")


def test_bad_values():
    x = lg.asarray(np.zeros(3, np.int8))
    with pytest.raises(OverflowError):
        lu.setitem(x, 0, 300)
    with pytest.raises(DTypeError):
        lu.setitem(x, 0, 1j)
    with pytest.raises(ShapeError, match="does not go"):
        lu.setitem(x, np.s_[:2], [1, 2, 3])
    with pytest.raises(ShapeError, match="does not go"):
        lu.setitem(x, [True, False, True], [1, 2, 3])
    with pytest.raises(DTypeError, match="stay in int8"):
        lu.At(x)[0].divide(2)
    with pytest.raises(DTypeError, match="does not go"):
        lu.assign(x, [1.5, 2, 3])
    with pytest.raises(ShapeError):
        lu.assign(x, [1, 2])
    with pytest.raises(UnsupportedError, match="multiply"):
        lg.trace(lambda x, i: lu.At(x)[i].multiply(2), X, np.array([0, 1]))
    with pytest.raises(UnsupportedError, match="100 times"):
        lu.At(x)[np.zeros(100, int)].multiply(2)
    assert x.tolist() == [0, 0, 0]


def test_ties_of_extremes_share():
    x, v = np.float64([1, 5]), np.float64([1, 1, 9])
    dx, dv = lg.grad(lambda x, v: lg.sum(lu.At(x)[[0, 0, 1]].maximum(v)), argnums=(0, 1))(x, v)
    np.testing.assert_allclose(dx.numpy(), [1 / 3, 0])
    np.testing.assert_allclose(dv.numpy(), [1 / 3, 1 / 3, 1])


def test_nan_wins():
    v = np.float32([np.nan, 1])
    check(lambda x: lu.At(x)[[0, 1]].maximum(v), np.float32([0, np.nan]), expected=[np.nan, np.nan])


# -- functions


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_take(axis):
    for indices in (2, [1, -1], [[0], [1]], np.zeros((0, 2), int)):
        check(lambda x, i=indices: li.take(x, i, axis), X[:, :, 0], expected=np.take(X[:, :, 0], indices, axis))
        check_gradient(lambda x, i=indices: li.take(x * x, i, axis), X[:, :, 0].astype(np.float64))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_along_axis(axis):
    x = counting(3, 4)
    order = np.argsort(np.sin(x * 3), axis=axis)
    if axis is not None:
        order = order[:2, :1] if axis == 0 else order[:1, :3]
    values = np.float32(-1) - counting(*order.shape)
    expected = x.copy()
    np.put_along_axis(expected, order, values, axis)
    check(lambda x: li.take_along_axis(x, order, axis), x, expected=np.take_along_axis(x, order, axis))
    check(lambda x, i: li.take_along_axis(x, i, axis), x, order, expected=np.take_along_axis(x, order, axis))
    check_gradient(lambda x: li.take_along_axis(x * x, order, axis), x.astype(np.float64))
    if axis is not None:
        # NumPy broadcasts the indices over the other axes when it writes as well.
        order = np.broadcast_to(order, (2, 4) if axis == 0 else (3, 3))
        values = np.float32(-1) - counting(*order.shape)
        expected = x.copy()
        np.put_along_axis(expected, order, values, axis)
    check(lambda x, v: lu.put_along_axis(x, order, v, axis), x, values, expected=expected)
    check(lambda x, v, i: lu.put_along_axis(x, i, v, axis), x, values, order, expected=expected)
    check_gradient(lambda x, v: lu.put_along_axis(x * x, order, v * v, axis), x.astype(float), values.astype(float))


def test_put_along_axis_keeps_the_last():
    check(lambda v: lu.put_along_axis(np_zeros(1, 2), [[1, 1]], v, 1), np.float32([[3, 4]]), expected=[[0, 4]])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_add(axis):
    x, i = counting(3, 4), np.array([[0, 2], [2, -1]])
    v = np.ones_like(np.take(x, i, axis)) * 2
    expected = np.moveaxis(x.copy(), axis, 0)
    np.add.at(expected, i, np.moveaxis(v, (axis % 2, axis % 2 + 1), (0, 1)))
    check(lambda x, i, v: lu.scatter_add(x, i, v, axis), x, i, v, expected=np.moveaxis(expected, 0, axis))
    check(lambda x: lu.scatter_add(x, i, 2, axis), x, expected=np.moveaxis(expected, 0, axis))
    check_gradient(lambda x, v: lu.scatter_add(x * x, i, v * v, axis), x.astype(float), v.astype(float))


def test_scatter_add_along_axis():
    x, i, v = counting(3, 4), np.array([[0, 2, 0, -1], [0, 1, 1, 1]]), counting(2, 4)
    expected = x.copy()
    for row in range(2):
        for column in range(4):
            expected[i[row, column], column] += v[row, column]
    op = get("scatter_add_along_axis")
    check(lambda x, i, v: apply(op, x, i, v, axis=0), x, i, v, expected=expected)
    check_gradient(lambda x, v: apply(op, x * x, i, v * v, axis=0), x.astype(float), v.astype(float))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: li.take(X, [0, 3], 0), IndexOutOfRangeError),
        (lambda: li.take(X, [0.5], 0), DTypeError),
        (lambda: li.take(X, True, 0), DTypeError),
        (lambda: li.take(X, [0], 3), AxisError),
        (lambda: li.take(counting(0, 3), [0], 0), IndexOutOfRangeError),
        (lambda: li.take_along_axis(X, [[0]], 0), AxisError),
        (lambda: li.take_along_axis(X[0], [[0, 0, 0]], 0), ShapeError),
        (lambda: li.take_along_axis(X[0], [[0, 9]], 0), IndexOutOfRangeError),
        (lambda: lu.put_along_axis(X[0], [[0, 0, 0]], 1, 0), ShapeError),
        (lambda: lu.scatter_add(X, [0, 1], counting(3, 4, 2)), ShapeError),
        (lambda: apply(get("take"), X, np.float32([0]), axis=0), DTypeError),
    ],
)
def test_refusals(call, error):
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_empty_arrays(shape):
    x = counting(*shape)
    for key in (np.s_[:], np.s_[..., None], [], np.zeros(shape, bool), np.s_[::-1]):
        check(lambda x, key=key: getitem(x, key), x, expected=x[key])
        check(lambda x, key=key: lu.updated(x, key, 1, "set"), x, expected=x)
        check_gradient(lambda x, key=key: getitem(x, key) * 2, x.astype(np.float64))


@pytest.mark.parametrize("make", [
    lambda: np.asfortranarray(X), lambda: X.T, lambda: X[::-1, ::2], lambda: np.broadcast_to(X[:1], X.shape),
    lambda: X.astype(">f4"), lambda: X.astype(">i2"), lambda: X.astype(np.complex64),
])  # fmt: skip
def test_arrays_from_outside(make):
    x = make()
    check(lambda v: getitem(v, ([0, -1], slice(None, None, -1))), x, expected=x[[0, -1], ::-1])
    check(lambda v: lu.updated(np_like(x), ..., v, "set"), x, expected=x)


def np_like(x):
    return lg.asarray(np.zeros(x.shape, x.dtype.newbyteorder("=")))


@pytest.mark.parametrize("bad", [np.array(["2020"], "M8[Y]"), np.array([None]), np.zeros(1, [("a", int)])])
def test_arrays_that_do_not_compute(bad):
    for call in (lambda: lg.asarray(bad), lambda: lu.setitem(np_zeros(1), 0, bad), lambda: li.take(bad, 0)):
        with pytest.raises(DTypeError, match=r"do not compute|objects"):
            call()
