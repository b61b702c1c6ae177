"""When min time reached a slot."""

from __future__ import annotations

from acker.v1 import progress_service_pb2 as progress_pb
from tracker.core.cut.history import Reached
from tracker.wire.codec import derived

_REACHED = derived(Reached, progress_pb.ReachedSlot)
reached_to_pb, reached_from_pb = _REACHED.to_pb, _REACHED.from_pb
