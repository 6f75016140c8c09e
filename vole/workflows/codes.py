"""The table of problem codes: stable numbers, each with what it means, a file that has it and the same file put right.

The documentation prints this table, and a test runs every example.
"""

from __future__ import annotations

from dataclasses import dataclass

# How an example writes what cannot stand in a page: these words become bytes.
MARKS = {
    "<FF>": b"\xff",
    "<CR>": b"\r",
    "<ESC>": b"\x1b",
    "<70,000 x>": b"x" * 70_000,
    "<200 KiB of x>": b"x" * 3_200 + b"\n",
}
LINK = "<a symlink to ../../ci.yml>"
KNOWN_LABELS = frozenset(("linux", "arm64"))  # in the examples

_JOB = "jobs:\n  test:\n    steps:\n      - run: make test\n"


@dataclass(frozen=True)
class Code:
    """One kind of problem. `wrong` yields it; `right` yields nothing."""

    code: str
    meaning: str
    wrong: str
    right: str


def example(text: str) -> bytes:
    """The bytes that an example stands for."""
    content = text.encode()
    for word, meant in MARKS.items():
        content = content.replace(word.encode(), meant)
    return content


def _top(line: str) -> str:
    return f"{line}\n{_JOB}"


def _in_job(*lines: str) -> str:
    more = "".join(f"    {line}\n" for line in lines)
    return f"jobs:\n  test:\n{more}    steps:\n      - run: make test\n"


def _in_step(*lines: str, before: str = "") -> str:
    first, *rest = lines
    return f"jobs:\n  test:\n{before}    steps:\n      - {first}\n" + "".join(f"        {line}\n" for line in rest)


def _two_jobs(first: str, second: str) -> str:
    return (
        f"jobs:\n  build:\n{first}    steps:\n      - run: make\n  test:\n{second}    steps:\n      - run: make test\n"
    )


_NEEDS_BUILD = "    needs: build\n"
_KEEPS = "    artifacts:\n      - {name: %s, paths: ['dist/**']}\n"
_DEEP = "[" * 40 + "]" * 40

CODES = (
    Code("W001", "a bound on files: 64 in the folder, 64 KiB each", _top("# <70,000 x>"), _top("# short")),
    Code("W002", "not UTF-8", _top("name: caf<FF>"), _top("name: café")),
    Code("W003", "a line end other than LF or CRLF", _top("# note<CR>name: hidden"), _top("# note\nname: shown")),
    Code("W004", "a control character", _top('name: "<ESC>[31mred"'), _top("name: red")),
    Code("W005", "not YAML", _top("name: a: b"), _top('name: "a: b"')),
    Code("W006", "a directive, or a second document", _top("name: one\n---"), _top("---\nname: one")),
    Code("W007", "a tag", _top("name: !!str ci"), _top("name: ci")),
    Code("W008", "a merge key", _in_job("env: {<<: {A: x}}"), _in_job("env: {A: x}")),
    Code("W009", "a key twice", _top("name: one\nname: two"), _top("name: one")),
    Code(
        "W010",
        "a bound on YAML: depth 32, 10,000 values with aliases written out, no alias inside itself",
        _top(f"name: {_DEEP}"),
        _top("name: flat"),
    ),
    Code("W011", "an unknown key", _in_job("runs_on: linux"), _in_job("runs-on: linux")),
    Code(
        "W012",
        "a key or word that is refused by name",
        _in_step("uses: actions/checkout@v4"),
        _in_step("run: git log -1"),
    ),
    Code("W013", "another form than expected", _in_job("env: A=x"), _in_job("env: {A: x}")),
    Code("W014", "not a label", _in_job("runs-on: Linux"), _in_job("runs-on: linux")),
    Code("W015", "a required key is missing", _in_step("name: tests"), _in_step("name: tests", "run: make test")),
    Code(
        "W016",
        "a value that is out of bounds, or none of the words allowed",
        _in_job("timeout-minutes: 0"),
        _in_job("timeout-minutes: 30"),
    ),
    Code("W017", "not an id", _in_step("id: 1st", "run: make"), _in_step("id: first", "run: make")),
    Code(
        "W018",
        "needs a job that there is not, or itself",
        _two_jobs("", "    needs: biuld\n"),
        _two_jobs("", _NEEDS_BUILD),
    ),
    Code(
        "W019",
        "jobs wait for each other in a circle",
        _two_jobs("    needs: test\n", _NEEDS_BUILD),
        _two_jobs("", _NEEDS_BUILD),
    ),
    Code(
        "W020",
        "too many: jobs (256), steps (200), labels (16), combinations (64), patterns (64), inputs or times (10)",
        _in_job(f"runs-on: [{', '.join(f'l{at}' for at in range(17))}]"),
        _in_job("runs-on: [l0, l1]"),
    ),
    Code("W021", "a label nearly like a known one (here: linux)", _in_job("runs-on: lnux"), _in_job("runs-on: linux")),
    Code(
        "W022",
        "the same label, need, id or artifact name twice",
        _in_job("runs-on: [linux, linux]"),
        _in_job("runs-on: [linux, arm64]"),
    ),
    Code(
        "W023",
        "not an expression",
        _in_step('if: vole.ref_name == "main"', "run: make"),
        _in_step("if: vole.ref_name == 'main'", "run: make"),
    ),
    Code(
        "W024",
        "an expression names what there is not",
        _in_step("if: github.ref_name == 'main'", "run: make"),
        _in_step("if: vole.ref_name == 'main'", "run: make"),
    ),
    Code(
        "W025",
        "a script holds an expression that could inject commands",
        _in_step("run: echo ${{ vole.ref_name }}"),
        _in_step('run: echo "$REF"', "env: {REF: '${{ vole.ref_name }}'}"),
    ),
    Code(
        "W026",
        "not a pattern, or a list that begins by taking away",
        _top("on: {push: {branches: ['!wip/**']}}"),
        _top("on: {push: {branches: ['**', '!wip/**']}}"),
    ),
    Code(
        "W027",
        "a filter and its -ignore together",
        _top("on: {push: {paths: ['src/**'], paths-ignore: ['src/doc/**']}}"),
        _top("on: {push: {paths: ['src/**', '!src/doc/**']}}"),
    ),
    Code(
        "W028",
        "a matrix without combinations, or an exclude that excludes nothing",
        _in_job("strategy: {matrix: {py: ['3.11'], exclude: [{py: '3.12'}]}}"),
        _in_job("strategy: {matrix: {py: ['3.11', '3.12'], exclude: [{py: '3.12'}]}}"),
    ),
    Code("W029", "not a variable's name", _in_job("env: {VOLE_SHA: x}"), _in_job("env: {MY_SHA: x}")),
    Code("W030", "a symlink or submodule in place of the file", LINK, _JOB),
    Code(
        "W031",
        "an artifact's name or pattern that may leave the work folder",
        _in_job("artifacts: [{name: dist, paths: [../dist/**]}]"),
        _in_job("artifacts: [{name: dist, paths: ['dist/**']}]"),
    ),
    Code(
        "W032",
        "an artifact that no needed job keeps",
        _two_jobs(_KEEPS % "dist", _NEEDS_BUILD + "    needs-artifacts: [dits]\n"),
        _two_jobs(_KEEPS % "dist", _NEEDS_BUILD + "    needs-artifacts: [dist]\n"),
    ),
    Code(
        "W033",
        "a job's document is too long (192 KiB), or all of a push are (32 MiB)",
        "jobs:\n  test:\n    env: {A: &long <200 KiB of x>    }\n    steps:\n"
        + "      - {run: make, env: {A: *long}}\n" * 64,
        _in_step("run: make"),
    ),
    Code(
        "W034",
        "an expression, context or function in a place where it means nothing",
        _in_job("env: {A: '${{ steps.first.outputs.a }}'}"),
        _in_step("id: first", "run: make", "env: {A: '${{ env.B }}'}"),
    ),
    Code("W035", "blank text", _in_step('run: "  "'), _in_step("run: make")),
    Code(
        "W036",
        "not a concurrency group's name",
        _in_job('concurrency: "one\\ntwo"'),
        _in_job("concurrency: deploy-${{ vole.ref_name }}"),
    ),
    Code(
        "W037",
        "not a time of a schedule",
        _top("on: {schedule: [{cron: '0 25 * * *'}]}"),
        _top("on: {schedule: [{cron: '0 3 * * mon-fri'}]}"),
    ),
    Code(
        "W038",
        "an input whose type, options and default do not fit together",
        _top("on: {manual: {inputs: {to: {type: choice, options: [test, live], default: prod}}}}"),
        _top("on: {manual: {inputs: {to: {type: choice, options: [test, live], default: test}}}}"),
    ),
)


def table() -> str:
    """The table as the documentation shows it (Markdown)."""
    parts = ["| code | means |\n|---|---|\n" + "".join(f"| {code.code} | {code.meaning} |\n" for code in CODES)]
    for code in CODES:
        parts.append(f"**{code.code}**, {code.meaning}:\n\n```text\n{code.wrong.rstrip()}\n```\n\nright:\n")
        parts.append(f"```text\n{code.right.rstrip()}\n```\n")
    return "\n".join(parts)
