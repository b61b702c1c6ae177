"""The pipeline: one segment, in which files are until they have arrived in the sink's buffer."""

from __future__ import annotations

from lowmark import PipelineSpec

NAME, SEGMENT = "ordered", "arrive"
FRONTS = ("ahead", "behind")
SPEC = PipelineSpec(NAME, (SEGMENT,), fronts=FRONTS, slack_ns=10**9)
