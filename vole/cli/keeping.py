"""`vole backup`, `vole restore`, `vole du`: what they are told, and what they say of it."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click

from vole.base.clock import Clock, SystemClock, seconds
from vole.base.entropy import SystemEntropy
from vole.base.quantities import count, size, span
from vole.config import server
from vole.config.server import Paths

_EACH = seconds(0.2)  # between two looks of a line that is written over


@click.command("backup")
@click.argument("place", type=click.Path(path_type=Path))
@click.option("--with-keys", is_flag=True, help="Take the private keys too: keep such a backup as you keep keys.")
@click.pass_obj
def backup_command(folder: Path, place: Path, *, with_keys: bool) -> None:
    """Make a backup of the server's folder while it is served: the folder PLACE, or a tar file by its name
    (.tar, .tar.gz). It is held against the original before it counts."""
    from vole.flows.backup import back_up  # noqa: PLC0415  pygit2 and the store

    clock, paths = SystemClock(), Paths(folder.absolute())
    with closing(Line(clock, _bytes_below(paths))) as line:
        made = back_up(paths, place, clock, line, keys=with_keys)
    click.echo(
        f"{made.place}: {count(made.repositories, 'repository')}, {count(made.refs, 'ref')}, "
        f"{count(made.files, 'file')}, {size(made.bytes)}; whole"
    )
    for what in made.left_out:
        click.echo(f"left out: {what}")


@click.command("restore")
@click.argument("backup", type=click.Path(exists=True, path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--past",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder that was served last, if it can still be read: no run number of it is given again.",
)
def restore_command(backup: Path, folder: Path, past: Path | None) -> None:
    """Make the server's folder FOLDER, which must be empty, of BACKUP. Jobs that had not ended are lost; run numbers go
    on at a full thousand."""
    from vole.flows.backup import restore  # noqa: PLC0415
    from vole.ssh.hostkey import make_host_key  # noqa: PLC0415

    clock = SystemClock()
    with closing(Line(clock, None)) as line:
        made = restore(backup, folder, past, (clock, SystemEntropy(), line))
    paths = Paths(folder.absolute())
    click.echo(f"{folder} is as it was at {made.about.made_at}")
    for address in made.lost:
        click.echo(f"lost: {address or 'a job of a repository that is removed'} had not ended; `rerun` makes a new run")
    for name, number in made.next_runs.items():
        click.echo(f"{name}: the next run is {name}/{number}")
    for stray in made.strays:
        click.echo(
            f"moved since: {stray} stands elsewhere than the backup's last push put it; nothing was run for that"
        )
    if paths.host_key.name in made.missing:
        click.echo(f"a new host key, since the backup has none: {make_host_key(paths.host_key)}; clients will ask")
    if paths.record_key.name in made.missing:
        click.echo("a new record key signs from the first start on; what the former one signed stays valid")
    click.echo(f"next: vole -C {folder} doctor; vole -C {folder} serve")


@click.command("du")
@click.option("--json", "as_json", is_flag=True, help="For programs: bytes and counts.")
@click.pass_obj
def du_command(folder: Path, *, as_json: bool) -> None:
    """Say what the server's folder takes on the disk, by repository."""
    from vole.flows.space import measure  # noqa: PLC0415
    from vole.ssh.answers.counter import aligned  # noqa: PLC0415

    server.load(folder)
    space = measure(Paths(folder.absolute()), SystemClock())
    if as_json:
        click.echo(json.dumps({**asdict(space), "total": space.total}, indent=1))
        return
    rows = [
        (one.repository, size(one.git), size(one.logs), size(one.artifacts),
         f"{one.records_number:,} of {size(one.records)}", f"{one.runs.kept:,}", f"{one.runs.pruned:,}",
         f"{one.freed.files:,} of {size(one.freed.bytes)}")
        for one in space.repositories
    ]  # fmt: skip
    for line in aligned(("repository", "git", "logs", "artifacts", "records", "runs", "pruned", "removed"), rows):
        click.echo(line)
    click.echo(f"database {size(space.database)}, the rest {size(space.rest)}; together {size(space.total)}")


class Line:
    """What is worked on: a line for each on a terminal, written over with bytes and time left; plain ones elsewhere."""

    def __init__(self, clock: Clock, total: int | None) -> None:
        self._clock, self._total = clock, total
        self._began = self._said_at = clock.now()
        self._what, self._done = "", 0

    def __call__(self, what: str, copied: int) -> None:
        self._done += copied
        if what:
            self._what = what
            if not sys.stderr.isatty():
                click.echo(what, err=True)
        now = self._clock.now()
        if sys.stderr.isatty() and (what or now - self._said_at > _EACH):
            self._said_at = now
            click.echo(f"\r\x1b[K{self._what}: {size(self._done)}{self._left(now)}", nl=False, err=True)

    def close(self) -> None:
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", nl=False, err=True)

    def _left(self, now: int) -> str:
        if not self._total or not self._done:
            return ""
        rest = max(0, self._total - self._done)
        return f" of {size(max(self._total, self._done))}, {span((now - self._began) * rest // self._done)} left"


def _bytes_below(paths: Paths) -> int:
    """About how much there is to copy."""
    return sum(file.lstat().st_size for file in paths.root.rglob("*") if file.is_file() and not file.is_symlink())
