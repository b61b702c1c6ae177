"""The parts of `lowmark dev` put together, started and ended in order."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tracker.client.closing import Closing
from tracker.client.embedded import EmbeddedTracker
from tracker.dashboard import Dashboard
from tracker.dev import sample
from tracker.dev.sample import Sample
from tracker.errors import Code, StateError

HOST = "127.0.0.1"
"""It has no tokens and no TLS: nobody else on the network may reach it."""
DEFAULT_PORT = 7070
DEFAULT_DASHBOARD_PORT = 8070


class DevServer(Closing):
    """A tracker of one shard, its dashboard, and the sample pipeline, until it is closed."""

    def __init__(
        self,
        port: int = DEFAULT_PORT,
        dashboard_port: int | None = None,
        data: Path | None = None,
        with_sample: bool = True,
        sample_failed: Callable[[Exception], object] = lambda _: None,
    ) -> None:
        """port: of the tracker, 0 for any; dashboard_port: None for 8070 if that is free, else any; data: a
        directory that keeps what the tracker is told, made if missing; None: memory does, until the end.
        Raises StateError; StoreError where the directory can't be used."""
        with ExitStack() as stack:
            address = f"{HOST}:{port}" if port else ""
            store = f"sqlite:{data}" if data is not None else "memory:"
            if port:
                _check_free(port)
            self.tracker = EmbeddedTracker(store=store, address=address)
            stack.callback(self.tracker.close)
            self._dashboard = _dashboard(self.tracker, dashboard_port)
            stack.callback(lambda: self.tracker.run(self._dashboard.stop()))
            self.pipeline = sample.NAME if with_sample else ""
            """The name of the sample pipeline; empty without one."""
            if with_sample:
                stack.callback(Sample(self.tracker, sample_failed).close)
            self._closing = stack.pop_all()

    @property
    def target(self) -> str:
        """host:port of the tracker."""
        return self.tracker.target

    @property
    def url(self) -> str:
        """Of the dashboard."""
        return f"http://{self._dashboard.address}/"

    def close(self) -> None:
        """Ends the sample, then the page, then the tracker."""
        self._closing.close()


def _check_free(port: int) -> None:
    """Raises StateError. gRPC would say it, too, but beside its own words on standard error."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        raise StateError(_taken("--port", port, "perhaps a tracker"), Code.STATE_TAKEN) from error


def _dashboard(tracker: EmbeddedTracker, port: int | None) -> Dashboard:
    """The page, in the loop of the tracker. Raises StateError."""
    try:
        return _started(tracker, DEFAULT_DASHBOARD_PORT if port is None else port)
    except OSError as error:
        if port is not None:
            raise StateError(
                _taken("--dashboard-port", port, "perhaps a page"), Code.STATE_TAKEN
            ) from error
        return _started(tracker, 0)


def _started(tracker: EmbeddedTracker, port: int) -> Dashboard:
    dashboard = Dashboard(f"{HOST}:{port}", tracker.target)
    tracker.run(dashboard.start())
    return dashboard


def _taken(option: str, port: int, whose: str) -> str:
    return (
        f"port {port} of {HOST} is taken, {whose} that runs already: end that, or give another port, or 0 for any "
        f"that is free: {option} 0"
    )
