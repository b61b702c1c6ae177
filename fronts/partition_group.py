"""Fronts that share the partitions of a log: each partition is labelled by one of them at a time.

    with PartitionGroup(
        "127.0.0.1:7070", "orders", "topic", "parse", "/data/journals", partitions=list_them, ends=ask
    ):
        ...  # for as long as this process is to take part

A partition is a front, with a journal of its own (see `fronts.ranges`); all journals are in one
directory, which all members see. Which member a partition is meant for follows from who is alive. When
that changes, the member that has it ends its run of the front, and the other one starts the next run,
which goes on from the journal: what was labelled is labelled once, and min time waits meanwhile. A
member that dies lets go of its partitions by that.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from fronts.client import HEARTBEAT_INTERVAL_MS, Clock, FrontFailedError
from fronts.core import FrontHeldError, FrontStateError
from fronts.members import Membership, meant_for
from fronts.ranges import RangeFront
from tracker.client.errors import LowmarkError

POLL_INTERVAL_MS = 200
"""How often a member asks for the partitions and their ends, and looks who is alive."""
MAX_PARTITIONS = 1_000
"""Partitions of one group: each is a front, which promises at each heartbeat."""

log = logging.getLogger("lowmark.front")


class PartitionGroup:
    """One member of a group. Its work is done by a thread of its own, from `start` to `close`."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        group: str,
        segment: str,
        directory: str | os.PathLike[str],
        *,
        partitions: Callable[[], Iterable[str]],
        ends: Callable[[Sequence[str]], Mapping[str, int]],
        first: Mapping[str, int] | None = None,
        member: str | None = None,
        poll_interval_ms: float = POLL_INTERVAL_MS,
        clock: Clock = time.time_ns,
        heartbeat_interval_ms: float = HEARTBEAT_INTERVAL_MS,
        pass_over_late: bool = False,
    ) -> None:
        """directory: of the journals; the same for all members, on a file system whose locks hold
        between them. partitions: lists all partitions, `MAX_PARTITIONS` at most; one that is no longer
        listed takes leave. ends: the end of each partition that is asked for, as an offset, exclusive.
        member: this member's name, the host's name and process if not given. The rest as for
        `RangeFront`."""
        self.group, self.directory = group, Path(os.path.abspath(directory))
        name = member or f"{socket.gethostname()}.{os.getpid()}"
        self._membership = Membership(self.directory / "members", name)
        self._target, self._pipeline, self._segment = target, pipeline, segment
        self._partitions, self._ends = partitions, ends
        self._first = dict(first or {})
        self._poll_interval_s = poll_interval_ms / 1000
        self._clock, self._heartbeat_interval_ms = clock, heartbeat_interval_ms
        self._pass_over_late = pass_over_late
        self._fronts: dict[str, RangeFront] = {}
        self._troubles: dict[str, str] = {}  # of partitions
        self._failure: LowmarkError | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def held(self) -> list[str]:
        """The partitions that this member labels now."""
        return sorted(self._fronts)

    @property
    def failure(self) -> LowmarkError | None:
        """Why this member goes on no more, if so; the others have its partitions."""
        return self._failure

    def start(self) -> PartitionGroup:
        """Joins the group. Raises FrontStateError if another process has the member's name."""
        self._membership.join()
        self._thread = threading.Thread(
            target=self._run, name=f"lowmark-group-{self._membership.name}", daemon=True
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Leaves the group; the partitions' fronts stay, for the other members to go on with. Raises
        what made it fail."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> PartitionGroup:
        return self if self._thread is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside -----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._share()
                self._publish()
                self._stopping.wait(self._poll_interval_s)
        except Exception as error:
            self._failure = LowmarkError(
                f"group {self.group!r}: member {self._membership.name!r} goes on no more: {error}"
            )
            self._failure.__cause__ = error
            log.error("%s", self._failure)
        finally:
            for partition in list(self._fronts):
                self._fronts.pop(partition).close()
            self._membership.leave()

    def _share(self) -> None:
        """Lets go of partitions that are another member's now, and takes those that are this one's."""
        listed = sorted(set(self._partitions()))
        if len(listed) > MAX_PARTITIONS:
            raise LowmarkError(
                f"group {self.group!r} has {len(listed)} partitions, the limit is {MAX_PARTITIONS}; "
                "make several groups"
            )
        members = self._membership.members()
        mine = {p for p in listed if meant_for(p, members) == self._membership.name}
        for partition in set(self._fronts) - mine:
            front = self._fronts.pop(partition)
            if partition in listed:
                front.close()
            else:
                front.leave()
        for partition in sorted(mine - set(self._fronts)):
            if self._stopping.is_set():
                return
            self._take(partition)

    def _take(self, partition: str) -> None:
        """Starts the next run of a partition's front, unless its last one has not ended yet."""
        name = quote(partition, safe="")
        front = RangeFront(
            self._target, self._pipeline, f"{self.group}/{partition}", self._segment,
            self.directory / f"{name}.ranges", first=self._first, clock=self._clock,
            heartbeat_interval_ms=self._heartbeat_interval_ms, pass_over_late=self._pass_over_late,
        )  # fmt: skip
        try:
            self._fronts[partition] = front.start(lock_timeout_s=0.0)
            self._troubles.pop(partition, None)
        except FrontHeldError:
            return  # by the member that had it: it looks again soon
        except (LowmarkError, FrontStateError, OSError) as error:
            self._trouble(partition, f"is not taken yet: {error}")

    def _publish(self) -> None:
        ends = self._ends(self.held) if self._fronts else {}
        for partition, end in ends.items():
            front = self._fronts.get(partition)
            if front is None:
                continue
            try:
                front.publish({partition: end})
            except FrontFailedError as error:
                self._trouble(partition, f"is started again: {error}")
                self._fronts.pop(partition).close()
            except (LowmarkError, ValueError, OSError) as error:
                self._trouble(partition, f"waits: {error}")

    def _trouble(self, partition: str, what: str) -> None:
        """Says it, once as long as it is the same."""
        if self._troubles.get(partition) != what:
            self._troubles[partition] = what
            log.warning("group %r: partition %r %s", self.group, partition, what)
