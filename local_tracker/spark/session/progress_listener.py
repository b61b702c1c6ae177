"""What Spark reports of a query's progress, with min time and lag of the query's segments added.

    listener = ProgressListener(tracked, print)
    spark.streams.addListener(listener)

Spark makes its reports in the JVM and hands Python copies of them: what is added here is in what the listener tells,
and not in `query.lastProgress`, Spark's page, or the reports of other listeners.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

from tracker.client import Admin, LowmarkError, PipelineInfo
from tracker.client.closing import Closing
from tracker.view.pipelines import lags_json, min_time_json

if TYPE_CHECKING:
    from local_tracker.spark.session.tracked import Tracked

KEY = "lowmark"
"""Of what is added to a report."""
MAX_WAITING = 1_000
"""Reports that wait to be told, as while the tracker does not answer; further ones are left out."""
ANSWER_TIMEOUT_S = 5.0
"""How long is waited for the tracker's answer, for each report."""
CLOSE_TIMEOUT_S = 30.0

log = logging.getLogger("lowmark.spark.progress")


def log_report(report: dict[str, Any]) -> None:
    """Writes a report to the log, as a line of JSON."""
    log.info("%s", json.dumps(report))


class ProgressListener(StreamingQueryListener, Closing):
    """Tells each report of a session's queries: as Spark's `progress.json`, and of those that `tracked` has started
    with what the tracker says at that moment under the key `lowmark`. It says the pipeline's name, and of the
    pipeline (`segment`: null) and of each segment that the query reads or creates in: min time, lags in slots and
    milliseconds, and how many slots and items are open. The last batch may not be counted yet. Where the tracker
    has not answered there is the `error` instead.

    Spark's listener bus never waits for the tracker: reports are told by a thread of the listener's own, in order.
    """

    def __init__(
        self, tracked: Tracked, tell: Callable[[dict[str, Any]], object] = log_report
    ) -> None:
        """tell: is given each report, and may change it; what it raises is logged."""
        self._tracked, self._tell = tracked, tell
        self._admin = Admin(tracked.target, ANSWER_TIMEOUT_S)
        self._reports: queue.Queue[str | None] = queue.Queue(MAX_WAITING)
        self._left_out = 0
        self._thread = threading.Thread(target=self._go_on, name="lowmark-progress", daemon=True)
        self._thread.start()

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        try:
            self._reports.put_nowait(event.progress.json)
        except queue.Full:
            self._left_out += 1
            log.warning(
                "a report is left out, %d by now: %d wait to be told", self._left_out, MAX_WAITING
            )

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass

    def close(self) -> None:
        """Tells what has come, and ends; take it from the session first (`spark.streams.removeListener`)."""
        if self._thread.is_alive():
            self._reports.put(None)
            self._thread.join(CLOSE_TIMEOUT_S)
        self._admin.close()

    def _go_on(self) -> None:
        while (text := self._reports.get()) is not None:
            try:
                report = json.loads(text)
                self._add(report)
                self._tell(report)
            except Exception:
                log.exception("a report could not be told")

    def _add(self, report: dict[str, Any]) -> None:
        query = self._tracked.query(report["id"])
        if query is None:
            return
        name = self._tracked.pipeline
        try:
            info = self._admin.pipeline(name)
        except LowmarkError as error:
            report[KEY] = {"pipeline": name, "error": str(error)}
            return
        names = query.routes.segments()
        report[KEY] = {"pipeline": name, "segments": _segments(info, names)}


def _segments(info: PipelineInfo, names: set[str]) -> list[dict[str, Any]]:
    """The pipeline as a whole, and those of its segments, as JSON."""
    state = info.state
    found = [{"segment": None, **_times(state.min_time, info)}]
    for each in state.segments:
        if each.segment in names:
            counts = {"open_slots": each.open_slots, "open_items": each.open_items}
            found.append({"segment": each.segment, **_times(each.min_time, info), **counts})
    return found


def _times(slot: int, info: PipelineInfo) -> dict[str, Any]:
    return {**min_time_json(slot, info.spec), **lags_json(slot, info)}
