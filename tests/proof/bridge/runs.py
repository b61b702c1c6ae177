"""Schedules: by number a kind of run and its seed; and what comes of holding one to the proof."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

from tests.proof.bridge.recorder import Recorder
from tests.proof.bridge.replay import NotAllowed, Replay
from tests.proof.bridge.world import Scale, World, pipeline

SCALES = (
    Scale(1, crash=0.03, snapshot=0.03, rejoin=0.03),
    Scale(2, events=180, lose=0.03, repeat=0.03, overtake=0.05),
    Scale(2, workers=2, events=220, ticks=22, crash=0.02, snapshot=0.02, rejoin=0.03, lose=0.04, repeat=0.04, overtake=0.05),
    Scale(2, fronts=2, events=260, ticks=24, crash=0.015, snapshot=0.015),
    Scale(3, fronts=2, events=300, ticks=22, crash=0.01, snapshot=0.02, rejoin=0.02, lose=0.03, repeat=0.03, overtake=0.05),
    Scale(3, workers=2, events=320, ticks=26, lose=0.02, overtake=0.05),
    Scale(1, events=160, ticks=24, restart=0.01, crash=0.02, snapshot=0.03),
    Scale(2, events=280, ticks=28, restart=0.01, crash=0.01, snapshot=0.02, rejoin=0.02, lose=0.03, overtake=0.05),
    Scale(3, events=320, ticks=28, restart=0.008, crash=0.005, snapshot=0.01),
    Scale(1, events=220, ticks=22, newcomers=1, crash=0.01, snapshot=0.02),
    Scale(2, events=300, ticks=24, newcomers=1, crash=0.006, snapshot=0.02, lose=0.02),
    Scale(1, events=260, ticks=22, newcomers=2, restart=0.006, snapshot=0.02),
    Scale(2, events=220, ticks=20, newcomers=1, patient=False, crash=0.01),
    Scale(1, fronts=2, workers=2, events=260, ticks=40, retire=0.02, crash=0.01, snapshot=0.02),
    Scale(2, fronts=2, workers=2, events=420, ticks=44, retire=0.015, crash=0.004, lose=0.02, overtake=0.05),
)  # fmt: skip
"""What schedules are of, in turns."""
LOOKED_AT = 50
"""The invariants are asked behind one moment in so many, which ones by the number of the schedule, and in the end."""


FEW = 3
"""Schedules of each kind that `make proof` has."""


@dataclass(frozen=True)
class Outcome:
    """What came of a schedule. taken: by step how often; states: of which the invariants were asked; announced: whether anything
    was; problem: what is no step of the system, or does not hold."""

    schedule: int
    taken: Counter[str]
    moments: int
    states: int
    announced: bool
    problem: str | None


def hold(schedule: int) -> Outcome:
    """Runs a schedule, and holds it to the proof."""
    scale, random = SCALES[schedule % len(SCALES)], Random(schedule)
    recorder = Recorder()
    world = World(schedule, scale, recorder, pipeline(random))
    states, replay, problem = 0, None, None
    try:
        world.run()
        generations = [0, *recorder.begins_at]
        replay = Replay(recorder, scale.shards, random.choice(generations))
        _need("what the proof takes for granted", replay.broken_facts())
        for number, _ in enumerate(replay.moments()):
            if (number + schedule) % LOOKED_AT == 0 or number == len(recorder.moments) - 1:
                states += 1
                _need(f"an invariant, behind moment {number}", replay.broken_invariants())
    except NotAllowed as found:
        problem = str(found)
    except AssertionError as found:
        problem = f"the run itself: {found!r}"
    taken = Counter[str]() if replay is None else replay.taken
    return Outcome(schedule, taken, len(recorder.moments), states, taken["record"] > 0, problem)


def hold_a_few() -> list[Outcome]:
    """A few schedules of each kind."""
    return [hold(schedule) for schedule in range(FEW * len(SCALES))]


def _need(what: str, broken: list[str]) -> None:
    if broken:
        raise NotAllowed(f"{what} does not hold: {'; '.join(broken)}")
