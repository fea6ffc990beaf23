"""Compiled code on disk: another process compiles nothing, and damage costs no more than a compilation."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from llvmlite import ir

import lucidgraph as lg
from lucidgraph.config import config
from lucidgraph.errors import LucidGraphWarning
from lucidgraph.runtime.accelerate import machine, recalled
from lucidgraph.runtime.accelerate.codegen import Line
from lucidgraph.runtime.accelerate.machine import HOST, Compiler
from lucidgraph.runtime.accelerate.system import SYSTEM
from lucidgraph.runtime.accelerate.values import I32, I64, PTR, Routine
from lucidgraph.runtime.store import Store, digest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes")

PROGRAM = """
import hashlib, warnings
warnings.simplefilter("error")
import numpy as np
import lucidgraph as lg
from lucidgraph.runtime.accelerate.system import SYSTEM

def loss(w, x):
    for m in w:
        x = lg.nn.softmax(lg.tanh(x @ m) * 0.75, axis=1)
        x = lg.nn.scaled_dot_product_attention(*[x.reshape((1, 2, 20, 24))] * 3, mask="causal").reshape((40, 24))
    return lg.mean(x * x) + lg.sum(lg.cumsum(x, axis=0)[lg.argmax(x, axis=0), 0])

rng = np.random.default_rng(0)
w = [rng.standard_normal((24, 24)) for _ in range(2)]
x = rng.standard_normal((40, 24)).astype(np.float32)
step = lg.compile(lg.value_and_grad(loss), backend="accelerate")
value, grads = step(w, x)
print(SYSTEM.compiler.compiled, hashlib.sha256(b"".join(np.asarray(a).tobytes() for a in (value, *grads))).hexdigest())
"""


def started(folder: Path, **environment: str) -> subprocess.Popen[str]:
    env = {**os.environ, "LUCIDGRAPH_DISK_CACHE_DIR": str(folder), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """How many modules a process compiled, and its results."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    compiled, results = out.split()
    return int(compiled), results


def test_a_second_process_compiles_nothing(tmp_path: Path):
    folder = tmp_path / "cache"
    first, results = ended(started(folder))
    assert first > 5
    assert ended(started(folder)) == (0, results)
    for k, file in enumerate(sorted(folder.iterdir())):
        data = bytearray(file.read_bytes())
        if k % 3 == 0:
            data[-1 - k] ^= 1
        elif k % 3 == 1:
            del data[len(data) // 2 :]
        file.write_bytes(data)
    again, same = ended(started(folder))
    assert 0 < again < first and same == results
    assert ended(started(folder)) == (0, results)
    # Code made for another processor, or by another compiler, is not mistaken for ours.
    off, same = ended(started(folder, LUCIDGRAPH_DISK_CACHE="0"))
    assert off == first and same == results


def test_processes_at_once(tmp_path: Path):
    found = [ended(p) for p in [started(tmp_path / "cache") for _ in range(3)]]
    assert len({results for _, results in found}) == 1
    assert ended(started(tmp_path / "cache")) == (0, found[0][1])


def test_without_a_cache_nothing_is_written(tmp_path: Path):
    ended(started(tmp_path / "cache", LUCIDGRAPH_DISK_CACHE="0"))
    ended(started(tmp_path / "cache", LUCIDGRAPH_DISK_CACHE_MB="0"))
    assert not (tmp_path / "cache").exists()


PLANS = """
import hashlib, sys, warnings
warnings.simplefilter("error")
import numpy as np
import lucidgraph as lg
from lucidgraph.errors import IndexOutOfRangeError
from lucidgraph.runtime.accelerate import plan

planned = 0
run = plan.Planner.run
def counted(self):
    global planned
    planned += 1
    return run(self)
plan.Planner.run = counted
digests = []
def told(*arrays):
    digests.extend(np.asarray(a).tobytes() for a in arrays)

def step(w, x):
    def loss(w):
        y = lg.nn.softmax(lg.tanh(x @ w[0]) @ w[1], axis=1)
        return lg.mean(lg.nn.scaled_dot_product_attention(*[y.reshape((1, 4, 40, 24))] * 3, mask="causal") ** 2)
    value, slopes = lg.value_and_grad(loss)(w)
    return value, [a - 0.5 * b for a, b in zip(w, slopes)]

rng = np.random.default_rng(0)
w = [rng.standard_normal((24, 24)).astype(np.float32) for _ in range(2)]
x = rng.standard_normal((160, 24)).astype(np.float32)
value, new = lg.compile(step, backend="accelerate", autocast=False)(w, x)
told(value, *new)
big = rng.standard_normal((700, 700))  # by the library
told(lg.compile(lambda a: lg.tanh(a @ a) * 2, backend="accelerate")(big))
def pick(t, k):
    return lg.take(t, k, axis=0) * 2.0 + lg.cumsum(t, axis=0)[0]
picked = lg.compile(pick, backend="accelerate")
told(picked(x, np.array([3, 1])))
try:
    picked(x, np.array([3, 1000]))
except IndexOutOfRangeError as error:
    assert error.source is not None and error.source.function == "pick", error.source
else:
    raise AssertionError("no error")
told(*lg.compile(lambda x, k: (x * k + 1, x[1:] - k), backend="accelerate")(x, 3))
plain = planned
told(picked(x[::2], np.array([3, 1])))  # of another shape, and laid out otherwise
captured = lg.compile(lambda y: y + x, backend="accelerate")
told(captured(x))
donating = lg.compile(lambda x: lg.exp(x) * 2, backend="accelerate", donate=(0,))
told(donating(x.copy()))
print(f"{plain},{planned}", hashlib.sha256(b"".join(digests)).hexdigest())
"""


def plans(folder: Path, **environment: str) -> tuple[int, int, str]:
    """How many plans were made at first and in all, and the results."""
    env = {**os.environ, "LUCIDGRAPH_DISK_CACHE_DIR": str(folder), "LUCIDGRAPH_VERIFY": "0", **environment}
    done = subprocess.run([sys.executable, "-c", PLANS], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    planned, results = done.stdout.split()
    plain, total = planned.split(",")
    return int(plain), int(total), results


def test_a_second_process_plans_nothing(tmp_path: Path):
    folder = tmp_path / "cache"
    plain, total, results = plans(folder)
    assert plain >= 4
    none, others, same = plans(folder)
    assert none == 0 and same == results
    assert 2 <= others < total - plain + 1  # another layout, and what has captured an array
    # Where a kernel is missing, or a plan is damaged, it is made again.
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_size)
    files[-1].unlink()
    files[0].write_bytes(files[0].read_bytes()[:-3])
    for file in files[1:-1:3]:
        data = bytearray(file.read_bytes())
        data[-5] ^= 4
        file.write_bytes(data)
    again, _, same = plans(folder)
    assert again and same == results
    assert plans(folder)[0] == 0
    # Other rules have other plans, and verified passes run.
    assert plans(folder, LUCIDGRAPH_RULES="rounding")[0] == plain
    checked, _, same = plans(folder, LUCIDGRAPH_VERIFY="1")
    assert checked == plain and same == results


def test_an_entry_that_is_no_plan_counts_as_none(tmp_path: Path):
    kept = Store(str(tmp_path / "cache"), 1 << 20)
    graph = lg.trace(lambda x: x + 1, np.ones(3))
    for content in (b"", b"[]", b"{}", b"\xff", b'{"library": "", "arena": 0}', b'{"library": "none"}', b"1" * 5000):
        name = digest(content)
        kept.put(name, content)
        assert recalled.stored(kept, name, lambda d: recalled.read(d, graph, SYSTEM.compiler, SYSTEM.blas)) is None


def returning(value: int | None, address: int = 0) -> ir.Module:
    """A module whose ``kernel`` returns a number, or what the function at an address does."""
    module = ir.Module(name="kernel")
    fn = ir.Function(module, ir.FunctionType(I64, [PTR, I64, I64, I64]), "kernel")
    b = ir.IRBuilder(fn.append_basic_block("entry"))
    b.ret(I64(value) if value is not None else b.zext(b.call(Routine(address, ir.FunctionType(I32, [])), []), I64))
    return module


def test_other_keys_and_other_machines_have_other_entries(tmp_path: Path):
    kept = Store(str(tmp_path / "cache"), 1 << 20)
    plain = machine.Machine.of(HOST.triple, "x86-64" if "x86" in HOST.triple else "generic", {})
    for k, target in enumerate((HOST, plain)):
        compiler = Compiler(target, lambda: kept)
        codes = [compiler.code(key, lambda n=n: returning(n)) for n, key in enumerate("abc")]
        assert len({c.address("kernel") for c in codes}) == 3
        assert compiler.compiled == 3
        assert len(list((tmp_path / "cache").iterdir())) == 3 * (k + 1)
    again = Compiler(HOST, lambda: kept)
    assert again.code("a", lambda: returning(0)) is again.code("a", lambda: returning(0))
    assert again.own("a", lambda: returning(0)) is not again.own("a", lambda: returning(0))
    assert again.compiled == 0


def test_other_sources_have_other_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kept = Store(str(tmp_path / "cache"), 1 << 20)
    for sources in (b"one", b"two"):
        monkeypatch.setattr(machine, "_sources", lambda sources=sources: sources)
        machine._surroundings.cache_clear()
        compiler = Compiler(HOST, lambda: kept)
        compiler.code("a", lambda: returning(0)).address("kernel")
        assert compiler.compiled == 1
    monkeypatch.setattr(machine, "_sources", lambda: b"")  # unknown: nothing is kept
    machine._surroundings.cache_clear()
    Compiler(HOST, lambda: kept).code("b", lambda: returning(0)).address("kernel")
    assert len(list((tmp_path / "cache").iterdir())) == 2
    machine._surroundings.cache_clear()


def test_code_with_an_address_in_it_is_not_kept(tmp_path: Path):
    kept = Store(str(tmp_path / "cache"), 1 << 20)
    compiler = Compiler(HOST, lambda: kept)
    compiler.code("a", lambda: returning(None, 0x7FFF12345678)).address("kernel")
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_is_refused_is_said_and_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    monkeypatch.setattr(config, "disk_cache_dir", str(folder))
    x = np.arange(5.0)
    with pytest.warns(LucidGraphWarning, match="others may write to it"):
        y = lg.compile(lambda x: x * 3.140625 - 2.7109375, backend="accelerate")(x)
    np.testing.assert_array_equal(y, x * 3.140625 - 2.7109375)
    lg.compile(lambda x: x * 3.015625 - 2.7109375, backend="accelerate")(x)  # said once
    assert list(folder.iterdir()) == []


# -- the line of compilations


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_every_job_is_done_once(threads: int):
    line = Line(threads)
    done: list[int] = []
    jobs = [line.add(lambda k=k: done.append(k) or b"%d" % k) for k in range(40)]
    assert [line.result(job) for job in jobs] == [b"%d" % k for k in range(40)]
    assert sorted(done) == list(range(40))
    assert line.result(jobs[3]) == b"3"


@pytest.mark.parametrize("threads", [0, 2])
def test_an_error_reaches_who_waits(threads: int):
    def fails() -> bytes:
        raise RuntimeError("no code")

    line = Line(threads)
    bad, good = line.add(fails), line.add(lambda: b"good")
    assert line.result(good) == b"good"
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no code"):
            line.result(bad)


def test_an_interrupted_job_is_done_by_the_next():
    calls: list[int] = []

    def work() -> bytes:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return b"code"

    line = Line(0)
    job = line.add(work)
    with pytest.raises(KeyboardInterrupt):
        line.result(job)
    assert line.result(job) == b"code"


def test_a_dropped_job_is_not_begun():
    line = Line(0)
    jobs = [line.add(lambda k=k: b"%d" % k) for k in range(3)]
    line.drop(jobs[1])
    assert line.result(jobs[2]) == b"2" and line.result(jobs[0]) == b"0"
    assert jobs[1].code is None


def test_several_threads_wait_for_one_job():
    line = Line(1)
    gate = threading.Event()
    job = line.add(lambda: gate.wait(60) and b"code")
    found: list[bytes] = []
    waiters = [threading.Thread(target=lambda: found.append(line.result(job))) for _ in range(4)]
    for waiter in waiters:
        waiter.start()
    gate.set()
    for waiter in waiters:
        waiter.join()
    assert found == [b"code"] * 4


FORKING = """
import os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import numpy as np
import lucidgraph as lg

x = np.ones(5, np.float32)

def program(k):
    return float(lg.compile(lambda x: lg.sum(lg.tanh(x * (k + 0.5)) + k), backend="accelerate")(x))

program(0)  # a first call imports, and Python's own import locks are not free in a child
stop = threading.Event()
def busy():
    k = 0
    while not stop.is_set():
        program(k := k + 1)

threads = [threading.Thread(target=busy, daemon=True) for _ in range(2)]
for t in threads:
    t.start()
for k in range(20):
    pid = os.fork()
    if pid == 0:
        threading.Timer(30, lambda: os._exit(1)).start()
        expected = float(np.sum(np.tanh(x * (k + 0.25)) + k))
        got = float(lg.compile(lambda x: lg.sum(lg.tanh(x * (k + 0.25)) + k), backend="accelerate")(x))
        os._exit(0 if abs(got - expected) < 1e-3 else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, k
stop.set()
for t in threads:
    t.join()
print("done")
"""


def test_forks_while_others_compile():
    out = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=200)
    assert out.stdout == "done\n", out.stderr


SHARED = """
import threading
import numpy as np
import lucidgraph as lg

x = np.ones(5, np.float32)

def program(k):
    return float(lg.compile(lambda x: lg.sum(lg.tanh(x * (k + 0.5)) + k), backend="accelerate")(x))

def busy():
    for k in range(600):
        program(k % 7)

threads = [threading.Thread(target=busy) for _ in range(3)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print("done")
"""


def test_code_that_one_thread_drops_while_another_takes_it():
    out = subprocess.run([sys.executable, "-c", SHARED], capture_output=True, text=True, timeout=200)
    assert out.stdout == "done\n", out.stderr
