"""Fronts that share the files of a directory: each file is published once, by one of them.

    with FileGroup("127.0.0.1:7070", "orders", "shop", "parse", "/data/in", "/data/labelled"):
        ...  # for as long as this process is to take part

Every member lists the same source directory and moves files into the labelled one, where readers find
them. Which member a file is meant for follows from the file's name and from who is alive; whose it
really is, the move decides, which only one can make. So who lists wrongly, late or twice does no harm.

A member is a front of its own, under a name that is used once. Its lock file is locked for as long as
its process lives: that is how the others know of it. When one is found that nobody holds, whoever finds
it takes the dead member's place: it commits what that had published, and leaves in its name, so that
min time waits for it no longer and no file is lost or counted twice.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from fronts.client import HEARTBEAT_INTERVAL_MS, JOIN_TIMEOUT_S, Clock, FrontFullError
from fronts.core import FrontStateError
from fronts.files import FileFront, PublishedFile
from fronts.members import held_locks, meant_for
from tracker.client.errors import LowmarkError, RefusedError, UnavailableError
from tracker.core.model import RefusalCode

POLL_INTERVAL_MS = 200
"""How often a member looks for files, and for members that are gone."""
FILES_PER_POLL = 1_000
"""Files that a member takes at most before it looks again who is alive."""
ANYONE_AFTER_MS = 10_000
"""A file that has been there for so long is taken by whoever sees it: its member may be stuck."""

log = logging.getLogger("lowmark.front")


class FileGroup:
    """One member of a group. Its work is done by a thread of its own, from `start` to `close`."""

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
        clock: Clock = time.time_ns,
        heartbeat_interval_ms: float = HEARTBEAT_INTERVAL_MS,
        pass_over_late: bool = False,
    ) -> None:
        """source: where whole files appear, by a rename; names that begin with `.` or `_` are passed
        over. directory: where they are labelled, in the same file system. member: begins this
        member's name, which is made unique; the host's name and process if not given. All members
        have the same group, segment and directories. The rest as for `FileFront`."""
        self.source, self.directory = (
            Path(os.path.abspath(source)),
            Path(os.path.abspath(directory)),
        )
        self.group = group
        run = f"{member or f'{socket.gethostname()}.{os.getpid()}'}.{time.time_ns():x}"
        self._target, self._pipeline, self._segment = target, pipeline, segment
        self._poll_interval_s = poll_interval_ms / 1000
        self._anyone_after_s = anyone_after_ms / 1000
        self._clock, self._heartbeat_interval_ms = clock, heartbeat_interval_ms
        self._pass_over_late = pass_over_late
        self._front = self._front_of(f"{group}/{run}")
        self._members = [self.name]
        self._taken = 0
        self._failure: LowmarkError | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

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

    @property
    def failure(self) -> LowmarkError | None:
        """Why this member goes on no more, if so; the others take its place when it is closed."""
        return self._failure

    def start(self, timeout_s: float = JOIN_TIMEOUT_S) -> FileGroup:
        """Joins the group. Raises as `FileFront.start`."""
        self.source.mkdir(parents=True, exist_ok=True)
        self._front.start(timeout_s)
        self._thread = threading.Thread(
            target=self._run, name=f"lowmark-group-{self.name}", daemon=True
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Leaves the group: what it published is committed, and the other members take what is left.
        Raises what made it fail, and as `FileFront.leave`."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure
        self._front.leave()

    def __enter__(self) -> FileGroup:
        return self if self._thread is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside -----------------------------------------------------------------------------------

    def _front_of(self, name: str) -> FileFront:
        return FileFront(
            self._target, self._pipeline, name, self._segment, self.directory, clock=self._clock,
            heartbeat_interval_ms=self._heartbeat_interval_ms, pass_over_late=self._pass_over_late,
            lock_directory=self.directory / f".{quote(self.group, safe='')}", comes_again=False,
        )  # fmt: skip

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._poll_interval_s):
                self._members = self._look_around()
                self._take_all()
            self._look_around()  # nobody may be left to do it
        except (LowmarkError, OSError) as error:
            self._failure = LowmarkError(
                f"group {self.group!r}: member {self.name!r} goes on no more: {error}"
            )
            self._failure.__cause__ = error
            log.error("%s", self._failure)
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
        front = self._front_of(name)
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
