"""The forms of version 1, as docs/records.md has them: which fields a document has, and what may stand in each.

A form that admits more than is written today would admit what somebody else wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from vole.base.errors import Invalid

Form = Callable[[Any, str], None]
NUMBER_BOUND = 1 << 53


def read(data: bytes) -> dict[str, Any]:
    """The document in `data`. Raises Invalid for bytes in any other form than the canonical one of version 1."""
    try:
        value = json.loads(data.decode("utf-8"))
        again = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise Invalid("no JSON in UTF-8") from None
    if again != data:
        raise Invalid("JSON that is not canonical: other bytes say the same")
    document: dict[str, Any] = value if isinstance(value, dict) else {}
    _exactly(*_PURPOSES)(purpose := document.get("purpose"), "purpose")
    _form(purpose=_text, v=_exactly(1), record=_PURPOSES[str(purpose)])(document, "document")
    return document


def _text(value: Any, where: str) -> None:
    if type(value) is not str:
        raise Invalid(f"{where} is no text")


def _number(value: Any, where: str) -> None:
    if type(value) is not int or abs(value) >= NUMBER_BOUND:
        raise Invalid(f"{where} is no whole number below 2^53")


def _flag(value: Any, where: str) -> None:
    if type(value) is not bool:
        raise Invalid(f"{where} is neither true nor false")


def _scalar(value: Any, where: str) -> None:
    if type(value) is int:
        _number(value, where)
    elif type(value) not in (str, bool):
        raise Invalid(f"{where} is neither text nor number nor flag")


def _matching(pattern: str, what: str) -> Form:
    compiled = re.compile(pattern)

    def check(value: Any, where: str) -> None:
        if type(value) is not str or not compiled.fullmatch(value):
            raise Invalid(f"{where} is no {what}")

    return check


def _exactly(*members: int | str) -> Form:
    def check(value: Any, where: str) -> None:
        if type(value) is not type(members[0]) or value not in members:
            raise Invalid(f"{where} is none of {', '.join(map(str, members))}")

    return check


def _positive(value: Any, where: str) -> None:
    _number(value, where)
    if value < 1:
        raise Invalid(f"{where} is not 1 or more")


def _list(member: Form) -> Form:
    def check(value: Any, where: str) -> None:
        if type(value) is not list:
            raise Invalid(f"{where} is no list")
        for at, item in enumerate(value):
            member(item, f"{where}[{at}]")

    return check


def _map(member: Form, names: frozenset[str] | None = None) -> Form:
    def check(value: Any, where: str) -> None:
        if type(value) is not dict:
            raise Invalid(f"{where} is no object")
        for name, item in value.items():
            if names is not None and name not in names:
                raise Invalid(f"{where} has the unknown field {name!r}")
            member(item, f"{where}.{name}")

    return check


def _form(may: Mapping[str, Form] | None = None, **must: Form) -> Form:
    """An object of the fields `must`, and some of `may`."""
    known = {**must, **(may or {})}

    def check(value: Any, where: str) -> None:
        if type(value) is not dict:
            raise Invalid(f"{where} is no object")
        if unknown := value.keys() - known.keys():
            raise Invalid(f"{where} has the unknown field {min(unknown)!r}")
        if missing := must.keys() - value.keys():
            raise Invalid(f"{where} lacks the field {min(missing)!r}")
        for name, item in value.items():
            known[name](item, f"{where}.{name}")

    return check


_NAME = _matching(r"[a-z0-9][a-z0-9._-]{0,62}", "name")
_JOB = _matching(r"[A-Za-z_][A-Za-z0-9_-]{0,62}(\.[1-9][0-9]{0,3})?", "job key")
_OBJECT = _matching(r"[0-9a-f]{40}", "object id")
_DIGEST = _matching(r"[0-9a-f]{64}", "SHA-256")
_ID = _matching(r"0|[1-9][0-9]{0,19}", "id")
_ENDED = _exactly("success", "failure", "cancelled", "timed_out", "expired", "skipped", "errored", "lost")

_RUNNER = _form(account=_NAME, key=_text, name=_text, version=_text, os=_text, arch=_text)
_OUTCOME = _form(conclusion=_ENDED, reason=_text, marked=_flag)
_ATTEMPT = _form(
    repository=_NAME, run=_positive, job=_JOB, attempt=_positive,
    commit=_OBJECT, workflow_path=_text, workflow_blob=_OBJECT, job_digest=_DIGEST, labels=_list(_text),
    runner=_RUNNER, conclusion=_ENDED, cause=_text, detail=_text,
    steps=_list(_form(
        number=_number, conclusion=_ENDED, name=_text, continued=_flag,
        may={"exit_code": _number, "signal": _text, "started_us": _number, "finished_us": _number},
    )),
    leased_at=_number, started_at=_number, ended_at=_number,
    log=_form(
        bytes=_number, sha256=_DIGEST, state=_exactly("complete", "incomplete"), truncated=_flag,
        may={"declared_bytes": _number, "declared_sha256": _text},
    ),
    artifacts=_list(_form(name=_text, path=_text, size=_number, sha256=_DIGEST, may={"expires_at": _number})),
    marks=_list(_form(
        offset=_number, time_us=_number, step=_number, kind=_exactly("begin", "end", "skipped"), title=_text,
    )),
    annotations=_list(_form(level=_exactly("notice", "warning", "error"), message=_text, file=_text, line=_number)),
    may={
        "outcome": _OUTCOME, "summary": _text, "journal": _text,
        "tests": _form(
            passed=_number, failed=_number, errors=_number, skipped=_number, time_us=_number,
            failures=_list(_form(
                file=_text, suite=_text, name=_text, kind=_exactly("failure", "error"), message=_text, text=_text,
            )),
            problems=_list(_text),
        ),
    },
)  # fmt: skip
_TOLD = frozenset(
    {"to", "conclusion", "reason", "cause", "why", "runner", "losses", "marked", "number", "ref", "commit", "workflow"}
)
_RUN = _form(
    id=_ID, repository=_NAME, run=_positive,
    event=_form(
        name=_exactly("push", "manual", "schedule"), ref=_text, ref_name=_text, ref_type=_exactly("branch", "tag"),
        after=_OBJECT, actor=_text, forced=_flag, message=_text, inputs=_map(_text), may={"before": _OBJECT},
    ),
    ref=_text, commit=_OBJECT, workflow=_text, workflow_path=_text, workflow_blob=_OBJECT, actor=_text,
    attempt=_positive, conclusion=_ENDED, reason=_text, created_at=_number, finished_at=_number,
    jobs=_list(_form(
        id=_ID, key=_JOB, job=_text, name=_text, digest=_DIGEST, labels=_list(_text), needs=_list(_text),
        timeout_us=_number, timeout_from=_text, on_lost=_text, continue_on_error=_flag, outcome=_OUTCOME,
        epoch=_number, epochs=_list(_positive), losses=_number, enqueued_at=_number, finished_at=_number,
        leases=_list(_form(
            epoch=_positive, runner=_RUNNER, leased_at=_number, ended_at=_number, cause=_text, detail=_text
        )),
        may={"queued_at": _number, "started_at": _number, "carried_from": _positive},
    )),
    events=_list(_form(
        id=_ID, at=_number, kind=_text, detail=_map(_scalar, _TOLD), may={"job": _JOB, "epoch": _number}
    )),
    left_out=_number,
    may={"start": _form(id=_ID, at=_number, may={"account": _NAME, "due_at": _number}), "rerun_of": _positive},
)  # fmt: skip
_PURPOSES: dict[str, Form] = {"vole attempt record": _ATTEMPT, "vole run record": _RUN}
