"""Operands for every op, in explicit form: what backends are compared on with the meaning of the IR.

``SAMPLES[name]`` is a list of :class:`Sample`. Floats hold NaN, infinities and signed zeros among ordinary numbers,
integers their extremes, shapes 0-d arrays, sizes 0 and 1. :func:`node_of` makes the node of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucidgraph import dtypes
from lucidgraph.dtypes import DType
from lucidgraph.ir import Graph, Node, TensorType
from lucidgraph.ir.evaluate import evaluate_node
from lucidgraph.ir.op import get
from lucidgraph.ir.ops.shape import SliceBackward


class Sample(NamedTuple):
    """Arrays for the operands, and the attributes."""

    operands: tuple[np.ndarray, ...]
    attrs: Mapping[str, Any] = {}

    def __str__(self) -> str:
        kinds = ",".join(f"{a.dtype.name}{list(a.shape)}" for a in self.operands)
        return kinds + (f" {dict(self.attrs)}" if self.attrs else "")


def node_of(name: str, sample: Sample) -> Node:
    """A node of op ``name`` over inputs of the sample's types."""
    op = get(name)
    types = [TensorType(a.shape, dtypes.as_dtype(a.dtype)) for a in sample.operands]
    operands = tuple(Node(get("input"), (), {}, (t,)) for t in types)
    return Node(op, operands, sample.attrs, op.result_types(types, sample.attrs))


def graph_of(node: Node) -> Graph:
    """The explicit graph of one node over its inputs."""
    return Graph(node.operands, [node], [node], "explicit")


HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (11,), (3, 0, 2), (2, 1, 3))


def array(name: str, shape: tuple[int, ...], low: float = -4.0, high: float = 4.0, seed: int = 0,
          special: bool = True) -> np.ndarray:  # fmt: skip
    """Numbers of dtype ``name`` between ``low`` and ``high``, with special ones in front."""
    dtype: DType = dtypes.from_name(name)
    rng = np.random.default_rng([seed, *shape])
    if dtype.is_bool:
        return rng.random(shape) < 0.5
    if dtype.is_complex:
        parts = rng.uniform(low, high, (2, *shape))
        return np.asarray(parts[0] + 1j * parts[1]).astype(dtype.numpy)
    if dtype.is_integer:
        least, greatest = dtype.range
        out = rng.integers(max(int(low), least), min(int(high), greatest), shape, endpoint=True).astype(dtype.numpy)
        front: Sequence[Any] = (greatest, least, 0)
    else:
        out = rng.uniform(low, high, shape).astype(dtype.numpy)
        front = (math.nan, -0.0, math.inf, 0.0, -math.inf)
    if special and out.size >= 2 * len(front):
        flat = out.reshape(-1)
        flat[: len(front)] = np.roll(np.array(front, dtype.numpy), seed)
    return out


def _elementwise(arity: int, names: Iterable[str], low: float = -4.0, high: float = 4.0, special: bool = True,
                 **attrs: Any) -> list[Sample]:  # fmt: skip
    """Each dtype in one shape of several elements, one dtype in all shapes."""
    return [
        Sample(tuple(array(name, shape, low, high, s, special) for s in range(arity)), attrs)
        for k, name in enumerate(names)
        for shape in (SHAPES if k == 0 else ((11,),))
    ]


def _unary(names: Iterable[str], *range_: float, **attrs: Any) -> list[Sample]:
    return _elementwise(1, names, *range_, **attrs)


def _binary(names: Iterable[str], *range_: float, **attrs: Any) -> list[Sample]:
    return _elementwise(2, names, *range_, **attrs)


REAL = ("float32", *HALVES, "float64")
REAL_INT = (*REAL, *INTEGERS)
REAL_INT_BOOL = (*REAL_INT, "bool")
NUMBER = (*REAL_INT, *COMPLEX)
ALL = (*NUMBER, "bool")
BITS = (*INTEGERS, "bool")
ANALYTIC = (*REAL, *COMPLEX)


def _reductions(names: Iterable[str], empty: bool = True, **attrs: Any) -> list[Sample]:
    """Axes alone, together, none, all, kept and not; long ones; without elements where the reduction has a start."""
    first, *rest = names
    found = [
        Sample((array(first, (2, 5, 3)),), {"axis": axis, "keepdims": keepdims, **attrs})
        for axis in ((0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2), ())
        for keepdims in (False, True)
    ]
    found.append(Sample((array(first, ()),), {"axis": (), "keepdims": False, **attrs}))
    found.append(Sample((array(first, (2, 0)),), {"axis": (0,), "keepdims": True, **attrs}))
    if empty:
        found.append(Sample((array(first, (0, 3)),), {"axis": (0,), "keepdims": False, **attrs}))
        found.append(Sample((array(first, (0, 3)),), {"axis": (0, 1), "keepdims": True, **attrs}))
    for shape, axis in (((3, 1000), (1,)), ((1000, 3), (0,)), ((30, 2, 40), (0, 2)), ((20, 30, 3), (0, 1))):
        data = array(first, shape, special=False)
        found.append(Sample((data,), {"axis": axis, "keepdims": False, **attrs}))
    for name in rest:
        found.append(Sample((array(name, (4, 5)),), {"axis": (1,), "keepdims": False, **attrs}))
        found.append(Sample((array(name, (4, 5), special=False),), {"axis": (0, 1), "keepdims": True, **attrs}))
    return found


def _prods() -> list[Sample]:
    """Products that neither overflow nor wrap into what no backend promises."""
    found = _reductions(("float32", "float64", "complex64"), dtype=None)
    found = [s if s.operands[0].size < 500 else Sample((np.sign(s.operands[0]),), s.attrs) for s in found]
    for name in ("int64", "uint64", "bool", *HALVES):
        data = array(name, (4, 3), 1, 3, special=False)
        found.append(Sample((data,), {"axis": (1,), "keepdims": False, "dtype": None}))
    return found


def _args() -> list[Sample]:
    found = [
        Sample((array(name, (4, 5)),), {"axis": (axis,), "keepdims": axis == 1, "dtype": None})
        for name in REAL_INT_BOOL
        for axis in (0, 1)
    ]
    late = np.array([[1, 5, np.nan, 7], [np.nan, np.nan, 0, 1], [2, 2, 1, 1]], np.float32)
    found += [Sample((late,), {"axis": (k,), "keepdims": False, "dtype": None}) for k in (0, 1)]
    long = np.linspace(0, 1, 300, dtype=np.float32)
    long[217] = np.nan
    found.append(Sample((long,), {"axis": (0,), "keepdims": False, "dtype": None}))
    found.append(Sample((array("float32", (3, 0)),), {"axis": (0,), "keepdims": False, "dtype": None}))
    return found


def _casts() -> list[Sample]:
    every = [d.name for d in dtypes.ALL]
    found = []
    for name in every:
        kind = dtypes.from_name(name).kind
        for target in every:
            wanted = dtypes.from_name(target)
            # NaN, infinities and numbers outside have no meaning as integers, negative ones none as unsigned.
            risky = kind in "fc" and wanted.is_integer
            low = 0.0 if wanted.kind == "u" and kind in "fc" else -4.0
            found.append(Sample((array(name, (11,), low, 4.0, special=not risky),), {"dtype": wanted}))
    found.append(Sample((array("float32", ()),), {"dtype": dtypes.int32}))
    found.append(Sample((array("float32", (0, 3)),), {"dtype": dtypes.float16}))
    double = np.array([1 + 2.0**-11 + 2.0**-40, -1 - 2.0**-8 - 2.0**-40, 1e300, -1e-300, 0.1, math.nan, math.inf])
    found += [Sample((double,), {"dtype": d}) for d in (dtypes.float16, dtypes.bfloat16)]
    return found


def _wheres() -> list[Sample]:
    return [
        Sample((array("bool", shape, seed=2), array(name, shape), array(name, shape, seed=1)))
        for name in ALL
        for shape in (SHAPES if name == "float32" else ((11,),))
    ]


def _normal_slice(shape: tuple[int, ...], *parts: slice) -> dict[str, tuple[int, ...]]:
    """Attributes of ``slice`` for Python slices."""
    numbers = [s.indices(n) for n, s in zip(shape, parts, strict=True)]
    numbers = [abc if len(range(*abc)) else (0, 0, 1) for abc in numbers]
    start, stop, step = (tuple(abc[k] for abc in numbers) for k in range(3))
    return {"start": start, "stop": stop, "step": step}


_SLICES: tuple[tuple[tuple[int, ...], tuple[slice, ...]], ...] = (
    ((), ()),
    ((5,), (slice(None),)),
    ((5,), (slice(1, 4),)),
    ((5,), (slice(None, None, -1),)),
    ((7,), (slice(5, 1, -2),)),
    ((7,), (slice(1, 6, 3),)),
    ((4, 5), (slice(None, None, -1), slice(0, 4, 2))),
    ((4, 5), (slice(2, 2), slice(None))),
    ((2, 3, 4), (slice(None), slice(1, 2), slice(None, None, -3))),
    ((0, 3), (slice(None), slice(0, 2))),
)


def _slices() -> list[Sample]:
    found = [Sample((array("float32", shape),), _normal_slice(shape, *parts)) for shape, parts in _SLICES]
    found += [Sample((array(name, (7,)),), _normal_slice((7,), slice(5, 1, -2))) for name in ALL]
    return found


def _slice_updates() -> list[Sample]:
    found = []
    for name, (shape, parts) in [*(("float32", s) for s in _SLICES), *((name, _SLICES[4]) for name in ALL)]:
        whole = array(name, shape)
        attrs = _normal_slice(shape, *parts)
        part = SliceBackward.evaluate(whole, **attrs).shape
        found.append(Sample((whole, array(name, part, seed=1)), attrs))
    return found


def _pads() -> list[Sample]:
    found = []
    for shape, low, high, interior in (
        ((), (), (), ()),
        ((3,), (1,), (2,), (0,)),
        ((3,), (1,), (0,), (2,)),
        ((2, 3), (0, 1), (2, 0), (1, 0)),
        ((0, 2), (1, 0), (1, 3), (0, 1)),
        ((0, 2), (0, 0), (0, 3), (2, 0)),
    ):
        attrs = {"low": low, "high": high, "interior": interior}
        found.append(Sample((array("float32", shape), np.float32(2.5).reshape(())), attrs))
    for name in ALL:
        attrs = {"low": (1,), "high": (1,), "interior": (1,)}
        found.append(Sample((array(name, (5,)), array(name, (), 1, 3)), attrs))
        found.append(Sample((array(name, (5,)), array(name, (), 1, 3)), {**attrs, "interior": (0,)}))
    return found


def _movements() -> dict[str, list[Sample]]:
    def of(shape: tuple[int, ...], attrs: dict[str, Any], names: Iterable[str] = ("float32",)) -> list[Sample]:
        return [Sample((array(name, shape),), attrs) for name in names]

    return {
        "broadcast_to": [
            *of((3,), {"shape": (2, 3)}, ALL),
            *of((), {"shape": (2, 0)}),
            *of((1, 1), {"shape": (2, 3)}),
            *of((2, 3), {"shape": (2, 3)}),
            *of((1, 0), {"shape": (3, 0)}),
        ],
        "reshape": [
            *of((2, 6), {"shape": (3, 4)}, ALL),
            *of((), {"shape": (1, 1)}),
            *of((0, 3), {"shape": (5, 0)}),
            *of((1,), {"shape": ()}),
        ],
        "expand_dims": [
            *of((2, 3), {"axis": (0, 2)}, ALL),
            *of((), {"axis": (0, 1)}),
            *of((2, 0), {"axis": (1,)}),
            *of((2,), {"axis": ()}),
        ],
        "squeeze": [
            *of((1, 3, 1), {"axis": (0, 2)}, ALL),
            *of((1, 1), {"axis": (0, 1)}),
            *of((1, 0), {"axis": (0,)}),
            *of((2,), {"axis": ()}),
        ],
        "permute_dims": [
            *of((2, 3, 4), {"axes": (2, 0, 1)}, ALL),
            *of((), {"axes": ()}),
            *of((2, 0), {"axes": (1, 0)}),
            *of((2, 3), {"axes": (0, 1)}),
        ],
    }


def _concats() -> list[Sample]:
    found = [Sample(tuple(array(name, (n, 3), seed=n) for n in (2, 0, 1)), {"axis": 0}) for name in ALL]
    found.append(Sample((array("float32", (2, 1)), array("float32", (2, 4))), {"axis": 1}))
    found.append(Sample((array("float32", (0, 2)),), {"axis": 1}))
    return found


_INDEXED: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = (
    ((5,), 0, (3,)),
    ((5,), 0, ()),
    ((4, 3), 0, (2, 2)),
    ((4, 3), 1, (5,)),
    ((2, 3, 4), 1, ()),
    ((4, 3), 0, (0,)),
    ((3, 0), 0, (2,)),
    ((0, 3), 0, (0,)),
)


def _indices(name: str, shape: tuple[int, ...], size: int) -> np.ndarray:
    """Valid indices, repeated ones and, where the dtype has them, negative ones among them."""
    if not size:
        return np.zeros(shape, name)
    return np.random.default_rng([size, *shape]).integers(0 if name[0] == "u" else -size, size, shape, dtype=name)


def _takes(updates: bool) -> list[Sample]:
    found = []
    cases = [("float32", "int64", case) for case in _INDEXED]
    cases += [(name, "int64", _INDEXED[2]) for name in ALL]
    cases += [("float32", name, _INDEXED[2]) for name in INTEGERS]
    for name, kind, (shape, axis, chosen) in cases:
        if shape[axis] == 0 and math.prod(chosen):
            continue
        operands = [array(name, shape, special=False), _indices(kind, chosen, shape[axis])]
        if updates:
            operands.append(array(name, shape[:axis] + chosen + shape[axis + 1 :], seed=1, special=False))
        found.append(Sample(tuple(operands), {"axis": axis}))
    return found


def _extreme_scatters() -> list[Sample]:
    """Those of ``scatter_add`` that are ordered, and some with NaN on either side, first and last."""
    found = [s for s in _takes(updates=True) if s.operands[0].dtype.kind != "c"]
    x = np.array([np.nan, 0, 1, 2], np.float32)
    rows = np.array([[1, np.nan, 3, 4], [np.nan, 5, 6, -1]], np.float32)
    return [*found, *(Sample((x, np.array([1, 1, 0, 3]), row), {"axis": 0}) for row in rows)]


def _takes_along(updates: bool) -> list[Sample]:
    found = []
    cases: list[tuple[str, str, tuple[int, ...], int, tuple[int, ...]]] = [
        ("float32", "int64", (5,), 0, (3,)),
        ("float32", "int64", (4, 3), 0, (2, 3)),
        ("float32", "int64", (4, 3), 1, (4, 5)),
        ("float32", "int64", (4, 3), 1, (4, 0)),
        ("float32", "int64", (2, 3, 4), 1, (2, 2, 4)),
        *((name, "int64", (4, 3), 1, (4, 5)) for name in ALL),
        *(("float32", kind, (4, 3), 0, (2, 3)) for kind in INTEGERS),
    ]
    for name, kind, shape, axis, chosen in cases:
        operands = [array(name, shape, special=False), _indices(kind, chosen, shape[axis])]
        if updates:
            operands.append(array(name, chosen, seed=1, special=False))
        found.append(Sample(tuple(operands), {"axis": axis}))
    return found


def _aranges() -> list[Sample]:
    rows: list[tuple[Any, Any, int, str]] = [
        (0, 1, 5, "int64"), (3, -2, 4, "int32"), (0, 1, 0, "float32"), (2, 3, 7, "float32"), (0.5, 0.1, 20, "float32"),
        (0.0, 0.1, 11, "float64"), (0, 1, 300, "float16"), (1, 2, 300, "bfloat16"), (2**53, 1, 3, "int64"),
        (250, 1, 5, "uint8"), (2**63, 1, 3, "uint64"), (1, 1, 4, "complex64"), (-1.5, -0.25, 6, "float16"),
    ]  # fmt: skip
    return [Sample((), {"start": a, "step": s, "size": n, "dtype": dtypes.from_name(name)}) for a, s, n, name in rows]


def _matmuls() -> list[Sample]:
    shapes = (
        ((2, 3), (3, 4)), ((2, 0), (0, 3)), ((0, 2), (2, 3)), ((5, 2, 3), (5, 3, 4)), ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)), ((1, 1), (1, 1)), ((2, 3, 2, 3), (2, 3, 3, 1)), ((0, 2, 3), (0, 3, 4)),
        ((40, 70), (70, 30)),
    )  # fmt: skip
    found = [Sample((array("float32", a, special=False), array("float32", b, special=False))) for a, b in shapes]
    for name in NUMBER:
        for a, b in (((2, 5), (5, 3)), ((4, 2, 5), (5, 3))):
            found.append(Sample((array(name, a, seed=1, special=False), array(name, b, seed=2, special=False))))
    return found


def _rows(*attrs: dict[str, Any], shapes: Sequence[tuple[int, ...]] = ((4, 7), (3, 0), (2, 3, 300))) -> list[Sample]:
    return [
        Sample((array(kind, shape, special=False),), a)
        for a in attrs
        for kind in REAL
        for shape in (shapes if kind == "float32" else shapes[:1])
    ]


def _softmaxes() -> list[Sample]:
    edges = np.array([[-np.inf, 0, 1], [-np.inf, -np.inf, -np.inf], [1e4, -1e4, 0], [80, 81, 82]], np.float32)
    return [*_rows({"axis": 0}, {"axis": 1}), *(Sample((edges,), {"axis": k}) for k in (0, 1))]


def _logsumexps() -> list[Sample]:
    edges = np.array([[-np.inf, 0, 1], [-np.inf, -np.inf, -np.inf], [1e4, np.inf, 0]], np.float32)
    attrs = [{"axis": axis, "keepdims": keep} for axis in ((0,), (1,), (0, 1), ()) for keep in (False, True)]
    return [*_rows(*attrs), *(Sample((edges,), a) for a in attrs)]


def _norms(with_bias: bool) -> list[Sample]:
    found = []
    for name in REAL:
        for shape in ((4, 7), (2, 3, 300), (0, 5)):
            for extra in range(3 if with_bias else 2):
                x = array(name, shape, special=False)
                affine = [array(name, shape[-1:], seed=k + 1, special=False) for k in range(extra)]
                attrs: dict[str, Any] = {"eps": 1e-5, "has_weight": extra > 0}
                if with_bias:
                    attrs["has_bias"] = extra > 1
                found.append(Sample((x, *affine), attrs))
    return found


def _spreads() -> list[Sample]:
    return _reductions(REAL, empty=False, correction=1.0) + _reductions(("float32",), empty=False, correction=0.0)


def _einsums() -> list[Sample]:
    cases: tuple[Any, ...] = (
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
        ("ii->i", (3, 3)),
        ("i,j->ij", (2,), (3,)),
    )
    return [
        Sample(tuple(array("float32", s, seed=k, special=False) for k, s in enumerate(shapes)), {"subscripts": text})
        for text, *shapes in cases
    ]


def _vector_norms() -> list[Sample]:
    attrs = [{"axis": (1,), "keepdims": False, "ord": o} for o in (2.0, 1.0, 3.0)]
    return [Sample((array("float32", (3, 5), special=False),), a) for a in attrs]


def _linears() -> list[Sample]:
    x, w, b = (array("float32", s, seed=k, special=False) for k, s in enumerate(((4, 3), (5, 3), (5,))))
    return [Sample((x, w)), Sample((x, w, b)), Sample((x[0], w, b))]


def _cross_entropies() -> list[Sample]:
    x = array("float32", (4, 5), special=False)
    classes = np.array([0, 4, -1, 2])
    soft = np.full((4, 5), 0.2, np.float32)
    return [Sample((x, t), {"axis": 1, "label_smoothing": s}) for t in (classes, soft) for s in (0.0, 0.1)]


def _scans(names: Iterable[str], special: bool, low: float = -4.0, high: float = 4.0, **attrs: Any) -> list[Sample]:
    """Every axis, both ways; rows longer than a vector, shorter, several; nothing at all."""
    first, *rest = names
    ways = [{"reverse": r, **attrs} for r in (False, True)]
    if attrs:
        ways += [{**way, "inclusive": False} for way in ways]
    shapes = (((50,), 0), ((1,), 0), ((3, 37), 1), ((3, 5), 0), ((2, 6, 40), 1), ((0,), 0), ((0, 3), 0), ((3, 0), 1))
    found = []
    for way in ways:
        found += [Sample((array(first, s, low, high, special=special),), {"axis": k, **way}) for s, k in shapes]
        for name in rest:
            found += [Sample((array(name, (4, 5), low, high, special=special),), {"axis": k, **way}) for k in (0, 1)]
    return found


def _recurrences() -> list[Sample]:
    found = []
    for reverse in (False, True):
        for name, shape, axis in (
            ("float32", (3, 21), 1), ("float32", (21, 3), 0), ("float32", (2, 0), 1), ("float32", (1,), 0),
            *((name, (4, 5), 1) for name in (*ANALYTIC, "complex64")),
        ):  # fmt: skip
            pair = array(name, shape, -1, 1, special=False), array(name, shape, seed=1, special=False)
            found.append(Sample(pair, {"axis": axis, "reverse": reverse}))
    # What is 0 stays 0.
    a = np.array([1, np.inf, np.nan, 2, 0.5, 0, np.inf, np.nan, 3, 2], np.float32)
    b = np.array([0, 0, 3, 0, -6, 0, 0, 4, 1, 0], np.float32)
    return [*found, Sample((a, b), {"axis": 0, "reverse": False})]


def _windows() -> list[Sample]:
    cases = (
        ((7,), 0, (3,), (2,), (1,)), ((2, 7, 3), 1, (2,), (1,), (3,)), ((2, 5, 6, 3), 1, (2, 3), (2, 1), (1, 2)),
        ((0, 4, 2), 1, (4,), (1,), (1,)), ((3, 1), 1, (1,), (1,), (1,)), ((2, 3), 1, (), (), ()),
    )  # fmt: skip
    found = []
    named = [*(("float32", c) for c in cases), *((n, cases[0]) for n in ALL)]
    for name, (shape, axis, kernel, stride, dilation) in named:
        attrs = {"axis": axis, "kernel": kernel, "stride": stride, "dilation": dilation}
        found.append(Sample((array(name, shape),), attrs))
    return found


def _overlaps() -> list[Sample]:
    cases = (
        ((3, 3), 0, (8,), (2,), (1,)), ((2, 4, 2, 3), 1, (7,), (1,), (3,)),
        ((2, 2, 2, 2, 2, 3), 1, (5, 4), (3, 2), (1, 1)),
        ((0, 1, 4, 2), 1, (4,), (1,), (1,)), ((3, 1, 1), 1, (1,), (1,), (1,)), ((2, 3, 2, 2), 1, (7,), (2,), (2,)),
    )  # fmt: skip
    found = []
    named = [*(("float32", c) for c in cases), *((n, cases[0]) for n in NUMBER)]
    for name, (shape, axis, size, stride, dilation) in named:
        attrs = {"axis": axis, "size": size, "stride": stride, "dilation": dilation}
        found.append(Sample((array(name, shape, special=False),), attrs))
    return found


def _convs() -> list[Sample]:
    """Strides, paddings (negative ones too), dilations, groups, one to three axes; nothing; single places."""
    rows: tuple[tuple[Any, ...], ...] = (
        # x, w, stride, pad_lo, pad_hi, kernel dilation, input dilation, groups, flip
        ((2, 5, 3), (4, 2, 3), (1,), (0,), (0,), (1,), (1,), 1, False),
        ((2, 9, 4), (6, 3, 2), (2,), (2,), (1,), (2,), (1,), 2, True),
        ((2, 6, 7, 3), (4, 3, 2, 3), (1, 2), (1, 0), (1, 1), (1, 2), (1, 1), 1, False),
        ((2, 3, 4, 4), (4, 3, 3, 2), (1, 1), (2, 1), (0, 2), (1, 1), (2, 3), 2, True),
        ((1, 5, 5, 6), (6, 3, 3, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1), 6, False),
        ((2, 6, 5, 2), (3, 2, 2, 2), (2, 1), (-1, 1), (0, -2), (1, 1), (1, 1), 1, False),
        ((1, 4, 3, 3), (2, 1, 1, 3), (1, 1), (0, 0), (0, 0), (1, 1), (1, 1), 1, False),
        ((2, 3, 4, 3, 2), (4, 2, 2, 2, 1), (1, 1, 2), (0, 1, 0), (1, 0, 1), (1, 1, 1), (1, 2, 1), 2, False),
        ((0, 4, 2), (3, 2, 2), (1,), (0,), (0,), (1,), (1,), 1, False),
        ((2, 4, 0), (3, 2, 0), (1,), (0,), (0,), (1,), (1,), 1, False),
        ((1, 1, 1), (1, 1, 1), (1,), (0,), (0,), (1,), (1,), 1, False),
    )  # fmt: skip
    names = ("stride", "pad_lo", "pad_hi", "kernel_dilation", "input_dilation", "groups", "flip")
    found = []
    for kind, (x, w, *rest) in [*(("float32", row) for row in rows), *((n, r) for n in REAL[1:] for r in rows[1:4])]:
        pair = array(kind, x, special=False), array(kind, w, seed=1, special=False)
        found.append(Sample(pair, dict(zip(names, rest, strict=True))))
    return found


def _attentions() -> list[Sample]:
    found = []
    for name in REAL:
        shapes = (2, 4, 3, 5), (2, 2, 6, 5), (2, 2, 6, 2)
        q, k, v = (array(name, s, seed=n, special=False) for n, s in enumerate(shapes))
        seen = np.random.default_rng(4).random((2, 1, 3, 6)) < 0.6
        seen[0, 0, 1] = False
        bias = array(name, (4, 1, 6), special=False)
        found += [Sample((q, k, v, *mask), {"scale": 0.4, "causal": False}) for mask in ((), (seen,), (bias,))]
        found.append(Sample((q, k, v), {"scale": 0.4, "causal": True}))
        # More queries than keys: the first see nothing.
        found.append(Sample((k, q[:, :2], q[:, :2, :, :1]), {"scale": 0.4, "causal": True}))
    nothing = np.zeros((1, 2, 0, 3), np.float32)
    some = array("float32", (1, 2, 4, 3), special=False)
    pairs = (nothing, some), (some, nothing)
    return [*found, *(Sample((q, k, k), {"scale": 1.0, "causal": False}) for q, k in pairs)]


def _attends() -> list[Sample]:
    found = []
    plain = {"scale": 0.4, "over": 1.0, "causal": False, "hidden": -math.inf, "added": False, "blind": 0.0}
    for name in ("float32", "float64"):
        shapes = (2, 4, 5, 5), (2, 2, 6, 5), (2, 2, 6, 2)
        q, k, v = (array(name, s, seed=n, special=False) for n, s in enumerate(shapes))
        seen = np.random.default_rng(4).random((2, 1, 5, 6)) < 0.6
        seen[0, 0, 1] = False
        bias = array(name, (4, 1, 6), special=False)
        cases: list[tuple[tuple[np.ndarray, ...], dict[str, Any]]] = [
            ((), {}), ((seen,), {}), ((bias,), {"blind": math.nan}), ((), {"causal": True}),
            ((seen,), {"causal": True, "over": 3.0}), ((seen,), {"hidden": -1e9}),
            ((), {"causal": True, "hidden": -1e9}), ((), {"causal": True, "hidden": -1e9, "added": True}),
            # Hidden, but not out of sight.
            ((seen,), {"causal": True, "hidden": -0.5}), ((bias,), {"causal": True, "hidden": -0.5, "added": True}),
        ]  # fmt: skip
        found += [Sample((q, k, v, *mask), {**plain, **changes}) for mask, changes in cases]
        # More queries than keys: the first see nothing.
        for blind in (0.0, math.nan):
            found.append(Sample((q, k[:, :, :3], v[:, :, :3]), {**plain, "causal": True, "blind": blind}))
    return found


def _attend_rows() -> list[Sample]:
    return [Sample(s.operands, {k: v for k, v in s.attrs.items() if k != "blind"}) for s in _attends()]


def _attend_gradients() -> list[Sample]:
    found = []
    for sample, of_rows in zip(_attends(), _attend_rows(), strict=True):
        with np.errstate(all="ignore"):
            y = evaluate_node(node_of("attend", sample), sample.operands)
            rows = evaluate_node(node_of("attend_rows", of_rows), sample.operands)
        q, k, v, *mask = sample.operands
        g = array(y.dtype.name, y.shape, seed=8, special=False)
        found += [Sample((q, k, v, g, y, rows, *mask), {**sample.attrs, "wrt": w}) for w in ("q", "k", "v", "scores")]
    return found


def _small(names: Iterable[str], *attrs: dict[str, Any]) -> list[Sample]:
    return [s for a in attrs or ({},) for s in _unary(names, **a)]


SAMPLES: dict[str, list[Sample]] = {
    "cast": _casts(),
    "stop_gradient": _unary(ALL),
    "primal": _unary(ALL),
    # arithmetic
    "add": _binary(ALL),
    "subtract": _binary(NUMBER),
    "multiply": _binary(ALL),
    "divide": _binary(ANALYTIC),
    "masked_multiply": _binary(ALL),
    "masked_divide": _binary(ANALYTIC),
    "negative": _unary(NUMBER),
    "reciprocal": _unary(ANALYTIC),
    "abs": _unary(ALL),
    "sign": _unary(ALL),
    "conj": _unary(ALL),
    "real": _unary(ALL),
    "imag": _unary(ALL),
    "floor_divide": _binary(REAL_INT_BOOL),
    "remainder": _binary(REAL_INT_BOOL),
    "maximum": _binary(REAL_INT_BOOL),
    "minimum": _binary(REAL_INT_BOOL),
    "where": _wheres(),
    # compare
    **{name: _binary(ALL) for name in ("equal", "not_equal")},
    **{name: _binary(REAL_INT_BOOL) for name in ("less", "less_equal", "greater", "greater_equal")},
    **{name: _unary(ALL) for name in ("isnan", "isinf", "isfinite", "logical_not")},
    **{
        name: [*_binary(ALL), Sample((array("float32", (11,)), array("int8", (11,), seed=1)))]
        for name in ("logical_and", "logical_or", "logical_xor")
    },
    # bitwise
    **{name: _binary(BITS) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "bitwise_invert": _unary(BITS),
    **{name: _binary(INTEGERS, -10, 70) for name in ("bitwise_left_shift", "bitwise_right_shift")},
    # math
    **{name: _unary(ANALYTIC) for name in ("exp", "exp2", "expm1", "sin", "cos", "tan")},
    **{name: _unary(ANALYTIC) for name in ("sinh", "cosh", "tanh", "atan")},
    **{name: _unary(ANALYTIC, 0.01, 9.0) for name in ("log", "log2", "log10", "sqrt", "rsqrt")},
    "log1p": _unary(ANALYTIC, -0.9, 9.0),
    **{name: _unary(ANALYTIC, -0.99, 0.99) for name in ("asin", "acos", "atanh")},
    "asinh": _unary(ANALYTIC),
    "acosh": _unary(ANALYTIC, 1.0, 9.0),
    "square": _unary(ALL),
    "cbrt": _unary(REAL),
    "erf": _unary(REAL),
    **{name: _unary(REAL_INT_BOOL) for name in ("floor", "ceil", "trunc")},
    "round": _unary((*REAL_INT_BOOL, *COMPLEX)),
    "atan2": _binary(REAL),
    "pow": [*_binary(REAL, 0.1, 3.0), *_binary(INTEGERS, -3, 5, special=False), *_binary(COMPLEX, 0.1, 3.0)],
    "logaddexp": _binary(REAL),
    # activation
    **{
        name: _small(REAL)
        for name in (
            "sigmoid",
            "relu",
            "relu6",
            "hard_sigmoid",
            "hard_swish",
            "softsign",
            "selu",
            "softplus",
            "log_sigmoid",
            "silu",
            "mish",
        )
    },
    "leaky_relu": _small(REAL, {"negative_slope": 0.01}),
    "hard_tanh": _small(REAL, {"min_val": -1.0, "max_val": 1.0}),
    "elu": _small(REAL, {"alpha": 1.5}),
    "celu": _small(REAL, {"alpha": 1.5}),
    "gelu": _small(REAL, {"approximate": "none"}, {"approximate": "tanh"}),
    # reduce
    "sum": _reductions(ALL, dtype=None),
    "mean": _reductions(ANALYTIC),
    "prod": _prods(),
    "max": _reductions(REAL_INT_BOOL, empty=False, dtype=None),
    "min": _reductions(REAL_INT_BOOL, empty=False, dtype=None),
    "any": _reductions(ALL),
    "all": _reductions(ALL),
    "argmax": _args(),
    "argmin": _args(),
    "var": _spreads(),
    "std": _spreads(),
    # shape
    **_movements(),
    "slice": _slices(),
    "pad": _pads(),
    "concat": _concats(),
    # index, creation
    "take": _takes(updates=False),
    "take_along_axis": _takes_along(updates=False),
    "scatter_add": _takes(updates=True),
    **{name: _extreme_scatters() for name in ("scatter_max", "scatter_min")},
    "scatter_add_along_axis": _takes_along(updates=True),
    "slice_update": _slice_updates(),
    "arange": _aranges(),
    # scan
    "cumsum": [
        *_scans((*REAL, "int64", "uint64", *COMPLEX), False, inclusive=True, dtype=None),
        *(s for d in ("int8", "bool") for s in _scans((d,), False, inclusive=True, dtype=dtypes.from_name(d))),
    ],
    "cumprod": [
        *_scans((*REAL, "int64", *COMPLEX), False, 0.5, 2.0, inclusive=True, dtype=None),
        *_scans(("bool",), False, inclusive=True, dtype=dtypes.bool_),
    ],
    **{name: _scans(REAL_INT_BOOL, True) for name in ("cummax", "cummin")},
    "recurrence": _recurrences(),
    "logcumsumexp": [
        *_scans(REAL, False),
        Sample((np.array([-np.inf, -np.inf, 0, 1e4, np.inf, 5], np.float32),), {"axis": 0, "reverse": False}),
    ],
    # window, attention
    "windows": _windows(),
    "overlap_add": _overlaps(),
    "conv": _convs(),
    "scaled_dot_product_attention": _attentions(),
    "attend": _attends(),
    "attend_rows": _attend_rows(),
    "attend_gradient": _attend_gradients(),
    # linalg, nn
    "matmul": _matmuls(),
    "einsum": _einsums(),
    "vector_norm": _vector_norms(),
    "softmax": _softmaxes(),
    "log_softmax": _softmaxes(),
    "logsumexp": _logsumexps(),
    "standardize": _rows({"axis": (1,), "eps": 1e-5}, shapes=((4, 7), (2, 300, 2))),
    "layer_norm": _norms(with_bias=True),
    "rms_norm": _norms(with_bias=False),
    "linear": _linears(),
    "cross_entropy": _cross_entropies(),
    "bce_with_logits": [Sample((array("float32", (4, 3)), array("float32", (4, 3), 0, 1, special=False)))],
}
"""Every op but inputs, constants, captured arrays, results of several and prints."""

WITHOUT: frozenset[str] = frozenset({"input", "constant", "captured", "result", "kernel", "debug_print"})
"""Ops that have no operands of their own to sample."""
