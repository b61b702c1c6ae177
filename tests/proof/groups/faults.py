"""Faults planted into the steps by which pipelines move: with each a promise is broken, by a run from the beginning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from z3 import And, Not, Or

from tests.proof.logic import Effect, Formula, State
from tests.proof.mutations import Mutation, instead, without
from tests.proof.runs import Plant

TWICE = "a pipeline goes on in one group"
LOST = "it is in some group"
UNCOUNTED = "acknowledged ticks count once"
COUNTED_AGAIN = "ticks in cells are known"
TAKEN_BACK = "told stays announced"

TICK = "take_tick log_tick acknowledge"
ANNOUNCE = "append_announcement record_announcement tell_announcement"
READ = "begin_to_go/m=1 come_to_rest/m=1 write/m=1,l=1"
TAKEN = "begin_to_come/m=2,l=1 keep_known/m=2 keep_cells/m=2 be_ready/m=2"
KEPT = f"{READ} {TAKEN}"
TURNED = f"{KEPT} turn/m=1,m2=2,v=2"
COME = f"{TURNED} look/m=2,v=2 come/m=2"
MOVED = f"{COME} look/m=1,v=2 leave/m=1"
"""A whole move, from one group to another."""
BACK = """
begin_to_go/m=3 come_to_rest/m=3 write/m=3,l=2 begin_to_come/m=4,l=2 keep_known/m=4 keep_cells/m=4 be_ready/m=4
turn/m=3,m2=4,v=3 look/m=4,v=3 come/m=4 look/m=3,v=3 leave/m=3
"""
"""And back."""
THERE_AND_BACK = f"{MOVED} {BACK}"
GIVEN_UP = f"{KEPT} leave_it_there/m=1,v=2 look/m=1,v=2 stay/m=1 look/m=2,v=2 drop/m=2"
"""One that is given up, when all was kept."""
TO_GO_AGAIN = "begin_to_go/m=5 leave_it_there/m=5,v=4"
"""A further move begins, and the directory says that the pipeline stays."""

FAULTS: dict[str, Mutation] = {}


def fault(step: str, story: str, breaks: str, **sizes: int) -> Callable[[Plant], Plant]:
    """A plant as a mutation by its name, with its docstring as what it breaks."""

    def take(plant: Plant) -> Plant:
        name = plant.__name__.replace("_", "-")
        says = (plant.__doc__ or "").strip()
        FAULTS[name] = Mutation(name, "e", 13, says, step, plant, story, breaks, sizes=sizes)
        return plant

    return take


# --- what is read of a pipeline that goes -----------------------------------------------------------


@fault(
    "come_to_rest", f"take_tick {READ} log_tick acknowledge {TAKEN} turn look/m=2 come", UNCOUNTED
)
def read_before_the_home_is_done(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A home says that it has logged its last of a pipeline while a tick is on the way to its log."""
    return without(effect, "no tick is on the way to the log")


@fault("take_tick", f"{READ} {TICK} {TAKEN} turn look/m=2 come", UNCOUNTED)
def ticks_taken_while_it_goes(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A home takes ticks of a pipeline that is about to go."""
    return instead(effect, "the pipeline goes on", now.has(given["g"]))


@fault(
    "write",
    f"append_announcement {READ} record_announcement tell_announcement {TAKEN} turn look/m=2 come",
    TAKEN_BACK,
)
def read_before_announcements_are_durable(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A pipeline is given to whoever moves it while an announcement is on the way to the log."""
    return without(effect, "what was announced is durable")


# --- what is kept of one that comes -----------------------------------------------------------------


@fault(
    "keep_cells",
    f"{READ} leave_it_there/m=1,v=2 look/m=1 stay/m=1 {TICK} begin_to_go/m=3 come_to_rest/m=3 write/m=3,l=2 "
    "begin_to_come/m=2,l=2 keep_known/m=2,l=2 keep_cells/m=2,l=1 be_ready/m=2 turn/m=3,m2=2,v=3 look/m=2,v=3 come/m=2",
    UNCOUNTED,
    letter=2,
    move=3,
)
def cells_of_a_move_that_was_given_up(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """Cells are kept that were read for another move."""
    return instead(effect, "by that version", now.written(given["l"]))


@fault(
    "begin_to_come",
    f"{MOVED} {TICK} begin_to_come/m=3,l=1 keep_known/m=3 keep_cells/m=3 be_ready/m=3 look/m=3 come/m=3",
    UNCOUNTED,
    move=3,
)
def comes_where_it_is(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A group begins to take a pipeline that it has."""
    return without(effect, "it is not here")


@fault("come", f"{ANNOUNCE} {COME}", TAKEN_BACK)
def begun_without_what_was_announced(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A pipeline that has come begins as if nothing had been announced."""
    then = {name: new for name, new in effect.then.items() if name not in ("announced", "recorded")}
    return replace(effect, then=then)


# --- what the directory decides ---------------------------------------------------------------------


@fault("turn", f"{READ} begin_to_come/m=2 turn/m=1 look/m=1 leave/m=1", LOST)
def turned_before_all_is_kept(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """The directory turns while the other group has not kept all of the pipeline: the one that it leaves lets go of it."""
    return without(effect, "all of it is kept")


@fault(
    "turn",
    f"{KEPT} leave_it_there/m=1,v=2 look/m=1,v=2 stay/m=1 turn/m=1,m2=2,v=3 look/m=2,v=3 come/m=2",
    TWICE,
)
def turned_whatever_was_decided(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """The directory turns though the move was given up."""
    return without(effect, "it is to replace that version")


@fault("leave_it_there", f"{COME} leave_it_there/m=1,v=3 look/m=1,v=3 stay/m=1", TWICE)
def given_up_after_the_directory_has_turned(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A move is given up though the directory has turned."""
    return without(effect, "it is to replace that version")


@fault("claim", f"{TURNED} claim look/m=2,v=3 drop look/m=1 leave", LOST)
def claimed_as_if_it_had_moved(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A placement that is claimed once more says that the pipeline was moved from the one before."""
    v, v2 = given["v"], given["v2"]
    moved = And(now.in_group(v2) == now.in_group(v), now.came_from(v2, v))
    return instead(effect, "it says the same", moved)


# --- how a move ends --------------------------------------------------------------------------------


@fault("stay", f"{COME} look/m=1,v=2 stay/m=1", TWICE)
def goes_on_by_its_own_word(now: State, effect: Effect, given: Mapping[str, Any]) -> Effect:
    """A group goes on when a move is over, wherever the directory says that the pipeline is."""
    return without(effect, "it is still here")


@fault(
    "leave",
    f"{THERE_AND_BACK} {TO_GO_AGAIN} look/m=1,v=4 leave/m=5",
    LOST,
    version=4,
    move=5,
    letter=2,
)
def ended_by_who_drove_another_one_from_here(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """What ends a move does not say which: whoever drove an older one from this group, and looks late, sees no placement of that
    one, and has the group let go of the pipeline."""
    return _ended_by_another_one(now, effect, given, lambda m: Not(now.arrives(m)))


@fault(
    "leave",
    f"{MOVED} begin_to_go/m=3 leave_it_there/m=3,v=3 look/m=2,v=3 leave/m=3",
    LOST,
    move=3,
)
def ended_by_who_drove_another_one_to_here(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """So does whoever drove the move by which it came to this group."""
    return _ended_by_another_one(now, effect, given, now.arrives)


def _ended_by_another_one(
    now: State, effect: Effect, given: Mapping[str, Any], way: Callable[[Any], Formula]
) -> Effect:
    """By a move of the same group of that way, that is over and seems to have brought the pipeline elsewhere."""
    m, v = given["m"], given["v"]

    def seems_gone(m2: Any) -> Formula:
        again = now.some(
            lambda v2: And(
                now.came_from(v, v2), Not(now.arrives(m2)), Not(now.less(now.by(m2), v2))
            )
        )
        here = And(now.in_group(v) == now.of_group(m), Or(again, now.came_from(v, now.by(m2))))
        return And(
            now.looked(m2, v),
            now.ended(m2),
            way(m2),
            now.of_group(m2) == now.of_group(m),
            Not(here),
        )

    conditions = ("who asks has seen that", "it is not here any more")
    rightly = And([effect.when[condition] for condition in conditions])
    by_another_one = And(now.less(now.by(m), v), now.some(seems_gone))
    return instead(without(effect, conditions[1]), conditions[0], Or(rightly, by_another_one))


@fault(
    "come",
    f"{MOVED} {BACK} begin_to_come/m=5,l=1 keep_known/m=5,l=1 keep_cells/m=5,l=1 be_ready/m=5 come/m=5,v=2",
    TWICE,
    move=5,
    letter=2,
)
def ended_by_what_was_asked_of_another_one(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """What ends a move does not say which: it was asked of one that is over, by the same placement, and comes late."""
    m, v = given["m"], given["v"]
    asked = now.some(lambda m2: And(now.looked(m2, v), now.by(m2) == now.by(m)))
    return instead(effect, "who asks has seen that", asked)


# --- ticks ------------------------------------------------------------------------------------------


@fault("acknowledge", "take_tick acknowledge restart_group", UNCOUNTED)
def acknowledged_before_it_is_durable(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A tick is acknowledged when it is taken."""
    return instead(effect, "it is durable", now.accepted(given["g"], given["t"]))


@fault("take_tick", "take_tick log_tick take_tick log_tick", COUNTED_AGAIN)
def a_tick_that_is_known_taken_again(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A home takes what it has counted once more."""
    return without(effect, "it is not known")


@fault("come", f"{TICK} {COME} take_tick log_tick", UNCOUNTED)
def begun_without_the_numbers_of_ticks(
    now: State, effect: Effect, given: Mapping[str, Any]
) -> Effect:
    """A pipeline that has come begins with its cells, and does not know which ticks made them: one that is handed over once more counts
    again."""
    return replace(effect, then={name: new for name, new in effect.then.items() if name != "knows"})
