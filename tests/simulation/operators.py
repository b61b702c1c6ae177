"""What operators do to a running system: they restart pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.checkers import Failure
from tests.simulation.nodes import FrontNode
from tests.simulation.plan import MS
from tracker.core.messages import Answer, Restart, RestartPipeline
from tracker.core.model import PipelineSpec, Refusal, RefusalCode

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator

ASK_AGAIN_NS = 12 * MS
START_AGAIN_NS = 5 * MS
REFUSED_RESTARTS = (
    RefusalCode.COMPLETE, RefusalCode.CONFLICT, RefusalCode.BELOW_MIN_TIME,
    RefusalCode.UNKNOWN_PIPELINE,
)  # fmt: skip
"""What an operator may be told who knows less than the registrar."""


class Operator:
    """Asks until there is an answer. Whoever restarts a pipeline starts its fronts again."""

    name = "operator"

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self._asked: dict[tuple[str, int], RestartPipeline] = {}
        self._requests = 0

    @property
    def busy(self) -> bool:
        """Whether something was asked for and is not answered, or a restarted pipeline lacks nodes."""
        return bool(self._asked) or any(
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
