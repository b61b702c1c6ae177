"""Storms: runs in which operators do one thing upon the other (rule 12).

In every fourth run a pipeline is changed, changed back, restarted, deleted and registered anew under its name, items of
it are given up, and the sequencer is sent away, again and again, at random moments and by weights; with whatever else
befalls a run, and with processes that lag or die about the very entries by which that happens. What meets what is counted:
each of `DEEDS` with each of `CIRCUMSTANCES`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.checkers import Failure
from tests.simulation.forms import Draw
from tests.simulation.plan import MS, QUICK, ROOMY, TIGHT, PipelinePlan, Plan
from tests.simulation.rounds import looping
from tracker.core.log import (
    Entry,
    HomeEntry,
    PipelineChanged,
    PipelineDeleted,
    PipelineRegistered,
    PipelineRestarted,
    PipelinesOver,
    Record,
    RegisterPipeline,
    ShardReport,
    WrittenOff,
)
from tracker.core.log.steps import SequencerBegun, SequencerMoved
from tracker.core.model import PipelineSpec, RefusalCode, TimeKind
from tracker.core.pipeline.change import changes_graph, is_activated

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator

EVERY = 4
"""Of so many runs, one."""
PAUSE_NS = 1.7 * MS
"""Between two things that operators do, on average."""
LAST_BACK_SHARE = 0.5
"""How often the last change is one back to what was registered."""
LOOK_AGAIN_NS = 1 * MS
STAYS_SHARE = 0.15
"""How often it does not change any more, where somebody could try what is refused by then."""
AWAITS_OTHERS_SHARE = 0.2
"""Of the changes that do not concern segments and edges, how many are of the fronts that are waited for."""
CHANGING_SHARE = 0.6
"""For which part of the faults segments and edges change: then it is tried what is refused by the last ones."""
CALM_NS = 5 * MS
"""How often it is looked after the pipeline when the faults are over."""
DIES_ABOUT_ENTRIES = 0.06
"""How often a process dies just before, or just after, an entry of these is durable."""

DEEDS = (
    "graph_changes", "other_changes", "restarts", "deletions", "names_used_again", "write_offs", "sequencers_moved",
)  # fmt: skip
CIRCUMSTANCES = (
    "a_dead_shard", "a_shard_that_lags", "shards_that_come_or_go", "evicted_fronts", "holds",
    "a_change_under_way",
)  # fmt: skip
NEVER = {
    ("write_offs", "evicted_fronts"),  # what is open of an evicted front is not lost
    ("names_used_again", "evicted_fronts"), ("names_used_again", "holds"),  # there is nothing of it yet
    ("names_used_again", "a_change_under_way"),
}  # fmt: skip
SELDOM = {
    "graph_changes_with_evicted_fronts", "names_used_again_with_a_dead_shard", "sequencers_moved_with_a_dead_shard",
    "sequencers_moved_with_evicted_fronts", "sequencers_moved_with_holds", "written_off_in_removed_segments",
    *(f"dead_{when}_sequencer_{what}_was_durable" for when in ("before", "after") for what in ("moved", "begun")),
}  # fmt: skip
"""Those that happen in a few of a thousand storms: they are counted, and need not happen in a run of some length."""
ENTRIES = {
    PipelineChanged: "changed", PipelineRestarted: "restarted", PipelineDeleted: "deleted",
    PipelinesOver: "over", PipelineRegistered: "registered", WrittenOff: "written_off",
    SequencerMoved: "sequencer_moved", SequencerBegun: "sequencer_begun",
}  # fmt: skip
STORM_KINDS = (
    *(
        f"{deed}_with_{circumstance}"
        for deed in DEEDS
        for circumstance in CIRCUMSTANCES
        if (deed, circumstance) not in NEVER
    ),
    *(f"dead_{when}_{name}_was_durable" for name in ENTRIES.values() for when in ("before", "after")),
    "changes_back_to_what_was_registered", "changes_back_to_an_earlier_form", "changes_upon_changes",
    "changes_where_the_one_before_is_not_over", "changes_with_rounds", "opened_or_closed_with_evicted_fronts",
    "other_fronts_awaited", "more_or_less_patient", "holding_or_evicting", "fronts_joining_what_is_removed", "shards_lost_in_storms", "names_given_twice_refused", "asked_what_would_be",
    "registered_as_at_first", "written_off_in_removed_segments", "written_off_beside_holds", "sequencers_moved_again",
    "restarts_asked_for_during_changes", "changes_asked_for_during_restarts", "deletions_asked_for_during_changes",
)  # fmt: skip
"""Each must have happened in a run of some length."""


def with_storm(plan: Plan) -> Plan:
    """The plan of a run, as a storm where it is one: something to change, and time for that."""
    if plan.seed % EVERY != EVERY - 1 or plan.story:
        return plan
    rng = random.Random(f"storm {plan.seed}")
    shards = rng.choice([1, 2, 2, 3, 3, 3])
    rounds = rng.random() < 0.12
    faults_for_ns = rng.randint(30, 60) * MS
    return replace(
        plan,
        storm=True,
        shards=shards,
        slow_links={(a, b): rng.choice([1.0, 1.0, 8.0]) for a in range(4) for b in range(4)},
        config=rng.choice([QUICK, QUICK, QUICK, ROOMY, TIGHT]),
        latency_ns=rng.choice([0.2, 0.2, 0.5]) * MS,
        commit_ns=rng.choice([0.3, 0.3, 1.5]) * MS,
        loss=rng.choice([0.0, 0.0, 0.02]),
        process_crashes=rng.choice([0, 0, 1]),
        takeovers=rng.choice([0, 0, 0, 1]),
        downtime_ms=rng.choice([3, 3, 15]),
        pause_ns=1.0 * MS,
        front_pause_ns=faults_for_ns / rng.choice([5, 8, 12]),
        pipelines=tuple(_stormy(rng, each, rounds=rounds) for each in plan.pipelines[:1]),
        faults_for_ns=faults_for_ns,
        retirements=0,
    )


def _stormy(rng: random.Random, pipeline: PipelinePlan, *, rounds: bool) -> PipelinePlan:
    """A pipeline with a way to cut, and fronts of which some stay."""
    spec = replace(
        pipeline.spec,
        time=rng.choice([TimeKind.ARRIVAL, TimeKind.EVENT]),
        max_open_cells=1_000,
        max_open_units=1_000,
        max_nodes=1_000,
    )
    stays = not spec.evicts or rng.random() < 0.5
    fronts = tuple(
        replace(
            front, leaves=front.leaves and not (stays and n == 0), batches=rng.choice([1, 3, 5])
        )
        for n, front in enumerate(pipeline.fronts)
    )
    plain = "plain" if rng.random() < 0.7 or rounds else pipeline.kind
    pipeline = replace(
        pipeline,
        spec=spec,
        fronts=fronts,
        kind=plain,
        visitors=0,
        hops=rng.choice([3, 4, 6]),
        unit_share=0.0 if plain == "eager" else pipeline.unit_share,
        restarts=0,
        limit_changes=0,
        write_offs=0,
    )
    can_loop = rounds and not spec.evicts and pipeline.kind != "queries"
    return looping(rng, pipeline) if can_loop else pipeline


class Storm:
    """What operators do in one run."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.rng = random.Random(f"storming {sim.plan.seed}")
        self.dies_rng = random.Random(f"dying in storm {sim.plan.seed}")
        self._lags_until = 0
        self._moves = 0
        self._changes_until = 0
        name = sim.plan.pipelines[0].spec.name
        self.name = name
        deeds: list[tuple[float, Callable[[], None]]] = [
            (6, self._change), (3, self._chain), (4, self._change_otherwise), (1, sim.operator.retire_some),
            (1.2, self._restart), (2, self._write_off),
            (1.5, self._change_and_restart), (3, self._lag), (2, self._kill), (0.6, self._ask_what_would_be), (0.6, self._register_as_at_first),
            (0.6, self._give_a_name_twice), (1.5, sim.send_sequencer_away),
        ]  # fmt: skip
        if sim.plan.pipelines[0].kind == "plain":
            deeds += [(1, self._delete), (1, self._add_sources)]
        self._deeds = deeds

    def begin(self) -> None:
        """The faults begin."""
        self._changes_until = self.sim.now + int(CHANGING_SHARE * self.sim.plan.faults_for_ns)
        if self.rng.random() < LAST_BACK_SHARE:
            self.sim.after(self._changes_until - self.sim.now, self._change_back)
        self._soon()

    def _change_back(self) -> None:
        """The last change makes the pipeline what was registered."""
        changes = self.sim.operator.changes_to(self.name)
        if self.sim.now > self._changes_until + MS:
            return
        if self.sim.faulty and (changes.busy or changes.undecided or changes.others):
            self.sim.after(LOOK_AGAIN_NS, self._change_back)
        elif self.sim.faulty:
            first = changes.earlier[0]
            changes.begin(lambda spec: changes.forms.back(spec, first, adds_only=changes.adds_only))

    def changes_no_more(self, pipeline: str) -> bool:
        """Whether its segments and edges stay as they are: they do, now and then, from when somebody asks."""
        changes = self.sim.operator.changes_to(pipeline)
        if changes.busy or changes.undecided or changes.chain or not self.sim.faulty:
            return False
        if changes.world.gone and self.dies_rng.random() < STAYS_SHARE:
            self._changes_until = self.sim.now - 1
        return self.sim.now > self._changes_until

    def _soon(self) -> None:
        self.sim.after(int(self.rng.expovariate(1.0) * PAUSE_NS) + 1000, self._act)

    def _act(self) -> None:
        if not self.sim.faulty:
            self._calm_down()
            return
        (deed,) = self.rng.choices(
            [deed for _, deed in self._deeds], [weight for weight, _ in self._deeds]
        )
        deed()
        self._soon()

    @property
    def is_over(self) -> bool:
        """Whether the pipeline is as it may stay: where fronts may end for good, those that do are evicted."""
        world = self.sim.worlds[self.name]
        return world.spec.evicts or not world.evicts

    def _calm_down(self) -> None:
        """The faults are over; what was asked for before may still be decided on."""
        if self.sim.resting:
            return
        if not self.is_over:
            changes = self.sim.operator.changes_to(self.name)
            changes.begin(changes.forms.holding_or_evicting)
        self.sim.after(CALM_NS, self._calm_down)

    # --- changes ----------------------------------------------------------------------------------

    def _change(self) -> None:
        changes = self.sim.operator.changes_to(self.name)
        if self._restarts:
            self.sim.count("changes_asked_for_during_restarts")
        changes.begin(self._draw_graph)

    def _chain(self) -> None:
        """Some changes, each as soon as the one before has an answer; somebody lags, or is dead."""
        changes = self.sim.operator.changes_to(self.name)
        if changes.busy or changes.undecided:
            return
        if self.rng.random() < 0.7:
            self._lag()
        if self.rng.random() < 0.2:
            self._kill()
        changes.chain = [self._draw_graph for _ in range(self.rng.choice([1, 1, 2]))]
        changes.begin(self._draw_graph)

    def _add_sources(self) -> None:
        """Two segments that a new front is to feed, one by way of the other; and that way goes as the front joins."""
        changes = self.sim.operator.changes_to(self.name)
        if changes.busy or changes.undecided or self.sim.now > self._changes_until:
            return
        if self.rng.random() < 0.7:
            self._lag()
        changes.chain = [changes.forms.apart]
        changes.begin(changes.forms.with_sources)

    def _change_and_restart(self) -> None:
        """A restart is decided on just behind a change of what is waited for; somebody hears of one before the other."""
        changes = self.sim.operator.changes_to(self.name)
        if changes.busy or changes.undecided or changes.others:
            return
        if self.rng.random() < 0.7:
            self._lag()
        if self.rng.random() < 0.7:
            changes.await_others()
        else:
            changes.begin(changes.forms.with_source)
        self.sim.after(int(self.rng.random() * 2 * MS), self._restart)

    def _draw_graph(self, spec: PipelineSpec) -> PipelineSpec:
        if self.sim.now > self._changes_until:
            return spec
        changes = self.sim.operator.changes_to(self.name)
        forms, rng = changes.forms, self.rng
        draws: list[tuple[float, Draw]] = [
            (2, forms.grown), (2, forms.shortcut), (1, forms.with_source),
        ]  # fmt: skip
        takes_away: list[tuple[float, Draw]] = [(3, self._back)]
        if not changes.adds_only:
            draws += [(2, forms.cut), (1.5, forms.slowed)]
            takes_away += [(2, forms.shrunk)]
        draw = self._one_of(draws + takes_away)
        drawn = draw(spec)
        return self._one_of(draws)(drawn) if rng.random() < 0.25 else drawn

    def _one_of(self, draws: list[tuple[float, Draw]]) -> Draw:
        (draw,) = self.rng.choices([each for _, each in draws], [weight for weight, _ in draws])
        return draw

    def _back(self, spec: PipelineSpec) -> PipelineSpec:
        changes = self.sim.operator.changes_to(self.name)
        earlier = (
            changes.earlier[0] if self.rng.random() < 0.5 else self.rng.choice(changes.earlier)
        )
        return changes.forms.back(spec, earlier, adds_only=changes.adds_only)

    def _change_otherwise(self) -> None:
        """What does not concern segments and edges."""
        changes, rng = self.sim.operator.changes_to(self.name), self.rng
        forms = changes.forms
        draws: list[Draw] = [
            forms.limited,
            forms.later,
            forms.opened_or_closed,
            forms.opened_or_closed,
        ]
        if self.sim.worlds[self.name].evicts:
            draws += [forms.more_or_less_patient, forms.holding_or_evicting] * 2
        if rng.random() < AWAITS_OTHERS_SHARE:
            changes.await_others()
        else:
            changes.begin(rng.choice(draws))

    # --- what changes nothing ---------------------------------------------------------------------

    def _ask_what_would_be(self) -> None:
        spec = self._draw_graph(self.sim.worlds[self.name].spec)
        self._ask(RegisterPipeline(None, spec, True, check_only=True), "asked_what_would_be")

    def _register_as_at_first(self) -> None:
        """Whoever comes late with what was registered, and does not want to change it."""
        registered = self.sim.operator.changes_to(self.name).earlier[0]
        self._ask(RegisterPipeline(None, registered), "registered_as_at_first")

    def _give_a_name_twice(self) -> None:
        """A segment that was removed is not begun anew."""
        spec = self.sim.worlds[self.name].spec
        changes = self.sim.operator.changes_to(self.name)
        if not spec.removed or changes.undecided:
            return
        again = replace(spec, removed=spec.removed[1:])
        self._ask(RegisterPipeline(None, again, True), "names_given_twice_refused")

    def _ask(self, event: RegisterPipeline, what: str) -> None:
        sim = self.sim
        if sim.resting or self.name not in sim.registered:
            return
        refused = what == "names_given_twice_refused"

        def hear(result: object) -> bool:
            code = getattr(result, "code", None)
            if code in (RefusalCode.NOT_READY, RefusalCode.NOT_HOME):
                return True
            if refused and code is None:
                raise Failure("broken", f"a name that was removed was given twice: {result}")
            sim.count(what)
            return False

        sim.operator.ask_to_change(event, hear)

    # --- what else befalls it ---------------------------------------------------------------------

    @property
    def _restarts(self) -> bool:
        return self.sim.operator.asks_for_a_restart(self.name)

    def _restart(self) -> None:
        if self.sim.operator.changes_to(self.name).busy:
            self.sim.count("restarts_asked_for_during_changes")
        self.sim.operator.restart(self.sim.worlds[self.name].spec)

    def _delete(self) -> None:
        if self.sim.operator.changes_to(self.name).busy:
            self.sim.count("deletions_asked_for_during_changes")
        self.sim.operator.delete(self.name)

    def _write_off(self) -> None:
        """Not of a query, of which what its tasks have staged would go, too."""
        world, kind = self.sim.worlds[self.name], self.sim.plan_of(self.name).kind
        if not world.evicts and kind != "queries":
            self.sim.operator.write_off(world.spec)

    def _kill(self) -> None:
        """A process dies: as often as not the registrar."""
        sim = self.sim
        registrar = sim.shards[sim.registrar(self.name)]
        shard = registrar if self.rng.random() < 0.4 else self.rng.choice(sim.present)
        if shard.running is not None and len([s for s in sim.present if s.running is None]) < 2:
            sim.count("crashes")
            sim.kill(shard.running)

    def _lag(self) -> None:
        """One shard hears late how far others are, or what the registrar decides; or its store is slow; or it
        stands still."""
        sim, rng = self.sim, self.rng
        if len(sim.present) < 2:
            return
        registrar = sim.registrar(self.name)
        others = [shard for shard in sim.present if shard.number != registrar]
        shard = rng.choice(others) if others and rng.random() < 0.8 else rng.choice(sim.present)
        span = sim.milliseconds(5, 25)
        self._lags_until = max(self._lags_until, sim.now + span)
        how = rng.choice(["reports", "reports", "held", "stalled", "paused"])
        for other in sim.present:
            if other is shard:
                continue
            if how == "reports":
                sim.deafen_link(other.number, shard.number, span, ShardReport)
            elif how == "held":
                sim.hold_link(other.number, shard.number, span)
        if how == "stalled":
            sim.stall_store(shard.number, span)
        elif how == "paused" and shard.running is not None:
            sim.pause_process(shard.running, span)

    # --- what is durable --------------------------------------------------------------------------

    def dies_about(self, records: list[Record]) -> str:
        """Whether a process dies when what it writes is not durable yet ("before"), or just is ("after")."""
        kinds = [
            ENTRIES[type(r.entry)]
            for r in records
            if isinstance(r, HomeEntry) and type(r.entry) in ENTRIES
        ]
        if not kinds or not self.sim.faulty or self.dies_rng.random() >= 2 * DIES_ABOUT_ENTRIES:
            return ""
        when = self.dies_rng.choice(["before", "after"])
        for kind in kinds:
            self.sim.count(f"dead_{when}_{kind}_was_durable")
        return when

    def durable(self, entry: Entry) -> None:
        """An entry is durable, and nothing has followed from it yet."""
        deed = self._deed(entry)
        if deed:
            for circumstance in self._circumstances(entry):
                self.sim.count(f"{deed}_with_{circumstance}")

    def _deed(self, entry: Entry) -> str:
        sim = self.sim
        if isinstance(entry, PipelineChanged):
            return "" if entry.activated else self._deed_of_change(entry)
        if isinstance(entry, PipelineRestarted):
            return "restarts"
        if isinstance(entry, PipelineDeleted):
            return "deletions"
        if isinstance(entry, PipelineRegistered):
            return "names_used_again" if entry.restart is not None else ""
        if isinstance(entry, WrittenOff):
            if len(entry.cells) and sim.worlds[entry.pipeline].holds:
                sim.count("written_off_beside_holds")
            return "write_offs" if len(entry.cells) else ""
        if isinstance(entry, SequencerMoved):
            self._moves += 1
            if self._moves > 1:
                sim.count("sequencers_moved_again")
            return "sequencers_moved"
        return ""

    def _deed_of_change(self, entry: PipelineChanged) -> str:
        sim, changes = self.sim, self.sim.operator.changes_to(entry.pipeline)
        before, spec = sim.worlds[entry.pipeline].spec, entry.spec
        if not changes_graph(before, spec):
            evicted = any(f.evicted for f in sim.worlds[entry.pipeline].fronts.values())
            for what, happened in {
                "opened_or_closed_with_evicted_fronts": evicted and spec.open != before.open,
                "holding_or_evicting": spec.silent_front != before.silent_front,
                "other_fronts_awaited": is_activated(before, spec),
                "more_or_less_patient": spec.silent_front == before.silent_front
                and spec.evict_after_ms != before.evict_after_ms,
            }.items():
                sim.counts[what] += happened
            return "other_changes"
        there = {*changes.forms.there(spec)}, {*spec.edges}
        forms = [({*changes.forms.there(each)}, {*each.edges}) for each in changes.earlier]
        under_way = self._changes_under_way(entry.pipeline)
        for what, happened in {
            "changes_back_to_what_was_registered": there == forms[0],
            "changes_back_to_an_earlier_form": there in forms[1:],
            "changes_with_rounds": spec.rounds > 1,
            "changes_where_the_one_before_is_not_over": under_way,
            "changes_upon_changes": changes.is_chained,
        }.items():
            sim.counts[what] += happened
        return "graph_changes"

    def _changes_under_way(self, name: str) -> bool:
        known = (self.sim.pipeline_at(shard.number, name) for shard in self.sim.present)
        return any(p is not None and p.graph_change.is_under_way for p in known)

    def _circumstances(self, entry: Entry) -> list[str]:
        sim = self.sim
        world = sim.worlds[self.name]
        there = {
            "a_dead_shard": any(shard.running is None for shard in sim.present),
            "a_shard_that_lags": sim.now < self._lags_until,
            "shards_that_come_or_go": sim.is_rescaling,
            "evicted_fronts": any(front.evicted for front in world.fronts.values()),
            "holds": bool(world.holds),
            "a_change_under_way": self._changes_under_way(self.name),
        }
        return [circumstance for circumstance, is_so in there.items() if is_so]
