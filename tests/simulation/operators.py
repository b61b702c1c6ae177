"""What operators do to a running system: they restart pipelines, and retire nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.checkers import Failure
from tests.simulation.nodes import FrontNode
from tests.simulation.plan import MS
from tests.simulation.queries import QueryNode
from tests.simulation.world import World
from tracker.core.messages import Answer, Restart, RestartPipeline, RetireNode
from tracker.core.model import (
    Cells,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
    SilentFront,
)
from tracker.core.slots import FOREVER

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator

ASK_AGAIN_NS = 12 * MS
START_AGAIN_NS = 5 * MS
REFUSED_RESTARTS = (
    RefusalCode.COMPLETE, RefusalCode.CONFLICT, RefusalCode.BELOW_MIN_TIME,
    RefusalCode.UNKNOWN_PIPELINE,
)  # fmt: skip
"""What an operator may be told who knows less than the registrar."""


def _may_evict(node: FrontNode) -> bool:
    return node.world.spec.silent_front is SilentFront.EVICT


class Operator:
    """Asks until there is an answer. Whoever restarts a pipeline starts its fronts again."""

    name = "operator"

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self._asked: dict[tuple[str, int], RestartPipeline] = {}
        self._retiring: dict[tuple[str, int], tuple[RetireNode, NodeKey | None]] = {}
        """What was asked for, and the node's key then."""
        self._requests = 0

    @property
    def busy(self) -> bool:
        """Whether something was asked for and is not answered, or a restarted pipeline lacks nodes."""
        return bool(self._asked or self._retiring) or any(
            node.world is not self.sim.worlds[node.world.spec.name]
            for node in self.sim.nodes.values()
        )

    def restart(self, spec: PipelineSpec) -> None:
        """Looks at a pipeline and restarts it, from its min time or a little later."""
        sim = self.sim
        running = sim.shards[sim.routing.registrar(spec.name)].running
        pipeline = running and running.process._pipelines.get(spec.name)
        if not pipeline or sim.resting:
            return
        rng = sim.rng
        from_slot = rng.choice([None, None, min(pipeline.said) + rng.randint(0, 8)])
        self._requests += 1
        request = (self.name, self._requests)
        self._asked[request] = RestartPipeline(
            request, spec.name, pipeline.generation, from_slot, 0
        )
        sim.count("restarts_asked_for")
        self._ask(request)

    def _ask(self, request: tuple[str, int]) -> None:
        event = self._asked.get(request)
        if event is None:
            self.sim.not_a_step()
            return
        self.sim.call(None, self.sim.routing.registrar(event.pipeline), event)
        self.sim.after(ASK_AGAIN_NS, self._ask, request)

    def hear(self, answer: Answer) -> None:
        """The registrar has answered."""
        assert isinstance(answer.request, tuple)
        if answer.request in self._retiring:
            self._hear_of_retired(*self._retiring.pop(answer.request), answer)
            return
        event = self._asked.pop(answer.request, None)
        result = answer.result
        if event is None:
            return
        if isinstance(result, Refusal):
            if result.code not in REFUSED_RESTARTS:
                raise Failure("broken", f"a restart was refused: {result}")
            self.sim.count("refused_restarts")
        elif not isinstance(result, Restart) or result.generation != event.generation + 1:
            raise Failure("broken", f"a restart of {event} was answered with {result}")

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
        self._requests += 1
        request = (self.name, self._requests)
        event = RetireNode(request, node.world.spec.name, node.name, Cells.empty(), 0)
        key = sim.ledger.open_key(node.world.spec.name, node.name)
        self._retiring[request] = event, key
        self._ask_to_retire(request, node.home)

    def _ask_to_retire(self, request: tuple[str, int], home: int) -> None:
        if request not in self._retiring:
            self.sim.not_a_step()
            return
        self.sim.call(None, home, self._retiring[request][0])
        self.sim.after(ASK_AGAIN_NS, self._ask_to_retire, request, home)

    def _hear_of_retired(self, event: RetireNode, key: NodeKey | None, answer: Answer) -> None:
        """Once that is answered, the key that the node had is closed everywhere."""
        if isinstance(answer.result, Refusal):
            if answer.result.code not in (RefusalCode.UNKNOWN_NODE, RefusalCode.UNKNOWN_PIPELINE):
                raise Failure("broken", f"a retirement was refused: {answer.result}")
            return
        self.sim.count("retired_nodes")
        if key is not None and self.sim.ledger.open_key(event.pipeline, event.node_id) == key:
            raise Failure("broken", f"{key} is retired, and goes on")

    def came_too_late(self, world: World) -> bool:
        """Whether a pipeline was restarted when some process had said that it is complete, and the
        registrar did not know: then no front may join there any more, and others may wait for one."""
        name, shards = world.spec.name, self.sim.shards
        processes = [shard.running.process for shard in shards if shard.running is not None]
        return any(
            process._pipelines[name].generation > 0 and process._pipelines[name].floor == FOREVER
            for process in processes
            if name in process._pipelines
        )

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
