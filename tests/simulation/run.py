"""Running many seeds on all cores, and what came of them."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.simulation.checkers import Failure
from tests.simulation.faults import FAULTS
from tests.simulation.losses import LosingSimulator, loses
from tests.simulation.moving import MOVE_KINDS, moves
from tests.simulation.moving_amid import AMID_KINDS, moving_kind
from tests.simulation.rescaling import RescalingSimulator, rescales
from tests.simulation.simulator import Simulator
from tests.simulation.storms import SELDOM, STORM_KINDS

KINDS = ("broken", "false", "lost", "regressed")
FAULT_KINDS = (
    # of processes and stores
    "crashes", "crashes_losing_records", "crashes_between_effects", "takeovers", "fenced_writes",
    "former_owners_lost", "paused_processes", "queued_while_paused", "failed_writes", "torn_writes", "unanswered_writes", "slow_writes",
    "snapshots", "recoveries_compared", "recoveries_compared_whole",
    # of the network
    "lost_frames", "duplicated_frames", "unordered_frames", "link_resets", "links_cut_one_way",
    "links_cut_both_ways", "frames_on_cut_links", "slow_peers", "frames_of_slow_peers",
    "lost_requests", "lost_answers", "lost_steps", "session_breaks", "duplicated_ticks",
    "ticks_of_older_streams", "held_links", "deaf_links", "story_moments",
    "forged_frames", "refused_frames", "reports_of_unknown_shards",
    "runs_with_nothing", "runs_with_columns", "runs_with_parts", "ticks_applied_one_by_one", "runs_taken_in_part",
    # of releases
    "processes_upgraded", "processes_taken_back", "frames_for_older_releases", "frames_refused_by_older_releases",
    "upgrades_finished", "upgrades_finished_again", "upgrades_finished_too_early", "upgrades_left_unfinished",
    "older_releases_after_all_is_finished", "older_releases_refused_by_stores", "older_releases_refused_by_others",
    "older_newcomers", "older_newcomers_refused",
    # of clocks and fronts
    "skewed_clocks", "clock_steps", "clock_steps_back", "late_fronts", "silent_fronts", "busy_fronts", "cut_off_fronts", "vacant_places",
    "fronts_gone", "evicted_fronts", "evicted_fronts_going_on", "batches_committed_after_eviction",
    "late_items", "late_consumptions", "consumed_ahead", "consumed_of_evicted_fronts",
    "consumed_ahead_and_late", "consumed_ahead_and_committed", "given_up_as_never_created", "restarts",
    "restarts_with_evictions", "restarts_of_eager_trees", "flushes_of_an_older_generation",
    "steps_of_an_older_generation", "restarts_behind_evictions", "restarts_amid_completion", "nodes_restarted", "retired_nodes",
    "changed_pipelines", "changed_otherwise", "segments_added", "segments_removed", "sources_added", "ways_that_are_gone", "gone_ways_tried", "new_ways_tried", "ways_tried_and_taken", "ways_tried_and_refused", "created_below_what_was_said_without_the_edge", "written_off_cells", "written_off_again", "fronts_too_late", "ids_used_again",
    "fronts_leaving_ungranted", "fronts_joining_elsewhere",
    # of nodes, tasks and local trackers
    "node_crashes", "worker_crashes", "local_tracker_crashes", "steps_handed_over_again",
    "merged_flushes", "flushes_recorded_ahead", "steps_after_those_recorded", "flushes_left_recorded",
    "batches_taken_up_again", "retried_tasks", "doubly_evaluated_batches",
    "stages_run_again_in_part", "repeated_batches", "batches_of_old_scopes", "zombies", "strangers",
    "witnesses",
    # of what holds time
    "loops_ended_by_their_bound", "rounds_asked_for_beyond_the_last",
    "holds_begun", "holds_moved", "holds_let_go", "holds_found_again", "holders_dying",
    "eager_holds_begun", "eager_holds_moved", "eager_holds_let_go", "eager_holds_found_again",
    "eager_holders_dying",
    # what has to be refused, and was
    "bad_ticks", "wrong_homes", "unknown_pipelines", "bad_registrations", "refused_rolled_back",
    "refused_below_min_time", "created_below_what_was_heard", "holds_begun_too_late", "holds_late_elsewhere", "deleted_pipelines", "registered_after_deletion",
    "late_holds_named_again", "refused_beyond_horizon", "refused_unknown_segment",
    "refused_unknown_front", "refused_unknown_node", "refused_out_of_order", "refused_complete",
    "refused_conflict", "refused_fenced", "refused_strangers", "refused_witnesses",
    # limits that were reached
    "full_nodes", "full_where_items_have_children", "full_open_cells", "full_open_units", "full_frames", "frames_full_by_bytes",
    "moves_in_pieces", "full_links", "full_windows", "full_local_trackers",
    "congested_ticks", "full_backlogs", "messages_of_ticks",
    # of shards that come and go
    "joining_shards", "bootstraps", "newcomers_that_never_come",
    "newcomers_dying_before_they_begin", "newcomers_too_late", "newcomers_asking_who_pins", "peers_dying_after_a_bootstrap",
    "rescales", "evacuations", "rescales_without_processes", "shards_left", "sent_to_another_home",
    "told_before_durable", "crashes_losing_what_was_told",
    # of operators who do one thing upon the other
    *(kind for kind in STORM_KINDS if kind not in SELDOM),
    # of pipelines that move between groups
    *MOVE_KINDS, *AMID_KINDS,
    # of shards that never come back
    "lost_shards", "lost_sequencers", "shards_lost_amid_a_change", "pipelines_going_on_without_a_shard",
    "pipelines_held", "lost_shards_without_a_bound",
)  # fmt: skip
"""Every kind of fault, refusal and limit; each must have happened in a run of some length."""

_CHUNK = 25
_KEPT_FAILURES = 100
_TRACE_LINES = 60


@dataclass(frozen=True)
class Found:
    """A failed seed: the kind of failure (one of KINDS), and what was wrong."""

    seed: int
    kind: str
    message: str


@dataclass
class Summary:
    """What came of a range of seeds."""

    schedules: int = 0
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Found] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, other: Summary) -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.counts += other.counts
        self.kinds += other.kinds
        kept = sorted(self.failures + other.failures, key=lambda found: found.seed)
        self.failures = kept[:_KEPT_FAILURES]

    @property
    def zero_kinds(self) -> list[str]:
        """The kinds of faults that have not happened."""
        return [name for name in FAULT_KINDS if not self.counts[name]]

    def line(self) -> str:
        """The one line that says it all."""
        said = [f"schedules={self.schedules}", f"steps={self.steps}"]
        said += [f"{name}={self.counts[name]}" for name in ("announcements", *FAULT_KINDS)]
        said += [f"{kind}={self.kinds[kind]}" for kind in KINDS]
        return " ".join(said)

    def as_data(self) -> dict[str, Any]:
        """Everything, as plain data that can be written and read again."""
        return {
            "schedules": self.schedules,
            "steps": self.steps,
            "kinds": {kind: self.kinds[kind] for kind in KINDS},
            "counts": dict(sorted(self.counts.items())),
            "failures": [asdict(found) for found in self.failures],
        }

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Summary:
        """The inverse of `as_data`."""
        return cls(
            data["schedules"],
            data["steps"],
            Counter(data["counts"]),
            [Found(**found) for found in data["failures"]],
            Counter(data["kinds"]),
        )


def simulator_of(seed: int, *, traced: bool = False) -> Simulator:
    """The run of a seed, before it begins."""
    loss, rescale = loses(seed), rescales(seed)
    kind: type[Simulator]
    if moves(seed):
        kind = moving_kind(seed, loses=loss, rescales=rescale)
    else:
        kind = LosingSimulator if loss else RescalingSimulator if rescale else Simulator
    return kind(seed, traced=traced)


def run_seed(seed: int) -> Summary:
    """Runs one seed in this process."""
    simulator, result = simulator_of(seed), Summary(schedules=1)
    try:
        simulator.run()
    except Exception as error:  # whatever the core raises is a finding, not the end of the search
        kind = error.kind if isinstance(error, Failure) else "broken"
        result.kinds[kind] = 1
        result.failures.append(Found(seed, kind, f"{type(error).__name__}: {error}"[:2000]))
    result.steps, result.counts = simulator.steps, simulator.counts
    return result


def _run_chunk(task: tuple[range, str | None]) -> Summary:
    seeds, fault = task
    result = Summary()
    with FAULTS[fault]() if fault else contextlib.nullcontext():
        for seed in seeds:
            result.add(run_seed(seed))
    return result


def run_seeds(
    seeds: range, fault: str | None = None, workers: int | None = None
) -> Iterator[Summary]:
    """Runs seeds on `workers` processes (all cores if None); yields the summary of each chunk, in
    the order of the seeds."""
    yield from _run_tasks(_chunks(seeds, fault), workers)


def run_pieces(
    pieces: list[range], fault: str | None = None, workers: int | None = None
) -> Iterator[tuple[range, Summary]]:
    """Runs ranges of seeds; yields each with its summary when it is done, in their order."""
    tasks = [task for piece in pieces for task in _chunks(piece, fault)]
    results = _run_tasks(tasks, workers)
    for piece in pieces:
        total = Summary()
        while total.schedules < len(piece):
            total.add(next(results))
        yield piece, total


def _chunks(seeds: range, fault: str | None) -> list[tuple[range, str | None]]:
    return [(seeds[at : at + _CHUNK], fault) for at in range(0, len(seeds), _CHUNK)]


def _collect_seldom() -> None:
    """A run makes little garbage that needs the collector, and many small objects that it scans."""
    gc.freeze()
    gc.set_threshold(100_000)


def _run_tasks(tasks: list[tuple[range, str | None]], workers: int | None) -> Iterator[Summary]:
    if workers == 1 or len(tasks) <= 1:
        yield from map(_run_chunk, tasks)
        return
    # Forked workers would inherit the threads of a test run; spawned ones begin clean.
    context = multiprocessing.get_context("spawn")
    processes = workers or multiprocessing.cpu_count()
    with context.Pool(processes, initializer=_collect_seldom) as pool:
        yield from pool.imap(_run_chunk, tasks)


def run_range(seeds: range, fault: str | None = None, workers: int | None = None) -> Summary:
    """All seeds of a range."""
    total = Summary()
    for part in run_seeds(seeds, fault, workers):
        total.add(part)
    return total


def hunt(fault: str, seeds: range, workers: int | None = None) -> tuple[Found | None, int]:
    """The first failure that a planted fault leads to, and how many schedules it took."""
    for part in run_seeds(seeds, fault, workers):
        if part.failures:
            found = part.failures[0]
            return found, found.seed - seeds.start + 1
    return None, len(seeds)


def replay(seed: int, fault: str | None = None) -> tuple[list[str], Found | None]:
    """Runs one seed again: the last lines of its trace, and what it found."""
    with FAULTS[fault]() if fault else contextlib.nullcontext():
        simulator = simulator_of(seed, traced=True)
        try:
            simulator.run()
        except Exception as error:
            kind = error.kind if isinstance(error, Failure) else "broken"
            found = Found(seed, kind, f"{type(error).__name__}: {error}")
            return (simulator.trace or [])[-_TRACE_LINES:], found
    return (simulator.trace or [])[-_TRACE_LINES:], None
