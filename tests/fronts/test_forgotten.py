"""A front that left, was started again and went on is forgotten in the end: what it has committed since does not count twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tracker
from fronts.files import FileFront, PublishedFile
from tests.fronts.support import file_front
from tests.fronts.test_restarted import Clock, published
from tests.waits import HANG_S
from tracker import EmbeddedTracker
from tracker.core.home import home
from tracker.core.model import PipelineSpec
from tracker.errors import RefusedError


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedTracker]:
    """Which soon forgets the nodes that are gone."""
    monkeypatch.setattr(home, "KEPT_GONE_NODES", 2)
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("p", ("in",), open=True, slack_ns=1_000))
        yield embedded


def left(embedded: EmbeddedTracker, directory: Path, clock: Clock) -> PublishedFile:
    """What a front has published that has left since."""
    front = file_front(embedded, directory, "f", clock=clock).start(HANG_S)
    file = published(front, clock, 1_010)
    front.leave()
    return file


def forgotten(embedded: EmbeddedTracker, directory: Path, clock: Clock) -> FileFront:
    """The next run of a front that was retired, and forgotten since."""
    with embedded.admin() as admin:
        admin.retire("p", "f")
        for number in range(4):
            with embedded.node("p", f"gone-{number}") as node:
                node.join(HANG_S)
                admin.retire("p", f"gone-{number}")
    return file_front(embedded, directory, "f", clock=clock)


@pytest.mark.parametrize("since", ["it has published", "a restart"])
def test_who_has_left_before_and_committed_since_is_refused(
    embedded: EmbeddedTracker, tmp_path: Path, since: str
) -> None:
    """By its note it has left in order; but that was before. What it commits again cancels what is open."""
    clock = Clock()
    file = left(embedded, tmp_path, clock)
    with embedded.admin() as admin:
        if since == "a restart":
            assert admin.restart("p", 0, file.slot) == (1, file.slot)
    front = file_front(embedded, tmp_path, "f", clock=clock).start(HANG_S)
    if since == "it has published":
        published(front, clock, 1_020)
    assert front.wait_durable(HANG_S)
    front.close()
    again = forgotten(embedded, tmp_path, clock)
    with pytest.raises(RefusedError, match="is forgotten with its batches"):
        again.start(HANG_S)
    again.close()
    assert embedded.subscriber("p").min_time() <= file.slot


def test_who_has_left_and_committed_nothing_since_comes_back(
    embedded: EmbeddedTracker, tmp_path: Path
) -> None:
    """It knows by itself what it has committed."""
    clock = Clock()
    left(embedded, tmp_path, clock)
    file_front(embedded, tmp_path, "f", clock=clock).start(HANG_S).close()
    front = forgotten(embedded, tmp_path, clock).start(HANG_S)
    assert published(front, clock, 1_020).batch == 1
    with embedded.admin() as admin:
        assert admin.pipeline("p").state.segments[0].open_slots == 2
    front.close()
