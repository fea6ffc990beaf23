"""Every rule fires inside the real pipeline, and its law holds: to the bit where it says so."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.config import config
from lucidgraph.dtypes import (
    DType,
    bool_,
    complex64,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
)
from lucidgraph.errors import LucidGraphError, PassError
from lucidgraph.ir import Builder, Graph, Origin, TensorType, Var
from lucidgraph.ir.op import get
from lucidgraph.lang import activation, arithmetic, compare, math, shape
from lucidgraph.lang.tensor import apply
from lucidgraph.passes import pipeline, run_passes, simplify
from lucidgraph.passes.laws import Call, Kind, Name, Number, Pattern, Rule, law
from lucidgraph.passes.rules import RULES
from lucidgraph.passes.simplify import watching
from tests.checking import assert_close
from tests.passes.test_passes import same_bits, values

SHAPE = (2, 32)
DTYPES = (bool_, int8, int32, uint8, int64, float16, float32, float64, complex64)
EQUATIONS = [r for r in RULES if r.left is not None]
FUNCTIONS = [r for r in RULES if r.left is None]


@contextmanager
def allowing(kind: Kind) -> Iterator[Counter[Rule]]:
    """Rules up to ``kind`` in the pipeline, and how often each fires."""
    fired: Counter[Rule] = Counter()
    saved, config.rules = config.rules, kind.name.lower()
    try:
        with watching(lambda rule, node: fired.update([rule])):
            yield fired
    finally:
        config.rules = saved


def operands(dtype: DType, seed: int, harmless: bool) -> np.ndarray:
    """Numbers of a dtype: its extremes, zeros, infinities, NaN and subnormals among ordinary ones; or only those."""
    rng = np.random.default_rng(seed)
    if dtype.is_bool:
        return rng.random(SHAPE) < 0.5
    if dtype.is_integer:
        low, high = dtype.range
        ordinary = rng.integers(max(low, -9), 9, SHAPE).astype(dtype.numpy)
        special: list[Any] = [low, high, 0, 1, max(low, -1)]
    else:
        ordinary = rng.uniform(0.5, 4.0, SHAPE) if harmless else rng.standard_normal(SHAPE)
        ordinary = ordinary.astype(dtype.numpy)
        tiny, most = np.finfo(to_real(dtype).numpy).smallest_subnormal, np.finfo(to_real(dtype).numpy).max
        special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, tiny, -tiny, most, -most]
    if not harmless:
        places = rng.random(SHAPE) < 0.7
        ordinary[places] = rng.choice(np.array(special, dtype.numpy), int(places.sum()))
    return ordinary


def to_real(dtype: DType) -> DType:
    return {complex64: float32}.get(dtype, dtype)


# -- equations: their left side is built from the equation itself


def names_in(pattern: Pattern) -> list[str]:
    found: dict[str, None] = {}
    stack = [pattern]
    while stack:
        at = stack.pop()
        if isinstance(at, Name):
            found[at.name] = None
        elif isinstance(at, Call):
            stack.extend(at.operands[::-1])
    return list(found)


def instance(left: Call, types: dict[str, DType], other: DType) -> Graph:
    """The left side of an equation over inputs of these dtypes; numbers are of the dtype next to them, or ``other``."""
    builder = Builder()
    inputs = {name: builder.input(TensorType(SHAPE, dtype)) for name, dtype in types.items()}

    def built(pattern: Pattern, dtype: DType) -> Var:
        if isinstance(pattern, Name):
            return Var(builder, inputs[pattern.name])
        if isinstance(pattern, Number):
            return Var(builder, builder.constant(pattern.value, dtype)).broadcast_to(SHAPE)
        op = get(pattern.op)
        shared = op.shared_operands(len(pattern.operands))
        known = {k: built(p, dtype) for k, p in enumerate(pattern.operands) if not isinstance(p, Number)}
        near = next((known[k].dtype for k in shared if k in known), other)
        # A number beside the shared operands is the condition of a where.
        beside = [near if k in shared else bool_ for k in range(len(pattern.operands))]
        return op.of(*(known[k] if k in known else built(p, beside[k]) for k, p in enumerate(pattern.operands)))

    out = built(left, other).node
    return Graph.from_outputs(list(inputs.values()), [out], "explicit").verify()


def instances(left: Call) -> Iterator[tuple[tuple[DType, ...], Graph]]:
    names = names_in(left)
    for other in DTYPES:
        for choice in set(itertools.product({bool_, other}, repeat=len(names))):
            try:
                yield choice, instance(left, dict(zip(names, choice, strict=True)), other)
            except (LucidGraphError, OverflowError):
                continue  # the op has no meaning for these dtypes


@pytest.mark.parametrize("rule", EQUATIONS, ids=[f"{r.kind.name.lower()}: {r.law}" for r in EQUATIONS])
def test_equation(rule: Rule) -> None:
    assert rule.left is not None
    fired_alone = fired_in_pipeline = 0
    harmless = rule.kind is not Kind.EXACT
    for choice, graph in instances(rule.left):
        args = [operands(dtype, seed, harmless) for seed, dtype in enumerate(choice)]
        with allowing(rule.kind) as fired:
            after = simplify(graph).verify()
            if fired[rule]:
                fired_alone += 1
                assert simplify(after).digest == after.digest
                (a,), (b,) = values(graph, args), values(after, args)
                if rule.kind is Kind.EXACT:
                    assert same_bits(a, b), f"{choice}: {a} became {b} of {args}"
                else:
                    assert_close(b, a, scale=8)
        with allowing(rule.kind) as fired:
            run_passes(graph, pipeline())
            fired_in_pipeline += fired[rule]
    assert fired_alone, "the rule never fires"
    assert fired_in_pipeline, "the rule never fires inside the pipeline"


# -- functions: one program each

X = np.random.default_rng(2).standard_normal((2, 3)).astype(np.float32)
ONES = np.array([[[-1.5], [2.0]]], np.float32)
INTS = np.array([[3, -4, 5], [0, 1, -128]], np.int32)
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -2.5, 3e38], np.float32)


def _raw(name: str, *operands: Any, **attrs: Any) -> Any:
    return apply(get(name), *operands, **attrs)


def _flipped_twice(x: Any) -> Any:
    return shape.flip(shape.flip(x, axis=1), axis=1)


def _broadcast_first(x: Any) -> Any:
    return math.tanh(_raw("broadcast_to", x, shape=(4, 2, 3)))


EXAMPLES: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "y = x, for a mark that only passes read": (lambda x: _raw("stop_gradient", x) + 1, X),
    "f(f(x)) = f(x), f idempotent": (lambda x: activation.relu(activation.relu(x)), EDGES),
    "f(x, x) = x, f idempotent": (lambda x: arithmetic.maximum(x, x) + 1, EDGES),
    "f(f(x)) = x, f an involution": (lambda x: arithmetic.negative(-x) + 1, EDGES),
    "f(-x) = f(x), f even": (lambda x: math.square(-x), EDGES),
    "cast[t](x) = x, x of dtype t": (lambda x: _raw("cast", x, dtype=float32) * 2, EDGES),
    "cast[t](cast[u](x)) = cast[t](x), u holding every value of x": (
        lambda x: _raw("cast", _raw("cast", x, dtype=float64), dtype=float16),
        EDGES,
    ),
    "(x ∘ a) ∘ b = x ∘ (a ∘ b), numbers a and b, ∘ associative, not of floats": (lambda x: (3 * x) * 5 + 1, INTS),
    "(x ∘ a) ∘ b = x ∘ (a ∘ b), numbers a and b, ∘ associative": (lambda x: (x * 3.0) * 5.0, X),
    "f(broadcast x, …) = broadcast f(x, …), f elementwise": (_broadcast_first, X),
    "x / c = x * (1 / c), c a power of two": (lambda x: x / 8, EDGES),
    "masked_multiply(c, y) = c * y, c a number other than 0": (
        lambda x: _raw("masked_multiply", 2.0, x),
        EDGES,
    ),
    "masked_divide(c, y) = c / y, c a number other than 0": (lambda x: _raw("masked_divide", 2.0, x), EDGES),
    "conj(x) = real(x) = x, x real": (lambda x: arithmetic.real(x) + 1, EDGES),
    "imag(x) = 0, x real": (lambda x: arithmetic.imag(x) + x, EDGES),
    "isnan(x) = isinf(x) = False, x an integer or boolean": (lambda x: compare.isnan(x), INTS),
    "isfinite(x) = True, x an integer or boolean": (lambda x: compare.isfinite(x), INTS),
    "floor(x) = x, x an integer; ceil, trunc, round likewise": (lambda x: math.floor(x) + 1, INTS),
    "floor(ceil(x)) = ceil(x), and so for any two of floor, ceil, trunc, round": (
        lambda x: math.floor(math.ceil(x)),
        EDGES,
    ),
    "fold over axes of size 1 = reshape": (lambda x: lg.max(x, axis=(0, 2)), ONES),
    "sum over axes of size 1 = reshape, but for -0.0": (lambda x: lg.sum(x, axis=(0, 2)), ONES),
    "fold(fold(x)) = fold over the axes of both": (lambda x: lg.min(lg.min(x, axis=0)), X),
    "sum(sum(x)) = sum over the axes of both, prod likewise, of floats": (lambda x: lg.sum(lg.sum(x, axis=0)), X),
    "max(broadcast x) = x, min, any, all likewise": (
        lambda x: lg.max(shape.broadcast_to(x, (4, 2, 3)), axis=0),
        X,
    ),
    "sum(broadcast x) = n x, of integers": (
        lambda x: lg.sum(shape.broadcast_to(x, (4, 2, 3)), axis=0, dtype="int32"),
        INTS,
    ),
    "sum(broadcast x) = n x": (lambda x: lg.sum(shape.broadcast_to(x, (4, 2, 3)), axis=0), X),
    "broadcast_to(x, shape of x) = x": (lambda x: _raw("broadcast_to", x, shape=(2, 3)) + 1, X),
    "broadcast_to(broadcast_to(x, s), t) = broadcast_to(x, t)": (
        lambda x: _raw("broadcast_to", _raw("broadcast_to", x, shape=(1, 2, 3)), shape=(4, 2, 3)),
        X,
    ),
    "broadcast_to(reshape(x, (1, …, 1, *s)), t) = broadcast_to(x, t), s the shape of x": (
        lambda x: _raw("broadcast_to", shape.expand_dims(x, 0), shape=(4, 2, 3)),
        X,
    ),
    "broadcast_to(reshape(broadcast_to(x, s)), t) = reshape(broadcast_to(reshape(x), u)), as in two repeats": (
        lambda x: shape.repeat(shape.repeat(x, 2, 0), 3, 1),
        X,
    ),
    "reshape(x, shape of x) = x, expand_dims and squeeze likewise": (lambda x: _raw("reshape", x, shape=(2, 3)) + 1, X),
    "reshape(reshape(x, s), t) = reshape(x, t), expand_dims and squeeze likewise": (
        lambda x: _raw("reshape", shape.expand_dims(x, 1), shape=(6,)),
        X,
    ),
    "permute_dims that leaves the axes of more than one element in order = reshape": (
        lambda x: shape.permute_dims(x, (2, 1, 0)),
        ONES,
    ),
    "permute_dims(permute_dims(x, p), q) = permute_dims(x, p∘q)": (
        lambda x: shape.permute_dims(shape.permute_dims(shape.reshape(x, (2, 1, 3)), (2, 0, 1)), (1, 0, 2)),
        X,
    ),
    "slice of everything = x": (_flipped_twice, X),
    "slice(slice(x)) = slice(x)": (lambda x: shape.flip(shape.sliced(x, 1, 2, -1, -2), axis=0), X),
    "slice(pad(x), where x is) = x": (lambda x: shape.sliced(shape.pad(x, ((0, 0), (2, 1))), 1, 2, 5) + 1, X),
    "slice(concat(…, x, …)) = slice(x), for a slice within x": (
        lambda x: shape.sliced(shape.concat([x, x * 2, x]), 0, 3, 4),
        X,
    ),
    "pad(x) by nothing = x": (lambda x: _raw("pad", x, np.float32(0), low=(0, 0), high=(0, 0), interior=(0, 0)), X),
    "concat(x) = x, empty arrays left out": (
        lambda x: _raw("concat", shape.sliced(x, 0, 0, 0), x, shape.sliced(x, 0, 1, 1), axis=0),
        X,
    ),
}


def test_every_function_has_an_example() -> None:
    assert set(EXAMPLES) == {r.law for r in FUNCTIONS}


@pytest.mark.parametrize("rule", FUNCTIONS, ids=[r.law for r in FUNCTIONS])
def test_function(rule: Rule) -> None:
    fn, arg = EXAMPLES[rule.law]
    recorded = lg.trace(fn, arg, passes=())
    with allowing(rule.kind) as fired:
        after = run_passes(recorded, pipeline())
    assert fired[rule], "the rule does not fire inside the pipeline"
    before = run_passes(recorded, pipeline()[:2])
    for a, b in zip(values(before, [arg]), values(after, [arg]), strict=True):
        if rule.kind is Kind.EXACT:
            assert same_bits(a, b)
        else:
            assert_close(b, a)


# -- what the laws must not do


def simplified(fn: Callable[..., Any], *args: np.ndarray) -> Graph:
    return run_passes(lg.trace(fn, *args), pipeline()[2:])


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + 0.0,  # makes 0.0 of -0.0
        lambda x: 0.0 - x,
        lambda x: x * 0.0,
        lambda x: x - x,
        lambda x: x / x,
        lambda x: compare.equal(x, x),
        lambda x: compare.logical_not(compare.less(x, 1.0)),
        lambda x: x / 3.0,
        lambda x: x / 2.0**-140,
        lambda x: (x + 1e30) - 1e30,
        lambda x: lg.sum(shape.reshape(x, (8, 1)), axis=1),
        lambda x: math.sqrt(math.square(x)),
        lambda x: _raw("cast", _raw("cast", x, dtype=float16), dtype=float32),
        lambda x: _raw("masked_multiply", x, np.float32(2.0)),
    ],
)  # fmt: skip
def test_what_is_not_exact_stays(fn: Callable[..., Any]) -> None:
    before = lg.trace(fn, EDGES)
    with np.errstate(all="ignore"):
        after = simplified(fn, EDGES)
    assert after.nodes
    for a, b in zip(values(before, [EDGES]), values(after, [EDGES]), strict=True):
        assert same_bits(a, b)


def test_casts_that_lose_something_stay() -> None:
    graph = simplified(lambda x: _raw("cast", _raw("cast", x, dtype=int8), dtype=int32), INTS)
    assert names(graph) == ["cast", "cast"]
    wrapped = simplified(lambda x: _raw("cast", _raw("cast", x, dtype=float32), dtype=uint8), INTS.astype(np.int8))
    assert names(wrapped) == ["cast", "cast"], "-1 as a float is no uint8, as an int8 it wraps"


def test_rewritten_nodes_say_by_which_law_and_for_which_line() -> None:
    graph = simplified(lambda x: x - -x, X)
    (node,) = graph.nodes
    assert node.name == "add"
    assert node.origin == Origin("simplify", "x - -y = x + y")
    assert node.source is not None
    assert node.source.file == __file__


def test_rules_that_undo_each_other_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    there, back = law("x + y = x - -y"), law("x - -y = x + y")
    builder = Builder()
    x, y = (builder.input(TensorType((2,), float32)) for _ in range(2))
    graph = Graph.from_outputs([x, y], [Var(builder, x).__add__(Var(builder, y)).node], "explicit")
    module = sys.modules["lucidgraph.passes.simplify"]
    monkeypatch.setattr(module, "RULES", (there, back))
    monkeypatch.setattr(module, "_tables", {})
    with pytest.raises(PassError, match="no end"):
        simplify(graph)


@pytest.mark.parametrize("text", ["x = y", "x + = x", "f(x)(y) = x", "x if y else z = x"])
def test_what_is_no_law_is_refused(text: str) -> None:
    with pytest.raises((PassError, SyntaxError)):
        law(text)
