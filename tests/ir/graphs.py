"""Random explicit graphs over the registered ops, for hypothesis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from lucidgraph.dtypes import ALL, bfloat16, float16
from lucidgraph.errors import LucidGraphError
from lucidgraph.ir import CapturedArray, Graph, Node, Origin, TensorType
from lucidgraph.ir.op import get
from lucidgraph.sources import SourceLine
from tests.samples import SAMPLES, Sample

# Whatever a text can hold: brackets, separators, quotes, newlines, other alphabets, halves of surrogates.
TEXT = st.text(max_size=12) | st.sampled_from(
    ["a | lint: b", "why (model.py:3)", "(x:1)", "a: b", "%1", '"', "'\\", "\n", "\r\n", "#", "Σ∘", "\\p", "| lint: "]
)
STAGES = st.sampled_from(["promote", "simplify", "my pass: x", "lint", "a|b", "(p)"])
SCOPES = st.sampled_from(["", "layers.3", "layers 3", "in", "under", "3.x", "block('a')", "naïve", "return"])
FILES = st.sampled_from(["model.py", "/a/b c.py", "<stdin>", "x (copy).py", "a:b.py", "ω.py", "w|.py"])
SOURCES = st.none() | st.builds(SourceLine, FILES, st.integers(1, 9999))
ORIGINS = st.none() | st.builds(Origin, STAGES, TEXT)
NUMBERS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.complex_numbers(),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-320]),
    st.sampled_from([complex(-0.0, math.nan), complex(math.inf, -0.0), complex(-math.nan, -math.inf), 1j]),
)
UNARY = [name for name in SAMPLES if get(name).schema_v1.arity == 1 and not get(name).attributes()]
ATTRIBUTED = [(name, sample) for name, samples in SAMPLES.items() for sample in samples]


def constant_dtypes(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [d for d in ALL if d.is_bool]
    if isinstance(value, int):
        return [d for d in ALL if d.is_inexact or (d.is_integer and d.range[0] <= value <= d.range[1])]
    return [d for d in ALL if d.is_complex or (d.is_floating and isinstance(value, float))]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """An explicit graph of samples' nodes, some chained; with constants, captured arrays and all kinds of remarks."""
    inputs: list[Node] = []
    nodes: list[Node] = []

    def put(op: Any, operands: tuple[Node, ...], attrs: Any, types: tuple[TensorType, ...]) -> Node:
        nodes.append(
            Node(
                op, operands, attrs, types, source=draw(SOURCES), scope=draw(SCOPES), origin=draw(ORIGINS),
                policy=draw(st.sampled_from([None, None, float16, bfloat16])), lint=draw(TEXT),
            )
        )  # fmt: skip
        return nodes[-1]

    for _ in range(draw(st.integers(0, 3))):
        value = draw(NUMBERS)
        put(get("constant"), (), {"value": value}, (TensorType((), draw(st.sampled_from(constant_dtypes(value)))),))
    for _ in range(draw(st.integers(0, 2))):
        array = np.ones(draw(st.sampled_from([(), (2,), (0, 3)])), np.float32)
        put(get("captured"), (), {"value": CapturedArray(array)}, (TensorType(array.shape, _dtype(array)),))
    for _ in range(draw(st.integers(1, 5))):
        name, sample = draw(st.sampled_from(ATTRIBUTED))
        operands = []
        for t in _types(sample):
            known = [n for n in (*inputs, *nodes) if n.types == (t,)]
            if known and draw(st.booleans()):
                operands.append(draw(st.sampled_from(known)))
            else:
                inputs.append(Node(get("input"), (), {}, (t,)))
                operands.append(inputs[-1])
        op = get(name)
        put(op, tuple(operands), sample.attrs, op.result_types([o.type for o in operands], sample.attrs))
        for again in draw(st.lists(st.sampled_from(UNARY), max_size=2)):
            try:
                types = get(again).result_types([nodes[-1].type], {})
            except (LucidGraphError, TypeError):
                continue
            put(get(again), (nodes[-1],), {}, types)
    outputs = draw(st.lists(st.sampled_from([*inputs, *nodes]), max_size=4))
    labels = draw(st.lists(TEXT, min_size=len(inputs), max_size=len(inputs)))
    return Graph(inputs, nodes, outputs, "explicit", labels)


def _types(sample: Sample) -> list[TensorType]:
    return [TensorType(a.shape, _dtype(a)) for a in sample.operands]


def _dtype(array: np.ndarray) -> Any:
    return next(d for d in ALL if d.numpy == array.dtype)
