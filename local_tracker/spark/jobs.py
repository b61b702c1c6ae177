"""A plain batch job as a node: what it reads and what it publishes is one tick.

A job has no checkpoint, so its record is the manifest of what it published (`published`), which also
holds the names of its input. A job that was killed before its manifest was there has done nothing; one
that was killed behind it is told when the next job of the node begins.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

from local_tracker.spark.compose import ComposeError, CreatedUnit, fingerprint
from local_tracker.spark.follower import TrackingError
from local_tracker.spark.published import KEPT_MANIFESTS, Manifest, PublishedBatches
from local_tracker.spark.query_ticks import QueryRecord, QueryTicks, Tracking
from local_tracker.spark.routes import Routes
from local_tracker.spark.rows import RowsError
from tracker.client import Admin, NodeClient
from tracker.client.errors import RefusedError
from tracker.core.model import Batch

_JOIN_TIMEOUT_S = 30.0
_COMMIT_TIMEOUT_S = 60.0


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
    ) -> None:
        self._batches = PublishedBatches(out)
        self._node_id, self._named = node_id, quote(node_id, safe="")
        self._scope = f"job-{self._named}"  # also the name of a directory
        self._node = NodeClient(target, pipeline, node_id, kind="other")
        self._admin = Admin(target)
        try:
            joined = self._node.join(_JOIN_TIMEOUT_S)
            routes = Routes(self._node, joined.spec, reads, creates, node_id, rows)
            self._routes = routes
            self._ticks = QueryTicks(
                self._node, self._admin, routes.spec, None, routes.reads,
                lambda: (), None, tracking=Tracking(rows=routes.rows), scope=self._scope,
            )  # fmt: skip
            self._tell_earlier(joined.last_batches)
        except BaseException:
            self.close()
            raise

    def run(self, inputs: Sequence[str], write: Callable[[str], None]) -> int:
        """Publish what `write(directory)` writes, having read `inputs`; returns the job's number.
        Raises TrackingError, and nothing is published, if an input was read by one of the last
        KEPT_MANIFESTS runs."""
        names = sorted(set(inputs))
        for number in self._published():
            again = set(names) & set(self._inputs(self._manifest(number)))
            if again:
                raise TrackingError(
                    f"job {self._node_id!r}: {sorted(again)[0]} has been read by its run {number}, and "
                    f"counts as consumed; {len(again)} of {len(names)} input files were: read the new "
                    f"ones alone"
                )
        number = self._next
        self._batches.publish(
            self._scope, number, json.dumps(names), "", write,
            lambda name, _: f"b{number:08d}-{self._named}-{name}",
        )  # fmt: skip
        self._tell(number)
        return number

    def close(self) -> None:
        self._node.close()
        self._admin.close()

    def _tell_earlier(self, last_batches: Sequence[Batch]) -> None:
        """Commit what an earlier run published and could not tell."""
        durable = max((b.id for b in last_batches if b.scope == self._scope), default=-1)
        published = self._published()
        self._next = max([durable, *published]) + 1
        for number in published:
            if number > durable:
                self._tell(number)

    def _tell(self, number: int) -> None:
        manifest = self._manifest(number)
        consumed: dict[int, tuple[str, ...]] = {}
        try:
            for name in self._inputs(manifest):
                segment = self._routes.reads.segment(name)
                consumed[segment] = (*consumed.get(segment, ()), name)
            created = tuple(
                CreatedUnit(name, self._routes.creates)
                for name in self._batches.units(self._scope, number)
            )
            digest = fingerprint(manifest.offsets, consumed, created)
            record = QueryRecord(number, digest, consumed, created, None)
            content = self._ticks.tick(record, threading.Event())
            self._node.commit(content).result(_COMMIT_TIMEOUT_S)
        except (ComposeError, RowsError, RefusedError) as error:
            raise TrackingError(f"job {self._node_id!r}, run {number}: {error}") from error
        self._next = number + 1
        self._batches.forget(self._scope, number - KEPT_MANIFESTS)

    def _manifest(self, number: int) -> Manifest:
        manifest = self._batches.manifest(self._scope, number)
        assert manifest is not None, f"run {number} was published"
        return manifest

    def _published(self) -> list[int]:
        return self._batches.numbers(self._scope)

    @staticmethod
    def _inputs(manifest: Manifest) -> list[str]:
        return [str(name) for name in json.loads(manifest.offsets)]
