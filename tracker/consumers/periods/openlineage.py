"""Marks for OpenLineage: a run for each period that is complete, at a receiver or in a directory of events.

The run's id follows from the pipeline, the segment and the period, so whoever hears of it twice, after a crash or
a lost answer, hears of one run. Its events are START, at the period's beginning, and COMPLETE, when the tracker
announced that it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from uuid import NAMESPACE_URL, UUID, uuid5

from tracker import __version__
from tracker.client.updates import slot_time
from tracker.consumers.periods.cut import Cut, Period, moment_text
from tracker.consumers.periods.once import needs_extra
from tracker.core.model.slots import FOREVER
from tracker.errors import Code, StateError
from tracker.files import STORES, child
from tracker.redacting import shown_url

if TYPE_CHECKING:
    from openlineage.client.event_v2 import OutputDataset, Run, RunEvent

PRODUCER = f"urn:lowmark:{__version__}"
FACET = "lowmark_period"
"""The facet of a run that says which period it is of, and by which min time it is complete."""
NAMESPACE = "lowmark"
"""Of jobs, unless another is named."""
ENDPOINT = "api/v1/lineage"
"""The path at which receivers take events, unless their URL has one."""
API_KEY_VARIABLE = "OPENLINEAGE_API_KEY"
ANSWER_TIMEOUT_S = 10.0
ATTEMPTS = 10
"""How often one event is sent to a receiver that is away, within some four minutes."""
LONGEST_PAUSE_S = 60.0
RETRIED = (408, 425, 429, 500, 502, 503, 504)
"""Statuses after which a receiver may take it later."""

_RUNS = uuid5(NAMESPACE_URL, "urn:lowmark:period")


class LineageMark:
    """Reports each period to OpenLineage as a run.

    Found done: in a directory, the run's file is there. A receiver cannot be asked, and gets the same run again.
    """

    def __init__(
        self,
        cut: Cut,
        place: str,
        *,
        namespace: str = NAMESPACE,
        outputs: Sequence[str] = (),
        attempts: int = ATTEMPTS,
    ) -> None:
        """place: the URL of a receiver (whose path, if it has none, is ENDPOINT; its key is in the variable
        OPENLINEAGE_API_KEY), or the location of a directory, in which each run gets a file, RUN_ID.json, of an event
        a line. namespace: of the jobs. outputs: locations of the data sets that a complete period is in. Raises
        ValueError, StateError where the extra is missing, and FilesError where there is no way to the directory."""
        try:
            import openlineage.client  # noqa: F401
        except ModuleNotFoundError as missing:
            raise needs_extra("telling OpenLineage", missing, "openlineage") from None
        self._cut, self._namespace = cut, namespace
        self._outputs = [dataset_of(output) for output in outputs]
        is_url = place.startswith(("http://", "https://"))
        self._to: _Receiver | _Directory
        self._to = _Receiver(place, attempts) if is_url else _Directory(place)
        self.name = self._to.name

    def is_done(self, period: Period) -> bool:
        return self._to.has(run_id(self._namespace, period))

    def do(self, period: Period, at: datetime | None) -> None:
        run = run_id(self._namespace, period)
        self._to.take(run, self.events(run, period, at))

    def events(self, run: UUID, period: Period, at: datetime | None) -> list[RunEvent]:
        """What is reported of a period."""
        from openlineage.client.event_v2 import Job, RunEvent, RunState

        run_fields = self._run(run, period, at)
        name = period.pipeline if period.segment is None else f"{period.pipeline}.{period.segment}"
        ended = at or datetime.now(UTC)
        moments = {RunState.START: period.start or ended, RunState.COMPLETE: ended}
        return [
            RunEvent(
                eventTime=moment_text(moment),
                eventType=state,
                run=run_fields,
                job=Job(self._namespace, name),
                outputs=self._datasets(),
                producer=PRODUCER,
            )
            for state, moment in moments.items()
        ]

    def _run(self, run: UUID, period: Period, at: datetime | None) -> Run:
        from openlineage.client.event_v2 import Run
        from openlineage.client.facet_v2 import RunFacet
        from openlineage.client.facet_v2 import nominal_time_run as nominal

        facets: dict[str, Any] = {
            FACET: RunFacet(producer=PRODUCER).with_additional_properties(
                **period.completed(at),
                **self._min_time(period),
            )
        }
        if period.start is not None:
            facets["nominalTime"] = nominal.NominalTimeRunFacet(
                period.start.isoformat(),
                period.end.isoformat() if period.end else None,
                producer=PRODUCER,
            )
        return Run(str(run), facets)

    def _min_time(self, period: Period) -> dict[str, Any]:
        """The one by which the period is complete, as JSON shows min times elsewhere."""
        slot, slack_ns = self._cut.completes(period.to_slot), self._cut.slack_ns
        time = None if slack_ns is None else slot_time(slot, slack_ns)
        return {
            "min_time": slot,
            "time": time.isoformat() if time else None,
            "complete": slot == FOREVER,
        }

    def _datasets(self) -> list[OutputDataset]:
        from openlineage.client.event_v2 import OutputDataset

        return [OutputDataset(namespace, name) for namespace, name in self._outputs]


def run_id(namespace: str, period: Period) -> UUID:
    """Names the run of a period, the same whoever reports it, and however often. namespace: of its job."""
    return uuid5(_RUNS, f"{namespace}\n{period.key}")


def dataset_of(where: str) -> tuple[str, str]:
    """Namespace and name of the data set at a location: `s3://lake` and `orders` of `s3://lake/orders`, `file` and
    the path of a directory. Raises ValueError."""
    scheme, found, rest = where.partition("://")
    authority, slash, name = rest.partition("/")
    if not found and where.startswith("/"):
        return "file", where
    if not found or not scheme or not authority or not slash or not name:
        raise ValueError(
            f"{where!r} names no data set: s3://lake/orders, kafka://broker:9092/orders or /data/orders"
        )
    return f"{scheme}://{authority}", name


class _Receiver:
    """One that takes events by HTTP, one by one."""

    def __init__(self, url: str, attempts: int) -> None:
        from openlineage.client.transport.http import HttpConfig, HttpTransport

        parts = urlsplit(url)
        self.name = shown_url(url)
        if not parts.hostname or "@" in parts.netloc:
            raise ValueError(
                f"{self.name} is no URL of a receiver: https://lineage.example, without a password; a key goes "
                f"into {API_KEY_VARIABLE}"
            )
        path = urlunsplit(("", "", parts.path.lstrip("/") or ENDPOINT, parts.query, ""))
        key = os.environ.get(API_KEY_VARIABLE)
        retries = {
            "total": attempts - 1, "connect": attempts - 1, "read": attempts - 1, "backoff_factor": 0.5,
            "backoff_max": LONGEST_PAUSE_S, "status_forcelist": RETRIED, "allowed_methods": ["POST"],
        }  # fmt: skip
        config = {
            "url": f"{parts.scheme}://{parts.netloc}/", "endpoint": path, "timeout": ANSWER_TIMEOUT_S,
            "retry": retries, "auth": {"type": "api_key", "apiKey": key} if key else {},
        }  # fmt: skip
        self._transport = HttpTransport(HttpConfig.from_dict(config))

    def has(self, run: UUID) -> bool:
        return False

    def take(self, run: UUID, events: Sequence[RunEvent]) -> None:
        try:
            for event in events:
                self._transport.emit(event)
        except OSError as error:  # all of the library's: refused, or away in each attempt
            raise StateError(
                f"{self.name} has not taken run {run}: {error}; it is tried again when this is started again",
                Code.STATE_RECEIVER,
            ) from error


class _Directory:
    """One in which each run has a file."""

    def __init__(self, place: str) -> None:
        self.name = STORES.location(place)
        self._files = STORES.files(self.name)

    def has(self, run: UUID) -> bool:
        return self._files.size(self._file(run)) is not None

    def take(self, run: UUID, events: Sequence[RunEvent]) -> None:
        from openlineage.client.serde import Serde

        lines = "".join(f"{Serde.to_json(event)}\n" for event in events)
        self._files.create(self._file(run), lines.encode())

    def _file(self, run: UUID) -> str:
        return child(self.name, f"{run}.json")
