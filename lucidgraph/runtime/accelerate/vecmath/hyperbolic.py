"""sinh, cosh, tanh, sigmoid and the inverse functions, from exp and log1p with their errors compensated."""

from __future__ import annotations

from .emit import Real, emitter, fast_two_sum, paired, power_of_two, two_sum
from .exponential import EXP_BOTTOM, EXP_TAIL, exp_reduced, reduce_by_ln2, scale_by
from .formats import ByFormat
from .logarithm import log1p_sum, log_sum, split_exponent
from .pieces import tanh_pieces
from .registers import reciprocal_start

# (sinh(x) / x - 1) / x**2 in x**2 for |x| <= 1: 2**-31.5 and 2**-61.7.
_SINH_TAIL = ByFormat(
    single=(1.6666667e-01, 8.333311e-03, 1.9842632e-04, 2.7839617e-06),
    double=(
        0.16666666666666669, 0.008333333333332915, 0.00019841269841589274, 2.755731910846477e-06,
        2.505213068049387e-08, 1.6056686598938276e-10, 7.775710135775821e-13,
    ),
)  # fmt: skip

# (tanh(x) / x - 1) / x**2 in x**2 for |x| <= 0.55: 2**-29.8.
_TANH_TAIL = (-3.333332e-01, 1.3332637e-01, -5.3856842e-02, 2.1088231e-02, -6.295471e-03)


def _half_exp(a: Real) -> Real:
    """exp(a) / 2 for a >= 0, which overflows only where sinh and cosh do."""
    p, n, bits = exp_reduced(a.at_most(90.0) if a.single else a.at_most(711.0))
    return scale_by(p, n - 1.0, bits - 1)


@emitter
def cosh(x: Real) -> Real:
    """(e**|x| + e**-|x|) / 2. Greatest error: 1.51 / 1.43 ulp."""
    t = _half_exp(x.abs())
    return t + 0.25 / t


@emitter
def sinh(x: Real) -> Real:
    """(e**|x| - e**-|x|) / 2, for |x| < 1 an odd polynomial. Greatest error: 1.62 / 1.62 ulp."""
    a = x.abs()
    t = _half_exp(a)
    z = a * a
    small = (a * z).mad(paired(z, z * z, _SINH_TAIL.of(x.format)), a)
    return (a < 1.0).select(small, t - 0.25 / t).copysign(x)


def _tanh_single(a: Real) -> Real:
    """1 - 2 / (e**2a + 1), below 0.55 an odd polynomial; or a polynomial for each of many intervals."""
    if a.lanes.target.avx512:
        return tanh_pieces(a)
    p, _, n = exp_reduced((a + a).at_most(18.5))
    big = 1.0 - 2.0 / p.mad(power_of_two(n), 1.0)
    z = a * a
    return (a < 0.55).select((a * z).mad(paired(z, z * z, _TANH_TAIL), a), big)


def _tanh_double(a: Real) -> Real:
    """E / (E + 2) with E = e**2a - 1 in two parts and the quotient corrected by its remainder."""
    _, r, r_lo, n = reduce_by_ln2((a + a).at_most(40.0))
    z = r * r
    p_lo = z.mad(paired(r, z, EXP_TAIL.double), r_lo)
    scale = power_of_two(n)
    e, e_lo = two_sum(scale - 1.0, scale * r)
    e, e_lo = fast_two_sum(e, scale.mad(p_lo, e_lo))
    d, d_lo = two_sum(e, 2.0)
    d_lo = d_lo + e_lo
    inverse = 1.0 / d
    q = e * inverse
    remainder = (-q).fma(d, e) + (e_lo - q * d_lo)
    return remainder.mad(inverse, q)


@emitter
def tanh(x: Real) -> Real:
    """tanh(|x|) with the sign of x. Greatest error: 1.50 / 0.88 ulp."""
    a = x.abs()
    return (_tanh_single(a) if x.single else _tanh_double(a)).copysign(x)


@emitter
def sigmoid(x: Real) -> Real:
    """1 / (1 + e**-x): with t = e**-|x|, 1 / (1 + t) or t / (1 + t), the quotient corrected by its remainder.

    Greatest error: 1.53 / 1.40 ulp.
    """
    t = scale_by(*exp_reduced((-x.abs()).at_least(EXP_BOTTOM.of(x.format))))
    d = t + 1.0
    inverse = reciprocal_start(d) if x.single and x.lanes.target.avx512 else 1.0 / d
    top = (x < 0.0).select(t, 1.0)
    q = top * inverse
    # top - q is exact.
    return (-q).fma(t, top - q).mad(inverse, q)


@emitter
def asinh(x: Real) -> Real:
    """log1p(a + a**2 / (1 + sqrt(1 + a**2))), a = |x|; log(a) + log(2) where the square is all there is.

    Greatest error: 1.76 / 1.17 ulp.
    """
    a = x.abs()
    z = a * a
    middle, middle_lo = two_sum(a, z / ((z + 1.0).sqrt() + 1.0))
    return _log_or_log1p(a, middle, middle_lo).copysign(x)


@emitter
def acosh(x: Real) -> Real:
    """log1p(t + sqrt(2 t + t**2)), t = x - 1, the root corrected by its remainder; log(x) + log(2) for large x.

    Greatest error: 1.56 / 1.00 ulp.
    """
    t = x - 1.0
    square = t.mad(t, t + t)
    square_lo = t.fma(t, (t + t) - square)
    root = square.sqrt()
    root_lo = (square > 0.0).select((root.fma(-root, square) + square_lo) * (0.5 / root), 0.0)
    middle, middle_lo = two_sum(root, t)
    result = _log_or_log1p(x, middle, middle_lo + root_lo)
    return (x < 1.0).select(float("nan"), result)


def _log_or_log1p(a: Real, y: Real, y_lo: Real) -> Real:
    """log(2 a) where a > 2**28, else log1p(y + y_lo); a itself where it is NaN or infinite."""
    m, k, _ = split_exponent(a)
    large = log_sum(k + 1.0, m - 1.0, None)
    result = (a > 2.0**28).select(large, log1p_sum(y, y_lo))
    return (a < float("inf")).select(result, a)


@emitter
def atanh(x: Real) -> Real:
    """log1p(2 a / (1 - a)) / 2, a = |x|, the quotient in two parts. Greatest error: 1.61 / 1.00 ulp."""
    a = x.abs()
    top = a + a
    d, d_lo = fast_two_sum(x.lanes.real(1.0), -a)
    inverse = 1.0 / d
    q = top * inverse
    remainder = (-q).fma(d, top) - q * d_lo
    result = log1p_sum(q, remainder * inverse) * 0.5
    result = (a < 1.0).select(result, float("nan"))
    return a.equals(1.0).select(float("inf"), x.is_nan().select(x, result)).copysign(x)
