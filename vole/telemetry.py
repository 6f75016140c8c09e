"""The form of the server's log lines, JSON or key=value on a terminal, and its metrics. Keeps no file.

Times are UTC with microseconds. Every text is escaped and bounded, for some of it is chosen by attackers.
"""

from __future__ import annotations

import datetime
import logging
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import structlog

from vole.base import limits
from vole.base.escape import visible

# A field of such a name would be a secret; the value is dropped whoever wrote the call.
SECRET_FIELDS = frozenset({"token", "secret", "password", "cookie", "authorization", "private_key", "link"})
_LIBRARIES = ("asyncio", "asyncssh", "uvicorn", "multipart", "python_multipart")


def set_up(stream: TextIO = sys.stderr, *, level: int = logging.INFO) -> None:
    """Send every event of this process to `stream`. Libraries speak from warnings on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter(terminal=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)


def formatter(*, terminal: bool) -> logging.Formatter:
    """Lines for a person at a terminal, or for a machine."""
    render = structlog.processors.LogfmtRenderer() if terminal else structlog.processors.JSONRenderer()
    return structlog.stdlib.ProcessorFormatter(processors=[_event, render])


def _event(_logger: object, _method: str, event: structlog.typing.EventDict) -> Mapping[str, object]:
    record: logging.LogRecord = event["_record"]
    moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    line: dict[str, object] = {
        "at": f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z",
        "level": record.levelname.lower(),
        "part": record.name,
        "event": visible(record.getMessage(), limits.LOG_VALUE_CHARS_MAX),
    }
    for name, value in getattr(record, "fields", {}).items():
        line[name] = "(secret)" if name in SECRET_FIELDS else _plain(value)
    _, error, _ = event.get("exc_info") or (None, None, None)
    if error is not None:
        trace = "".join(traceback.format_exception(error))[-limits.LOG_TRACE_CHARS_MAX :]
        line["trace"] = "\n".join(visible(part) for part in trace.splitlines())
    return line


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return visible(str(value), limits.LOG_VALUE_CHARS_MAX)


# ---- Metrics

# Both are waits of people: a tenth of a second is instant, a day is the timeout of a queued job.
_WAIT_BUCKETS_S = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400)
_HOOK_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60)


@dataclass(frozen=True)
class Reading:
    """What is read at the moment of a scrape. Keys are states and names of accounts, never a runner's own words."""

    jobs: Mapping[str, int]
    waits_s: Sequence[float]  # of the leases granted since the last scrape
    last_seen_s: Mapping[str, float]
    disk_free_bytes: int


class Metrics:
    """The measures of one server, in a registry of its own. Made only where somebody asked for them."""

    def __init__(self) -> None:
        # It costs 30 ms: a server without metrics does not load it.
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram  # noqa: PLC0415

        self._registry = CollectorRegistry()
        at: dict[str, Any] = {"registry": self._registry}
        self._jobs = Gauge("vole_jobs", "Unfinished jobs by state.", ["state"], **at)
        self._wait = Histogram("vole_queue_wait_seconds", "From leasable to leased.", buckets=_WAIT_BUCKETS_S, **at)
        self._wakeups = Counter("vole_lease_wakeups", "Looks of the dispatcher for parked requests.", **at)
        self._hook = Histogram(
            "vole_hook_seconds", "From the question of a push's hook to its answer.", buckets=_HOOK_BUCKETS_S, **at
        )
        self._seen = Gauge(
            "vole_runner_last_seen_seconds", "Since any runner of the account was last heard.", ["account"], **at
        )
        self._disk = Gauge("vole_disk_free_bytes", "Free on the disk of the server's folder.", **at)

    def woke(self) -> None:
        """The dispatcher looks."""
        self._wakeups.inc()

    def answered(self, seconds: float) -> None:
        """A hook has its answer."""
        self._hook.observe(seconds)

    def text(self, read: Reading) -> bytes:
        """Everything, in the text form of Prometheus."""
        from prometheus_client import generate_latest  # noqa: PLC0415

        for wait in read.waits_s:
            self._wait.observe(wait)
        self._disk.set(read.disk_free_bytes)
        for state, count in read.jobs.items():
            self._jobs.labels(state).set(count)
        self._seen.clear()  # an account that is gone has no line
        for account, seconds in read.last_seen_s.items():
            self._seen.labels(account).set(seconds)
        return generate_latest(self._registry)


MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
