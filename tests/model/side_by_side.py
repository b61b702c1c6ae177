"""Explores several stories at once, on all cores, and says how far it has come."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.model.explore import Explored, explore
from tests.model.moves import SmallMove, explore_move
from tests.model.script import Story
from tests.model.shards import ShardStory
from tests.simulation.faults import FAULTS

MOST_STATES = 5_000_000
"""Memory: about one kilobyte a state."""
Task = tuple[Story | ShardStory | SmallMove, str | None]
"""A story, and the fault to plant, if any: then only what is announced is judged."""


def explore_all(tasks: Sequence[Task]) -> list[Explored]:
    """What was seen, in the order of the tasks."""
    # Spawned, so that a planted fault stays in the process of its task.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=context, max_tasks_per_child=1) as pool:
        return list(pool.map(_explore, tasks))


def _explore(task: Task) -> Explored:
    story, fault = task
    name = f"{fault}, {story.name}" if fault else story.name

    def progress(seen: Explored) -> None:
        print(f"  {name}: {seen.states} states, depth {seen.depth}", flush=True)

    if isinstance(story, SmallMove):
        seen = explore_move(story, most_states=MOST_STATES, progress=progress)
    else:
        with FAULTS[fault]() if fault else contextlib.nullcontext():
            seen = explore(
                story, most_states=MOST_STATES, from_outside=bool(fault), progress=progress
            )
    seen.story = name
    how = "a violation after" if seen.violation else "all" if seen.whole else "not all:"
    print(f"  {name}: {how} {seen.states} states", flush=True)
    return seen
