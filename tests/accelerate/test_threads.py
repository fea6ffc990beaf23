"""Our threads, Python's, forks, signals, and the interpreter's end."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import lucidgraph as lg

executor = pytest.importorskip("lucidgraph.runtime.accelerate.executor")
EXECUTOR = executor.EXECUTOR

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")


@pytest.fixture(autouse=True)
def threads():
    before = EXECUTOR.threads
    yield
    lg.set_threads(before)


def expected(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def softmax(x):
    return lg.softmax(x, axis=1)


PROGRAM = lg.compile(softmax, backend="accelerate")
X = np.random.default_rng(0).standard_normal((300, 257))
Y = expected(X)


def check(program=PROGRAM):
    np.testing.assert_allclose(program(X), Y, rtol=1e-13)


def alone(code: str, **env: str) -> str:
    """The output of a program in an interpreter of its own, which must end well."""
    head = """
        import os, signal, sys, threading, time
        import numpy as np
        import lucidgraph as lg
        signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in what runs in the background
        x = np.random.default_rng(0).standard_normal((300, 257))
        program = lg.compile(lambda x: lg.softmax(x, axis=1), backend="accelerate")
        y = program(x)
        def same():
            assert (program(x) == y).all()
    """
    ran = subprocess.run(
        # From 3.12 on Python warns of every fork beside threads.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-X", "faulthandler",
         "-c", textwrap.dedent(head) + textwrap.dedent(code)],
        capture_output=True, text=True, timeout=120, env={**os.environ, **env},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert not ran.stderr, ran.stderr[-3000:]
    return ran.stdout.strip()


def test_the_number_of_threads_can_change():
    wide = lg.compile(lambda x: lg.exp(lg.softmax(lg.exp(x), axis=1)), backend="accelerate")
    first = wide(X)
    for count in (1, 4, 2, 3, 1, 2, 8, 2):
        lg.set_threads(count)
        assert count == EXECUTOR.threads
        check()
        np.testing.assert_array_equal(wide(X), first)
    with pytest.raises(ValueError, match="at least one thread"):
        lg.set_threads(0)
    assert EXECUTOR.threads == 2


@pytest.mark.parametrize("same", [True, False])
def test_two_python_threads_at_once(same):
    programs = [
        PROGRAM if same else lg.compile(lambda x, k=k: softmax(x) * (k + 1), backend="accelerate") for k in range(2)
    ]
    failures = []

    def calls(k):
        factor = 1 if same else k + 1
        try:
            for j in range(1000):
                result = programs[k](X)
                if j % 20 == 0:
                    np.testing.assert_allclose(result, Y * factor, rtol=1e-13)
        except AssertionError as error:
            failures.append(error)

    running = [threading.Thread(target=calls, args=(k,)) for k in range(2)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failures


def test_calls_while_the_number_of_threads_changes():
    stop, failures, done = threading.Event(), [], []

    def calls():
        try:
            while not stop.is_set():
                check()
                done.append(1)
        except AssertionError as error:
            failures.append(error)

    running = [threading.Thread(target=calls) for _ in range(2)]
    for thread in running:
        thread.start()
    for k in range(100):
        lg.set_threads(1 + k % 4)
        time.sleep(0.001)
    stop.set()
    for thread in running:
        thread.join()
    assert not failures
    assert done


def test_the_first_calls_at_once():
    """Tracing, compiling and the executor's own code, asked for by four threads at the same time."""
    assert alone("""
        fns = [lg.compile(lambda x, k=k: lg.tanh(x * k), backend="accelerate") for k in range(4)] * 2
        out = [None] * 8
        def call(k): out[k] = fns[k](x)
        ts = [threading.Thread(target=call, args=(k,)) for k in range(8)]
        [t.start() for t in ts]; [t.join() for t in ts]
        print(all(np.allclose(out[k], np.tanh(x * (k % 4))) for k in range(8)))
    """) == "True"  # fmt: skip


def test_a_long_call_lets_other_threads_run():
    x = np.random.default_rng(0).standard_normal(3_000_000)
    slow = lg.compile(lambda x: lg.sum(lg.sin(lg.exp(lg.tanh(lg.cos(x * 1e3))))), backend="accelerate")
    slow(x)
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    thread.start()
    spans = []
    for _ in range(20):
        began = time.perf_counter()
        slow(x)
        spans.append((began, time.perf_counter()))
    stop.set()
    thread.join()
    # Strictly inside the calls: were the lock held, no tick could fall there.
    inside = sum(any(a + 0.1 * (b - a) < t < b - 0.1 * (b - a) for a, b in spans) for t in ticks)
    assert inside >= 5


@posix
def test_fork():
    """Child and parent go on, with threads of their own; so does a child of a thread among calls."""
    assert alone("""
        def forked():
            pid = os.fork()
            if pid == 0:
                same()
                new = lg.compile(lambda x: lg.exp(x) + 1, backend="accelerate")
                ok = np.allclose(new(x), np.exp(x) + 1)
                lg.set_threads(3); same()
                os._exit(0 if ok else 1)
            same()
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(forked(), end=" ")
        stop = False
        def busy():
            while not stop: same()
        ts = [threading.Thread(target=busy) for _ in range(2)]
        [t.start() for t in ts]
        print(*[forked() for _ in range(5)])
        stop = True
        [t.join() for t in ts]
    """) == "0 0 0 0 0 0"  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system's own threads run the parts")
def test_workers_keep_off_the_callers_processor():
    assert alone("""
        lg.set_threads(2)
        big = np.ones((2000, 2000), np.float32)
        lg.compile(lambda x: lg.sum(lg.exp(x)), backend="accelerate")(big)
        mine = os.sched_getaffinity(0)
        others = [os.sched_getaffinity(int(t)) for t in os.listdir("/proc/self/task")]
        print(len(mine) == 1 or any(o < mine and len(o) == len(mine) - 1 for o in others))
    """) == "True"  # fmt: skip


@posix
def test_an_interrupt_ends_a_long_call():
    assert alone("""
        def long(x):
            for _ in range(500): x = lg.minimum(lg.matmul(x, x), 1.0)
            return x
        big = np.full((300, 300), 0.1)
        slow = lg.compile(long, backend="accelerate")
        quick = lg.compile(lambda x: lg.minimum(lg.matmul(x, x), 1.0), backend="accelerate")
        before = quick(big)
        slow(big)
        out = []
        for _ in range(2):
            threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            began = time.perf_counter()
            try:
                for _ in range(50): slow(big)
            except KeyboardInterrupt:
                out.append("interrupted")
            same()
            assert (quick(big) == before).all()
        print(*out)
    """) == "interrupted interrupted"  # fmt: skip


@posix
def test_a_signal_handler_may_call_programs():
    assert alone("""
        seen = []
        def handler(*args):
            same()
            seen.append(1)
            signal.setitimer(signal.ITIMER_REAL, 0.003)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.003)
        while len(seen) < 100: same()
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(len(seen) > 3)
    """) == "True"  # fmt: skip


def test_the_users_numpy_keeps_its_threads():
    threadpoolctl = pytest.importorskip("threadpoolctl", reason="threadpoolctl reads the thread settings of libraries")

    def settings():
        found = threadpoolctl.threadpool_info()
        return {m["filepath"]: m["num_threads"] for m in found if "scipy_openblas32" not in m["filepath"]}

    np.ones((2, 2)) @ np.ones((2, 2))
    before = settings()
    a = np.ones((300, 300), np.float32)
    for count in (1, 4):
        lg.set_threads(count)
        lg.compile(lambda a: a @ a, backend="accelerate")(a)
    assert settings() == before
    assert before


@pytest.mark.parametrize("daemons", [0, 3])
def test_the_interpreter_ends_cleanly(daemons):
    """Also while daemon threads are in the middle of runs."""
    for delay in (0, 0.003, 0.02):
        assert alone(f"""
            run = program.lower(x).compile()
            def forever():
                while True: run([x])
            for _ in range({daemons}): threading.Thread(target=forever, daemon=True).start()
            same()
            time.sleep({delay})
            print("end")
        """) == "end"  # fmt: skip


def test_an_interrupt_while_code_is_loaded_leaves_nothing_behind(monkeypatch):
    """What is half made is dropped without a word; the next call compiles."""
    machine = pytest.importorskip("lucidgraph.runtime.accelerate.machine")
    create = machine.llvm.create_mcjit_compiler

    def interrupted(*args):
        monkeypatch.setattr(machine.llvm, "create_mcjit_compiler", create)
        raise KeyboardInterrupt

    monkeypatch.setattr(machine.llvm, "create_mcjit_compiler", interrupted)
    program = lg.compile(lambda x: lg.cbrt(x) * 3 - lg.expm1(x) / 7, backend="accelerate")
    x = np.linspace(0, 1, 50)
    with pytest.raises(KeyboardInterrupt):
        program(x)
    np.testing.assert_allclose(program(x), np.cbrt(x) * 3 - np.expm1(x) / 7, rtol=1e-12)
