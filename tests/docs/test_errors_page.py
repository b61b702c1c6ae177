"""docs/errors.md explains every code of an error: refusals with the status that they travel as, and all others."""

from __future__ import annotations

import ast
from pathlib import Path

import lowmark.errors
from tests.docs.pages import ROOT, table_rows
from tracker import errors
from tracker.core.model import RefusalCode
from tracker.errors import Code, HandOverError, LowmarkError, RefusedError, refused_code
from tracker.files import AwayError
from tracker.service.rpc.errors import STATUS
from tracker.wire.refusals import REFUSAL_KEY

PAGE = ROOT / "docs" / "errors.md"
REFUSALS, OTHERS, CLASSES = "code", "code of another error", "class, in `lowmark.errors`"
PRODUCT = ("tracker", "local_tracker", "fronts", "lowmark")


def _first(title: str) -> list[str]:
    return [row[0].strip("`") for row in table_rows(PAGE, title)]


def _classes() -> dict[str, type[LowmarkError]]:
    found = {name: getattr(errors, name) for name in dir(errors) if name.endswith("Error")}
    return {name: each for name, each in found.items() if issubclass(each, LowmarkError)}


def _raised() -> list[tuple[str, str, str]]:
    """Of each place in the product where an error is made with a code: where, its class, the code."""
    found = []
    for path in [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                codes = [a.attr for a in given if isinstance(a, ast.Attribute) and _is_code(a)]
                where = f"{Path(path).relative_to(ROOT)}:{node.lineno}"
                found += [(where, node.func.id, Code[code].value) for code in codes]
    return [each for each in found if each[1] in _classes()]


def _is_code(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "Code"


def test_every_code_has_a_row_and_every_row_a_code() -> None:
    assert sorted(_first(REFUSALS)) == sorted(refused_code(code) for code in RefusalCode)
    assert sorted(_first(REFUSALS) + _first(OTHERS)) == sorted(Code)


def test_every_row_has_the_status_that_the_refusal_travels_as() -> None:
    shown = {row[0].strip("`"): row[1].strip("`") for row in table_rows(PAGE, REFUSALS)}
    assert shown == {refused_code(code): status.name for code, status in STATUS.items()}


def test_the_page_names_the_metadata_that_carries_the_refusal() -> None:
    assert f"`{REFUSAL_KEY}`" in PAGE.read_text()


def test_every_row_says_what_it_means_and_what_to_do() -> None:
    for title in (REFUSALS, OTHERS):
        for row in table_rows(PAGE, title):
            assert len(row[-2]) > 20, row[0]
            assert len(row[-1]) > 15, row[0]


def test_every_class_is_public_and_has_a_row() -> None:
    below = set(_classes()) - {"LowmarkError"}
    assert below == {
        name
        for name in dir(lowmark.errors)
        if name in errors.__dict__ and name.endswith("Error") and name != "LowmarkError"
    }
    assert below == {row.split("`")[0] for row in _first(CLASSES)}


def test_the_word_before_the_dot_is_the_class_of_an_error() -> None:
    """A program may catch by class or look at the code: both say the same."""
    words = {name: each.code.split(".")[0] for name, each in _classes().items()}
    words |= {"RefusedError": "refused", "FencedError": "fenced", "HandOverError": "hand_over"}
    raised = _raised()
    assert len(raised) > 100
    own = {HandOverError.__name__: {"hand_over", "refused", "failed"}}
    wrong = [r for r in raised if r[2].split(".")[0] not in own.get(r[1], {words[r[1]]})]
    assert not wrong
    unused = (
        set(Code)
        - {code for _, _, code in raised}
        - {each.code for each in _classes().values()}
        - {AwayError.code}
    )
    assert {code for code in unused if not code.startswith("refused.")} == set()
    assert RefusedError.code == LowmarkError.code == Code.FAILED
