"""A tracker in a test's own process, beside `lowmark.embedded`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowmark import _face

if TYPE_CHECKING:
    from tracker.client.embedded import EmbeddedTracker as EmbeddedTracker
    from tracker.client.ports import free_ports as free_ports
else:
    __all__, __getattr__, __dir__ = _face.of(__name__)
