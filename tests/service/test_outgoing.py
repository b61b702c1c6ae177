"""When frames to another shard go, and with which others (tracker/service/cluster/outgoing.py)."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from acker.v1 import peer_service_pb2 as peer_pb
from tests.waits import until_async
from tracker.client.credentials import Credentials
from tracker.core import log as m
from tracker.core.model import NodeKey
from tracker.service.cluster import peer_link
from tracker.service.cluster.addresses import Addresses
from tracker.service.cluster.outgoing import (
    BURST,
    CONFIRMATION_WAIT_MS,
    MAX_QUEUED_FRAMES,
    MESSAGES_PER_S,
    MESSAGES_PER_S_OF_A_LINK,
    REPORT_INTERVAL_MS,
    Outgoing,
)
from tracker.service.stats import Stats
from tracker.wire.frames import carriers, frame_from_pb, frame_to_pb

MS = 1_000_000


def frame(body: m.FrameBody) -> m.Frame:
    return m.Frame(1, 2, body)


def entries(first: int = 1) -> m.Frame:
    return frame(m.Entries(first, (m.KeyDropped("p", NodeKey("n", 1)),)))


REPORT = frame(m.ShardReport(7, False, ((0, 5),), ()))
WHOLE = frame(m.ShardReport(7, True, ((0, 5),), ()))
CONFIRMATION = frame(m.EntriesReceived(3))
ASKED_AGAIN = frame(m.EntriesReceived(3, again=True))
WANTED = frame(m.ReportWanted())


def busy(now_ns: int, links: int) -> Outgoing:
    """One of so many links, on which so many messages have gone of late that a report waits."""
    outgoing = Outgoing()
    outgoing.links = links
    for _ in range(BURST):
        outgoing.take(now_ns)
    return outgoing


@pytest.mark.parametrize("urgent", [entries(), WHOLE, ASKED_AGAIN, WANTED])
def test_what_somebody_waits_for_goes_at_once_and_takes_along_what_waits(urgent: m.Frame) -> None:
    outgoing = busy(10 * MS, 4)
    outgoing.add(CONFIRMATION, 10 * MS)
    outgoing.add(REPORT, 10 * MS)
    assert outgoing.due_ns is not None and outgoing.due_ns > 11 * MS
    outgoing.add(urgent, 11 * MS)
    assert outgoing.due_ns == 11 * MS
    assert outgoing.take(11 * MS) == [CONFIRMATION, REPORT, urgent]
    assert outgoing.due_ns is None and len(outgoing) == 0


def test_a_confirmation_waits_for_company_but_not_for_ever() -> None:
    outgoing = Outgoing()
    outgoing.add(CONFIRMATION, 10 * MS)
    outgoing.add(CONFIRMATION, 15 * MS)
    assert outgoing.due_ns == (10 + CONFIRMATION_WAIT_MS) * MS


def test_on_an_idle_link_no_report_waits() -> None:
    """One tick brings about a few messages in a row; the next comes when they are long over."""
    outgoing = Outgoing()
    for tick in range(100):
        for message in range(BURST // 2):
            now_ns = (10 * tick + message) * MS
            outgoing.add(REPORT, now_ns)
            assert outgoing.due_ns == now_ns
            outgoing.take(now_ns)


def test_on_a_busy_link_reports_wait_for_others_or_keep_a_distance_from_the_message_before() -> (
    None
):
    outgoing, sent, last_ns = busy(0, 100), 0, 0
    for now_ns in range(0, 1_000 * MS, MS):  # as often as a process reports
        outgoing.add(REPORT, now_ns)
        assert outgoing.due_ns is not None and outgoing.due_ns <= last_ns + REPORT_INTERVAL_MS * MS
        if outgoing.due_ns <= now_ns:
            outgoing.take(now_ns)
            sent, last_ns = sent + 1, now_ns
    assert sent == (1_000 - 1) // REPORT_INTERVAL_MS


def test_reports_go_with_the_entries_of_a_link_that_has_as_many_as_it_may_send() -> None:
    """Entries come unevenly, one a millisecond on average: no report goes by itself between two of them."""
    outgoing, by_itself, drawn = busy(0, 1), 0, random.Random(7)
    now_ns = 0
    for _ in range(1_000):
        outgoing.add(REPORT, now_ns)
        next_ns = now_ns + drawn.randrange(2 * MS)
        if outgoing.due_ns is not None and outgoing.due_ns < next_ns:
            outgoing.take(outgoing.due_ns)
            by_itself += 1
        outgoing.add(entries(), next_ns)
        outgoing.take(next_ns)
        now_ns = next_ns
    assert by_itself == 0


def test_the_links_of_a_process_share_what_it_may_send() -> None:
    def sent(links: int) -> int:
        outgoing, count = busy(0, links), 0
        for now_ns in range(0, 1_000 * MS, MS // 4):
            outgoing.add(REPORT, now_ns)
            if outgoing.due_ns is not None and outgoing.due_ns <= now_ns:
                outgoing.take(now_ns)
                count += 1
        return count

    assert MESSAGES_PER_S_OF_A_LINK * 0.9 < sent(1) <= MESSAGES_PER_S_OF_A_LINK
    assert MESSAGES_PER_S * 0.9 < 3 * sent(3) <= MESSAGES_PER_S


def test_a_frame_that_finds_no_room_is_not_taken() -> None:
    outgoing = Outgoing()
    assert all(outgoing.add(CONFIRMATION, 0) for _ in range(MAX_QUEUED_FRAMES))
    assert not outgoing.add(entries(), 0)
    assert len(outgoing.take(0)) == MAX_QUEUED_FRAMES


def test_frames_share_messages_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    confirmation = frame(m.EntriesReceived(3, level=0, speaks=0))  # smaller than the others
    frames = [confirmation, entries(4), REPORT, entries(5), WANTED]
    small = frame_to_pb(confirmation).ByteSize()
    for limit, counts in ((1 << 20, [5]), (small + 1, [2, 1, 1, 1]), (0, [1] * 5)):
        monkeypatch.setattr(peer_link, "FULL_MESSAGE_BYTES", limit)
        messages = list(peer_link.messages(frames))
        assert [len(carried) for _, carried in messages] == counts
        read = []
        for message, _ in messages:
            sent = peer_pb.ExchangeRequest.FromString(message.SerializeToString())
            read += [frame_from_pb(one) for one in carriers(sent)]
        # What states no level is of the oldest one.
        assert read == [frame(m.EntriesReceived(3)), *frames[1:]]


def test_a_link_that_takes_nothing_for_long_fills_no_disk_with_what_it_logs() -> None:
    """The other process takes nothing while its store is away. The disk may be that of a store."""
    engine: Any = SimpleNamespace(
        stats=Stats(), process=SimpleNamespace(links=(1,), handle=lambda *_: [])
    )

    async def run() -> None:
        link = peer_link.PeerLink(1, Addresses({1: "127.0.0.1:1"}), engine, None)
        for _ in range(MAX_QUEUED_FRAMES + 100_000):
            link.offer(REPORT)
        await link.stop()

    with capture_logs() as logs:
        asyncio.run(run())
    said = [entry["dropped"] for entry in logs if entry["event"] == "frame_dropped"]
    assert said == [2**n for n in range(17)]
    assert engine.stats.forwarding[1].dropped_frames == 100_000


def test_a_link_whose_files_are_gone_says_so_once_and_goes_on() -> None:
    engine: Any = SimpleNamespace(stats=Stats())

    class Counted(Addresses):
        looks = 0

        def __getitem__(self, shard: int) -> str:
            self.looks += 1
            return super().__getitem__(shard)

    async def run() -> None:
        addresses = Counted({1: "127.0.0.1:1"})
        link = peer_link.PeerLink(1, addresses, engine, None, Credentials("/nowhere/ca.pem"))
        await until_async(lambda: addresses.looks > 9)
        assert not link.ended
        await link.stop()

    with capture_logs() as logs:
        asyncio.run(run())
    (said,) = [entry for entry in logs if entry["log_level"] != "debug"]
    assert said["event"] == "peer_refused" and "/nowhere/ca.pem" in said["reason"]


class Call:
    """A stream to another process."""

    def __init__(self) -> None:
        self.written: list[peer_pb.ExchangeRequest] = []

    async def write(self, message: peer_pb.ExchangeRequest) -> None:
        self.written.append(message)


def test_a_message_that_the_other_process_would_refuse_is_not_sent_and_said_loudly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Entries are kept far smaller; one that is larger all the same must not stop min time in silence."""
    engine: Any = SimpleNamespace(stats=Stats())
    message, call = frame_to_pb(entries(7)), Call()

    async def run() -> None:
        link: Any = peer_link.PeerLink(1, Addresses({1: "127.0.0.1:1"}), engine, None)
        try:
            await link.send(call, message, [entries(7)])
            monkeypatch.setattr(peer_link, "MAX_MESSAGE_BYTES", message.ByteSize() - 1)
            await link.send(call, message, [entries(7)])
        finally:
            await link.stop()

    with capture_logs() as logs:
        asyncio.run(run())
    assert call.written == [message]
    (said,) = [entry for entry in logs if entry["event"] == "message_too_large"]
    assert (said["log_level"], said["to_shard"], said["bytes"]) == ("error", 1, message.ByteSize())
    assert said["entries"] == ["7 to 7: ['KeyDropped']"]
    assert engine.stats.forwarding[1].too_large_messages == 1
