"""A cache on disk: a folder of small files, each under the digest of what it was made from.

A file is whole or not there: it is written beside its place and put there in one step. What is read is checked: a
header of a fixed form, the key, and the digest of the content. The folder and its files are used only where they are
this user's own, no links, and nobody else may write to them. Whatever is damaged is removed and counts as not there;
where nothing can be read or written, the cache does nothing and says so once.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, final

from ..config import config, system_cache_folder
from ..locks import renewed_in_child

_MAGIC: Final = b"lucidgraph 1\n"
_DIGEST: Final = 32
_HEADER: Final = len(_MAGIC) + 2 * _DIGEST
_STALE: Final = 3600.0
"""After so many seconds an entry that is read is marked as used again, and an unfinished file is nobody's any more."""
_SAFELY: Final = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK"))
"""A link is not followed, a pipe not waited for."""
POSIX: Final = os.name == "posix"


def digest(*parts: bytes) -> bytes:
    """The digest of a sequence of byte strings; where one ends counts."""
    found = blake2b(digest_size=_DIGEST)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()


class _RefusedError(Exception):
    """The folder is not one to read code from."""


def _check_own(status: os.stat_result, what: str) -> None:
    if status.st_uid != os.geteuid():
        raise _RefusedError(f"{what} belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _RefusedError(f"others may write to {what}")


@final
class Store:
    """The entries in ``folder``, at most about ``limit`` bytes of them: what was used longest ago goes first.

    ``troubles`` holds what is to be said to the user, once each.
    """

    def __init__(self, folder: str, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self.troubles: list[str] = []
        self._said: set[str] = set()
        self._room = 0
        self._usable = POSIX
        self._lock = threading.RLock()
        renewed_in_child(self)

    def get(self, key: bytes) -> bytes | None:
        """The content under a key, or None."""
        try:
            with self._opened(create=False) as folder:
                if folder is None:
                    return None
                return self._read(folder, key)
        except OSError as error:
            self._trouble(f"cannot be read: {error.strerror}")
            return None

    def _read(self, folder: int, key: bytes) -> bytes | None:
        name = key.hex()
        try:
            file = os.open(name, os.O_RDONLY | _SAFELY, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError:
            self._remove(folder, name)
            return None
        with open(file, "rb", buffering=0) as stream:
            status = os.fstat(file)
            try:
                _check_own(status, "the file")
            except _RefusedError:
                return None
            data = stream.read(status.st_size + 1) if stat.S_ISREG(status.st_mode) else b""
            content = _content(key, data)
            if content is None:
                self._remove(folder, name)
            elif time.time() - status.st_mtime > _STALE:
                with contextlib.suppress(OSError):
                    os.utime(file)
            return content

    def put(self, key: bytes, content: bytes) -> None:
        """Keep ``content`` under a key. Where that fails, nothing is kept."""
        try:
            with self._opened(create=True) as folder:
                if folder is not None:
                    self._write(folder, key, content)
        except OSError as error:
            self._trouble(f"cannot be written: {error.strerror}")
            self._usable = False

    def _write(self, folder: int, key: bytes, content: bytes) -> None:
        data = b"".join((_MAGIC, key, digest(content), content))
        with self._lock:
            if len(data) > self._room:
                self._make_room(folder, len(data))
            if len(data) > self._room:
                return
            self._room -= len(data)
        beside = f"{key.hex()}.{os.getpid()}.{threading.get_ident()}"
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFELY, 0o600, dir_fd=folder)
        try:
            with open(file, "wb", buffering=0) as stream:
                rest = memoryview(data)
                while rest:
                    rest = rest[stream.write(rest) :]
            os.replace(beside, key.hex(), src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            self._remove(folder, beside)
            raise

    def _make_room(self, folder: int, wanted: int) -> None:
        """Remove what was used longest ago until there is room; each process then takes a part of it."""
        now = time.time()
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if "." in entry.name and now - status.st_mtime > _STALE:
                        self._remove(folder, entry.name)
                    else:
                        found.append((status.st_mtime_ns, entry.name, status.st_size))
        total = sum(size for _, _, size in found)
        part = self.limit // 16
        if total + wanted > self.limit:
            for _, name, size in sorted(found):
                if total + max(wanted, part) <= self.limit:
                    break
                self._remove(folder, name)
                total -= size
        self._room = min(self.limit - total, max(wanted, part))

    def _remove(self, folder: int, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)

    @contextlib.contextmanager
    def _opened(self, create: bool) -> Iterator[int | None]:
        """The folder, as a descriptor; None where there is none, or none to use."""
        folder = None
        if self._usable:
            try:
                folder = self._open(create)
            except _RefusedError as reason:
                self._trouble(f"is not used: {reason}")
                self._usable = False
        try:
            yield folder
        finally:
            if folder is not None:
                os.close(folder)

    def _open(self, create: bool) -> int | None:
        flags = os.O_RDONLY | os.O_DIRECTORY | _SAFELY
        try:
            folder = os.open(self.folder, flags)
        except FileNotFoundError:
            if not create:
                return None
            os.makedirs(os.path.dirname(self.folder) or ".", exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.folder, 0o700)
            folder = os.open(self.folder, flags)
        except (NotADirectoryError, OSError) as error:
            if os.path.islink(self.folder) or not os.path.isdir(self.folder):
                raise _RefusedError("it is no folder of its own") from error
            raise
        try:
            _check_own(os.fstat(folder), "it")
        except _RefusedError:
            os.close(folder)
            raise
        return folder

    def _trouble(self, what: str) -> None:
        with self._lock:
            if what not in self._said:
                self._said.add(what)
                self.troubles.append(f"the cache of compiled code, {self.folder}, {what}")


def _content(key: bytes, data: bytes) -> bytes | None:
    """What a file holds, or None where it is not what was written under this key."""
    start, content = data[:_HEADER], data[_HEADER:]
    return content if start == b"".join((_MAGIC, key, digest(content))) else None


_stores: dict[tuple[str, int], Store] = {}


def store() -> Store | None:
    """The cache that the configuration names now, or None where it is off."""
    if not config.disk_cache or config.disk_cache_megabytes <= 0:
        return None
    wanted = (config.disk_cache_dir or system_cache_folder(), config.disk_cache_megabytes << 20)
    found = _stores.get(wanted)
    if found is None:
        found = _stores.setdefault(wanted, Store(*wanted))
    return found


__all__ = ["Store", "digest", "store"]
