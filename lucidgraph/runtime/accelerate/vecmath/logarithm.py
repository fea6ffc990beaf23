"""log, log1p, log2, log10: u = 2**k m with m in [sqrt(1/2), sqrt(2)) and the series of log(1 + f), f = m - 1.

binary32 takes log(1 + f) = f - f**2/2 + f**3 P(f); binary64 takes fdlibm's form (Sun Microsystems, 1993): with
s = f / (2 + f), log(1 + f) = f - f**2/2 + s (f**2/2 + R(s**2)), which needs a quarter of the degree.
"""

from __future__ import annotations

from math import log as log_of

from .emit import Int, Real, emitter, fast_two_sum, paired, two_product, two_sum
from .formats import LN2, LOG2_E, LOG10_2, LOG10_E, ByFormat, Exact, round_to_single
from .registers import INFINITY, ITSELF, KEEP, MINUS_INFINITY, NAN, exponent_of, fixed, looked_up, mantissa_of

# single: P(f), error relative to log(1 + f) 2**-27.3. double: R(z) / z, relative to log(1 + f) 2**-59.5.
LOG_TAIL = ByFormat(
    single=(
        3.333333e-01, -2.5000823e-01, 2.0001262e-01, -1.6623321e-01, 1.420088e-01, -1.3159639e-01, 1.2767908e-01,
        -7.6442085e-02,
    ),
    double=(
        0.6666666666666735, 0.3999999999940935, 0.28571428743688665, 0.22222198428531667, 0.1818357238935028,
        0.15313830994588937, 0.1479827347504768,
    ),
)  # fmt: skip

# (log(1 + f) - f) / f**2 for f from -1/32 to 1/16, times f: 2**-28.3.
_SHORT_LOG_TAIL = (-5.0e-01, 3.3334455e-01, -2.5007504e-01, 1.8862168e-01)
# By the first four bits of a mantissa m a number near 1 / m; at both ends one that leaves nothing to add to log(1 + f).
_INVERSES = (1.0, *(round_to_single(1 / (1 + (i + 0.5) / 16)) for i in range(1, 15)), 0.5)

_SQRT_HALF_BITS = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}


def split_exponent(u: Real) -> tuple[Real, Real, Int]:
    """u = 2**k m, as (m, k, k shifted to the place of the exponent); u a positive normal number."""
    form = u.format
    bits = u.bits()
    offset = bits - _SQRT_HALF_BITS[form.width]
    power = offset & (form.sign_bits | form.exponent_bits)
    return (bits - power).as_real(), power.exponent(), power


def make_normal(x: Real) -> tuple[Real, Real]:
    """(x, 0), or for subnormal x (2**s x, -s)."""
    form = x.format
    shift = form.mantissa + 1
    small = x < form.smallest_normal
    return small.select(x * 2.0**shift, x), small.select(x.lanes.real(-shift), x.lanes.real(0.0))


def _series(f: Real, square: Real) -> tuple[Real, Real]:
    """(a, b) with log(1 + f) = f - f**2/2 + a b for |f| <= sqrt(2) - 1, b good to its last bits; square = f**2."""
    if f.single:
        return square * f, paired(f, square, LOG_TAIL.single)
    s = f / (f + 2.0)
    z = s * s
    return s, square.mad(0.5, z * paired(z, z * z, LOG_TAIL.double))


def log_sum(k: Real, f: Real, tail: Real | None) -> Real:
    """k ln 2 + log(1 + f + tail), rounded about once."""
    hi, lo = LN2.parts(f.format)
    square = f * f
    small = k * lo if tail is None else k.mad(lo, tail)
    a, b = _series(f, square)
    return k.mad(hi, f + a.mad(b, square.mad(-0.5, small)))


def log_special(u: Real, result: Real) -> Real:
    """Put in what log gives at 0 (-inf), below (NaN), at +inf and NaN (themselves)."""
    if u.lanes.target.avx512:
        return fixed(result, u, (ITSELF, NAN, MINUS_INFINITY, KEEP, NAN, INFINITY, NAN, KEEP))
    result = (u < float("inf")).select(result, u)
    result = (u < 0.0).select(float("nan"), result)
    return u.equals(0.0).select(float("-inf"), result)


_E = Exact((1.0, 0.0)), LN2
_TWO = LOG2_E, Exact((1.0, 0.0))
_TEN = LOG10_E, LOG10_2


def _rounded(c: float) -> float:
    """Cut so short that it and its product with any exponent are added without error."""
    return round(c * 2.0**15) / 2.0**15


def _log_looked_up(u: Real, base: tuple[Exact, Exact], u_lo: Real | None = None) -> Real:
    """log(u + u_lo), u_lo small, to the base of which the logarithms of e and 2 are given, for binary32.

    u = 2**k m and f = m r - 1 with r from a table: log(u) = k log(2) - log(r) + log(1 + f), what is large in it exact.
    """
    per_e, per_2 = (term.terms[0] for term in base)
    k, m = exponent_of(u), mantissa_of(u)
    at = m.bits() >> 19
    r = looked_up(_INVERSES, at)
    f = m.fma(r, -1.0)
    starts = [-per_e * log_of(c) for c in _INVERSES[:-1]] + [per_2]
    two = _rounded(per_2)
    hi = k.fma(two, looked_up([_rounded(c) for c in starts], at))
    lo = looked_up([c - _rounded(c) for c in starts], at)
    if per_2 != two:
        lo = k.mad(per_2 - two, lo)
    if u_lo is not None:
        # u_lo / 2**k, of which k is the exponent of u as it stands in its bits.
        form = u.format
        unscale = (u.lanes.integer(2 * form.bias << form.mantissa) - (u.bits() & form.exponent_bits)).as_real()
        lo = (u_lo * unscale * r).mad(1.0 - f, lo)
    square = f * f
    lo = square.mad(paired(f, square, [per_e * c for c in _SHORT_LOG_TAIL]), lo)
    if per_e != 1.0:
        e_hi, e_lo = base[0].parts(u.format)
        f, rest = two_product(f, e_hi)
        lo = lo + (f.mad(e_lo / e_hi, rest))
    total, rest = fast_two_sum(hi, f)
    return total + (rest + lo)


def log1p_sum(x: Real, x_lo: Real | None = None) -> Real:
    """log(1 + x + x_lo) for x > -1 finite, x_lo small beside x; right to the last bits near 0 too."""
    # The error of the sum; a large x may lose the 1 from it, which no longer counts.
    u = x + 1.0
    c = x - (u - 1.0)
    if x_lo is not None:
        c = c + x_lo
    if x.single and x.lanes.target.avx512:
        return _log_looked_up(u, _E, c)
    m, k, power = split_exponent(u)
    # 2**(1 - k), which is still a number for the largest k.
    form = x.format
    unscale = (x.lanes.integer(form.one_bits + (1 << form.mantissa)) - power).as_real()
    c = c * unscale
    if x.single:
        return log_sum(k, c.mad(0.5, m - 1.0), None)
    return log_sum(k, *two_sum(m - 1.0, c * 0.5))


@emitter
def log(x: Real) -> Real:
    """The natural logarithm. Greatest error: 0.89 / 0.83 ulp."""
    if x.single and x.lanes.target.avx512:
        return log_special(x, _log_looked_up(x, _E))
    u, shift = make_normal(x)
    m, k, _ = split_exponent(u)
    return log_special(x, log_sum(k + shift, m - 1.0, None))


@emitter
def log1p(x: Real) -> Real:
    """log(1 + x): u = 1 + x keeps its rounding error, which joins f. Greatest error: 1.47 / 0.89 ulp."""
    return log_special(x + 1.0, log1p_sum(x)).copysign(x)


def _log_in_base(x: Real, base: tuple[Exact, Exact]) -> Real:
    """k per_2 + log(m) per_e with log(m), its product and the sum carried in two parts."""
    if x.single and x.lanes.target.avx512:
        return log_special(x, _log_looked_up(x, base))
    per_e, per_2 = base
    u, shift = make_normal(x)
    m, k, _ = split_exponent(u)
    k = k + shift
    f = m - 1.0
    half_square, square_lo = two_product(f * 0.5, f)
    a, b = _series(f, half_square * 2.0)
    hi, lo = fast_two_sum(f, -half_square)
    lo = a.mad(b, lo - square_lo)
    e_hi, e_lo = per_e.parts(x.format)
    two_hi, two_lo = per_2.parts(x.format)
    log_m, log_m_lo = two_product(hi, e_hi)
    log_m_lo = log_m_lo + (lo * e_hi + hi * e_lo)
    power, power_lo = two_product(k, two_hi)
    total, total_lo = two_sum(power, log_m)
    return log_special(x, total + (total_lo + (power_lo + k * two_lo + log_m_lo)))


@emitter
def log2(x: Real) -> Real:
    """The binary logarithm, exact at powers of two. Greatest error: 0.86 / 0.64 ulp."""
    return _log_in_base(x, _TWO)


@emitter
def log10(x: Real) -> Real:
    """The decimal logarithm. Greatest error: 0.93 / 0.64 ulp."""
    return _log_in_base(x, _TEN)
