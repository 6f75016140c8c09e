"""What offload children are asked to do in tests."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import tempfile
import time

from vole.base.errors import Invalid


def double(argument: int) -> int:
    return argument * 2


def source(module: str) -> str | None:
    return sys.modules[module].__file__


def pid(_: object) -> int:
    return os.getpid()


def refuse(argument: str) -> None:
    raise Invalid(argument, code="bad_thing")


def crash(argument: str) -> None:
    raise KeyError(argument)


def die(number: int) -> None:
    os.kill(os.getpid(), number)


def leave(status: int) -> None:
    os._exit(status)


def spin(_: object) -> None:
    while True:
        pass


def processor_left(burn: float) -> float:
    """Seconds that this call may use, as it begins; then it uses `burn` of them."""
    used = time.process_time()
    left = resource.getrlimit(resource.RLIMIT_CPU)[0] - used
    while time.process_time() < used + burn:
        pass
    return left


def hang(_: object) -> None:
    signal.pause()


def swallow(size: int) -> int:
    return len(bytearray(size))


def large(size: int) -> str:
    return "x" * size


def shout(text: str) -> str:
    print(text, flush=True)
    os.write(1, text.encode())
    return text


def rights(_: object) -> dict[str, str]:
    """What each deed that a parser has no use for comes to: `done`, or the error."""
    deeds = {
        "read": lambda: open("/etc/hostname", "rb"),  # noqa: SIM115
        "write": lambda: tempfile.TemporaryFile(dir="/tmp"),  # noqa: SIM115
        "socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "fork": _fork,
        "environment": lambda: _must_be_empty(dict(os.environ)),
    }
    return {name: _outcome(deed) for name, deed in deeds.items()}


def network(_: object) -> list[str]:
    """The interfaces this process sees."""
    return [name for _, name in socket.if_nameindex()]


def identity(_: object) -> list[int]:
    return [os.geteuid(), os.getpgid(0) == os.getpid()]


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)
    os.wait()


def _must_be_empty(environment: dict[str, str]) -> None:
    if environment.keys() - {"LC_CTYPE"}:
        raise OSError(f"{sorted(environment)}")


def _outcome(deed: object) -> str:
    assert callable(deed)
    try:
        deed()
    except OSError as error:
        return type(error).__name__ + (f" {error.errno}" if error.errno else "")
    return "done"
