"""The machine code is made for, and the compiler from LLVM IR to it."""

from __future__ import annotations

import re
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, final

import llvmlite
import llvmlite.binding as llvm
from llvmlite import ir
from llvmlite.binding import newpassmanagers

from ...errors import warn
from ..store import Store, digest, store
from .codegen import ENTRY, LINE, Bench, Job, add_passes, held_while_forking
from .vecmath import Target as MathTarget


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor as LLVM names it.

    ``lanes``: how many float32 fit its vectors. ``masks``: loads and stores under a mask are single instructions, for
    elements of every size. ``fma``, ``halves``, ``rounds``: so are fused multiply-adds, conversions of float16, and
    rounding to an integer; what is not an instruction would be a call of a library function per lane.
    """

    triple: str
    cpu: str
    features: str
    lanes: int
    masks: bool
    fma: bool
    halves: bool
    rounds: bool

    @staticmethod
    def of(triple: str, cpu: str, features: dict[str, bool]) -> Machine:
        """The machine with these features; those of ``cpu`` are not looked up."""
        has = {name for name, on in features.items() if on}
        arm = triple.startswith(("arm64", "aarch64"))
        # Some processors have AVX-512's instructions on 256 bits only.
        wide = "avx512f" in has and features.get("evex512", True)
        return Machine(
            triple, cpu, ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items())),
            lanes=16 if wide else 8 if "avx2" in has else 4,
            masks=wide and {"avx512vl", "avx512bw"} <= has,
            fma=arm or "fma" in has or wide,
            halves=arm or "f16c" in has or wide,
            rounds=arm or "sse4.1" in has or "avx" in has or wide,
        )  # fmt: skip

    @staticmethod
    def host() -> Machine:
        """The machine this process runs on."""
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        try:
            features = dict(llvm.get_host_cpu_features())
        except RuntimeError:
            features = {}  # LLVM cannot list them on every system; the processor's name implies them
        return Machine.of(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)

    @property
    def math(self) -> MathTarget:
        return MathTarget(fma=self.fma, avx512=self.masks)

    def target_machine(self, jit: bool = True) -> Any:
        target = llvm.Target.from_triple(self.triple)
        reloc = "pic" if not jit else "static" if self.triple.startswith("x86_64") else "default"
        return target.create_target_machine(cpu=self.cpu, features=self.features, opt=2, jit=jit, reloc=reloc)


@cache
def _data_layout(machine: Machine) -> str:
    with ENTRY:
        return str(machine.target_machine().target_data)


@cache
def _sources() -> bytes:
    """The digest of all that code and plans are made by: this package's sources."""
    package = Path(__file__).parents[2]
    files = sorted(file for part in ("ir", "passes", "runtime/accelerate") for file in (package / part).rglob("*.py"))
    return digest(*(file.read_bytes() for file in [package / "dtypes.py", *files])) if files else b""


def text_of(module: ir.Module, machine: Machine) -> str:
    module.triple = machine.triple
    module.data_layout = _data_layout(machine)
    return str(module)


def optimized(module: ir.Module, machine: Machine, jit: bool = True) -> tuple[Any, Any]:
    """The module read by LLVM and through the few passes that generated loops need, with its target machine."""
    with ENTRY:
        tm = machine.target_machine(jit)
        parsed = llvm.parse_assembly(text_of(module, machine))
        passes = newpassmanagers.create_new_module_pass_manager()
        add_passes(passes)
        passes.run(parsed, llvm.create_pass_builder(tm, llvm.create_pipeline_tuning_options(speed_level=1)))
        return parsed, tm


@final
class _Engine:
    """Object code in memory, ready to run."""

    __slots__ = ("_engine", "address")

    def __init__(self, code: bytes, machine: Machine) -> None:
        self._engine: Any = None  # until there is one: Ctrl-C may come before
        with ENTRY:
            # Nothing is compiled here: the simplest target machine will do, and the module that an engine must be
            # made with is taken out again.
            module = llvm.parse_assembly("")
            module.triple = machine.triple
            target = llvm.Target.from_triple(machine.triple).create_target_machine(opt=0, jit=True)
            self._engine = llvm.create_mcjit_compiler(module, target)
            self._engine.remove_module(module)
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
            self._engine.run_static_constructors()
            self.address = self._engine.get_function_address

    def __del__(self, lock: Any = ENTRY, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # Given at definition: at the interpreter's end this module's names may be gone, and LLVM goes by itself.
        if not ending() and self._engine is not None:
            with lock:
                self._engine.close()


@final
class _Order:
    """A job that nobody need do once nobody waits for it."""

    __slots__ = ("job",)

    def __init__(self, job: Job) -> None:
        self.job = job

    def __del__(self, drop: Callable[[Job], None] = LINE.drop, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            drop(self.job)


@final
class Code:
    """Compiled functions: object code, or the job that makes it; loaded when an address is asked for.

    The machine code lives as long as this object, which has no ``__del__`` of its own: while that ran, a weak
    reference would still give the object to another thread.
    """

    __slots__ = ("__weakref__", "_addresses", "_engine", "_made", "key", "machine")

    def __init__(self, machine: Machine, made: bytes | Job, key: str = "") -> None:
        self.machine = machine
        self.key = key
        """By which the disk has it; empty where it has not."""
        self._made = _Order(made) if isinstance(made, Job) else made
        self._engine: _Engine | None = None
        self._addresses: dict[str, int] = {}

    def address(self, name: str) -> int:
        found = self._addresses.get(name)
        if found is None:
            made = self._made
            if isinstance(made, _Order):
                self._made = made = LINE.result(made.job)
            with ENTRY:
                if self._engine is None:
                    self._engine = _Engine(made, self.machine)
                found = self._addresses[name] = int(self._engine.address(name))
        return found


_ADDRESS: Final = re.compile(r"inttoptr \(i64 -?[0-9]{5,}")


@final
class Compiler:
    """The kernels of one machine, each compiled once, while anybody holds it; and those that the disk has.

    ``compiled`` counts what was not found there.
    """

    def __init__(self, machine: Machine, kept: Callable[[], Store | None] = store) -> None:
        self.machine = machine
        self.compiled = 0
        self._kept = kept
        self._codes: weakref.WeakValueDictionary[str, Code] = weakref.WeakValueDictionary()
        self._benches: list[Bench] = []
        self._lock = threading.RLock()
        held_while_forking(self._lock)

    def code(self, key: str, build: Callable[[], ir.Module]) -> Code:
        """The code of a key; ``build`` writes it where it is not there."""
        with self._lock:
            code = self._codes.get(key)
            if code is None:
                code = self._codes[key] = self.own(key, build)
            return code

    def known(self, key: str) -> Code | None:
        """The code of a key, if it is in use or on disk."""
        with self._lock:
            code, kept = self._codes.get(key), self.kept()
            if code is None and kept is not None:
                found = kept.get(self.entry(key))
                if found is not None:
                    code = self._codes[key] = Code(self.machine, found, key)
            return code

    def kept(self) -> Store | None:
        """The entries on disk; None where there are none, or it cannot be said what they depend on."""
        return self._kept() if _sources() else None

    def entry(self, *parts: str) -> bytes:
        """The key of an entry on disk that depends on all that code depends on, and on these."""
        return digest(_surroundings(self.machine), *(part.encode() for part in parts))

    def own(self, key: str, build: Callable[[], ir.Module]) -> Code:
        """The code of a key, in a place of its own: what has a state is not shared."""
        kept = self.kept()
        name = b""
        if kept is not None:
            name = self.entry(key)
            found = kept.get(name)
            self._say(kept)
            if found is not None:
                return Code(self.machine, found, key)
        self.compiled += 1
        text = text_of(build(), self.machine)
        # What has the address of something of this process in it is of no use to another.
        lasting = kept if name and not _ADDRESS.search(text) else None
        job = LINE.add(partial(self._object_code, text, lasting, name))
        return Code(self.machine, job, key if lasting is not None else "")

    def _object_code(self, text: str, kept: Store | None, name: bytes) -> bytes:
        try:
            bench = self._benches.pop()
        except IndexError:
            bench = Bench.of(self.machine.target_machine)
        code = bench.object_code(text)
        self._benches.append(bench)
        if kept is not None:
            kept.put(name, code)
        return code

    def _say(self, kept: Store) -> None:
        while kept.troubles:
            with suppress(IndexError):
                warn(kept.troubles.pop())


@cache
def _surroundings(machine: Machine) -> bytes:
    """The digest of all that code depends on beside its key."""
    parts = (llvmlite.__version__, llvm.llvm_version_info, astuple(machine), sys.version_info[:2])
    return digest(_sources(), *(repr(part).encode() for part in parts))


def compile_module(module: ir.Module, machine: Machine) -> Code:
    """Machine code of a module, made here and kept by nobody else."""
    return Code(machine, Bench.of(machine.target_machine).object_code(text_of(module, machine)))


HOST: Final = Machine.host()
