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

from benchmarks.echo import serve

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


if __name__ == "__main__":
    handlers: dict[str, Any] = {"Ack": grpc.stream_stream_rpc_method_handler(_ack)}
    asyncio.run(serve(SERVICE, handlers))
