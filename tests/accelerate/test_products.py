"""Our own tiles against NumPy in double: every edge of a tile, operands that lie anyhow, pieces, other processors."""

import ctypes
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph import dtypes

gemm = pytest.importorskip("lucidgraph.runtime.accelerate.gemm")
from lucidgraph.runtime.accelerate.executor import EXECUTOR  # noqa: E402
from lucidgraph.runtime.accelerate.machine import HOST, Compiler  # noqa: E402
from tests.accelerate.programs import RUNNABLE, X86  # noqa: E402

RNG = np.random.default_rng(0)
SIZES = ((1, 1, 1), (3, 5, 7), (8, 32, 16), (9, 33, 17), (7, 31, 15), (12, 16, 64), (64, 64, 64), (5, 70, 300),
         (17, 129, 257), (300, 20, 40), (4, 3, 0))  # fmt: skip
COMPILERS: dict[str, Any] = {}


def compiler(cpu: str) -> Any:
    return COMPILERS.setdefault(cpu, Compiler(HOST if cpu == "host" else X86[cpu]))


def product(
    cpu: str, a: np.ndarray, b: np.ndarray, steps: tuple[int, bool] | None = None, packs: bool = False,
    height: int = 256,
) -> Any:  # fmt: skip
    """a @ b, batch by batch, by the kernel for a processor; ``steps``: in pieces of so many rows, or columns."""
    machine = compiler(cpu).machine
    dtype = dtypes.float32 if a.dtype == np.float32 else dtypes.float64
    code = compiler(cpu).code(dtype.name, lambda: gemm.product_kernel(dtype, machine))
    count, m, k = a.shape
    n = b.shape[2]
    guard = 64
    out = np.full(count * m * n + guard, 7, a.dtype)
    step, by_rows = steps or (max(m, 1), True)
    pieces = -(-(m if by_rows else n) // step)
    values = {
        "m": m, "n": n, "k": k, "row_a": a.strides[1], "step_a": a.strides[2], "step_b": b.strides[1],
        "column_b": b.strides[2], "row_c": n * a.itemsize, "pieces": pieces, "step": step, "by_rows": by_rows,
        "packs": packs or b.strides[2] != b.itemsize, "height": height, "batch_a": a.strides[0],
        "batch_b": b.strides[0], "batch_c": m * n * a.itemsize, "keeps": 1, "finish": 0, "a": a.ctypes.data,
        "b": b.ctypes.data, "c": out.ctypes.data,
    }  # fmt: skip
    words = np.array([values[name] for name in gemm.WORDS], np.int64)
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)(code.address("kernel"))
    items = count * pieces
    for begin, end in ((0, items // 3), (items // 3, items - 1), (items - 1, items)) if items > 2 else ((0, items),):
        kernel(words.ctypes.data, begin, end, 0)
    assert (out[-guard:] == 7).all()
    return out[:-guard].reshape(count, m, n)


def laid(shape: tuple[int, ...], dtype: str, how: str) -> np.ndarray:
    """Random matrices in rows, in columns, with gaps or backwards."""
    count, rows, columns = shape
    if how == "columns":
        return RNG.standard_normal((count, columns, rows)).astype(dtype).transpose(0, 2, 1)
    if how == "gaps":
        return RNG.standard_normal((count, 2 * rows, 3 * columns)).astype(dtype)[:, ::2, ::3]
    if how == "backwards":
        return RNG.standard_normal(shape).astype(dtype)[:, ::-1, ::-1]
    return RNG.standard_normal(shape).astype(dtype)


def check(actual: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    exact = a.astype(np.float64) @ b.astype(np.float64)
    # The error bound of a sum of k products, one rounding each.
    bound = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    bound *= (a.shape[2] + 2) * np.finfo(a.dtype).eps
    assert (np.abs(actual - exact) <= bound + (0 if a.dtype == np.float32 else 1e-15)).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cpu", ["host", *RUNNABLE])
def test_every_edge(cpu: str, dtype: str, size: tuple[int, int, int]):
    m, n, k = size
    for how_a, how_b in (("rows", "rows"), ("columns", "rows"), ("rows", "columns"), ("gaps", "backwards")):
        a, b = laid((1, m, k), dtype, how_a), laid((1, k, n), dtype, how_b)
        whole = product(cpu, a, b)
        check(whole, a, b)
        np.testing.assert_array_equal(product(cpu, a, b, packs=True), whole)
        np.testing.assert_array_equal(product(cpu, a, b, height=8), whole)


@pytest.mark.parametrize("steps", [(8, True), (32, False), (5, True), (7, False), (300, True)])
def test_pieces_change_no_bit(steps: tuple[int, bool]):
    a, b = laid((3, 37, 300), "float32", "rows"), laid((3, 300, 75), "float32", "columns")
    whole = product("host", a, b)
    check(whole, a, b)
    np.testing.assert_array_equal(product("host", a, b, steps), whole)


def test_infinities_and_nans_stay_in_their_rows_and_columns():
    a, b = laid((1, 19, 33), "float32", "rows"), laid((1, 33, 41), "float32", "rows")
    a[0, 18, 3], b[0, 5, 40] = np.nan, np.inf
    for packs in (False, True):
        bad = ~np.isfinite(product("host", a, b, packs=packs)[0])
        assert bad[18].all()
        assert bad[:, 40].all()
        assert not bad[:18, :40].any()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(5, 65, 40), (1, 200, 33), (7, 3, 90)])
def test_batches_on_threads(threads: int, shape: tuple[int, int, int]):
    count, m, n = shape
    a, b = RNG.standard_normal((count, m, 130), np.float32), RNG.standard_normal((count, 130, n), np.float32)
    before = EXECUTOR.threads
    try:
        lg.set_threads(threads)
        out = lg.compile(lambda a, b: (a @ b, lg.matrix_transpose(b) @ lg.matrix_transpose(a)), backend="accelerate")(
            a, b
        )
    finally:
        lg.set_threads(before)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(out[0], exact, atol=2e-5 * np.abs(exact).max())
    np.testing.assert_allclose(out[1], exact.transpose(0, 2, 1), atol=2e-5 * np.abs(exact).max())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("batch", [(), (3,), (2, 5)])
def test_matrices_and_vectors_however_they_lie(batch: tuple[int, ...], dtype: str, threads: int):
    def random(*shape: int) -> np.ndarray:
        x = RNG.standard_normal(shape)
        return (x + 1j * RNG.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)

    matrix, vector = random(*batch, 300, 420)[..., ::2, ::3], random(*batch, 420)[..., ::-3]
    plain = random(*batch, 600, 290)
    cases = [
        (lambda a, x: a @ x[..., None], matrix, vector),
        (lambda a, x: lg.matrix_transpose(a) @ x[..., None], np.ascontiguousarray(matrix.swapaxes(-1, -2)), vector),
        (lambda a, x: x[..., None, :] @ a, plain, random(*batch, 600)),
        (lambda a, x: x[..., None, :] @ lg.matrix_transpose(a), plain, random(290)),
        (lambda a, x: a @ x, plain, random(290)),
        (lambda a, x: x[..., None, :] @ x[..., :, None] + lg.sum(a) * 0, plain, random(*batch, 5000)),
    ]
    before = EXECUTOR.threads
    try:
        lg.set_threads(threads)
        for fn, a, x in cases:
            wide = "complex128" if dtype.startswith("complex") else "float64"
            out = lg.compile(fn, backend="accelerate")(a, x)
            exact = lg.compile(fn, backend="reference")(a.astype(wide), x.astype(wide))
            scale = np.abs(exact).max() + x.shape[-1]
            np.testing.assert_allclose(out, exact, atol=30 * np.finfo(dtype).eps * scale, rtol=0)
    finally:
        lg.set_threads(before)


def test_infinities_meet_only_their_own_row_in_products_with_vectors():
    a, x = RNG.standard_normal((70, 90), np.float32), np.ones(90, np.float32)
    a[3, 4], a[5, 6], a[5, 7], a[8, 0] = np.inf, np.inf, -np.inf, np.nan
    out = lg.compile(lambda a, x: a @ x, backend="accelerate")(a, x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(out, a @ x, atol=1e-4)
