"""Entries of a home log: what a home tells every shard, in one order (rule 3)."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.log.steps import MembershipStep
from tracker.core.model import Cells, NodeKey, PipelineSpec, Restart, Tick
from tracker.core.model.placements import Group, Placement


@dataclass(frozen=True, slots=True)
class PipelineRegistered:
    """A pipeline exists from here on. restart: where one of its name was deleted before, the generation that it begins
    in, which is above all of that one; None for the first. placed: the version of its placement; 0 where there is none. base: as
    `Pipeline.base`."""

    spec: PipelineSpec
    restart: Restart | None = None
    placed: int = 0
    base: int = 0


@dataclass(frozen=True, slots=True)
class PipelineChanged:
    """A pipeline is what `spec` declares from here on. The registrar decides on it, and numbers the changes of a pipeline
    from 1: one that is not newer than what a shard knows is nothing there. Where segments, edges or fronts change, each home
    logs the change once more, `activated`, before it judges a tick by it: no tick in its log is judged by the new ones
    before that, and none by the old ones behind it."""

    number: int
    spec: PipelineSpec
    activated: bool = False
    """Whether the home that logs it judges by it from here on."""
    generation: int = 0
    """In which the pipeline is where this is logged: one of its name that was deleted before counts its changes from 1, too."""

    @property
    def pipeline(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class PipelineRestarted:
    """A new generation of a pipeline: what is open is dropped, and all keys of older ones end. Said by
    the registrar: entries of other logs that are of it wait for this one."""

    pipeline: str
    restart: Restart


@dataclass(frozen=True, slots=True)
class PipelineDeleted:
    """A pipeline ends: what is open is dropped, all keys end, and nothing more is taken of it. restart: the generation
    that ends it, in which nothing ever is. next_shard: shards from this number on, as far as is known, begin when they have
    heard of it, and log nothing of it; 0 where that is not said. Said by the registrar."""

    pipeline: str
    restart: Restart
    next_shard: int = 0


@dataclass(frozen=True, slots=True)
class PipelinesOver:
    """This home logs nothing more of pipelines that were deleted: (name, generation that ended it). A name can be given
    again where this is applied of every shard."""

    pipelines: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class PipelineCompleted:
    """Everything of a pipeline's generation is completely processed, in every segment. Said by the
    registrar, whose log also has the restarts: so one is before the other. Whoever applies it announces it;
    of an older generation it is nothing. at_ms: unix time, for the history."""

    pipeline: str
    generation: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Placed:
    """The directory: a name belongs to a group, or (NOWHERE) to none."""

    placement: Placement


@dataclass(frozen=True, slots=True)
class GroupKnown:
    """The directory: a group is there, as said."""

    group: Group


@dataclass(frozen=True, slots=True)
class KeyOpened:
    """A key begins, and with it an older key of the same node ends, in one entry. `restart`: the
    generation that it belongs to; None for the first. `owner`: as in `JoinNode`."""

    pipeline: str
    key: NodeKey
    kind: str
    restart: Restart | None = None
    owner: str = ""

    @property
    def generation(self) -> int:
        return 0 if self.restart is None else self.restart.generation


@dataclass(slots=True, eq=False)
class KeyTick:
    """A tick. Sent to another shard, it holds that shard's cells and units alone. `late` is the
    consumption below min time, which its owner counts in the late ledger instead of XORing it."""

    tick: Tick
    late: Cells


@dataclass(frozen=True, slots=True)
class KeyClosed:
    """A key ends after tick `last_number`; `evicted`: its node's fronts end with it; `retired`: so
    does an operator's word that the node is gone (rule 9); `keeps_places`: its fronts may come back, and nothing is complete
    until then (rule 8). Its home decides on that, by whether the pipeline is open there, so that all shards agree."""

    pipeline: str
    key: NodeKey
    last_number: int
    evicted: bool = False
    retired: bool = False
    keeps_places: bool = False


@dataclass(frozen=True, slots=True)
class KeyDropped:
    """Every shard has applied all of a closed key: it is forgotten."""

    pipeline: str
    key: NodeKey


@dataclass(slots=True, eq=False)
class WrittenOff:
    """An operator gives up what is open in some cells, because of a node that is gone (rule 9). A cell
    is cleared where its checksum is still the one given here, the one that the operator was shown;
    any other holds items of somebody else and stays. None is: the operator says that the node is gone,
    which was evicted before. node_id: empty where the cells are of a segment that was removed. Sent to another shard, it
    holds that shard's cells alone. at_ms: when, in unix time, for people. It is of one generation, and nothing in a later
    one."""

    pipeline: str
    node_id: str
    cells: Cells
    at_ms: int
    generation: int = 0


Entry = (
    PipelineRegistered
    | PipelineChanged
    | PipelineRestarted
    | PipelineDeleted
    | PipelinesOver
    | PipelineCompleted
    | Placed
    | GroupKnown
    | KeyOpened
    | KeyTick
    | KeyClosed
    | KeyDropped
    | WrittenOff
    | MembershipStep
)


def pipeline_of(entry: Entry) -> str | None:
    """The pipeline that an entry is of, which is there already; None if it is of none, or begins one."""
    if isinstance(entry, KeyTick):
        return entry.tick.pipeline
    if isinstance(entry, PipelineRegistered | PipelinesOver | Placed | GroupKnown | MembershipStep):
        return None
    return entry.pipeline
