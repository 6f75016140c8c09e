"""The table of codes: each example does what it says, and the documentation holds the same table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.workflows.files import a_file
from vole.workflows import codes
from vole.workflows.checks import parse
from vole.workflows.codes import CODES, Code
from vole.workflows.model import MODE_FILE, MODE_LINK, Checked

ROOT = Path(__file__).parents[3]


def _answer(example: str) -> Checked:
    mode = MODE_LINK if example == codes.LINK else MODE_FILE
    return parse((a_file(codes.example(example), mode=mode),), codes.KNOWN_LABELS)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.code)
def test_the_wrong_example_has_its_code_alone(code: Code) -> None:
    assert [problem.code for problem in _answer(code.wrong).problems] == [code.code]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.code)
def test_the_right_example_is_clean(code: Code) -> None:
    answer = _answer(code.right)

    assert answer.lines == ()
    assert len(answer.workflows) == 1


def test_every_code_in_the_source_is_in_the_table_and_once() -> None:
    used: set[str] = set()
    for source in (ROOT / "vole" / "workflows").glob("*.py"):
        if source.name != "codes.py":
            used.update(re.findall(r'"(W\d{3})"', source.read_text("utf-8")))

    listed = [code.code for code in CODES]

    assert listed == sorted(used)
    assert listed == [f"W{number:03}" for number in range(1, len(listed) + 1)]


def test_the_documentation_ends_with_the_table_of_the_code() -> None:
    page = (ROOT / "docs" / "workflow.md").read_text("utf-8")

    assert page.endswith(codes.table())


def test_the_label_codes_are_the_ones_people_were_told() -> None:
    meanings = {code.code: code.meaning for code in CODES}

    assert meanings["W014"] == "not a label"
    assert meanings["W021"].startswith("a label nearly like a known one")
