"""Who is let in, and who is not: real processes with TLS and tokens, and real clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import peer_service_pb2_grpc as peer_grpc
from examples.children import free_ports
from tests.client.support import TWO_SEGMENTS, Listener, create, done, joined_front, promise
from tests.cluster.tracker import lowmark
from tests.security.certificates import Authority
from tests.security.serving import Served, serving, wait_for
from tests.waits import HANG_S, until
from tracker.client import (
    Admin,
    AsyncSubscriber,
    Credentials,
    LowmarkError,
    NodeClient,
    SecureTarget,
    Subscriber,
    UnavailableError,
)
from tracker.client.history import history
from tracker.core.insight.describe import ShardRole
from tracker.core.model import Edge, PipelineSpec
from tracker.service.cluster.peer_link import TO_SHARD_KEY

OTHER = PipelineSpec("other", ("a", "b"), (Edge("a", "b"),), fronts=("front",))
REFUSED_S = 2.0  # expires: nobody lets it in
"""How long a client tries that nobody will let in."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two shards with mutual TLS and tokens."""
    served = Served(tmp_path_factory.mktemp("doors"))
    served.token("admin", _any=["register", "commit", "subscribe", "administer"])
    served.token("front", two=["commit"])
    served.token("reader", two=["subscribe"])
    served.token("elsewhere", other=["register", "commit", "subscribe"])
    options = ["--tls-ca", served.authority.cert, "--tokens", str(served.tokens_file)]
    with serving(served, *options, shards=2):
        wait_for(of(served, "admin"))
        with Admin(of(served, "admin"), HANG_S) as admin:
            admin.register(TWO_SEGMENTS)
            admin.register(OTHER)
        yield served


def of(served: Served, token: str) -> SecureTarget:
    """The tracker, with a good certificate and this token."""
    return served.target(served.client, f"{served.directory}/{token}.token")


def test_those_with_rights_commit_and_hear_over_tls(served: Served) -> None:
    with (
        NodeClient(of(served, "front"), "two", "F") as node,
        Subscriber(of(served, "reader"), "two") as subscriber,
    ):
        listener = Listener(subscriber)
        joined_front(node)
        done(node.commit(create(100, 7)))
        done(node.commit(promise(400)))
        listener.until(lambda update: update.segment == "first" and update.min_time == 100)


def test_a_client_without_a_certificate_or_with_a_wrong_or_expired_one_is_not_connected(
    served: Served,
) -> None:
    stranger = Authority(served.directory, "stranger")
    token = f"{served.directory}/admin.token"
    cases = {
        "none": (served.target(None, token), "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        "wrong": (served.target(stranger.client(), token), "unable to get local issuer"),
        "expired": (
            served.target(served.authority.client("old", expired=True), token),
            "certificate has expired",
        ),
        "a server of another CA": (
            served.target(served.client, token, ca=stranger.cert), "CERTIFICATE_VERIFY_FAILED",
        ),
    }  # fmt: skip
    for case, (target, _) in cases.items():
        with Admin(target, REFUSED_S) as admin, pytest.raises(UnavailableError) as refused:
            admin.pipelines()
        assert "UNAVAILABLE" in str(refused.value), case
    with (
        Admin(SecureTarget(served.addresses, Credentials()), REFUSED_S) as plain,
        pytest.raises(UnavailableError, match="LOWMARK_TLS_CA"),
    ):
        plain.pipelines()
    said = served.said()
    for case, (_, logged) in list(cases.items())[:3]:
        assert logged in said, case


def test_a_client_without_a_token_or_with_one_that_is_not_known_is_refused(
    served: Served,
) -> None:
    unknown = served.directory / "unknown.token"
    unknown.write_text("lowmark_" + "not-a-token-of-this-tracker" * 2)
    for target, why in (
        (served.target(served.client), "asks for a token"),
        (served.target(served.client, str(unknown)), "not known here"),
    ):
        with (
            Admin(target, HANG_S) as admin,
            pytest.raises(LowmarkError, match=f"UNAUTHENTICATED.*{why}"),
        ):
            admin.pipelines()
        with (
            NodeClient(target, "two", "N") as node,
            pytest.raises(LowmarkError, match="UNAUTHENTICATED"),
        ):
            node.join(HANG_S)
        with (
            Subscriber(target, "two") as subscriber,
            pytest.raises(LowmarkError, match="UNAUTHENTICATED"),
        ):
            next(subscriber.updates())


def test_a_token_for_another_pipeline_is_refused_by_every_kind_of_call(served: Served) -> None:
    target = of(served, "elsewhere")
    with Admin(target, HANG_S) as admin:
        assert [info.spec.name for info in admin.pipelines()] == ["other"]
        for call in (
            lambda: admin.register(TWO_SEGMENTS),
            lambda: admin.pipeline("two"),
            lambda: admin.retire("two", "N"),
            lambda: admin.retire("other", "N"),
            lambda: admin.explain("two"),
        ):
            with pytest.raises(LowmarkError, match=r"PERMISSION_DENIED.*token 'elsewhere' may not"):
                call()
    with (
        NodeClient(target, "two", "N") as node,
        pytest.raises(LowmarkError, match=r"PERMISSION_DENIED.*commit in pipeline 'two'"),
    ):
        node.join(HANG_S)
    with (
        Subscriber(target, "two") as subscriber,
        pytest.raises(LowmarkError, match=r"PERMISSION_DENIED.*subscribe in pipeline 'two'"),
    ):
        next(subscriber.updates())


def test_a_right_is_for_what_it_says_alone(served: Served) -> None:
    with (
        NodeClient(of(served, "reader"), "two", "N") as node,
        pytest.raises(LowmarkError, match="PERMISSION_DENIED"),
    ):
        node.join(HANG_S)
    with (
        Subscriber(of(served, "front"), "two") as subscriber,
        pytest.raises(LowmarkError, match="PERMISSION_DENIED"),
    ):
        subscriber.min_time()
    with Admin(of(served, "front"), HANG_S) as admin:
        assert admin.pipeline("two").spec == TWO_SEGMENTS, "whoever has a right may look"


def test_the_asynchronous_subscriber_too(served: Served) -> None:
    async def ask(token: str) -> int:
        async with AsyncSubscriber(of(served, token), "two") as subscriber:
            return await subscriber.min_time()

    assert asyncio.run(ask("reader")) >= 0
    with pytest.raises(LowmarkError, match="PERMISSION_DENIED"):
        asyncio.run(ask("elsewhere"))


def test_the_history_is_asked_of_every_shard_with_the_credentials_of_the_target(
    served: Served,
) -> None:
    (told,) = history(of(served, "reader"), "two", [0], "first")
    assert told.slot == 0
    with pytest.raises(LowmarkError, match="PERMISSION_DENIED"):
        history(of(served, "elsewhere"), "two", [0])


def test_a_client_cannot_act_as_a_shard(served: Served) -> None:
    target = of(served, "admin")
    with target.credentials.channel(served.addresses[0], ()) as channel:
        call = peer_grpc.PeerServiceStub(channel).Exchange(
            iter([peer_pb.ExchangeRequest(from_shard=1, epoch=99)]),
            metadata=((TO_SHARD_KEY, "0"),),
            timeout=HANG_S,
        )
        with pytest.raises(grpc.RpcError) as refused:
            list(call)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_client_cannot_become_a_shard_or_take_what_shards_know(served: Served) -> None:
    target = of(served, "admin")
    with target.credentials.channel(served.addresses[0], ()) as channel:
        stub: Any = peer_grpc.PeerServiceStub(channel)
        for call in (
            lambda: stub.JoinShard(peer_pb.JoinShardRequest(address="a:1"), timeout=HANG_S),
            lambda: list(stub.Bootstrap(peer_pb.BootstrapRequest(shard=2), timeout=HANG_S)),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                call()
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_process_with_a_shards_certificate_joins_and_an_administrator_gives_it_slots(
    served: Served,
) -> None:
    with (
        Admin(of(served, "front"), HANG_S) as admin,
        pytest.raises(LowmarkError, match="PERMISSION_DENIED"),
    ):
        admin.rescale(2)
    address = f"127.0.0.1:{free_ports(1)}"
    newcomer = served.server(
        "newcomer", address, "--join", served.addresses[1],
        "--store", f"sqlite:{served.directory / 'newcomer'}", "--tokens", str(served.tokens_file),
        "--tls-ca", served.authority.cert,
    )  # fmt: skip
    with newcomer, Admin(of(served, "admin"), HANG_S) as admin:
        (joined,) = until(lambda: admin.routing().of(ShardRole.SPARE), newcomer.errors)
        assert joined.address == address
        assert len(admin.rescale(3).of(ShardRole.OWNER)) == 3
        # What is open at it in `other`, where a test leaves fronts that say nothing, goes elsewhere.
        admin.rescale(2, evacuate=True)
        newcomer.ends_well()


def test_probes_need_no_token(served: Served) -> None:
    with served.target(served.client).credentials.channel(served.addresses[0], ()) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=HANG_S)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_commands_take_their_credentials_from_options_and_from_the_environment(
    served: Served,
) -> None:
    files = {
        "LOWMARK_TARGET": served.addresses[0], "LOWMARK_TLS_CA": served.authority.cert,
        "LOWMARK_TLS_CERT": served.client.cert, "LOWMARK_TLS_KEY": served.client.key,
    }  # fmt: skip
    refused = lowmark("status", "--json", environment=files)
    assert refused.returncode == 1 and "UNAUTHENTICATED" in refused.stderr
    token = f"{served.directory}/reader.token"
    answered = lowmark("--token-file", token, "status", "--json", environment=files)
    assert answered.returncode == 0 and '"two"' in answered.stdout, answered.stderr
    files["LOWMARK_TOKEN_FILE"] = token
    assert lowmark("periods", "list", "-p", "two", environment=files).returncode == 0


def test_no_secret_is_logged(served: Served) -> None:
    said = served.said()
    assert '"event": "call_refused"' in said and '"token": "elsewhere"' in said
    for name, secret in served.secrets.items():
        assert secret not in said, name
    assert "not-a-token-of-this-tracker" not in said


def test_tokens_are_read_again_and_streams_of_those_withdrawn_end(served: Served) -> None:
    served.token("passing", two=["subscribe"])
    # Of one process: each reads the file in its own time.
    one = SecureTarget(served.addresses[:1], of(served, "passing").credentials)
    with Subscriber(one, "two") as subscriber:
        until_let_in(subscriber)
        updates = subscriber.updates()
        next(updates)
        served.entries = [entry for entry in served.entries if entry["name"] != "passing"]
        served.write_tokens()
        with pytest.raises(LowmarkError, match="UNAUTHENTICATED"):
            for _ in updates:
                pass
    assert served.secrets["passing"] not in served.said()


def until_let_in(subscriber: Subscriber) -> None:
    """The file is read within a second or so."""

    def let_in() -> bool:
        try:
            subscriber.min_time()
            return True
        except LowmarkError as error:
            assert "UNAUTHENTICATED" in str(error) or isinstance(error, UnavailableError)
            return False

    until(let_in)
