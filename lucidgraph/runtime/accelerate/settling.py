"""The last steps of a plan: which commands threads run through without waiting, and where its buffers lie."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import final

from .arena import Arena, aligned
from .chains import ChainCode, Member, chains_of, joined
from .commands import Addressed, Buffer, Command, Plan
from .executor import SHARED_COST


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
                self.replaced.add(id(other))
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

    def assign(self) -> None:
        """Offsets in the arena: first fit, in the order in which the temporaries are written."""
        temporaries = sorted(
            (b for b in self.plan.buffers if b.kind == "temporary" and b.nbytes), key=lambda b: b.first
        )
        arena = Arena()
        # Threads in a chain may be at any of its commands: its buffers are all alive from its first to its last.
        starts = list(range(len(self.plan.commands)))
        for chain in self.chains:
            for member in chain:
                starts[member.command] = chain[0].command
        # By the command that reads them last; what another has replaced does not come free.
        ends: list[tuple[int, int]] = []
        for k, buffer in enumerate(temporaries):
            while ends and (ends[0][0] < 0 or starts[ends[0][0]] < starts[buffer.first]):
                dead = temporaries[heapq.heappop(ends)[1]]
                if id(dead) not in self.replaced:
                    arena.give(dead.offset, dead.nbytes)
            dying = self.dying(buffer)
            buffer.offset = arena.take(buffer.nbytes) if dying is None else dying.offset
            heapq.heappush(ends, (buffer.last, k))
        for number, source, target in self.moves:
            if id(self.plan.buffers[source]) in self.replaced:
                both = self.plan.buffers[source], self.plan.buffers[target]
                if all(b.kind == "temporary" for b in both) and both[0].offset == both[1].offset:
                    self.plan.commands[number].idle = True
        self.plan.arena = arena.size
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
            made.moved, made.form = sum(c.moved for c in members), "a chain over the same rows"
            merged += [*commands[at:first], made]
            at = stop
        self.plan.commands = merged + commands[at:]
        for number, command in enumerate(self.plan.commands, start=1):
            if command.number >= 0:
                command.words[command.number] = number


__all__ = ["Settling"]
