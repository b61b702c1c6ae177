"""Metrics of a tracker process or a relay, gathered when somebody asks for them (`tracker.metrics.names` lists
them).

The process counts little by itself (`tracker.service.stats`); the rest is read off its state, in its
loop, at the moment of the scrape. Turning that into text happens in a thread beside it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from tracker import __version__
from tracker.core.insight.describe import ShardRole
from tracker.core.insight.measures import FrontMeasures, PipelineMeasures, SegmentMeasures
from tracker.core.model.placements import DIRECTORY_GROUP
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.http import HttpServer
from tracker.metrics.exposition import metrics_server
from tracker.metrics.families import Families, render
from tracker.metrics.freshness import gather_freshness
from tracker.metrics.latencies import Latencies
from tracker.metrics.names import SERVICE
from tracker.service.stats import CALLS_REFUSED

if TYPE_CHECKING:
    from tracker.service.engine import Engine
    from tracker.service.relaying import HeardPipeline, HeardSegment, RelayServer
    from tracker.service.rpc.progress import Hub
    from tracker.service.server import Parts, TrackerServer

MAX_PIPELINES = 1_000
"""Pipelines whose metrics are served, by name; `lowmark_metrics_omitted` says how many are not."""
MAX_SEGMENTS = 5_000
"""Segments of all of them together."""
MAX_FRONTS = 2_000
"""Fronts of all of them together."""


class ServiceMetrics:
    """The metrics of one process: of the shard that it serves, while it serves one, or of the relay that it is."""

    def __init__(self, group: int = DIRECTORY_GROUP) -> None:
        """group: the number of the process's group, which every sample has as its label `group`."""
        self._group = str(group)
        self.server: TrackerServer | None = None
        self.relay: RelayServer | None = None

    def listen(self, address: str) -> HttpServer:
        """A server that tells them, to be started in the process's loop."""

        async def gather() -> bytes:
            return await asyncio.to_thread(render, self.gather(), group=self._group)

        return metrics_server(address, gather)

    def gather(self) -> Families:
        """Reads the state; to be called in the process's loop."""
        families = Families(SERVICE)
        shard = "" if self.server is None else str(self.server.config.shard)
        families.add_info("lowmark_process_info", version=__version__, shard=shard)
        if (
            self.relay is None
        ):  # which waits for no shard: a 0 would count as a shard that nobody serves
            families.add("lowmark_serving", self.server is not None)
        for reason, count in sorted(CALLS_REFUSED.items()):
            families.add("lowmark_calls_refused_total", count, reason)
        if self.server is not None:
            _gather_parts(families, self.server.parts)
        if self.relay is not None:
            _gather_relayed(families, self.relay)
        return families


def _gather_parts(families: Families, parts: Parts) -> None:
    _gather_store(families, parts.engine)
    _gather_links(families, parts)
    _gather_subscribers(families, parts.hub, parts.engine.stats.notifications)
    families.add("lowmark_waiting_calls", parts.units.count, "units")
    _gather_pipelines(families, parts)
    gather_freshness(families, parts.sampler.sampled())


def _gather_relayed(families: Families, server: RelayServer) -> None:
    """What a tracker's process tells of what it announces, and nothing of what only shards and homes know."""
    relay, hub = server.relay, server.hub
    _gather_subscribers(families, hub, server.notifications)
    followed = relay.measure(MAX_PIPELINES, time.monotonic_ns())
    _gather_announced(families, followed, relay.known, hub)


def _gather_store(families: Families, engine: Engine) -> None:
    stats, process = engine.stats, engine.process
    left_s = engine.lease_left_s
    families.add("lowmark_lease_held", left_s is None or left_s > 0)
    if left_s is not None:
        families.add("lowmark_lease_remaining_seconds", left_s)
    families.add_latencies("lowmark_store_commit_duration_seconds", stats.commits)
    families.add("lowmark_store_committed_records_total", stats.committed_records)
    families.add("lowmark_store_committed_bytes_total", stats.committed_bytes)
    families.add("lowmark_store_backlog_records", process.position - process.committed)
    families.add("lowmark_store_snapshots_total", stats.snapshots)
    families.add("lowmark_store_weakened", bool(stats.store_weakened))
    for operation, failures in stats.store_failures.items():
        families.add("lowmark_store_failures_total", failures, operation)


def _gather_links(families: Families, parts: Parts) -> None:
    process, stats = parts.engine.process, parts.engine.stats
    families.add("lowmark_home_log_entries_total", process.home_log_entries)
    families.add("lowmark_congested", process.congested)
    shards = process.describe_shards()
    for role in ShardRole:
        families.add("lowmark_shards", sum(s.role is role for s in shards), role.value)
    families.add("lowmark_routing_version", process.routing.version)
    families.add("lowmark_cells_moved_total", process.moved_cells)
    for shard in shards:
        if shard.shard == process.shard:
            continue
        label = str(shard.shard)
        families.add("lowmark_shard_connected", shard.connected, label)
        families.add("lowmark_shard_entries_behind", shard.entries_behind, label)
        forwarding = stats.forwarding[shard.shard]
        families.add_latencies("lowmark_forward_duration_seconds", forwarding.latencies, label)
        families.add("lowmark_frames_dropped_total", forwarding.dropped_frames, label)
        families.add("lowmark_peer_messages_too_large_total", forwarding.too_large_messages, label)
        families.add("lowmark_peer_messages_sent_total", forwarding.sent_messages, label)
        families.add("lowmark_peer_bytes_sent_total", forwarding.sent_bytes, label)
        if shard.shard in parts.peers:
            families.add("lowmark_frames_queued", parts.peers[shard.shard].queued, label)


def _gather_subscribers(families: Families, hub: Hub, notifications: Latencies) -> None:
    unread, oldest_s = hub.unread()
    families.add("lowmark_subscriber_streams", hub.streams)
    families.add("lowmark_subscriber_queue_updates", unread)
    families.add("lowmark_subscriber_queue_age_seconds", oldest_s)
    families.add_latencies("lowmark_notification_duration_seconds", notifications)
    families.add("lowmark_waiting_calls", hub.waiting.count, "min_time")


def _gather_pipelines(families: Families, parts: Parts) -> None:
    process, now_ns = parts.engine.process, time.monotonic_ns()
    specs = process.pipelines()
    families.add("lowmark_pipelines", len(specs))
    pipelines = [process.measure(spec.name, now_ns) for spec in specs[:MAX_PIPELINES]]
    _gather_announced(families, pipelines, len(specs), parts.hub)
    for pipeline in pipelines:
        _gather_pipeline(families, pipeline, parts)
    segments = ((p, segment) for p in pipelines for segment in p.segments)
    for p, segment in islice(segments, MAX_SEGMENTS):
        _gather_segment(families, p, segment)
    fronts = [(p, front) for p in pipelines for front in p.fronts]
    # The most silent first: those are what one wants to know of.
    fronts.sort(key=lambda found: -found[1].silent_ns)
    now_s = time.time()
    for p, front in islice(fronts, MAX_FRONTS):
        _gather_front(families, p, front, now_s)
    _add_omitted(families, "fronts", len(fronts), MAX_FRONTS)


def _gather_announced(
    families: Families,
    pipelines: Sequence[PipelineMeasures] | Sequence[HeardPipeline],
    found: int,
    hub: Hub,
) -> None:
    """What is announced here. found: of how many pipelines, also where they are more than are given."""
    for pipeline in pipelines:
        name = pipeline.pipeline
        families.add("lowmark_subscribers", hub.subscribers(name), name)
        families.add("lowmark_pipeline_complete", pipeline.complete, name)
        families.add("lowmark_pipeline_generation", pipeline.generation, name)
    segments = [(p, segment) for p in pipelines for segment in p.segments]
    for p, segment in segments[:MAX_SEGMENTS]:
        _gather_min_time(families, p, segment)
    _add_omitted(families, "pipelines", found, MAX_PIPELINES)
    _add_omitted(families, "segments", len(segments), MAX_SEGMENTS)


def _add_omitted(families: Families, what: str, found: int, limit: int) -> None:
    families.add("lowmark_metrics_omitted", max(0, found - limit), what)


def _gather_min_time(
    families: Families,
    pipeline: PipelineMeasures | HeardPipeline,
    segment: SegmentMeasures | HeardSegment,
) -> None:
    labels, unchanged_ns = (pipeline.pipeline, segment.segment), segment.unchanged_ns
    if segment.min_time == FOREVER:
        unchanged_ns = 0
    else:
        reached_s = _seconds(segment.min_time, pipeline)
        families.add("lowmark_segment_min_time_timestamp_seconds", reached_s, *labels)
    if unchanged_ns is not None:
        families.add("lowmark_segment_unchanged_seconds", unchanged_ns / 1e9, *labels)


def _gather_pipeline(families: Families, pipeline: PipelineMeasures, parts: Parts) -> None:
    name = pipeline.pipeline
    counts = parts.engine.stats.pipelines.get(name)
    if counts is not None:
        families.add("lowmark_ticks_total", counts.ticks, name)
        families.add("lowmark_tick_cells_total", counts.created, name, "created")
        families.add("lowmark_tick_cells_total", counts.consumed, name, "consumed")
        for reason, count in sorted(counts.refused.items()):
            families.add("lowmark_ticks_refused_total", count, name, reason)
    families.add("lowmark_vector_keys", pipeline.keys, name)
    families.add("lowmark_fronts", pipeline.known_fronts, name)
    families.add("lowmark_staged_contributions", pipeline.staged, name)
    for what, nodes in pipeline.waiting.items():
        families.add("lowmark_nodes_waiting", nodes, name, what)


def _gather_segment(
    families: Families, pipeline: PipelineMeasures, segment: SegmentMeasures
) -> None:
    labels = (pipeline.pipeline, segment.segment)
    complete = segment.min_time == FOREVER
    if complete or segment.lag_slots is not None:
        lag_s = 0.0 if complete else _seconds(segment.lag_slots or 0, pipeline)
        families.add("lowmark_segment_lag_seconds", lag_s, *labels)
    families.add("lowmark_segment_open_slots", segment.open_slots, *labels)
    families.add("lowmark_segment_open_items", segment.open_items, *labels)
    families.add("lowmark_segment_open_units", segment.open_units, *labels)
    families.add("lowmark_segment_late_items_total", segment.late_items, *labels)
    families.add("lowmark_segment_written_off_items_total", segment.written_off_items, *labels)


def _gather_front(
    families: Families, pipeline: PipelineMeasures, front: FrontMeasures, now_s: float
) -> None:
    labels = (pipeline.pipeline, front.node_id, front.front)
    families.add("lowmark_front_silent_seconds", front.silent_ns / 1e9, *labels)
    if front.promise in (FOREVER, LOWEST_SLOT):
        return  # it says no moment
    promise_s = _seconds(front.promise, pipeline)
    families.add("lowmark_front_promise_timestamp_seconds", promise_s, *labels)
    families.add("lowmark_front_behind_seconds", _seconds(front.behind_slots, pipeline), *labels)
    families.add("lowmark_front_ahead_seconds", max(0.0, promise_s - now_s), *labels)


def _seconds(slots: int, pipeline: PipelineMeasures | HeardPipeline) -> float:
    return slots * pipeline.slack_ns / 1e9
