"""What an exec request asks for: a git service for one repository, or words for the table of commands. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from vole.base import limits
from vole.base.errors import Exhausted, Invalid
from vole.ssh.commands import split

Service = Literal["upload-pack", "receive-pack"]

_GIT = re.compile(r"git[- ](upload-pack|receive-pack)(?:\s|$)")


@dataclass(frozen=True)
class GitRequest:
    """`name` is as the client wrote it, in one canonical form; whether there is such a repository is not known yet."""

    service: Service
    name: str


def git_request(line: str) -> GitRequest | None:
    """The git service that `line` asks for; None when it asks for something else. Raises Invalid, Exhausted."""
    if len(line.encode("utf-8", "replace")) > limits.SSH_COMMAND_BYTES_MAX:
        raise Exhausted(f"a command of more than {limits.SSH_COMMAND_BYTES_MAX} bytes (SSH_COMMAND_BYTES_MAX)")
    found = _GIT.match(line)
    if found is None:
        return None
    service: Service = "upload-pack" if found[1] == "upload-pack" else "receive-pack"
    arguments = split(line[found.end() :])
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise Invalid(f"git {service} takes exactly one repository", code="unknown_command")
    return GitRequest(service, canonical(arguments[0]))


def canonical(path: str) -> str:
    """A repository path without its optional leading slash and its optional `.git`."""
    return path.removeprefix("/").removesuffix(".git")
