"""What is remembered up to a number, which fills in a year or in days of real load, is remembered up to as much less as
there is less load: then it is full by the second quarter, and what is not so bounded is seen by its growth."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from tests.year.lives import Scale
from tests.year.world import STEPS_A_DAY
from tracker.core.cut import history
from tracker.core.home import home
from tracker.core.pipeline import pipelines
from tracker.core.shard import written_off

Constants = Mapping[str, int]
"""By MODULE:NAME."""


def constants(scale: Scale) -> Constants:
    """Those of the core that are smaller in a run."""
    days = scale.steps // STEPS_A_DAY
    wanted = (
        (history, "MAX_FINE_ENTRIES", days // 16),
        (history, "MAX_COARSE_ENTRIES", days // 14),
        (home, "KEPT_GONE_NODES", scale.nodes // scale.crowded // 50),
        (home, "KEPT_FINGERPRINTS", days // 16),
        (pipelines, "MAX_ENDED", days // 8),
        (written_off, "MAX_LISTED_CELLS", scale.nodes // scale.crowded // 500),
    )
    return {
        f"{module.__name__}:{name}": min(getattr(module, name), max(2, most))
        for module, name, most in wanted
    }


@contextmanager
def applied(smaller: Constants) -> Iterator[None]:
    """They are so in this process; a store is read by those by which it was written."""
    with ExitStack() as stack:
        for place, most in smaller.items():
            module, _, name = place.partition(":")
            stack.enter_context(patch.object(sys.modules[module], name, most))
        yield
