"""Instructions of AVX-512 that have no counterpart in LLVM's own operations, on lanes of any count.

Each takes whole registers of 512 bits: longer vectors are cut, shorter ones filled up, so that a lane's result does not
depend on how many there are. Where they are (`Target.avx512`), a choice among coefficients of several polynomials is
one instruction for each of them, an exponent is applied, or taken off, in one, and so are special cases put in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from llvmlite import ir

from .emit import Int, Real

_I32: Final = ir.IntType(32)
_CURRENT_ROUNDING: Final = _I32(4)

Table = Sequence[float]
"""As many numbers as one or two registers hold: 16 or 32 of binary32, 8 or 16 of binary64."""


def _by_register(args: Sequence[Real | Int], make: Callable[..., ir.Value]) -> Real:
    """`make` of the arguments' registers, one after the other, joined."""
    lanes, b = args[0].lanes, args[0].lanes.b
    width = 512 // lanes.format.width
    count = lanes.count or 1
    values = [a.value for a in args]
    if lanes.count is None:
        values = [b.insert_element(ir.Constant(ir.VectorType(v.type, 1), ir.Undefined), v, _I32(0)) for v in values]

    def pick(value: ir.Value, other: ir.Value, indices: Sequence[int]) -> ir.Value:
        if value.type.count == len(indices) and list(indices) == list(range(len(indices))):
            return value
        lanes = ir.Constant(ir.VectorType(_I32, len(indices)), [_I32(i) for i in indices])
        return b.shuffle_vector(value, other, lanes)

    result = None
    for start in range(0, count, width):
        # Filled up with the last lane.
        part = [min(i, count - 1) for i in range(start, start + width)]
        made = make(*(pick(v, v, part) for v in values))
        # Spread the piece over all lanes and take its own lanes from it.
        spread = pick(made, made, [i % width for i in range(count)])
        mine = range(start, start + width)
        if result is not None:
            spread = pick(result, spread, [count + i if i in mine else i for i in range(count)])
        result = spread
    if lanes.count is None:
        result = b.extract_element(result, _I32(0))
    return Real(lanes, result)


def _call(x: Real | Int, name: str, args: Sequence[ir.Value]) -> ir.Value:
    b, form = x.lanes.b, x.format
    fn = b.module.globals.get(name)
    if fn is None:
        typ = ir.VectorType(form.real, 512 // form.width)
        fn = ir.Function(b.module, ir.FunctionType(typ, [a.type for a in args]), name)
    return b.call(fn, args)


def _suffix(x: Real | Int) -> str:
    return "ps" if x.format.width == 32 else "pd"


def _all(x: Real | Int) -> ir.Value:
    """The mask that leaves no lane out."""
    return ir.IntType(512 // x.format.width)(-1)


def scaled(p: Real, power: Real) -> Real:
    """p * 2**floor(power), rounded once, over the whole range."""

    def make(v: ir.Value, n: ir.Value) -> ir.Value:
        return _call(p, f"llvm.x86.avx512.mask.scalef.{_suffix(p)}.512", [v, n, v, _all(p), _CURRENT_ROUNDING])

    return _by_register([p, power], make)


def reciprocal_start(x: Real) -> Real:
    """1 / x to 2**-14."""
    return _by_register([x], lambda v: _call(x, f"llvm.x86.avx512.rcp14.{_suffix(x)}.512", [v, v, _all(x)]))


def exponent_of(x: Real) -> Real:
    """floor(log2 |x|), of subnormal numbers too."""

    def make(v: ir.Value) -> ir.Value:
        return _call(x, f"llvm.x86.avx512.mask.getexp.{_suffix(x)}.512", [v, v, _all(x), _CURRENT_ROUNDING])

    return _by_register([x], make)


def mantissa_of(x: Real) -> Real:
    """|x| over 2**floor(log2 |x|), of subnormal numbers too; with the sign of x."""
    from_one_to_two = _I32(0)

    def make(v: ir.Value) -> ir.Value:
        args = [v, from_one_to_two, v, _all(x), _CURRENT_ROUNDING]
        return _call(x, f"llvm.x86.avx512.mask.getmant.{_suffix(x)}.512", args)

    return _by_register([x], make)


# What `fixed` puts in for each class of numbers: NaN quiet and signalling, ±0, 1, -inf, +inf, negative, positive.
KEEP, ITSELF, NAN, MINUS_INFINITY, INFINITY = 0, 1, 3, 4, 5


def fixed(result: Real, x: Real, classes: Sequence[int]) -> Real:
    """`result`, in its place something else where x is of a class that asks for it."""
    table = x.lanes.integer(sum(code << 4 * k for k, code in enumerate(classes)))

    def make(r: ir.Value, v: ir.Value, t: ir.Value) -> ir.Value:
        name = f"llvm.x86.avx512.mask.fixupimm.{_suffix(x)}.512"
        return _call(x, name, [r, v, t, _I32(0), _all(x), _CURRENT_ROUNDING])

    return _by_register([result, x, table], make)


def looked_up(table: Table, at: Int) -> Real:
    """table[at], of `at` only the low bits that a table of this size needs."""
    form = at.format
    width = 512 // form.width
    code = "sf" if form.width == 32 else "df"

    def make(index: ir.Value) -> ir.Value:
        parts = [
            ir.Constant(ir.VectorType(form.real, width), [form.real(v) for v in table[start : start + width]])
            for start in range(0, len(table), width)
        ]
        if len(parts) == 1:
            return _call(at, f"llvm.x86.avx512.permvar.{code}.512", [parts[0], index])
        return _call(at, f"llvm.x86.avx512.vpermi2var.{_suffix(at)}.512", [parts[0], index, parts[1]])

    return _by_register([at], make)


__all__ = [
    "INFINITY", "ITSELF", "KEEP", "MINUS_INFINITY", "NAN", "Table", "exponent_of", "fixed", "looked_up", "mantissa_of",
    "reciprocal_start", "scaled",
]  # fmt: skip
