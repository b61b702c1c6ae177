"""Names for periods by a template: of folders, of tags."""

from __future__ import annotations

from datetime import UTC, datetime

from tracker.consumers.periods.cut import Cut, Period

NAMES_COMPARED = 10_000
"""How many periods in a row must have names of their own for a template to be taken: of hours, more than
a year's."""

_COMPARED_FROM = datetime(2000, 1, 1, tzinfo=UTC)


class PeriodNames:
    """Names for periods, by a template: `{start:%Y-%m-%d}`, `{end:...}` by strftime (UTC),
    `{slot}` and `{from_slot}`, `{to_slot}`, `{pipeline}`, `{segment}`."""

    def __init__(self, template: str, cut: Cut) -> None:
        """Raises ValueError unless the template names each period apart: what is named after two would
        say of both that they are complete when the first one is."""
        self._template = template
        first = 0
        if cut.slack_ns is not None:
            first = int(_COMPARED_FROM.timestamp()) * 10**9 // cut.slack_ns
        seen: dict[str, Period] = {}
        for index in range(NAMES_COMPARED):
            period = cut.period("", None, cut.first(first) + index * cut.slots)
            if index and cut.slack_ns is not None and period.end is None:
                break  # beyond what datetime holds
            other = seen.setdefault(self.of(period), period)
            if other is not period:
                raise ValueError(
                    f"{template!r} gives one name, {self.of(period)!r}, to the periods from "
                    f"{other.start or other.from_slot} and from {period.start or period.from_slot}; each needs "
                    f"its own: name more of {{start}}, or follow longer periods (--every)"
                )

    def of(self, period: Period) -> str:
        """The name of a period. Raises ValueError if the template has none for it."""
        named = {
            "start": period.start, "end": period.end, "slot": period.from_slot,
            "from_slot": period.from_slot, "to_slot": period.to_slot,
            "pipeline": period.pipeline, "segment": period.segment or "all",
        }  # fmt: skip
        known = {name: value for name, value in named.items() if value is not None}
        try:
            return self._template.format(**known)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self._template!r} names nothing for period {period.key} ({error!r}): there are "
                f"{', '.join(f'{{{name}}}' for name in known)}; moments only where slots are times"
            ) from None
