"""What all tests share: random input that is the same in every run, loops for tests that are coroutines, and an end to a
run in which tests hang."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.waits import HANG_S, MOST_HANGS

# The same examples in every run, so that a failure is the change's and not the day's; no deadlines,
# since a busy machine is not a bug.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")
HUNG = pytest.StashKey[int]()
"""How many tests of a session have failed by waiting for HANG_S."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Ends the run behind the last of MOST_HANGS tests that have failed by waiting for what never came."""
    report = yield
    if report.failed and report.duration >= HANG_S:
        hung = item.session.stash[HUNG] = item.session.stash.get(HUNG, 0) + 1
        if hung == MOST_HANGS:
            item.session.shouldfail = f"{hung} tests have hung: no other is begun"
    return report
