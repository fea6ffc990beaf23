"""A plan in words: what runs, in which order, how, over how many bytes."""

from __future__ import annotations

from collections.abc import Iterator

from .commands import STOP, Command, Plan


def listed(plan: Plan) -> str:
    """The commands in order, and where their operands and results lie."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    moved = sum(c.moved for c in plan.commands if not c.idle)
    yield (
        f"arena {plan.arena:,} bytes, {len(plan.commands)} commands on {plan.threads} threads, {moved:,} bytes moved"
    )
    for k, command in enumerate(plan.commands):
        where = [_place(plan, buffer, offset) for _, buffer, offset in command.pointers if buffer != STOP]
        yield f"  {k}. {command.name}: {_work(plan, command)}: {', '.join(where)}"


def _work(plan: Plan, command: Command) -> str:
    if command.idle:
        return "nothing to do, it lies there"
    threads = min(plan.threads, command.items) if command.split else 1
    form = f"{command.form}, " if command.form else ""
    return f"{form}{command.items} items on {threads} thread{'s' * (threads > 1)}, {command.moved:,} bytes"


def _place(plan: Plan, number: int, offset: int) -> str:
    """A buffer and the byte in it: a temporary by its place in the arena, which others may share."""
    buffer = plan.buffers[number]
    if buffer.kind == "temporary":
        return f"arena+{buffer.offset + offset}"
    offset += buffer.offset
    return f"{buffer.kind}{buffer.index}" + (f"+{offset}" if offset else "")


__all__ = ["listed"]
