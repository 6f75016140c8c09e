"""Settings files: every problem at once, each with its place and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from vole.base.errors import Invalid
from vole.config import reading
from vole.config.reading import Listen


def problems_of(text: str, ask: object = None) -> tuple[str, ...]:
    root = reading.parse(text, "s.yaml")
    if callable(ask):
        ask(root)
    with pytest.raises(Invalid) as caught:
        root.finish()
    return caught.value.problems


def test_all_problems_are_named_at_once_each_with_its_place() -> None:
    text = "ttl: 90\nlisten: 8080\nqueue:\n  wait: 5 parsecs\n  fast: yes\n"

    def ask(root: reading.Section) -> None:
        root.duration_s("ttl", 1.0)
        root.listen("listen", None)
        root.section("queue").duration_s("wait", 1.0)
        root.section("queue").boolean("fast", False)

    found = problems_of(text, ask)

    assert [line.split(" ", 1)[0] for line in found] == ["s.yaml:1:6", "s.yaml:2:9", "s.yaml:4:9", "s.yaml:5:9"]
    assert "ttl: '90' has no unit; write it as 90s (units: ms s m h d)" in found[0]
    assert "listen: '8080' is no address to listen on" in found[1]
    assert "queue.wait: '5 parsecs' has an unknown unit 'parsecs'" in found[2]
    assert "queue.fast: 'yes' is neither true nor false" in found[3]


def test_an_unknown_key_is_refused_with_its_near_miss() -> None:
    found = problems_of(
        "lisetn: a:1\nqueue:\n  tlt: 9s\n",
        lambda root: (root.listen("listen", None), root.section("queue").duration_s("ttl", 1.0)),
    )

    assert found == (
        "s.yaml:1:1 lisetn: no such setting; did you mean listen?",
        "s.yaml:3:3 queue.tlt: no such setting; did you mean ttl?",
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("90s", 90.0), ("1.5h", 5400.0), ("30d", 2_592_000.0), ("0s", 0.0), ("5 m", 300.0)],
)
def test_a_duration_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert reading.duration_s(text) == seconds


@pytest.mark.parametrize(("text", "count"), [("512B", 512), ("64KiB", 65536), ("512MiB", 1 << 29), ("0B", 0)])
def test_a_size_is_read_with_its_unit(text: str, count: int) -> None:
    assert reading.size(text) == count


@pytest.mark.parametrize("text", ["90", "0", "", "s", "-1s", "1e3s", "90 sec", "512MiB", "٣s", "1_0s"])
def test_a_bare_or_odd_duration_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        reading.duration_s(text)


@pytest.mark.parametrize("text", ["512", "512MB", "1k", "-1B", "90s"])
def test_a_bare_or_odd_size_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        reading.size(text)


@pytest.mark.parametrize(
    ("text", "listen"),
    [("0.0.0.0:2222", Listen("0.0.0.0", 2222)), ("[::1]:0", Listen("::1", 0)), ("forge:65535", Listen("forge", 65535))],
)
def test_an_address_to_listen_on_is_read_and_written_alike(text: str, listen: Listen) -> None:
    assert reading.listen(text) == listen
    assert str(listen) == text


@pytest.mark.parametrize("text", ["2222", ":2222", "::1:2222", "host:65536", "host:", "host:x"])
def test_an_odd_address_to_listen_on_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        reading.listen(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\na: 2\n", "s.yaml:2:1 a: given twice; keep one"),
        ("- a\n", "s.yaml:1:1 the file: expected settings, each as `key: value`"),
        ("a: !!python/object:os.system x\n", "s.yaml:1:4 a: tags are not read here"),
        ("a: [\n", "s.yaml:2:1 no YAML"),
        ("a: {b: c}\n", "s.yaml:1:4 a: expected one value, not a mapping"),
        ("a:\n", "s.yaml:1:3 a: has no value"),
        ('a: "\\e[31m"\n', "is none of x"),
    ],
)
def test_a_file_of_another_form_is_refused_by_place(text: str, sentence: str) -> None:
    root_or_error: tuple[str, ...]
    try:
        root_or_error = problems_of(
            text, lambda root: root.choice("a", "x", ("x",)) if "\\e" in text else root.text("a", "x")
        )
    except Invalid as error:
        root_or_error = error.problems

    assert sentence in root_or_error[0]
    assert "\x1b" not in root_or_error[0]


def test_an_empty_file_is_all_defaults() -> None:
    root = reading.parse("# nothing\n", "s.yaml")

    assert root.text("a", "x") == "x"
    assert root.section("b").integer("c", 3, least=0, most=9) == 3
    assert root.section("b").optional("d", int) is None
    root.finish()


def test_each_item_of_a_list_is_parsed_at_its_place() -> None:
    def upper(text: str) -> str:
        if not text.isupper():
            raise Invalid(f"{text!r} is not upper case")
        return text

    root = reading.parse("a: [X, y, Z]\nb: W\n", "s.yaml")

    assert root.each("a", (), upper) == ("X", "Z")
    assert root.each("b", (), upper) == ("W",)
    with pytest.raises(Invalid) as caught:
        root.finish()
    assert caught.value.problems == ("s.yaml:1:8 a: 'y' is not upper case",)


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"a: \xe9\n")
    (tmp_path / "huge").write_bytes(b"#" * (1 << 19))

    for name, words in {"absent": "No such file", "latin": "not UTF-8 at byte 3", "huge": "SETTINGS_BYTES_MAX"}.items():
        with pytest.raises(Invalid, match=words):
            reading.read(tmp_path / name)
