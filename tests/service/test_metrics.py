"""What a tracker tells Prometheus: that all of it is there, true, well named and bounded."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.client.support import (
    TWO_SEGMENTS,
    Listener,
    consume,
    create,
    done,
    joined_front,
    promise,
)
from tests.cluster.tracker import Tracker
from tests.service.scraping import Samples, promtool_finds, samples_of, text_when, value
from tests.waits import HANG_S
from tracker.client import Admin, LowmarkError, NodeClient, Subscriber
from tracker.core.insight.freshness import NONE_MS, Freshness, Lag
from tracker.core.model import PipelineSpec, RefusalCode, TimeKind
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.errors import RefusedError
from tracker.metrics import freshness as metrics_freshness
from tracker.metrics.exposition import MAX_CONNECTIONS, MetricsThread
from tracker.metrics.families import Families, render
from tracker.metrics.latencies import Latencies
from tracker.metrics.names import COUNTER, HISTOGRAM, LOCAL_TRACKER, PROCESS, SERVICE
from tracker.service.http import metrics

SHARDS = 2


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """A tracker of two processes: its target, and where each tells its metrics."""
    with Tracker(tmp_path_factory.mktemp("metrics"), SHARDS, metrics=True) as tracker:
        yield tracker.target, [server.metrics for server in tracker.servers]


def test_all_metrics_are_there_after_a_pipeline_ran_and_promtool_is_content(
    served: tuple[str, list[str]],
) -> None:
    target, addresses = served
    with (
        Admin(target, HANG_S) as admin,
        Subscriber(target, "two") as subscriber,
        NodeClient(target, "two", "F") as node,
    ):
        admin.register(TWO_SEGMENTS)
        listener = Listener(subscriber)
        joined_front(node)
        done(node.commit(create(100, 7)))
        done(node.commit(create(300, 8)))
        done(node.commit(promise(400)))
        done(node.commit(consume(100, 7)))
        listener.until(lambda update: update.segment == "first" and update.min_time == 300)
        with pytest.raises(RefusedError) as refused:
            done(node.commit(create(99, 9)))
        assert refused.value.refusal.code is RefusalCode.BELOW_MIN_TIME

        node.report_waits([WaitCause(WaitKind.NOT_TOLD, "offsets 0..9 of topic orders")])

        with pytest.raises(LowmarkError):
            admin.pipeline("nothing")
        lag_s = 100 * TWO_SEGMENTS.slack_ns / 1e9
        now = {"pipeline": "two", "segment": "first", "behind": "promise"}
        texts = [
            text_when(
                address,
                lambda s: (
                    value(s, "lowmark_vector_keys", pipeline="two") == 1
                    and value(s, "lowmark_freshness_now_seconds", **now) == pytest.approx(lag_s)
                ),
            )
            for address in addresses
        ]

    for text in texts:
        assert promtool_finds(text) == ""
    assert_everything_is_told(texts)
    told = [samples_of(text) for text in texts]

    def total(name: str, **labels: str) -> float:
        return sum(value(samples, name, **labels) or 0 for samples in told)

    assert total("lowmark_ticks_total", pipeline="two") == 6  # the front joined by the first
    assert total("lowmark_tick_cells_total", pipeline="two", kind="created") == 3
    assert total("lowmark_tick_cells_total", pipeline="two", kind="consumed") == 1
    assert total("lowmark_ticks_refused_total", pipeline="two", reason="below_min_time") == 1
    assert total("lowmark_segment_open_slots", pipeline="two", segment="first") == 1
    assert total("lowmark_subscribers", pipeline="two") == 1
    for what, nodes in (("refused", 1), ("not_told", 1), ("other", 0)):
        assert total("lowmark_nodes_waiting", pipeline="two", what=what) == nodes
    for samples in told:
        assert value(samples, "lowmark_serving") == 1
        assert value(samples, "lowmark_lease_held") == 1
    front = {"pipeline": "two", "node": "F", "front": "front"}
    assert sum(value(s, "lowmark_front_silent_seconds", **front) is not None for s in told) == 1, (
        "a front is told by one process alone"
    )
    assert_the_lag_is_told(told, lag_s)


def assert_the_lag_is_told(told: list[Samples], lag_s: float) -> None:
    """Of the first segment, whose min time is 300 and whose front has promised 400."""
    first = {"pipeline": "two", "segment": "first"}
    here = [s for s in told if value(s, "lowmark_subscribers", pipeline="two")]
    assert value(here[0], "lowmark_segment_min_time_timestamp_seconds", **first) == pytest.approx(
        300 * TWO_SEGMENTS.slack_ns / 1e9
    )
    assert value(here[0], "lowmark_segment_lag_seconds", **first) == pytest.approx(lag_s)
    for samples in told:
        most = {**first, "behind": "promise", "window": "5m", "percentile": "100"}
        assert (value(samples, "lowmark_freshness_level_seconds", **most) or 0) >= lag_s


def assert_everything_is_told(texts: list[str]) -> None:
    """Every metric of the list, and none but those of the list."""
    seen = {name for text in texts for name, _ in samples_of(text)}
    for metric in (*SERVICE, *PROCESS):
        name = f"{metric.name}_count" if metric.kind == HISTOGRAM else metric.name
        assert name in seen, f"{name} is listed and was not told"
    suffixes = ("_bucket", "_sum", "_count", "_created")
    listed = {metric.name for metric in (*SERVICE, *PROCESS)}
    for name in seen:
        base = next((name.removesuffix(s) for s in suffixes if name.endswith(s)), name)
        assert name in listed or base in listed, f"{name} was told and is not listed"


def test_the_names_follow_the_rules() -> None:
    listed = (*SERVICE, *LOCAL_TRACKER, *PROCESS)
    assert len({metric.name for metric in listed}) == len(listed)
    for metric in listed:
        assert metric.name.startswith("lowmark_")
        assert metric.name.endswith("_total") == (metric.kind == COUNTER), metric.name
        assert metric.help.endswith("."), metric.name
        assert not {"slot", "item", "tick", "client", "address"} & set(metric.labels), metric.name


def test_a_standby_tells_that_it_waits(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path, standbys=1, metrics=True)
    with closing(tracker), tracker.standbys[0] as standby:
        text = text_when(standby.metrics, bool)
    assert promtool_finds(text) == ""
    assert value(samples_of(text), "lowmark_serving") == 0


def test_more_than_the_limit_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import tracker

    monkeypatch.setattr(metrics, "MAX_PIPELINES", 1)
    monkeypatch.setattr(metrics, "MAX_SEGMENTS", 1)
    with tracker.embedded() as running:
        running.register(TWO_SEGMENTS)
        told = metrics.ServiceMetrics()
        told.server = running.servers[0]
        samples = samples_of(render(told.gather()).decode())
    assert value(samples, "lowmark_metrics_omitted", what="segments") == 1
    assert value(samples, "lowmark_metrics_omitted", what="pipelines") == 0
    assert sum(name == "lowmark_segment_open_slots" for name, _ in samples) == 1


def test_freshness_is_told_of_whole_pipelines_first_and_numbers_have_no_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_freshness, "MAX_SEGMENTS", 4)
    sampled = []
    for name, time in (("p", TimeKind.ARRIVAL), ("q", TimeKind.NUMBER)):
        freshness = Freshness(("a", "b"))
        for second in range(4):
            freshness.add([Lag(1_000 * second, 7), Lag(NONE_MS, 9)], second)
        sampled.append((PipelineSpec(name, ("a", "b"), time=time), freshness))
    families = Families(SERVICE)
    metrics_freshness.gather_freshness(families, sampled)
    text = render(families).decode()
    assert promtool_finds(text) == ""
    told = samples_of(text)
    assert value(told, "lowmark_metrics_omitted", what="freshness") == 2
    now = {labels for name, labels in told if name == "lowmark_freshness_now_seconds"}
    behind_promise = {("p", ""), ("q", ""), ("p", "a")}  # nothing is known of b
    behind_clock = {("p", ""), ("p", "a"), ("p", "b")}
    assert {
        (labels["pipeline"], labels["segment"], labels["behind"]) for labels in map(dict, now)
    } == {(*of, "promise") for of in behind_promise} | {(*of, "clock") for of in behind_clock}
    level = {"pipeline": "q", "segment": "", "behind": "promise", "window": "5m"}
    assert [
        value(told, "lowmark_freshness_level_seconds", **level, percentile=percent)
        for percent in ("50", "95", "99", "100")
    ] == [1, 3, 3, 3]
    hour = {**level, "window": "1h", "percentile": "100"}
    assert value(told, "lowmark_freshness_level_seconds", **hour) == 0, "one each 12 seconds"


def test_every_sample_names_the_group_of_its_process(tmp_path: Path) -> None:
    """Also one that waits, and what the operating system says of it."""
    options = ("--group", "3", "--directory", "127.0.0.1:1")
    tracker = Tracker(tmp_path, standbys=1, metrics=True, options=options)
    with closing(tracker), tracker.standbys[0] as standby:
        samples = samples_of(text_when(standby.metrics, bool))
    assert value(samples, "lowmark_serving", group="3") == 0
    assert {dict(labels)["group"] for _, labels in samples} == {"3"}


def test_latencies_are_counted_in_buckets() -> None:
    latencies = Latencies((0.001, 0.01))
    for seconds in (0.0005, 0.001, 0.005, 1.0):
        latencies.observe(seconds)
    assert latencies.buckets() == [("0.001", 2.0), ("0.01", 3.0), ("+Inf", 4.0)]
    assert latencies.sum_s == pytest.approx(1.0065)


@pytest.fixture
def telling() -> Iterator[MetricsThread]:
    thread = MetricsThread("127.0.0.1:0", lambda: b"lowmark_x 1\n")
    yield thread
    thread.stop()


def asked(address: str, request: str) -> bytes:
    """What is answered to a line of a request, up to the end of the connection."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), HANG_S) as connection:
        connection.sendall(f"{request} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        parts = []
        while part := connection.recv(4096):
            parts.append(part)
    return b"".join(parts)


def test_only_metrics_are_answered(telling: MetricsThread) -> None:
    assert asked(telling.address, "GET /metrics").endswith(b"\r\n\r\nlowmark_x 1\n")
    assert asked(telling.address, "HEAD /metrics").endswith(b"\r\n\r\n")
    assert b" 404 " in asked(telling.address, "GET /etc/passwd")
    assert b" 405 " in asked(telling.address, "POST /metrics")


def test_those_who_only_connect_do_not_hold_up_others_for_long(
    telling: MetricsThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracker.http.IDLE_TIMEOUT_S", 1.0)
    host, _, port = telling.address.rpartition(":")
    idle = [socket.create_connection((host, int(port)), HANG_S) for _ in range(MAX_CONNECTIONS)]
    try:
        assert idle[-1].recv(1) == b"", "it is closed when its time is over"
        assert text_when(telling.address, bool) == "lowmark_x 1\n"
    finally:
        for connection in idle:
            connection.close()
