"""The loop with rounds: right with workers killed, and wrong where they wait for no round to be over."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.shortest_paths.graph import UNREACHED, distances, random_graph
from examples.shortest_paths.run import Size, run

SMALL = Size(600, 1_500, 2, 2, ((1, (0, 5)), (0, (1, 2))))


@pytest.mark.timeout(120)
def test_every_distance_is_right_though_workers_are_killed(tmp_path: Path) -> None:
    ran = run(tmp_path, SMALL)
    assert ran.kills == 2
    for found, start in zip(ran.found, ran.starts, strict=True):
        assert found.tolist() == distances(ran.graph, start).tolist()
    # Neither too easy, nor beyond the bound.
    assert 5 < max(ran.rounds.values()) < 128


@pytest.mark.timeout(120)
def test_without_the_barrier_some_are_wrong(tmp_path: Path) -> None:
    ran = run(tmp_path, SMALL, early=True)
    wrong = [
        found.tolist() != distances(ran.graph, start).tolist()
        for found, start in zip(ran.found, ran.starts, strict=True)
    ]
    assert any(wrong)


def test_the_oracle_counts_edges() -> None:
    graph = random_graph(50, 60)
    found = distances(graph, 7)
    assert found[7] == 0
    for vertex in range(50):
        for neighbour in graph.targets[graph.begins[vertex] : graph.begins[vertex + 1]].tolist():
            reached = UNREACHED not in (found[vertex], found[neighbour])
            assert found[vertex] == found[neighbour] or reached
            assert abs(found[vertex] - found[neighbour]) <= 1
