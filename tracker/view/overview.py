"""All pipelines at a glance, the worst first, kept up to date by so many questions at a time, however many there are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Any

from tracker.client import Admin, LowmarkError, PipelineInfo, RefusedError, UnavailableError
from tracker.core.insight.freshness import NONE_MS
from tracker.core.model import RefusalCode, TimeKind
from tracker.core.model.slots import FOREVER
from tracker.view.model import lag_slots
from tracker.view.pipelines import WatchHistory
from tracker.view.progress import (
    STUCK_AFTER_MS,
    WORST_FIRST,
    Progress,
    State,
    progress_json,
    progress_of,
    whole_of,
)

MAX_KEPT = 10_000
"""Pipelines that are kept; how many more there are is told."""
MAX_EXPLAINED = 20
"""Pipelines of which a step asks why they are where they are: those that stand, in turns."""
MAX_CHARTED = 20
"""Pipelines whose lag over the last hour a step asks for, of those that are shown."""
CHART_POINTS = 60
CHART_AGES_S = 30.0
"""A chart that is older is asked for again."""
STEP_S = 0.5
"""A step that has taken so long asks for one reason more and for one chart, so that neither is never asked for, and nothing
else: where shards do not answer each question lasts."""


@dataclass(frozen=True, slots=True)
class Row:
    """A pipeline, as a whole and by segment. lags_ms: over the last hour, the oldest first, NONE_MS where nothing is
    known; empty until asked for, where nobody samples it, and where slots are numbers."""

    info: PipelineInfo
    progress: Progress
    lags_ms: tuple[int, ...] = ()
    segments: tuple[Progress, ...] = ()

    @property
    def name(self) -> str:
        return self.info.spec.name

    @property
    def lag_slots(self) -> int | None:
        return lag_slots(self.progress.min_time, self.info)

    def has(self, text: str) -> bool:
        """Whether a text is in its name, or in a segment's, in capitals or not."""
        found = text.casefold()
        return any(found in name.casefold() for name in (self.name, *self.info.spec.segments))

    def json(self) -> dict[str, Any]:
        """As scripts get it: as a line of `lowmark status`, with the number of segments, and the lags."""
        told = progress_json(self.progress, self.info)
        del told["segment"]
        return {
            **told,
            "segments": len(self.info.spec.segments),
            "lags_ms": list(self.lags_ms),
        }


class _Kept:
    """What is known of one pipeline."""

    def __init__(self) -> None:
        self.info: PipelineInfo
        self.round = 0
        self.explained_s = self.charted_s = float("-inf")
        self.lags_ms: tuple[int, ...] = ()
        self._history = WatchHistory()
        self._stands: dict[str, tuple[int, float]] = {}
        """By segment the min time that it was found at, and since when."""
        self._told: dict[str, tuple[int, Progress]] = {}
        """By segment the min time at which it was explained, and what came of it."""

    def take(self, info: PipelineInfo, now_s: float) -> None:
        self.info = self._history.take(info)
        for segment in self.info.state.segments:
            if self._stands.get(segment.segment, (None,))[0] != segment.min_time:
                self._stands[segment.segment] = (segment.min_time, now_s)

    def stands(self, now_s: float) -> bool:
        """Whether a segment has not moved for so long that it may be stuck, or a front has not joined."""
        if not self.info.state.begun:
            return True
        return any(
            slot != FOREVER and now_s - since_s >= STUCK_AFTER_MS / 1000
            for slot, since_s in self._stands.values()
        )

    def explained(self, progress: Iterable[Progress], now_s: float) -> None:
        self.explained_s = now_s
        self._told = {
            each.segment: (self._stands[each.segment][0], each)
            for each in progress
            if each.segment is not None
        }

    def row(self) -> Row:
        """What was told of a segment holds as long as its min time is the same."""
        segments = []
        for each in progress_of(self.info, None)[1:]:
            slot, told = self._told.get(each.segment or "", (None, each))
            if slot == each.min_time:
                each = replace(
                    each, state=told.state, holds=told.holds, advice=told.advice, cause=told.cause
                )
            segments.append(each)
        return Row(self.info, whole_of(self.info, segments), self.lags_ms, tuple(segments))


class Overview:
    """Asks a tracker for all of its pipelines; one call at a time."""

    def __init__(
        self,
        admin: Admin,
        clock: Callable[[], float] = time.monotonic,
        names: Sequence[str] = (),
    ) -> None:
        """clock: seconds that never go back; names: these pipelines alone, if any are named."""
        self._admin, self._clock, self._names = admin, clock, tuple(names)
        self._kept: dict[str, _Kept] = {}
        self._pages: Iterator[list[PipelineInfo]] | None = None
        self._round = 0
        self._more = self._found = 0
        self._silent: dict[int, str] = {}
        """By number the groups that have not answered in the last round, and why."""

    @property
    def trouble(self) -> str:
        """Why not all of this is known now, for people: groups do not answer. Empty where all do."""
        return "; ".join(
            f"group {group} does not answer, what is shown of its pipelines is old, and some may be left out: {why}"
            for group, why in self._silent.items()
        )

    @property
    def more(self) -> int:
        """How many pipelines there are beyond those that are kept."""
        return self._more

    def step(self, shown: Sequence[str] = ()) -> list[Row]:
        """Asks for a page of pipelines (the first time for all), for reasons of some that stand, and for charts of
        some that are `shown`; returns all that are known, the worst first. Raises UnavailableError."""
        end_s = self._clock() + STEP_S
        while not self._next_page() and self._round == 0:
            pass
        self._explain(end_s)
        self._chart(shown, end_s)
        return self._rows()

    def look(self, explain_s: float) -> list[Row]:
        """As `step`, of which each pipeline is asked for anew, and reasons for as many seconds as are given; of those alone that
        have answered. Raises RefusedError, UnavailableError."""
        while not self._next_page():
            pass
        self._explain(self._clock() + explain_s, moving=True)
        return self._rows(self._answering())

    def _rows(self, kept: Iterable[_Kept] | None = None) -> list[Row]:
        """kept: of these; of all, if not given."""
        of = self._kept.values() if kept is None else kept
        return sorted((each.row() for each in of), key=_worst_first)

    def _answering(self) -> list[_Kept]:
        """The pipelines whose groups have answered in the last round."""
        return [kept for kept in self._kept.values() if kept.info.group not in self._silent]

    def _all_pages(self) -> Iterator[list[PipelineInfo]]:
        """Pages of what is to be known: named pipelines are a page each."""
        if not self._names:
            return self._admin.pages()
        return (self._named(name) for name in self._names)

    def _named(self, name: str) -> list[PipelineInfo]:
        """A named pipeline; nothing where it was deleted since the first round: others are told of all the same."""
        try:
            return [self._admin.pipeline(name)]
        except RefusedError as error:
            if self._round == 0 or error.refusal.code is not RefusalCode.UNKNOWN_PIPELINE:
                raise
            return []

    def _next_page(self) -> bool:
        """Takes in a page; returns whether it was the last of its round."""
        if self._pages is None:
            self._pages, self._found = self._all_pages(), 0
        try:
            page = next(self._pages, None)
        except LowmarkError:
            self._pages = None  # it begins anew, and forgets nobody
            raise
        if page is None:
            self._end_round()
            return True
        now_s = self._clock()
        self._found += len(page)
        for info in page:
            name = info.spec.name
            if name in self._kept or len(self._kept) < MAX_KEPT:
                kept = self._kept.setdefault(name, _Kept())
                kept.take(info, now_s)
                kept.round = self._round
        return False

    def _end_round(self) -> None:
        """Whoever was not found in a whole round is not there any more, or not for us to see; unless its group does not
        answer."""
        self._silent = {} if self._names else dict(self._admin.silent_groups)
        answered = sum(kept.round == self._round for kept in self._kept.values())
        self._more = self._found - answered
        self._kept = {
            name: kept
            for name, kept in self._kept.items()
            if kept.round == self._round or kept.info.group in self._silent
        }
        self._pages = None
        self._round += 1

    def _explain(self, end_s: float, *, moving: bool = False) -> None:
        """moving: also of those that are not known to stand, after those that do."""
        now_s = self._clock()
        asked = [
            (not stands, kept.explained_s, kept)
            for kept in self._answering()
            if (stands := kept.stands(now_s)) or (moving and not kept.info.state.complete)
        ]
        turns = [kept for _, _, kept in sorted(asked, key=itemgetter(0, 1))[:MAX_EXPLAINED]]
        for kept in self._in_time(turns, end_s):
            try:
                explanation = self._admin.explain(
                    kept.info.spec.name, max_cells=0, shard_timeout_s=STEP_S
                )
            except UnavailableError:
                # Others get their turn; whether its group answers the next round tells.
                kept.explained_s = now_s
                continue
            except RefusedError as error:
                if error.refusal.code is not RefusalCode.UNKNOWN_PIPELINE:
                    raise
                continue  # it was deleted since it was listed
            kept.explained(progress_of(kept.info, explanation), self._clock())

    def _chart(self, shown: Sequence[str], end_s: float) -> None:
        now_s = self._clock()
        due = [
            kept
            for kept in map(self._kept.get, shown)
            if kept
            and kept.info.group not in self._silent
            and now_s - kept.charted_s > CHART_AGES_S
            and kept.info.spec.time is not TimeKind.NUMBER
        ]
        turns = sorted(due, key=attrgetter("charted_s"))[:MAX_CHARTED]
        for kept in self._in_time(turns, end_s):
            kept.charted_s = self._clock()
            try:
                whole = self._admin.freshness(kept.info.spec.name, points=CHART_POINTS)[-1]
            except LowmarkError:  # not sampled, or not yet: the rest is shown all the same
                continue
            kept.lags_ms = whole.lags_ms if max(whole.lags_ms, default=NONE_MS) > NONE_MS else ()

    def _in_time(self, turns: Iterable[_Kept], end_s: float) -> Iterator[_Kept]:
        """The first, whatever the time is, and those after it until it is up."""
        for place, kept in enumerate(turns):
            if place and self._clock() > end_s:
                return
            yield kept


def _worst_first(row: Row) -> tuple[int, int, str]:
    lag = row.lag_slots
    lag_ns = -1 if lag is None else lag * row.info.spec.slack_ns
    return WORST_FIRST.index(row.progress.state), -lag_ns, row.name


def counts(rows: Iterable[Row]) -> dict[State, int]:
    """How many are in which state, the worst first."""
    found = Counter(row.progress.state for row in rows)
    return {state: found[state] for state in WORST_FIRST}
