"""What is waited for is information while it is ordinary, and a warning once it lasts."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracker.service.cluster.waits import PATIENCE_S, Wait


@dataclass
class Log:
    """What was logged: the level, and the reason."""

    lines: list[tuple[str, object]] = field(default_factory=list)

    def info(self, event: str, reason: object) -> None:
        self.lines.append((f"info {event}", reason))

    def warning(self, event: str, reason: object) -> None:
        self.lines.append((f"warning {event}", reason))


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def waiting() -> tuple[Wait, Log, Clock]:
    log, clock = Log(), Clock()
    return Wait(log, "waits", clock), log, clock


def test_it_is_said_once_until_the_reason_changes() -> None:
    wait, log, clock = waiting()
    for reason in ("a", "a", "b", "b"):
        wait.report(reason=reason)
        clock.now_s += 1
    assert log.lines == [("info waits", "a"), ("info waits", "b")]


def test_what_lasts_is_said_once_more_as_a_warning() -> None:
    wait, log, clock = waiting()
    wait.report(reason="a")
    clock.now_s += PATIENCE_S - 0.1
    wait.report(reason="a")
    assert log.lines == [("info waits", "a")]
    clock.now_s += 0.1
    for reason in ("a", "a", "b"):
        wait.report(reason=reason)
    assert log.lines[1:] == [("warning waits", "a"), ("warning waits", "b")]


def test_what_is_over_does_not_count_for_the_next() -> None:
    wait, log, clock = waiting()
    wait.report(reason="a")
    wait.over()
    clock.now_s += PATIENCE_S
    wait.report(reason="a")
    assert log.lines == [("info waits", "a"), ("info waits", "a")]
