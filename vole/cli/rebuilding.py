"""`vole index rebuild`: the database again, from git."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from vole.config import server


@click.group("index")
def index_command() -> None:
    """The database, which is an index over the repositories."""


@index_command.command("rebuild")
@click.pass_obj
def rebuild(folder: Path) -> None:
    """Bring back accounts, keys, grants, repositories and every finished run from the repositories alone.

    Needs a folder without vole.db, and no server that runs on it.
    """
    config = server.load(folder)
    from vole.app import App  # noqa: PLC0415

    back = asyncio.run(App.rebuild(config, click.echo))
    click.echo(f"{config.paths.database} is rebuilt: {sum(one.runs for one in back):,} runs")
    click.echo("not in git, so not back: browser sessions, tokens, statuses, runs that were not finished, the queue")
