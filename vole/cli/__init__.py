"""The program `vole`: its words, its environment, its exit status. Each command is imported only when it is said.

The commands of `vole.ssh.commands` are answered by the running server, or without one by the same code here.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import click

from vole import __version__
from vole.base.errors import VoleError
from vole.ssh import commands

EXIT_OURS = 70  # EX_SOFTWARE

# Commands of this program alone, and the module of `vole.cli` that has them, as `word_command`.
OWN = {
    "init": "serving",
    "serve": "serving",
    "config": "serving",
    "backup": "keeping",
    "restore": "keeping",
    "du": "keeping",
    "index": "rebuilding",
    "doctor": "doctor",
    "verify": "verifying",
    "demo": "demo",
    "run": "running",
    "check": "authoring",
    "schema": "authoring",
}


class Words(click.Group):
    """Our own commands first, then the table's."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*OWN, *dict.fromkeys(command.words[0] for command in commands.TABLE)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name in OWN:
            return _own(cmd_name)
        found = _of_the_table(cmd_name)
        return _said_to_the_server(cmd_name, found) if found else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """`vole run ci` is ours, `vole run list` the server's."""
        theirs = {command.words[1:2] for command in _of_the_table(args[0])}
        if args[0] in OWN and tuple(args[1:2]) in theirs:
            return args[0], _said_to_the_server(args[0], _of_the_table(args[0])), args[1:]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("On the server machine, or anywhere"):
            formatter.write_dl([(word, SUMMARIES[word]) for word in OWN])
        with formatter.section("On the server machine, and as `ssh git@host …`"):
            formatter.write_dl([(command.usage, command.summary) for command in commands.TABLE])


# Kept beside OWN so that `vole --help` imports none of the modules.
SUMMARIES = {
    "init": "Make the folder of a new server.",
    "serve": "Run the server of a folder.",
    "config": "`config check`: what is wrong with vole.yaml.",
    "backup": "Copy a server's folder while it is served, and hold the copy against it.",
    "restore": "Make a server's folder of a backup.",
    "du": "What the folder takes on the disk, by repository.",
    "index": "`index rebuild`: the database again, from the repositories alone.",
    "doctor": "What this machine or folder lacks, what its state breaks; changes nothing.",
    "verify": "Are the records of a clone as a server signed them? Offline.",
    "demo": "A temporary forge, a runner and a first green run.",
    "run": "Run the workflows of the working tree here, as a push would.",
    "check": "The push's check on the workflow files here.",
    "schema": "A JSON Schema of the workflow files, for editors.",
}


@click.group(cls=Words, context_settings={"max_content_width": 120})
@click.version_option(__version__, message="vole %(version)s")
@click.option("-C", "--dir", "folder", envvar="VOLE_DIR", default=".", help="The server's folder.  [VOLE_DIR, else .]")
@click.pass_context
def cli(ctx: click.Context, folder: str) -> None:
    """A self-hosted, git-native forge with CI built in."""
    ctx.obj = Path(folder)


def main() -> None:
    """Exit status: 0, or the column of the error's kind (docs/operations.md)."""
    try:
        cli(prog_name="vole")
    except VoleError as error:
        from vole.ssh import refusals  # noqa: PLC0415  costs more than `vole --help`

        refusal = refusals.of(error)
        click.echo("\n".join(refusal.lines), err=True)
        sys.exit(refusal.status)
    except Exception:
        traceback.print_exc()
        click.echo("vole: that is a fault of vole; the lines above say where", err=True)
        sys.exit(EXIT_OURS)


def _of_the_table(word: str) -> list[commands.Command]:
    return [command for command in commands.TABLE if command.words[0] == word]


def _own(word: str) -> click.Command:
    from importlib import import_module  # noqa: PLC0415

    command: click.Command = getattr(import_module(f"vole.cli.{OWN[word]}"), f"{word}_command")
    return command


def _said_to_the_server(word: str, found: list[commands.Command]) -> click.Command:
    @click.command(
        word,
        help="\b\n" + "\n".join(f"{command.usage}\n    {command.summary}" for command in found),
        context_settings={"ignore_unknown_options": True},
    )
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    @click.pass_obj
    def say(folder: Path, words: tuple[str, ...]) -> None:
        from vole.cli import saying  # noqa: PLC0415

        sys.exit(saying.say(folder, [word, *words]))

    return say
