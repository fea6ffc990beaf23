"""Where figures go, and how a process of a peer is started. ``python -m benchmarks.results`` puts what lies in ``out/``
into docs/benchmarks.md, between the markers of the same name, and the pictures beside it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["OUT", "ROOT", "environment", "publish", "save", "seconds"]

ROOT = Path(__file__).parent.parent
OUT = ROOT / "out"
PAGE = ROOT / "docs" / "benchmarks.md"


def environment(**own: str) -> dict[str, str]:
    """Of a peer's process: this folder importable, and OpenBLAS left to choose its kernels."""
    env = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH", "")]))
    return env | own


def save(file: Path, data: Any, lines: Iterable[str], picture: str | None = None) -> None:
    """Figures as JSON, as a page's text beside it, and drawn."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(data, indent=1), encoding="utf-8")
    file.with_suffix(".md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    if picture is not None:
        file.with_suffix(".svg").write_text(picture, encoding="utf-8")


def seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.0f} ns"


def publish() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in re.findall(r"^<!-- (\w+) -->$", page, re.MULTILINE):
        source = OUT / f"{name}.md"
        if name == "end" or not source.exists():
            continue
        text = source.read_text(encoding="utf-8").strip()
        page = re.sub(rf"(?s)(<!-- {name} -->\n).*?(<!-- end -->)", lambda m, t=text: f"{m[1]}{t}\n{m[2]}", page)
        if source.with_suffix(".svg").exists():
            shutil.copy(source.with_suffix(".svg"), PAGE.with_name(f"benchmarks_{name}.svg"))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    publish()
