"""`vole check`, `vole schema`: what the author of a workflow wants to know before pushing it."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import click

from vole.base.ids import CommitId
from vole.base.labels import Label
from vole.workflows import checks, schema
from vole.workflows.model import FOLDER, MODE_FILE, MODE_LINK, WorkflowFile

EXIT_PROBLEMS = 2
_MODE_TREE = 0o040000


@click.command("check")
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".")
@click.option("--label", "labels", multiple=True, help="A label that the server knows; repeat it.")
def check_command(path: Path, labels: tuple[str, ...]) -> None:
    """Check the workflow files of the working tree at PATH as a push would; exit status 2 if there are problems.

    Which labels are known is for the server to say: name them with --label to have near misses found here too.
    """
    checked = checks.parse(files_below(path), frozenset(Label.parse(label) for label in labels))
    for line in checked.lines:
        click.echo(line, err=bool(checked.problems))
    if checked.problems:
        sys.exit(EXIT_PROBLEMS)
    if not checked.workflows:
        click.echo(f"no workflow files in {FOLDER}")
        return
    jobs = sum(len(workflow.jobs) for workflow in checked.workflows)
    click.echo(f"{len(checked.workflows)} workflows, {jobs} jobs: in order")


@click.command("schema")
def schema_command() -> None:
    """Print a JSON Schema of the workflow files."""
    click.echo(json.dumps(schema.json_schema(), indent=2))


def files_below(root: Path) -> tuple[WorkflowFile, ...]:
    """What a commit of the working tree at `root` would hold in the workflows' folder."""
    folder = root / FOLDER
    if not folder.is_dir():
        return ()
    return tuple(_entry(entry) for entry in sorted(folder.iterdir()))


def _entry(path: Path) -> WorkflowFile:
    if path.is_symlink():
        mode, content = MODE_LINK, b""
    elif path.is_dir():
        mode, content = _MODE_TREE, b""
    else:
        mode, content = MODE_FILE, path.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    return WorkflowFile(f"{FOLDER}/{path.name}", CommitId(blob), content, mode)
