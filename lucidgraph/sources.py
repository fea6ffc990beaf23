"""Where in the user's program something happened: the first frame outside this package."""

from __future__ import annotations

import linecache
import os
import sys
from dataclasses import dataclass
from types import FrameType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Frames of libraries that call the user back (tree mapping, context managers) are not the user's line.
_LIBRARIES = ("numpy", "optree", "contextlib", "functools")
_is_library: dict[str, bool] = {}


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a user's file. Prints as ``model.py:12``."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        name = os.path.basename(self.file).replace("(", "[").replace(")", "]")
        return f"{name}:{self.line}"

    @property
    def text(self) -> str:
        """The line itself, stripped, or an empty string where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()


def _library(filename: str) -> bool:
    known = _is_library.get(filename)
    if known is None:
        files = [getattr(sys.modules.get(name), "__file__", None) or "" for name in _LIBRARIES]
        folders = [os.path.dirname(f) + os.sep if f.endswith("__init__.py") else f for f in files if f]
        known = filename.startswith((_PACKAGE, "<__array_function__", "<frozen", *folders))
        _is_library[filename] = known
    return known


def here() -> SourceLine | None:
    """The user's line that is running now, or None when no frame is the user's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not _library(filename):
            return SourceLine(filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None
