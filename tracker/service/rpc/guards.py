"""What every call of a process passes before it is served: whether it is well formed, small enough, allowed, and not too often
made; and how it ends where it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import grpc

from tracker.service.rpc.access import Access
from tracker.service.rpc.limits import CallRate, Limits
from tracker.service.rpc.ongoing import Ongoing
from tracker.service.rpc.refusals import EndRefused, Locate
from tracker.service.rpc.revoking import CallsUnderWay
from tracker.service.rpc.sizes import RequestSizes
from tracker.service.rpc.tokens import Tokens
from tracker.service.tasks import end


class Guards:
    """Those of one process. To be made in its loop."""

    def __init__(
        self,
        limits: Limits,
        tokens: str,
        addresses: Mapping[int, str],
        locate: Locate | None = None,
    ) -> None:
        """tokens: the file of tokens, if there is one; addresses, locate: as of `EndRefused`. Raises InvalidError."""
        self.ongoing = Ongoing()
        self.calls: CallsUnderWay | None = None
        """Of tokens, if there are any."""
        refused, sizes = EndRefused(addresses, locate), RequestSizes(limits)
        self.interceptors: list[grpc.aio.ServerInterceptor] = [self.ongoing, refused, sizes]
        self._watching: asyncio.Task[None] | None = None
        if tokens:
            access = Access(Tokens(tokens))
            self.calls = access.calls
            self._watching = asyncio.get_running_loop().create_task(access.watch())
            self.interceptors.append(access)
        if limits.max_calls_per_s:
            self.interceptors.append(CallRate(limits))

    async def stop(self) -> None:
        """Looks for changes of the file of tokens no more."""
        await end(self._watching)
