"""What operators do to a running system: they restart pipelines, change their limits, retire nodes, and
give up what is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests import inside
from tests.simulation.changes import REFUSED_FOR_NOW, Changes, changes_of, front_changes_of
from tests.simulation.checkers import Failure
from tests.simulation.nodes import FrontNode, LateFeeder, VisitorNode
from tests.simulation.plan import MS, PipelinePlan, Plan
from tests.simulation.queries import QueryNode
from tracker.core.log import (
    Answer,
    DeletePipeline,
    Event,
    PipelineChanged,
    RegisterPipeline,
    Restart,
    RestartPipeline,
    RetireNode,
)
from tracker.core.log.losses import GENERATIONS_PER_LOSS
from tracker.core.model import (
    Cells,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
)
from tracker.core.model.slots import FOREVER

if TYPE_CHECKING:
    from tests.simulation.processes import Shard
    from tests.simulation.simulator import Simulator
    from tests.simulation.world import FrontId, World

Request = tuple[str, int]

ASK_AGAIN_NS = 12 * MS
ASK_SOON_NS = 2 * MS
"""In a storm, so that the next change comes as soon as it may."""
START_AGAIN_NS = 5 * MS
LOOK_AGAIN_NS = 3 * MS
STILL_NS = 1_000 * MS
"""After the faults, whatever was on its way has arrived by then."""
MOST_RESTARTS_IN_TIME = 3
"""Of one run, so that it comes to an end."""
REFUSED_RESTARTS = (
    RefusalCode.COMPLETE, RefusalCode.CONFLICT, RefusalCode.BELOW_MIN_TIME,
    RefusalCode.UNKNOWN_PIPELINE,
)  # fmt: skip
"""What an operator may be told who knows less than the registrar."""
DELETED_SHARE, MOVED_DELETED_SHARE = 0.3, 0.9
"""Of the pipelines that could be deleted in a run, how many are; and where pipelines move between groups."""


def deletes(plan: Plan, pipeline: PipelinePlan) -> bool:
    """Whether a pipeline is deleted in a run, and another one registered under its name: where nothing else is asked
    for by that name meanwhile, and nobody decides what there is."""
    if plan.story or pipeline.limit_changes or pipeline.write_offs or pipeline.kind != "plain":
        return False
    if plan.storm or changes_of(plan, pipeline) or front_changes_of(plan, pipeline):
        return False
    drawn = random.Random(f"deletions {plan.seed} {pipeline.spec.name}").random()
    return drawn < (DELETED_SHARE if plan.groups == 1 else MOVED_DELETED_SHARE)


def _may_evict(node: FrontNode) -> bool:
    return node.world.evicts


@dataclass(frozen=True)
class Asked:
    """What an operator has asked for: of whom, and who hears the answer. That returns whether it is to be
    asked for again."""

    event: Event
    shard: Callable[[], int]
    hear: Callable[[Any], bool | None]


class Operator:
    """Asks until there is an answer. Whoever restarts a pipeline starts its fronts again."""

    name = "operator"

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self._asked: dict[Request, Asked] = {}
        """What is not answered."""
        self._changed: dict[str, PipelineChanged] = {}
        """By pipeline its last change that is durable."""
        self.changes: dict[str, Changes] = {}
        self._complete: set[tuple[str, int]] = set()
        """Segments that some process has announced to be complete."""
        """By pipeline what is changed of its segments and edges."""
        self._given_up: set[tuple[str, tuple[int, int]]] = set()
        """Places that a write-off was asked for."""
        self._dropped: set[tuple[str, int]] = set()
        """By pipeline and generation, where a deletion was asked for whatever is open."""
        self._requests = 0
        self.restarts_in_time = 0

    @property
    def busy(self) -> bool:
        """Whether something was asked for and is not answered, or a restarted pipeline lacks nodes."""
        nodes = self.sim.nodes.values()
        worlds = [node.world for node in nodes if not isinstance(node, VisitorNode | LateFeeder)]
        worlds += [actor.world for actor in self.sim.actors]
        changing = any(changes.busy or changes.undecided for changes in self.changes.values())
        return (
            bool(self._asked)
            or changing
            or any(world is not self.sim.worlds[world.spec.name] for world in worlds)
        )

    def changes_of(self, pipeline: str) -> int:
        """The number of its last change that is durable anywhere."""
        changed = self._changed.get(pipeline)
        return 0 if changed is None else changed.number

    def restart_in_time(self, pipeline: str, what: str) -> None:
        """Restarts a pipeline at a moment that chance hardly ever hits: it may be complete by now, as some
        process knows and another does not, or one of its fronts has just been evicted."""
        if self.restarts_in_time < MOST_RESTARTS_IN_TIME:
            self.restarts_in_time += 1
            self.sim.count(what)
            self.restart(self.sim.worlds[pipeline].spec)

    def restart(self, spec: PipelineSpec) -> None:
        """Looks at a pipeline and restarts it, from its min time or a little later."""
        sim = self.sim
        pipeline = sim.pipeline_at(sim.registrar(spec.name), spec.name)
        if not pipeline or sim.resting:
            return
        rng = sim.rng
        published = min(pipeline.published)
        from_slot = rng.choice([None, None, published + rng.randint(0, 8)])
        if published == FOREVER:
            from_slot = None  # an earlier generation was complete further on than this one is
        elif spec.rounds > 1:
            from_slot = spec.times.next_whole(published if from_slot is None else from_slot)
        request = self.new_request()
        event = RestartPipeline(request, spec.name, pipeline.generation, from_slot, 0)
        sim.count("restarts_asked_for")
        registrar = partial(self._registrar, spec.name)
        self.ask(request, Asked(event, registrar, partial(self._hear_of_restart, event)))

    def delete(self, name: str) -> None:
        """Ends a pipeline, whatever is open of it; sometimes it asks first whether anything is."""
        sim = self.sim
        pipeline = sim.pipeline_at(sim.registrar(name), name)
        if not pipeline or sim.resting or name not in sim.registered:
            return
        drop_open = sim.rng.random() < (0.6 if sim.plan.storm else 0.8)
        request = self.new_request()
        event = DeletePipeline(request, name, pipeline.generation, drop_open, 0)
        sim.count("deletions_asked_for")
        registrar = partial(self._registrar, name)
        world = sim.worlds[name]
        if drop_open:
            self._dropped.add((name, world.generation))
        hear = partial(self._hear_of_deletion, event, world, world.labelling())
        self.ask(request, Asked(event, registrar, hear))

    def _hear_of_deletion(
        self, event: DeletePipeline, world: World, before: set[FrontId], result: object
    ) -> bool:
        """before: the fronts of the world that could label something when it was asked for."""
        if isinstance(result, Refusal):
            if result.code in REFUSED_FOR_NOW:
                return True
            if result.code not in (RefusalCode.CONFLICT, RefusalCode.UNKNOWN_PIPELINE):
                raise Failure("broken", f"a deletion was refused: {result}")
            self.sim.count("refused_deletions")
        elif not isinstance(result, Restart) or result.generation <= event.generation:
            raise Failure("broken", f"a deletion of {event} was answered with {result}")
        elif before & world.labelling() and (event.pipeline, world.generation) not in self._dropped:
            raise Failure("lost", f"{event} was answered, and nobody has said to drop what is open")
        elif event.pipeline in self.sim.checkers and (
            self.sim.checkers[event.pipeline].since <= event.generation
        ):
            raise Failure("lost", f"{event} was answered, and is not durable")
        return False

    def _registrar(self, pipeline: str) -> int:
        return self.sim.registrar(pipeline)

    def new_request(self) -> Request:
        self._requests += 1
        return self.name, self._requests

    def asks(self, event: RegisterPipeline) -> bool:
        """Whether it has no answer yet."""
        return event.request in self._asked

    def asks_for_a_restart(self, name: str) -> bool:
        """Whether a restart of a pipeline has no answer yet."""
        events = [asked.event for asked in self._asked.values()]
        return any(isinstance(e, RestartPipeline) and e.pipeline == name for e in events)

    def deleted(self, name: str) -> None:
        """A pipeline is no more, and whoever asked for another one than it was asks no more."""
        for request, asked in list(self._asked.items()):
            if isinstance(asked.event, RegisterPipeline) and asked.event.spec.name == name:
                del self._asked[request]
        self._changed.pop(name, None)
        if name in self.changes:
            self.changes[name].forget()

    def ask(self, request: Request, asked: Asked) -> None:
        """Asks until there is an answer."""
        self._asked[request] = asked
        self._ask_again(request)

    def _ask_again(self, request: Request) -> None:
        asked = self._asked.get(request)
        if asked is None:
            self.sim.not_a_step()
            return
        self.sim.call(None, asked.shard(), asked.event)
        hurries = self.sim.plan.storm and isinstance(asked.event, RegisterPipeline)
        self.sim.after(ASK_SOON_NS if hurries else ASK_AGAIN_NS, self._ask_again, request)

    def hear(self, answer: Answer) -> None:
        """A process has answered, perhaps once more."""
        assert isinstance(answer.request, tuple)
        asked = self._asked.pop(answer.request, None)
        if asked is not None and (
            self.sim.asks_elsewhere(answer.result) or asked.hear(answer.result)
        ):
            self._asked[answer.request] = asked

    def _hear_of_restart(self, event: RestartPipeline, result: object) -> bool:
        if isinstance(result, Refusal):
            if result.code is RefusalCode.NOT_HOME:
                return True
            may_be_within = result.code is RefusalCode.INVALID and event.from_slot is None
            is_ending = result.code is RefusalCode.NOT_READY  # it was deleted
            if result.code not in REFUSED_RESTARTS and not may_be_within and not is_ending:
                raise Failure("broken", f"a restart was refused: {result}")
            self.sim.count("refused_restarts")
        elif not isinstance(result, Restart) or not _follows(result.generation, event.generation):
            raise Failure("broken", f"a restart of {event} was answered with {result}")
        return False

    def retire_some(self) -> None:
        """Takes some node for gone, be it so or not, and retires it; what is open is waited for. A front
        is retired only where it may be evicted: its readers wait until its batches are known. A query
        is not: what its tasks have staged goes with it."""
        sim = self.sim
        nodes = [
            node
            for node in sim.nodes.values()
            if not isinstance(node, QueryNode)
            and (not isinstance(node, FrontNode) or _may_evict(node))
        ]
        if not nodes or not sim.faulty:
            return
        node = sim.rng.choice(nodes)
        name = node.world.spec.name
        self._retire(name, node.name, Cells.empty(), sim.ledger.open_key(name, node.name))

    def _retire(self, pipeline: str, node_id: str, cells: Cells, key: NodeKey | None) -> None:
        """key: the one that is closed then. It is said in which generation that was, and which key, if one is."""
        request = self.new_request()
        incarnation = None if key is None else key.incarnation
        generation = self.sim.worlds[pipeline].generation
        event = RetireNode(request, pipeline, node_id, cells, 0, incarnation, generation)
        home = partial(self._home, pipeline, node_id)
        since = self.sim.checkers[pipeline].since
        self.ask(request, Asked(event, home, partial(self._hear_of_retired, event, key, since)))

    def _home(self, pipeline: str, node_id: str) -> int:
        return self.sim.home(pipeline, node_id)

    def _hear_of_retired(
        self, event: RetireNode, key: NodeKey | None, since: int, result: object
    ) -> bool:
        """Once that is answered, the key that the node had is closed everywhere. since: which pipeline of that name there
        was."""
        if isinstance(result, Refusal):
            if result.code in REFUSED_FOR_NOW:
                return True
            known = [RefusalCode.UNKNOWN_NODE, RefusalCode.UNKNOWN_PIPELINE]
            known.append(
                RefusalCode.CONFLICT
            )  # it has joined again since, or another generation has begun
            if not event.node_id:  # where it is not known yet that the segment was removed
                known.append(RefusalCode.INVALID)
            if self.sim.checkers[event.pipeline].since > since:
                known.append(RefusalCode.UNKNOWN_SEGMENT)
            if result.code not in known:
                raise Failure("broken", f"a retirement was refused: {result}")
            return False
        self.sim.count("retired_nodes")
        if self.sim.checkers[event.pipeline].since > since:
            return False  # another one has the name, and may have the key
        if key is not None and self.sim.ledger.open_key(event.pipeline, event.node_id) == key:
            raise Failure("broken", f"{key} is retired, and goes on")
        return False

    # --- changes ----------------------------------------------------------------------------------

    def change_limits(self, spec: PipelineSpec) -> None:
        """Lets a pipeline go by other limits, lower ones too."""
        changes = self.changes_to(spec.name)
        changes.begin(changes.forms.limited)

    def ask_to_change(self, event: RegisterPipeline, hear: Callable[[Any], bool | None]) -> Request:
        """Asks the registrar for another pipeline than it is."""
        request = self.new_request()
        event = replace(event, request=request)
        self.ask(request, Asked(event, partial(self._registrar, event.spec.name), hear))
        return request

    def ask_for_no_less(self, requests: list[Request], spec: PipelineSpec) -> None:
        """Whoever has no answer yet asks for what a pipeline is by now, which has all that it asked for: by a repetition
        of what it asked for it would take back what has come since."""
        for request in requests:
            asked = self._asked.get(request)
            if asked is not None and isinstance(asked.event, RegisterPipeline):
                self._asked[request] = replace(asked, event=replace(asked.event, spec=spec))

    def changes_to(self, name: str) -> Changes:
        """What is changed of a pipeline."""
        if name not in self.changes:
            self.changes[name] = Changes(self, name)
        return self.changes[name]

    def change_graph(self, name: str) -> None:
        """Changes segments or edges of a pipeline."""
        self.changes_to(name).begin()

    def hear_complete(self, name: str, segments: list[int]) -> None:
        """A process announces that these are complete. Whoever changes the pipeline may ask for a way into one of them before the
        registrar hears that."""
        sim = self.sim
        for segment in segments:
            if (name, segment) not in self._complete:
                self._complete.add((name, segment))
                if name in self.changes or changes_of(sim.plan, sim.plan_of(name)):
                    self.changes_to(name).lead_into(segment)

    def change_fronts(self, name: str) -> None:
        """Has a pipeline wait for other fronts."""
        self.changes_to(name).await_others()

    def changed(self, entry: PipelineChanged) -> None:
        """A change is durable at a registrar: they count on, whoever that is; or a home has activated one."""
        last = self._changed.get(entry.pipeline)
        if entry.activated:
            if last is not None and entry.number > last.number:
                raise Failure("broken", f"{entry} comes after {last}")
            return
        if entry.number != (1 if last is None else last.number + 1):
            raise Failure("broken", f"{entry} comes after {last}")
        self._changed[entry.pipeline] = entry
        if entry.pipeline in self.changes:
            self.changes[entry.pipeline].durable(entry)

    def check_changes(self, shard: Shard) -> None:
        """In the end every process knows the last ones."""
        assert shard.running is not None
        for name, last in self._changed.items():
            if not self.sim.lives_at(shard, name):
                continue
            known = inside.pipeline(shard.running.process, name)
            if (known.changes, known.spec) != (last.number, last.spec):
                raise Failure("lost", f"shard {shard.number} knows {known.spec}, not {last}")

    # --- write-offs -------------------------------------------------------------------------------

    def write_off(self, spec: PipelineSpec) -> None:
        """Some items are lost, where nobody has begun to take any, and are given up."""
        sim, world = self.sim, self.sim.worlds[spec.name]
        if sim.resting:
            return
        taken = {(i.segment, i.slot) for i in world.items if i.claimed or i.unit is not None}
        taken.update(world.holds.values())
        places = {(i.segment, i.slot) for i in world.items} - taken - world.consumed_at
        if not places:
            if sim.faulty:
                sim.after(LOOK_AGAIN_NS, self.write_off, spec)
            return
        place = sim.rng.choice(sorted(places))
        world.give_up(place)
        sim.count("written_off_cells")
        self._look_after(world, place)

    def give_up_what_is_never_created(self) -> None:
        """Readers have consumed what evicted fronts had published, and never commit."""
        gone = {node.name for node in self.sim.nodes.values() if node.finished}
        for world in self.sim.worlds.values():
            for place in sorted(world.never_created(gone)):
                world.exact_late = False
                self.sim.count("given_up_as_never_created")
                self._look_after(world, place)

    def _look_after(self, world: World, place: tuple[int, int]) -> None:
        """Writes off what is open at a place while nothing is in flight there: also what comes to be open
        there later, by a tick that was on its way. Where somebody has consumed, the step may be on its
        way, too, and nobody would wait for what it creates: an operator waits until all stand still, or for so
        long that only what finds no room can be on its way, and that consumes nothing."""
        sim, (segment, slot) = self.sim, place
        if sim.worlds[world.spec.name] is not world:
            return  # what was open then is no more
        sim.after(ASK_AGAIN_NS, self._look_after, world, place)
        pipeline = world.spec.name
        owner = sim.place(pipeline, lambda table: table.owner(slot, pipeline))
        known = sim.pipeline_at(owner, pipeline)
        is_there = known is not None and known.generation == world.generation
        checksum, items = known.shard.cells.value(segment, slot) if known and is_there else (0, 0)
        nodes = [
            node
            for node in sim.nodes.values()
            if node.world is world
            and node.key is not None
            and not isinstance(node, FrontNode | LateFeeder | VisitorNode)
        ]
        is_quiet = (
            sim.resting
            or (
                place not in world.consumed_at
                and not (sim.plan.storm and self._in_use(world, place))
            )
            or (sim.healed and sim.now - sim.healed_ns > STILL_NS)
        )
        if not checksum or world.has(place) or not is_quiet or not nodes:
            sim.not_a_step()
            return
        if (pipeline, place) in self._given_up:
            sim.count("written_off_again")
        self._given_up.add((pipeline, place))
        lost = Cells.of([(segment, slot, checksum, max(0, items))])
        node_id, name = sim.rng.choice(nodes).name, world.spec.segments[segment]
        if name in world.spec.removed and sim.plan.storm and sim.rng.random() < 0.7:
            sim.count("written_off_in_removed_segments")
            node_id = ""
        self._retire(pipeline, node_id, lost, None)

    def _in_use(self, world: World, place: tuple[int, int]) -> bool:
        """Whether a node holds time there, or a tick that names the place is on its way."""
        if place in world.holds.values():
            return True
        contents = [
            content
            for node in self.sim.nodes.values()
            if node.world is world
            for _, content in node.journal
        ]
        places = (
            row[:2]
            for content in contents
            for cells in (content.created, content.consumed)
            for row in cells.rows()
        )
        return place in places or any(content.holds for content in contents)

    def start_actors(self, pipeline: str) -> None:
        """Whoever hands steps to a local tracker is started again, once that is in the newest generation."""
        newest = self.sim.worlds[pipeline]
        behind = [
            actor
            for actor in self.sim.actors
            if actor.world is not newest and actor.world.spec.name == pipeline
        ]
        for actor in behind:
            if actor.upper.world is newest:
                actor.crash()
                actor.start()
        if behind:
            self.sim.after(START_AGAIN_NS, self.start_actors, pipeline)

    def start_fronts(self, pipeline: str) -> None:
        """Fronts that have left come again, until all are in the newest generation."""
        behind = [
            node
            for node in self.sim.nodes.values()
            if isinstance(node, FrontNode)
            and node.world.spec.name == pipeline
            and node.world is not self.sim.worlds[pipeline]
        ]
        for node in behind:
            if node.finished:
                node.come_again(batches=1)
        if behind:
            self.sim.after(START_AGAIN_NS, self.start_fronts, pipeline)


def _follows(generation: int, before: int) -> bool:
    """Whether it is the next one, or the one in which a pipeline goes on since shards are lost."""
    return generation == before + 1 or (
        generation > before and generation % GENERATIONS_PER_LOSS == 1
    )
