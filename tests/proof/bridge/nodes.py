"""The nodes of a run: what they decide, which is a tick for good, and how they hand it over (rules 1, 2, 8, 9 and 11)."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.core.driver import content
from tests.proof.bridge.ledger import SLOTS, Front, Item, Ledger, Place, Tick
from tracker.core.model import Batch, Cells, NodeKey, TickContent
from tracker.core.model.slots import FOREVER

MOST_HOLDS = 2
PURE = "G"
"""The front of nodes that consume nothing."""
SCOPE = "published"
"""Each tick is a batch of this name: by the last one of it a node that comes back knows what its home has taken."""


@dataclass(eq=False)
class Node:
    """A node: its ticks so far, published for good, and the key and stream by which it hands them over. base: those that older
    keys have handed over."""

    id: str
    home: int
    ledger: Ledger
    random: Random
    lasting: str | None = None
    """A front of its own that never leaves."""
    published: list[Tick] = field(default_factory=list)
    contents: list[TickContent] = field(default_factory=list)
    bases: dict[int, int] = field(default_factory=dict)
    """By incarnation the ticks before the first one of it."""
    generation: int = 0
    begun: int = 0
    """How much it had published when it heard of its generation."""
    gone: bool = False
    """Whether it hands over no more."""
    key: NodeKey | None = None
    asked: object = None
    session: str | None = None
    fronts: dict[str, Front] = field(default_factory=dict)
    held: dict[str, Item] = field(default_factory=dict)

    def number(self, index: int) -> int:
        """A tick's number by the present key."""
        assert self.key is not None
        return index + 1 - self.bases[self.key.incarnation]

    def joined(self, key: NodeKey, generation: int, last_batch: int) -> None:
        """It has a key. What it has published that its home does not have is handed over by that one, but in another generation it begins
        anew."""
        self.key, self.asked = key, None
        if generation != self.generation:
            self.generation, self.fronts, self.held = generation, {}, {}
            self.begun = len(self.published)
        self.bases[key.incarnation] = max(self.begun, last_batch + 1)

    def tick_of(self, incarnation: int, number: int) -> Tick:
        return self.published[self.bases[incarnation] + number - 1]

    def decide(self) -> bool:
        """Takes a step: it is published. Returns whether there was one to take."""
        tick = Tick(f"{self.id}'s tick {len(self.published) + 1}", self.id, self.generation)
        if self.ledger.finishing:
            made = self._promise(tick) or self._work(tick)
        elif self.random.random() < 0.5:
            made = self._join(tick) or self._label(tick) or self._work(tick)
        else:
            made = self._work(tick) or self._promise(tick) or self._leave(tick) or self._label(tick)
        if made is None:
            return False
        made.batch = Batch(SCOPE, len(self.published), b"as published")
        self.ledger.ticks.append(tick)
        self.published.append(tick)
        self.contents.append(made)
        return True

    # --- fronts ---------------------------------------------------------------------------------

    def _join(self, tick: Tick) -> TickContent | None:
        wanted = self.lasting or (f"G{self.id}" if self.random.random() < 0.3 else None)
        if wanted is None or wanted in self.fronts:
            return None
        segment = 0 if self.lasting else self.random.randrange(self.ledger.graph.size)
        self.fronts[wanted] = self.ledger.front(self.id, wanted, segment, tick)
        return content(joins={wanted: segment})

    def _granted(self) -> list[Front]:
        return [each for each in self.fronts.values() if each.granted is not None]

    def _label(self, tick: Tick) -> TickContent | None:
        fronts = self._granted()
        if not fronts:
            return None
        front = self.random.choice(fronts)
        begin = max(front.granted or 0, front.promised)
        if begin >= SLOTS - 1:
            return None
        places = [(front.segment, self.random.randrange(begin, SLOTS - 1)) for _ in range(self.random.choice((1, 1, 2)))]  # fmt: skip
        items = [self.ledger.item(place, tick, front, None) for place in places]
        holds = {}
        if self._may_hold() and self.random.random() < 0.15:
            holds = self._hold(tick, (front.segment, self.random.randrange(begin, SLOTS - 1)), front, None)  # fmt: skip
        beats = {}
        if self.random.random() < 0.3:
            beats = self._promises(tick, front)
        return self._content(tick, items, [], holds, heartbeats=beats)

    def _promises(self, tick: Tick, front: Front) -> dict[str, int]:
        slot = min(SLOTS - 1, front.promised + self.random.choice((1, 1, 2)))
        front.promised = slot
        tick.promises.append((front, slot))
        return {front.front: slot}

    def _promise(self, tick: Tick) -> TickContent | None:
        fronts = [each for each in self.fronts.values() if each.promised < SLOTS - 1]
        if not fronts:
            return None
        return content(heartbeats=self._promises(tick, self.random.choice(fronts)))

    def _leave(self, tick: Tick) -> TickContent | None:
        fronts = [each for each in self.fronts.values() if each.front != self.lasting]
        if not fronts or self.random.random() < 0.6:
            return None
        front = self.random.choice(fronts)
        del self.fronts[front.front]
        front.leaves = tick
        tick.leaves.append(front)
        return content(leaves=[front.front])

    # --- work -----------------------------------------------------------------------------------

    def _work(self, tick: Tick) -> TickContent | None:
        """Consumes what is there, or lets go of a hold, and creates what comes of it."""
        if self.held and (self.ledger.finishing or self.random.random() < 0.4):
            return self._move_hold(tick)
        if self.lasting == PURE:
            return None
        there = [
            i for i in self.ledger.items
            if i.consumer is None and i.hold is None and i.creator.generation == self.generation
        ]  # fmt: skip
        there = self._sooner_or_later(there)
        if not there:
            return None
        consumed = self.random.sample(there, min(len(there), self.random.choice((1, 1, 2))))
        for item in consumed:
            item.consumer = tick
        tick.consumed += consumed
        parent = self.random.choice(consumed)
        children = self._children(tick, parent)
        holds = {}
        place = self._reached(parent.place)
        if place is not None and self._may_hold() and self.random.random() < 0.25:
            holds = self._hold(tick, place, parent.labeller, parent)
        return self._content(tick, children, consumed, holds)

    def _sooner_or_later(self, there: list[Item]) -> list[Item]:
        """Of what nodes made that are gone, and what no home may ever hear of, most is left until min time has passed it: then it is late."""
        said = self.ledger.said
        of_gone = [i for i in there if i.creator.node in self.ledger.gone]
        passed = [i for i in of_gone if i.place[1] < said[i.place[0]]]
        if passed and self.random.random() < 0.6:
            return passed
        return there if self.random.random() < 0.1 else [i for i in there if i not in of_gone]

    def _children(self, tick: Tick, parent: Item) -> list[Item]:
        if self.ledger.finishing:
            return []
        chosen = [self._reached(parent.place) for _ in range(self.random.choice((0, 1, 1, 2)))]
        places = [place for place in chosen if place is not None]
        return [self.ledger.item(place, tick, parent.labeller, parent) for place in places]

    def _reached(self, place: Place) -> Place | None:
        """A place that an item there can go to."""
        there = [
            b for b in self.ledger.places if self.ledger.reaches(place, b) and b[1] < SLOTS - 1
        ]
        return self.random.choice(there) if there else None

    def _hold(
        self, tick: Tick, place: Place, front: Front, parent: Item | None
    ) -> dict[str, Place]:
        name = f"h{len(self.ledger.items)}"
        self.held[name] = self.ledger.item(place, tick, front, parent, name)
        return {name: place}

    def _may_hold(self) -> bool:
        return len(self.held) < MOST_HOLDS and not self.ledger.finishing

    def _move_hold(self, tick: Tick) -> TickContent:
        """Lets go of a hold, moves it on, or creates by it."""
        name = self.random.choice(sorted(self.held))
        held = self.held[name]
        segment, slot = held.place
        children = self._children(tick, held) if self.random.random() < 0.6 else []
        choice = self.random.random()
        if choice < 0.3 and children:
            return self._content(tick, children, [], {})
        held.consumer = tick
        tick.consumed.append(held)
        del self.held[name]
        if choice < 0.6 and slot + 1 < SLOTS - 1 and not self.ledger.finishing:
            place = (segment, self.random.randrange(slot + 1, SLOTS - 1))
            self.held[name] = self.ledger.item(place, tick, held.labeller, held, name)
            return self._content(tick, children, [], {name: place})
        return self._content(tick, children, [], {name: (segment, FOREVER)})

    def _content(
        self, tick: Tick, created: list[Item], consumed: list[Item], holds: dict[str, Place],
        heartbeats: dict[str, int] | None = None,
    ) -> TickContent:  # fmt: skip
        for item in created:
            item.value = self.random.getrandbits(64) or 1
        made = content(holds=holds, heartbeats=heartbeats)
        made.created, made.consumed = _cells(created), _cells(consumed)
        return made


def _cells(items: list[Item]) -> Cells:
    return Cells.of((*item.place, item.value, 1) for item in items)
