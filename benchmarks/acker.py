"""python -m benchmarks.acker: a Storm-style acker over a bare gRPC stream: one message an ack.

Each message is a slot and a value. The acker XORs the value into the slot's entry and answers with the
slot when that has become zero. Nothing is durable, ordered among senders, or counted once.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import grpc

from tracker.grpc_options import SERVER_OPTIONS

SERVICE = "lowmark.benchmark.Acker"
ACK = f"/{SERVICE}/Ack"
MESSAGE = struct.Struct("<qQ")


async def _ack(messages: AsyncIterator[bytes], context: Any) -> None:
    entries: dict[int, int] = {}
    async for message in messages:
        slot, value = MESSAGE.unpack(message)
        entry = entries.get(slot, 0) ^ value
        if entry:
            entries[slot] = entry
        else:
            entries.pop(slot, None)
            await context.write(message[:8])


async def serve() -> None:
    """Prints its port, then serves for ever."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    handlers: dict[str, Any] = {"Ack": grpc.stream_stream_rpc_method_handler(_ack)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve())
