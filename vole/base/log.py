"""Structured events on the standard library: `log.info("job leased", job=…, epoch=…)`. No secret, no log content."""

from __future__ import annotations

import logging


class Log:
    """Events of one part. Fields travel in `record.fields`; `telemetry` gives them their form."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        self._logger.debug(event, extra={"fields": fields})

    def info(self, event: str, **fields: object) -> None:
        self._logger.info(event, extra={"fields": fields})

    def warning(self, event: str, **fields: object) -> None:
        self._logger.warning(event, extra={"fields": fields})

    def error(self, event: str, *, trace: BaseException | None = None, **fields: object) -> None:
        self._logger.error(event, exc_info=trace, extra={"fields": fields})


def get(name: str) -> Log:
    """The log of a part, named as its package (`vole.ssh`)."""
    return Log(name)
