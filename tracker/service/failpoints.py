"""Named places at which a process can be made to die, to show that it may.

`LOWMARK_FAILPOINT=sync-after` (or `sync-after:3`: the third time) in the environment of a process
ends it there as kill -9 would. Without it nothing happens. The places, in the life of a tick:

    append                           accepted, before anything is written
    sync-before, sync-after          around the group commit
    apply-before, apply-after        around its taking effect
    acknowledge-before, -after       around telling the node
    forward-before, -after           around handing entries to another shard
    report-before, -after            around handing a report to another shard
    announce-before, -after          around telling subscribers
    snapshot-before, -after          around writing a snapshot
    acquire-after                    the shard has been taken over, nothing more

and where shards come and go:

    join-numbered                    a newcomer has its number, and has fetched nothing
    join-fetched, join-stored        ... has its peer's state, not durably; durably
    bootstrap-piece                  a peer has sent a piece of its state
    step-append                      an own step of a change is accepted, and not written

and where pipelines move between groups, by what is asked (docs/groups.md):

    ask-where, -coming, -keep, -place, -end      who leads the move is about to ask
    answer-where, -piece, -coming, -keep, -place, -end
                                                 what was asked is done, and nobody has heard so
"""

from __future__ import annotations

import os
import signal

NAMES = (
    "append", "sync-before", "sync-after", "apply-before", "apply-after",
    "acknowledge-before", "acknowledge-after", "forward-before", "forward-after",
    "report-before", "report-after", "announce-before", "announce-after",
    "snapshot-before", "snapshot-after", "acquire-after",
)  # fmt: skip
CHANGING_NAMES = ("join-numbered", "join-fetched", "join-stored", "bootstrap-piece", "step-append")
_MOVING = ("where", "coming", "keep", "place", "end")
MOVING_NAMES = (
    *(f"ask-{what}" for what in _MOVING),
    *(f"answer-{what}" for what in (*_MOVING, "piece")),
)
VARIABLE = "LOWMARK_FAILPOINT"


_name, _left = "", 0

watches_steps = False
"""Whether it matters what is appended."""


def arm() -> None:
    """Reads at which place this process is to die. Raises ValueError for a place that there is not."""
    global _name, _left, watches_steps
    name, _, times = os.environ.get(VARIABLE, "").partition(":")
    known = (*NAMES, *CHANGING_NAMES, *MOVING_NAMES)
    if name and name not in known:
        raise ValueError(f"{VARIABLE}={name} is none of {', '.join(known)}")
    _name, _left, watches_steps = name, int(times or 1), name == "step-append"


def failpoint(name: str) -> None:
    """Dies here, if this is the place."""
    global _left
    if name != _name:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
