"""Freshness as metrics: what the samples of a process come to.

The samples are copied in the process's loop; sorting them, for their percentiles, happens where the
scrape is rendered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracker.core.insight.freshness import NONE_MS, PERCENTILES, Freshness, Lag, percentiles
from tracker.core.model import PipelineSpec, TimeKind
from tracker.metrics.families import Families

MAX_SEGMENTS = 500
"""Segments, pipelines as a whole counted too, whose freshness is told: each is some 18 series. Whole
pipelines come first; `lowmark_metrics_omitted` says how many are not told."""

_BEHIND = ("promise", "clock")
"""In the order of the columns of samples."""
_PERCENTILES = (*(str(percent) for percent in PERCENTILES), "100")


@dataclass(frozen=True, slots=True)
class _Copied:
    """Of one pipeline: names of segments (empty: the whole), and their samples in each window."""

    pipeline: str
    segments: Sequence[str]
    behind: Sequence[str]
    windows: Sequence[tuple[int, NDArray[np.int64]]]


def gather_freshness(families: Families, sampled: Iterable[tuple[PipelineSpec, Freshness]]) -> None:
    """Adds the last samples now, and the levels of the windows when the scrape is rendered."""
    kept = list(sampled)
    found = sum(len(spec.segments) + 1 for spec, _ in kept)
    room = max(0, MAX_SEGMENTS - len(kept))  # beside the whole of each pipeline
    copied = []
    for spec, freshness in kept[:MAX_SEGMENTS]:
        count = min(len(spec.segments), room)
        room -= count
        places = [*range(count), len(spec.segments)]  # the last is the whole
        # Numbers have no clock to be behind.
        behind = _BEHIND[:1] if spec.time is TimeKind.NUMBER else _BEHIND
        _add_last(families, spec.name, [freshness.last[place] for place in places], behind)
        names = [freshness.last[place][0] for place in places]
        copied.append(_Copied(spec.name, names, behind, freshness.samples(places)))
    families.add("lowmark_metrics_omitted", max(0, found - MAX_SEGMENTS), "freshness")
    families.add_later(lambda families: _add_levels(families, copied))


def _add_last(
    families: Families, pipeline: str, last: Iterable[tuple[str, Lag]], behind: Sequence[str]
) -> None:
    for segment, lag in last:
        for what, milliseconds in zip(behind, (lag.lag_ms, lag.age_ms), strict=False):
            if milliseconds != NONE_MS:
                families.add(
                    "lowmark_freshness_now_seconds", milliseconds / 1e3, pipeline, segment, what
                )


def _add_levels(families: Families, copied: Iterable[_Copied]) -> None:
    for pipeline in copied:
        for seconds, rows in pipeline.windows:
            levels = percentiles(rows).tolist()
            for percent, of_segments in zip(_PERCENTILES, levels, strict=True):
                for segment, values in zip(pipeline.segments, of_segments, strict=True):
                    for what, milliseconds in zip(pipeline.behind, values, strict=False):
                        if milliseconds != NONE_MS:
                            labels = (pipeline.pipeline, segment, what, _window(seconds), percent)
                            families.add(
                                "lowmark_freshness_level_seconds", milliseconds / 1e3, *labels
                            )


def _window(seconds: int) -> str:
    return f"{seconds // 3600}h" if seconds % 3600 == 0 else f"{seconds // 60}m"
