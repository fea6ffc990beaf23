"""The MLX backend against the meaning of the IR, op by op and in whole programs; and what it promises besides."""

import math
import os
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph import dtypes
from lucidgraph.errors import DTypeError, UnsupportedError
from lucidgraph.ir import Builder, Graph, TensorType, Var
from lucidgraph.ir.evaluate import evaluate, evaluate_node
from lucidgraph.ir.op import REGISTRY, Unary, get
from lucidgraph.ir.schema import OpSchema
from lucidgraph.sources import SourceLine
from lucidgraph.wiring import backend
from tests.checking import assert_close, check
from tests.samples import SAMPLES, WITHOUT, graph_of, node_of

mx = pytest.importorskip("mlx.core")

from lucidgraph.runtime.mlx import tables  # noqa: E402

MLX = backend("mlx")


@pytest.fixture
def compiled_kernels():
    """``mx.compile`` at work, which the suite's settings turn off."""
    mx.enable_compile()
    yield
    if os.environ.get("MLX_DISABLE_COMPILE"):
        mx.disable_compile()


def run(graph, *arrays):
    """The outputs of an explicit graph on MLX, as NumPy arrays."""
    buffers = [MLX.to_buffer(a, n.type) for a, n in zip(arrays, graph.inputs, strict=True)]
    return [MLX.to_numpy(r) for r in MLX.compile(graph)(buffers)]


def graph_in(fn, *types):
    """The explicit graph of ``fn`` over variables."""
    builder = Builder()
    inputs = [builder.input(t) for t in types]
    outputs = fn(*(Var(builder, i) for i in inputs))
    outputs = outputs if isinstance(outputs, list) else [outputs]
    return Graph(inputs, builder.nodes, [v.node for v in outputs], "explicit").verify()


def f32(*shape):
    return TensorType(shape, dtypes.float32)


# -- the tables


def test_every_primitive_has_an_entry():
    written_by_lowering = {"input", "constant", "captured", "kernel"}
    missing = [n for n, op in REGISTRY.items() if not op.composite and n not in tables.TABLE]
    assert set(missing) <= written_by_lowering
    assert sum(len(chapter.TABLE) for chapter in tables.CHAPTERS) == len(tables.TABLE), "two chapters share a name"


def test_every_op_has_samples():
    assert {n for n in REGISTRY if n not in SAMPLES} <= WITHOUT
    assert SAMPLES.keys() <= REGISTRY.keys()


def compare(name, samples, ways=("alone", "compiled")):
    """An op alone and in a compiled program equals its meaning, for each sample whose dtypes MLX has."""
    for sample in samples:
        node = node_of(name, sample)
        if any(t.dtype is dtypes.complex128 for n in (node, *node.operands) for t in n.types):
            continue
        expected = evaluate_node(node, sample.operands)
        buffers = [MLX.to_buffer(a, o.type) for a, o in zip(sample.operands, node.operands, strict=True)]
        for how in ways:
            result = MLX.run_op(node, buffers) if how == "alone" else MLX.compile(graph_of(node))(buffers)[0]
            actual = MLX.to_numpy(result)
            assert actual.dtype == expected.dtype, f"{how}, {sample}: {actual.dtype}"
            with np.errstate(all="ignore"):
                try:
                    assert_close(actual, expected, scale=2)
                except AssertionError as error:
                    raise AssertionError(f"{how}, {sample}: {error}") from None


@pytest.mark.parametrize("name", SAMPLES)
def test_op_equals_its_meaning(name):
    compare(name, SAMPLES[name])


@pytest.mark.full
@pytest.mark.parametrize("name", SAMPLES)
def test_op_equals_its_meaning_in_compiled_kernels(name, compiled_kernels):
    """One sample of each combination of dtypes through MLX's own compiler."""
    chosen = {}
    for sample in SAMPLES[name]:
        if all(a.size for a in sample.operands):
            chosen.setdefault(tuple(a.dtype for a in sample.operands), sample)
    compare(name, chosen.values(), ways=("compiled",))


# -- what is corrected


@pytest.mark.parametrize(("shape", "axis"), [((3_000_001,), 0), ((200_000, 3), 0), ((3, 100_003), 1)])
def test_long_float32_sums_are_exact_to_the_last_digits(shape, axis):
    x = np.full(shape, 0.1, np.float32)
    expected = float(np.float32(0.1)) * shape[axis]
    for fn in (lg.sum, lambda v, axis: lg.mean(v, axis=axis) * float(shape[axis])):
        total = lg.compile(lambda v, fn=fn: fn(v, axis=axis), backend="mlx")(x)
        np.testing.assert_allclose(total, expected, rtol=5e-7)


def test_sum_over_separate_axes():
    x = np.random.default_rng(0).uniform(1, 2, (30, 7, 40, 5)).astype(np.float32)
    check(lambda v: lg.sum(v, axis=(0, 2, 3)), x, expected=x.astype(np.float64).sum((0, 2, 3)), backends=["mlx"])
    check(
        lambda v: lg.sum(v, axis=(0, 3), keepdims=True),
        x, expected=x.astype(np.float64).sum((0, 3), keepdims=True), backends=["mlx"],
    )  # fmt: skip


def elementwise(name, x):
    """One op of one array, without tolerance for its neighbours."""
    dtype = dtypes.as_dtype(x.dtype)
    return run(graph_in(lambda v: v.emit(name), TensorType(x.shape, dtype)), x)[0]


def test_erf_is_accurate_near_zero():
    x = np.concatenate([10.0 ** np.linspace(-38, 0.5, 300), -(10.0 ** np.linspace(-5, 0, 50)), [0.5, -0.5]])
    for dtype, tolerance in ((np.float32, 1.5e-6), (np.float64, 1e-13)):
        given = x.astype(dtype)
        np.testing.assert_allclose(elementwise("erf", given), [math.erf(v) for v in given], rtol=tolerance)


@pytest.mark.parametrize("name", ["exp", "sin", "cos"])
def test_float64_functions_are_float64(name):
    x = np.concatenate([np.linspace(-40, 40, 501), [1e-300, 700.0, -700.0, -745.0, 1e6]])
    if name != "exp":
        x = x[np.abs(x) < 1e5]
    with np.errstate(over="ignore"):
        expected = getattr(np, name)(x)
    np.testing.assert_allclose(elementwise(name, x), expected, rtol=1e-15 if name == "exp" else 0, atol=5e-16)


def test_float64_edges():
    x = np.array([math.inf, -math.inf, math.nan, 800.0, -800.0])
    np.testing.assert_array_equal(elementwise("exp", x), [math.inf, 0, math.nan, math.inf, 0])
    np.testing.assert_array_equal(elementwise("sigmoid", x), [1, 0, math.nan, 1, 0])
    np.testing.assert_array_equal(elementwise("erf", x), [1, -1, math.nan, 1, -1])


def test_integer_division_that_traps_the_processor():
    for name in ("int8", "int16", "int32", "int64"):
        least = np.iinfo(name).min
        x, y = np.array([least, least, 7, -7], name), np.array([-1, 0, 0, 2], name)
        t = TensorType((4,), dtypes.from_name(name))
        quotient, rest = run(graph_in(lambda a, b: [a.emit("floor_divide", b), a.emit("remainder", b)], t, t), x, y)
        assert quotient.tolist() == [least, 0, 0, -4]
        assert rest.tolist() == [0, 0, 0, 1]


def test_indices_outside_are_clamped():
    i = TensorType((4,), dtypes.int64)
    graph = graph_in(lambda x, i: [x.emit("take", i, axis=0), x.emit("take_along_axis", i, axis=0)], f32(3), i)
    x, places = np.array([1, 2, 3], np.float32), np.array([-(2**40), -1, 3, 2**40])
    for taken in run(graph, x, places):
        assert taken.tolist() == [1, 3, 3, 3]


def test_float64_to_half_is_rounded_once():
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8])
    for dtype, expected in ((dtypes.float16, [1 + 2**-10, 1 + 2**-8, 1 + 2**-8]), (dtypes.bfloat16, [1, 1 + 2**-7, 1])):
        graph = graph_in(lambda v, d=dtype: v.astype(d), TensorType((3,), dtypes.float64))
        assert run(graph, x)[0].tolist() == expected


# -- the generated function


def test_source_reads_as_mlx_code():
    def layer(x, w, b):
        h = x.emit("matmul", w) + b
        return [(h * 0.5 + 1.0).sum((1,)), h.emit("maximum", h.full(0.0))]

    graph = graph_in(layer, f32(2, 3), f32(3, 4), f32(4))
    graph = Graph(graph.inputs, graph.nodes, graph.outputs, "explicit", ["x", "lambda", "b"])
    assert MLX.compile(graph).source == (
        "def program(x, v1, b):\n"
        "    v3 = x @ v1\n"
        "    v5 = v3 + b\n"
        "    v8 = v5 * 0.5\n"
        "    v11 = v8 + 1.0\n"
        "    v12 = mx.sum(v11, axis=(1,), keepdims=False)\n"
        "    v15 = mx.maximum(v5, 0.0)\n"
        "    return [v12, v15]\n"
    )


def test_broadcasts_stay_where_the_shape_needs_them():
    graph = graph_in(lambda x: x.broadcast_to((2, 3)) + x.full(1.0).broadcast_to((2, 3)), f32(3))
    assert "mx.broadcast_to" in MLX.compile(graph).source or "mx.full" in MLX.compile(graph).source
    assert run(graph, np.zeros(3, np.float32))[0].shape == (2, 3)
    outer = graph_in(lambda x, y: x.broadcast_to((2, 3)) * y.broadcast_to((2, 3)), f32(3), f32(2, 1))
    assert "broadcast_to" not in MLX.compile(outer).source
    assert run(outer, np.arange(3, dtype=np.float32), np.ones((2, 1), np.float32))[0].tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d is not dtypes.complex128])
def test_constants_are_exact(dtype):
    """Alone and as a Python number beside an array: the value NumPy rounds to, to the bit."""
    integers = list(dtype.range) if dtype.is_integer else []
    floats = [0.1, 1 / 3, 128**-0.5, 1 + 2**-8 + 2**-40, math.inf, -math.inf, math.nan, 65520.0]
    values = {"b": [True, False], "i": integers, "u": integers, "f": floats, "c": [0.1 + 0.3j, complex(math.inf, -0.0)]}
    t = TensorType((), dtype)
    for value in values[dtype.kind]:

        def both(x, v=value):
            c = x.scalar(v)
            return [c, x + c if dtype.is_complex or dtype.is_bool else x.emit("minimum", c) + x.emit("maximum", c)]

        graph = graph_in(both, t)
        given = np.zeros((), dtype.numpy)
        for actual, expected in zip(run(graph, given), evaluate(graph, [given]), strict=True):
            assert actual.tobytes() == expected.tobytes() or (actual != actual and expected != expected)


def test_constants_keep_their_bits_in_compiled_kernels(compiled_kernels):
    """One small program through g++ (or Metal): the products NumPy rounds to."""
    graph = graph_in(lambda x: (x * (1 / 3) + 128**-0.5).emit("maximum", x.full(-math.inf)), f32(50))
    x = np.linspace(-3, 3, 50, dtype=np.float32)
    np.testing.assert_array_equal(run(graph, x)[0], x * np.float32(1 / 3) + np.float32(128**-0.5))


def test_constants_that_compiled_kernels_cannot_hold(compiled_kernels):
    t = TensorType((2,), dtypes.complex64)
    graph = graph_in(lambda x: (x * x + complex(math.inf, math.nan)).emit("add", x), t)
    assert np.isnan(run(graph, np.ones(2, np.complex64))[0].imag).all()


def test_python_numbers_are_computed_by_numpy_and_not_compiled_in():
    f = lg.compile(lambda x, a: x * (a / 3 - 1), backend="mlx")
    x = np.ones(2, np.float32)
    for a in (0.1, 5, 1e300):
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(f(x, a), x * np.float32(a / 3 - 1))
    assert f.cache_info().currsize == 2  # one for floats, one for ints
    source = f.lower(x, 0.1).compile().source
    assert source.startswith("# by NumPy, before each call") and "/" not in source.partition("def")[2]


def test_composites_without_kernel_are_written_out():
    x = np.random.default_rng(0).standard_normal((3, 5))
    assert "mx.softmax" in lg.compile(lg.softmax, backend="mlx").lower(x.astype(np.float32)).compile().source
    assert "mx.softmax" not in lg.compile(lg.softmax, backend="mlx").lower(x).compile().source
    e = np.exp(x - x.max(-1, keepdims=True))
    check(lg.softmax, x, expected=e / e.sum(-1, keepdims=True), backends=["mlx"])


def test_captured_arrays_are_arguments():
    w = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    f = lg.compile(lambda x: lg.matmul(x, w), backend="mlx")
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(f(x), x @ w)
    assert f.lower(x).compile().source.startswith("def program(x, v1):")


@pytest.mark.slow
def test_long_chains():
    def chain(x):
        for _ in range(20_000):
            x = x + 1.0
        return x

    assert run(graph_in(chain, f32(2)), np.zeros(2, np.float32))[0].tolist() == [20_000, 20_000]


# -- arrays in and out


@pytest.mark.parametrize(
    "x",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
        np.arange(12, dtype=np.float32)[::-2],
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(3, dtype=">f4"),
        np.arange(3, dtype=">i2"),
        np.broadcast_to(np.float32(2), (2, 3)),
        np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)[:, ::-1],
        np.arange(4, dtype=np.complex64)[1::2],
        np.zeros((0, 3), np.uint64),
        np.array(2**63 + 1, np.uint64),
    ],
    ids=lambda x: f"{x.dtype}{x.shape}{x.strides}",
)
def test_arrays_of_any_layout(x):
    t = TensorType(x.shape, dtypes.as_dtype(x.dtype))
    x.flags.writeable = False
    (result,) = run(graph_in(lambda v: v.emit("stop_gradient"), t), x)
    assert result.dtype == t.dtype.numpy
    np.testing.assert_array_equal(result.astype(np.complex128), x.astype(np.complex128))


def test_mlx_arrays_are_taken_as_they_are():
    x = mx.arange(3, dtype=mx.float32)
    assert MLX.to_buffer(x, f32(3)) is x


def test_results_share_no_memory():
    x = mx.arange(3, dtype=mx.float32)

    def outputs(v):
        y = v + 1.0
        return [v, y, y.reshape((3, 1)), v.reshape((1, 3)), v.broadcast_to((2, 3))]

    graph = graph_in(outputs, f32(3))
    graph = Graph(graph.inputs, graph.nodes, [*graph.outputs, graph.outputs[1]], "explicit")
    results = [MLX.to_numpy(r) for r in MLX.compile(graph)([x])]
    before = [r.copy() for r in results]
    for k, r in enumerate(results):
        r[...] = -1
        for other, old in zip(results[k + 1 :], before[k + 1 :], strict=True):
            np.testing.assert_array_equal(other, old)
    assert x.tolist() == [0, 1, 2]


def test_mlx_results_are_lazy():
    x = mx.ones(1 << 22)
    mx.eval(x)
    f = lg.compile(lambda v: v * 2.0, backend="mlx")
    before = mx.get_active_memory()
    y = f(x)
    assert mx.get_active_memory() - before < x.nbytes
    mx.eval(y)
    assert mx.get_active_memory() - before >= x.nbytes


# -- threads, effects, errors


def test_programs_and_tensors_on_several_threads():
    w = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    f = lg.compile(lambda x, a: lg.matmul(x * a, w), backend="mlx")
    failures, made = [], []

    def work(k):
        try:
            x = np.full((k + 1, 8), 2.0, np.float32)
            for i in range(20):
                assert_close(f(x, float(i)), (x * i).astype(np.float64) @ w, scale=5)
            made.append((f(lg.asarray(x), 1.0), x @ w))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    for tensor, expected in made:  # made over there, read and used here
        assert_close((tensor * 1.0).numpy(), expected, scale=5)


def test_prints_run_in_order_when_the_program_runs(capsys):
    builder = Builder()
    x = Var(builder, builder.input(f32(2)))
    y = x * 2.0
    for label, v in (("first", y), ("second", y.sum((0,)))):
        builder.emit(get("debug_print"), [v.node], {"format": label + " {}"})
    graph = Graph([x.node], builder.nodes, [(y + 1.0).node], "explicit")
    executable = MLX.compile(graph)
    assert capsys.readouterr().out == ""
    (result,) = executable([np.array([1, 2], np.float32)])
    assert capsys.readouterr().out == "first [2. 4.]\nsecond 6.0\n"
    assert result.tolist() == [3, 5]


def test_an_op_without_entry_is_named_with_its_line():
    class Unknown(Unary):
        schema_v1 = OpSchema("test_mlx_unknown")
        zero_gradient = "a test"

        @classmethod
        def evaluate(cls, x):
            return x

    builder = Builder()
    builder.source = SourceLine("model.py", 12)
    x = builder.input(f32(2))
    node = builder.emit(Unknown, [x], {})
    graph = Graph([x], [node], [node], "explicit")
    for attempt in (lambda: MLX.compile(graph), lambda: MLX.run_op(node, [mx.ones(2)])):
        with pytest.raises(UnsupportedError, match=r"cannot run test_mlx_unknown[\s\S]*model.py:12[\s\S]*reference"):
            attempt()


def test_complex128_is_refused_with_its_line():
    with pytest.raises(DTypeError, match=r"no complex128[\s\S]*test_mlx.py:\d+"):
        lg.compile(lambda x: x * 2.0, backend="mlx")(np.ones(2, np.complex128))


def test_without_mlx_the_backend_says_how_to_get_it():
    code = (
        "import sys; sys.modules['mlx'] = sys.modules['mlx.core'] = None\n"
        "import lucidgraph as lg\n"
        "print(lg.backends()['mlx'])\n"
        "try: lg.compile(lambda x: x, backend='mlx')(1.0)\n"
        "except lg.errors.BackendError as error: print(error.hint)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "mlx is not installed" in out
    assert "pip install 'lucidgraph[cpu]'" in out
