"""Flags, environment and file become settings, or are refused by name before anything connects."""

from __future__ import annotations

from pathlib import Path

import pytest

from vole.base.errors import Denied, Invalid
from vole_runner.refusals import exit_code
from vole_runner.settings import Settings, resolve

ENOUGH = {"VOLE_SERVER": "ssh://git@forge:2222", "VOLE_KEY": "/keys/runner"}


def settled(here: Path, environ: dict[str, str] | None = None, **flags: object) -> Settings:
    return resolve(flags, {**ENOUGH, "HOME": str(here), **(environ or {})}, here)


def test_server_and_key_from_the_environment_and_labels_from_flags_are_enough(tmp_path: Path) -> None:
    settings = settled(tmp_path, labels=("linux",), repos=("app",))

    assert (settings.forge, settings.key) == ("ssh://git@forge:2222", Path("/keys/runner"))
    assert (settings.labels, settings.repos, settings.slots) == (("linux",), ("app",), 1)


def test_labels_and_repos_are_repeated_or_separated_by_commas(tmp_path: Path) -> None:
    settings = settled(tmp_path, labels=("linux,arm64", "fast"), repos=("app", "lib,docs"))

    assert settings.labels == ("linux", "arm64", "fast")
    assert settings.repos == ("app", "lib", "docs")


def test_a_flag_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "vole"
    folder.mkdir(parents=True)
    (folder / "runner.yaml").write_text(
        "server: ssh://git@file:1\nkey: key\nslots: 3\nlabels: [linux]\nname: from-file\n"
    )

    from_file = resolve({}, {"HOME": str(tmp_path)}, tmp_path)
    from_flag = settled(tmp_path, server="ssh://git@flag:3", slots="2", labels=("fast",))

    assert (from_file.forge, from_file.key, from_file.slots) == ("ssh://git@file:1", folder / "key", 3)
    assert settled(tmp_path).forge == "ssh://git@forge:2222"
    assert (from_flag.forge, from_flag.slots, from_flag.labels) == ("ssh://git@flag:3", 2, ("fast",))


@pytest.mark.proves("SR-20")
@pytest.mark.parametrize("label", ["Linux", "linux ", " linux", "", "linux,", "-x", "línux", "a" * 64, "linux\n"])
def test_a_bad_label_is_refused_with_the_servers_own_rule(tmp_path: Path, label: str) -> None:
    with pytest.raises(Invalid) as refused:
        settled(tmp_path, labels=(label,))

    assert exit_code(refused.value) == 2


@pytest.mark.parametrize("name", ["App", "a b", ",", "app,", "../x"])
def test_a_malformed_filter_exits_2(tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid) as refused:
        settled(tmp_path, repos=(name,))

    assert exit_code(refused.value) == 2


@pytest.mark.parametrize("name", ["api", "x.git", "a..b"])
def test_a_filter_that_no_repository_can_have_exits_4(tmp_path: Path, name: str) -> None:
    with pytest.raises(Denied) as refused:
        settled(tmp_path, repos=(name,))

    assert exit_code(refused.value) == 4


@pytest.mark.parametrize("runtime", ["remote", "container", "podman"])
def test_a_runtime_that_is_not_there_is_refused_by_name(tmp_path: Path, runtime: str) -> None:
    with pytest.raises(Invalid, match=runtime):
        settled(tmp_path, runtime=runtime)


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("slots", "0"),
        ("slots", "65"),
        ("slots", "two"),
        ("idle_timeout", "300"),
        ("min_free", "1GB"),
        ("host_key", "MD5:aa"),
        ("name", "a\nb"),
        ("server", "https://forge"),
        ("server", "ssh://rui@forge"),
        ("server", "ssh://git@forge:99999"),
        ("server", "ssh://git@forge/app"),
    ],
)
def test_a_malformed_flag_is_refused(tmp_path: Path, flag: str, text: str) -> None:
    with pytest.raises(Invalid):
        settled(tmp_path, **{flag: text})


def test_every_problem_of_the_file_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("labels: [Linux, fast]\nslots: many\ncolour: red\n")

    with pytest.raises(Invalid) as refused:
        settled(tmp_path, config="r.yaml")

    lines = refused.value.lines
    assert [line.partition(" ")[0] for line in lines[:3]] == ["r.yaml:1:10", "r.yaml:2:8", "r.yaml:3:1"]


def test_without_server_or_key_it_says_where_to_name_them(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="VOLE_SERVER"):
        resolve({}, {"HOME": str(tmp_path)}, tmp_path)


def test_once_takes_one_slot(tmp_path: Path) -> None:
    assert settled(tmp_path, once=True, slots="4").slots == 1


def test_known_hosts_that_are_named_are_the_only_ones(tmp_path: Path) -> None:
    assert settled(tmp_path, known_hosts="hosts").known_hosts == (tmp_path / "hosts",)
