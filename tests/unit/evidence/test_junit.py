"""Test reports as programs write them, and as nobody should."""

from __future__ import annotations

import base64

import pytest

from vole.base import limits
from vole.evidence import junit
from vole.wire import codec
from vole.wire.records import FailedTest, ReportedTests

PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4" time="0.5">
<testcase classname="tests.test_sum" name="test_ok" time="0.001" />
<testcase classname="tests.test_sum" name="test_no[1-&lt;2&gt;]" time="0.002">
<failure message="assert 1 == 2">def test_no():
&gt;   assert 1 == 2
E   assert 1 == 2</failure><system-out>seen</system-out></testcase>
<testcase classname="tests.test_sum" name="test_skip" time="0">
<skipped type="pytest.skip" message="no">x</skipped></testcase>
<testcase classname="" name="tests.test_broken" time="0">
<error message="collection failure"><![CDATA[SyntaxError <here>]]></error></testcase>
</testsuite></testsuites>"""
SUREFIRE = """<testsuite xmlns:xsi="urn:schema" name="org.x.SumTest" time="1,234.5" tests="2">
  <properties><property name="a" value="b"/></properties>
  <testcase name="flaky" classname="org.x.SumTest" time="1,000.25">
    <flakyFailure message="first"><stackTrace>x</stackTrace></flakyFailure></testcase>
  <testcase name="rerun" classname="org.x.SumTest" time="0.5"><failure type="java.lang.AssertionError">trace</failure>
    <rerunFailure message="again">y</rerunFailure></testcase>
</testsuite>"""
GTEST = """<testsuites tests="3" failures="1"><testsuite name="Sum">
<testcase name="Two" status="run" result="completed" time="0." classname="Sum">
<failure message="a.cc:1&#x0A;no" type=""><![CDATA[a.cc:1]]></failure>
<failure message="a.cc:2" type=""><![CDATA[a.cc:2]]></failure>
</testcase><testcase name="DISABLED_x" status="notrun" result="suppressed" time="0" classname="Sum"/>
</testsuite></testsuites>"""
GO = """<testsuites><testsuite name="example.com/sum" time="0.1"><testsuite name="inner">
<testcase classname="" name="TestSum" time="0.100"></testcase></testsuite></testsuite></testsuites>"""


def told(*reports: str | bytes) -> ReportedTests:
    given = [
        {"path": f"{at}.xml", "data": base64.b64encode(one.encode() if isinstance(one, str) else one).decode()}
        for at, one in enumerate(reports)
    ]
    return codec.from_json(ReportedTests, codec.parse(codec.canonical(junit.read({"files": given}))))


def test_a_report_of_pytest_says_what_failed_and_why():
    said = told(PYTEST)

    assert (said.passed, said.failed, said.errors, said.skipped, said.time_us) == (1, 1, 1, 1, 3_000)
    assert said.failures == (
        FailedTest(
            "0.xml", "tests.test_sum", "test_no[1-<2>]", "failure", "assert 1 == 2",
            "def test_no():\n>   assert 1 == 2\nE   assert 1 == 2",
        ),
        FailedTest("0.xml", "pytest", "tests.test_broken", "error", "collection failure", "SyntaxError <here>"),
    )  # fmt: skip
    assert said.problems == ()


def test_reruns_commas_and_types_of_surefire_are_read():
    said = told(SUREFIRE)

    assert (said.passed, said.failed, said.time_us) == (1, 1, 1_000_750_000)
    assert [(one.message, one.text) for one in said.failures] == [("java.lang.AssertionError", "trace")]


def test_one_case_with_two_failures_fails_once_and_a_disabled_one_is_skipped():
    said = told(GTEST)

    assert (said.passed, said.failed, said.skipped) == (0, 1, 1)
    assert [one.text for one in said.failures] == ["a.cc:1a.cc:2"]


def test_several_reports_are_counted_together_and_a_broken_one_does_not_hide_the_others():
    said = told(GO, b"<html/>", PYTEST, GO)

    assert (said.passed, said.failed) == (3, 1)
    assert said.problems == (
        "1.xml: line 1: this is no JUnit report: it begins with <html>, not <testsuites> or <testsuite>",
    )
    assert said.failures[0].file == "2.xml"


UNKNOWN = "line 1: its encoding is not known here; write it in UTF-8"


def cases(count: int, inside: str = "") -> str:
    return "<testsuite>" + f"<testcase name='t'>{inside}</testcase>" * count + "</testsuite>"


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (b"", "line 1: no element found"),
        (b"<testsuite>\0</testsuite>", "line 1: not well-formed (invalid token)"),
        (b"<testsuite><testcase>\xff</testcase></testsuite>", "line 1: not well-formed (invalid token)"),
        (b"<testsuite>\n<testcase>", "line 2: no element found"),
        (b"<testsuite/><testsuite/>", "line 1: junk after document element"),
        (b'<?xml version="1.0" encoding="x-none"?><testsuite/>', UNKNOWN),
        (b'<?xml version="1.0" encoding="big5"?><testsuite/>', UNKNOWN),
        (b'<?xml version="1.0" encoding="zlib"?><testsuite/>', UNKNOWN),
        (b"<testsuite>&bomb;</testsuite>", "line 1: undefined entity"),
        (
            b'<!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>\n<testsuite>&b;</testsuite>',
            "line 1: a document type is declared; a report needs none, and entities are not read",
        ),
        (
            b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><testsuite/>',
            "line 1: a document type is declared; a report needs none, and entities are not read",
        ),
        ("<testsuite>" * 101, "line 1: more than 100 elements in each other (REPORT_DEPTH_MAX)"),
        (
            cases(limits.REPORT_ELEMENTS_MAX),
            "line 1: more than 200000 elements (REPORT_ELEMENTS_MAX)",
        ),
    ],
)
def test_a_report_that_breaks_the_rules_is_a_sentence(report, why):
    assert told(report).problems == (f"0.xml: {why}",)


def test_what_is_kept_is_bounded_and_the_rest_is_counted():
    said = told(
        cases(limits.REPORT_FAILURES_MAX + 5, "<failure message='" + "m" * 5_000 + "'>" + "x" * 9_000 + "</failure>")
    )

    assert said.failed == limits.REPORT_FAILURES_MAX + 5
    assert len(said.failures) == limits.REPORT_FAILURES_MAX
    assert {(len(one.message), len(one.text)) for one in said.failures} == {
        (limits.ANNOTATION_CHARS_MAX, limits.REPORT_TEXT_CHARS_MAX)
    }


@pytest.mark.parametrize("time", ["", "NaN", "inf", "-1", "1e999", "a day", "9" * 400, "1:02"])
def test_what_is_no_time_takes_none(time):
    assert told(f"<testsuite><testcase name='a' time='{time}'/></testsuite>").time_us == 0
