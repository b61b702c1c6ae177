"""Frames on their way to one other shard: when the next message goes, which takes all that wait.

A message costs its sender and its receiver more than a frame in it does. So a frame that nobody waits for
goes with the next message: a confirmation lets its receiver forget, no more, and the report of what was
confirmed follows at once or within a few milliseconds. A report goes at once as long as few messages do: there
its waiting would be latency, and its message costs nobody anything. On a link with more messages than that, reports
by themselves keep a distance from the message before. Entries and questions never wait.

When frames arrive, and whether in one message, decides nothing about what is right. There is no clock
here: moments are arguments, in nanoseconds of any monotonic clock.
"""

from __future__ import annotations

from tracker.core import log as m
from tracker.core.model.allowance import Allowance

MAX_QUEUED_FRAMES = 1_024
"""A frame that finds no room is dropped, as if it were lost on its way."""
CONFIRMATION_WAIT_MS = 10
"""The longest that a confirmation waits: far less than the time after which entries are sent again."""
REPORT_INTERVAL_MS = 6
"""On a busy link a report goes with other frames, or so long after the message before."""
MESSAGES_PER_S = 1_000
"""So many messages a process may send for the sake of reports, over all its links, in the long run: each costs both
ends together some 0.3 ms of a processor, so that this is a sixth of one at each."""
MESSAGES_PER_S_OF_A_LINK = 700
"""The same on each link: where its entries are as many by themselves, reports go with them, a millisecond or two later."""
BURST = 8
"""So many messages in a row are no sign that a link is busy."""
BEYOND_BURST = 8
"""So many of the entries that went at once count beyond a burst: a link on which they are many is not taken for a
quiet one between two of them."""
_MS = 1_000_000
_S = 1_000_000_000


class Outgoing:
    """What waits to be sent to one other shard."""

    def __init__(self) -> None:
        self.links = 1
        """To how many shards the process sends: they share what it may send."""
        self.dropped = 0
        """Frames that found no room."""
        self._frames: list[m.Frame] = []
        self._last_taken_ns: int | None = None
        self._messages = Allowance(BURST, BEYOND_BURST)
        self.due_ns: int | None = None
        """When `take` is due; None while nothing waits."""

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frame: m.Frame, now_ns: int) -> bool:
        """Queues a frame; False if there is no room for it."""
        if len(self._frames) >= MAX_QUEUED_FRAMES:
            self.dropped += 1
            return False
        self._frames.append(frame)
        due_ns = self._due_ns(frame.body, now_ns)
        self.due_ns = due_ns if self.due_ns is None else min(self.due_ns, due_ns)
        return True

    def _due_ns(self, body: m.FrameBody, now_ns: int) -> int:
        match body:
            case m.EntriesReceived(again=False):
                return now_ns + CONFIRMATION_WAIT_MS * _MS
            case m.ShardReport(whole=False) if self._last_taken_ns is not None:
                distant_ns = self._last_taken_ns + REPORT_INTERVAL_MS * _MS
                return max(now_ns, min(distant_ns, self._messages.free_ns(self._period_ns)))
        return now_ns

    @property
    def _period_ns(self) -> int:
        return max(self.links * _S // MESSAGES_PER_S, _S // MESSAGES_PER_S_OF_A_LINK)

    def take(self, now_ns: int) -> list[m.Frame]:
        """All that waits, in the order in which it was added."""
        frames, self._frames = self._frames, []
        self.due_ns = None
        self._last_taken_ns = now_ns
        self._messages.spend(now_ns, self._period_ns)
        return frames
