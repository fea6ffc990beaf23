"""The Accelerate backend against the meaning of the IR: every op, dtype and awkward layout, alone and in programs."""

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph import passes
from lucidgraph.ir.evaluate import evaluate_node
from lucidgraph.ir.op import REGISTRY
from lucidgraph.wiring import backend
from tests.checking import assert_close
from tests.samples import SAMPLES, graph_of, node_of

points = pytest.importorskip("lucidgraph.runtime.accelerate.points", reason="llvmlite is not installed")
tables = pytest.importorskip("lucidgraph.runtime.accelerate.tables")
reduce = pytest.importorskip("lucidgraph.runtime.accelerate.reduce")

BACKEND = backend("accelerate")
FROM_EXPLICIT = [p for p in passes.pipeline(BACKEND.takes, BACKEND.fuses) if p[0] not in ("promote", "broadcast")]


def test_every_primitive_has_a_lowering():
    structural = {"input", "constant", "captured", "result", "kernel"}
    for name, op in REGISTRY.items():
        if op.composite or name in structural or name not in SAMPLES:
            continue
        assert name in points.ELEMENTWISE or name in reduce.FOLDS or op.view or name in tables.TABLE, (
            f"{name} is not lowered"
        )


@pytest.mark.parametrize("name", SAMPLES)
def test_op_equals_its_meaning(name):
    for sample in SAMPLES[name]:
        node = node_of(name, sample)
        with np.errstate(all="ignore"):
            expected = evaluate_node(node, sample.operands)
        buffers = [BACKEND.to_buffer(a, o.type) for a, o in zip(sample.operands, node.operands, strict=True)]
        graph = passes.run_passes(graph_of(node), FROM_EXPLICIT)
        results = [("compiled", BACKEND.compile(graph)(buffers)[0])]
        if not node.op.composite:
            results.append(("alone", BACKEND.run_op(node, buffers)))
        for how, actual in results:
            assert actual.dtype == expected.dtype, f"{how}, {sample}: {actual.dtype}"
            try:
                with np.errstate(all="ignore"):
                    assert_close(actual, expected, scale=4)
            except AssertionError as error:
                raise AssertionError(f"{how}, {sample}: {error}") from None


def test_a_reordered_row_value_is_read_in_its_order():
    x = np.arange(48.0).reshape(3, 4, 4) ** 2
    for fn, expected in (
        (lambda x: x - lg.max(x, axis=2, keepdims=True)[:, ::-1], x - x.max(2, keepdims=True)[:, ::-1]),
        (lambda x: x - lg.swapaxes(lg.sum(x, axis=0, keepdims=True), 1, 2), x - x.sum(0, keepdims=True).swapaxes(1, 2)),
    ):
        np.testing.assert_array_equal(lg.compile(fn, backend="accelerate")(x), expected)


LAYOUTS = {
    "Fortran": lambda a: np.asfortranarray(a),
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "strided": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "negative": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "complex64"])
def test_layouts(layout, dtype):
    x = LAYOUTS[layout](np.arange(35).reshape(5, 7).astype(dtype) - 9)
    program = lg.compile(
        lambda x: (x + 1, lg.sum(x, axis=0), lg.sum(x * x, axis=1), x.T, x[::-2, 1:5]), backend="accelerate"
    )
    wide = x.astype("complex128" if dtype == "complex64" else "float64")
    expected = wide + 1, wide.sum(0), (wide * wide).sum(1), wide.T, wide[::-2, 1:5]
    for actual, exact in zip(program(x), expected, strict=True):
        np.testing.assert_allclose(actual.astype(exact.dtype), exact, rtol=1e-6)
