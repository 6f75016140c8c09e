"""Workflow files for tests: a good one with what matters in this test put in."""

from __future__ import annotations

from vole.base.ids import CommitId
from vole.workflows.checks import parse
from vole.workflows.model import Checked, Workflow, WorkflowFile

BLOB = CommitId("a" * 40)

AROUND = {
    "file": "%s",
    "top": "%s\njobs:\n  test:\n    steps:\n      - run: make test\n",
    "job": "jobs:\n  test:\n    %s\n    steps:\n      - run: make test\n  other:\n    steps:\n      - run: make\n",
    "step": "jobs:\n  test:\n    steps:\n      - %s\n",
}


def a_file(content: str | bytes, name: str = "ci.yml", mode: int = 0o100644) -> WorkflowFile:
    raw = content.encode() if isinstance(content, str) else content
    return WorkflowFile(f".vole/workflows/{name}", BLOB, raw, mode)


def with_(where: str, *lines: str) -> str:
    """A good file with `lines` at `where`: top, job or step."""
    indent = {"top": "", "job": "    ", "step": "        "}[where]
    return AROUND[where].replace("%s", f"\n{indent}".join(lines))


def checked(content: str | bytes, *known_labels: str) -> Checked:
    return parse((a_file(content),), frozenset(known_labels))


def told(content: str | bytes, *known_labels: str) -> list[str]:
    """What is said about a file: line, column, code and sentence of each problem."""
    problems = checked(content, *known_labels).problems
    return [f"{problem.line}:{problem.column} {problem.code} {problem.sentence}" for problem in problems]


def codes_of(content: str | bytes, *known_labels: str) -> list[str]:
    return [problem.code for problem in checked(content, *known_labels).problems]


def workflow(content: str | bytes, *known_labels: str) -> Workflow:
    """The workflow of a file that has no problem."""
    result = checked(content, *known_labels)
    assert not result.problems, result.lines
    return result.workflows[0]
