"""What docs/workflow.md promises by example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.workflows.files import told
from vole.base import expressions, globs
from vole.workflows import schema
from vole.workflows.forms import Record

PAGE = (Path(__file__).parents[3] / "docs" / "workflow.md").read_text("utf-8")

_YES_NO = {"yes": True, "no": False}
GLOBS = [
    (tuple(re.findall(r"`([^`]+)`", patterns)), text, _YES_NO[answer])
    for patterns, text, answer in re.findall(r"^\| (`.+?`) \| `([^`]+)` \| (yes|no) \|$", PAGE, re.MULTILINE)
]
FILES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_table_of_patterns_has_forty_rows() -> None:
    assert len(GLOBS) == len(set(GLOBS)) == 40


@pytest.mark.parametrize(("patterns", "text", "matches"), GLOBS, ids=str)
def test_a_row_of_the_table_of_patterns_holds(patterns: tuple[str, ...], text: str, matches: bool) -> None:
    globs.check_all(patterns)

    assert globs.match(patterns, text) is matches


@pytest.mark.parametrize("content", FILES, ids=range(len(FILES)))
def test_a_workflow_shown_on_the_page_is_good(content: str) -> None:
    assert told(content) == []


def test_every_key_context_and_function_is_on_the_page() -> None:
    records = (schema.WORKFLOW, schema.JOB, schema.STEP, schema.PUSH, schema.STRATEGY, schema.ARTIFACT)
    assert all(isinstance(record, Record) for record in records)
    names = {key for record in records for key in (*record.keys, *record.refused)}
    names |= {*expressions.CONTEXTS, *expressions.FUNCTIONS}
    names |= {name for fixed in expressions.CONTEXTS.values() for name in fixed or ()}

    missing = sorted(name for name in names if not re.search(rf"(?<![a-z-]){re.escape(name)}(?![a-z-])", PAGE))

    assert missing == []
