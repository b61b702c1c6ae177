"""The plain data that the protocol talks about: keys, cells, ticks, pipelines, refusals.

Cells are parallel NumPy arrays, never one Python object a cell. Segments are named by people and
numbered, by their index in the registered pipeline, everywhere inside.
"""

from tracker.core.model.cells import Cells, WrittenOffCell
from tracker.core.model.refusals import Refusal, RefusalCode, Refused
from tracker.core.model.specs import (
    KEEP_ALIVES_PER_PATIENCE,
    LIMITS,
    Edge,
    FrontPolicy,
    PipelineSpec,
    SilentFront,
    TimeKind,
)  # fmt: skip
from tracker.core.model.ticks import (
    HOLD_FRONT,
    Batch,
    Dropped,
    DroppedCells,
    FrontId,
    FrontJoin,
    FrontName,
    FrontPin,
    Heartbeat,
    Held,
    HeldSlot,
    HoldMove,
    NodeKey,
    NodeKind,
    Restart,
    StagedContribution,
    Tick,
    TickContent,
    Unit,
    Vacancy,
)  # fmt: skip

__all__ = [
    "HOLD_FRONT", "KEEP_ALIVES_PER_PATIENCE", "LIMITS", "Batch", "Cells", "Dropped", "DroppedCells", "Edge",
    "FrontId", "FrontJoin", "FrontName", "FrontPin", "FrontPolicy", "Heartbeat",
    "Held", "HeldSlot", "HoldMove", "NodeKey", "NodeKind", "PipelineSpec", "Refusal", "RefusalCode", "Refused", "Restart",
    "SilentFront", "StagedContribution", "Tick", "TickContent", "TimeKind", "Unit",
    "Vacancy", "WrittenOffCell",
]  # fmt: skip
