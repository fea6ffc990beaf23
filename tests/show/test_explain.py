"""The report on a compiled function, and the words for what passes do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.show.text import amount, changes, plain, stages, table
from tests.show.corpus import array, op


def step(x: Any, y: Any) -> Any:
    return lg.std(x * y, axis=0), lg.sum(op("greater", x, 0.0))


def test_a_report_says_why_programs_were_made_and_whether_another_is_needed() -> None:
    fn = lg.compile(step, backend="reference")
    assert fn.explain() == "step on the reference backend: no programs traced"
    fn(array(3, 4), array(3, 4))
    fn(array(3, 4), array(4))
    before = fn.cache_info()
    report = fn.explain(array(3, 4), array(4)).split("\n")
    assert report[0] == "step on the reference backend: 2 programs traced"
    assert report[1].startswith("  1. the first call, at test_explain.py:")
    assert report[2].startswith("  2. y: float32[3,4] before, float32[4] now, at test_explain.py:")
    assert report[3] == "A call with these arguments finds its program"
    other = fn.explain(array(3, 4), np.zeros(4, np.float16))
    assert "A call with these arguments needs a new program: y: float32[" in other
    assert "before, float16[4] now" in other
    assert fn.cache_info() == before


def test_a_report_shows_the_passes_the_graph_and_the_code() -> None:
    fn = lg.compile(step, backend="reference")
    report = fn.explain(array(3, 4), array(4))
    graph = fn.graph(array(3, 4), array(4))
    lines = [line.strip() for line in report.split("\n")]
    for line in str(graph).split("\n"):
        assert line.strip() in lines
    recorded = lg.trace(step, array(3, 4), array(4), passes=())
    assert f"record     {len(recorded.nodes):5} nodes" in lines
    assert "sum counts bool in int64" in lines
    assert next(line for line in lines if line.startswith("expand")).endswith("-1 std")
    assert f"{amount(graph.cost().flops, 'flop')}, " in report
    assert "it runs the graph, node by node" in report


def test_changes_are_balances_and_reasons() -> None:
    x = array(4, 3)
    recorded = lg.trace(step, x, x[0], passes=())
    explicit = lg.trace(step, x, x[0])
    head, *reasons = changes(recorded, explicit)
    assert set(head.split(", ")) == {"+2 broadcast_to", "+1 cast"}
    assert "  sum counts bool in int64" in reasons
    assert changes(explicit, explicit) == []
    (back,) = changes(explicit, recorded)
    assert set(back.split(", ")) == {"-2 broadcast_to", "-1 cast"}
    assert stages([("a", explicit), ("bb", explicit)]) == (
        f"a   {len(explicit.nodes):5} nodes\nbb  {len(explicit.nodes):5} nodes  ="
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (9994, "9.99 kB"), (9996, "10.0 kB"), (99_960, "100 kB"),
        (999_499, "999 kB"), (999_600, "1.00 MB"), (2_500_000_000, "2.50 GB"), (7e15, "7.00 PB"), (7e18, "7000 PB"),
    ],
)  # fmt: skip
def test_amounts_have_three_digits(count: float, text: str) -> None:
    assert amount(count, "B") == text


def test_tables_keep_their_rows_on_one_line() -> None:
    text = table(["a", "b"], [["x\ny", "1"], ["\x1b[31m", "22"]], right=[1])
    assert text.split("\n") == ["a       b", "x y     1", " [31m  22"]
    assert plain("a\u2028b\x00") == "a b "
