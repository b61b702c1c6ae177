"""A home judges what is created and held by all that it has heard announced, not by its own announcements alone."""

from __future__ import annotations

from tests.core.driver import MS, Cluster, HandNode, refused
from tracker.core.log import Announcement, Wake
from tracker.core.model import Edge, PipelineSpec, RefusalCode
from tracker.core.model.slots import FOREVER

SPEC = PipelineSpec("p", ("read", "wrote"), (Edge("read", "wrote", 2),), fronts=("a",))
READ, WROTE = 0, 1
HOME, OTHER, LAST = 0, 1, 2
LATE = (READ, 95, 7)
"""What nobody has created: say, of a batch of a front that was evicted before its tick."""


def started() -> tuple[Cluster, HandNode, HandNode]:
    """Three shards; a worker at home at the first, and a front at another, which has promised 90."""
    cluster = Cluster(3)
    cluster.register(SPEC)
    front = cluster.front(SPEC, next(cluster.ids_at(OTHER)), promise=90)
    worker = cluster.node(SPEC, next(cluster.ids_at(HOME)))
    assert cluster.agreed(SPEC) == (90, 92)
    return cluster, front, worker


def hold_back(cluster: Cluster, *sources: int) -> None:
    """The home hears nothing of some shards from now on."""
    cluster.held |= {(source, HOME) for source in sources}


def hear_again(cluster: Cluster) -> None:
    cluster.held.clear()
    cluster.settle()


def lagging() -> tuple[Cluster, HandNode]:
    """The home has heard that another shard announced 200, and cannot announce that itself yet."""
    cluster, front, worker = started()
    hold_back(cluster, LAST)
    front.commit(heartbeats={"a": 200})
    cluster.settle()
    cluster.pass_time(1_000)
    cluster.settle()
    home = cluster.pipeline(HOME)
    assert (home.announced[READ], home.floors()[READ]) == (90, 200)
    return cluster, worker


def is_announcing(cluster: Cluster) -> bool:
    """Whether the other shard has appended an announcement that is not durable."""
    return any(isinstance(record, Announcement) for _, record in cluster.pending[OTHER])


def late_hold() -> tuple[Cluster, HandNode, HandNode]:
    """A hold that the home took before it heard that another shard has announced more."""
    cluster, front, worker = started()
    # First the home applies the front's tick, and nobody hears of it; then the others do, and it does not hear them.
    cluster.held |= {(HOME, OTHER), (HOME, LAST), (LAST, HOME)}
    front.commit(heartbeats={"a": 200})
    cluster.held.clear()
    hold_back(cluster, OTHER, LAST)
    cluster.settle()
    assert cluster.pipeline(OTHER).announced[READ] == 200 > cluster.pipeline(HOME).floors()[READ]
    worker.commit(consumed=[LATE], holds={"state": (WROTE, 97)})
    hear_again(cluster)
    assert cluster.agreed(SPEC) == (200, 202)
    return cluster, front, worker


def test_nothing_is_created_below_what_another_shard_has_announced() -> None:
    cluster, worker = lagging()
    refusal = refused(
        worker.refused(created=[LATE]), RefusalCode.BELOW_MIN_TIME,
        "slot 95", "min time 200 is announced",
    )  # fmt: skip
    assert refusal.min_times[READ] == 200
    refused(worker.refused(consumed=[LATE], created=[(READ, 96, 8)]), RefusalCode.BELOW_MIN_TIME)
    worker.commit(created=[(READ, 200, 9)])
    hear_again(cluster)
    assert cluster.agreed(SPEC) == (200, 202)


def test_no_hold_begins_below_what_another_shard_has_announced() -> None:
    _, worker = lagging()
    refusal = refused(
        worker.refused(consumed=[LATE], holds={"state": (WROTE, 97)}), RefusalCode.BELOW_MIN_TIME,
        "min time", "nothing keeps min time",
    )  # fmt: skip
    assert refusal.min_times[READ] == 200, "from which slot on it could hold"
    worker.commit(consumed=[LATE])


def test_a_limit_goes_by_the_home_s_own_min_time() -> None:
    """Else what another shard has announced would let more into its tables."""
    _, worker = lagging()
    home = SPEC.horizon_slots + 90
    refused(worker.refused(created=[(READ, home + 50, 1)]), RefusalCode.BEYOND_HORIZON, "90")


def test_a_hold_that_has_become_late_is_not_named_again() -> None:
    """What was consumed since may rest on it, and nothing would hold that."""
    cluster, front, worker = late_hold()
    front.commit(created=[(READ, 210, 21)])
    front.commit(heartbeats={"a": 300})
    refused(
        worker.refused(consumed=[(READ, 210, 21)], holds={"state": (WROTE, 97)}),
        RefusalCode.BELOW_MIN_TIME, "hold 'state'", "stands at slot 97", "is announced",
    )  # fmt: skip
    refusal = refused(
        worker.refused(holds={"state": (WROTE, 220)}), RefusalCode.BELOW_MIN_TIME, "holds nothing"
    )
    assert refusal.min_times[WROTE] > 202
    worker.commit(
        consumed=[(READ, 210, 21)], holds={"state": (WROTE, FOREVER), "anew": (WROTE, 212)}
    )
    assert cluster.agreed(SPEC) == (300, 212)
    worker.commit(created=[(WROTE, 212, 22)], holds={"anew": (WROTE, FOREVER)})
    assert cluster.agreed(SPEC) == (300, 212)


def test_a_hold_that_has_become_late_begins_anew_by_what_the_tick_consumes() -> None:
    cluster, front, worker = late_hold()
    front.commit(created=[(READ, 210, 21)])
    front.commit(heartbeats={"a": 300})
    worker.commit(consumed=[(READ, 210, 21)], holds={"state": (WROTE, 212)})
    assert cluster.agreed(SPEC) == (300, 212)


def test_what_becomes_durable_when_something_else_was_due_to_be_reported_is_reported_too() -> None:
    cluster, front, _ = started()
    hold_back(cluster, LAST)
    front.begin(heartbeats={"a": 120})
    cluster.settle(lambda: is_announcing(cluster))
    cluster.commit(OTHER)
    front.begin(heartbeats={"a": 200})
    cluster.settle(lambda: is_announcing(cluster))
    cluster.now_ns += cluster.config.announced_report_ms * MS
    cluster.handle(OTHER, Wake())
    cluster.settle()
    cluster.pass_time(1_000)
    home = cluster.pipeline(HOME)
    assert (home.announced[READ], home.floors()[READ]) == (90, 200)
