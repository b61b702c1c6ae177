"""Whether a frame of another process can be taken at all: all of it, or none (promise 5).

Processes trust one another, and what another home has accepted is not judged again. But a frame whose
numbers point nowhere (a broken link, a process of another version, or one that was started with other
settings) must not be taken in part, and must not reach the log, where it would stop this process again
and again. It is refused before it changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from tracker.core.home import MAX_ITEMS_PER_CELL
from tracker.core.messages import (
    Entries,
    Entry,
    Frame,
    KeyOpened,
    KeyTick,
    PipelineRegistered,
    PipelineReport,
    PipelineRestarted,
    Restart,
    ShardReport,
    WrittenOff,
)
from tracker.core.model import Cells, PipelineSpec, RefusalCode, Refused
from tracker.core.process.state import ProcessState
from tracker.core.registration import check_spec
from tracker.core.rescaling import ROUTING_ENTRIES, CellsMoved, RoutingEntry, ShardLeft
from tracker.core.slots import HIGHEST_SLOT


def check_frame(process: ProcessState, frame: Frame) -> None:
    """Raises Refused(INVALID), naming the first thing that points nowhere, if a frame that the process
    would take cannot be taken whole."""
    link = process.links.get(frame.shard)
    if link is None or frame.epoch < link.epoch:
        return  # it is passed over
    if isinstance(frame.body, ShardReport):
        _check_report(process, frame.body)
    elif isinstance(frame.body, Entries):
        due = link.accepted + 1
        if frame.body.first <= due:
            _check_entries(process, frame.body.entries[due - frame.body.first :])


def _check_entries(process: ProcessState, entries: Iterable[Entry]) -> None:
    specs: dict[str, PipelineSpec] = {}
    for entry in entries:
        if isinstance(entry, PipelineRegistered):
            check_spec(entry.spec)
            specs.setdefault(entry.spec.name, entry.spec)
            continue
        if isinstance(entry, ROUTING_ENTRIES):
            _check_step(process, entry)
            continue
        name = entry.tick.pipeline if isinstance(entry, KeyTick) else entry.pipeline
        known = process._pipelines.get(name)
        spec = known.spec if known else process._registering.get(name) or specs.get(name)
        if spec is None:
            return  # from here on nothing is taken
        if isinstance(entry, KeyTick):
            _check_tick(spec, entry)
        elif isinstance(entry, WrittenOff) and len(entry.cells):
            _check_places(spec, entry.cells)
        elif isinstance(entry, KeyOpened | PipelineRestarted) and entry.restart is not None:
            _check_restart(spec, entry.restart)


def _check_step(process: ProcessState, entry: RoutingEntry) -> None:
    if isinstance(entry, CellsMoved) and entry.pipeline in process._pipelines:
        spec = process._pipelines[entry.pipeline].spec
        if len(entry.cells):
            _check_places(spec, entry.cells)
        _check_segments(spec, [unit.segment for unit in entry.units])
        _check_segments(spec, [cell.segment for cell in entry.written_off])
    elif isinstance(entry, ShardLeft):
        for words in entry.pipelines:
            known = process._pipelines.get(words.pipeline)
            if known is not None and len(words.said) != len(known.spec.segments):
                raise _refused(
                    words.pipeline,
                    f"{len(words.said)} segments; it has {len(known.spec.segments)}",
                )


def _check_tick(spec: PipelineSpec, entry: KeyTick) -> None:
    content = entry.tick.content
    for cells in (content.created, content.consumed, entry.late):
        if len(cells):
            _check_cells(spec, cells)
    numbers = [unit.segment for unit in content.units_created + content.units_consumed]
    _check_segments(spec, numbers + [join.segment for join in content.joins])


def _check_restart(spec: PipelineSpec, restart: Restart) -> None:
    if restart.generation < 1 or restart.from_slot > HIGHEST_SLOT:
        raise _refused(
            spec.name,
            f"generation {restart.generation} from slot {restart.from_slot}; they count from 1, and the "
            f"largest slot is {HIGHEST_SLOT}",
        )


def _check_places(spec: PipelineSpec, cells: Cells) -> None:
    _check_segments(spec, (int(cells.segments.min()), int(cells.segments.max())))
    if int(cells.slots.max()) > HIGHEST_SLOT:
        raise _refused(spec.name, f"slot {int(cells.slots.max())}; the largest is {HIGHEST_SLOT}")


def _check_cells(spec: PipelineSpec, cells: Cells) -> None:
    _check_places(spec, cells)
    least, most = int(cells.counts.min()), int(cells.counts.max())
    if least < 0 or most > MAX_ITEMS_PER_CELL:
        raise _refused(
            spec.name,
            f"{least if least < 0 else most} items in one cell; a number of items lies within 0 and "
            f"{MAX_ITEMS_PER_CELL}",
        )


def _check_segments(spec: PipelineSpec, numbers: Iterable[int]) -> None:
    for number in numbers:
        if not 0 <= number < len(spec.segments):
            raise _refused(
                spec.name, f"segment number {number}; it has {len(spec.segments)}, from 0"
            )


def _check_report(process: ProcessState, report: ShardReport) -> None:
    homes = [home for home, _ in report.applied + report.cut]
    homes += [run.home for pipeline in report.pipelines for run in pipeline.runs]
    for home in homes:
        if home != process.shard and not process.membership.knows(home):
            raise Refused(
                RefusalCode.INVALID,
                f"a report names shard {home}, but the shards are {list(process.routing.shards)}: "
                "were all processes started with the same list?",
            )
    for pipeline in report.pipelines:
        known = process._pipelines.get(pipeline.pipeline)
        if known is not None:
            _check_segments(known.spec, _segments_of(pipeline))


def _segments_of(report: PipelineReport) -> list[int]:
    return [
        *(low.segment for low in report.lows),
        *(front.segment for front in report.fronts),
        *(segment for run in report.runs for segment, _ in run.touched),
        *(segment for segment, _ in report.announced),
    ]


def _refused(pipeline: str, what: str) -> Refused:
    return Refused(
        RefusalCode.INVALID,
        f"a frame names, for pipeline {pipeline!r}, {what}: is the other process of another version?",
    )
