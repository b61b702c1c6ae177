"""Every metric of Lowmark: its name, kind, labels and meaning. `docs/metrics.md` shows this list.

Labels are bounded: names of pipelines, segments and fronts as far as they are registered and joined,
numbers of shards, and words of fixed lists. Never a slot, an item, a client or a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

Family: TypeAlias = (
    CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | InfoMetricFamily
)

COUNTER, GAUGE, HISTOGRAM, INFO = "counter", "gauge", "histogram", "info"
_FAMILIES: dict[str, Any] = {
    COUNTER: CounterMetricFamily, GAUGE: GaugeMetricFamily, HISTOGRAM: HistogramMetricFamily,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `name` as Prometheus shows it, but for a histogram's `_bucket`, `_sum`, `_count`."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    def family(self) -> Family:
        """An empty family, to add samples to."""
        if self.kind == INFO:
            return InfoMetricFamily(self.name.removesuffix("_info"), self.help, labels=())
        return _FAMILIES[self.kind](self.name, self.help, labels=self.labels)


_PIPELINE = ("pipeline",)
_SEGMENT = ("pipeline", "segment")
_FRONT = ("pipeline", "node", "front")
_BEHIND = ("pipeline", "segment", "behind")

SERVICE: Sequence[Metric] = (
    # The process.
    Metric("lowmark_process_info", INFO,
           "The version, and the shard that the process serves (empty while it serves none).",
           ("version", "shard")),
    Metric("lowmark_serving", GAUGE,
           "1 while the process serves a shard; 0 while it waits for one."),
    Metric("lowmark_pipelines", GAUGE, "Registered pipelines, as this process knows them."),
    Metric("lowmark_lease_held", GAUGE,
           "1 while it is certain that no other process owns the shard (or the store has no leases)."),
    Metric("lowmark_lease_remaining_seconds", GAUGE,
           "For how long that is certain without a further renewal."),
    Metric("lowmark_calls_refused_total", COUNTER,
           "Calls and streams that ended with a refusal.", ("reason",)),
    Metric("lowmark_metrics_omitted", GAUGE,
           "Series left out because there are more than the limit.", ("what",)),
    # The store.
    Metric("lowmark_store_commit_duration_seconds", HISTOGRAM,
           "How long a group commit took until it was durable."),
    Metric("lowmark_store_committed_records_total", COUNTER,
           "Records made durable by group commits."),
    Metric("lowmark_store_committed_bytes_total", COUNTER,
           "Bytes of those records, as they are stored."),
    Metric("lowmark_store_backlog_records", GAUGE, "Records that are not durable yet."),
    Metric("lowmark_store_snapshots_total", COUNTER, "Snapshots written."),
    Metric("lowmark_store_weakened", GAUGE,
           "1 while the store promises less than it must, and nothing is acknowledged for it."),
    Metric("lowmark_store_failures_total", COUNTER,
           "Failed writes to the store and renewals of the lease; they are tried again.",
           ("operation",)),
    # Between the shards.
    Metric("lowmark_shard_connected", GAUGE,
           "1 while the other shard is connected and has reported what it holds.", ("to_shard",)),
    Metric("lowmark_shard_entries_behind", GAUGE,
           "Entries of this shard's home log that the other shard has not confirmed.",
           ("to_shard",)),
    Metric("lowmark_forward_duration_seconds", HISTOGRAM,
           "From sending entries to another shard until it has them durably (one at a time is timed).",
           ("to_shard",)),
    Metric("lowmark_frames_queued", GAUGE, "Frames that wait to be sent to another shard.",
           ("to_shard",)),
    Metric("lowmark_frames_dropped_total", COUNTER,
           "Frames to another shard that found no room; the protocol sends again what matters.",
           ("to_shard",)),
    Metric("lowmark_peer_messages_too_large_total", COUNTER,
           "Messages to another shard that were larger than a message may be, and not sent: min time "
           "stands until somebody acts; the log names what was in them.", ("to_shard",)),
    Metric("lowmark_peer_messages_sent_total", COUNTER,
           "Messages sent to another shard; frames of one moment share one.", ("to_shard",)),
    Metric("lowmark_peer_bytes_sent_total", COUNTER,
           "Bytes of those messages; what HTTP/2 adds is not counted.", ("to_shard",)),
    Metric("lowmark_home_log_entries_total", COUNTER,
           "Entries of this shard's home log since the shard began."),
    Metric("lowmark_congested", GAUGE,
           "1 while so much is unconfirmed by other shards that no more ticks are read."),
    # Shards that come and go.
    Metric("lowmark_shards", GAUGE,
           "Shards, by what each is for: owner, spare (has joined, owns nothing yet), joining, draining, "
           "leaving.", ("role",)),
    Metric("lowmark_routing_version", GAUGE,
           "Version of the table by which slots are dealt to shards; it grows with each rescale."),
    Metric("lowmark_cells_moved_total", COUNTER,
           "Open cells that this process has handed over to other shards."),
    # Subscribers.
    Metric("lowmark_subscriber_streams", GAUGE, "Subscribers' streams at this process."),
    Metric("lowmark_subscribers", GAUGE, "Streams that subscribe to a pipeline.", _PIPELINE),
    Metric("lowmark_subscriber_queue_updates", GAUGE,
           "News that subscribers have not taken yet: at most one for each pipeline and stream."),
    Metric("lowmark_subscriber_queue_age_seconds", GAUGE,
           "How long the oldest of them waits; it grows while a subscriber does not read."),
    Metric("lowmark_notification_duration_seconds", HISTOGRAM,
           "From an announcement (it is durable then) until it was handed to a subscriber's stream."),
    Metric("lowmark_waiting_calls", GAUGE,
           "Calls that wait for min time, or for the slots of units.", ("what",)),
    # Pipelines.
    Metric("lowmark_ticks_total", COUNTER,
           "Ticks that nodes have sent to this process, refused ones and repeated ones included.",
           _PIPELINE),
    Metric("lowmark_tick_cells_total", COUNTER, "Cells of those ticks.", ("pipeline", "kind")),
    Metric("lowmark_ticks_refused_total", COUNTER, "Ticks refused by this process.",
           ("pipeline", "reason")),
    Metric("lowmark_pipeline_complete", GAUGE,
           "1 when everything is processed and nothing more can come.", _PIPELINE),
    Metric("lowmark_pipeline_generation", GAUGE, "How often the pipeline was restarted.", _PIPELINE),
    Metric("lowmark_vector_keys", GAUGE,
           "Size of the vector: nodes, by incarnation, whose ticks are counted.", _PIPELINE),
    Metric("lowmark_fronts", GAUGE, "Fronts that have joined and not left.", _PIPELINE),
    Metric("lowmark_staged_contributions", GAUGE,
           "Contributions of tasks staged at this process for batches that are not committed yet.",
           _PIPELINE),
    Metric("lowmark_nodes_waiting", GAUGE,
           "Nodes at home at this process that report that they wait, by what for: unknown_items, not_told, "
           "writer_behind, refused (also those whose last tick was refused), other.",
           ("pipeline", "what")),
    # Segments.
    Metric("lowmark_segment_min_time_timestamp_seconds", GAUGE,
           "Min time as unix time; absent when the segment is complete.", _SEGMENT),
    Metric("lowmark_segment_lag_seconds", GAUGE,
           "How far min time is behind the newest promise of a front; 0 when complete, absent while "
           "no front is there.", _SEGMENT),
    Metric("lowmark_segment_unchanged_seconds", GAUGE,
           "How long ago this process last moved the segment's min time (or started); 0 when complete.",
           _SEGMENT),
    Metric("lowmark_segment_open_slots", GAUGE,
           "Slots with items in flight, of those that this shard owns.", _SEGMENT),
    Metric("lowmark_segment_open_items", GAUGE, "Items in them (advisory).", _SEGMENT),
    Metric("lowmark_segment_open_units", GAUGE,
           "Names of open units that this shard keeps.", _SEGMENT),
    Metric("lowmark_segment_late_items_total", COUNTER,
           "Items consumed below min time: the late ledger of this shard.", _SEGMENT),
    Metric("lowmark_segment_written_off_items_total", COUNTER,
           "Items that operators have written off at this shard.", _SEGMENT),
    # Freshness: samples that the process takes once a second, as `lowmark status --freshness` shows them.
    Metric("lowmark_freshness_now_seconds", GAUGE,
           "How far min time is behind, at the last sample; absent where there is nothing to compare.",
           _BEHIND),
    Metric("lowmark_freshness_level_seconds", GAUGE,
           "What it did not pass in so many percent of the window's samples; 100: the largest.",
           (*_BEHIND, "window", "percentile")),
    # Fronts, each at its node's home.
    Metric("lowmark_front_silent_seconds", GAUGE,
           "Age of the front's heartbeat: how long ago its promise last moved.", _FRONT),
    Metric("lowmark_front_promise_timestamp_seconds", GAUGE,
           "The front's promise as unix time.", _FRONT),
    Metric("lowmark_front_behind_seconds", GAUGE,
           "How far its promise is behind the newest promise of the pipeline's fronts.", _FRONT),
    Metric("lowmark_front_ahead_seconds", GAUGE,
           "How far its promise is ahead of this process's clock, 0 if it is not: where slots are "
           "wall-clock time, the clocks differ by at least as much.", _FRONT),
)  # fmt: skip
"""What `lowmark serve` tells."""

LOCAL_TRACKER: Sequence[Metric] = (
    Metric("lowmark_local_tracker_info", INFO, "The version and the mode.", ("version", "mode")),
    Metric("lowmark_local_tracker_connections", GAUGE, "Python workers that are connected."),
    Metric("lowmark_local_tracker_steps_total", COUNTER, "Steps of workers that are durable (eager)."),
    Metric("lowmark_local_tracker_cells_received_total", COUNTER, "Cells of those steps."),
    Metric("lowmark_local_tracker_cells_flushed_total", COUNTER,
           "Cells of the flushes that they were merged into."),
    Metric("lowmark_local_tracker_merge_ratio", GAUGE,
           "Cells received for each cell flushed, since the start; absent before the first."),
    Metric("lowmark_local_tracker_gathered_cells", GAUGE, "Cells that wait for the next flush."),
    Metric("lowmark_local_tracker_flushes_total", COUNTER, "Flushes, by what became of them.",
           ("outcome",)),
    Metric("lowmark_local_tracker_flush_duration_seconds", HISTOGRAM,
           "From sending a flush until it is durable."),
    Metric("lowmark_local_tracker_contributions_total", COUNTER,
           "Contributions of task attempts passed on and durable (transactional)."),
    Metric("lowmark_local_tracker_stage_duration_seconds", HISTOGRAM,
           "From passing contributions on until they are durable."),
    Metric("lowmark_local_tracker_refused_total", COUNTER,
           "Requests of workers that were answered with an error.", ("reason",)),
)  # fmt: skip
"""What a local tracker tells."""

PROCESS: Sequence[Metric] = (
    Metric("lowmark_process_virtual_memory_bytes", GAUGE, "Virtual memory size in bytes."),
    Metric("lowmark_process_resident_memory_bytes", GAUGE, "Resident memory size in bytes."),
    Metric("lowmark_process_start_time_seconds", GAUGE,
           "Start time of the process since unix epoch in seconds."),
    Metric("lowmark_process_cpu_seconds_total", COUNTER,
           "Total user and system CPU time spent in seconds."),
    Metric("lowmark_process_max_fds", GAUGE, "Maximum number of open file descriptors."),
    Metric("lowmark_process_open_fds", GAUGE, "Number of open file descriptors."),
)  # fmt: skip
"""Of the operating-system process, where it tells (Linux); of both."""
