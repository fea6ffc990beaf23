"""What registering demands, what schemas hash, and what a digest sees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.dtypes import float32, float64
from lucidgraph.errors import DTypeError, NotDifferentiableError
from lucidgraph.ir import Accumulate, AmpPolicy, Builder, Composite, Graph, Node, Op, OpSchema, TensorType, Var
from lucidgraph.ir.op import REGISTRY, Unary, get, register
from lucidgraph.lang import arithmetic, math
from lucidgraph.passes import backward
from tests.samples import SAMPLES

T = TensorType((2,), float32)


# -- duties


def complete() -> dict[str, Any]:
    """The body of an op class with all its duties."""
    return {
        "schema_v1": OpSchema("op_of_this_test"),
        "infer": classmethod(lambda cls, x: x),
        "evaluate": classmethod(lambda cls, x: x),
        "grad_formula": lambda self, grad_out: [grad_out],
    }


def registered(base: type[Op], body: dict[str, Any]) -> None:
    try:
        register(type("Made", (base,), body))
    finally:
        REGISTRY.pop("op_of_this_test", None)


def test_op_with_its_duties_is_registered() -> None:
    registered(Op, complete())


@pytest.mark.parametrize("duty", ["infer", "evaluate", "grad_formula"])
def test_op_without_a_duty_fails_at_registration(duty: str) -> None:
    body = complete()
    del body[duty]
    with pytest.raises(TypeError, match=duty):
        registered(Op, body)
    assert "op_of_this_test" not in REGISTRY


@pytest.mark.parametrize("reason", ["zero_gradient", "not_differentiable"])
def test_reason_stands_for_a_gradient(reason: str) -> None:
    body = complete()
    del body["grad_formula"]
    registered(Op, {**body, reason: "because"})


def test_schema_is_not_inherited() -> None:
    body = complete()
    del body["schema_v1"]
    with pytest.raises(TypeError, match="schema_v1"):
        registered(get("negative"), body)


def test_composite_needs_its_expansion_only() -> None:
    schema = {"schema_v1": OpSchema("op_of_this_test")}
    registered(Composite, {**schema, "expand": staticmethod(lambda x: x + x)})
    with pytest.raises(TypeError, match="expand"):
        registered(Composite, schema)


def test_names_are_unique() -> None:
    with pytest.raises(DTypeError, match="negative"):
        register(type("Other", (Unary,), {**complete(), "schema_v1": OpSchema("negative")}))
    assert register(get("negative")) is get("negative"), "the same class again is no second one"


def test_unknown_ops_are_named() -> None:
    with pytest.raises(DTypeError, match="negativ"):
        get("negativ")


def test_every_op_has_its_duties() -> None:
    for name, op in REGISTRY.items():
        assert op.schema_v1.name == name
        assert not op.missing_duties(), name
        assert op.__doc__, name
        assert not (op.zero_gradient and op.not_differentiable), name


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_saved_operands_are_operands(name: str) -> None:
    op = REGISTRY[name]
    if isinstance(op.kSavesInput, tuple):
        assert set(op.kSavesInput) <= set(op.operand_names())
    if op.zero_gradient:
        assert op.kSavesInput is False
        assert op.kSavesOutput is False


def test_missing_rule_is_an_error_with_the_way() -> None:
    body = complete()
    del body["grad_formula"]
    made = type("Made", (Op,), {**body, "not_differentiable": "it is opaque"})
    builder = Builder()
    x = builder.input(T)
    out = Var(builder, builder.emit(made, [(-Var(builder, x)).node], {})) * 2.0
    graph = Graph.from_outputs([x], [out.node], "explicit")
    with pytest.raises(NotDifferentiableError, match=r"opaque.*negative -> op_of_this_test"):
        backward(graph)


# -- facts


def same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind in "fc"))


EDGES = np.array([0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 2.5, -0.0], np.float64)
INTS = np.array([0, 1, -7, 127, -128, 3, 64, -1], np.int8)


def operands_of(op: type[Op]) -> np.ndarray:
    try:
        op.result_types([TensorType((8,), float64)] * (op.schema_v1.arity or 1), {})
    except DTypeError:
        return INTS
    return EDGES


def plain(fact: str) -> list[str]:
    """Ops with a fact and no attributes, that have a meaning of their own."""
    return [n for n, op in sorted(REGISTRY.items()) if getattr(op, fact) and not op.attributes() and not op.composite]


@pytest.mark.parametrize("name", plain("commutative"))
def test_commutative(name: str) -> None:
    x = operands_of(get(name))
    with np.errstate(all="ignore"):
        assert same(get(name).evaluate(x[:, None], x), get(name).evaluate(x, x[:, None]))


@pytest.mark.parametrize("name", plain("associative"))
def test_associative(name: str) -> None:
    f, x = get(name).evaluate, INTS
    with np.errstate(all="ignore"):
        assert same(f(f(x[:, None, None], x[:, None]), x), f(x[:, None, None], f(x[:, None], x)))


@pytest.mark.parametrize("name", plain("idempotent"))
def test_idempotent(name: str) -> None:
    op = get(name)
    # Logic is idempotent among booleans, which is all that rules use.
    x = np.array([True, False]) if name.startswith("logical") else operands_of(op)
    if op.schema_v1.arity == 2:
        assert same(op.evaluate(x, x), x)
    else:
        assert same(op.evaluate(op.evaluate(x)), op.evaluate(x))


@pytest.mark.parametrize("name", plain("involution"))
def test_involution(name: str) -> None:
    x = np.array([True, False]) if name.startswith("logical") else operands_of(get(name))
    assert same(get(name).evaluate(get(name).evaluate(x)), x)


@pytest.mark.parametrize("name", plain("even"))
def test_even(name: str) -> None:
    assert same(get(name).evaluate(-EDGES), get(name).evaluate(EDGES))


@pytest.mark.parametrize("name", plain("whole"))
def test_whole(name: str) -> None:
    f = get(name).evaluate
    finite = EDGES[np.isfinite(EDGES)]
    assert same(f(finite) % 1, np.zeros_like(finite))
    assert same(f(np.arange(-3.0, 3.0)), np.arange(-3.0, 3.0))


@pytest.mark.parametrize("name", sorted(n for n, op in REGISTRY.items() if op.elementwise and not op.effect))
def test_elementwise(name: str) -> None:
    """The first element of the result is the result of the first elements."""
    for sample in SAMPLES[name]:
        if sample.operands and sample.operands[0].shape == (11,):
            op = get(name)
            if op.composite:
                continue
            with np.errstate(all="ignore"):
                whole = op.evaluate(*sample.operands, **sample.attrs)
                first = op.evaluate(*(a[:1] for a in sample.operands), **sample.attrs)
            np.testing.assert_allclose(np.asarray(whole[:1]).astype(np.complex128), np.asarray(first), rtol=2e-3)


# -- schemas and digests


CHANGES: list[dict[str, Any]] = [
    {"name": "other"}, {"version": 2}, {"amp_policy": AmpPolicy.FORCE_FP32}, {"contraction": True},
    {"accumulate": Accumulate.WIDE}, {"deterministic": False}, {"arity": 2}, {"real_valued": True}, {"internal": True},
]  # fmt: skip


def test_schema_digest_sees_everything_but_the_note() -> None:
    schema = OpSchema("one")
    assert {next(iter(c)) for c in CHANGES} | {"note"} == {f.name for f in dataclasses.fields(OpSchema)}
    digests = [schema.digest, *(dataclasses.replace(schema, **change).digest for change in CHANGES)]
    assert len(set(digests)) == len(digests)
    assert dataclasses.replace(schema, note="a note").digest == schema.digest


def test_force_fp32_takes_reals_unless_it_says_otherwise() -> None:
    assert OpSchema("f", amp_policy=AmpPolicy.FORCE_FP32).takes_reals_only
    assert not OpSchema("f", amp_policy=AmpPolicy.FORCE_FP32, real_valued=False).takes_reals_only
    assert not OpSchema("f").takes_reals_only


X = np.ones((2, 3), np.float32)


def digest(fn: Callable[..., Any], *args: Any) -> str:
    return lg.trace(fn, *(args or (X,))).digest


def test_digest_sees_the_program() -> None:
    programs: list[tuple[Any, ...]] = [
        (lambda x: x + 1.0,),
        (lambda x: x + 2.0,),
        (lambda x: x - 1.0,),
        (lambda x: x + 0.0,),
        (lambda x: x + -0.0,),
        (lambda x: x + float("nan"),),
        (lambda x: (x + 1.0, x),),
        (lambda x: (x, x + 1.0),),
        (lambda x: math.log(x),),
        (lambda x: math.log2(x),),
        (lambda x: lg.sum(x, axis=0),),
        (lambda x: lg.sum(x, axis=1),),
        (lambda x: lg.sum(x, axis=1, keepdims=True),),
        (lambda x: x + 1.0, X.astype(np.float64)),
        (lambda x: x + 1.0, X[:1]),
        (lambda x, y: x + 1.0, X, X),
        (lambda x, y: x - y, X, X),
        (lambda x, y: y - x, X, X),
        (lambda x: x + np.ones(3, np.float32),),
        (lambda x: x + np.ones((1, 3), np.float32),),
    ]
    digests = [digest(fn, *args) for fn, *args in programs]
    assert len(set(digests)) == len(digests)


def test_digest_sees_the_policy_of_a_region() -> None:
    def under(dtype: Any) -> str:
        def fn(x: Any) -> Any:
            with lg.autocast(dtype):
                return arithmetic.negative(x)

        return lg.trace(fn, X, passes=()).digest

    assert len({under(lg.bfloat16), under(lg.float16), lg.trace(arithmetic.negative, X, passes=()).digest}) == 3


def test_digest_does_not_see_names_lines_and_reasons() -> None:
    def one(x: Any) -> Any:
        return x + 1.0

    def other(long_name: Any) -> Any:
        return long_name + 1.0

    assert digest(one) == digest(other)
    graph = lg.trace(one, X)
    assert str(graph) != str(lg.trace(other, X))


def test_digest_sees_the_schema() -> None:
    class Renewed(get("negative")):  # type: ignore[misc]
        schema_v1 = dataclasses.replace(get("negative").schema_v1, version=2)

    x = Node(get("input"), (), {}, (T,))
    digests = set()
    for op in (get("negative"), Renewed):
        digests.add(Graph([x], [node := Node(op, (x,), {}, (T,))], [node], "explicit").digest)
    assert len(digests) == 2
