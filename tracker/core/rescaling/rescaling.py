"""Shards come and go: what a process does of itself, and what each step changes (rule 10).

Every step is an entry of a home log, and what a process does next follows from the steps that it has
applied: a process that dies between two of them goes on where it was. It takes one step at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NoReturn

from tracker.core.admission.confirmations import Confirmations, waiting_requests
from tracker.core.admission.nodes import Nodes
from tracker.core.admission.sessions import Sessions
from tracker.core.config import MS, ProcessConfig
from tracker.core.cut.stable import StableCut
from tracker.core.log import (
    Answer,
    DeclareLost,
    Effect,
    EndMove,
    FinishUpgrade,
    JoinShard,
    KnowGroup,
    LeftTracker,
    MembersChanged,
    MovePipeline,
    MoveTerms,
    RescaleShards,
    SessionRefused,
    ShardNumber,
    steps,
)
from tracker.core.log.journal import Journal
from tracker.core.log.losses import LossDeclared, LossHeard, LossStep, ShardLost
from tracker.core.log.sizes import pieces, summary_bytes
from tracker.core.membership.shards import Shards
from tracker.core.membership.step_checks import check_step
from tracker.core.model import Refusal, RefusalCode, Refused
from tracker.core.model import durable as d
from tracker.core.model.levels import MOVES
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT
from tracker.core.moving.directory import Directory
from tracker.core.moving.moves import Moves
from tracker.core.pipeline.homes import Homes, losing
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.replication.replication import Replication
from tracker.core.reporting.reporter import Reporter
from tracker.core.rescaling.hand_over import HandOver
from tracker.core.rescaling.losing import Losing
from tracker.core.rescaling.upgrade import check_newcomer, check_spoken


@dataclass(slots=True, eq=False)
class Rescaling:
    """Takes the next step of a change, and applies each."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _cut: StableCut
    _replication: Replication
    _reporter: Reporter
    _homes: Homes
    _confirmations: Confirmations
    _nodes: Nodes
    _sessions: Sessions
    _hand_over: HandOver
    _losing: Losing
    _moves: Moves
    _directory: Directory
    _config: ProcessConfig
    _effects: list[Effect]
    _step_appended: int = d.forgotten("it is durable, or lost", default=0)
    """Number of the own entry by which this process goes on with a change of the shards: until it
    is durable it does nothing more about it."""
    _handing_over_from: int = d.forgotten("all up to it is durable, or lost", default=0)
    """Position of the last record that may change nodes that are to be handed over."""
    _joining_since_ns: dict[int, int] = d.forgotten(d.A_MOMENT, dict)
    _numbered: dict[int, str] = d.forgotten(
        "a process that asks again is given another number", dict
    )
    """By shard that this process has given its number: which process has asked for it."""
    _rescales: deque[tuple[Hashable, tuple[int, ...]]] = d.forgotten(d.ASKS_AGAIN, waiting_requests)
    """Requests for a number of shards, and the shards that they wait for."""

    def request(
        self,
        event: JoinShard
        | RescaleShards
        | FinishUpgrade
        | DeclareLost
        | MovePipeline
        | EndMove
        | KnowGroup,
    ) -> None:
        """Answers or begins what is asked of the sequencer; refuses it elsewhere. That shards are lost, the smallest one
        that is left declares, whatever is under way."""
        try:
            if isinstance(event, DeclareLost):
                if (declared := self._losing.declare(event)) is not None:
                    self.step(declared)
                return
            known = self._shards.membership
            if self._shards.own != known.sequencer:
                raise Refused(
                    RefusalCode.NOT_HOME,
                    f"shards come and go by the word of shard {known.sequencer}",
                    home=known.sequencer,
                )
            if known.loss is not None:
                raise Refused.of(losing("another number of shards", known.loss.lost))
            if not known.is_led:
                raise Refused(
                    RefusalCode.NOT_READY,
                    f"shard {known.sequencer} is about to decide which shards come and go; ask again",
                )
            if isinstance(event, JoinShard):
                self._join_shard(event)
            elif isinstance(event, FinishUpgrade):
                self._raise_level(event)
            elif isinstance(event, KnowGroup):
                # Behind the word that another one is the sequencer, what this one logs may be heard after what that one logs.
                self._need_no_step(f"group {event.group.group}")
                self._directory.know(event)
            elif isinstance(event, MovePipeline | EndMove):
                self._move(event)
            else:
                self._rescale(event)
        except Refused as refused:
            self._effects.append(Answer(event.request, refused.refusal))

    def _move(self, event: MovePipeline | EndMove) -> None:
        self._need_no_step(f"pipeline {event.pipeline!r}")
        known, terms = self._shards.expected(), None  # as the step is judged
        step: steps.MembershipStep | None
        if isinstance(event, MovePipeline):
            step = self._moves.move(event)
            self._homes.need_level(MOVES, f"pipeline {event.pipeline!r}")
            number = known.moving[event.pipeline].number if step is None else step.number
            terms = MoveTerms(known.table, tuple(sorted(known.members)), number)
        else:
            step = self._moves.end(event)
        if step is not None:
            self._step_asked_for(step)
        self._confirmations.answer(event.request, terms)

    def _raise_level(self, event: FinishUpgrade) -> None:
        """Where a shard records by an older level than this one, since it began by itself, the step is logged again."""
        links = self._replication.links.values()
        least = min([self._shards.membership.level, *(link.level for link in links)])
        if event.level > least:
            self._need_no_step(f"feature level {event.level}")
            check_spoken(event.level, self._shards, self._replication.links)
            self.step(steps.FeatureLevelRaised(event.level))
        self._confirmations.answer(event.request, None)

    def _join_shard(self, event: JoinShard) -> None:
        known = self._shards.membership
        check_newcomer(event, known.level)
        for shard, (address, number) in known.joining.items():
            if address == event.address:
                if self._replication.links[shard].confirmed >= number:
                    # What it has confirmed, nobody keeps for it: it must not begin a second time.
                    raise _there_already(shard, address)
                if event.process and event.process != self._numbered.get(shard):
                    self._give_up(shard, address)
                self._confirmations.answer(event.request, ShardNumber(shard))
                return
        self._need_no_step("another shard")
        # Whoever leaves is gone before another one begins: to a newcomer its last word may be of a generation before.
        leaves = known.draining and known.draining.isdisjoint(known.table.owning)
        if leaves or not known.is_settled:
            raise Refused(
                RefusalCode.NOT_READY,
                "another shard has to wait: the shards are changing; ask again",
            )
        for shard in known.members:
            if known.addresses.get(shard) == event.address:
                raise _there_already(shard, event.address)
        if (there := len(known.with_newcomers)) >= steps.MAX_SHARDS:
            raise Refused(
                RefusalCode.FULL,
                f"the tracker has {there} shards, the limit is {steps.MAX_SHARDS}",
            )
        given = ShardNumber(self._shards.expected().next_shard)
        self._step_asked_for(steps.ShardJoining(given.shard, event.address))
        self._numbered[given.shard] = event.process
        # Whoever hears its number is known to all: where this shard is lost, the number is not given again.
        self._confirmations.answer(event.request, given)

    def _give_up(self, shard: int, address: str) -> NoReturn:
        """A number is of one process, and its store. Homes may have heard of the one before what this one does not have, and would
        send it no more of that. Raises Refused."""
        self._need_no_step("another shard")
        self.step(steps.ShardRemoved(shard))
        raise Refused(
            RefusalCode.NOT_READY,
            f"shard {shard} was to be a process that was started at {address} before this one, and is given up; ask again",
        )

    def _step_asked_for(self, step: steps.MembershipStep) -> None:
        """Logs a step; raises Refused(INVALID) for one that no other shard would take, as all would stop by it."""
        check_step(self._shards.expected(), self._shards.own, step, self._shards.own)
        self.step(step)

    def _need_no_step(self, what: str) -> None:
        if self._step_appended > self._journal.home_last:
            raise Refused(
                RefusalCode.NOT_READY,
                f"{what} has to wait: a change of shards is under way; ask again",
            )

    def _rescale(self, event: RescaleShards) -> None:
        known = self._shards.membership
        now = known.table.shards
        target = self._target(event.shards, {*event.without})
        if known.asked is not None and known.asked.shards == target:
            self._rescales.append((event.request, target))
            return
        self._need_no_step(f"a rescale to {event.shards} shards")
        if known.asked is not None or not known.is_done or known.leaving is not None:
            if now == target and known.asked is None:
                self._rescales.append((event.request, target))
                return
            raise Refused(
                RefusalCode.NOT_READY,
                f"a rescale to {event.shards} shards has to wait: one to "
                f"{len(known.asked.shards if known.asked else now)} is under way; ask again",
            )
        if known.moving and now != target:
            raise Refused(
                RefusalCode.NOT_READY,
                f"a rescale to {event.shards} shards has to wait: pipelines {sorted(known.moving)[:10]} are on their way between "
                "groups; ask again",
            )
        owning = known.draining & {*known.table.owning}
        if now == target and event.evacuate and owning and not (known.joining or known.moving):
            self.step(steps.RoutingChanged(known.table.without(known.draining)))
            self._rescales.append((event.request, target))
        elif now == target:
            self._effects.append(Answer(event.request, known.table))
        elif known.joining:
            raise Refused(
                RefusalCode.NOT_READY,
                f"a rescale to {event.shards} shards has to wait: shards {sorted(known.joining)} are "
                "joining; ask again",
            )
        elif known.draining:
            raise Refused(
                RefusalCode.NOT_READY,
                f"a rescale to {event.shards} shards has to wait: shards {sorted(known.draining)} are "
                "still draining; ask again, or let them hand over what is open with --evacuate",
            )
        else:
            self.step(steps.RescaleProposed(known.table.version + 1, target, event.evacuate))
            self._rescales.append((event.request, target))

    def _target(self, number: int, without: set[int]) -> tuple[int, ...]:
        known = self._shards.membership
        if number < 1:
            raise Refused(RefusalCode.INVALID, f"a tracker needs at least 1 shard, not {number}")
        if strangers := sorted(without - known.members - known.former.keys() - known.lost.keys()):
            raise Refused(
                RefusalCode.INVALID,
                f"shard {strangers[0]} is to go, and is none; the shards are {sorted(known.members)}",
            )
        now = tuple(shard for shard in known.table.shards if shard not in without)
        if number <= len(now):
            return now[:number]
        spare = sorted(known.members - set(now) - known.draining - without)
        if known.asked is not None:
            spare = sorted({*spare, *known.asked.shards} - set(now) - without)
        coming = sorted(self._shards.expected().joining)
        if len(now) + len(spare) < number <= len(now) + len(spare) + len(coming):
            raise Refused(
                RefusalCode.NOT_READY,
                f"a rescale to {number} shards has to wait: shards {coming} are joining; ask again",
            )
        if len(now) + len(spare) < number:
            raise Refused(
                RefusalCode.FULL,
                f"{number} shards are asked for, and {len(now) + len(spare)} processes are there to "
                "have one; more have to join first",
            )
        return tuple(sorted((*now, *spare[: number - len(now)])))

    def step(self, entry: steps.MembershipStep) -> None:
        """Appends the next step, and takes no other before it is durable."""
        self._journal.append_home(entry)
        number = self._step_appended = self._journal.home_appended
        self._shards.record_step(self._journal.position, entry, self._shards.own, number)

    def restored(self) -> None:
        """Recovery has applied all that was appended."""
        self._handing_over_from = 0
        self._losing.restored()

    def go_on(self, now_ns: int) -> None:
        """Takes the next step of a change, if it is this shard's turn."""
        known = self._shards.membership
        if not self._shards.changing or self._step_appended > self._journal.home_last:
            return
        if self._shards.own in known.former:  # also where it never hears how the others go on
            links = self._replication.links.values()
            if any(link.confirmed >= self._journal.home_last for link in links):
                self._shards.part()
                self._effects.append(LeftTracker())
        elif known.loss is not None:
            for step in self._losing.next_steps():
                self.step(step)
        elif not self._shards.counts:
            return
        elif known.asked is not None and self._shards.own not in known.highest:
            self.step(steps.SlotBounds(known.asked.version, self._highest_slots()))
        elif known.table.version and self._shards.own not in known.adopted_at:
            if self._journal.committed >= self._handing_over_from:
                self._hand_over.give_nodes()
                adopted = steps.RoutingActivated(known.table.version, self._nodes.next_incarnation)
                self.step(adopted)
        elif self._shards.hands_over_cells():
            # Behind that it may be the home of nodes, which go by every change that any shard may take for over.
            sweeps = any(pipeline.sweeping for pipeline in self._pipelines.values())
            if not (sweeps or self._pipelines.unactivated):
                self._hand_over.give_cells()
                self.step(steps.HandoverFinished(known.table.version))
        elif known.leaving == self._shards.own:
            self._leave_tracker()
        elif self._shards.own == known.sequencer:
            self._lead(now_ns)

    def _highest_slots(self) -> tuple[tuple[str, int], ...]:
        """By pipeline that is not complete, the highest slot of anything that is known of it here."""
        highest = []
        for name, pipeline in self._pipelines.items():
            slots = [slot for slot in pipeline.announced if slot != FOREVER]
            if not slots:
                continue
            for state in pipeline.shard.fronts.values():
                slots.append(state.heartbeat)
            cells = pipeline.shard.cells.open_cells()
            if len(cells):
                slots.append(int(cells.slots.max()))
            highest.append((name, min(max(slots), HIGHEST_SLOT)))
        return tuple(highest)

    def _leave_tracker(self) -> None:
        """Logs the departure summaries, once nothing is left that this home has to answer for."""
        if self._journal.committed < self._handing_over_from or self._nodes.closed_keys:
            return
        if self._confirmations.waits or not self._homes.all_heard():
            return  # one that has not heard how all go on would pass over that it has left, and wait for it
        words = []
        for name, pipeline in self._pipelines.items():
            ledger = pipeline.shard.written_off
            words.append(
                steps.DepartureSummary(
                    name,
                    pipeline.restart,
                    tuple(pipeline.announced),
                    tuple(pipeline.shard.late.values()),
                    tuple(ledger.items.items()),
                )
            )
        *before, last = [*pieces(words, summary_bytes, self._config.max_bytes_per_move)] or [()]
        heir = self._shards.membership.sequencer
        for some in before:
            self.step(steps.DepartureSummarized(some, heir))
        self.step(steps.ShardLeft(tuple(self._replication.applied().items()), last, heir))

    def _lead(self, now_ns: int) -> None:
        """The sequencer's next step, when every shard has done its part of the one before."""
        known = self._shards.membership
        step: steps.MembershipStep | None = None
        if not known.is_led:
            step = steps.SequencerBegun(known.moves)
        elif known.asked is not None:
            if known.members <= known.highest.keys():
                step = steps.RoutingChanged(self._next_table(known.asked))
        elif not known.is_settled:
            return
        elif known.joining:
            # One that comes later than the table it would hear of is no part of the agreement on it:
            # it could hear of a node at its new home before it has heard all of the old one.
            step = self._step_of_joining(now_ns)
        elif known.draining:
            owning = known.draining & set(known.table.owning)
            if owning and all(self._has_drained(shard) for shard in owning):
                step = steps.RoutingChanged(known.table.without(owning))
            elif not owning:
                step = self._step_of_leaving()
        if step is not None:
            self.step(step)

    def _step_of_joining(self, now_ns: int) -> steps.MembershipStep | None:
        for shard, (_, number) in self._shards.membership.joining.items():
            since_ns = self._joining_since_ns.setdefault(shard, now_ns)
            # It has confirmed what it can have only from its peer's state; the others count it.
            if (
                min(
                    self._replication.confirmed_everywhere(),
                    self._replication.links[shard].confirmed,
                )
                >= number
            ):
                return steps.ShardJoined(shard)
            if now_ns - since_ns > self._config.join_timeout_ms * MS:
                return steps.ShardRemoved(shard)
        return None

    def _step_of_leaving(self) -> steps.MembershipStep:
        """The next shard of those that own nothing goes; the sequencer last, and another one in its place first."""
        known = self._shards.membership
        others = known.draining - {known.sequencer}
        if others:
            return steps.ShardLeaving(max(others))
        return steps.SequencerMoved(min(known.members - known.draining), known.moves + 1)

    def _has_drained(self, shard: int) -> bool:
        views = (pipeline.combiner.views[shard] for pipeline in self._pipelines.values())
        return all(v.heard and not any(low.open_slots for low in v.lows.values()) for v in views)

    def _next_table(self, asked: steps.RescaleProposed) -> RoutingTable:
        known = self._shards.membership
        highest: dict[str, int] = {}
        for told in known.highest.values():
            for name, slot in told.slots:
                highest[name] = max(slot, highest.get(name, slot))
        margin_ns = self._config.rescale_margin_ms * MS
        from_slots = {
            name: min(slot + 1 + margin_ns // self._pipelines[name].spec.slack_ns, HIGHEST_SLOT)
            for name, slot in highest.items()
            if name in self._pipelines
        }
        done = {name: min(self._pipelines[name].published) for name in from_slots}
        table = known.table.resized(asked.shards, from_slots, done)
        if asked.evacuate:
            gone = set(known.table.shards) - set(asked.shards)
            table = table.without(gone, version=table.version)
        return table

    def apply_step(self, entry: steps.MembershipStep, home: int, number: int, now_ns: int) -> None:
        """What entry `number` of a home's log changes, if it is a step by which shards come or go."""
        known = self._shards.membership
        loss = known.loss
        if isinstance(entry, LossStep):
            self._moves.before_loss(entry, now_ns)
            self._losing.before(entry, now_ns)
        elif isinstance(entry, steps.MoveEnded):
            self._moves.before(entry, home, number, now_ns)
            self._directory.let_go(entry.pipeline)
        match entry:
            case steps.ShardJoining() if entry.shard != self._shards.own:
                held = self._replication.held_everywhere()
                if home == self._shards.own:
                    held = min(held, number - 1)
                self._replication.open_link(entry.shard, held)
                self._effects.append(MembersChanged(entry.shard, entry.address))
            case steps.ShardRemoved() if entry.shard in self._replication.links:
                self._replication.close_link(entry.shard)
                self._joining_since_ns.pop(entry.shard, None)
                self._numbered.pop(entry.shard, None)
                self._effects.append(MembersChanged(entry.shard, None))
            case steps.NodesMoved():
                self._hand_over.take_nodes(entry, home, now_ns)
            case steps.CellsMoved():
                self._hand_over.take_cells(entry, home)
            case steps.RoutingActivated():
                self._nodes.reserve(entry.next_incarnation)
        known.apply(entry, home, number)
        match entry:
            case steps.ShardJoined():
                self._count_shard(entry.shard, (home, number), now_ns)
            case steps.RoutingChanged():
                self._handing_over_from = self._journal.position
                self._send_nodes_away()
            case steps.ShardLeaving():
                self._handing_over_from = self._journal.position
            case steps.RoutingActivated() if home == self._shards.own:
                self._replication.split_by(known.table, number + 1)
            case steps.DepartureSummarized() if home == self._shards.own:
                for words in entry.pipelines:
                    if words.pipeline in self._pipelines:
                        self._pipelines[words.pipeline].shard.give_ledgers(words)
            case steps.DepartureSummarized():
                self._hand_over.take_summaries(entry.pipelines, now_ns)
            case steps.ShardLeft() if home != self._shards.own:
                self._part_from(entry, home, now_ns)
            case LossDeclared() | LossHeard() | ShardLost():
                self._losing.after(entry, loss, home, number)
                self._refuse_rescales()
        self._moves.after(entry)
        for pipeline in self._pipelines.values():
            pipeline.shard.expect_names(known.hands_over)
        self._shards.record_change()
        self._reporter.record_step()
        if known.is_done and known.asked is None and self._rescales:
            for request, target in self._rescales:
                if target == known.table.shards:
                    self._effects.append(Answer(request, known.table))
            self._rescales = waiting_requests(
                r for r in self._rescales if r[1] != known.table.shards
            )

    def _refuse_rescales(self) -> None:
        """No table that was asked for comes into force where shards are lost meanwhile: it is asked for again."""
        loss = self._shards.membership.loss
        if loss is not None:
            refusal = losing("another number of shards", loss.lost)
            self._effects += [Answer(request, refusal) for request, _ in self._rescales]
            self._rescales.clear()

    def _count_shard(self, shard: int, said: tuple[int, int], now_ns: int) -> None:
        """A shard counts from here on. said: the home, and the number of its entry, that says so."""
        self._joining_since_ns.pop(shard, None)
        self._numbered.pop(shard, None)
        if shard == self._shards.own:
            # It may speak when it has heard from every other one after that one began to count it.
            self._cut.need([said])
            for other in self._replication.links:
                self._reporter.send_whole_report(other)
        else:
            self._cut.vectors.add_shard(shard)
            for pipeline in self._pipelines.values():
                pipeline.combiner.add_shard(shard)
            self._replication.links[shard].need_whole()
            # Others are asked at once, too, whose reports have named it too early.
            for other, link in self._replication.links.items():
                if link.needs_whole:
                    link.need_whole()
                    self._reporter.want_report(other, now_ns)
        self._pipelines.mark(*self._pipelines)

    def _send_nodes_away(self) -> None:
        """Ends the streams of nodes that are at home elsewhere from now on."""
        for session, (name, key) in self._sessions.items():
            home = self._shards.routing.home(name, key.node_id)
            if home != self._shards.own:
                message = f"pipeline {name!r}: node {key.node_id!r} is at home at shard {home}"
                refusal = Refusal(RefusalCode.NOT_HOME, message, home)
                self._effects.append(SessionRefused(session, refusal))
                self._sessions.detach(session)

    def _part_from(self, entry: steps.ShardLeft, shard: int, now_ns: int) -> None:
        """A shard has left. What it announced binds those that stay: it may have been the first to."""
        self._cut.need(entry.applied)
        self._cut.vectors.remove_shard(shard)
        self._replication.close_link(shard)
        self._hand_over.take_summaries(entry.pipelines, now_ns)
        for name, pipeline in self._pipelines.items():
            pipeline.combiner.remove_shard(shard)
            self._pipelines.mark(name)
        self._replication.let_part()
        self._effects.append(MembersChanged(shard, None))


def _there_already(shard: int, address: str) -> Refused:
    return Refused(
        RefusalCode.CONFLICT,
        f"shard {shard} is reached at {address}; start its process again with its own store, or join "
        "under another address",
        home=shard,
    )
