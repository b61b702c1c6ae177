"""Waiting for a moment, and what is said where it cannot come."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import tracker
from tests.client.support import TWO_SEGMENTS, create, done, joined_front, promise
from tests.waits import HANG_S
from tracker.cli.app import app
from tracker.cli.common import EXIT_HELD, EXIT_TIMED_OUT
from tracker.client import Admin, Explanation, NodeClient, PipelineInfo, RefusedError
from tracker.client.embedded import EmbeddedTracker
from tracker.client.waiting import Outcome, Waited, wait_complete, wait_complete_async
from tracker.core.model import (
    FrontJoin,
    PipelineSpec,
    Refusal,
    RefusalCode,
    SilentFront,
    TickContent,
)

BRIEFLY_S = 0.2  # expires: nothing comes


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        embedded.register(TWO_SEGMENTS)
        yield embedded


def cli(running: EmbeddedTracker, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--target", running.target])


def a_script_is_told(running: EmbeddedTracker, pipeline: str, slot: int, why: str) -> None:
    """Why what it waits for will not come, and by its status; or it waits as long as it likes."""
    words = ["wait", "-p", pipeline, "--until", f"slot:{slot}", "--silent-after"]
    held = cli(running, *words, "200ms")
    assert held.exit_code == EXIT_HELD and why in held.stderr
    assert cli(running, *words, "never", "--timeout", "1500ms").exit_code == EXIT_TIMED_OUT


def test_a_declared_front_that_has_not_joined_is_named() -> None:
    with tracker.embedded() as running:
        running.register(PipelineSpec("late", ("s",), fronts=("here", "missing")))
        with running.node("late", "here") as node:
            node.join(HANG_S)
            node.commit(_joining("here")).result(HANG_S)
            waited = wait_complete(
                running.target, "late", 5, timeout_s=HANG_S, silent_after_s=BRIEFLY_S
            )
            assert waited.outcome is Outcome.HELD
            assert "missing" in waited.why
            assert "(missing have not)" in waited.why


def _joining(front: str) -> TickContent:
    return TickContent(joins=(FrontJoin(front, 0),))


def test_a_wait_ends_by_what_happens(running: EmbeddedTracker) -> None:
    with joined_front(running.node("two", "n")) as node:
        done(node.commit(promise(100)))
        done(node.commit(create(150, 1)))
        assert wait_complete(running.target, "two", 100, timeout_s=HANG_S) == Waited(
            Outcome.REACHED, 100
        )
        late = wait_complete(running.target, "two", 150, timeout_s=0.05)  # expires: it is open
        assert late.outcome is Outcome.TIMED_OUT

        # The front has promised no more, and says nothing.
        held = wait_complete(
            running.target, "two", 150, "second", timeout_s=HANG_S, silent_after_s=BRIEFLY_S
        )
        assert held.outcome is Outcome.HELD
        assert "front 'front' of node 'n' has been silent" in held.why and "slot 100" in held.why
        a_script_is_told(running, "two", 150, "will not be reached")

        # It has promised enough, so its silence does not matter: an item is open, which may take long.
        done(node.commit(promise(160)))
        open_item = wait_complete(
            running.target,
            "two",
            155,
            timeout_s=1.5,
            silent_after_s=BRIEFLY_S,  # expires: it is open
        )
        assert open_item.outcome is Outcome.TIMED_OUT


def test_a_front_that_goes_on_is_waited_for(running: EmbeddedTracker) -> None:
    running.register(PipelineSpec("slow", ("first",), fronts=("front",)))
    ended = threading.Event()
    with NodeClient(running.target, "slow", "n") as node:
        joined_front(node)

        def go_on() -> None:
            slot = 0
            while not ended.wait(BRIEFLY_S / 4):
                slot += 1
                done(node.commit(promise(min(slot, 40))))
                if slot == 40:
                    return

        promising = threading.Thread(target=go_on)
        promising.start()
        waited = wait_complete(running.target, "slow", 40, timeout_s=HANG_S, silent_after_s=20.0)
        ended.set()
        promising.join(HANG_S)
        assert waited.outcome is Outcome.REACHED


def evicting(running: EmbeddedTracker, name: str) -> NodeClient:
    """The node of a pipeline's only front, which is evicted once it is silent."""
    running.register(
        PipelineSpec(
            name,
            ("first",),
            fronts=("front",),
            silent_front=SilentFront.EVICT,
            evict_after_ms=1_000,
        )
    )
    return joined_front(running.node(name, "n"))


def test_a_vacant_place_holds_until_the_front_comes_back_or_is_retired(
    running: EmbeddedTracker,
) -> None:
    evicting(running, "evicting").close()
    held = wait_complete(running.target, "evicting", 40, timeout_s=HANG_S, silent_after_s=BRIEFLY_S)
    assert held.outcome is Outcome.HELD, "eviction is not leaving"
    assert "front 'front' of node 'n' was evicted" in held.why and "nodes retire" in held.why
    a_script_is_told(running, "evicting", 40, "was evicted")

    with running.admin() as admin:
        admin.retire("evicting", "n")
    left = wait_complete(running.target, "evicting", 40, timeout_s=HANG_S)
    assert left.outcome is Outcome.REACHED, "an operator says that it has left"


def test_a_front_that_was_evicted_and_comes_back_is_waited_for(running: EmbeddedTracker) -> None:
    evicting(running, "coming-back").close()
    held = wait_complete(
        running.target, "coming-back", 40, timeout_s=HANG_S, silent_after_s=BRIEFLY_S
    )
    assert held.outcome is Outcome.HELD
    with joined_front(running.node("coming-back", "n")) as again:
        done(again.commit(promise(40)))
        waited = wait_complete(
            running.target, "coming-back", 40, timeout_s=HANG_S, silent_after_s=BRIEFLY_S
        )
        assert waited.outcome is Outcome.REACHED


def test_what_is_unknown_is_refused(running: EmbeddedTracker) -> None:
    with pytest.raises(RefusedError, match="nowhere"):
        wait_complete(running.target, "nowhere", 1, timeout_s=HANG_S)
    with pytest.raises(RefusedError, match="third"):
        wait_complete(running.target, "two", 10**9, "third", timeout_s=HANG_S)


def test_in_a_loop_it_is_told_the_same(running: EmbeddedTracker) -> None:
    """Reached, out of time, held; and other tasks of the loop go on meanwhile."""
    running.register(PipelineSpec("looped", ("all",), fronts=("front", "other"), start_slot=100))
    ticks = 0

    async def waited(
        until: int | datetime, timeout_s: float | None = None, silent_after_s: float | None = None
    ) -> Waited:
        return await wait_complete_async(
            running.target, "looped", until, timeout_s=timeout_s, silent_after_s=silent_after_s
        )

    async def others() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def main() -> list[Waited]:
        beside = asyncio.create_task(others())
        found = [
            await waited(100),
            await waited(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
            await waited(101, timeout_s=BRIEFLY_S),
            await waited(101, silent_after_s=BRIEFLY_S),
        ]
        beside.cancel()
        return found

    reached, moment, late, held = asyncio.run(main())
    assert reached == moment == Waited(Outcome.REACHED, 100)
    assert late == Waited(Outcome.TIMED_OUT, 101)
    assert held.outcome is Outcome.HELD and "front, other have not" in held.why
    assert ticks > len((reached, moment, late, held))


@pytest.mark.parametrize("name_is_used", [False, True], ids=["deleted", "name-used-again"])
def test_a_command_that_has_waited_long_enough_says_so_though_its_pipeline_is_deleted_just_then(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch, name_is_used: bool
) -> None:
    """Whoever deletes what is complete waits for that, too: the others' scripts had failed."""
    ended = PipelineSpec("ended", ("s",), fronts=("front",), start_slot=100)
    running.register(ended)

    def waits(*given: Any, **named: Any) -> Waited:
        waited = wait_complete(*given, **named)
        with running.admin() as admin:
            admin.delete("ended", admin.pipeline("ended").state.generation, drop_open=True)
            if name_is_used:
                admin.register(replace(ended, start_slot=5))
        return waited

    monkeypatch.setattr("tracker.cli.wait.wait_complete", waits)
    done = cli(running, "wait", "-p", "ended", "--until", "slot:100", "--json")
    assert (done.exit_code, json.loads(done.stdout)["min_time"]) == (0, 100)
    with running.admin() as admin:
        if name_is_used:
            admin.delete("ended", admin.pipeline("ended").state.generation, drop_open=True)


@pytest.mark.parametrize("spec_names_it", [False, True], ids=["when-listed", "when-explained"])
def test_a_wait_for_a_new_segment_goes_on_though_who_is_asked_for_silence_does_not_know_it_yet(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch, spec_names_it: bool
) -> None:
    """A segment has come while the pipeline runs. One process has announced it, and another one has not heard of the change."""
    name = f"grown-{spec_names_it}"
    spec = replace(
        TWO_SEGMENTS, name=name, silent_front=SilentFront.EVICT, evict_after_ms=3_600_000
    )
    running.register(spec)
    looks = threading.Event()

    def pipeline(self: Admin, name: str) -> PipelineInfo:
        looks.set()
        info = asked(self, name)
        return (
            info
            if spec_names_it
            else replace(info, spec=replace(spec, segments=("first",), edges=()))
        )

    def explain(self: Admin, name: str, *_: object, **__: object) -> Explanation:
        what = f"pipeline {name!r} has no segment 'second'"
        raise RefusedError(Refusal(RefusalCode.UNKNOWN_SEGMENT, what))

    asked = Admin.pipeline
    with joined_front(running.node(name, "n")) as node, ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(Admin, "pipeline", pipeline)
        if spec_names_it:
            monkeypatch.setattr(Admin, "explain", explain)
        waited = pool.submit(wait_complete, running.target, name, 100, "second", timeout_s=HANG_S)
        assert looks.wait(HANG_S)
        done(node.commit(promise(100)))
        assert waited.result(HANG_S) == Waited(Outcome.REACHED, 100)
