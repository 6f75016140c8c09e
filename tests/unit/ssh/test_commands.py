"""The table of commands: its grammar, its answers, its refusals."""

from __future__ import annotations

import pytest

from vole.base.errors import Invalid
from vole.ssh import commands
from vole.ssh.admin_session import ANSWERS


def test_every_command_of_the_table_has_an_answer_and_no_other_has_one() -> None:
    assert list(ANSWERS) == [" ".join(command.words) for command in commands.TABLE]


@pytest.mark.parametrize("command", commands.TABLE, ids=lambda command: " ".join(command.words))
def test_a_command_said_as_its_usage_says_is_that_command(command: commands.Command) -> None:
    grammar = command.grammar
    flags = [f"{flag}={value}" if value else flag for flag, value in grammar.flags.items()]

    call = commands.parse([*grammar.words, *grammar.needed, *grammar.optional, *flags])

    assert call.command is command
    assert set(call.values) == {*grammar.needed, *grammar.optional}
    assert call.flags == {flag: value or "" for flag, value in grammar.flags.items() if flag not in grammar.many}
    assert call.repeated == {flag: (grammar.flags[flag],) for flag in grammar.many}


@pytest.mark.parametrize(
    "command", [command for command in commands.TABLE if command.grammar.needed], ids=lambda command: command.usage
)
def test_a_command_without_what_it_needs_is_refused_with_its_usage(command: commands.Command) -> None:
    with pytest.raises(Invalid) as caught:
        commands.parse(command.words)

    assert f"{command.grammar.needed[0]} is missing" in caught.value.sentence
    assert caught.value.next_step == f"usage: {command.usage}"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("usr add ada", "did you mean 'user'?"),
        ("user ad ada", "there is: user add NAME [--admin]; user list"),
        ("", "`help` lists the commands"),
        ("bash -c id", "`help` lists the commands"),
        ("user add ada bob", "'bob' is one value too many"),
        ("user add ada --root", "'--root' is no flag of it"),
        ("user add ada --admin=yes", "--admin takes no value"),
        ("repo create app --description", "--description needs a TEXT"),
        ("user add 'ada", "the command cannot be read"),
        ("user\x1b[2J add", r"user\x1b[2J"),
    ],
)
def test_a_command_that_is_none_is_refused_with_the_nearest(line: str, sentence: str) -> None:
    with pytest.raises(Invalid) as caught:
        commands.parse(commands.split(line))

    assert sentence in caught.value.sentence


def test_values_and_flags_may_stand_in_any_order() -> None:
    call = commands.parse(commands.split("repo create --description 'two words' app --public"))

    assert (call["NAME"], call.get("--description"), call.has("--public")) == ("app", "two words", True)


def test_a_repeated_value_keeps_every_one() -> None:
    call = commands.parse(["label", "declare", "linux", "fast", "arm64"])

    assert (call["LABEL"], call.rest) == ("linux", ("fast", "arm64"))


def test_words_are_split_without_a_shell() -> None:
    assert commands.split("why 'app/1/a b' $(id) `id` ; rm *") == ["why", "app/1/a b", "$(id)", "`id`", ";", "rm", "*"]


def test_the_longer_of_two_commands_wins() -> None:
    assert commands.parse(["sessions"]).command.usage.startswith("sessions [")
    assert commands.parse(["sessions", "revoke", "7"])["ID"] == "7"


@pytest.mark.parametrize("line", ["key add --help", "key --help", "help key"])
def test_help_may_be_asked_of_a_word(line: str) -> None:
    call = commands.parse(commands.split(line))

    assert (call.command.words, call.get("WORD")) == (("help",), "key")
    assert [usage.split("  ")[0] for usage in commands.listing("key")] == [
        command.usage for command in commands.TABLE if command.words[0] == "key"
    ]


def test_help_lists_every_command() -> None:
    text = "\n".join(commands.listing(None))

    assert all(command.usage in text and command.summary in text for command in commands.TABLE)


def test_a_repeated_flag_keeps_every_value_also_with_an_equals_sign_in_it() -> None:
    line = "run start app deploy --input to=live --ref v1 --input 'note=a = b' --input=x=y"

    call = commands.parse(commands.split(line))

    assert (call["REPO"], call["WORKFLOW"], call.get("--ref")) == ("app", "deploy", "v1")
    assert call.repeated == {"--input": ("to=live", "note=a = b", "x=y")}
