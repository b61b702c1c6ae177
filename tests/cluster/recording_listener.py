"""Subscribers in one process, each at a process of the tracker: they write down all that they hear.

    python -m tests.cluster.recording_listener DIRECTORY PIPELINE[,PIPELINE ...] TARGET [TARGET ...]

Says `heard` when each has heard something, and ends when all pipelines are complete for all of them.
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


async def listen_to(directory: Path, pipelines: list[str], targets: list[str]) -> None:
    recorders = {name: Unhurried(directory / f"{name}-heard.jsonl") for name in pipelines}
    every = [(name, number, target) for name in pipelines for number, target in enumerate(targets)]
    firsts = [asyncio.Event() for _ in every]
    listening = asyncio.gather(
        *(
            listen(recorders[name], f"subscriber-{number}", name, target, first)
            for (name, number, target), first in zip(every, firsts, strict=True)
        )
    )
    try:
        for first in firsts:
            await first.wait()
        print("heard", flush=True)
        await listening
    finally:
        for recorder in recorders.values():
            recorder.close()


def main(directory: str, pipelines: str, *targets: str) -> None:
    end_with_parent()
    asyncio.run(listen_to(Path(directory), pipelines.split(","), list(targets)))


if __name__ == "__main__":
    main(*sys.argv[1:])
