"""Every pass on every program: it verifies, keeps types and values, is idempotent, and leaves its input alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lucidgraph.ir import Graph, evaluate
from lucidgraph.passes import backward, pipeline, run_passes
from tests.checking import assert_close
from tests.corpus import PROGRAMS

PASSES = [name for name, _ in pipeline()]
# Each pass where it first stands, and the second round of tidying after expansion.
STAGES = [(k, f"{k} {name}") for k, name in enumerate(PASSES)]


def same_bits(a: Any, b: Any) -> bool:
    """Equal to the bit, but for the payload of NaN."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    parts = [(a.real, b.real), (a.imag, b.imag)] if a.dtype.kind == "c" else [(a, b)]
    return all(_same_reals(p, q) for p, q in parts)


def _same_reals(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    nan = np.isnan(a)
    signs = np.signbit(a) == np.signbit(b)
    return bool(np.all(np.isnan(b) == nan) and np.all(nan | ((a == b) & signs)))


def values(graph: Graph, args: Sequence[Any]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return evaluate(graph, args)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("k", "stage"), STAGES, ids=[s for _, s in STAGES])
def test_pass(k: int, stage: str, name: str) -> None:
    program, passes = PROGRAMS[name], pipeline()
    before = run_passes(program.recorded(), passes[:k])
    text = str(before)
    run = passes[k][1]
    after = run(before).verify()
    assert str(before) == text, "the input was changed"
    assert after.input_names == before.input_names
    assert run(after).digest == after.digest, "the second run changes something"
    if after.form == "explicit":
        user_types = [(o.type.shape, o.type.user_dtype) for o in before.outputs]
        assert [(o.shape, o.dtype) for o in after.outputs] == user_types
    if before.form == "explicit":
        for a, b in zip(values(before, program.args), values(after, program.args), strict=True):
            assert same_bits(a, b)


@pytest.mark.parametrize("name", PROGRAMS)
def test_explicit_graph_means_what_numpy_says(name: str) -> None:
    program = PROGRAMS[name]
    graph = run_passes(program.recorded(), pipeline()[:2])
    assert graph.form == "explicit"
    expected = program.expected()
    assert len(graph.outputs) == len(expected)
    for actual, wanted in zip(values(graph, program.args), expected, strict=True):
        assert_close(actual, wanted, scale=program.scale)


@pytest.mark.parametrize("name", PROGRAMS)
def test_promoted_graphs_are_left_alone_by_promotion_and_broadcasting(name: str) -> None:
    explicit = run_passes(PROGRAMS[name].recorded(), pipeline()[:2])
    for _, run in pipeline()[:2]:
        assert run(explicit).digest == explicit.digest


@pytest.mark.parametrize("name", PROGRAMS)
def test_backward_of_every_program(name: str) -> None:
    """The joint graph verifies, keeps the outputs and gives each floating input a gradient of its own type."""
    program = PROGRAMS[name]
    graph = run_passes(program.recorded(), pipeline()[:2])
    text = str(graph)
    joint = backward(graph).verify()
    assert str(graph) == text
    wrt = [node for node in graph.inputs if node.dtype.is_inexact]
    assert [g.type for g in joint.outputs[len(graph.outputs) :]] == [node.type for node in wrt]
    cotangents = [np.ones(o.shape, o.dtype.numpy) for o in graph.outputs]
    tidy = run_passes(joint, pipeline()[2:])
    before, after = values(joint, [*program.args, *cotangents]), values(tidy, [*program.args, *cotangents])
    for a, b in zip(before, after, strict=True):
        assert same_bits(a, b)
    for a, b in zip(values(graph, program.args), before, strict=False):
        assert same_bits(a, b)
