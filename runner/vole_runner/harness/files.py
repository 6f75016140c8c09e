"""The folders and small files of an attempt, and what a step wrote into them. Knows no expression, no process.

A step may put anything where a file was (a link, a pipe, a gigabyte): each is read once, bounded, never followed.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from vole.base import limits
from vole.base.errors import Exhausted, Invalid
from vole.wire import codec
from vole.wire.plan import EventFacts

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_RESERVED = re.compile(r"VOLE_.*|RUNNER_.*|VOLE", re.DOTALL)


@dataclass(frozen=True)
class Places:
    """Where an attempt lives. `work` may hold the sources; the rest was made new."""

    work: Path
    temp: Path
    files: Path

    @property
    def event(self) -> Path:
        return self.files / "event.json"


@dataclass(frozen=True)
class StepFiles:
    """The four files that a step writes to, and its script."""

    env: Path
    output: Path
    path: Path
    summary: Path
    script: Path

    @property
    def variables(self) -> dict[str, str]:
        return {
            "VOLE_ENV": str(self.env),
            "VOLE_OUTPUT": str(self.output),
            "VOLE_PATH": str(self.path),
            "VOLE_SUMMARY": str(self.summary),
        }


def make_places(folder: str, event: EventFacts) -> Places:
    """The places below `folder`, closed to everyone else.

    Raises Invalid for a folder that is not absolute, not ours, a link, or held an attempt before: nothing of a
    former job may be readable.
    """
    root = Path(folder)
    if not root.is_absolute() or ".." in root.parts:
        raise Invalid(f"the attempt's folder {folder[:200]!r} is not absolute")
    places = Places(root / "work", root / "temp", root / "files")
    try:
        _close(root)
        places.work.mkdir(mode=0o700, exist_ok=True)
        _close(places.work)
        places.temp.mkdir(mode=0o700)
        places.files.mkdir(mode=0o700)
        places.event.write_bytes(codec.canonical(event))
    except FileExistsError as error:
        raise Invalid(f"{error.filename} is there already: an attempt needs a fresh folder") from None
    except OSError as error:
        raise Invalid(f"the attempt's folder {folder[:200]!r} cannot be used: {error.strerror}") from None
    return places


def make_step_files(places: Places, number: int, script: str, suffix: str) -> StepFiles:
    """The files of step `number`, new and empty, and its script. Raises OSError."""
    root = places.files / str(number)
    root.mkdir(mode=0o700)
    made = StepFiles(root / "env", root / "output", root / "path", root / "summary", root / f"run{suffix}")
    for path in (made.env, made.output, made.path, made.summary):
        path.touch(mode=0o600)
    made.script.write_bytes(script.encode("utf-8") if script.endswith("\n") else script.encode("utf-8") + b"\n")
    return made


def read_variables(path: Path) -> dict[str, str]:
    """What VOLE_ENV says. Raises Invalid also for a name that is vole's own."""
    pairs = _pairs("VOLE_ENV", path, limits.STEP_VARIABLES_BYTES_MAX, "STEP_VARIABLES_BYTES_MAX")
    for name in pairs:
        if _RESERVED.fullmatch(name) or "-" in name:
            raise Invalid(f"VOLE_ENV: {name[:80]!r} cannot be set: it is no variable's name, or it is vole's own")
    return pairs


def read_outputs(path: Path) -> dict[str, str]:
    """What VOLE_OUTPUT says. Raises Invalid for a bad line, Exhausted for too much."""
    return _pairs("VOLE_OUTPUT", path, limits.OUTPUT_BYTES_MAX, "OUTPUT_BYTES_MAX")


def read_path(path: Path) -> list[str]:
    """The folders of VOLE_PATH, last written first. Raises Invalid or Exhausted."""
    raw = _read("VOLE_PATH", path, limits.STEP_VARIABLES_BYTES_MAX, "STEP_VARIABLES_BYTES_MAX")
    folders = [line for line in _decoded("VOLE_PATH", raw).splitlines() if line.strip()]
    if wrong := next((line for line in folders if ":" in line or "\0" in line), None):
        raise Invalid(f"VOLE_PATH: {wrong[:80]!r} is no folder: one a line, without ':'")
    return folders[::-1]


def read_summary(path: Path, room: int) -> str:
    """The step's Markdown. Raises Exhausted when it needs more than `room` bytes, Invalid for what is no file."""
    return _read("VOLE_SUMMARY", path, room, "SUMMARY_BYTES_MAX, all steps together").decode("utf-8", "replace")


def inside(places: Places, folder: str | None) -> Path:
    """The working directory that a step asked for. Raises Invalid for one outside the work folder, or missing."""
    if folder is None:
        return places.work
    root = places.work.resolve()
    found = (root / folder).resolve()
    if not found.is_relative_to(root):
        raise Invalid(f"working-directory {folder[:200]!r} is outside the work folder")
    if not found.is_dir():
        raise Invalid(f"working-directory {folder[:200]!r} is no folder of the work folder")
    return found


def _close(folder: Path) -> None:
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid():
        raise Invalid(f"{folder} is no folder of ours")
    folder.chmod(0o700)


def _pairs(name: str, path: Path, most: int, bound: str) -> dict[str, str]:
    lines = _decoded(name, _read(name, path, most, bound)).split("\n")
    if lines[-1] == "":
        lines.pop()
    found: dict[str, str] = {}
    rest = iter(enumerate(lines, 1))
    for number, line in rest:
        if not line.strip():
            continue
        key, sign, value = _first_of(line)
        if not sign or not _NAME.fullmatch(key):
            raise Invalid(f"{name} line {number}: {line[:80]!r} is neither name=value nor name<<END")
        if sign == "<<":
            value = _heredoc(name, number, value, rest)
        if "\0" in value:
            raise Invalid(f"{name} line {number}: a NUL byte is no text")
        found[key] = value
    return found


def _first_of(line: str) -> tuple[str, str, str]:
    equals, here = line.find("="), line.find("<<")
    if here >= 0 and (equals < 0 or here < equals):
        return line[:here], "<<", line[here + 2 :]
    return line.partition("=")


def _heredoc(name: str, number: int, end: str, rest: enumerate[str]) -> str:
    if not end:
        raise Invalid(f"{name} line {number}: '<<' needs a word that ends the text")
    held: list[str] = []
    for _, line in rest:
        if line == end:
            return "\n".join(held)
        held.append(line)
    raise Invalid(f"{name} line {number}: no line {end[:80]!r} ends the text")


def _decoded(name: str, raw: bytes) -> str:
    try:
        return raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise Invalid(f"{name}: the file is not UTF-8") from None


def _read(name: str, path: Path, most: int, bound: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise Invalid(f"{name}: the file cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Invalid(f"{name}: something stands where the file was")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            raw = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(raw) > most:
        raise Exhausted(f"{name}: more than {most} bytes ({bound})")
    return raw
