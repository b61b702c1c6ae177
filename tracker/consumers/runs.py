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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tracker.client.admin import Admin
from tracker.client.closing import Closing
from tracker.client.subscriber import Subscriber
from tracker.consumers.durable import StateError, state_at

log = logging.getLogger("lowmark.consumers")


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the slots from `from_slot` (inclusive) to `to_slot` (exclusive).

    number: from 0, one more with each run that was done; again: it was given out before and not done;
    version: of what is read, recorded with the run, where one is told of; late_items: items that the tracker has counted as late since the run before began: rows of a front
    that was evicted or retired may have become visible below `from_slot`, where no run takes them.
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
        self._file = state_at(record)

    def begin(self, version: Callable[[], int | None] | None = None) -> Run | None:
        """The run that was not done, or else the next; None if nothing has become complete.

        version: tells the newest version of what is read, a table say, or None where it has none. It is
        called when min time is known, so all that is complete is in that version; it is recorded with the
        run, which is given out again with the same. Raises RefusedError, UnavailableError, StateError if
        the record is another job's, and what `version` raises.
        """
        state = self._state()
        if state is not None and not state["done"]:
            return self._again(state, version)
        info = self._admin.pipeline(self.pipeline)
        late_before = 0
        if state is None:
            number, from_slot = 0, self._first(info.spec.start_slot)
        else:
            number, from_slot = state["number"] + 1, state["to_slot"]
            late_before = state["late_seen"]
        to_slot = self._subscriber.min_time(self.segment)
        if to_slot <= from_slot:
            return None
        late = info.state.late_items
        if late > late_before:
            log.warning(
                "pipeline %r: %d items came late; what they became lies below slot %d if their time is "
                "older, and no run takes it",
                self.pipeline, late - late_before, from_slot,
            )  # fmt: skip
        read = None if version is None else version()
        run = Run(number, from_slot, to_slot, late_items=max(0, late - late_before), version=read)
        self._write(run, late, done=False)
        return run

    def _again(self, state: Mapping[str, int], version: Callable[[], int | None] | None) -> Run:
        """The run that was not done. What had no version then may have one now: all that is complete is in
        that, too."""
        read = state.get("version")
        run = Run(
            state["number"], state["from_slot"], state["to_slot"], True, state["late_items"], read
        )
        if read is None and version is not None and (read := version()) is not None:
            run = replace(run, version=read)
            self._write(run, state["late_seen"], done=False)
        return run

    def done(self, run: Run) -> None:
        """What the run took is published for good; the next run begins behind it. Raises StateError if
        it is not the run that was begun; may be repeated."""
        state = self._state()
        if state is None or (state["number"], state["to_slot"]) != (run.number, run.to_slot):
            raise StateError(
                f"{self._file.path}: run {run.number} is not the one that was begun last"
            )
        self._write(run, state["late_seen"], done=True)

    def _first(self, start_slot: int) -> int:
        if self._since is None:
            return start_slot
        return self._subscriber.slot_until(self._since)

    def _state(self) -> dict[str, int] | None:
        state = self._file.read()
        if state is None:
            return None
        whose = {"pipeline": self.pipeline, "segment": self.segment}
        known = ("number", "from_slot", "to_slot", "late_items", "late_seen")
        are_there = "done" in state and all(type(state.get(name)) is int for name in known)
        if not are_there or not isinstance(state.get("version"), int | None):
            raise StateError(
                f"{self._file.path} is not a record of runs; give the job a file of its own"
            )
        if any(state.get(name) != value for name, value in whose.items()):
            raise StateError(
                f"{self._file.path} is the record of segment {state.get('segment')!r} of pipeline "
                f"{state.get('pipeline')!r}, not of {self.segment!r} of {self.pipeline!r}"
            )
        return state

    def _write(self, run: Run, late_seen: int, *, done: bool) -> None:
        self._file.write(
            {
                "pipeline": self.pipeline, "segment": self.segment, "number": run.number,
                "from_slot": run.from_slot, "to_slot": run.to_slot, "done": done,
                "late_items": run.late_items, "late_seen": late_seen, "version": run.version,
            }
        )  # fmt: skip

    def close(self) -> None:
        self._subscriber.close()
        self._admin.close()
        self._file.release()

    def __enter__(self) -> Runs:
        self._file.hold()
        return self
