"""What tests of one's own pipelines are made of, beside `lowmark.embedded`; pytest finds the fixtures by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowmark import _face

if TYPE_CHECKING:
    from tracker.client.embedded import EmbeddedTracker as EmbeddedTracker
    from tracker.client.ports import free_ports as free_ports
    from tracker.testing.asserting import assert_complete as assert_complete
    from tracker.testing.asserting import assert_nothing_lost as assert_nothing_lost
    from tracker.testing.clock import ManualClock as ManualClock
    from tracker.testing.drivers import kill_and_restart as kill_and_restart
    from tracker.testing.hand import HandFront as HandFront
    from tracker.testing.hand import HandItem as HandItem
    from tracker.testing.moments import Moment as Moment
else:
    __all__, __getattr__, __dir__ = _face.of(__name__)
