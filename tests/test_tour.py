"""The tour and the example run as a reader would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [sys.executable, str(ROOT / script)], capture_output=True, text=True, cwd=cwd, env=environment
    )  # fmt: skip


def test_tour_runs_to_its_end_and_stays_readable(tmp_path: Path) -> None:
    finished = run("docs/tour.py", tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.endswith("That is all of it.\n")
    assert len((ROOT / "docs" / "tour.py").read_text(encoding="utf-8").splitlines()) < 500


@pytest.mark.slow
def test_digits_are_learned_in_both_precisions(tmp_path: Path) -> None:
    finished = run("examples/train_digits.py", tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "cast[int64]" in finished.stdout
    assert "autocast: off before, bfloat16 now" in finished.stdout
    assert "<html" in (tmp_path / "out" / "graph.html").read_text(encoding="utf-8")
