"""A front that is evicted, and comes back or is retired (rules 8 and 9).

Two shards; the front is silent at any moment, and its home evicts it. Its place stays vacant: min time may go on to where it is by
then, and never becomes complete. Then it joins again by a newer key, is granted from where on it may label, creates an item
just there, and promises later times; or an operator says that it has left. The worker goes on meanwhile, and moves its hold.

Nothing that any shard has announced may lie above the grant, nor pass the item; and before the key is closed, whatever its
front has accepted holds as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from tests.model.script import (
    FRONT,
    LAST_PROMISE,
    NODE_IDS,
    PIPELINE,
    PROMISE,
    Item,
    System,
    not_processed,
)
from tests.model.shards import AWAY, ShardState, ShardStory, ShardWorld
from tests.model.transitions import BACK, Done
from tracker.core import log as m
from tracker.core.cut.graph import SegmentGraph
from tracker.core.model import (
    Cells,
    FrontJoin,
    Heartbeat,
    NodeKey,
    SilentFront,
    TickContent,
)
from tracker.core.model.slots import FOREVER

EVICTS = replace(PIPELINE, silent_front=SilentFront.EVICT, evict_after_ms=1)
GRAPH = SegmentGraph(EVICTS)
HOME = 0
"""Of the front."""
THERE, VACANT, ASKED, IS_BACK, RETIRED = range(5)
VALUE, LATER = 0xF1, 9
"""Of the item that the front creates when it is back, and what it promises then."""


@dataclass(frozen=True, slots=True)
class EvictionStory(ShardStory):
    """A part of the script in which the front is evicted. is_retired: whether an operator retires it then."""

    is_retired: bool = False


IS_RETIRED = EvictionStory(
    "a front is evicted and retired",
    (2, 2),
    (2, 2),
    (1, 1),
    (2, 1),
    stores_wait=False,
    is_retired=True,
)
EVICTION_STORIES: tuple[EvictionStory, ...] = (
    IS_RETIRED,
    EvictionStory(
        "a front is evicted and joins again", (2, 2), (2, 2), (1, 1), (1, 1), stores_wait=False
    ),
)


class EvictionWorld(ShardWorld):
    """Adds the steps of a front that is evicted, and what must hold of it."""

    story: EvictionStory
    spec = EVICTS

    def system_of(self, story: ShardStory) -> System:
        system = super().system_of(story)
        again = NodeKey(NODE_IDS[FRONT], system.keys[FRONT].incarnation + 1)
        return replace(system, homes=(*system.homes, HOME), keys=(*system.keys, again))

    def items_of(self, state: ShardState) -> tuple[Item, ...]:
        back = Item(0, state.granted, VALUE, (BACK, 1), None)
        return super().items_of(state) + ((back,) if state.granted != AWAY else ())

    # --- what can happen --------------------------------------------------------------------------

    def _of_nodes(self, state: ShardState) -> Iterator[tuple[str, Callable[[], ShardState]]]:
        for node, (name, take) in super()._steps_of_nodes(state):
            if node != FRONT or state.front == THERE:
                yield name, take
        if state.front == THERE and self.known.evict(state.processes[HOME]) is not None:
            yield "the front is evicted for its silence", partial(self._evict, state)
        elif state.front == VACANT and self.story.is_retired:
            yield "the operator retires the front", partial(self._retire, state)
        elif state.front == VACANT:
            yield "the front joins again", partial(self._join_again, state)
        elif state.front == IS_BACK and self._is_ready(state):
            name = f"the front hands over its tick {state.handed[BACK]}, now that it is back"
            yield name, partial(self._hand_over_again, state)

    def _is_ready(self, state: ShardState) -> bool:
        tick, granted = state.handed[BACK], state.granted != AWAY
        return tick == 0 or (tick == 1 and granted) or (tick == 2 and state.durable[BACK] == 2)

    # --- steps ------------------------------------------------------------------------------------

    def _evict(self, state: ShardState) -> ShardState:
        done = self.known.evict(state.processes[HOME])
        assert done is not None
        return self._carry_out(state._replace(front=VACANT), HOME, done)

    def _retire(self, state: ShardState) -> ShardState:
        retire = m.RetireNode("retired", "p", NODE_IDS[FRONT], Cells.empty(), 1)
        return self._event(state._replace(front=RETIRED), HOME, retire)

    def _join_again(self, state: ShardState) -> ShardState:
        join = m.JoinNode("again", "p", NODE_IDS[FRONT], "model")
        return self._event(state._replace(front=ASKED), HOME, join)

    def _hand_over_again(self, state: ShardState) -> ShardState:
        tick = state.handed[BACK]
        content = (
            TickContent(joins=(FrontJoin("F", 0),)),
            TickContent(created=Cells.of([(0, state.granted, VALUE, 1)])),
            TickContent(heartbeats=(Heartbeat("F", LATER),)),
        )[tick]
        done = self.known.submit(state.processes[HOME], BACK, tick, content)
        handed = (*state.handed[:BACK], tick + 1)
        return self._carry_out(state._replace(handed=handed), HOME, done)

    def _crash(self, state: ShardState, shard: int) -> ShardState:
        """What the front has not heard to be durable may be gone: then it is where it was before."""
        after = super()._crash(state, shard)
        if shard != HOME or after.front == IS_BACK:
            return after
        log = self.logs[after.logs[HOME]]
        if not any(entry.closed == FRONT for entry in log):
            return after._replace(front=THERE)
        is_retired = any(entry.is_retired for entry in log)
        return after._replace(front=RETIRED if is_retired else VACANT)

    def _carry_out(self, state: ShardState, shard: int, done: Done) -> ShardState:
        state = super()._carry_out(state, shard, done)
        if done.granted is not None:
            state = state._replace(granted=done.granted)
        if done.is_back:
            state = self._attach(state._replace(front=IS_BACK), BACK)
        return state

    # --- what must hold ---------------------------------------------------------------------------

    def truth(self, state: ShardState) -> tuple[int, ...]:
        """By segment the lowest slot at which something is, or can come to be: what the front may label, by the key that counts,
        and what is not processed. Nobody is done before the front has left."""
        counts = self._counts(state)
        log = self.logs[state.logs[HOME]]
        if any(entry.is_retired for entry in log):
            label = FOREVER
        elif not any(entry.closed == FRONT for entry in log):
            label = LAST_PROMISE if counts[FRONT] > PROMISE[1] else 0
        elif state.granted == AWAY:
            label = FOREVER - 1
        else:
            label = LATER if counts[BACK] > 2 else state.granted
        open_items = not_processed(counts, (*self.story.last, 3), self.items_of(state))
        lows = [FOREVER] * GRAPH.size
        for segment, slot in [(0, label), *open_items]:
            for reached in GRAPH.reached_from(segment):
                lows[reached] = min(lows[reached], slot + GRAPH.distance(segment, reached))
        return tuple(lows)

    def wrong_end(self, state: ShardState) -> str:
        if state.front not in (IS_BACK, RETIRED):
            return f"the front is {state.front}"
        return super().wrong_end(state)
