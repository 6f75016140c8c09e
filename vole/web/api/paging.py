"""Lists in pages: `limit` items from behind `cursor` on. A cursor is opaque and names a place, never a count."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from vole.base import limits
from vole.base.errors import Invalid
from vole.web.pages.visit import Visit

_CURSOR_CHARS_MAX = 2_048  # of a commit id and the longest ref name

Key = tuple[int | str, ...]


@dataclass(frozen=True)
class Asked:
    """The page that was asked for: at most `limit` items behind `after`; None: from the beginning."""

    what: str
    limit: int
    after: Key | None

    def next(self, key: Key | None) -> str | None:
        """The cursor of the page behind `key`; None where there is nothing more."""
        if key is None:
            return None
        return base64.urlsafe_b64encode(json.dumps([self.what, *key]).encode()).decode().rstrip("=")


def asked(visit: Visit, what: str, *kinds: type) -> Asked:
    """What the query says of pages of `what`, whose keys are of `kinds`. Raises Invalid."""
    query = visit.request.query_params
    text = query.get("limit", str(limits.LIST_MAX))
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or not 1 <= int(text) <= limits.LIST_MAX:
        raise Invalid(f"limit: a number from 1 to {limits.LIST_MAX} (LIST_MAX)")
    given = query.get("cursor")
    return Asked(what, int(text), None if given is None else _key(given, what, kinds))


def _key(text: str, what: str, kinds: tuple[type, ...]) -> Key:
    try:
        if len(text) > _CURSOR_CHARS_MAX:
            raise ValueError
        found, *key = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
        fits = found == what and [type(part) for part in key] == list(kinds)
        if not fits or any(isinstance(part, int) and not -1 <= part < 1 << 63 for part in key):
            raise ValueError
    except (ValueError, TypeError, RecursionError, binascii.Error):
        raise Invalid("cursor: none that this list gave", next_step="leave it out to begin again") from None
    return tuple(key)
