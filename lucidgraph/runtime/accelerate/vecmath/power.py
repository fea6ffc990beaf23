"""pow, cbrt, sqrt, rsqrt, reciprocal."""

from __future__ import annotations

from .emit import Int, Mask, Real, emitter, fast_two_sum, nearest, paired, power_of_two, two_product, two_sum
from .exponential import EXP2_TAIL, EXP2_TAIL_WIDE, scale_by
from .formats import LOG2_E
from .logarithm import make_normal, split_exponent

# (atanh(s) / s - 1 - z / 3) / z**2 in z = s**2 for |s| <= (sqrt(2) - 1) / (sqrt(2) + 1), relative to atanh(s) / s:
# 2**-77.
_ATANH_TAIL = (
    0.2, 0.14285714285713444, 0.1111111111135821, 0.09090909053024405, 0.07692311090867998, 0.06666480086640955,
    0.058886287618467995, 0.05139581115878775, 0.06013642702621101,
)  # fmt: skip

# (2 atanh(s) - 2 s) / (s z) to 2**-45.
_LOG_TAIL_WIDE = (0.6666666667584658, 0.3999999560466125, 0.2857211114413515, 0.22176099270510713, 0.1958552591574551)

# m**(-1/3) on [0.35, 2.84]: 2**-8.3.
_CBRT_START = (2.0173976e00, -2.394601e00, 2.3149815e00, -1.2395495e00, 3.351047e-01, -3.5673928e-02)


def _log2_double(a: Real) -> tuple[Real, Real]:
    """log2(a) in two parts to about 2**-65, for positive a: 2 atanh((m - 1) / (m + 1)) with its first terms doubled."""
    u, shift = make_normal(a)
    m, k, _ = split_exponent(u)
    k = k + shift
    top = m - 1.0
    d, d_lo = two_sum(m, 1.0)
    inverse = 1.0 / d
    s = top * inverse
    s_lo = ((-s).fma(d, top) - s * d_lo) * inverse
    z, z_lo = two_product(s, s)
    z_lo = z_lo + 2.0 * s * s_lo
    # s + s z (1/3 + z Q): the bracket in two parts, then times z and s.
    third, third_lo = 1 / 3, 1.850371707708594e-17
    zq, zq_lo = two_product(z, paired(z, z * z, _ATANH_TAIL))
    bracket, bracket_lo = fast_two_sum(a.lanes.real(third), zq)
    bracket_lo = bracket_lo + (zq_lo + third_lo)
    p, p_lo = two_product(z, bracket)
    p_lo = p_lo + (z * bracket_lo + z_lo * bracket)
    v, v_lo = two_product(s, p)
    v_lo = v_lo + (s * p_lo + s_lo * p)
    w, w_lo = fast_two_sum(s, v)
    w_lo = w_lo + (v_lo + s_lo)
    c, c_lo = (2.0 * t for t in LOG2_E.terms)
    h, h_lo = two_product(w, c)
    h_lo = h_lo + (w_lo * c + w * c_lo)
    total, total_lo = two_sum(k, h)
    return fast_two_sum(total, total_lo + h_lo)


def _power_double(a: Real, y: Real) -> Real:
    """a**y for a > 0 normal or subnormal and finite y; 0 and infinity as the product of y and log2 says."""
    log, log_lo = _log2_double(a)
    p, p_lo = two_product(y, log)
    p_lo = y.mad(log_lo, p_lo)
    p = _log2_ends(a, p, y).at_most(1100.0).at_least(-1100.0)
    p_lo = (p.abs() < 1100.0).select(p_lo, 0.0)
    n, bits = nearest(p)
    r = (p - n) + p_lo
    return scale_by(r.mad(paired(r, r * r, EXP2_TAIL.double), 1.0), n, bits)


def _power_single(a: Real, y: Real) -> Real:
    """The same in binary64 with short polynomials: an error of 2**-36 in log2(a) is 2**-29 after the product."""
    a, y = a.widen(), y.widen()
    m, k, _ = split_exponent(a)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    log = (s * z).mad(paired(z, z * z, _LOG_TAIL_WIDE), s + s).mad(LOG2_E.terms[0], k)
    p = _log2_ends(a, y * log, y).at_most(200.0).at_least(-200.0)
    n, bits = nearest(p)
    r = p - n
    return (r.mad(paired(r, r * r, EXP2_TAIL_WIDE), 1.0) * power_of_two(bits)).narrow()


def _log2_ends(a: Real, product: Real, y: Real) -> Real:
    """y log2(a) where log2(a) is infinite: at zero and infinity."""
    infinity = float("inf")
    product = a.equals(0.0).select(-y * infinity, product)
    return a.equals(infinity).select(y * infinity, product)


def _integer_kind(y: Real) -> tuple[Mask, Mask]:
    """Masks: y is an integer (or infinite), y is an odd integer."""
    form = y.format
    a = y.abs()
    base = 2.0**form.mantissa
    shifted = a + base
    large = a >= base
    whole = large | (shifted - base).equals(a)
    last: Int = large.select(a.bits(), shifted.bits()) & 1
    return whole, whole & (a < 2.0 * base) & last.equals(1)


@emitter
def pow(x: Real, y: Real) -> Real:
    """x**y = 2**(y log2 |x|) with log2 to 2**-65 (binary32: all in binary64); special cases as in C99, annex F.

    Greatest error: 0.51 / 1.14 ulp.
    """
    a = x.abs()
    whole, odd = _integer_kind(y)
    power = _power_single(a, y) if x.single else _power_double(a, y)
    power = a.equals(1.0).select(1.0, power)
    power = ((x < 0.0) & (a < float("inf"))).select(whole.select(power, float("nan")), power)
    power = (x.is_nan() | y.is_nan()).select(x + y, power)
    power = (y.equals(0.0) | x.equals(1.0)).select(1.0, power)
    sign = odd.select(x.sign_bit(), x.lanes.integer(0))
    return (power.bits() ^ sign).as_real()


@emitter
def cbrt(x: Real) -> Real:
    """x = m 2**(3 k), y ~ m**(-1/3) by polynomial and third-order steps, then m y**2 corrected once by its cube.

    The step y += y h (1/3 + 2/9 h), h = 1 - m y**3, is Halley's family for y**-3 = m. Greatest error: 0.51 / 0.51 ulp.
    """
    a = x.abs()
    u, shift = make_normal(a)
    m, e, _ = split_exponent(u)
    e = e + shift
    k, k_bits = nearest(e, 1 / 3)
    # m in [sqrt(1/2), sqrt(2)) times 1/2, 1 or 2.
    _, rest_bits = nearest(e - 3.0 * k)
    m = m * power_of_two(rest_bits)
    y = paired(m, m * m, _CBRT_START)
    for _ in range(1 if x.single else 2):
        h = (m * y).mad(-(y * y), 1.0)
        y = (y * h).mad(h.mad(2 / 9, 1 / 3), y)
    square = y * y
    c = m * square
    c_square, c_square_lo = two_product(c, c)
    excess = c_square.fma(c, -m) + c_square_lo * c
    root = (excess * square).mad(-1 / 3, c) * power_of_two(k_bits)
    return ((a < float("inf")) & (a > 0.0)).select(root, x).copysign(x)


@emitter
def sqrt(x: Real) -> Real:
    """The square root, correctly rounded."""
    return x.sqrt()


@emitter
def rsqrt(x: Real) -> Real:
    """1 / sqrt(x); ±inf at ±0. Greatest error: 1.49 / 1.50 ulp."""
    return 1.0 / x.sqrt()


@emitter
def reciprocal(x: Real) -> Real:
    """1 / x, correctly rounded."""
    return 1.0 / x
