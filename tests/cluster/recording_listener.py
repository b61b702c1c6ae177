"""Subscribers in one process, each at a process of the tracker: they write down all that they hear.

    python -m tests.cluster.recording_listener DIRECTORY PIPELINE TARGET [TARGET ...]

Says `heard` when each has heard something, and ends when the pipeline is complete for all of them.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.cluster.steps import Unhurried
from tests.cluster.told import end_with_parent
from tracker.client import AsyncSubscriber


async def listen(
    recorder: Unhurried, name: str, pipeline: str, target: str, first: asyncio.Event
) -> None:
    subscriber = AsyncSubscriber(target, pipeline)
    try:
        async for update in subscriber.updates():
            recorder.heard(name, update.segment, update.min_time)
            first.set()
            if update.segment is None and update.complete:
                return
    finally:
        await subscriber.close()


async def listen_to(directory: Path, pipeline: str, targets: list[str]) -> None:
    recorder = Unhurried(directory / f"{pipeline}-heard.jsonl")
    firsts = [asyncio.Event() for _ in targets]
    listening = asyncio.gather(
        *(
            listen(recorder, f"subscriber-{number}", pipeline, target, first)
            for number, (target, first) in enumerate(zip(targets, firsts, strict=True))
        )
    )
    try:
        for first in firsts:
            await first.wait()
        print("heard", flush=True)
        await listening
    finally:
        recorder.close()


def main(directory: str, pipeline: str, *targets: str) -> None:
    end_with_parent()
    asyncio.run(listen_to(Path(directory), pipeline, list(targets)))


if __name__ == "__main__":
    main(*sys.argv[1:])
