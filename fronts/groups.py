"""Fronts that share work: members come, leave and die at any time, without a coordinator.

    with FileGroup("127.0.0.1:7070", "orders", "shop", "parse", "/data/in", "/data/labelled"):
        ...  # for as long as this process is to take part

Which member a piece of work is meant for follows from who is alive; whose it really is, a rename or a
lock decides, which only one can have. So who lists wrongly, late or twice does no harm.

*Files of a directory.* Every member lists the same source directory and moves files into the labelled
one, where readers find them. A member is a front of its own, under a name that is used once. Its lock
file is locked for as long as its process lives: that is how the others know of it. When one is found
that nobody holds, whoever finds it takes the dead member's place: it commits what that had published,
and leaves in its name, so that min time waits for it no longer and no file is lost or counted twice. In a store the
members take turns (`fronts.turns`).

*Partitions of a log.* A partition is a front, with a journal of its own (see `fronts.ranges`); all
journals are in one directory, which all members see. When a partition becomes another member's, the one
that has it ends its run of the front, and the other one starts the next run, which goes on from the
journal: what was labelled is labelled once, and min time waits meanwhile. A member that dies lets go of
its partitions by that. Of a partition that is not listed any more the front leaves, though nobody had it just then: its
journal is there, and the tracker knows whether it has left.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Self
from urllib.parse import quote, unquote

from fronts.files import FileFront
from fronts.front import DEFAULTS, JOIN_TIMEOUT_S, FrontOptions
from fronts.members import meant_for, membership_in
from fronts.once import Starting
from fronts.ranges import RangeFront
from fronts.renames import Renames
from fronts.rounds import Rounds
from fronts.troubles import Troubles
from fronts.turns import Turns
from tracker.client import Admin
from tracker.core.model import RefusalCode
from tracker.errors import (
    ClosedError,
    Code,
    FencedError,
    LowmarkError,
    RefusedError,
    StateError,
    TrackingError,
    UnavailableError,
)
from tracker.files import STORES, child, scheme, text_of

POLL_INTERVAL_MS = 200
"""How often a member looks for work, and for members that have come or are gone."""
STORED_POLL_INTERVAL_MS = 1_000
"""The same, of files in a store, where each look is paid for."""
MAX_PARTITIONS = 1_000
"""Partitions of one group: each is a front, which promises at each heartbeat."""
ASKED_PER_ROUND = 10
"""Fronts of partitions that are not listed and that nobody has: of so many at most a member asks the tracker before it
publishes again."""

_JOURNAL = ".ranges"
_BEGUN = "_begun"
"""In the directory of the journals: the last generation in which the group has looked back."""

log = logging.getLogger("lowmark.front")


class _Group(Starting):
    """One member of a group. Its work is done by a thread of its own, from `start` to `close`."""

    def __init__(self, group: str, member: str, poll_interval_ms: float) -> None:
        self.group, self._member = group, member
        self._rounds = Rounds(
            f"lowmark-group-{member}", poll_interval_ms / 1000, self._work,
            f"group {group!r}: member {member!r} goes on no more", self._end,
        )  # fmt: skip

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
        return self._rounds.failure

    def start(self, timeout_s: float = JOIN_TIMEOUT_S) -> Self:
        """Joins the group. Raises StateError if another process has the member's name, and as
        `Front.start`."""
        with self._once():
            self._join(timeout_s)
            self._rounds.start()
        return self

    def close(self) -> None:
        """Leaves the group. Raises what made this member fail."""
        self._rounds.stop()
        if self.failure is not None:
            raise self.failure


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
        options: FrontOptions = DEFAULTS,
    ) -> None:
        """source: where whole files appear, on this machine by a rename; names that begin with `.` or `_`
        are passed over. directory: where they are labelled, in the same file system or store. The source is listed
        every POLL_INTERVAL_MS, in a store STORED_POLL_INTERVAL_MS, unless the options say otherwise. All members have
        the same group, segment and directories."""
        self.source = STORES.location(os.fspath(source))
        self.location = STORES.location(os.fspath(directory))
        """Of the labelled files."""
        run = f"{options.member or _this_process()}.{time.time_ns():x}"
        in_store = bool(scheme(self.location))
        if in_store != bool(scheme(self.source)):
            raise ValueError(
                f"{self.source} and {self.location} are not in one file system or store, so that files cannot "
                f"be moved from the one to the other"
            )
        poll_interval_ms = options.poll_interval_ms or (
            STORED_POLL_INTERVAL_MS if in_store else POLL_INTERVAL_MS
        )

        def front_of(name: str, **more: Any) -> FileFront:
            return FileFront(
                target, pipeline, name, segment, text_of(self.location),
                options=replace(options, **more),
            )  # fmt: skip

        self._share: Renames | Turns
        if in_store:
            who = f"group {group!r}: member {run!r}"
            self._share = Turns(self.source, partial(front_of, group), run, who)
        else:
            self._share = Renames(
                self.source,
                self.location,
                group,
                f"{group}/{run}",
                front_of,
                options.anyone_after_ms / 1000,
            )
        super().__init__(group, self.name, poll_interval_ms)

    @property
    def name(self) -> str:
        """This member; on this machine, its front."""
        return self._share.name

    @property
    def taken(self) -> int:
        """How many files this member has published."""
        return self._share.taken

    @property
    def members(self) -> list[str]:
        """The members that were alive when this one last looked, by name; in a store this one, if it is its
        turn."""
        return list(self._share.members)

    def close(self) -> None:
        """Leaves the group: what it published is committed, and the other members take what is left.
        In a store the group's front stays, and min time waits until a member runs it again (`leave`).
        Raises what made it fail, and as `FileFront.leave`."""
        super().close()
        self._share.close()

    def leave(self) -> None:
        """Leaves the group as its last member: min time waits for it no longer. Raises as `close`, and
        LowmarkError where another member runs the group's front."""
        super().close()
        self._share.leave()

    # --- inside -----------------------------------------------------------------------------------

    def _join(self, timeout_s: float) -> None:
        self._share.begin(timeout_s)

    def _work(self) -> None:
        self._share.look(self._rounds.stopping)

    def _end(self) -> None:
        self._share.end(failed=self.failure is not None)


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
        options: FrontOptions = DEFAULTS,
    ) -> None:
        """directory: of the journals; the same for all members, on a file system whose locks hold
        between them, or in a store. partitions: lists all partitions, `MAX_PARTITIONS` at most; one that is no longer
        listed takes leave. ends: the end of each partition that is asked for, as an offset, exclusive."""
        super().__init__(
            group, options.member or _this_process(), options.poll_interval_ms or POLL_INTERVAL_MS
        )
        self.location = STORES.location(os.fspath(directory))
        """Of the journals."""
        self._membership = membership_in(child(self.location, "members"), self._member)
        self._target, self._pipeline, self._segment = target, pipeline, segment
        self._partitions, self._ends = partitions, ends
        self._options = options
        self._fronts: dict[str, RangeFront] = {}
        self._leaving: dict[str, RangeFront] = {}
        """Of partitions that are not listed any more."""
        self._unlisted: deque[str] = deque()
        """The others that are not listed and have a journal: whether their fronts have left is to be asked."""
        self._looked_back_in = 0
        """Up to which generation of the pipeline nothing is to be looked for that was labelled before it."""
        self._silence = ExitStack()
        """Ends when that has been looked for: of fronts that promise nothing before."""
        self._looked: tuple[list[str], list[str]] | None = None
        """Which partitions were listed, and who was alive, when they were looked for."""
        self._troubles = Troubles()
        """What keeps a partition whose ends were not published since."""

    @property
    def held(self) -> list[str]:
        """The partitions that this member labels now."""
        return sorted(self._fronts)

    # --- inside -----------------------------------------------------------------------------------

    def _join(self, timeout_s: float) -> None:
        self._membership.join()

    def _work(self) -> None:
        self._share()
        if self._look_back():
            self._publish()

    def _end(self) -> None:
        """The partitions' fronts stay, for the other members to go on with."""
        self._silence.close()
        for front in [*self._fronts.values(), *self._leaving.values()]:
            front.close()
        self._fronts, self._leaving = {}, {}
        self._membership.leave()

    def _share(self) -> None:
        """Lets go of partitions that are another member's now, and takes those that are this one's."""
        listed = sorted(set(self._partitions()))
        if len(listed) > MAX_PARTITIONS:
            raise StateError(
                f"group {self.group!r} has {len(listed)} partitions, the limit is {MAX_PARTITIONS}; "
                "make several groups",
                Code.STATE_LIMIT,
            )
        members = self._membership.members()
        mine = {p for p in listed if meant_for(p, members) == self._member}
        for partition in set(self._fronts) - mine:
            front = self._fronts.pop(partition)
            if partition in listed:
                front.close()
            else:
                self._leaving[partition] = front
        self._look_for_unlisted(listed, members)
        self._take_unlisted()
        for partition, front in list(self._leaving.items()):
            if partition in listed:  # again: whoever it is meant for goes on with it
                self._leaving.pop(partition).close()
            elif front.front.generation <= self._looked_back_in:
                self._leave(partition, front)
        for partition in sorted(mine - set(self._fronts)):
            if self._rounds.stopping.is_set():
                return
            self._take(partition)

    def _look_for_unlisted(self, listed: list[str], members: list[str]) -> None:
        """Once for each change of partitions or members: whoever had one then may be gone."""
        if self._looked == (listed, members):
            return
        try:
            journals = self._journals()
        except (LowmarkError, OSError) as error:
            log.warning("group %r: its journals cannot be listed yet: %s", self.group, error)
            return
        unlisted = sorted(journals - {*listed, *self._leaving})
        self._unlisted = deque(p for p in unlisted if meant_for(p, members) == self._member)
        self._looked = listed, members

    def _take_unlisted(self) -> None:
        """Those whose fronts have not left are started again, to leave."""
        for _ in range(min(ASKED_PER_ROUND, len(self._unlisted))):
            if self._rounds.stopping.is_set():
                return
            partition = self._unlisted.popleft()
            front = self._front_of(partition)
            try:
                if front.front.check_alone(JOIN_TIMEOUT_S):
                    self._leaving[partition] = self._started(front)
                    continue
            except (LowmarkError, OSError) as error:
                code = error.refusal.code if isinstance(error, RefusedError) else None
                # A pipeline that is complete waits for nobody: only its node could not be told of.
                if code is not RefusalCode.COMPLETE:
                    self._unlisted.append(partition)
                    self._trouble(partition, f"has not left yet: {error}")
                if isinstance(error, UnavailableError):
                    front.close()
                    return  # the others would wait as long
            front.close()

    def _leave(self, partition: str, front: RangeFront) -> None:
        """Nobody else does it: it is tried again while the tracker is away."""
        try:
            front.leave()
            self._troubles.over(partition)
        except UnavailableError as error:
            self._trouble(partition, f"has not left yet: {error}")
            return
        except ClosedError:
            front.close()  # it has left, and its node could not be told of
        except TrackingError as error:
            self._trouble(partition, f"has not left, and is started again: {error}")
            front.close()
            self._unlisted.append(partition)
        del self._leaving[partition]

    def _options_of(self, partition: str) -> FrontOptions:
        """Of a partition's front."""
        return self._options

    def _front_of(self, partition: str) -> RangeFront:
        """The next run of its front."""
        journal = child(self.location, f"{quote(partition, safe='')}{_JOURNAL}")
        return RangeFront(
            self._target, self._pipeline, f"{self.group}/{partition}", self._segment, text_of(journal),
            options=self._options_of(partition),
        )  # fmt: skip

    def _take(self, partition: str) -> None:
        """Starts the next run of a partition's front, unless its last one has not ended yet."""
        front = self._front_of(partition)
        try:
            self._fronts[partition] = self._started(front)
        except FencedError:
            front.close()  # the member that had it looks again soon
        except (LowmarkError, OSError) as error:
            front.close()
            self._trouble(partition, f"is not taken yet: {error}")

    def _started(self, front: RangeFront) -> RangeFront:
        """Where the pipeline was restarted since, it promises nothing before `_look_back` says so."""
        with ExitStack() as silence:
            silence.enter_context(front.front.silent())
            front.start(lock_timeout_s=0.0)
            if front.front.generation > self._looked_back_in:
                self._silence.enter_context(silence.pop_all())
        return front

    def _look_back(self) -> bool:
        """Whether this member's fronts may promise. Where the pipeline was restarted, min time first waits for the front of
        each journal, whoever has it: what it had labelled from the generation's first slot on is committed anew. Those
        that are not listed any more begin for that, and then leave."""
        running = [*self._fronts.values(), *self._leaving.values()]
        generation = max((front.front.generation for front in running), default=0)
        if generation > self._looked_back_in:
            try:
                if not self._all_have_begun(generation):
                    return False
            except (LowmarkError, OSError) as error:
                log.warning("group %r: min time is held, it looks again: %s", self.group, error)
                return False
            self._looked_back_in = generation
        self._silence.close()
        return True

    def _all_have_begun(self, generation: int) -> bool:
        files, mark = STORES.files(self.location), child(self.location, _BEGUN)
        if files.read_whole(mark, 64) == b"%d" % generation:
            return True
        with Admin(self._target) as admin:
            state = admin.pipeline(self._pipeline).state
        waited_for = {front.front for front in state.fronts}
        missing = [p for p in self._journals() if f"{self.group}/{p}" not in waited_for]
        for partition in missing:
            if self._looked is not None and partition not in {*self._looked[0], *self._leaving}:
                front = self._front_of(partition)
                try:
                    self._leaving[partition] = self._started(front)
                except FencedError:
                    front.close()  # another member does it
                except BaseException:
                    front.close()
                    raise
        if missing or state.generation != generation:
            return False
        files.create(mark, b"%d" % generation)
        return True

    def _journals(self) -> set[str]:
        """The partitions that have one."""
        names = STORES.files(self.location).names(self.location)
        return {unquote(name[: -len(_JOURNAL)]) for name in names if name.endswith(_JOURNAL)}

    def _publish(self) -> None:
        ends = self._ends(self.held) if self._fronts else {}
        for partition, end in ends.items():
            front = self._fronts.get(partition)
            if front is None:
                continue
            try:
                front.publish({partition: end})
                self._troubles.over(partition)
            except TrackingError as error:
                self._trouble(partition, f"is started again: {error}")
                self._fronts.pop(partition).close()
            except StateError:
                raise
            except (LowmarkError, ValueError, OSError) as error:
                self._trouble(partition, f"waits: {error}")

    def _trouble(self, partition: str, what: str) -> None:
        self._troubles.report(partition, f"group {self.group!r}: partition {partition!r} {what}")


def _this_process() -> str:
    return f"{socket.gethostname()}.{os.getpid()}"
