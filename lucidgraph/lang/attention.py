"""Attention."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..ir.op import get
from .tensor import Tensor, apply, asarray

__all__ = ["scaled_dot_product_attention"]


def scaled_dot_product_attention(q: Any, k: Any, v: Any, *, scale: float | None = None, mask: Any = None) -> Tensor:
    """softmax(scale q kᵀ + mask) v for q (batch, heads, queries, n), k (batch, heads of keys, keys, n) and
    v (batch, heads of keys, keys, m): (batch, heads, queries, m).

    ``scale`` is 1/√n unless given. ``mask`` broadcasts to (batch, heads, queries, keys): booleans say which keys may be
    seen, numbers are added to the scores; ``"causal"`` lets a query see the keys up to its own place, the last query
    all of them. A query that may see nothing gets 0, and no gradient. Fewer heads of keys than of queries are shared by
    neighbouring heads. Half precision is computed in float32 and rounded once; under autocast the operands go to its
    dtype. Raises :class:`ShapeError`, :class:`DTypeError`.

    >>> q = asarray([[[[0.0], [0.0]]]])
    >>> scaled_dot_product_attention(q, q, asarray([[[[1.0], [3.0]]]]), mask="causal").tolist()
    [[[[1.0], [2.0]]]]
    """
    q, k, v = asarray(q), asarray(k), asarray(v)
    if isinstance(mask, str) and mask != "causal":
        raise ShapeError(f"a mask is an array or 'causal', not {mask!r}")
    causal = isinstance(mask, str)
    if scale is None:
        if not q.ndim or not q.shape[-1]:
            raise ShapeError(f"there are no features to attend by in q of shape {q.shape}", hint="give a scale")
        scale = float(q.shape[-1]) ** -0.5
    given = [] if mask is None or causal else [asarray(mask)]
    return apply(get("scaled_dot_product_attention"), q, k, v, *given, scale=float(scale), causal=causal)
