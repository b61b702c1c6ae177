"""A call that waits ends when its token is taken away, and so does the stream of another process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import peer_service_pb2_grpc as peer_grpc
from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from tests.client.support import TWO_SEGMENTS
from tests.security.serving import Served, serving, wait_for
from tests.waits import HANG_S
from tracker.client import Admin
from tracker.service.cluster.peer_link import TO_SHARD_KEY
from tracker.service.rpc.revoking import CallsUnderWay, Revoked
from tracker.service.rpc.tokens import Right, Tokens, digest_of

FAR = 2**62


def test_waiting_calls_and_streams_of_a_token_that_is_taken_away_end(tmp_path: Path) -> None:
    served, over = Served(tmp_path), threading.Event()
    admin_token = served.token("admin", _any=["register"])
    worker_token = served.token("worker", two=["commit", "subscribe"])
    peer_token = served.token("peer", peer=True)
    with serving(served, "--tokens", str(served.tokens_file)):
        wait_for(served.target(None, admin_token))
        with Admin(served.target(None, admin_token), HANG_S) as admin:
            admin.register(TWO_SEGMENTS)
        worker = served.target(None, worker_token).credentials.channel(served.addresses[0], ())
        peer = served.target(None, peer_token).credentials.channel(served.addresses[0], ())
        with worker, peer:
            progress: Any = progress_grpc.ProgressServiceStub(worker)
            nodes: Any = node_grpc.NodeServiceStub(worker)
            until = progress_pb.WaitUntilRequest(pipeline="two", slot=FAR)
            resolve = node_pb.ResolveUnitsRequest(
                pipeline="two", segment="first", names=["never"], wait_ms=60_000
            )
            waiting = [
                progress.WaitUntil.future(until, timeout=HANG_S),
                nodes.ResolveUnits.future(resolve, timeout=HANG_S),
            ]
            exchange: Any = peer_grpc.PeerServiceStub(peer)
            stream = exchange.Exchange(hello(over), metadata=((TO_SHARD_KEY, "0"),))
            list(stream.initial_metadata())  # it is let in
            progress.GetMinTime(progress_pb.GetMinTimeRequest(pipeline="two"), timeout=HANG_S)
            assert not any(call.done() for call in [*waiting, stream])
            served.entries = served.entries[:1]
            served.write_tokens()
            for call in [*waiting, stream]:
                assert call.code() is grpc.StatusCode.UNAUTHENTICATED
                assert "has lost its right" in call.details()
            over.set()


def hello(over: threading.Event) -> Iterator[peer_pb.ExchangeRequest]:
    """A stream of a process that goes on until it is over."""
    yield peer_pb.ExchangeRequest(from_shard=1, epoch=1)
    over.wait(HANG_S)


class Filed:
    """A file of one token, and its calls."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.write({"two": ["commit", "subscribe"]})
        self.calls = CallsUnderWay(Tokens(str(path)))
        found = self.calls.tokens.find("secret")
        assert found is not None
        self.token = found

    def write(self, pipelines: dict[str, list[str]]) -> None:
        entry = {"name": "t", "sha256": digest_of("secret").hex(), "pipelines": pipelines}
        fresh = self._path.with_suffix(".new")
        fresh.write_text(yaml.safe_dump({"tokens": [entry]}))
        os.replace(fresh, self._path)

    async def wait(self, right: Right) -> str:
        """Waits as a call with this right does; returns how that ended."""

        async def serving() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        ended: list[bool] = []
        try:
            await self.calls.serve(self.token, lambda t: t.may(right, "two"), serving())
        except Revoked:
            assert ended, "nothing of it goes on"
            return "revoked"
        return "answered"


def test_a_call_ends_with_the_right_to_it_and_no_other_call_of_its_token(tmp_path: Path) -> None:
    async def calls() -> None:
        filed = Filed(tmp_path / "tokens.yaml")
        commits = asyncio.ensure_future(filed.wait(Right.COMMIT))
        hears = asyncio.ensure_future(filed.wait(Right.SUBSCRIBE))
        await asyncio.sleep(0)
        filed.write({"two": ["subscribe"]})
        assert filed.calls.tokens.reload()
        filed.calls.check()
        assert await commits == "revoked"
        assert not hears.done()
        assert await filed.wait(Right.COMMIT) == "revoked", "one that was let in just before"
        hears.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hears

    asyncio.run(calls())
