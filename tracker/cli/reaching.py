"""Whether anybody listens where a command is to ask: a tracker that is not there is said at once, and waited for only
where that was asked.
"""

from __future__ import annotations

import socket
import time

import typer

from tracker.client import UnavailableError
from tracker.client.connection import Backoff, parse_targets
from tracker.core.model.names import printable

REACH_TIMEOUT_S = 1.0
"""How long all processes that are named may take, together, until one of them accepts a connection."""


def reach(target: str, retry_s: float) -> None:
    """Returns when a process accepts connections. One that is waited for is said on standard error, once. Raises
    UnavailableError where none does for `retry_s` seconds, LowmarkError if it is no target."""
    deadline_s, backoff, is_said = time.monotonic() + retry_s, Backoff(), False
    while why := _refused(target):
        pause_s = backoff.pause_s()
        told = f"no process of a tracker can be reached at {target} ({why})"
        if time.monotonic() + pause_s >= deadline_s:
            after = (
                f" for {retry_s:g} s" if retry_s else "; lowmark --retry-for 30s would go on trying"
            )
            raise UnavailableError(
                f"{told}{after}; name one by --target or LOWMARK_TARGET, or start one with lowmark serve"
            )
        if not is_said:
            typer.echo(f"waiting: {printable(told)}", err=True)
            is_said = True
        time.sleep(pause_s)


def _refused(target: str) -> str:
    """Why nobody there accepts a connection; empty if one does. Each process gets its share of what is left."""
    why, addresses = [], parse_targets(target)
    deadline_s = time.monotonic() + REACH_TIMEOUT_S
    for index, address in enumerate(addresses):
        share_s = (deadline_s - time.monotonic()) / (len(addresses) - index)
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), max(0.01, share_s)).close()
            return ""
        except OSError as error:
            why.append(f"{address}: {error.strerror or error}")
    return ", ".join(why)
