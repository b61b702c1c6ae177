"""Whether what was made of a period was made when it was complete: for checks of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tracker.client.admin import Admin
from tracker.client.history import history
from tracker.client.updates import slot_until
from tracker.consumers.periods.due import LOOK_TIMEOUT_S
from tracker.core.model.slots import add_delay


@dataclass(frozen=True, slots=True)
class Made:
    """A partition: the end of its period (exclusive), and when its making began, in seconds since 1970: what it was made of
    may have been read then."""

    key: str
    end: datetime
    at_unix_s: float


@dataclass(frozen=True, slots=True)
class Judged:
    """Keys of partitions that may lack rows. early: begun before their period was announced complete, which it
    is now; open: made though their period is not complete yet."""

    early: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)


def begun(made_unix_s: float, starts_unix_s: Iterable[float | None]) -> float:
    """When the attempt began by which a partition was made, of those whose starts are known; when it was made if none is."""
    return max(
        (start for start in starts_unix_s if start is not None and start <= made_unix_s),
        default=made_unix_s,
    )


def judge(
    target: str | Sequence[str], pipeline: str, segment: str | None, made: Sequence[Made]
) -> Judged:
    """Asks the tracker's history when each period was complete, its lateness counted in. Of one that is
    complete it may not be remembered since when: that is long ago, and right. Raises RefusedError, also
    where another pipeline gets the name meanwhile; UnavailableError; at most 10,000 partitions."""
    found = Judged()
    if not made:
        return found
    with Admin(target, LOOK_TIMEOUT_S) as admin:
        info = admin.pipeline(pipeline)
    spec, generation = info.spec, info.state.generation
    needed = [
        add_delay(slot_until(each.end, spec.slack_ns, spec.rounds), spec.lateness_slots)
        for each in made
    ]
    answers = history(target, pipeline, needed, segment, heard_generation=generation)
    for each, reached in zip(made, answers, strict=True):
        if not reached.reached:
            found.open.append(each.key)
        elif reached.at_ms is not None and each.at_unix_s * 1000 < reached.at_ms:
            found.early.append(each.key)
    return found
