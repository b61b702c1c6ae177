"""Which calls are being served: a process that stops waits for these, and for no connection without one."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from tracker.service.rpc.errors import Context
from tracker.service.rpc.wrapping import Interceptor, Wrapped, wrapped


class Ongoing(Interceptor):
    """Counts calls. It is outside of `EndRefused`, which makes a coroutine of every handler."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = asyncio.Condition()

    async def over(self) -> None:
        """Returns when no call is being served."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._count)

    def intercepted(self, call: grpc.HandlerCallDetails, handler: Wrapped) -> Wrapped:
        return wrapped(handler, self._counted, self._counted)

    def _counted(self, serve: Any) -> Any:
        async def served(said: Any, context: Context) -> Any:
            self._count += 1
            try:
                return await serve(said, context)
            finally:
                self._count -= 1
                async with self._changed:
                    self._changed.notify_all()

        return served
