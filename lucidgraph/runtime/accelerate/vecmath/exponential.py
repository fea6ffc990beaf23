"""exp, exp2, expm1: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, and 2**n applied in two exact steps.

The reduction is Cody and Waite's (Software Manual for the Elementary Functions, 1980) with fused products, so that two
parts of ln 2 suffice. Polynomials are minimax (Remez exchange, coefficients rounded one after the other).
"""

from __future__ import annotations

from .emit import Int, Real, emitter, nearest, paired, power_of_two
from .formats import LN2, LOG2_E, ByFormat, round_to_single
from .registers import looked_up, scaled

# (exp(r) - 1 - r) / r**2 on |r| <= ln 2 / 2, error relative to |r| + 0.04: 2**-25.8 and 2**-60.2.
EXP_TAIL = ByFormat(
    single=(0.5, 1.6666543e-01, 4.166662e-02, 8.366689e-03, 1.3915909e-03),
    double=(
        0.5, 0.16666666666666674, 0.04166666666666665, 0.00833333333332397, 0.0013888888888923363,
        0.00019841269880392257, 2.480158722261365e-05, 2.7557249568696204e-06, 2.7557365095682343e-07,
        2.510731800351468e-08, 2.088807695726302e-09,
    ),
)  # fmt: skip

# (exp(r) - 1 - r) / r**2 on |r| <= ln 2 / 32, times r**2: 2**-29; and 2**(j / 16) in two parts.
_SHORT_EXP_TAIL = (5.000169e-01, 1.6667023e-01)
_SIXTEENTHS = tuple(round_to_single(2.0 ** (j / 16)) for j in range(16))
_SIXTEENTHS_REST = tuple(2.0 ** (j / 16) - _SIXTEENTHS[j] for j in range(16))

# (2**r - 1) / r on |r| <= 1/2, same weight: 2**-25.9 (the rounding of ln 2) and 2**-57.2.
EXP2_TAIL = ByFormat(
    single=(6.931472e-01, 2.402265e-01, 5.5503316e-02, 9.618007e-03, 1.3399157e-03, 1.5475652e-04),
    double=(
        0.6931471805599453, 0.24022650695910144, 0.055504108664824345, 0.00961812910758775, 0.001333355814567305,
        0.0001540353046596866, 1.5252734597079755e-05, 1.321543062203804e-06, 1.0177727861112219e-07,
        7.074608339908358e-09, 4.506928454321367e-10,
    ),
)  # fmt: skip

# The same to 2**-34 in binary64, where the result is to be binary32.
EXP2_TAIL_WIDE = (
    0.6931471805437721, 0.24022651058052263, 0.055504109580883206, 0.009618038906692751, 0.0013333433456534788,
    0.00015466595445792357, 1.5314464599710526e-05,
)  # fmt: skip


# Where exp has just overflowed and where it has just vanished: beyond, n would outgrow its field.
EXP_TOP = ByFormat(single=89.0, double=710.0)
EXP_BOTTOM = ByFormat(single=-104.0, double=-746.0)


def scale_by(p: Real, power: Real, n: Int) -> Real:
    """p * 2**n for (power, n) from `nearest`, in two steps of half the exponent so that only the last one rounds.

    Right for every result, subnormal, zero and infinite ones included, if |n| is below twice the largest exponent.
    """
    if p.lanes.target.avx512:
        return scaled(p, power)
    form = n.format
    half = (n >> 1) << form.mantissa
    rest = (n << form.mantissa) - half
    return p * (half + form.one_bits).as_real() * (rest + form.one_bits).as_real()


def reduce_by_ln2(x: Real) -> tuple[Real, Real, Real, Int]:
    """n = round(x / ln 2) and r + r_lo = x - n ln 2, as (n, r, r_lo, n's bits); r_lo is free where unused."""
    n, bits = nearest(x, LOG2_E.terms[0])
    hi, lo = LN2.parts(x.format)
    head = n.fma(-hi, x)
    r = n.fma(-lo, head)
    return n, r, n.fma(-lo, head - r), bits


def exp_reduced(x: Real, close: bool = True) -> tuple[Real, Real, Int]:
    """exp(x) = p * 2**floor(n) as (p, n, n's bits), for x whose n is in range. The bits are of whole n only.

    Not `close`, it may err by half an ulp more.
    """
    if x.single and x.lanes.target.avx512:
        return _exp_looked_up(x, close)
    n, r, _, bits = reduce_by_ln2(x)
    z = r * r
    return z.mad(paired(r, z, EXP_TAIL.of(x.format)), r) + 1.0, n, bits


def _exp_looked_up(x: Real, close: bool) -> tuple[Real, Real, Int]:
    """n is rounded to sixteenths, 2 to the power of what is behind its point looked up."""
    shifter = x.format.shifter / 16
    shifted = x.mad(LOG2_E.terms[0], shifter)
    n, bits = shifted - shifter, shifted.bits()
    hi, lo = LN2.parts(x.format)
    r = n.fma(-lo, n.fma(-hi, x))
    power = looked_up(_SIXTEENTHS, bits)
    p = (r * r).mad(paired(r, r, _SHORT_EXP_TAIL), r)
    if not close:
        return power.mad(p, power), n, bits
    return power.mad(p, looked_up(_SIXTEENTHS_REST, bits)) + power, n, bits


def exp_formula(x: Real) -> Real:
    """exp(x) over the whole range."""
    return scale_by(*exp_reduced(x.at_most(EXP_TOP.of(x.format)).at_least(EXP_BOTTOM.of(x.format)), close=False))


@emitter
def exp(x: Real) -> Real:
    """e**x. Greatest error: 1.07 / 0.98 ulp."""
    return exp_formula(x)


@emitter
def exp2(x: Real) -> Real:
    """2**x; x - round(x) is exact. Greatest error: 1.16 / 1.00 ulp."""
    x = x.at_most(129.0).at_least(-151.0) if x.single else x.at_most(1025.0).at_least(-1076.0)
    n, bits = nearest(x)
    r = x - n
    return scale_by(r.mad(paired(r, r * r, EXP2_TAIL.of(x.format)), 1.0), n, bits)


@emitter
def expm1(x: Real) -> Real:
    """e**x - 1 = 2**n (e**r - 1) + (2**n - 1), doubled at the end so that 2**n is representable to the overflow.

    Greatest error: 1.65 / 1.58 ulp.
    """
    # Below -17.5 (-38) the result is -1 to the last bit.
    y = x.at_most(89.0).at_least(-17.5) if x.single else x.at_most(710.0).at_least(-38.0)
    _, r, r_lo, n = reduce_by_ln2(y)
    z = r * r
    p = z.mad(paired(r, z, EXP_TAIL.of(x.format)), r_lo) + r
    half = power_of_two(n - 1)
    return (half.mad(p, half - 0.5) * 2.0).copysign(x)
