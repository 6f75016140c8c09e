"""Artifacts stay below the work folder, whatever patterns, names and links say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vole.base import limits
from vole.base.errors import Exhausted, Invalid
from vole.wire.plan import ArtifactPlan
from vole_runner import artifacts
from vole_runner.harness import kept


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    for path, text in {"dist/app": "app", "dist/deep/lib": "lib", "notes.txt": "n", ".git/config": "c"}.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("the runner's key")
    return work


def found(work: Path, *patterns: str) -> list[str]:
    return [path for path, _ in kept.find(ArtifactPlan("a", patterns), work)]


def test_patterns_pick_files_in_order_and_take_away(work: Path) -> None:
    assert found(work, "dist/**", "!dist/deep/*") == ["dist/app"]


def test_everything_is_everything_but_git_itself(work: Path) -> None:
    assert found(work, "**") == ["dist/app", "dist/deep/lib", "notes.txt"]


@pytest.mark.proves("SR-23")
def test_a_link_that_leads_out_brings_nothing(work: Path) -> None:
    (work / "dist" / "key").symlink_to(work.parent / "outside" / "key")
    (work / "dist" / "folder").symlink_to(work.parent / "outside")
    (work / "dist" / "root").symlink_to("/")

    assert found(work, "dist/**") == ["dist/app", "dist/deep/lib"]


@pytest.mark.proves("SR-23")
def test_a_work_folder_that_is_itself_replaced_by_a_link_shows_only_what_the_link_holds(work: Path) -> None:
    (work / "chain").symlink_to("dist/../../outside/key")

    assert "chain" not in found(work, "**")


def test_a_link_inside_brings_the_bytes_it_leads_to(work: Path) -> None:
    (work / "latest").symlink_to("dist/app")

    ((path, location),) = kept.find(ArtifactPlan("a", ("latest",)), work)

    assert (path, kept.measure("a", path, location).file.size) == ("latest", 3)


def test_a_fifo_is_no_file(work: Path) -> None:
    os.mkfifo(work / "dist" / "pipe")

    assert found(work, "dist/*") == ["dist/app"]


def test_more_files_than_the_bound_are_refused_by_its_name(work: Path) -> None:
    (work / "many").mkdir()
    for at in range(limits.ARTIFACT_FILES_MAX + 1):
        (work / "many" / str(at)).touch()

    with pytest.raises(Exhausted, match="ARTIFACT_FILES_MAX"):
        found(work, "many/*")


def test_a_path_over_the_bound_is_refused_by_its_name(work: Path) -> None:
    deep = work / ("d" * 200) / ("e" * 200)
    deep.mkdir(parents=True)
    (deep / ("f" * 150)).touch()

    with pytest.raises(Exhausted, match="ARTIFACT_PATH_BYTES_MAX"):
        found(work, "**")


def test_a_name_that_is_not_utf8_is_refused(work: Path) -> None:
    (Path(os.fsdecode(os.fsencode(work) + b"/dist/\xff"))).touch()

    with pytest.raises(Invalid, match="UTF-8"):
        found(work, "dist/**")


@pytest.mark.proves("SR-23")
@pytest.mark.parametrize(
    ("folder", "path"), [("..", "x"), (".", "../x"), ("in", "a/../../x"), (".", "/etc/x"), ("/etc", "x"), (".", "a\0b")]
)
def test_a_needed_file_with_a_path_out_of_the_work_folder_is_refused(work: Path, folder: str, path: str) -> None:
    with pytest.raises(Invalid, match="leads out"):
        artifacts.place(work, folder, path)


@pytest.mark.proves("SR-23")
def test_a_needed_file_does_not_follow_a_link_of_the_sources_out(work: Path) -> None:
    (work / "in").symlink_to(work.parent / "outside")

    with pytest.raises(Invalid, match="by the link in"):
        artifacts.place(work, "in", "key")
    assert (work.parent / "outside" / "key").read_text() == "the runner's key"


@pytest.mark.proves("SR-23")
def test_a_needed_file_takes_the_place_of_a_link_instead_of_writing_through_it(work: Path) -> None:
    (work / "key").symlink_to(work.parent / "outside" / "key")

    artifacts.place(work, ".", "key").write_text("new")

    assert (work.parent / "outside" / "key").read_text() == "the runner's key"
    assert (work / "key").read_text() == "new"
