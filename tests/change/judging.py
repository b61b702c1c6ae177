"""What a run came to: which flights Spark has committed to which table, and for how long nothing was announced.

It looks at tables, checkpoints and the history alone. A flight belongs to the table of a query that came or went by when Spark
had committed the batch of `enrich` that it was in: before `enrich` had ended, or after it was started again.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from examples.flights.expected import Expected
from examples.flights.proof import SHOWN
from examples.flights.witness import FileSink, PublishedSink, WitnessedSink
from tests.change.pipeline import ADDED, LATE_LETTERS, LATE_MIN, PULSE, REMOVED, ChangePlaces
from tests.check.history import FOREVER

Flight = Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """A batch that Spark has committed at a moment, by the clock that stamps files."""

    committed_ns: int
    rows: Sequence[Flight]


@dataclass(frozen=True)
class Tables:
    """enriched: the batches of `enrich`; carriers, delayed: those of the queries that went and came; letters: rows in the
    ledger that are no malformed ones."""

    enriched: Sequence[Batch]
    carriers: Sequence[Batch]
    delayed: Sequence[Batch]
    malformed: Sequence[int]
    letters: Sequence[int]


@dataclass(frozen=True)
class Pause:
    """The longest time in which a subscriber heard nothing of the pulse, and what happened meanwhile."""

    seconds: float = 0.0
    meanwhile: tuple[str, ...] = ()


def read_tables(places: ChangePlaces) -> Tables:
    """What Spark's own logs say of a run that is over."""
    rows: dict[bool, list[int]] = {True: [], False: []}
    for line in places.dead_letters.read_text().splitlines():
        entry = json.loads(line)
        rows[entry["file"].startswith(f"{LATE_LETTERS}-")] += entry["rows"]
    return Tables(
        enriched=_batches(
            places.checkpoint("enrich"), PublishedSink(places.written_for("aggregate"))
        ),
        carriers=_batches(places.checkpoint(REMOVED), FileSink(places.table(REMOVED))),
        delayed=_batches(places.checkpoint(ADDED), FileSink(places.table(ADDED))),
        malformed=rows[False],
        letters=rows[True],
    )


def _batches(checkpoint: Path, sink: WitnessedSink) -> list[Batch]:
    """Those that are committed, with the rows of their files."""
    found: list[Batch] = []
    for batch in count():
        try:
            committed_ns = (checkpoint / "commits" / str(batch)).stat().st_mtime_ns
        except FileNotFoundError:
            return found
        files = [unquote(urlparse(name).path) for name in sink.created(batch)]
        found.append(
            Batch(committed_ns, [row for file in files for row in pq.read_table(file).to_pylist()])
        )
    return found


def wrong_tables(
    tables: Tables, truth: Expected, stopped_ns: tuple[int, int], complete_ns: int
) -> list[str]:
    """Each table in which a flight is missing, twice or of another one, in words. stopped_ns: when `enrich` ended before it wrote
    for the added query, and before it wrote no more for the removed one; complete_ns: when the removed segment was announced
    complete; by the clock that stamps files."""
    added_ns, removed_ns = stopped_ns
    flights = [(batch.committed_ns, row) for batch in tables.enriched for row in batch.rows]
    carriers = [row["row"] for at_ns, row in flights if at_ns <= removed_ns]
    delayed = [
        row["row"] for at_ns, row in flights
        if at_ns > added_ns and row["dep_delay_min"] >= LATE_MIN
    ]  # fmt: skip
    every = set(range(truth.flights))
    found = [
        *_differs("enriched or malformed", [*_rows(tables.enriched), *tables.malformed], every),
        *_differs("dead letters", tables.malformed, truth.malformed),
        *_differs(REMOVED, _rows(tables.carriers), set(carriers)),
        *_differs(ADDED, _rows(tables.delayed), set(delayed)),
        *_differs("letters of delayed flights", tables.letters, set(delayed)),
    ]
    late = [batch for batch in tables.carriers if batch.rows and batch.committed_ns > complete_ns]
    if late:
        found.append(f"{REMOVED}: {len(late)} batches were committed when it had been complete")
    if not (carriers and delayed and len(carriers) < len(flights)):
        found.append(
            f"nothing to check: of {len(flights)} flights {len(carriers)} belong to {REMOVED}, {len(delayed)} to {ADDED}"
        )
    return found


def _rows(batches: Iterable[Batch]) -> list[int]:
    return [row["row"] for batch in batches for row in batch.rows]


def _differs(table: str, rows: Iterable[int], belong: set[int]) -> list[str]:
    there = Counter(rows)
    wrong = {
        "missing": belong - there.keys(),
        "not of this table": there.keys() - belong,
        "there twice": {row for row, times in there.items() if times > 1},
    }
    return [
        f"{table}: {len(which)} flights are {what}, such as rows {sorted(which)[:SHOWN]}"
        for what, which in wrong.items()
        if which
    ]


def longest_pause(
    history: Iterable[Mapping[str, Any]], happened: Sequence[Any], *, meanwhile: bool
) -> Pause:
    """Of all subscribers, between the first and the last that happened. meanwhile: while something happened to the tracker, else
    while nothing did."""
    heard: dict[str, list[int]] = defaultdict(list)
    for line in history:
        if line["kind"] == "heard" and line["segment"] == PULSE and line["min_time"] < FOREVER:
            heard[line["subscriber"]].append(line["at_ns"])
    longest = Pause()
    for moments in heard.values():
        for before, after in pairwise(sorted(moments)):
            if not (happened and happened[0].from_ns <= after and before <= happened[-1].to_ns):
                continue
            what = tuple(
                h.what for h in happened if h.to_tracker and h.from_ns < after and before < h.to_ns
            )
            if bool(what) == meanwhile and (after - before) / 1e9 > longest.seconds:
                longest = Pause((after - before) / 1e9, what)
    return longest
