"""python -m tests.simulation.digest --seeds 0:2000: all effects of many schedules, as one number.

Code that was only moved must give the same number. Each effect of each process counts, in order, with
when and where it was returned. It counts by what it says: the names of classes and the values of their
fields, not where a class lives, what its fields are called or how it is put together. The last line is
the number; build/digest.json has that of each seed. With --against FILE, of such a file, it names the
first seed that differs; --show SEED prints what each process returned, a line at a time, with the
number so far, to be compared with what other code prints.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from scripts.check.record import commit
from scripts.summary import BUILD
from tests.simulation.processes import Running
from tests.simulation.run import simulator_of
from tracker.core.log import Effect

DEFAULT_SEEDS = range(2_000)
OUTPUT = BUILD / "digest.json"
RENAMED = {
    "RoutingRule": "RoutingEntry", "RescaleProposed": "SlotsAsked", "SlotBounds": "HighestSlots",
    "RoutingActivated": "RoutingAdopted", "HandoverFinished": "RoutingDone",
    "DepartureSummary": "LastWords", "DepartureSummarized": "ShardSaid",
    "LateEntry": "LateSnapshot",
}  # fmt: skip
"""By the name of a class the one that it had before: so that renaming a class changes no digest."""
LATER = {"PipelineSpec": {"rounds": 1}}
"""By the name of a class the fields that it was given later, which count where they are not as here: so that a new
field changes no digest of what does not have it."""
_CHUNK = 20
_DIGEST_BYTES = 16

Returned = Callable[[int, Running, list[Effect], str], None]
"""Hears what a process has returned: when, which one, what, and the digest so far."""


def encoded(value: object) -> bytes:
    """A value by its content. Two values of the same content give the same bytes, others do not.
    Raises TypeError for what is no plain data."""
    parts: list[bytes] = []
    Encoding(parts.append).encode(value)
    return b"".join(parts)


class Encoding:
    """Puts values one after the other."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put

    def name_of(self, kind: type) -> str:
        """What a class counts as: its name, before it was renamed."""
        return RENAMED.get(kind.__name__, kind.__name__)

    def values_of(self, value: Any) -> Iterator[Any] | None:
        """What an object is made of; None if that is not known."""
        kind: Any = type(value)
        fields = _fields(kind)
        if fields is None:
            return None
        later = LATER.get(kind.__name__, {})
        values = ((name, getattr(value, name)) for name in fields)
        return (each for name, each in values if name not in later or each != later[name])

    def encode(self, value: Any) -> None:
        kind: Any = type(value)
        if value is None or kind is bool:
            self._put(b"n" if value is None else b"t" if value else b"f")
        elif kind is int or isinstance(value, np.integer):
            self._put(b"i%d;" % int(value))
        elif kind is str or kind is bytes:
            self._put((b"s%d:" if kind is str else b"b%d:") % len(data := _bytes(value)) + data)
        elif kind is float:
            self._put(b"d" + struct.pack("<d", value))
        elif kind is array:
            self.encode(("array", value.typecode, value.tobytes()))
        elif kind is np.ndarray:
            self.encode(("array", value.dtype.str, value.shape, value.tobytes()))
        elif isinstance(value, Enum):
            self.encode((self.name_of(kind), value.value))
        elif isinstance(value, (tuple, list)):
            self._all(b"(", value)
        elif isinstance(value, dict):
            self._all(b"{", (part for item in value.items() for part in item))
        elif isinstance(value, (set, frozenset)):
            self._all(b"<", sorted(value))
        elif (values := self.values_of(value)) is not None:
            self._all(b"[", (self.name_of(kind), *values))
        else:
            raise TypeError(f"a {kind.__name__} is no plain data: {value!r}")

    def _all(self, begin: bytes, values: Any) -> None:
        self._put(begin)
        for value in values:
            self.encode(value)
        self._put(b".")


def _bytes(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


@cache
def _fields(kind: Any) -> tuple[str, ...] | None:
    """What makes up a value of a class; None if that is not known."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind) if field.init)
    return ("version", "entries", "pipelines") if kind.__name__ == "RoutingTable" else None


@dataclass(frozen=True)
class SeedDigest:
    """Of one seed. `failed`: what ended its run, where a promise was broken."""

    seed: int
    digest: str
    failed: str = ""


def digest_of(seed: int, returned: Returned | None = None) -> SeedDigest:
    """Runs a seed and digests all that its processes return."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    simulator = simulator_of(seed)

    def take(running: Running, effects: list[Effect]) -> None:
        where = (simulator.now, running.shard.number, running.epoch)
        digest.update(encoded((where, effects)))
        if returned is not None:
            returned(simulator.now, running, effects, digest.hexdigest())

    simulator.watch = take
    failed = ""
    try:
        simulator.run()
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"[:500]
    digest.update(encoded(bool(failed)))
    return SeedDigest(seed, digest.hexdigest(), failed)


def digests_of(seeds: range, workers: int | None = None) -> Iterator[SeedDigest]:
    """Of each seed, in their order, on `workers` processes (all cores if None)."""
    if workers == 1:
        yield from map(digest_of, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(digest_of, seeds, chunksize=_CHUNK)


def joined(digests: list[SeedDigest]) -> str:
    """One number for all."""
    return blake2b(
        encoded([(each.seed, each.digest) for each in digests]), digest_size=_DIGEST_BYTES
    ).hexdigest()


def first_difference(digests: list[SeedDigest], other: dict[str, str]) -> int | None:
    """The first seed whose digest is another one than in `other`, by seed; None if there is none.
    Raises ValueError if it has other seeds."""
    if [str(each.seed) for each in digests] != list(other):
        raise ValueError("the digests to compare with are of other seeds")
    return next((each.seed for each in digests if each.digest != other[str(each.seed)]), None)


def _show(seed: int) -> int:
    def returned(now: int, running: Running, effects: list[Effect], so_far: str) -> None:
        names = ",".join(type(effect).__name__ for effect in effects)
        shard, epoch = running.shard.number, running.epoch
        print(f"{now / 1e6:9.3f} ms  shard {shard} epoch {epoch}  {so_far[:12]}  {names}")

    result = digest_of(seed, returned)
    print(f"seed {seed}: {result.digest} {result.failed}".rstrip())
    return 1 if result.failed else 0


def _range(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last))


def main(arguments: list[str] | None = None) -> int:
    """0 if no promise was broken and nothing differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.digest", description=__doc__)
    parser.add_argument(
        "--seeds", type=_range, default=DEFAULT_SEEDS, help="FIRST:LAST, LAST excluded"
    )
    parser.add_argument("--workers", type=int, help="processes; all cores unless given")
    parser.add_argument("--against", type=Path, metavar="FILE", help="what other code has written")
    parser.add_argument("--show", type=int, metavar="SEED", help="print this seed's, step by step")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    if options.show is not None:
        return _show(options.show)
    against = json.loads(options.against.read_text()) if options.against else None
    digests = list(digests_of(options.seeds, options.workers))
    result = {
        "seeds": f"{options.seeds.start}:{options.seeds.stop}",
        "commit": commit(),
        "digest": joined(digests),
        "by_seed": {str(each.seed): each.digest for each in digests},
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    failed = [each for each in digests if each.failed]
    for each in failed:
        print(f"seed {each.seed}: {each.failed}")
    differs = None if against is None else first_difference(digests, against["by_seed"])
    if differs is not None:
        print(f"seed {differs} is the first that differs; see --show {differs} with either code")
    print(result["digest"], flush=True)
    return 1 if failed or differs is not None else 0


if __name__ == "__main__":
    sys.exit(main())
