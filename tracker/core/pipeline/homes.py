"""What this shard decides on by now: nodes at home here, names that it registers (rules 3, 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracker.core.cut.stable import StableCut
from tracker.core.cut.vectors import ALL
from tracker.core.membership.shards import Shards
from tracker.core.model import Held, Refusal, RefusalCode, Refused
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines, moving
from tracker.core.replication.replication import Replication


@dataclass(slots=True, eq=False)
class Homes:
    """Whose home this shard is, by the newest table, once all have applied what the home before had logged."""

    _shards: Shards
    _pipelines: Pipelines
    _cut: StableCut
    _replication: Replication

    def at_home(self, pipeline: str, node_id: str) -> Pipeline:
        """The pipeline of a node that is at home here; raises Refused(NOT_HOME or NOT_READY) where it is not, yet."""
        self.need_no_loss(f"pipeline {pipeline!r}: node {node_id!r}")
        state = self._pipelines.named(pipeline)
        home = self._shards.routing.home(pipeline, node_id)
        if home != self._shards.own:
            raise Refused(
                RefusalCode.NOT_HOME,
                f"pipeline {pipeline!r}: node {node_id!r} is at home at shard {home}",
                home=home,
            )
        if state.held is not None:
            raise Refused.of(held(pipeline, state.held))
        self.need_no_move(pipeline)
        before = self._shards.membership.previous
        if before is not None and before.home(pipeline, node_id) != self._shards.own:
            self._need_all_adopted(f"pipeline {pipeline!r}: node {node_id!r}")
            self._need_activated(pipeline)
        return state

    def need_registrar(self, pipeline: str, what: str, *, moves: bool = False) -> None:
        """Raises Refused unless this shard decides on a pipeline's name. moves: also while it moves."""
        self.need_no_loss(f"pipeline {pipeline!r}")
        home = self._shards.routing.registrar(pipeline)
        if home != self._shards.own:
            raise Refused(
                RefusalCode.NOT_HOME, f"pipeline {pipeline!r} is {what} shard {home}", home=home
            )
        if not moves:
            self.need_no_move(pipeline)
        before = self._shards.membership.previous
        if before is not None and before.registrar(pipeline) != self._shards.own:
            self._need_all_adopted(f"pipeline {pipeline!r}")

    def decides_on(self, pipeline: str) -> bool:
        """Whether this shard is a pipeline's registrar, and everybody has applied what the one before it
        had logged."""
        if self._shards.routing.registrar(pipeline) != self._shards.own:
            return False
        if self._shards.membership.loss is not None or pipeline in self._shards.membership.moving:
            return False
        before = self._shards.membership.previous
        return (
            before is None or before.registrar(pipeline) == self._shards.own or self.all_adopted()
        )

    def need_no_loss(self, whose: str) -> None:
        """While shards are being declared lost nothing is decided: the one that leads puts together what each shard has
        logged by then."""
        if self._shards.membership.loss is not None:
            raise Refused.of(losing(whose, self._shards.membership.loss.lost))

    def need_level(self, level: int, what: str) -> None:
        """Before all record by a level, nothing is logged that needs it: others would wait for the level with all that stands behind
        that, be it the step that raises it. Where this process began by itself, by a newer release than others, they record by an
        older level than it does, and it hears nothing of those that do not speak its own."""
        known, links = self._shards.membership, self._replication.links
        others = {shard: links[shard].level for shard in known.members & links.keys()}
        if unheard := sorted(shard for shard, recorded in others.items() if not recorded):
            raise Refused(
                RefusalCode.NOT_READY,
                f"{what} has to wait: shards {unheard} have not reported yet by which feature level they record; ask again",
            )
        if (least := min([known.level, *others.values()])) < level:
            raise Refused(
                RefusalCode.NOT_READY,
                f"{what} has to wait: all record by feature level {least} here, and this needs level {level}; finish the upgrade of "
                "this group first (lowmark shards --finish-upgrade)",
            )

    def need_no_move(self, pipeline: str) -> None:
        """While a pipeline goes to another group, or comes from one, nothing of it is decided in either."""
        move = self._shards.membership.moving.get(pipeline)
        if move is not None:
            raise Refused.of(moving(pipeline, None if move.arrives else move.group))

    def _need_all_adopted(self, whose: str) -> None:
        """What another home has handed over is taken up here when every shard has applied all that the
        other one logged before: then the ticks of each node stay in one order everywhere (rule 3)."""
        if not self.all_adopted():
            raise Refused(
                RefusalCode.NOT_READY,
                f"{whose} is on its way to shard {self._shards.own}: the shards have changed, and not all of "
                "them go by the new table; ask again",
            )

    def _need_activated(self, pipeline: str) -> None:
        """A shard that is a home anew goes by every change: others may have taken one for over before they counted it."""
        if pipeline in self._pipelines.unactivated:
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {pipeline!r} has changed, and shard {self._shards.own} has not heard of every shard that it reckons with "
                "that; ask again",
            )

    def need_all_heard(self, whose: str) -> None:
        """What follows from how all go on without lost shards may be told only when all are known to have heard that: should this one
        be lost in a moment, nobody else could tell the same."""
        if not self.all_heard():
            raise Refused(
                RefusalCode.NOT_READY,
                f"{whose} has to wait: shard {self._shards.own} has not heard yet that all others go by the same table; ask again",
            )

    def all_adopted(self) -> bool:
        """Whether every shard is known to have applied what every home logged by the table before."""
        return self._shards.membership.is_done or self._all_have_adopted

    def all_heard(self) -> bool:
        """Whether every shard is known to have heard how all go on without those that were lost, if any were."""
        return not self._shards.membership.lost or self._all_have_adopted

    @property
    def _all_have_adopted(self) -> bool:
        """Whether every shard is known to have applied the entries by which all homes adopted the table: of a loss what each one
        knew, and how all go on."""
        known, cut = self._shards.membership, self._cut.vectors.cut
        at = known.adopted_at
        return known.is_adopted and all(cut[home] >= at[home] for home in known.members)

    def lagging(self, since: Mapping[int, int]) -> list[int]:
        """The shards that may lack something of what every shard had when so much of each home's log was applied here (nothing: that
        is not known): those that were to join by then, and those that have joined and lack something of what is in the stable
        cut, which stays where it is for them."""
        known, vectors = self._shards.expected(), self._cut.vectors
        if not self._cut.is_reached:
            return sorted(known.with_newcomers)
        last = since.get(known.sequencer, ALL)
        coming = {shard for shard, (_, number) in known.joining.items() if number <= last}
        behind = {s for home in vectors.homes for s, _ in vectors.behind(home, vectors.cut[home])}
        return sorted(behind | coming)

    @property
    def takes_up_nodes(self) -> bool:
        """Whether nodes that are at home here may be taken up: not while some shard still goes by the
        table before."""
        known = self._shards.membership
        return known.loss is None and (known.previous is None or self.all_adopted())


def losing(whose: str, lost: Sequence[int]) -> Refusal:
    """Why nothing is decided while shards are declared lost."""
    return Refusal(
        RefusalCode.NOT_READY,
        f"{whose} has to wait: shards {[*lost]} are being declared lost, and the others agree on what they go on from; ask "
        "again",
    )


def held(pipeline: str, since: Held) -> Refusal:
    """Why nothing is taken of a pipeline that stands because shards are lost."""
    slot = "" if since.from_slot is not None else ", from a slot that you name (--from)"
    return Refusal(
        RefusalCode.NOT_READY,
        f"pipeline {pipeline!r} stands: shards {[*since.lost]} were declared lost, and what was open there is held until an "
        f"operator gives it up: lowmark pipelines restart {pipeline}{slot}",
    )
