"""The front of the topic: it labels each record with the day of its timestamp.

    python -m examples.lake.front TARGET ROOT

Says `ready`, and runs until it is told `leave` on standard input, when nothing will ever be written any more: then
it labels what is left, and leaves. When its standard input is closed it ends, and min time waits for it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from examples.children import tell
from examples.flights.pipeline import NAME, Places
from examples.history import Recorder, recording_ticks
from examples.lake.pipeline import FRONT
from examples.lake.site import TOPIC, Site
from lowmark import KafkaFront
from lowmark.fronts import FrontOptions

IDLE_S = 3600.0
"""All partitions are waited for: an airport that is silent for a while has flights of the past yet to come."""


def main(target: str, root: str) -> int:
    """Labels until it is told to leave."""
    places = Places(Path(root))
    recorder = Recorder(places.histories / "front.jsonl")
    with (
        recording_ticks(recorder),
        KafkaFront(
            target, NAME, FRONT, "parse", TOPIC, str(places.topics), brokers=Site.read(places.root).brokers,
            options=FrontOptions(timestamps=True, idle_s=IDLE_S),
        ) as front,
    ):  # fmt: skip
        tell("ready")
        if sys.stdin.readline().strip() == "leave":
            front.leave()
    recorder.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
