"""The form of the server's log lines: JSON, or key=value on a terminal. Writes to stderr; keeps no file.

Times are UTC with microseconds. Every text is escaped and bounded, for some of it is chosen by attackers.
"""

from __future__ import annotations

import datetime
import logging
import sys
import traceback
from collections.abc import Mapping
from typing import TextIO

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
