"""The machine code is made for, and the compiler from LLVM IR to it."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

import llvmlite.binding as llvm
from llvmlite import ir

from .vecmath import Target as MathTarget


def held_while_forking(lock: Any) -> None:
    """Let no fork happen while another thread has ``lock``: in the child it would never be released."""
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


_lock = threading.RLock()
held_while_forking(_lock)


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


@final
class Code:
    """Compiled functions. The machine code lives as long as this object.

    Every call into LLVM is made under our lock, for llvmlite has one of its own, which a forked child may find taken.
    """

    __slots__ = ("__weakref__", "_addresses", "_engine", "size")

    def __init__(self, engine: Any, size: int) -> None:
        self._engine = engine
        self._addresses: dict[str, int] = {}
        self.size = size

    def address(self, name: str) -> int:
        found = self._addresses.get(name)
        if found is None:
            with _lock:
                found = self._addresses[name] = int(self._engine.get_function_address(name))
        return found

    def __del__(self, lock: Any = _lock, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # Given at definition: at the interpreter's end this module's names may be gone, and LLVM goes by itself.
        if not ending():
            with lock:
                self._engine.close()


def optimized(module: ir.Module, machine: Machine, jit: bool = True) -> tuple[Any, Any]:
    """The module verified and through the few passes that generated loops need, with its target machine."""
    module.triple = machine.triple
    tm = machine.target_machine(jit)
    module.data_layout = str(tm.target_data)
    parsed = llvm.parse_assembly(str(module))
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    llvm.create_pass_builder(tm, options).getModulePassManager().run(parsed, llvm.create_pass_builder(tm, options))
    return parsed, tm


def compile_module(module: ir.Module, machine: Machine) -> Code:
    """Machine code of a module. LLVM is entered by one thread at a time."""
    with _lock:
        parsed, tm = optimized(module, machine)
        engine = llvm.create_mcjit_compiler(parsed, tm)
        engine.finalize_object()
        engine.run_static_constructors()
        return Code(engine, len(str(module)))


@final
class Compiler:
    """The kernels of one machine, each compiled once, while anybody holds it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._codes: weakref.WeakValueDictionary[str, Code] = weakref.WeakValueDictionary()
        self._lock = threading.RLock()
        held_while_forking(self._lock)

    def code(self, key: str, build: Callable[[], ir.Module]) -> Code:
        """The code of a key; ``build`` writes it where it is not there."""
        with self._lock:
            code = self._codes.get(key)
            if code is None:
                code = compile_module(build(), self.machine)
                self._codes[key] = code
            return code


HOST: Final = Machine.host()
