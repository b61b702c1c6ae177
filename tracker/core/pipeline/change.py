"""A pipeline that changes while it runs: what a change may be, and from when on which edges count (rule 12).

A change is decided at the registrar, whose log every shard applies. From then on a process reckons with the edges of
before and the new ones together, and reports what it had announced by then. A home that has heard that of every shard
knows all that was announced without the new edges: it activates the change, by an entry of its own log, and judges ticks
by it from there on. The edges of before count until the stable cut holds the activations of all homes: behind them
no tick creates along an edge that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from tracker.core.cut.graph import SegmentGraph
from tracker.core.model import Edge, PipelineSpec, RefusalCode, Refused
from tracker.core.model import durable as d
from tracker.core.model.slots import FOREVER

_FOR_GOOD = ("slack_ns", "rounds", "time")
"""What of a pipeline cannot change while it runs, beside its name and start."""


@dataclass(eq=False)
class GraphChange:
    """The last change of segments, edges or declared fronts, at one process."""

    number: int = d.survives({"graph_change": d.AS_IT_IS}, default=0)
    """Of the change; 0 if there was none."""
    activated: set[int] = d.survives(d.SORTED)
    """The homes that judge by it, by what is applied here. A shard that joins later activates it, too: some process
    may count that one before it hears of the change."""
    before: PipelineSpec | None = d.survives(
        default=None, may_lag="it ends when the stable cut has come far enough"
    )
    """What the pipeline was, until the change is over; None where none is under way."""
    of_edges: bool = d.survives(default=False)
    """Whether any change was of segments or edges, be it back: then nodes may not know of it."""
    gone: tuple[Edge, ...] = d.survives(
        {"gone_edges": d.SEQUENCE}, may_lag="as `before` does", default=()
    )
    """Edges that still count though they are gone: of what the pipeline was, and of changes before that were not over here
    when this one came, since what this process had heard was behind what the registrar had."""
    _counts_from: Mapping[int, int] = d.forgotten("it may be found later", dict)
    """How much of each home's log was applied here when the last home had activated it; empty until then."""
    over_at: Mapping[int, int] = d.forgotten("whoever joins is waited for then", dict)
    """... and when it was over here; empty where that is not known."""

    def begin(self, number: int, before: PipelineSpec, spec: PipelineSpec) -> None:
        """A change is applied. The one before is over at its registrar, so that every home has activated it, and every
        shard has applied that; this process may not know yet."""
        counted = dict.fromkeys((*self.gone, *before.edges))
        self.gone = tuple(edge for edge in counted if edge not in spec.edges)
        self.number, self.before = number, before
        self.of_edges = self.of_edges or changes_graph(before, spec)
        self.activated, self._counts_from, self.over_at = set(), {}, {}

    def activate(self, home: int, number: int) -> None:
        """A home judges by the change `number` from here on in its log."""
        if number == self.number:
            self.activated.add(home)

    def is_over(
        self, members: Set[int], applied: Mapping[int, int], cut: Mapping[int, int]
    ) -> bool:
        """Whether the stable cut holds the entries by which all homes have activated it, and all that homes have logged
        that have left. applied: by home how much of its log is applied here."""
        if not self._counts_from and members <= self.activated:
            self._counts_from = dict(applied)
        behind = (cut.get(home, 0) < number for home, number in self._counts_from.items())
        return bool(self._counts_from) and not any(behind)

    @property
    def is_under_way(self) -> bool:
        """Whether what was before still counts."""
        return self.before is not None

    def end(self) -> None:
        """Only what is declared counts from here on."""
        self.before, self.gone = None, ()


def numbered(known: PipelineSpec, asked: PipelineSpec) -> PipelineSpec:
    """What a pipeline becomes that is asked to be so: its segments keep their numbers, new ones follow, and those that
    are not named any more are removed, with the edges that lead out of them left."""
    named = [name for name in asked.segments if name not in asked.removed]
    new = tuple(name for name in named if name not in known.segments)
    gone = tuple(name for name in known.segments if name not in named)
    leading_out = tuple(edge for edge in known.edges if edge.source in gone)
    return replace(
        asked,
        segments=known.segments + new,
        edges=tuple(edge for edge in asked.edges if edge.source not in gone) + leading_out,
        removed=gone,
    )


def changes_graph(known: PipelineSpec, asked: PipelineSpec) -> bool:
    """Whether segments or edges differ, in whatever order the edges are named."""
    return (known.segments, known.removed, {*known.edges}) != (
        asked.segments, asked.removed, {*asked.edges}
    )  # fmt: skip


def is_activated(known: PipelineSpec, asked: PipelineSpec) -> bool:
    """Whether homes say in their logs from where on they go by a change: by what ticks create along, and which joinings of
    fronts count."""
    same_fronts = (known.fronts, known.front_count) == (asked.fronts, asked.front_count)
    return changes_graph(known, asked) or not same_fronts


def check_change(known: PipelineSpec, asked: PipelineSpec) -> None:
    """Raises Refused(CONFLICT) where a pipeline cannot become what `asked`, numbered, says while it runs."""
    for name in _FOR_GOOD:
        if getattr(known, name) != getattr(asked, name):
            raise _refused(
                known,
                f"its {name} is for good: it is {_text(getattr(known, name))}, and "
                f"{_text(getattr(asked, name))} is asked; register another pipeline that begins where this one is complete: "
                f"lowmark pipelines apply --succeeds {known.name}",
            )
    if known.start_slot != asked.start_slot:
        raise _refused(
            known,
            f"its start is for good: with `start: slot:{known.start_slot}` it is this one (`now` is another moment each "
            "time)",
        )
    if back := sorted({*known.removed} - {*asked.removed}):
        raise _refused(
            known,
            f"segment {back[0]!r} was removed, and a name is not given twice: name the new one otherwise",
        )


def is_less_patient(known: PipelineSpec, asked: PipelineSpec) -> bool:
    """Whether nodes have to say more often that they live than they were told when they attached their streams."""
    return (asked.keep_alive_ms or FOREVER) < (known.keep_alive_ms or FOREVER)


def united(spec: PipelineSpec, gone: tuple[Edge, ...]) -> SegmentGraph:
    """The graph of a pipeline with edges that are gone, too."""
    return SegmentGraph(replace(spec, edges=spec.edges + gone) if gone else spec)


def with_graph_of(spec: PipelineSpec, before: PipelineSpec) -> PipelineSpec:
    """A pipeline with the segments and edges that it had before."""
    return replace(spec, segments=before.segments, edges=before.edges, removed=before.removed)


def _text(value: object) -> str:
    return str(getattr(value, "value", value))


def _refused(known: PipelineSpec, message: str) -> Refused:
    return Refused(
        RefusalCode.CONFLICT, f"pipeline {known.name!r} cannot change so while it runs: {message}"
    )
