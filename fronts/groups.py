"""Fronts that share work: members come, leave and die at any time, without a coordinator.

    with FileGroup("127.0.0.1:7070", "orders", "shop", "parse", "/data/in", "/data/labelled"):
        ...  # for as long as this process is to take part

Which member a piece of work is meant for follows from who is alive; whose it really is, a rename or a
lock decides, which only one can have. So who lists wrongly, late or twice does no harm.

*Files of a directory.* Every member lists the same source directory and moves files into the labelled
one, where readers find them. A member is a front of its own, under a name that is used once. Its lock
file is locked for as long as its process lives: that is how the others know of it. When one is found
that nobody holds, whoever finds it takes the dead member's place: it commits what that had published,
and leaves in its name, so that min time waits for it no longer and no file is lost or counted twice.

*Partitions of a log.* A partition is a front, with a journal of its own (see `fronts.ranges`); all
journals are in one directory, which all members see. When a partition becomes another member's, the one
that has it ends its run of the front, and the other one starts the next run, which goes on from the
journal: what was labelled is labelled once, and min time waits meanwhile. A member that dies lets go of
its partitions by that.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self, Unpack
from urllib.parse import quote, unquote

from fronts.core import FrontHeldError, FrontStateError
from fronts.files import FileFront, PublishedFile
from fronts.front import JOIN_TIMEOUT_S, FrontFailedError, FrontFullError, MemberOptions
from fronts.members import Membership, held_locks, meant_for
from fronts.ranges import RangeFront
from tracker.client.closing import Closing
from tracker.client.errors import LowmarkError, RefusedError, UnavailableError
from tracker.core.model import RefusalCode

POLL_INTERVAL_MS = 200
"""How often a member looks for work, and for members that have come or are gone."""
FILES_PER_POLL = 1_000
"""Files that a member takes at most before it looks again who is alive."""
ANYONE_AFTER_MS = 10_000
"""A file that has been there for so long is taken by whoever sees it: its member may be stuck."""
MAX_PARTITIONS = 1_000
"""Partitions of one group: each is a front, which promises at each heartbeat."""

log = logging.getLogger("lowmark.front")


class _Group(Closing):
    """One member of a group. Its work is done by a thread of its own, from `start` to `close`."""

    def __init__(self, group: str, member: str, poll_interval_ms: float) -> None:
        self.group, self._member = group, member
        self._poll_interval_s = poll_interval_ms / 1000
        self._failure: LowmarkError | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def _join(self, timeout_s: float) -> None: ...

    @abstractmethod
    def _work(self) -> None:
        """Does what there is to do now."""

    @abstractmethod
    def _end(self) -> None:
        """Work has ended, in order or by a failure."""

    @property
    def failure(self) -> LowmarkError | None:
        """Why this member goes on no more, if so; the others take its place."""
        return self._failure

    def start(self, timeout_s: float = JOIN_TIMEOUT_S) -> Self:
        """Joins the group. Raises FrontStateError if another process has the member's name, and as
        `Front.start`."""
        self._join(timeout_s)
        self._thread = threading.Thread(
            target=self._run, name=f"lowmark-group-{self._member}", daemon=True
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Leaves the group. Raises what made this member fail."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self if self._thread is not None else self.start()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._poll_interval_s):
                self._work()
        except Exception as error:
            self._failure = LowmarkError(
                f"group {self.group!r}: member {self._member!r} goes on no more: {error}"
            )
            self._failure.__cause__ = error
            log.error("%s", self._failure)
        finally:
            self._end()


class FileGroup(_Group):
    """One member of a group that shares the files of a directory: each is published once, by one of them."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        group: str,
        segment: str,
        source: str | os.PathLike[str],
        directory: str | os.PathLike[str],
        *,
        member: str | None = None,
        poll_interval_ms: float = POLL_INTERVAL_MS,
        anyone_after_ms: float = ANYONE_AFTER_MS,
        **options: Unpack[MemberOptions],
    ) -> None:
        """source: where whole files appear, by a rename; names that begin with `.` or `_` are passed
        over. directory: where they are labelled, in the same file system. member: begins this
        member's name, which is made unique; the host's name and process if not given. All members
        have the same group, segment and directories. The rest as for `FileFront`."""
        self.source = Path(os.path.abspath(source))
        self.directory = Path(os.path.abspath(directory))
        self._target, self._pipeline, self._segment = target, pipeline, segment
        self._anyone_after_s = anyone_after_ms / 1000
        self._options = options
        run = f"{member or _this_process()}.{time.time_ns():x}"
        self._front = self._front_of(group, f"{group}/{run}")
        super().__init__(group, self.name, poll_interval_ms)
        self._members = [self.name]
        self._taken = 0

    @property
    def name(self) -> str:
        """This member's front."""
        return self._front.front.identity

    @property
    def taken(self) -> int:
        """How many files this member has published."""
        return self._taken

    @property
    def members(self) -> list[str]:
        """The members that were alive when this one last looked, by name."""
        return list(self._members)

    def close(self) -> None:
        """Leaves the group: what it published is committed, and the other members take what is left.
        Raises what made it fail, and as `FileFront.leave`."""
        super().close()
        self._front.leave()

    # --- inside -----------------------------------------------------------------------------------

    def _front_of(self, group: str, name: str) -> FileFront:
        return FileFront(
            self._target, self._pipeline, name, self._segment, self.directory,
            lock_directory=self.directory / f".{quote(group, safe='')}", comes_again=False,
            **self._options,
        )  # fmt: skip

    def _join(self, timeout_s: float) -> None:
        self.source.mkdir(parents=True, exist_ok=True)
        self._front.start(timeout_s)

    def _work(self) -> None:
        self._members = self._look_around()
        self._take_all()

    def _end(self) -> None:
        if self._failure is None:
            self._look_around()  # nobody may be left to do it
        else:
            self._front.close()  # so that the others take its place

    def _look_around(self) -> list[str]:
        """Who is alive; takes the place of those who are not."""
        alive = [self.name]
        own = self._front.lock_path
        for path, fd in held_locks(own.parent, ".*.lock", but=own):
            name = unquote(path.name[1 : -len(".lock")])
            if fd is None:
                alive.append(name)
            else:
                self._leave_for(name, fd)
        return sorted(alive)

    def _leave_for(self, name: str, lock_fd: int) -> None:
        """Commits what a member that is gone had published, and leaves for it. When that does not
        succeed, the next look tries again, or another member's."""
        front = self._front_of(self.group, name)
        try:
            front.start_locked(lock_fd)
            front.leave()
            log.warning("group %r: member %r has died; %r left for it", self.group, name, self.name)
        except (LowmarkError, FrontStateError, OSError) as error:
            if isinstance(error, RefusedError) and error.refusal.code is RefusalCode.COMPLETE:
                # The pipeline waits for nobody: the member had left, but for its lock file.
                front.lock_path.unlink(missing_ok=True)
            else:
                log.warning("group %r: can't leave for member %r yet: %s", self.group, name, error)
        finally:
            front.close()

    def _take_all(self) -> None:
        now_s = time.time()
        taken = 0
        for path, since_s in self._listed():
            if self._stopping.is_set() or taken >= FILES_PER_POLL:
                return
            mine = meant_for(path.name, self._members) == self.name
            if (mine or now_s - since_s >= self._anyone_after_s) and self._take(path):
                taken += 1

    def _listed(self) -> list[tuple[Path, float]]:
        """The files that wait, by name, with the time (seconds since 1970) at which they were last
        written or renamed."""
        listed = []
        with os.scandir(self.source) as entries:
            for entry in entries:
                if entry.name[0] not in "._":
                    try:
                        if entry.is_file():
                            listed.append((Path(entry.path), entry.stat().st_ctime))
                    except FileNotFoundError:
                        continue  # taken meanwhile
        return sorted(listed)

    def _take(self, path: Path) -> PublishedFile | None:
        try:
            file = self._front.take(path)
        except (FrontFullError, UnavailableError) as error:
            log.warning("group %r: member %r waits: %s", self.group, self.name, error)
            return None
        if file is not None:
            self._taken += 1
        return file


class PartitionGroup(_Group):
    """One member of a group that shares the partitions of a log: each is labelled by one at a time."""

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
        **options: Unpack[MemberOptions],
    ) -> None:
        """directory: of the journals; the same for all members, on a file system whose locks hold
        between them. partitions: lists all partitions, `MAX_PARTITIONS` at most; one that is no longer
        listed takes leave. ends: the end of each partition that is asked for, as an offset, exclusive.
        member: this member's name, the host's name and process if not given. The rest as for
        `RangeFront`."""
        super().__init__(group, member or _this_process(), poll_interval_ms)
        self.directory = Path(os.path.abspath(directory))
        self._membership = Membership(self.directory / "members", self._member)
        self._target, self._pipeline, self._segment = target, pipeline, segment
        self._partitions, self._ends = partitions, ends
        self._first = dict(first or {})
        self._options = options
        self._fronts: dict[str, RangeFront] = {}
        self._troubles: dict[str, str] = {}  # what was reported last of a partition

    @property
    def held(self) -> list[str]:
        """The partitions that this member labels now."""
        return sorted(self._fronts)

    # --- inside -----------------------------------------------------------------------------------

    def _join(self, timeout_s: float) -> None:
        self._membership.join()

    def _work(self) -> None:
        self._share()
        self._publish()

    def _end(self) -> None:
        """The partitions' fronts stay, for the other members to go on with."""
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
        mine = {p for p in listed if meant_for(p, members) == self._member}
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
            self.directory / f"{name}.ranges", first=self._first, **self._options,
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
        """Logs what keeps a partition, once as long as it is the same."""
        if self._troubles.get(partition) != what:
            self._troubles[partition] = what
            log.warning("group %r: partition %r %s", self.group, partition, what)


def _this_process() -> str:
    return f"{socket.gethostname()}.{os.getpid()}"
