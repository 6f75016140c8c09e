"""The machine under the benchmarks: folders, packages, processes and what they cost. Ends only what it started."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
END_S = 10.0


class MissingError(Exception):
    """A peer that is not here and could not be installed."""


class BrokenError(Exception):
    """A side that did not do what was asked of it."""


def cache_folder() -> Path:
    """Where peers and big repositories are kept between runs."""
    home = os.environ.get("XDG_CACHE_HOME")
    folder = Path(home) / "vole-bench" if home else CHECKOUT / ".bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """A short path, since unix socket names are bounded, that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="vb-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def need(program: str, package: str) -> str:
    """The path of `program`, installed from Debian's `package` if it is absent and we may."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/lib/cgit"])
    found = shutil.which(program, path=path)
    if found is None and os.getuid() == 0 and shutil.which("apt-get"):
        _install(package)
        found = shutil.which(program, path=path)
    if found is None:
        raise MissingError(f"{program} is missing: apt-get install {package}")
    return found


def _install(package: str) -> None:
    quiet = ["-q", "-o", "DPkg::Lock::Timeout=300"]
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", package]):
        subprocess.run(["apt-get", *quiet, *words], env=environ, capture_output=True, timeout=600, check=False)


def free_port() -> int:
    """A port of loopback that was free a moment ago; for programs that cannot be asked for port 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(true: Callable[[], object], timeout_s: float, what: str, pause_s: float = 0.02) -> None:
    """Raises BrokenError naming `what` when it does not come true in time."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise BrokenError(f"{what}: not within {timeout_s:g} s")
        time.sleep(pause_s)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Children:
    """The processes of one run; each ends by its pid, its own session with it."""

    log_folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, words: Sequence[object], env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Output goes to `<name>.log` in the log folder."""
        with (self.log_folder / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                [str(word) for word in words],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.running.append(child)
        return child

    def end(self, child: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if child in self.running:
            self.running.remove(child)

    def end_all(self) -> None:
        for child in reversed(list(self.running)):
            self.end(child)


def family(pid: int) -> list[int]:
    """The process and its living descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents.setdefault(int(_stat_fields(int(entry.name))[1]), []).append(int(entry.name))
    found = [pid]
    for member in found:
        found.extend(parents.get(member, ()))
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds of the process, of its living descendants and of all that they have waited for."""
    ticks = 0
    for member in family(pid):
        with contextlib.suppress(OSError):
            ticks += sum(int(field) for field in _stat_fields(member)[11:15])
    return ticks / TICKS_PER_S


def memory_kib(pid: int) -> int:
    """Memory of the process and its living descendants; a page that n of them share counts as 1/n to each.

    Programs and libraries are left out: what they count for changes with everyone else on the machine.
    """
    total = 0
    for member in family(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    total += int(line.split()[1])
    return total


def _stat_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from `state` on; the name before may hold blanks and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
