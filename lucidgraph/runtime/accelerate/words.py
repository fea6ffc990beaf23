"""The tables that the native entry reads, as words; and code over words of memory and CPython's functions."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from llvmlite import ir

from .values import I8, I64, PTR

STEP_WORDS: Final = 9
RESULT_WORDS: Final = 6
MAKE_WORDS: Final = 3
WAY: Final = {
    name: k
    for k, name in enumerate((
        "next", "epoch", "positional", "keywords", "names", "owner", "steps", "step", "inputs", "results", "result",
        "free", "hits", "makes", "make", "stopped", "run", "count", "most", "cost", "python",
        "bare", "extras", "extra", "errors", "lates", "late",
        "values", "data", "objects", "scalars", "held", "made", "stack", "buffers",
    ))
}  # fmt: skip
"""The words of a form of call. ``steps``, ``lates``, ``results``, ``makes``: how many there are, each followed by where
they lie; ``bare``: a library's function that takes the inputs, then the ``extra`` objects; ``free``: the first instance
that no run has; from ``values`` on: where in the frame of a call what lies."""
INSTANCE: Final = {name: k for k, name in enumerate(("next", "table", "stop", "fixups", "fixup"))}
RECORD: Final = {name: k for k, name in enumerate(("first", "epoch", "slow", "frame"))}
"""The words of a function: its first form, the address of the epoch, what to call otherwise, the words of a frame."""
SPARE: Final = 1
"""The first of three words of a frame for results of CPython's functions, after the count of references held."""
RAN: Final = 4
"""Whether a check has run Python code."""
BUFFERS: Final = 5
"""How many buffers are held."""
FRAME_WORDS: Final = 6
LATE_WORDS: Final = 3
NULL: Final = ir.Constant(PTR, None)


class Writer:
    """Appends code to a block: words of memory, and calls of CPython."""

    def __init__(self, module: ir.Module, name: str, arguments: int) -> None:
        found = module.globals.get(name)
        self.fn = found or ir.Function(module, ir.FunctionType(PTR, [PTR] * arguments), name)
        # The interpreter ends daemon threads where they ask for its lock back: by unwinding their stacks.
        self.fn.attributes.add("uwtable")
        self.module = module
        self.b = ir.IRBuilder(self.fn.append_basic_block("entry"))

    def block(self, name: str) -> ir.Block:
        return self.fn.append_basic_block(name)

    def at(self, base: ir.Value, word: int | ir.Value, offset: int = 0) -> ir.Value:
        """The address of a word after ``base``, or ``offset`` bytes after it."""
        index = I64(word) if isinstance(word, int) else word
        place = self.b.gep(base, [index], source_etype=I64)
        return self.b.gep(place, [I64(offset)], source_etype=I8) if offset else place

    def word(self, base: ir.Value, word: int | ir.Value = 0, offset: int = 0) -> ir.Value:
        return self.b.load(self.at(base, word, offset), typ=I64)

    def pointer(self, base: ir.Value, word: int | ir.Value = 0, offset: int = 0) -> ir.Value:
        return self.b.load(self.at(base, word, offset), typ=PTR)

    def put(self, value: ir.Value, base: ir.Value, word: int | ir.Value = 0) -> None:
        self.b.store(value, self.at(base, word))

    def call(self, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        found = self.module.globals.get(name)
        if found is None:
            found = ir.Function(self.module, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.b.call(found, list(arguments))

    def same(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.b.icmp_unsigned("==", a, b)

    def null(self, pointer: ir.Value) -> ir.Value:
        return self.same(pointer, NULL)

    def unless(self, condition: ir.Value, otherwise: ir.Block) -> None:
        """Go on where the condition holds, to ``otherwise`` where not."""
        on = self.block("on")
        self.b.cbranch(condition, on, otherwise)
        self.b.position_at_end(on)

    def cases(self, value: ir.Value, of: type[IntEnum], otherwise: ir.Block) -> dict[IntEnum, ir.Block]:
        """A block for each member of an enumeration; goes to the one that ``value`` is."""
        switch = self.b.switch(value, otherwise)
        blocks = {member: self.block(f"{of.__name__}.{member.name}") for member in of}
        for member, block in blocks.items():
            switch.add_case(I64(member.value), block)
        return blocks

    def loop(self, count: ir.Value, name: str) -> Loop:
        return Loop(self, count, name)


class Loop:
    """``with writer.loop(count, name) as k:`` for k from 0 up."""

    def __init__(self, writer: Writer, count: ir.Value, name: str) -> None:
        self.w = writer
        self.count = count
        self.head, self.body, self.after = (writer.block(f"{name}.{part}") for part in ("head", "body", "after"))

    def __enter__(self) -> ir.Value:
        b = self.w.b
        self.before = b.block
        b.branch(self.head)
        b.position_at_end(self.head)
        self.k = b.phi(I64)
        self.k.add_incoming(I64(0), self.before)
        b.cbranch(b.icmp_signed("<", self.k, self.count), self.body, self.after)
        b.position_at_end(self.body)
        return self.k

    def __exit__(self, *exc: object) -> None:
        b = self.w.b
        self.k.add_incoming(b.add(self.k, I64(1)), b.block)
        b.branch(self.head)
        b.position_at_end(self.after)


__all__ = [
    "BUFFERS", "FRAME_WORDS", "INSTANCE", "LATE_WORDS", "MAKE_WORDS", "NULL", "RAN", "RECORD", "RESULT_WORDS", "SPARE",
    "STEP_WORDS", "WAY", "Writer",
]  # fmt: skip
