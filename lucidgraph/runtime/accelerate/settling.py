"""The last steps of a plan: which commands threads run through without waiting, and where its buffers lie."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, final

from .arena import Arena, aligned
from .chains import ChainCode, Member, chains_of, joined
from .commands import Addressed, Buffer, Command, Plan
from .executor import SHARED_COST
from .memory import LARGE

_ROOMS: Final = 16
"""In so many outputs, the largest, temporaries are put."""


@final
class Settling:
    """``moves`` are the commands that only copy one buffer's elements to the same places of another, as (command,
    from, to); ``scratch_of`` the slots that take the address of the scratch memory."""

    def __init__(
        self,
        plan: Plan,
        donated: frozenset[int],
        moves: Sequence[tuple[int, int, int]],
        scratch_of: Sequence[tuple[Command, int]],
    ) -> None:
        self.plan = plan
        self.donated = donated
        self.moves = moves
        self.scratch_of = scratch_of
        self.replaced: set[int] = set()
        self.number_of = {id(b): k for k, b in enumerate(plan.buffers)}
        self.chains: list[list[Member]] = []
        self.starts: list[int] = []
        """Of each command the first of its chain."""

    def run(self, chain_code: Callable[[], Addressed]) -> None:
        """``chain_code`` gives the kernel of chains."""
        if self.plan.threads > 1 and self.plan.cost >= SHARED_COST:
            kept = (k for k, b in enumerate(self.plan.buffers) if b.kind != "temporary" and not self.is_donated(b))
            order, self.chains = chains_of(self.plan.commands, self.plan.threads, frozenset(kept))
            self.arrange(order)
        self.reuse_donated()
        self.assign()
        self.join(chain_code)

    def arrange(self, order: Sequence[int]) -> None:
        """Put the commands into this order."""
        if order == sorted(order):
            return
        place = {number: k for k, number in enumerate(order)}
        self.plan.commands = [self.plan.commands[number] for number in order]
        self.moves = [(place[number], source, target) for number, source, target in self.moves]
        for chain in self.chains:
            for member in chain:
                member.command = place[member.command]
        for buffer in self.plan.buffers:
            buffer.first = buffer.last = -1
        for number, command in enumerate(self.plan.commands):
            command.touch(self.plan.buffers, number)

    def dying(self, buffer: Buffer) -> Buffer | None:
        """A temporary read for the last time by the command that writes ``buffer``, which may lie in its place."""
        if buffer.first < 0:
            return None
        command = self.plan.commands[buffer.first]
        for place in command.replaces.get(self.number_of[id(buffer)], ()):
            other = self.plan.buffers[place]
            dies = other.kind == "temporary" and other.last == buffer.first and other.nbytes == buffer.nbytes
            if dies and id(other) not in self.replaced:
                return other
        return None

    def is_donated(self, buffer: Buffer) -> bool:
        return buffer.kind == "input" and buffer.index in self.donated

    def reuse_donated(self) -> None:
        """Put outputs where donated inputs lay, if nothing reads those later."""
        for number, buffer in enumerate(self.plan.buffers):
            if buffer.kind != "output" or buffer.first < 0:
                continue
            for place in self.plan.commands[buffer.first].replaces.get(number, ()):
                other = self.plan.buffers[place]
                free = self.is_donated(other) and other.last == buffer.first
                if free and other.nbytes == buffer.nbytes and other.index not in self.plan.reused.values():
                    self.plan.reused[buffer.index] = other.index
                    break

    def grow_in_place(self) -> list[_Room]:
        """Let what an output replaces, element for element, lie in the output from the start; and the rooms that
        outputs are until they are written."""
        rooms: list[_Room] = []
        for buffer in [b for b in self.plan.buffers if b.kind == "output" and b.first >= 0]:
            if buffer.index in self.plan.reused:
                continue
            newest, first = buffer, buffer.first
            while (other := self.dying(newest)) is not None:
                self.replaced.add(id(other))
                other.kind, other.index = "output", buffer.index
                newest, first = other, min(first, other.first)
            # Smaller ones are NumPy's, and not aligned as temporaries are.
            if buffer.nbytes >= LARGE and self.starts[first]:
                rooms.append(_Room(self.starts[first], buffer.index, Arena(buffer.nbytes)))
        largest = sorted(rooms, key=lambda room: room.arena.most or 0, reverse=True)[:_ROOMS]
        return sorted(largest, key=lambda room: room.stop)

    def assign(self) -> None:
        """Places for the temporaries, in the order in which they are written: that of one which dies there, else the
        first that fits in an output not yet written, else in the arena."""
        commands = self.plan.commands
        # Threads in a chain may be at any of its commands: its buffers are all alive from its first to its last.
        self.starts = list(range(len(commands)))
        for chain in self.chains:
            for member in chain:
                self.starts[member.command] = chain[0].command
        rooms = [*self.grow_in_place(), _Room(len(commands), -1, Arena())]
        temporaries = sorted(
            (b for b in self.plan.buffers if b.kind == "temporary" and b.nbytes), key=lambda b: b.first
        )
        lying: dict[int, _Room] = {}
        # By the command that reads them last; what another has replaced does not come free.
        ends: list[tuple[int, int]] = []
        for k, buffer in enumerate(temporaries):
            while ends and (ends[0][0] < 0 or self.starts[ends[0][0]] < self.starts[buffer.first]):
                dead = temporaries[heapq.heappop(ends)[1]]
                if id(dead) not in self.replaced:
                    lying[id(dead)].arena.give(dead.offset, dead.nbytes)
            end = self.starts[max(buffer.last, buffer.first)]
            dying = self.dying(buffer)
            if dying is not None and end < lying[id(dying)].stop:
                self.replaced.add(id(dying))
                room, offset = lying[id(dying)], dying.offset
            else:
                room, offset = _first_fit(rooms, end, buffer.nbytes)
            lying[id(buffer)], buffer.offset = room, offset
            heapq.heappush(ends, (buffer.last, k))
        for buffer in temporaries:
            room = lying[id(buffer)]
            if room.output >= 0:
                buffer.kind, buffer.index = "output", room.output
        for number, source, target in self.moves:
            if id(self.plan.buffers[source]) in self.replaced:
                both = self.plan.buffers[source], self.plan.buffers[target]
                if both[0].kind in ("temporary", "output") and _place(both[0]) == _place(both[1]):
                    commands[number].idle = True
        self.plan.arena = rooms[-1].arena.size
        scratch = self.plan.arena
        if self.plan.scratch:
            self.plan.arena += aligned(self.plan.scratch)
            self.plan.buffers.append(Buffer("temporary", self.plan.scratch, offset=scratch))
            for command, slot in self.scratch_of:
                command.pointers.append((slot, len(self.plan.buffers) - 1, 0))

    def join(self, chain_code: Callable[[], Addressed]) -> None:
        """Put one command in the place of each chain, and number those that need it."""
        commands, merged, at = self.plan.commands, list[Command](), 0
        for chain in self.chains:
            first, stop = chain[0].command, chain[-1].command + 1
            members = commands[first:stop]
            words, starts = joined(chain, commands)
            pointers = [
                (start + slot, buffer, offset)
                for start, c in zip(starts, members, strict=True)
                for slot, buffer, offset in c.pointers
            ]
            code = ChainCode(chain_code(), [c.code for c in members], words)
            name, cost = " | ".join(c.name for c in members), sum(c.cost for c in members)
            made = Command(name, code, words, pointers, self.plan.threads, True, cost, writes=0)
            for start, c in zip(starts, members, strict=True):
                made.products.update({start + slot: name for slot, name in c.products.items()})
                made.calls.update({start + slot: called for slot, called in c.calls.items()})
            made.moved, made.form = sum(c.moved for c in members), "a chain over the same rows"
            merged += [*commands[at:first], made]
            at = stop
        self.plan.commands = merged + commands[at:]
        for number, command in enumerate(self.plan.commands, start=1):
            if command.number >= 0:
                command.words[command.number] = number


class _Room(NamedTuple):
    """Where temporaries may lie that are read for the last time before the command ``stop``: in an output, or (-1) in
    memory of their own."""

    stop: int
    output: int
    arena: Arena


def _first_fit(rooms: Sequence[_Room], end: int, nbytes: int) -> tuple[_Room, int]:
    """A place that is needed until the command ``end``."""
    for room in rooms:
        offset = room.arena.take(nbytes) if end < room.stop else None
        if offset is not None:
            return room, offset
    raise AssertionError("the last room has no bounds")


def _place(buffer: Buffer) -> tuple[str, int, int]:
    return buffer.kind, buffer.index, buffer.offset


__all__ = ["Settling"]
