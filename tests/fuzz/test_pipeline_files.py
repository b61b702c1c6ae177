"""Pipeline files: a pipeline that the tracker takes, or an error that names the file."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from tests.fuzz.examples import fuzz
from tests.fuzz.mangling import int64s
from tracker.client.pipeline_file import MAX_FILE_CHARACTERS, load_pipeline
from tracker.core.home.registration import check_spec
from tracker.errors import InvalidError
from tracker.wire.pipelines import spec_from_pb, spec_to_pb

VALID: dict[str, Any] = {
    "name": "flights",
    "segments": ["parse", "enrich", "aggregate"],
    "edges": ["parse -> enrich", {"from": "enrich", "to": "aggregate", "delay": 3}],
    "fronts": ["EWR", "JFK"],
    "open": False,
    "start": "2013-01-01T05:00",
    "slack": "10ms",
    "horizon_slots": 1_000,
    "silent_front": "evict",
    "evict_after": "30s",
    "max_nodes": 100,
}
ODD = st.one_of(
    int64s,
    st.floats(),
    st.sampled_from([None, True, "", [], {}, 2**63, -(2**63) - 1, 10**400, "x" * 2_000]),
    st.sampled_from(
        ["a -> b", "parse->enrich+ 99999999999999999999", "->", " " * 50, "parse -> parse + -1"]
    ),
    st.sampled_from(["slot:5", "slot:" + "9" * 30, "now", "0001-01-01T00:00+23:59", "9999-12-31"]),
    st.sampled_from(["1" * 400 + "d", "1e3s", "0.0001ns", "292277d", "9" * 30 + "s"]),
    st.text(max_size=6),
)
odd = ODD | st.lists(ODD, max_size=3) | st.dictionaries(st.text(max_size=4), ODD, max_size=3)


def loads(text: str) -> None:
    try:
        spec = load_pipeline(text, "p.yaml")
    except InvalidError as error:
        assert str(error).startswith("p.yaml")
        assert len(str(error)) < 4_000, "an error for people"
        return
    check_spec(spec)
    assert spec_from_pb(spec_to_pb(spec)) == spec


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A pipeline with some settings that are not as they should be."""
    document = dict(VALID)
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from([*VALID, "max_staged", "nonsense"]))
        match draw(st.sampled_from(("set", "set", "remove", "inside"))):
            case "set":
                document[name] = draw(odd)
            case "remove":
                document.pop(name, None)
            case "inside" if isinstance(document.get(name), list):
                document[name] = [*document[name], draw(odd)]
    return document


@fuzz(documents(), share=2)
def test_settings_that_cannot_be_are_an_error_of_the_file(document: dict[str, Any]) -> None:
    loads(yaml.safe_dump(document, allow_unicode=True))


PIECES = st.sampled_from(
    ["{", "}", "[", "]", ":", "-", "\n", "  ", "&a ", "*a", "!!int ", "!!timestamp ", "!!binary ",
     "!!set ", "!!python/object:os.system ", "<<: ", "name", "p", "|", ">", "'", '"', "2013-99-99",
     "2013-02-30T25:61:61", "1:99:99", "0o99", "0x", ".inf", "~", "\t", "\x00", "%", "---\n", "? ",
     "9" * 5_000]
)  # fmt: skip


@fuzz(st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join), share=2)
def test_any_text_is_a_pipeline_or_an_error_of_the_file(text: str) -> None:
    loads(text)
    loads(yaml.safe_dump(VALID) + text)


def nested(levels: int) -> str:
    """Each level names the one before ten times: 10 ** levels items, of a few hundred bytes."""
    lines = ['a0: &a0 ["x"]']
    for level in range(1, levels + 1):
        references = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{references}]")
    return "\n".join(lines)


HOSTILE = {
    "lists in lists without end": "[" * 20_000,
    "mappings in mappings without end": "{a: " * 20_000,
    "more aliases than anything could print": nested(30) + "\nname: *a30\nsegments: *a30",
    "a list of itself": "name: &a [*a]\nsegments: *a\nfronts: 1",
    "a file without end": "#" * (MAX_FILE_CHARACTERS + 1),
    "an edge of spaces": f"name: p\nsegments: [a]\nfronts: 1\nedges: ['a{' ' * 200_000}b']",
    "a number without end": f"name: p\nsegments: [a]\nfronts: {'9' * 100_000}",
    "a date that is none": "name: p\nsegments: [a]\nfronts: 1\nstart: 2013-99-99",
    "a duration without end": f"name: p\nsegments: [a]\nfronts: 1\nslack: {'9' * 400}d",
    "a wait longer than can be told": (
        "name: p\nsegments: [a]\nfronts: 1\nsilent_front: evict\nevict_after: 999999999999999999d"
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_an_error_at_once(what: str) -> None:
    with pytest.raises(InvalidError, match=r"^p\.yaml") as refused:
        load_pipeline(HOSTILE[what], "p.yaml")
    assert len(str(refused.value)) < 4_000
