"""Where pipelines belong, and the groups that there are."""

from __future__ import annotations

from acker.v1 import types_pb2 as types_pb
from tracker.core.model.placements import Group, Placement
from tracker.wire.codec import derived

PLACEMENT = derived(Placement, types_pb.Placement)
GROUP = derived(Group, types_pb.Group)
