"""A node's ticks are applied in order, each once, each whole, however they come (rules 1, 2 and 3)."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.driver import Cluster, HandNode, content
from tracker.core.home.home import KEPT_FINGERPRINTS
from tracker.core.log import (
    Append,
    AttachSession,
    DetachSession,
    Entries,
    KeyTick,
    SessionAttached,
    SessionRefused,
    SubmitTick,
    SubmitTicks,
    TickRefused,
    TicksDurable,
)
from tracker.core.model import Batch, PipelineSpec, RefusalCode
from tracker.core.process import ProcessConfig

SPEC = PipelineSpec("p", ("work",), open=True)


def joined(shards: int, config: ProcessConfig | None = None) -> HandNode:
    cluster = Cluster(shards, config=config)
    cluster.register(SPEC)
    cluster.node(SPEC, "front").join_front("holds at 0")  # else nothing protects what is created
    node = cluster.node(SPEC, "node")
    cluster.settle()
    return node


def open_items(cluster: Cluster) -> set[tuple[int, int]]:
    """What every process sees open: (open slots, open items)."""
    cluster.settle()
    seen = set()
    for process in cluster.processes.values():
        (segment,) = process.describe("p", 0).segments
        seen.add((segment.open_slots, segment.open_items))
    return seen


def refused(effects: Sequence[object]) -> list[TickRefused]:
    return [e for e in effects if isinstance(e, TickRefused)]


def test_a_tick_that_comes_too_early_is_refused_with_the_number_that_is_due(shards: int) -> None:
    node = joined(shards)
    (early,) = refused(node.send(2, content(created=[(0, 6, 2)])))
    assert early.refusal.code is RefusalCode.OUT_OF_ORDER
    assert early.refusal.expected == 1
    assert "tick 2" in early.refusal.message
    assert "tick 1 is due" in early.refusal.message
    node.send(1, content(created=[(0, 5, 1)]))
    node.send(2, content(created=[(0, 6, 2)]))
    assert open_items(node.cluster) == {(2, 2)}


def test_a_newer_stream_silences_the_older() -> None:
    node = joined(1)
    old = node.session
    effects = node.attach()
    (told,) = [e for e in effects if isinstance(e, SessionRefused)]
    assert told.session == old
    assert told.refusal.code is RefusalCode.FENCED
    node.cluster.handle(node.home, DetachSession(old))  # its end comes late
    node.commit(created=[(0, 5, 1)])


def test_a_stream_goes_on_where_the_last_one_was_accepted() -> None:
    node = joined(2)
    node.begin(created=[(0, 5, 1)])
    node.begin(created=[(0, 6, 1)])
    node.cluster.handle(node.home, DetachSession(node.session))
    effects = node.cluster.handle(node.home, AttachSession("next", "p", node.key))
    assert effects[0] == SessionAttached("next", 2)


def test_a_shard_without_a_part_is_told_the_number_alone() -> None:
    node = joined(2)
    cluster = node.cluster
    slot = next(cluster.slots_of(node.home))
    cluster.held = {(node.home, 1 - node.home)}
    node.begin(created=[(0, slot, 1)])
    cluster.settle()
    ticks = [
        entry.tick
        for frame in cluster.links[node.home, 1 - node.home]
        if isinstance(frame.body, Entries)
        for entry in frame.body.entries
        if isinstance(entry, KeyTick)
    ]
    assert [(tick.number, len(tick.content.created)) for tick in ticks] == [(1, 0)]


class TestBatches:
    """A node's own key for a step: the same again is dropped, another under its name is refused."""

    def test_a_batch_with_other_contents_is_refused(self) -> None:
        node = joined(2)
        node.commit(created=[(0, 5, 1)], batch=Batch("query", 7, b"one"))
        refusal = node.refused(created=[(0, 6, 1)], batch=Batch("query", 7, b"other"))
        assert refusal.code is RefusalCode.ROLLED_BACK
        assert "batch 7" in refusal.message
        assert "'query'" in refusal.message
        assert open_items(node.cluster) == {(1, 1)}

    def test_batch_numbers_may_begin_anywhere_and_skip_but_not_go_back(self) -> None:
        node = joined(2)
        for number in (41, 42, 50):
            node.commit(batch=Batch("query", number, b"x"))
        refusal = node.refused(batch=Batch("query", 45, b"x"))
        assert refusal.code is RefusalCode.ROLLED_BACK
        node.commit(batch=Batch("another query", 45, b"x"))

    def test_what_is_remembered_is_bounded(self) -> None:
        node = joined(1)
        for number in range(KEPT_FINGERPRINTS + 10):
            node.begin(batch=Batch("query", number, b"x"))
        node.cluster.settle()
        refusal = node.refused(batch=Batch("query", 3, b"x"))
        assert refusal.code is RefusalCode.ROLLED_BACK
        (pipeline,) = node.cluster.processes[0].snapshot().pipelines
        (kept,) = [known for known in pipeline.nodes if known.key == node.key]
        assert len(kept.batches) == KEPT_FINGERPRINTS


CHANGES = (
    {"created": [(0, 5, 1)]},
    {"created": [(0, 5, 2)], "consumed": [(0, 5, 1)]},
    {"created": [(7, 5, 3)]},  # there is no such segment
    {"leaves": ["a front that never joined"]},
    {"batch": Batch("scope", 1, b"one")},
    {"batch": Batch("scope", 1, b"another")},
)


def answers(effects: Sequence[object]) -> list[object]:
    """What a node is told, and how many records are appended, in their order."""
    return [
        (effect.number, effect.refusal) if isinstance(effect, TickRefused)
        else effect.number if isinstance(effect, TicksDurable)
        else type(effect).__name__
        for effect in effects
        if isinstance(effect, TickRefused | TicksDurable | Append)
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from(CHANGES)), min_size=1, max_size=8))
@settings(max_examples=60)
def test_ticks_of_one_message_are_judged_as_if_each_had_come_alone(
    ticks: list[tuple[int, dict[str, object]]],
) -> None:
    together, alone = joined(1), joined(1)
    contents = [(number, content(**what)) for number, what in ticks]  # type: ignore[arg-type]
    submitted = [SubmitTick(together.session, *each) for each in contents]
    heard = together.cluster.handle(together.home, SubmitTicks(submitted))
    one_by_one = [effect for each in contents for effect in alone.send(*each)]
    assert answers(heard) == answers(one_by_one)
    assert open_items(together.cluster) == open_items(alone.cluster)
    for number, what in ticks[:1]:  # all of it is known, as after as many messages
        again = answers(together.send(number, content(**what)))  # type: ignore[arg-type]
        assert again == answers(alone.send(number, content(**what)))  # type: ignore[arg-type]


def test_behind_a_refused_tick_of_a_message_nothing_is_applied() -> None:
    node = joined(1)
    good, bad = content(created=[(0, 5, 1)]), content(created=[(7, 5, 1)])
    ticks = [
        SubmitTick(node.session, number, tick) for number, tick in ((1, good), (2, bad), (3, good))
    ]
    found = refused(node.cluster.handle(node.home, SubmitTicks(ticks)))
    assert [(each.number, each.refusal.code) for each in found] == [
        (2, RefusalCode.UNKNOWN_SEGMENT), (3, RefusalCode.OUT_OF_ORDER),
    ]  # fmt: skip
    assert found[1].refusal.expected == 2
    assert open_items(node.cluster) == {(1, 1)}


def test_a_message_of_ticks_without_a_stream_is_answered_once() -> None:
    node = joined(1)
    ticks = [SubmitTick("never attached", number, content()) for number in (1, 2)]
    (ended,) = node.cluster.handle(node.home, SubmitTicks(ticks))
    assert isinstance(ended, SessionRefused)
    assert ended.refusal.code is RefusalCode.FENCED
