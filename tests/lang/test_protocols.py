"""NumPy's functions, ufuncs and conversions on tensors: they reach our ops, traced and deferred, or say they cannot."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.errors import ConcretizationError, DTypeError, UnsupportedError
from lucidgraph.lang import protocols
from lucidgraph.lang.index import getitem
from tests.checking import check, check_gradient

X = np.linspace(-1, 2, 12).astype(np.float32).reshape(3, 4)
I = np.arange(12, dtype=np.int32).reshape(3, 4)  # noqa: E741

SAME = {
    "sum": lambda x: np.sum(x, axis=1, keepdims=True),
    "sum dtype": lambda x: np.sum(x, dtype=np.float64),
    "sum positional": lambda x: np.sum(x, 0),
    "mean dtype": lambda x: np.mean(x, axis=-1, dtype=np.float64),
    "var": lambda x: np.var(x, axis=(0, 1), ddof=1),
    "std": lambda x: np.std(x, 0, keepdims=True),
    "max": lambda x: np.max(x, axis=1),
    "amin": lambda x: np.amin(x),
    "argmax": lambda x: np.argmax(x, axis=0),
    "any": lambda x: np.any(x, axis=0),
    "transpose": lambda x: np.transpose(x, (1, 0)),
    "reshape": lambda x: np.reshape(x, (2, -1)),
    "ravel": np.ravel,
    "concatenate": lambda x: np.concatenate([x, X], axis=1),
    "concatenate dtype": lambda x: np.concatenate([x, x], dtype=np.float64),
    "stack": lambda x: np.stack((x, x), axis=-1),
    "vstack": lambda x: np.vstack([x, x]),
    "where": lambda x: np.where(x > 0, x, -1.0) if isinstance(x, np.ndarray) else np.where(np.greater(x, 0), x, -1.0),
    "clip": lambda x: np.clip(x, -0.5, 1.0),
    "clip one": lambda x: np.clip(x, None, 1.0),
    "squeeze": lambda x: np.squeeze(np.expand_dims(x, 0), axis=0),
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "pad": lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=3),
    "pad edge": lambda x: np.pad(x, 1, mode="edge"),
    "tile": lambda x: np.tile(x, (2, 1)),
    "repeat": lambda x: np.repeat(x, 2, axis=1),
    "roll": lambda x: np.roll(x, 1, axis=0),
    "flip": lambda x: np.flip(x, axis=1),
    "take": lambda x: np.take(x, [2, 0], axis=1),
    "take_along_axis": lambda x: np.take_along_axis(x, np.array([[0, 1, 2, 0]]), axis=0),
    "zeros_like": np.zeros_like,
    "full_like": lambda x: np.full_like(x, 3),
    "tril": lambda x: np.tril(x, k=-1),
    "round": lambda x: np.round(x, 1),
    "copy": np.copy,
    "astype": lambda x: np.astype(x, np.float64),
    "nan_to_num": lambda x: np.nan_to_num(np.log(x), nan=7.0, neginf=-1.0),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "exp": np.exp,
    "add": lambda x: np.add(X, x),
    "add dtype": lambda x: np.add(x, 1, dtype=np.float64),
    "operator": lambda x: X * x + np.float32(2),
    "arctan2": lambda x: np.arctan2(x, 2.0),
    "maximum": lambda x: np.maximum(x, 0.5),
    "power": lambda x: np.power(np.abs(x), 1.5),
    "isnan": lambda x: np.isnan(np.sqrt(x)),
    "add.reduce": lambda x: np.add.reduce(x),
    "multiply.reduce": lambda x: np.multiply.reduce(x, axis=1, keepdims=True, initial=2.0),
    "maximum.reduce": lambda x: np.maximum.reduce(x, axis=None),
    "logical_and.reduce": lambda x: np.logical_and.reduce(x, axis=1),
    "subtract.outer": lambda x: np.subtract.outer(x, np.float32([1, 2])),
}


@pytest.mark.parametrize("name", SAME)
def test_numpys_functions(name):
    with np.errstate(all="ignore"):
        expected = SAME[name](X)
    check(SAME[name], X, expected=expected, dtype=expected.dtype, scale=4)


def test_integers_go_through():
    check(lambda x: np.bitwise_xor(x, 5), I, expected=I ^ 5, dtype="int32")
    check(lambda x: np.left_shift(x, 1), I, expected=I << 1, dtype="int32")
    check(lambda x: np.divmod(x, 5)[1], I, expected=I % 5, dtype="int32")
    check(lambda x: np.argmin(x), I, expected=0, dtype="int64")


def test_gradients_flow_through_numpys_names():
    check_gradient(lambda x: np.sum(np.tanh(np.concatenate([x, x * x])), axis=1), X.astype(np.float64))


def test_the_graph_holds_our_ops():
    graph = lg.trace(lambda x: np.sum(np.exp(x) + X, axis=0), X, passes=())
    assert [node.name for node in graph.nodes] == ["exp", "captured", "add", "sum"]


def test_facts():
    x = lg.asarray(X)
    assert (np.shape(x), np.ndim(x), np.size(x), np.size(x, 0)) == ((3, 4), 2, 12, 3)
    assert not np.iscomplexobj(x)
    assert np.isrealobj(x)
    assert np.result_type(x, np.float64) == np.float64


# -- conversions


def test_asarray():
    x = lg.asarray(X)
    seen = np.asarray(x)
    np.testing.assert_array_equal(seen, X)
    assert seen.dtype == np.float32
    assert not seen.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        seen[0, 0] = 9
    mine = np.array(x)
    mine[0, 0] = 9
    assert getitem(x, (0, 0)).item() == -1
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match=r"cop(y|ied)"):  # where there is a buffer, NumPy itself refuses
        np.asarray(x, dtype=np.float64, copy=False)


@pytest.mark.parametrize("convert", [np.asarray, np.array, lambda x: np.zeros((3, 4)) + np.asarray(x), list])
def test_a_traced_tensor_has_no_value(convert):
    with pytest.raises(ConcretizationError, match=r"test_protocols\.py"):
        lg.trace(convert, X)


def test_dlpack():
    x = lg.asarray(X)
    shared = np.from_dlpack(x)
    np.testing.assert_array_equal(shared, X)
    assert protocols.dlpack_device(x) == (1, 0)
    with pytest.raises(UnsupportedError, match="bfloat16"):
        protocols.dlpack(lg.asarray(X, dtype=lg.bfloat16))
    with pytest.raises(BufferError):
        protocols.dlpack(x, copy=False)
    with pytest.raises(UnsupportedError, match="device"):
        protocols.dlpack(x, dl_device=(2, 0))
    with pytest.raises(UnsupportedError, match="stream"):
        protocols.dlpack(x, stream=1)


def test_buffer():
    view = protocols.buffer(lg.asarray(X), 0)
    assert view.readonly
    assert view.tolist() == X.tolist()
    with pytest.raises(UnsupportedError, match="bfloat16"):
        protocols.buffer(lg.asarray(X, dtype=lg.bfloat16), 0)


def test_namespace():
    x = lg.asarray(X)
    assert x.__array_namespace__() is x.__array_namespace__(api_version="2024.12") is lg
    with pytest.raises(UnsupportedError, match=r"2031\.12"):
        protocols.array_namespace(x, api_version="2031.12")
    assert protocols.to_device(x, "cpu") is x
    with pytest.raises(UnsupportedError):
        protocols.to_device(x, "gpu")


def test_pickle():
    again = pickle.loads(pickle.dumps(lg.asarray(X)))
    np.testing.assert_array_equal(again.numpy(), X)


# -- writing


def test_out():
    x, target, filled = lg.asarray(X), lg.asarray(X * 0), np.zeros((3, 4))
    other = target
    assert np.add(x, 1, out=target) is target
    np.testing.assert_array_equal(other.numpy(), X + 1)
    np.multiply(x, 2, out=filled)
    np.testing.assert_array_equal(filled, X * 2)
    filled += x
    np.testing.assert_array_equal(filled, (X * 2).astype(np.float64) + X)
    np.sum(x, axis=0, out=filled[0])
    np.testing.assert_allclose(filled[0], X.sum(0), rtol=1e-6)
    np.negative(x, out=target, where=X > 0)
    np.testing.assert_array_equal(target.numpy(), np.where(X > 0, -X, X + 1))
    with pytest.raises(DTypeError):
        np.add(x, 1, out=lg.asarray(I))


def test_writing_functions():
    x = lg.asarray(X)
    np.add.at(x, [0, 0], 1)
    expected = X.copy()
    np.add.at(expected, [0, 0], 1)
    np.testing.assert_array_equal(x.numpy(), expected)
    np.copyto(x, 5, where=expected > 1)
    np.testing.assert_array_equal(x.numpy(), np.where(expected > 1, 5, expected))
    np.copyto(x, X)
    np.put_along_axis(x, np.array([[0], [1], [2]]), 9, 1)
    np.put_along_axis(expected := X.copy(), np.array([[0], [1], [2]]), 9, 1)
    np.testing.assert_array_equal(x.numpy(), expected)
    source = np.zeros((3, 4), np.float32)
    np.copyto(source, x)
    np.testing.assert_array_equal(source, expected)


def test_writing_into_numpy_while_tracing_is_refused():
    with pytest.raises(ConcretizationError, match=r"test_protocols\.py"):
        lg.trace(lambda x: np.add(x, 1, out=np.zeros((3, 4))), X)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (np.unwrap, "unwrap"),
        (np.spacing, "spacing"),
        (np.linalg.svd, "svd"),
        (lambda x: np.frexp(x), "frexp"),
        (lambda x: np.add(x, 1, where=X > 0), "without out"),
        (lambda x: np.add.reduce(x, where=X > 0), "where"),
        (lambda x: np.sum(x, where=X > 0), "where"),
        (lambda x: np.sum(x, initial=3), "initial"),
        (lambda x: np.ravel(x, order="F"), "order"),
        (lambda x: np.add.reduceat(x, [0, 1]), "reduceat"),
        (lambda x: np.exp.at(x, 0), "exp"),
        (lambda x: np.less(x, 1, dtype=bool), "dtype"),
    ],
)
def test_what_is_missing_is_named(call, text):
    with pytest.raises(UnsupportedError, match=text) as caught:
        call(lg.asarray(X))
    assert "test_protocols.py" in str(caught.value)


def test_other_peoples_arrays_have_their_say():
    class Other:
        def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
            return "mine"

        def __array_function__(self, func, types, args, kwargs):
            return "mine"

    assert np.add(lg.asarray(X), Other()) == "mine"
    assert np.concatenate([lg.asarray(X), Other()]) == "mine"


def test_membership_is_numpy_s() -> None:
    x = lg.asarray([[1, 2], [3, 4]])
    assert 3 in x and 5 not in x


def test_a_bool_is_no_axis() -> None:
    with pytest.raises(lg.DTypeError, match="keepdims=True"):
        lg.sum(lg.ones((2, 3)), True)
