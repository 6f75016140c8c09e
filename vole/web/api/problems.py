"""The API's column of the table of refusals: RFC 9457 problems. What is not theirs to see is what is not there."""

from __future__ import annotations

import json
from http import HTTPStatus

from starlette.responses import Response

from vole.base.entropy import Entropy
from vole.base.errors import Denied, VoleError
from vole.base.escape import visible
from vole.base.limits import PROBLEM_CHARS_MAX
from vole.web.refusals import RefusalPage, refusal

BASE = "/api/v1"
MEDIA_TYPE = "application/problem+json"
UNKNOWN_TOKEN = "unknown_token"  # noqa: S105  a code, not a secret
_SEND_TOKEN = "a private repository shows itself to a token that may read it: Authorization: Bearer TOKEN"  # noqa: S105
_CHALLENGE = {"www-authenticate": 'Bearer realm="vole"'}


def within_api(path: str) -> bool:
    """Whether refusals at this path are problems."""
    return path == BASE or path.startswith(BASE + "/")


def problem(error: Exception, entropy: Entropy, path: str) -> Response:
    """The answer for `error`. Every 404 has the same bytes, whatever it is that is not there."""
    page = refusal(error, entropy, path)
    if page.status == 404:
        return missing()
    if not isinstance(error, VoleError):
        return _answer(page, "internal", page.lines[0], None, ())
    if isinstance(error, Denied) and error.code == UNKNOWN_TOKEN:
        page = RefusalPage(401, page.lines)
    next_step = error.next_step and visible(error.next_step, PROBLEM_CHARS_MAX)
    problems = page.lines[: len(getattr(error, "problems", ()))]
    return _answer(page, error.code, visible(error.sentence, PROBLEM_CHARS_MAX), next_step, problems)


def missing() -> Response:
    """Nothing is there, or it is not theirs to see."""
    page = RefusalPage(404, ())
    return _answer(page, "not_found", "there is no such thing, or it is not yours to see", _SEND_TOKEN, ())


def body(status: int, code: str, detail: str) -> bytes:
    """A problem of the edge: what is refused before anything looks at it."""
    return _encoded({"type": _type(code), "title": HTTPStatus(status).phrase, "status": status, "detail": detail})


def _answer(page: RefusalPage, code: str, detail: str, next_step: str | None, problems: tuple[str, ...]) -> Response:
    said: dict[str, object] = {
        "type": _type(code),
        "title": HTTPStatus(page.status).phrase if page.status == 401 else page.title,
        "status": page.status,
        "detail": detail,
    }
    if next_step:
        said["next_step"] = next_step
    if problems:
        said["problems"] = list(problems)
    headers = page.headers | (_CHALLENGE if page.status == 401 else {}) | {"vary": "Cookie, Authorization"}
    return Response(_encoded(said), page.status, headers, MEDIA_TYPE)


def _type(code: str) -> str:
    return f"urn:vole:problem:{visible(code, 80)}"


def _encoded(said: dict[str, object]) -> bytes:
    return json.dumps(said, indent=1).encode() + b"\n"
