"""Fused programs are the programs they were made of: random ones, on the reference and compiled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucidgraph as lg
from lucidgraph import passes
from lucidgraph.ir import Graph
from lucidgraph.ir.evaluate import evaluate
from lucidgraph.passes.fuse import MAX_MEMBERS, fuse
from lucidgraph.wiring import backend
from tests.accelerate.generated import generate
from tests.conftest import PROFILE

pytest.importorskip("llvmlite")

BACKEND = backend("accelerate")
MANY = {"quick": 20, "test": 300, "full": 5000}[PROFILE]
SOME = {"quick": 5, "test": 60, "full": 1500}[PROFILE]

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 40)


def lowered(fn, args) -> Graph:
    """The program as it is before fusion."""
    return passes.run_passes(lg.trace(fn, *args, passes=()), passes.pipeline())


def value(graph: Graph, args) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return evaluate(graph, list(args))


def compiled(graph: Graph, args) -> list[np.ndarray]:
    return BACKEND.compile(graph)([BACKEND.to_buffer(a, n.type) for a, n in zip(args, graph.inputs, strict=True)])


def members(graph: Graph) -> list[list[str]]:
    """The ops of each kernel, in order, views and constants left out."""
    bodies = [n.attrs["body"].nodes for n in graph.nodes if n.name == "kernel"]
    return [[n.name for n in body if n.op.elementwise or n.op.reduces] for body in bodies]


@settings(max_examples=MANY)
@given(seeds, sizes)
def test_fusion_keeps_the_meaning_to_the_bit(seed, size):
    fn, args = generate(seed, size)
    plain = lowered(fn, args)
    fused = fuse(plain).verify()
    assert not any(n.op.elementwise or n.op.reduces for n in fused.nodes)
    assert all(len(ops) <= MAX_MEMBERS for ops in members(fused))
    for before, after in zip(value(plain, args), value(fused, args), strict=True):
        assert before.dtype == after.dtype
        assert before.tobytes() == after.tobytes()


@settings(max_examples=SOME)
@given(seeds, sizes)
def test_exact_programs_run_exactly(seed, size):
    fn, args = generate(seed, size)
    plain = lowered(fn, args)
    for expected, actual in zip(value(plain, args), compiled(fuse(plain), args), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


@settings(max_examples=SOME // 3)
@given(seeds, sizes, st.sampled_from((lg.float32, lg.float64)))
def test_smooth_programs_and_their_gradients(seed, size, dtype):
    fn, args = generate(seed, size, exact=False, dtype=dtype, empty=False)

    def total(*xs):
        return sum((lg.sum(y) for y in fn(*xs)), lg.asarray(np.zeros((), dtype.numpy)))

    for program in (fn, lg.grad(total, argnums=tuple(range(len(args))))):
        plain = lowered(program, args)
        wide = [a.astype(np.float64) for a in args]
        exact = value(lowered(program, wide), wide)
        rounded = value(plain, args)
        for best, reference, actual in zip(exact, rounded, compiled(fuse(plain), args), strict=True):
            assert actual.dtype == reference.dtype
            # As near to the value in double as NumPy gets in the same precision, or nearly so.
            scale = float(np.abs(best).max(initial=1.0))
            bound = (1e-4 if dtype is lg.float32 else 1e-11) * scale + 20 * np.abs(reference - best).max(initial=0.0)
            np.testing.assert_allclose(actual, best, rtol=0, atol=bound)


def test_a_softmax_and_its_gradient_are_one_kernel_each():
    x = np.ones((3, 5), np.float32)
    (ops,) = members(fuse(lowered(lambda x: lg.softmax(x, axis=1), (x,))))
    assert {"max", "exp", "sum"} <= set(ops)
    gradient = fuse(lowered(lambda x, g: lg.vjp(lambda v: lg.softmax(v, axis=1), x)[1](g)[0], (x, x)))
    assert len(members(gradient)) == 1


@pytest.mark.parametrize("turn", ["flip", "transpose", "slice"])
def test_a_row_value_that_is_moved_leaves_its_kernel(turn):
    """A row value read at another place than its own cannot be read inside the kernel that makes it."""
    x = np.arange(64.0).reshape(4, 4, 4)[:, :, :3]
    move = {
        "flip": lambda row: row[::-1],
        "transpose": lambda row: lg.permute_dims(row, (1, 0)),
        "slice": lambda row: lg.concat([row[1:], row[:1]], axis=0),
    }[turn]

    def fn(x):
        return x - move(lg.sum(x, axis=2))[:, :, None]

    row = x.sum(2)
    moved = {"flip": row[::-1], "transpose": row.T, "slice": np.roll(row, -1, 0)}[turn]
    np.testing.assert_array_equal(lg.compile(fn, backend="accelerate")(x), x - moved[:, :, None])


def test_two_kernels_with_a_product_between_them_stay_two():
    """What reads a kernel through a matrix product cannot join it: each would need the other first."""
    x = np.eye(3) + 1
    y, z = lg.compile(lambda x: (lg.exp(x), lg.exp(x) + lg.exp(x) @ x), backend="accelerate")(x)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-14)
    np.testing.assert_allclose(z, np.exp(x) + np.exp(x) @ x, rtol=1e-14)


def _elementwise(x):
    for _ in range(10_000):
        x = x * 0.5 + 1.0
    return x


def _products(x):
    for _ in range(10_000):
        x = lg.minimum(x @ x, 1.0)
    return x


def _reductions(x):
    for k in range(6_700):
        x = x - lg.max(x, axis=k // 3 % 2, keepdims=True)
    return x


def _residuals(x):
    kept = [x]
    for _ in range(6_700):
        kept.append(lg.minimum(kept[-1] @ x, 1.0))
    total = kept[0]
    for y in reversed(kept):
        total = total + y
    return total


@pytest.mark.slow
@pytest.mark.parametrize("chain", [_elementwise, _products, _reductions, _residuals])
def test_chains_of_20_000(chain):
    x = np.full((3, 3), 0.25)
    plain = lowered(chain, (x,))
    assert len(plain.nodes) >= 19_000
    (actual,) = compiled(fuse(plain), (x,))
    np.testing.assert_allclose(actual, value(plain, (x,))[0], rtol=1e-12)


def test_what_a_late_pass_computes_first_is_not_taken_from_an_earlier_one():
    """A function of the operand alone that no reduction before the last pass needs."""
    x = np.random.default_rng(1).standard_normal((70, 130)).astype(np.float32)

    def fn(x):
        e = lg.exp(x - lg.max(x, axis=1, keepdims=True))
        share = e / lg.sum(e, axis=1, keepdims=True)
        late = lg.tanh(x)
        weight = lg.sum(share * late, axis=1, keepdims=True)
        return share + late * weight, lg.sin(x) * weight

    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    share, late = e / e.sum(1, keepdims=True), np.tanh(wide)
    weight = (share * late).sum(1, keepdims=True)
    compiled = lg.compile(fn, backend="accelerate")
    lg.compile(lambda x: lg.cumsum(x * np.nan, axis=1), backend="accelerate")(x)
    for actual, exact in zip(compiled(x), (share + late * weight, np.sin(wide) * weight), strict=True):
        np.testing.assert_allclose(actual, exact, rtol=2e-5, atol=1e-6)


def test_a_sum_over_all_axes_begins_in_the_kernel_of_its_rows():
    x = np.random.default_rng(2).standard_normal((64, 96)).astype(np.float32)

    def fn(x, g):
        return lg.value_and_grad(lambda v: lg.sum(lg.softmax(v, axis=1) * g))(x)

    fused = fuse(lowered(fn, (x, x)))
    assert max(t.size for n in fused.nodes if n.name == "kernel" for t in n.types[:1]) == 64
    e = np.exp(x.astype(np.float64))
    share = e / e.sum(1, keepdims=True)
    total, gradient = compiled(fused, (x, x))
    np.testing.assert_allclose(total, (share * x).sum(), rtol=1e-6)
    np.testing.assert_allclose(gradient, share * (x - (share * x).sum(1, keepdims=True)), rtol=1e-4, atol=1e-7)


def test_sums_over_columns_read_the_operand_not_a_normalised_copy():
    """The gradients of a layer norm's weight and bias are one kernel that makes the normalised rows again."""
    x = np.random.default_rng(2).standard_normal((256, 128)).astype(np.float32)

    def loss(x, w, b, g):
        centred = x - lg.mean(x, axis=1, keepdims=True)
        return lg.sum((centred / lg.sqrt(lg.mean(centred * centred, axis=1, keepdims=True) + 1e-5) * w + b) * g)

    gradient = lg.grad(loss, argnums=(0, 1, 2))
    fused = fuse(lowered(gradient, (x, x[0], x[1], x)))
    full = [t for n in fused.nodes if n.name == "kernel" for t in n.types if t.size == x.size]
    assert len(full) == 1
    (ops,) = [ops for ops in members(fused) if ops.count("sum") == 2 and "sqrt" not in ops]
    assert "divide" in ops
