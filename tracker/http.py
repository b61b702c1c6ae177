"""A small HTTP/1.1 server for GET: h11 speaks the protocol, asyncio carries it, and everything is bounded.

Metrics and the dashboard are served by it. Connections, heads, and the time that anything may take have
limits, so that a client that sends or takes nothing costs little and not for long.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import h11
import structlog

log = structlog.get_logger(__name__)

MAX_HEAD_BYTES = 16_384
IDLE_TIMEOUT_S = 15.0
"""How long the next request of a connection may take to begin."""
HEAD_TIMEOUT_S = 5.0
"""How long a request that has begun may take to be whole."""
WRITE_TIMEOUT_S = 20.0
"""How long a client may take nothing of what it is sent."""
READ_BYTES = 16_384
BACKLOG = 1_024
"""Connections that may wait to be accepted: one that finds no room there comes again after seconds."""
SHARE_OF_AN_ADDRESS = 0.75
"""Of all connections, those that one address may have."""
MAX_SHOWN_CHARACTERS = 60
"""Of what was refused, in what is answered."""
MAX_PARAMETERS = 20
"""In the query of an address; a request with more is refused with 400."""
BODILESS = (204, 304)
"""Answers without a body, and without its length."""

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """A GET (or HEAD): the path as it was sent, the first value of each name in its query, the first value of each header
    by its name in small letters, and the address that it came from."""

    path: str
    query: dict[str, str]
    headers: Mapping[str, str] = field(default_factory=dict)
    address: str = ""


class Parts(Protocol):
    """A body that is sent as it comes. It is closed once, also where no part of it was asked for."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: a body, or a stream of parts that are sent as they come, until the client is gone."""

    status: int
    headers: Headers
    body: bytes = b""
    parts: Parts | None = None


def text(status: int, said: str, *headers: tuple[str, str]) -> Response:
    """A line of plain text."""
    kind = ("content-type", "text/plain; charset=utf-8")
    return Response(status, [kind, *headers], said.encode() + b"\n")


class HttpServer:
    """Serves requests at one address."""

    def __init__(
        self,
        name: str,
        listen: str,
        answer: Callable[[Request], Awaitable[Response]],
        *,
        headers: Headers = (),
        max_connections: int,
        refused: Callable[..., Response] = text,
    ) -> None:
        """name: what is served, for errors; listen: host:port (port 0: any); answer: makes the response to
        a request; headers: added to all responses that have none of that name; max_connections: for one more, whoever has
        waited longest without a whole request gives way; where all are being answered, it is closed without an answer;
        refused: makes the response to what is no request that can be answered, as `text` does. Raises ValueError if
        `listen` is not host:port."""
        host, _, port = listen.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{name}: {listen!r} is not host:port")
        self.host = host.strip("[]")
        self.is_local = _is_loopback(self.host)
        """Whether it is for this machine alone."""
        self.address = listen
        """Where it listens, with the port that it got, once it has started."""
        self.answer, self.refused = answer, refused
        self.headers, self.max_connections = headers, max_connections
        self._name, self._port = name, int(port)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], str] = {}
        """With the address that each came from."""
        self._waiting: dict[asyncio.Task[None], None] = {}
        """Those from which a request is awaited, the longest waiting first."""

    async def start(self) -> None:
        """Raises OSError if it cannot listen."""
        try:
            self._server = await asyncio.start_server(
                self._connected, self.host, self._port, backlog=BACKLOG
            )
        except OSError as error:
            raise OSError(f"{self._name}: cannot listen on {self.address}: {error}") from error
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def answered(self, request: Request) -> Response:
        """The answer to a request; none to a page from elsewhere whose name is made to mean this machine,
        which must not read along."""
        if self.is_local and not _is_local_name(request.headers.get("host", "")):
            return self.refused(421, f"this is the {self._name} of this machine: ask by localhost")
        return await self.answer(request)

    async def stop(self) -> None:
        """Ends all connections."""
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        name = writer.get_extra_info("peername")
        address = str(name[0]) if name else ""
        if not self._makes_room(address):
            writer.transport.abort()
            return
        self._connections[task] = address
        try:
            await _Connection(self, reader, writer, address).serve()
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, h11.RemoteProtocolError):
            pass  # the client is gone, slow, or speaks something else
        except asyncio.CancelledError:
            pass  # stop(), or it gives way: a task of asyncio's own, which nobody awaits
        except Exception:
            log.exception("http_failed")
        finally:
            self._forget(task)
            writer.transport.abort()  # what it has not taken by now, it never will

    def _makes_room(self, address: str) -> bool:
        """Whether a connection from an address may come; another one has given way for it, if need be."""
        own = sum(there == address for there in self._connections.values())
        of_address = own >= max(1, int(self.max_connections * SHARE_OF_AN_ADDRESS))
        if not of_address and len(self._connections) < self.max_connections:
            return True
        for task in self._waiting:
            if not of_address or self._connections[task] == address:
                self._forget(task)
                task.cancel()
                return True
        return False

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task, None)
        self._waiting.pop(task, None)

    @contextmanager
    def awaiting(self) -> Iterator[None]:
        """While a connection, whose task this is, waits for a request."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = None
        try:
            yield
        finally:
            self._waiting.pop(task, None)


class _Connection:
    def __init__(
        self,
        server: HttpServer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        address: str,
    ) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._address = address
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._is_head = False

    async def serve(self) -> None:
        """Answers requests until either side closes."""
        while self._http.our_state is h11.IDLE:
            try:
                with self._server.awaiting():
                    request = await self._request()
            except h11.RemoteProtocolError as error:
                reason = f"this is no request that can be answered: {error}; send a GET without a body, in {MAX_HEAD_BYTES} bytes"
                await self._refuse(error.error_status_hint, reason)
                return
            if request is None:
                return
            if request.method not in (b"GET", b"HEAD"):
                method = request.method.decode("ascii", "replace")[:MAX_SHOWN_CHARACTERS]
                await self._refuse(
                    405,
                    f"{method} is not answered here: GET and HEAD alone are",
                    ("allow", "GET, HEAD"),
                )
                return
            self._is_head = request.method == b"HEAD"
            parsed = _parsed(request, self._address)
            if parsed is None:
                await self._refuse(
                    400,
                    f"this is no address, or one with more than {MAX_PARAMETERS} parameters: give fewer",
                )
                return
            await self._send(await self._server.answered(parsed))
            if self._http.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
                return
            self._http.start_next_cycle()

    async def _request(self) -> h11.Request | None:
        """The next request with its end; None when the client closes. A body is refused."""
        found: h11.Request | None = None
        begun = bool(self._http.trailing_data[0])  # with the request before
        async with asyncio.timeout(HEAD_TIMEOUT_S if begun else IDLE_TIMEOUT_S) as limit:
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._http.receive_data(await self._reader.read(READ_BYTES))
                    if not begun:
                        begun = True
                        limit.reschedule(asyncio.get_running_loop().time() + HEAD_TIMEOUT_S)
                elif isinstance(event, h11.Request):
                    found = event
                elif isinstance(event, h11.EndOfMessage):
                    return found
                elif isinstance(event, h11.Data):
                    raise h11.RemoteProtocolError("a request has no body here", 413)
                else:
                    return None

    async def _refuse(self, status: int, reason: str, *headers: tuple[str, str]) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send(
                self._server.refused(status, reason, ("connection", "close"), *headers)
            )

    async def _send(self, response: Response) -> None:
        if response.parts is None:
            await self._send_head(response)
            if response.body and not self._is_head:
                await self._write(h11.Data(data=response.body))
        else:
            async with aclosing(response.parts):
                await self._send_head(response)
                if not self._is_head:
                    await self._send_parts(aiter(response.parts))
        await self._write(h11.EndOfMessage())

    async def _send_head(self, response: Response) -> None:
        own = {name for name, _ in response.headers}
        headers = [
            *response.headers,
            *(each for each in self._server.headers if each[0] not in own),
        ]
        if response.parts is None and response.status not in BODILESS:
            headers.append(("content-length", str(len(response.body))))
        encoded = [(name.encode(), value.encode()) for name, value in headers]
        await self._write(h11.Response(status_code=response.status, headers=encoded))

    async def _send_parts(self, parts: AsyncIterator[bytes]) -> None:
        """Sends parts until there are no more. Raises ConnectionResetError when the client has gone meanwhile: whoever makes
        the parts need not have another one for it to be noticed."""
        gone = asyncio.ensure_future(self._until_gone())
        try:
            while True:
                coming = asyncio.ensure_future(anext(parts, None))
                try:
                    await asyncio.wait((coming, gone), return_when=asyncio.FIRST_COMPLETED)
                    if gone.done():
                        raise ConnectionResetError
                    part = coming.result()
                finally:
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)
                if part is None:
                    return
                await self._write(h11.Data(data=part))
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _until_gone(self) -> None:
        """Returns when the client has closed, or sends more than a head ahead of its turn."""
        ahead = 0
        while ahead < MAX_HEAD_BYTES and (data := await self._reader.read(READ_BYTES)):
            ahead += len(data)
            self._http.receive_data(data)

    async def _write(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._writer.drain()


def _parsed(request: h11.Request, address: str) -> Request | None:
    """None where it cannot be read."""
    try:
        target = urlsplit(request.target.decode("ascii", "replace"))
        found = parse_qs(target.query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        return None
    headers: dict[str, str] = {}
    for name, value in request.headers:
        headers.setdefault(name.decode("ascii"), value.decode("utf-8", "replace"))
    return Request(target.path, {n: v[0] for n, v in found.items()}, headers, address)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_local_name(host: str) -> bool:
    """Whether a request's Host names this machine by its loopback address."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return _is_loopback(name.strip("[]"))
