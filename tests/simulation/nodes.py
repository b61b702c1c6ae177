"""Simulated nodes: fronts and workers that commit ticks, lose answers, die and go on (rules 1, 2, 9).

A node keeps a journal of what it has published, as a front keeps its batches and a query its
checkpoint. Whatever happens to the node, the journal stays, and what the tracker has not heard of it
is committed again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeGuard

from tests.simulation.checkers import Failure
from tests.simulation.late_holds import LateHold
from tests.simulation.plan import MS, WINDOW_LIMIT
from tests.simulation.rounds import beyond_the_last, may_go
from tests.simulation.world import FrontId, Item, World
from tracker.core.home.home import KEPT_SCOPES
from tracker.core.home.window import TickWindow
from tracker.core.log import (
    Answer,
    AttachSession,
    DetachSession,
    Effect,
    FrontGranted,
    Grant,
    Joined,
    JoinNode,
    LeaveNode,
    NodeAlive,
    SessionAttached,
    SessionRefused,
    SubmitTick,
    SubmitTicks,
    TickRefused,
    TicksDurable,
)
from tracker.core.model import (
    KEEP_ALIVES_PER_PATIENCE,
    Batch,
    Cells,
    FrontJoin,
    Heartbeat,
    HoldMove,
    NodeKey,
    Refusal,
    RefusalCode,
    TickContent,
    Unit,
)
from tracker.core.model.ack_values import child_value, root_value, unit_value
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator

ANSWER_TIMEOUT_NS = 40_000_000
RETRY_NS = 3_000_000
WAIT_NS = 300_000
LEAD_SLOTS = 30
"""How far ahead of time a leading front promises."""
_FAR_SLOT = 2**62
GONE_SHARE, STORMY_GONE_SHARE = 0.3, 0.7
"""How often a worker tries to create where no way leads any more, or nothing can come any more along a new one."""
NOWHERE = 10_000
"""No pipeline has so many segments."""
WAITS_IN_PEACE = 20
"""How often a visitor is refused before it gives up."""
_TABLES = ("max_nodes", "max_open_cells", "max_open_units", "max_staged")
TRY_AGAIN = (RefusalCode.NOT_READY, RefusalCode.FULL, RefusalCode.BEYOND_HORIZON)
CHANGED = (RefusalCode.INVALID, RefusalCode.BELOW_MIN_TIME, RefusalCode.UNKNOWN_SEGMENT)
"""What a node may be told that creates along an edge which has gone, or is not there yet."""
JOIN_AGAIN = (RefusalCode.FENCED, RefusalCode.UNKNOWN_NODE)


class Life:
    """Somebody who lives, dies, and lives again."""

    finished = False
    """Whether it has left for good."""

    def __init__(self, sim: Simulator, world: World, name: str) -> None:
        self.sim, self.world, self.name = sim, world, name
        self.life = 0
        self.alive = False

    def start(self) -> None:
        """A life begins."""

    def crash(self) -> None:
        """A life ends."""

    def die(self) -> None:
        """What a subclass loses."""

    def renew(self) -> None:
        """What a subclass forgets of the generation before."""

    def later(self, delay_ns: int, call: Callable[[], None]) -> None:
        """Calls back unless this life has ended."""
        life = self.life

        def run() -> None:
            if self.alive and self.life == life:
                call()

        self.sim.after(delay_ns, run)


class Node(Life):
    """One node id: joins, attaches, commits in order, retries until all is durable."""

    kind = "other"

    def __init__(self, sim: Simulator, world: World, name: str) -> None:
        super().__init__(sim, world, name)
        self.home = sim.home(world.spec.name, name)
        self.journal: deque[tuple[int, TickContent]] = deque()
        self.published: dict[int, str] = {}
        """The scopes of all batches so far, by number."""
        self.next_batch = 0
        self.scopes = 1
        """Its batches take turns in so many scopes."""
        self.newest_of: dict[str, TickContent] = {}
        """By scope, the last batch that is durable; the one used last comes last."""
        self.finished = False
        self.known = (0, 0, 0)
        """Of its own record: the last incarnation, the last tick of it that was acknowledged, and the generation."""
        self._requests = 0
        self._bad: dict[TickContent, tuple[RefusalCode, ...]] = {}
        """Ticks that must be refused, and as what."""
        self._forget()

    def _forget(self) -> None:
        """What dies with the node's process."""
        self.request: tuple[str, int, int] | None = None
        self.key: NodeKey | None = None
        self.session: tuple[str, int, int] | None = None
        self.attached = False
        self.window: TickWindow[TickContent, TickContent] = TickWindow(WINDOW_LIMIT)
        self.backlog: deque[TickContent] = deque()
        """Ticks that wait for room in the window."""
        self.progress_ns = self.sim.now
        self.on_left = False
        self._judge: object = None
        """The process of the home whose log makes a tick one that must be refused; None without such."""

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        if self.alive:
            return
        if self.key is not None:
            self.sim.perhaps_a_zombie(self, self.key)
        self._forget()
        self.life += 1
        self.alive = True
        self.sim.trace_line(lambda: f"{self.name} starts")
        self._join()
        self.later(ANSWER_TIMEOUT_NS, self._watch)

    def crash(self) -> None:
        if not self.alive:
            return
        self.sim.count("node_crashes")
        self.sim.trace_line(lambda: f"{self.name} dies")
        self.alive = False
        self.die()

    @property
    def settled(self) -> bool:
        """Whether the node has nothing to do and nothing under way."""
        return self.finished or (self.alive and not self.journal and not self.window
                                 and not self.backlog)  # fmt: skip

    def _watch(self) -> None:
        """Tries again what has had no answer for long."""
        if self.sim.now - self.progress_ns >= ANSWER_TIMEOUT_NS:
            if self.on_left:
                self.leave_node()
            elif self.key is None:
                self._join()
            elif self.window or not self.attached:
                self.attach()  # whatever was under way on the old stream is given up
        if not self.finished:
            self.later(ANSWER_TIMEOUT_NS, self._watch)

    # --- joining ------------------------------------------------------------------------------

    def _new_request(self) -> tuple[str, int, int]:
        self._requests += 1
        self.request = (self.name, self.life, self._requests)
        self.progress_ns = self.sim.now
        return self.request

    def _join(self) -> None:
        """Asks for a key, of which a life has one: a key's ticks are numbered from 1, and the window is
        that of the key."""
        assert self.key is None, f"{self.name} has joined as {self.key}, and asks for another key"
        home, pipeline = self.home, self.world.spec.name
        if len(self.sim.shards) > 1 and self.sim.chance("wrong_homes"):
            home = (home + 1) % len(self.sim.shards)
        elif self.sim.chance("unknown_pipelines"):
            pipeline = "nowhere"
        request = self._new_request()
        incarnation, ticks, generation = self.known
        self.sim.call(
            self, home,
            JoinNode(
                request, pipeline, self.name, self.kind, self.name,
                known_incarnation=incarnation, known_ticks=ticks, known_generation=generation,
            ),
        )  # fmt: skip

    def _begin_anew(self, delay_ns: int = 0) -> None:
        """The node ends this life and begins another, as a process would."""
        if not self.on_left:
            self.alive = False
            self.die()
            self.sim.after(delay_ns, self._start_again)

    def _start_again(self) -> None:
        if not self.finished:
            self.start()

    def hear(self, effect: Effect) -> None:
        """A message from the tracker has arrived."""
        if not self.alive:
            return
        if isinstance(effect, Answer):
            if effect.request == self.request:
                self.request = None
                self._hear_answer(effect)
        elif getattr(effect, "session", None) == self.session and self.session is not None:
            self._hear_session(effect)

    def _hear_answer(self, answer: Answer) -> None:
        result = answer.result
        if isinstance(result, Joined):
            self._joined(result)
        elif self.on_left and _says(result, JOIN_AGAIN) and "taken its place" in result.message:
            # An earlier life asked to join, and is heard only now. Whoever is told so starts again.
            self.on_left = False
            self._begin_anew(RETRY_NS)
        elif self.on_left and (result is None or _says(result, JOIN_AGAIN)):
            if self.session is not None:
                self.sim.stream(self, DetachSession(self.session))
            self.finished, self.alive = True, False
            if self.key is not None:
                self.sim.perhaps_a_zombie(self, self.key)
            self.left()
        elif _says(result, TRY_AGAIN):
            self.note_refusal(result)
            self.later(RETRY_NS, self._ask_again_if_idle)
        elif _says(result, (RefusalCode.NOT_HOME, RefusalCode.UNKNOWN_PIPELINE)):
            here = self.sim.shards[self.home]
            if result.code is RefusalCode.UNKNOWN_PIPELINE:
                self.follows()
            elif result.home != here.own:
                self.sent_to(result.home)
            if self.world.spec.name not in self.sim.registered:  # it was deleted
                self.later(RETRY_NS, self._ask_again_if_idle)
            else:
                (self.leave_node if self.on_left else self._join)()
        else:
            raise Failure("broken", f"{self.name} was answered {result}")

    def _ask_again_if_idle(self) -> None:
        """Asks once more to leave or to join, unless the watch was quicker: it may have asked since, and
        may even have got the key."""
        if self.request is not None:
            return
        if self.on_left:
            self.leave_node()
        elif self.key is None:
            self._join()

    def sent_to(self, number: int) -> None:
        """A process says that the node is at home elsewhere in its group. A former owner may name a shard that has left since:
        where nobody is, another one is asked."""
        self.sim.not_at_home()
        home = self.sim.peer(self.sim.shards[self.home], number)
        self.home = self.sim.sequencer_of(home.group) if home.gone else home.number

    def follows(self) -> bool:
        """Whether its pipeline has gone to another group, in which the node is at home from now on."""
        if not self.sim.has_gone(self):
            return False
        self.sim.count("nodes_following")
        self.home = self.sim.home(self.world.spec.name, self.name)
        return True

    def _joined(self, joined: Joined) -> None:
        self.key = joined.key
        self.known = (joined.key.incarnation, 0, joined.generation)
        if joined.generation != self.world.generation:
            self._begin_generation(joined.generation)
        last = max((batch.id for batch in joined.last_batches), default=-1)
        while self.journal and self.journal[0][0] <= last:
            self._took(self.journal.popleft()[1])
        self.commit_journal(joined)
        self.attach()
        self.joined(joined)

    def _begin_generation(self, generation: int) -> None:
        """The pipeline was restarted. The node has nothing to do with what was before."""
        self.sim.count("nodes_restarted")
        self.die()
        before, self.world = self.world, self.sim.world_of(self.world.spec.name, generation)
        self.journal.clear()
        self.published.clear()
        self.newest_of.clear()
        self.renew()
        if self.world.since > before.generation:
            self.moved(before.spec.segments)

    def moved(self, before: tuple[str, ...]) -> None:
        """The pipeline was deleted, and another one of its name has other segments. before: those that there were."""

    def commit_journal(self, joined: Joined) -> None:
        """What was published and the tracker has not heard of is committed again."""
        for _, content in self.journal:
            self._add(content)

    def joined(self, joined: Joined) -> None:
        """The node has a key; what its journal holds is on its way."""

    def leave_node(self) -> None:
        """Closes the key for good."""
        assert self.key is not None
        self.on_left = True
        name, generation = self.world.spec.name, self.world.generation
        leave = LeaveNode(self._new_request(), name, self.key, generation)
        self.sim.call(self, self.home, leave)

    # --- committing ---------------------------------------------------------------------------

    def attach(self) -> None:
        """Opens a new stream of ticks; the old one may still drip."""
        assert self.key is not None
        self._requests += 1
        self.session = (self.name, self.life, self._requests)
        self.attached = False
        self.window.detached()
        self.progress_ns = self.sim.now
        name, generation = self.world.spec.name, self.world.generation
        self.sim.stream(self, AttachSession(self.session, name, self.key, generation))

    def commit(self, content: TickContent) -> None:
        """Commits the next tick; it is sent again until it is durable."""
        if not self.window:
            self.progress_ns = self.sim.now
        self._add(content)
        self._send()

    def _add(self, content: TickContent) -> None:
        if self.window.full or self.backlog:
            self.sim.count("full_windows")
            self.backlog.append(content)
            return
        promises = bool(content.heartbeats or content.leaves) and content not in self._bad
        self.window.add(content, content, promises=promises)

    def _fill_window(self) -> None:
        waiting, self.backlog = self.backlog, deque()
        while waiting and not self.window.full:
            self._add(waiting.popleft())
        self.backlog = waiting

    def _send(self) -> None:
        assert self.session is not None or not self.attached
        ticks = [SubmitTick(self.session, *each) for each in self.window.to_send()]
        if len(ticks) > 1 and self._sends_together:
            self.sim.count("messages_of_ticks")
            self.sim.stream(self, SubmitTicks(ticks))
            return
        for tick in ticks:
            self.sim.stream(self, tick)

    @property
    def _sends_together(self) -> bool:
        """Whether ticks that have gathered go in one message: not in every life, since clients of an older
        version send each alone."""
        return (self.life + len(self.name)) % 2 == 0

    def publish(self, content: TickContent) -> None:
        """Writes a step down and commits its tick."""
        assert content.batch is not None
        self.sim.faults_begin()
        self.journal.append((content.batch.id, content))
        self.published[content.batch.id] = content.batch.scope
        self.commit(content)

    def new_batch(self) -> Batch:
        self.next_batch += 1 if self.sim.rng.random() < 0.9 else 3  # ids may skip
        scope = (
            self.name if self.scopes == 1 else f"{self.name}/{len(self.published) % self.scopes}"
        )
        return Batch(scope, self.next_batch, self.next_batch.to_bytes(8, "big"))

    def _hear_session(self, effect: Effect) -> None:
        self.progress_ns = self.sim.now
        if isinstance(effect, SessionAttached):
            if self._judge not in (None, self.sim.shards[self.home].running):
                # What the judge had logged may have died with it: the tick may be accepted now.
                self._judge = None
                self._begin_anew()
                return
            self.attached = True
            self.heard_anew()
            self.window.attached(effect.last_number)
            self._send()
            self.sim.perhaps_a_stranger(self)
        elif isinstance(effect, TicksDurable):
            assert self.key is not None
            generation = self.world.spec.name, self.world.generation
            self.sim.ledger.check_durable(generation, self.key, effect.number)
            self.known = (self.key.incarnation, effect.number, self.known[2])
            for content, _ in self.window.committed(effect.number):
                self._durable(content)
            if self.backlog:
                self._fill_window()
                self._send()
        elif isinstance(effect, TickRefused):
            self._refused(effect.number, effect.refusal)
        elif isinstance(effect, FrontGranted):
            self.granted(effect.grant)
        elif isinstance(effect, SessionRefused):
            self._session_refused(effect.refusal)

    def heard_anew(self) -> None:
        """Its stream is attached, along with which it hears what the pipeline has become."""

    def _durable(self, content: TickContent) -> None:
        if content in self._bad:
            raise Failure("broken", f"{self.name}: what should be refused was accepted: {content}")
        if self.journal and content is self.journal[0][1]:
            self.journal.popleft()
            self._took(content)
            if self.sim.chance("repeated_batches"):
                self._repeat(content)
            elif len(self.newest_of) > KEPT_SCOPES:
                self._perhaps_an_old_scope()
        self.tick_is_durable(content)

    def _repeat(self, content: TickContent) -> None:
        """Commits a batch once more, as after a kill between the tick and a checkpoint. Where there are more
        scopes than are remembered, the home may have forgotten it by then; and while a later batch of its
        scope is on its way, it could only call it too old."""
        assert content.batch is not None
        if self.scopes <= KEPT_SCOPES or not self._is_under_way(content.batch.scope):
            self.commit(content)

    def _is_under_way(self, scope: str) -> bool:
        return any(each.batch and each.batch.scope == scope for _, each in self.journal)

    def _perhaps_an_old_scope(self) -> None:
        """Commits the newest batch of the scope used least lately once more."""
        scope, content = next(iter(self.newest_of.items()))
        if not self._is_under_way(scope) and self.sim.chance("batches_of_old_scopes", 0.3):
            self.commit(content)

    def _took(self, content: TickContent) -> None:
        """The tracker has a batch of the journal."""
        assert content.batch is not None
        self.newest_of.pop(content.batch.scope, None)
        self.newest_of[content.batch.scope] = content

    def gives_up(self, content: TickContent) -> bool:
        """Whether a batch was refused as its node expects, which commits what is left of it instead."""
        return False

    def tick_is_durable(self, content: TickContent) -> None:
        """A subclass may wait for it."""

    def was_to_be_late(self, content: TickContent, refusal: Refusal) -> bool:
        """Whether a tick was refused as its node expects of it, which then lets it be."""
        return False

    def left(self) -> None:
        """The node is gone; a subclass may come again."""

    def granted(self, grant: Grant) -> None:
        """A front of the node may label."""

    def _refused(self, number: int, refusal: Refusal) -> None:
        if self.on_left:
            return
        self.note_refusal(refusal)
        self._check_known(refusal)
        if refusal.code in JOIN_AGAIN:
            self._begin_anew()
            return
        for content, why in self.window.refused(number, refusal):
            if content in self._bad:
                self._judge = None
                if why.code not in (*self._bad.pop(content), *TRY_AGAIN):
                    raise Failure("broken", f"{self.name}: refused, but so: {why.message}")
                continue
            if self.was_to_be_late(content, why):
                continue
            if why.code is RefusalCode.COMPLETE and content.joins:
                self.too_late()
                return
            if why.code in CHANGED and self.gives_up(content):
                self._begin_anew(RETRY_NS)
                return
            if why.code not in TRY_AGAIN:
                raise Failure("broken", f"{self.name}: tick {number} was refused: {why.message}")
            if content.batch is not None:
                # Batches behind it may be taken under higher ids, and then it never could be: end
                # this life, and commit the journal from its beginning.
                self._begin_anew(RETRY_NS)
                return
            self.later(RETRY_NS, partial(self.commit, content))
        self._fill_window()
        self._send()

    def note_refusal(self, refusal: Refusal) -> None:
        """Counts a refusal by its reason."""
        self.sim.count(f"refused_{refusal.code.value}")
        if refusal.code is RefusalCode.FULL:
            limit = next(name for name in _TABLES if name in refusal.message)
            self.sim.count(f"full_{limit.removeprefix('max_')}")
            if self.world.edges and limit != "max_nodes":
                self.sim.count("full_where_items_have_children")

    def commit_bad(self) -> None:
        """Commits something that must be refused whole."""
        spec, rng = self.world.spec, self.sim.rng
        beyond = spec.start_slot + 2 * spec.horizon_slots
        choices: list[tuple[TickContent, tuple[RefusalCode, ...]]] = [
            (_held_for(NOWHERE, spec.start_slot, "nowhere"), (RefusalCode.UNKNOWN_SEGMENT,)),
            # Everything is below min time, once the pipeline is complete.
            (_one_cell(0, beyond), (RefusalCode.BEYOND_HORIZON, RefusalCode.BELOW_MIN_TIME)),
            (_one_cell(0, spec.start_slot - 1), (RefusalCode.BELOW_MIN_TIME,)),
            (self._just_below_min_time(), (RefusalCode.BELOW_MIN_TIME,)),
            (TickContent(heartbeats=(Heartbeat("nobody", 0),)), (RefusalCode.UNKNOWN_FRONT,)),
        ]
        if self.newest_of:
            known = rng.choice([*self.newest_of.values()]).batch
            assert known is not None
            batch = Batch(known.scope, known.id, b"another")
            choices += 2 * [(TickContent(batch=batch), (RefusalCode.ROLLED_BACK,))]
        choices += self.bad_holds()
        if self.sim.stays_as_it_is(spec.name):
            choices += self.bad_rounds() + self.bad_ways()
        self.commit_refused(*rng.choice(choices))

    def bad_holds(self) -> list[tuple[TickContent, tuple[RefusalCode, ...]]]:
        """Of one that holds time, what it cannot hold."""
        return []

    def bad_rounds(self) -> list[tuple[TickContent, tuple[RefusalCode, ...]]]:
        """Of one that only takes and makes items, where these go round: once too often."""
        return []

    def bad_ways(self) -> list[tuple[TickContent, tuple[RefusalCode, ...]]]:
        """Of one that only takes and makes items, where no way leads any more."""
        return []

    def commit_just_below_min_time(self) -> None:
        """Commits what must be refused since its home has logged a min time beyond it."""
        self.commit_refused(self._just_below_min_time(), (RefusalCode.BELOW_MIN_TIME,))

    def commit_refused(self, content: TickContent, codes: tuple[RefusalCode, ...]) -> None:
        """Commits what its home must refuse, and so; below min time: the process that is its home now."""
        self._bad[content] = codes
        if codes == (RefusalCode.BELOW_MIN_TIME,):
            self._judge = self.sim.shards[self.home].running
        self.commit(content)

    def _just_below_min_time(self) -> TickContent:
        """An item below the min time that its home has in its log or has heard of, be it said already or not; or
        a hold there, begun by what was never in flight."""
        pipeline = self.sim.pipeline_at(self.home, self.world.spec.name)
        below = self.world.spec.start_slot
        if pipeline:
            below = pipeline.floors()[0]
            self.sim.counts["created_below_what_was_heard"] += below > pipeline.announced[0]
        slot = min(below, HIGHEST_SLOT) - 1
        if slot % 2:
            return _one_cell(0, slot)
        self.sim.count("holds_begun_too_late")
        return _held_for(0, slot, "late")

    def too_late(self) -> None:
        """The pipeline was complete before a front could join."""
        raise Failure("broken", f"{self.name} is no front and was refused as one")

    def _session_refused(self, refusal: Refusal) -> None:
        self._detach()
        self.note_refusal(refusal)
        if self.on_left:
            return
        self._check_known(refusal)
        if refusal.code is RefusalCode.UNKNOWN_PIPELINE and self.follows():
            self._attach_if_idle()
        elif refusal.code in (*JOIN_AGAIN, RefusalCode.UNKNOWN_PIPELINE):
            self.later(RETRY_NS, self._begin_anew)
        elif refusal.code in TRY_AGAIN:
            self.later(RETRY_NS, self._attach_if_idle)
        elif refusal.code is RefusalCode.NOT_HOME:
            self.sent_to(refusal.home)
            self._attach_if_idle()
        else:
            raise Failure("broken", f"{self.name} was refused: {refusal}")

    def _check_known(self, refusal: Refusal) -> None:
        """A node that has not left is told why its key was closed, not that nobody knows it."""
        if refusal.code is RefusalCode.UNKNOWN_NODE:
            raise Failure("broken", f"{self.name} has not left, and was told: {refusal.message}")

    def _detach(self) -> None:
        self.session, self.attached = None, False
        self.window.detached()

    def session_broke(self) -> None:
        """The stream is gone; what was under way on it may or may not have arrived."""
        self._detach()
        self.later(RETRY_NS, self._attach_if_idle)

    def _attach_if_idle(self) -> None:
        if self.key is not None and self.session is None and not self.on_left:
            self.attach()


class FrontNode(Node):
    """Labels items of one segment by its clock, promises, and leaves in the end (or stays)."""

    kind = "front"

    def __init__(
        self,
        sim: Simulator,
        world: World,
        name: str,
        segment: int,
        batches: int,
        *,
        leaves: bool,
        dies: bool,
    ) -> None:
        """`leaves`: in the end, else it stays; `dies`: it does not leave but ends, for good."""
        super().__init__(sim, world, name)
        self.segment, self.batches_left, self.leaves = segment, batches, leaves
        self.front: FrontId = (name, name)
        self.skew_slots = sim.draw_skew()
        self.dies = dies
        self.leaving = False
        self.promised_last = False
        self.active = False
        self.held_back = False
        """Whether it was evicted, and what it has published waits for what it may label now."""
        self.given_up: list[int] = []
        """Numbers of batches that were let go of after an eviction."""
        self.silent_until_ns = 0
        self.cut_off_until_ns = 0
        self._patience_ns = world.spec.evict_after_ms * MS
        """How long it may be silent; 0: for ever."""

    def _forget(self) -> None:
        super()._forget()
        self.active = False
        self.promised_last = False

    def die(self) -> None:
        self.world.front_forgets(self.front)

    def renew(self) -> None:
        self.leaving = self.promised_last = self.held_back = False
        self.batches_left = 1
        self.given_up.clear()

    def moved(self, before: tuple[str, ...]) -> None:
        """It feeds the segment of the same name, or the first one."""
        name, segments = before[self.segment], self.world.spec.segments
        self.segment = segments.index(name) if name in segments else 0

    @property
    def settled(self) -> bool:
        if self.leaves or self.finished:
            return self.finished
        return self.promised_last and super().settled

    def clock(self) -> int:
        """The slot that the front's clock shows; it is neither exact nor steady."""
        if self.sim.chance("clock_steps", 0.1):
            before, self.skew_slots = self.skew_slots, self.sim.draw_skew()
            if self.skew_slots < before:
                self.sim.count("clock_steps_back")
        return self.sim.slot_now(self.world) + self.skew_slots

    # --- being alive ------------------------------------------------------------------------------

    def start(self) -> None:
        began = not self.alive
        super().start()
        if began and self._patience_ns:
            self._say_alive()

    def heard_anew(self) -> None:
        pipeline = self.sim.pipeline_at(self.home, self.world.spec.name)
        if pipeline is None:
            return
        before, spec = self._patience_ns, pipeline.spec
        self._patience_ns = spec.evict_after_ms * MS if spec.evicts else 0
        if self._patience_ns and not before:
            self._say_alive()

    def _say_alive(self) -> None:
        """The node's client says that the node lives, whatever its front does."""
        if not self._patience_ns:
            return
        if self.attached and self.sim.now >= self.silent_until_ns:
            self.sim.stream(self, NodeAlive(self.session))
        self.later(self._patience_ns // KEEP_ALIVES_PER_PATIENCE, self._say_alive)

    def attach(self) -> None:
        if self.sim.now < self.cut_off_until_ns:
            self._detach()
            self.later(self.cut_off_until_ns - self.sim.now, self._attach_if_idle)
        else:
            super().attach()

    def _is_silent(self) -> bool:
        """Whether the front says nothing now: its process is stopped, or it is busy and lives, or it is
        cut off and goes on, for longer than it may be silent."""
        sim = self.sim
        if not self._patience_ns:
            if sim.chance("silent_fronts"):
                self.later(3 * sim.front_pause(), self._act)
                return True
            return False
        span_ns = int(self._patience_ns * (1 + 2 * sim.rng.random()))
        if sim.chance("silent_fronts", 0.2):
            self.silent_until_ns = sim.now + span_ns
            self.later(span_ns, self._act)
            return True
        if sim.chance("busy_fronts", 0.3):
            self.later(span_ns, self._act)
            return True
        if self.session is not None and sim.chance("cut_off_fronts", 0.2):
            self.cut_off_until_ns = sim.now + span_ns
            sim.after(0, sim.session_breaks, self, self.session)
        return False

    def _known(self, joined: Joined) -> Grant | None:
        """What the tracker knows of the front when its node joins."""
        return {grant.front: grant for grant in joined.fronts}.get(self.name)

    def commit_journal(self, joined: Joined) -> None:
        if self._known(joined) is None:
            self.held_back = True
        if not self.held_back:
            super().commit_journal(joined)

    def joined(self, joined: Joined) -> None:
        known = self._known(joined)
        if known is not None and known.granted:
            self.granted(known)
        elif known is None and self.leaving and not self.world.fronts[self.front].vacant:
            self._let_go(LOWEST_SLOT)
            self.leave_node()
        elif known is None:
            self.world.front_joins(self.front, self.segment)
            self.commit(TickContent(joins=(FrontJoin(self.name, self.segment),)))
        elif self.leaving:
            self.active = True
            self._leave()

    def granted(self, grant: Grant) -> None:
        if self.active:
            return
        self.active = True
        if self.held_back:
            self._commit_held_back(grant.slot)
        if self.leaving or grant.slot > HIGHEST_SLOT:
            self._leave()
            return
        self.floor = max(grant.slot, grant.heartbeat)
        last_label = self.world.fronts[self.front].last_label
        if last_label is not None:
            self.floor = max(self.floor, last_label)
        self.later(self.sim.front_pause(), self._act)

    def _commit_held_back(self, granted: int) -> None:
        """The front was evicted: of what it has published, what lies at or above the slot from which it
        may label is committed again; the rest comes too late."""
        self.held_back = False
        self._let_go(granted)
        for number, content in self.journal:
            held = self.world.batch_comes_back(self.front, number)
            self.sim.counts["consumed_ahead_and_committed"] += held
            self.sim.count("batches_committed_after_eviction")
            self.commit(content)

    def _let_go(self, below: int) -> None:
        """Gives up what lies below a slot of the batches that are not durable; all of them, where that is
        the lowest slot."""
        kept: deque[tuple[int, TickContent]] = deque()
        for number, content in self.journal:
            left = None if below == LOWEST_SLOT else _from_slot(content, below)
            if left is not None:
                kept.append((number, left))
            if left is content:
                continue
            before = self.world.late_consumed
            late = self.world.batch_let_go(self.name, number, below, whole=left is None)
            self.sim.counts["late_items"] += late
            self.sim.counts["consumed_ahead_and_late"] += self.world.late_consumed - before
            if left is None:
                self.given_up.append(number)
            else:
                self.sim.count("batches_late_in_part")
        self.journal = kept
        self.sim.items_appeared(self.world)

    def _act(self) -> None:
        rng = self.sim.rng
        if self._is_silent():
            return
        if self.batches_left:
            if rng.random() < 0.6:
                self._label(with_promise=rng.random() < 0.3)
            else:
                self._promise()
        elif self.dies:
            self.sim.count("fronts_gone")
            self.alive, self.finished = False, True
            self.die()
            return
        elif self.leaves:
            self._leave()
            return
        elif not self.promised_last:
            self._promise()
            self.promised_last = True
            return
        self.later(self.sim.front_pause(), self._act)

    def _bind(self, *, label: bool) -> int:
        self.floor = self.world.spec.times.next_whole(max(self.floor, self.clock()))
        self.world.front_binds_itself(self.front, self.floor, label=label)
        return self.floor

    def _label(self, *, with_promise: bool) -> None:
        """Publishes a batch and commits the tick that creates its items."""
        self.batches_left -= 1
        batch, items, promises = self.new_batch(), [], []
        for ordinal in range(self.items_in_batch()):
            if with_promise and not ordinal:
                # A promise at (not beyond) the first item of its tick is as good as one before it.
                promises.append(Heartbeat(self.name, self._bind(label=True)))
            if ordinal and self._patience_ns and self.sim.rng.random() < 0.5:
                self.floor += self.sim.rng.choice(
                    [3, LEAD_SLOTS]
                )  # of one batch some may come too late, and some not
            slot = self._bind(label=True)
            value = root_value(self.name, batch.id, ordinal)
            items.append(self.sim.new_item(self.world, self.segment, slot, value))
        if self.world.fronts[self.front].evicted:
            self.sim.count("evicted_fronts_going_on")
        self.world.front_publishes(self.front, batch.id, items)
        self.publish(step_content(batch, created=items, heartbeats=tuple(promises)))
        self.sim.items_appeared(self.world)

    def items_in_batch(self) -> int:
        return self.sim.rng.choice([1, 1, 2, 3])

    def _promise(self) -> None:
        self.commit(TickContent(heartbeats=(Heartbeat(self.name, self._bind(label=False)),)))

    def _leave(self) -> None:
        if not self.world.fronts[self.front].left:  # one that was evicted has come back to leave
            self.leaving = True
            self.world.front_leaves(self.front)
        self.commit(TickContent(leaves=(self.name,)))

    def tick_is_durable(self, content: TickContent) -> None:
        if content.leaves:
            self.leave_node()

    def too_late(self) -> None:
        self.sim.count("fronts_too_late")
        self.leaving = True
        self.world.front_leaves(self.front)
        self._let_go(FOREVER)
        self.window.drain()
        self.backlog.clear()
        self.leave_node()

    def come_again(self, batches: int) -> None:
        """The same id begins anew, after it has left."""
        self.finished, self.leaving = False, False
        self.batches_left = batches
        self.start()


class OneItemFront(FrontNode):
    """Labels one item."""

    def items_in_batch(self) -> int:
        return 1


class LeaderFront(FrontNode):
    """Promises far ahead of time, for as long as there are faults, and labels nothing."""

    kind = "leader"

    def clock(self) -> int:
        return self.sim.slot_now(self.world) + LEAD_SLOTS

    def _act(self) -> None:
        self._promise()
        self.promised_last = self.sim.healed
        if not self.promised_last:
            self.later(2 * self.sim.front_pause(), self._act)


class VisitingFront(FrontNode):
    """Labels a little, leaves, and comes again at once, unless a story has it wait."""

    kind = "visitor"

    def _bind(self, *, label: bool) -> int:
        if label:
            self.floor = self.sim.slot_of_story(max(self.floor, self.clock()))
        return super()._bind(label=label)

    def _act(self) -> None:
        if self.batches_left:
            self._label(with_promise=False)
        elif not self.promised_last and self.sim.rng.random() < 0.5:
            self.floor += self.sim.rng.choice([0, 1, 3])
            self._promise()
            self.promised_last = True
        else:
            self._leave()
            return
        self.later(self.sim.front_pause(), self._act)

    def left(self) -> None:
        if self.sim.healed or not self.finished:
            return
        if self.sim.visitors_wait:
            self.sim.after(WAIT_NS, self.left)
        else:
            self.sim.count("ids_used_again")
            self.come_again(batches=1)


class WanderingFront(VisitingFront):
    """As a visitor; but it may think better of the segment that it has joined, leave it again before
    anyone could grant anything, and join another one."""

    kind = "wanderer"
    wandering = False
    """Whether it has said that it leaves, and is to join elsewhere."""

    def joined(self, joined: Joined) -> None:
        known = self._known(joined)
        if self.wandering and known is None:
            self._arrive()
        elif self.wandering:
            self.commit(TickContent(leaves=(self.name,)))
        else:
            if known is not None:
                self.segment = known.segment
            super().joined(joined)
            if known is None and not self.leaving and self.sim.rng.random() < 0.7:
                self._wander()

    def _wander(self) -> None:
        self.sim.count("fronts_leaving_ungranted")
        self.wandering = True
        self.world.front_leaves(self.front)
        self.commit(TickContent(leaves=(self.name,)))

    def _arrive(self) -> None:
        """It joins another segment. What it was told of the one before is nothing to it."""
        self.wandering = False
        self.segment = (self.segment + 1) % len(self.world.spec.segments)
        self.sim.count("fronts_joining_elsewhere")
        self.world.front_joins(self.front, self.segment)
        below = Heartbeat(
            self.name, self.world.spec.start_slot - 1
        )  # a promise that promises nothing
        join = FrontJoin(self.name, self.segment)
        self.commit(TickContent(joins=(join,), heartbeats=(below,)))

    def granted(self, grant: Grant) -> None:
        if not self.wandering:
            super().granted(grant)

    def renew(self) -> None:
        super().renew()
        self.wandering = False

    def tick_is_durable(self, content: TickContent) -> None:
        if content.leaves and self.wandering:
            self._arrive()
        else:
            super().tick_is_durable(content)


class LateFeeder(Node):
    """Its front joins a segment that is being removed, and labels nothing. Where the removal was quicker, it is refused;
    where its home had not heard of it, it stays: then it must hold nothing. It leaves what stays."""

    kind = "front"

    def __init__(self, sim: Simulator, world: World, name: str, segment: int) -> None:
        super().__init__(sim, world, name)
        self.segment = segment
        self.is_over = False

    def renew(self) -> None:
        self.is_over = True

    def joined(self, joined: Joined) -> None:
        if self.is_over:
            self.leave_node()
        elif joined.fronts:
            self._look()
        else:
            self.world.joins(self.name)
            self.commit(TickContent(joins=(FrontJoin(self.name, self.segment),)))

    def was_to_be_late(self, content: TickContent, refusal: Refusal) -> bool:
        expected = (RefusalCode.UNKNOWN_SEGMENT, RefusalCode.COMPLETE)
        if not content.joins or refusal.code not in expected:
            return False
        self.leave_node()
        return True

    def tick_is_durable(self, content: TickContent) -> None:
        (self._look if content.joins else self.leave_node)()

    def _look(self) -> None:
        spec = self.world.spec
        if self.sim.operator.changes_to(spec.name).busy:
            self.later(RETRY_NS, self._look)
        elif spec.segments[self.segment] in spec.removed:
            self.sim.count("fronts_joining_what_is_removed")
        else:
            self.commit(TickContent(leaves=(self.name,)))


class WorkerNode(Node):
    """Takes items from some segments, makes their children in the next ones, commits whole steps."""

    kind = "query"

    def __init__(self, sim: Simulator, world: World, name: str, reads: set[int]) -> None:
        super().__init__(sim, world, name)
        self.scopes = sim.plan.scopes
        self.reads = reads
        self.busy = False
        self.claimed: list[Item] = []
        self._operator = f"{name}-step"
        self.late_hold = LateHold(self)
        self.tried: dict[int, tuple[list[Item], TickContent]] = {}
        """By batch that is not durable, what it makes along edges that a change under way takes away or adds, and the batch
        without: they are there for others once the batch is durable, and never were where that is refused."""

    @property
    def settled(self) -> bool:
        return self.finished or (super().settled and self.late_hold.settled)

    def die(self) -> None:
        """A step that is not published leaves no trace: its input is there for the next try."""
        self._unclaim()
        self.busy = False
        self.late_hold.forget()

    def tick_is_durable(self, content: TickContent) -> None:
        super().tick_is_durable(content)
        self.late_hold.is_durable(content)

    def was_to_be_late(self, content: TickContent, refusal: Refusal) -> bool:
        return self.late_hold.is_refused(content, refusal)

    def renew(self) -> None:
        self.tried.clear()

    def moved(self, before: tuple[str, ...]) -> None:
        # Of what it is by now: it may have been changed since, and who reads what is new was said then.
        self.reads = self.sim.reads_of(self.sim.worlds[self.world.spec.name], self.name)

    def _unclaim(self) -> None:
        for item in self.claimed:
            item.claimed = False
        self.claimed = []

    def joined(self, joined: Joined) -> None:
        self.late_hold.joined(joined)
        self.wake()

    def wake(self) -> None:
        """There may be something to do."""
        if self.alive and self.key is not None and not self.busy:
            self.busy = True
            self.later(self.sim.pause(), self._claim)

    def _claim(self) -> None:
        """Takes input; it stays in flight until the step is published."""
        rng = self.sim.rng
        if self.sim.workers_wait:
            self.later(WAIT_NS, self._claim)
            return
        takeable = [*self.world.takeable(self.reads)]  # a story may hold some back for a while
        ready = [i for i in takeable if self.sim.may_take(i) and self._is_resolved(i)]
        if not ready:
            self.busy = False
            if takeable:
                self.later(RETRY_NS, self.wake)
            return
        self.claimed = rng.sample(ready, min(len(ready), rng.choice([1, 2, 4])))
        for item in self.claimed:
            item.claimed = True
        self.later(self.sim.pause(), self._finish)

    def _finish(self) -> None:
        if self.sim.workers_wait:
            self.later(WAIT_NS, self._finish)
            return
        consumed, created, batch = self.claimed, [], self.new_batch()
        self.sim.consumes(self.world, consumed)
        for item in consumed:
            created += self._children(item)
        self.claimed = []
        created, holds = self.put_aside(batch, consumed, created)
        self.world.step(consumed, created)
        tried = self._try_ways(consumed)
        content = step_content(batch, created=created + tried, consumed=consumed)
        content.holds = holds
        if not consumed[0].late and self._says_something_late(consumed[0].segment):
            content.consumed = read_only(self._with_a_late_one(content.consumed, consumed[0]))
        if tried:
            again = replace(batch, fingerprint=batch.fingerprint + b" without")
            without = step_content(again, created=created, consumed=consumed)
            self.tried[batch.id] = tried, replace(without, consumed=content.consumed, holds=holds)
        self.publish(content)
        if self.sim.chance("bad_ticks", self.sim.plan.bad_share):
            self.commit_bad()
        changed = bool(self.world.gone or self.world.too_low)
        changed = changed and self.sim.stays_as_it_is(self.world.spec.name)
        share = STORMY_GONE_SHARE if self.sim.plan.storm else GONE_SHARE
        if changed and self.sim.rng.random() < share:
            for bad in self.bad_ways()[:1]:
                self.commit_refused(*bad)
        if self.world.exact_late:
            self.perhaps_a_late_hold(consumed[0].segment)
        self.busy = False
        self.sim.items_appeared(self.world)
        self.wake()

    def _try_ways(self, consumed: list[Item]) -> list[Item]:
        """What the node makes along edges of a change that is under way, as a program does that has not heard of it, or
        has heard of it first."""
        changes = self.sim.operator.changes.get(self.world.spec.name)
        may_try = type(self) is WorkerNode or self.sim.plan.storm
        if changes is None or not may_try or not changes.busy:
            return []
        made: list[Item] = []
        pipeline = self.sim.pipeline_at(self.home, self.world.spec.name)
        floors = pipeline.floors() if pipeline else []
        for item in consumed:
            for place, (source, target, delay, new) in enumerate(changes.uncertain):
                usable = item.segment == source and item.hops and item.known and not item.late
                seldom = 0.2 if self.sim.plan.storm else 0.5
                if not usable or target >= len(floors) or self.sim.rng.random() < seldom:
                    continue
                slot = max(item.slot + delay, floors[target] if new else LOWEST_SLOT)
                if slot <= HIGHEST_SLOT:
                    self.sim.count("new_ways_tried" if new else "gone_ways_tried")
                    value = child_value(item.value, f"{self._operator}-tried", place)
                    made.append(Item(target, slot, value, item.hops - 1))
        return made

    def _took(self, content: TickContent) -> None:
        super()._took(content)
        assert content.batch is not None
        tried = self.tried.pop(content.batch.id, None)
        if tried is not None:
            self.sim.count("ways_tried_and_taken")
            self.world.step([], tried[0])
            self.sim.items_appeared(self.world)

    def gives_up(self, content: TickContent) -> bool:
        tried = self.tried.pop(content.batch.id, None) if content.batch is not None else None
        if content.batch is None or tried is None:
            return False
        self.sim.count("ways_tried_and_refused")
        place = next(n for n, (_, each) in enumerate(self.journal) if each is content)
        self.journal[place] = content.batch.id, tried[1]
        return True

    def perhaps_a_late_hold(self, segment: int) -> None:
        """Begins a hold that is late, which the node's home may not know."""
        self.late_hold.perhaps_begin(segment)

    def put_aside(
        self, batch: Batch, consumed: list[Item], created: list[Item]
    ) -> tuple[list[Item], tuple[HoldMove, ...]]:
        """What of the items that a step makes comes into being by it, and what the node holds for the rest."""
        return created, ()

    def bad_ways(self) -> list[tuple[TickContent, tuple[RefusalCode, ...]]]:
        codes: tuple[RefusalCode, ...] = (RefusalCode.INVALID, RefusalCode.BELOW_MIN_TIME)
        if self.world.too_low and (not self.world.gone or self.sim.rng.random() < 0.5):
            self.sim.count("created_below_what_was_said_without_the_edge")
            source, target, slot = self.sim.rng.choice(self.world.too_low)
            return 3 * [(_one_step(source, target, slot), codes)]
        if not self.world.gone:
            return []
        self.sim.count("ways_that_are_gone")
        source, target = self.sim.rng.choice(self.world.gone)
        highest = self.sim.checkers[self.world.spec.name].highest
        slot = max(0, *(min(slot, _FAR_SLOT) for slot in highest))
        return 3 * [(_one_step(source, target, slot), codes)]

    def bad_rounds(self) -> list[tuple[TickContent, tuple[RefusalCode, ...]]]:
        changes = self.sim.operator.changes.get(self.world.spec.name)
        if changes is not None and changes.busy:
            return []  # its home may judge by the delays of before
        if not any(0 < edge.delay < self.world.spec.rounds for edge in self.world.spec.edges):
            return []
        self.sim.count("rounds_asked_for_beyond_the_last")
        codes: tuple[RefusalCode, ...] = (RefusalCode.INVALID, RefusalCode.BELOW_MIN_TIME)
        return 3 * [(beyond_the_last(self.world.spec), codes)]

    def _says_something_late(self, segment: int) -> bool:
        story = self.sim.story
        if not self.world.exact_late:
            return False
        if story is not None and story.is_late_for(self, segment):
            return self.sim.chance("late_consumptions", 1.0)
        return self.sim.chance("late_consumptions", self.sim.plan.late_share)

    def _with_a_late_one(self, consumed: Cells, item: Item) -> Cells:
        """And something that never was in flight, below the min time that some process has said; its
        home may not know of that yet. It must be counted as late, and hold up nothing else."""
        self.world.late_consumed += 1
        highest = self.sim.checkers[self.world.spec.name].highest[item.segment]
        value = self.sim.rng.getrandbits(63) + 1
        return Cells.concatenate((Cells.of([(item.segment, highest - 1, value, 1)]), consumed))

    def _is_resolved(self, item: Item) -> bool:
        """Whether the tracker can tell the slot of a unit, as its reader has to ask."""
        return item.late or is_resolved(self.sim, self.world, item)

    def _children(self, item: Item) -> list[Item]:
        return children(self.sim, self.world, item, self._operator)


class VisitorNode(Node):
    """Joins, does nothing, and leaves: it takes the place of another one for a while."""

    gave_up = False
    refused_in_peace = 0
    """How often it was refused for want of room since all faults are over; an answer may be to an earlier call than the
    last one, by which it has joined."""

    @property
    def settled(self) -> bool:
        return self.finished or self.gave_up

    def joined(self, joined: Joined) -> None:
        self.later(self.sim.milliseconds(3, 15), self.leave_node)

    def note_refusal(self, refusal: Refusal) -> None:
        super().note_refusal(refusal)
        if self.sim.healed and refusal.code is RefusalCode.FULL and self.key is None:
            self.refused_in_peace += 1
            if self.refused_in_peace >= WAITS_IN_PEACE:
                self.gave_up, self.alive = True, False  # it has waited long enough


def is_resolved(sim: Simulator, world: World, item: Item) -> bool:
    """Whether the tracker can tell a reader the slot of an item, if it is a unit."""
    if item.unit is None:
        return True
    slot = sim.resolve_unit(world, item.segment, item.unit)
    if slot is not None and slot != item.slot:
        raise Failure("broken", f"unit {item.unit} of slot {item.slot} was said to be at {slot}")
    return slot is not None


def children(sim: Simulator, world: World, item: Item, operator: str) -> list[Item]:
    """What one item becomes: children in the next segments, at equal or later times."""
    rng = sim.rng
    made: list[Item] = []
    if not item.hops or not item.known:
        return made
    for ordinal, (target, delay, floor) in enumerate(world.ways_out[item.segment]):
        if rng.random() < sim.child_share(world):
            slot = max(floor, sim.label_child(item.slot + delay))
            if slot > HIGHEST_SLOT:
                continue  # the segment is complete
            if not may_go(world.spec, item.slot, delay, slot):
                sim.count("loops_ended_by_their_bound")
                continue
            value = child_value(item.value, operator, ordinal)
            made.append(sim.new_item(world, target, slot, value, hops=item.hops - 1))
    return made


def _says(result: object, codes: tuple[RefusalCode, ...]) -> TypeGuard[Refusal]:
    return isinstance(result, Refusal) and result.code in codes


def step_content(
    batch: Batch,
    *,
    created: list[Item],
    consumed: list[Item] | None = None,
    heartbeats: tuple[Heartbeat, ...] = (),
) -> TickContent:
    """The tick of one whole step (rule 1)."""
    consumed = consumed or []
    return TickContent(
        created=_cells(created),
        consumed=_cells(consumed),
        heartbeats=heartbeats,
        batch=batch,
        units_created=_units(created),
        units_consumed=_units(consumed),
    )


def _from_slot(content: TickContent, slot: int) -> TickContent | None:
    """What a batch creates from a slot on, under its number; None if it is nothing."""
    above = content.created.slots >= slot
    if above.all():
        return content
    if not above.any():
        return None
    units = tuple(unit for unit in content.units_created if unit.slot >= slot)
    created = read_only(content.created.select(above))
    heartbeats = tuple(promise for promise in content.heartbeats if promise.slot >= slot)
    return replace(content, created=created, units_created=units, heartbeats=heartbeats)


def _cells(items: list[Item]) -> Cells:
    return read_only(Cells.of((item.segment, item.slot, item.value, 1) for item in items))


def _one_cell(segment: int, slot: int) -> TickContent:
    return TickContent(created=read_only(Cells.of([(segment, slot, 1, 1)])))


def _held_for(segment: int, slot: int, name: str) -> TickContent:
    """A hold in the first segment, begun by what nobody has created."""
    consumed = _one_cell(segment, slot).created
    return TickContent(consumed=consumed, holds=(HoldMove(name, 0, slot),))


def _one_step(source: int, target: int, slot: int) -> TickContent:
    consumed, created = (Cells.of([(segment, slot, 1, 1)]) for segment in (source, target))
    return TickContent(consumed=read_only(consumed), created=read_only(created))


def read_only(cells: Cells) -> Cells:
    """The same cells, which nobody may change any more."""
    for array in (cells.segments, cells.slots, cells.checksums, cells.counts):
        array.setflags(write=False)  # nobody but the node may touch what it has said
    return cells


def _units(items: list[Item]) -> tuple[Unit, ...]:
    return tuple(Unit(i.segment, i.unit, i.slot) for i in items if i.unit is not None)


def unit_item(segment: int, slot: int, name: str, hops: int) -> Item:
    """An item that is a unit as a whole."""
    return Item(segment, slot, unit_value(name), hops, unit=name)
