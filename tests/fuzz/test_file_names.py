"""Names of units and of files: read as what they say, or as names that say nothing; never an error."""

from __future__ import annotations

from urllib.parse import unquote

from hypothesis import strategies as st

from tests.fuzz.examples import fuzz
from tests.fuzz.mangling import damaged, int64s
from tracker.core.model.slots import HIGHEST_SLOT, LOWEST_SLOT
from tracker.core.model.units import (
    LabelledFile,
    file_name,
    local_path,
    parse_file_name,
    slot_in_name,
    unit_name,
)

VALID = [
    "s0-F-00000000.json",
    "s-5-a%2Fb-00000012.parquet",
    f"s{HIGHEST_SLOT}-%C3%A9-123456789.json",
]
any_text = st.text(st.characters(codec=None) | st.sampled_from("s-%.0/5Fé\ud800"), max_size=30)
changed = (
    st.sampled_from(VALID)
    .flatmap(lambda name: damaged(name.encode()))
    .map(lambda data: data.decode(errors="surrogateescape"))
)


@fuzz(changed | any_text, share=5)
def test_a_name_says_what_made_it_or_nothing(name: str) -> None:
    labelled = parse_file_name(name)
    if labelled is None:
        return
    assert LOWEST_SLOT <= labelled.slot <= HIGHEST_SLOT
    assert file_name(labelled.slot, labelled.front, labelled.batch, labelled.suffix) == name
    assert slot_in_name(name) == labelled.slot
    assert slot_in_name(unit_name(f"/in/{name}")) == labelled.slot


@fuzz(st.sampled_from(["", "/", "file:///in/", "s3://bucket/"]), changed | any_text, share=3)
def test_a_unit_tells_a_slot_or_none(prefix: str, name: str) -> None:
    slot = slot_in_name(prefix + name)
    assert slot is None or LOWEST_SLOT <= slot <= HIGHEST_SLOT


@fuzz(int64s, st.text(max_size=12), int64s, st.text("json.é/", max_size=6), share=3)
def test_what_makes_a_file_name_can_be_read_from_it(
    slot: int, front: str, batch: int, suffix: str
) -> None:
    try:
        name = file_name(slot, front, batch, suffix)
    except ValueError as error:
        assert str(error)
        return
    assert parse_file_name(name) == LabelledFile(slot, front, batch, suffix)
    assert "/" not in name
    assert name[0] not in "._", "Spark passes over names that begin so"


@fuzz(any_text | changed, share=3)
def test_a_unit_leads_back_to_its_file_or_is_refused(text: str) -> None:
    try:
        path = local_path(text)
    except ValueError:
        pass
    else:
        assert path.startswith("/")
    try:
        name = unit_name(text)
    except ValueError:
        assert not text.startswith("/") or max(text) >= "\ud800", "an absolute path has a name"
        return
    assert unquote(name).startswith("file:///")
    assert local_path(name) == "/" + "/".join(part for part in text.split("/") if part) + (
        "/" if text.endswith("/") and text.strip("/") else ""
    )
