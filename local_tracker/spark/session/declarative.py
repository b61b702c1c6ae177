"""Follows all flows of a declarative pipeline, as `attached` follows one query.

    followed = FollowedPipeline("127.0.0.1:7070", "orders", "/data/pipeline", Tables("/data/warehouse"))
    followed.look()   # now and again: finds new flows, and new versions of those that are known

A flow is one node, whatever version of it runs. When a version has begun that is newer than the one that
is followed, the older one is over: what of it the tracker has counts, and whatever it has not is not told
any more, since a full refresh has emptied the table and reads all of that again. So of the new version's
input, files that an older one has consumed in a batch that the tracker has are left out: they are complete,
and stay so. What the new version writes are new files, and new items to whoever reads the table; where a
batch has read nothing but files of before, they are created at the min time of the moment.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from local_tracker.spark.formats.outputs import Output
from local_tracker.spark.query.logs import CheckpointLog, SinkLog
from local_tracker.spark.query.ticks import QueryTicks
from local_tracker.spark.session.attached import AttachedQuery
from local_tracker.spark.session.flows import (
    Flow,
    FlowReads,
    Tables,
    find_flows,
    flows_by_table,
    is_directory,
)
from tracker.client import UnavailableError
from tracker.core.log import Joined
from tracker.core.model import Batch, PipelineSpec
from tracker.core.model.ack_values import unit_value
from tracker.errors import Code, FilesError, TrackingError
from tracker.files import STORES, Stores, child

MAX_READ_AGAIN = 10_000_000
"""Files that older versions of a flow have consumed; 8 bytes each."""
REFRESH_GRACE_S = 60.0
"""How long a flow that cannot be followed is waited for: its table may be emptied before the version
that refreshes it has begun."""
SWITCH_TIMEOUT_S = 5.0
"""How long what an older version has committed may take when a newer one has begun."""

_MAX_RECORD_BYTES = 1 << 20

log = logging.getLogger("lowmark.spark")


class SupersededError(Exception):
    """A newer version of a flow has begun, so the table's log is no longer the older one's."""


class ReadAgainLog(CheckpointLog):
    """A checkpoint whose query reads files again that another has consumed before: those are left out."""

    _before: NDArray[np.uint64] = np.empty(0, np.uint64)

    def leave_out(self, names: Iterable[str]) -> None:
        self._before = _values(names)

    def consumed(self, batch: int) -> dict[str, tuple[str, ...]]:
        found = super().consumed(batch)
        if not len(self._before):
            return found
        new = {s: tuple(n for n in names if not self._was(n)) for s, names in found.items()}
        return {source: names for source, names in new.items() if names}

    def _was(self, name: str) -> bool:
        return _contains(self._before, name)


class Begun:
    """From which batch on each flow is told, of a pipeline that had batches before anyone followed it: one file
    beside the checkpoints, written once and for all flows, so that it is the same after any restart."""

    def __init__(self, storage: str, pipeline: str, stores: Stores = STORES) -> None:
        name = f"_lowmark/{quote(pipeline, safe='')}.json"
        self._path = child(stores.location(storage), name)
        self._files = stores.files(self._path)

    def is_written(self) -> bool:
        return self._files.size(self._path) is not None

    def first_batch(self, flow: Flow, version: int) -> int:
        """0 unless another was written. Raises FilesError where that cannot be read."""
        data = self._files.read_whole(self._path, _MAX_RECORD_BYTES)
        if data is None:
            return 0
        try:
            return int(json.loads(data)["first_batches"].get(flow.segment, {}).get(str(version), 0))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FilesError(
                f"{self._path} does not say at which batches to begin: {error}", Code.FILES_LOG
            ) from None

    def write(self, first_batches: Mapping[str, Mapping[str, int]]) -> None:
        """first_batches: by segment and version. Has no effect where it was written before."""
        document = json.dumps({"first_batches": first_batches}).encode()
        self._files.create_if_absent(self._path, document)


class FlowQuery(AttachedQuery):
    """One version of a flow that is followed."""

    _one_query = False

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        flow: Flow,
        *,
        creates: Sequence[str],
        sink: str,
        untracked: Sequence[str],
        begun: Begun,
        take_over: bool = False,
        stores: Stores = STORES,
    ) -> None:
        """flow: its newest version is followed. creates: the segments of the readers of its table. sink:
        the table's directory. take_over: end an older version's session. Raises as AttachedQuery."""
        self.flow, self.version = flow, flow.begun[-1]
        checkpoint = flow.checkpoint(self.version)
        super().__init__(
            target, pipeline, flow.segment, checkpoint, reads=flow.segment, creates=creates, sink=sink,
            untracked=untracked, first_batch=begun.first_batch(flow, self.version), take_over=take_over,
        )  # fmt: skip
        self._begun, self._stores = begun, stores
        self._checkpoint = self._reads_again = ReadAgainLog(checkpoint, stores)
        self.failed_s: float | None = None
        """When it was first seen to have failed."""

    def _ticks(self, joined: Joined) -> QueryTicks:
        self._reads_again.leave_out(self._told_before(joined.last_batches))
        return super()._ticks(joined)

    def _told_before(self, last_batches: Sequence[Batch]) -> Iterable[str]:
        """What older versions have consumed in batches that the tracker has, or that were not to be told."""
        told = {batch.scope: batch.id for batch in last_batches}
        for version in self.flow.begun[:-1]:
            older = CheckpointLog(self.flow.checkpoint(version), self._stores)
            untold = self._begun.first_batch(self.flow, version) - 1
            last = told.get(older.query_id, untold)
            if last >= 0:
                yield from older.consumed_until(last)

    def _outputs(self, creates: tuple[int, ...]) -> tuple[Output, ...]:
        """The table's log, unless a newer version may be the one that writes it."""
        try:
            return tuple(self._guarded(output) for output in super()._outputs(creates))
        except FilesError:
            self._check_newest()
            raise

    def _guarded(self, output: Output) -> Output:
        def names(batch: int) -> Iterable[str]:
            found = list(output.names(batch))
            self._check_newest()
            return found

        def has(batch: int) -> bool:
            found = output.has(batch)
            self._check_newest()
            return found

        return replace(output, names=names, has=has)

    def _check_newest(self) -> None:
        files = self._stores.files(self.flow.directory)
        later = [int(v) for v in files.names(self.flow.directory) if v.isdecimal()]
        if max(later, default=0) > self.version:
            raise SupersededError(
                f"version {max(later)} of flow {self.flow.segment!r} is there, and writes its table anew; "
                f"what was not told of version {self.version} is read again by it"
            )


class FollowedPipeline:
    """The flows of a pipeline. `look()` now and again, then `close()`. Not thread-safe."""

    def __init__(
        self,
        target: str | Sequence[str],
        spec: PipelineSpec,
        storage: str,
        tables: Tables,
        *,
        untracked: Sequence[str] = (),
        stores: Stores = STORES,
    ) -> None:
        """spec: as registered. untracked: directories, and `SEGMENT=NUMBER` of sources."""
        self._target, self._spec, self._storage, self._tables = target, spec, storage, tables
        self._untracked, self._stores = tuple(untracked), stores
        self._begun = Begun(storage, spec.name, stores)
        self._queries: dict[str, FlowQuery] = {}
        self._unknown: set[str] = set()
        self._followed_before: set[str] = set()
        """The segments of flows that this process has followed, whatever became of that."""

    @property
    def queries(self) -> Mapping[str, FlowQuery]:
        """What is followed, by segment."""
        return self._queries

    def begin_now(self) -> None:
        """What has been committed so far is not to be told. Has no effect when it was done before. Raises
        TrackingError unless the pipeline is at rest: of what it has written, nothing is still to be read."""
        if self._begun.is_written():
            return
        flows = {flow.segment: flow for flow in find_flows(self._storage, self._stores)}
        for flow in flows.values():
            writers = [e.source for e in self._spec.edges if e.target == flow.segment]
            self._check_at_rest(flow, [flows[name] for name in writers if name in flows])
        self._begun.write({flow.segment: self._next_batches(flow) for flow in flows.values()})

    def look(self) -> None:
        """Follows what is new. Raises TrackingError where a flow cannot be followed, and FilesError."""
        flows = find_flows(self._storage, self._stores)
        flows_by_table(flows, self._tables)  # refuses what shares one
        for flow in flows:
            if flow.begun and self._is_known(flow):
                self._look_at(flow)

    def wait_durable(self, timeout_s: float) -> bool:
        """Waits until all that is over by now is durable in the tracker; False when the time is up, or a
        flow is being refreshed. Raises TrackingError."""
        end = time.monotonic() + timeout_s
        for query in self._queries.values():
            try:
                if not query.wait_durable(max(0.0, end - time.monotonic())):
                    return False
            except TrackingError:
                return False  # `look` judges it
        return True

    def close(self, timeout_s: float) -> bool:
        """Ends following; True if all that is over has been committed."""
        end = time.monotonic() + timeout_s
        closed = [q.close(max(0.0, end - time.monotonic())) for q in self._queries.values()]
        self._queries.clear()
        return all(closed)

    def query(self, flow: Flow, *, take_over: bool) -> FlowQuery:
        """The newest version of a flow, not started."""
        creates = [edge.target for edge in self._spec.edges if edge.source == flow.segment]
        prefix = f"{flow.segment}="
        untracked = [u for u in self._untracked if is_directory(u)]
        untracked += [u.removeprefix(prefix) for u in self._untracked if u.startswith(prefix)]
        return FlowQuery(
            self._target, self._spec.name, flow, creates=creates, sink=self._tables.directory(flow),
            untracked=untracked, begun=self._begun, take_over=take_over,
            stores=self._stores,
        )  # fmt: skip

    # --- inside -----------------------------------------------------------------------------------

    def _is_known(self, flow: Flow) -> bool:
        known = flow.segment in self._spec.segments
        if not known and flow.segment not in self._unknown:
            self._unknown.add(flow.segment)
            log.warning(
                "flow %r is not followed: pipeline %r has no segment of that name; register a pipeline with "
                "it under another name", flow.segment, self._spec.name,
            )  # fmt: skip
        return known

    def _look_at(self, flow: Flow) -> None:
        followed = self._queries.get(flow.segment)
        if followed is not None and followed.version == flow.begun[-1]:
            self._check_failure(flow, followed)
            return
        if followed is not None:
            log.info("flow %r: version %d has begun", flow.segment, flow.begun[-1])
            followed.close(SWITCH_TIMEOUT_S)
            del self._queries[flow.segment]
        is_new = flow.segment not in self._followed_before
        query = self.query(flow, take_over=not is_new)
        try:
            query.start()
        except SupersededError as error:
            log.info("%s", error)
        except UnavailableError as error:
            if is_new:
                raise
            log.warning("flow %r is followed when the tracker is back: %s", flow.segment, error)
        else:
            self._queries[flow.segment] = query
            self._followed_before.add(flow.segment)

    def _check_failure(self, flow: Flow, followed: FlowQuery) -> None:
        """Raises TrackingError where a flow cannot be followed, and not because it is being refreshed."""
        if followed.failure is None or flow.versions[-1] > followed.version:
            return
        followed.failed_s = followed.failed_s or time.monotonic()
        if time.monotonic() - followed.failed_s > REFRESH_GRACE_S:
            raise followed.failure

    def _check_at_rest(self, flow: Flow, writers: Sequence[Flow]) -> None:
        logs = CheckpointLog(flow.checkpoint(flow.begun[-1]), self._stores) if flow.begun else None
        planned, committed = (logs.planned(), logs.committed()) if logs else ([], [])
        if planned[-1:] != committed[-1:]:
            raise TrackingError(
                f"flow {flow.segment!r} is in the middle of batch {planned[-1]}: run the pipeline to its end, "
                f"before following it from now on"
            )
        last = committed[-1:]
        done = _values(logs.consumed_until(last[0])) if logs and last else _values(())
        for writer in writers:
            for name in self._written(writer):
                if not _contains(done, name):
                    raise TrackingError(
                        f"flow {flow.segment!r} has not read {name} of flow {writer.segment!r} yet: run the "
                        f"pipeline to its end, before following it from now on"
                    )

    def _next_batches(self, flow: Flow) -> dict[str, int]:
        """The batch after the last of each version."""
        logs = {v: CheckpointLog(flow.checkpoint(v), self._stores) for v in flow.begun}
        return {str(v): max(log.committed(), default=-1) + 1 for v, log in logs.items()}

    def _written(self, flow: Flow) -> Iterable[str]:
        """What the newest version of a flow has written in batches that are still logged."""
        if not flow.begun:
            return
        sink = SinkLog(self._tables.directory(flow), self._stores)
        for batch in CheckpointLog(flow.checkpoint(flow.begun[-1]), self._stores).readable():
            yield from sink.created(batch)


def check_edges(spec: PipelineSpec, reads: Iterable[FlowReads]) -> None:
    """Raises TrackingError where a registered pipeline lacks an edge for what a flow has read."""
    edges = {(edge.source, edge.target) for edge in spec.edges}
    for each in reads:
        for writer in each.tables:
            pair = writer.segment, each.flow.segment
            if not set(pair) - set(spec.segments) and pair not in edges:
                raise TrackingError(
                    f"flow {pair[1]!r} reads the table of flow {pair[0]!r}, but pipeline {spec.name!r} has "
                    f"no edge between them; register one under another name"
                )


def _values(names: Iterable[str]) -> NDArray[np.uint64]:
    """Hashes of names, in order."""
    some = itertools.islice(names, MAX_READ_AGAIN + 1)
    values = np.fromiter((unit_value(name) for name in some), np.uint64)
    if len(values) > MAX_READ_AGAIN:
        raise TrackingError(
            f"more than {MAX_READ_AGAIN} files were consumed before, which is the limit of one flow; "
            f"register a pipeline under another name, and follow it from now on"
        )
    return np.unique(values)


def _contains(values: NDArray[np.uint64], name: str) -> bool:
    value = np.uint64(unit_value(name))
    at = int(np.searchsorted(values, value))
    return at < len(values) and bool(values[at] == value)
