"""Where a worker's acks go, from the environment and, in Spark, from the task's local properties.

A setting `x` is the local property `lowmark.x`, else the environment variable `LOWMARK_X`, else its
default. A tracked query sets `target`, `pipeline` and `node_id` for its tasks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from local_tracker.core.window import Flush
from tracker.errors import Code, InvalidError

TRANSACTIONAL, EAGER, OFF = "transactional", "eager", "off"
MODES = (TRANSACTIONAL, EAGER, OFF)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where acks go, and how."""

    target: str
    """`host:port` of tracker processes (comma-separated), or a local tracker (`unix:/path`,
    `tcp:host:port`) that the host's own flushes into."""
    pipeline: str
    node_id: str
    """The query's node, whose batches the acks belong to; in eager mode, the local tracker's own."""
    mode: str
    """`transactional`, `eager`, or `off`: acks go nowhere. Empty: by the kind of task."""
    socket: str
    """The host's local tracker, where it is started by others (sidecar, DaemonSet); empty: the
    workers start one."""
    directory: str
    """Where sockets, locks and logs of local trackers that workers start are kept."""
    python: str
    """The interpreter that runs a local tracker; it needs gRPC."""
    deadline_s: float
    """A hand-over that takes longer fails the task."""
    flush_window_ms: float
    """How long an eager local tracker may gather."""
    flush: Flush = Flush.WHEN_IDLE
    """Whether steps after a pause wait for others."""
    credentials: tuple[tuple[str, str], ...] = ()
    """Environment variables that name the files by which a local tracker shows itself to the tracker, and
    their values: those of a tracked query, where this host's environment has none of its own."""


CREDENTIALS = ("tls_ca", "tls_cert", "tls_key", "token_file")
_DEFAULT_DEADLINE_S = 30.0
_DEFAULT_FLUSH_WINDOW_MS = 5.0


def load(
    local_property: Callable[[str], str | None] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """The settings of this moment. `local_property` reads one of the running task's local properties.
    Raises InvalidError where a value makes no sense."""

    def read(name: str, default: str = "") -> str:
        value = local_property(f"lowmark.{name}") if local_property is not None else None
        return value or environment.get(f"LOWMARK_{name.upper()}") or default

    mode = read("mode")
    if mode and mode not in MODES:
        raise InvalidError(
            f"mode is {mode!r}; it must be one of {', '.join(MODES)}, or not be set",
            Code.INVALID_SETTINGS,
        )
    return Settings(
        target=read("target"),
        pipeline=read("pipeline"),
        node_id=read("node_id"),
        mode=mode,
        socket=read("socket"),
        directory=read("directory", f"/tmp/lowmark-{os.getuid()}"),
        python=read("python", sys.executable),
        deadline_s=_positive("deadline_s", read("deadline_s"), _DEFAULT_DEADLINE_S),
        flush_window_ms=_positive(
            "flush_window_ms", read("flush_window_ms"), _DEFAULT_FLUSH_WINDOW_MS
        ),
        flush=_flush(read("flush")),
        credentials=_credentials(local_property, environment),
    )


def _flush(text: str) -> Flush:
    try:
        return Flush(text or Flush.WHEN_IDLE.value)
    except ValueError:
        names = ", ".join(flush.value for flush in Flush)
        raise InvalidError(
            f"flush is {text!r}; it must be one of {names}, or not be set", Code.INVALID_SETTINGS
        ) from None


def _credentials(
    local_property: Callable[[str], str | None] | None, environment: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """All of the host's environment, or all of the query's: files of one with those of the other would
    not go together."""
    variables = {name: f"LOWMARK_{name.upper()}" for name in CREDENTIALS}
    if local_property is None or any(environment.get(name) for name in variables.values()):
        return ()
    found = ((variables[name], local_property(f"lowmark.{name}")) for name in CREDENTIALS)
    return tuple((variable, path) for variable, path in found if path)


def require(settings: Settings, *names: str) -> None:
    """Raises InvalidError if one of the settings is missing."""
    missing = [name for name in names if not getattr(settings, name)]
    if missing:
        raise InvalidError(
            f"acks have nowhere to go: {', '.join(missing)} not set; in Spark, call "
            f"tracked.track(acks) and start the query with tracked.start(...); elsewhere set "
            f"{', '.join('LOWMARK_' + name.upper() for name in missing)}; or set LOWMARK_MODE=off "
            f"to run without tracking",
            Code.INVALID_SETTINGS,
        )


def _positive(name: str, text: str, default: float) -> float:
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 86_400_000:
        raise InvalidError(
            f"{name} is {text!r}; it must be a number above 0", Code.INVALID_SETTINGS
        )
    return value
