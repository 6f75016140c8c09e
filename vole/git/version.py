"""Which git program this machine has, and whether it will do."""

from __future__ import annotations

import re
import shutil
import subprocess

from vole.base.errors import Unavailable

LEAST = (2, 39)
_ANSWER_S = 10.0


def installed() -> str | None:
    """The version of the git on the path, or None where there is none."""
    program = shutil.which("git")
    if program is None:
        return None
    answer = subprocess.run([program, "version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    found = re.search(r"\d+\.\d+(?:\.\d+)*", answer.stdout)
    return found.group() if found else None


def new_enough(version: str) -> bool:
    """Whether `version` is at least LEAST."""
    return tuple(int(part) for part in version.split(".")[:2]) >= LEAST


def demand() -> str:
    """The installed version. Raises Unavailable, with the remedy, where it is absent or too old."""
    version = installed()
    least = ".".join(map(str, LEAST))
    if version is None:
        raise Unavailable("there is no git on this machine", next_step="apt-get install git")
    if not new_enough(version):
        raise Unavailable(f"git {version} is too old; vole needs {least}", next_step="apt-get install git")
    return version
