"""Every error says what failed, on which line of the user's, with which types, and what to try."""

from __future__ import annotations

import warnings

from . import sources
from .sources import SourceLine

__all__ = [
    "AxisError",
    "BackendError",
    "ConcretizationError",
    "DTypeError",
    "IndexOutOfRangeError",
    "LeakedTracerError",
    "LucidGraphError",
    "LucidGraphWarning",
    "NotDifferentiableError",
    "PassError",
    "ShapeError",
    "UnsupportedError",
    "VerifyError",
    "warn",
]


class LucidGraphError(Exception):
    """The root of all errors of this package.

    ``source`` is the user's line (found from the stack when not given), ``hint`` what to try instead.

    >>> str(LucidGraphError("axis 3 is out of range", hint="use -1")).splitlines()[-1]
    '  try: use -1'
    """

    def __init__(self, message: str, *, source: SourceLine | None = None, hint: str | None = None) -> None:
        self.message = message
        self.source = source if source is not None else sources.here()
        self.hint = hint
        super().__init__(message, source, hint)

    def __str__(self) -> str:
        lines = [self.message]
        if self.source is not None:
            code = self.source.text
            lines.append(f"  at {self.source}" + (f": {code}" if code else ""))
        if self.hint:
            lines.append(f"  try: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.source, self.hint))


def _rebuild(cls: type[LucidGraphError], message: str, source: SourceLine | None, hint: str | None) -> LucidGraphError:
    return cls(message, source=source, hint=hint)


class ShapeError(LucidGraphError, ValueError):
    """Shapes that do not fit each other or the operation."""


class AxisError(LucidGraphError, ValueError, IndexError):
    """An axis that is out of range or named twice."""


class DTypeError(LucidGraphError, TypeError):
    """A dtype that the operation does not take."""


class ConcretizationError(LucidGraphError, TypeError):
    """A value was asked for while its function is being traced, when no value exists yet."""


class LeakedTracerError(LucidGraphError, RuntimeError):
    """A traced value was used after, or outside, the trace it belongs to."""


class NotDifferentiableError(LucidGraphError, TypeError):
    """A gradient was asked for through an operation that has none, or of something that can have none."""


class UnsupportedError(LucidGraphError, TypeError):
    """A backend, or this version, does not do what was asked."""


class IndexOutOfRangeError(LucidGraphError, IndexError):
    """An index outside its axis."""


class VerifyError(LucidGraphError, RuntimeError):
    """A graph that breaks a rule of the IR."""


class PassError(LucidGraphError, RuntimeError):
    """A pass failed or produced an invalid graph."""


class BackendError(LucidGraphError, RuntimeError):
    """A backend is missing or failed while it ran."""


class LucidGraphWarning(UserWarning):
    """Something works but costs more than it should."""


def warn(message: str) -> None:
    """Issue a :class:`LucidGraphWarning` at the user's line."""
    where = sources.here()
    if where is None:
        warnings.warn(message, LucidGraphWarning, stacklevel=2)
    else:
        warnings.warn_explicit(message, LucidGraphWarning, where.file, where.line)
