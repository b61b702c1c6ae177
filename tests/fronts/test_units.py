"""Units are named as Spark's logs name them, and a front's file names tell the slot."""

from __future__ import annotations

import pytest

from tracker.core.model.units import (
    canonical_name,
    file_name,
    slot_in_name,
    unit_name,
)

# Written down from the source log of a PySpark 4.3.0 query that read files of these names.
AS_SPARK_LOGS = {
    "/in é/a b.json": "file:///in%20é/a%20b.json",
    "/p%41.json": "file:///p%2541.json",
    "/q?.json": "file:///q%3F.json",
    "/h#.json": "file:///h%23.json",
    "/n\u00a0b.json": "file:///n%C2%A0b.json",
    "/😀.json": "file:///😀.json",
    "/t~'()!$&+,;=@.json": "file:///t~'()!$&+,;=@.json",
    "/b\\s.json": "file:///b%5Cs.json",
    '/c"q.json': "file:///c%22q.json",
    "/<>^`{}|[].json": "file:///%3C%3E%5E%60%7B%7D%7C%5B%5D.json",
    "/z\u3000.json": "file:///z%E3%80%80.json",
    "/e\u0301.json": "file:///e\u0301.json",
    "/c\x85\x7f\x01\t.json": "file:///c%C2%85%7F%01%09.json",
    "/s-12-E%2DR-00000001.json": "file:///s-12-E%252DR-00000001.json",
}


@pytest.mark.parametrize("path", AS_SPARK_LOGS)
def test_a_unit_is_named_as_spark_logs_it(path: str) -> None:
    assert unit_name(path) == AS_SPARK_LOGS[path]


def test_only_absolute_paths_name_a_unit() -> None:
    with pytest.raises(ValueError, match=r"'in/a\.json' is not an absolute path"):
        unit_name("in/a.json")


@pytest.mark.parametrize(
    "name",
    [
        "part-00000-2a4e-c000.snappy.parquet",
        "s12.json",
        "s12-a.json",
        "s012-a-00000001.json",
        "s-0-a-00000001.json",
        "s12-a-1.json",
        "s9223372036854775807-a-00000001.json",
        ".s12-a-00000001.json.tmp",
    ],
)
def test_other_names_tell_no_slot(name: str) -> None:
    assert slot_in_name(name) is None
    assert slot_in_name(f"file:///in/{name}") is None


@pytest.mark.parametrize(
    ("slot", "front", "batch", "suffix", "message"),
    [
        (2**63 - 1, "a", 0, "json", "slot 9223372036854775807 is not within"),
        (0, "", 0, "json", "makes no file name"),
        (0, "a", -1, "json", "batch -1 of front 'a'"),
        (0, "a", 0, ".json/x", "makes no file name"),
        (0, "é" * 100, 0, "json", "file name of 617 bytes, the limit is 250"),
    ],
)
def test_what_makes_no_file_name_is_refused(
    slot: int, front: str, batch: int, suffix: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        file_name(slot, front, batch, suffix)


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("s3://bucket/in é/a b.json", "s3://bucket/in%20é/a%20b.json"),
        ("s3a://bucket/in/p%41.json", "s3://bucket/in/p%2541.json"),
        ("s3n://bucket//in/a.json", "s3://bucket/in/a.json"),
        ("gcs://bucket/a.json", "gs://bucket/a.json"),
        ("abfss://in@account.dfs.core.windows.net/a", "abfs://in@account.dfs.core.windows.net/a"),
        ("hdfs://node:8020/a", "hdfs://node/a"),
        ("hdfs://node:9000/a", "hdfs://node:9000/a"),
        ("HDFS://node/a", "hdfs://node/a"),
    ],
)
def test_a_unit_of_a_store_has_one_name_by_all_its_schemes(location: str, name: str) -> None:
    assert unit_name(location) == name
    assert canonical_name(name) == name


@pytest.mark.parametrize(
    ("logged", "name"),
    [
        ("s3a://bucket/in%20é/p%2541.json", "s3://bucket/in%20é/p%2541.json"),
        ("hdfs://node:8020/a%20b", "hdfs://node/a%20b"),
        ("file:///in/a%20b.json", "file:///in/a%20b.json"),
        ("file:/in/a", "file:/in/a"),
        ("/in/a", "/in/a"),
        ("x", "x"),
    ],
)
def test_a_logged_name_keeps_its_bytes_but_for_the_store(logged: str, name: str) -> None:
    assert canonical_name(logged) == name
    assert canonical_name(name) == name
