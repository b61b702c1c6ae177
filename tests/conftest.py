"""What all tests share: random input that is the same in every run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The same examples in every run, so that a failure is the change's and not the day's; no deadlines,
# since a busy machine is not a bug.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")
