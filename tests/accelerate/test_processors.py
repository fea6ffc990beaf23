"""Other processors: code for lesser x86-64 ones run here, code for arm64 emitted and its calls looked at."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

import lucidgraph as lg
from lucidgraph.ir.op import REGISTRY
from lucidgraph.runtime.accelerate.backend import AccelerateBackend
from lucidgraph.runtime.accelerate.executor import ExecutorModule
from lucidgraph.runtime.accelerate.linux.futex import FutexPool
from lucidgraph.runtime.accelerate.machine import HOST, Machine, optimized
from lucidgraph.runtime.accelerate.macos.dispatch import DispatchPool
from lucidgraph.runtime.accelerate.plan import Planner
from lucidgraph.runtime.accelerate.points import ELEMENTWISE
from lucidgraph.runtime.accelerate.system import SYSTEM
from lucidgraph.runtime.accelerate.tables import TABLE
from lucidgraph.wiring import lowered
from tests.accelerate.programs import ARM, RUNNABLE, X86, backend_for, graph_for, outputs
from tests.checking import assert_close
from tests.samples import SAMPLES, array, graph_of, node_of

backend_of = cache(lambda cpu: backend_for(X86[cpu]))
on_each = pytest.mark.parametrize("cpu", RUNNABLE)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype("complex128" if x.dtype.kind == "c" else "float64")


# -- what a machine is known to have


def test_lanes_and_masks_follow_the_features():
    def of(**features: bool) -> Machine:
        return Machine.of("x86_64-unknown-linux-gnu", "generic", features)

    full = {"avx512f": True, "avx512vl": True, "avx512bw": True, "avx2": True, "f16c": True, "fma": True}
    assert (of(**full).lanes, of(**full).masks) == (16, True)
    # Masked loads of bytes need BW, short vectors VL.
    for name in ("avx512vl", "avx512bw"):
        assert (of(**{**full, name: False}).lanes, of(**{**full, name: False}).masks) == (16, False)
    # AVX-512's instructions, but on 256 bits.
    assert (of(**full, evex512=False).lanes, of(**full, evex512=False).masks) == (8, False)
    assert of(avx512f=False, avx2=True).lanes == 8
    assert of(sse2=True) == replace(of(sse2=True), lanes=4, masks=False, fma=False, halves=False, rounds=False)
    arm = ARM["macOS"]
    assert (arm.lanes, arm.masks, arm.fma, arm.halves, arm.rounds) == (4, False, True, True, True)


def test_a_system_that_cannot_list_features(monkeypatch):
    def unknown():
        raise RuntimeError("failed to get host cpu features")

    monkeypatch.setattr(llvm, "get_host_cpu_features", unknown)
    assert Machine.host().lanes == 4


def test_two_processors_do_not_share_code():
    x = array("float32", (37,))
    assert len({backend_for(m).compile(graph_for(backend_for(m), lambda x: x + 1, x)).source for m in X86.values()})
    codes = [set(backend_of(cpu)._system.compiler._codes.values()) for cpu in RUNNABLE]
    assert not set.intersection(*codes) if len(codes) > 1 else True


# -- x86-64, run


@on_each
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "complex64", "bool"])
def test_tails_of_every_length(cpu: str, dtype: str):
    """Elementwise and reduced, by rows and by columns: every length up to two registers, and around two vectors."""
    backend, lanes = backend_of(cpu), 4 * X86[cpu].lanes
    whole = array(dtype, (3, 2 * lanes + 3), special=False)

    def program(x: Any) -> Any:
        y = x | x[::-1] if dtype == "bool" else x * x + x[::-1]
        return y, lg.sum(x, axis=1), lg.sum(x, axis=0), lg.any(x, axis=1)

    every = sorted({*range(2 * X86[cpu].lanes + 2), lanes - 1, lanes, lanes + 1, 2 * lanes - 1, 2 * lanes + 1})
    kept = []
    for n in every:
        x = np.ascontiguousarray(whole[:, :n])
        kept.append(backend.compile(graph_for(backend, program, x)))  # so that its kernels serve the next length
        got = kept[-1]([x])
        if dtype == "bool":
            expected = [x | x[::-1], x.sum(1), x.sum(0), x.any(1)]
        elif x.dtype.kind == "i":
            expected = [x * x + x[::-1], x.sum(1, "int64"), x.sum(0, "int64"), x.any(1)]
        else:
            rounded = (wide(x) * wide(x)).astype(x.dtype)
            expected = [wide(rounded) + wide(x)[::-1], wide(x).sum(1), wide(x).sum(0), wide(x).any(1)]
        for value, exact in zip(got, expected, strict=True):
            assert_close(value, exact, scale=4)


@on_each
@pytest.mark.parametrize("shape", [(5, 1), (5, 7), (4, 33), (33, 4), (2, 130)])
def test_fused_kernels(cpu: str, shape: tuple[int, ...]):
    x = array("float32", shape, special=False)
    w = wide(x)

    def program(x: Any) -> Any:
        soft = lg.softmax(x, axis=1)
        centred = x - lg.mean(x, axis=0)
        return (
            soft, lg.exp(-x * x) * lg.tanh(x) + lg.log1p(lg.abs(x)), lg.max(x, axis=1), lg.argmin(x, axis=0),
            lg.var(x, axis=0), centred.T, lg.sum(x[:, ::-1] * x, axis=1), x[::2, ::-1],
        )  # fmt: skip

    e = np.exp(w - w.max(1, keepdims=True))
    expected = (
        e / e.sum(1, keepdims=True), np.exp(-w * w) * np.tanh(w) + np.log1p(abs(w)), w.max(1), w.argmin(0), w.var(0),
        (w - w.mean(0)).T, (w[:, ::-1] * w).sum(1), w[::2, ::-1],
    )  # fmt: skip
    for value, exact in zip(outputs(backend_of(cpu), program, x), expected, strict=True):
        assert_close(value, exact, scale=4)


@on_each
def test_gather_scatter_and_products(cpu: str):
    x, indices = array("float32", (9, 21), special=False), np.array([3, -1, 0, 3, 8])

    def program(x: Any, i: Any) -> Any:
        taken = lg.take(x, i, axis=0)
        return taken, lg.take(x, i, axis=1), x.at[i].add(taken), x @ x.T, x.astype("int32") @ x.T.astype("int32")

    w = wide(x)
    added = w.copy()
    np.add.at(added, indices, w[indices])
    whole = x.astype("int32")
    expected = w[indices], w[:, indices], added, w @ w.T, whole @ whole.T
    for value, exact in zip(outputs(backend_of(cpu), program, x, indices), expected, strict=True):
        assert_close(value, exact)


@on_each
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integer_division(cpu: str, dtype: str):
    limits = np.iinfo(dtype)
    numbers = np.unique(np.array([limits.min, limits.min + 1, 0, 1, 2, 3, 7, limits.max - 1, limits.max], dtype))
    signed = np.unique(np.concatenate([numbers, np.negative(numbers)]))
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(signed, signed))
    quotient, rest = outputs(backend_of(cpu), lambda x, y: (x // y, x % y), x, y)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(quotient, x // y)
        np.testing.assert_array_equal(rest, x % y)


@on_each
def test_every_half_number(cpu: str):
    """Every float16 through float32 and back; float32 near every float16 and halfway, rounded to nearest even."""
    backend = backend_of(cpu)
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    (exact,) = outputs(backend, lambda x: x.astype("float32"), every)
    np.testing.assert_array_equal(exact, every.astype(np.float32))
    finite = np.sort(every[np.isfinite(every)].astype(np.float32))
    middle = (finite[1:] + finite[:-1]) / 2
    x = np.concatenate([finite, middle, np.nextafter(middle, np.float32(9e9)), np.nextafter(middle, np.float32(-9e9)),
                        np.array([65519, 65520, 65536, 1e9, 1e-45, np.inf, -np.inf, np.nan], np.float32)])  # fmt: skip
    x = np.concatenate([x, -x])
    (rounded,) = outputs(backend, lambda x: x.astype("float16"), x)
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)
    np.testing.assert_array_equal(rounded, want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(rounded[number]), np.signbit(want[number]))


@on_each
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_to_integers(cpu: str, dtype: str):
    big = 2.0 ** (np.finfo(dtype).nmant - 1)
    x = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 3.5, np.nextafter(0.5, 0), np.nextafter(1, 0)]
    x += [big - 0.5, big, big + 0.5, 2 * big + 1, 4 * big + 2, 1e30, np.inf, np.nan]
    x = np.array([*x, np.finfo(dtype).smallest_subnormal], dtype)
    x = np.concatenate([x, -x])
    for name in ("floor", "ceil", "trunc", "round"):
        function: Any = getattr(lg, name)
        (got,) = outputs(backend_of(cpu), lambda x: function(x), x)  # noqa: B023
        want = getattr(np, name)(x)
        np.testing.assert_array_equal(got, want)
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]), name)


@on_each
@pytest.mark.parametrize("queries", [1, 7, 70])
def test_attention(cpu: str, queries: int):
    q, k, v = (array("float32", (1, 2, n, 9), seed=n, special=False) for n in (queries, 77, 77))
    seen = np.random.default_rng(0).random((queries, 77)) < 0.7

    def program(q: Any, k: Any, v: Any) -> Any:
        found = []
        for mask in ("causal", seen):
            fn = lambda q, k, v, m=mask: lg.sum(lg.nn.scaled_dot_product_attention(q, k, v, mask=m) ** 2)  # noqa: E731
            value, slopes = lg.value_and_grad(fn, argnums=(0, 1, 2))(q, k, v)
            found += [value, *slopes]
        return tuple(found)

    exact = lg.compile(program, backend="reference")(wide(q), wide(k), wide(v))
    for a, e in zip(outputs(backend_of(cpu), program, q, k, v), exact, strict=True):
        assert_close(a, e, scale=16)


# -- code emitted

ALLOWED = {"fmod", "fmodf", "memcpy", "memset", "memmove", "bzero"}
"""What kernels may call: the remainder of floats, and memory functions, which every C library has."""
LIBRARY = {
    FutexPool: {
        "syscall", "pthread_create", "pthread_detach", "pthread_setaffinity_np", "sched_getaffinity", "sched_getcpu",
        "sched_yield",
    },
    DispatchPool: {"dispatch_apply_f"},
}
PYTHON = {"PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals"}


def outside_calls(assembly: str) -> set[str]:
    """Names that machine code calls or takes the address of, and does not define."""
    code = re.sub(r"(?m)(//|;|#).*$|^\s*\.(?!globl).*$", "", assembly)
    defined = set(re.findall(r"(?m)^([\w.$]+):", code))
    defined |= set(re.findall(r"(?m)^\s*\.zerofill \w+,\w+,([\w.$]+),", assembly))
    used = set(re.findall(r"(?m)^\s+(?:bl|b|callq?|jmp|jmpq)\s+([A-Za-z_][\w.$]*)", code))
    used |= set(re.findall(r"([A-Za-z_][\w.$]*)@(?:GOT|PLT|PAGE)", code))
    used |= set(re.findall(r":(?:got|lo12|got_lo12):([A-Za-z_][\w.$]*)", code))
    prefix = "_" if any(name.startswith("ltmp") for name in defined) or ".build_version macos" in assembly else ""
    return {name.removeprefix(prefix) for name in used - defined if not name.startswith(("L", "lCPI", ".L"))}


class Emitter:
    """In place of a compiler: kernels as assembly for a processor that need not be here."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.assembly: dict[str, str] = {}

    def code(self, key: str, build: Callable[[], ir.Module]) -> Any:
        if key not in self.assembly:
            self.assembly[key] = assembly_of(build(), self.machine)
        return None


def assembly_of(module: ir.Module, machine: Machine) -> str:
    parsed, target = optimized(module, machine, jit=False)
    return target.emit_assembly(parsed)


@pytest.fixture(scope="module", autouse=True)
def targets():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def emitted(machine: Machine, graph: Any) -> dict[str, str]:
    """The kernels of a lowered graph."""
    emitter: Any = Emitter(machine)
    Planner(graph, 4, TABLE, system=replace(SYSTEM, compiler=emitter)).run()
    return emitter.assembly


MACHINES = {**ARM, "x86-64": X86["x86-64"]}


FULL = ("float32", "float64", "float16", "bfloat16", "complex64", "int64", "bool")
LEAST = ("float32", "float16")
"""The dtypes tried on arm64, and on the oldest x86-64, which runs above."""


def programs_of(name: str, dtypes: tuple[str, ...]) -> list[Any]:
    """The op alone, once for each combination of dtypes in its samples, its first operand's among ``dtypes``."""
    found = {}
    for sample in SAMPLES[name]:
        kinds = tuple(a.dtype for a in sample.operands)
        if kinds and kinds[0].name in dtypes and all(a.size for a in sample.operands):
            found.setdefault(kinds, sample)
    return [graph_of(node_of(name, sample)) for sample in found.values()]


@pytest.mark.parametrize("name", [n for n in SAMPLES if n in TABLE or not REGISTRY[n].composite])
def test_kernels_call_nothing_but_what_is_allowed(name: str):
    for where, dtypes in (("macOS", FULL if name in ELEMENTWISE else (*LEAST, "int64")), ("x86-64", LEAST)):
        for program in programs_of(name, dtypes):
            graph = lowered(program, AccelerateBackend())
            for code in emitted(MACHINES[where], graph).values():
                assert outside_calls(code) <= ALLOWED, f"{name} on {where}: {graph}"


def test_every_elementwise_op_has_samples():
    assert set(ELEMENTWISE) <= {*SAMPLES, "stop_gradient", "primal"}


@pytest.mark.parametrize("where", MACHINES)
def test_fused_kernels_call_nothing(where: str):
    x, i = array("float32", (40, 50)), np.array([1, 2])

    def program(x: Any, i: Any) -> Any:
        soft = lg.softmax(x, axis=1)
        return soft, lg.var(x, axis=0), lg.sin(x) ** x, x // 3, x.astype("float16"), x @ x.T, x.at[i].add(1.0)

    found = emitted(MACHINES[where], graph_for(AccelerateBackend(), program, x, i))
    assert len(found) > 4
    assert set().union(*map(outside_calls, found.values())) <= ALLOWED


@pytest.mark.parametrize("pool", [FutexPool, DispatchPool])
@pytest.mark.parametrize("where", MACHINES)
def test_the_executor_calls_the_system_and_python(where: str, pool: Any):
    if (where == "macOS") != (pool is DispatchPool):
        pytest.skip("threads of another system")
    code = assembly_of(ExecutorModule(MACHINES[where], pool).write(), MACHINES[where])
    assert outside_calls(code) == LIBRARY[pool] | PYTHON
    assert ("pause" in code) == (where == "x86-64")


def test_the_search_for_outside_calls_finds_them():
    module = ir.Module("calls")
    double = ir.VectorType(ir.DoubleType(), 2)
    fn = ir.Function(module, ir.FunctionType(double, [double]), "kernel")
    b = ir.IRBuilder(fn.append_basic_block())
    sin = ir.Function(module, ir.FunctionType(double, [double]), "llvm.sin.v2f64")
    b.ret(b.call(sin, [fn.args[0]]))
    for machine in (*MACHINES.values(), HOST):
        assert outside_calls(assembly_of(module, machine)) == {"sin"}
