"""How the members of a group share the files of a directory in a store: they take turns.

In a store a file is copied and then deleted, so two members that tried for one file could both have it. So the group
is one front there, and one member at a time runs it: the one that the tracker has a session of. The others ask the
tracker, and touch nothing; when the session ends, one of them goes on with the front, by its log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fronts.files import FileFront
from fronts.front import JOIN_TIMEOUT_S
from fronts.troubles import Troubles
from tracker.errors import (
    Code,
    FencedError,
    StateError,
    TrackingError,
    UnavailableError,
)
from tracker.files import STORES, AwayError, child, text_of

FILES_PER_LOOK = 1_000
"""Files that are taken at most before the source is listed again."""
ASKED_EVERY_S = 1.0
"""How often a member whose turn it is not asks whether it is."""


class Turns:
    """One member's part. For one thread, but for `taken` and `members`."""

    def __init__(self, source: str, make: Callable[[], FileFront], name: str, who: str) -> None:
        """source: the location of the directory whose files are taken; make: the group's front, for one run
        of it; who: names group and member in the log."""
        self.name, self.taken = name, 0
        self._source, self._make, self._who = source, make, who
        self._files = STORES.files(source)
        self._front: FileFront | None = None
        self._asks_at = 0.0
        self._no_files: set[str] = set()  # names in the source that are folders
        self._troubles = Troubles()
        """What keeps a file, by its name, or the front ("")."""

    @property
    def members(self) -> list[str]:
        return [] if self._front is None else [self.name]

    def begin(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Runs the front from now on, if no other member does. Raises as `FileFront.start`."""
        self._asks_at = time.monotonic() + ASKED_EVERY_S
        front = self._make()
        try:
            front.start(timeout_s, lock_timeout_s=0.0)
        except FencedError:
            front.close()
        except BaseException:
            front.close()
            raise
        else:
            self._front = front
            self._troubles.over("")

    def look(self, stopping: threading.Event) -> None:
        """Takes what there is, if it is this member's turn."""
        try:
            if self._front is None:
                if time.monotonic() >= self._asks_at:
                    self.begin()
            else:
                self._take_all(self._front, stopping)
        except TrackingError as error:
            self._report(f"starts the front again: {error}")
            self.close()
        except UnavailableError as error:
            self._report(f"waits: {error}")
        except OSError as error:
            if not isinstance(error.__cause__, AwayError):
                raise
            self._report(f"waits: {error}")

    def _take_all(self, front: FileFront, stopping: threading.Event) -> None:
        front.front.check_running()
        names = self._files.names(self._source)
        self._no_files.intersection_update(names)
        self._troubles.keep({*names, ""})
        taken = 0
        for name in sorted(set(names) - self._no_files):
            if stopping.is_set() or taken >= FILES_PER_LOOK:
                return
            if name[0] in "._":
                continue
            where = child(self._source, name)
            try:
                file = front.take(text_of(where))
                # A file that is listed, and cannot be seen yet, or was replaced just then, is looked for again.
                if file is None and self._files.is_directory(where):
                    self._no_files.add(name)
            except (OSError, ValueError) as error:  # it keeps no other
                if isinstance(error.__cause__, AwayError):
                    raise
                self._troubles.report(name, f"{self._who} cannot take {where} yet: {error}")
                continue
            if file is not None:
                taken += 1
                self.taken += 1
                self._troubles.over("")

    def end(self, *, failed: bool) -> None:
        """What was published is committed by `close`, or by the next member."""
        if failed:
            self.close()

    def leave(self) -> None:
        """The group's front leaves for good; this member's turn or not, it must be running it."""
        if self._front is None:
            raise StateError(
                f"{self._who} does not run the group's front, so it cannot leave for it",
                Code.STATE_ORDER,
            )
        self._front.leave()
        self._front = None

    def close(self) -> None:
        """This member's turn is over: another one goes on, and min time waits for that."""
        if self._front is not None:
            self._front.close()
            self._front = None

    def _report(self, what: str) -> None:
        self._troubles.report("", f"{self._who} {what}")
