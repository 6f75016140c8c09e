"""JUnit's XML as test results. Runs in an offloaded child: a report is whatever a job wrote.

The dialects of pytest, surefire, gotestsum, gtest and jest have in common what is read here: suites, cases, and in a
case what became of it. A report that cannot be read is a sentence beside the results, never an error.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn
from xml.parsers import expat

from vole.base import limits
from vole.base.clock import seconds
from vole.base.errors import Invalid
from vole.wire import codec
from vole.wire.records import FailedTest, ReportedTests

_ROOTS = ("testsuites", "testsuite")
_NOT_RUN = frozenset({"notrun", "disabled", "skipped", "suppressed", "ignored"})  # `status` or `result` of a case
_GRAVITY = ("passed", "skipped", "failure", "error")  # a case that says more than one thing is the last of them


def read(given: Mapping[str, Any]) -> Any:
    """What the `files` (`path`, and `data` in base64) say together: a `wire.records.ReportedTests` as JSON."""
    results = _Results()
    for file in given["files"]:
        report = _Report(file["path"], results)
        try:
            report.read(base64.b64decode(file["data"]))
        except Invalid as error:
            results.problems.append(f"{file['path']}: {error.sentence}")
    return codec.to_json(results.whole())


class _Results:
    """What all reports of an attempt say."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.time_us = 0
        self.failures: list[FailedTest] = []
        self.problems: list[str] = []

    def whole(self) -> ReportedTests:
        count = self.counts
        return ReportedTests(
            passed=count["passed"],
            failed=count["failure"],
            errors=count["error"],
            skipped=count["skipped"],
            time_us=min(self.time_us, seconds(limits.REPORT_TIME_S_MAX)),
            failures=tuple(self.failures),
            problems=tuple(self.problems),
        )


class _Case:
    """A test case while it is read."""

    def __init__(self, suite: str, attributes: Mapping[str, str]) -> None:
        said = attributes.get("status", attributes.get("result", "")).lower()
        self.suite = attributes.get("classname", "") or suite
        self.name = attributes.get("name", "")
        self.time_us = _time(attributes.get("time", ""))
        self.kind = "skipped" if said in _NOT_RUN else "passed"
        self.message = ""
        self.text: list[str] = []

    def became(self, kind: str, attributes: Mapping[str, str]) -> None:
        self.kind = max(self.kind, kind, key=_GRAVITY.index)
        self.message = self.message or attributes.get("message", "") or attributes.get("type", "")


class _Report:
    """One file. What it has said until it breaks the rules counts."""

    def __init__(self, path: str, results: _Results) -> None:
        self._path = path
        self._results = results
        self._open: list[str] = []  # elements
        self._suites: list[str] = []  # their names
        self._elements = 0
        self._case: _Case | None = None
        self._room = 0  # characters of text still taken in
        self._xml = expat.ParserCreate()
        self._xml.buffer_text = True
        self._xml.StartElementHandler = self._start
        self._xml.EndElementHandler = self._end
        self._xml.CharacterDataHandler = self._text
        # Whatever could name another file or grow is declared in a document type.
        self._xml.StartDoctypeDeclHandler = self._doctype

    def read(self, data: bytes) -> None:
        """Raises Invalid, with the line."""
        try:
            self._xml.Parse(data, True)
        except expat.ExpatError as error:
            raise Invalid(f"line {error.lineno}: {expat.ErrorString(error.code)}") from None
        except (LookupError, ValueError, OSError):
            raise Invalid("line 1: its encoding is not known here; write it in UTF-8") from None

    def _doctype(self, *_: object) -> NoReturn:
        self._refuse("a document type is declared; a report needs none, and entities are not read")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.rpartition(":")[2]
        self._elements += 1
        if not self._open and tag not in _ROOTS:
            self._refuse(f"this is no JUnit report: it begins with <{name[:40]}>, not <testsuites> or <testsuite>")
        if len(self._open) >= limits.REPORT_DEPTH_MAX:
            self._refuse(f"more than {limits.REPORT_DEPTH_MAX} elements in each other (REPORT_DEPTH_MAX)")
        if self._elements > limits.REPORT_ELEMENTS_MAX:
            self._refuse(f"more than {limits.REPORT_ELEMENTS_MAX} elements (REPORT_ELEMENTS_MAX)")
        parent = self._open[-1] if self._open else ""
        self._open.append(tag)
        if tag in _ROOTS:
            self._suites.append(attributes.get("name", ""))
        elif tag == "testcase" and self._case is None:
            self._case = _Case(self._suites[-1], attributes)
        elif self._case is not None and parent == "testcase" and tag in _GRAVITY:
            self._case.became(tag, attributes)
            if tag != "skipped":
                self._room = limits.REPORT_TEXT_CHARS_MAX - sum(map(len, self._case.text))

    def _end(self, _: str) -> None:
        tag = self._open.pop()
        self._room = 0
        if tag in _ROOTS:
            self._suites.pop()
        elif tag == "testcase" and "testcase" not in self._open and self._case is not None:
            self._count(self._case)
            self._case = None

    def _text(self, text: str) -> None:
        if self._room > 0 and self._case is not None:
            self._case.text.append(text[: self._room])
            self._room -= len(text)

    def _count(self, case: _Case) -> None:
        results = self._results
        results.counts[case.kind] += 1
        results.time_us += case.time_us
        if case.kind in ("failure", "error") and len(results.failures) < limits.REPORT_FAILURES_MAX:
            results.failures.append(
                FailedTest(
                    file=self._path,
                    suite=case.suite[: limits.TEXT_CHARS_MAX],
                    name=case.name[: limits.TEXT_CHARS_MAX],
                    kind="error" if case.kind == "error" else "failure",
                    message=case.message[: limits.ANNOTATION_CHARS_MAX],
                    text="".join(case.text).strip("\n"),
                )
            )

    def _refuse(self, why: str) -> NoReturn:
        raise Invalid(f"line {self._xml.CurrentLineNumber}: {why}")


def _time(text: str) -> int:
    """Microseconds; 0 for what is no time. Some write thousands with a comma."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return 0
    return seconds(value) if math.isfinite(value) and 0 < value < limits.REPORT_TIME_S_MAX else 0
