"""The machine code is made for, and the compiler from LLVM IR to it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any, Final, final

import llvmlite.binding as llvm
from llvmlite import ir

from .vecmath import Target as MathTarget

_lock = threading.Lock()
# No fork in the middle of a compilation: the child could never compile again.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor as LLVM names it.

    ``lanes``: how many float32 fit its vectors. ``masks``: loads and stores under a mask are single instructions.
    """

    triple: str
    cpu: str
    features: str
    lanes: int
    masks: bool
    fma: bool

    @staticmethod
    def of(triple: str, cpu: str, features: dict[str, bool]) -> Machine:
        has = {name for name, on in features.items() if on}
        lanes = 16 if "avx512f" in has else 8 if "avx2" in has else 4
        fma = "fma" in has or triple.startswith(("arm64", "aarch64"))
        text = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
        return Machine(triple, cpu, text, lanes, "avx512vl" in has, fma)

    @staticmethod
    def host() -> Machine:
        """The machine this process runs on."""
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        return Machine.of(llvm.get_process_triple(), llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features()))

    @property
    def math(self) -> MathTarget:
        return MathTarget(fma=self.fma, avx512=self.masks)

    def target_machine(self, jit: bool = True) -> Any:
        target = llvm.Target.from_triple(self.triple)
        return target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=2, jit=jit, reloc="static" if jit else "pic"
        )


@final
class Code:
    """Compiled functions. The machine code lives as long as this object."""

    __slots__ = ("__weakref__", "_engine", "size")

    def __init__(self, engine: Any, size: int) -> None:
        self._engine = engine
        self.size = size

    def address(self, name: str) -> int:
        return int(self._engine.get_function_address(name))


def optimized(module: ir.Module, machine: Machine) -> tuple[Any, Any]:
    """The module verified and through the few passes that generated loops need, with its target machine."""
    module.triple = machine.triple
    tm = machine.target_machine()
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


HOST: Final = Machine.host()
