"""One way of writing where a file is, whoever names it and however."""

from __future__ import annotations

import os

import pytest

from tracker.core.model.units import unit_name
from tracker.files import child, location, parent, parents, scheme


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("/a/b", "/a/b"),
        ("/a//b/", "/a/b"),
        ("/a%20b", "/a%20b"),
        ("file:/a/b%20c", "/a/b c"),
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("s3a://bucket/a%20b/", "s3://bucket/a b"),
        ("s3://bucket/a b", "s3://bucket/a b"),
        ("s3n://bucket", "s3://bucket"),
        ("S3://bucket/", "s3://bucket"),
        ("hdfs://node:8020/a//b", "hdfs://node/a/b"),
        ("hdfs:///a", "hdfs:///a"),
        ("abfss://in@account.dfs.core.windows.net/a", "abfs://in@account.dfs.core.windows.net/a"),
        ("gcs://bucket/a", "gs://bucket/a"),
    ],
)
def test_a_location_is_plain_and_under_one_scheme(text: str, where: str) -> None:
    assert location(text) == where


@pytest.mark.parametrize(
    "where", ["/a b/ä%20.json", "s3://bucket/a b/ä%20.json", "hdfs://node/a?b"]
)
def test_a_unit_leads_to_the_location_that_named_it(where: str) -> None:
    assert location(unit_name(where)) == where


def test_a_relative_path_is_one_of_this_machine() -> None:
    assert location("a/b") == f"{os.getcwd()}/a/b"


@pytest.mark.parametrize("text", ["file://host/a", "file:a", "s3:a/b"])
def test_what_leads_nowhere_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        location(text)


def test_locations_are_within_each_other() -> None:
    assert child("s3://bucket/", "a") == "s3://bucket/a"
    assert parents("s3://bucket/a/b") == ["s3://bucket/a", "s3://bucket"]
    assert parents("/a/b") == ["/a", "/"]
    assert parent("s3://bucket") == "s3://bucket" and parent("/") == "/"
    assert (scheme("/a"), scheme("s3://bucket/a")) == ("", "s3")
