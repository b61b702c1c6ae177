"""Which files a source may list, by its place."""

from __future__ import annotations

import pytest

from local_tracker.spark.query.places import folder, may_list


@pytest.mark.parametrize(
    ("place", "file", "may"),
    [
        ("/in", "/in/a", True),
        ("/in", "/in/day=1/a", True),
        ("/in", "/inner/a", False),
        ("/in/a.json", "/in/a.json", True),
        ("/in/a.json", "/in/b.json", False),
        ("/in/s*.parquet", "/in/s1.parquet", True),
        ("/in/s*.parquet", "/in/t1.parquet", False),
        ("/in/s*.parquet", "/in/s1.json", False),
        ("/*/day=[12]/*", "/in/day=2/a", True),
        ("/*/day=[12]/*", "/in/hour=2/a", False),
        ("/in/deep/er", "/in/deep", False),
        ("/in/{a/b,c}", "/in/a/b/x", True),
        ("/in/{a,b}/day=1", "/else/a/day=1/x", False),
        ("s3://one/in", "s3://one/in/a", True),
        ("s3://one/in", "s3://other/in/a", False),
        ("/in", "hdfs://host:8020/in/a", True),  # whose default store it is
    ],
)
def test_a_place_may_list_a_file(place: str, file: str, may: bool) -> None:
    assert may_list(place, file) is may


def test_a_file_was_listed_above_the_folders_of_partitions() -> None:
    assert folder("/in/day=1/hour=2/a=b.parquet") == "/in"
    assert folder("s3://bucket/in/a") == "s3://bucket/in"
