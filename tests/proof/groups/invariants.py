"""What holds in every state that moves between groups can lead to: promises first, then what makes them hold, from the directory to what letters say."""

from __future__ import annotations

from typing import Any

from z3 import And, Implies, Not, Or

from tests.proof.groups.system import goes_on, is_active, is_under_way, is_whole
from tests.proof.logic import Formula, Invariants, State

_SAID = Invariants()
INVARIANTS, PROMISES = _SAID.known, _SAID.promises
invariant, promise = _SAID.invariant, _SAID.promise


# --- promises -------------------------------------------------------------------------------------


@promise
def a_pipeline_goes_on_in_one_group(now: State, g: Any, k: Any) -> Formula:
    """A pipeline takes ticks in one group at most."""
    return Implies(And(goes_on(now, g), goes_on(now, k)), g == k)


@promise
def it_is_in_some_group(now: State, v: Any, v2: Any, m: Any) -> Formula:
    """A pipeline is not lost: the group that the directory names has it, or it comes there, and all of it is kept."""
    g = now.in_group(v)
    is_kept = And(now.arrives(m), now.by(m) == v2, is_whole(now, m))
    comes = Implies(And(is_under_way(now, m), now.of_group(m) == g), is_kept)
    absent = And(now.current(v), now.came_from(v, v2), Not(now.has(g)))
    return Implies(absent, And(now.comes(g), comes))


@promise
def acknowledged_ticks_count_once(now: State, g: Any, t: Any) -> Formula:
    """A tick that was acknowledged is known wherever the pipeline goes on, and in its cells, once."""
    there = And(goes_on(now, g), now.acknowledged(t))
    return Implies(there, And(now.knows(g, t), now.counted(g, t)))


@promise
def ticks_in_cells_are_known(now: State, g: Any, t: Any) -> Formula:
    """What is in the cells is what is known, wherever the pipeline goes on: so no tick is taken once more."""
    return Implies(goes_on(now, g), now.counted(g, t) == now.knows(g, t))


@promise
def told_stays_announced(now: State, g: Any, b: Any) -> Formula:
    """Promise 4: what anyone was told is announced, durably, wherever the pipeline goes on."""
    return Implies(And(goes_on(now, g), now.told(b)), now.recorded(g, b))


@promise
def a_placement_is_replaced_once(now: State, v: Any, v2: Any, v3: Any) -> Formula:
    """After the directory has turned a move cannot be given up, and the other way round: all that replaces a placement is of one group."""
    of_one = And(now.decided(v2), now.decided(v3), now.came_from(v2, v), now.came_from(v3, v))
    later = And(now.less(v, v2), now.less(v, v3))
    return Implies(And(of_one, later), now.in_group(v2) == now.in_group(v3))


@promise
def nothing_stale_goes_on(now: State, g: Any, v: Any) -> Formula:
    """Who goes on does so by a placement from which the directory has not turned away."""
    return Implies(And(goes_on(now, g), now.placed(g, v)), And(now.decided(v), Not(now.over(v))))


# --- the directory --------------------------------------------------------------------------------


@invariant
def some_placement_is_current(now: State) -> Formula:
    """A name belongs somewhere."""
    return now.some(lambda v: And(now.current(v), now.decided(v)))


@invariant
def the_current_placement_is_the_newest(now: State, v: Any, v2: Any) -> Formula:
    """The directory goes by the newest placement, which is not over."""
    newest = Implies(now.decided(v2), Or(v2 == v, now.less(v2, v)))
    return Implies(now.current(v), And(now.decided(v), Not(now.over(v)), newest))


@invariant
def placements_come_from_placements(now: State, v: Any, v2: Any) -> Formula:
    """What a placement replaced was one, and is not current."""
    came = And(now.decided(v), now.came_from(v, v2))
    return And(
        Implies(came, And(now.decided(v2), Implies(now.current(v2), v == v2))),
        now.decided(now.start()),
    )


@invariant
def what_is_over_was_before(now: State, v: Any, v2: Any, v3: Any) -> Formula:
    """A placement that is over is older than one that is not, and than what that was moved from, or the same; and what replaced it is of
    another group."""
    apart = And(now.over(v), now.decided(v2), Not(now.over(v2)))
    came = And(apart, now.came_from(v2, v3))
    return And(
        Implies(now.over(v), now.decided(v)),
        Implies(apart, now.less(v, v2)),
        Implies(came, Not(now.less(v3, v))),
        Implies(And(came, v3 == v), now.in_group(v2) != now.in_group(v)),
    )


@invariant
def placements_that_are_not_over_are_of_one_group(now: State, v: Any, v2: Any) -> Formula:
    """The directory turns from all that it had decided."""
    both = And(now.decided(v), now.decided(v2), Not(now.over(v)), Not(now.over(v2)))
    return Implies(both, now.in_group(v) == now.in_group(v2))


@invariant
def what_follows_a_placement_is_of_one_move(now: State, v: Any, v2: Any, v3: Any) -> Formula:
    """As long as a pipeline is where a move brought it, all placements since are of that group, and say that it came so."""
    since = And(now.current(v), now.came_from(v, v2), now.decided(v3), now.less(v2, v3))
    return Implies(since, And(now.in_group(v3) == now.in_group(v), now.came_from(v3, v2)))


# --- where the pipeline is ------------------------------------------------------------------------


@invariant
def who_is_active_is_where_the_directory_says(now: State, g: Any, v: Any) -> Formula:
    """All placements that are not over are of the group in which the pipeline is not at rest."""
    there = And(is_active(now, g), now.decided(v), Not(now.over(v)))
    return Implies(there, now.in_group(v) == g)


@invariant
def placements_of_groups_were_decided(now: State, g: Any, v: Any, v2: Any) -> Formula:
    """A group has the pipeline by one placement of its own, from which the directory has not turned unless it is at rest there."""
    here = And(now.decided(v), now.in_group(v) == g, now.has(g), Or(now.rests(g), Not(now.over(v))))
    return And(
        Implies(now.placed(g, v), here), Implies(And(now.placed(g, v), now.placed(g, v2)), v == v2)
    )


@invariant
def groups_are_in_one_move_at_a_time(now: State, m: Any, m2: Any) -> Formula:
    """A move that is under way is the only one of its group, and its group knows of it."""
    g = now.of_group(m)
    both = And(is_under_way(now, m), is_under_way(now, m2), now.of_group(m2) == g)
    return And(
        Implies(both, m == m2),
        Implies(And(is_under_way(now, m), now.arrives(m)), And(now.comes(g), Not(now.has(g)))),
        Implies(
            And(is_under_way(now, m), Not(now.arrives(m))),
            And(now.leaves(g), now.has(g), now.placed(g, now.by(m))),
        ),
    )


@invariant
def groups_know_their_moves(now: State, g: Any) -> Formula:
    """A group that rests leaves, and has the pipeline; in a group that it comes to it is not."""
    return And(
        Implies(now.rests(g), now.leaves(g)),
        Implies(now.leaves(g), now.has(g)),
        Implies(now.comes(g), Not(now.has(g))),
    )


@invariant
def moves_end_when_the_directory_has_decided(now: State, m: Any, v: Any) -> Formula:
    """What has ended began by a placement that is not current any more; and it began."""
    return And(
        Implies(now.ended(m), now.begun(m)),
        Implies(And(now.ended(m), now.current(v)), now.less(now.by(m), v)),
    )


@invariant
def moves_begin_by_placements(now: State, m: Any) -> Formula:
    """A move is by a placement that was decided; one that goes, by one of its own group."""
    own = Implies(Not(now.arrives(m)), now.in_group(now.by(m)) == now.of_group(m))
    return Implies(now.begun(m), And(now.decided(now.by(m)), own))


@invariant
def what_is_to_come_rests_where_it_is(now: State, m: Any, b: Any) -> Formula:
    """A pipeline that is to come by the current placement rests where it is by that one."""
    comes = And(now.begun(m), now.arrives(m), now.current(now.by(m)))
    return Implies(comes, _rests_by(now, now.by(m), b))


def _rests_by(now: State, v: Any, b: Any) -> Formula:
    g = now.in_group(v)
    return And(now.rests(g), now.placed(g, v), Implies(now.announced(g, b), now.recorded(g, b)))


# --- what was seen of the directory ---------------------------------------------------------------


@invariant
def what_was_seen_was_decided(now: State, m: Any, v: Any) -> Formula:
    """Who has looked, for a move that had begun, has seen what was decided."""
    return Implies(now.looked(m, v), And(now.begun(m), now.decided(v)))


@invariant
def what_was_seen_of_one_that_comes_holds(now: State, m: Any, v: Any, v2: Any) -> Formula:
    """Rule 13: who has seen, since a move began, that the pipeline comes by it has seen what still holds while that move is under way."""
    seen = And(
        is_under_way(now, m), now.arrives(m), now.looked(m, v), now.came_from(v, now.by(m)),
        now.in_group(v) == now.of_group(m),
    )  # fmt: skip
    still = Implies(now.current(v2), now.came_from(v2, now.by(m)))
    return Implies(seen, And(Not(now.over(v)), still))


@invariant
def what_was_seen_of_one_that_goes_holds(now: State, m: Any, v: Any, v2: Any) -> Formula:
    """Rule 13: so it does of one that goes: that it is in its group, or that it is not, for which the directory has turned."""
    goes = And(is_under_way(now, m), Not(now.arrives(m)), now.looked(m, v))
    here = And(now.in_group(v) == now.of_group(m), now.less(now.by(m), v))
    return And(
        Implies(And(goes, here), Not(now.over(v))),
        Implies(And(goes, now.in_group(v) != now.of_group(m)), now.over(now.by(m))),
    )


@invariant
def what_is_turned_from_does_not_come_back_before_it_is_left(now: State, m: Any, v: Any) -> Formula:
    """A group that the directory has turned away from lets go of the pipeline before it can come there again."""
    goes = And(is_under_way(now, m), Not(now.arrives(m)), now.current(v))
    return Implies(And(goes, now.over(now.by(m))), now.in_group(v) != now.of_group(m))


@invariant
def what_is_not_turned_from_came_there_before(
    now: State, g: Any, v: Any, v2: Any, v3: Any
) -> Formula:
    """Where the directory has not turned, all that it has decided since says that the pipeline came from no newer placement than the one by which
    the group has it."""
    here = And(now.placed(g, v), Not(now.over(v)))
    since = And(here, now.decided(v2), Not(now.over(v2)), now.came_from(v2, v3))
    return Implies(since, Not(now.less(v, v3)))


# --- ticks, announcements and letters -------------------------------------------------------------


@invariant
def acknowledged_is_logged(now: State, g: Any, t: Any, b: Any) -> Formula:
    """What is acknowledged, or told, was made durable in some group; and what any group has was."""
    return And(
        Implies(now.acknowledged(t), now.logged(t)),
        Implies(now.knows(g, t), now.logged(t)),
        Implies(now.told(b), now.established(b)),
        Implies(now.recorded(g, b), now.established(b)),
    )


@invariant
def what_is_on_the_way_is_of_an_active_group(now: State, g: Any, t: Any) -> Formula:
    """At rest no tick is on the way to the log, and none that is known."""
    return Implies(now.accepted(g, t), And(is_active(now, g), Not(now.knows(g, t))))


@invariant
def announcements_on_the_way_are_of_the_directory_s_group(
    now: State, g: Any, b: Any, v: Any
) -> Formula:
    """What is appended and not durable is where the directory says."""
    on_the_way = And(now.announced(g, b), Not(now.recorded(g, b)), now.decided(v), Not(now.over(v)))
    return And(
        Implies(now.recorded(g, b), now.announced(g, b)),
        Implies(now.announced(g, b), now.has(g)),
        Implies(on_the_way, now.in_group(v) == g),
    )


@invariant
def a_group_has_all(now: State, g: Any, v: Any, v2: Any, t: Any, b: Any) -> Formula:
    """A group that is active, or from whose placement the directory has not turned, or from which the pipeline has not come yet, has all ticks that
    were ever logged, and all that was ever announced."""
    here = And(now.placed(g, v), Or(Not(now.over(v)), _is_to_come(now, v, v2)))
    there = Or(is_active(now, g), here)
    all_ = And(
        now.knows(g, t) == now.logged(t),
        now.counted(g, t) == now.logged(t),
        now.recorded(g, b) == now.established(b),
    )
    return Implies(there, all_)


@invariant
def letters_are_of_a_group_at_rest(now: State, l: Any, b: Any) -> Formula:  # noqa: E741
    """Who has been given a pipeline that is where it was has been given one that rests there by that placement."""
    v = now.of(l)
    return And(
        Implies(now.written(l), now.decided(v)),
        Implies(And(now.written(l), now.current(v)), _rests_by(now, v, b)),
    )


def _is_to_come(now: State, v: Any, v2: Any) -> Formula:
    """Version v is current, or is what the pipeline is moved from by the current one, v2, and it has not begun there."""
    turned = And(now.current(v2), now.came_from(v2, v), Not(now.has(now.in_group(v2))))
    return Or(now.current(v), turned)


@invariant
def letters_say_all(now: State, l: Any, v: Any, t: Any, b: Any) -> Formula:  # noqa: E741
    """While the pipeline is still to come, letters say all that was ever logged and announced. Those of a move that is over may say anything."""
    all_ = And(
        now.tells(l, t) == now.logged(t),
        now.sums(l, t) == now.logged(t),
        now.says(l, b) == now.established(b),
    )
    return Implies(And(now.written(l), _is_to_come(now, now.of(l), v)), all_)


@invariant
def what_is_kept_says_all(now: State, m: Any, v: Any, t: Any, b: Any) -> Formula:
    """So does what a group has kept of it."""
    known = And(
        now.coming_knows(m, t) == now.logged(t), now.coming_says(m, b) == now.established(b)
    )
    cells = now.coming_counts(m, t) == now.logged(t)
    return Implies(
        And(now.begun(m), now.arrives(m), _is_to_come(now, now.by(m), v)),
        And(Implies(now.kept_known(m), known), Implies(now.kept_cells(m), cells)),
    )


@invariant
def who_is_ready_has_kept_all(now: State, m: Any) -> Formula:
    """A group says that it is ready when all is kept; and it keeps what comes by a move of its own."""
    kept = Or(now.kept_known(m), now.kept_cells(m))
    return And(
        Implies(now.ready(m), And(now.kept_known(m), now.kept_cells(m))),
        Implies(kept, And(now.begun(m), now.arrives(m))),
    )
