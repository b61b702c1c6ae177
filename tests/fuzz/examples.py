"""How many examples a property gets, and that it is given other ones in a longer run.

In the test suite each run has the same few examples. `python -m tests.fuzz` sets the variables below.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

EXAMPLES_VARIABLE = "LOWMARK_FUZZ_EXAMPLES"
SHORT_EXAMPLES = 60
"""Of a property with a share of 1, in the test suite."""

run: Counter[str] = Counter()
"""Examples that were run, by property."""


def fuzz(
    *strategies: SearchStrategy[Any], share: float = 1.0, case: str = ""
) -> Callable[[Any], Any]:
    """Makes a property of a function of drawn values, one for each strategy. share: how many examples
    it gets, compared with others; less for what is slow. case: which one it is of a parametrized test."""
    asked = os.environ.get(EXAMPLES_VARIABLE)
    examples = max(1, round(share * int(asked or SHORT_EXAMPLES)))

    def decorate(test: Callable[..., None]) -> Any:
        name = f"{test.__module__.rpartition('.')[2]}.{test.__name__} {case}".rstrip()

        @functools.wraps(test)
        def counted(*arguments: Any, **named: Any) -> None:
            run[name] += 1
            test(*arguments, **named)

        chosen = settings(
            max_examples=examples,
            derandomize=asked is None,
            database=None,
            deadline=None,
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        return chosen(given(*strategies)(counted))

    return decorate
