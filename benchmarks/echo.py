"""python -m benchmarks.echo: a bare gRPC server, of the same library, that says back what it hears.

It neither reads nor makes messages: bytes in, the same bytes out, one by one. That is the least that
a server of this library does for a stream of that many messages of those bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from tracker.wire.grpc_options import SERVER_OPTIONS

SERVICE = "lowmark.benchmark.Echo"
STREAM = f"/{SERVICE}/Stream"
CALL = f"/{SERVICE}/Call"
LISTEN = f"/{SERVICE}/Listen"
TELL = f"/{SERVICE}/Tell"


async def _stream(messages: AsyncIterator[bytes], context: Any) -> None:
    async for message in messages:
        await context.write(message)


async def _call(message: bytes, _context: Any) -> bytes:
    return message


_told: dict[object, asyncio.Queue[bytes]] = {}
"""What each listener has still to be sent."""


async def _listen(greeting: bytes, context: Any) -> None:
    """Sends the greeting back, and then whatever is told."""
    mine = _told[context] = asyncio.Queue(1)
    mine.put_nowait(greeting)
    try:
        while True:
            await context.write(await mine.get())
    finally:
        del _told[context]


async def _tell(message: bytes, _context: Any) -> bytes:
    """To all who listen and have the message before."""
    for queue in _told.values():
        if not queue.full():
            queue.put_nowait(message)
    return b""


HANDLERS: dict[str, Any] = {
    "Stream": grpc.stream_stream_rpc_method_handler(_stream),
    "Call": grpc.unary_unary_rpc_method_handler(_call),
    "Listen": grpc.unary_stream_rpc_method_handler(_listen),
    "Tell": grpc.unary_unary_rpc_method_handler(_tell),
}


async def serve(service: str, handlers: dict[str, Any]) -> None:
    """A bare server of one service: prints its port, then serves for ever."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(SERVICE, HANDLERS))
