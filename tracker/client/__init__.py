"""What other programs import: commit as a node, hear min time, administer, embed a tracker."""

from __future__ import annotations

from tracker.client.admin import Admin, Applied, Explanation, PipelineInfo
from tracker.client.connection import SecureTarget
from tracker.client.credentials import Credentials
from tracker.client.groups import GroupInfo
from tracker.client.node import NodeClient
from tracker.client.nodes import NodeInfo, NodeList, NodeState
from tracker.client.rescaling import RoutingInfo, ShardInfo
from tracker.client.subscriber import AsyncSubscriber, Subscriber
from tracker.client.updates import Update
from tracker.errors import ClosedError, FencedError, LowmarkError, RefusedError, UnavailableError

__all__ = [
    "Admin",
    "Applied",
    "AsyncSubscriber",
    "ClosedError",
    "Credentials",
    "Explanation",
    "FencedError",
    "GroupInfo",
    "LowmarkError",
    "NodeClient",
    "NodeInfo",
    "NodeList",
    "NodeState",
    "PipelineInfo",
    "RefusedError",
    "RoutingInfo",
    "SecureTarget",
    "ShardInfo",
    "Subscriber",
    "UnavailableError",
    "Update",
]
