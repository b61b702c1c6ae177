"""Whoever may register takes no more than his part of a process, and the others go on."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.core.driver import Cluster, refused
from tracker.core.log import RegisterPipeline
from tracker.core.model import Edge, PipelineSpec, RefusalCode, Refused
from tracker.core.process import ProcessConfig
from tracker.service.rpc.access import TOKEN
from tracker.service.rpc.budgets import Budgets
from tracker.service.rpc.tokens import Token, parse_tokens
from tracker.wire.pipelines import spec_from_pb, spec_to_pb


def chain(name: str, segments: int, max_nodes: int = 10_000) -> PipelineSpec:
    names = tuple(f"{name}-{n}" for n in range(segments))
    edges = tuple(Edge(*pair) for pair in itertools.pairwise(names))
    return PipelineSpec(name, names, edges, open=True, max_nodes=max_nodes)


def test_segments_of_all_pipelines_have_one_limit() -> None:
    cluster = Cluster(2, config=ProcessConfig(max_segments=10))
    assert cluster.register(chain("a", 6)) == chain("a", 6)
    refused(
        cluster.register(chain("b", 5)), RefusalCode.FULL, "6 segments are registered", "max_segments of 10",
    )  # fmt: skip
    assert cluster.register(chain("c", 4)) == chain("c", 4)
    assert cluster.register(chain("a", 6)) == chain("a", 6), "what is there is registered again"
    cluster.restart_all()
    assert cluster.register(chain("a", 6)) == chain("a", 6)
    refused(cluster.register(chain("d", 1)), RefusalCode.FULL, "max_segments of 10")


def test_what_is_registered_and_not_durable_yet_counts() -> None:
    cluster = Cluster(1, config=ProcessConfig(max_segments=10))
    cluster.handle(0, RegisterPipeline("first", chain("a", 6)))
    cluster.handle(0, RegisterPipeline("second", chain("b", 6)))
    (answer,) = cluster.answers("second")
    refused(answer, RefusalCode.FULL, "6 segments are registered")


def test_nodes_of_all_pipelines_have_one_limit_whatever_a_pipeline_asks_for() -> None:
    cluster = Cluster(1, config=ProcessConfig(max_nodes=3))
    for name in "ab":
        cluster.register(chain(name, 1, max_nodes=3))
    for node_id, pipeline in (("v", "a"), ("w", "a"), ("v", "b")):
        cluster.join(node_id, pipeline=pipeline)
    refused(
        cluster.join("x", pipeline="b"), RefusalCode.FULL, "3 nodes of all pipelines", "max_nodes of a process",
    )  # fmt: skip
    assert cluster.join("w", pipeline="a").key.node_id == "w", "who is there may come again"


def test_an_edge_has_no_names_of_its_own() -> None:
    """As it comes over the wire, and out of the store, each name of each edge is another string."""
    spec = spec_from_pb(spec_to_pb(chain("a", 3)))
    assert spec == chain("a", 3)
    assert all(
        edge.source is spec.segments[n] and edge.target is spec.segments[n + 1]
        for n, edge in enumerate(spec.edges)
    )


@pytest.mark.parametrize("name", ["max_open_cells", "max_open_units", "max_nodes", "max_staged"])
def test_no_pipeline_asks_for_more_than_the_tracker_lets_any_have(name: str) -> None:
    cluster = Cluster(1)
    asked = replace(chain("a", 1), **{name: 2**62})  # type: ignore[arg-type]
    refused(cluster.register(asked), RefusalCode.INVALID, f"{name} {2**62}", "the most that this")
    assert cluster.register(chain("a", 1)) == chain("a", 1)
    cluster.handle(0, RegisterPipeline("more", asked, change=True))
    (answer,) = cluster.answers("more")
    refused(answer, RefusalCode.INVALID, f"{name} {2**62}")


def test_one_that_was_registered_before_there_were_bounds_goes_on() -> None:
    cluster = Cluster(1, config=ProcessConfig(most_nodes=10_000))
    cluster.register(chain("a", 1))
    cluster.config = ProcessConfig(most_nodes=5_000)
    cluster.restart_all()
    assert cluster.register(chain("a", 1)) == chain("a", 1)
    refused(cluster.register(chain("b", 1)), RefusalCode.INVALID, "max_nodes 10000", "is 5000")


@pytest.fixture(autouse=True)
def _no_token_stays() -> Iterator[None]:
    """A server that a later test starts from this thread takes over what its context holds."""
    before = TOKEN.set(None)
    yield
    TOKEN.reset(before)


def judged(tokens: str, *, max_nodes: int = 100) -> tuple[Cluster, Budgets, Token]:
    """A process of 10 segments and so many nodes, as a caller with the first of these tokens comes to it."""
    config = ProcessConfig(max_segments=10, max_nodes=max_nodes)
    cluster = Cluster(1, config=config)
    (token, *_) = parse_tokens(tokens.encode(), "tokens.yaml")
    TOKEN.set(token)
    return cluster, Budgets(cluster.processes[0], config), token


def entry(rights: str, more: str = "") -> str:
    return f"tokens: [{{name: team, sha256: '{'0' * 64}', pipelines: {rights}{more}}}]"


def register(
    cluster: Cluster, budgets: Budgets, spec: PipelineSpec, *, change: bool = False
) -> None:
    with budgets.registers(spec, change=change):
        cluster.ask(0, RegisterPipeline, spec, change)
        cluster.settle()


@pytest.mark.parametrize(("more", "most"), [("", 5), (", max_segments: 3", 3)])
def test_a_token_has_its_part_of_the_segments(more: str, most: int) -> None:
    cluster, budgets, _ = judged(entry("{team-*: [register]}", more))
    cluster.register(chain("other", 5))
    register(cluster, budgets, chain("team-a", most - 1))
    for _ in range(2):
        with pytest.raises(Refused, match=f"'team' may register .* max_segments of {most}"):
            register(cluster, budgets, chain("team-b", 2))
        register(cluster, budgets, chain("team-a", most - 1))  # is there already
    full = pytest.raises(Refused, match="max_segments of")
    with budgets.registers(chain("team-c", 1), change=False), full:
        register(cluster, budgets, chain("team-d", 1))
    register(cluster, budgets, chain("team-d", 1))


def test_what_is_being_registered_counts_until_that_is_done_though_its_name_is_asked_for_again() -> (
    None
):
    """The second attempt is refused, say, and over before the first."""
    _, budgets, _ = judged(entry("{team-*: [register]}"))
    other = budgets.registers(chain("other", 5), change=False)
    with other, budgets.registers(chain("team-a", 4), change=False):
        with budgets.registers(chain("team-a", 1), change=False):
            pass
        full = pytest.raises(Refused, match="have 4 segments here, and 2 more")
        with full, budgets.registers(chain("team-b", 2), change=False):
            pass


def test_what_a_pipeline_gets_while_it_runs_counts_as_if_it_had_been_registered_so() -> None:
    cluster, budgets, _ = judged(entry("{team-*: [register]}"))
    cluster.register(chain("other", 4))
    register(cluster, budgets, chain("team-a", 2))
    full = pytest.raises(Refused, match=r"have 2 segments here, and 4 more .* max_segments of 5")
    with full:
        register(cluster, budgets, chain("team-a", 6), change=True)
    register(cluster, budgets, chain("team-a", 6))  # changes nothing
    with budgets.registers(chain("team-a", 5), change=True), pytest.raises(Refused):
        register(cluster, budgets, chain("team-b", 2))
    register(cluster, budgets, chain("team-a", 5), change=True)
    assert len(cluster.processes[0].spec("team-a").segments) == 5
    register(cluster, budgets, chain("team-a", 4), change=True)  # what is removed counts on
    with pytest.raises(Refused, match="have 5 segments here, and 1 more"):
        register(cluster, budgets, chain("team-b", 1))


def test_a_token_has_its_part_of_the_nodes() -> None:
    cluster, budgets, _ = judged(entry("{team-*: [commit]}"), max_nodes=4)
    for name in ("team-a", "team-b", "other"):
        cluster.register(chain(name, 1, max_nodes=4))
    cluster.join("v", pipeline="other")
    for pipeline in ("team-a", "team-b"):
        budgets.check_join(pipeline, "v")
        cluster.join("v", pipeline=pipeline)
    with pytest.raises(Refused, match=r"'team' may commit to have 2 nodes here.*max_nodes of 2"):
        budgets.check_join("team-b", "w")
    budgets.check_join("team-b", "v")  # it comes again


def test_a_token_for_everything_has_all_of_it() -> None:
    cluster, budgets, _ = judged(entry('{"*": [register]}'))
    register(cluster, budgets, chain("a", 10))


def test_a_pair_of_segments_costs_little_more_than_its_distance() -> None:
    cluster, size = Cluster(1), 400
    cluster.register(chain("warm", 10))
    gc.collect()
    tracemalloc.start()
    try:
        cluster.register(chain("a", size))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / size**2 < 20, "8 bytes are the distance; as Python's numbers it took over 60"
