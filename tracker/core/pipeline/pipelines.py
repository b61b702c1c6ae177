"""The pipelines that one process knows, and which of them there is something to do about."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, replace

from tracker.core.log.losses import Move
from tracker.core.model import PipelineSpec, Refusal, RefusalCode, Refused, Restart
from tracker.core.model import durable as d
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.pipeline import Pipeline

MAX_ENDED = 1_024
"""Names of deleted pipelines that are remembered. A registrar deletes no more while so many are not over everywhere."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A pipeline that was deleted, or (moved) has gone to another group: by which generation it ended here, and the homes that
    have logged their last of it. hearsay: homes have said so, and its end was not applied here: it has yet to come, or was forgotten,
    and a shard that has joined since says so once more. placed: by which placement it was here last. next_shard: shards from this
    number on began when they had heard of the end, and log nothing of it; 0 where that is not known."""

    pipeline: str
    generation: int
    over_at: tuple[int, ...] = ()
    moved: bool = False
    hearsay: bool = False
    placed: int = 0
    next_shard: int = 0

    def awaited(self, shards: Set[int]) -> Set[int]:
        """Those of these shards that have yet to log their last of it. All know the same of whom to wait for: one may forget it
        when nobody is waited for, also before another one has heard as much."""
        waits = shards - {*self.over_at}
        return {shard for shard in waits if shard < self.next_shard} if self.next_shard else waits


@dataclass(init=False, eq=False, repr=False)
class Pipelines(dict[str, Pipeline]):
    """By name. Durable are the pipelines themselves."""

    evicting: dict[str, None] = d.follows("the pipelines")
    """Those that evict silent fronts, in the order in which they were registered."""
    coming: frozenset[str] = d.follows("the membership", default=frozenset())
    """Names of those that come from other groups."""
    segments: int = d.follows("the pipelines")
    """Of all of them together."""
    registering: dict[str, PipelineSpec] = d.follows("what is appended", ahead=True)
    """Appended registrations that are not durable yet."""
    changing: dict[str, tuple[int, PipelineSpec]] = d.follows("what is appended", ahead=True)
    """What pipelines become by an entry that is not durable here yet, of this home's log or another's: the newest change by
    its number."""
    beginning: dict[str, int] = d.follows("what is appended", ahead=True)
    """Their newest generations, by entries of other homes' logs that are not durable here yet."""
    unactivated: dict[str, None] = d.follows("the pipelines")
    """Those with a change of segments or edges that this home has not logged that it judges by."""
    ended: dict[str, Ended] = d.survives(d.values("pipeline"))
    """Pipelines that were deleted, the last MAX_ENDED: what others still log of them is passed over. One of which some
    shard has not logged its last is kept beyond that. Of one that lives, another home has applied the deletion first."""
    unfinished: dict[str, None] = d.follows("`ended`")
    """Those of them of which this shard has not logged its last, and is waited for. (Who is not says nothing: the pipeline may be
    back when that is heard.)"""
    ended_before: int = d.survives(default=0)
    """The largest generation that ended one which is forgotten."""
    placed_before: int = d.survives(default=0)
    """The largest version of a placement by which a pipeline was here that has ended. By none up to that anything is registered
    here any more: whoever was given one may have been overtaken."""
    _shard: int = d.follows("which process it is")
    _dirty: dict[str, None] = d.forgotten(d.REPORTED_AGAIN)
    """Those that something may have to be reported or announced of."""

    def __init__(self, shard: int) -> None:
        super().__init__()
        self._shard, self.segments = shard, 0
        self.evicting, self.registering, self._dirty = {}, {}, {}
        self.changing, self.beginning = {}, {}
        self.unactivated, self.coming = {}, frozenset()
        self.ended, self.unfinished, self.ended_before = {}, {}, 0
        self.placed_before = 0

    def derive(self) -> None:
        """Works out what follows from what is durable."""
        self.unfinished = {
            name: None
            for name, each in self.ended.items()
            if not each.hearsay and each.awaited({self._shard})
        }

    def add(self, pipeline: Pipeline) -> None:
        """A pipeline is registered, or has come back."""
        self[pipeline.spec.name] = pipeline
        self.begun(pipeline.spec.name, pipeline.generation)
        self.segments += len(pipeline.spec.segments)
        self._look_at(pipeline)

    def _look_at(self, pipeline: Pipeline) -> None:
        name, change = pipeline.spec.name, pipeline.graph_change
        for known, belongs in (
            (self.evicting, pipeline.spec.evicts),
            (self.unactivated, change.number and self._shard not in change.activated),
        ):
            if not belongs:
                known.pop(name, None)
            else:
                known.setdefault(name)

    def there(self, moving: Iterable[Move]) -> int:
        """How many pipelines there are, are being registered, or come by these moves."""
        return len({*self, *self.registering, *(m.pipeline for m in moving if m.arrives)})

    def change(self, number: int, spec: PipelineSpec) -> None:
        """A pipeline becomes what `spec` says, by its change `number`."""
        pipeline = self[spec.name]
        segments = len(pipeline.spec.segments)
        if pipeline.change(number, spec):
            self.segments += len(spec.segments) - segments
            self._look_at(pipeline)
        if spec.name in self.changing and pipeline.changes >= self.changing[spec.name][0]:
            del self.changing[spec.name]

    def will_change(self, number: int, spec: PipelineSpec) -> None:
        """An entry says so that is appended, and not durable here."""
        newest = self.newest(spec.name)
        if newest is not None and newest[0] < number:  # else it was deleted, or is known
            self.changing[spec.name] = number, spec

    def will_begin(self, name: str, restart: Restart | None) -> None:
        """An entry says so that is appended, and not durable here."""
        if restart is not None and restart.generation > self.newest_generation(name):
            self.beginning[name] = restart.generation

    def begun(self, name: str, generation: int) -> None:
        """A pipeline has come to a generation here, or has ended in it."""
        if self.beginning.get(name, generation + 1) <= generation:
            del self.beginning[name]

    def newest_generation(self, name: str) -> int:
        """Of a pipeline that is known, durably here or not."""
        known = self.get(name)
        there = 0 if known is None else known.generation
        return max(there, self.beginning.get(name, 0))

    def newest(self, name: str) -> tuple[int, PipelineSpec] | None:
        """How often a pipeline was changed and what it has become, durably here or not; None if it is unknown."""
        known, registering = self.get(name), self.registering.get(name)
        if name in self.changing:
            return self.changing[name]
        if known is not None:
            return known.changes, known.spec
        return None if registering is None else (0, registering)

    def is_open(self, pipeline: Pipeline) -> bool:
        """Whether a pipeline is open, or becomes so by an entry that is appended: what is announced becomes durable behind
        that."""
        _, spec = self.changing.get(pipeline.spec.name, (0, pipeline.spec))
        return pipeline.spec.open or spec.open

    def activated(self, name: str, home: int, number: int) -> None:
        """A home judges by a change of segments or edges from here on."""
        pipeline = self[name]
        pipeline.graph_change.activate(home, number)
        if home == self._shard and number == pipeline.graph_change.number:
            pipeline.activate()  # in recovery
        self._look_at(pipeline)

    def change_everywhere(self, name: str, members: Set[int]) -> None:
        """A pipeline is at every home what it has become here."""
        self[name].change_everywhere(members)
        self.changing.pop(name, None)
        self._look_at(self[name])

    def end(
        self, name: str, restart: Restart, shards: Set[int], next_shard: int, *, moved: bool = False
    ) -> None:
        """A pipeline was deleted, or has gone to another group, and is gone. shards: those that may still have to hear of it;
        next_shard: and from which number on none has."""
        pipeline = self.pop(name)
        self.placed_before = max(self.placed_before, pipeline.placed)
        self.segments -= len(pipeline.spec.segments)
        self.evicting.pop(name, None)
        self._dirty.pop(name, None)
        self.changing.pop(name, None)
        self.begun(name, restart.generation)
        self.unactivated.pop(name, None)
        known = self.ended.pop(name, None)
        if known is None or known.generation < restart.generation:
            known = Ended(name, restart.generation)
        placed = pipeline.placed
        self._keep(replace(known, moved=moved, hearsay=False, placed=placed, next_shard=next_shard))
        if len(self.ended) > MAX_ENDED:
            # What lives here is one whose end has yet to be heard: what others have said of it, they do not say again.
            over = (
                each
                for each in self.ended.values()
                if not each.awaited(shards)
                or (self._was_forgotten(each) and each.pipeline not in self)
            )
            if (oldest := next(over, None)) is not None:
                del self.ended[oldest.pipeline]
                self.unfinished.pop(oldest.pipeline, None)
                self.ended_before = max(self.ended_before, oldest.generation)

    def ended_by(self, name: str, before: int, placed: int) -> None:
        """One that ended here by the placement `before` has another one since, by whoever had not heard of its end."""
        known = self.ended.get(name)
        if known is not None and not known.hearsay and known.placed == before:
            self.placed_before = max(self.placed_before, placed)
            self._keep(replace(known, placed=placed))

    def _keep(self, ended: Ended) -> None:
        self.ended[ended.pipeline] = ended
        if ended.hearsay or not ended.awaited({self._shard}):
            self.unfinished.pop(ended.pipeline, None)
        else:
            self.unfinished[ended.pipeline] = None

    def over(self, name: str, generation: int, home: int) -> None:
        """A home has logged its last of a pipeline that was deleted, which may not be known here yet."""
        known = self.ended.get(name)
        if known is None or known.generation < generation:
            known = Ended(name, generation, hearsay=True)
        if known.generation == generation and home not in known.over_at:
            self._keep(replace(known, over_at=tuple(sorted((*known.over_at, home)))))

    def will_not_come(self, name: str, generation: int, next_shard: int) -> None:
        """Of one that is not here and was deleted, the log that says so is lost: nothing of it is heard or logged here any more. Some
        may have known of its end before and said so, or not been waited for, or have forgotten it: all that are left say so anew."""
        known = self.ended.get(name)
        if known is None or known.generation < generation:
            known = Ended(name, generation)
        if known.generation == generation:
            self._keep(replace(known, over_at=(), hearsay=False, next_shard=next_shard))

    def forget_ended(self, name: str) -> None:
        """A pipeline of this name comes, and every shard has let go of the one that ended here: what is said of it from here on is
        of the one that comes."""
        ended = self.ended.pop(name, None)
        self.unfinished.pop(name, None)
        if ended is not None:
            self.ended_before = max(self.ended_before, ended.generation)

    def is_over(self, name: str, generation: int | None, home: int | None = None) -> bool:
        """Whether what names a pipeline of this generation is of one that was deleted, and is nothing any more. generation: None where it
        is of no later one than has been known here, or of one that comes; home: by whose log."""
        known = self.ended.get(name)
        if known is None or known.hearsay or name in self:
            return False
        if generation is None and name in self.coming and home in known.over_at:
            return False  # that home has logged its last of it: this is of the one that comes
        return generation is None or generation <= known.generation

    def may_begin(self, name: str, shards: Set[int], generation: int | None = None) -> bool:
        """Whether a name is free: where one of its name was deleted, each of these has logged its last of that. generation: in
        which one begins, of whose own end others may have said so already."""
        known = self.ended.get(name)
        is_its_own = (
            known is not None and known.hearsay and known.generation > (generation or FOREVER)
        )
        return name not in self and (is_its_own or not self.is_ending(name, shards))

    def is_ending(self, name: str, shards: Set[int]) -> bool:
        """Whether one of this name was deleted, is not there anew, and some of these shards may have more of it to log."""
        known = self.ended.get(name)
        if known is None or name in self or self._was_forgotten(known):
            return False
        return bool(known.awaited(shards))

    def _was_forgotten(self, ended: Ended) -> bool:
        """Whether a shard that has joined since has said once more that one is over which was so everywhere."""
        return ended.hearsay and ended.generation <= self.ended_before

    def last_generation(self, name: str) -> int:
        """Above which one of this name has to begin; 0 if it may begin in the first."""
        known = self.ended.get(name)
        if known is None or self._was_forgotten(known):
            return self.ended_before
        return known.generation

    def named(self, name: str) -> Pipeline:
        """The pipeline of this name; raises Refused(UNKNOWN_PIPELINE) if there is none."""
        pipeline = self.get(name)
        if pipeline is None and name in self.coming:
            raise Refused.of(moving(name, None))
        if pipeline is None and name in self.ended:
            raise Refused.of(gone(name) if self.ended[name].moved else deleted(name))
        if pipeline is None:
            raise Refused.of(
                Refusal(
                    RefusalCode.UNKNOWN_PIPELINE,
                    f"pipeline {name!r} is not registered (shard {self._shard} knows {len(self)} pipelines); register it first",
                    pipeline=name,
                )
            )
        return pipeline

    def validate(self) -> None:
        """Raises AssertionError where this shard would say of a pipeline which it still has that it is over."""
        for name in self.unfinished:
            known = self.get(name)
            assert known is None or known.generation > self.ended[name].generation, name

    def mark(self, *names: str) -> None:
        """Something may have to be reported or announced of these, but for those that were deleted."""
        self._dirty.update(dict.fromkeys(name for name in names if name in self))

    def unmark(self, name: str) -> None:
        """What there was to report of it is reported."""
        del self._dirty[name]

    @property
    def has_news(self) -> bool:
        """Whether any is marked."""
        return bool(self._dirty)

    @property
    def of_which_news(self) -> Collection[str]:
        """Those that are marked."""
        return self._dirty.keys()

    def marked(self) -> dict[str, None]:
        """Those that are marked, in that order; none is, from here on."""
        marked, self._dirty = self._dirty, {}
        return marked


def moving(pipeline: str, group: int | None) -> Refusal:
    """Why nothing is taken of a pipeline that is on its way. group: to which it goes; None where it comes here."""
    where = "here" if group is None else f"to group {group}"
    return Refusal(
        RefusalCode.NOT_READY,
        f"pipeline {pipeline!r} is on its way {where}, and nothing of it is taken meanwhile; ask again",
    )


def gone(pipeline: str) -> Refusal:
    """Why nothing is taken of a pipeline that has gone to another group."""
    return Refusal(
        RefusalCode.UNKNOWN_PIPELINE,
        f"pipeline {pipeline!r} has gone to another group of the deployment; ask any process of it where that is",
        pipeline=pipeline,
    )


def ending(pipeline: str) -> Refusal:
    """Why no other one may have the name yet of a pipeline that was deleted."""
    return Refusal(
        RefusalCode.NOT_READY,
        f"pipeline {pipeline!r} was deleted, and not every shard has let go of it; ask again",
    )


def deleted(pipeline: str) -> Refusal:
    """Why nothing is taken of a pipeline that was deleted."""
    return Refusal(
        RefusalCode.UNKNOWN_PIPELINE,
        f"pipeline {pipeline!r} was deleted; to track its input again, register it anew",
        pipeline=pipeline,
    )
