"""erf."""

from __future__ import annotations

from .emit import Real, emitter, nearest, paired, power_of_two
from .exponential import EXP2_TAIL
from .formats import ByFormat
from .pieces import erf_pieces

# erf(x) / x - 1 in x**2 for |x| <= 1: 2**-29.4 and 2**-55.7.
_SMALL = ByFormat(
    single=(
        1.2837917e-01, -3.761263e-01, 1.1283618e-01, -2.6855126e-02, 5.1907334e-03, -8.0307503e-04, 7.9203026e-05,
    ),
    double=(
        0.12837916709551256, -0.3761263890318334, 0.11283791670936548, -0.026866170641872075, 0.0052239775958687305,
        -0.0008548325437355024, 0.00012055278915991452, -1.4924432596216142e-05, 1.6443711798889285e-06,
        -1.6180398141803082e-07, 1.3600144800410325e-08, -7.57497901110534e-10,
    ),
)  # fmt: skip

# -log2(erfc(x)), single for 1 <= x <= 3.95 in x, double for 1 <= x <= 5.95 in x - 1; error times erfc(x):
# 2**-29.3 and 2**-56.3.
_LARGE = ByFormat(
    single=(
        5.100165e-04, 1.6259762e+00, 9.2076325e-01, 1.4865291e-01, -3.1459033e-02, 4.241091e-03, -2.677384e-04,
    ),
    double=(
        2.6684166967815997, 3.807225345853586, 1.2163466576872246, 0.05995999001468646, -0.014475749827138555,
        0.0028535082760358195, -0.0003423752465131767, -3.793757206502668e-05, 3.92398076678912e-05,
        -1.3952828950798637e-05, 3.0757236903379253e-06, -2.954726963878051e-07, -8.369603983634439e-08,
        4.8173988128179327e-08, -1.229000479213712e-08, 1.9030427853024495e-09, -1.7214654180455627e-10,
        7.018447928827783e-12,
    ),
)  # fmt: skip


@emitter
def erf(x: Real) -> Real:
    """The error function: an odd polynomial for |x| < 1, from there 1 - 2**-L(|x|), L = -log2(erfc).

    erfc itself spans sixteen orders of magnitude, its logarithm is nearly a parabola; the weight erfc(x) makes the
    error of L matter ever less. Greatest error: 1.18 / 1.00 ulp.
    """
    a = x.abs()
    if x.single and x.lanes.target.avx512:
        return erf_pieces(a).copysign(x)
    z = a * a
    small = a.mad(paired(z, z * z, _SMALL.of(x.format)), a)
    if x.single:
        t = a.at_most(3.95)
    else:
        t = a.at_most(5.95) - 1.0
    exponent = paired(t, t * t, _LARGE.of(x.format))
    n, bits = nearest(-exponent)
    r = -exponent - n
    large = 1.0 - r.mad(paired(r, r * r, EXP2_TAIL.of(x.format)), 1.0) * power_of_two(bits)
    return (a < 1.0).select(small, large).copysign(x)
