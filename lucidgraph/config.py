"""Switches, each read from the environment once, at import, and changeable from Python.

``docs/configuration.md`` describes every one.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from . import epoch

__all__ = ["config", "system_cache_folder"]


def _flag(name: str, default: bool) -> bool:
    value = os.environ.get(name)
    return default if value is None else value.strip().lower() not in {"0", "false", "off", "no", ""}


def _number(name: str, default: int) -> int:
    value = os.environ.get(name)
    if value is None:
        return default
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{name}={value!r} is not an integer") from None


def _one_of(name: str, default: str, choices: tuple[str, ...]) -> str:
    value = os.environ.get(name, default)
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(choices)}")
    return value


def system_cache_folder() -> str:
    """Where the system keeps what can be made again."""
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches/lucidgraph")
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "lucidgraph")


@dataclass(slots=True)
class Config:
    """The process-wide settings; ``lucidgraph.config.config`` is the one instance."""

    backend: str
    verify_passes: bool
    cache_entries: int
    deferred_limit: int
    rules: str
    veclib: bool
    native_calls: bool
    disk_cache: bool
    disk_cache_dir: str
    disk_cache_megabytes: int

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        epoch.bump()


config = Config(
    backend=os.environ.get("LUCIDGRAPH_BACKEND", "auto"),
    verify_passes=_flag("LUCIDGRAPH_VERIFY", default=False),
    cache_entries=_number("LUCIDGRAPH_CACHE_ENTRIES", 256),
    deferred_limit=_number("LUCIDGRAPH_DEFERRED_LIMIT", 1000),
    rules=_one_of("LUCIDGRAPH_RULES", "exact", ("exact", "rounding", "domain")),
    veclib=_flag("LUCIDGRAPH_VECLIB", default=False),
    native_calls=_flag("LUCIDGRAPH_NATIVE_CALLS", default=True),
    disk_cache=_flag("LUCIDGRAPH_DISK_CACHE", default=True),
    disk_cache_dir=os.environ.get("LUCIDGRAPH_DISK_CACHE_DIR", ""),
    disk_cache_megabytes=_number("LUCIDGRAPH_DISK_CACHE_MB", 128),
)
