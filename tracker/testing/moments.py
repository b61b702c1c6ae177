"""The moments at which a driver of a Spark query is killed: one between each two steps of the commit order."""

from __future__ import annotations

from enum import StrEnum

MISSED = 3
"""How a driver ends that was to be killed at a moment, and never came to it."""


class Moment(StrEnum):
    """Where a batch finds its end, in the order in which a batch comes to them. The last three are of tracked queries."""

    TASKS = "tasks"
    """The input is fixed, and tasks of the batch run."""
    SINK = "sink"
    """The tasks have written, and the sink has not committed: of files, and of what `tracked.writer` writes."""
    COMMIT = "commit"
    """The sink has committed, and Spark has not: of files, and of `foreachBatch`, whose function has returned."""
    TICK = "tick"
    """Spark has committed, and the batch has not been reported to the tracker."""
    SENT = "sent"
    """It has been reported, and no answer awaited."""
    DURABLE = "durable"
    """The tracker has it."""
