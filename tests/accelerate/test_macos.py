"""The macOS bindings, run on any system through functions of the documented signatures."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.config import config
from lucidgraph.errors import BackendError, UnsupportedError
from lucidgraph.runtime.accelerate.backend import AccelerateBackend
from lucidgraph.runtime.accelerate.executor import Executor
from lucidgraph.runtime.accelerate.machine import HOST, Compiler
from lucidgraph.runtime.accelerate.macos import cblas, dispatch, vdsp, vforce
from lucidgraph.runtime.accelerate.plan import Planner
from lucidgraph.runtime.accelerate.system import System
from lucidgraph.runtime.accelerate.tables import TABLE
from lucidgraph.runtime.accelerate.values import I32, I64
from tests.accelerate import stand_in
from tests.accelerate.programs import outputs
from tests.samples import Sample, array, graph_of, node_of

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="the real library is there")
RNG = np.random.default_rng(11)


def macos(find: Callable[[str], int] = stand_in.find, threads: int = 3) -> AccelerateBackend:
    system = System(
        Compiler(HOST), lambda: cblas.library(find), dispatch.DispatchPool,
        (vdsp.Transposes(find), vdsp.Reductions(find), vforce.Functions(find)),
    )  # fmt: skip
    llvm.add_symbol("dispatch_apply_f", stand_in.find("dispatch_apply_f"))
    executor = Executor(system)
    executor.set_threads(threads)
    return AccelerateBackend(executor, system)


BACKEND = macos()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    stand_in.CALLS.clear()
    stand_in.THREADING[0] = 0
    saved = config.veclib
    yield
    config.veclib = saved


def called(prefix: str) -> list[tuple[Any, ...]]:
    return [call for call in stand_in.CALLS if call[0].startswith(prefix)]


def real(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


# -- CBLAS

FORMS = {"$NEWLAPACK$ILP64": I64, "$NEWLAPACK": I32, "": I32}


@pytest.mark.parametrize("suffix", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_products(suffix: str, dtype: str) -> None:
    older = list(FORMS)[list(FORMS).index(suffix) :]

    def find(name: str) -> int:
        known = not name.startswith("cblas") or any(name == name.partition("$")[0] + s for s in older)
        return stand_in.find(name) if known else 0

    a, b = real((3, 70, 40), dtype), real((40, 50), dtype)
    if "complex" in dtype:
        a, b = a + 1j * a[::-1], b - 1j * b[::-1]
    a, b = a.astype(dtype), b.astype(dtype)
    library = cblas.library(find)
    assert library.integer is FORMS[suffix]
    letter = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}[dtype]
    backend = macos(find)
    for x, y in ((a, b), (a[0], a[1].T), (b.T[:, ::2], b[::2]), (a[:, :, ::-1], b), (a[:0], b), (a[:, :, :0], b[:0])):
        stand_in.CALLS.clear()
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        (product,) = outputs(backend, lambda x, y: x @ y, x, y)
        wide = "complex128" if "complex" in dtype else "float64"
        np.testing.assert_allclose(product, x.astype(wide) @ y.astype(wide), rtol=1e-4, atol=1e-4)
        assert {c[0] for c in called("cblas")} <= {f"cblas_{letter}gemm{suffix}"}
        assert bool(called("cblas")) == bool(product.size)


def test_matrices_beyond_a_library_s_integers_are_refused() -> None:
    long = 1 << 31
    row, column = (np.broadcast_to(np.float32(0), shape) for shape in ((1, long), (long, 1)))
    graph = graph_of(node_of("matmul", Sample((row, column))))
    Planner(graph, 2, TABLE, system=BACKEND._system).run()
    with pytest.raises(UnsupportedError, match="less than 2\\^31 rows"):
        Planner(graph, 2, TABLE, system=macos(lambda name: 0 if "ILP64" in name else stand_in.find(name))._system).run()


def test_transposed_operands_are_read_in_place() -> None:
    x, y = real((30, 20)), real((25, 30))
    (product,) = outputs(BACKEND, lambda x, y: x.T @ y.T, x, y)
    np.testing.assert_allclose(product, x.T.astype("f8") @ y.T.astype("f8"), rtol=1e-5, atol=1e-5)
    ((_, order, turn_x, turn_y, m, n, k, _, _, lda, _, ldb, _, _, ldc),) = called("cblas_sgemm")
    assert (order, turn_x, turn_y, m, n, k, lda, ldb, ldc) == (101, 112, 112, 20, 25, 30, 20, 30, 25)


def test_threading_is_single_during_a_product_and_then_as_before() -> None:
    stand_in.THREADING[0] = 0
    x = real((300, 300))
    outputs(BACKEND, lambda x: x @ x, x)
    names = [c[:2] for c in stand_in.CALLS if "Threading" in c[0] or "gemm" in c[0]]
    assert stand_in.THREADING == [0]
    for k, (name, *_) in enumerate(names):
        if "gemm" in name:
            assert [c for c in names[:k] if c[0] == "BLASSetThreading"][-1] == ("BLASSetThreading", 1)
    assert names[-1] == ("BLASSetThreading", 0)


@pytest.mark.parametrize("suffix", FORMS)
def test_attention(suffix: str) -> None:
    def find(name: str) -> int:
        return stand_in.find(name) if not name.startswith("cblas") or name == name.partition("$")[0] + suffix else 0

    stand_in.THREADING[0] = 0
    q, k, v = real((1, 2, 70, 8)), real((1, 2, 90, 8)), real((1, 2, 90, 8))

    def program(q: Any, k: Any, v: Any) -> Any:
        fn = lambda *a: lg.sum(lg.nn.scaled_dot_product_attention(*a, mask="causal") ** 2)  # noqa: E731
        value, slopes = lg.value_and_grad(fn, argnums=(0, 1, 2))(q, k, v)
        return value, *slopes

    exact = lg.compile(program, backend="reference")(*(a.astype("f8") for a in (q, k, v)))
    for a, e in zip(outputs(macos(find), program, q, k, v), exact, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-4)
    assert {c[0] for c in called("cblas")} == {f"cblas_sgemm{suffix}"}
    assert stand_in.THREADING == [0]


def test_products_without_thread_control_and_without_blas() -> None:
    backend = macos(lambda name: 0 if "Threading" in name else stand_in.find(name))
    x = real((9, 9))
    (product,) = outputs(backend, lambda x: x @ x, x)
    np.testing.assert_allclose(product, x.astype("f8") @ x, rtol=1e-5, atol=1e-5)
    assert not [c for c in stand_in.CALLS if "Threading" in c[0]]
    with pytest.raises(BackendError, match="no cblas_sgemm"):
        cblas.library(lambda name: 0)


# -- Dispatch


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_items_are_shared_by_dispatch(threads: int) -> None:
    backend = macos(threads=threads)
    x = real((600, 700))
    total, rows, scaled = outputs(backend, lambda x: (lg.sum(x), lg.max(x, axis=1), x * 2), x)
    np.testing.assert_allclose(total, x.astype("f8").sum(), rtol=1e-6, atol=1e-9 * np.abs(x).sum())
    np.testing.assert_array_equal(rows, x.max(1))
    np.testing.assert_array_equal(scaled, x * 2)
    assert {c[1] for c in called("dispatch")} == ({threads} if threads > 1 else set())


def test_a_forked_child_uses_one_thread() -> None:
    executor = Executor(BACKEND._system)
    executor.set_threads(4)
    executor._after_fork()
    assert executor.threads == 1
    executor.set_threads(1)
    with pytest.raises(UnsupportedError, match="forked child"):
        executor.set_threads(2)


# -- vDSP


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(5, 40, 70), (3, 64, 33)])
def test_transposes_of_a_batch(dtype: str, shape: tuple[int, ...]) -> None:
    x = real(shape, dtype)
    (turned,) = outputs(BACKEND, lambda x: x.swapaxes(1, 2), x)
    np.testing.assert_array_equal(turned, x.swapaxes(1, 2))
    assert len(called("vDSP_mtrans")) == shape[0]


def test_what_is_no_transpose_of_whole_matrices_is_left_to_loops() -> None:
    x = real((5, 40, 70))
    programs = (
        lambda x: lg.permute_dims(x, (2, 1, 0)), lambda x: x.swapaxes(0, 1), lambda x: x[:, ::2].swapaxes(1, 2),
        lambda x: x[:, :, :33].swapaxes(1, 2), lambda x: x[:2].swapaxes(1, 2), lambda x: x[:, :31].swapaxes(1, 2),
    )  # fmt: skip
    for program in programs:
        (result,) = outputs(BACKEND, program, x)
        np.testing.assert_array_equal(result, program(lg.asarray(x)).numpy())
    (back,) = outputs(BACKEND, lambda x: x.swapaxes(1, 2), x.astype("int32"))
    np.testing.assert_array_equal(back, x.astype("int32").swapaxes(1, 2))
    assert not called("vDSP")


REDUCTIONS = {"sum": "sve", "mean": "meanv", "max": "maxv", "min": "minv"}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions_on_request(name: str, dtype: str) -> None:
    x = real((6, 5000), dtype)
    reduce: Any = getattr(lg, name)
    config.veclib = True
    found = outputs(BACKEND, lambda x: (reduce(x, axis=1), reduce(x, axis=1, keepdims=True), reduce(x[0])), x)
    wide = x.astype("f8")
    for result, exact in zip(
        found, (getattr(wide, name)(1), getattr(wide, name)(1, keepdims=True), getattr(wide[0], name)()), strict=True
    ):
        np.testing.assert_allclose(result, exact, rtol=1e-6, atol=1e-9 * np.abs(wide).sum())
    single = dtype == "float32" and name in ("sum", "mean")  # held in float by Apple, in double by us
    used = "vDSP_" + REDUCTIONS[name] + ("" if dtype == "float32" else "D")
    assert {c[0] for c in called("vDSP")} == (set() if single else {used})


def test_strided_reductions() -> None:
    config.veclib = True
    x = real((4, 9000, 3), "float64")
    found = outputs(BACKEND, lambda x: (lg.sum(x[0, :, 1]), lg.max(x[:, ::2, 0], axis=1)), x)
    np.testing.assert_allclose(found[0], x[0, :, 1].sum(), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found[1], x[:, ::2, 0].max(1))
    assert {(c[0], c[2], c[4]) for c in called("vDSP")} == {("vDSP_sveD", 3, 9000), ("vDSP_maxvD", 6, 4500)}


# -- vForce

UNARY = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan",
         "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "cbrt")  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_functions_on_request(name: str, dtype: str) -> None:
    x = RNG.uniform(1, 2, 40_000) if name == "acosh" else RNG.uniform(0.1, 0.9, 40_000)
    x = x.astype(dtype)
    function: Any = getattr(lg, name)
    (ours,) = outputs(BACKEND, lambda x: function(x), x)
    assert not called("vv")
    config.veclib = True
    (theirs,) = outputs(macos(), lambda x: function(x), x)
    np.testing.assert_allclose(theirs, ours, rtol=1e-6 if dtype == "float32" else 1e-14)
    suffix = "f" if dtype == "float32" else ""
    calls = called("vv")
    assert {c[0] for c in calls} == {f"vv{name}{suffix}"} and len(calls) == 3


def test_two_arguments_in_the_documented_order() -> None:
    config.veclib = True
    x, y = RNG.uniform(0.5, 2, (2, 200, 200))
    # One after the other: in one program they are one loop.
    (power,) = outputs(BACKEND, lambda x, y: (x**y,), x, y)
    (angle,) = outputs(BACKEND, lambda x, y: (lg.atan2(x, y),), x, y)
    assert {c[0] for c in called("vv")} == {"vvpow", "vvatan2"}
    np.testing.assert_allclose(power, x**y, rtol=1e-14)
    np.testing.assert_allclose(angle, np.arctan2(x, y), rtol=1e-14)


def test_fused_small_and_strided_functions_stay_ours() -> None:
    config.veclib = True
    x = real((200, 200))
    found = outputs(BACKEND, lambda x: (lg.exp(x) + 1, lg.exp(x[:2]), lg.exp(x[:, ::2])), x)
    for result, exact in zip(found, (np.exp(x) + 1, np.exp(x[:2]), np.exp(x[:, ::2])), strict=True):
        np.testing.assert_allclose(result, exact, rtol=1e-6)
    assert not called("vv")


def test_absent_functions_stay_ours() -> None:
    config.veclib = True
    backend = macos(lambda name: 0 if name.startswith("v") else stand_in.find(name))
    x = real((4, 200, 200), "float64")
    exp, total, turned = outputs(backend, lambda x: (lg.exp(x), lg.sum(x, axis=(1, 2)), x.swapaxes(1, 2)), x)
    np.testing.assert_allclose(exp, np.exp(x), rtol=1e-14)
    np.testing.assert_allclose(total, x.sum((1, 2)), rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(turned, x.swapaxes(1, 2))


def test_the_stand_in_refuses_what_the_headers_do() -> None:
    """vDSP_mtrans's sizes are the result's, vvpow's first argument is the exponent."""
    a, c = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((3, 2), np.float32)
    stand_in.FUNCTIONS["vDSP_mtrans"](a.ctypes.data, 1, c.ctypes.data, 1, 3, 2)
    np.testing.assert_array_equal(c, a.T)
    z, y, x = np.zeros(1), np.array([3.0]), np.array([2.0])
    stand_in.FUNCTIONS["vvpow"](z.ctypes.data, y.ctypes.data, x.ctypes.data, ctypes.byref(ctypes.c_int32(1)))
    assert z[0] == 8


def test_scratch_rows_are_each_part_s_own() -> None:
    """A softmax keeps its exponentials in a scratch row: parts that shared one would spoil them."""
    x = array("float32", (300, 500), special=False)
    (soft,) = outputs(BACKEND, lambda x: lg.softmax(x, axis=1), x)
    e = np.exp(x.astype("f8") - x.max(1, keepdims=True))
    np.testing.assert_allclose(soft, e / e.sum(1, keepdims=True), rtol=1e-6)
