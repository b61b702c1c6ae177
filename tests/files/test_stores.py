"""What one store alone has to see to: a disk, that what is in its place is there; a bucket, that a listing is whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.files.stores import s3
from tracker.files import LocalFiles


@pytest.mark.parametrize(("create", "place"), [("create", "replace"), ("create_if_absent", "link")])
def test_a_file_is_on_the_disk_before_it_is_in_its_place_and_its_name_after(
    create: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, put = os.fsync, getattr(os, place)

    def synced(fd: int) -> None:
        steps.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    def placed(source: str, target: str) -> None:
        steps.append("placed")
        put(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, place, placed)
    getattr(LocalFiles(), create)(f"{tmp_path}/record", b"all of it")
    contents, *rest = steps
    assert contents.startswith(f"{tmp_path}/.record.")
    assert rest == ["placed", str(tmp_path)]


def test_a_directory_of_more_files_than_a_page_is_listed_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number}" for number in range(7)]
    with s3(tmp_path) as store:
        for name in names:
            store.files.create(store.at(name), b"x")
        file_system: Any = store.files._fs  # type: ignore[attr-defined]  # noqa: SLF001
        ask = file_system.call_s3

        def by_pages(method: str, **asked: Any) -> Any:
            more = {"MaxKeys": 3} if method == "list_objects_v2" else {}
            return ask(method, **asked, **more)

        monkeypatch.setattr(file_system, "call_s3", by_pages)
        assert sorted(store.files.names(store.root)) == names
        assert sorted(store.files.walk(store.root)) == names
