"""sin, cos, tan: reduction to |r| <= pi/4, both kernels, and a choice by quadrant.

These emitters may leave the builder in a new block: a branch guards the reduction of huge arguments (see `reduction`).
"""

from __future__ import annotations

from .emit import Int, Mask, Real, emitter, fast_two_sum, paired
from .formats import ByFormat
from .reduction import reduce_double, reduce_single, reduce_wide

# (sin(r) / r - 1) / z and (cos(r) - 1 + z / 2) / z**2 in z = r**2 for |r| <= pi/4; relative errors of the functions
# 2**-28.0, 2**-58.0 and 2**-33.1, 2**-64.2.
_SIN_TAIL = ByFormat(
    single=(-1.6666655e-01, 8.332191e-03, -1.9518606e-04),
    double=(
        -0.16666666666666632, 0.008333333333322472, -0.00019841269829835718, 2.7557313697364463e-06,
        -2.5050758494776882e-08, 1.58967967261245e-10,
    ),
)  # fmt: skip
_COS_TAIL = ByFormat(
    single=(4.1666646e-02, -1.3887301e-03, 2.4430685e-05),
    double=(
        0.0416666666666666, -0.0013888888888874457, 2.4801587289652858e-05, -2.755731439387352e-07,
        2.087572811295093e-09, -1.1359865189405897e-11,
    ),
)  # fmt: skip

# The same to 2**-37 and 2**-43 in binary64, where the result is to be binary32.
_SIN_TAIL_WIDE = (-0.1666666664152792, 0.008333329374238323, -0.0001983933103186988, 2.718274775454411e-06)
_COS_TAIL_WIDE = (0.04166666662268578, -0.0013888883740947552, 2.4799516676082348e-05, -2.7209958287959536e-07)


def _sin_cos(a: Real) -> tuple[Real, Real, Int]:
    """sin and cos of a - n pi/2, and n. The low part of the difference enters to first order."""
    if a.single:
        r, n = reduce_single(a)
    else:
        r, r_lo, n = reduce_double(a)
    z = r * r
    w = z * z
    s = paired(z, w, _SIN_TAIL.of(r.format))
    c = z.mad(paired(z, w, _COS_TAIL.of(r.format)), -0.5)
    if a.single:
        return (r * z).mad(s, r), z.mad(c, 1.0), n
    return (r * z).mad(s, z.mad(-0.5, 1.0) * r_lo) + r, z.mad(c, (-r) * r_lo) + 1.0, n


def _odd(n: Int) -> Mask:
    return (n & 1).equals(1)


def _flip(value: Real, sign: Int) -> Real:
    return (value.bits() ^ sign).as_real()


def _quadrant_sign(n: Int) -> Int:
    """The sign bit where bit 1 of n is set."""
    return (n << (n.format.width - 2)) & n.format.sign_bits


@emitter
def sin(x: Real) -> Real:
    """sin(|x|) with the sign of x joined. Greatest error: 1.54 / 1.15 ulp."""
    s, c, n = _sin_cos(x.abs())
    return _flip(_odd(n).select(c, s), _quadrant_sign(n) ^ x.sign_bit())


@emitter
def cos(x: Real) -> Real:
    """cos(|x|) = sin(|x| + pi/2). Greatest error: 1.54 / 1.11 ulp."""
    s, c, n = _sin_cos(x.abs())
    return _flip(_odd(n).select(s, c), _quadrant_sign(n + 1))


def _tan_single(a: Real) -> Real:
    """The quotient in binary64."""
    r, n = reduce_wide(a.widen())
    z = r * r
    w = z * z
    s = (r * z).mad(paired(z, w, _SIN_TAIL_WIDE), r)
    c = z.mad(z.mad(paired(z, w, _COS_TAIL_WIDE), -0.5), 1.0)
    odd = _odd(n)
    return (odd.select(-c, s) / odd.select(s, c)).narrow()


def _tan_double(a: Real) -> Real:
    """sin / cos or -cos / sin, each in two parts, the quotient corrected by its remainder."""
    r, r_lo, n = reduce_double(a)
    z = r * r
    w = z * z
    half_square = z * 0.5
    s, s_lo = fast_two_sum(r, (r * z).mad(paired(z, w, _SIN_TAIL.double), r_lo - half_square * r_lo))
    one = a.lanes.real(1.0)
    c, c_lo = fast_two_sum(one, -half_square)
    c, c_lo = fast_two_sum(c, c_lo + w.mad(paired(z, w, _COS_TAIL.double), r.fma(r, -z) * -0.5 - r * r_lo))
    odd = _odd(n)
    top, top_lo = odd.select(-c, s), odd.select(-c_lo, s_lo)
    d, d_lo = odd.select(s, c), odd.select(s_lo, c_lo)
    inverse = 1.0 / d
    q = top * inverse
    remainder = (-q).fma(d, top) + (top_lo - q * d_lo)
    return remainder.mad(inverse, q)


@emitter
def tan(x: Real) -> Real:
    """tan(|x|) with the sign of x joined. Greatest error: 0.51 / 0.84 ulp."""
    a = x.abs()
    return _flip(_tan_single(a) if x.single else _tan_double(a), x.sign_bit())
