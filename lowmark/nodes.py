"""Ticks by hand: what a program commits that is a node itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowmark import _face

if TYPE_CHECKING:
    from tracker.client.holds import Hold as Hold
    from tracker.client.node import NodeClient as NodeClient
    from tracker.client.updates import slot_time as slot_time
    from tracker.client.updates import slot_until as slot_until
    from tracker.core.cut.graph import SegmentGraph as SegmentGraph
    from tracker.core.log import Grant as Grant
    from tracker.core.log import Joined as Joined
    from tracker.core.model import Batch as Batch
    from tracker.core.model import Cells as Cells
    from tracker.core.model import Heartbeat as Heartbeat
    from tracker.core.model import HoldMove as HoldMove
    from tracker.core.model import TickContent as TickContent
    from tracker.core.model import Unit as Unit
    from tracker.core.model.ack_values import child_value as child_value
    from tracker.core.model.ack_values import child_values as child_values
    from tracker.core.model.ack_values import offset_value as offset_value
    from tracker.core.model.ack_values import range_value as range_value
    from tracker.core.model.ack_values import root_value as root_value
    from tracker.core.model.ack_values import root_values as root_values
    from tracker.core.model.ack_values import string_key as string_key
    from tracker.core.model.ack_values import unit_value as unit_value
    from tracker.core.model.rounds import Rounds as Rounds
    from tracker.core.model.rounds import RoundsExceededError as RoundsExceededError
    from tracker.core.model.slots import DEFAULT_SLACK_NS as DEFAULT_SLACK_NS
    from tracker.core.model.slots import HIGHEST_SLOT as HIGHEST_SLOT
    from tracker.core.model.slots import LOWEST_SLOT as LOWEST_SLOT
    from tracker.core.model.slots import add_delay as add_delay
    from tracker.core.model.slots import slot_start_ns as slot_start_ns
    from tracker.core.model.slots import subtract_delay as subtract_delay
    from tracker.core.model.units import file_name as file_name
    from tracker.core.model.units import parse_file_name as parse_file_name
    from tracker.core.model.units import slot_in_name as slot_in_name
    from tracker.core.model.units import unit_name as unit_name
else:
    __all__, __getattr__, __dir__ = _face.of(__name__)
