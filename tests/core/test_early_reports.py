"""Reports that come before a pipeline which they name are kept until it is registered here (rule 5)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.core.driver import Cluster
from tracker.core.log import Effect, Frame, FrameArrived, Send, ShardReport
from tracker.core.log.frames import PipelineReport
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import LOWEST_SLOT
from tracker.core.replication.links import MAX_EARLY_REPORTS


class Listening(Cluster):
    """Remembers every frame that is sent."""

    def __init__(self, shards: int) -> None:
        self.sent: list[Frame] = []
        super().__init__(shards)

    def _take(self, shard: int, effects: list[Effect]) -> None:
        self.sent += [effect.frame for effect in effects if isinstance(effect, Send)]
        super()._take(shard, effects)

    def whole_reports(self) -> int:
        bodies = [frame.body for frame in self.sent]
        return sum(isinstance(body, ShardReport) and body.whole for body in bodies)


def spec(name: str, segments: int = 1) -> PipelineSpec:
    return PipelineSpec(name, tuple(f"s{n}" for n in range(segments)), front_count=1)


def begun() -> Listening:
    """Two shards that have heard all of each other."""
    cluster = Listening(2)
    cluster.register(spec("first"))
    cluster.settle()
    cluster.pass_time(cluster.config.retransmit_ms + 1)
    cluster.sent.clear()
    return cluster


def next_report(cluster: Cluster, *pipelines: PipelineReport, after: int = 0) -> FrameArrived:
    """What shard 1 may say next to shard 0, `after` others."""
    process = cluster.processes[0]
    link = process.links[1]
    body = ShardReport(link.last_report + 1 + after, False, (), pipelines)
    return FrameArrived(Frame(1, link.epoch, body))


def test_a_registration_asks_for_no_whole_report() -> None:
    """They tell of all pipelines: registering one after the other would cost the square of their number."""
    cluster = begun()
    for number in range(20):
        cluster.register(spec(f"p{number}"))
        cluster.settle()
    assert cluster.whole_reports() == 0
    assert cluster.agreed(spec("p19")) == (0,)


def names() -> Iterator[str]:
    return (f"new{n}" for n in range(1_000))


def test_a_report_of_a_pipeline_that_is_not_registered_yet_is_taken_when_it_is() -> None:
    cluster = begun()
    name = next(n for n in names() if cluster.routing.registrar(n) == 0)
    cluster.handle(0, next_report(cluster, PipelineReport(name, announced=((0, 7),))))
    cluster.handle(0, next_report(cluster))
    link = cluster.processes[0].links[1]
    assert len(link.early) == 2 and not link.needs_whole
    taken = link.report_number
    cluster.register(spec(name))
    assert not link.early and link.report_number >= taken + 2
    assert cluster.pipeline(0, name).combiner.announced_anywhere == [7]
    assert cluster.whole_reports() == 0


def test_an_early_report_that_comes_twice_counts_once() -> None:
    cluster = begun()
    report = next_report(cluster, PipelineReport("later"))
    cluster.handle(0, report)
    cluster.handle(0, report)
    link = cluster.processes[0].links[1]
    assert len(link.early) == 1 and not link.needs_whole


def test_a_gap_behind_an_early_report_asks_for_a_whole_one() -> None:
    cluster = begun()
    cluster.handle(0, next_report(cluster, PipelineReport("later")))
    cluster.handle(0, next_report(cluster, after=1))
    link = cluster.processes[0].links[1]
    assert link.needs_whole and not link.early
    cluster.settle()
    assert not link.needs_whole and cluster.whole_reports() == 1


def test_no_more_reports_are_kept_than_the_limit_says() -> None:
    cluster = begun()
    for _ in range(MAX_EARLY_REPORTS):
        cluster.handle(0, next_report(cluster, PipelineReport("later")))
    link = cluster.processes[0].links[1]
    assert len(link.early) == MAX_EARLY_REPORTS and not link.needs_whole
    cluster.handle(0, next_report(cluster, PipelineReport("later")))
    assert link.needs_whole and not link.early


def test_an_early_report_that_turns_out_to_point_nowhere_is_not_taken() -> None:
    """When it came nobody could tell how many segments there are."""
    cluster = begun()
    name = next(n for n in names() if cluster.routing.registrar(n) == 0)
    cluster.handle(0, next_report(cluster, PipelineReport(name, announced=((3, 7),))))
    cluster.register(spec(name))
    link = cluster.processes[0].links[1]
    cluster.settle()
    assert not link.early and not link.needs_whole
    assert cluster.whole_reports() == 1
    assert cluster.pipeline(0, name).combiner.announced_anywhere == [LOWEST_SLOT]
