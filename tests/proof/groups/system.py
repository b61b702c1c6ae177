"""Rule 13 as a transition system: the directory, groups, and a pipeline that moves between them.

A *group* is one process here, and what it has logged is applied. A *version* is of a placement, and a *move* is one that a group has begun, by the group's own
number of it: a pipeline that goes from one group to another is two moves by the same version, one that goes and one that arrives. A *letter* is what a
pipeline at rest is, as whoever drives a move has read it. Once it is written it may be used for ever, by anyone, and what a group keeps may be put
together of several: so lost and repeated questions, answers that come late, and drivers that forget need no steps of their own.

A version is *over* when the directory has turned to another group since it was decided. Where a pipeline is known, by number, to have counted a tick, and
where the tick is in its cells, are two things: letters carry the one as what is known, and the other as a sum, in which what comes twice cancels out.

A driver *looks* where the pipeline is, after its move has begun; what it asks of that rests on what it saw. It may ask at any time from then on.

Left out: groups of several shards, and shards that come, go and are lost; names that are given back and used again; changes and restarts; which
announcements are true, of which the other system is. Where the model lets more happen than the code does, this is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from z3 import And, Implies, Not, Or, Xor

from tests.proof.logic import Effect, Formula, Relation, State, Step, Universe, Vocabulary

VOCABULARY = Vocabulary(
    fixed={
        # Versions: in which order, of which group, and from which one the pipeline was moved. The first one there is.
        "less": "version version", "in_group": "version -> group", "came_from": "version version", "start": "-> version",
        # Moves: whose, by which version, which way, and the other group.
        "of_group": "move -> group", "by": "move -> version", "arrives": "move", "other": "move -> group",
        # Letters: of which version, and what they say.
        "of": "letter -> version", "tells": "letter tick", "sums": "letter tick", "says": "letter place",
    },
    changing={
        # The directory.
        "decided": "version", "current": "version", "over": "version",
        # Groups: which have the pipeline, by which version, which are at rest, and whether it leaves or comes.
        "has": "group", "placed": "group version", "rests": "group", "leaves": "group", "comes": "group",
        # Moves: begun, ended, what was seen of the directory since they began; and what is kept of what comes.
        "begun": "move", "ended": "move", "looked": "move version",
        "kept_known": "move", "kept_cells": "move", "ready": "move",
        "coming_knows": "move tick", "coming_counts": "move tick", "coming_says": "move place",
        "written": "letter",
        # Ticks: on the way to a log, known by number, in the cells; acknowledged. And (`logged`) whether any group has ever made it durable.
        "accepted": "group tick", "knows": "group tick", "counted": "group tick", "acknowledged": "tick", "logged": "tick",
        # Announcements: appended, durable; told to anyone. And (`established`) whether any group has ever made it durable.
        "announced": "group place", "recorded": "group place", "told": "place", "established": "place",
    },
)  # fmt: skip
STEPS: dict[str, Step] = {}


def step(body: Callable[..., Effect]) -> Step:
    """A step of the system."""
    made = STEPS[body.__name__] = Step(body.__name__, body, {})
    return made


# --- words ----------------------------------------------------------------------------------------


def goes_on(now: State, g: Any) -> Formula:
    """A group takes ticks of the pipeline."""
    return And(now.has(g), Not(now.leaves(g)))


def is_active(now: State, g: Any) -> Formula:
    """A group has the pipeline, and not all of it has come to rest."""
    return And(now.has(g), Not(now.rests(g)))


def is_under_way(now: State, m: Any) -> Formula:
    return And(now.begun(m), Not(now.ended(m)))


def is_whole(now: State, m: Any) -> Formula:
    """All of a pipeline that comes is kept."""
    return And(now.kept_known(m), now.kept_cells(m))


def is_newest(now: State, v: Any) -> Formula:
    """A version is larger than all that there were."""
    return And(Not(now.decided(v)), now.every(lambda v2: Implies(now.decided(v2), now.less(v2, v))))


def saw(now: State, m: Any, v: Any) -> Formula:
    """A driver has seen, since a move began, that the directory has decided anew."""
    return And(now.looked(m, v), now.less(now.by(m), v))


def adds(relation: Relation, *these: Any) -> Relation:
    """The relation, and it holds of these things."""
    return lambda *all_: Or(_are(all_, these), relation(*all_))


def drops(relation: Relation, first: Any) -> Relation:
    """The relation, but of nothing of this one."""
    return lambda one, *more: And(relation(one, *more), one != first)


def becomes(relation: Relation, first: Any, meaning: Callable[..., Formula]) -> Relation:
    """The relation, and of this one it is this."""
    return lambda one, *more: Or(
        And(one == first, meaning(*more)), And(one != first, relation(one, *more))
    )


def _are(all_: tuple[Any, ...], these: tuple[Any, ...]) -> Formula:
    return And([one == other for one, other in zip(all_, these, strict=True)])


# --- what is taken for granted --------------------------------------------------------------------


def fixed_facts(now: State) -> dict[str, Formula]:
    """Of versions."""
    first = now.start()
    return {
        "versions have an order": now.every(
            lambda v, v2, v3: And(
                Not(now.less(v, v)),
                Or(v == v2, now.less(v, v2), now.less(v2, v)),
                Implies(And(now.less(v, v2), now.less(v2, v3)), now.less(v, v3)),
            )
        ),
        "and come from an older one": now.every(
            lambda v, v2: Implies(
                now.came_from(v, v2), Or(now.less(v2, v), And(v == first, v2 == first))
            )
        ),
        "from no more than one": now.every(
            lambda v, v2, v3: Implies(And(now.came_from(v, v2), now.came_from(v, v3)), v2 == v3)
        ),
        "the first one from itself": now.came_from(first, first),
    }


def beginning(universe: Universe) -> State:
    """A pipeline is in a group, by the first version that there is, and nothing has happened."""
    first = universe.fixed["start"]()
    home = universe.fixed["in_group"](first)
    return universe.beginning(
        decided=lambda v: v == first,
        current=lambda v: v == first,
        has=lambda g: g == home,
        placed=lambda g, v: And(g == home, v == first),
    )


# --- the directory --------------------------------------------------------------------------------


@step
def claim(now: State, v: Any, v2: Any) -> Effect:
    """Rule 13: a group claims the name once more, as one that registers it does which has heard late where it is (`Directory.registering`,
    `Directory._decided`): by a new version of the same group, which was moved from where the one before was."""
    return Effect(
        when={
            "it is the newest": And(now.current(v), is_newest(now, v2)),
            "it says the same": And(
                now.in_group(v2) == now.in_group(v),
                now.every(lambda v3: now.came_from(v2, v3) == now.came_from(v, v3)),
            ),
        },
        then=_replaced(now, v2),
    )


@step
def turn(now: State, m: Any, m2: Any, v: Any) -> Effect:
    """Rule 13: the directory turns to the other group, when all of the pipeline is durable there (`follow`, `Directory.place`), and only if
    the placement is still the one by which the move began."""
    return Effect(
        when={
            "a move has begun": And(now.begun(m), Not(now.arrives(m))),
            "all of it is kept": And(
                now.begun(m2), now.arrives(m2), is_whole(now, m2), now.by(m2) == now.by(m),
                now.of_group(m2) == now.other(m),
            ),
            "it is to replace that version": now.current(now.by(m)),
            "by one of the other group": And(
                is_newest(now, v), now.came_from(v, now.by(m)), now.in_group(v) == now.other(m)
            ),
        },
        then={
            **_replaced(now, v),
            "over": lambda v2: Or(
                now.over(v2), And(now.decided(v2), now.in_group(v) != now.in_group(now.by(m)))
            ),
        },
    )  # fmt: skip


@step
def leave_it_there(now: State, m: Any, v: Any) -> Effect:
    """Rule 13: a move is given up, by whoever drives it in either group, or an operator: the directory decides anew, and the pipeline stays (`follow`,
    `Directory.place`). So it does where the other group is cordoned."""
    return Effect(
        when={
            "a move has begun": now.begun(m),
            "it is to replace that version": now.current(now.by(m)),
            "by one of the same group": And(
                is_newest(now, v), now.came_from(v, now.by(m)), now.in_group(v) == now.in_group(now.by(m)),
            ),
        },
        then=_replaced(now, v),
    )  # fmt: skip


def _replaced(now: State, v: Any) -> dict[str, Relation]:
    return {"decided": adds(now.decided, v), "current": lambda v2: v2 == v}


# --- moves ----------------------------------------------------------------------------------------


@step
def begin_to_go(now: State, m: Any) -> Effect:
    """Rule 13: a group begins to move the pipeline, by the version by which it is there (`Moves.move`, `MoveBegun`). It takes no tick from here on."""
    g = now.of_group(m)
    return Effect(
        when={
            "it is new": And(Not(now.begun(m)), Not(now.arrives(m))),
            "none is under way": And(Not(now.leaves(g)), Not(now.comes(g))),
            "it is here by that version": now.placed(g, now.by(m)),
        },
        then={"begun": adds(now.begun, m), "leaves": adds(now.leaves, g)},
    )


@step
def begin_to_come(now: State, m: Any, l: Any) -> Effect:  # noqa: E741
    """Rule 13: the other group begins to take it (`Moves.move`): whoever asks for that has all of the pipeline in its hands, and
    there is none in that group."""
    g = now.of_group(m)
    return Effect(
        when={
            "it is new": And(Not(now.begun(m)), now.arrives(m)),
            "none is under way": And(Not(now.leaves(g)), Not(now.comes(g))),
            "it is not here": Not(now.has(g)),
            "who asks has it": And(now.written(l), now.of(l) == now.by(m)),
        },
        then={"begun": adds(now.begun, m), "comes": adds(now.comes, g)},
    )


@step
def come_to_rest(now: State, m: Any) -> Effect:
    """Rule 13: nothing of the pipeline is on the way to the log any more, and its home says so (`Moves.go_on`, `Moves.settle`)."""
    g = now.of_group(m)
    return Effect(
        when={
            "it goes": And(is_under_way(now, m), Not(now.arrives(m))),
            "no tick is on the way to the log": now.every(lambda t: Not(now.accepted(g, t))),
        },
        then={"rests": adds(now.rests, g)},
    )


@step
def write(now: State, m: Any, l: Any) -> Effect:  # noqa: E741
    """Rule 13: whoever drives the move is given all that the pipeline is, at rest (`Moves.part`, `Moves.need_at_rest`)."""
    g = now.of_group(m)
    return Effect(
        when={
            "it is new": And(Not(now.written(l)), now.of(l) == now.by(m)),
            "it goes": And(is_under_way(now, m), Not(now.arrives(m))),
            "it is at rest": now.rests(g),
            "what was announced is durable": now.every(
                lambda b: Implies(now.announced(g, b), now.recorded(g, b))
            ),
            "it says all": And(
                now.every(lambda t: now.tells(l, t) == now.knows(g, t)),
                now.every(lambda t: now.sums(l, t) == now.counted(g, t)),
                now.every(lambda b: now.says(l, b) == now.recorded(g, b)),
            ),
        },
        then={"written": adds(now.written, l)},
    )


def _may_keep(now: State, m: Any, l: Any) -> dict[str, Formula]:  # noqa: E741
    return {
        "it comes": And(is_under_way(now, m), now.arrives(m)),
        "by that version": And(now.written(l), now.of(l) == now.by(m)),
    }


@step
def keep_known(now: State, m: Any, l: Any) -> Effect:  # noqa: E741
    """Rule 13: the other group keeps what is known: the numbers of ticks, and what was announced (`Moves.keep`, `Moves.take_piece`). A piece is kept once."""
    return Effect(
        when={**_may_keep(now, m, l), "there is none yet": Not(now.kept_known(m))},
        then={
            "kept_known": adds(now.kept_known, m),
            "coming_knows": becomes(now.coming_knows, m, lambda t: now.tells(l, t)),
            "coming_says": becomes(now.coming_says, m, lambda b: now.says(l, b)),
        },
    )


@step
def keep_cells(now: State, m: Any, l: Any) -> Effect:  # noqa: E741
    """Rule 13: the other group keeps cells, out of the same letter or another one (`Moves.keep`, `Moves.take_piece`)."""
    return Effect(
        when={**_may_keep(now, m, l), "there are none yet": Not(now.kept_cells(m))},
        then={
            "kept_cells": adds(now.kept_cells, m),
            "coming_counts": becomes(now.coming_counts, m, lambda t: now.sums(l, t)),
        },
    )


@step
def be_ready(now: State, m: Any) -> Effect:
    """Rule 13: the other group says that it has all of it (`Moves.go_on`)."""
    return Effect(
        when={
            "it comes": And(is_under_way(now, m), now.arrives(m)),
            "all of it is kept": is_whole(now, m),
        },
        then={"ready": adds(now.ready, m)},
    )


# --- how a move ends ------------------------------------------------------------------------------


@step
def look(now: State, m: Any, v: Any) -> Effect:
    """Rule 13: whoever drives a move asks the directory where the pipeline is (`follow`). Also whoever drives the other group's, once that has said
    by which number it has begun."""
    return Effect(
        when={"the move has begun": now.begun(m), "it is there": now.current(v)},
        then={"looked": adds(now.looked, m, v)},
    )


@step
def stay(now: State, m: Any, v: Any, v2: Any) -> Effect:
    """Rule 13: the group that the pipeline was to leave hears that it stays, and goes on (`Moves.end`, `Moves.before`)."""
    g = now.of_group(m)
    return Effect(
        when={
            "it goes": And(is_under_way(now, m), Not(now.arrives(m))),
            "who asks has seen that": saw(now, m, v),
            "it is still here": And(now.in_group(v) == g, now.came_from(v, v2), Not(now.less(now.by(m), v2))),
        },
        then={
            **_over_with(now, m),
            "placed": becomes(now.placed, g, lambda v3: v3 == v),
        },
    )  # fmt: skip


@step
def leave(now: State, m: Any, v: Any) -> Effect:
    """Rule 13: the group that the pipeline was to leave hears that it is elsewhere, and lets go of all that it has (`Moves.end`, `Moves.before`)."""
    g = now.of_group(m)
    return Effect(
        when={
            "it goes": And(is_under_way(now, m), Not(now.arrives(m))),
            "who asks has seen that": saw(now, m, v),
            "it is not here any more": Or(
                now.in_group(v) != g,
                now.every(
                    lambda v2: Implies(now.came_from(v, v2), now.less(now.by(m), v2))
                ),
            ),
        },
        then={
            **_over_with(now, m),
            **{name: drops(now.meanings[name], g) for name in ("has", "placed", *_OF_A_PIPELINE)},
        },
    )  # fmt: skip


_OF_A_PIPELINE = ("accepted", "knows", "counted", "announced", "recorded")


@step
def come(now: State, m: Any, v: Any) -> Effect:
    """Rule 13: the other group hears that the pipeline is its own, and goes on with what it has kept (`Moves.end`, `Moves.before`)."""
    g = now.of_group(m)
    return Effect(
        when={
            "it comes": And(is_under_way(now, m), now.arrives(m)),
            "who asks has seen that": saw(now, m, v),
            "it is here by this move": _decides_for(now, m, v),
            "all of it is here": now.ready(m),
        },
        then={
            **_over_with(now, m),
            "has": adds(now.has, g),
            "placed": becomes(now.placed, g, lambda v2: v2 == v),
            "knows": becomes(now.knows, g, lambda t: now.coming_knows(m, t)),
            "counted": becomes(now.counted, g, lambda t: now.coming_counts(m, t)),
            "announced": becomes(now.announced, g, lambda b: now.coming_says(m, b)),
            "recorded": becomes(now.recorded, g, lambda b: now.coming_says(m, b)),
        },
    )


@step
def drop(now: State, m: Any, v: Any) -> Effect:
    """Rule 13: the other group hears that the pipeline does not come by this move, and drops what it has kept (`Moves.end`, `Moves.before`)."""
    return Effect(
        when={
            "it comes": And(is_under_way(now, m), now.arrives(m)),
            "who asks has seen that": saw(now, m, v),
            "it is not here by this move": Not(_decides_for(now, m, v)),
        },
        then=_over_with(now, m),
    )


def _decides_for(now: State, m: Any, v: Any) -> Formula:
    """A placement says that a pipeline has come by this move."""
    return And(now.came_from(v, now.by(m)), now.in_group(v) == now.of_group(m))


def _over_with(now: State, m: Any) -> dict[str, Relation]:
    g = now.of_group(m)
    return {
        "ended": adds(now.ended, m),
        "leaves": drops(now.leaves, g),
        "comes": drops(now.comes, g),
        "rests": drops(now.rests, g),
    }


# --- ticks ----------------------------------------------------------------------------------------


@step
def take_tick(now: State, g: Any, t: Any) -> Effect:
    """Rules 2 and 13: a home takes a tick that it does not know, where the pipeline goes on (`Sessions.submit`, `Homes.at_home`)."""
    return Effect(
        when={
            "the pipeline goes on": goes_on(now, g),
            "it is not known": And(Not(now.knows(g, t)), Not(now.accepted(g, t))),
        },
        then={"accepted": adds(now.accepted, g, t)},
    )


@step
def log_tick(now: State, g: Any, t: Any) -> Effect:
    """Rules 3 and 4: a tick is durable, and is known and in the cells from here on (`LogApplier.commit`, `ShardPipeline.apply_tick`)."""
    return Effect(
        when={"it is on the way": now.accepted(g, t)},
        then={
            "accepted": lambda g2, t2: And(now.accepted(g2, t2), Not(And(g2 == g, t2 == t))),
            "knows": adds(now.knows, g, t),
            "counted": lambda g2, t2: Xor(now.counted(g2, t2), And(g2 == g, t2 == t)),
            "logged": adds(now.logged, t),
        },
    )


@step
def acknowledge(now: State, g: Any, t: Any) -> Effect:
    """Rule 3: a home acknowledges what is durable, now or when it is handed over once more (`Sessions.tick_durable`, `TicksDurable`)."""
    return Effect(
        when={"it is durable": now.knows(g, t)}, then={"acknowledged": adds(now.acknowledged, t)}
    )


# --- announcements --------------------------------------------------------------------------------


@step
def append_announcement(now: State, g: Any, b: Any) -> Effect:
    """Rules 6 and 13: a process announces something, by the cut rule, where the pipeline is not at rest (`Pipeline.new_announcements`)."""
    return Effect(
        when={"it is not at rest": is_active(now, g)}, then={"announced": adds(now.announced, g, b)}
    )


@step
def record_announcement(now: State, g: Any, b: Any) -> Effect:
    """Rule 8: what was announced is durable (`Announcement`)."""
    return Effect(
        when={"it was appended": now.announced(g, b)},
        then={
            "recorded": adds(now.recorded, g, b),
            "established": adds(now.established, b),
        },
    )


@step
def tell_announcement(now: State, g: Any, b: Any) -> Effect:
    """Rule 8: somebody hears what is durable (`Announced`), also of a process that has not heard yet that the pipeline is elsewhere."""
    return Effect(when={"it is durable": now.recorded(g, b)}, then={"told": adds(now.told, b)})


@step
def restart_group(now: State, g: Any) -> Effect:
    """Rule 3: the process of a group crashes at any moment, and comes back with what is durable (`Recovery.recover`). Who drove its moves begins anew,
    but what was asked before may be on its way yet."""
    return Effect(
        when={},
        then={
            "accepted": drops(now.accepted, g),
            "announced": becomes(now.announced, g, lambda b: now.recorded(g, b)),
        },
    )
