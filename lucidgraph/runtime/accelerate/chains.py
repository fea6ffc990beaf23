"""Commands that threads run through without waiting for each other.

Most commands go over rows: of a batch, of a matrix. Where what a command reads in its rows is what an earlier one wrote
in the same rows, a thread can do its rows in both, and finds them in its cache. So neighbouring commands are joined in
a *chain*, whose items are *units*: each command's rows are split among the units so that all dependences stay inside a
unit. Commands that do not depend on each other at all may be in one chain as well; a small one that cannot be split
belongs to one unit. Only where all that is left reads what other units wrote does a chain end, and threads wait.

The units are as many as threads and do not depend on who does them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from llvmlite import ir

from .body import Slots
from .domain import Axis
from .executor import BRIEF_COST, SIGNAL_COST
from .machine import Machine
from .pool import KERNEL
from .values import I8, I64, PTR, Routine
from .writing import KernelWriter

if TYPE_CHECKING:
    from .commands import Addressed, Command

_NEAR: Final = 1 << 20
"""The second cache, in bytes: rows of a unit that do not fit are not there when the next command comes to them."""
_GRAIN: Final = 16
_LONGEST: Final = 64
"""Longer chains are cut: a command is compared with all before it in its chain."""
_PASSED: Final = 8
"""How many commands a chain leaves behind while it looks for more."""


@dataclass(slots=True)
class Lead:
    """How a command's items run over rows.

    There are ``size`` rows of ``per`` items each. Or, where ``step`` is not -1, an item is as many rows as the argument
    at ``step`` says, ``most`` at the most, and that at ``count`` says how many items there are. ``moves``: of each
    pointer the bytes from row to row, 0 where the command reads other rows as well.
    """

    size: int
    moves: list[int]
    per: int = 1
    step: int = -1
    count: int = -1
    most: int = 0


@dataclass(slots=True)
class Member:
    """A command of a chain: unit u does its items from ``bounds[u]`` to before ``bounds[u + 1]``; an item is ``rows``
    rows, if that can be said."""

    command: int
    bounds: list[int]
    rows: int = 0


@final
class _Access:
    """What a member does with a buffer: ``unit`` bytes from ``offset`` on belong to each unit; 0: all of it to each."""

    __slots__ = ("offset", "total", "unit", "writes")

    def __init__(self, writes: bool, offset: int, unit: int, total: int) -> None:
        self.writes, self.offset, self.unit, self.total = writes, offset, unit, total


@dataclass(slots=True)
class _Growing:
    """A chain in the making."""

    units: int
    kept: frozenset[int]
    members: list[Member] = field(default_factory=list)
    accesses: dict[int, list[_Access]] = field(default_factory=dict)
    load: list[int] = field(default_factory=list)

    def take(self, number: int, command: Command) -> bool:
        """Make a command a member, if it can be one."""
        if not command.writes or command.number >= 0 or len(self.members) == _LONGEST:
            return False
        if sum(self.load) + command.cost > SIGNAL_COST:
            return False
        rows = self.rows_of_unit(command)
        if rows is None:
            return False
        made = _split(command, rows, self.units) if rows else None
        if made is None:
            if command.cost >= BRIEF_COST or self.depends(command):
                return False
            unit = self.load.index(min(self.load))
            made = Member(number, [0] * (unit + 1) + [command.items] * (self.units - unit))
            self.load[unit] += command.cost
            rows = 0
        else:
            made.command = number
            self.load = [n + command.cost // self.units for n in self.load]
        self.members.append(made)
        for k, (_, buffer, offset) in enumerate(command.pointers):
            move = command.lead.moves[k] if command.lead and rows else 0
            size = command.lead.size if command.lead else 0
            access = _Access(self.writes(command, k), offset, rows * move, size * move)
            self.accesses.setdefault(buffer, []).append(access)
        return True

    def writes(self, command: Command, k: int) -> bool:
        """Whether a pointer's memory is written, or may be by what takes its place."""
        buffer = command.pointers[k][1]
        if k >= len(command.pointers) - command.writes:
            return True
        return buffer not in self.kept and any(buffer in places for places in command.replaces.values())

    def clashes(self, command: Command, k: int) -> list[_Access]:
        """The earlier accesses that a pointer's depends on."""
        writes = self.writes(command, k)
        return [a for a in self.accesses.get(command.pointers[k][1], ()) if writes or a.writes]

    def depends(self, command: Command) -> bool:
        return any(self.clashes(command, k) for k in range(len(command.pointers)))

    def rows_of_unit(self, command: Command) -> int | None:
        """How many rows a unit has, that all it depends on is its own: 0 if it has none, None if it cannot be."""
        lead, found = command.lead, 0
        for k, (_, _, offset) in enumerate(command.pointers):
            for access in self.clashes(command, k):
                if lead is None or not (move := lead.moves[k]) or not access.unit or access.unit % move:
                    return None
                same = (access.offset, access.total) == (offset, lead.size * move)
                if not same or found not in (0, access.unit // move):
                    return None
                found = access.unit // move
        if found or lead is None:
            return found
        share = -(-lead.size // self.units)
        return -(-share // _GRAIN) * _GRAIN if share >= _GRAIN else share


def _split(command: Command, rows: int, units: int) -> Member | None:
    """A member with so many rows in each unit; None where that leaves units idle or is more than a cache holds."""
    lead = command.lead
    assert lead is not None
    if -(-lead.size // rows) != units or rows * max(lead.moves) > _NEAR:
        return None
    edges = [min(u * rows, lead.size) for u in range(units + 1)]
    if lead.step < 0:
        return Member(0, [n * lead.per for n in edges])
    least = -(-rows // lead.most)
    parts = next((n for n in range(least, least + 8) if rows % n == 0), 0)
    if not parts:
        return None
    item = rows // parts
    return Member(0, [-(-n // item) for n in edges], item)


@final
class _Passed:
    """Commands that a chain has left to come after it: what depends on them comes later too."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._read: set[int] = set()
        self._written: set[int] = set()

    def add(self, number: int, command: Command) -> None:
        self.numbers.append(number)
        for k, (_, buffer, _) in enumerate(command.pointers):
            written = k >= len(command.pointers) - command.writes
            (self._written if written else self._read).add(buffer)

    def holds_up(self, command: Command) -> bool:
        for k, (_, buffer, _) in enumerate(command.pointers):
            written = k >= len(command.pointers) - command.writes
            if buffer in self._written or (written and buffer in self._read):
                return True
        return False


def chains_of(
    commands: Sequence[Command], threads: int, kept: frozenset[int]
) -> tuple[list[int], list[list[Member]]]:  # fmt: skip
    """An order of a plan's commands, and the chains in it: of two commands at least, and worth sharing. ``kept`` are
    buffers in whose place nothing else is put.

    A command that cannot be in a chain, as it reads what other units write, is put after it where what follows does not
    need it: the mean of a loss stands between forward and backward, but ends no chain. What goes past it stays in the
    cache, and costs no memory to speak of. What may end a run, or runs Python, keeps its place.
    """
    order: list[int] = []
    found: list[list[Member]] = []
    waiting = deque(range(len(commands)))
    while waiting:
        growing, passed, moved = _Growing(threads, kept, load=[0] * threads), _Passed(), 0
        taken: list[int] = []
        while waiting and len(passed.numbers) < _PASSED:
            number = waiting[0]
            command = commands[number]
            if not command.writes or command.number >= 0:
                break
            waiting.popleft()
            further = moved + command.moved if passed.numbers else 0
            if further <= _NEAR and not passed.holds_up(command) and growing.take(number, command):
                taken.append(number)
                moved = further
            else:
                passed.add(number, command)
                if not taken:
                    break
        if not taken:
            order.append(passed.numbers[0] if passed.numbers else waiting.popleft())
            continue
        waiting.extendleft(reversed(passed.numbers))
        order += taken
        if len(taken) > 1 and sum(growing.load) >= BRIEF_COST:
            found.append(growing.members)
    return order, found


# -- as a command

_HEAD: Final = 2
"""Words before the members: how many there are, and how many units."""
_RECORD: Final = 3
"""Words of a member besides a bound for each unit: its kernel's address, where its arguments lie, the last bound."""


@final
class ChainCode:
    """The kernel of chains, with those of a chain's members: their addresses are written into its arguments when its
    own is asked for."""

    def __init__(self, code: Addressed, members: Sequence[Addressed], words: list[int]) -> None:
        self.code = code
        self.members = tuple(members)
        self.words = words

    def address(self, name: str) -> int:
        record = _RECORD + self.words[1]
        for k, member in enumerate(self.members):
            self.words[_HEAD + k * record] = member.address(name)
        return self.code.address(name)


def joined(chain: Sequence[Member], commands: Sequence[Command]) -> tuple[list[int], list[int]]:
    """The words of a chain: a record for each member, then their arguments; and where each member's begin."""
    units = len(chain[0].bounds) - 1
    words = [len(chain), units]
    at = _HEAD + len(chain) * (_RECORD + units)
    starts: list[int] = []
    arguments: list[int] = []
    for member in chain:
        command = commands[member.command]
        starts.append(at + len(arguments))
        words += [0, 8 * starts[-1], *member.bounds]
        if member.rows and command.lead is not None:
            command.words[command.lead.step] = member.rows
            command.words[command.lead.count] = -(-command.lead.size // member.rows)
        arguments += command.words
    return words + arguments, starts


def chain_kernel(machine: Machine) -> ir.Module:
    """The kernel of every chain: for each unit, each member's items."""
    module = ir.Module(name="chain")
    w = KernelWriter(module, machine, 1)
    b, (args, begin, end, thread) = w.b, w.fn.args
    members, units = w.argument(0), w.argument(1)
    size = b.add(units, I64(_RECORD))
    with w.loop(begin, end) as unit, w.loop(I64(0), members) as k:
        record = b.gep(args, [b.add(b.mul(k, size), I64(_HEAD))], source_etype=I64)

        def word(at: ir.Value) -> ir.Value:
            return b.load(b.gep(record, [at], source_etype=I64), typ=I64)

        first, last = word(b.add(unit, I64(2))), word(b.add(unit, I64(3)))
        with b.if_then(b.icmp_signed("<", first, last)):
            call = Routine(b.inttoptr(word(I64(0)), PTR), KERNEL)
            b.call(call, [b.gep(args, [word(I64(1))], source_etype=I8), first, last, thread])
    b.ret_void()
    return module


def lead_of(
    slots: Slots, outer: Sequence[Axis], inner: Sequence[Axis], vector: Axis, itemsizes: Sequence[int], items: int,
    together: tuple[int, int],
) -> Lead | None:  # fmt: skip
    """The rows of a kernel: its first axis, or the vectors' where that is the only one kept. ``together``: how many of
    the vectors' axis an item takes, and how many of an outer one."""
    layout = slots.layout
    if outer:
        first, others = outer[0], [*outer[1:], *inner, vector]
    elif layout.columns:
        first, others = vector, list(inner)
    else:
        return None
    moves = []
    for k, itemsize in enumerate(itemsizes):
        move = first.strides[k]
        apart = all(a.strides[k] >= 0 for a in others) and itemsize + sum(
            a.strides[k] * (a.size - 1) for a in others if a.size
        ) <= move
        moves.append(move if apart else 0)
    if outer and layout.within == len(outer):
        return Lead(first.size, moves, step=slots.head("block"), count=slots.head("blocks"), most=together[1])
    if outer:
        return Lead(first.size, moves, items // max(first.size, 1))
    return Lead(first.size, moves, step=slots.head("chunk"), count=slots.head("chunks"), most=together[0])


__all__ = ["ChainCode", "Lead", "Member", "chain_kernel", "chains_of", "joined", "lead_of"]
