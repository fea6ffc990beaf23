"""asin, acos, atan, atan2.

The arcs of a ratio are reduced by atan(t) = pi/4 + atan((t - 1) / (t + 1)), so that one polynomial on
|t| <= tan(pi/8) and one division serve all of them; asin and acos use the half-angle identity (both as in fdlibm, Sun
Microsystems, 1993, with other polynomials).
"""

from __future__ import annotations

from .emit import Real, emitter, paired, two_sum
from .formats import HALF_PI, QUARTER_PI, ByFormat

# (asin(s) / s - 1) / z in z = s**2 for |s| <= 1/2: 2**-27.6 and 2**-59.8.
_ASIN_TAIL = ByFormat(
    single=(1.6666754e-01, 7.495249e-02, 4.5476668e-02, 2.4148047e-02, 4.222002e-02),
    double=(
        0.16666666666666763, 0.07499999999970115, 0.0446428571752743, 0.03038194267572277, 0.022372215895917712,
        0.017351595643199304, 0.013981017189275453, 0.011397301422714542, 0.010789287406956156, 0.0036722676087696813,
        0.021790545591924056, -0.021116703515635327, 0.032702225179251504,
    ),
)  # fmt: skip

# (atan(t) / t - 1) / z in z = t**2 for |t| <= tan(pi/8): 2**-30.4 and 2**-63.9.
_ATAN_TAIL = ByFormat(
    single=(-3.3333316e-01, 1.999853e-01, -1.424442e-01, 1.059931e-01, -6.090175e-02),
    double=(
        -0.33333333333333326, 0.19999999999997092, -0.14285714285315884, 0.11111111083706711, -0.0909090798424868,
        0.07692279160145157, -0.06666174013592906, 0.05876509265629331, -0.05215130687244332, 0.0449034137677548,
        -0.03316934596776679, 0.014887668296261605,
    ),
)  # fmt: skip

# The same to 2**-35 in binary64, where the result is to be binary32.
_ATAN_TAIL_WIDE = (
    -0.33333332510044106, 0.1999990475522848, -0.1428202901489875, 0.11044923205355531, -0.08477407984274914,
    0.04746117673247875,
)  # fmt: skip

_TAN_EIGHTH_PI = 0.41421356237309503


def _ratio(low: Real, high: Real) -> tuple[Real, Real, Real]:
    """(t, t_lo, k) with atan(low / high) = k pi/4 + atan(t + t_lo), for 0 <= low <= high, high positive and finite."""
    far = low > high * _TAN_EIGHTH_PI
    difference, difference_lo = two_sum(low, -high)
    total, total_lo = two_sum(low, high)
    top, top_lo = far.select(difference, low), far.select(difference_lo, 0.0)
    d, d_lo = far.select(total, high), far.select(total_lo, 0.0)
    t = top / d
    t_lo = ((-t).fma(d, top) + (top_lo - t * d_lo)) / d
    return t, t_lo, far.select(low.lanes.real(1.0), low.lanes.real(0.0))


def _assemble(t: Real, t_lo: Real, k: Real, sign: Real) -> Real:
    """k pi/4 + sign (atan(t) + t_lo) with the constant in two parts; k = 0 … 4, sign = ±1."""
    hi, lo = QUARTER_PI.parts(t.format)
    z = t * t
    arc = t + (t * z).mad(paired(z, z * z, _ATAN_TAIL.of(t.format)), t_lo + sign * k * lo)
    return k.mad(hi, sign * arc)


@emitter
def atan(x: Real) -> Real:
    """atan(|x|) with the sign of x, for |x| > 1 as pi/2 - atan(1 / |x|). Greatest error: 0.84 / 0.79 ulp."""
    # Beyond 2**60 the result is pi/2 to the last bit.
    a = x.abs().at_most(2.0**60)
    swap = a > 1.0
    t, t_lo, k = _ratio(swap.select(x.lanes.real(1.0), a), swap.select(a, 1.0))
    sign = swap.select(x.lanes.real(-1.0), x.lanes.real(1.0))
    return _assemble(t, t_lo, swap.select(2.0 - k, k), sign).copysign(x)


@emitter
def atan2(y: Real, x: Real) -> Real:
    """The angle of the point (x, y), signed zeros and infinities as in C99. Greatest error: 0.51 / 0.84 ulp."""
    if y.single:
        # A quotient of binary32 numbers cannot underflow in binary64 and needs no correction there.
        angle = _angle(y.abs().widen(), x.widen(), wide=True).narrow()
    else:
        angle = _angle(y.abs(), x, wide=False)
    return (y.is_nan() | x.is_nan()).select(y + x, angle).copysign(y)


def _angle(a: Real, x: Real, wide: bool) -> Real:
    """atan2(a, x) for a >= 0."""
    b = x.abs()
    swap = a > b
    low, high = swap.select(b, a), swap.select(a, b)
    # Two infinities have the ratio of two ones, two zeros that of 0 and 1.
    infinite = high.equals(float("inf"))
    low = infinite.select((low < float("inf")).select(0.0, a.lanes.real(1.0)), low)
    high = (infinite | high.equals(0.0)).select(1.0, high)
    one, zero = a.lanes.real(1.0), a.lanes.real(0.0)
    negative = one.copysign(x) < 0.0
    sign = swap.select(-one, one)
    sign = negative.select(-sign, sign)
    if wide:
        far = low > high * _TAN_EIGHTH_PI
        t, k = far.select(low - high, low) / far.select(low + high, high), far.select(one, zero)
    else:
        # Bring the pair to where neither the remainder nor the sum leaves the range of normal numbers.
        scale = (high < 2.0**-900).select(a.lanes.real(2.0**120), (high > 2.0**900).select(2.0**-120, one))
        t, t_lo, k = _ratio(low * scale, high * scale)
    k = swap.select(2.0 - k, k)
    k = negative.select(4.0 - k, k)
    if not wide:
        return _assemble(t, t_lo, k, sign)
    z = t * t
    return k.mad(QUARTER_PI.terms[0], sign * (t * z).mad(paired(z, z * z, _ATAN_TAIL_WIDE), t))


def _half_angle(a: Real) -> tuple[Real, Real, Real]:
    """For a = |x|: (z, s, tail) with asin(s) = s + tail, s = a below 1/2 and sqrt((1 - a) / 2) above."""
    near = a < 0.5
    z = near.select(a * a, (1.0 - a) * 0.5)
    s = near.select(a, z.sqrt())
    return z, s, s * z * paired(z, z * z, _ASIN_TAIL.of(a.format))


@emitter
def asin(x: Real) -> Real:
    """asin(|x|) with the sign of x; pi/2 - 2 asin(sqrt((1 - |x|) / 2)) from 1/2. Greatest error: 1.22 / 1.16 ulp."""
    a = x.abs()
    z, s, tail = _half_angle(a)
    hi, lo = HALF_PI.parts(x.format)
    s_lo = _root_error(z, s)
    far = hi - (2.0 * s - (lo - 2.0 * (tail + s_lo)))
    return (a < 0.5).select(s + tail, far).copysign(x)


@emitter
def acos(x: Real) -> Real:
    """pi/2 - asin(x) for |x| < 1/2, else 2 asin(sqrt((1 - |x|) / 2)) or pi less that.

    Greatest error: 0.79 / 0.77 ulp.
    """
    a = x.abs()
    z, s, tail = _half_angle(a)
    tail = (a < 0.5).select(tail, tail + _root_error(z, s))
    hi, lo = HALF_PI.parts(x.format)
    middle = hi - (x - (lo - tail.copysign(x)))
    twice = 2.0 * (s + tail)
    far = (x < 0.0).select(2.0 * hi - (2.0 * s - 2.0 * (lo - tail)), twice)
    return (a < 0.5).select(middle, far)


def _root_error(z: Real, s: Real) -> Real:
    """sqrt(z) - s for s = sqrt(z) rounded."""
    return (s > 0.0).select(s.fma(-s, z) * (0.5 / s), 0.0)
