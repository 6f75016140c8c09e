"""`vole doctor`: what this machine or this folder lacks for a server, and whether its state agrees with itself.

Changes nothing, also beside a server that runs.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import platform
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from vole.base import limits
from vole.base.clock import SystemClock
from vole.base.errors import VoleError
from vole.base.escape import visible
from vole.base.offload import Offload
from vole.config import server
from vole.config.server import Paths
from vole.flows import checkup
from vole.flows.checkup import Finding
from vole.git import version as git
from vole.git.records import fingerprint_of, signers_at
from vole.ssh.hostkey import host_key_fingerprint

_LEAST_PYTHON = (3, 11)
_FREE_BYTES_MIN = limits.GIB
_FREE_PART_MIN = 0.05
_BUILT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)  # a clock before this is not set


@click.command("doctor")
@click.pass_obj
def doctor_command(folder: Path) -> None:
    """Say what this machine or the server's folder lacks; exit status 1 if something is bad."""
    found = examine(Paths(folder.absolute()))
    for finding in found:
        click.echo(f"{finding.mark:<5}{finding.about:<10}{visible(finding.sentence)}")
        if finding.remedy:
            click.echo(f"{'':<15}{finding.remedy}")
    sys.exit(1 if any(finding.mark == "bad" for finding in found) else 0)


def examine(paths: Paths) -> list[Finding]:
    """Every finding about this machine and the folder of `paths`."""
    examinations: tuple[Callable[[Paths], Iterator[Finding]], ...] = (
        _python, _git, _clock, _settings, _folders, _host_key, _record_key, _disk, _state, _offload,
    )  # fmt: skip
    return [finding for examination in examinations for finding in examination(paths)]


def _python(_paths: Paths) -> Iterator[Finding]:
    words = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.platform != "linux":
        yield Finding("bad", "machine", f"{words}: a server runs on Linux")
    yield Finding("ok" if sys.version_info >= _LEAST_PYTHON else "bad", "python", words)


def _git(_paths: Paths) -> Iterator[Finding]:
    try:
        yield Finding("ok", "git", f"git {git.demand()}")
    except VoleError as error:
        yield Finding("bad", "git", error.sentence, error.next_step)


def _clock(paths: Paths) -> Iterator[Finding]:
    now = datetime.datetime.now(datetime.UTC)
    words = f"it is {now:%Y-%m-%d %H:%M:%S} UTC by this machine"
    if now < _BUILT:
        yield Finding("bad", "clock", f"{words}; the clock is not set", "timedatectl set-ntp true")
    elif paths.database.exists() and paths.database.stat().st_mtime > now.timestamp() + limits.LEASE_GAP_S:
        yield Finding(
            "bad", "clock", f"{words}, before the store's last change", "set the clock, then start the server"
        )
    else:
        yield Finding("ok", "clock", words)


def _settings(paths: Paths) -> Iterator[Finding]:
    try:
        server.load(paths.root)
        yield Finding("ok", "settings", f"{paths.settings} is in order")
    except VoleError as error:
        for line in error.lines:
            yield Finding("bad", "settings", line)


def _folders(paths: Paths) -> Iterator[Finding]:
    for path in paths.folders:
        if not path.is_dir():
            yield Finding("bad", "folder", f"{path} is missing", "run `vole init` for a new folder")
        elif path.stat().st_uid != os.geteuid():
            yield Finding("bad", "folder", f"{path} belongs to another user")
        elif stat.S_IMODE(path.stat().st_mode) & 0o077:
            yield Finding("bad", "folder", f"{path} is open to others", f"chmod 700 {path}")


def _host_key(paths: Paths) -> Iterator[Finding]:
    if not paths.settings.exists():
        return
    try:
        yield Finding("ok", "host key", host_key_fingerprint(paths.host_key))
    except VoleError as error:
        yield Finding("bad", "host key", error.sentence, error.next_step)


def _record_key(paths: Paths) -> Iterator[Finding]:
    if not paths.record_key.exists():
        return
    try:
        own, signs = fingerprint_of(paths.record_key), signers_at(paths.record_key)
        if not signs or signs[-1].fingerprint != own:
            listed = paths.record_signers.name
            yield Finding("bad", "records", f"{own} is not the last key of {listed}", "take both from the same backup")
        else:
            yield Finding(
                "ok", "records", f"signed with {own}, the last of {len(signs)} in {paths.record_signers.name}"
            )
    except VoleError as error:
        yield Finding("bad", "records", error.sentence, error.next_step)


def _disk(paths: Paths) -> Iterator[Finding]:
    place = next(path for path in (paths.root, *paths.root.parents) if path.exists())
    usage = shutil.disk_usage(place)
    words = f"{usage.free / limits.GIB:.1f} GiB free of {usage.total / limits.GIB:.1f} GiB at {place}"
    low = usage.free < max(_FREE_BYTES_MIN, usage.total * _FREE_PART_MIN)
    yield Finding("bad" if low else "ok", "disk", words, "a server wants 1 GiB and 5 % free" if low else None)


def _state(paths: Paths) -> Iterator[Finding]:
    yield from checkup.of_store(paths, SystemClock())


def _offload(_paths: Paths) -> Iterator[Finding]:
    async def isolation() -> tuple[str, ...]:
        offload = Offload("vole.workflows.checks")
        try:
            await offload.start()
            return offload.missing
        finally:
            await offload.close()

    try:
        missing = asyncio.run(isolation())
    except VoleError as error:
        yield Finding("bad", "parser", error.sentence, error.next_step)
        return
    if not missing:
        yield Finding("ok", "parser", "the children that parse pushed files are limited and isolated")
    for word in missing:
        yield Finding("note", "parser", f"the children that parse pushed files: {word}")
