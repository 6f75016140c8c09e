"""How the web door spells a kind of error. What is no VoleError is our fault: it is logged, people see a reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vole.base import log
from vole.base.entropy import Entropy
from vole.base.errors import Conflict, Denied, Exhausted, Fenced, Gone, Invalid, NotFound, Unavailable, VoleError
from vole.base.escape import visible
from vole.base.limits import PROBLEM_CHARS_MAX, PROBLEMS_SHOWN_MAX

STATUS: dict[type[VoleError], int] = {
    Invalid: 400,
    Denied: 403,
    NotFound: 404,
    Gone: 410,
    Conflict: 409,
    Fenced: 409,
    Exhausted: 429,
    Unavailable: 503,
}
_HEADINGS = {
    400: "That was no question for this server",
    403: "That is not yours to do",
    404: "Nothing here",
    405: "Not that way",
    409: "Someone was first",
    410: "Not there any more",
    429: "Too much at once",
    500: "That is our fault",
    503: "Not just now",
}
# The same words for what is not there and for what is not theirs to see: they must not differ in a byte.
_NOTHING = (
    "There is no such page, or it is not yours to see.",
    "A private repository shows itself to who is logged in.",
)
RETRY_AFTER_S = 5

_log = log.get("vole.web")


class Left(Exception):
    """The client left; nobody waits for an answer."""


@dataclass(frozen=True)
class RefusalPage:
    """What a person sees instead of the page they asked for."""

    template: ClassVar[str] = "site/refusal.html"
    status: int
    lines: tuple[str, ...]

    @property
    def title(self) -> str:
        return _HEADINGS.get(self.status, "No")

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": str(RETRY_AFTER_S)} if self.status in (429, 503) else {}

    @property
    def text(self) -> str:
        return "\n".join((self.title, *self.lines, ""))


def refusal(error: Exception, entropy: Entropy, path: str) -> RefusalPage:
    """The page for `error`."""
    if not isinstance(error, VoleError):
        reference = entropy.token()[:12]
        _log.error("a page failed", reference=reference, path=visible(path, PROBLEM_CHARS_MAX), trace=error)
        return RefusalPage(500, (f"The server's log has it under {reference}.",))
    status = STATUS[type(error)] if type(error) in STATUS else _inherited(error)
    if status == 404:
        return RefusalPage(404, _NOTHING)
    shown = [visible(line, PROBLEM_CHARS_MAX) for line in error.lines[:PROBLEMS_SHOWN_MAX]]
    return RefusalPage(status, tuple(shown))


def _inherited(error: VoleError) -> int:
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 400)
