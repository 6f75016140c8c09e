"""Whatever a job writes as a test report, reading it ends in counts and sentences."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.evidence.test_junit import GTEST, PYTEST, SUREFIRE, told
from vole.base import limits

TAGS = st.sampled_from(
    ["testsuites", "testsuite", "testcase", "failure", "error", "skipped", "x:failure", "system-out"]
)
TEXTS = st.text(st.characters(exclude_characters="<&\"'\0", max_codepoint=0x2FFF), max_size=20)


@st.composite
def trees(draw, depth=4):
    tag = draw(TAGS)
    said = {name: draw(TEXTS) for name in draw(st.sets(st.sampled_from(["name", "time", "message", "status"])))}
    inner = "" if depth == 0 else "".join(draw(st.lists(st.one_of(TEXTS, trees(depth=depth - 1)), max_size=4)))
    attributes = "".join(f" {name}='{text}'" for name, text in said.items())
    return f"<{tag}{attributes}>{inner}</{tag}>"


@given(st.one_of(trees(), st.binary(max_size=200)))
@example("<testsuite><testcase><testcase><failure/></testcase></testcase></testsuite>")
def test_any_report_is_counted_or_a_sentence(report):
    said = told(report)

    assert len(said.problems) <= 1
    assert len(said.failures) <= min(said.failed + said.errors, limits.REPORT_FAILURES_MAX)
    if not said.problems:
        text = report if isinstance(report, str) else report.decode("latin-1")
        assert said.passed + said.failed + said.errors + said.skipped <= text.count("<testcase")


@given(st.sampled_from([PYTEST, SUREFIRE, GTEST]), st.data())
def test_a_report_cut_anywhere_says_so_and_keeps_what_came_before(report, data):
    raw = report.encode()
    at = data.draw(st.integers(0, len(raw) - 2))

    cut, whole = told(raw[:at]), told(raw)

    assert len(cut.problems) == 1
    assert cut.failures == whole.failures[: len(cut.failures)]
    assert cut.passed <= whole.passed
