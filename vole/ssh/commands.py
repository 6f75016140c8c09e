"""The one table of commands: what may be said over SSH and, in the same words, on the server machine.

Pure: it knows how a command is spelt and who may ask, never how it is answered (`answers/`). A line of the table is
its own grammar: lower case is said as it stands, CAPITALS are values, brackets are optional, `...` repeats, also flags.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from vole.base.errors import Invalid
from vole.base.escape import visible

_TOKEN = re.compile(r"\[(--?[a-z-]+)(?: ([A-Z=]+))?\](\.\.\.)?|\[([A-Z]+)(\.\.\.)?\]|([A-Z]+)(\.\.\.)?|([a-z]+)")


_USAGE_WIDTH = 40  # of the left column of `help`


class Streams(Protocol):
    """The three streams of a command, wherever its caller sits."""

    async def read(self, most: int) -> bytes:
        """Up to `most` bytes of standard input; empty at its end."""
        ...

    async def out(self, data: bytes) -> None: ...

    async def err(self, data: bytes) -> None: ...


@dataclass(frozen=True)
class Command:
    usage: str
    summary: str
    admin: bool = False  # only for accounts that are admin; the others' rights are looked at per repository
    reads_stdin: bool = False

    @cached_property
    def grammar(self) -> Grammar:
        return _grammar(self.usage)

    @property
    def words(self) -> tuple[str, ...]:
        return self.grammar.words


@dataclass(frozen=True)
class Grammar:
    words: tuple[str, ...]
    needed: tuple[str, ...]
    optional: tuple[str, ...]
    repeated: str | None  # the last value, when it repeats
    flags: Mapping[str, str | None]  # to the name of the value it takes
    many: frozenset[str]  # the flags that repeat


@dataclass(frozen=True)
class Call:
    """A command as it was said."""

    command: Command
    values: Mapping[str, str] = field(default_factory=dict)
    rest: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)  # a flag without a value maps to ""
    repeated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # flags that repeat, to all their values

    def __getitem__(self, name: str) -> str:
        """A value that the grammar needs."""
        return self.values[name]

    def get(self, name: str) -> str | None:
        """An optional value or a flag's value."""
        return self.flags.get(name) if name.startswith("-") else self.values.get(name)

    def has(self, flag: str) -> bool:
        return flag in self.flags

    @property
    def json(self) -> bool:
        return self.has("--json")


TABLE: tuple[Command, ...] = (
    Command("user add NAME [--admin]", "Make an account.", admin=True),
    Command("user list [--json]", "Every account.", admin=True),
    Command("user remove NAME", "Forget an account with its keys, grants, sessions and tokens.", admin=True),
    Command("key add USER [--runner]", "Add the public key that stands on standard input.", reads_stdin=True),
    Command("key list [USER] [--json]", "Your keys, a user's, or for an admin all."),
    Command("key remove FINGERPRINT", "Remove a key; its open connections end within seconds."),
    Command("grant [USER] [REPO] [LEVEL] [--remove] [--json]", "Give or take read, write or run; or list.", admin=True),
    Command("login [--user USER]", "Print a link that logs a browser in: once, within five minutes."),
    Command("sessions [--user USER] [--json]", "Your open browser sessions."),
    Command("sessions revoke ID [--user USER]", "End a browser session."),
    Command("token create NAME [--scope SCOPE] [--user USER]", "Print a new token for the API, this once."),
    Command("token list [--user USER] [--json]", "Your tokens' names and scopes."),
    Command("token revoke NAME [--user USER]", "End a token."),
    Command("repo create NAME [--public] [--description TEXT]", "Make a repository; private unless said.", admin=True),
    Command("repo list [--json]", "The repositories you may read."),
    Command(
        "repo settings NAME [--public] [--private] [--description TEXT] [--default-branch BRANCH] [--json]",
        "Show or change.",
        admin=True,
    ),
    Command("repo remove NAME [--yes]", "Forget a repository with its runs, logs and artifacts.", admin=True),
    Command(
        "gate set REPO PATTERN REQUIREMENT...",
        "Let branches move to green commits alone: by ci, ci/test or status:CONTEXT.",
        admin=True,
    ),
    Command("gate remove REPO PATTERN", "Take a gate away.", admin=True),
    Command("gate list REPO [--json]", "What the branches of a repository demand."),
    Command("gate audit REPO BRANCH [--json]", "For each commit since the gate, the record that opened it."),
    Command("label declare LABEL...", "Let workflows ask for a label that no runner carried yet."),
    Command("label list [--json]", "The labels that workflows may ask for."),
    Command("run list [REPO] [--json]", "The last runs, newest first."),
    Command(
        "run start REPO WORKFLOW [--ref REF] [--input NAME=VALUE]...",
        "Start a workflow that has `on: manual`, at a branch or tag.",
    ),
    Command("rerun RUN [--failed]", "Run app/12 again as a new run; --failed: what failed, and what needs it."),
    Command("queue [--json]", "What waits, and what runs where."),
    Command(
        "queue replay [--add-runner LABELS] [--from TIME] [--to TIME] [--json]",
        "Decide every grant again from the log; or what one more runner would have changed.",
        admin=True,
    ),
    Command("why JOB", "Why a job (app/12/test) waits, runner by runner; app/12: every job of the run."),
    Command("cancel JOB [--reason TEXT]", "Cancel a job (app/12/test) or a whole run (app/12)."),
    Command("log JOB [-f] [--raw]", "A job's log (app/12/test, app/12/test@2); -f follows it, --raw: its bytes."),
    Command("log delete JOB", "Remove the logs of a job or a run that is over; records and pages say so."),
    Command(
        "artifact delete JOB [--name NAME]", "Remove the artifacts of a job or a run that is over, or those of a name."
    ),
    Command("run prune REPO TIME [--yes]", "Forget runs that finished before a time; their records stay.", admin=True),
    Command("record keys [--json]", "The keys that records are and were signed with."),
    Command("record rotate", "Sign records with a new key from now on; what is signed stays valid.", admin=True),
    Command("runner list [--json]", "Connected runners: labels, repositories, slots, jobs."),
    Command("runner revoke FINGERPRINT", "Remove a runner's key; it loses its jobs within seconds.", admin=True),
    Command("ping [--json]", "The server's version, who you are to it, and what you may do."),
    Command("help [WORD]", "This list, or the commands that begin with a word."),
)


def parse(words: Sequence[str]) -> Call:
    """The command that `words` say. Raises Invalid with the nearest command or its usage."""
    if "--help" in words:
        words = ["help", *[word for word in words if word != "--help"][:1]]
    command = _named(words)
    given = words[len(command.words) :]
    values, flags, repeated = _sorted_out(command, given)
    grammar = command.grammar
    names = grammar.needed + grammar.optional
    if len(values) < len(grammar.needed):
        raise _misused(command, f"{grammar.needed[len(values)]} is missing")
    if len(values) > len(names) and grammar.repeated is None:
        raise _misused(command, f"'{visible(values[len(names)], 80)}' is one value too many")
    return Call(command, dict(zip(names, values, strict=False)), tuple(values[len(names) :]), flags, repeated)


def split(line: str) -> list[str]:
    """The words of a command line as SSH carries it: quotes and backslashes as in a shell, and nothing else of one."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise Invalid(f"the command cannot be read: {error}") from None


def listing(word: str | None) -> list[str]:
    """What `help` prints, of all or of the commands that begin with `word`."""
    lines: list[str] = []
    for command in TABLE:
        if word is not None and command.words[0] != word:
            continue
        if len(command.usage) < _USAGE_WIDTH:
            lines.append(f"{command.usage:<{_USAGE_WIDTH}}{command.summary}")
        else:
            lines += [command.usage, " " * _USAGE_WIDTH + command.summary]
    return lines


def _named(words: Sequence[str]) -> Command:
    fitting = [command for command in TABLE if tuple(words[: len(command.words)]) == command.words]
    if fitting:
        return max(fitting, key=lambda command: len(command.words))
    spoken = visible(" ".join(words[:2]), 80)
    group = [command for command in TABLE if words and command.words[0] == words[0]]
    if group:
        raise Invalid(f"'{spoken}' is no command; there is: {'; '.join(command.usage for command in group)}")
    close = difflib.get_close_matches(words[0] if words else "", {command.words[0] for command in TABLE}, n=1)
    remedy = f"did you mean {close[0]!r}?" if close else "`help` lists the commands"
    raise Invalid(f"'{spoken}' is no command; {remedy}", code="unknown_command")


def _sorted_out(command: Command, given: Sequence[str]) -> tuple[list[str], dict[str, str], dict[str, tuple[str, ...]]]:
    values: list[str] = []
    flags: dict[str, str] = {}
    repeated: dict[str, tuple[str, ...]] = {}
    waiting = iter(given)
    for word in waiting:
        if not word.startswith("-") or word == "-":
            values.append(word)
            continue
        flag, equals, value = word.partition("=")
        if flag not in command.grammar.flags:
            raise _misused(command, f"'{visible(flag, 80)}' is no flag of it")
        takes = command.grammar.flags[flag]
        if takes is None and equals:
            raise _misused(command, f"{flag} takes no value")
        if takes is not None and not equals:
            value = next(waiting, "")
        if takes is not None and not value:
            raise _misused(command, f"{flag} needs a {takes}")
        if flag in command.grammar.many:
            repeated[flag] = (*repeated.get(flag, ()), value)
        else:
            flags[flag] = value
    return values, flags, repeated


def _misused(command: Command, sentence: str) -> Invalid:
    return Invalid(f"{' '.join(command.words)}: {sentence}", code="usage", next_step=f"usage: {command.usage}")


def _grammar(usage: str) -> Grammar:
    words: list[str] = []
    needed: list[str] = []
    optional: list[str] = []
    flags: dict[str, str | None] = {}
    many: set[str] = set()
    repeated: str | None = None
    for match in _TOKEN.finditer(usage):
        flag, flag_value, flag_dots, maybe, _, value, dots, word = match.groups()
        if flag:
            flags[flag] = flag_value
            many |= {flag} if flag_dots else set()
        elif maybe:
            optional.append(maybe)
        elif value:
            needed.append(value)
            repeated = value if dots else None
        elif word:
            words.append(word)
    return Grammar(tuple(words), tuple(needed), tuple(optional), repeated, flags, frozenset(many))
