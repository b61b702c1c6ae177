"""What a stateful query has taken and not emitted: an oracle that reads rows, Spark's logs and the sink's files.

A row is in state from the batch that takes it until the batches whose results contain it, and what came of it is
out when the reader of the sink has taken those. `write` puts that into the history, for the judge. `wrong` says what
the rows themselves contradict: results that should not be, labels above a row that they stand for, holds that were
let go of while a row was in state. `figures` has by how much they were longer than the watermark made necessary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow.parquet as pq

from examples.history import Recorder
from tests.spark_matrix.events import Event
from tests.spark_matrix.operators import CLOCK_MS, STRICT_MS, Operator
from tests.spark_matrix.recording import Line
from tests.spark_matrix.truth import Done, Followed, path_of
from tracker.client.state_names import batch_of
from tracker.core.model.slots import FOREVER


@dataclass
class Lag:
    """How much longer holds were than necessary, over the rows that had to wait: in batches, and in how far the
    watermark came meanwhile."""

    batches: list[int] = field(default_factory=list)
    event_ms: list[int] = field(default_factory=list)
    stuck: int = 0
    """Rows that were still held at the end, and need not have been."""

    def shown(self) -> dict[str, float]:
        count = len(self.batches) or 1
        return {
            "lag_batches_mean": round(sum(self.batches) / count, 2),
            "lag_batches_max": max(self.batches, default=0),
            "lag_event_ms_mean": round(sum(self.event_ms) / count),
            "lag_event_ms_max": max(self.event_ms, default=0),
            "stuck": self.stuck,
        }


@dataclass
class Waiting:
    """One query, when all is over. segment: where it creates. late: the rows that came after their watermark, which
    Spark drops; told: all ticks of its node, in order, as recorded."""

    operator: Operator
    segment: str
    events: Sequence[Event]
    query: Followed
    reader: Followed
    late: frozenset[int]
    told: Sequence[Line]

    # --- what happened ----------------------------------------------------------------------------

    @property
    def done(self) -> list[Done]:
        """Its batches, by position: some numbers may be missing."""
        return self.query.done

    @cached_property
    def taken(self) -> dict[int, int]:
        """By row, the position of the batch that took it."""
        return {
            row: position
            for position, done in enumerate(self.done)
            for name in done.consumed
            for row in _column(name, "row")
        }

    @cached_property
    def left(self) -> dict[tuple[str, int], tuple[int, str]]:
        """By result and row, the position of the batch that wrote it first, and the file."""
        found: dict[tuple[str, int], tuple[int, str]] = {}
        for position, done in enumerate(self.done):
            for name in done.created:
                results, rows = _column(name, "result"), _column(name, "rows")
                for result, contained in zip(results, rows, strict=True):
                    for row in contained:
                        found.setdefault((result, row), (position, name))
        return found

    def is_all_out(self) -> bool:
        """Whether all rows are in what was emitted so far."""
        return {event.row for event in self.events} <= {row for _, row in self.left}

    @cached_property
    def watermarks_ms(self) -> list[int]:
        """Of the batches, by position: by which each has emitted; of an operator by the clock, their own times."""
        field = "batchTimestampMs" if self.operator.by_clock else "batchWatermarkMs"
        headers = (
            (self.query.checkpoint / "offsets" / str(done.batch)).read_text().splitlines()[1]
            for done in self.done
        )
        return [int(json.loads(header)[field]) for header in headers]

    @cached_property
    def accepted(self) -> list[Event]:
        """The rows that were taken and not dropped."""
        return [e for e in self.events if e.row in self.taken and e.row not in self.late]

    @cached_property
    def over(self) -> dict[int, int]:
        """By row, the position of the first batch after which nothing can come of it any more, by the
        watermark: its number of batches, where there is none yet."""
        found = {}
        for event in self.accepted:
            until_ms = self._until_ms(event)
            later = range(self.taken[event.row], len(self.done))
            found[event.row] = next(
                (p for p in later if self.watermarks_ms[p] >= until_ms), len(self.done)
            )
        return found

    def _until_ms(self, event: Event) -> int:
        if self.operator.by_clock:
            return self.watermarks_ms[self.taken[event.row]] + CLOCK_MS + STRICT_MS
        return self.operator.until_ms(event, self.accepted)

    @cached_property
    def held(self) -> list[int]:
        """The lowest slot at which a hold of the query stands when the batch at each position has been
        told, and until the next one is; FOREVER where none does."""
        position = {done.batch: place for place, done in enumerate(self.done)}
        lows, stands, at = [FOREVER] * len(self.done), dict[str, int](), 0
        for line in self.told:
            if line.get("batch"):
                place = position[line["batch"][1]]
                lows[at:place] = [min(stands.values(), default=FOREVER)] * (place - at)
                at = place
            for name, segment, slot in line.get("holds", ()):
                if segment == self.segment:
                    stands[name] = slot
        lows[at:] = [min(stands.values(), default=FOREVER)] * (len(lows) - at)
        return lows

    # --- what is to be judged ---------------------------------------------------------------------

    def write(self, recorder: Recorder) -> None:
        """What was in state, and until when, as lines of the history."""
        read_ns = {name: done.done_ns for done in self.reader.done for name in done.consumed}
        slots = {event.row: event.slot for event in self.events}
        for (result, row), (_, name) in self.left.items():
            item = f"row {row} in {self.operator.name} {result}"
            taken_ns = self.done[self.taken[row]].done_ns
            recorder.write(
                "absorbed", taken_ns, segment=self.segment, slot=slots[row], item=item
            )  # fmt: skip
            if name in read_ns:
                recorder.write("emitted", read_ns[name], segment=self.segment, item=item)
        for event in self.accepted:
            if self.over[event.row] == len(self.done):
                recorder.write(
                    "absorbed", self.done[self.taken[event.row]].done_ns, segment=self.segment,
                    slot=event.slot, item=f"row {event.row} in the state of {self.operator.name}",
                )  # fmt: skip

    def wrong(self) -> Iterator[str]:
        """What the rows contradict."""
        yield from self._wrong_results()
        yield from self._wrong_labels()
        if self.operator.waits:
            yield from self._wrong_holds()
        elif any(
            batch_of(name) is None for line in self.told for name, *_ in line.get("holds", ())
        ):
            yield f"{self.operator.name} emits at once, and its query holds"

    def _wrong_results(self) -> Iterator[str]:
        """All that was to come out has, and nothing else, no later than by the watermark."""
        never = {event.row for event in self.events} - self.taken.keys()
        if never:
            yield f"{self.operator.name} has never taken rows {sorted(never)}"
        found: dict[str, set[int]] = {}
        for result, row in self.left:
            found.setdefault(result, set()).add(row)
        wanted = {
            name: rows for name, rows in self.operator.finds(self.accepted).items()
            if name in found or all(self.over[row] < len(self.done) for row in rows)
        }  # fmt: skip
        if found != wanted:
            yield f"{self.operator.name} has emitted {found}, and the rows say {wanted}"
        for (result, row), (position, _) in self.left.items():
            if row in self.over and self.operator.waits and position > self.over[row]:
                yield f"row {row} came out in {result} later than by the rule of {self.operator.name}"

    def _wrong_labels(self) -> Iterator[str]:
        """What a batch created is under no slot above that of a row which it contains."""
        slots = {event.row: event.slot for event in self.events}
        labels = {
            line["batch"][1]: min(s for segment, s, _ in line["created"] if segment == self.segment)
            for line in self.told
            if line.get("batch") and any(cell[0] == self.segment for cell in line["created"])
        }
        for (result, row), (position, _) in self.left.items():
            label = labels.get(self.done[position].batch)
            if label is None or label > slots[row]:
                yield f"{result} was created under slot {label}, and has row {row} of slot {slots[row]}"

    def _wrong_holds(self) -> Iterator[str]:
        for event in self.accepted:
            for position in range(self.taken[event.row], self.over[event.row]):
                if self.held[position] > event.slot:
                    yield (
                        f"after batch {self.done[position].batch} of {self.operator.name} nothing holds slot "
                        f"{event.slot}, and its row {event.row} is in state"
                    )
                    return

    def lag(self) -> Lag:
        """By the rows that had to wait: from the batch after which nothing as low had to be held, to the one
        after which nothing was."""
        necessary = [
            min(
                (e.slot for e in self.accepted if self.taken[e.row] <= p < self.over[e.row]),
                default=FOREVER,
            )
            for p in range(len(self.done))
        ]  # fmt: skip
        lag = Lag()
        for event in self.accepted:
            later = range(self.taken[event.row], len(self.done))
            need = next((p for p in later if necessary[p] > event.slot), None)
            got = next((p for p in later if self.held[p] > event.slot), None)
            if need is None:
                continue
            if got is None:
                lag.stuck += 1
                continue
            lag.batches.append(max(0, got - need))
            lag.event_ms.append(max(0, self.watermarks_ms[got] - self.watermarks_ms[need]))
        return lag

    def figures(self, announcements: int) -> dict[str, float]:
        """For the row's report. announcements: those of the segment that were heard."""
        return {
            "announcements": announcements,
            "rows": len(self.accepted),
            "late": len(self.late),
            "results": len({result for result, _ in self.left}),
            "batches": len(self.done),
            **(self.lag().shown() if self.operator.waits else {}),
        }


def _column(name: str, column: str) -> list[Any]:
    return pq.ParquetFile(path_of(name)).read(columns=[column])[column].to_pylist()
