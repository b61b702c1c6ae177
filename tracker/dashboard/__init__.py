"""A page that shows a tracker live: `Dashboard` serves it, from what any client of the tracker can ask."""

from tracker.dashboard.server import Dashboard

__all__ = ["Dashboard"]
