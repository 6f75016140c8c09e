"""Places of a container engine, through the command line that podman and docker share. Pulls no image.

The harness is our own, bound read-only with its interpreter, or the image's `vole-harness`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from vole.base import limits, log
from vole.base.errors import Invalid, Unavailable
from vole.config.runtimes import ENGINES, RuntimeConfig
from vole_runner.runtimes.child import Child, is_ready, program, spawn
from vole_runner.runtimes.sight import HOME, SOCKETS, interpreter

_log = log.get("vole_runner.runtimes")
_LABEL = "vole.runner"
_PASSED = ("LANG", "TZ")


class Engine:
    """Makes places of one configuration. `home` marks its containers; `environ`: the listed few."""

    def __init__(self, config: RuntimeConfig, home: Path, environ: Mapping[str, str]) -> None:
        self._config = config
        self._environ = environ
        self._mark = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
        self._numbers = count(1)
        found = [name for name in ENGINES if shutil.which(name)]
        self._engine = config.engine or (found[0] if found else ENGINES[0])

    async def start(self, sockets: Path, folder: str) -> Place:
        name = f"vole-{self._mark}-{next(self._numbers)}"
        argv = self._words("run", *self._place(name), *_bind(str(sockets), SOCKETS))
        argv += _bind(folder, folder) if folder else []
        argv += self._image("serve", "--listen", f"unix://{SOCKETS}/h.sock")
        place = Place(self, name, await spawn(argv, sockets / "h.sock", _own_environ()))
        try:
            ready = await is_ready(place.child, limits.CONTAINER_START_S)
        except asyncio.CancelledError:
            await place.end()
            raise
        if not ready:
            why = place.child.last_words
            await place.end()
            raise Unavailable(f"the harness did not start: {why or 'it said nothing'}")
        return place

    async def sweep(self) -> None:
        listed = await self.says("ps", "--all", "--quiet", "--filter", f"label={_LABEL}={self._mark}")
        if names := listed.split():
            await self.says("rm", "--force", *names)

    async def check(self) -> None:
        """Raises Invalid, naming what this machine lacks and what to do."""
        at = f"the runtime {self._config.name!r} is not possible here"
        if shutil.which(self._engine) is None:
            raise Invalid(f"{at}: no {self._engine}", next_step="install podman or docker, or choose another runtime")
        if self._config.harness == "ours" and sys.base_prefix in ("/usr", "/usr/local"):
            sentence = f"{at}: our Python is part of this system and cannot be bound into an image"
            raise Invalid(sentence, next_step="install vole in the image and say harness: image")
        try:
            await self.says("image", "inspect", self._config.image)
        except Unavailable as error:
            next_step = f"make or load the image {self._config.image}; it is never pulled"
            raise Invalid(f"{at}: {error.sentence}", next_step=next_step) from None
        try:
            words = (*self._place(f"vole-{self._mark}-check"), *self._image("--help"))
            await self.says("run", *words)
        except Unavailable as error:
            raise Invalid(f"{at}: {error.sentence}", next_step="see docs/operations.md, Runtimes") from None

    async def says(self, *words: str) -> str:
        """What the engine prints. Raises Unavailable with its own words."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words(*words),
                env=_own_environ(),
                cwd="/",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise Unavailable(f"{self._engine}: {error.strerror}") from None
        try:
            async with asyncio.timeout(limits.CONTAINER_START_S):
                out, said = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise Unavailable(f"{self._engine} {words[0]}: no answer in {limits.CONTAINER_START_S} s") from None
        if process.returncode != 0:
            why = said.decode("utf-8", "replace").strip()[-limits.PROBLEM_CHARS_MAX :].splitlines() or [
                "it said nothing"
            ]
            raise Unavailable(f"{self._engine} {words[0]}: {why[-1]}")
        return out.decode("utf-8", "replace")

    def _words(self, command: str, *words: str) -> list[str]:
        return [self._engine, *self._config.engine_arguments, command, *words]

    def _place(self, name: str) -> list[str]:
        config, bounds = self._config, self._config.bounds
        words = ["--rm", "--name", name, "--label", f"{_LABEL}={self._mark}", "--pull", "never", "--log-driver", "none"]
        words += ["--network", config.network, "--hostname", "vole", "--read-only", "--cap-drop", "ALL"]
        words += ["--security-opt", "no-new-privileges", "--user", f"{os.getuid()}:{os.getgid()}", "--workdir", "/"]
        words += ["--shm-size", str(limits.SANDBOX_TMP_BYTES)]
        if self._engine == "podman":
            words += ["--read-only-tmpfs=false", *(["--userns", "keep-id"] if os.getuid() != 0 else [])]
        for folder in ("/tmp", HOME):  # noqa: S108  the container's own
            words += ["--tmpfs", f"{folder}:rw,mode=1777,size={limits.SANDBOX_TMP_BYTES}"]
        environ = {name: self._environ[name] for name in _PASSED if name in self._environ} | {"HOME": HOME}
        for variable, value in environ.items():
            words += ["--env", f"{variable}={value}"]
        if bounds.memory is not None:
            words += ["--memory", str(bounds.memory), "--memory-swap", str(bounds.memory)]
        words += ["--pids-limit", str(bounds.pids)] if bounds.pids is not None else []
        words += ["--cpus", str(bounds.cpu)] if bounds.cpu is not None else []
        if config.harness == "ours":
            for path in interpreter():
                words += _bind(path, path, "ro")
        return [*words, *config.run_arguments]

    def _image(self, *words: str) -> list[str]:
        """The image, its entry point before it and the harness's words behind."""
        executable, *rest = program() if self._config.harness == "ours" else ["vole-harness"]
        return ["--entrypoint", executable, self._config.image, *rest, *words]


@dataclass(frozen=True)
class Place:
    """A container; `child` is the engine's program that waits for it."""

    engine: Engine
    name: str
    child: Child

    @property
    def address(self) -> str:
        return self.child.address

    @property
    def alive(self) -> bool:
        return self.child.alive

    async def end(self) -> None:
        """The engine says when a container is gone, and its processes with it (SR-31)."""
        with suppress(Unavailable):
            await self.engine.says("kill", self.name)
        while True:
            try:
                await self.engine.says("rm", "--force", self.name)
                break
            except Unavailable as error:
                if "no such container" in error.sentence.lower():
                    break
                _log.error("a container does not end; its slot stays taken", name=self.name, why=error.sentence)
            await asyncio.sleep(limits.STEP_KILL_S)
        await self.child.process.wait()
        await asyncio.to_thread(shutil.rmtree, self.child.socket.parent, True)


def _bind(source: str, target: str, mode: str = "rw") -> list[str]:
    return ["--volume", f"{source}:{target}:{mode}"]


def _own_environ() -> dict[str, str]:
    """The engine's client is ours, not the job's; what it prints is English."""
    return {**os.environ, "LC_ALL": "C"}
