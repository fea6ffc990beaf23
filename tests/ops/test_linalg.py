"""Products of arrays and norms, against NumPy in float64."""

from __future__ import annotations

from math import inf

import ml_dtypes
import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.lang.linalg import einsum, matmul, vector_norm
from tests.checking import check, check_gradient, on_backend

rng = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def single(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


SHAPES = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (6, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((6, 5, 2, 3), (3,)),
    ((3,), (6, 5, 3, 4)),
    ((1, 1), (1, 1)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_matmul_values_and_gradients(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = single(*a), single(*b)
    check(matmul, x, y, expected=x.astype(np.float64) @ y.astype(np.float64), dtype=lg.float32, scale=4)
    check_gradient(matmul, normal(*a), normal(*b))


@pytest.mark.parametrize(
    ("a", "b"),
    [((2, 0), (0, 3)), ((0, 3), (3, 2)), ((4, 0, 3), (3, 2)), ((2, 3), (0, 3, 2)), ((0,), (0,)), ((0,), (0, 2))],
)
def test_matmul_of_nothing(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = np.zeros(a), np.zeros(b)
    check(matmul, x.astype(np.float32), y.astype(np.float32), expected=x @ y)
    check_gradient(matmul, x, y)


def test_shared_matrix_has_one_flat_product_as_gradient() -> None:
    graph = lg.trace(matmul, single(5, 2, 3), single(3, 4)).backward()
    products = [n for n in graph.nodes if n.name == "matmul"]
    assert [n.shape for n in products] == [(5, 2, 4), (5, 2, 3), (3, 4)]
    assert products[2].operands[0].shape == (3, 10)
    assert not [n for n in graph.nodes if n.name in ("broadcast_to", "sum")]


def test_batch_axes_are_broadcast_explicitly_but_a_matrix_is_not() -> None:
    graph = lg.trace(matmul, single(5, 1, 2, 3), single(6, 3, 4))
    assert [n.shape for n in graph.nodes if n.name == "broadcast_to"] == [(5, 6, 2, 3), (5, 6, 3, 4)]
    assert [n.name for n in lg.trace(matmul, single(5, 2, 3), single(3, 4)).nodes] == ["matmul"]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_integer_matmul_wraps(dtype: type) -> None:
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, (3, 4), dtype)
    b = rng.integers(info.min, info.max, (4, 2), dtype)
    exact = a.astype(object) @ b.astype(object)
    expected = np.array([[v % 2**info.bits for v in row] for row in exact], np.uint64).astype(dtype)
    check(matmul, a, b, expected=expected, dtype=dtype, backends=["reference"])


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_half_is_added_in_float32_and_rounded_once(half: type) -> None:
    a, b = np.ones((1, 4096), half), np.full((4096, 1), 0.25, half)
    check(matmul, a, b, expected=[[1024.0]], dtype=half)
    # 1 + 2048 · 2⁻¹² is lost where partial sums are rounded to half precision.
    small = np.full((2049, 1), 2.0**-12, half)
    small[0] = 1.0
    check(matmul, np.ones((1, 2049), half), small, expected=[[1.5]], dtype=half)


def test_dtypes_go_together() -> None:
    half, single_, double = (normal(2, 2).astype(d) for d in (np.float16, np.float32, np.float64))
    assert lg.trace(matmul, half, single_).outputs[0].dtype is lg.float32
    assert lg.trace(matmul, half, half.astype(ml_dtypes.bfloat16)).outputs[0].dtype is lg.float32
    assert lg.trace(matmul, double, half).outputs[0].dtype is lg.float64
    assert lg.trace(matmul, np.ones((2, 2), np.int32), half).outputs[0].dtype is lg.float16
    z = (normal(2, 3) + 1j * normal(2, 3)).astype(np.complex64)
    w = single(3, 2)
    check(matmul, z, w, expected=z.astype(complex) @ w.astype(np.float64), dtype=lg.complex64, backends=["reference"])


def test_booleans_are_refused_traced_and_untraced() -> None:
    x = np.ones((2, 2), np.bool_)
    for call in (lambda: lg.trace(matmul, x, x), lambda: matmul(x, x), lambda: lg.trace(einsum, "ij,jk", x, x)):
        with pytest.raises(lg.errors.DTypeError, match="no meaning for booleans"):
            call()
    check(matmul, x, np.ones((2, 1), np.int32), expected=[[2], [2]], dtype=lg.int32, backends=["reference"])


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [((2, 3), (4, 5), "3 columns meet 4 rows"), ((), (2, 2), "matrices"), ((2, 1, 3), (3, 3, 1), "leading axes")],
)
def test_matmul_of_wrong_shapes_names_them(a: tuple[int, ...], b: tuple[int, ...], says: str) -> None:
    with pytest.raises(lg.errors.ShapeError, match=says):
        matmul(np.zeros(a, np.float32), np.zeros(b, np.float32))


def test_autocast_casts_operands_of_contractions_and_says_why() -> None:
    x, w = single(2, 3), single(3, 4)
    for fn in (matmul, lambda x, w: einsum("ij,jk->ik", x, w), lambda x, w: lg.nn.linear(x, x)):
        with lg.autocast(lg.bfloat16):
            graph = lg.trace(fn, x, w)
        casts = [n for n in graph.nodes if n.name == "cast"]
        assert {n.dtype for n in casts} == {lg.bfloat16}
        assert graph.outputs[0].dtype is lg.bfloat16
        assert "autocast runs" in str(graph) and "in bfloat16" in str(graph)
    with lg.autocast(lg.bfloat16):
        assert not [n for n in lg.trace(matmul, normal(2, 3), normal(3, 2)).nodes if n.name == "cast"]
        mixed = lg.trace(matmul, x.astype(np.float16), w)
    assert {o.dtype for o in mixed.outputs[0].operands} == {lg.bfloat16}


SIZES = {"i": 2, "j": 3, "k": 4, "l": 5, "b": 6, "q": 1}
SUBSCRIPTS = [
    "ij->ji", "ij->", "ij->j", "ii->i", "ii", "iji->ij", "ijj->i", "iii->i", "bii->bi", "i,j", "i,i", "i,i->i",
    "ij,jk", "ij,jk->ki", "ij,kj->ik", "ij,ik->jk", "ji,jk->ki", "bij,bjk->bik", "bij,bkj->ibk", "bij,jk->bik",
    "ij,bjk->bik", "bij,bij->b", "ij,ij->", "ij,k->", "ijk,jkl->il", "ijk,kl->lij", "ijk,jil->kl", "ij,k,l->lkji",
    "iij,kk->kj", "ij,jk,kl->il", "ij,jk,jk,k->ik", "b,bi,bj,ij->b", ",ij->ij", "qi,ij->qj", "...ij,...jk->...ik",
    "...i->...", "i...->...", "...ii->...i", "...,j->...j", " i j , j k -> i k ",
]  # fmt: skip


def einsum_operands(subscripts: str) -> list[np.ndarray]:
    given = subscripts.replace(" ", "").replace("...", "b").partition("->")[0]
    return [normal(*(SIZES[label] for label in term)) for term in given.split(",")]


@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
def test_einsum_is_numpys(subscripts: str) -> None:
    operands = einsum_operands(subscripts)
    single_ = [x.astype(np.float32) for x in operands]
    expected = np.einsum(subscripts, *(x.astype(np.float64) for x in single_))
    check(lambda *xs: einsum(subscripts, *xs), *single_, expected=expected, scale=8)
    if len(operands) < 4:
        check_gradient(lambda *xs: einsum(subscripts, *xs), *operands)


def test_einsum_broadcasts_axes_of_size_one() -> None:
    a, b = normal(5, 1, 2, 3), normal(6, 3, 4)
    check(lambda x, y: einsum("...ij,...jk->...ik", x, y), a, b, expected=a @ b)
    a, b = normal(2, 1), normal(3, 4)
    check(lambda x, y: einsum("ij,jk->ik", x, y), a, b, expected=np.broadcast_to(a, (2, 3)) @ b)
    check_gradient(lambda x, y: einsum("ij,jk->ik", x, y), a, b)
    check(lambda x: einsum("ii->i", x), np.zeros((0, 0)), expected=np.zeros(0))


def test_einsum_of_lists_of_numbers() -> None:
    a, b = normal(2, 3), normal(3, 4)
    check(lambda x, y: einsum(x, [0, 1], y, [1, 2], [2, 0]), a, b, expected=(a @ b).T)
    check(lambda x, y: einsum(x, [..., 1], y, [1, 2]), a, b, expected=a @ b)


def test_einsum_contracts_along_the_cheap_path() -> None:
    # (A B) v costs 2·10⁶ multiplications, A (B v) 2·10⁴.
    graph = lg.trace(lambda a, b, v: einsum("ij,jk,k->i", a, b, v), single(100, 100), single(100, 100), single(100))
    lowered = lg.compile(lambda a, b, v: einsum("ij,jk,k->i", a, b, v), backend="reference")
    final = lowered.graph(single(100, 100), single(100, 100), single(100))
    assert [n.name for n in graph.nodes] == ["einsum"]
    assert max(n.type.size for n in final.nodes if n.name == "matmul") == 100


@pytest.mark.parametrize(
    ("subscripts", "shapes", "says"),
    [
        ("ij,jk->ik", [(2, 3)], "names 2 operands, 1"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "3 and 4"),
        ("ij->ij", [(2,)], "names the axes"),
        ("ij->ik", [(2, 3)], "result names"),
        ("ij->ii", [(2, 3)], "result names"),
        ("i1->i", [(2, 3)], "letters"),
        ("ii->i", [(2, 3)], "in one operand"),
        ("...i->i", [(2, 3)], "lacks the axes"),
        ("ijk...->i", [(2, 3)], "more axes"),
    ],
)
def test_einsum_refuses_what_does_not_fit(subscripts: str, shapes: list[tuple[int, ...]], says: str) -> None:
    with pytest.raises(lg.errors.ShapeError, match=says):
        einsum(subscripts, *(np.zeros(s, np.float32) for s in shapes))


@pytest.mark.parametrize(
    ("name", "shapes", "kwargs"),
    [
        ("dot", [(), (2, 3)], {}), ("dot", [(3,), (3,)], {}), ("dot", [(2, 3), (3, 4)], {}),
        ("dot", [(5, 2, 3), (4, 3, 2)], {}), ("dot", [(5, 2, 3), (3,)], {}), ("inner", [(2, 3), (4, 3)], {}),
        ("inner", [(3,), (3,)], {}), ("inner", [(), (3,)], {}),
        ("outer", [(2, 3), (4,)], {}), ("vdot", [(2, 3), (2, 3)], {}), ("tensordot", [(2, 3, 4), (3, 4, 5)], {}),
        ("tensordot", [(2, 3, 4), (4, 5)], {"axes": 1}), ("tensordot", [(2, 3), (4,)], {"axes": 0}),
        ("tensordot", [(2, 3, 4), (4, 2, 5)], {"axes": ((0, -1), (1, 0))}), ("vecdot", [(2, 3), (2, 3)], {}),
        ("vecdot", [(5, 2, 3), (2, 3)], {}), ("vecdot", [(3, 2), (3, 2)], {"axis": 0}),
        ("vecdot", [(5, 1, 3), (4, 3)], {}),
    ],
)  # fmt: skip
def test_products_are_numpys(name: str, shapes: list[tuple[int, ...]], kwargs: dict) -> None:
    operands = [normal(*s) for s in shapes]
    fn = getattr(lg.linalg, name)
    check(lambda *xs: fn(*xs, **kwargs), *operands, expected=getattr(np, name)(*operands, **kwargs))
    check_gradient(lambda *xs: fn(*xs, **kwargs), *operands)


def test_products_of_complex_numbers_conjugate_the_first() -> None:
    a, b = (normal(2, 3) + 1j * normal(2, 3) for _ in range(2))
    check(lg.linalg.vdot, a, b, expected=np.vdot(a, b), backends=["reference"])
    check(lg.linalg.vecdot, a, b, expected=np.vecdot(a, b), backends=["reference"])


def test_integer_products_keep_their_dtype() -> None:
    x = np.array([100, 100], np.int8)
    check(lg.linalg.vecdot, x, x, expected=np.int8(20000 % 256), dtype=lg.int8, backends=["reference"])


@pytest.mark.parametrize("offset", [-4, -2, -1, 0, 1, 3, 5])
def test_diagonal_and_trace(offset: int) -> None:
    x = normal(2, 3, 4)
    check(lambda x: lg.linalg.diagonal(x, offset), x, expected=np.diagonal(x, offset, 1, 2))
    check(lambda x: lg.linalg.trace(x, offset), x, expected=np.trace(x, offset, 1, 2))
    check_gradient(lambda x: lg.linalg.trace(x, offset), x)
    check(lg.linalg.trace, np.full((3, 3), 100, np.uint8), expected=np.uint64(300), dtype=lg.uint64)


def test_transpose_and_cross() -> None:
    x = normal(2, 3, 4)
    check(lg.linalg.matrix_transpose, x, expected=x.swapaxes(1, 2))
    a, b = normal(5, 3), normal(3)
    check(lg.linalg.cross, a, b, expected=np.cross(a, b))
    check_gradient(lg.linalg.cross, a, b)
    a, b = normal(3, 2), normal(3, 2)
    check(lambda a, b: lg.linalg.cross(a, b, axis=0), a, b, expected=np.cross(a, b, axis=0))


@pytest.mark.parametrize("ord", [2, 1, 3, 2.5, 4, 0.5, inf, -inf, 0, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_vector_norm(ord: float, keepdims: bool) -> None:
    x = normal(2, 3, 4)
    for axis in (1, -1, (0, 2), None):
        moved = x if axis != (0, 2) else x.swapaxes(0, 1)
        flat = x.ravel() if axis is None else moved.reshape(3, 8) if axis == (0, 2) else x
        along = axis if isinstance(axis, int) else -1
        expected = np.linalg.norm(flat, ord, along)
        if keepdims:
            expected = np.reshape(expected, np.sum(x, axis=axis, keepdims=True).shape)
        check(lambda x, a=axis: vector_norm(x, a, keepdims, ord), x, expected=expected, scale=10)
    if ord:
        check_gradient(lambda x: vector_norm(x, (0, 2), keepdims, ord), x)


def test_norm_is_numpys() -> None:
    x = normal(3, 4)
    for ord, axis in ((None, None), (None, 0), (None, (0, 1)), ("fro", None), (1, None), (-1, (1, 0)), (inf, (0, 1)),
                      (-inf, None), (3, 1)):  # fmt: skip
        for keepdims in (False, True):
            check(
                lambda x, o=ord, a=axis, k=keepdims: lg.linalg.norm(x, o, a, k), x,
                expected=np.linalg.norm(x, ord, axis, keepdims),
            )  # fmt: skip
    check(lg.linalg.matrix_norm, x, expected=np.linalg.norm(x))
    with pytest.raises(lg.errors.UnsupportedError, match="singular values"):
        lg.linalg.norm(x, 2)
    with pytest.raises(lg.errors.AxisError):
        lg.linalg.norm(x, axis=(0, 0))


@pytest.mark.parametrize("ord", [1, 1.5, 2, 3, 0.5])
def test_norm_of_the_zero_vector_has_gradient_zero(ord: float) -> None:
    x = np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 4.0]], np.float32)
    gradient = lg.compile(lg.grad(lambda x: lg.sum(vector_norm(x, 1, ord=ord))))(x)
    np.testing.assert_array_equal(gradient[0], np.zeros(3))
    if ord == 2:
        np.testing.assert_allclose(gradient[1], [0.6, 0.0, 0.8], rtol=1e-6)


def test_norms_of_half_do_not_overflow_on_the_way() -> None:
    x = np.full(4, 300.0, np.float16)
    check(vector_norm, x, expected=np.float16(600.0), dtype=lg.float16)
    gradient = lg.compile(lg.grad(vector_norm))(x)
    np.testing.assert_array_equal(gradient, np.full(4, 0.5, np.float16))


def test_norms_of_integers_and_complex_numbers() -> None:
    check(vector_norm, np.array([3, 4]), expected=np.float32(5), dtype=lg.float32)
    z = np.array([3 + 4j, 0], np.complex64)
    check(vector_norm, z, expected=np.float32(5), dtype=lg.float32, backends=["reference"])
    with on_backend("reference"):
        gradient = lg.grad(vector_norm)(lg.asarray(z)).numpy()
    np.testing.assert_allclose(gradient, [0.6 - 0.8j, 0], rtol=1e-6)
