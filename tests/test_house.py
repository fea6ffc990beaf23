"""The rules of the house, read from the source: who imports whom, what is where, what is documented."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import inspect
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import lucidgraph as lg
from lucidgraph.lang import methods
from tests.checking import on_backend

PACKAGE = Path(lg.__file__).parent
ROOT = PACKAGE.parent
FILES = sorted(PACKAGE.rglob("*.py"))

BASE = frozenset({"dtypes", "errors", "config", "sources", "locks", "epoch", "calls"})
EVERYTHING = frozenset({"api", "wiring", "show", "frontend", "lang", "trees", "ops", "runtime", "passes", "ir"}) | BASE
# What each part may import, besides itself. Downwards only; passes and runtime never meet.
MAY_IMPORT = {
    **dict.fromkeys(BASE, BASE),
    "trees": BASE,
    "ir": BASE,
    "ops": BASE | {"ir", "lang"},
    "passes": BASE | {"ir"},
    "runtime": BASE | {"ir"},
    "lang": BASE | {"ir", "trees"},
    "frontend": BASE | {"ir", "trees", "lang"},
    "show": BASE | {"ir", "passes", "runtime"},
    "wiring": EVERYTHING,
    "api": EVERYTHING,
    "__init__": EVERYTHING,
    "__main__": EVERYTHING,
}
# Where each library of others may be imported: the beginning of the file's path within the package.
LIBRARIES = {
    "numpy": ("",),
    "ml_dtypes": ("dtypes.py",),
    "optree": ("trees.py",),
    "opt_einsum": ("ir/ops/linalg.py",),
    "networkx": ("show/",),
    "mlx": ("runtime/mlx/", "frontend/mlx_capture.py"),
    "llvmlite": ("runtime/accelerate/",),
    "scipy_openblas32": ("runtime/accelerate/",),
}
LONGEST_FILE = 650


class Imported(NamedTuple):
    """One import: the module's absolute name, its line, and whether it stands inside a function."""

    module: str
    line: int
    lazy: bool


def within(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def part_of(path: str) -> str:
    """The part of the house a file is in: ``ir`` for ``ir/ops/reduce.py``, ``api`` for ``api.py``."""
    return path.partition("/")[0].removesuffix(".py")


@functools.cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def module_name(file: Path) -> str:
    parts = ["lucidgraph", *within(file).removesuffix(".py").split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(file: Path) -> Iterator[Imported]:
    package = module_name(file).split(".")
    if file.name != "__init__.py":
        package = package[:-1]
    stack: list[tuple[ast.AST, bool]] = [(tree_of(file), False)]
    while stack:
        node, lazy = stack.pop()
        if isinstance(node, ast.Import):
            yield from (Imported(alias.name, node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            # ``from . import x`` may name modules as well as values: each is a module of its own here.
            names = [f"{stem}.{alias.name}" for alias in node.names] if stem in PACKAGES else [stem]
            yield from (Imported(name, node.lineno, lazy) for name in names)
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        stack.extend((child, inside) for child in ast.iter_child_nodes(node))


PACKAGES = {module_name(file) for file in FILES if file.name == "__init__.py"}


def faults(found: Iterator[str]) -> str:
    return "\n".join(found)


def test_imports_go_downwards_only() -> None:
    def wrong() -> Iterator[str]:
        for file in FILES:
            part = part_of(within(file))
            for module, line, _ in imports_of(file):
                if module.startswith("lucidgraph."):
                    other = module.split(".")[1]
                    if other != part and other not in MAY_IMPORT[part]:
                        yield f"{within(file)}:{line} imports {module}: {part} may import {sorted(MAY_IMPORT[part])}"

    assert not faults(wrong())


def test_backends_do_not_know_each_other() -> None:
    def wrong() -> Iterator[str]:
        for file in FILES:
            path = within(file).split("/")
            if path[0] != "runtime" or len(path) < 3:
                continue
            for module, line, _ in imports_of(file):
                theirs = module.split(".")
                sibling = (PACKAGE / "runtime" / theirs[2]).is_dir() if len(theirs) > 2 else False
                if theirs[:2] == ["lucidgraph", "runtime"] and sibling and theirs[2] != path[1]:
                    yield f"{within(file)}:{line} imports {module}"

    assert not faults(wrong())


def test_libraries_are_imported_where_they_belong() -> None:
    def wrong() -> Iterator[str]:
        for file in FILES:
            for module, line, _ in imports_of(file):
                library = module.partition(".")[0]
                if library == "lucidgraph" or library in sys.stdlib_module_names:
                    continue
                if not within(file).startswith(LIBRARIES.get(library, ("nowhere",))):
                    yield f"{within(file)}:{line} imports {module}: allowed in {LIBRARIES.get(library, 'no file')}"

    assert not faults(wrong())


def test_nothing_of_ours_is_imported_inside_a_function() -> None:
    def wrong() -> Iterator[str]:
        for file in FILES:
            for module, line, lazy in imports_of(file):
                if lazy and module.partition(".")[0] == "lucidgraph":
                    yield f"{within(file)}:{line} imports {module} inside a function"
                if module == "importlib" and within(file) not in ("wiring.py", "__init__.py"):
                    yield f"{within(file)}:{line}: only wiring loads modules by name"

    assert not faults(wrong())


def test_files_have_telling_names_and_a_readable_length() -> None:
    def wrong() -> Iterator[str]:
        for file in FILES:
            if file.stem.strip("_") in {"utils", "util", "helpers", "helper", "common", "misc"}:
                yield f"{within(file)} says nothing about what is in it"
            length = len(file.read_text(encoding="utf-8").splitlines())
            if length > LONGEST_FILE:
                yield f"{within(file)} has {length} lines, more than {LONGEST_FILE}"

    assert not faults(wrong())


def test_code_is_plain_about_failure() -> None:
    """No hasattr, no NotImplementedError for a user to meet, nothing caught that is not raised again or kept for it."""

    def wrong() -> Iterator[str]:
        for file in FILES:
            for node in ast.walk(tree_of(file)):
                at = f"{within(file)}:{getattr(node, 'lineno', 0)}"
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr":
                    yield f"{at} calls hasattr"
                if isinstance(node, ast.Raise) and "NotImplementedError" in ast.dump(node):
                    yield f"{at} raises NotImplementedError"
                if isinstance(node, ast.ExceptHandler):
                    caught = "" if node.type is None else ast.unparse(node.type)
                    again = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                    kept = any(isinstance(inner, ast.Name) and inner.id == node.name for inner in ast.walk(node))
                    if caught in ("", "Exception", "BaseException") and not again and not kept:
                        yield f"{at} swallows whatever happens"

    assert not faults(wrong())


def test_ignored_type_errors_say_which() -> None:
    def wrong() -> Iterator[str]:
        for file in FILES:
            for token in tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline):
                text = token.string.replace(" ", "")
                if token.type == tokenize.COMMENT and "type:ignore" in text and "type:ignore[" not in text:
                    yield f"{within(file)}:{token.start[0]}: {token.string}"

    assert not faults(wrong())


def test_every_module_says_what_it_is_for() -> None:
    silent = [within(f) for f in FILES if f.read_text(encoding="utf-8").strip() and not ast.get_docstring(tree_of(f))]
    assert not silent


# -- what importing costs


def test_import_loads_no_heavy_library() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, lucidgraph; print(*sorted(sys.modules))"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout.split()  # fmt: skip
    heavy = {"mlx", "llvmlite", "networkx", "scipy_openblas32", "opt_einsum", "scipy", "sklearn"}
    assert heavy.isdisjoint(name.partition(".")[0] for name in loaded)
    assert not [name for name in loaded if name.startswith(("lucidgraph.show.", "lucidgraph.runtime.mlx"))]


def test_package_works_without_mlx() -> None:
    code = """
import sys
sys.modules["mlx"] = None
import numpy as np
import lucidgraph as lg
assert lg.backends()["mlx"] != "available", lg.backends()
assert lg.compile(lambda x: lg.sum(x * x))(np.arange(4.0)) == 14.0
try:
    lg.compile(lambda x: x, backend="mlx")(np.ones(2))
except lg.BackendError as error:
    print(error.message)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert "mlx" in run.stdout


# -- what is said about it


def modules() -> Iterator[str]:
    """All modules, but for those of backends that do not work here."""
    missing = [name for name, why in lg.backends().items() if name not in ("auto", "reference") and why != "available"]
    closed = ("__main__.py", *(f"runtime/{name}/" for name in missing), *(f"frontend/{name}_" for name in missing))
    yield from (module_name(file) for file in FILES if not within(file).startswith(closed))


@pytest.mark.parametrize("name", list(modules()))
def test_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    # Of this module's text only: methods attached to a class bring the docstrings of other modules.
    own = {inspect.cleandoc(text) for text in strings(tree_of(Path(inspect.getfile(module))))}
    runner = doctest.DocTestRunner()
    with on_backend("reference"):
        for test in doctest.DocTestFinder().find(module):
            if inspect.cleandoc(test.docstring) in own:
                runner.run(test)
    assert runner.failures == 0


def strings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_type_checkers_know_what_is_attached_to_tensors() -> None:
    tree = tree_of(PACKAGE / "lang" / "tensor.py")
    tensor = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Tensor")
    declared = {
        name.id if isinstance(name, ast.Name) else name.name
        for block in tensor.body
        if isinstance(block, ast.If)
        for name in ast.walk(block)
        if isinstance(name, ast.FunctionDef) or (isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store))
    }
    attached = set(methods.METHODS) | {f"__{name}__" for name in (*methods.BINARY, *methods.COMPARISONS)}
    assert attached - {"__divmod__"} <= declared
    assert not [name for name in declared if name not in vars(lg.Tensor)]


def public_names() -> Iterator[str]:
    for name in sorted(lg.__all__):
        value = getattr(lg, name)
        if inspect.ismodule(value):
            yield from (f"{name}.{inner}" for inner in value.__all__)
        else:
            yield name


def resolved(name: str) -> object:
    value: object = lg
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_every_public_name_is_documented() -> None:
    silent = []
    for name in public_names():
        value = resolved(name)
        described = inspect.isclass(value) or inspect.isroutine(value)
        # A class inherits its parent's text from inspect.getdoc: it has to have its own.
        if described and not (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__):
            silent.append(name)
    assert not silent


def test_every_public_function_shows_an_example() -> None:
    bare = [n for n in public_names() if inspect.isfunction(v := resolved(n)) and ">>>" not in (v.__doc__ or "")]
    assert not bare


def test_public_names_exist_and_are_listed_once() -> None:
    assert len(set(lg.__all__)) == len(lg.__all__)
    assert not [name for name in lg.__all__ if name.startswith("_")]
    assert set(lg.__all__) <= set(dir(lg))
