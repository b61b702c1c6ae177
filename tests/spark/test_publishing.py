"""A batch is published once, wherever its directory is, whoever tries and whatever is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from local_tracker.spark.formats.published import Manifest, PublishedBatches
from tests.files.stores import EXCLUSIVE, STORES, Store
from tests.waits import HANG_S
from tracker.core.model.units import unit_name
from tracker.errors import FilesError
from tracker.files import Files, Stores

MOST_BYTES = 1 << 20


class Killed(BaseException):
    """A process has been killed here."""


class Mortal:
    """A store whose user is killed at one of its steps, counted from 0: before it is done, or after."""

    STEPS = ("create", "create_if_absent", "delete", "delete_all", "move")

    def __init__(self, files: Files, step: int, *, after: bool) -> None:
        self._files, self._left, self._after = files, step, after
        self.was_killed = False

    def __getattr__(self, name: str) -> Any:
        done = getattr(self._files, name)
        if name not in self.STEPS:
            return done

        def step(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == -1 and not self._after:
                self.was_killed = True
                raise Killed
            answer = done(*arguments)
            if self._left == -1:
                self.was_killed = True
                raise Killed
            return answer

        return step


class Fixed(Stores):
    """One store for every location."""

    def __init__(self, files: Any) -> None:
        super().__init__()
        self._files = files

    def files(self, where: str) -> Files:
        found: Files = self._files
        return found


@pytest.fixture(params=EXCLUSIVE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with STORES[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture
def batches(store: Store) -> PublishedBatches:
    return PublishedBatches(store.root, Fixed(store.files))


def publish(
    batches: PublishedBatches, store: Store, number: int, text: str = "x", offsets: str = "o"
) -> Manifest:
    """An attempt of two files, which carry `text` in their names too, as Spark's carry the attempt."""

    def write(directory: str) -> None:
        for part in range(2):
            store.files.create(f"{directory}/k=1/part-{part}-{text}", text.encode())
        store.files.create(f"{directory}/_SUCCESS", b"")

    return batches.publish("q", number, offsets, text, write, lambda name, _: f"b{number}-{name}")


def shown(store: Store) -> list[str]:
    """What a reader of the directory lists."""
    names = store.files.walk(store.root)
    return [name for name in names if not name.startswith("_lowmark/")]


def left(store: Store) -> list[str]:
    """What lies beside manifests."""
    return [n for n in store.files.walk(store.at("_lowmark")) if not n.endswith(".json")]


def of(text: str, number: int = 0) -> list[str]:
    return [f"k=1/b{number}-part-{part}-{text}" for part in range(2)]


def test_a_batch_is_published_once(store: Store, batches: PublishedBatches) -> None:
    publish(batches, store, 0, "first")
    again = publish(batches, store, 0, "again")
    assert again.run == "first"
    assert shown(store) == of("first") and left(store) == []
    assert store.files.read_whole(store.at(of("first")[0]), MOST_BYTES) == b"first"
    assert list(batches.units("q", 0)) == [unit_name(store.at(name)) for name in of("first")]
    assert batches.units("q", 1) == () and batches.numbers("q") == [0]


def test_of_two_who_publish_one_batch_one_does(store: Store, batches: PublishedBatches) -> None:
    """An older driver that goes on, say. What the other has written is never shown."""
    both = threading.Barrier(2)

    def attempt(text: str) -> Manifest:
        def write(directory: str) -> None:
            both.wait()
            for part in range(2):
                store.files.create(f"{directory}/k=1/part-{part}-{text}", text.encode())
            both.wait()

        own = PublishedBatches(store.root, Fixed(store.files))
        return own.publish("q", 0, "o", text, write, lambda name, _: f"b0-{name}")

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(attempt, ["one", "other"])
    assert one == other
    assert shown(store) == of(one.run) and left(store) == []


@pytest.mark.parametrize("after", [False, True])
def test_whoever_is_killed_at_any_step_another_finishes(store: Store, after: bool) -> None:
    step, survived = 0, False
    while not survived:
        mortal = Mortal(store.files, step, after=after)
        publishing = PublishedBatches(store.root, Fixed(mortal))
        survived = True
        try:
            publish(publishing, store, step, "first")
        except Killed:
            survived = False
        mine = [name for name in shown(store) if f"/b{step}-" in name]
        assert set(mine) <= set(of("first", step))
        last = publish(PublishedBatches(store.root, Fixed(store.files)), store, step, "again")
        mine = [name for name in shown(store) if f"/b{step}-" in name]
        assert mine == of(last.run, step)
        assert mortal.was_killed is not survived
        step += 1
    assert left(store) == []
    assert step > 4  # the manifest, two files, and what is cleared away


def test_what_a_reader_has_read_and_removed_meanwhile_is_not_missed(store: Store) -> None:
    """Killed between two files, of which a reader has taken the first away (cleanSource): the other one is still to be
    put into its place."""
    mortal = Mortal(store.files, 2, after=False)  # behind the manifest and one file
    with pytest.raises(Killed):
        publish(PublishedBatches(store.root, Fixed(mortal)), store, 0, "first")
    (placed,) = shown(store)
    store.files.delete(store.at(placed))
    publish(PublishedBatches(store.root, Fixed(store.files)), store, 0, "again")
    assert shown(store) == [name for name in of("first") if name != placed] and left(store) == []


def test_a_loser_that_comes_late_shows_nothing(store: Store, batches: PublishedBatches) -> None:
    """It has looked for a manifest before there was one, and publishes when another has long done so."""
    looked, done = threading.Event(), threading.Event()

    def late(directory: str) -> None:
        looked.set()
        assert done.wait(HANG_S)
        store.files.create(f"{directory}/k=1/part-0-late", b"late")

    with ThreadPoolExecutor(1) as pool:
        losing = pool.submit(
            PublishedBatches(store.root, Fixed(store.files)).publish,
            "q", 0, "o", "late", late, lambda name, _: f"b0-{name}",
        )  # fmt: skip
        assert looked.wait(HANG_S)
        publish(batches, store, 0, "first")
        done.set()
        assert losing.result().run == "first"
    assert shown(store) == of("first") and left(store) == []


def test_a_batch_of_other_offsets_is_refused(store: Store, batches: PublishedBatches) -> None:
    publish(batches, store, 0)
    with pytest.raises(FilesError, match="rolled back"):
        publish(batches, store, 0, offsets="other")


def test_manifests_of_long_ago_are_forgotten_and_their_files_stay(
    store: Store, batches: PublishedBatches
) -> None:
    publish(batches, store, 0, "first")
    batches.forget("q", 0)
    batches.forget("q", -5)
    assert batches.manifest("q", 0) is None
    assert shown(store) == of("first")
