"""Whether the state of a query is let go of by the clock, as its checkpoint records of its operators.

Spark 4 writes down the time mode of `transformWithState`, and nothing of the timeouts of `applyInPandasWithState`.
"""

from __future__ import annotations

import json

from local_tracker.spark.query.logs import CheckpointLog
from tracker.errors import Code, FilesError

BY_CLOCK = frozenset(("ProcessingTime", "ProcessingTimeTimeout"))
"""Time modes and timeouts of which no watermark says anything."""
NO_WATERMARK_TELLS = (
    "lets go of its state by the clock, of which no watermark tells anything, so that HeldFor(...) cannot hold it; in "
    "a classic session, in the driver, leave out state, and it is held until it is empty; elsewhere nothing can hold "
    "it: give state='free' (from outside no state), if min time may pass what is only in state"
)
_MAX_BYTES = 4 << 20


def by_clock(log: CheckpointLog) -> str | None:
    """An operator that has a time to live or timers by the clock, by its name in the checkpoint; None where none is
    known, as before a query's first batch. Raises FilesError and AwayError."""
    root = f"{log.root}/state"
    for operator in log.files.names(root):
        folder = f"{root}/{operator}/_metadata/v2"
        versions = [int(name) for name in log.files.names(folder) if name.isdigit()]
        if not versions:
            continue
        path = f"{folder}/{max(versions)}"
        whole = log.files.read_whole(path, _MAX_BYTES) or b""
        try:
            known = json.loads(whole.partition(b"\n")[2])
            name = str(known["operatorInfo"]["operatorName"])
            mode = json.loads(known.get("operatorPropertiesJson") or "{}").get("timeMode")
        except (ValueError, TypeError, AttributeError, LookupError):
            raise FilesError(
                f"{path} does not say which operator's state it is of", Code.FILES_LOG
            ) from None
        if mode in BY_CLOCK:
            return name
    return None
