"""How the members of a group share the files of a directory on this machine: by renaming them.

The rename that labels a file decides whose it is; one member can make it, so that who lists wrongly, late or twice
does no harm. Each member is a front of its own, which the others see by its lock file.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

from fronts.files import FileFront, PublishedFile
from fronts.front import JOIN_TIMEOUT_S, Front
from fronts.holds import LEFT, left_in
from fronts.locks import take_lock
from fronts.members import held_locks, meant_for
from fronts.troubles import Troubles
from tracker.core.model import RefusalCode
from tracker.core.model.units import parse_file_name
from tracker.errors import (
    Code,
    FencedError,
    LowmarkError,
    RefusedError,
    TrackingError,
    UnavailableError,
)

FILES_PER_POLL = 1_000
"""Files that a member takes at most before it looks again who is alive."""

log = logging.getLogger("lowmark.front")


_BEGINS = "begins"
"""Whoever begins holds the lock of this file, beside the members'."""
_ASKED_EVERY_S = 0.1
"""How often it is looked whether a member of an earlier generation has ended."""


class MakeFront(Protocol):
    def __call__(
        self, name: str, *, lock_directory: str = ..., comes_again: bool = ...
    ) -> FileFront: ...


class Renames:
    """One member's part. For one thread, but for `taken` and `members`."""

    def __init__(
        self,
        source: str,
        directory: str,
        group: str,
        name: str,
        make: MakeFront,
        anyone_after_s: float,
    ) -> None:
        """name: of this member's front; make: makes a member's front; anyone_after_s: how long a file waits
        for the member that it is meant for."""
        self.group, self.taken = group, 0
        self._source, self._directory, self._make = Path(source), directory, make
        self._anyone_after_s = anyone_after_s
        self._front = self._front_of(name)
        self._troubles = Troubles()
        """What keeps a file, by its name, or the group's directories ("")."""
        self.members = [self.name]

    @property
    def name(self) -> str:
        return self._front.front.identity

    def begin(self, timeout_s: float) -> None:
        """Where the pipeline was restarted, what members that are gone have published from its first slot on is committed
        anew before this one promises anything; one member at a time looks for that, and waits for those of before that have
        not ended. Raises as `FileFront.start`, FencedError where one does not end."""
        for directory in (self._source, Path(self._directory)):
            directory.mkdir(parents=True, exist_ok=True)
        lock = self._front.lock_path.parent / _BEGINS
        lock.parent.mkdir(parents=True, exist_ok=True)
        fd = take_lock(lock, timeout_s, self.group)
        try:
            with self._front.front.silent():
                self._front.start(timeout_s)
                self._look_back(self._front.front, timeout_s)
        except BaseException:
            self._front.close()
            raise
        finally:
            os.close(fd)

    def look(self, stopping: threading.Event) -> None:
        """Raises what made its front fail. What may pass, as where a disk cannot be read for a moment, is said once."""
        self._front.front.check_running()
        try:
            self.members = self._look_around()
            self._take_all(stopping)
            self._troubles.over("")
        except OSError as error:
            self._trouble("", f"looks again: {error}")

    def end(self, *, failed: bool) -> None:
        if failed:
            self._front.close()  # so that the others take its place
        else:
            self._look_around()  # nobody may be left to do it

    def close(self) -> None:
        """Raises as `FileFront.leave`."""
        self._front.leave()

    leave = close

    def _front_of(self, name: str) -> FileFront:
        locks = f"{self._directory}/.{quote(self.group, safe='')}"
        return self._make(name, lock_directory=locks, comes_again=False)

    def _look_back(self, front: Front, timeout_s: float) -> None:
        """Leaves once more for who left in an earlier generation, as for those who died. A member of which no file is there
        that counts any more is forgotten."""
        published = {
            labelled.front
            for name in os.listdir(self._directory)
            if (labelled := parse_file_name(name)) is not None
            and labelled.slot >= front.replay_from
        }
        for path in self._front.lock_path.parent.glob(f".*{LEFT}"):
            name = _member_of(path)
            if name not in published:
                forgotten = self._front_of(name)
                forgotten.forget_lock(path)
                forgotten.close()
            elif left_in(path) < front.generation:
                path.rename(path.with_suffix(".lock"))
        if not front.generation:
            return
        deadline = time.monotonic() + timeout_s
        while (unsettled := self._leave_for_all()) is not None:
            if time.monotonic() >= deadline:
                raise FencedError(
                    f"group {self.group!r}: member {unsettled!r} has run since before the pipeline was restarted, and did "
                    f"not end within {timeout_s:g} s; end its process",
                    code=Code.FENCED_FRONT,
                )
            time.sleep(_ASKED_EVERY_S)

    def _leave_for_all(self) -> str | None:
        """Leaves for those who are gone. Returns one that is not, of an earlier generation. What can't be created any more,
        as of one that was evicted, is left to the next looks: nobody is kept from beginning by that."""
        for name, fd in self._locks():
            if fd is None:
                if not self._is_known(name):
                    return name
                continue
            try:
                self._leave_for(name, fd)
            except TrackingError as error:
                cause = error.__cause__
                if (
                    not isinstance(cause, RefusedError)
                    or cause.refusal.code is not RefusalCode.BELOW_MIN_TIME
                ):
                    raise
                log.warning("group %r: can't leave for member %r yet: %s", self.group, name, error)
        return None

    def _is_known(self, name: str) -> bool:
        """Whether a member has begun in this generation, and has not left."""
        front = self._front_of(name)
        try:
            return front.front.check_alone(JOIN_TIMEOUT_S)
        finally:
            front.close()

    def _locks(self) -> Iterator[tuple[str, int | None]]:
        """The other members, but for those who have left, as `held_locks`."""
        own = self._front.lock_path
        for path, fd in held_locks(own.parent, ".*.lock", but=own):
            yield _member_of(path), fd

    def _look_around(self) -> list[str]:
        """Who is alive; takes the place of those who are not."""
        alive = [self.name]
        for name, fd in self._locks():
            if fd is None:
                alive.append(name)
                continue
            try:
                self._leave_for(name, fd)
            except (
                LowmarkError,
                OSError,
            ) as error:  # the next look tries again, or another member's
                log.warning("group %r: can't leave for member %r yet: %s", self.group, name, error)
        return sorted(alive)

    def _leave_for(self, name: str, lock_fd: int) -> None:
        """Commits what a member that is gone had published, and leaves for it. Raises as `FileFront.start` and `leave`."""
        front = self._front_of(name)
        try:
            front.start_locked(lock_fd)
            front.leave()
            log.warning("group %r: member %r is gone; %r left for it", self.group, name, self.name)
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.COMPLETE:
                raise
            # The pipeline waits for nobody: the member had left, but for its lock file.
            front.forget_lock(front.lock_path)
        finally:
            front.close()

    def _take_all(self, stopping: threading.Event) -> None:
        now_s = time.time()
        taken = 0
        listed = self._listed()
        self._troubles.keep({path.name for path, _ in listed} | {""})
        for path, since_s in listed:
            if stopping.is_set() or taken >= FILES_PER_POLL:
                return
            mine = meant_for(path.name, self.members) == self.name
            if (mine or now_s - since_s >= self._anyone_after_s) and self._take(path):
                taken += 1

    def _listed(self) -> list[tuple[Path, float]]:
        """The files that wait, by name, with the time (seconds since 1970) at which they were last
        written or renamed."""
        listed = []
        with os.scandir(self._source) as entries:
            for entry in entries:
                if entry.name[0] not in "._":
                    try:
                        if entry.is_file():
                            listed.append((Path(entry.path), entry.stat().st_ctime))
                    except FileNotFoundError:
                        continue  # taken meanwhile
        return sorted(listed)

    def _take(self, path: Path) -> PublishedFile | None:
        """One that cannot be taken, as of a name that is too long, or without permission to open it, keeps no other."""
        try:
            file = self._front.take(path)
        except UnavailableError as error:
            log.warning("group %r: member %r waits: %s", self.group, self.name, error)
            return None
        except (OSError, ValueError) as error:
            self._trouble(path.name, f"cannot take {path} yet: {error}")
            return None
        if file is not None:
            self.taken += 1
        return file

    def _trouble(self, name: str, what: str) -> None:
        self._troubles.report(name, f"group {self.group!r}: member {self.name!r} {what}")


def _member_of(path: Path) -> str:
    """The name of the member that a lock file is of."""
    return unquote(path.stem[1:])
