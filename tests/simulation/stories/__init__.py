"""Stories: plans for moments that plain chance hardly ever brings about, and who brings them about.

Everything in a story is what may happen to a real system: links that lag or lose frames for a while,
connections that begin anew, processes that write a snapshot and die. A story only chooses when and to
whom, so that shards know each other at moments far apart, while items or fronts move on between them.
Each is a module here, with how its plan is drawn and what its moments are.
"""

from __future__ import annotations

import random

from tests.simulation.plan import Plan, draw_plain
from tests.simulation.rounds import with_rounds
from tests.simulation.stories.bounce import BOUNCE, BounceStory, draw_bounce
from tests.simulation.stories.joins import JOINS, JoinsStory, draw_joins
from tests.simulation.stories.leaves import LEAVES, LeavesStory, draw_leaves
from tests.simulation.stories.story import Story
from tests.simulation.stories.visits import VISITS, VisitsStory, draw_visits
from tests.simulation.stories.wanders import WANDERS, WandersStory, draw_wanders
from tests.simulation.storms import with_storm

STORIES: dict[str, type[Story]] = {
    BOUNCE: BounceStory, VISITS: VisitsStory, WANDERS: WandersStory, JOINS: JoinsStory,
    LEAVES: LeavesStory,
}  # fmt: skip
"""By what a plan calls them."""
RESCALING = frozenset({JOINS, LEAVES})
"""Those in which shards come and go."""


def draw_plan(seed: int) -> Plan:
    """The plan of a seed."""
    plan, rng = draw_plain(seed), random.Random(f"story {seed}")
    drawn = rng.random()
    if drawn < 0.045:
        return draw_bounce(rng, plan)
    if drawn < 0.08:
        return draw_visits(rng, plan)
    if drawn < 0.11:
        return draw_wanders(rng, plan)
    if drawn < 0.13:
        return draw_joins(rng, plan)
    if drawn < 0.14:
        return draw_leaves(rng, plan)
    stormy = with_storm(plan)
    return stormy if stormy.storm else with_rounds(plan)
