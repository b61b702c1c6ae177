"""Several groups, each of them a cluster that is driven by hand, and pipelines that move between them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from tests import inside
from tests.core.driver import Cluster, HandNode
from tracker.core.log import (
    DeletePipeline,
    EndMove,
    MovePipeline,
    PlacePipeline,
    RegisterPipeline,
    Restart,
)
from tracker.core.model import PipelineSpec, Refusal, Refused
from tracker.core.model.placements import DIRECTORY_GROUP, NOWHERE, Placement
from tracker.core.moving.driver import (
    AWAY,
    Ask,
    Members,
    Pause,
    Piece,
    PieceWanted,
    Where,
    follow,
)
from tracker.core.moving.parts import in_pieces

MAX_STEPS = 2_000


class Deployment:
    """Groups 0, 1 and so on, with as many shards as given; group 0 has the directory."""

    def __init__(self, *shards: int) -> None:
        self.groups = [Cluster(number) for number in shards]
        self.away: set[int] = set()
        """Groups of which nobody answers."""
        self.lost_answers = False
        """Whether what is asked is done, and the answers are lost."""
        self.piece_bytes = 200
        self._requests = count(1)
        self.settle()  # all have reported by which feature level they record

    # --- asking -----------------------------------------------------------------------------------

    def ask(self, ask: Ask) -> Any:
        """What is answered; everything happens that follows."""
        if ask.group in self.away:
            return AWAY
        group, what = self.groups[ask.group], ask.what
        try:
            match what:
                case Members():
                    some = next(iter(group.processes.values()))
                    return tuple(sorted(some.membership.members))
                case Where():
                    registrar = group.routing.registrar(what.pipeline)
                    return group.processes[registrar].placement(what.pipeline)
                case PieceWanted():
                    assert ask.shard is not None
                    if ask.shard not in group.processes:
                        return AWAY
                    part, given = group.processes[ask.shard].part(what.pipeline, what.version)
                    cut = [*in_pieces(part, self.piece_bytes)]
                    level = group.processes[ask.shard].membership.level
                    return Piece(cut[what.number], len(cut), given, level)
        except Refused as refused:
            return refused.refusal
        shard = group.sequencer if ask.shard is None else ask.shard
        if isinstance(what, PlacePipeline):
            shard = group.routing.registrar(what.pipeline)
        event: Any = what
        answer = self.tell(ask.group, shard, replace(event, request=f"move-{next(self._requests)}"))
        return AWAY if self.lost_answers else answer

    def tell(self, group: int, shard: int, event: Any) -> Any:
        """Sends a request to a shard; the answer, or AWAY if there is none."""
        cluster = self.groups[group]
        if shard not in cluster.processes:
            return AWAY
        cluster.handle(shard, event)
        if not cluster.answers(event.request):
            cluster.settle()
        answers = cluster.answers(event.request)
        return answers[0] if answers else AWAY

    def place(
        self,
        name: str,
        group: int,
        expected: int | None = None,
        ended: int = 0,
        seen: int | None = None,
    ) -> Placement:
        """Claims a name for a group, or replaces a placement; gives the name back of one that has ended by a generation."""
        answer = self.ask(Ask(0, PlacePipeline(None, name, group, expected, ended, seen)))
        assert isinstance(answer, Placement), answer
        return answer

    def register(self, spec: PipelineSpec, group: int) -> None:
        """A pipeline is placed in a group, and registered there."""
        by = Placement(spec.name, 0, 0) if group == 0 else self.place(spec.name, group)
        cluster = self.groups[group]
        registrar = cluster.routing.registrar(spec.name)
        how = partial(RegisterPipeline, placed=by.version, above=by.above)
        answer = cluster.ask(registrar, how, spec)
        assert isinstance(answer, PipelineSpec), answer

    def delete(self, name: str, group: int) -> None:
        """A pipeline is deleted where it is, and its name given back, as the service does."""
        cluster = self.groups[group]
        known = cluster.pipeline(self._some(group), name)
        how = partial(DeletePipeline, drop_open=True, at_ms=0)
        answer = cluster.ask(cluster.routing.registrar(name), how, name, known.generation)
        assert isinstance(answer, Restart), answer
        if known.placed:
            back = PlacePipeline(None, name, NOWHERE, known.placed, answer.generation)
            self.ask(Ask(DIRECTORY_GROUP, back))
        self.settle()

    # --- moving -----------------------------------------------------------------------------------

    def begin_move(self, name: str, source: int, target: int) -> Any:
        """An operator asks for it; the answer."""
        version = self.groups[source].pipeline(self._some(source), name).placed
        return self.ask(Ask(source, MovePipeline(None, name, version, target)))

    def come_unheard(self, name: str, source: int, target: int, held: set[tuple[int, int]]) -> None:
        """Moves a pipeline up to the entry in a log of its new group by which it has come, while nothing passes these links
        (from, to) there."""
        self.begin_move(name, source, target)
        self.turn_unheard(name, source, target, held)

    def turn_unheard(self, name: str, source: int, target: int, held: set[tuple[int, int]]) -> None:
        """The same of a move that has begun."""
        self.until(self.drive(name, source), PlacePipeline)
        version, there = self.ask(Ask(0, Where(name))).version, self.groups[target]
        number = there.processes[0].membership.moving[name].number
        there.held = held
        there.handle(0, EndMove("end", name, number, version, True))
        there.settle()

    def move(self, name: str, source: int, target: int) -> str:
        """Moves a pipeline to its end at both groups; why it was given up, if it was."""
        answer = self.begin_move(name, source, target)
        assert not isinstance(answer, Refusal), answer
        return self.run(self.drive(name, source))

    def drive(self, name: str, group: int) -> Generator[Any, Any, str]:
        """What the group does about a move that is under way there."""
        moving = self.groups[group].processes[self.groups[group].sequencer].membership.moving
        return follow(moving[name], group)

    def steps(self, drive: Generator[Any, Any, str]) -> Iterator[Any]:
        """Takes one step after the other, and gives what was asked and answered."""
        answer = None
        while True:
            try:
                asked = drive.send(answer)
            except StopIteration as end:
                self.said = end.value
                return
            if isinstance(asked, Pause):
                for group in self.groups:
                    group.settle()
                answer = None
            else:
                answer = self.ask(asked)
            yield asked, answer

    def until(self, drive: Generator[Any, Any, str], kind: type) -> Ask:
        """Goes on until something of this kind was asked, and answered; what was asked."""
        for asked, _ in self.steps(drive):
            if isinstance(asked, Ask) and isinstance(asked.what, kind):
                return asked
        raise AssertionError(f"no {kind.__name__} is asked for")

    def run(self, drive: Generator[Any, Any, str], most: int = MAX_STEPS) -> str:
        """Goes on to the end."""
        for _ in zip(self.steps(drive), range(most), strict=False):
            pass
        assert not hasattr(drive, "gi_frame") or drive.gi_frame is None, "it goes on for ever"
        return self.said

    def go_on(self, name: str, *groups: int) -> str:
        """Whoever leads these groups by now goes on with the move that is under way there, if any is; what the first one says."""
        said = []
        for group in groups:
            cluster = self.groups[group]
            if name in cluster.processes[cluster.sequencer].membership.moving:
                said.append(self.run(self.drive(name, group)))
            self.settle()
        return "".join(said[:1])

    def settle(self) -> None:
        for group in self.groups:
            group.settle()

    # --- looking ----------------------------------------------------------------------------------

    def _some(self, group: int) -> int:
        return next(iter(self.groups[group].processes))

    def has(self, name: str) -> list[int]:
        """The groups that have a pipeline which goes on there."""
        return [
            number
            for number, group in enumerate(self.groups)
            if any(
                name in inside.pipelines(process) and name not in process.membership.moving
                for process in group.processes.values()
            )
        ]


def goes_on(node: HandNode, cluster: Cluster) -> HandNode:
    """The same node, which finds its home in another group, and goes on with its key."""
    node.cluster, node.home = cluster, cluster.routing.home(node.spec.name, node.key.node_id)
    node.attach()
    return node
