"""Metrics of a local tracker, gathered when somebody asks for them (`tracker.metrics.names`)."""

from __future__ import annotations

from local_tracker.agent.flushing import Flusher
from local_tracker.agent.server import Server
from local_tracker.agent.stats import Stats
from tracker import __version__
from tracker.metrics.exposition import MetricsThread
from tracker.metrics.families import Families, render
from tracker.metrics.names import LOCAL_TRACKER


def listen(
    address: str, server: Server, flusher: Flusher | None, stats: Stats, mode: str
) -> MetricsThread:
    """Tells the metrics of a local tracker's parts at host:port; `flusher`: where it is eager. Raises
    OSError if it cannot listen there, ValueError if `address` is not host:port."""
    return MetricsThread(address, lambda: render(_gather(server, flusher, stats, mode)))


def _gather(server: Server, flusher: Flusher | None, stats: Stats, mode: str) -> Families:
    families = Families(LOCAL_TRACKER)
    families.add_info("lowmark_local_tracker_info", version=__version__, mode=mode)
    families.add("lowmark_local_tracker_connections", server.connections)
    for reason, count in sorted(stats.refused.items()):
        families.add("lowmark_local_tracker_refused_total", count, reason)
    if flusher is None:
        families.add("lowmark_local_tracker_contributions_total", stats.contributions)
        families.add_latencies(
            "lowmark_local_tracker_stage_duration_seconds", stats.stage_latencies
        )
    else:
        families.add("lowmark_local_tracker_gathered_cells", flusher.gathered_cells)
        _gather_flushing(families, stats)
    return families


def _gather_flushing(families: Families, stats: Stats) -> None:
    families.add("lowmark_local_tracker_steps_total", stats.steps)
    families.add("lowmark_local_tracker_cells_received_total", stats.cells_received)
    families.add("lowmark_local_tracker_cells_flushed_total", stats.cells_flushed)
    if stats.cells_flushed:
        ratio = stats.cells_received / stats.cells_flushed
        families.add("lowmark_local_tracker_merge_ratio", ratio)
    for outcome, count in sorted(stats.flushes.items()):
        families.add("lowmark_local_tracker_flushes_total", count, outcome)
    families.add_latencies("lowmark_local_tracker_flush_duration_seconds", stats.flush_latencies)
