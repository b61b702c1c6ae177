"""One process's link to another shard: two home logs, two sequences of reports (rules 3 and 5).

Frames may be lost, repeated and reordered. A home log travels as numbered entries: the receiver
takes the next ones, drops what it has, and asks again where something is missing; the sender goes
back to what is confirmed when nothing is confirmed for a while. Reports are numbered too; after a
gap the receiver wants a whole one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tracker.core.log import ShardReport
from tracker.core.model import durable as d

MAX_EARLY_REPORTS = 256
"""Of one shard that wait here; with one more, a whole report is asked for instead."""


@dataclass(slots=True)
class Link:
    """What is known of the exchange with one other shard. Home log numbers count from 1."""

    confirmed: int = d.forgotten("whoever is sent it again confirms it again", default=0)
    """The other shard holds this shard's home log durably up to here."""
    sent: int = d.forgotten("what is not confirmed is sent again", default=0)
    """Entries up to here were sent and need not be sent again yet."""
    progress_ns: int = d.forgotten(d.A_MOMENT, default=0)
    """When something was last confirmed or sent anew."""
    received: int = d.survives(default=0)
    """The other shard's home log is durable here up to here."""
    accepted: int = d.follows("`received`", ahead=True, default=0)
    """... and was appended, durable or not, up to here."""
    awaits: bool = d.forgotten(d.HEARD_AGAIN, default=False)
    """Whether the next entry of the other shard's log cannot be taken yet, since what it names is still on the way here
    by another log. It is not asked for, but comes again when the other shard has heard nothing for a while: to be asked at
    once for each entry behind it, that one would send it again and again, as fast as the network takes it."""
    declares: int = d.forgotten(d.HEARD_AGAIN, default=0)
    """Number of the entry of the other shard's log by which it declares others lost, as far as anybody has reported one. What
    stands before it may name what only a lost shard's log has, and is passed over: all goes on from what `ShardLost` has."""
    told_received: int = d.forgotten("it is told again when the link is up", default=0)
    """Up to where the other shard has been told so."""
    epoch: int = d.forgotten(d.HEARD_AGAIN, default=0)
    """The owner of the other shard that was heard last; frames of older owners are ignored."""
    owed: int = d.forgotten("it is of owners that were heard", default=0)
    """Up to here an owner before that one had confirmed this shard's home log: its successor has as much, or its store has lost
    records."""
    report_number: int = d.forgotten(d.HEARD_AGAIN, default=-1)
    """Number of the last report taken of this epoch. It never falls: an older report, however whole,
    would take back what others have gone by."""
    needs_whole: bool = d.forgotten(d.HEARD_AGAIN, default=True)
    """Whether the next report must be a whole one."""
    early: deque[ShardReport] = d.forgotten(d.HEARD_AGAIN, deque)
    """The reports that follow the last one taken, while the first of them names a pipeline whose registration is
    still on the way here. Invariant: empty while a whole one is needed."""
    wanted_ns: int | None = d.forgotten(d.A_MOMENT, default=None)
    """When a whole report was last asked for, while one is needed."""
    level: int = d.forgotten(d.HEARD_AGAIN, default=0)
    """The feature level by which the process of that owner records; 0 until it has reported that."""
    speaks: int = d.forgotten(d.HEARD_AGAIN, default=0)
    """The highest level that the process of that owner speaks; 0 until it has reported that, on each connection anew."""
    connected: bool = d.forgotten("connections end with the process", default=False)

    def owed_to(self, epoch: int) -> int:
        """What an owner must have of this shard's home log, that is not an older one than was heard."""
        return self.confirmed if 0 < self.epoch < epoch else self.owed

    def forget_release(self) -> None:
        """The process there may be of another release by now, until it has confirmed something."""
        self.level = self.speaks = 0

    def need_whole(self) -> None:
        """Only a whole report can be taken next; it may be asked for at once."""
        self.needs_whole, self.wanted_ns = True, None
        self.early.clear()

    @property
    def last_report(self) -> int:
        """Number of the last report that was taken, or is kept until it can be."""
        return self.report_number + len(self.early)

    def restart_sending(self, now_ns: int) -> None:
        """Entries beyond what is confirmed will be sent again."""
        self.sent = self.confirmed
        self.progress_ns = now_ns

    def confirm(self, number: int, now_ns: int) -> bool:
        """The other shard confirms; returns whether that is news."""
        if number <= self.confirmed:
            return False
        self.confirmed = number
        self.sent = max(self.sent, number)
        self.progress_ns = now_ns
        return True
