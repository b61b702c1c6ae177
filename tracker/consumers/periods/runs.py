"""Runs of an incremental job: each takes the slots that have become complete since the last one.

    with Runs("127.0.0.1:7070", "orders", "load", "/data/report/runs.json") as runs:
        run = runs.begin()
        if run is not None:
            ...                      # take what has a slot in [run.from_slot, run.to_slot), publish it
            runs.done(run)           # under run.number, so that publishing again replaces it

A run ends at min time: nothing with a lower slot is missing, and nothing can still come. The next one
begins there. So the runs cut time into pieces without gap and overlap, whatever order rows become
visible in. A run is recorded before it is given out: one that was not done, because its job died, is given
out again, the same, until it is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tracker.client.admin import Admin
from tracker.client.closing import Closing
from tracker.client.subscriber import Subscriber
from tracker.consumers.periods.position import Position, Recorded
from tracker.errors import StateError

log = logging.getLogger("lowmark.consumers")


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the slots from `from_slot` (inclusive) to `to_slot` (exclusive).

    number: from 0, one more with each run that was done; again: it was given out before and not done;
    late_items: items that the tracker has counted as late since the run before began: rows of a front
    that was evicted or retired may have become visible below `from_slot`, where no run takes them;
    version: of what is read, recorded with the run, where it has one.
    """

    number: int
    from_slot: int
    to_slot: int
    again: bool = False
    late_items: int = 0
    version: int | None = None


class Runs(Closing):
    """The runs of one job. One process at a time uses a record; safe for its threads, one run at a time."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        segment: str | None,
        record: str | os.PathLike[str],
        *,
        since: int | datetime | None = None,
    ) -> None:
        """segment: the one that the writer of the data reads (None: the whole pipeline). record: the
        job's own durable record, a path or in a store. since: where the first run begins, a slot or a moment;
        the pipeline's start if not given; of no effect later on."""
        self._subscriber = Subscriber(target, pipeline)
        self._admin = Admin(target)
        self.pipeline, self.segment = pipeline, segment
        self._since = since
        of = f"runs of {pipeline}/{segment or '*'}"
        self._position = Position(of, record, self._subscriber)

    def begin(self, version: Callable[[], int | None] | None = None) -> Run | None:
        """The run that was not done, or else the next; None if nothing has become complete.

        version: gives the newest version of what is read, a table say, or None where it has none. It is
        called when min time is known, so all that is complete is in that version; it is recorded with the
        run, which is given out again with the same. Raises RefusedError, also where the record is of a pipeline that was
        deleted and another one has its name; UnavailableError, StateError if the record is another job's, and what `version`
        raises.
        """
        state = self._read()
        if state is not None and state.begun is not None:
            self._subscriber.min_time(self.segment)  # refuses, if it was begun in another pipeline
            return self._again(state, state.begun, version)
        info = self._admin.pipeline(self.pipeline)
        recorded = state
        if state is None:
            state = _State(self._first(info.spec.start_slot), 0, 0, None)
        to_slot = self._subscriber.min_time(self.segment)
        if to_slot <= state.next:
            if recorded is None:
                self._write(state)  # where the first run begins does not depend on who asks next
            return None
        late = max(0, info.state.late_items - state.late_seen)
        if late:
            log.warning(
                "pipeline %r: %d items came late; what they became lies below slot %d if their time is "
                "older, and no run takes it",
                self.pipeline, late, state.next,
            )  # fmt: skip
        read = None if version is None else version()
        run = Run(state.number, state.next, to_slot, late_items=late, version=read)
        self._write(replace(state, late_seen=info.state.late_items, begun=run))
        return run

    def _again(self, state: _State, run: Run, version: Callable[[], int | None] | None) -> Run:
        """The run that was not done. What had no version then may have one now: all that is complete is in
        that, too."""
        if run.version is None and version is not None and (read := version()) is not None:
            run = replace(run, version=read)
            self._write(replace(state, begun=run))
        return run

    def done(self, run: Run) -> None:
        """What the run took is published for good; the next run begins behind it. Raises StateError if
        it is not the run that was begun; may be repeated."""
        state = self._read()
        if state is not None and state.begun is not None and state.begun.to_slot != run.to_slot:
            raise StateError(f"run {run.number} is not due: run {state.number} was begun last")
        late_seen = 0 if state is None else state.late_seen
        after = _State(run.to_slot, run.number + 1, late_seen, None)
        self._position.done(f"run {run.number}", run.from_slot, run.to_slot, after.kept())

    def _first(self, start_slot: int) -> int:
        if self._since is None:
            return start_slot
        return self._subscriber.slot_until(self._since)

    def _read(self) -> _State | None:
        recorded = self._position.read()
        return None if recorded is None else _State.of(recorded)

    def _write(self, state: _State) -> None:
        self._position.write(state.next, state.kept())

    def close(self) -> None:
        self._subscriber.close()
        self._admin.close()
        self._position.close()

    def __enter__(self) -> Runs:
        self._position.__enter__()
        return self


@dataclass(frozen=True, slots=True)
class _State:
    """What a job's record holds. begun: the run that was given out and not done, whose end is written before it is
    given out, since it follows from min time at that moment."""

    next: int
    number: int
    late_seen: int
    begun: Run | None

    def kept(self) -> dict[str, Any]:
        """What stands beside the position."""
        run = self.begun
        begun = None if run is None else [run.to_slot, run.late_items, run.version]
        return {"number": self.number, "late_seen": self.late_seen, "begun": begun}

    @classmethod
    def of(cls, recorded: Recorded) -> _State:
        """Raises StateError for what `kept` has not made."""
        match recorded.kept:
            case {"number": int(number), "late_seen": int(seen), "begun": None}:
                return cls(recorded.next, number, seen, None)
            case {
                "number": int(number), "late_seen": int(seen),
                "begun": [int(to_slot), int(late), int() | None as version],
            }:  # fmt: skip
                run = Run(number, recorded.next, to_slot, True, late, version)
                return cls(recorded.next, number, seen, run)
            case _:
                raise StateError(f"{recorded} is not a record of runs; give the job its own")
