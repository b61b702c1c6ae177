"""What one client, and one pipeline, may take of a process. At a limit a call is refused with
RESOURCE_EXHAUSTED and advice; ticks beyond a rate are not refused but read later.

A client is the name of a token, or where there are none the address that calls come from.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

import grpc

from tracker.core.model import RefusalCode, Refused
from tracker.service.rpc.access import CLIENT, is_open
from tracker.service.rpc.errors import Context
from tracker.service.rpc.wrapping import Interceptor, Wrapped, wrapped

MAX_SUBSCRIBERS = 20_000
MAX_STREAMS_PER_CLIENT = 20_000
MAX_BYTES_IN_FLIGHT = 256 * 2**20
MAX_BYTES_IN_FLIGHT_PER_CLIENT = 128 * 2**20
MAX_CONNECTION_AGE_MS = 3_600_000
MAX_CLIENTS = 10_000
"""Clients whose rate is remembered; of more, those that were silent longest begin anew."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one process.

    max_subscribers: streams that subscribe to one pipeline. max_streams_per_client: streams of ticks and
    of subscriptions. max_calls_per_s: calls, and streams begun, of one client (0: no limit).
    max_ticks_per_s: ticks of one pipeline's nodes that are read (0: no limit). max_bytes_in_flight,
    max_bytes_in_flight_per_client: of large requests whose calls are under way, also those that wait.
    max_connection_age_ms: after which a connection ends, and is judged anew when its client comes again (0: never).
    """

    max_subscribers: int = MAX_SUBSCRIBERS
    max_streams_per_client: int = MAX_STREAMS_PER_CLIENT
    max_calls_per_s: int = 0
    max_ticks_per_s: int = 0
    max_bytes_in_flight: int = MAX_BYTES_IN_FLIGHT
    max_bytes_in_flight_per_client: int = MAX_BYTES_IN_FLIGHT_PER_CLIENT
    max_connection_age_ms: int = MAX_CONNECTION_AGE_MS

    def __post_init__(self) -> None:
        if self.max_subscribers < 1 or self.max_streams_per_client < 1:
            raise ValueError("max_subscribers and max_streams_per_client are at least 1")
        if self.max_calls_per_s < 0 or self.max_ticks_per_s < 0:
            raise ValueError("max_calls_per_s and max_ticks_per_s are at least 0 (0: no limit)")
        if self.max_connection_age_ms < 0:
            raise ValueError("max_connection_age_ms is at least 0 (0: no limit)")


class Bucket:
    """A rate, with bursts of up to a second's worth."""

    __slots__ = ("_at_s", "_left", "_per_s")

    def __init__(self, per_s: int) -> None:
        self._per_s, self._left, self._at_s = per_s, float(per_s), monotonic()

    def take(self) -> float:
        """Takes one; returns after how many seconds it is due (0: now)."""
        now = monotonic()
        self._left = min(float(self._per_s), self._left + (now - self._at_s) * self._per_s) - 1
        self._at_s = now
        return 0.0 if self._left >= 0 else -self._left / self._per_s

    def give_back(self) -> None:
        """What was taken is not used."""
        self._left += 1


class Quotas:
    """What clients and pipelines have taken of one process."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._streams: dict[str, int] = {}
        self._ticks: dict[str, Bucket] = {}

    @contextmanager
    def stream(self, context: Context) -> Iterator[None]:
        """While a stream of a client lasts. Raises Refused(FULL) if it has too many."""
        client, limit = client_of(context), self.limits.max_streams_per_client
        count = self._streams.get(client, 0)
        if count >= limit:
            raise Refused(
                RefusalCode.FULL,
                f"client {client!r} has {count} streams open, the limit max_streams_per_client is "
                f"{limit}; use fewer, or one subscription for a host (a local tracker's)",
            )
        self._streams[client] = count + 1
        try:
            yield
        finally:
            left = self._streams[client] - 1
            if left:
                self._streams[client] = left
            else:
                del self._streams[client]

    def ticks_of(self, pipeline: str) -> Bucket | None:
        """The rate of a registered pipeline's ticks; None without a limit."""
        if not self.limits.max_ticks_per_s:
            return None
        return self._ticks.setdefault(pipeline, Bucket(self.limits.max_ticks_per_s))

    def forget(self, pipeline: str) -> None:
        """It was deleted."""
        self._ticks.pop(pipeline, None)


def client_of(context: Context) -> str:
    """The name of the call's token, or else the address it came from, without the port."""
    named = CLIENT.get()
    if named:
        return named
    peer = context.peer()
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer


class CallRate(Interceptor):
    """Refuses the calls of clients that make too many. Only there where a rate is set."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._clients: OrderedDict[str, Bucket] = OrderedDict()

    def intercepted(self, call: grpc.HandlerCallDetails, handler: Wrapped) -> Wrapped:
        if is_open(call.method):
            return handler
        return wrapped(handler, self._counted, self._counted)

    def _counted(self, serve: Any) -> Any:
        async def served(said: Any, context: Context) -> Any:
            self._count(context)
            return await serve(said, context)

        return served

    def _count(self, context: Context) -> None:
        """Raises Refused(FULL) where a client calls too often."""
        client, limit = client_of(context), self._limits.max_calls_per_s
        bucket = self._clients.get(client)
        if bucket is None:
            bucket = self._clients[client] = Bucket(limit)
            if len(self._clients) > MAX_CLIENTS:
                self._clients.popitem(last=False)
        self._clients.move_to_end(client)
        delay_s = bucket.take()
        if delay_s:
            bucket.give_back()
            raise Refused(
                RefusalCode.FULL,
                f"client {client!r} makes too many calls, the limit max_calls_per_s is {limit}; wait "
                f"{1_000 * delay_s:.0f} ms, and subscribe or wait instead of asking again and again",
            )
