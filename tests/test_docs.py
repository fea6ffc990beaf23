"""What the documentation says is true: its code runs and prints what it shows, its tables match the source."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import linecache
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph.config import Config
from lucidgraph.ir.ops import REGISTRY
from tests.checking import BACKENDS, assert_close, on_backend

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:^```text\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture
def registry() -> Iterator[None]:
    """Ops that a page registers are gone afterwards."""
    saved = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(saved)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("page", [p for p in PAGES if "```python" in read(p)], ids=lambda p: p.name)
def test_code_on_pages_runs_and_prints_what_is_shown(page: Path) -> None:
    namespace: dict[str, object] = {"__name__": page.stem}
    for match in BLOCK.finditer(read(page)):
        code, printed = match["code"], io.StringIO()
        file = f"{page.stem}.py"
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
        with contextlib.redirect_stdout(printed):
            exec(compile(code, file, "exec"), namespace)
        if match["output"] is not None:
            assert printed.getvalue().splitlines() == match["output"].splitlines()


def rows(text: str, width: int) -> Iterator[list[str]]:
    """The rows of all tables with ``width`` columns, without their heads."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == width and not set(line) <= set("|-"):
            yield cells


EDGES = [
    tuple(cell.strip("`") for cell in cells)
    for cells in rows(read(ROOT / "docs" / "gradients.md"), 3)
    if cells[0].startswith("`")
]


@pytest.mark.parametrize(("function", "at", "gradient"), EDGES, ids=[f"{f} at {a}" for f, a, _ in EDGES])
@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_at_edge_points_are_as_documented(function: str, at: str, gradient: str, backend: str) -> None:
    numbers = {"inf": float("inf"), "nan": float("nan")}
    point = {k: np.array(v, np.float32) for k, v in eval(f"dict({at})", numbers).items()}
    expected = eval(f"({gradient},)", numbers)
    fn = eval(f"lambda {', '.join(point)}: lg.sum({function})", {"lg": lg})
    slope = lg.grad(fn, argnums=tuple(range(len(point))))
    with on_backend(backend):
        for results in (lg.compile(slope)(*point.values()), slope(*map(lg.asarray, point.values()))):
            for result, wanted in zip(results, expected, strict=True):
                assert_close(result, np.array(wanted, np.float32))


def test_list_of_ops_is_fresh() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_ops.py"))["text"]()
    assert read(ROOT / "docs" / "ops.md") == made, "python docs/make_ops.py writes it anew"


def test_greatest_errors_are_those_of_the_functions() -> None:
    functions = pytest.importorskip("lucidgraph.runtime.accelerate.vecmath").FUNCTIONS
    stated = {}
    for name, function in functions.items():
        found = re.search(r"Greatest error: ([\d.]+) / ([\d.]+) ulp", function.__doc__)
        stated[name] = list(found.groups()) if found else ["0.50", "0.50"]  # correctly rounded
    table = rows(read(ROOT / "docs" / "accelerate.md"), 3)
    assert {c[0].strip("`"): c[1:] for c in table if c[0].startswith("`")} == stated


# -- configuration


def documented_variables() -> dict[str, tuple[str, str]]:
    """Each environment variable: its default and its field."""
    table = rows(read(ROOT / "docs" / "configuration.md"), 4)
    return {c[0].strip("`"): (c[1].strip("`"), c[2].strip("`")) for c in table if c[0].startswith("`LUCIDGRAPH")}


def test_every_environment_variable_is_documented_and_read_in_one_place() -> None:
    readers = [path.name for path in (ROOT / "lucidgraph").rglob("*.py") if "environ" in read(path)]
    assert readers == ["config.py"]
    names = set(re.findall(r"LUCIDGRAPH_[A-Z_]+", read(ROOT / "lucidgraph" / "config.py")))
    assert names == set(documented_variables())
    assert {field for _, field in documented_variables().values()} == {f.name for f in dataclasses.fields(Config)}


def test_documented_defaults_are_the_defaults() -> None:
    code = "from lucidgraph.config import config; print(config)"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LUCIDGRAPH_")}

    def settings(**environment: str) -> str:
        run = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, check=True, cwd=ROOT, env={**clean, **environment},
        )  # fmt: skip
        return run.stdout

    assert settings() == settings(**{name: default for name, (default, _) in documented_variables().items()})


# -- layout


def tree(text: str) -> Iterator[str]:
    """The paths that an indented listing names; a line holds names, two spaces, and what they are for."""
    above: list[str] = []
    for line in re.search(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1].splitlines():  # type: ignore[index]
        depth = (len(line) - len(line.lstrip())) // 2
        for name in re.split(r"\s{2,}", line.strip())[0].split():
            above[depth:] = [name]
            yield "".join(above)


def test_layout_names_what_there_is() -> None:
    listed = list(tree(read(ROOT / "docs" / "layout.md")))
    assert not [path for path in listed if not (ROOT / path).exists()]
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "lucidgraph").rglob("*.py") if read(p).strip()}
    # A folder's __init__.py is the folder.
    modules = {m for m in modules if m == "lucidgraph/__init__.py" or not m.endswith("__init__.py")}
    unnamed = sorted(modules - set(listed))
    assert not unnamed, "modules that docs/layout.md does not name"
    assert len(listed) == len(set(listed))


# -- links


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", read(page), flags=re.MULTILINE | re.DOTALL)
    targets = [t.partition("#")[0] for t in re.findall(r"\]\(([^)]+)\)", prose) if "://" not in t]
    assert not [t for t in targets if t and not (page.parent / t).exists()]
