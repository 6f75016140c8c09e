"""`vole init`, `vole serve`, `vole config check`: the life of a server from a shell."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import shlex
import signal
import socket
from pathlib import Path

import click

from vole.base.errors import Invalid
from vole.config import reading, server

_YOUNG_MAX = 20_000  # objects made and not freed before the collector looks at them: 700, as usual, are one page

REMOTE_NEXT_STEPS = """\
next:
  {vole} user add NAME --admin
  {vole} key add NAME < ~/.ssh/id_ed25519.pub
  {vole} serve
"""


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--url", default=server.AUTO, help="The pages' address, as browsers reach it.")
@click.option("--ssh-listen", default="0.0.0.0:2222", help="host:port")
@click.option("--web-listen", default="127.0.0.1:8080", help="host:port")
def init_command(folder: Path, url: str, ssh_listen: str, web_listen: str) -> None:
    """Make the folder of a new server: settings, host key, an empty store."""
    from vole.cli.founding import found  # noqa: PLC0415  asyncssh takes a fifth of a second

    settings = server.template(url=url, ssh_listen=ssh_listen, web_listen=web_listen)
    server.build(reading.parse(settings, server.FILE), server.Paths(folder.absolute()))
    fingerprint = found(folder, settings)
    click.echo(f"made {folder}; settings are in {folder / server.FILE}")
    click.echo(f"host key {fingerprint} (ed25519)")
    click.echo(REMOTE_NEXT_STEPS.format(vole=f"vole -C {shlex.quote(str(folder))}"), nl=False)


@click.command("serve")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.pass_obj
def serve_command(default: Path, folder: Path | None) -> None:
    """Run the server of FOLDER until TERM or INT; HUP reads vole.yaml again."""
    config = server.load(folder or default)
    from vole import telemetry  # noqa: PLC0415  structlog and everything that a server needs

    telemetry.set_up()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold every secret
    asyncio.run(_serve(config))


@click.group("config")
def config_command() -> None:
    """The settings file."""


@config_command.command("check")
@click.pass_obj
def config_check(folder: Path) -> None:
    """Read vole.yaml and name every problem in it; exit status 2 if there is one."""
    server.load(folder)
    click.echo(f"{folder / server.FILE} is in order")


async def _serve(config: server.Config) -> None:
    from vole.app import App  # noqa: PLC0415

    stop = asyncio.Event()
    async with App.open_doors(config) as app:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, _reload, app)
        await app.run(stop, ready=_ready)


def _ready() -> None:
    """What is there now stays: the collector no longer stalls every push while it looks through all of it."""
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX, 20, 20)
    _tell_manager("READY=1")


def _reload(app: object) -> None:
    from vole.app import App  # noqa: PLC0415

    assert isinstance(app, App)
    try:
        app.reconfigure(server.load(app.config.paths.root))
    except Invalid as error:
        app.say_unreadable(error)


def _tell_manager(word: str) -> None:
    """sd_notify(3), for units of `Type=notify`."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.connect("\0" + address[1:] if address.startswith("@") else address)
            manager.send(word.encode())
