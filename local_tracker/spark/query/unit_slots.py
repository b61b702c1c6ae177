"""The slots of units, by their names or by the ticks of those who created them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from local_tracker.spark.query.follow import AtRest, Stopping
from local_tracker.spark.query.plans import Routes
from tracker.client import NodeClient
from tracker.core.model import Unit
from tracker.core.model.units import slot_in_name
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.files import FilesError, Stores, child, parents

_RESOLVE_WAIT_MS = 1_000
_NAMES_SHOWN = 3
_MAX_PARTITION_FOLDERS = 8
_WRITERS_LOGS = ("_spark_metadata", "_lowmark")

log = logging.getLogger("lowmark.spark")


class UnitSlots:
    """Finds the slots of what a query's batches consume, and says what it waits for."""

    def __init__(
        self,
        node: NodeClient,
        routes: Routes,
        stores: Stores,
        is_complete: Callable[[Iterable[int]], bool],
        *,
        may_leave_out: bool,
    ) -> None:
        """is_complete: whether segments all are, by their numbers; raises LowmarkError. may_leave_out: what was read is
        published already, and goes on without what nobody will create."""
        self._node, self._routes, self._stores = node, routes, stores
        self._is_complete, self._may_leave_out = is_complete, may_leave_out
        self._spec = routes.spec

    def of(
        self,
        query_id: str,
        batch: int,
        by_segment: Mapping[int, tuple[str, ...]],
        stopping: threading.Event,
    ) -> tuple[Unit, ...]:
        """The units of those names, but for segments that are tracked by rows. Waits until it is known who
        created them; raises Stopping when the event is set meanwhile, and AtRest where nobody will any more."""
        units: list[Unit] = []
        for segment, names in by_segment.items():
            if segment in self._routes.rows:
                continue
            slots = {name: slot for name in names if (slot := slot_in_name(name)) is not None}
            unknown = [name for name in names if name not in slots]
            slots |= self._resolve(query_id, batch, segment, unknown, stopping)
            units += [Unit(segment, name, slots[name]) for name in names if name in slots]
        return tuple(units)

    def _resolve(
        self,
        query_id: str,
        batch: int,
        segment: int,
        names: Sequence[str],
        stopping: threading.Event,
    ) -> dict[str, int]:
        """The slots of units that another query created; waits until its ticks have arrived. Without those that none
        will create any more."""
        found: dict[str, int] = {}
        waits = 0
        while missing := [name for name in names if name not in found]:
            if stopping.is_set():
                raise Stopping
            found |= self._node.resolve_units(
                self._spec.segments[segment], missing, _RESOLVE_WAIT_MS
            )
            waits += 1
            if len(found) < len(names):
                unknown = [name for name in names if name not in found]
                self._wait_for_units(batch, segment, unknown)
                if self._is_complete([segment]):
                    self._leave_out(query_id, batch, segment, unknown)
                    return found
            if waits % 10 == 0 and len(found) < len(names):
                log.warning(
                    "batch %d of query %s waits for %d units that no tick has created in segment "
                    "%r, such as %s: has the query that wrote them been tracked?",
                    batch, query_id, len(names) - len(found),
                    self._spec.segments[segment], missing[:_NAMES_SHOWN],
                )  # fmt: skip
        return found

    def _leave_out(self, query_id: str, batch: int, segment: int, missing: Sequence[str]) -> None:
        """What no tick will create. Had one done so, it would be open: this query reads it. Raises AtRest where the query
        reads nothing else that is not complete."""
        shown = self._routes.tables.shown(missing[0]) or missing[0]
        what = (
            f"segment {self._spec.segments[segment]!r} of pipeline {self._spec.name!r} is complete, and batch {batch} "
            f"has read {len(missing)} units there that no tick has created before, such as {shown}: they are not counted"
        )
        reads = map(self._routes.number, self._routes.read_segments())
        if not self._may_leave_out or self._is_complete(reads):
            raise AtRest(what)
        log.warning("query %s: %s", query_id, what)

    def _wait_for_units(self, batch: int, segment: int, missing: Sequence[str]) -> None:
        """Reports that the query waits for the slots of files. Where one lies beside a log of what a writer
        has published, the writer is behind; else nobody may ever create it."""
        stray = [name for name in missing if not _has_writer(name, self._stores)]
        named = (stray or missing)[:_NAMES_SHOWN]
        shown = ", ".join(self._routes.tables.shown(name) or name for name in named)
        if stray:
            text = f"{len(stray)} files that no tick has created, such as {shown}"
            kind = WaitKind.UNKNOWN_ITEMS
        else:
            text = f"the writer of {len(missing)} files whose tick has not been committed, such as {shown}"
            kind = WaitKind.WRITER_BEHIND
        self._node.report_waits([WaitCause(kind, text, segment, batch)])


def _has_writer(unit: str, stores: Stores) -> bool:
    """Whether a file lies in a directory, or below one, whose writer keeps a log of what it publishes."""
    try:
        where = stores.location(unit)
        files = stores.files(where)
        folders = parents(where)[:_MAX_PARTITION_FOLDERS]
        return any(
            files.is_directory(child(folder, log)) for folder in folders for log in _WRITERS_LOGS
        )
    except FilesError:
        return False
