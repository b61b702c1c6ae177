"""The loop with rounds: right with workers killed, and wrong where they wait for no round to be over."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from examples.shortest_paths.graph import UNREACHED, distances, random_graph
from examples.shortest_paths.run import Ran, Size, put_together, run

SMALL = Size(600, 1_500, 2, 2, ((1, (0, 5)), (0, (1, 2))))


def test_every_distance_is_right_though_workers_are_killed(tmp_path: Path) -> None:
    ran = run(tmp_path, SMALL)
    assert ran.kills == 2
    for found, start in zip(ran.found, ran.starts, strict=True):
        assert found.tolist() == distances(ran.graph, start).tolist()
    # Neither too easy, nor beyond the bound.
    assert 5 < max(ran.rounds.values()) < 128


def test_without_the_barrier_some_are_wrong(tmp_path: Path) -> None:
    ran = run(tmp_path, SMALL, early=True)
    wrong = [
        found.tolist() != distances(ran.graph, start).tolist()
        for found, start in zip(ran.found, ran.starts, strict=True)
    ]
    assert any(wrong)


def test_a_worker_that_was_killed_behind_its_tick_has_left_two_states_of_which_the_newest_counts(
    tmp_path: Path,
) -> None:
    states = tmp_path / "states" / "0"
    states.mkdir(parents=True)
    for number in (9, 10, 2):
        known = np.array([0, number, UNREACHED, 1], "<i8")
        (states / f"0-{number}").write_bytes(known.tobytes())
    ran = Ran(random_graph(4, 3), [0])
    put_together(tmp_path, ran, 0, 1)
    assert ran.found[0].tolist() == [0, 10, UNREACHED, 1]
    assert ran.rounds == {0: 10}


def test_the_oracle_counts_edges() -> None:
    graph = random_graph(50, 60)
    found = distances(graph, 7)
    assert found[7] == 0
    for vertex in range(50):
        for neighbour in graph.targets[graph.begins[vertex] : graph.begins[vertex + 1]].tolist():
            reached = UNREACHED not in (found[vertex], found[neighbour])
            assert found[vertex] == found[neighbour] or reached
            assert abs(found[vertex] - found[neighbour]) <= 1
