"""The cache on disk: what comes back is what was put there by this user, whole, or nothing."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lucidgraph.config import config, system_cache_folder
from lucidgraph.runtime.store import Store, digest, store

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes")

KEY = digest(b"a key")
MEBIBYTE = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "cache"


def fresh(folder: Path, limit: int = MEBIBYTE) -> Store:
    return Store(str(folder), limit)


def kept(folder: Path, content: bytes = b"code") -> Path:
    """A cache with one entry; its file."""
    fresh(folder).put(KEY, content)
    return folder / KEY.hex()


def test_what_was_put_comes_back(folder: Path):
    first = fresh(folder)
    assert first.get(KEY) is None and not folder.exists()
    first.put(KEY, b"code")
    first.put(digest(b"empty"), b"")
    assert fresh(folder).get(KEY) == b"code"
    assert fresh(folder).get(digest(b"empty")) == b""
    assert fresh(folder).get(digest(b"another")) is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(f.stat().st_mode) for f in folder.iterdir()} == {0o600}
    assert first.troubles == []


def test_parts_of_a_key_do_not_run_together():
    assert digest(b"ab", b"c") != digest(b"a", b"bc") != digest(b"abc")


@pytest.mark.parametrize("at", [0, 5, 13, 30, 45, 70, 77, 80])
def test_a_flipped_bit_is_found(folder: Path, at: int):
    file = kept(folder)
    data = bytearray(file.read_bytes())
    data[at] ^= 4
    file.write_bytes(data)
    assert fresh(folder).get(KEY) is None
    assert not file.exists()
    fresh(folder).put(KEY, b"again")
    assert fresh(folder).get(KEY) == b"again"


@pytest.mark.parametrize("length", [0, 1, 13, 76, 77, 80])
def test_a_cut_file_is_found(folder: Path, length: int):
    file = kept(folder)
    file.write_bytes(file.read_bytes()[:length])
    assert fresh(folder).get(KEY) is None
    assert not file.exists()


def test_a_longer_file_and_one_of_another_form_are_found(folder: Path):
    file = kept(folder)
    whole = file.read_bytes()
    for data in (whole + b"x", whole.replace(b"lucidgraph 1", b"lucidgraph 9")):
        file.write_bytes(data)
        assert fresh(folder).get(KEY) is None


def test_an_entry_does_not_pass_for_another(folder: Path):
    file = kept(folder)
    other = digest(b"another key")
    file.rename(folder / other.hex())
    assert fresh(folder).get(other) is None


# -- whose it is


def test_a_folder_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch):
    file = kept(folder)
    before = file.read_bytes()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    refused = fresh(folder)
    assert refused.get(KEY) is None
    refused.put(KEY, b"ours")
    assert file.read_bytes() == before
    assert len(refused.troubles) == 1 and "belongs to another user" in refused.troubles[0]


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o702, 0o777])
def test_a_folder_that_others_may_write_to_is_not_used(folder: Path, mode: int):
    kept(folder)
    folder.chmod(mode)
    refused = fresh(folder)
    assert refused.get(KEY) is None
    refused.put(digest(b"b"), b"x")
    assert len(list(folder.iterdir())) == 1
    assert "others may write" in refused.troubles[0]


def test_a_link_in_place_of_the_folder_is_not_followed(folder: Path, tmp_path: Path):
    kept(folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    refused = fresh(link)
    assert refused.get(KEY) is None
    refused.put(KEY, b"x")
    assert refused.troubles
    assert fresh(folder).get(KEY) == b"code"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_to_is_not_read(folder: Path, mode: int):
    kept(folder).chmod(mode)
    assert fresh(folder).get(KEY) is None


def test_a_file_of_another_user_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch):
    file = kept(folder)
    real = os.fstat

    def fstat(fd: int) -> os.stat_result:
        found = real(fd)
        if stat.S_ISDIR(found.st_mode):
            return found
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))

    monkeypatch.setattr(os, "fstat", fstat)
    assert fresh(folder).get(KEY) is None
    assert file.exists()


def test_links_and_folders_in_place_of_a_file_are_not_read(folder: Path, tmp_path: Path):
    file = kept(folder)
    elsewhere = file.rename(tmp_path / "elsewhere")
    file.symlink_to(elsewhere)
    assert fresh(folder).get(KEY) is None
    file.unlink(missing_ok=True)
    file.mkdir()
    assert fresh(folder).get(KEY) is None


# -- where it cannot be kept


def test_a_file_in_place_of_the_folder(tmp_path: Path):
    place = tmp_path / "file"
    place.write_text("mine")
    refused = fresh(place)
    assert refused.get(KEY) is None
    refused.put(KEY, b"x")
    assert len(refused.troubles) == 1
    assert place.read_text() == "mine"


@pytest.mark.parametrize("step", ["open", "replace"])
def test_a_full_disk_is_said_once(folder: Path, monkeypatch: pytest.MonkeyPatch, step: str):
    kept(folder)
    real = getattr(os, step)

    def full(*args, **kwargs):
        if step == "open" and not args[1] & os.O_CREAT:
            return real(*args, **kwargs)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, full)
    cache = fresh(folder)
    for k in range(3):
        cache.put(digest(b"%d" % k), b"x")
    assert len(cache.troubles) == 1 and "No space left" in cache.troubles[0]
    assert len(list(folder.iterdir())) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to_is_read(folder: Path):
    kept(folder)
    folder.chmod(0o500)
    cache = fresh(folder)
    cache.put(digest(b"b"), b"x")
    assert cache.get(KEY) == b"code" or cache.troubles
    folder.chmod(0o700)


# -- bounds


def test_what_was_used_longest_ago_goes_first(folder: Path):
    cache = fresh(folder, 10_000)
    for k in range(200):
        cache.put(digest(b"%d" % k), bytes(500))
        file = folder / digest(b"%d" % k).hex()
        os.utime(file, (1000 + k, 1000 + k))
        if k == 10:
            cache.put(KEY, b"wanted")
            os.utime(folder / KEY.hex(), (1000, 1000))
        if k > 10:  # it is read now and then, and so stays
            assert cache.get(KEY) == b"wanted", k
        assert sum(f.stat().st_size for f in folder.iterdir()) <= 10_000
    left = [k for k in range(200) if cache.get(digest(b"%d" % k)) is not None]
    assert left == list(range(left[0], 200)) and len(left) >= 10


def test_what_is_larger_than_the_bound_is_not_kept(folder: Path):
    cache = fresh(folder, 1000)
    cache.put(KEY, bytes(5000))
    assert cache.get(KEY) is None
    assert cache.troubles == []


def test_unfinished_files_are_cleared_away(folder: Path):
    kept(folder)
    old, new = folder / f"{KEY.hex()}.1.1", folder / f"{KEY.hex()}.2.2"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    fresh(folder).put(digest(b"b"), b"x")
    assert not old.exists() and new.exists()
    assert fresh(folder).get(KEY) == b"code"


# -- several processes

WRITER = """
import os, sys
from lucidgraph.runtime.store import Store, digest
store = Store(sys.argv[1], 1 << 20)
print("ready", flush=True)
k = int(sys.argv[2])
while True:
    k += 1
    key = digest(b"%d" % (k % 50))
    store.put(key, key * 300)
    found = store.get(digest(b"%d" % ((k * 7) % 50)))
    assert found is None or found == found[:32] * 300, k
    if len(sys.argv) > 3 and k > 400:
        break
print("done", *store.troubles, flush=True)
"""


def writer(folder: Path, *args: str) -> subprocess.Popen[str]:
    made = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert made.stdout is not None and made.stdout.readline() == "ready\n"
    return made


def whole(folder: Path) -> int:
    """How many entries there are, each of which reads right."""
    keys = [digest(b"%d" % k) for k in range(50)]
    found = [fresh(folder).get(key) for key in keys]
    assert all(c is None or c == key * 300 for key, c in zip(keys, found, strict=True))
    return sum(c is not None for c in found)


def test_processes_write_the_same_entries_at_once(folder: Path):
    writers = [writer(folder, str(k), "end") for k in (0, 17, 34)]
    for process in writers:
        out, err = process.communicate(timeout=100)
        assert out == "done\n", err
    assert whole(folder) == 50


def test_killed_while_writing(folder: Path):
    for k in range(6):
        process = writer(folder, "0")
        time.sleep(0.003 * k)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=100)
        whole(folder)
    cache = fresh(folder)
    cache.put(KEY, b"after")
    assert fresh(folder).get(KEY) == b"after" and cache.troubles == []


# -- configuration


def test_where_and_whether(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(config, "disk_cache_dir", str(tmp_path / "x"))
    found = store()
    assert found is not None and found.folder == str(tmp_path / "x") and found is store()
    monkeypatch.setattr(config, "disk_cache_megabytes", 3)
    bounded = store()
    assert bounded is not None and bounded.limit == 3 << 20
    monkeypatch.setattr(config, "disk_cache_megabytes", 0)
    assert store() is None
    monkeypatch.setattr(config, "disk_cache_megabytes", 3)
    monkeypatch.setattr(config, "disk_cache", False)
    assert store() is None


def test_the_default_place(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert system_cache_folder() == "/somewhere/lucidgraph"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert system_cache_folder() == "/home/me/.cache/lucidgraph"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert system_cache_folder() == "/home/me/Library/Caches/lucidgraph"
