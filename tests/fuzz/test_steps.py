"""Entries of a peer that could never have logged them: refused before they are durable, or harmless.

Whatever a process takes from another one, it must be able to apply, now and at each of its starts: what
it cannot, would stop it for good. So entries of all kinds, with numbers at the edges of their types, come
from the sequencer and from another shard; what is taken goes through bytes, into the log and back.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from acker.v1 import peer_service_pb2 as peer_pb
from tests.fuzz.examples import fuzz
from tests.fuzz.mangling import int64s, mutated
from tests.fuzz.wired import SPEC, Peer, Wired
from tracker.core import log as m
from tracker.core.log import losses as x
from tracker.core.log import steps as r
from tracker.core.log.sizes import entry_bytes
from tracker.core.model import (
    Cells,
    DroppedCells,
    Edge,
    FrontPolicy,
    Heartbeat,
    NodeKey,
    PipelineSpec,
    SilentFront,
    StagedContribution,
    Tick,
    TickContent,
    Unit,
    WrittenOffCell,
)
from tracker.core.model.nodes import NodeSnapshot
from tracker.core.model.routing import RoutingRule, RoutingTable
from tracker.core.process import LogLost
from tracker.wire.entries import entry_to_pb
from tracker.wire.frames import frame_to_pb

shards = st.sampled_from((0, 0, 1, 1, 2, 2, 3, 77, -1, 2**31 - 1, -(2**31)))
versions = st.sampled_from((0, 1, 1, 1, 2, 2, 3, -1, 2**63 - 1))
numbers = st.integers(0, 4) | int64s
segments = st.sampled_from((0, 0, 1, 1, 2, -1))
pipelines = st.sampled_from(("p", "p", "p", "q"))
slots = st.integers(0, 30) | int64s
owners = st.lists(shards, min_size=1, max_size=3).map(tuple)
keys = st.builds(
    NodeKey, st.sampled_from(tuple("abcdefghf")), st.sampled_from((1, 1, 2, 2**63 - 1, 0))
)
restarts = st.none() | st.none() | st.builds(m.Restart, numbers, slots, numbers)


@st.composite
def cells(draw: st.DrawFn) -> Cells:
    rows = st.tuples(segments, slots, st.integers(0, 9), st.integers(-1, 2))
    return Cells.of(draw(st.lists(rows, max_size=2)))


@st.composite
def tables(draw: st.DrawFn) -> RoutingTable:
    entries = [RoutingRule(-(2**63), draw(st.integers(1, 3)), draw(owners))]
    if draw(st.booleans()):
        entries.append(RoutingRule(draw(st.integers(0, 40)), 2, draw(owners)))
    named = {"p": entries} if draw(st.booleans()) else {}
    return RoutingTable(entries[:1], version=draw(versions), pipelines=named)


units = st.builds(Unit, segments, st.sampled_from(("x", "y")), slots)
given_up = st.builds(
    WrittenOffCell, segments, slots, st.integers(0, 3), numbers, st.just("n"), st.just(0)
)
staged = st.tuples(
    st.sampled_from("abcdef"),
    st.builds(
        StagedContribution, query=st.just("q"), run=st.just("r"), batch=numbers, execution=st.just(0),
        operator=st.just("o"), stage=st.just(0), partition=st.just(0), attempt=st.just(0),
        created=cells(), consumed=cells(),
    ),
)  # fmt: skip
nodes = st.builds(
    NodeSnapshot, key=keys, kind=st.just("other"), durable=numbers, previous_node_time=numbers,
    evicted=st.booleans(), retired=st.booleans(),
    consumes=st.lists(segments, max_size=1).map(tuple),
    creates=st.lists(segments, max_size=1).map(tuple),
)  # fmt: skip
ledgers = st.builds(r.LateEntry, segments, numbers, numbers, slots)
words = st.builds(
    r.DepartureSummary, pipelines, restarts, st.lists(slots, min_size=1, max_size=3).map(tuple),
    st.lists(ledgers, max_size=1).map(tuple),
    st.lists(st.tuples(segments, numbers), max_size=1).map(tuple),
)  # fmt: skip
positions = st.lists(st.tuples(shards, numbers), max_size=2).map(tuple)


def some(strategy: Any) -> Any:
    return st.lists(strategy, max_size=2).map(tuple)


@st.composite
def ticks(draw: st.DrawFn) -> m.KeyTick:
    content = TickContent(created=draw(cells()), consumed=draw(cells()))
    return m.KeyTick(Tick(draw(pipelines), draw(keys), draw(numbers), content), draw(cells()))


@st.composite
def columns(draw: st.DrawFn, keys: int) -> m.TickColumns:
    """Mostly such as there may be: of ticks in their order, with ends within their cells."""
    some = draw(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=3))
    places, ticks, owners = zip(*sorted(some), strict=True)
    created, consumed = draw(cells()), draw(cells())
    ends = [
        [*draw(st.lists(st.integers(0, len(each)), min_size=len(some) - 1, max_size=len(some) - 1)), len(each)]
        for each in (created, consumed)
    ]  # fmt: skip
    if draw(st.integers(0, 9)) == 0:
        ends[draw(st.integers(0, 1))].append(draw(numbers))
    fits = draw(st.integers(0, 9)) > 0
    return m.TickColumns(
        draw(pipelines), tuple(map(_fits, places)),
        tuple(abs(owner) % max(1, keys) if fits else _fits(owner) for owner in owners), ticks,
        created, tuple(sorted(map(_fits, ends[0]))), consumed, tuple(sorted(map(_fits, ends[1]))),
    )  # fmt: skip


def _fits(number: int) -> int:
    """As a field of 32 bits holds it."""
    return max(-(2**31), min(number, 2**31 - 1))


@st.composite
def runs(draw: st.DrawFn) -> m.TickRun:
    """Mostly such as there may be: parts in their order, of keys that it names."""
    parts = draw(st.lists(ticks(), max_size=2))
    places = draw(st.lists(numbers, min_size=len(parts), max_size=len(parts)).map(sorted))
    named = [m.KeyProgress(p.tick.pipeline, p.tick.key, p.tick.number) for p in parts]
    promises = st.lists(st.builds(Heartbeat, st.sampled_from("FG"), slots), max_size=2).map(tuple)
    named += draw(
        st.lists(st.builds(m.KeyProgress, pipelines, keys, numbers, promises), max_size=2)
    )
    count = draw(st.sampled_from((1, 2, 5)) | numbers)
    listed = draw(st.lists(columns(len(named)), max_size=2))
    return m.TickRun(count, tuple(named), tuple(listed), tuple(zip(places, parts, strict=True)))


lost = st.sampled_from(((1,), (0,), (2,), (1, 2), (), (2, 1), (77,)))
specs = st.sampled_from((SPEC, PipelineSpec("q", ("in",)), PipelineSpec("p", ("in",))))
dropped = st.builds(DroppedCells, segments, numbers, numbers, slots, slots)
known = st.builds(
    x.PipelineKnown, specs, restarts, st.none() | specs, numbers, slots, st.none() | slots, some(dropped)
)  # fmt: skip
ended = st.tuples(pipelines, numbers)
known_shards = st.builds(x.ShardsKnown, owners, positions, shards, versions, numbers, numbers)


@st.composite
def without(draw: st.DrawFn) -> x.WithoutLost:
    return x.WithoutLost(
        draw(some(shards)), draw(positions), draw(owners), draw(some(shards)), draw(tables()),
        draw(shards), draw(numbers), draw(numbers), draw(some(st.tuples(shards, numbers))),
    )  # fmt: skip


entries = st.one_of(
    runs(),
    st.builds(r.ShardJoining, shards, st.sampled_from(("host:1", "", "x" * 400))),
    st.builds(r.ShardJoined, shards),
    st.builds(r.ShardRemoved, shards),
    st.builds(r.RescaleProposed, versions, owners, st.booleans()),
    st.builds(r.SlotBounds, versions, some(st.tuples(pipelines, slots))),
    st.builds(r.RoutingChanged, tables()),
    st.builds(r.NodesMoved, versions, pipelines, shards, restarts, some(nodes), some(staged)),
    st.builds(r.RoutingActivated, versions, numbers),
    st.builds(
        r.CellsMoved,
        versions,
        pipelines,
        st.just(0),
        cells(),
        some(units),
        some(given_up),
        some(units),
    ),
    st.builds(r.HandoverFinished, versions),
    st.builds(r.ShardLeaving, shards),
    st.builds(r.SequencerMoved, shards, numbers),
    st.builds(r.SequencerBegun, numbers),
    st.builds(x.LossDeclared, lost, st.booleans(), numbers),
    st.builds(x.LossHeard, lost, some(known), some(ended), st.none() | known_shards),
    st.builds(x.ShardLost, lost, some(known), some(ended), st.none() | without()),
    st.builds(r.DepartureSummarized, some(words), shards),
    st.builds(r.ShardLeft, positions, some(words), shards),
    ticks(),
    st.builds(m.KeyOpened, pipelines, keys, st.just("other"), restarts),
    st.builds(m.KeyClosed, pipelines, keys, numbers, st.booleans(), st.booleans()),
    st.builds(m.KeyDropped, pipelines, keys),
    st.builds(m.PipelineRestarted, pipelines, st.builds(m.Restart, numbers, slots, numbers)),
    st.builds(m.PipelineDeleted, pipelines, st.builds(m.Restart, numbers, slots, numbers)),
    st.builds(m.PipelinesOver, some(st.tuples(pipelines, numbers))),
    st.builds(m.WrittenOff, pipelines, st.just("a"), cells(), numbers),
    st.builds(m.PipelineCompleted, pipelines, st.sampled_from((0, 0, 1)) | numbers, numbers),
    st.builds(m.PipelineRegistered, st.just(SPEC)),
)


@pytest.mark.parametrize("sender", [0, 1])
def test_what_cannot_be_applied_never_becomes_durable(sender: int) -> None:
    @fuzz(st.lists(st.lists(entries, min_size=1, max_size=4), max_size=5), case=str(sender))
    def hears(frames: list[list[m.Told]]) -> None:
        peer = Peer(sender)
        for said in frames:
            if not peer.hear(tuple(said)):
                for entry in said:  # each by itself, so that the good ones are taken
                    peer.hear((entry,))
            peer.commit(peer.receiver)
        peer.check_receiver()

    hears()


def rescaled() -> list[peer_pb.ExchangeRequest]:
    """What shard 0 says to shard 1 while a third one comes, the table changes, and shard 2 leaves."""
    cluster = Wired()
    seen = len(cluster.effects)
    cluster.join_shard()
    cluster.rescale(3)
    cluster.rescale(2, evacuate=True)
    sent = [e for e in cluster.effects[seen:] if isinstance(e, m.Send) and e.shard == 1]
    return [
        frame_to_pb(e.frame)
        for e in sent
        if e.frame.shard == 0 and isinstance(e.frame.body, m.Entries)
    ]


STEPS = rescaled()


@st.composite
def changes(draw: st.DrawFn) -> list[peer_pb.ExchangeRequest]:
    """The steps of a change, the last ones tampered with."""
    first = draw(st.integers(0, len(STEPS) - 1))
    return [*STEPS[:first], *(draw(mutated(step)) for step in STEPS[first : first + 3])]


@st.composite
def registrations(draw: st.DrawFn) -> PipelineSpec:
    """With names as long as they may be, of characters that take one byte or four."""
    letter = draw(st.sampled_from("aé\U0001f4c8"))
    segments = tuple(f"{number}{letter * 1_000}" for number in range(draw(st.integers(1, 6))))
    edges = tuple(Edge(one, other, 2**48) for one in segments for other in segments)
    fronts = tuple(f"{number}{letter * 900}" for number in range(draw(st.integers(1, 4))))
    policies = tuple(FrontPolicy(front, SilentFront.EVICT, 2**62) for front in fronts)
    return PipelineSpec(
        letter * 1_024, segments, edges, fronts, start_slot=-(2**63), horizon_slots=2**62,
        front_policies=policies,
    )  # fmt: skip


@fuzz(changes())
def test_a_change_that_was_tampered_with_is_refused_or_taken_for_good(
    arriving: list[peer_pb.ExchangeRequest],
) -> None:
    peer = Peer(0)
    for message in arriving:
        try:
            peer.hear_message(message)
        except LogLost:
            return  # the one reason for which a process stops by what another one says
        peer.commit(peer.receiver)
    peer.check_receiver()


@fuzz(entries, share=4)
def test_no_entry_takes_more_bytes_than_it_is_taken_for(entry: m.Told) -> None:
    """Else a frame could be larger than a message may be."""
    try:
        message = entry_to_pb(entry)
    except ValueError:
        return  # a number that no message holds
    assert message.ByteSize() <= entry_bytes(entry)


@fuzz(registrations())
def test_no_registration_takes_more_bytes_than_it_is_taken_for(spec: PipelineSpec) -> None:
    entry = m.PipelineRegistered(spec)
    assert entry_to_pb(entry).ByteSize() <= entry_bytes(entry)
