"""Calls that go on only while their token may make them: streams, and calls that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tracker.service.rpc.tokens import Token, Tokens


class Revoked(Exception):
    """The token of a call under way is gone, or has lost the right to it."""


@dataclass(eq=False)
class _Call:
    token: Token
    may: Callable[[Token], bool]
    revoked: asyncio.Future[None]


class CallsUnderWay:
    """The calls of all tokens of a process, each with what its token must go on to allow."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._calls: dict[_Call, None] = {}

    def check(self) -> None:
        """Ends the calls whose token, as the file has it now, may not make them any more."""
        for call in self._calls:
            if not self._may(call) and not call.revoked.done():
                call.revoked.set_result(None)

    def _may(self, call: _Call) -> bool:
        token = self.tokens.current(call.token)
        return token is not None and call.may(token)

    async def serve(
        self, token: Token, may: Callable[[Token], bool], serving: Coroutine[Any, Any, Any]
    ) -> Any:
        """What a call comes to. may: whether a token, as it is at a time, allows what the call has asked for so
        far. Raises Revoked, with the call ended, as soon as the token's does not."""
        call = _Call(token, may, asyncio.get_running_loop().create_future())
        self._calls[call] = None
        task = asyncio.ensure_future(serving)
        if not self._may(call):  # the file has changed since the token was looked up
            call.revoked.set_result(None)
        try:
            await asyncio.wait((task, call.revoked), return_when=asyncio.FIRST_COMPLETED)
            if call.revoked.done() and not task.done():
                raise Revoked
            return task.result()
        finally:
            del self._calls[call]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
