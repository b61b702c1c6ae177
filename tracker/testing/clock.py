"""A clock for fronts that stands until a test moves it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from tracker.client.moments import parse_duration_ns, parse_moment_ns
from tracker.client.updates import unix_ns


class ManualClock:
    """A clock for `FrontOptions(clock=...)`: a front labels what it lets in, and promises, by what it shows.

    It begins at the present, and never goes back once it has been read, as labels do not.
    """

    def __init__(self) -> None:
        self._now_ns = time.time_ns()
        self._is_read = False

    def __call__(self) -> int:
        """Nanoseconds since 1970."""
        self._is_read = True
        return self._now_ns

    @property
    def now(self) -> datetime:
        """What it shows, in UTC."""
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self._now_ns // 1000)

    def move_to(self, moment: datetime | str) -> None:
        """Shows a moment: a datetime, or an ISO date or time, of UTC unless it has an offset. Raises ValueError for one
        before the last that was read."""
        to_ns = parse_moment_ns(moment) if isinstance(moment, str) else unix_ns(moment)
        if self._is_read and to_ns < self._now_ns:
            raise ValueError(
                f"the clock was read at {self.now.isoformat()}, and is not to go back to {moment}: labels do not; "
                f"move it before the first front is started"
            )
        self._now_ns = to_ns

    def advance(self, by: timedelta | str) -> None:
        """Moves on by a duration: `1.5h`, `30s`, `10ms`. Raises ValueError for a negative one."""
        by_ns = (
            parse_duration_ns(by) if isinstance(by, str) else by // timedelta(microseconds=1) * 1000
        )
        if by_ns < 0:
            raise ValueError(f"the clock is to advance by {by}, and does not go back")
        self._now_ns += by_ns
