"""The people of the stories, and a forge of real processes: `vole serve`, OpenSSH, git, `vole-runner`.

Everything listens on loopback, lives in one temporary folder, and ends by pid with its test.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import httpx

from tests import stored

ROOT = Path(__file__).parents[2]
BOUND_S = 25.0  # nothing in a story waits longer for another process

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "LANG": "C.UTF-8",
    "PYTHONPATH": f"{ROOT}:{ROOT / 'runner'}",
    "PYTHONPYCACHEPREFIX": str(sys.pycache_prefix),
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
}


@dataclass(frozen=True)
class Said:
    """What a program printed and how it ended."""

    status: int
    out: str
    err: str

    @property
    def ok(self) -> bool:
        return self.status == 0

    @property
    def remote(self) -> list[str]:
        """The lines that git shows as the server's."""
        return [line.removeprefix("remote: ").rstrip() for line in self.err.splitlines() if line.startswith("remote:")]


def program(*words: str | Path, folder: Path, given: str | None = None, env: dict[str, str] | None = None) -> Said:
    """Run a program to its end, within BOUND_S."""
    ended = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        input=given,
        stdin=None if given is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        env={**_ENVIRONMENT, "HOME": str(folder), **(env or {})},
    )
    return Said(ended.returncode, ended.stdout, ended.stderr)


class Running:
    """A program that goes on. Its lines can be waited for; it ends by pid."""

    def __init__(self, words: list[str], folder: Path, *, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**_ENVIRONMENT, "HOME": str(folder), **(env or {})},
        )
        self.lines: list[str] = []
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._new.put(line)
        self._new.put(None)

    def says(self, pattern: str, within_s: float = BOUND_S) -> re.Match[str]:
        """The first line from here on that matches. Fails when the program ends or the bound is over first."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                line = self._new.get(timeout=max(0.001, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line like {pattern!r} within {within_s} s:\n{''.join(self.lines)}") from None
            if line is None:
                raise AssertionError(f"ended without a line like {pattern!r}:\n{''.join(self.lines)}")
            if found := re.search(pattern, line):
                return found

    def ends(self, within_s: float = BOUND_S) -> int:
        """Its exit status, once it ends by itself."""
        return self.process.wait(within_s)

    def kill(self) -> None:
        """kill -9, as a power cut would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """TERM, then its exit status; killed when it does not end in time."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(BOUND_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reader.join(BOUND_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return self.process.returncode


@dataclass
class Page:
    """A page as a browser without script sees it."""

    status: int
    text: str
    headers: dict[str, str]

    @property
    def words(self) -> str:
        """Its text without tags, blanks folded."""
        bare = re.sub(r"<(script|style)\b.*?</\1>", " ", self.text, flags=re.DOTALL)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", bare)).replace("&#39;", "'").replace("&quot;", '"')

    def shows(self, *texts: str) -> bool:
        missing = [text for text in texts if text not in self.words]
        assert not missing, f"the page does not show {missing}:\n{self.words[:4000]}"
        return True


@dataclass
class Person:
    """Someone with a key and a folder of their own."""

    forge: Forge
    name: str
    key: Path

    @property
    def ssh_command(self) -> str:
        known_hosts = self.forge.folder / "known_hosts"
        return (
            f"ssh -F /dev/null -i {self.key} -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes"
            f" -o UserKnownHostsFile={known_hosts} -o StrictHostKeyChecking=yes -o LogLevel=ERROR"
        )

    def says(self, *words: str, given: str | None = None) -> Said:
        """`ssh git@host WORDS`."""
        command = [*self.ssh_command.split(), "-p", str(self.forge.ssh_port), "git@127.0.0.1", *words]
        return program(*command, folder=self.forge.folder, given=given)

    def git(self, *words: str, folder: Path | None = None) -> Said:
        return program("git", *words, folder=folder or self.forge.folder, env={"GIT_SSH_COMMAND": self.ssh_command})

    def address(self, repo: str) -> str:
        return f"ssh://git@127.0.0.1:{self.forge.ssh_port}/{repo}.git"

    def checkout(self, repo: str) -> Path:
        """Her working copy of `repo`, made on first use."""
        folder = self.forge.folder / "people" / self.name / repo
        if not folder.exists():
            folder.mkdir(parents=True)
            self.git("init", "-q", "-b", "main", folder=folder)
            for key, value in (("user.name", self.name), ("user.email", f"{self.name}@example.org")):
                self.git("config", key, value, folder=folder)
            self.git("remote", "add", "origin", self.address(repo), folder=folder)
        return folder

    def commits(self, repo: str, files: dict[str, str], message: str = "change") -> str:
        """Write and commit `files`; the commit's id."""
        folder = self.checkout(repo)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        self.git("add", "-A", folder=folder)
        committed = self.git("commit", "-q", "--allow-empty", "-m", message, folder=folder)
        assert committed.ok, committed.err
        return self.git("rev-parse", "HEAD", folder=folder).out.strip()

    def pushes(
        self,
        repo: str,
        files: dict[str, str] | None = None,
        *,
        message: str = "change",
        options: tuple[str, ...] = (),
        to: str = "main",
    ) -> Said:
        """Commit `files` and push them over OpenSSH."""
        if files is not None:
            self.commits(repo, files, message)
        flags = [word for option in options for word in ("-o", option)]
        return self.git("push", *flags, "origin", f"HEAD:refs/heads/{to}", folder=self.checkout(repo))


@dataclass
class Forge:
    """A server of its own in one folder, and those who use it."""

    folder: Path
    ssh_port: int = 0
    url: str = ""
    server: Running | None = None
    serve_words: list[str] = field(default_factory=list)
    started: list[Running] = field(default_factory=list)

    @property
    def dir(self) -> Path:
        return self.folder / "forge"

    def founded(self, *, ttl: str = "6s", **queue_settings: str) -> Forge:
        """`vole init`, with a short lease and ports of its own."""
        said = self.vole("init", str(self.dir), "--ssh-listen", "127.0.0.1:0", "--web-listen", "127.0.0.1:0")
        assert said.ok, said.err
        self.setting("lease_ttl", ttl)
        for key, value in queue_settings.items():
            self.setting(key, value)
        return self

    def setting(self, key: str, value: str) -> None:
        """Change one line of vole.yaml."""
        path = self.dir / "vole.yaml"
        changed, count = re.subn(rf"(?m)^(\s*){key}: .*$", rf"\g<1>{key}: {value}", path.read_text())
        assert count == 1, f"{count} lines {key} in vole.yaml"
        path.write_text(changed)

    def vole(self, *words: str, given: str | None = None) -> Said:
        """The program `vole` on the server's machine."""
        return program(sys.executable, "-m", "vole", "-C", str(self.dir), *words, folder=self.folder, given=given)

    def command(self, *words: str, given: str | None = None) -> str:
        """A command of the operator that must succeed; what it printed."""
        said = self.vole(*words, given=given)
        assert said.ok, said.err + said.out
        return said.out

    def starts(self, *, words: list[str] | None = None) -> Forge:
        """Start the server, learn its addresses, and keep them for the next start."""
        self.server = Running(words or [sys.executable, "-m", "vole", "serve", str(self.dir)], self.folder)
        found = self.server.says(r"ssh://git@127\.0\.0\.1:(\d+)")
        self.ssh_port = int(found.group(1))
        self.url = re.search(r"http://127\.0\.0\.1:\d+", found.string).group(0)  # type: ignore[union-attr]
        text = (self.dir / "vole.yaml").read_text()
        text = text.replace("listen: 127.0.0.1:0", f"listen: 127.0.0.1:{self.ssh_port}", 1)
        text = text.replace("listen: 127.0.0.1:0", f"listen: {self.url.removeprefix('http://')}", 1)
        (self.dir / "vole.yaml").write_text(text)
        public = (self.dir / "keys" / "ssh_host_ed25519.pub").read_text().split()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.ssh_port} {public[0]} {public[1]}\n")
        return self

    def restarts(self) -> Forge:
        """Start again on the same ports. Another test's connection may have got one of them: it is soon given back."""
        for left in reversed(range(20)):
            try:
                return self.starts()
            except AssertionError as refusal:
                if not left or "Address already in use" not in str(refusal):
                    raise
                self.server.stop()
                time.sleep(0.5)
        raise AssertionError("the last try raises")

    def person(
        self, name: str, *, admin: bool = False, rights: dict[str, str] | None = None, kind: str = "git"
    ) -> Person:
        """An account with a fresh key and `rights` (repository → level)."""
        key = self.folder / "keys" / name
        key.parent.mkdir(exist_ok=True)
        made = program("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key), folder=self.folder)
        assert made.ok, made.err
        self.command("user", "add", name, *(["--admin"] if admin else []))
        flags = ["--runner"] if kind == "runner" else []
        self.command("key", "add", name, *flags, given=key.with_suffix(".pub").read_text())
        for repo, level in (rights or {}).items():
            self.command("grant", name, repo, level)
        return Person(self, name, key)

    def creates(self, repo: str, *, public: bool = True) -> None:
        self.command("repo", "create", repo, *(["--public"] if public else []))

    def runner(self, person: Person, *labels: str, flags: tuple[str, ...] = ()) -> Running:
        """A `vole-runner` process of `person`, which is waited for until it is connected."""
        running = self.runner_process(person, *labels, flags=flags)
        running.says("connected|waiting for work|ready")
        return running

    def runner_process(self, person: Person, *labels: str, flags: tuple[str, ...] = ()) -> Running:
        """A `vole-runner` process, not waited for."""
        work = self.folder / "work" / f"{person.name}-{len(self.started)}"
        work.mkdir(parents=True)
        words = [sys.executable, "-m", "vole_runner", "--server", f"ssh://git@127.0.0.1:{self.ssh_port}"]
        words += ["--key", str(person.key), "--known-hosts", str(self.folder / "known_hosts"), "--work", str(work)]
        words += [word for label in labels for word in ("--label", label)]
        running = Running([*words, *flags], self.folder)
        self.started.append(running)
        return running

    def records_what_it_owes(self) -> None:
        """Wait until every record that is owed, and whatever people decided, stands in git."""
        late = time.monotonic() + BOUND_S
        while stored.rows(self.dir, "SELECT 1 FROM record_outbox UNION ALL SELECT 1 FROM admin_outbox"):
            assert time.monotonic() < late, "records are still owed"
            time.sleep(0.02)

    def following(self, person: Person, address: str) -> Running:
        """`ssh git@host log -f JOB`, going on."""
        command = [*person.ssh_command.split(), "-p", str(self.ssh_port), "git@127.0.0.1", "log", "-f", address]
        running = Running(command, self.folder)
        self.started.append(running)
        return running

    def page(self, path: str) -> Page:
        """GET, without a session."""
        answer = httpx.get(self.url + path, timeout=BOUND_S)
        return Page(answer.status_code, answer.text, dict(answer.headers))

    def job(self, address: str) -> dict[str, object]:
        """One job's row of `run list --json`, by `app/1/test`."""
        repo, number, key = address.split("/")
        runs = json.loads(self.command("run", "list", repo, "--json"))
        run = next(run for run in runs if run["number"] == int(number))
        return next(job for job in run["jobs"] if job["key"] == key)

    def log(self, address: str, *, follow: bool = True) -> str:
        """A job's log; with `follow`, once the job has ended."""
        return self.command("log", *(["-f"] if follow else []), address)

    def kill(self) -> None:
        """kill -9 of the server."""
        assert self.server is not None
        self.server.kill()
        self.server.stop()

    def ends(self) -> None:
        """End all that was started, the runners first."""
        for running in [*reversed(self.started), *([self.server] if self.server else [])]:
            running.stop()


@contextmanager
def a_forge(folder: Path, **settings: str) -> Iterator[Forge]:
    """A founded and started forge that ends with the block."""
    forge = Forge(folder).founded(**settings)
    try:
        yield forge.starts()
    finally:
        forge.ends()


@cache
def _ready_made() -> Path:
    """A founded forge with the repository app, ada who may write and rui whose runner may run: made once a process."""
    folder = Path(tempfile.mkdtemp(prefix="vole-ready-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    forge = Forge(folder).founded()
    forge.creates("app")
    forge.person("ada", rights={"app": "write"})
    forge.person("rui", rights={"app": "run"}, kind="runner")
    return folder


def prepared(folder: Path) -> tuple[Forge, Person, Person]:
    """A forge of its own that is not running yet, ada, and rui's runner key."""
    shutil.copytree(_ready_made(), folder, dirs_exist_ok=True)
    forge = Forge(folder)
    return forge, Person(forge, "ada", folder / "keys" / "ada"), Person(forge, "rui", folder / "keys" / "rui")


@contextmanager
def a_ready_forge(folder: Path, **settings: str) -> Iterator[tuple[Forge, Person, Person]]:
    """A prepared and started forge, with these lines of vole.yaml, that ends with the block."""
    forge, ada, rui = prepared(folder)
    for key, value in settings.items():
        forge.setting(key, value)
    try:
        forge.starts()
        yield forge, ada, rui
    finally:
        forge.ends()
