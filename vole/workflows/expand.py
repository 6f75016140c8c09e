"""From a checked file to job plans: matrix expansion in file order, and the stamp of a push on the templates.

Pure. The templates carry placeholders where only the push knows. A text that is wrong only once its matrix values
stand in it is reported here.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from vole.base import expressions, labels, limits
from vole.base.errors import Exhausted, Invalid
from vole.base.expressions import Value
from vole.base.ids import CommitId, JobKey, RefName, RepoName
from vole.wire.plan import (
    JUNIT_REPORTS,
    ArtifactPlan,
    Concurrency,
    EventFacts,
    JobContext,
    JobPlan,
    NeededArtifact,
    RunPlan,
    Scalar,
    StepPlan,
    job_values,
)
from vole.workflows import schema
from vole.workflows.forms import Rule, number
from vole.workflows.model import Decision, Input, PushFilter, Workflow, WorkflowFile
from vole.workflows.reading import Mapping, Node, Report, Text, at, entries, items, texts, words

# What stands in a template until `plan` stamps it.
NO_REPOSITORY = RepoName("template")
NO_COMMIT = CommitId("0" * 40)
NO_EVENT = EventFacts("push", "refs/heads/template", "template", "branch", None, NO_COMMIT, "nobody")
_NOT_RUN = JobContext(run_id="", run_number=0, run_attempt=0, server_url="")  # a plan is made before its run

Combination = dict[str, Scalar]
_MANUAL = ("manual", "workflow_dispatch")


def plan(  # what a run is bound to, each by itself
    workflow: Workflow, repository: RepoName, commit: CommitId, ref: RefName, event: EventFacts, *, protected: bool
) -> RunPlan:
    """The run of `workflow` for one ref update: every job bound to repository, commit and event.

    `event.variables` (`-o ci.variable`) join each job's env and win over the file's, as plain text. `protected`: the
    ref is a tag or the default branch. What inputs a person did not say, and all of them where nobody was asked, are
    their defaults. Raises Exhausted when a job's document is over PLAN_BYTES_MAX, Invalid for a concurrency group that
    comes out as no name.
    """
    if workflow.manual:
        defaults = {declared.name: declared.value(declared.default) for declared in workflow.manual}
        event = replace(event, inputs=defaults | event.inputs)
    variables = {name: expressions.literal(value) for name, value in event.variables.items()}
    bound = [
        replace(job, repository=repository, commit=commit, event=event, env={**job.env, **variables})
        for job in workflow.jobs
    ]
    jobs = tuple(replace(job, concurrency=_group(job.concurrency, job, protected=protected)) for job in bound)
    for job in jobs:
        size = len(job.document())
        if size > limits.PLAN_BYTES_MAX:
            most = f"at most {limits.PLAN_BYTES_MAX} (PLAN_BYTES_MAX)"
            raise Exhausted(f"{job.workflow_path}: the document of job {job.key} has {size} bytes; {most}")
    group = _group(workflow.concurrency, jobs[0], protected=protected)  # it names nothing that jobs differ in
    return RunPlan(ref, commit, workflow.name, workflow.path, workflow.blob, event, jobs, concurrency=group)


def _group(template: Concurrency | None, job: JobPlan, *, protected: bool) -> Concurrency | None:
    """The group with its expressions as values, as `job` knows them."""
    if template is None:
        return None
    name = expressions.interpolate(template.group, job_values(job, _NOT_RUN))
    if problem := schema.group_problem(name):
        what = f"{problem}; that is what {template.group[:60]!r} comes to"
        raise Invalid(f"{job.workflow_path}: W036 concurrency: {what}")
    return replace(template, group=name, spared=template.spared and protected)


def skipped(run: RunPlan, why: Decision | None) -> RunPlan:
    """`run` as the visible skipped run that a filter (`why`) or, without one, `[skip ci]` leaves."""
    return replace(run, skipped="filter" if why else "skip_ci")


def workflow(file: WorkflowFile, root: Mapping, report: Report, known_labels: frozenset[str]) -> Workflow:
    """The workflow of a file whose keys and forms were checked. Problems that show only here go to `report`."""
    name = words(root.get("name")) or PurePosixPath(file.path).stem
    jobs: list[JobPlan] = []
    for key, node in entries(root.get("jobs")):
        if isinstance(node, Mapping):
            jobs += _jobs(_Source(file, name, root, key.value, node, report, known_labels))
        if len(jobs) > limits.WORKFLOW_JOBS_MAX:
            most = f"at most {limits.WORKFLOW_JOBS_MAX} (WORKFLOW_JOBS_MAX)"
            report.add(key.place, "W020", f"{len(jobs)} jobs with this one's combinations; {most}")
            break
    on = root.get("on")
    return Workflow(
        file.path,
        file.blob,
        name,
        _push(on),
        tuple(jobs),
        _concurrency(root),
        manual=_manual(on),
        schedule=_schedule(on),
    )


# ---- Triggers


def _push(node: Node | None) -> PushFilter | None:
    """What of pushes the file asks for. Without `on`: all of them."""
    if node is None or any(text.value == "push" for text in texts(node)):
        return PushFilter()
    push = at(node, "push")
    if push is None:
        return None

    def patterns(name: str) -> tuple[str, ...] | None:
        written = at(push, name)
        return None if written is None else tuple(text.value for text in texts(written))

    return PushFilter(
        branches=patterns("branches"),
        branches_ignore=patterns("branches-ignore"),
        tags=patterns("tags"),
        tags_ignore=patterns("tags-ignore"),
        paths=patterns("paths"),
        paths_ignore=patterns("paths-ignore"),
    )


def manual_node(on: Node | None) -> Node | None:
    """What the file says of starting by hand, under either name; None where it is a bare word or nothing."""
    return at(on, "manual") or at(on, "workflow_dispatch")


def twice_manual(on: Node | None) -> Node | None:
    """The second of two spellings of the same event."""
    named = [text for text in (*texts(on), *(key for key, _ in entries(on))) if text.value in _MANUAL]
    return named[1] if len(named) > 1 else None


def _manual(on: Node | None) -> tuple[Input, ...] | None:
    if manual_node(on) is None and not any(text.value in _MANUAL for text in texts(on)):
        return None
    return tuple(_input(key.value, node) for key, node in entries(at(manual_node(on), "inputs")))


def _input(name: str, node: Node) -> Input:
    kind = words(at(node, "type"))
    return Input(
        name=name,
        type="boolean" if kind == "boolean" else "choice" if kind == "choice" else "string",
        description=words(at(node, "description")) or "",
        required=words(at(node, "required")) == "true",
        default=words(at(node, "default")) or ("false" if kind == "boolean" else ""),
        options=tuple(text.value for text in texts(at(node, "options"))),
    )


def _schedule(on: Node | None) -> tuple[str, ...]:
    lines = [words(at(entry, "cron")) for entry in items(at(on, "schedule"))]
    return tuple(dict.fromkeys(line for line in lines if line))


# ---- The matrix


def combinations(matrix: Node | None, report: Report) -> tuple[Combination, ...]:
    """Every combination of a matrix, in file order: product, less `exclude`, then `include`."""
    axes = {key.value: [scalar(item) for item in texts(node)] for key, node in _axes(matrix)}
    product = math.prod(map(len, axes.values())) if axes else 0
    place = matrix.place if matrix else None
    if place and product > limits.MATRIX_PRODUCT_MAX:
        most = f"at most {limits.MATRIX_PRODUCT_MAX} before exclude (MATRIX_PRODUCT_MAX)"
        report.add(place, "W020", f"matrix: {product} combinations; {most}")
        return ()
    found = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())] if axes else []
    found = _excluded(found, axes, matrix, report)
    found = _included(found, axes, matrix)
    if place and not found and not report.problems:
        report.add(place, "W028", "matrix: no combination is left; give it values or leave strategy out")
    if place and len(found) > limits.MATRIX_JOBS_MAX:
        most = f"at most {limits.MATRIX_JOBS_MAX} (MATRIX_JOBS_MAX)"
        report.add(place, "W020", f"matrix: {len(found)} combinations; {most}")
        return ()
    return tuple(found)


def matrix_keys(matrix: Node | None) -> set[str]:
    """Every name that `matrix.NAME` may have in some combination."""
    included = (key.value for entry in items(at(matrix, "include")) for key, _ in entries(entry))
    return {key.value for key, _ in _axes(matrix)} | set(included)


def scalar(text: Text) -> Scalar:
    """A matrix value: true and false, unquoted, are booleans; all else is text, `3.10` too."""
    return text.value == "true" if text.plain and text.value in ("true", "false") else text.value


def _axes(matrix: Node | None) -> list[tuple[Text, Node]]:
    return [(key, node) for key, node in entries(matrix) if key.value not in ("include", "exclude")]


def _values(entry: Node) -> Combination:
    return {key.value: scalar(value) for key, value in entries(entry) if isinstance(value, Text)}


def _excluded(
    found: list[Combination], axes: dict[str, list[Scalar]], matrix: Node | None, report: Report
) -> list[Combination]:
    for entry in items(at(matrix, "exclude")):
        wanted = _values(entry)
        if unknown := sorted(set(wanted) - set(axes)):
            report.add(
                entry.place, "W028", f"exclude: {unknown[0]!r} is no key of the matrix; there are: {', '.join(axes)}"
            )
            continue
        left = [combination for combination in found if not wanted.items() <= combination.items()]
        if len(left) == len(found):
            report.add(entry.place, "W028", "exclude: no combination has these values; correct it or take it out")
        found = left
    return found


def _included(found: list[Combination], axes: dict[str, list[Scalar]], matrix: Node | None) -> list[Combination]:
    """An entry extends the combinations whose own values it agrees with; one that fits none is a combination more."""
    originals = [(combination, dict(combination)) for combination in found]
    result = list(found)
    for entry in items(at(matrix, "include")):
        given = _values(entry)
        shared = {key: value for key, value in given.items() if key in axes}
        fitting = [combination for combination, original in originals if shared.items() <= original.items()]
        for combination in fitting:
            combination.update(given)
        if not fitting:
            result.append(given)
    return result


# ---- Jobs


@dataclass(frozen=True)
class _Source:
    """One job of a file, and what surrounds it."""

    file: WorkflowFile
    workflow: str
    root: Mapping
    id: str
    node: Mapping
    report: Report
    known_labels: frozenset[str]

    def inherited(self, *path: str) -> str | None:
        """A default: the job's, else the workflow's."""
        return words(at(self.node, *path)) or words(at(self.root, *path))


def _jobs(source: _Source) -> list[JobPlan]:
    matrix = at(source.node, "strategy", "matrix")
    if matrix is None:
        return [_job(source, None, {})]
    found = combinations(matrix, source.report)
    return [_job(source, at, combination) for at, combination in enumerate(found, 1)]


def _job(source: _Source, at_: int | None, combination: Combination) -> JobPlan:
    node = source.node
    strategy = node.get("strategy")
    minutes = number(node.get("timeout-minutes"))
    depth = number(at(node, "checkout", "depth"))
    return JobPlan(
        repository=NO_REPOSITORY,
        commit=NO_COMMIT,
        workflow=source.workflow,
        workflow_path=source.file.path,
        workflow_blob=source.file.blob,
        job=source.id,
        key=JobKey(source.id if at_ is None else f"{source.id}.{at_}"),
        name=_name(source, combination),
        event=NO_EVENT,
        steps=_steps(source),
        runs_on=_labels(source, combination),
        needs=tuple(text.value for text in texts(node.get("needs"))),
        if_=words(node.get("if")),
        matrix=combination,
        fail_fast=words(at(strategy, "fail-fast")) != "false",
        max_parallel=number(at(strategy, "max-parallel")),
        env=_env(source.root.get("env")) | _env(node.get("env")),
        timeout_s=60 * (minutes or limits.JOB_TIMEOUT_MINUTES),
        timeout_from="default" if minutes is None else "job",
        continue_on_error=words(node.get("continue-on-error")) == "true",
        on_lost="fail" if words(node.get("on-lost")) == "fail" else "rerun",
        outputs=_env(node.get("outputs")),
        artifacts=_artifacts(source, combination),
        needs_artifacts=_needed(source, combination),
        checkout_depth=1 if depth is None else depth,
        concurrency=_concurrency(node),
    )


def _concurrency(node: Mapping) -> Concurrency | None:
    written = node.get("concurrency")
    group = words(written) or words(at(written, "group"))
    if group is None:
        return None
    return Concurrency(
        group=group,
        cancel_in_progress=words(at(written, "cancel-in-progress")) == "true",
        queue="latest" if words(at(written, "queue")) == "latest" else "all",
        spared=words(at(written, "cancel-protected")) != "true",
    )


def _name(source: _Source, combination: Combination) -> str:
    node = source.node.get("name")
    if isinstance(node, Text) and "${{" in node.value:
        name = _resolved(node, combination, source.report)
    else:
        values = ", ".join(expressions.to_text(value) for value in combination.values())
        name = (words(node) or source.id) + (f" ({values})" if values else "")
    return name.strip()[: limits.NAME_CHARS_MAX] or source.id


def _steps(source: _Source) -> tuple[StepPlan, ...]:
    return tuple(_step(source, number_, step) for number_, step in enumerate(items(source.node.get("steps")), 1))


def _step(source: _Source, number_: int, step: Node) -> StepPlan:
    shell = words(at(step, "shell")) or source.inherited("defaults", "run", "shell")
    minutes = number(at(step, "timeout-minutes"))
    return StepPlan(
        run=words(at(step, "run")) or "",
        number=number_,
        id=words(at(step, "id")),
        name=words(at(step, "name")),
        shell="bash" if shell == "bash" else "sh" if shell == "sh" else "python" if shell == "python" else None,
        working_directory=words(at(step, "working-directory"))
        or source.inherited("defaults", "run", "working-directory"),
        env=_env(at(step, "env")),
        if_=words(at(step, "if")),
        timeout_s=minutes * 60 if minutes else None,
        continue_on_error=words(at(step, "continue-on-error")) == "true",
    )


def _env(node: Node | None) -> dict[str, str]:
    return {key.value: value.value for key, value in entries(node) if isinstance(value, Text)}


def _labels(source: _Source, combination: Combination) -> tuple[str, ...]:
    found: list[str] = []
    for text in texts(source.node.get("runs-on")):
        label = _fitting(text, combination, source.report, "W014", schema.label_problem)
        if label in found:
            source.report.add(text.place, "W022", f"runs-on: label '{label}' stands there twice; write it once")
        elif schema.label_problem(label) is None:
            found.append(label)
            if near := labels.near(label, source.known_labels):
                sentence = f"runs-on: '{label}' is no known label; did you mean '{near}'? "
                source.report.add(text.place, "W021", f"{sentence}If not: ssh git@host label declare {label}")
    return tuple(found)


def _artifacts(source: _Source, combination: Combination) -> tuple[ArtifactPlan, ...]:
    found: dict[str, ArtifactPlan] = {}
    for node in items(source.node.get("artifacts")):
        name_node = at(node, "name")
        if not isinstance(name_node, Text):
            continue
        name = _fitting(name_node, combination, source.report, "W031", schema.artifact_name_problem)
        if name in found:
            source.report.add(name_node.place, "W022", f"artifacts: name '{name}' stands there twice in this job")
        if name == JUNIT_REPORTS:
            sentence = f"artifacts: '{name}' is the name of what 'reports' keeps; choose another"
            source.report.add(name_node.place, "W031", sentence)
        if_empty = words(at(node, "if-empty"))
        found[name] = ArtifactPlan(
            name=name,
            paths=_paths(at(node, "paths"), combination, source.report),
            retention_days=number(at(node, "retention-days")),
            if_empty="error" if if_empty == "error" else "ignore" if if_empty == "ignore" else "warn",
        )
    if reports := at(source.node, "reports", "junit"):
        found[JUNIT_REPORTS] = ArtifactPlan(JUNIT_REPORTS, _paths(reports, combination, source.report))
    return tuple(found.values())


def _paths(node: Node | None, combination: Combination, report: Report) -> tuple[str, ...]:
    found = texts(node)
    if found and found[0].value.startswith("!"):
        report.add(found[0].place, "W026", "paths: the first pattern takes away from nothing; begin with what to keep")
    return tuple(_fitting(text, combination, report, "W031", schema.work_path_problem) for text in found)


def _needed(source: _Source, combination: Combination) -> tuple[NeededArtifact, ...]:
    found: list[NeededArtifact] = []
    node = source.node.get("needs-artifacts")
    for item in (node,) if isinstance(node, Text) else items(node):
        name, path = (item, None) if isinstance(item, Text) else (at(item, "name"), at(item, "path"))
        if isinstance(name, Text):
            given = _fitting(name, combination, source.report, "W031", schema.artifact_name_problem)
            where = "."
            if isinstance(path, Text):
                where = _fitting(path, combination, source.report, "W031", schema.work_place_problem)
            found.append(NeededArtifact(given, where))
    return tuple(found)


def _fitting(text: Text, combination: Combination, report: Report, code: str, rule: Rule) -> str:
    """The text with its matrix values in it; a reason why it does not fit then goes to the report."""
    if "${{" not in text.value:
        return text.value
    value = _resolved(text, combination, report)
    if text.place.line not in report.settled and (reason := rule(value)):
        report.add(text.place, code, f"{text.value[:60]}: with its matrix values: {reason}")
    return value


def _resolved(text: Text, combination: Combination, report: Report) -> str:
    values: dict[str, Value] = dict(combination)
    try:
        return expressions.interpolate(text.value, {"matrix": values})
    except Invalid as error:
        report.add(text.place, "W023", error.sentence)
        return ""
