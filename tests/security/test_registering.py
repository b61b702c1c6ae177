"""Whoever may register takes no more than his part of a process, and the others go on."""

from __future__ import annotations

import itertools

from tests.core.driver import Cluster, refused
from tracker.core.log import RegisterPipeline
from tracker.core.model import Edge, PipelineSpec, RefusalCode
from tracker.core.process import ProcessConfig
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
        cluster.register(chain(name, 1, max_nodes=2**62))
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
