"""The program `vole-runner`: its flags. What they mean is imported when there is something to do: `--help` is quick."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

import vole

_FORM = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.command(context_settings=_FORM)
@click.option("--server", metavar="URL", help="The forge, as ssh://git@forge:2222. Also VOLE_SERVER.")
@click.option("--key", metavar="FILE", help="The runner's own SSH key. Also VOLE_KEY.")
@click.option("--label", "labels", multiple=True, metavar="LABELS", help="What this machine is: repeat, or use commas.")
@click.option("--repos", multiple=True, metavar="NAMES", help="Serve only these of the granted repositories.")
@click.option("--slots", metavar="N", help="Jobs at once. Default: 1.")
@click.option("--only", is_flag=True, help="Take only jobs that ask for one of the labels.")
@click.option("--once", is_flag=True, help="Take one job and end; exit 8 when there is none.")
@click.option("--idle-timeout", metavar="TIME", help="End after this long without a job, as 300s.")
@click.option("--exit-on-refusal", is_flag=True, help="End at any refusal, and when the forge is away.")
@click.option("--min-free", metavar="SIZE", help="Take no work below this free disk, as 1GiB.")
@click.option("--name", metavar="NAME", help="How it is shown. Default: the machine's name.")
@click.option("--work", metavar="DIR", help="Folder for sources and jobs, one for each process.")
@click.option("--runtime", metavar="NAME", help="How steps are run. Default: local.")
@click.option("--config", metavar="FILE", help="Settings. Default: vole/runner.yaml in your configuration folder.")
@click.option("--known-hosts", metavar="FILE", help="Known hosts, in OpenSSH's form.")
@click.option("--host-key", metavar="SHA256:…", help="The forge's host key; no other is taken.")
@click.option("--trust-on-first-use", is_flag=True, help="Take the host key that is seen first, and pin it.")
@click.version_option(vole.__version__, prog_name="vole-runner", message="%(prog)s %(version)s")
def main(**flags: Any) -> None:
    """Lease jobs from a vole forge over SSH and run them here. Listens on nothing.

    Exit codes: 0 done or asked to stop, 2 usage, 4 key or grant refused, 5 superseded, 6 wire unsupported, 7 version
    refused, 8 --once found nothing, 75 forge unreachable.
    """
    program = importlib.import_module("vole_runner.program")
    sys.exit(program.start(flags))


if __name__ == "__main__":
    main()
