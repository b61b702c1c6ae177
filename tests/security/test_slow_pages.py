"""Connections to the dashboard and the metrics that send nothing, or half of a request, delay nobody else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from tests.waits import HANG_S
from tracker.http import BACKLOG, HttpServer, Request, Response, text

MAX_CONNECTIONS = 20
HALF = b"GET / HTTP/1.1\r\nHost: local"
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HELD = b"GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Site:
    """A server whose answers to `/held` wait until they are let go."""

    def __init__(self) -> None:
        self.let_go, self.held, self.came = asyncio.Event(), 0, asyncio.Condition()
        self.server = HttpServer(
            "page", "127.0.0.1:0", self._answer, max_connections=MAX_CONNECTIONS
        )

    async def _answer(self, request: Request) -> Response:
        if request.path == "/held":
            async with self.came:
                self.held += 1
                self.came.notify_all()
            await self.let_go.wait()
        return text(200, "said")

    def come(self) -> socket.socket:
        """A connection, which the server may not have accepted yet."""
        host, _, port = self.server.address.rpartition(":")
        return socket.create_connection((host, int(port)), HANG_S)

    async def asked(self, data: bytes = WHOLE, from_host: str = "127.0.0.1") -> bytes:
        """What is answered over a new connection, its first line; nothing, if that is closed."""
        host, _, port = self.server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(from_host, 0))
        try:
            writer.write(data)
            return await reader.readline()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def hold(self, count: int, from_host: str) -> list[asyncio.Task[bytes]]:
        """Requests that are being answered."""
        async with self.came:
            before = self.held
            asking = [asyncio.create_task(self.asked(HELD, from_host)) for _ in range(count)]
            await self.came.wait_for(lambda: self.held == before + count)
        return asking


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.server.start()
    try:
        yield made
    finally:
        made.let_go.set()
        await made.server.stop()


async def test_slow_connections_give_way_to_whoever_asks() -> None:
    async with site() as page:
        with ExitStack() as stack:
            for number in range(3 * MAX_CONNECTIONS):
                stack.enter_context(page.come()).sendall(HALF if number % 2 else b"")
                assert await page.asked() == b"HTTP/1.1 200 \r\n"


async def test_a_burst_is_let_in_at_once() -> None:
    """What finds no room in the queue of those who wait to be accepted comes again after seconds."""
    async with site() as page:
        with ExitStack() as stack:
            address = page.server.address.rpartition(":")
            for _ in range(300):  # nothing of it is accepted meanwhile: the loop is busy here
                crowd = stack.enter_context(socket.socket())
                crowd.setblocking(False)
                crowd.connect_ex((address[0], int(address[2])))
            assert await page.asked() == b"HTTP/1.1 200 \r\n"
        assert BACKLOG > 300


async def test_what_is_being_answered_does_not_give_way() -> None:
    async with site() as page:
        asking = await page.hold(15, "127.0.0.1") + await page.hold(5, "127.0.0.2")
        assert await page.asked(from_host="127.0.0.3") == b"", "closed without an answer"
        page.let_go.set()
        assert set(await asyncio.gather(*asking)) == {b"HTTP/1.1 200 \r\n"}


async def test_one_address_does_not_take_all_connections() -> None:
    async with site() as page:
        asking = await page.hold(15, "127.0.0.1")
        assert await page.asked() == b"", "that is its share"
        assert await page.asked(from_host="127.0.0.2") == b"HTTP/1.1 200 \r\n"
        page.let_go.set()
        await asyncio.gather(*asking)
        assert await page.asked() == b"HTTP/1.1 200 \r\n"
