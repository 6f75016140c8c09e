"""A Buildbot master and worker as a peer: two builders, told of each push by the repository's post-receive."""

from __future__ import annotations

import http.client
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.bench import pypi
from tests.bench.clients import git_env, run
from tests.bench.machine import Children, MissingError, free_port, listens, wait_until

PACKAGES = ("buildbot==4.3.0", "buildbot-www==4.3.0", "buildbot-worker==4.3.0", "setuptools")

MASTER = """\
from buildbot.plugins import changes, schedulers, steps, util, worker

stamp = steps.ShellCommand(command=["sh", "-c", "date +%s%N >> {stamps}"], logEnviron=False)
source = steps.Git(repourl="{folder}/source.git", mode="incremental", branch="main")


def builder(name, *does):
    return util.BuilderConfig(
        name=name, workernames=["w"], factory=util.BuildFactory(does), collapseRequests=False
    )


def scheduler(name):
    return schedulers.AnyBranchScheduler(
        name=name, builderNames=[name], treeStableTimer=None, change_filter=util.ChangeFilter(project=name)
    )


BuildmasterConfig = dict(
    workers=[worker.Worker("w", "secret", max_builds=8)],
    protocols=dict(pb=dict(port="tcp:{worker_port}:interface=127.0.0.1")),
    builders=[builder("plain", stamp), builder("source", source, stamp)],
    schedulers=[scheduler("plain"), scheduler("source")],
    www=dict(port="tcp:{web_port}:interface=127.0.0.1", change_hook_dialects=dict(base=True), plugins=dict()),
    buildbotURL="http://127.0.0.1:{web_port}/",
    buildbotNetUsageData=None,
    db=dict(db_url="sqlite:///state.sqlite"),
    logCompressionMethod="raw",
)
"""
HOOK = """\
#!/bin/sh
while read -r old new ref; do
    curl -s -o /dev/null http://127.0.0.1:{web_port}/change_hook/base -d project={project} -d branch=main \\
        -d revision="$new" -d author=ada -d comments=push --data-urlencode repository={folder}/{project}.git
done
"""


@dataclass(frozen=True)
class Buildbot:
    """Pushing to `plain` or `source` starts a build whose one command appends the time, in ns, to `stamps`."""

    plain: Path
    source: Path
    stamps: Path
    hook: str  # the address that is told of changes


def start_buildbot(folder: Path, children: Children, cache: Path) -> Buildbot:
    bin_folder = pypi.programs(cache, "buildbot", PACKAGES)
    if not shutil.which("curl"):
        raise MissingError("curl is missing: apt-get install curl")
    folder.mkdir()
    ports = {"worker_port": free_port(), "web_port": free_port()}
    env = {**git_env(folder), "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    run(["buildbot", "create-master", "-q", folder / "master"], env)
    text = MASTER.format(folder=folder, stamps=folder / "stamps", **ports)
    (folder / "master" / "master.cfg").write_text(text)
    worker_at = f"127.0.0.1:{ports['worker_port']}"
    run(["buildbot-worker", "create-worker", "-q", folder / "worker", worker_at, "w", "secret"], env)
    for project in ("plain", "source"):
        _repository(folder, project, ports["web_port"], env)
    children.start("buildbot-master", [bin_folder / "buildbot", "start", "--nodaemon", folder / "master"], env)
    wait_until(lambda: listens(ports["worker_port"]), 60, "the Buildbot master listens")
    worker = [bin_folder / "buildbot-worker", "start", "--nodaemon", folder / "worker"]
    children.start("buildbot-worker", worker, env)
    wait_until(lambda: _worker_is_there(ports["web_port"]), 60, "the Buildbot worker is connected")
    hook = f"http://127.0.0.1:{ports['web_port']}/change_hook/base"
    return Buildbot(folder / "plain.git", folder / "source.git", folder / "stamps", hook)


def _repository(folder: Path, project: str, web_port: int, env: dict[str, str]) -> None:
    run(["git", "init", "-q", "--bare", "-b", "main", folder / f"{project}.git"], env)
    hook = folder / f"{project}.git" / "hooks" / "post-receive"
    hook.write_text(HOOK.format(project=project, folder=folder, web_port=web_port))
    hook.chmod(0o755)


def _worker_is_there(web_port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", web_port, timeout=5)
    try:
        connection.request("GET", "/api/v2/workers")
        workers = json.load(connection.getresponse())["workers"]
    except (OSError, ValueError, KeyError):
        return False
    finally:
        connection.close()
    return any(worker["connected_to"] for worker in workers)
