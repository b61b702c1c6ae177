"""A list of pipelines comes in pages, so that no number or size of them keeps anybody from an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from tests.client.support import consume, create, done
from tests.cluster.tracker import lowmark
from tests.security.test_registering import chain
from tests.waits import HANG_S
from tracker.client import Admin, NodeClient
from tracker.client import admin as admin_module
from tracker.client.embedded import EmbeddedTracker, embedded
from tracker.service.rpc import pipelines as pipelines_module

NAMES = [f"p{number:02}" for number in range(12)]


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedTracker]:
    with embedded() as tracker:
        for name in NAMES:
            tracker.register(chain(name, 3))
        yield tracker


@pytest.fixture
def stub(running: EmbeddedTracker) -> Iterator[Any]:
    with grpc.insecure_channel(running.target) as channel:
        yield pipeline_grpc.PipelineServiceStub(channel)


def names(answer: pipeline_pb.ListPipelinesResponse) -> list[str]:
    return [each.spec.name for each in answer.pipelines]


def pages(stub: Any, size: int) -> list[list[str]]:
    found, token = [], ""
    while True:
        request = pipeline_pb.ListPipelinesRequest(page_size=size, page_token=token)
        answer = stub.ListPipelines(request, timeout=HANG_S)
        found.append(names(answer))
        token = answer.next_page_token
        if not token:
            return found


def test_every_pipeline_is_on_one_page_in_the_order_of_names(stub: Any) -> None:
    for size in (1, 5, 11, 12, 13, 2**31 - 1):
        found = pages(stub, size)
        assert [name for page in found for name in page] == NAMES
        assert all(0 < len(page) <= size for page in found)
    assert pages(stub, 5) == [NAMES[:5], NAMES[5:10], NAMES[10:]]
    assert pages(stub, 0) == [NAMES], "as many as a page may have"


def test_a_page_has_so_many_bytes_and_at_least_one_pipeline(
    stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines_module, "MAX_PAGE_BYTES", 1)
    assert pages(stub, 100) == [[name] for name in NAMES]


def test_a_pipeline_that_is_larger_than_a_page_keeps_no_other_from_being_listed(
    running: EmbeddedTracker, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NodeClient(running.target, NAMES[0], "n" * 1_000) as node:
        node.join(HANG_S)
        done(node.commit(create(0, 1)))
        done(node.commit(consume(0, 1)))
        with Admin(running.target, HANG_S) as admin:
            assert len(admin.pipeline(NAMES[0]).state.nodes) == 1
            monkeypatch.setattr(pipelines_module, "MAX_PAGE_BYTES", 1_000)
            first, *others = admin.pipelines()
        assert (first.omitted, first.state.nodes) == (1, ())
        assert [info.spec.name for info in others] == NAMES[1:]
        assert not any(info.omitted for info in others)
        listed = lowmark("status", "--target", running.target)
        assert all(name in listed.stdout for name in NAMES), listed.stderr


@pytest.mark.parametrize(
    "request_", [{"page_size": -1}, {"page_size": 1, "page_token": "x" * 1_025}]
)
def test_what_is_no_page_is_refused(stub: Any, request_: dict[str, Any]) -> None:
    with pytest.raises(grpc.RpcError) as error:
        stub.ListPipelines(pipeline_pb.ListPipelinesRequest(**request_), timeout=HANG_S)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_page_may_begin_where_no_pipeline_is(stub: Any) -> None:
    for token, expected in (("p05x", NAMES[6:]), ("z", [])):
        request = pipeline_pb.ListPipelinesRequest(page_size=100, page_token=token)
        assert names(stub.ListPipelines(request, timeout=HANG_S)) == expected


def test_clients_and_commands_go_through_the_pages(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_module, "PAGE_PIPELINES", 5)
    with Admin(running.target, HANG_S) as admin:
        assert [info.spec.name for info in admin.pipelines()] == NAMES
    listed = lowmark("status", "--target", running.target)
    assert listed.returncode == 0 and all(name in listed.stdout for name in NAMES), listed.stderr
