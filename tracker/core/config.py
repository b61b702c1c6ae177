"""Limits and intervals of one process of the core."""

from __future__ import annotations

from dataclasses import dataclass

MS = 1_000_000
"""Nanoseconds in a millisecond."""


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """Limits and intervals of one process. What is not given is as it is served."""

    report_interval_ms: int = 1
    """Reports and announcements are made at most this often in the long run. A group commit takes about as long;
    a busy link to another shard sends reports less often, and so does a shard with many others."""
    link_report_interval_ms: int = 1
    """A report goes to every other shard: in the long run they are sent at most once in this long for each of those,
    so that what a process sends and takes of reports does not grow with their number."""
    max_report_interval_ms: int = 12
    """However many there are, news waits no longer for that."""
    report_burst: int = 4
    """So many are made in a row at once: what one tick brings about, on its way through all shards, waits for
    none of it."""
    retransmit_ms: int = 500
    """What no shard confirms for this long is sent again."""
    announced_report_ms: int = 200
    """Announcements are reported to the other shards at the latest after this long."""
    evict_check_ms: int = 200
    """How often silent fronts are looked for, where a pipeline evicts them."""
    reconnect_ms: int = 5_000
    """How long a node may take to find this process again after it could not be reached: a connection
    has to be given up before the next is tried. For as long, at most, it listens after it could not hear."""
    max_backlog_records: int = 20_000
    """Records that are not durable yet; from there on the shell must read no more ticks and frames, but
    one tick of each stream, which is being fetched."""
    max_backlog_bytes: int = 256 * 1024 * 1024
    """The same, by what they take: a tick may be as large as a thousand others."""
    max_entries_per_frame: int = 512
    max_bytes_per_frame: int = 8 * 1024 * 1024
    """Of entries; a larger one is alone in its frame."""
    max_bytes_per_move: int = 1024 * 1024
    """Of nodes, cells, names or departure summaries in one entry that hands over; a larger thing is alone."""
    max_entries_in_flight: int = 16_384
    """Entries sent to a shard beyond what it has confirmed."""
    max_unconfirmed_entries: int = 200_000
    """Entries that some shard has not confirmed; above it the process is congested and the shell
    must not submit more ticks."""
    max_unconfirmed_bytes: int = 512 * 1024 * 1024
    """The same, by what they take: all of it is in memory, and in each snapshot, until every shard has it."""
    max_pipelines: int = 10_000
    max_segments: int = 20_000
    """Of all pipelines together: memory may grow by the square of a pipeline's segments, where fronts feed them all."""
    max_nodes: int = 100_000
    """Of all pipelines together at one home, whatever each may have by itself."""
    most_open_cells: int = 100_000_000
    """What a pipeline may ask for as its max_open_cells, at each shard; so with the next three."""
    most_open_units: int = 20_000_000
    most_nodes: int = 100_000
    most_staged: int = 10_000_000
    join_timeout_ms: int = 60_000
    """A shard that has not taken up its peer's state for so long is not waited for any more."""
    rescale_margin_ms: int = 1_000
    """New shards own slots from so far beyond the highest known one on."""

    def report_interval_of_ms(self, others: int) -> int:
        """How often reports are sent to so many other shards, at most, in the long run."""
        shared_ms = min(others * self.link_report_interval_ms, self.max_report_interval_ms)
        return max(self.report_interval_ms, shared_ms)
