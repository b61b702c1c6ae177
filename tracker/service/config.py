"""How one process of a tracker is to run."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracker.core.process import ProcessConfig
from tracker.service.log_length import SNAPSHOT_AFTER_RECORDS
from tracker.service.rpc.limits import Limits
from tracker.service.rpc.security import Security

LEASE_MS = 3_000
"""Long enough for a process, or a store, that gets little of a loaded machine. An owner whose process
dies is replaced at once in any case; this is for one that is paused or cut off, or loses its machine."""
LEAST_LEASE_MS = 200
MOST_LEASE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One process of a tracker.

    shard: its number; addresses: host:port of every shard, by number, as the others reach it;
    store: `memory:`, `sqlite:DIRECTORY` or a Redis address; listen: host:port to listen on, if not its address;
    block_slots: how many neighbouring slots one shard owns, the same for all processes, for ever;
    grace_s: how long calls in progress may go on when it stops;
    lease_ms: for how long after its last sign of life nobody else takes its shard;
    standby: it has no shard of its own, and takes any whose owner has gone (`shard` is any number);
    address: host:port at which others reach a standby;
    snapshot_after_records: the log's length at which a snapshot takes its place;
    health_listen: host:port of the health service for probes, without TLS or token, if there is one;
    metrics_listen: host:port at which metrics are served over HTTP; empty: nowhere;
    security: its TLS files, and who may do what;
    limits: what one client, and one pipeline, may take of it;
    dashboard_listen: host:port at which a page shows the tracker; empty: nowhere;
    join: host:port of processes of a tracker of which this one becomes a shard, at `address`; then
    `shard` and `addresses` are not known before;
    left_status: what the process returns when its shard has left the tracker;
    members: host:port of the processes of a set, in order, of which this is one. It joins behind those
    before it, so that shards are numbered in the order of the set; and one whose first shard has left
    joins as another one;
    left_file: where it records that its shard has left. From then on it does nothing until it is told to
    stop, also when it is started again: whoever keeps the processes of a set running is to remove it;
    group: the number of the group of a deployment of which the tracker is; directory: host:port of processes of group
    0, which keeps the directory, for every other group;
    relay: host:port of processes of a tracker whose announcements this one passes on. It has no shard then, and `addresses`
    has its own alone.
    """

    shard: int
    addresses: tuple[str, ...]
    store: str = "memory:"
    listen: str = ""
    block_slots: int = 64
    grace_s: float = 2.0
    process: ProcessConfig = field(default_factory=ProcessConfig)
    lease_ms: int = LEASE_MS
    standby: bool = False
    address: str = ""
    snapshot_after_records: int = SNAPSHOT_AFTER_RECORDS
    health_listen: str = ""
    metrics_listen: str = ""
    security: Security = field(default_factory=Security)
    limits: Limits = field(default_factory=Limits)
    dashboard_listen: str = ""
    join: tuple[str, ...] = ()
    left_status: int = 0
    members: tuple[str, ...] = ()
    left_file: str = ""
    group: int = 0
    directory: tuple[str, ...] = ()
    relay: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = self.join or self.standby  # else its shard is one of those from the start
        if not known and not 0 <= self.shard < len(self.addresses):
            raise ValueError(
                f"shard {self.shard} is not among the {len(self.addresses)} addresses "
                f"{list(self.addresses)}; shards are numbered from 0"
            )
        if (self.standby or self.join) and not self.address:
            what = "a standby" if self.standby else "a process that joins"
            raise ValueError(f"{what} needs the address at which others reach it")
        if not LEAST_LEASE_MS <= self.lease_ms <= MOST_LEASE_MS:
            raise ValueError(
                f"a lease of {self.lease_ms} ms is not within {LEAST_LEASE_MS} to {MOST_LEASE_MS}"
            )

    @property
    def own_address(self) -> str:
        """Where others reach this process; also its name as an owner."""
        return self.address or self.addresses[self.shard]
