"""The contract in proto/: what may grow can grow, and a comment says more than the name it stands above."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acker.v1 import (
    node_service_pb2,
    peer_service_pb2,
    pipeline_service_pb2,
    progress_service_pb2,
    shards_pb2,
    storage_pb2,
    types_pb2,
)
from tests.docs.pages import ROOT

MODULES = (
    node_service_pb2, peer_service_pb2, pipeline_service_pb2, progress_service_pb2, shards_pb2,
    storage_pb2, types_pb2,
)  # fmt: skip
PROTOS = sorted((ROOT / "proto" / "acker" / "v1").glob("*.proto"))
BARE_ARMS = {
    "acker.v1.ShardStep.joined", "acker.v1.ShardStep.removed", "acker.v1.ShardStep.done",
    "acker.v1.ShardStep.leaving", "acker.v1.SubscribeRequest.unsubscribe",
}  # fmt: skip
"""Arms of before: stores hold them, and clients send them."""


def messages() -> Iterator[Any]:
    for module in MODULES:
        yield from module.DESCRIPTOR.message_types_by_name.values()


def test_arms_of_a_choice_are_messages() -> None:
    arms = [
        field for message in messages() for oneof in message.oneofs for field in oneof.fields
        if len(oneof.fields) > 1
    ]  # fmt: skip
    assert len(arms) > 30
    assert {field.full_name for field in arms if field.message_type is None} == BARE_ARMS


def test_no_message_holds_itself() -> None:
    def held(message: Any, above: tuple[str, ...]) -> None:
        assert message.full_name not in above, above
        for field in message.fields:
            if field.message_type is not None:
                held(field.message_type, (*above, message.full_name))

    for message in messages():
        held(message, ())


LITTLE_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "be",
        "been",
        "by",
        "for",
        "has",
        "have",
        "in",
        "is",
        "it",
        "its",
        "of",
        "on",
        "one",
        "or",
        "that",
        "the",
        "this",
        "to",
        "was",
        "were",
        "what",
        "who",
        "with",
    ]
)
NAMED = re.compile(
    r"(?:message|service|enum|rpc) (?P<name>\w+)|(?:repeated |optional )?(?P<type>[\w.]+) (?P<field>\w+) = \d+;"
)


def words(text: str) -> set[str]:
    """The words in a text or a name, without a plural's s."""
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return {word.lower().rstrip("s") for word in re.findall(r"[A-Za-z]+", apart)}


def repeating(lines: list[str]) -> list[str]:
    """Comments that say nothing that the line below them does not."""
    found, comment = [], ""
    for line in map(str.strip, lines):
        if line.startswith("//"):
            comment += line.removeprefix("//")
            continue
        named = NAMED.match(line)
        if named and words(comment) - LITTLE_WORDS <= words(" ".join(filter(None, named.groups()))):
            found.append(f"{comment.strip()} {line}")
        comment = ""
    return found


@pytest.mark.parametrize("path", PROTOS, ids=lambda path: path.name)
def test_a_comment_says_more_than_the_name(path: Path) -> None:
    assert repeating(path.read_text().splitlines()) == []


def test_a_comment_that_says_the_name_again_is_found() -> None:
    lines = ["// The slot.", "int64 slot = 1;", "// The lowest open slot.", "int64 low_slot = 2;"]
    assert repeating(lines) == ["The slot. int64 slot = 1;"]
    assert repeating(["// By segment.", "repeated SegmentState segments = 4;"])
    assert repeating(["int64 bare = 1;"]), "none at all"
