"""Reaching a tracker: any of its processes, or the one that is home, with retries until a deadline.

Channels are made when they are first used, so that an object made before a fork works after it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc

from tracker.client.errors import LowmarkError, UnavailableError, refusal_of
from tracker.core.model import RefusalCode
from tracker.grpc_options import CHANNEL_OPTIONS

Answer = TypeVar("Answer")

CALL_TIMEOUT_S = 5.0
"""One attempt at a call; within the caller's own deadline others follow."""
RETRY_FIRST_S = 0.05
RETRY_MOST_S = 1.0
MAX_REDIRECTS = 8

_RETRIED = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}


def parse_targets(target: str | Sequence[str]) -> tuple[str, ...]:
    """`host:port`, several of them with commas, or a sequence of them. Raises LowmarkError."""
    parts = target.split(",") if isinstance(target, str) else list(target)
    targets = tuple(part.strip() for part in parts if part.strip())
    for address in targets:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise LowmarkError(f"target {address!r} is not host:port")
    if not targets:
        raise LowmarkError("no target is given; name the tracker as host:port")
    return targets


class Backoff:
    """Growing pauses between attempts, with jitter so that many clients do not come at once."""

    def __init__(self) -> None:
        self._next_s = RETRY_FIRST_S

    def pause_s(self) -> float:
        pause = self._next_s * (0.5 + random.random() / 2)
        self._next_s = min(2 * self._next_s, RETRY_MOST_S)
        return pause

    def reset(self) -> None:
        self._next_s = RETRY_FIRST_S


class Connection:
    """The processes of one tracker, by their addresses. Safe for use by several threads."""

    def __init__(self, target: str | Sequence[str]) -> None:
        self.targets = parse_targets(target)
        self._channels: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()
        self._turn = random.randrange(len(self.targets))  # so that clients spread

    def channel(self, address: str) -> grpc.Channel:
        with self._lock:
            if address not in self._channels:
                self._channels[address] = grpc.insecure_channel(address, CHANNEL_OPTIONS)
            return self._channels[address]

    def target(self) -> str:
        """The process to ask; the same one until `next_target`."""
        return self.targets[self._turn % len(self.targets)]

    def next_target(self) -> str:
        """Another process, after the present one has not answered."""
        self._turn += 1
        return self.target()

    def call(
        self,
        make: Callable[[grpc.Channel], Callable[..., Answer]],
        request: Any,
        timeout_s: float,
        call_timeout_s: float = CALL_TIMEOUT_S,
        prefer: str | None = None,
    ) -> tuple[Answer, str]:
        """Makes a unary call at the process that can answer it; returns the answer and the address.

        make: from a channel to the stub's method; `prefer`: the address to ask first. Raises
        RefusedError, or UnavailableError when no process answered within `timeout_s` seconds.
        """
        deadline = time.monotonic() + timeout_s
        backoff, redirects = Backoff(), 0
        address = prefer or self.target()
        while True:
            left_s = deadline - time.monotonic()
            try:
                answer = make(self.channel(address))(
                    request, timeout=max(0.001, min(left_s, call_timeout_s))
                )
                return answer, address
            except grpc.RpcError as error:
                refused = refusal_of(error)
                if refused is not None and refused.refusal.code is RefusalCode.NOT_HOME:
                    redirects += 1
                    if refused.home_address and redirects <= MAX_REDIRECTS:
                        address = refused.home_address
                        continue
                    raise refused from None
                if refused is not None and refused.refusal.code is not RefusalCode.NOT_READY:
                    raise refused from None
                if refused is None and error.code() not in _RETRIED:
                    raise LowmarkError(
                        f"{address}: {error.code().name}: {error.details()}"
                    ) from None
                pause_s = backoff.pause_s()
                if time.monotonic() + pause_s >= deadline:
                    raise UnavailableError(
                        f"the tracker at {', '.join(self.targets)} did not answer within "
                        f"{timeout_s:g} s (last: {address}: {error.details()})"
                    ) from None
                time.sleep(pause_s)
                address = self.next_target()

    def close(self) -> None:
        with self._lock:
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()
