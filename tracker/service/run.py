"""Running one tracker process until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import FrameType

import structlog

from tracker.client.connection import Backoff, SecureTarget
from tracker.client.signals import ending_signals
from tracker.core.model.names import printable
from tracker.core.process import LogLost
from tracker.dashboard import Dashboard
from tracker.errors import Code, InvalidError
from tracker.redacting import redacted
from tracker.service import failpoints
from tracker.service.cluster.joining import CannotJoin, Newcomer
from tracker.service.cluster.owning import Claim, Claimant, HasLeft, Owned, mark_gone
from tracker.service.cluster.peer_link import GivenUp
from tracker.service.cluster.presence import Presence
from tracker.service.config import ServerConfig
from tracker.service.http.gate import TokenGate
from tracker.service.http.metrics import ServiceMetrics
from tracker.service.relaying import RelayServer
from tracker.service.rpc.probes import Probes
from tracker.service.rpc.redirect import RedirectServer
from tracker.service.rpc.tokens import Tokens
from tracker.service.server import TrackerServer
from tracker.service.tasks import unless
from tracker.store import Fenced, StoreError, StoreUnavailable, open_leases

log = structlog.get_logger(__name__)

PAUSE_S = 0.2
"""Before a process that could not begin to serve tries again."""
MAX_PAUSE_S = 5.0
END_WITHIN_S = 14.0
"""So long a process may take to end in good order when it is told to. Above what it gives a slow store
(`FLUSH_AT_STOP_S`), below what a supervisor gives it (`STOP_TIMEOUT_S`)."""
_SHOWN_CALLS = 8
"""So many of a thread that waits, the innermost first."""
OBJECTS_UNDER_WAY = 20_000
"""So many more are there, at most, before Python looks for those that only hold each other."""


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
            _redact,
            *([] if as_json else [_printable]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        # Standard error as it is when something is logged: tests and notebooks put others in place. A line is
        # one write, so that those of several processes do not run into each other.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
    )


def _redact(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """Whatever is logged, an error of a library too: no password of an address."""
    for key, value in event.items():
        if isinstance(value, str) and "//" in value:
            event[key] = redacted(value)
    return event


def _printable(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """What clients and peers have said commands no terminal; a traceback keeps its lines."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = printable(value, lines=key == "exception")
    return event


async def serve(config: ServerConfig, told: Callable[[], None] = lambda: None) -> int:
    """Serves until SIGTERM, SIGINT or SIGHUP; returns the exit status: 0 if told to stop, 1 if it failed, and that
    of the configuration if its shard has left the tracker. told: called once, when it is told to stop.

    First it waits until the shard is its own. While another process has that, because it has taken
    its place, it is a standby like any other."""
    failpoints.arm()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear() -> None:
        if not stop.is_set():
            stop.set()
            told()

    for number in ending_signals():
        loop.add_signal_handler(number, hear)
    try:
        secure(config)
        async with auxiliary_endpoints(config) as auxiliary:
            serving = _serve_relay if config.relay else _serve_until
            return await serving(config, stop, auxiliary)
    except (InvalidError, OSError) as error:
        log.error("cannot_start", shard=config.shard, reason=str(error))
        return 1


@dataclass(frozen=True, slots=True)
class AuxiliaryEndpoints:
    """What a process answers on ports of their own, whether it serves a shard or waits for one."""

    probes: Probes
    metrics: ServiceMetrics


@asynccontextmanager
async def auxiliary_endpoints(config: ServerConfig) -> AsyncIterator[AuxiliaryEndpoints]:
    """Those that the configuration names, and the page that shows the tracker. Raises InvalidError,
    and OSError where one cannot listen."""
    endpoints = AuxiliaryEndpoints(Probes(config.health_listen), ServiceMetrics(config.group))
    dashboard = _dashboard(config)
    metrics = endpoints.metrics.listen(config.metrics_listen) if config.metrics_listen else None
    async with AsyncExitStack() as stack:
        stack.push_async_callback(endpoints.probes.close)
        await endpoints.probes.open()
        if metrics is not None:
            stack.push_async_callback(metrics.stop)
            await metrics.start()
            log.info("tells_metrics", address=metrics.address)
        if dashboard is not None:
            stack.push_async_callback(dashboard.stop)
            await dashboard.start()
        yield endpoints


def secure(config: ServerConfig) -> None:
    """Looks whether the files of certificates and tokens can be used, and says what is not secure.
    Raises InvalidError."""
    security = config.security
    alone = (
        len({*config.addresses, *config.members}) == 1 and not config.standby and not config.join
    )
    security.check(alone=alone)
    if security.tokens:
        log.info("tokens_read", file=security.tokens, tokens=len(Tokens(security.tokens)))
    listen = config.listen or config.own_address
    for what in security.warnings(listen):
        log.warning("insecure", listen=listen, reason=what)


def _dashboard(config: ServerConfig) -> Dashboard | None:
    """The page that shows the tracker, as any of its clients sees it: also while this process waits for
    a shard. Raises InvalidError where it could not reach the tracker."""
    if not config.dashboard_listen:
        return None
    security, credentials = config.security, config.security.to_peers
    if security.tls_cert and not credentials.ca:
        raise InvalidError(
            "--dashboard-listen asks this tracker as a client does, by TLS: name its CA in LOWMARK_TLS_CA",
            Code.INVALID_CREDENTIALS,
        )
    if security.tokens and not credentials.token_file:
        raise InvalidError(
            "--dashboard-listen asks this tracker as a client does, with a token that may hear of all "
            "pipelines: name its file in LOWMARK_TOKEN_FILE",
            Code.INVALID_CREDENTIALS,
        )
    addresses = config.relay or config.addresses or (config.own_address, *config.join)
    gate = TokenGate(security.tokens) if security.tokens else None
    return Dashboard(config.dashboard_listen, SecureTarget(addresses, credentials), gate)


async def _serve_relay(
    config: ServerConfig, stop: asyncio.Event, auxiliary: AuxiliaryEndpoints
) -> int:
    server = auxiliary.metrics.relay = RelayServer(config)
    await server.start()
    await auxiliary.probes.serves()
    await stop.wait()
    await auxiliary.probes.busy()
    await server.stop()
    return 0


async def _serve_until(
    config: ServerConfig, stop: asyncio.Event, auxiliary: AuxiliaryEndpoints
) -> int:
    passes_over = dict[int, int]()
    while not stop.is_set():
        owned: Owned | None = None
        if bool(config.left_file) and await asyncio.to_thread(Path(config.left_file).exists):
            return await _stay(config, stop, auxiliary)
        try:
            owned = await _own(config, stop, auxiliary.probes, passes_over)
            if owned is None:
                break
            failure, left = await _serve_owned(config, owned, stop, auxiliary)
        except (Fenced, StoreUnavailable) as error:
            # Taken over, or the store went away, before it served: it waits again.
            log.warning("not_serving", reason=str(error))
            await asyncio.sleep(PAUSE_S)
            continue
        except HasLeft as error:
            log.info("left", reason=str(error))
            if len(config.members) > 1 and not config.join:
                # It is not the one that has left: the set has become larger again.
                here = config.own_address
                others = tuple(address for address in config.addresses if address != here)
                config = replace(config, shard=0, addresses=(), join=others, address=here)
                continue
            return config.left_status
        except GivenUp as error:
            log.error("given_up", reason=str(error))
            return 1
        except (StoreError, LogLost, OSError, ValueError, CannotJoin) as error:
            if owned is not None and _is_for_others(config, owned, error):
                log.error("cannot_take_over", shard=owned.shard, reason=str(error))
                passes_over[owned.shard] = owned.epoch
                continue
            log.error("cannot_start", shard=config.shard, reason=str(error))
            return 1
        if left and config.left_file:  # before it is another one when it is started again
            note = f"shard {owned.shard}\n"
            await asyncio.to_thread(Path(config.left_file).write_text, note)
        if left or isinstance(failure, GivenUp):
            await _mark_gone(config, owned)
        if left and (config.join or owned.shard == config.shard) and not config.standby:
            log.info(
                "left",
                shard=owned.shard,
                reason=f"shard {owned.shard} has left the tracker, and all that it had is with the "
                "others: this process ends, and its store may be deleted",
            )
            if config.left_file:
                continue
            return config.left_status
        if isinstance(failure, GivenUp):
            log.error("given_up", shard=owned.shard, reason=str(failure))
        if failure is not None and not isinstance(failure, Fenced):
            return 1
    return 0


def _is_for_others(config: ServerConfig, owned: Owned, error: Exception) -> bool:
    """Whether it is the shard of another process whose store cannot be read: a standby has others to watch over."""
    is_own = config.join or (owned.shard == config.shard and not config.standby)
    return not is_own and isinstance(error, StoreError | LogLost)


async def _stay(config: ServerConfig, stop: asyncio.Event, auxiliary: AuxiliaryEndpoints) -> int:
    """Of a set from whose end it is about to be taken: it is as ready as it can be, and does nothing."""
    log.info(
        "stays", reason=f"its shard has left: {config.left_file} says so; it waits to be ended"
    )
    redirect = RedirectServer(config.listen or config.own_address, config.security)
    await redirect.open()
    try:
        await auxiliary.probes.waits(all_served=True)
        await unless(stop, _mark_noted(config))
        await stop.wait()
    finally:
        await redirect.close()
    return 0


async def _mark_noted(config: ServerConfig) -> None:
    """Whoever has noted that its shard has left may have ended, or its store been away, before that stood in its store. A process
    that comes there later would be that shard once more, and stay, and never join."""
    backoff = Backoff(PAUSE_S, MAX_PAUSE_S)
    while True:
        with suppress(StoreError):
            return await asyncio.to_thread(mark_left, config)
        await asyncio.sleep(backoff.pause_s())


def mark_left(config: ServerConfig) -> None:
    """Marks the shard of a note as gone, where this process was its last owner. Raises StoreError."""
    _, _, number = Path(config.left_file).read_text().strip().partition("shard ")
    if not number.isdigit():
        return  # whoever wrote it has not come to its end
    with closing(open_leases(config.store)) as leases:
        lease = leases.read(shard := int(number))
    if lease is None:
        raise StoreUnavailable(f"the lease of shard {shard} cannot be read")
    if lease.owner == config.own_address:
        mark_gone(config.store, shard, lease.epoch)


async def _mark_gone(config: ServerConfig, owned: Owned) -> None:
    """So that nobody takes the shard over, and this process is another one if it joins again."""
    try:
        await asyncio.to_thread(mark_gone, config.store, owned.shard, owned.epoch)
    except StoreError as error:
        log.warning("not_marked", shard=owned.shard, reason=str(error))


async def _own(
    config: ServerConfig, stop: asyncio.Event, probes: Probes, passes_over: Mapping[int, int]
) -> Owned | None:
    redirect = RedirectServer(config.listen or config.own_address, config.security)
    presence = Presence(config.own_address, config.security.to_peers)

    async def looked(serving: Sequence[str], all_served: bool) -> None:
        presence.look(serving)
        redirect.send_to(serving[0] if serving else "")
        await probes.waits(all_served)

    try:
        await redirect.open()  # one that cannot listen replaces nobody who serves there
        if config.join:
            await probes.waits(all_served=False)
            return await Newcomer(config).own(stop)
        own = None if config.standby else config.shard
        shards = len(config.addresses)
        claim = Claim(config.store, config.own_address, config.lease_ms, shards, own, passes_over)
        return await Claimant(claim, looked).own(stop)
    finally:
        await presence.stop()
        await redirect.close()


async def _serve_owned(
    config: ServerConfig, owned: Owned, stop: asyncio.Event, auxiliary: AuxiliaryEndpoints
) -> tuple[BaseException | None, bool]:
    """Serves a shard until it is told to stop, or cannot go on: then returns why; or until the shard has
    left the tracker: then returns True."""
    await auxiliary.probes.busy()
    here = replace(config, shard=owned.shard, address=config.own_address)
    server = TrackerServer(here, owned.store, owned.epoch)
    await server.start()
    await auxiliary.probes.serves()
    auxiliary.metrics.server = server
    await unless(stop, server.wait())
    await auxiliary.probes.busy()
    auxiliary.metrics.server = None
    if server.left:
        moved = server.parts.engine.process.moved_cells
        log.info("handed_over", shard=owned.shard, moved_cells=moved)
    await server.stop()
    return server.failure, server.left


def collect_rarely() -> None:
    """Python looks for cycles of objects that hold each other whenever there are so many more objects than it
    let go of; those of ticks under way hold no cycle, and are as many for a moment. What is there at the start
    stays, and need not be looked at."""
    gc.freeze()
    gc.set_threshold(OBJECTS_UNDER_WAY)


def end_by_force() -> None:
    """Ends the process as kill -9 would, after a word on what its threads wait for: nothing ends a call of a store that
    hangs. What was acknowledged is durable."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = [
        f"{names[ident]}: {_calls(frame)}"
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - the one way to see them
        if ident in names and ident != threading.get_ident()
    ]
    try:
        log.error("ended_by_force", waited_s=END_WITHIN_S, threads=threads)
    finally:
        os._exit(1)


def _calls(frame: FrameType) -> str:
    """Without a look at the source, which may be on the disk that hangs."""
    calls = islice(traceback.walk_stack(frame), _SHOWN_CALLS)
    return " < ".join(call.f_code.co_qualname for call, _ in calls)


def main(config: ServerConfig) -> int:
    """Runs one process, which ends within END_WITHIN_S when it is told to; for the command line."""
    collect_rarely()
    by_force = threading.Timer(END_WITHIN_S, end_by_force)
    by_force.daemon = True
    try:
        return asyncio.run(serve(config, by_force.start))
    finally:
        by_force.cancel()
