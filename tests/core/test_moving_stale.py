"""A move of a pipeline is ended by what was asked of that move, and by no driver or question of an older one that comes late (rule 13)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tests.core.deployment import Deployment
from tests.core.test_moving import running
from tracker.core.log import EndMove, MovePipeline, PlacePipeline
from tracker.core.moving.driver import Ask, Pause


def before(made: Deployment, drive: Generator[Any, Any, str], kind: type, asked: Any = None) -> Ask:
    """A driver goes on, from what it was about to ask, until it is about to ask something of this kind; that."""
    asked = next(drive) if asked is None else drive.send(made.ask(asked))
    while isinstance(asked, Pause) or not isinstance(asked.what, kind):
        made.settle()
        asked = drive.send(None if isinstance(asked, Pause) else made.ask(asked))
    assert isinstance(asked, Ask)
    return asked


def given_up(made: Deployment, source: int, target: int) -> None:
    """A move has begun, and the directory leaves the pipeline where it is: the group has not heard of that yet."""
    made.begin_move("p", source, target)
    made.place("p", source, made.groups[source].pipeline(0).placed)
    made.settle()


def test_who_drove_a_move_from_here_ends_no_later_one() -> None:
    """The pipeline goes from group 0 to group 1 and back. Then it is to go again, and the directory says that it stays. A process that drove
    the first move, and has not heard that it is over, looks where the pipeline is. That is by no placement of its own move, so it
    has its group let go of the pipeline."""
    made, _, _ = running(2, 2)
    made.begin_move("p", 0, 1)
    late = made.drive("p", 0)
    made.go_on("p", 0, 1)
    made.move("p", 1, 0)
    made.go_on("p", 0)
    given_up(made, 0, 1)
    made.run(late)
    made.go_on("p", 0)
    assert made.has("p") == [0], "it is in none"


def test_who_drove_a_move_to_here_ends_no_later_one() -> None:
    """The pipeline has come to group 1, whose first process was about to look whether it does. It is to go back, and the directory says
    that it stays. Then that process looks."""
    made, _, _ = running(2, 2)
    made.begin_move("p", 0, 1)
    drive = made.drive("p", 0)
    made.until(drive, PlacePipeline)
    late = made.drive("p", 1)
    made.run(drive)
    given_up(made, 1, 0)
    made.run(late)
    made.go_on("p", 1)
    assert made.has("p") == [1], "it is in none"


def test_what_was_asked_of_a_move_ends_none_that_has_begun_by_the_same_placement_again() -> None:
    """Of three processes that drove a move from group 0 to group 1, the first has all parts, and the second has asked group 1 to begin
    the pipeline, which comes late. The third one is done with the move, and the pipeline goes back. Then the first one hands over what it
    has: group 1 takes it, though it has had the pipeline by a later placement. And then comes what the second one asked."""
    made, _, _ = running(1, 1)
    made.begin_move("p", 0, 1)
    first, second = made.drive("p", 0), made.drive("p", 0)
    begins = before(made, first, MovePipeline)
    ends = before(made, second, EndMove)
    made.go_on("p", 0, 1)
    made.move("p", 1, 0)
    assert made.has("p") == [0]
    before(made, first, PlacePipeline, begins)
    made.ask(ends)
    made.go_on("p", 1)
    assert made.has("p") == [0], "it is in both"
