"""Running one tracker process until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

import structlog

from tracker.core.process import LogLost
from tracker.service.server import ServerConfig, TrackerServer
from tracker.store import StoreError

log = structlog.get_logger(__name__)


def configure_logging(level: str = "info", *, as_json: bool | None = None) -> None:
    """Structured logs on standard error: JSON unless it is a terminal, or as asked."""
    if as_json is None:
        as_json = not sys.stderr.isatty()
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        # Standard error as it is when something is logged: tests and notebooks put others in place.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


async def serve(config: ServerConfig) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit status: 0 if told to stop, 1 if it failed."""
    server = TrackerServer(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await server.start()
    except (StoreError, LogLost, OSError, ValueError) as error:
        log.error("cannot_start", shard=config.shard, reason=str(error))
        return 1
    waiting = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(server.wait())]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await server.stop()
    return 0 if server.failure is None else 1


def main(config: ServerConfig) -> int:
    """Runs one process; for the command line."""
    return asyncio.run(serve(config))
