from __future__ import annotations

import stat

import pytest

from vole.base import limits
from vole.base.errors import Exhausted, Invalid
from vole.wire.plan import EventFacts
from vole_runner.harness import files

EVENT = EventFacts("push", "refs/heads/main", "main", "branch", None, "a" * 40, "ada")


def outputs(tmp_path, text):
    path = tmp_path / "output"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return files.read_outputs(path)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("\n\n  \n", {}),
        ("a=1", {"a": "1"}),
        ("a=1\nb=2\n", {"a": "1", "b": "2"}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
        ("a=1\na=2\n", {"a": "2"}),
        ("a=\n", {"a": ""}),
        ("a= b = c \n", {"a": " b = c "}),
        ("a=x<<y\n", {"a": "x<<y"}),
        ("a-b_9=x\n", {"a-b_9": "x"}),
        ("a<<END\nx\ny=z\n\nEND\nb=1\n", {"a": "x\ny=z\n", "b": "1"}),
        ("a<<E\nE\n", {"a": ""}),
        ("a<<E\n E\nE \nE\n", {"a": " E\nE "}),
        ("a<<=\nx\n=\n", {"a": "x"}),
        ("ä=1".replace("ä", "a") + "\nb=ü\n", {"a": "1", "b": "ü"}),
    ],
)
def test_pairs_are_read_in_both_forms(tmp_path, text, pairs):
    assert outputs(tmp_path, text) == pairs


@pytest.mark.parametrize(
    "text", ["a", "=1", "a b=1", "9=1", "ü=1", "a<<\nx\n", "a<<E\nx", " a=1", "a=1\nb\n", b"a=\xff", b"a=\0", b"\0=1"]
)
def test_anything_else_is_refused(tmp_path, text):
    with pytest.raises(Invalid, match="VOLE_OUTPUT"):
        outputs(tmp_path, text)


def test_a_bad_line_is_shown_with_its_number_and_cut(tmp_path):
    with pytest.raises(Invalid) as refusal:
        outputs(tmp_path, "a=1\n" + "x" * 5_000)

    assert refusal.value.sentence.startswith("VOLE_OUTPUT line 2: 'xxx")
    assert len(refusal.value.sentence) < 200


def test_outputs_are_bounded(tmp_path):
    assert outputs(tmp_path, "a=" + "x" * (limits.OUTPUT_BYTES_MAX - 2))
    with pytest.raises(Exhausted, match="OUTPUT_BYTES_MAX"):
        outputs(tmp_path, "a=" + "x" * limits.OUTPUT_BYTES_MAX)


@pytest.mark.parametrize("name", ["VOLE_SHA", "VOLE", "RUNNER_TEMP", "VOLE_NEW", "a-b"])
def test_a_variable_of_vole_cannot_be_set(tmp_path, name):
    path = tmp_path / "env"
    path.write_text(f"{name}=1\n")

    with pytest.raises(Invalid, match=name):
        files.read_variables(path)


def test_folders_written_later_come_first_on_the_path(tmp_path):
    path = tmp_path / "path"
    path.write_text("/one\n\n/two\n")

    assert files.read_path(path) == ["/two", "/one"]


@pytest.mark.proves("SR-32")
def test_places_are_made_once_and_closed(tmp_path):
    folder = tmp_path / "attempt"
    folder.mkdir(mode=0o755)

    places = files.make_places(str(folder), EVENT)

    assert [stat.S_IMODE(p.stat().st_mode) for p in (folder, places.work, places.temp, places.files)] == [0o700] * 4
    with pytest.raises(Invalid, match="fresh"):
        files.make_places(str(folder), EVENT)


@pytest.mark.parametrize("left", ["temp", "files"])
def test_places_of_a_former_attempt_are_refused(tmp_path, left):
    (tmp_path / left).mkdir()

    with pytest.raises(Invalid, match="fresh"):
        files.make_places(str(tmp_path), EVENT)


def test_a_folder_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    with pytest.raises(Invalid, match="no folder of ours"):
        files.make_places(str(tmp_path / "link"), EVENT)
    (tmp_path / "real" / "work").symlink_to(tmp_path)
    with pytest.raises(Invalid, match="no folder of ours"):
        files.make_places(str(tmp_path / "real"), EVENT)


@pytest.mark.parametrize("folder", ["", "attempt", "/x/../y"])
def test_a_folder_that_is_not_absolute_is_refused(folder):
    with pytest.raises(Invalid, match="not absolute"):
        files.make_places(folder, EVENT)
