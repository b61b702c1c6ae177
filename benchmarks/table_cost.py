"""What it costs to be able to rescale, while nothing changes: the core's ticks before rescaling came in, and now.

Two shards in one thread take the same ticks by three trees of sources: that of the commit before shards could
come and go, that of the commit with which they could, and this one; this one with a table of one entry, as a
tracker has that was started so, and with as many as a table may have. Each is a process of its own that is
told when it is its turn. The older trees are taken out of this repository's history.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.figures import Budget, Figure, Finding, Skipped
from benchmarks.pairs import ratios, take_turns
from benchmarks.scratch import scratch
from scripts.summary import ROOT

WITH = "5a9393cc74"
"""The commit with which shards could come and go."""
SHARDS, NODES = 2, 10
WHAT = "cost of a tick to the core, 2 shards"
_TICKS = """
import sys, time
from benchmarks.core import HORIZON, Cluster, steady_ticks
from tracker.core.model import PipelineSpec
shards, nodes, entries = map(int, sys.argv[1:])
if entries > 1:
    from tracker.core.model.routing import RoutingRule, RoutingTable
    from tracker.core.model.slots import LOWEST_SLOT
    everyone = tuple(range(shards))
    first = [RoutingRule(LOWEST_SLOT, 64, everyone)]
    later = [RoutingRule(64 * entry, 64, everyone) for entry in range(1 - entries, 0)]
    cluster = Cluster(shards, routing=RoutingTable([*first, *later]))
else:
    cluster = Cluster(shards)
cluster.register(PipelineSpec("p", ("in",), front_count=1, horizon_slots=HORIZON))
front = cluster.node("p", "front")
front.join_front("front")
working = [cluster.node("p", f"n{number}") for number in range(nodes)]
done = 0
for line in sys.stdin:
    began, ticks = time.process_time(), int(line)
    steady_ticks(cluster, working, front, ticks, done)
    done += ticks
    print((time.process_time() - began) / ticks * 1e6, flush=True)
"""


def find(budget: Budget) -> Iterable[Finding]:
    from tracker.core.model.routing import MAX_ENTRIES

    try:
        with scratch() as directory, ExitStack() as stack:
            before = _tree(f"{WITH}^", Path(directory) / "before")
            came = _tree(WITH, Path(directory) / "came")
            ticks = {
                "before": stack.enter_context(_ticking(before, 1)),
                "came": stack.enter_context(_ticking(came, 1)),
                "one": stack.enter_context(_ticking(ROOT, 1)),
                "many": stack.enter_context(_ticking(ROOT, MAX_ENTRIES)),
            }
            ways = {name: partial(run, budget.pick(2_000, 4_000)) for name, run in ticks.items()}
            costs = take_turns(ways, budget.pick(7, 14))
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        yield Skipped(WHAT, f"the history of {WITH} is not here: {said[-1] if said else error}")
        return
    older = statistics.median(costs["before"])
    for name, over, under, against in (
        (f"a table of {MAX_ENTRIES} entries / of one", "many", "one", "both as the code is now"),
        ("the commit with rescaling / the one before it", "came", "before",
         f"{older:.1f} µs of processors at {WITH}^"),
        (f"now, a table of {MAX_ENTRIES} entries / the commit before rescaling", "many", "before",
         "with all else that has changed since"),
        ("now, a table of one entry / the commit before rescaling", "one", "before",
         "with all else that has changed since"),
    ):  # fmt: skip
        yield Figure(f"{WHAT}: {name}", ratios(costs[over], costs[under]), "", against)


def _tree(commit: str, place: Path) -> Path:
    """The sources of a commit. Raises CalledProcessError where the repository does not have it."""
    archive = subprocess.run(
        ["git", "archive", commit, "tracker", "benchmarks"],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    place.mkdir()
    subprocess.run(["tar", "-x", "-C", str(place)], input=archive.stdout, check=True)
    return place


@contextmanager
def _ticking(tree: Path, entries: int) -> Iterator[Callable[[int], float]]:
    """Takes so many ticks, and says what one took, in microseconds of processors."""
    command = [sys.executable, "-c", _TICKS, str(SHARDS), str(NODES), str(entries)]
    with subprocess.Popen(
        command, cwd=tree, env={"PYTHONPATH": str(tree)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip

        def run(ticks: int) -> float:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(f"{ticks}\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        yield run
