"""Until which watermark the state of a query holds what it has absorbed: pure rules, operator by operator.

A stateful operator in append mode keeps a row until the watermark has reached a time of its own: the end
of the row's window, the end of the interval in which a join can still match it. A `StatePlan` is the
operators of one query, reduced to what each *waits* for. `bound_ms` is then the watermark by which all that
was absorbed is out, in whichever operator it is by then, given the latest event time that was absorbed.

Spark measures that time, and its watermarks, in whole milliseconds, and compares rows in microseconds. So a
row may be up to 999 µs later than its millisecond: all steps are in microseconds, from the last one of the
event time, and a bound is rounded up.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tracker.client.moments import parse_duration_ns

US_PER_MS = 1000
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
"""The session's setting, and the one with which a checkpoint began, which Spark keeps to."""
LONGEST_MS = 100 * 366 * 86_400_000
"""No delay and no span is longer: a hundred years."""

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


class StateKind(enum.Enum):
    """What there is in a query's state that is emitted in a later batch.

    NOTHING: each batch emits all that it changes. BOUNDED: the watermark says when all is out (`bound_ms`).
    SESSION: session windows of a fixed gap, whose end later rows move; `bound_ms` is the earliest that it can
    be. USER: functions of the user's with timers or state of their own, of which a plan says nothing: all is out
    when nothing is left in state.
    UNKNOWN: an operator, or a condition, that is not understood.
    """

    NOTHING = "nothing"
    BOUNDED = "bounded"
    SESSION = "session"
    USER = "user"
    UNKNOWN = "unknown"


class WatermarkPolicy(enum.Enum):
    """Which of several watermarks is the query's, by `spark.sql.streaming.multipleWatermarkPolicy`."""

    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Watermark:
    """One `withWatermark` of a plan. column: its name, as shown to people."""

    column: str
    delay_ms: int

    def __post_init__(self) -> None:
        check_ms(f"the delay of watermark {self.column!r}", self.delay_ms)


@dataclass(frozen=True, slots=True)
class Window:
    """From a time to the end of the last window that holds it. A window begins each `slide_us`, `start_us`
    after 1970, and takes `size_us`. Raises ValueError where windows would leave gaps."""

    size_us: int
    slide_us: int
    start_us: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.slide_us <= self.size_us:
            raise ValueError(
                f"a window of {self.size_us} µs that begins each {self.slide_us} µs: the latter must be "
                f"above 0, and at most the former"
            )

    def after(self, time_us: int) -> int:
        begin_us = (time_us - self.start_us) // self.slide_us * self.slide_us + self.start_us
        return begin_us + self.size_us

    def __str__(self) -> str:
        slides = "" if self.slide_us == self.size_us else f" each {duration_text_us(self.slide_us)}"
        return f"a window of {duration_text_us(self.size_us)}{slides}"


@dataclass(frozen=True, slots=True)
class WindowTime:
    """From the end of a window to its `window_time`, the last microsecond inside. Follows a `Window`."""

    def after(self, time_us: int) -> int:
        return time_us - 1

    def __str__(self) -> str:
        return "its window_time"


@dataclass(frozen=True, slots=True)
class Later:
    """From a time to one that is `by_us` later: a join's partner, a session's gap."""

    by_us: int

    def __post_init__(self) -> None:
        if self.by_us < 0:
            raise ValueError(f"a time {self.by_us} µs later: it must be 0 or more")

    def after(self, time_us: int) -> int:
        return time_us + self.by_us

    def __str__(self) -> str:
        return f"{duration_text_us(self.by_us)} later"


Step = Window | WindowTime | Later
Steps = tuple[Step, ...]
"""From an event time to a time that an operator compares with its watermark: each step from where the one
before it leads."""


def lead(steps: Steps, time_us: int) -> int:
    """Where steps lead from a time, in µs. It never lies before that time, nor does it fall as that rises."""
    for step in steps:
        time_us = step.after(time_us)
    return time_us


@dataclass(frozen=True, slots=True)
class Wait:
    """One reason for which a row stays in state: until its operator's watermark has reached what `steps`
    lead to. lag_us: how far that watermark is behind the query's, as it is above a join, together with the
    millisecond by which an operator that is strict waits longer. what: the operator, for people."""

    steps: Steps
    lag_us: int = 0
    what: str = ""

    def __post_init__(self) -> None:
        if self.lag_us < 0:
            raise ValueError(f"{self.what or 'an operator'} lags {self.lag_us} µs: 0 or more")
        for before, step in zip((None, *self.steps), self.steps, strict=False):
            if isinstance(step, WindowTime) and not isinstance(before, Window):
                raise ValueError(f"{self.what or 'an operator'}: window_time is of a window alone")

    def until_us(self, time_us: int) -> int:
        return lead(self.steps, time_us) + self.lag_us


@dataclass(frozen=True, slots=True)
class HeldFor:
    """What a user says of a query's state where its plan does not: the watermark is at most `delay_ms` behind
    the latest event time that was absorbed, and what was absorbed has been emitted once the watermark is more
    than `span_ms` beyond its event time. Both in milliseconds, from 0 to `LONGEST_MS`; ValueError otherwise.

    With several streams under policy min, `delay_ms` is the longest delay and how far one stream may be ahead
    of another, together.

    ahead_ms: no row's event time is later than the clock by which Spark plans the row's batch and so much more.
    It bounds what Spark found in its sink after a crash, and did not evaluate again. None: nothing is known of that.
    """

    delay_ms: int
    span_ms: int
    ahead_ms: int | None = None

    def __post_init__(self) -> None:
        if self.ahead_ms is not None:
            check_ms("ahead_ms of HeldFor", self.ahead_ms)
        check_ms("delay_ms of HeldFor", self.delay_ms)
        check_ms("span_ms of HeldFor", self.span_ms)

    @classmethod
    def parse(cls, text: str) -> HeldFor:
        """From the text form, `delay=5s,span=1h` or `delay=5s,span=1h,ahead=1m`. Raises ValueError."""
        wanted = f"{text!r} does not say how long state is held: write delay=5s,span=1h,ahead=1m"
        found: dict[str, int] = {}
        for part in text.split(","):
            match = re.fullmatch(r"\s*(delay|span|ahead)\s*=\s*(.*?)\s*", part)
            if match is None or match[1] in found:
                raise ValueError(wanted)
            try:
                duration_ns = parse_duration_ns(match[2])
            except ValueError as error:
                raise ValueError(f"{wanted}; {error}") from None
            found[match[1]] = -(-duration_ns // 10**6)
        if not {"delay", "span"} <= set(found):
            raise ValueError(wanted)
        return cls(found["delay"], found["span"], found.get("ahead"))

    def __str__(self) -> str:
        """The text form, which `parse` takes."""
        ahead = "" if self.ahead_ms is None else f",ahead={duration_text(self.ahead_ms)}"
        return f"delay={duration_text(self.delay_ms)},span={duration_text(self.span_ms)}{ahead}"


@dataclass(frozen=True, slots=True)
class StatePlan:
    """What a query's state does, by its plan or, by `given`, its user.

    watermarks: in the order of the plan. mode: of output, as Spark calls it. waits: of BOUNDED and SESSION,
    why rows stay; of no other. what: of USER and UNKNOWN, which operator, or what of it, in words. held_for:
    what the user gave. has_timers: of USER, whether its function may emit without rows, by a clock or a watermark;
    by_clock: of USER and UNKNOWN, whether some function may emit, or forget, by the clock.
    """

    kind: StateKind
    watermarks: tuple[Watermark, ...] = ()
    policy: WatermarkPolicy = WatermarkPolicy.MIN
    mode: str = "Append"
    waits: tuple[Wait, ...] = ()
    what: str = ""
    held_for: HeldFor | None = None
    has_timers: bool = False
    by_clock: bool = False

    def __post_init__(self) -> None:
        if bool(self.waits) != (self.kind in (StateKind.BOUNDED, StateKind.SESSION)):
            raise ValueError(f"state of kind {self.kind.value}, with {len(self.waits)} waits")
        if bool(self.what) != (self.kind in (StateKind.USER, StateKind.UNKNOWN)):
            raise ValueError(f"state of kind {self.kind.value}, of operator {self.what!r}")
        if self.waits and not self.watermarks and self.held_for is None:
            raise ValueError("state that waits for a watermark, and none is set")

    @classmethod
    def given(cls, held_for: HeldFor, mode: str = "Append") -> StatePlan:
        """What a user says, whatever the plan is: all is out `span_ms` + 1 ms after its event time."""
        # One microsecond above the span rounds up, from the last one of a millisecond, to the next.
        steps = (Later(held_for.span_ms * US_PER_MS + 1),)
        wait = Wait(steps, what=f"what is held for {duration_text(held_for.span_ms)}")
        return cls(StateKind.BOUNDED, mode=mode, waits=(wait,), held_for=held_for)

    @property
    def emits_later(self) -> bool:
        """Whether what a batch absorbs may first show in what a later one emits."""
        return self.kind is not StateKind.NOTHING

    @property
    def one_watermark_tells(self) -> bool:
        """Whether the query's watermark bounds every event time absorbed. Of several under policy min it
        is that of the stream furthest behind, which says nothing of the one ahead."""
        return (
            self.held_for is not None
            or self.policy is WatermarkPolicy.MAX
            or (len(self.watermarks) == 1)
        )

    def absorbed_ms(self, next_watermark_ms: int) -> int | None:
        """An upper bound of all event times absorbed up to a batch, in ms since 1970, by the watermark that
        it leaves (`nextBatchWatermarkMs`). None where that does not tell it: under policy min with several
        watermarks always; where the user gave the delay, or several are set, as long as the watermark is 0.
        What tells it of a later batch tells it of all before, too."""
        if not self.one_watermark_tells:
            return None
        if self.held_for is not None:
            return next_watermark_ms + self.held_for.delay_ms if next_watermark_ms > 0 else None
        return next_watermark_ms + max(one.delay_ms for one in self.watermarks)

    def bound_ms(self, event_time_ms: int) -> int:
        """The watermark, in ms since 1970, by which all is out that was absorbed with event times up to
        the given one: by the first committed batch whose watermark reaches it. Of SESSION it may be
        later. Never below the event time, and never less for a later one. Raises ValueError where no
        watermark says it."""
        if not self.waits:
            raise ValueError(f"no watermark says when state of kind {self.kind.value} is emitted")
        last_us = event_time_ms * US_PER_MS + US_PER_MS - 1
        latest_us = max(wait.until_us(last_us) for wait in self.waits)
        return max(event_time_ms, -(-latest_us // US_PER_MS))

    def window_bound_ms(self, end_us: int) -> int | None:
        """The watermark, in ms since 1970, by which all is out that is in a window that ends by the given time, in µs,
        and in the windows that Spark makes of that. None where the plan has no windows."""
        latest_us = max(
            (
                lead(wait.steps[number + 1 :], end_us) + wait.lag_us
                for wait in self.waits
                for number, step in enumerate(wait.steps)
                if isinstance(step, Window)
            ),
            default=None,
        )
        return None if latest_us is None else -(-latest_us // US_PER_MS)

    def __str__(self) -> str:
        """One line for people."""
        if self.kind is StateKind.NOTHING:
            return "nothing is emitted later"
        if self.kind is StateKind.USER:
            return f"what {self.what} emits later is up to its own code"
        if self.kind is StateKind.UNKNOWN:
            return f"not understood: {self.what}"
        waits = "; ".join(dict.fromkeys(wait.what for wait in self.waits))
        if self.held_for is not None:
            return f"held as given: {self.held_for}"
        delays = ", ".join(f"{w.column} {duration_text(w.delay_ms)}" for w in self.watermarks)
        policy = f", policy {self.policy.value}" if len(self.watermarks) > 1 else ""
        return f"{waits} (watermark: {delays}{policy})"


def waits_of(reasons: Sequence[Steps], lag_us: int, what: str) -> tuple[Wait, ...]:
    """One wait for each way in which an operator's event time comes about."""
    return tuple(Wait(steps, lag_us, what) for steps in reasons)


def duration_text(duration_ms: int) -> str:
    """`5s`, `90m`, `1500ms`: in the longest unit that leaves no rest."""
    unit = next(u for u, ms in _UNITS_MS.items() if duration_ms % ms == 0)
    return f"{duration_ms // _UNITS_MS[unit]}{unit}" if duration_ms else "0ms"


def duration_text_us(duration_us: int) -> str:
    """As `duration_text`, of microseconds."""
    if duration_us % US_PER_MS:
        return f"{duration_us}us"
    return duration_text(duration_us // US_PER_MS)


def check_ms(what: str, value_ms: int) -> None:
    """Raises ValueError where it is no whole number of milliseconds from 0 to `LONGEST_MS`."""
    if type(value_ms) is not int or not 0 <= value_ms <= LONGEST_MS:
        raise ValueError(
            f"{what} is {value_ms!r}; it is a whole number of milliseconds from 0 to {LONGEST_MS}"
        )
