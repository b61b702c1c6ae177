"""Other ways to be let in: processes that know each other by a token, and local trackers."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_tracker.worker.handle import Handle
from tests.client.support import TWO_SEGMENTS, create, done, joined_front, promise
from tests.cluster.tracker import local_tracker, socket_in
from tests.local_tracker.fakes import one_cell
from tests.security.serving import Served, serving, wait_for
from tests.waits import HANG_S, until
from tracker.client import Admin, NodeClient, Subscriber
from tracker.core.model import Cells


def environment_of(served: Served, token_file: str, *, certificate: bool) -> dict[str, str]:
    files = {"LOWMARK_TLS_CA": served.authority.cert, "LOWMARK_TOKEN_FILE": token_file}
    if certificate:
        files |= {"LOWMARK_TLS_CERT": served.client.cert, "LOWMARK_TLS_KEY": served.client.key}
    return files


def test_processes_without_certificates_of_clients_know_each_other_by_a_token(
    tmp_path: Path,
) -> None:
    served = Served(tmp_path)
    every = served.token("every", _any=["register", "commit", "subscribe"])
    peer = served.token("shards", peer=True)
    shared = environment_of(served, peer, certificate=False)
    with serving(served, "--tokens", str(served.tokens_file), shards=2, environment=shared):
        target = served.target(None, every)
        wait_for(target)
        with (
            Admin(target, HANG_S) as admin,
            NodeClient(target, "two", "F") as node,
            Subscriber(target, "two") as subscriber,
        ):
            admin.register(TWO_SEGMENTS)
            joined_front(node)
            done(node.commit(create(100, 7)))
            done(node.commit(promise(400)))
            # It takes the word of both shards.
            assert subscriber.wait_until(100, "first", HANG_S)
    assert served.secrets["shards"] not in served.said()


def test_a_process_that_is_no_peer_is_refused_and_says_so(tmp_path: Path) -> None:
    served = Served(tmp_path)
    every = served.token("every", _any=["register", "commit", "subscribe", "administer"])
    shared = environment_of(served, every, certificate=False)
    with serving(served, "--tokens", str(served.tokens_file), shards=2, environment=shared):
        wait_for(served.target(None, every))
        until(lambda: "peer_refused" in served.said(), served.said)
    said = served.said()
    assert "has not the right peer" in said and served.secrets["every"] not in said


def test_a_local_tracker_takes_its_credentials_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(tmp_path)
    every = served.token("every", _any=["register", "commit", "subscribe"])
    options = ["--tls-ca", served.authority.cert, "--tokens", str(served.tokens_file)]
    with serving(served, *options):
        for name, path in environment_of(served, every, certificate=True).items():
            monkeypatch.setenv(name, path)
        target = served.addresses[0]  # a plain target: all classes take the environment's
        with Admin(target, HANG_S) as admin, NodeClient(target, "two", "F") as node:
            admin.register(TWO_SEGMENTS)
            joined_front(node)
            done(node.commit(create(100, 7)))
            done(node.commit(promise(400)))
            with local_tracker(target, "two", tmp_path) as agent:
                agent.until_logs("listens at")
                handle = Handle(socket_in(tmp_path), "two", HANG_S)
                handle.step(Cells.empty(), one_cell(0, 100, 7))
                handle.close()
            with Subscriber(target, "two") as subscriber:
                assert subscriber.wait_until(400, timeout_s=HANG_S)
