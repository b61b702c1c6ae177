"""What is stored stays readable, and says what it said: the bytes of every kind, as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from acker.v1 import peer_service_pb2, shards_pb2, storage_pb2, types_pb2
from tests.store.golden import (
    Golden,
    fingerprint,
    formats,
    golden,
    kinds,
    missing,
    read,
    said,
    written,
)
from tracker.core.model.levels import NEWEST_LEVEL

PINNED = [
    pytest.param(kind, each, id=f"{kind} {number}")
    for kind, pinned in golden().items()
    for number, each in enumerate(pinned)
]


@pytest.mark.parametrize(("kind", "pinned"), PINNED)
def test_stored_bytes_say_what_they_said(kind: str, pinned: Golden) -> None:
    assert said(read(kind, bytes.fromhex(pinned.stored))) == pinned.says


@pytest.mark.parametrize(("kind", "pinned"), PINNED)
def test_what_they_say_is_still_stored_so(kind: str, pinned: Golden) -> None:
    data = bytes.fromhex(pinned.stored)
    assert written(kind, read(kind, data)) == data


def test_everything_that_is_stored_is_pinned() -> None:
    assert not missing(golden()), "python -m tests.store.golden adds what is new"
    assert golden().keys() == kinds().keys()


def test_another_form_has_another_number_by_which_older_programs_refuse_it() -> None:
    assert formats().get(str(NEWEST_LEVEL)) == fingerprint(), (
        "what is stored has another form: python -m tests.store.golden says what to do"
    )


def unit(file: FileDescriptorProto) -> Any:
    """Message Unit, which ticks have, and ticks are in records and snapshots."""
    (message,) = (each for each in file.message_type if each.name == "Unit")
    return message


def add(file: FileDescriptorProto) -> None:
    field = FieldDescriptorProto
    unit(file).field.add(name="size", number=9, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)


def remove(file: FileDescriptorProto) -> None:
    del unit(file).field[-1]


def repeat(file: FileDescriptorProto) -> None:
    unit(file).field[-1].label = FieldDescriptorProto.LABEL_REPEATED


def retype(file: FileDescriptorProto) -> None:
    unit(file).field[-1].type = FieldDescriptorProto.TYPE_SINT64


def say_more(file: FileDescriptorProto) -> None:
    (kind,) = (each for each in file.enum_type if each.name == "TimeKind")
    kind.value.add(name="TIME_KIND_MORE", number=9)


def rename(file: FileDescriptorProto) -> None:
    unit(file).field[-1].name = "another"


def with_types(change: Callable[[FileDescriptorProto], None]) -> str:
    """The fingerprint of what is stored, with a change in types.proto."""
    pool = DescriptorPool()
    for module in (types_pb2, shards_pb2, peer_service_pb2, storage_pb2):
        file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        if module is types_pb2:
            change(file)
        pool.Add(file)
    find = pool.FindMessageTypeByName
    return fingerprint(find("acker.v1.Record"), find("acker.v1.Snapshot"))


@pytest.mark.parametrize("change", [add, remove, repeat, retype, say_more])
def test_every_change_of_what_bytes_may_be_is_another_form(
    change: Callable[[FileDescriptorProto], None],
) -> None:
    assert with_types(change) != fingerprint()


def test_a_name_is_not_in_the_bytes() -> None:
    assert with_types(rename) == fingerprint()
