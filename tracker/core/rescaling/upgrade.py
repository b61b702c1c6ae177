"""When all may record and send what is new in a release: when every process speaks it, and an operator says so (rule 10).

Until then each process can be replaced by one of the release before, which reads all that there is. The wish is not
recorded: who asks is refused while a shard is not known to speak the level, and asks again.
"""

from __future__ import annotations

from collections.abc import Mapping

from tracker.core.log import JoinShard
from tracker.core.membership.shards import Shards
from tracker.core.model import RefusalCode, Refused
from tracker.core.replication.links import Link


def check_spoken(level: int, shards: Shards, links: Mapping[int, Link]) -> None:
    """Raises Refused for a level that not all processes are known to speak: those that own shards, and those that join."""
    spoken = {shard: link.speaks if link.connected else 0 for shard, link in links.items()}
    spoken[shards.own] = shards.speaks
    if min(spoken.values()) < level:
        shown = ", ".join(
            f"shard {shard} speaks levels up to {speaks}" if speaks else f"shard {shard} is away"
            for shard, speaks in sorted(spoken.items())
            if speaks < level
        )
        raise Refused(
            RefusalCode.NOT_READY,
            f"feature level {level} has to wait: {shown}; start what is older or away with the newer release, and ask again",
        )


def check_newcomer(event: JoinShard, level: int) -> None:
    """Raises Refused for a process that joins and could not read what the others record."""
    if event.speaks < level:
        raise Refused(
            RefusalCode.INVALID,
            f"the process at {event.address} speaks feature levels up to {event.speaks}, and the tracker records by level "
            f"{level} since its upgrade was finished: start that process with the release of the others",
        )
