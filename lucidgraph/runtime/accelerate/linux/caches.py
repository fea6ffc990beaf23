"""The size of the processor's last cache, as Linux states it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_STATED: Final = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def last_cache(default: int, stated: Path = _STATED) -> int:
    """The bytes of the largest cache of the first processor; ``default`` where none is stated."""
    sizes = []
    for place in stated.glob("index*/size"):
        try:
            found = re.fullmatch(r"(\d+)([KMG]?)", place.read_text().strip())
        except OSError:
            continue
        if found:
            sizes.append(int(found[1]) * _UNITS[found[2]])
    return max(sizes, default=0) or default


__all__ = ["last_cache"]
