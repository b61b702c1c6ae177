"""A front, or a member of a group, is started once: a second start is refused, and changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tracker
from fronts.files import FileFront
from fronts.front import Front
from fronts.groups import FileGroup
from fronts.kafka import KafkaFront
from fronts.ranges import RangeFront
from tests.cluster.children import now_slot
from tests.fronts.fake_topic import FakeTopic
from tests.waits import HANG_S
from tracker import EmbeddedTracker
from tracker.core.model import PipelineSpec
from tracker.errors import Code, FencedError, StateError

SPEC = PipelineSpec("p", ("in",), start_slot=now_slot(), open=True)
KINDS: dict[str, Callable[[str, Path], Any]] = {
    "front": lambda target, _: Front(target, "p", "f", "in"),
    "files": lambda target, path: FileFront(target, "p", "f", "in", path / "out"),
    "ranges": lambda target, path: RangeFront(target, "p", "f", "in", path / "journal"),
    "group": lambda target, path: FileGroup(target, "p", "f", "in", path / "source", path / "out"),
    "kafka": lambda target, path: KafkaFront(target, "p", "f", "in", FakeTopic(), str(path)),
}


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedTracker]:
    (tmp_path / "source").mkdir()
    with tracker.embedded() as embedded:
        embedded.register(SPEC)
        yield embedded


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_start_is_refused_and_the_first_one_goes_on(
    kind: str, embedded: EmbeddedTracker, tmp_path: Path
) -> None:
    front = KINDS[kind](embedded.target, tmp_path)
    with front.start() as begun, embedded.subscriber("p") as subscriber:
        assert begun is front
        threads, nodes = set(threading.enumerate()), _nodes(embedded)
        with pytest.raises(
            StateError, match=f"this {type(front).__name__} has been started"
        ) as refused:
            front.start()
        assert refused.value.code is Code.STATE_ORDER
        assert set(threading.enumerate()) <= threads and _nodes(embedded) == nodes
        assert subscriber.wait_until(now_slot(), timeout_s=HANG_S), "it promises on"
    with pytest.raises(StateError, match="make another one to start again"):
        front.start()


def _nodes(embedded: EmbeddedTracker) -> list[tuple[str, int]]:
    """Each with its incarnation: of whoever joins anew it is another."""
    found = embedded.admin().explain("p").parts[0].nodes
    return sorted((node.key.node_id, node.key.incarnation) for node in found)


def test_a_start_that_has_failed_may_be_made_again(
    embedded: EmbeddedTracker, tmp_path: Path
) -> None:
    first, second = (KINDS["files"](embedded.target, tmp_path) for _ in range(2))
    first.start()
    with pytest.raises(FencedError):
        second.start(lock_timeout_s=0.0)
    first.close()
    with second:
        assert embedded.subscriber("p").wait_until(now_slot(), timeout_s=HANG_S)


def test_of_two_threads_that_start_it_one_does(embedded: EmbeddedTracker) -> None:
    front = KINDS["front"](embedded.target, Path())
    refused = []

    def start() -> None:
        try:
            front.start()
        except StateError as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert len(refused) == 1
    front.close()
