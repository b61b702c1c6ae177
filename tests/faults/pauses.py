"""Pauses of tracker processes where silent fronts are evicted: nobody is, and nothing is complete by it.

Fronts publish, a reader consumes, a subscriber listens, while each process of the tracker, and all at once, are
stopped by a signal for less and for longer than a front may be silent, and for so long that streams break.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from tests.cluster.children import Running, paused
from tests.cluster.network import open_network
from tests.processes.everything import PIPELINE, Everything
from tests.processes.reading import Reader
from tracker.client import Admin
from tracker.core.model import SilentFront

EVICT_AFTER_MS = 1_000
SPANS_S = {"short": 0.5, "long": 2.5, "broken": 8.0}
SHARDS = (1, 2)
VICTIMS = ("each", "all")
KINDS = tuple(
    f"{span} pause of {victims} of {shards}"
    for shards, victims, span in product(SHARDS, VICTIMS, SPANS_S)
)


def run_pauses(
    directory: Path, shards: tuple[int, ...] = SHARDS, *, shown: bool = False
) -> list[str]:
    """Makes them all; returns the kinds that went wrong, each with the reason."""
    found = []
    network = open_network()  # where this is run in a namespace of its own, loopback is down before
    for count in shards:
        everything = Everything(
            count, _made(directory / f"{count}-shards"), silent_front=SilentFront.EVICT,
            evict_after_ms=EVICT_AFTER_MS,
        )  # fmt: skip
        reader = Reader(everything.target, PIPELINE, everything.files)
        kind = f"the start of {count}"
        try:
            everything.start(reader)
            everything.goes_on()
            for kind, victims, span_s in _pauses(everything, count):
                with paused(*victims):
                    time.sleep(span_s)  # paces: that time passes is what is tried
                everything.goes_on()
                _nobody_is_gone(everything)
                if shown:
                    print(f"pauses: {kind}: nobody was evicted", flush=True)
            everything.finish()
            everything.check()
        except AssertionError as error:
            found.append(f"{kind}: {error}")
        finally:
            reader.close()
            everything.discard()
    network.close()
    return found


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


def _pauses(everything: Everything, count: int) -> Iterator[tuple[str, Sequence[Running], float]]:
    for victims, (span, span_s) in product(VICTIMS, SPANS_S.items()):
        kind = f"{span} pause of {victims} of {count}"
        for chosen in (
            [[s] for s in everything.shards] if victims == "each" else [everything.shards]
        ):
            yield kind, chosen, span_s


def _nobody_is_gone(everything: Everything) -> None:
    for front in everything.fronts:
        assert not front.has_ended(), f"a front has ended: {front.errors()}"
    for address in everything.target.split(","):
        with Admin(address) as admin:
            state = admin.pipeline(PIPELINE).state
        assert len(state.fronts) == len(everything.fronts), f"fronts are gone: {state.fronts}"
        assert not state.complete, "the pipeline is said to be complete"
