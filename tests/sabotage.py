"""Runs one tracker process with a planted fault: for showing that what is wrong does not pass.

    python -m tests.sabotage early|lost|double|lifted -- serve --shard 0 --peers ... --store ...

early: every min time that is read is a slot further than what was announced, until it is complete.
lost: one acknowledged tick with items is forgotten. double: one is applied twice. lifted: messages have
no limits but the largest. What follows `--` is the normal command line, in the same process; production
code knows nothing of this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tracker.core.log import KeyTick
from tracker.core.model.slots import FOREVER
from tracker.core.process import Process
from tracker.core.shard.shard import ShardPipeline

SPARED_TICKS = 20
"""Ticks with items that are applied as they should be, before the fault: a run is under way by then."""


def announce_early() -> None:
    """Whoever hears or reads a min time gets the slot after it."""
    min_times = Process.min_times

    def early(process: Process, pipeline: str) -> tuple[int, ...]:
        start = process.spec(pipeline).start_slot
        return tuple(
            slot if slot in (start, FOREVER) else slot + 1 for slot in min_times(process, pipeline)
        )

    Process.min_times = early  # type: ignore[method-assign,assignment]


def lose_a_tick() -> None:
    """Of one tick only its number is remembered."""
    apply_tick = ShardPipeline.apply_tick

    def forget(shard: ShardPipeline, entry: KeyTick, home: int) -> set[int]:
        shard.keys[entry.tick.key].number = entry.tick.number
        return set()

    _once(apply_tick, forget)


def apply_a_tick_twice() -> None:
    """One tick passes the check for repeated numbers."""
    apply_tick = ShardPipeline.apply_tick

    def twice(shard: ShardPipeline, entry: KeyTick, home: int) -> set[int]:
        arrived = apply_tick(shard, entry, home)
        shard.keys[entry.tick.key].number = entry.tick.number - 1
        return arrived | apply_tick(shard, entry, home)

    _once(apply_tick, twice)


def _once(
    apply_tick: Callable[[ShardPipeline, KeyTick, int], set[int]],
    fault: Callable[[ShardPipeline, KeyTick, int], set[int]],
) -> None:
    """Applies ticks as they should be, but one with items with a fault."""
    seen = 0

    def apply(shard: ShardPipeline, entry: KeyTick, home: int) -> set[int]:
        nonlocal seen
        seen += bool(len(entry.tick.content.created))
        if seen == SPARED_TICKS and len(entry.tick.content.created):
            seen += 1
            print(f"sabotage: {fault.__name__} {entry.tick.key} {entry.tick.number}", flush=True)
            return fault(shard, entry, home)
        return apply_tick(shard, entry, home)

    ShardPipeline.apply_tick = apply  # type: ignore[method-assign,assignment]


FAULTS: dict[str, Callable[[], None]] = {
    "early": announce_early,
    "lost": lose_a_tick,
    "double": apply_a_tick_twice,
}


def lift_limits() -> None:
    """Every port unpacks what is compressed, and takes messages of 64 MiB."""
    from tracker.wire import grpc_options

    for name in ("PROBE_OPTIONS", "SERVER_OPTIONS", "ELSEWHERE_OPTIONS"):
        options = dict(getattr(grpc_options, name))
        options.pop("grpc.compression_enabled_algorithms_bitset")
        options["grpc.max_receive_message_length"] = grpc_options.MAX_MESSAGE_BYTES
        setattr(grpc_options, name, tuple(options.items()))


LIFTED: dict[str, Callable[[], None]] = {"lifted": lift_limits}
"""For the siege: what the others look at is as it should be."""


def main(arguments: list[str]) -> None:
    """Plants the fault, then runs the command line."""
    faults = FAULTS | LIFTED
    if len(arguments) < 2 or arguments[0] not in faults or arguments[1] != "--":
        usage = f"usage: python -m tests.sabotage {'|'.join(faults)} -- COMMAND ..."
        raise SystemExit(usage)
    faults[arguments[0]]()
    from tracker.cli import main as command_line

    sys.argv = ["lowmark", *arguments[2:]]
    command_line()


if __name__ == "__main__":
    main(sys.argv[1:])
