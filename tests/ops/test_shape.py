"""Moving elements: NumPy's values and shapes, gradients against differences, the edges of each op's normal form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucidgraph as lg
from lucidgraph.errors import AxisError, DTypeError, ShapeError, UnsupportedError
from lucidgraph.ir import TensorType
from lucidgraph.ir.ops.shape import PadBackward, SliceBackward
from lucidgraph.lang import shape as ls
from lucidgraph.lang.index import getitem
from tests.checking import check, check_gradient


def counting(*shape, dtype=np.float32):
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)


X = counting(2, 3, 4)
EMPTY = counting(0, 3)

CASES = {
    "reshape": (lambda x: ls.reshape(x, (4, -1)), lambda x: x.reshape(4, -1), X),
    "reshape int": (lambda x: ls.reshape(x, -1), lambda x: x.reshape(-1), X),
    "reshape 0-d": (lambda x: ls.reshape(x, ()), lambda x: x.reshape(()), counting(1, 1)),
    "reshape empty": (lambda x: ls.reshape(x, (3, 0, 2)), lambda x: x.reshape(3, 0, 2), EMPTY),
    "ravel empty": (ls.ravel, np.ravel, EMPTY),
    "flatten": (lambda x: ls.flatten(x, 1, -1), lambda x: x.reshape(2, 12), X),
    "unflatten": (lambda x: ls.unflatten(x, 2, (2, -1)), lambda x: x.reshape(2, 3, 2, 2), X),
    "broadcast": (lambda x: ls.broadcast_to(x, (2, 3, 4)), lambda x: np.broadcast_to(x, (2, 3, 4)), counting(3, 1)),
    "broadcast empty": (lambda x: ls.broadcast_to(x, (0, 3)), lambda x: np.broadcast_to(x, (0, 3)), counting(1, 3)),
    "permute": (lambda x: ls.permute_dims(x, (2, 0, -2)), lambda x: x.transpose(2, 0, 1), X),
    "transpose": (ls.transpose, np.transpose, X),
    "matrix_transpose": (ls.matrix_transpose, np.matrix_transpose, X),
    "moveaxis": (lambda x: ls.moveaxis(x, (0, -1), (1, 0)), lambda x: np.moveaxis(x, (0, -1), (1, 0)), X),
    "swapaxes": (lambda x: ls.swapaxes(x, 0, -1), lambda x: np.swapaxes(x, 0, -1), X),
    "expand": (lambda x: ls.expand_dims(x, (0, -1, 2)), lambda x: np.expand_dims(x, (0, -1, 2)), X),
    "squeeze": (ls.squeeze, np.squeeze, counting(1, 3, 1)),
    "squeeze one": (lambda x: ls.squeeze(x, -1), lambda x: np.squeeze(x, -1), counting(1, 3, 1)),
    "flip": (ls.flip, np.flip, X),
    "flip one": (lambda x: ls.flip(x, -1), lambda x: np.flip(x, -1), X),
    "flip empty": (ls.flip, np.flip, EMPTY),
    "roll": (lambda x: ls.roll(x, 5), lambda x: np.roll(x, 5), X),
    "roll axes": (lambda x: ls.roll(x, (1, -5), (0, 2)), lambda x: np.roll(x, (1, -5), (0, 2)), X),
    "roll one by several": (lambda x: ls.roll(x, (1, 1), 2), lambda x: np.roll(x, (1, 1), 2), X),
    "roll empty": (lambda x: ls.roll(x, 2, 0), lambda x: np.roll(x, 2, 0), EMPTY),
    "concat": (lambda x: ls.concat([x, ls.flip(x)], 0), lambda x: np.concatenate([x, np.flip(x)]), X),
    "stack": (lambda x: ls.stack([x, x], -1), lambda x: np.stack([x, x], -1), X),
    "hstack": (lambda x: ls.hstack([x, x]), lambda x: np.hstack([x, x]), X),
    "vstack": (lambda x: ls.vstack([x, x]), lambda x: np.vstack([x, x]), counting(3)),
    "atleast_3d": (ls.atleast_3d, np.atleast_3d, counting(2, 3)),
    "pad": (lambda x: ls.pad(x, ((1, 0), (0, 2), (3, 3)), constant_values=7),
            lambda x: np.pad(x, ((1, 0), (0, 2), (3, 3)), constant_values=7), X),
    "pad pair": (lambda x: ls.pad(x, (1, 2)), lambda x: np.pad(x, (1, 2)), X),
    "pad one pair": (lambda x: ls.pad(x, ((1, 2),)), lambda x: np.pad(x, ((1, 2),)), X),
    "pad dict": (lambda x: ls.pad(x, {-1: (1, 2)}), lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2))), X),
    "pad empty": (lambda x: ls.pad(x, 1), lambda x: np.pad(x, 1), EMPTY),
    **{f"pad {mode}": (lambda x, mode=mode: ls.pad(x, ((1, 0), (2, 2), (3, 0)), mode=mode),
                       lambda x, mode=mode: np.pad(x, ((1, 0), (2, 2), (3, 0)), mode=mode), X)
       for mode in ("edge", "reflect", "symmetric", "wrap")},
    "repeat": (lambda x: ls.repeat(x, 3, 1), lambda x: np.repeat(x, 3, 1), X),
    "repeat flat": (lambda x: ls.repeat(x, 2), lambda x: np.repeat(x, 2), X),
    "repeat none": (lambda x: ls.repeat(x, 0, 1), lambda x: np.repeat(x, 0, 1), X),
    "repeat counts": (lambda x: ls.repeat(x, [2, 0, 1], 1), lambda x: np.repeat(x, [2, 0, 1], 1), X),
    "tile": (lambda x: ls.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)), X),
    "tile longer": (lambda x: ls.tile(x, (2, 1, 1, 2)), lambda x: np.tile(x, (2, 1, 1, 2)), X),
    "tile shorter": (lambda x: ls.tile(x, 2), lambda x: np.tile(x, 2), X),
    "tile none": (lambda x: ls.tile(x, 0), lambda x: np.tile(x, 0), X),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_equals_numpy(name):
    ours, numpys, x = CASES[name]
    check(ours, x, expected=numpys(x), dtype=x.dtype)


@pytest.mark.parametrize("name", CASES)
def test_gradient(name):
    ours, _, x = CASES[name]
    check_gradient(lambda v: ours(v * v), np.asarray(x[..., :2] if name == "hstack" else x, np.float64) / 7)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float64", "complex64"])
def test_movement_is_exact_in_every_dtype(dtype):
    x = counting(2, 3).astype(lg.dtypes.as_dtype(dtype).numpy)
    check(lambda v: ls.pad(ls.flip(ls.transpose(v)), 1), x, expected=np.pad(np.flip(x.T), 1), dtype=dtype)


def test_parts():
    x = counting(7, 2)
    for how in (3, [2, 5], [5, 2], [-1], [0, 100], np.array([1])):
        for got, want in zip(ls.array_split(x, how), np.array_split(x, how), strict=True):
            np.testing.assert_array_equal(got.numpy(), want)
    for got, want in zip(ls.split(x, 2, axis=-1), np.split(x, 2, axis=-1), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
    assert [a.tolist() for a in ls.unstack(x, 1)] == [x[:, 0].tolist(), x[:, 1].tolist()]


def test_concat_promotes():
    check(lambda a, b: ls.concat([a, b]), np.int8([1]), np.uint8([200]), expected=np.int16([1, 200]), dtype="int16")
    check(lambda a, b: ls.stack([a, b]), np.float16([1]), np.float32([2]), expected=[[1.0], [2.0]], dtype="float32")
    check(lambda a: ls.concat([a, a], axis=None), counting(2, 2), expected=[0, 1, 2, 3] * 2)


def test_concat_gives_each_operand_its_part():
    check_gradient(
        lambda a, b, c: ls.concat([a * getitem(b, np.s_[:, :1]), b, c], 1),
        np.ones((2, 3)), np.ones((2, 2)), np.ones((2, 0)),
    )  # fmt: skip


def test_broadcast_arrays():
    a, b = ls.broadcast_arrays(counting(3, 1), counting(4))
    assert a.shape == b.shape == ls.broadcast_shapes((3, 1), 4) == (3, 4)


def test_equal_broadcast_has_no_reduction_in_its_gradient():
    joint = lg.trace(lambda x: ls.broadcast_to(x, (2, 3)), counting(2, 3)).backward()
    assert "sum" not in {node.name for node in joint.nodes}


@st.composite
def axis_slices(draw):
    size = draw(st.integers(0, 6))
    bound = st.none() | st.integers(-8, 8)
    part = slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, 7, -1, -2, -3, -7])))
    return size, part


@given(axis_slices(), axis_slices())
def test_slices_and_their_gradient(first, second):
    """The gradient of a slice puts ones at its places and zeros elsewhere; the gradient of that is the slice again."""
    shape, key = (first[0], second[0]), (first[1], second[1])
    x = counting(*shape)
    weights = counting(*x[key].shape) + 1
    expected = np.zeros_like(x)
    expected[key] = weights
    tensor = lg.asarray(x)
    np.testing.assert_array_equal(getitem(tensor, key).numpy(), x[key])
    np.testing.assert_array_equal(lg.grad(lambda v: lg.sum(getitem(v, key) * weights))(tensor).numpy(), expected)

    def twice(v):
        return lg.sum(lg.grad(lambda u: lg.sum(getitem(u, key) * weights * getitem(u * u, key)))(v))

    inner = np.zeros_like(x)
    inner[key] = 6 * x[key] * weights
    np.testing.assert_allclose(lg.grad(twice)(tensor).numpy(), inner)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=3))
def test_pad_inside_and_outside(axes):
    """Padding of both kinds, with the gradients of the operand and of the value."""
    shape, low, high, interior = (tuple(axis[k] for axis in axes) for k in range(4))
    x = counting(*shape) + 1
    expected = np.full([a + n + max(n - 1, 0) * i + b for n, a, b, i in axes], -1, np.float32)
    expected[tuple(slice(a, a + n + max(n - 1, 0) * i, i + 1) for n, a, _, i in axes)] = x

    def padded(v, value):
        return ls.apply(PadBackward, v, value, low=low, high=high, interior=interior)

    np.testing.assert_array_equal(padded(lg.asarray(x), lg.asarray(np.float32(-1))).numpy(), expected)
    dx, dvalue = lg.grad(lambda v, value: lg.sum(padded(v, value) * expected), argnums=(0, 1))(x, np.float32(-1))
    np.testing.assert_array_equal(dx.numpy(), x)
    assert dvalue.item() == -np.sum(expected == -1)


def test_gradient_of_the_pad_value_does_not_cancel():
    """What lies where x is does not enter, however large."""
    value = lg.grad(lambda v: lg.sum(ls.pad(np.float32([1]), (1, 1), constant_values=v) * np.float32([1, 1e30, 2])))
    assert value(lg.asarray(np.float32(0))).item() == 3.0
    value = lg.grad(lambda v: lg.sum(ls.pad(np.float32([1]), (1, 1), constant_values=v) * np.float32([1, np.inf, 2])))
    assert value(lg.asarray(np.float32(0))).item() == 3.0


def test_pad_second_order():
    check_gradient(
        lambda x, v: ls.apply(PadBackward, x * x, v * v, low=(1, 0), high=(0, 2), interior=(2, 1)),
        np.linspace(1, 2, 6).reshape(2, 3), np.asarray(1.5),
    )  # fmt: skip


@pytest.mark.parametrize("part", [(0, 3, 0), (2, 1, 1), (3, 4, 1), (0, 4, 1), (-1, 3, 1), (2, -2, -1), (4, 4, 1)])
def test_a_slice_out_of_normal_form_is_refused(part):
    start, stop, step = ((k,) for k in part)
    with pytest.raises(ShapeError, match="normal form"):
        SliceBackward.infer(TensorType((3,), lg.float32), start=start, stop=stop, step=step)


def test_astype():
    check(lambda x: ls.astype(x, "int8"), np.float32([1.9, -1.9, 0]), expected=np.int8([1, -1, 0]), dtype="int8")
    check(lambda x: ls.astype(x, bool), np.float32([0.5, -0.0, np.nan]), expected=[True, False, True], dtype="bool")
    x = lg.asarray([1.0])
    assert ls.astype(x, lg.float32, copy=False) is x
    assert ls.astype(x, lg.float32) is not x
    with pytest.raises(DTypeError, match="imaginary"):
        ls.astype(np.complex64([1j]), lg.float32)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ls.reshape(X, (5, -1)), ShapeError, "24 elements"),
        (lambda: ls.reshape(X, (-1, -1)), ShapeError, "one -1"),
        (lambda: ls.reshape(X, (-2, -12)), ShapeError, "negative"),
        (lambda: ls.reshape(EMPTY, (0, -1)), ShapeError, "do not fill"),
        (lambda: ls.broadcast_to(X, (3, 4)), ShapeError, "cannot be broadcast"),
        (lambda: ls.broadcast_shapes((2,), (3,)), ShapeError, "broadcast"),
        (lambda: ls.permute_dims(X, (0, 1)), AxisError, "every axis"),
        (lambda: ls.permute_dims(X, (0, 1, -2)), AxisError, "every axis"),
        (lambda: ls.squeeze(X, 0), ShapeError, "not 1"),
        (lambda: ls.expand_dims(X, (0, 0)), AxisError, "twice"),
        (lambda: ls.moveaxis(X, (0, 1), (1,)), AxisError, "equally many"),
        (lambda: ls.matrix_transpose(counting(3)), ShapeError, "matrices"),
        (lambda: ls.concat([]), ShapeError, "at least one"),
        (lambda: ls.concat([X, counting(2, 3)]), ShapeError, "differ"),
        (lambda: ls.concat([np.float32(1), np.float32(2)]), ShapeError, "0-d"),
        (lambda: ls.stack([X, EMPTY]), ShapeError, "one shape"),
        (lambda: ls.split(X, 2, axis=1), ShapeError, "equal parts"),
        (lambda: ls.pad(X, -1), ShapeError, "negative"),
        (lambda: ls.pad(X, ((1, 1), (2, 2))), ShapeError, "2 widths for 3 axes"),
        (lambda: ls.pad(X, 1, mode="mean"), UnsupportedError, "mean"),
        (lambda: ls.repeat(X, [1, 2], 1), ShapeError, "one per element"),
        (lambda: ls.repeat(X, -1), ShapeError, "negative"),
        (lambda: ls.tile(X, -1), ShapeError, "negative"),
        (lambda: ls.roll(X, (1, 2, 3), (0, 1)), ShapeError, "equally many"),
    ],
)
def test_refusals_name_the_line(call, error, text):
    with pytest.raises(error, match=text) as caught:
        call()
    assert "test_shape.py" in str(caught.value)


def test_results_are_new_tensors():
    x = lg.asarray(X)
    for fn in (ls.copy, ls.atleast_1d, lambda v: ls.roll(v, 0, 0), lambda v: ls.pad(v, 0, mode="edge"), ls.squeeze):
        assert fn(x) is not x
