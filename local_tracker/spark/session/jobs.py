"""A plain batch job as a node: what it reads and what it publishes is one tick.

A job has no checkpoint, so its record is the manifest of what it published (`published`), which also
holds the names of its input. A job that was killed before its manifest was there has done nothing; one
that was killed behind it is committed when the next job of the node begins.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar
from urllib.parse import quote

from local_tracker.spark.formats.interface import QueryReads
from local_tracker.spark.formats.published import KEPT_MANIFESTS, Manifest, PublishedBatches
from local_tracker.spark.query.compose import ComposeError, CreatedUnit, fingerprint
from local_tracker.spark.query.follow import BEGUN, Stopping, begun_batch, restarted
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.query.rows import RowsError
from local_tracker.spark.query.ticks import QueryRecord, QueryTicks
from tracker.client import Admin, NodeClient
from tracker.client.known import known_at, known_beside
from tracker.core.log import Joined
from tracker.core.model import Batch, NodeKind, TickContent
from tracker.core.model.units import canonical_name
from tracker.errors import RefusedError, TrackingError, UnavailableError
from tracker.files import STORES, Stores

_JOIN_TIMEOUT_S = 30.0
_COMMIT_TIMEOUT_S = 60.0
_RESOLVE_TIMEOUT_S = 60.0
_ASK_AGAIN_S = 0.5
_MAX_RELABELS = 5

_T = TypeVar("_T")


class JobNode:
    """The jobs of one node that publish into one directory, one at a time."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        node_id: str,
        out: str,
        *,
        reads: str | Mapping[str, str],
        creates: Sequence[str],
        rows: Mapping[str, str] | None = None,
        untracked: Sequence[str] = (),
        stores: Stores = STORES,
    ) -> None:
        """The arguments are those of `Tracked.job`. stores: what the session reaches."""
        self._location = stores.location
        self._untracked = tuple(self._location(path).rstrip("/") + "/" for path in untracked)
        self._batches = PublishedBatches(out, stores)
        self._node_id, self._named = node_id, quote(node_id, safe="")
        self._scope = f"job-{self._named}"  # also the name of a directory
        where = self._batches.directory
        self._begun = begun_batch(self._scope, where)
        self._is_known = False
        known = known_at(known_beside(where, pipeline, node_id), stores)
        self._node = NodeClient(target, pipeline, node_id, kind=NodeKind.OTHER, known=known)
        self._node.never_left = True  # a job never does: the next run goes on behind it
        self._admin = Admin(target)
        try:
            joined = self._node.join(_JOIN_TIMEOUT_S)
            routes = Routes(joined.spec, QueryReads(reads), creates, node_id, rows, stores=stores)
            self._routes = routes
            self._ticks = QueryTicks(self._node, self._admin, routes, None, scope=self._scope)
            self._commit_earlier(joined)
        except BaseException:
            self.close()
            raise

    def run(
        self, inputs: Sequence[str], write: Callable[[str], None], job_id: str | None = None
    ) -> int:
        """Publish what `write(directory)` writes, having read `inputs`; returns the run's number.
        A run of the same `job_id` that has published before is not run again: its number is returned.
        Raises TrackingError, and nothing is published, if it had other input, if an input was read by
        one of the last KEPT_MANIFESTS runs, or if one is not known to the tracker."""
        tracked = (n for n in inputs if not self._location(n).startswith(self._untracked))
        names = sorted(set(map(canonical_name, tracked)))
        earlier = self._run_before(names, job_id)
        if earlier is not None:
            return earlier
        number = self._next
        try:
            record = QueryRecord(number, b"", self._routes.by_segment(names), (), ())
            # Now, since a run that is published cannot be taken back.
            slots = self._in_time(self._ticks.least_slots, record)

            def write_and_check(directory: str) -> None:
                write(directory)
                names = self._batches.written_units(directory)
                written = tuple(CreatedUnit(name, self._routes.creates) for name in names)
                self._ticks.check_rows(replace(record, created=written), slots)
                self._make_known()

            self._batches.publish(
                self._scope, number, json.dumps(names), job_id or "", write_and_check,
                lambda name, _: f"b{number:08d}-{self._named}-{name}",
            )  # fmt: skip
        except (ComposeError, RowsError) as error:
            raise TrackingError(
                f"job {self._node_id!r}, run {number}: {error}; nothing was published"
            ) from error
        self._commit_run(number)
        return number

    def _run_before(self, names: Sequence[str], job_id: str | None) -> int | None:
        """The number of the run of that id. Raises TrackingError if what it read, or another run has
        read, does not allow this one."""
        for number in self._published():
            manifest = self._manifest(number)
            before = self._inputs(manifest)
            if job_id and manifest.run == job_id:
                if before == list(names):
                    return number
                raise TrackingError(
                    f"job {self._node_id!r}: {job_id!r} was its run {number}, which read "
                    f"{len(before)} files, {_some(before)}; it is now to read {len(names)}, "
                    f"{_some(names)}: run it over the same input, or under another job id"
                )
            again = sorted(set(names) & set(before))
            if again:
                raise TrackingError(
                    f"job {self._node_id!r}: {again[0]} has been read by its run {number}, and "
                    f"counts as consumed; {len(again)} of {len(names)} input files were: read the new "
                    f"ones alone"
                )
        return None

    def _in_time(
        self, ask: Callable[[QueryRecord, threading.Event], _T], record: QueryRecord
    ) -> _T:
        """What the ticks make of a run. Raises TrackingError for input that nobody has created."""
        with _stopping_after(_RESOLVE_TIMEOUT_S) as stopping:
            try:
                return ask(record, stopping)
            except Stopping:
                names = [name for group in record.consumed.values() for name in group]
                raise TrackingError(
                    f"job {self._node_id!r}: its input, {_some(names)}, was not created by any tick "
                    f"within {_RESOLVE_TIMEOUT_S:.0f} s, so its slots cannot be told; track who wrote "
                    f"it, or name its directory among those that are not tracked (untracked)"
                ) from None

    def close(self) -> None:
        self._node.close()
        self._admin.close()

    def _make_known(self) -> None:
        """Before a job publishes anything the tracker knows where: else a run that is not committed would be passed over
        when the next one published elsewhere under its number."""
        if not self._is_known:
            begun = self._node.commit(TickContent(batch=self._begun))
            self._node.flush(_COMMIT_TIMEOUT_S)
            begun.result()
            self._is_known = True

    def _check_directory(self, last: Batch, published: Sequence[int]) -> None:
        """Raises TrackingError where the tracker's last run of the node was not published here."""
        if last == self._begun or last.id in published:
            return
        run = "its first run" if last.id == BEGUN else f"run {last.id}"
        raise TrackingError(
            f"job {self._node_id!r}: {run} is known to the tracker, and was not published to {self._batches.directory}: a "
            f"node publishes to one directory, for good; give that one, restore its _lowmark, or take a node id for each "
            f"directory"
        )

    def _commit_earlier(self, joined: Joined) -> None:
        """Commit what an earlier run published and could not commit, when all its files are in their places."""
        last = next((b for b in joined.last_batches if b.scope == self._scope), None)
        durable = BEGUN if last is None else last.id
        published = self._published()
        self._is_known = last is not None
        if last is not None:
            self._check_directory(last, published)
        self._next = max([durable, *published]) + 1
        for number in published:
            if number > durable:
                self._batches.place(self._manifest(number))
                try:
                    self._commit_run(number)
                except TrackingError as error:
                    advice = restarted(joined, "Let the job publish to an empty directory")
                    if not advice:
                        raise
                    raise TrackingError(f"{error}; {advice}") from error

    def _commit_run(self, number: int) -> None:
        manifest = self._manifest(number)
        try:
            consumed = self._routes.by_segment(self._inputs(manifest))
            created = tuple(
                CreatedUnit(name, self._routes.creates)
                for name in self._batches.units(self._scope, number)
            )
            digest = fingerprint(manifest.offsets, consumed, created)
            record = QueryRecord(number, digest, consumed, created, ())
            self._commit(record, self._composed(record))
        except (ComposeError, RowsError, RefusedError, UnavailableError) as error:
            raise TrackingError(
                f"job {self._node_id!r}, run {number}, which has been published: {error}"
            ) from error
        self._next = number + 1
        self._batches.forget(self._scope, number - KEPT_MANIFESTS)

    def _composed(self, record: QueryRecord) -> TickContent:
        """The tick of a run, asked for again where the tracker does not answer: some shard may be started anew."""
        until_s = time.monotonic() + _COMMIT_TIMEOUT_S
        while True:
            try:
                return self._in_time(self._ticks.tick, record)
            except UnavailableError:
                if time.monotonic() > until_s:
                    raise
            time.sleep(_ASK_AGAIN_S)

    def _commit(self, record: QueryRecord, content: TickContent) -> None:
        relabels = 0
        while True:
            try:
                self._node.commit(content).result(_COMMIT_TIMEOUT_S)
                return
            except FutureTimeout:
                raise UnavailableError(
                    f"its tick was not durable within {_COMMIT_TIMEOUT_S:g} s; the next job of the node commits it"
                ) from None
            except RefusedError as error:
                relabels += 1
                other = self._ticks.relabelled(record, error.refusal)
                if other is None or relabels > _MAX_RELABELS:
                    raise
                content = other

    def _manifest(self, number: int) -> Manifest:
        manifest = self._batches.manifest(self._scope, number)
        assert manifest is not None, f"run {number} was published"
        return manifest

    def _published(self) -> list[int]:
        return self._batches.numbers(self._scope)

    @staticmethod
    def _inputs(manifest: Manifest) -> list[str]:
        return [canonical_name(str(name)) for name in json.loads(manifest.offsets)]


@contextmanager
def _stopping_after(timeout_s: float) -> Iterator[threading.Event]:
    """An event that is set when the time is up."""
    event = threading.Event()
    timer = threading.Timer(timeout_s, event.set)
    timer.start()
    try:
        yield event
    finally:
        timer.cancel()


def _some(names: Sequence[str]) -> str:
    return f"{names[0]} and so on" if len(names) > 1 else "".join(names) or "none"
