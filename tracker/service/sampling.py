"""Samples how far each pipeline is behind, once a second, within a budget of memory and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import islice

import structlog

from tracker.core.insight.freshness import NONE_MS, Freshness, Lag, SegmentFreshness
from tracker.core.model import PipelineSpec, RefusalCode, Refused, TimeKind
from tracker.core.model.slots import FOREVER, LOWEST_SLOT, slot_start_ns
from tracker.core.process import Process
from tracker.service.tasks import end

log = structlog.get_logger(__name__)

SAMPLE_INTERVAL_S = 1.0
MAX_SAMPLES_PER_ROUND = 500
"""Pipelines sampled at once; where there are more, each has its turn, and its samples lie further apart."""
MAX_SAMPLED_SEGMENTS = 3_000
"""Segments, pipelines themselves counted too, whose samples are kept: some 30 MB of memory. Pipelines
that are registered beyond it are not sampled, and asking for theirs is refused."""
MAX_LAG_MS = 2**53
"""What is further behind counts as this."""

_MS = 1_000_000


class Sampler:
    """The samples of all pipelines of one process."""

    def __init__(self, process: Process, now_unix_ns: Callable[[], int] = time.time_ns) -> None:
        self._process = process
        self._now_unix_ns = now_unix_ns
        self._kept: dict[str, Freshness] = {}
        self._segments = 0
        self._turn = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        await end(self._task)

    async def _run(self) -> None:
        while True:
            try:
                self.sample(time.monotonic())
            except Exception:
                # Samples are for people: the tracker goes on without them.
                log.exception("sampling_failed")
            await asyncio.sleep(SAMPLE_INTERVAL_S)

    def sample(self, now_s: float) -> None:
        """Takes a sample of each pipeline whose turn it is."""
        process = self._process
        specs = process.pipelines()
        for spec in self._take_turns(specs):
            kept = self._kept.get(spec.name)
            if kept is not None and kept.size != len(spec.segments) + 1:
                self.forget(spec.name)  # it has other segments since: its samples begin anew
                kept = None
            if kept is None:
                if self._segments + len(spec.segments) + 1 > MAX_SAMPLED_SEGMENTS:
                    continue
                self._segments += len(spec.segments) + 1
                kept = self._kept[spec.name] = Freshness(spec.segments)
            kept.add(lags(process, spec.name, self._now_unix_ns()), round(now_s))

    def _take_turns(self, specs: list[PipelineSpec]) -> Iterator[PipelineSpec]:
        count = len(specs)
        if count <= MAX_SAMPLES_PER_ROUND:
            return iter(specs)
        start, self._turn = self._turn % count, (self._turn + MAX_SAMPLES_PER_ROUND) % count
        return islice([*specs[start:], *specs[:start]], MAX_SAMPLES_PER_ROUND)

    def forget(self, pipeline: str) -> None:
        """A pipeline was deleted: its samples go with it."""
        kept = self._kept.pop(pipeline, None)
        if kept is not None:
            self._segments -= kept.size

    def sampled(self) -> Iterator[tuple[PipelineSpec, Freshness]]:
        """The pipelines that are sampled, and their samples: for metrics."""
        for pipeline, kept in self._kept.items():
            spec = self._process.spec(pipeline)
            if kept.size == len(spec.segments) + 1:
                yield spec, kept

    def read(self, pipeline: str, within_ms: int, points: int = 0) -> tuple[SegmentFreshness, ...]:
        """What a pipeline's windows come to. points: as `Freshness.read`. Raises Refused: UNKNOWN_PIPELINE; FULL where there is no
        room for its samples; NOT_READY before its first one."""
        spec = self._process.spec(pipeline)
        kept = self._kept.get(pipeline)
        if kept is not None:
            return kept.read(within_ms, points)
        if self._segments + len(spec.segments) + 1 > MAX_SAMPLED_SEGMENTS:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {pipeline!r} is not sampled: its {len(spec.segments)} segments would pass the "
                f"limit of {MAX_SAMPLED_SEGMENTS} that one process samples; measure its min time "
                "yourself",
            )
        raise Refused(RefusalCode.NOT_READY, f"pipeline {pipeline!r} has no sample yet; ask again")


def lags(process: Process, pipeline: str, now_unix_ns: int) -> list[Lag]:
    """How far each segment is behind now. No clock counts slots that are numbers: they have no age."""
    spec = process.spec(pipeline)
    newest = process.newest_promise(pipeline)
    found = []
    for min_time in process.min_times(pipeline):
        if min_time == FOREVER:
            found.append(Lag(NONE_MS, NONE_MS))
            continue
        behind = max(0, newest - min_time) * spec.slack_ns if newest > LOWEST_SLOT else -_MS
        age_ns = max(0, now_unix_ns - slot_start_ns(min_time, spec.slack_ns))
        age_ms = NONE_MS if spec.time is TimeKind.NUMBER else min(age_ns // _MS, MAX_LAG_MS)
        found.append(Lag(min(behind // _MS, MAX_LAG_MS), age_ms))
    return found
