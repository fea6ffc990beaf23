"""The elementary functions against wider arithmetic, in units in the last place.

`python tests/accelerate/test_vecmath.py exp tanh --stride 1` runs every float32 argument (or every n-th) of the named
one-argument functions and prints the greatest error; without names it takes all of them.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import math
import platform
import re
import time
from collections.abc import Callable
from functools import cache

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir
from scipy import special

from lucidgraph.runtime.accelerate.vecmath import FUNCTIONS, Target

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

INF, NAN = math.inf, math.nan
HOST_FEATURES = llvm.get_host_cpu_features()
PLAIN = Target(fma=HOST_FEATURES.get("fma", False) or platform.machine() in ("arm64", "aarch64"))
HOST = Target(fma=True, avx512=True) if HOST_FEATURES.get("avx512f", False) else PLAIN
NO_FMA = Target(fma=False)
X86 = platform.machine() in ("x86_64", "AMD64")

UNARY = tuple(name for name, emit in FUNCTIONS.items() if emit.arity == 1)
BINARY = tuple(name for name, emit in FUNCTIONS.items() if emit.arity == 2)
BOUND = 2.0
WIDE = np.longdouble
# Where long double is double the oracle itself may be off by an ulp.
WIDE_BOUND = BOUND if np.finfo(WIDE).nmant > 60 else BOUND + 1.0


def sigmoid(x: np.ndarray) -> np.ndarray:
    t = np.exp(-np.abs(x))
    return np.where(x < 0, t, np.ones_like(t)) / (1 + t)


ORACLE: dict[str, Callable[..., np.ndarray]] = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "sigmoid": sigmoid, "erf": special.erf, "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x,
}  # fmt: skip
ORACLE |= {name: getattr(np, name) for name in FUNCTIONS if name not in ORACLE}

EXACT = ("sqrt", "reciprocal")

# Where formulas change, results overflow or vanish, reductions end: each is tried with its neighbours.
EDGES = (
    0.25, 0.41421356, 0.5, 0.55, 0.70710678, 0.92, 1.0, 1.41421356, 2.0, 2.41421356, 3.92, 3.95, 5.95, 9.01, 17.33,
    18.5, 19.06, 37.4, 88.02, 88.72284, 89.41599, 102.5, 103.28, 103.97, 126.0, 128.0, 149.0, 150.0, 708.4, 709.78,
    710.475, 745.13, 1022.0, 1024.0, 1074.0, 1075.0, 2.0**16, 2.0**24, 2.0**25, 2.0**28, 2.0**30, 2.0**53, 2.0**60,
    2.0**-12, 2.0**-24, 2.0**-53, math.pi / 2, math.pi, 1e22, 1e30,
    # The float32 and the float64 that come closest to a multiple of pi/2.
    16367173 * 2.0**72, 6381956970095103 * 2.0**797,
)  # fmt: skip


class Kernel:
    """`out[i] = f(x[i], …)` over arrays whose size is a multiple of the lane count."""

    def __init__(self, name: str, dtype: type, lanes: int | None, target: Target, baseline: bool) -> None:
        self.dtype, self.step, arity = dtype, lanes or 1, FUNCTIONS[name].arity
        element = ir.FloatType() if dtype is np.float32 else ir.DoubleType()
        typ = element if lanes is None else ir.VectorType(element, lanes)
        module = ir.Module()
        module.triple = llvm.get_process_triple()
        pointer, i64 = ir.PointerType(), ir.IntType(64)
        fn = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer] * (arity + 1) + [i64]), "kernel")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        loop, done = fn.append_basic_block("loop"), fn.append_basic_block("done")
        b.branch(loop)
        b.position_at_end(loop)
        i = b.phi(i64)
        i.add_incoming(i64(0), fn.entry_basic_block)
        where = [b.gep(p, [i], source_etype=element) for p in fn.args[:-1]]
        align = np.dtype(dtype).itemsize
        args = [b.load(p, typ=typ, align=align) for p in where[:-1]]
        b.store(FUNCTIONS[name](b, *args, target=target), where[-1], align=align)
        following = b.add(i, i64(self.step))
        i.add_incoming(following, b.block)
        b.cbranch(b.icmp_signed("<", following, fn.args[-1]), loop, done)
        b.position_at_end(done)
        b.ret_void()
        self.ir = re.sub(r'(define void @"kernel"\([^)]*\))', r'\1 "prefer-vector-width"="512"', str(module))

        cpu, features = ("x86-64", "") if baseline else (llvm.get_host_cpu_name(), HOST_FEATURES.flatten())
        make = llvm.Target.from_triple(module.triple).create_target_machine
        machine = make(cpu=cpu, features=features, opt=2, jit=True)
        parsed = llvm.parse_assembly(self.ir)
        parsed.verify()
        # Not for the JIT's code model, which hides the names of callees in registers.
        self.assembly = make(cpu=cpu, features=features, opt=2, codemodel="small").emit_assembly(parsed)
        self._engine = llvm.create_mcjit_compiler(parsed, machine)
        self._engine.finalize_object()
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (arity + 1), ctypes.c_int64)
        self._call = prototype(self._engine.get_function_address("kernel"))

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        size = arrays[0].size
        padding = np.ones(-size % self.step, self.dtype)
        full = [np.concatenate([a.astype(self.dtype, copy=False), padding]) for a in arrays]
        out = np.empty_like(full[0])
        self._call(*(a.ctypes.data for a in full), out.ctypes.data, out.size)
        return out[:size]

    def outside_calls(self) -> set[str]:
        """Symbols that the machine code calls and the module does not define."""
        called = set(re.findall(r"(?m)^\s+(?:callq?|jmpq?|bl|b)\s+_?\"?([A-Za-z][\w.$]*)", self.assembly))
        return {s for s in called if not s.startswith("lucidgraph.")}


@cache
def kernel(name: str, dtype: type, lanes: int | None = -1, target: Target = HOST, baseline: bool = False) -> Kernel:
    if lanes == -1:
        lanes = 16 if dtype is np.float32 else 8
    return Kernel(name, dtype, lanes, target, baseline)


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance in ulps of the format of `got`; an infinity counts as the first number beyond the format."""
    form = np.finfo(got.dtype)
    top = np.ldexp(want.dtype.type(1), form.maxexp)
    g, w = np.clip(got.astype(want.dtype), -top, top), np.clip(want, -top, top)
    exponent = np.clip(np.frexp(w)[1] - 1, form.minexp, form.maxexp - 1)
    error = np.abs(g - w) / np.ldexp(want.dtype.type(1), exponent - form.nmant)
    nan = np.isnan(g) & np.isnan(w)
    error[nan | (g == w)] = 0
    error[np.isnan(error) | ((np.signbit(g) != np.signbit(w)) & ~nan)] = INF
    return error


def expect_within(bound: float, got: np.ndarray, want: np.ndarray, *args: np.ndarray) -> None:
    error = ulps(got, want)
    i = int(np.argmax(error))
    at = ", ".join(float(a[i]).hex() for a in args)
    assert error[i] <= bound, f"{error[i]:.3f} ulp at ({at}): {got[i]!r}, not {want[i]!r}"


def edges(dtype: type) -> np.ndarray:
    form = np.finfo(dtype)
    with np.errstate(over="ignore"):
        base = np.array([*EDGES, form.tiny, form.max, 2 * float(form.smallest_subnormal)]).astype(dtype)
        near, up, down = [base], base, base
        for _ in range(4):
            up, down = np.nextafter(up, dtype(INF)), np.nextafter(down, dtype(0))
            near += [up, down]
    x = np.concatenate(near)
    return np.concatenate([x, -x, np.array([0.0, -0.0, INF, -INF, NAN], dtype)])


def points(dtype: type, count: int, seed: int) -> np.ndarray:
    """Bit patterns spread over all signs and exponents, the usual range, the vicinity of 1, and edges."""
    rng = np.random.default_rng(seed)
    if dtype is np.float32:
        patterns = np.linspace(0, 2**32 - 1, 2 * count).astype(np.uint64).astype(np.uint32).view(np.float32)
    else:
        patterns = rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    return np.concatenate([
        patterns,
        np.ldexp(rng.uniform(-1, 1, count), rng.integers(-12, 12, count)).astype(dtype),
        rng.uniform(-2, 2, count // 2).astype(dtype),
        rng.uniform(-750, 750, count // 2).astype(dtype),
        (rng.integers(1, 2**20, count // 4) * (math.pi / 2)).astype(dtype),
        (1 + rng.normal(0, 1e-3, count // 4)).astype(dtype),
        edges(dtype),
    ])  # fmt: skip


def pairs(name: str, dtype: type, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = points(dtype, count, seed)
    y = rng.permutation(x)
    if name == "pow":
        # Mostly exponents that put the result inside the format, on positive bases.
        form = np.finfo(dtype)
        half = x.size // 2
        x[:half] = np.abs(x[:half])
        with np.errstate(all="ignore"):
            inside = rng.uniform(form.minexp - form.nmant - 3, form.maxexp + 2, half) / np.log2(x[:half].astype(float))
            inside = inside.astype(dtype)
        y[:half] = np.where(np.isfinite(inside), inside, y[:half])
    grid = edges(dtype)[::3]
    x2, y2 = (g.ravel() for g in np.meshgrid(grid, grid))
    return np.concatenate([x, x2]), np.concatenate([y, y2])


def wide_erf(x: np.ndarray) -> np.ndarray:
    mp = pytest.importorskip("mpmath")
    values = [mp.erf(float(v)) for v in x]
    high = np.array([float(v) for v in values])
    low = np.array([float(v - h) if h == h else 0.0 for v, h in zip(values, high, strict=True)])
    return np.copysign(high.astype(WIDE) + low.astype(WIDE), x.astype(WIDE))


def check(name: str, dtype: type, count: int, **how: object) -> None:
    run = kernel(name, dtype, **how)
    if FUNCTIONS[name].arity == 2:
        args = pairs(name, dtype, count, seed=5)
    elif name == "erf" and dtype is np.float64:
        args = (points(dtype, count // 20, seed=3),)
    else:
        args = (points(dtype, count, seed=3),)
    wide = np.float64 if dtype is np.float32 else WIDE
    with np.errstate(all="ignore"):
        want = wide_erf(*args) if name == "erf" and wide is WIDE else ORACLE[name](*(a.astype(wide) for a in args))
        bound = 0.5 if name in EXACT else BOUND if wide is np.float64 else WIDE_BOUND
        expect_within(bound, run(*args), want, *args)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_is_within_two_ulp(name: str) -> None:
    check(name, np.float32, 150_000)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_is_within_two_ulp(name: str) -> None:
    check(name, np.float64, 30_000)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_fused_multiply_add(name: str, dtype: type) -> None:
    """The oldest x86-64 (SSE2, no FMA): the same bound, and no library function called."""
    check(name, dtype, 10_000, target=NO_FMA, baseline=X86)
    assert not kernel(name, dtype, target=NO_FMA, baseline=X86).outside_calls()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_scalars_and_odd_vectors_agree_to_the_bit(name: str, dtype: type) -> None:
    x = points(dtype, 2_000, seed=7)
    args = (x,) if FUNCTIONS[name].arity == 1 else (x, np.random.default_rng(8).permutation(x))
    full = kernel(name, dtype)
    assert not full.outside_calls()
    for lanes in (None, 7):
        np.testing.assert_array_equal(kernel(name, dtype, lanes)(*args), full(*args))


@pytest.mark.skipif(HOST == PLAIN, reason="needs AVX512F")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_the_instructions_of_avx512(name: str, dtype: type) -> None:
    check(name, dtype, 10_000, target=PLAIN)


@pytest.mark.skipif(HOST == PLAIN, reason="needs AVX512F")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_vectors_of_several_registers_agree_to_the_bit(name: str, dtype: type) -> None:
    x = points(dtype, 2_000, seed=9)
    args = (x,) if FUNCTIONS[name].arity == 1 else (x, np.random.default_rng(10).permutation(x))
    width = 16 if dtype is np.float32 else 8
    np.testing.assert_array_equal(kernel(name, dtype, 3 * width)(*args), kernel(name, dtype, width)(*args))


SPECIAL: dict[str, tuple[tuple[float, float], ...]] = {
    "exp": ((0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (1e4, INF), (-1e4, 0.0)),
    "exp2": ((0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (10.0, 1024.0), (-3.0, 0.125), (1e4, INF), (-1e4, 0.0)),
    "expm1": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (1e4, INF), (-1e4, -1.0)),
    "log": ((0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-INF, NAN), (-1.0, NAN)),
    "log2": ((0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-INF, NAN), (-1.0, NAN), (8.0, 3.0)),
    "log10": ((0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-INF, NAN), (-1.0, NAN), (100.0, 2.0), (1e10, 10.0)),
    "log1p": ((0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-INF, NAN), (-2.0, NAN)),
    "sin": ((0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)),
    "cos": ((0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)),
    "tan": ((0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)),
    "asin": ((0.0, 0.0), (-0.0, -0.0), (1.0, math.pi / 2), (-1.0, -math.pi / 2), (1.5, NAN), (-INF, NAN), (INF, NAN)),
    "acos": ((1.0, 0.0), (0.0, math.pi / 2), (-1.0, math.pi), (1.5, NAN), (-1.5, NAN), (INF, NAN), (-INF, NAN)),
    "atan": ((0.0, 0.0), (-0.0, -0.0), (1.0, math.pi / 4), (INF, math.pi / 2), (-INF, -math.pi / 2)),
    "sinh": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (1e4, INF), (-1e4, -INF)),
    "cosh": ((0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (1e4, INF)),
    "tanh": ((0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (40.0, 1.0), (-40.0, -1.0)),
    "asinh": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)),
    "acosh": ((1.0, 0.0), (INF, INF), (0.5, NAN), (0.0, NAN), (-2.0, NAN), (-INF, NAN)),
    "atanh": ((0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (INF, NAN), (-INF, NAN)),
    "sigmoid": ((0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (1e4, 1.0), (-1e4, 0.0)),
    "erf": ((0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (7.0, 1.0), (-7.0, -1.0)),
    "sqrt": ((0.0, 0.0), (-0.0, -0.0), (4.0, 2.0), (INF, INF), (-1.0, NAN), (-INF, NAN)),
    "rsqrt": ((0.0, INF), (-0.0, -INF), (4.0, 0.5), (INF, 0.0), (-1.0, NAN), (-INF, NAN)),
    "cbrt": ((0.0, 0.0), (-0.0, -0.0), (27.0, 3.0), (-8.0, -2.0), (INF, INF), (-INF, -INF)),
    "reciprocal": ((0.0, INF), (-0.0, -INF), (4.0, 0.25), (INF, 0.0), (-INF, -0.0)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", UNARY)
def test_special_values_are_exact(name: str, dtype: type) -> None:
    x, want = np.array([*SPECIAL[name], (NAN, NAN), (-NAN, NAN)], dtype).T
    for how in ({}, {"target": PLAIN}, {"target": NO_FMA, "baseline": X86}):
        got = kernel(name, dtype, **how)(x)
        np.testing.assert_array_equal(got, want)
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BINARY)
def test_special_pairs_follow_c99(name: str, dtype: type) -> None:
    odd = 2.0 ** np.finfo(dtype).nmant + 1
    values = [0.0, 1.0, 0.5, 2.0, 3.0, 1.5, INF, odd, 2 * odd, float(np.finfo(dtype).smallest_subnormal)]
    signed = [s * v for v in values for s in (1.0, -1.0)] + [NAN]
    x, y = np.array(list(itertools.product(signed, signed)), dtype).T
    with np.errstate(all="ignore"):
        want = ORACLE[name](x.astype(WIDE), y.astype(WIDE))
        for how in ({}, {"target": NO_FMA, "baseline": X86}):
            expect_within(WIDE_BOUND, kernel(name, dtype, **how)(x, y), want, x, y)


@pytest.mark.skipif(not X86, reason="compares machine code of x86-64")
def test_the_search_for_outside_calls_finds_them() -> None:
    assert kernel("exp", np.float32, None, target=Target(fma=True), baseline=True).outside_calls() == {"fmaf"}


def test_huge_arguments_share_one_reduction() -> None:
    module = ir.Module()
    typ = ir.VectorType(ir.FloatType(), 4)
    fn = ir.Function(module, ir.FunctionType(typ, [typ]), "chain")
    b = ir.IRBuilder(fn.append_basic_block())
    value = fn.args[0]
    for name in ("sin", "cos", "sin", "tan"):
        value = FUNCTIONS[name](b, value)
    b.ret(value)
    llvm.parse_assembly(str(module)).verify()
    assert sum("payne_hanek" in f.name for f in module.functions) == 1


def test_wrong_arguments_are_refused() -> None:
    module = ir.Module()
    single, double = ir.FloatType(), ir.DoubleType()
    fn = ir.Function(module, ir.FunctionType(ir.VoidType(), [single, double, ir.IntType(32)]), "f")
    b = ir.IRBuilder(fn.append_basic_block())
    with pytest.raises(TypeError, match="pow takes 2 arguments, got 1"):
        FUNCTIONS["pow"](b, fn.args[0])
    with pytest.raises(TypeError, match="one type, got float, double"):
        FUNCTIONS["pow"](b, fn.args[0], fn.args[1])
    with pytest.raises(TypeError, match="not i32"):
        FUNCTIONS["exp"](b, fn.args[2])


def exhaustive(name: str, stride: int = 1, chunk: int = 1 << 18) -> tuple[float, float]:
    """The greatest error of a float32 function over every `stride`-th bit pattern, and where."""
    run, worst, at = kernel(name, np.float32), -1.0, NAN
    with np.errstate(all="ignore"):
        for start in range(0, 2**32, chunk * stride):
            patterns = np.arange(start, min(start + chunk * stride, 2**32), stride, np.uint64)
            x = patterns.astype(np.uint32).view(np.float32)
            error = ulps(run(x), ORACLE[name](x.astype(np.float64)))
            i = int(np.argmax(error))
            if error[i] > worst:
                worst, at = float(error[i]), float(x[i])
    return worst, at


@pytest.mark.parametrize("name", UNARY)
def test_float32_functions_over_their_whole_range(name: str) -> None:
    """Every 4099th argument: all exponents, and mantissas of every kind."""
    assert exhaustive(name, 4099)[0] <= (0.5 if name in EXACT else BOUND)


@pytest.mark.full
@pytest.mark.parametrize("name", UNARY)
def test_float32_functions_at_every_argument(name: str) -> None:
    assert exhaustive(name)[0] <= (0.5 if name in EXACT else BOUND)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=UNARY)
    parser.add_argument("--stride", type=int, default=1)
    options = parser.parse_args()
    for function in options.names:
        began = time.perf_counter()
        error, argument = exhaustive(function, options.stride)
        print(f"{function:10} {error:.3f} ulp at {argument!r} ({time.perf_counter() - began:.0f} s)", flush=True)
