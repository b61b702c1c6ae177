"""What subscribers are sent is made once for all who have heard the same, and is what each would have been told by
itself (tracker/service/rpc/telling.py)."""

from __future__ import annotations

import random
from dataclasses import replace

from acker.v1 import progress_service_pb2 as progress_pb
from tracker.core.model import PipelineSpec
from tracker.service.rpc.telling import MAX_KEPT, Known, Telling

SPEC = PipelineSpec("p", ("a", "b", "c"), fronts=("f",))


class Listener:
    """Hears of some segments, each by a message of its own: the dumb way."""

    def __init__(self, chosen: tuple[int, ...]) -> None:
        self.heard: dict[int, int] = {}
        self.least: int | None = None
        self.known = Known(chosen, (None,) * len(chosen), None)

    def due(self, min_times: tuple[int, ...], least: int) -> dict[str, int]:
        """By segment what is news to it; the whole pipeline's under no name."""
        news = {n: min_times[n] for n in self.known.chosen if min_times[n] > self.heard.get(n, -1)}
        self.heard.update(news)
        said = {SPEC.segments[n]: slot for n, slot in news.items()}
        if self.least is None or least > self.least or news:
            self.least = max(least, -1 if self.least is None else self.least)
            said[""] = self.least
        return said


def read(data: bytes | None) -> dict[str, int]:
    if data is None:
        return {}
    message = progress_pb.SubscribeResponse.FromString(data)
    assert message.pipeline == "p" and message.slack_ns == SPEC.slack_ns
    return {**{each.segment: each.min_time for each in message.segments}, "": message.min_time}


def test_everybody_hears_what_is_news_to_him_whenever_he_listens() -> None:
    chosen = random.Random(3)
    telling, min_times = Telling(SPEC), (0, 0, 0)
    choices = ((0, 1, 2), (1,), (2, 0))
    listeners = [Listener(chosen.choice(choices)) for _ in range(20)]
    for _ in range(300):
        least = min(min_times)
        for listener in chosen.sample(listeners, 8):  # the others are slow
            message = telling.message(listener.known, min_times, least)
            assert read(message.data) == listener.due(min_times, least)
            listener.known = message.known
        min_times = tuple(slot + chosen.choice((0, 0, 1, 5)) for slot in min_times)  # type: ignore[assignment]


def test_one_message_is_made_for_all_who_have_heard_the_same() -> None:
    telling = Telling(SPEC)
    known = [Known((0, 1, 2), (None,) * 3, None) for _ in range(3)]
    for state in ((1, 1, 1), (2, 1, 3)):
        messages = [telling.message(each, state, min(state)) for each in known]
        assert len({id(message.data) for message in messages}) == 1
        known = [message.known for message in messages]


def test_who_is_ahead_of_the_process_hears_nothing_that_goes_back() -> None:
    ahead = Known((0,), (9,), 9)
    message = Telling(SPEC).message(ahead, (5, 5, 5), 5)
    assert message.data is None and message.known == ahead


def test_what_is_kept_is_bounded() -> None:
    telling = Telling(SPEC)
    for least in range(3 * MAX_KEPT):  # who comes back may have heard anything
        telling.message(Known((0,), (least,), least), (1000, 1000, 1000), 1000)
        assert telling.kept <= MAX_KEPT


def test_who_hears_of_a_segment_hears_once_that_it_was_removed() -> None:
    def removed(known: Known, spec: PipelineSpec) -> tuple[list[str], Known]:
        message = Telling(spec).message(known, (5, 5, 5), 5)
        data = message.data or b""
        return list(progress_pb.SubscribeResponse.FromString(data).removed), message.known

    all_of_it, one = Known((0, 1, 2), (5, 5, 5), 5), Known((0,), (5,), 5)
    without_b = replace(SPEC, removed=("b",))
    assert removed(all_of_it, SPEC) == ([], all_of_it)
    told, known = removed(all_of_it, without_b)
    assert told == ["b"]
    assert removed(known, without_b) == ([], known)
    assert removed(known, replace(SPEC, removed=("a", "b")))[0] == ["a"]
    assert removed(one, without_b) == ([], one)
