"""A user's mistakes: each a clear error of a named kind with the user's line, and everything as before afterwards."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.errors import LucidGraphError
from tests.checking import BACKENDS, on_backend

X = np.arange(6, dtype=np.float32).reshape(2, 3)
I = np.arange(3)  # noqa: E741



BAD: dict[str, tuple[type[Exception], str, Callable[[Any], Any]]] = {
    "shapes": (lg.ShapeError, r"add cannot broadcast shapes \(2, 3\) and \(2,\)", lambda x: x + x[:, 0]),
    "matmul": (lg.ShapeError, "matmul", lambda x: x @ x),
    "vectors": (lg.ShapeError, ".", lambda x: x[0] @ x[:, 0]),
    "reshape": (lg.ShapeError, "reshape", lambda x: lg.reshape(x, (4, 2))),
    "two unknown": (lg.ShapeError, ".", lambda x: lg.reshape(x, (-1, -1))),
    "broadcast_to": (lg.ShapeError, ".", lambda x: lg.broadcast_to(x, (2, 4))),
    "concat": (lg.ShapeError, "concat", lambda x: lg.concat([x, x[:, :1]], axis=0)),
    "stack": (lg.ShapeError, ".", lambda x: lg.stack([x, x[0]])),
    "negative size": (lg.ShapeError, "negative", lambda x: lg.zeros((-1,)) + x[0, 0]),
    "squeeze": (lg.ShapeError, "squeeze", lambda x: lg.squeeze(x, 0)),
    "axis": (lg.AxisError, "sum: axis 2 is out of range for 2 axes", lambda x: lg.sum(x, axis=2)),
    "negative axis": (lg.AxisError, "axis -3", lambda x: lg.max(x, axis=(0, -3))),
    "axis twice": (lg.AxisError, "twice", lambda x: lg.mean(x, axis=(1, -1))),
    "axis kind": (lg.DTypeError, "integer", lambda x: lg.sum(x, axis=1.5)),
    "axis text": (lg.DTypeError, "integer", lambda x: lg.sum(x, axis="rows")),
    "permutation": (lg.AxisError, ".", lambda x: lg.permute_dims(x, (0, 0))),
    "softmax axis": (lg.AxisError, "softmax", lambda x: lg.softmax(x, axis=2)),
    "too many indices": (IndexError, ".", lambda x: x[0, 0, 0]),
    "index": (lg.IndexOutOfRangeError, "index 5 is out of range", lambda x: x[5]),
    "index array": (lg.IndexOutOfRangeError, "3", lambda x: lg.take(x, np.array([0, 3]), axis=1)),
    "float index": (lg.DTypeError, ".", lambda x: x[1.5]),
    "text index": (lg.DTypeError, ".", lambda x: x["a"]),
    "step": (LucidGraphError, ".", lambda x: x[::0]),
    "dtype": (lg.DTypeError, "is not supported", lambda x: lg.astype(x, "quarter")),
    "object dtype": (lg.DTypeError, "is not supported", lambda x: lg.astype(x, object)),
    "bits of floats": (lg.DTypeError, ".", lambda x: x & x),
    "objects": (lg.DTypeError, ".", lambda x: x + np.array([object()] * 3)),
    "structured": (lg.DTypeError, "do not compute", lambda x: x * np.zeros(3, "f4,f4")),
    "dates": (lg.DTypeError, "datetime64", lambda x: lg.maximum(x, np.array(["2020-01-01"] * 3, "M8[D]"))),
    "text array": (lg.DTypeError, ".", lambda x: x + np.array(["a", "b", "c"])),
    "ragged": (lg.ShapeError, "unequal", lambda x: lg.add(x, [[1, 2, 3], [1]])),
    "ragged tensors": (lg.ShapeError, "do not make one array", lambda x: lg.asarray([x, x[0]])),
    "nonsense": (lg.DTypeError, ".", lambda x: lg.add(x, object())),
    "none": (lg.DTypeError, "NoneType", lambda x: lg.add(x, None)),
    "attribute": (LucidGraphError, ".", lambda x: lg.nn.gelu(x, approximate="almost")),
    "pad mode": (LucidGraphError, ".", lambda x: lg.pad(x, 1, mode="sideways")),
    "norm order": (LucidGraphError, ".", lambda x: lg.linalg.vector_norm(x, ord="many")),
    "einsum": (LucidGraphError, ".", lambda x: lg.einsum("ij,jk->ik", x, x)),
    "einsum text": (LucidGraphError, ".", lambda x: lg.einsum("i$", x)),
    "split": (LucidGraphError, ".", lambda x: lg.split(x, 2, axis=1)),
    "complex order": (lg.DTypeError, "not ordered", lambda x: (x * 1j) < 1),
    "no axis to iterate": (TypeError, "0-d", lambda x: list(lg.sum(x))),
    "empty max": (lg.AxisError, "empty", lambda x: lg.max(x[:, :0], axis=1)),
    "power": (lg.DTypeError, "-1", lambda x: lg.astype(x, lg.int32) ** -1),
    "write": (lg.ShapeError, "does not go", lambda x: x.at[0].set(lg.ones(2))),
    "write shape": (lg.ShapeError, ".", lambda x: lg.lang.update.setitem(x, (slice(None), 0), np.ones(3))),
    "in place shape": (lg.ShapeError, "does not go into", lambda x: x[0].__iadd__(x)),
    "in place kind": (lg.DTypeError, "does not go into", lambda x: lg.astype(x, int).__iadd__(1.5)),
    "numpy function": (lg.UnsupportedError, "numpy.unwrap", lambda x: np.unwrap(x)),
    "numpy argument": (lg.UnsupportedError, "numpy.", lambda x: np.sum(x, where=X > 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("how", ["compiled", "deferred", "differentiated"])
def test_bad_input(name: str, how: str) -> None:
    kind, message, fn = BAD[name]
    good = [True]

    def user(x: Any) -> Any:
        return x * 2 if good[0] else fn(x)

    compiled = lg.compile(user, backend="reference")
    before = compiled(X).tolist()
    good[0] = False
    run: Callable[[], Any] = {
        "compiled": lambda: compiled(X.copy()),
        "deferred": lambda: user(lg.asarray(X)).numpy(),
        "differentiated": lambda: lg.grad(lambda x: lg.sum(user(x)))(X),
    }[how]
    with pytest.raises(kind, match=message) as caught:
        run()
    error = caught.value
    assert isinstance(error, LucidGraphError), repr(error)
    assert not isinstance(error, NotImplementedError | AttributeError)
    assert error.source is not None and error.source.file == __file__
    assert "  at test_errors.py:" in str(error)
    assert compiled.cache_info().currsize == 1
    good[0] = True
    assert compiled(X).tolist() == before and user(lg.asarray(X)).tolist() == before


@pytest.mark.parametrize(
    "value",
    [np.array([object()]), np.zeros(2, "f4,i4"), np.array(["2020"], "M8[Y]"), np.array(["a"]), np.zeros(1, "m8[s]"),
     np.zeros(1, np.longdouble)],
    ids=lambda v: str(v.dtype),
)  # fmt: skip
def test_arrays_that_do_not_compute_as_arguments(value: np.ndarray) -> None:
    f = lg.compile(lambda x: x, backend="reference")
    takers: list[Callable[[Any], Any]] = [f, lg.asarray, lg.grad(lambda x: x), lg.sum]
    for take in takers:
        with pytest.raises(TypeError) as caught:
            take(value)
        assert str(value.dtype) in str(caught.value) and "at test_errors.py" in str(caught.value)
    assert f.cache_info().currsize == 0


@pytest.mark.parametrize("value", [[[1, 2], [3]], [1, [2]], [object()], [None], ["a"], {}, {1, 2}, print, "text"])
def test_asarray_of_what_is_no_array(value: Any) -> None:
    with pytest.raises((lg.ShapeError, lg.DTypeError), match=r"at test_errors.py"):
        lg.asarray(value)


def test_backend_that_does_not_exist() -> None:
    for run in (
        lambda: lg.compile(lambda x: x, backend="cuda"),
        lambda: lg.trace(lambda x: x, X).run(X, backend="cuda"),
    ):
        with pytest.raises(lg.BackendError, match=r"no backend is called 'cuda'.*\n.*test_errors.py") as caught:
            run()
        assert "reference" in str(caught.value)


def test_configured_backend_that_does_not_exist() -> None:
    with on_backend("nonsense"), pytest.raises(lg.BackendError, match="no backend is called 'nonsense'"):
        (lg.asarray(X) + 1).numpy()
    assert (lg.asarray(X) + 1).numpy()[0, 0] == 1


@pytest.mark.skipif("mlx" not in BACKENDS, reason="mlx does not work here")
def test_dtype_that_a_backend_has_not() -> None:
    def fn(x: Any) -> Any:
        return lg.sum(x * 1j)

    f = lg.compile(fn, backend="mlx")
    with pytest.raises(lg.DTypeError, match="mlx backend has no complex128") as caught:
        f(np.ones(2))
    assert caught.value.source is not None and caught.value.source.file == __file__
    assert f.cache_info().currsize == 0
    with on_backend("mlx"), pytest.raises(lg.DTypeError, match="complex128"):
        fn(lg.asarray(np.ones(2))).numpy()
    assert f(np.ones(2, np.float32)) == 2j


@pytest.mark.parametrize("backend", [b for b in BACKENDS if b != "mlx"])
def test_index_that_is_data_names_the_line(backend: str) -> None:
    f = lg.compile(lambda x, k: lg.take(x, k, axis=1), backend=backend)
    assert f(X, np.array([0, -1])).tolist() == [[0, 2], [3, 5]]
    with pytest.raises(lg.IndexOutOfRangeError, match=r"3.*\n.*test_errors.py.*lambda x, k: lg.take"):
        f(X, np.array([0, 3]))
    assert f(X, np.array([2, 1])).tolist() == [[2, 1], [5, 4]]
    with on_backend(backend):
        y = lg.take(lg.asarray(X), lg.asarray([7]) * 1, axis=1)
        with pytest.raises(lg.IndexOutOfRangeError, match=r"7.*\n.*test_errors.py.*y = lg.take"):
            y.numpy()


def test_users_exceptions_keep_their_type_and_traceback() -> None:
    class MineError(Exception):
        pass

    def fail(x: Any) -> Any:
        raise MineError("here")

    for run in (
        lambda: lg.compile(fail, backend="reference")(X), lambda: lg.grad(fail)(X), lambda: lg.trace(fail, X),
        lambda: lg.vjp(fail, X), lambda: lg.compile(lg.grad(fail), backend="reference")(X),
    ):  # fmt: skip
        with pytest.raises(MineError, match=r"^here$") as caught:
            run()
        assert caught.traceback[-1].name == "fail"


def test_what_is_no_function() -> None:
    for run in (lg.compile, lg.grad, lg.value_and_grad, lg.trace, lg.vjp):
        with pytest.raises(lg.DTypeError, match="takes a function, not int: 3"):
            run(3)


def test_options_that_do_not_exist() -> None:
    for options in ({"autocast": "float64"}, {"autocast": lg.float32}, {"autocast": 3}, {"frontend": "torch"}):
        with pytest.raises((lg.DTypeError, lg.UnsupportedError), match=r"at test_errors.py"):
            lg.compile(lambda x: x, **options)
    with pytest.raises(lg.DTypeError, match="float16 or bfloat16"):
        lg.autocast(lg.float32)


def test_missing_and_unknown_arguments_are_pythons_errors() -> None:
    f = lg.compile(lambda x, y: x, backend="reference")
    for args, kwargs in (((X,), {}), ((X, X, X), {}), ((X, X), {"z": 1})):
        with pytest.raises(TypeError, match="argument"):
            f(*args, **kwargs)
    assert f.cache_info().currsize == 0


# -- values that do not exist yet

ASKING: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "int": int,
    "complex": complex,
    "bool": bool,
    "if": lambda x: x if lg.all(x > 0) else -x,
    "while": lambda x: [None for _ in iter(lambda: bool(lg.sum(x) > 0), False)],
    "and": lambda x: (x > 0) and (x < 1),
    "iteration": list,
    "unpacking": lambda x: (lambda a, b: a)(*x),
    "f-string": lambda x: f"{x}",
    "format": lambda x: f"{lg.sum(x):.2f}",
    "str": str,
    "print": print,
    "percent": lambda x: "%s" % x,  # noqa: UP031
    "asarray": np.asarray,
    "array": lambda x: np.array(x, dtype=np.float32),
    "item": lambda x: lg.sum(x).item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "eval": lambda x: lg.eval([x]),
    "math": lambda x: __import__("math").sqrt(lg.sum(x)),
    "index": lambda x: [1, 2, 3][lg.argmax(lg.ravel(x))],
    "range": lambda x: range(lg.argmax(lg.ravel(x))),
    "in": lambda x: 3.0 in [lg.sum(x)],
    "max": lambda x: max(x[0, 0], x[0, 1]),
    "sorted": lambda x: sorted([x[0, 0], x[0, 1]]),
    "shape": lambda x: lg.zeros((lg.argmax(lg.ravel(x)),)),
    "assert": lambda x: (_ for _ in ()).throw(AssertionError) if not (x[0] == 0).all() else x,
    "pickle": pickle.dumps,
    "slice": lambda x: x[: lg.argmax(lg.ravel(x))],
    "mlx": lambda x: x.mlx(),
    "bytes": lambda x: bytes(np.asarray(x)),
}


@pytest.mark.parametrize("name", ASKING)
def test_values_asked_for_while_tracing(name: str) -> None:
    fn = ASKING[name]

    def user(x: Any) -> Any:
        y = x * 2
        fn(y)
        return y

    f = lg.compile(user, backend="reference")
    for run in (lambda: f(X), lambda: lg.trace(user, X), lambda: lg.compile(lg.grad(lambda x: lg.sum(user(x))))(X)):
        with pytest.raises(lg.ConcretizationError, match="is being traced and no value exists") as caught:
            run()
        assert isinstance(caught.value, TypeError)
        assert caught.value.source is not None and caught.value.source.file == __file__
        assert "made at test_errors.py" in str(caught.value)
    assert f.cache_info().currsize == 0


def test_what_is_known_while_tracing() -> None:
    seen: list[Any] = []

    @lg.compile(backend="reference")
    def f(x: Any) -> Any:
        y = lg.sum(x, axis=0, keepdims=True)
        seen.extend([len(x), x.shape, x.ndim, x.size, x.dtype, x.T.shape, repr(y), repr([y]), bool(x.shape), y.nbytes])
        seen.append(hash(x) == hash(x) and x in [x])
        return y

    f(X)
    line = seen.pop(6)
    assert line.startswith("<traced float32[1,3] sum at test_errors.py:")
    assert seen == [2, (2, 3), 2, 6, lg.float32, (3, 2), f"[{line}]", True, 12, True]


def test_repr_of_a_traced_tensor_never_raises() -> None:
    kept: list[Any] = []

    def f(x: Any, n: Any) -> Any:
        kept.extend([x, n, x + 1, lg.asarray([1.0]), lg.asarray(3.0), n * 2, x.at, lg.zeros(())])
        [repr(v) for v in kept]
        return x

    lg.trace(f, X, 2.0)
    assert all("traced" in repr(v) or "At" in repr(v) for v in kept)


# -- traced values that got away


LEAKS: dict[str, Callable[[Any], Any]] = {
    "add": lambda leak: leak + 1,
    "sum": lg.sum,
    "float": float,
    "str": str,
    "f-string": lambda leak: f"{leak}",
    "iteration": lambda leak: next(iter(leak)),
    "asarray": np.asarray,
    "list": lambda leak: lg.asarray([leak]),
    "eval": lg.eval,
    "tolist": lambda leak: leak.tolist(),
    "write": lambda leak: lg.lang.update.setitem(leak, 0, 1.0),
    "captured": lambda leak: lg.compile(lambda x: x + leak, backend="reference")(X),
    "argument": lambda leak: lg.compile(lambda x: x + 1, backend="reference")(leak),
    "in a gradient": lambda leak: lg.grad(lambda x: x * leak)(1.0),
    "differentiated": lambda leak: lg.grad(lg.sum)(leak),
    "run": lambda leak: lg.trace(lambda x: x, X).run(leak),
}


@pytest.mark.parametrize("use", LEAKS)
@pytest.mark.parametrize("how", ["compiled", "traced"])
def test_leaked_tracers(use: str, how: str) -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x * 2)
        return x

    if how == "compiled":
        lg.compile(f, backend="reference")(X)
    else:
        lg.trace(f, X)
    (leak,) = kept
    message = r"a float32\[2,3\] made at test_errors.py:\d+ while tracing .*f is used after that trace ended"
    with pytest.raises(lg.LeakedTracerError, match=message):
        LEAKS[use](leak)
    assert repr(leak).startswith("<traced float32[2,3] multiply at test_errors.py") and leak.shape == (2, 3)


def test_gradient_of_an_eager_function_leaks_nothing() -> None:
    kept: list[Any] = []
    lg.grad(lambda x: (kept.append(x * 2), lg.sum(x))[1])(X)
    assert (kept[0] + 1).tolist() == (X * 2 + 1).tolist()


def test_pullback_that_outlives_its_trace() -> None:
    kept: list[Any] = []

    @lg.compile(backend="reference")
    def f(x: Any) -> Any:
        out, pullback = lg.vjp(lambda y: y * y, x)
        kept.append(pullback)
        return out

    f(X)
    with pytest.raises(lg.LeakedTracerError):
        kept[0](X)


def test_value_of_another_open_trace() -> None:
    def outer(x: Any) -> Any:
        lg.trace(lambda y: y + x, X)
        return x

    with pytest.raises(lg.ConcretizationError, match="is used inside another trace"):
        lg.trace(outer, X)


def test_writes_to_tensors_from_outside_while_tracing() -> None:
    w = lg.asarray(X)

    def f(x: Any) -> Any:
        w[0] = 5.0
        return x

    with pytest.raises(lg.UnsupportedError, match=r"write to a float32\[2,3\] from outside"):
        lg.compile(f, backend="reference")(X)
    assert w.tolist() == X.tolist()


# -- errors themselves


def test_errors_say_what_where_and_what_to_try() -> None:
    with pytest.raises(lg.AxisError) as caught:
        lg.sum(lg.asarray(X), axis=7)
    what, where, hint = str(caught.value).splitlines()
    assert what == "sum: axis 7 is out of range for 2 axes"
    assert where.startswith("  at test_errors.py:") and where.endswith(": lg.sum(lg.asarray(X), axis=7)")
    assert hint == "  try: an axis from -2 to 1"


@pytest.mark.parametrize(
    "error, builtins",
    [
        (lg.ShapeError, (ValueError,)), (lg.AxisError, (ValueError, IndexError)), (lg.DTypeError, (TypeError,)),
        (lg.ConcretizationError, (TypeError,)), (lg.LeakedTracerError, (RuntimeError,)),
        (lg.NotDifferentiableError, (TypeError,)), (lg.UnsupportedError, (TypeError,)),
        (lg.IndexOutOfRangeError, (IndexError,)), (lg.VerifyError, (RuntimeError,)), (lg.PassError, (RuntimeError,)),
        (lg.BackendError, (RuntimeError,)),
    ],
)  # fmt: skip
def test_errors_are_builtins_too_and_pickle(error: type[LucidGraphError], builtins: tuple[type, ...]) -> None:
    assert issubclass(error, (lg.LucidGraphError, *builtins)) and all(issubclass(error, b) for b in builtins)
    one = error("what", hint="this")
    again = pickle.loads(pickle.dumps(one))
    assert type(again) is error and str(again) == str(one) and again.source == one.source and again.hint == "this"


# -- graphs


def test_graph_run_takes_what_its_inputs_are() -> None:
    graph = lg.trace(lambda x, n: x * n + 1, np.array([1, 2], np.int32), 3)
    assert graph.run(np.array([1, 2], np.int32), 2)[0].tolist() == [3, 5]
    assert graph.run([1, 2], 2)[0].tolist() == [3, 5]
    assert graph.run(lg.asarray(np.array([1, 2], np.int32)) + 0, 2)[0].tolist() == [3, 5]
    for args, kind in (
        ((np.array([1.5, 2.5]), 2), lg.DTypeError), ((np.array([1, 2]), 2), lg.DTypeError),
        ((np.array([1], np.int32), 2), lg.ShapeError), ((np.array([1, 2], np.int32),), lg.ShapeError),
        (([2**40, 1], 2), OverflowError), (("ab", 2), lg.DTypeError), ((None, 2), lg.DTypeError),
    ):  # fmt: skip
        with pytest.raises(kind):
            graph.run(*args)


@pytest.mark.parametrize("form", ["{} {}", "{name}", "{:d}", "{0.nothing}", "{"])
def test_a_format_that_does_not_fit_its_values_is_refused_before_anything_runs(form: str) -> None:
    x = np.ones((), np.float32)

    def f(x: Any) -> Any:
        lg.debug_print(form, x)
        return x

    for run in (lambda: lg.compile(f)(x), lambda: lg.debug_print(form, x)):
        with pytest.raises(lg.DTypeError, match=r"debug_print cannot put float32\[\](.|\n)*test_errors.py"):
            run()


def test_masked_arrays_are_refused() -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for run in (lg.asarray, lg.sum, lg.compile(lambda x: x), lambda x: lg.trace(lambda: lg.sum(x))):
        with pytest.raises(lg.DTypeError, match="masked arrays"):
            run(masked)


@pytest.mark.parametrize("count", [1.5, "2", None])
def test_a_number_of_threads_that_is_no_integer_changes_nothing(count: Any) -> None:
    with pytest.raises(lg.DTypeError, match="set_threads takes an integer"):
        lg.set_threads(count)
    assert lg.compile(lambda x: x + 1, backend="auto")(np.ones(3, np.float32)).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "donate, error",
    [(("x",), lg.DTypeError), ((-1,), lg.AxisError), ((1,), lg.AxisError), ((0.0,), lg.DTypeError)],
)
def test_donated_arguments_are_positions(donate: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="donate"):
        lg.compile(lambda x: x + 1, donate=donate)
