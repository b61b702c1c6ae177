"""Runs with two groups, between which pipelines move while everything else goes on (docs/groups.md).

The second group is a tracker of its own beside the first, which keeps the directory. An operator asks that pipelines move; whoever
leads a group goes on with its moves by the product's own driver, whose questions and answers are late, lost and repeated as any
message is, and which dies with its process. Now and then two of them go on with the same move, a move is given up from outside, and
somebody registers by a placement that is not valid any more. Pipelines are deleted, also as a move of them begins, and their names
are used again in either group.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests import inside
from tests.simulation.checkers import Failure
from tests.simulation.operators import deletes
from tests.simulation.plan import MS
from tests.simulation.processes import Group, Running, Shard
from tests.simulation.simulator import Simulator
from tests.simulation.stories import draw_plan
from tests.simulation.upgrading import draw_way
from tracker.core.log import (
    Answer,
    Event,
    HomeEntry,
    KeepPart,
    KeyTick,
    MovePipeline,
    PartKept,
    PipelineRegistered,
    Placed,
    PlacePipeline,
    Record,
    RegisterPipeline,
    Restart,
)
from tracker.core.log.losses import Move
from tracker.core.log.steps import MoveBegun, MoveEnded, MoveReady
from tracker.core.model import PipelineSpec, Refusal, RefusalCode, Refused
from tracker.core.model.placements import DIRECTORY_GROUP, NOWHERE, Placement
from tracker.core.model.routing import RoutingTable
from tracker.core.moving.driver import AWAY, Ask, Members, Pause, Piece, PieceWanted, Where, follow
from tracker.core.moving.parts import in_pieces

if TYPE_CHECKING:
    from tests.simulation.nodes import Node

SHARE = 0.1
"""Of all runs that have no story, storm or upgrade, those in which pipelines move."""
ASK_AGAIN_NS = 8 * MS
LOOK_NS = 3 * MS
"""How often a process that leads looks for moves that nobody goes on with."""
ANSWER_WITHIN_NS = 12 * MS
"""After which a question counts as not answered."""
LATE_DRIVERS_SHARE = 0.3
"""How often there is a driver beside another one that is late with all that it asks..."""
LATE_BY_NS = 40 * MS
"""... by so much at most."""
_MOST_ASKED = 40
"""How often an operator asks for a move that has to wait."""
MOVE_KINDS = (
    "moves_asked_for", "moves_asked_for_as_a_front_joins", "moves_begun", "arrivals_begun", "moved_pipelines", "moved_back", "moved_amid_items", "moved_amid_holds",
    "moves_that_stayed", "moves_given_up_from_outside", "moves_led_twice", "late_drivers_of_moves", "drivers_of_moves_that_were_over", "moves_refused", "deaths_about_moves",
    "lost_questions_of_moves", "lost_answers_of_moves", "repeated_questions_of_moves", "pieces_kept_beyond_the_first",
    "nodes_following", "subscribers_of_moved_pipelines", "registered_by_old_placements",
    "claims_of_known_names", "claims_refused_amid_moves",
)  # fmt: skip
"""What happens in these runs and in no others."""
DIES_ABOUT_STEPS = 0.15
"""How often a process dies just before or after a step of a move is durable."""
_STEPS = (MoveBegun, MoveReady, MoveEnded, Placed, PartKept)
_FOR_NOW = (RefusalCode.NOT_READY, RefusalCode.NOT_HOME)
_TOO_LATE = (RefusalCode.CONFLICT, RefusalCode.UNKNOWN_PIPELINE)
"""What an operator may be told who knows less than the group."""


def moves(seed: int) -> bool:
    """Whether pipelines move in the run of a seed. What else happens there says moving_amid.py."""
    if random.Random(f"moves {seed}").random() >= SHARE:
        return False
    plan = draw_plan(seed)
    return not plan.story and not plan.storm and draw_way(seed) is None


@dataclass(slots=True, eq=False)
class Drive:
    """Somebody who goes on with a move: the process, and what it waits for."""

    running: Running
    move: Move
    steps: Generator[Any, Any, str]
    asked: int = 0
    """The number of its last question, which is open while that is not answered."""
    is_late: bool = False
    """Whether it is slow, and goes on with what is over in its group."""


@dataclass(slots=True, eq=False)
class Wish:
    """An operator wants a pipeline in a group."""

    name: str
    target: Group
    asked: int = 0
    done: bool = False


class MovingSimulator(Simulator):
    """One run in which pipelines move."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        super().__init__(seed, traced=traced)
        self._move_rng = rng = random.Random(f"moving of {seed}")
        # So that moves are under way while there are faults.
        self.plan = replace(self.plan, groups=2, faults_for_ns=2 * self.plan.faults_for_ns)
        shards = rng.choice([1, 1, 2, 3])
        table = RoutingTable.uniform(shards, self.plan.block_slots)
        self.leave_room()
        self.groups.append(Group(1, len(self.shards), table))
        for _ in range(shards):
            shard = self.add_shard(self.groups[1])
            self.ledger.add_place(table, 1, self.groups[1].first)
            self._begin_store(shard)
        self._piece_bytes = rng.choice([60, 300, 100_000])
        self._drives: list[Drive] = []
        self._asked: dict[int, Drive] = {}
        """By number of a question whose it is."""
        self._questions = 0
        self.wanted: list[Wish] = []
        self._begins = {name: int(rng.random() < 0.3) for name in self._pipelines}
        """By pipeline the group in which somebody wants to register it."""
        self._lived: dict[str, int] = {}
        """The group in which it was registered last."""
        self._placed: dict[str, list[Placement]] = {name: [] for name in self._pipelines}
        """The placements in the second group by which somebody may register it."""
        for group in self.groups:
            self.after(LOOK_NS, self._look, group)

    def leave_room(self) -> None:
        """For shards that join the first group."""

    # --- where a pipeline lives -------------------------------------------------------------------

    def group_of(self, pipeline: str) -> Group:
        _, there = self.ledger.stays.placed.get(pipeline, (0, NOWHERE))
        return self.groups[self._begins[pipeline] if there == NOWHERE else there]

    def has_gone(self, node: Node) -> bool:
        return not self.lives_at(self.shards[node.home], node.world.spec.name)

    def not_at_home(self) -> None:
        self.count("sent_to_another_home")

    def asks_elsewhere(self, result: object) -> bool:
        """Whether whoever asked was told that the pipeline is in the other group, or on its way."""
        return isinstance(result, Refusal) and (
            result.code is RefusalCode.UNKNOWN_PIPELINE
            or (result.code is RefusalCode.CONFLICT and "belongs to group" in result.message)
            or (result.code is RefusalCode.NOT_READY and "on its way" in result.message)
        )

    def linked(self) -> list[int]:
        group = self.rng.choice(self.groups)
        return [shard.number for shard in self.present if shard.group is group]

    # --- who registers ----------------------------------------------------------------------------

    def _register(self, spec: PipelineSpec) -> None:
        placements = self._placed[spec.name]
        is_first = self.group_of(spec.name).number == DIRECTORY_GROUP
        if is_first or spec.name in self.registered or not self._is_newest(spec):
            super()._register(spec)
            return
        if placements:
            by = self._move_rng.choice(placements)
            event = RegisterPipeline(
                ("register", spec.name), spec, placed=by.version, above=by.above
            )
            self.call(None, self.registrar(spec.name), event)
        if (not placements or self._move_rng.random() < 0.3) and self._may_claim(spec.name):
            self._place_name(("place", spec.name), self._claim(spec.name))
        self.after(6 * MS, self._register, spec)

    def _may_claim(self, name: str) -> bool:
        """What the service of the name's registrar asks its process, having asked the directory."""
        group = self.groups[1]
        running = self.shards[group.first + self.routing_of(group).registrar(name)].running
        if running is None or running.process.placed(name):
            return False
        try:
            running.process.check_claims(name)
        except Refused:
            self.count("claims_refused_amid_moves")
            return False
        return True

    def _claim(self, name: str) -> PlacePipeline:
        """By what the directory says of the name, which may be over when this comes; or by what it once said."""
        version, group = self._says_of(name)
        if self._placed[name] and self._move_rng.random() < 0.2:
            version, group = self._move_rng.choice(self._placed[name]).version, 1
        return PlacePipeline(None, name, 1, seen=0 if group == NOWHERE else version)

    def _says_of(self, name: str) -> tuple[int, int]:
        """The version of the placement that the directory has of a name, and the group; where it is away, as it was last."""
        running = self.shards[self.group.first + self.routing.registrar(name)].running
        if running is None:
            return self.ledger.stays.placed.get(name, (0, NOWHERE))
        known = running.process.placements.get(name)
        return (0, NOWHERE) if known is None else (known.version, known.group)

    def _place_name(self, request: Any, event: PlacePipeline) -> None:
        directory = self.group.first + self.routing.registrar(event.pipeline)
        self.call(None, directory, replace(event, request=request))

    def _register_late(self, name: str) -> None:
        """Somebody asked the directory long ago, and registers by what it said then; or claims the name, as a program does that is
        started anew."""
        if self._may_claim(name):
            self.count("claims_of_known_names")
            self._place_name(("place", name), self._claim(name))
        placements, since = self._placed[name], self.checkers[name].since
        if placements and (since or name in self.registered):
            self.count("registered_by_old_placements")
            self.counts["registered_by_void_placements"] += since > 0
            group = self.groups[1]
            registrar = group.first + self.routing_of(group).registrar(name)
            by = self._move_rng.choice(placements)
            spec = self.worlds[name].spec if since else self._pipelines[name].spec
            event = RegisterPipeline(("late", name), spec, placed=by.version, above=by.above)
            self.call(None, registrar, event)

    def handle(self, running: Running, event: Event) -> None:
        """A service says by which placement it has what is to be changed; of what it does not have it asks the directory, and
        sends whoever wants that elsewhere."""
        if isinstance(event, RegisterPipeline) and event.change:
            known = inside.pipelines(running.process).get(event.spec.name)
            if known is None:
                return
            event = replace(event, placed=known.placed)
        super().handle(running, event)

    # --- who deletes, and registers again -----------------------------------------------------------

    def deleted(self, pipeline: str, restart: Restart) -> None:
        rng, known = self._move_rng, self.pipeline_at(self.registrar(pipeline), pipeline)
        self.counts["deleted_amid_moves"] += self.ledger.stays.is_moving(pipeline)
        self._begins[pipeline] = rng.randrange(2)
        if known is not None and known.placed and rng.random() < 0.7:
            self._give_back(pipeline, known.placed, restart.generation)
        super().deleted(pipeline, restart)

    def _give_back(self, name: str, version: int, ended: int) -> None:
        """Whoever had a pipeline deleted tells the directory that its name is free."""
        if self.ledger.stays.placed.get(name, (0, NOWHERE))[0] != version:
            self.not_a_step()
            return
        self.count("names_given_back")
        event = PlacePipeline(None, name, NOWHERE, version, ended)
        self._place_name(("give back", name), event)
        self.after(ASK_AGAIN_NS, self._give_back, name, version, ended)

    def _is_registered_in(self, group: Group, entry: PipelineRegistered) -> None:
        name = entry.spec.name
        if self.checkers[name].since:
            before, last = self._lived[name], self.worlds[name]
            self.counts["registered_anew_in_another_group"] += before != group.number
            if entry.restart is None or entry.restart.generation < last.generation:
                raise Failure("broken", f"{entry} comes after generation {last.generation - 1}")
            self.begins_above(name, entry.restart.generation)
        self._begins[name] = self._lived[name] = group.number

    # --- who wants a move -------------------------------------------------------------------------

    def faults_begin(self) -> None:
        if self.faulty or self.healed:
            return
        super().faults_begin()
        rng = self._move_rng
        for name in self._pipelines:
            for _ in range(rng.choice([1, 1, 2, 3])):
                self.after(rng.randrange(2 * self.plan.faults_for_ns), self.want, name)
            if rng.random() < 0.3:
                self.after(rng.randrange(3 * self.plan.faults_for_ns), self._give_up, name)
            for _ in range(rng.choice([0, 0, 1, 2])):
                self.after(rng.randrange(4 * self.plan.faults_for_ns), self._register_late, name)
            if deletes(self.plan, self._pipelines[name]):
                for _ in range(rng.choice([0, 1, 2])):
                    later = rng.randrange(self.plan.faults_for_ns)
                    self.after(later, self.operator.delete, name)

    def want(self, name: str) -> None:
        if self.resting or name not in self.registered:
            return
        wish = Wish(name, self.groups[1 - self.group_of(name).number])
        self.wanted.append(wish)
        self.count("moves_asked_for")
        self._ask_for_move(wish)

    def _ask_for_move(self, wish: Wish) -> None:
        if wish.done:
            self.not_a_step()
            return
        wish.asked += 1
        here = self.group_of(wish.name)
        if here is wish.target or wish.asked > _MOST_ASKED:
            wish.done = True
            return
        place = self.sequencer_of(here)
        sequencer = self.shards[place].running
        pipeline = None if sequencer is None else inside.pipelines(sequencer.process).get(wish.name)
        if pipeline is not None:
            request = ("wish", self.wanted.index(wish))
            event = MovePipeline(request, wish.name, pipeline.placed, wish.target.number)
            self.call(None, place, event)
        self.after(ASK_AGAIN_NS, self._ask_for_move, wish)

    def _hear_of_wanted(self, wish: Wish, result: object) -> None:
        if isinstance(result, Refusal):
            if result.code in _FOR_NOW:
                return
            if result.code not in _TOO_LATE:
                raise Failure("broken", f"{wish} was answered {result}")
            self.count("moves_refused")
        wish.done = True

    def _give_up(self, name: str) -> None:
        """Somebody has the directory leave a pipeline where it is."""
        for group in self.groups:
            sequencer = self.shards[self.sequencer_of(group)].running
            if sequencer is None:
                continue
            move = sequencer.process.membership.moving.get(name)
            if move is not None and not move.arrives:
                self.count("moves_given_up_from_outside")
                event = PlacePipeline(None, name, group.number, move.version)
                self._place_name(("give up", name), event)
                return
        if not self.resting and not self.healed:
            self.after(LOOK_NS, self._give_up, name)

    # --- who goes on with moves -------------------------------------------------------------------

    def _look(self, group: Group) -> None:
        self.after(LOOK_NS, self._look, group)
        self._drives = [each for each in self._drives if each.running.alive]
        found = False
        shards = [shard for shard in self.shards if shard.group is group]
        for running in [each for shard in shards for each in (shard.running, *shard.former)]:
            if running is None or running.paused:
                continue
            if running.process.membership.sequencer != running.process.shard:
                continue
            for move in running.process.membership.moving.values():
                mine = [d for d in self._drives if d.running is running and d.move == move]
                drives = [d for d in mine if not d.is_late]
                if not drives or (len(drives) < 2 and self.chance("moves_led_twice")):
                    found = True
                    self._begin_to_drive(running, move)
        if not found:
            self.not_a_step()

    def _begin_to_drive(self, running: Running, move: Move) -> None:
        """Somebody goes on with a move; another one begins to, and stands for a while before anything that it asks."""
        late = [True] if self.faulty and self._move_rng.random() < LATE_DRIVERS_SHARE else []
        for is_late in (False, *late):
            drive = Drive(running, move, follow(move, running.shard.group.number), 0, is_late)
            self._drives.append(drive)
            if is_late:
                self.count("late_drivers_of_moves")
                self.after(self._move_rng.randint(0, LATE_BY_NS), self._drive_on, drive, None)
            else:
                self._drive_on(drive, None)

    def _drive_on(self, drive: Drive, answer: Any) -> None:
        """A driver hears an answer, and asks the next thing."""
        running, move = drive.running, drive.move
        if not running.alive:
            self.not_a_step()
            return
        if running.paused:
            self.after(MS, self._drive_on, drive, answer)
            return
        known = running.process.membership.moving.get(move.pipeline)
        if known is None or known.number != move.number:
            if not drive.is_late:
                self._drives.remove(drive)  # it has ended
                return
            self.count("drivers_of_moves_that_were_over")
        try:
            asked = drive.steps.send(answer)
        except StopIteration:
            self._drives.remove(drive)
            return
        self._questions += 1
        drive.asked = number = self._questions
        if isinstance(asked, Pause):
            self.after(self.milliseconds(1, 3), self._drive_on, drive, None)
            return
        self._asked[number] = drive
        self.trace_line(lambda: f"group {running.shard.group.number} asks {asked}"[:300])
        late_ns = self._move_rng.randint(0, LATE_BY_NS) if drive.is_late else 0
        self.after(late_ns + ANSWER_WITHIN_NS, self._hear_of_move, number, AWAY)
        if self.faulty and self.rng.random() < self.plan.loss:
            self.count("lost_questions_of_moves")
            return
        self.after(late_ns + self.latency(), self._deliver_question, number, asked)
        if self.faulty and self.rng.random() < self.plan.duplication:
            self.count("repeated_questions_of_moves")
            self.after(self.milliseconds(0, 20), self._deliver_question, 0, asked)

    def _hear_of_move(self, number: int, answer: Any) -> None:
        drive = self._asked.pop(number, None)
        if drive is None or drive.asked != number:
            self.not_a_step()
        else:
            self._drive_on(drive, answer)

    def _answer(self, number: int, answer: Any) -> None:
        if self.faulty and self.rng.random() < self.plan.loss:
            self.count("lost_answers_of_moves")
        else:
            self.after(self.latency(), self._hear_of_move, number, answer)

    def _deliver_question(self, number: int, ask: Ask) -> None:
        """A question reaches a process; nobody answers where that is down or stands still."""
        group, what = self.groups[ask.group], ask.what
        decides = isinstance(what, PlacePipeline | Where)
        table = self.routing_of(group)
        if decides:
            place = group.first + table.registrar(what.pipeline)  # type: ignore[union-attr]
        else:
            place = self.sequencer_of(group) if ask.shard is None else group.first + ask.shard
        running = self.shards[place].running
        if running is None:
            return
        read = self._read_of(what)
        if read is None:
            assert what is not None
            if isinstance(what, KeepPart):
                self.counts["pieces_kept_beyond_the_first"] += what.number > 0
            self.handle(running, replace(what, request=("move", number)))  # type: ignore[arg-type]
        elif not running.paused:
            try:
                self._answer(number, read(running))
            except Refused as refused:
                self._answer(number, refused.refusal)

    def _read_of(self, what: Any) -> Callable[[Running], Any] | None:
        match what:
            case Members():
                return lambda running: tuple(sorted(running.process.membership.members))
            case Where():
                return lambda running: running.process.placement(what.pipeline)
            case PieceWanted():
                return partial(self._piece, what)
        return None

    def _piece(self, wanted: PieceWanted, running: Running) -> Piece:
        part, given = running.process.part(wanted.pipeline, wanted.version)
        cut = [*in_pieces(part, self._piece_bytes)]
        return Piece(cut[wanted.number], len(cut), given)

    # --- what processes say -----------------------------------------------------------------------

    def _tell_answer(self, effect: Answer) -> None:
        assert isinstance(effect.request, tuple)
        name, *rest = effect.request
        result = effect.result
        if name == "move":
            self._answer(rest[0], result)
        elif name == "wish":
            self._hear_of_wanted(self.wanted[rest[0]], result)
        elif name == "place":
            if isinstance(result, Placement) and result.group == 1:
                self._placed[rest[0]].append(result)
        elif name in ("give up", "give back", "late"):
            pass
        elif name == "bad" and self.asks_elsewhere(result):
            self.count("refused_conflict")
        else:
            super()._tell_answer(effect)

    def dies_about(self, records: list[Record]) -> str:
        """Of whatever a move consists of; of pieces there are many."""
        said = [record.entry if isinstance(record, HomeEntry) else record for record in records]
        steps = [each for each in said if isinstance(each, _STEPS)]
        share = DIES_ABOUT_STEPS if any(not isinstance(s, PartKept) for s in steps) else 0.02
        if not steps or not self.faulty or self._move_rng.random() >= share:
            return super().dies_about(records)
        self.count("deaths_about_moves")
        return self._move_rng.choice(["before", "after"])

    def entry_durable(self, entry: Any) -> None:
        super().entry_durable(entry)
        if isinstance(entry, MoveBegun):
            self.count("arrivals_begun" if entry.arrives else "moves_begun")
        joins = isinstance(entry, KeyTick) and bool(entry.tick.content.joins)
        if joins and self.faulty and self._move_rng.random() < 0.3:
            # Some shards will have pinned the front when the pipeline comes to rest, and others not.
            self.count("moves_asked_for_as_a_front_joins")
            self.after(self.latency(), self.want, entry.tick.pipeline)

    def _durable(self, shard: int, record: Record) -> None:
        before = dict(self.ledger.stays.groups)
        if isinstance(record, HomeEntry) and isinstance(record.entry, PipelineRegistered):
            self._is_registered_in(self.shards[shard].group, record.entry)
        super()._durable(shard, record)
        if not isinstance(record, HomeEntry) or not isinstance(record.entry, MoveEnded):
            return
        name = record.entry.pipeline
        there = self.ledger.stays.groups.get(name)
        if there is None or there == before[name]:
            self.counts["moves_that_stayed"] += record.entry.here
            return
        self.count("moved_pipelines")
        self.counts["moved_back"] += there == DIRECTORY_GROUP
        world = self.worlds[name]
        self.counts["moved_amid_items"] += bool(world.items)
        self.counts["moved_amid_holds"] += bool(world.holds)
        shards = [each.number for each in self.shards if each.group.number == there]
        self.checkers[name].arrive(shards)

    # --- the end ----------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        return super()._is_settled() and all(wish.done for wish in self.wanted)

    def _has_arrived(self) -> bool:
        return all(map(self._is_at_peace, self.present)) and super()._has_arrived()

    def _is_at_peace(self, shard: Shard) -> bool:
        """Whether no move is under way, and the pipelines of its group, and no others, are there."""
        if shard.running is None:
            return False
        process = shard.running.process
        here = {name for name in self.worlds if self.lives_at(shard, name)}
        return (
            not process.membership.moving
            and not inside.coming(process)
            and inside.pipelines(process).keys() == here
        )
