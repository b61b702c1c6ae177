"""When a move is given up that does not come forward."""

from __future__ import annotations

from typing import Any

from tracker.core.log import PlacePipeline
from tracker.core.log.losses import Move
from tracker.core.model.placements import DIRECTORY_GROUP, Placement
from tracker.core.moving.driver import AWAY, Ask, Members, Pause, PieceWanted, Where, follow
from tracker.service.groups.mover import PATIENCE_S, Patience

HERE, THERE, SHARD = 1, 2, 0
ASKED_S, PAUSE_S = 5.0, 1.0
"""What takes a question that nobody answers, and a pause."""


class Driven:
    """A move of the group `HERE`, whose shard does not answer; the directory does. Time is what questions and pauses take."""

    def __init__(self, arrives: bool, directory: Any) -> None:
        self.now_s = 0.0
        self.asked: list[Any] = []
        self._patience = Patience(lambda: self.now_s)
        self.follows(arrives, directory)

    def follows(self, arrives: bool, directory: Any) -> None:
        """Begins, or goes on with another part of it. directory: what that answers."""
        self._steps = follow(Move("orders", 1, 7, THERE, arrives), HERE)
        self._directory = directory
        self._answer: Any = None

    def step(self) -> Any:
        """One question or pause; what is asked next."""
        asked = self._steps.send(self._answer)
        self._answer = None
        if isinstance(asked, Pause):
            self.now_s += 0.0 if self._patience.is_over else PAUSE_S
        elif not self._patience.takes(asked):
            self._answer = AWAY
        else:
            self.asked.append(asked.what)
            self._answer = self._answered(asked)
            self.now_s += ASKED_S if self._answer is AWAY else 0.0
        return asked

    def _answered(self, ask: Ask) -> Any:
        if ask.group == DIRECTORY_GROUP:
            return self._directory
        return (SHARD,) if isinstance(ask.what, Members) else AWAY


PLACED = Placement("orders", HERE, 7)


def test_a_move_is_given_up_after_a_minute_however_long_each_question_takes() -> None:
    """The directory is asked in between whether it has decided meanwhile: that is no other question."""
    driven = Driven(arrives=False, directory=PLACED)
    while not (isinstance(asked := driven.step(), Ask) and isinstance(asked.what, PlacePipeline)):
        pass
    assert asked == Ask(DIRECTORY_GROUP, PlacePipeline(None, "orders", HERE, 7))
    assert PATIENCE_S <= driven.now_s <= PATIENCE_S + ASKED_S + PAUSE_S
    in_vain = sum(isinstance(what, PieceWanted) for what in driven.asked)
    assert in_vain == PATIENCE_S // (ASKED_S + PAUSE_S)


def test_where_a_pipeline_belongs_is_asked_for_as_long_as_it_takes() -> None:
    """Before, a shard was asked in vain. Now the directory does not answer, and no group is asked: that question is asked, and
    paused for, all the same."""
    driven = Driven(arrives=False, directory=PLACED)
    while driven.now_s < PATIENCE_S / 2:
        driven.step()
    driven.asked.clear()
    driven.follows(arrives=True, directory=AWAY)
    for _ in range(100):
        driven.step()
    assert driven.asked == [Where("orders")] * 50
    assert driven.now_s > 5 * PATIENCE_S
