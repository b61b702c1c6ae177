"""What administrators see and set of pipelines and shards: the types of `Admin`, and of a pipeline's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowmark import _face

if TYPE_CHECKING:
    from tracker.client.admin import Applied as Applied
    from tracker.client.admin import Explanation as Explanation
    from tracker.client.admin import PipelineInfo as PipelineInfo
    from tracker.client.groups import GroupInfo as GroupInfo
    from tracker.client.nodes import NodeInfo as NodeInfo
    from tracker.client.nodes import NodeList as NodeList
    from tracker.client.nodes import NodeState as NodeState
    from tracker.client.rescaling import RoutingInfo as RoutingInfo
    from tracker.client.rescaling import ShardInfo as ShardInfo
    from tracker.core.cut.history import Reached as Reached
    from tracker.core.insight.describe import PipelineDescription as PipelineDescription
    from tracker.core.insight.describe import ShardRole as ShardRole
    from tracker.core.insight.diagnosis import CauseKind as CauseKind
    from tracker.core.model import FrontPolicy as FrontPolicy
    from tracker.core.model import RefusalCode as RefusalCode
    from tracker.core.model import SilentFront as SilentFront
    from tracker.core.model import TimeKind as TimeKind
    from tracker.core.model.waits import WaitCause as WaitCause
    from tracker.core.model.waits import WaitKind as WaitKind
else:
    __all__, __getattr__, __dir__ = _face.of(__name__)
