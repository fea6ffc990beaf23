"""Workloads in numba, as somebody writes them who wants them fast: explicit loops, ``prange``, ``fastmath``."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, exp, log, log1p, tanh
from typing import Any

import numpy as np
from numba import get_num_threads, njit, prange

__all__ = ["KERNELS"]

alone = njit(fastmath=True)
shared = njit(parallel=True, fastmath=True)
ONE, HALF = np.float32(1), np.float32(0.5)


@alone
def dispatch(x, y):
    out = np.float32(0)
    for i in range(x.size):
        out += x[i] * y[i] + ONE
    return out


@alone
def chain100(x):
    out = np.empty_like(x)
    for i in range(x.size):
        v = x[i]
        for _ in range(50):
            v = v * np.float32(0.99) + np.float32(0.01)
        out[i] = v
    return out


@shared
def ew12(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        a = x[i] * y[i] + np.float32(1.5)
        b = a - x[i] * HALF
        c = max(b, y[i]) * np.float32(0.25)
        out[i] = (c + a * b - y[i]) * (x[i] + np.float32(2))
    return out


@shared
def trans(x):
    out = np.empty_like(x)
    for i in prange(x.size):
        v = x[i]
        out[i] = tanh(exp(-v * v)) / (ONE + exp(-v)) + log1p(abs(v))
    return out


@shared
def gelu_erf(x):
    flat, out = x.ravel(), np.empty_like(x)
    into = out.ravel()
    for i in prange(flat.size):
        into[i] = HALF * flat[i] * (ONE + erf(flat[i] * np.float32(0.7071067811865476)))
    return out


@shared
def gelu_tanh(x):
    flat, out = x.ravel(), np.empty_like(x)
    into = out.ravel()
    for i in prange(flat.size):
        v = flat[i]
        into[i] = HALF * v * (ONE + tanh(np.float32(0.7978845608028654) * (v + np.float32(0.044715) * v * v * v)))
    return out


@shared
def sum_all(x):
    flat = x.ravel()
    out = np.float32(0)
    for i in prange(flat.size):
        out += flat[i]
    return out


@shared
def sum_doubles(x):
    flat = x.ravel()
    out = 0.0
    for i in prange(flat.size):
        out += flat[i]
    return out


@shared
def sum_whole(x):
    flat = x.ravel()
    out = 0
    for i in prange(flat.size):
        out += flat[i]
    return out


@shared
def sum_ax0(x):
    parts = np.zeros((get_num_threads(), x.shape[1]), x.dtype)
    share = (x.shape[0] + parts.shape[0] - 1) // parts.shape[0]
    for p in prange(parts.shape[0]):
        for i in range(p * share, min((p + 1) * share, x.shape[0])):
            for j in range(x.shape[1]):
                parts[p, j] += x[i, j]
    return parts.sum(0)


@shared
def sum_rows(x):
    out = np.empty(x.shape[0], x.dtype)
    for i in prange(x.shape[0]):
        s = np.float32(0)
        for j in range(x.shape[1]):
            s += x[i, j]
        out[i] = s
    return out


@shared
def sum_mid(x):
    out = np.zeros((x.shape[0], x.shape[2]), x.dtype)
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            for k in range(x.shape[2]):
                out[i, k] += x[i, j, k]
    return out


@shared
def sum_strided(x):
    out = np.float32(0)
    for i in prange(x.shape[0]):
        s = np.float32(0)
        for j in range(0, x.shape[1], 2):
            s += x[i, j]
        out += s
    return out


@shared
def sum_ends(x):
    parts = np.zeros((x.shape[0], x.shape[1]), x.dtype)
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            s = np.float32(0)
            for k in range(x.shape[2]):
                s += x[i, j, k]
            parts[i, j] = s
    return parts.sum(0)


@shared
def softmax(x):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        most = x[i, 0]
        for j in range(x.shape[1]):
            most = max(most, x[i, j])
        s = np.float32(0)
        for j in range(x.shape[1]):
            out[i, j] = exp(x[i, j] - most)
            s += out[i, j]
        s = ONE / s
        for j in range(x.shape[1]):
            out[i, j] *= s
    return out


@shared
def logsumexp_ax0(x):
    """Column blocks, so that a block's running maxima and sums stay in cache."""
    rows, columns, width = x.shape[0], x.shape[1], 128
    out = np.empty((1, columns), x.dtype)
    for block in prange((columns + width - 1) // width):
        start, stop = block * width, min((block + 1) * width, columns)
        most, s = x[0, start:stop].copy(), np.zeros(stop - start, x.dtype)
        for i in range(rows):
            for j in range(stop - start):
                most[j] = max(most[j], x[i, start + j])
        for i in range(rows):
            for j in range(stop - start):
                s[j] += exp(x[i, start + j] - most[j])
        for j in range(stop - start):
            out[0, start + j] = log(s[j]) + most[j]
    return out


@shared
def layer_norm(x, scale, shift):
    out = np.empty_like(x)
    width = np.float32(x.shape[1])
    for i in prange(x.shape[0]):
        mean = np.float32(0)
        for j in range(x.shape[1]):
            mean += x[i, j]
        mean /= width
        var = np.float32(0)
        for j in range(x.shape[1]):
            d = x[i, j] - mean
            var += d * d
        by = ONE / np.sqrt(var / width + np.float32(1e-5))
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - mean) * by * scale[j] + shift[j]
    return out


@shared
def rms_norm(x, scale):
    out = np.empty_like(x)
    width = np.float32(x.shape[1])
    for i in prange(x.shape[0]):
        square = np.float32(0)
        for j in range(x.shape[1]):
            square += x[i, j] * x[i, j]
        by = ONE / np.sqrt(square / width + np.float32(1e-5))
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * by * scale[j]
    return out


@shared
def black_scholes(spot, strike, years):
    call, put = np.empty_like(spot), np.empty_like(spot)
    root_half, volatility = np.float32(0.7071067811865476), np.float32(0.2)
    for i in prange(spot.size):
        spread = volatility * np.sqrt(years[i])
        d1 = (log(spot[i] / strike[i]) + np.float32(0.05) * years[i]) / spread
        d2 = d1 - spread
        later = strike[i] * exp(np.float32(-0.03) * years[i])
        value = spot[i] * HALF * (ONE + erf(d1 * root_half)) - later * HALF * (ONE + erf(d2 * root_half))
        call[i] = value
        put[i] = value + later - spot[i]
    return call, put


@shared
def distances(x, y):
    out = np.empty((x.shape[0], y.shape[0]), x.dtype)
    for i in prange(x.shape[0]):
        for j in range(y.shape[0]):
            s = np.float32(1e-6)
            for k in range(x.shape[1]):
                d = x[i, k] - y[j, k]
                s += d * d
            out[i, j] = np.sqrt(s)
    return out


@shared
def cumsum(x):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        s = np.float32(0)
        for j in range(x.shape[1]):
            s += x[i, j]
            out[i, j] = s
    return out


@shared
def cumsum_ax0(x):
    """Column blocks, each carried down the rows."""
    out = np.empty_like(x)
    width = 256
    for block in prange((x.shape[1] + width - 1) // width):
        start, stop = block * width, min((block + 1) * width, x.shape[1])
        out[0, start:stop] = x[0, start:stop]
        for i in range(1, x.shape[0]):
            for j in range(start, stop):
                out[i, j] = out[i - 1, j] + x[i, j]
    return out


@shared
def argmax(x):
    out = np.empty(x.shape[0], np.int64)
    for i in prange(x.shape[0]):
        at, most = 0, x[i, 0]
        for j in range(1, x.shape[1]):
            if x[i, j] > most:
                at, most = j, x[i, j]
        out[i] = at
    return out


@shared
def stencil(u):
    out = np.empty((u.shape[0] - 2, u.shape[1] - 2), u.dtype)
    tenth, four = np.float32(0.1), np.float32(4)
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
            out[i - 1, j - 1] = u[i, j] + tenth * (around - four * u[i, j])
    return out


@shared
def nbody(place, mass):
    out = np.empty_like(place)
    for i in prange(place.shape[0]):
        ax = ay = az = np.float32(0)
        x, y, z = place[i, 0], place[i, 1], place[i, 2]
        for j in range(place.shape[0]):
            dx, dy, dz = place[j, 0] - x, place[j, 1] - y, place[j, 2] - z
            square = dx * dx + dy * dy + dz * dz + np.float32(1e-2)
            pull = mass[j] / (square * np.sqrt(square))
            ax += pull * dx
            ay += pull * dy
            az += pull * dz
        out[i, 0], out[i, 1], out[i, 2] = ax, ay, az
    return out


@shared
def kmeans(points, centres):
    parts = np.zeros((get_num_threads(), centres.shape[0], centres.shape[1] + 1), points.dtype)
    share = (points.shape[0] + parts.shape[0] - 1) // parts.shape[0]
    for p in prange(parts.shape[0]):
        for i in range(p * share, min((p + 1) * share, points.shape[0])):
            best, least = 0, np.float32(np.inf)
            for c in range(centres.shape[0]):
                s = np.float32(0)
                for k in range(centres.shape[1]):
                    d = points[i, k] - centres[c, k]
                    s += d * d
                if s < least:
                    best, least = c, s
            for k in range(centres.shape[1]):
                parts[p, best, k] += points[i, k]
            parts[p, best, centres.shape[1]] += ONE
    total, out = parts.sum(0), np.empty_like(centres)
    for c in range(centres.shape[0]):
        for k in range(centres.shape[1]):
            out[c, k] = total[c, k] / max(total[c, centres.shape[1]], ONE)
    return out


@alone
def scatter_add(table, ids, values):
    out = table.copy()
    for i in range(ids.size):
        for j in range(table.shape[1]):
            out[ids[i], j] += values[i, j]
    return out


@shared
def gather(table, ids, g):
    out = np.empty_like(g)
    for i in prange(ids.size):
        for j in range(table.shape[1]):
            out[i, j] = table[ids[i], j] * HALF + g[i, j]
    return out


KERNELS: dict[str, Callable[..., Any]] = {
    "dispatch": dispatch, "dispatch_np": dispatch, "chain100": chain100, "chain100_np": chain100, "ew12": ew12,
    "ew12_1m": ew12, "trans": trans, "gelu_erf": gelu_erf, "gelu_tanh": gelu_tanh, "sum_all": sum_all,
    "sum_f64": sum_doubles, "sum_int8": sum_whole, "sum_bool": sum_whole, "sum_int32": sum_whole,
    "sum_ax0": sum_ax0, "sum_ax0_tall": sum_ax0, "sum_ax-1": sum_rows, "sum_mid": sum_mid,
    "sum_strided": sum_strided, "sum_transposed": sum_all, "sum_ends": sum_ends, "softmax": softmax,
    "softmax_native": softmax, "softmax_narrow": softmax, "logsumexp_ax0": logsumexp_ax0, "layer_norm": layer_norm,
    "rms_norm": rms_norm, "black_scholes": black_scholes, "pairwise": distances, "cumsum": cumsum,
    "cumsum_ax0": cumsum_ax0, "argmax": argmax, "stencil": stencil, "nbody": nbody, "kmeans": kmeans,
    "scatter_add": scatter_add, "gather": gather,
}  # fmt: skip
