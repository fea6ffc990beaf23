"""Autocast: the context, the decorator, the key of programs, regions inside a graph, and their backward."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.ir import AmpPolicy, Graph
from tests.checking import BACKENDS, on_backend

each_backend = pytest.mark.parametrize("backend", BACKENDS)
BF16, F16, F32 = lg.bfloat16, lg.float16, lg.float32
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.linspace(0.5, 2, 8, dtype=np.float32).reshape(4, 2)


def matmul(x: Any, w: Any) -> Any:
    return x @ w


def dtype_now() -> str:
    return str((lg.ones((2, 2)) @ lg.ones((2, 2))).dtype.name)


def matmul_dtypes(graph: Graph) -> list[str]:
    return [n.type.dtype.name for n in graph.nodes if n.name == "matmul"]


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(lg.bfloat16.numpy).astype(np.float64)


# -- the context


def test_contexts_nest_and_come_back() -> None:
    assert dtype_now() == "float32"
    with lg.autocast():
        assert dtype_now() == "bfloat16"
        with lg.autocast(F16):
            assert dtype_now() == "float16"
            with lg.autocast(enabled=False):
                assert dtype_now() == "float32"
                with lg.autocast(BF16):
                    assert dtype_now() == "bfloat16"
                assert dtype_now() == "float32"
            assert dtype_now() == "float16"
        assert dtype_now() == "bfloat16"
    assert dtype_now() == "float32"


def test_context_is_reusable_and_reentrant() -> None:
    half = lg.autocast("float16")
    for _ in range(2):
        with half as same:
            assert same is half and dtype_now() == "float16"
            with half, half:
                assert dtype_now() == "float16"
            assert dtype_now() == "float16"
        assert dtype_now() == "float32"


def test_exception_restores() -> None:
    with pytest.raises(ZeroDivisionError), lg.autocast(), lg.autocast(F16):
        raise ZeroDivisionError
    assert dtype_now() == "float32"
    f = lg.compile(lambda x: x @ x[0, 0, 0, 0], backend="reference")
    with pytest.raises(IndexError), lg.autocast():
        f(X)
    assert dtype_now() == "float32"


def test_decorator() -> None:
    @lg.autocast(F16)
    def fn(n: int) -> list[str]:
        """Documented."""
        return [dtype_now()] if n == 0 else [*fn(n - 1), dtype_now()]

    assert fn(2) == ["float16"] * 3 and dtype_now() == "float32"
    assert fn.__name__ == "fn" and fn.__doc__ == "Documented."


def test_threads_do_not_share_contexts() -> None:
    seen = []
    with lg.autocast():
        thread = threading.Thread(target=lambda: seen.append(dtype_now()))
        thread.start()
        thread.join()
    assert seen == ["float32"]


@pytest.mark.parametrize("dtype", [lg.float32, lg.float64, "int8", np.float32])
def test_only_halves(dtype: Any) -> None:
    with pytest.raises(lg.DTypeError, match=r"float16 or bfloat16"):
        lg.autocast(dtype)
    lg.autocast(dtype, enabled=False)


# -- programs


@each_backend
def test_policy_of_the_call_is_part_of_the_key(backend: str) -> None:
    f = lg.compile(matmul, backend=backend)
    for _ in range(2):
        assert f(X, W).dtype == np.float32
        with lg.autocast():
            assert f(X, W).dtype == lg.bfloat16.numpy
        with lg.autocast(F16):
            assert f(X, W).dtype == np.float16
        with lg.autocast(), lg.autocast(enabled=False):
            np.testing.assert_allclose(f(X, W), X @ W, rtol=1e-6)
    assert f.cache_info().currsize == 3
    assert "autocast: off before, bfloat16 now" in f.explain()


@each_backend
def test_compile_overrides_the_policy_of_the_call(backend: str) -> None:
    off, half = (lg.compile(matmul, backend=backend, autocast=a) for a in (False, lg.float16))
    for context in (lg.autocast(enabled=False), lg.autocast()):
        with context:
            assert off(X, W).dtype == np.float32 and half(X, W).dtype == np.float16
    assert off.cache_info().currsize == half.cache_info().currsize == 1


def test_override_holds_inside_other_programs_and_without_compile() -> None:
    half = lg.compile(matmul, autocast=lg.float16, backend="reference")
    off = lg.compile(matmul, autocast=False, backend="reference")

    @lg.compile(backend="reference", autocast=lg.bfloat16)
    def outer(x: Any, w: Any) -> Any:
        return half(x, w), x @ w, off(x, w), lg.grad(lambda w: lg.sum(half(x, w)))(w)

    expected = ["float16", "bfloat16", "float32", "float32"]
    assert [r.dtype.name for r in outer(X, W)] == expected
    with lg.disable_compile():
        assert [r.dtype.name for r in outer(X, W)] == expected
    assert [n.policy.name if n.policy else "" for n in outer.trace(X, W).nodes if n.name == "matmul"][:3] == [
        "float16", "bfloat16", "",
    ]  # fmt: skip


@each_backend
def test_a_graph_keeps_the_policy_it_was_traced_with(backend: str) -> None:
    with lg.autocast():
        inside = lg.trace(matmul, X, W)
    outside = lg.trace(matmul, X, W)
    assert inside.digest != outside.digest and Graph.parse(str(inside)).digest == inside.digest
    for context in (lg.autocast(enabled=False), lg.autocast(F16)):
        with context:
            assert inside.run(X, W, backend=backend)[0].dtype == lg.bfloat16.numpy
            assert outside.run(X, W, backend=backend)[0].dtype == np.float32
            g = inside.backward()
            assert "float16" not in matmul_dtypes(g)


def test_types_are_right_while_tracing() -> None:
    def fn(x: Any, w: Any) -> Any:
        y = x @ w
        assert y.dtype is BF16
        z = lg.exp(y)
        assert z.dtype is F32 and (y + 1).dtype is BF16 and (y * x[:, :2]).dtype is F32
        assert lg.sum(y).dtype in (BF16, F32) and lg.softmax(y).dtype is F32
        with lg.autocast(enabled=False):
            assert (y @ y.T).dtype is BF16 and (x @ w).dtype is F32
        return z

    with lg.autocast():
        assert lg.compile(fn, backend="reference")(X, W).dtype == np.float32
        assert fn(lg.asarray(X), lg.asarray(W)).dtype is F32


def test_what_autocast_never_touches() -> None:
    def fn(x: Any) -> Any:
        return x @ x.T

    with lg.autocast():
        for dtype in (np.float64, np.complex64, np.int32, np.int8):
            x = np.ones((2, 2), dtype)
            assert lg.compile(fn, backend="reference")(x).dtype == dtype
        assert lg.compile(lambda x: x * x + lg.sum(x), backend="reference")(X).dtype == np.float32


@each_backend
def test_deferred_values_keep_the_policy_of_their_recording(backend: str) -> None:
    with on_backend(backend):
        x, w = lg.asarray(X), lg.asarray(W)
        with lg.autocast():
            y = x @ w
        z = x @ w
        with lg.autocast(F16):
            assert y.numpy().dtype == lg.bfloat16.numpy and z.numpy().dtype == np.float32
        np.testing.assert_allclose(y.numpy().astype(np.float64), rounded(X) @ rounded(W), rtol=1e-2, atol=1e-2)
        np.testing.assert_allclose(z.numpy(), X @ W, rtol=1e-6, atol=1e-6)


# -- every op


@pytest.mark.parametrize("policy", [BF16, F16], ids=["bfloat16", "float16"])
def test_operands_satisfy_their_schema(policy: Any) -> None:
    """Under autocast no op mixes float dtypes, contractions see the half one, FORCE_FP32 ops none."""

    def fn(x: Any, w: Any, h: Any, k: Any) -> Any:
        y = x @ w
        z = lg.softmax(y) + lg.exp(y) * y
        m = lg.einsum("ij,kj->ik", z, h) @ lg.ones((5, 3), dtype=F16)
        n = lg.nn.layer_norm(m) + lg.mean(y) + lg.var(h) + lg.nn.gelu(y)[:, :1] ** 2 + lg.linalg.vector_norm(h)
        return lg.logsumexp(n), lg.where(k > 0, y[0, 0], h[0, 0]), lg.maximum(y, h[:3, :2]), lg.concat([y, h[:3]])

    h = np.ones((5, 2), np.float16)
    with lg.autocast(policy):
        graph = lg.trace(fn, X, W, h, 3)
        joint = lg.trace(lg.grad(lambda x, w: fn(x, w, h, 3)[0], (0, 1)), X, W)
    for node in (*graph.nodes, *joint.nodes):
        schema = node.op.schema_v1
        floats = {node.operands[k].dtype for k in node.op.shared_operands(len(node.operands))}
        floats = {d for d in floats if d.is_floating}
        if node.name in ("cast", "stop_gradient") or not floats:
            continue
        assert len(floats) == 1, node
        if schema.contraction and node.policy is policy and node.origin is None:
            assert floats == {policy}, node
        if schema.amp_policy is AmpPolicy.FORCE_FP32 and node.policy is policy and node.origin is None:
            assert floats == {F32}, node


# -- backward


@each_backend
def test_a_master_weight_used_three_times_is_cast_once(backend: str) -> None:
    def loss(w: Any, x: Any) -> Any:
        return lg.sum(lg.astype(x @ w, F32)) + lg.sum(lg.astype((x * 2) @ w, F32)) + lg.sum(lg.astype((x * 3) @ w, F32))

    with lg.autocast():
        forward = lg.compile(loss, backend=backend).trace(W, X)
        step = lg.compile(lg.grad(loss), backend=backend)
        joint, g = step.trace(W, X), step(W, X)
    weight = forward.inputs[forward.input_names.index("w")]
    assert [n.name for n in forward.nodes if weight in n.operands] == ["cast"]
    weight = joint.inputs[joint.input_names.index("w")]
    assert len([n for n in joint.nodes if weight in n.operands and n.dtype is BF16]) == 1
    assert g.dtype == np.float32
    # Three bfloat16 gradients, added in float32: more bits than a bfloat16 sum would have.
    parts = [rounded(rounded(k * X).T @ np.ones((3, 2))) for k in (1, 2, 3)]
    np.testing.assert_allclose(g, sum(parts), rtol=1e-2, atol=1e-2)


def test_the_three_gradients_are_summed_in_float32() -> None:
    # 256, 1 and 1 are bfloat16 numbers, 257 and 258 are not: only a sum in float32 gets 258.
    def loss(w: Any) -> Any:
        h = lg.astype(w, BF16)
        return sum(lg.astype(h * lg.asarray(k, dtype=BF16), F32) for k in (256.0, 1.0, 1.0))

    for run in (lg.grad(loss), lg.compile(lg.grad(loss), backend="reference")):
        assert run(np.float32(1)).item() == 258 and run(np.float32(1)).dtype == np.float32


@each_backend
def test_a_float32_island_stays_float32_in_its_backward(backend: str) -> None:
    def loss(w: Any, x: Any, island: bool, scale: float = 16384.0) -> Any:
        y = x @ w
        with lg.autocast(enabled=False):
            z = lg.astype(y, F32)
            total = lg.sum((z @ lg.asarray(V)) ** 2) if island else lg.sum(z)
        return total * scale

    V = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32) * 1.001

    def uncompiled(w: Any, x: Any) -> Any:
        with lg.autocast():
            return lg.grad(loss)(w, x, True)

    step = lg.compile(lg.grad(loss), backend=backend, static_argnames="island")
    with lg.autocast():
        g, joint = step(W, X, True), step.trace(W, X, True)
    halves = [n for n in joint.nodes if n.name == "matmul" and n.policy is None]
    assert halves and all(n.dtype is F32 and all(o.dtype is F32 for o in n.operands) for n in halves)
    with on_backend(backend):
        same = uncompiled(lg.asarray(W), lg.asarray(X)).numpy()
    np.testing.assert_allclose(g, same, rtol=1e-6)
    # The island by hand, in float32; only the outer matmul's gradient goes through bfloat16.
    y = (rounded(X) @ rounded(W)).astype(lg.bfloat16.numpy).astype(np.float32)
    dy = rounded((2 * (y @ V) @ V.T * 16384.0).astype(np.float32))
    np.testing.assert_allclose(g, rounded(X).T @ dy, rtol=2e-2, atol=np.abs(dy).max() * 2e-2)
    assert np.isfinite(g).all() and g.dtype == np.float32


def test_float16_gradients_of_a_scaled_loss_do_not_overflow_in_the_island() -> None:
    def loss(w: Any) -> Any:
        y = lg.ones((1, 2)) @ w
        with lg.autocast(enabled=False):
            return lg.sum(lg.astype(y, F32) * 1e-4) * 65536.0 * 64

    with lg.autocast(F16):
        g = lg.compile(lg.grad(loss), backend="reference")(np.ones((2, 1), np.float32))
    np.testing.assert_allclose(g, np.full((2, 1), 65536 * 64e-4), rtol=1e-3)


@pytest.mark.parametrize("policy", [BF16, F16], ids=["bfloat16", "float16"])
def test_compiled_and_deferred_agree(policy: Any) -> None:
    def fn(x: Any, w: Any) -> Any:
        y = lg.nn.relu(x @ w)
        return lg.sum(lg.log_softmax(y) * y)

    with on_backend("reference"), lg.autocast(policy):
        value, grads = lg.compile(lg.value_and_grad(fn, (0, 1)))(X, W)
        eager_value, eager_grads = lg.value_and_grad(fn, (0, 1))(X, W)
    np.testing.assert_allclose(value, eager_value.numpy(), rtol=1e-6)
    for a, b in zip(grads, eager_grads, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-6)
        assert a.dtype == np.float32


