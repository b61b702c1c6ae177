"""No connection stays for ever, nor by a certificate that counts no more; and no tick or update is lost by it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from tests.client.support import (
    TWO_SEGMENTS,
    Listener,
    consume,
    create,
    done,
    joined_front,
    never_back,
    promise,
    reaches,
)
from tests.security.certificates import Authority
from tests.security.serving import Served, serving
from tests.waits import HANG_S
from tracker.client import Admin, NodeClient, Subscriber
from tracker.client.embedded import embedded
from tracker.service.config import ServerConfig
from tracker.service.rpc.errors import Context
from tracker.service.rpc.limits import Limits, Quotas
from tracker.wire.grpc_options import CHANNEL_OPTIONS

AGE_MS = 150
RENEWALS = 6
"""Streams of each kind that are cut, and begun again, while the test goes on."""


class Counted(Quotas):
    """Counts the streams that were begun."""

    begun = 0

    @contextmanager
    def stream(self, context: Context) -> Iterator[None]:
        Counted.begun += 1
        with super().stream(context):
            yield


def test_ticks_and_updates_go_on_over_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(max_connection_age_ms=AGE_MS)
    monkeypatch.setattr(
        "tracker.client.embedded.ServerConfig", partial(ServerConfig, limits=limits)
    )
    monkeypatch.setattr("tracker.service.server.Quotas", Counted)
    Counted.begun = 0
    with embedded() as running:
        running.register(TWO_SEGMENTS)
        with (
            NodeClient(running.target, "two", "F") as node,
            Subscriber(running.target, "two") as subscriber,
        ):
            listener = Listener(subscriber)
            joined_front(node)
            committed, slot = [], 0
            while Counted.begun < 2 + 2 * RENEWALS:
                slot += 1
                steps = (create(slot, slot), consume(slot, slot), promise(slot))
                committed += [node.commit(step) for step in steps]
                if slot % 20 == 0:
                    done(committed[-1])  # as many are outstanding as a busy node has
            numbers = [done(future) for future in committed]
            assert numbers == list(range(2, len(numbers) + 2)), "each once, in order"
            listener.until(reaches(slot, "first"))
            listener.close()
            assert never_back(listener.heard)


def test_a_client_whose_ca_was_replaced_does_not_stay_in(tmp_path: Path) -> None:
    served = Served(tmp_path)
    clients, fresh = Authority(tmp_path, "clients"), Authority(tmp_path, "fresh")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(Path(clients.cert).read_text())
    options = ("--tls-ca", str(trusted), "--set", "max_connection_age_ms=1000")
    with serving(served, *options):
        old = served.target(clients.client())
        with Admin(old, HANG_S) as admin:
            admin.register(TWO_SEGMENTS)
        with old.credentials.channel(served.addresses[0], CHANNEL_OPTIONS) as channel:
            stub: Any = progress_grpc.ProgressServiceStub(channel)
            subscription = progress_pb.Subscription(pipeline="two")
            call = stub.Subscribe(iter([progress_pb.SubscribeRequest(subscribe=subscription)]))
            next(call)
            replacing = tmp_path / "replacing.pem"
            replacing.write_text(Path(fresh.cert).read_text())
            os.replace(replacing, trusted)
            assert call.code() is grpc.StatusCode.UNAVAILABLE, "its stream ends"
            with pytest.raises(grpc.RpcError) as refused:
                stub.GetMinTime(progress_pb.GetMinTimeRequest(pipeline="two"), timeout=HANG_S)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE, "and it does not come again"
        with Admin(served.target(fresh.client()), HANG_S) as admin:
            assert admin.pipeline("two").spec == TWO_SEGMENTS
