"""Two groups as real processes: a pipeline registered through either, and moved while it runs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import pytest

from acker.v1 import group_service_pb2 as pb
from acker.v1 import types_pb2 as types_pb
from acker.v1.group_service_pb2_grpc import GroupServiceStub
from local_tracker.spark.progress.asked import PROGRESS, Asked
from tests.client.support import expires_because
from tests.cluster.children import paused
from tests.cluster.tracker import Tracker, lowmark
from tests.waits import HANG_S, until
from tracker.client import (
    Admin,
    NodeClient,
    RefusedError,
    Subscriber,
    UnavailableError,
    targets,
)
from tracker.client.refusals import refusal_of
from tracker.core.model import Cells, Heartbeat, PipelineSpec, RefusalCode, TickContent
from tracker.view.overview import Overview, Row

SPEC = PipelineSpec("orders", ("price",), fronts=("clock",), open=True)


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[list[Tracker]]:
    """Group 0 of one shard, and group 1 of two, which know of each other."""
    with ExitStack() as stack:
        first = stack.enter_context(Tracker(tmp_path / "0"))
        second = stack.enter_context(Tracker(tmp_path / "1", 2, options=of_group(1, first)))
        known(first, second)
        yield [first, second]


def of_group(number: int, directory: Tracker) -> tuple[str, ...]:
    """Options of a group's processes."""
    return ("--group", str(number), "--directory", directory.target)


def known(*groups: Tracker) -> None:
    """Waits until all know of each other."""
    for tracker in groups:
        with tracker.admin() as admin:
            until(lambda admin=admin: len(admin.groups()) == len(groups), tracker.errors)  # type: ignore[misc]


def registered_in(groups: list[Tracker], group: int) -> None:
    """The pipeline is in a group."""
    for number in range(len(groups)):
        lowmark(
            "--target",
            groups[0].target,
            "groups",
            "cordon",
            str(number),
            *(["--undo"] if number == group else []),
        )
    with Admin(groups[group].target, HANG_S) as admin:
        admin.register(SPEC)
        assert admin.pipeline(SPEC.name).group == group


def where(groups: list[Tracker], name: str) -> list[int]:
    """The groups in which a pipeline lives, by what all of them list; each says the same."""
    found = []
    for tracker in groups:
        with tracker.admin() as admin:
            found.append([info.group for info in admin.pipelines() if info.spec.name == name])
    assert found[0] == found[1]
    return found[0]


def test_a_pipeline_moves_while_its_nodes_and_its_subscriber_go_on(groups: list[Tracker]) -> None:
    first, second = groups
    with first.admin() as admin:
        admin.register(SPEC)
    assert len(where(groups, "orders")) == 1
    source = where(groups, "orders")[0]
    target = 1 - source
    heard: list[int] = []
    with (
        NodeClient(second.target, "orders", "front") as front,
        NodeClient(first.target, "orders", "worker") as worker,
        Subscriber(groups[target].target, "orders") as subscriber,
    ):
        front.join(HANG_S)
        worker.join(HANG_S)
        granted = front.join_front("clock", "price", HANG_S)
        base = granted.slot
        listening = threading.Thread(
            target=lambda: heard.extend(u.min_time for u in subscriber.updates()), daemon=True
        )
        listening.start()
        for step in range(1, 41):
            item = Cells.of([(0, base + step, 1000 + step, 1)])
            front.commit(TickContent(created=item)).result(HANG_S)
            front.commit(TickContent(heartbeats=(Heartbeat("clock", base + step + 1),)))
            worker.commit(TickContent(consumed=item))
            if step == 20:
                moved = lowmark("--target", first.target, "pipelines", "move", "-p", "orders",
                                "--to", str(target))  # fmt: skip
                assert moved.returncode == 0, moved.stderr
                assert f"orders is in group {target}" in moved.stdout
        until(
            lambda: base + 41 in heard, lambda: f"{heard[-5:]} {first.errors()} {second.errors()}"
        )
        assert heard == sorted(heard)
    assert where(groups, "orders") == [target]
    listed = lowmark("--target", second.target, "--json", "groups", "list")
    told = {each["group"]: each for each in json.loads(listed.stdout)["groups"]}
    assert told[target]["pipelines"] == 1 and told[source]["pipelines"] == 0


def test_a_group_is_drained_and_given_nothing_more(groups: list[Tracker]) -> None:
    first, second = groups
    names = [f"p{number}" for number in range(4)]
    with Admin(second.target, HANG_S) as admin:
        for name in names:
            admin.register(PipelineSpec(name, ("s",), open=True))
    assert {len(where(groups, name)) for name in names} == {1}
    drained = lowmark("--target", first.target, "groups", "drain", "1")
    assert drained.returncode == 0, drained.stderr
    assert [where(groups, name) for name in names] == [[0]] * 4
    with Admin(second.target, HANG_S) as admin:
        admin.register(PipelineSpec("later", ("s",), open=True))
    assert where(groups, "later") == [0]


def test_a_group_that_does_not_answer_is_not_said_to_be_drained(groups: list[Tracker]) -> None:
    first, second = groups
    registered_in(groups, 1)
    with paused(*second.servers):
        drained = lowmark("--target", first.target, "groups", "drain", "1")
    assert drained.returncode != 0 and "cordoned, and not drained" in drained.stderr
    lowmark("--target", first.target, "groups", "cordon", "0", "--undo")
    assert lowmark("--target", first.target, "groups", "drain", "1").returncode == 0
    assert where(groups, SPEC.name) == [0]


def test_a_directory_that_is_away_keeps_nobody_from_what_there_is(groups: list[Tracker]) -> None:
    first, second = groups
    registered_in(groups, 1)
    first.shards[0].kill()
    with NodeClient(second.target, "orders", "front") as front:
        front.join(HANG_S)
        front.join_front("clock", "price", HANG_S)
    with (
        Admin(second.target, 10.0) as admin,
        pytest.raises(Exception, match="the directory does not answer"),
    ):
        admin.register(PipelineSpec("new", ("s",), open=True))


def test_a_file_names_the_group_of_a_new_pipeline(groups: list[Tracker], tmp_path: Path) -> None:
    """Whichever group has the least to do, and whichever is asked; one that is there stays there."""
    file = tmp_path / "orders.yaml"

    def applied(group: int) -> subprocess.CompletedProcess[str]:
        file.write_text(f"name: orders\nsegments: [price]\nopen: true\ngroup: {group}\n")
        return lowmark("--target", groups[0].target, "pipelines", "apply", "-f", str(file))

    refused = applied(7)
    assert (
        refused.returncode == 1 and "there is no group 7; the groups are [0, 1]" in refused.stderr
    )
    lowmark("--target", groups[0].target, "groups", "cordon", "1")
    refused = applied(1)
    assert refused.returncode == 1 and "group 1 is cordoned" in refused.stderr
    lowmark("--target", groups[0].target, "groups", "cordon", "1", "--undo")
    for group in (1, 0):
        assert applied(group).returncode == 0
        assert where(groups, "orders") == [1]


def test_who_registers_once_more_what_lives_in_another_group_gives_up_no_move_of_it(
    groups: list[Tracker],
) -> None:
    """As a program does at each start: that it belongs there is not decided anew."""
    first, second = groups
    registered_in(groups, 1)
    lowmark("--target", first.target, "groups", "cordon", "0", "--undo")
    with Admin(first.target, HANG_S) as admin:
        assert admin.register(SPEC) == (SPEC, False)
    with Admin(second.target, HANG_S) as admin:
        admin.move(SPEC.name, 0)
    assert where(groups, SPEC.name) == [0]


def test_what_a_group_has_refused_may_be_registered_in_another_one(groups: list[Tracker]) -> None:
    """A file names the group, and has a mistake; when that is mended, it names another one."""
    first, second = groups
    wrong = replace(SPEC, max_open_cells=10**12)
    for group, target in ((1, second.target), (1, first.target), (0, second.target)):
        with (
            Admin(target, HANG_S) as admin,
            pytest.raises(RefusedError, match="max_open_cells"),
        ):
            admin.apply(wrong, group=group)
    with Admin(second.target, HANG_S) as admin:
        admin.apply(SPEC, group=0)
    assert where(groups, SPEC.name) == [0]


def test_what_was_unknown_a_moment_ago_is_found_when_it_is_registered(
    groups: list[Tracker],
) -> None:
    """Whoever looks whether it is there, and then registers it, finds it from then on, whichever process is asked."""
    first, second = groups
    lowmark("--target", first.target, "groups", "cordon", "1")
    for target in second.target.split(","):
        with Admin(target, HANG_S) as admin, pytest.raises(RefusedError) as refused:
            admin.pipeline(SPEC.name)
        assert refused.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE
    with Admin(first.target, HANG_S) as admin:
        admin.register(SPEC)
    for target in second.target.split(","):
        with Admin(target, HANG_S) as admin:
            assert admin.pipeline(SPEC.name).group == 0


@pytest.mark.parametrize(
    ("source", "says"), [(1, "the directory does not"), (0, "group 1 does not")]
)
def test_no_pipeline_is_stopped_for_a_move_that_nobody_can_decide_on(
    groups: list[Tracker], source: int, says: str
) -> None:
    """The other group does not answer: it is the directory's, or the one to which the pipeline is to go."""
    registered_in(groups, source)
    with NodeClient(groups[source].target, SPEC.name, "front") as front:
        front.join(HANG_S)
        base = front.join_front("clock", "price", HANG_S).slot
        lowmark("--target", groups[0].target, "groups", "cordon", str(1 - source), "--undo")
        with paused(*groups[1 - source].servers):
            with Admin(groups[source].target, 6.0) as admin:  # expires: it is asked again and again
                expires_because(lambda: admin.move(SPEC.name, 1 - source), f"{says} answer")
            front.commit(TickContent(heartbeats=(Heartbeat("clock", base + 1),))).result(HANG_S)
        with Admin(groups[source].target, HANG_S) as admin:
            admin.move(SPEC.name, 1 - source)
    assert where(groups, SPEC.name) == [1 - source]


def test_nor_for_one_that_waits_for_a_shard_which_is_away(groups: list[Tracker]) -> None:
    """It is one of two shards of the group that the pipeline leaves, or of the one to which it is to go."""
    first, second = groups
    registered_in(groups, 1)
    lowmark("--target", first.target, "groups", "cordon", "0", "--undo")
    with Admin(first.target, HANG_S) as admin:
        admin.apply(replace(SPEC, name="other"), group=0)
    here = second.target.split(",")[0]
    with paused(second.servers[1]):
        for name, target, asked in ((SPEC.name, 0, here), ("other", 1, first.target)):
            with Admin(asked, 4.0) as admin:  # expires: it is asked again and again
                expires_because(partial(admin.move, name, target), "does not answer")
        with Admin(here, HANG_S) as admin:
            assert not any(each.leaving for each in admin.groups())


def test_what_lives_in_a_group_that_does_not_answer_is_not_taken_for_unknown(
    groups: list[Tracker],
) -> None:
    first, second = groups
    registered_in(groups, 1)
    with paused(*second.servers):
        with (
            Admin(first.target, 6.0) as admin,
            pytest.raises(UnavailableError),
        ):  # expires: it is there
            admin.pipeline(SPEC.name)
        with Admin(first.target, HANG_S) as admin, pytest.raises(RefusedError) as refused:
            admin.pipeline("nowhere")
    assert refused.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE
    with Admin(first.target, HANG_S) as admin:
        assert admin.pipeline(SPEC.name).group == 1


def test_a_pipeline_is_found_when_the_group_in_which_it_was_before_is_gone(
    groups: list[Tracker], tmp_path: Path
) -> None:
    first, second = groups
    registered_in(groups, 1)
    with Tracker(tmp_path / "2", options=of_group(2, first)) as third:
        known(first, second, third)
        with Admin(first.target, HANG_S) as admin:
            assert admin.pipeline(SPEC.name).group == 1
            admin.move(SPEC.name, 2)
        for server in second.servers:
            server.kill()
        with Admin(first.target, HANG_S) as admin:
            assert admin.pipeline(SPEC.name).group == 2


def test_who_was_given_a_group_finds_the_others_when_that_is_gone(
    groups: list[Tracker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """He has asked it now and then, and not since the pipeline has moved."""
    learned: list[str] = []
    learn = targets.Targets.learn

    def learning(
        self: targets.Targets, addresses: Iterable[str], *, all_there_are: bool = False
    ) -> None:
        found = [*addresses]
        learn(self, found, all_there_are=all_there_are)
        learned.extend(found)

    monkeypatch.setattr(targets.Targets, "learn", learning)
    monkeypatch.setattr(targets, "LEARN_AFTER_S", 0.0)
    first, second = groups
    registered_in(groups, 1)
    with Subscriber(second.target, SPEC.name) as subscriber:
        learned.clear()
        subscriber.min_time()
        until(lambda: first.target in learned)
        with Admin(second.target, HANG_S) as admin:
            lowmark("--target", first.target, "groups", "cordon", "0", "--undo")
            admin.move(SPEC.name, 0)
        for server in second.servers:
            server.kill()
        subscriber.min_time()


def test_a_directory_that_has_just_come_back_takes_nothing_for_unknown(
    groups: list[Tracker],
) -> None:
    first, _ = groups
    registered_in(groups, 1)
    first.shards[0].kill()
    first.shards[0].start()
    with Admin(first.target, HANG_S) as admin:  # its first answer counts
        assert admin.pipeline(SPEC.name).group == 1


def test_what_was_heard_of_one_that_was_deleted_is_nothing_to_one_in_another_group(
    groups: list[Tracker], tmp_path: Path
) -> None:
    first, second = groups
    registered_in(groups, 1)
    remembered = tmp_path / "known"
    with (
        NodeClient(second.target, "orders", "front", known=remembered) as front,
        Subscriber(first.target, "orders") as subscriber,
    ):
        front.join(HANG_S)
        heard = front.join_front("clock", "price", HANG_S).slot + 100
        front.commit(TickContent(heartbeats=(Heartbeat("clock", heard),))).result(HANG_S)
        assert subscriber.wait_until(heard, timeout_s=HANG_S)
        assert subscriber.min_time() == heard
        with second.admin() as admin:
            generation = admin.pipeline("orders").state.generation
            admin.delete("orders", generation, drop_open=True)
        registered_in(groups, 0)
        with pytest.raises(RefusedError, match="was deleted"):
            subscriber.min_time()
        with Subscriber(first.target, "orders") as anew:
            assert anew.min_time() < heard
        with NodeClient(first.target, "orders", "front", known=remembered) as again:
            assert again.join(HANG_S).generation > generation


def test_what_is_for_another_group_is_not_taken_by_one_that_is_reached_there_now(
    groups: list[Tracker],
) -> None:
    """The directory knows a group by an address at which a process of another one is by now."""
    first, second = groups
    registered_in(groups, 0)
    with grpc.insecure_channel(first.target) as channel:
        gone = types_pb.Group(group=2, addresses=[second.target.split(",")[0]])
        GroupServiceStub(channel).Ask(pb.AskRequest(known=gone), timeout=HANG_S)
        request = pb.MovePipelineRequest(pipeline="orders", group=2)
        with pytest.raises(grpc.RpcError) as told:
            GroupServiceStub(channel).MovePipeline(request, timeout=HANG_S)
    refused = refusal_of(told.value)
    assert refused is not None and "group 2 is asked, which is reached elsewhere" in str(refused)
    assert where(groups, "orders") == [0]
    with NodeClient(first.target, "orders", "front") as front:
        front.join(HANG_S)


def test_who_goes_on_with_a_move_is_told_what_the_group_knows_and_not_sent_on(
    groups: list[Tracker],
) -> None:
    """That a pipeline is here no more is what is asked for: that one of its name is elsewhere is no answer."""
    _, second = groups
    registered_in(groups, 0)
    piece = pb.AskRequest(piece=pb.PieceAsked(pipeline="orders", version=1))
    address = second.target.split(",")[0]
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as told:
        GroupServiceStub(channel).Ask(piece, timeout=HANG_S)
    refused = refusal_of(told.value)
    assert refused is not None and refused.refusal.code is RefusalCode.UNKNOWN_PIPELINE


def test_a_name_that_could_not_be_given_back_is_when_it_is_asked_again(
    groups: list[Tracker],
) -> None:
    """The directory did not answer as the pipeline was deleted; else its name belongs to that group for good."""
    first, second = groups
    registered_in(groups, 1)
    with second.admin() as admin:
        generation = admin.pipeline("orders").state.generation
        with paused(*first.servers):
            admin.delete("orders", generation, drop_open=True)
        admin.delete("orders", generation, drop_open=True)
    registered_in(groups, 0)


def test_what_lives_in_a_group_that_does_not_answer_is_neither_complete_nor_gone(
    groups: list[Tracker],
) -> None:
    """Whoever looks at all pipelines goes on to see those that were there, and hears that this is old; whoever acts on the
    only one that answers is asked which."""
    first, second = groups
    registered_in(groups, 0)
    with ExitStack() as stack, Admin(first.target, HANG_S) as admin:
        admin.register(replace(SPEC, name="done", open=False))
        lowmark("--target", first.target, "groups", "cordon", "0")
        lowmark("--target", first.target, "groups", "cordon", "1", "--undo")
        admin.move(SPEC.name, 1)
        overview = Overview(stack.enter_context(Admin(first.target, 3.0)))
        assert {row.name for row in overview.look(0.0)} == {"done", SPEC.name}
        assert overview.trouble == ""
        with NodeClient(first.target, "done", "front") as front:
            front.join(HANG_S)
            front.join_front("clock", "price", HANG_S)
            front.leave_front("clock").result(HANG_S)
        until(lambda: admin.pipeline("done").state.complete)
        with paused(*second.servers):
            for _ in range(2):
                rows = {row.name: row.progress.state for row in steps_of_a_round(overview)}
                assert rows["done"] == "complete" != rows[SPEC.name]
                assert "group 1 does not answer" in overview.trouble
            assert {row.name for row in overview.look(0.0)} == {"done"}, "no old values as new ones"
            waited = lowmark("--target", first.target, "wait", "--until", "slot:1")
            assert waited.returncode == 2 and "group 1 does not answer" in waited.stderr
            asked = Asked(tuple(first.target.split(",")), None, 3.0)
            with pytest.raises(UnavailableError, match=r"groups \[1\] do not answer"):
                asked.rows(PROGRESS, {"table": "min_times"}, None)
            assert asked.rows(PROGRESS, {"table": "min_times"}, frozenset({"done"}))
            watching = subprocess.Popen(
                [sys.executable, "-m", "tracker.cli", "--target", first.target, "--json", "watch"],
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert watching.stdout is not None
            assert [
                row["pipeline"] for row in json.loads(watching.stdout.readline())["pipelines"]
            ] == ["done"]
        try:
            found = (json.loads(line)["pipelines"] for line in watching.stdout)
            assert any(row["pipeline"] == SPEC.name for rows in found for row in rows), (
                "it watches on"
            )
        finally:
            watching.kill()
            watching.wait()


def steps_of_a_round(overview: Overview) -> list[Row]:
    """What is shown when all groups have been asked once."""
    overview.step()
    return overview.step()
