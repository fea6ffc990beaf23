"""grad, value_and_grad, vjp, stop_gradient: forms, orders, composition with compiled functions, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.ir import AmpPolicy, OpSchema
from tests.checking import BACKENDS, check_gradient, on_backend

each_backend = pytest.mark.parametrize("backend", BACKENDS)
A = np.array([1.0, 2.0, 3.0], np.float32)
B = np.array([4.0, 5.0, 6.0], np.float32)


@pytest.fixture(autouse=True)
def reference() -> Any:
    with on_backend("reference"):
        yield


def dot(a: Any, b: Any) -> Any:
    return lg.sum(a * a * b)


DA, DB = 2 * A * B, A * A


def both(fn: Any, *args: Any) -> list[Any]:
    """A function's result compiled and deferred."""
    return [lg.compile(fn, backend="reference")(*args), fn(*args)]


# -- forms


def test_forms_of_argnums() -> None:
    for g in both(lg.grad(dot), A, B):
        assert g.tolist() == DA.tolist()
    for g in both(lg.grad(dot, argnums=1), A, B) + both(lg.grad(dot, -1), A, B):
        assert g.tolist() == DB.tolist()
    for g in both(lg.grad(dot, (0, 1)), A, B):
        assert type(g) is tuple and [v.tolist() for v in g] == [DA.tolist(), DB.tolist()]
    for g in both(lg.grad(dot, argnums=[1, 0]), A, B):
        assert [v.tolist() for v in g] == [DB.tolist(), DA.tolist()]
    for g in both(lg.grad(dot, (0,)), A, B):
        assert type(g) is tuple and len(g) == 1
    for g in both(lg.grad(dot, ()), A, B):
        assert g == ()


@pytest.mark.parametrize(
    "argnums, kind, message",
    [
        (2, lg.AxisError, "names argument 2, the function was given 2"), (-3, lg.AxisError, "names argument -3"),
        ((0, 0), lg.AxisError, "twice"), ((1, -1), lg.AxisError, "twice"), ("a", lg.DTypeError, "integers"),
        (1.0, lg.DTypeError, "integers"), ((0, True), lg.DTypeError, "integers"), (None, lg.DTypeError, "integers"),
    ],
)  # fmt: skip
def test_argnums_that_make_no_sense(argnums: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        lg.grad(dot, argnums)(A, B)


def test_arguments_by_name_and_default() -> None:
    def fn(a: Any, *, b: Any = 2.0, names: Any = ("x",)) -> Any:
        return lg.sum(a * b) * len(names)

    for g in both(lambda a, b: lg.grad(fn)(a, b=b, names=("x", "y")), A, B) + both(lambda a, b: lg.grad(fn)(a), A, B):
        assert g.tolist() in ([8, 10, 12], [2, 2, 2])
    with pytest.raises(lg.AxisError, match="was given 0 by position"):
        lg.grad(fn)(a=A)


def test_value_and_grad_and_aux() -> None:
    def fn(a: Any) -> Any:
        y = a * 2
        return lg.sum(y), {"y": y, "n": len(a), "text": "t"}

    for value, g in both(lg.value_and_grad(dot), A, B):
        assert value.item() == (A * A * B).sum()
        assert g.tolist() == DA.tolist()
    for g, aux in both(lg.grad(fn, has_aux=True), A):
        assert g.tolist() == [2, 2, 2] and aux["y"].tolist() == [2, 4, 6] and aux["n"] == 3 and aux["text"] == "t"
    for (value, aux), g in both(lg.value_and_grad(fn, has_aux=True), A):
        assert value.item() == 12 and g.tolist() == [2, 2, 2] and aux["y"].tolist() == [2, 4, 6]
    with pytest.raises(lg.DTypeError, match="has_aux"):
        lg.grad(dot, has_aux=True)(A, B)


def test_aux_of_an_eager_gradient_is_an_ordinary_value() -> None:
    _, y = lg.grad(lambda a: (lg.sum(a * a), a * 3), has_aux=True)(A)
    assert lg.compile(lambda v: v + 1, backend="reference")(y).tolist() == [4, 7, 10]
    assert (y + 1).tolist() == [4, 7, 10] and y.tolist() == [3, 6, 9]


def test_vjp() -> None:
    def pulled(a: Any, b: Any) -> Any:
        out, pullback = lg.vjp(lambda a, b: {"p": a * b, "q": a[0]}, a, b)
        return out, pullback({"p": lg.asarray([1.0, 10.0, 100.0]), "q": 7.0}), pullback({"p": lg.zeros(3), "q": 1.0})

    for out, (da, db), (ea, _) in both(pulled, A, B):
        assert out["p"].tolist() == [4, 10, 18] and out["q"].item() == 1
        assert da.tolist() == [11, 50, 600] and db.tolist() == [1, 20, 300] and ea.tolist() == [1, 0, 0]


def test_vjp_checks_its_cotangent() -> None:
    _, pullback = lg.vjp(lambda a: (a, a * 2), A)
    for cotangent, kind in (
        ((A,), lg.ShapeError), (A, lg.ShapeError), ((A, A[:2]), lg.ShapeError), ((A, "x"), lg.DTypeError),
        ((A, np.zeros((3, 1), np.float32)), lg.ShapeError),
    ):  # fmt: skip
        with pytest.raises(kind, match=r"at test_gradients.py"):
            pullback(cotangent)
    assert pullback((A, A))[0].tolist() == (3 * A).tolist()


def test_vjp_of_a_pullback_across_a_compiled_function() -> None:
    out, pullback = lg.vjp(lambda a: a * a, lg.asarray(A))
    assert out.tolist() == (A * A).tolist()
    f = lg.compile(lambda c: pullback(c)[0] + 1, backend="reference")
    for c in (A, B):
        assert f(c).tolist() == (2 * A * c + 1).tolist()


def test_gradients_of_numbers_and_0d() -> None:
    for g in both(lg.grad(lambda a: a * a * a), 2.0) + both(lg.grad(lambda a: a * a * a), np.float32(2)):
        assert g.item() == 12 and g.shape == () and g.dtype == lg.float32
    assert lg.grad(lambda a: a * a)(np.float64(3)).dtype is lg.float64
    for g in both(lg.grad(lambda a: 3.0), A) + both(lg.grad(lambda a: lg.asarray(3.0)), A):
        assert g.tolist() == [0, 0, 0]
    for g in both(lg.grad(lambda a: lg.sum(a) * 0 + lg.sum(lg.asarray(B))), A):
        assert g.tolist() == [0, 0, 0]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1,), (2, 0, 1), ()])
def test_gradients_of_every_shape(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 2.0, np.float32)
    for g in both(lg.grad(lambda a: lg.sum(a * a * a)), x):
        assert g.shape == shape and np.all(np.asarray(g) == 12)


# -- orders


@each_backend
def test_third_derivative_inside_and_outside(backend: str) -> None:
    def cube(x: Any) -> Any:
        return x**5

    third = lg.grad(lg.grad(lg.grad(cube)))
    with on_backend(backend):
        nested = lg.compile(cube)
        for _ in range(3):
            nested = lg.compile(lg.grad(nested))
        for f in (third, lg.compile(third), nested):
            assert f(np.float32(2)).item() == pytest.approx(240)


def test_gradients_inside_gradients_of_other_arguments() -> None:
    def inner(a: Any, b: Any) -> Any:
        return lg.sum(a * a * b)

    def outer(a: Any, b: Any) -> Any:
        step = a - 0.5 * lg.grad(inner)(a, b)
        return inner(step, b)

    check_gradient(outer, A.astype(np.float64), B.astype(np.float64))
    check_gradient(lambda a, b: lg.vjp(lambda v: v * b, a)[1](a * a)[0], A.astype(float), B.astype(float))


def test_perturbations_are_not_confused() -> None:
    for f in both(lg.grad(lambda x: x * lg.grad(lambda y: x + y)(1.0)), 1.0):
        assert f.item() == 1
    for f in both(lg.grad(lambda x: x * lg.grad(lambda y: x * y * y)(x)), 3.0):
        assert f.item() == 6 * 9


def test_rolled_training_loop_differentiated_as_a_whole() -> None:
    def trained(rate: Any) -> Any:
        w = lg.zeros((3,), dtype=lg.float64)
        for _ in range(4):
            w = w - rate * lg.grad(lambda w: lg.sum((w - A) * (w - A)))(w)
        return lg.sum(w * w)

    check_gradient(trained, np.array(0.1))


# -- composition


@each_backend
def test_gradient_of_a_compiled_function_and_compiled_gradient(backend: str) -> None:
    f = lg.compile(dot, backend=backend)
    with on_backend(backend):
        for g in (lg.grad(f), lg.compile(lg.grad(f), backend=backend), lg.grad(lambda a, b: f(a, b) * 1.0)):
            assert np.asarray(g(A, B)).tolist() == DA.tolist()
        value, g = lg.value_and_grad(lg.compile(lg.value_and_grad(f, 0), backend=backend), has_aux=True)(A, B)
        assert value[0].item() == (A * A * B).sum() and g.tolist() == DA.tolist()


def test_gradient_under_disable_compile() -> None:
    f = lg.compile(lg.grad(lg.compile(dot, backend="reference")), backend="reference")
    with lg.disable_compile():
        g = f(A, B)
    assert type(g) is np.ndarray and g.tolist() == DA.tolist()


def test_families_of_gradients() -> None:
    assert type(lg.compile(lg.grad(dot), backend="reference")(A, B)) is np.ndarray
    assert type(lg.compile(lg.grad(dot), backend="reference")(lg.asarray(A), B)) is lg.Tensor
    assert type(lg.grad(dot)(A, B)) is lg.Tensor


def test_writes_inside_a_differentiated_function() -> None:
    def fn(x: Any, w: Any) -> Any:
        x[0] = w[1] * 2
        x[1:] += w[0]
        x *= w
        return lg.sum(x)

    for g, h in both(lg.grad(fn, (0, 1)), A.astype(np.float64), B.astype(np.float64)):
        # fn = 2 w1 w0 + (x1 + w0) w1 + (x2 + w0) w2
        assert g.tolist() == [0, 5, 6]
        assert h.tolist() == [2 * 5 + 5 + 6, 2 * 4 + 2 + 4, 3 + 4]
    x = lg.asarray(A)
    lg.grad(fn)(x, lg.asarray(B)).tolist()
    assert x.tolist() == A.tolist()


def test_gradient_with_respect_to_a_row_that_was_written() -> None:
    def fn(v: Any) -> Any:
        x = lg.zeros((1, 2))
        x[0] = v
        return lg.sum(x)

    for g in both(lg.grad(fn), np.ones(2, np.float32)):
        assert g.tolist() == [1, 1]


def test_exceptions_inside_gradients_leave_nothing_behind() -> None:
    def fails(x: Any) -> Any:
        raise KeyError("k")

    for _ in range(2):
        with pytest.raises(KeyError):
            lg.grad(lg.grad(fails))(A)

    def recovers(x: Any) -> Any:
        try:
            lg.grad(fails)(x)
        except KeyError:
            return lg.sum(x * x)

    for g in both(lg.grad(recovers), A):
        assert g.tolist() == (2 * A).tolist()
    x = lg.asarray(A) * 2
    assert x.tolist() == (2 * A).tolist()
    assert lg.lang.recording.STATE.tapes == 0 and not lg.lang.recording.STATE.traces


def test_the_same_value_with_and_without_stop_gradient() -> None:
    def fn(x: Any) -> Any:
        y = x * x
        return lg.sum(y * lg.asarray([1.0, 1.0, 1.0])) + 10 * lg.sum(lg.stop_gradient(y))

    for g in both(lg.grad(fn), A):
        assert g.tolist() == (2 * A).tolist()
    for g in both(lg.grad(lambda x: lg.sum(lg.stop_gradient(x) * x)), A):
        assert g.tolist() == A.tolist()
    for g in both(lg.grad(lg.grad(lambda x: lg.stop_gradient(x * x) * x)), 3.0):
        assert g.item() == 0


def test_integers_and_steps_contribute_nothing() -> None:
    def fn(x: Any) -> Any:
        k = lg.argmax(x)
        mask = x > 1.5
        return lg.sum(x * x * mask) + x[k] * lg.floor(x[0]) + lg.sum(lg.astype(x, lg.int32)) * 1.0

    for g in both(lg.grad(fn), A):
        assert g.tolist() == [0, 4, 7]


# -- refusals


class NoRuleBackward(lg.ops.Op):
    """y = x, without a gradient"""

    schema_v1 = OpSchema("no_rule_for_tests", amp_policy=AmpPolicy.KEEP_INPUT)
    not_differentiable = "a test says so"
    elementwise = True

    @classmethod
    def infer(cls, x: Any) -> Any:
        return x

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return x


@pytest.fixture
def no_rule() -> Any:
    lg.ops.register(NoRuleBackward)
    try:
        yield lambda x: lg.ops.apply(NoRuleBackward, x)
    finally:
        lg.ops.REGISTRY.pop("no_rule_for_tests")


def test_float_op_without_a_rule_names_the_way_and_the_line(no_rule: Any) -> None:
    def fn(x: Any) -> Any:
        y = lg.exp(x * 2)
        return lg.sum(no_rule(y) + 1)

    f = lg.compile(lg.grad(fn), backend="reference")
    for run in (f, lg.grad(fn)):
        with pytest.raises(lg.NotDifferentiableError, match=r"multiply -> exp -> no_rule_for_tests") as caught:
            run(A)
        assert caught.value.source is not None and "lg.ops.apply" in caught.value.source.text
    assert f.cache_info().currsize == 0
    stopped = lg.grad(lambda x: lg.sum(no_rule(lg.stop_gradient(x)) * x))
    for g in both(stopped, A):
        assert g.tolist() == A.tolist()
    for g in both(lg.grad(lambda x, y: lg.sum(x * no_rule(y))), A, B):  # not on the way
        assert g.tolist() == B.tolist()


@pytest.mark.parametrize(
    "fn, args, kind, message",
    [
        (lambda x: x * 2, (A,), lg.ShapeError, r"needs a real scalar result, .* gave float32\[3\]"),
        (lambda x: lg.sum(x) * 1j, (A,), lg.ShapeError, r"gave complex64\[\]"),
        (lambda x: lg.argmax(x), (A,), lg.ShapeError, r"gave int64\[\]"),
        (lambda x: lg.all(x > 0), (A,), lg.ShapeError, r"gave bool\[\]"),
        (lambda x: (lg.sum(x), x), (A,), lg.ShapeError, "gave tuple"),
        (lambda x: {"loss": lg.sum(x)}, (A,), lg.ShapeError, "gave dict"),
        (lambda x: None, (A,), lg.ShapeError, "gave NoneType"),
        (lambda x: "text", (A,), lg.DTypeError, "not str"),
        (lambda x: lg.sum(x), (np.arange(3),), lg.NotDifferentiableError, "argument 0 of int64"),
        (lambda x: x * 1.0, (3,), lg.NotDifferentiableError, "argument 0 of int64"),
        (lambda x: lg.sum(x), (np.array([True]),), lg.NotDifferentiableError, "argument 0 of bool"),
        (lambda x: x * 1.0, (True,), lg.DTypeError, "not bool"),
        (lambda p: lg.sum(p["w"]), ({"w": A, "step": 3},), lg.NotDifferentiableError, r"argument 0\['step'\] of int64"),
        (lambda p: lg.sum(p["w"]), ({"w": A, "name": "n"},), lg.DTypeError, "not str"),
    ],
)
def test_what_has_no_gradient(fn: Any, args: Any, kind: type[Exception], message: str) -> None:
    f = lg.compile(lg.grad(fn), backend="reference")
    for run in (f, lg.grad(fn), lg.value_and_grad(fn)):
        with pytest.raises(kind, match=message) as caught:
            run(*args)
        assert "at test_gradients.py:" in str(caught.value)
    assert f.cache_info().currsize == 0
    assert lg.compile(lg.grad(dot), backend="reference")(A, B).tolist() == DA.tolist()


def test_graph_backward_refuses_integers() -> None:
    graph = lg.trace(lambda x, n: lg.sum(x * n), A, np.arange(3))
    with pytest.raises(lg.NotDifferentiableError, match="input 1"):
        graph.backward(wrt=[1])
    (total, g) = graph.backward(wrt=[0]).run(A, np.arange(3), np.float32(1))
    assert total == 8 and g.tolist() == [0, 1, 2]


def test_names_and_documentation_of_derived_functions() -> None:
    def loss(w: Any) -> Any:
        """The loss."""
        return lg.sum(w)

    assert lg.grad(loss).__name__ == "grad(loss)" and lg.grad(loss).__doc__ == "The loss."
    f = lg.compile(lg.grad(loss), backend="reference")
    f(A)
    f(A[:2])
    assert "w: float32[3] before, float32[2] now" in f.explain()


def test_a_cotangent_has_the_structure_of_the_result() -> None:
    x = np.arange(3, dtype=np.float32)
    _, pullback = lg.vjp(lambda x: {"a": x * x, "b": 3 * x}, x)
    np.testing.assert_array_equal(pullback({"b": x, "a": 0 * x})[0].numpy(), 3 * x)
    for wrong in ([x, x], {"a": x, "c": x}, {"a": x}, None, x):
        with pytest.raises(lg.ShapeError, match="the cotangent is"):
            pullback(wrong)


@pytest.mark.parametrize("place", [1, -1])
def test_backward_names_an_input_that_is_not_there(place: int) -> None:
    with pytest.raises(lg.AxisError, match=f"input {place} of a graph of 1"):
        lg.trace(lg.sum, np.ones(3, np.float32)).backward(wrt=[place])
