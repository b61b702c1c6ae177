"""Protocol stories as text: commands to real processes, and what they answer.

A script is blocks apart by blank lines: a command, `----`, the output. Lines that begin with `#` are
for the reader. `python -m tests.scenarios` compares; `python -m tests.scenarios --write` writes the
outputs anew, to be read before they are believed. The commands:

    cluster shards=2                        begin; slots are dealt to the shards one by one
    pipeline NAME segments=a,b edges=a>b+3 fronts=f open start=0
    join NODE                               a node joins and attaches its stream of ticks
    tick NODE created=a@5:x consumed=a@4:w joins=f:a heartbeat=f:9 leaves=f batch=q:7:print
                                            x and w are items, named once and for all
    again NODE NUMBER                       sends an earlier tick of the node again
    attach NODE                             a new stream after the old one broke
    hold 0>1 / release                      frames wait on a link / on no link
    lose 0>1                                what waits on a link is lost
    commit SHARD                            what a shard has appended becomes durable
    settle                                  all that can happen does, but on held links
    pass MILLISECONDS                       time passes, and what is due happens
    crash SHARD / start SHARD               a process dies / comes back from its store
    min-times / open                        what each process says / which cells each shard holds
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.core.driver import Cluster, HandNode, content
from tracker.core.log import (
    FrontGranted,
    SessionAttached,
    SessionRefused,
    TickRefused,
    TicksDurable,
)
from tracker.core.model import Batch, Edge, PipelineSpec, TickContent
from tracker.core.model.ack_values import string_key
from tracker.core.model.slots import FOREVER

MARK = "----"


@dataclass
class Block:
    """A command with the lines for the reader above it, and its output."""

    comments: list[str]
    command: str
    output: str


def parse(text: str) -> list[Block]:
    """The blocks of a script. Raises ValueError where one has no mark."""
    blocks = []
    for part in filter(None, (p.strip("\n") for p in text.split("\n\n"))):
        head, mark, output = part.partition(f"\n{MARK}")
        if not mark:
            raise ValueError(f"a block lacks its line of {MARK!r}: {part!r}")
        *comments, command = head.splitlines()
        blocks.append(Block(comments, command, output.strip("\n")))
    return blocks


def render(blocks: list[Block]) -> str:
    """The text of a script."""
    parts = []
    for block in blocks:
        lines = [*block.comments, block.command, MARK, *block.output.splitlines()]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def run(blocks: list[Block]) -> list[Block]:
    """The same blocks with the outputs that the processes give."""
    story = Story()
    return [Block(b.comments, b.command, story.do(b.command)) for b in blocks]


def scripts() -> list[Path]:
    return sorted(Path(__file__).parent.glob("*.txt"))


class Story:
    """The state of one script."""

    def __init__(self) -> None:
        self.cluster = Cluster(1)
        self.spec = PipelineSpec("none", ("none",))
        self.nodes: dict[str, HandNode] = {}
        self.sent: dict[tuple[str, int], TickContent] = {}
        self._shown = 0

    def do(self, command: str) -> str:
        """Carries out a command; returns what follows from it, as text."""
        name, *words = command.split()
        doing: Callable[..., str] = getattr(self, "do_" + name.replace("-", "_"))
        said = doing(*words)
        news = list(self._news())
        return "\n".join(filter(None, [said, *news])) or "ok"

    def _news(self) -> Iterator[str]:
        """What nodes and subscribers have been told since the last command."""
        effects = self.cluster.effects[self._shown :]
        self._shown = len(self.cluster.effects)
        for effect in effects:
            match effect:
                case TicksDurable():
                    yield f"{_node(effect.session)}: ticks up to {effect.number} are durable"
                case TickRefused():
                    refusal = effect.refusal
                    yield f"{_node(effect.session)}: tick {effect.number} refused, {refusal.code.value}"
                    yield f"  {refusal.message}"
                case SessionAttached():
                    yield f"{_node(effect.session)}: attached after tick {effect.last_number}"
                case SessionRefused():
                    yield f"{_node(effect.session)}: stream ended, {effect.refusal.code.value}"
                case FrontGranted():
                    grant = effect.grant
                    yield f"{_node(effect.session)}: front {grant.front} may label from {grant.slot}"
        said, self.cluster.said = self.cluster.said, []
        for shard, announced in said:
            times = ", ".join(
                f"{self.spec.segments[segment]} {_slot(slot)}"
                for segment, slot in announced.min_times
            )
            yield f"shard {shard} announces {times}"

    # --- commands -----------------------------------------------------------------------------

    def do_cluster(self, *words: str) -> str:
        self.cluster = Cluster(int(_options(words)["shards"]))
        return ""

    def do_pipeline(self, name: str, *words: str) -> str:
        options = _options(words)
        edges = []
        for way in filter(None, options.get("edges", "").split(",")):
            source, _, rest = way.partition(">")
            target, _, delay = rest.partition("+")
            edges.append(Edge(source, target, int(delay or 0)))
        self.spec = PipelineSpec(
            name,
            tuple(options["segments"].split(",")),
            tuple(edges),
            fronts=tuple(filter(None, options.get("fronts", "").split(","))),
            open="open" in options,
            start_slot=int(options.get("start", "0")),
        )
        answer = self.cluster.register(self.spec)
        return "registered" if answer == self.spec else f"refused: {answer.message}"

    def do_join(self, name: str) -> str:
        node = self.nodes[name] = self.cluster.node(self.spec, name)
        told = [f"{node.key} is at home at shard {node.home}"]
        told += [f"last batch {batch.scope}:{batch.id}" for batch in node.joined.last_batches]
        for grant in node.joined.fronts:
            told.append(f"front {grant.front} has promised {_slot(grant.heartbeat)}")
        return "\n".join(told)

    def do_tick(self, name: str, *words: str) -> str:
        node, tick = self.nodes[name], self._tick(_options(words))
        number = node.last + 1
        self.sent[name, number] = tick
        effects = node.send(number, tick)
        if not any(isinstance(effect, (TickRefused, SessionRefused)) for effect in effects):
            node.last = number
        return ""

    def _tick(self, options: dict[str, str]) -> TickContent:
        def pairs(option: str) -> list[tuple[str, str]]:
            words = filter(None, options.get(option, "").split(","))
            return [(first, second) for first, _, second in (w.partition(":") for w in words)]

        def items(option: str) -> list[tuple[int, int, int]]:
            places = [(*place.split("@"), item) for place, item in pairs(option)]
            return [
                (self.spec.segments.index(segment), int(slot), string_key(item))
                for segment, slot, item in places
            ]

        scope, _, batch = options.get("batch", "").partition(":")
        number, _, fingerprint = batch.partition(":")
        return content(
            created=items("created"),
            consumed=items("consumed"),
            joins={front: self.spec.segments.index(segment) for front, segment in pairs("joins")},
            heartbeats={front: int(slot) for front, slot in pairs("heartbeat")},
            leaves=filter(None, options.get("leaves", "").split(",")),
            batch=Batch(scope, int(number), fingerprint.encode()) if scope else None,
        )

    def do_again(self, name: str, number: str) -> str:
        self.nodes[name].send(int(number), self.sent[name, int(number)])
        return ""

    def do_attach(self, name: str) -> str:
        self.nodes[name].attach()
        return ""

    def do_hold(self, *links: str) -> str:
        self.cluster.held |= {_link(link) for link in links}
        return ""

    def do_release(self) -> str:
        self.cluster.held = set()
        return ""

    def do_lose(self, link: str) -> str:
        frames = self.cluster.links[_link(link)]
        kinds = ", ".join(type(frame.body).__name__ for frame in frames)
        frames.clear()
        return f"lost: {kinds}"

    def do_commit(self, shard: str) -> str:
        self.cluster.commit(int(shard))
        return ""

    def do_settle(self) -> str:
        self.cluster.settle()
        return ""

    def do_pass(self, milliseconds: str) -> str:
        self.cluster.pass_time(int(milliseconds))
        return ""

    def do_crash(self, shard: str) -> str:
        waiting = len(self.cluster.pending[int(shard)])
        self.cluster.crash(int(shard))
        return f"{waiting} records were not durable"

    def do_start(self, shard: str) -> str:
        self.cluster.start(int(shard))
        return f"after {len(self.cluster.stored[int(shard)])} records"

    def do_min_times(self) -> str:
        lines = []
        for shard, process in sorted(self.cluster.processes.items()):
            times = zip(self.spec.segments, process.min_times(self.spec.name), strict=True)
            said = ", ".join(f"{segment} {_slot(slot)}" for segment, slot in times)
            lines.append(f"shard {shard}: {said}")
        return "\n".join(lines)

    def do_open(self) -> str:
        lines = []
        for shard, process in sorted(self.cluster.processes.items()):
            (pipeline,) = process.snapshot().pipelines
            cells = [f"{self.spec.segments[s]}@{slot}" for s, slot, *_ in pipeline.cells.rows()]
            lines.append(f"shard {shard}: {' '.join(cells) or 'nothing'}")
        return "\n".join(lines)


def _options(words: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _link(text: str) -> tuple[int, int]:
    source, _, target = text.partition(">")
    return int(source), int(target)


def _slot(slot: int) -> str:
    if slot == FOREVER:
        return "complete"
    return "nothing" if slot == -(2**63) else str(slot)


def _node(session: object) -> str:
    return str(session).partition("/")[0]
