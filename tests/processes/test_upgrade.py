"""Processes of the release before, as they are in the history, and of this one, in one tracker: there, back, and for good."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from scripts.summary import ROOT
from tests.client.support import consume, create, done, expires_because, promise
from tests.cluster.before import NoReleaseBefore, release_before
from tests.cluster.children import Running
from tests.cluster.tracker import Server, Tracker, local_tracker, lowmark, socket_in
from tests.waits import until
from tracker import __version__
from tracker.client import NodeClient, Subscriber
from tracker.core.insight.describe import ShardRole
from tracker.core.model import PipelineSpec
from tracker.core.model.levels import NEWEST_LEVEL, OLDEST_LEVEL

SPEC = PipelineSpec("flights", ("enrich",), (), fronts=("front",))
SHARDS = 2
ANSWER_S = 1.0  # expires: it cannot be finished


@pytest.fixture
def before() -> Path:
    try:
        return release_before()
    except NoReleaseBefore as reason:
        pytest.skip(str(reason))


@pytest.fixture
def tracker(tmp_path: Path, before: Path) -> Iterator[Tracker]:
    """Of the release before."""
    tracker = Tracker(tmp_path, SHARDS)
    for server in tracker.shards:
        server.root = before
    with closing(tracker):
        tracker.start()
        tracker.register(SPEC)
        yield tracker


class Load:
    """A front and a reader, whose items cross all shards; what they do has to be seen by a subscriber."""

    def __init__(self, tracker: Tracker) -> None:
        self.front = NodeClient(tracker.target, "flights", "front", kind="front")
        self.reader = NodeClient(tracker.target, "flights", "reader")
        self._subscriber = Subscriber(tracker.target, "flights")
        self.slot = 0

    def begin(self) -> None:
        self.front.join()
        self.front.join_front("front", "enrich")
        self.reader.join()

    def step(self) -> None:
        """Items in some slots, which are open first and then are not."""
        slots = range(self.slot, self.slot + 2 * SHARDS)
        for slot in slots:
            done(self.front.commit(create(slot, slot + 1)))
        for slot in slots:
            done(self.reader.commit(consume(slot, slot + 1)))
        self.slot = slots.stop
        done(self.front.commit(promise(self.slot)))
        assert self._subscriber.wait_until(self.slot, "enrich")

    def close(self) -> None:
        for each in (self.front, self.reader, self._subscriber):
            each.close()


def become(tracker: Tracker, server: Server, root: Path, *, killed: bool) -> None:
    """The process of another release takes the place of one."""
    if killed:
        server.kill()
    else:
        assert server.stop() == 0
    server.root = root
    server.start()
    tracker.wait_connected()


def test_it_is_upgraded_taken_back_and_upgraded_for_good(tracker: Tracker, before: Path) -> None:
    with closing(Load(tracker)) as load, tracker.admin() as admin:
        load.begin()
        load.step()
        ways = [(0, ROOT), (0, before), (1, ROOT), (0, ROOT)]
        for turn, (shard, root) in enumerate(ways):
            become(tracker, tracker.shards[shard], root, killed=turn % 2 == 0)
            load.step()
            if turn == 0:
                expires_because(
                    lambda: admin.finish_upgrade(timeout_s=ANSWER_S), r"shard 1 speaks .* up to 1"
                )
        assert admin.routing().table.level == OLDEST_LEVEL
        finished = lowmark("shards", "--finish-upgrade", "--target", tracker.target)
        assert finished.returncode == 0, finished.stderr
        assert f"feature level {NEWEST_LEVEL}" in finished.stdout
        load.step()
        late = tracker.shards[1]
        assert late.stop() == 0
        late.root = before
        late.start()
        assert late.end() == 1
        assert "has format 2, this version reads formats 1 to 1" in late.errors_of_run()
        late.root = ROOT
        late.start()
        tracker.wait_connected()
        load.step()
        shown = lowmark("shards", "--target", tracker.target).stdout
        assert f"feature level {NEWEST_LEVEL}" in shown and "0.1.0" in shown


def test_a_standby_states_its_release_and_is_no_standby_any_more_with_a_shard(
    tmp_path: Path,
) -> None:
    with Tracker(tmp_path, 1, 1) as tracker, tracker.admin() as admin:
        (standby,) = tracker.standbys
        until(lambda: [s.address for s in admin.routing().standbys] == [standby.address])
        (told,) = admin.routing().standbys
        assert (told.speaks, told.release) == (NEWEST_LEVEL, __version__)
        tracker.shards[0].kill()
        until(lambda: tracker.owner_of(0) is standby, tracker.errors)
        assert admin.routing().standbys == ()


def newcomer(tracker: Tracker, name: str, root: Path) -> Server:
    """A process that asks to join, of a release."""
    place = tracker.network.place(name)
    store = f"sqlite:{tracker.directory / name}"
    server = tracker.server(place, "--join", tracker.target, "--store", store)
    server.root = root
    server.start()
    return server


def test_a_process_of_the_release_before_joins_until_the_upgrade_is_finished(
    tracker: Tracker, before: Path
) -> None:
    for server in tracker.shards:
        become(tracker, server, ROOT, killed=False)
    early = newcomer(tracker, "early", before)
    tracker.newcomers.append(early)
    tracker.until(lambda now: len(now.of(ShardRole.SPARE)) == 1)
    become(tracker, early, ROOT, killed=False)
    with tracker.admin() as admin:
        admin.finish_upgrade()
    with closing_process(newcomer(tracker, "late", before)) as late:
        assert late.end() == 1
        assert "start that process with the release of the others" in late.errors_of_run()


@pytest.mark.parametrize("newer", ["worker", "local tracker"])
def test_workers_and_local_trackers_of_both_releases_work_together(
    tmp_path: Path, before: Path, newer: str
) -> None:
    """Beside a tracker of this one, which is the first of all to be upgraded."""
    with Tracker(tmp_path) as tracker, ExitStack() as stack:
        tracker.register(SPEC)
        agent = local_tracker(tracker.target, "flights", tmp_path)
        worker = Running(
            "tests.processes.worker", socket_in(tmp_path), "flights", "host",
            errors=tmp_path / "worker.log",
        )  # fmt: skip
        agent.root, worker.root = (before, ROOT) if newer == "worker" else (ROOT, before)
        front = NodeClient(tracker.target, "flights", "front", kind="front")
        subscriber = Subscriber(tracker.target, "flights")
        stack.enter_context(closing(front))
        stack.enter_context(closing(subscriber))
        stack.enter_context(agent)
        stack.enter_context(worker)
        front.join()
        front.join_front("front", "enrich")
        done(front.commit(create(5, 7)))
        done(front.commit(promise(9)))
        until((tmp_path / "local-tracker").exists, agent.errors)
        worker.until_says("ready")
        worker.tell(json.dumps({"consumed": [["enrich", 5, 7]], "created": []}))
        worker.until_says(json.dumps({"error": None}))
        assert subscriber.wait_until(9, "enrich")


@contextmanager
def closing_process(server: Server) -> Iterator[Server]:
    try:
        yield server
    finally:
        server.discard()
