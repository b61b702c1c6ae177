"""The pipeline that queries make which there are: a segment for each, an edge where one reads what another writes, and a
front for each place that none of them fills.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import yaml

from local_tracker.spark.session.drafting import (
    TOPIC,
    Draft,
    draft_of_checkpoint,
    drafts_of_program,
    writers_of,
)
from tracker.errors import TrackingError


def drafts_of(places: Sequence[Path]) -> list[Draft]:
    """Of Python programs and of checkpoints' directories. Raises TrackingError, FilesError."""
    found: list[Draft] = []
    for place in places:
        found += drafts_of_program(place) if place.is_file() else [draft_of_checkpoint(str(place))]
    return found


def pipeline_of(name: str, drafts: Sequence[Draft], start: datetime) -> str:
    """The text of a pipeline's file. Raises TrackingError where it cannot be known, or there is none."""
    writers = writers_of(drafts)
    edges = [
        f"{writers[place].name} -> {draft.name}"
        for draft in drafts
        for place in draft.reads
        if place in writers
    ]
    fronts = _fronts(drafts, writers)
    if not fronts:
        raise TrackingError(
            "no query reads what a front could label: files, a table or a topic that none of them writes"
        )
    document = {
        "name": name,
        "segments": [draft.name for draft in drafts],
        **({"edges": list(dict.fromkeys(edges))} if edges else {}),
        "fronts": list(fronts.values()),
        "start": start.isoformat(timespec="seconds"),
    }
    written = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return written + "".join(f"# {line}\n" for line in _notes(drafts, writers, fronts))


def _fronts(drafts: Sequence[Draft], writers: dict[str, Draft]) -> dict[str, str]:
    """Names of fronts, by the places that they fill."""
    readers: dict[str, str] = {}
    for draft in drafts:
        for place in draft.reads:
            if place in writers:
                continue
            if place in readers:
                raise TrackingError(
                    f"queries {readers[place]!r} and {draft.name!r} both read {place}, and a front labels for one "
                    "segment: let one query read it, and write what the other reads"
                )
            readers[place] = draft.name
    fronts: dict[str, str] = {}
    for place in readers:
        short = place.removeprefix(TOPIC).rpartition("/")[2]
        names = (short, *(f"{short}-{number}" for number in range(2, len(readers) + 2)))
        fronts[place] = next(name for name in names if name not in fronts.values())
    return fronts


def _notes(
    drafts: Sequence[Draft], writers: dict[str, Draft], fronts: dict[str, str]
) -> Iterator[str]:
    """How the queries are started, and what the fronts are to fill."""
    for draft in drafts:
        for place in draft.reads:
            if place in fronts:
                yield f"Front {fronts[place]} labels what comes to {place}, for segment {draft.name}."
        creates = [reader.name for reader in drafts if {*reader.reads} & {*draft.writes}]
        more = f", untracked=... of {'; '.join(draft.others)}" if draft.others else ""
        if draft.ended:
            yield f"Behind query {draft.name} its program ended by {draft.ended}: what it starts later is not here."
        yield (
            f"tracked.start(writer, node_id={draft.name!r}, reads={draft.name!r}, creates={creates!r}{more})"
        )
