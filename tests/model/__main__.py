"""Explores the small model: `python -m tests.model`.

Every story with the production core, which must hold every invariant to the end of each; then the same
core with the published rule for combining shards planted into it, which must be refuted by something
that it announces. Writes build/model.json, ends with one line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tests.model.evictions import EVICTION_STORIES
from tests.model.explore import Explored
from tests.model.moves import MOVES, SmallMove
from tests.model.script import STORIES, Story
from tests.model.shards import SHARD_STORIES, ShardStory
from tests.model.side_by_side import Task, explore_all

BUILD = Path(__file__).resolve().parent.parent.parent / "build"
LEAST_STATES = 100_000
PUBLISHED_RULE = "published-rule"
TWO_SHARDS = next(story for story in STORIES if story.shards == 2)


def _show(seen: Explored) -> None:
    print(f"{seen.story}: {seen.violation}; by these steps:")
    for step in seen.trace:
        print(f"    {step}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    every: list[Story | ShardStory | SmallMove] = [
        *STORIES,
        *EVICTION_STORIES,
        *SHARD_STORIES,
        *MOVES,
    ]
    parser.add_argument("--first", type=int, default=len(every), help="only so many of the stories")
    parser.add_argument(
        "--named", default="", help="only those with this in their names, and no fault"
    )
    asked = parser.parse_args()
    stories = [story for story in every[: asked.first] if asked.named in story.name]
    began = time.monotonic()
    # The longest first, so that the others fill the other cores.
    tasks: list[Task] = [(story, None) for story in reversed(stories)]
    planted: list[Task] = [] if asked.named else [(TWO_SHARDS, PUBLISHED_RULE)]
    every_seen = explore_all([*tasks, *planted])
    held, published = every_seen[: len(tasks)], every_seen[len(tasks) :]
    for seen in every_seen:
        if seen.violation:
            _show(seen)
    states = sum(seen.states for seen in held)
    is_whole = all(seen.whole for seen in held)
    refuted = all(seen.violation for seen in published)
    found = f"refuted_after={sum(seen.states for seen in published)}" if refuted else "NOT refuted"
    ok = is_whole and refuted and (states >= LEAST_STATES or len(stories) < len(STORIES))
    result = {
        "ok": ok,
        "seconds": round(time.monotonic() - began, 1),
        "states": states,
        "stories": [asdict(seen) for seen in held],
        "published_rule": [asdict(seen) for seen in published],
    }
    BUILD.mkdir(exist_ok=True)
    (BUILD / "model.json").write_text(json.dumps(result, indent=2) + "\n")
    print(
        f"model: {'OK' if ok else 'FAILED'} states={states} "
        f"steps={sum(seen.steps for seen in held)} ends={sum(seen.ends for seen in held)} "
        f"whole={str(is_whole).lower()} violations={sum(bool(seen.violation) for seen in held)} "
        f"published_rule={found if published else 'not_tried'} "
        f"seconds={result['seconds']}"
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
