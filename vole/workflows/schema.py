"""The keys of the dialect: what each may hold, and every key of GitHub's that is refused, with the reason.

One set of tables for the check and for the JSON Schema of editors. Rules that need two keys at once are in `checks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from vole.base import globs, limits
from vole.base.cron import Cron
from vole.base.errors import VoleError
from vole.base.labels import Label
from vole.workflows.forms import Choice, Flag, Form, Items, Json, Number, Record, Refused, Table, Ways, Words
from vole.workflows.triggers import env_name_problem

_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_ARTIFACT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


# ---- Rules of single texts: why one does not fit, None when it does


def id_problem(text: str) -> str | None:
    """The rule of job, step and output ids, and of matrix keys."""
    rule = "1 to 63 of A-Z a-z 0-9 _ -, beginning with a letter or _"
    return None if _ID.fullmatch(text) else f"{text[:60]!r} is no id: {rule}"


def name_problem(text: str) -> str | None:
    """The rule of shown names: one line, bounded."""
    fits = "\n" not in text.rstrip("\n") and len(text) <= limits.NAME_CHARS_MAX
    return None if fits else f"a name is one line of at most {limits.NAME_CHARS_MAX} characters (NAME_CHARS_MAX)"


def label_problem(text: str) -> str | None:
    """The rule of labels (base.labels)."""
    return _refusal(Label.parse, text)


def glob_problem(text: str) -> str | None:
    """The rule of patterns (base.globs)."""
    return _refusal(globs.check, text)


def cron_problem(text: str) -> str | None:
    """The rule of times (base.cron)."""
    return _refusal(Cron.parse, text)


def input_value_problem(text: str) -> str | None:
    """The rule of what an input may hold: bounded text."""
    fits = "\0" not in text and len(text) <= limits.INPUT_CHARS_MAX
    return None if fits else f"at most {limits.INPUT_CHARS_MAX} characters (INPUT_CHARS_MAX), no NUL"


def artifact_name_problem(text: str) -> str | None:
    """The rule of artifact names: they become names of files and parts of addresses."""
    fits = _ARTIFACT.fullmatch(text) and ".." not in text
    return None if fits else f"{text[:60]!r} is no artifact name: 1 to 100 of A-Z a-z 0-9 . _ -, no '..'"


def work_path_problem(text: str) -> str | None:
    """The rule of artifact patterns and places: they stay within the work folder."""
    plain = text.removeprefix("!")
    parts = plain.split("/")
    if plain.startswith(("/", "~")):
        return f"{text[:60]!r} leaves the work folder; write a path from there, without '/' at the start"
    if ".." in parts or "." in parts:
        return f"{text[:60]!r}: no '.' or '..' in a path; write it from the work folder, '**' for all of it"
    if plain.endswith("/"):
        return f"{text[:60]!r} names a folder; write {plain}** for what is in it"
    return f"{text[:60]!r}: an empty name between slashes" if "" in parts else glob_problem(text)


def work_place_problem(text: str) -> str | None:
    """The rule of places for needed artifacts: a path, not a pattern."""
    pattern = f"{text[:60]!r} is a pattern; name one folder" if set(text) & set("*?[!") else None
    return pattern or (None if text == "." else work_path_problem(text))


def group_problem(text: str) -> str | None:
    """The rule of concurrency groups: their names are compared, and shown in one line."""
    fits = text.strip() and text.isprintable() and len(text) <= limits.GROUP_CHARS_MAX
    rule = f"1 to {limits.GROUP_CHARS_MAX} printable characters in one line (GROUP_CHARS_MAX)"
    return None if fits else f"{text[:60]!r} is no group: {rule}"


def _refusal(parse: Callable[[str], object], text: str) -> str | None:
    try:
        parse(text)
    except VoleError as error:
        return error.sentence
    return None


# ---- Which contexts are known where

_RUN = frozenset(("vole", "inputs"))
_JOB = _RUN | {"matrix", "needs"}
_JOB_ENV = _JOB | {"runner"}
_STEP = _JOB_ENV | {"env", "steps"}
_PINNED = frozenset(("matrix",))  # resolved when the job is queued
UNPINNED = frozenset(("run_number", "run_attempt"))  # of `vole`: known when the run is made, after its plan

_LATER = "not built yet; leave it out"
_NO_REMOTE_CODE = (
    "no remote code; the source is checked out by itself, files are kept with 'artifacts', other tools go in 'run'"
)


def _env(contexts: frozenset[str], doc: str) -> Form:
    return Table(env_name_problem, "W029", Words(contexts, may_be_empty=True), doc=doc)


SHELL = Choice(
    ("bash", "sh", "python"),
    dict.fromkeys(("pwsh", "powershell", "cmd"), "no Windows runners; use bash, sh or python"),
    "bash (--noprofile --norc -eo pipefail), sh (-e) or python (python3). Default: bash where there is one, else sh.",
)
WORKING_DIRECTORY = Words(_STEP, doc="Where the steps run, from the work folder.")
DEFAULTS = Record(
    "defaults",
    {"run": Record("defaults.run", {"shell": SHELL, "working-directory": WORKING_DIRECTORY})},
    doc="What steps take that do not say it themselves.",
)
TIMEOUT = Number(1, limits.JOB_TIMEOUT_MINUTES_MAX, "Minutes until it is ended.")
CONTINUE = Flag("A failure here does not fail the rest; it keeps its own colour.")

STEP = Record(
    "a step",
    {
        "run": Words(_PINNED, script=True, doc="The script. Only ${{ matrix.NAME }} may stand in it; else use env."),
        "name": Words(_STEP, rule=name_problem, doc="What pages show."),
        "id": Words(rule=id_problem, code="W017", doc="For steps.ID.outputs.NAME; unique in the job."),
        "shell": SHELL,
        "working-directory": WORKING_DIRECTORY,
        "env": _env(_STEP, "Variables of this step."),
        "if": Words(_STEP, condition=True, doc="Runs the step only when true. Default: success()."),
        "timeout-minutes": TIMEOUT,
        "continue-on-error": CONTINUE,
    },
    {
        "uses": _NO_REMOTE_CODE,
        "with": "it belongs to 'uses', and there is no remote code; use env",
        "effects": _LATER,
        "idempotency-key": _LATER,
        "rerun": _LATER,
    },
    required=("run",),
)

_GLOBS = Items(
    Words(rule=glob_problem, code="W026"), one=True, most=limits.FILTER_PATTERNS_MAX, bound="FILTER_PATTERNS_MAX"
)
PUSH = Record(
    "on.push",
    dict.fromkeys(("branches", "branches-ignore", "tags", "tags-ignore", "paths", "paths-ignore"), _GLOBS),
    {"types": "a push has no types; leave it out"},
    may_be_absent=True,
    doc="Which pushes start the workflow; nothing: all of them.",
)

INPUT = Record(
    "an input",
    {
        "description": Words(rule=name_problem, doc="What the form shows."),
        "required": Flag("Whether it must be said. Default: false."),
        "default": Words(may_be_empty=True, rule=input_value_problem, doc="What it is when it is not said."),
        "type": Choice(
            ("string", "boolean", "choice"),
            {
                "number": "inputs are text; use string and compare it as a number, or a choice",
                "environment": "there are no environments; use a choice",
            },
            "string (the default), boolean or choice.",
        ),
        "options": Items(
            Words(rule=input_value_problem), most=limits.INPUT_OPTIONS_MAX, bound="INPUT_OPTIONS_MAX", what="options"
        ),
    },
    {"deprecationMessage": "say it in the description"},
    may_be_absent=True,
)
MANUAL = Record(
    "on.manual",
    {
        "inputs": Table(
            id_problem, "W017", INPUT, most=limits.INPUTS_MAX, bound="INPUTS_MAX", what="inputs", doc="To ask for."
        )
    },
    may_be_absent=True,
    doc="Started by hand: by command, or on the page of the repository.",
)
TIME = Record(
    "a schedule",
    {"cron": Words(rule=cron_problem, code="W037", doc="minute hour date month day-of-week, UTC.")},
    {"timezone": "times are UTC; write the hour in UTC"},
    required=("cron",),
)
SCHEDULE = Items(
    TIME,
    most=limits.SCHEDULE_TIMES_MAX,
    bound="SCHEDULE_TIMES_MAX",
    what="times",
    doc="When it starts by itself, on the default branch.",
)

_NO_EVENT = "vole has no such event; there are: push, manual, schedule"
_EVENTS_OF_GITHUB = """
branch_protection_rule check_run check_suite create delete deployment deployment_status discussion discussion_comment
fork gollum image_version issue_comment issues label merge_group milestone page_build project project_card
project_column public pull_request pull_request_comment pull_request_review pull_request_review_comment
pull_request_target registry_package release repository_dispatch status watch workflow_call workflow_run
""".split()  # noqa: SIM905
REFUSED_EVENTS = dict.fromkeys(_EVENTS_OF_GITHUB, _NO_EVENT)
REFUSED_EVENTS["pull_request"] = "there are no pull requests; a push to any branch starts the workflow: on: push"
REFUSED_EVENTS["workflow_call"] = "workflows do not call each other; put shared steps in a script of the repository"

_NO_TIMES = {"schedule": "it needs its times: on: {schedule: [{cron: '0 3 * * *'}]}"}
_EVENT = Choice(("push", "manual", "workflow_dispatch"), REFUSED_EVENTS | _NO_TIMES)
ON = Ways(
    "an event, a list of events, or a map of them",
    text=_EVENT,
    items=Items(_EVENT),
    table=Record(
        "on", {"push": PUSH, "manual": MANUAL, "workflow_dispatch": MANUAL, "schedule": SCHEDULE}, REFUSED_EVENTS
    ),
    doc="What starts the workflow. Default: a push to any branch or tag.",
)

_NO_EXPRESSION_TEXT = Words()
_MATRIX_ENTRY = Table(id_problem, "W017", _NO_EXPRESSION_TEXT)
MATRIX = Record(
    "strategy.matrix",
    {
        "include": Items(_MATRIX_ENTRY, doc="More combinations, or more values for those that match."),
        "exclude": Items(_MATRIX_ENTRY, doc="Combinations to leave out."),
    },
    rest=Items(_NO_EXPRESSION_TEXT),
    doc="One job for each combination of values, in the order of the file.",
)
STRATEGY = Record(
    "strategy",
    {
        "matrix": MATRIX,
        "fail-fast": Flag("Cancel the others when one fails. Default: true."),
        "max-parallel": Number(1, limits.MATRIX_JOBS_MAX, "How many of them run at once."),
    },
    {"job-total": "it is a value of GitHub's strategy context; leave it out", "job-index": "leave it out"},
    required=("matrix",),
)
_WORK_PATH = Words(_PINNED, rule=work_path_problem, code="W031")
ARTIFACT = Record(
    "an artifact",
    {
        "name": Words(_PINNED, rule=artifact_name_problem, code="W031", doc="How needs-artifacts and pages call it."),
        "paths": Items(_WORK_PATH, one=True, doc="Patterns of files."),
        "retention-days": Number(0, 36_500, "Days it is kept; 0: for ever."),
        "if-empty": Choice(("warn", "error", "ignore"), doc="What no matching file means. Default: warn."),
    },
    {"if-no-files-found": "it is called 'if-empty' here"},
    required=("name", "paths"),
)
_NEEDED_NAME = Words(_PINNED, rule=artifact_name_problem, code="W031")
NEEDED_ARTIFACT = Ways(
    "an artifact's name, or {name, path}",
    text=_NEEDED_NAME,
    table=Record(
        "needs-artifacts",
        {"name": _NEEDED_NAME, "path": Words(_PINNED, rule=work_place_problem, code="W031")},
        required=("name",),
    ),
)


def _concurrency(contexts: frozenset[str], what: str) -> Form:
    group = Words(contexts, rule=group_problem, code="W036", doc="One at a time in the repository.")
    keys: dict[str, Form] = {
        "group": group,
        "cancel-in-progress": Flag("A newer one cancels those before it, the running one too. Default: false."),
        "queue": Choice(("all", "latest"), doc="all keeps every waiting one, latest only the newest. Default: all."),
        "cancel-protected": Flag("Tags and the default branch may be cancelled for a newer one. Default: false."),
    }
    return Ways(
        "a group's name, or {group, cancel-in-progress, queue, cancel-protected}",
        text=group,
        table=Record("concurrency", keys, required=("group",)),
        doc=f"At most one {what} of a group at a time; the others wait in the order they come.",
    )


_LABEL = Words(_PINNED, rule=label_problem, code="W014")
RUNS_ON = Ways(
    "a label or a list of labels",
    text=_LABEL,
    items=Items(_LABEL, most=limits.WORKFLOW_LABELS_MAX, bound="WORKFLOW_LABELS_MAX", what="labels"),
    table=Refused("there are no runner groups; write the labels as a list"),
    doc="Labels that the runner must carry. Default: any runner.",
)

JOB = Record(
    "a job",
    {
        "name": Words(_PINNED, rule=name_problem, doc="What pages show; may use ${{ matrix.NAME }}."),
        "runs-on": RUNS_ON,
        "needs": Items(Words(rule=id_problem, code="W017"), one=True, doc="Jobs that come before."),
        "if": Words(_JOB, condition=True, doc="Runs the job only when true. Default: success()."),
        "strategy": STRATEGY,
        "env": _env(_JOB_ENV, "Variables of every step of the job."),
        "defaults": DEFAULTS,
        "concurrency": _concurrency(_RUN | _PINNED, "job"),
        "checkout": Record(
            "checkout",
            {"depth": Number(0, 1_000_000, "Commits of history; 1 by default, 0 for all.")},
            {"submodules": f"submodules are {_LATER}", "lfs": f"LFS is {_LATER}"},
        ),
        "on-lost": Choice(("rerun", "fail"), doc="When the machine is lost. fail: for jobs with outside effects."),
        "timeout-minutes": TIMEOUT,
        "continue-on-error": CONTINUE,
        "outputs": Table(id_problem, "W017", Words(_STEP, may_be_empty=True), doc="For needs.ID.outputs.NAME."),
        "artifacts": Items(ARTIFACT, doc="Files to keep."),
        "needs-artifacts": Items(NEEDED_ARTIFACT, one=True, doc="Files of needed jobs, placed before the steps."),
        "reports": Record(
            "reports",
            {"junit": Items(_WORK_PATH, one=True, doc="Patterns of JUnit XML files; pages show what they say.")},
            required=("junit",),
            doc="Test reports.",
        ),
        "steps": Items(STEP, most=limits.WORKFLOW_STEPS_MAX, bound="WORKFLOW_STEPS_MAX", what="steps"),
    },
    {
        "resume": _LATER,
        "trust": _LATER,
        "uses": "jobs are not reused across files; put shared steps in a script of the repository",
        "with": "it belongs to 'uses'; jobs are not reused across files",
        "secrets": "there is no secret store; keep a deploy credential on the runner that deploys, and grant that "
        "runner to this repository only",
        "container": "jobs do not run in containers of their own yet; label a runner that has what the job needs",
        "services": "there are no service containers; start what a step needs in the step",
        "permissions": "there is no token to limit: a job can read its own repository, nothing else",
        "environment": "there are no environments; use a runner that only this repository may use",
        "snapshot": "runners are not made from jobs; prepare the machine",
    },
    required=("steps",),
)

WORKFLOW = Record(
    "a workflow",
    {
        "name": Words(rule=name_problem, doc="What pages show. Default: the file's name."),
        "on": ON,
        "env": _env(_RUN, "Variables of every job."),
        "defaults": DEFAULTS,
        "concurrency": _concurrency(_RUN, "run"),
        "jobs": Table(
            id_problem, "W017", JOB, most=limits.WORKFLOW_JOBS_MAX, bound="WORKFLOW_JOBS_MAX", what="jobs", doc="By id."
        ),
    },
    {
        "run-name": "a run is shown by its workflow and its commit's subject; leave it out",
        "permissions": "there is no token to limit: a job can read its own repository, nothing else",
        "secrets": "there is no secret store; keep a deploy credential on the runner that deploys",
    },
    required=("jobs",),
)


def json_schema() -> Json:
    """The dialect as JSON Schema (draft 2020-12), for editors. The check itself knows more."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A vole workflow (.vole/workflows/*.yml)",
        **WORKFLOW.json(),
    }
