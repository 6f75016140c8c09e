"""`vole check` and `vole schema`: what an author hears before pushing."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from vole.cli.authoring import check_command, files_below, schema_command
from vole.workflows.model import MODE_LINK

GOOD = "on: push\njobs:\n  a:\n    runs-on: linux\n    steps:\n      - run: 'true'\n"
BAD = GOOD.replace("runs-on: linux", "runs-on: Linux").replace("steps:", "stpes:")


def a_tree(root: Path, **files: str) -> Path:
    folder = root / ".vole" / "workflows"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / f"{name}.yml").write_text(text)
    return root


def test_problems_are_printed_with_their_place_and_the_status_is_two(tmp_path: Path) -> None:
    said = CliRunner().invoke(check_command, [str(a_tree(tmp_path, ci=BAD))])

    assert said.exit_code == 2
    assert ".vole/workflows/ci.yml:4:14 W014 runs-on: 'Linux' is not a label" in said.output
    assert ".vole/workflows/ci.yml:5:5 W011 unknown key 'stpes'" in said.output


def test_a_good_tree_is_counted(tmp_path: Path) -> None:
    said = CliRunner().invoke(check_command, [str(a_tree(tmp_path, ci=GOOD, other=GOOD))])

    assert (said.exit_code, said.output) == (0, "2 workflows, 2 jobs: in order\n")


def test_known_labels_make_near_misses_problems(tmp_path: Path) -> None:
    tree = a_tree(tmp_path, ci=GOOD.replace("linux", "lnux"))

    without = CliRunner().invoke(check_command, [str(tree)])
    said = CliRunner().invoke(check_command, [str(tree), "--label", "linux"])

    assert without.exit_code == 0
    assert said.exit_code == 2
    assert "did you mean 'linux'?" in said.output


def test_a_tree_without_workflows_says_so(tmp_path: Path) -> None:
    said = CliRunner().invoke(check_command, [str(tmp_path)])

    assert (said.exit_code, said.output) == (0, "no workflow files in .vole/workflows\n")


def test_a_link_is_a_link_and_is_not_followed(tmp_path: Path) -> None:
    tree = a_tree(tmp_path, ci=GOOD)
    (tree / "secret").write_text("root: x")
    (tree / ".vole" / "workflows" / "linked.yml").symlink_to(tree / "secret")

    (_, linked) = files_below(tree)

    assert (linked.mode, linked.content) == (MODE_LINK, b"")
    assert CliRunner().invoke(check_command, [str(tree)]).exit_code == 2


@pytest.mark.needs("git")
def test_a_file_has_the_blob_id_that_git_gives_it(tmp_path: Path) -> None:
    tree = a_tree(tmp_path, ci=GOOD)
    path = tree / ".vole" / "workflows" / "ci.yml"

    (file,) = files_below(tree)

    git = subprocess.run(["git", "hash-object", "--", path], capture_output=True, text=True, check=True)
    assert file.blob == git.stdout.strip()
    assert file.blob == hashlib.sha1(b"blob %d\0" % len(GOOD) + GOOD.encode()).hexdigest()


def test_the_schema_is_json(tmp_path: Path) -> None:
    said = CliRunner().invoke(schema_command, [])

    assert "jobs" in json.loads(said.output)["properties"]
