"""Runs one tracker process with a planted fault: for showing that what is wrong does not pass.

    python -m tests.sabotage early|lost|double|twice|lifted|halved|open|undeclared|renamed -- serve --shard 0 --peers ... --store ...

early: every min time that is read, of a segment or of a whole pipeline, is a slot further than what was announced,
until it is complete.
lost: one acknowledged tick with items is forgotten, with those that are applied at once with it.
double: the same are applied twice. twice: a group goes on with the pipelines that have moved to another. lifted: messages have no limits but the largest. halved: this process reckons without the
edges that a pipeline got while it ran, where others reckon with them. open: every token sees everything over HTTP.
undeclared: answers over HTTP have a field that their document has not. renamed: a metric has another name. What follows `--` is the normal
command line, in the same process; production code knows nothing of this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import grpc

from tracker.core.cut.graph import SegmentGraph
from tracker.core.log.steps import MoveEnded
from tracker.core.model import Cells
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.process import Process
from tracker.core.shard.shard import ShardPipeline
from tracker.wire.grpc_options import MAX_MESSAGE_BYTES

SPARED_TICKS = 20
"""So often ticks with items are applied as they should be, before the fault: a run is under way by then."""


def announce_early() -> None:
    """Whoever hears or reads a min time gets the slot after it."""
    min_times, pipeline_min_time = Process.min_times, Process.pipeline_min_time

    def further(process: Process, pipeline: str, slot: int) -> int:
        return slot if slot in (process.spec(pipeline).start_slot, FOREVER) else slot + 1

    def early(process: Process, pipeline: str) -> tuple[int, ...]:
        return tuple(further(process, pipeline, slot) for slot in min_times(process, pipeline))

    def all_early(process: Process, pipeline: str) -> int:
        return further(process, pipeline, pipeline_min_time(process, pipeline))

    Process.min_times = early  # type: ignore[method-assign,assignment]
    Process.pipeline_min_time = all_early  # type: ignore[method-assign,assignment]


def lose_a_tick() -> None:
    """Of one tick only its number is remembered."""
    _once(lambda apply: None)


def apply_a_tick_twice() -> None:
    """One tick is applied, and applied again."""

    def twice(apply: Callable[[], None]) -> None:
        apply()
        apply()

    _once(twice)


def _once(fault: Callable[[Callable[[], None]], None]) -> None:
    """Applies ticks as they should be, but one with items with a fault, and those that are applied at once with it."""
    apply_cells = ShardPipeline._apply_cells  # noqa: SLF001 - what is planted in it passes no other door
    seen = 0

    def apply(shard: ShardPipeline, created: Cells, consumed: Cells, home: int) -> None:
        nonlocal seen
        as_it_should_be = partial(apply_cells, shard, created, consumed, home)
        seen += bool(created.size)
        if seen == SPARED_TICKS and created.size:
            seen += 1
            print(f"sabotage: a tick of home {home} in slots {created.slots}", flush=True)
            fault(as_it_should_be)
        else:
            as_it_should_be()

    ShardPipeline._apply_cells = apply  # type: ignore[method-assign,assignment]  # noqa: SLF001


FAULTS: dict[str, Callable[[], None]] = {
    "early": announce_early,
    "lost": lose_a_tick,
    "double": apply_a_tick_twice,
}


def lift_limits() -> None:
    """Every port unpacks what is compressed, and takes messages of 64 MiB."""
    server = grpc.aio.server

    def unlimited(*, options: Any, **more: Any) -> Any:
        lifted = {**dict(options), "grpc.max_receive_message_length": MAX_MESSAGE_BYTES}
        lifted.pop("grpc.compression_enabled_algorithms_bitset")
        return server(options=tuple(lifted.items()), **more)

    grpc.aio.server = unlimited  # type: ignore[assignment]


def forget_new_edges() -> None:
    """Min times rest on the edges with which a pipeline was registered, and on no other."""
    find_graphs = Pipeline._find_graphs  # noqa: SLF001 - all that min times rest on is found here

    def without_new_ones(pipeline: Pipeline) -> None:
        find_graphs(pipeline)
        old = tuple(edge for edge in pipeline.spec.edges if edge in pipeline.registered.edges)
        pipeline.graph = pipeline.remaining = SegmentGraph(replace(pipeline.spec, edges=old))
        pipeline.combiner.go_by(pipeline.graph, pipeline.combiner.removed)

    Pipeline._find_graphs = without_new_ones  # type: ignore[method-assign,assignment]  # noqa: SLF001


def keep_what_has_moved() -> None:
    """The group that a pipeline leaves goes on with it, as if the move had been given up."""
    from tracker.core.moving.moves import Moves

    end_going = Moves._end_going  # noqa: SLF001 - what ends there begins nowhere else again

    def staying(moves: Moves, name: str, entry: MoveEnded, now_ns: int) -> None:
        end_going(moves, name, replace(entry, here=True), now_ns)

    Moves._end_going = staying  # type: ignore[method-assign,assignment]  # noqa: SLF001


def let_every_token_see() -> None:
    """Over HTTP, whoever has a token sees every pipeline."""
    from tracker.service.http.gate import TokenGate
    from tracker.service.rpc.tokens import Right, Token

    viewer = TokenGate.viewer

    def seeing(gate: TokenGate, authorization: str) -> Token:
        return replace(viewer(gate, authorization), rights={"*": frozenset(Right)})

    TokenGate.viewer = seeing  # type: ignore[method-assign,assignment]


def answer_what_is_not_declared() -> None:
    """Answers over HTTP have a field more."""
    from tracker.dashboard.answers import Answer

    dumped = Answer.model_dump_json

    def more(answer: Answer, **how: Any) -> str:
        return dumped(answer, **how)[:-1] + ',"more_than_that":1}'

    Answer.model_dump_json = more  # type: ignore[method-assign,assignment]


def rename_a_metric() -> None:
    """What is scraped has the lag of segments by another name."""
    from tracker.service.http import metrics

    def render_otherwise(*given: Any, **more: Any) -> bytes:
        return rendered(*given, **more).replace(
            b"lowmark_segment_lag_seconds", b"lowmark_segment_late_by_seconds"
        )

    rendered = vars(metrics)["render"]
    vars(metrics)["render"] = render_otherwise


OTHERS: dict[str, Callable[[], None]] = {
    "twice": keep_what_has_moved,
    "lifted": lift_limits,
    "halved": forget_new_edges,
    "open": let_every_token_see,
    "undeclared": answer_what_is_not_declared,
    "renamed": rename_a_metric,
}
"""For groups, for the siege, for changes, for the API over HTTP and for dashboards: what the others look at is as it should be."""


def main(arguments: list[str]) -> None:
    """Plants the fault, then runs the command line."""
    faults = FAULTS | OTHERS
    if len(arguments) < 2 or arguments[0] not in faults or arguments[1] != "--":
        usage = f"usage: python -m tests.sabotage {'|'.join(faults)} -- COMMAND ..."
        raise SystemExit(usage)
    faults[arguments[0]]()
    from tracker.cli import main as command_line

    sys.argv = ["lowmark", *arguments[2:]]
    command_line()


if __name__ == "__main__":
    main(sys.argv[1:])
