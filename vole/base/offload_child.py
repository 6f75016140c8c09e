"""The inside of an offload child: takes off what it may do, then answers questions until its input ends.

Never imported by the server; `offload` starts it with an empty environment. It lets go of its rights after the work's
modules are loaded, since it may open nothing from then on.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import struct
from collections.abc import Callable
from typing import BinaryIO

from vole.base import limits
from vole.base.errors import VoleError

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # unshare(2)
_NOBODY = 65_534
_HEAD = struct.Struct(">I")


def main(preload: list[str], *, may_read: bool) -> None:
    """Serve questions on descriptor 0; answers go where descriptor 1 led, and a stray print goes nowhere."""
    for name in preload:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    questions = os.fdopen(0, "rb")
    _send(answers, {"missing": _confine(may_read=may_read)})
    while head := questions.read(_HEAD.size):
        question = json.loads(questions.read(_HEAD.unpack(head)[0]))
        _grant_cpu()
        _send(answers, _answer(question["function"], question["argument"]))


def _answer(name: str, argument: object) -> dict[str, object]:
    module, _, attribute = name.partition(":")
    try:
        function: Callable[[object], object] = getattr(importlib.import_module(module), attribute)
        return {"value": function(argument)}
    except MemoryError:
        return {"memory": True}
    except VoleError as error:
        return {"refused": type(error).__name__, "sentence": error.sentence, "code": error.code}
    except Exception as error:
        return {"bug": f"{type(error).__name__}: {error}"[: limits.PROBLEM_CHARS_MAX]}


def _send(answers: BinaryIO, value: dict[str, object]) -> None:
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    answers.write(_HEAD.pack(len(raw)) + raw)
    answers.flush()


def _grant_cpu() -> None:
    """OFFLOAD_CPU_S more seconds than used so far; whole seconds, rounded so that it is never more."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime + limits.OFFLOAD_CPU_S)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def _confine(*, may_read: bool) -> list[str]:
    """Take off rights; what could not be taken off, in words for `doctor`."""
    missing: list[str] = []
    if not may_read and not _not_root():
        missing.append("user: root may not become another user here; run the server as one")
    if not _own_network():
        missing.append("network: the kernel gives no network namespace of its own")
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))
    if not _bounded_memory():
        missing.append("memory: the kernel does not bound the address space")
    if not may_read:
        opened = os.dup(0)  # the first free number: one more cannot be opened, no file and no socket
        os.close(opened)
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened, opened))
    if _can_fork():
        missing.append("processes: the limit on processes does not hold for root; run the server as another user")
    return missing


def _not_root() -> bool:
    """Become nobody: limits on processes do not hold for root, and every file is open to it."""
    try:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    except OSError:
        return False
    return True


def _own_network() -> bool:
    unshare = getattr(ctypes.CDLL(None), "unshare", None)
    return unshare is not None and (unshare(_NEW_USER | _NEW_NETWORK) == 0 or unshare(_NEW_NETWORK) == 0)


def _bounded_memory() -> bool:
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limits.OFFLOAD_MEMORY_BYTES, limits.OFFLOAD_MEMORY_BYTES))
    except (OSError, ValueError):
        return False
    return True


def _can_fork() -> bool:
    try:
        child = os.fork()
    except OSError:
        return False
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return True
