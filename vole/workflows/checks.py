"""The whole check of a folder of workflow files: every problem with its place, or the workflows. Pure.

`parse` is the check, for the command line and for tests. `check` is the same in a limited child process: the server
never parses a pushed file in its own.
"""

from __future__ import annotations

import base64
import graphlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from vole.base import expressions, limits
from vole.base.escape import visible
from vole.base.expressions import Constant
from vole.base.ids import CommitId
from vole.base.labels import nearest
from vole.base.offload import Offload
from vole.wire import codec
from vole.wire.plan import JobPlan
from vole.workflows import expand, reading, schema
from vole.workflows.forms import Found, Walk
from vole.workflows.model import FOLDER, MODE_LINK, MODE_SUBMODULE, Checked, Problem, Workflow, WorkflowFile
from vole.workflows.reading import NOWHERE, Mapping, Node, Report, Text, at, entries, items, texts, words

_BATCH_BYTES = 128 * limits.KIB  # parsed in one call of a child, well within its two seconds


def is_workflow(path: str) -> bool:
    """Whether `path` is read as a workflow: `*.yml` or `*.yaml` directly in the folder.

    So is the folder itself: it comes as a file only where a link stands in its place, and has to be refused.
    """
    place = PurePosixPath(path)
    return path == FOLDER or (str(place.parent) == FOLDER and place.suffix in (".yml", ".yaml"))


def parse(files: tuple[WorkflowFile, ...], known_labels: frozenset[str] = frozenset()) -> Checked:
    """What `files` mean, or every problem in them. Never raises for what is in them, whatever the bytes."""
    mine = tuple(file for file in files if is_workflow(file.path))
    if len(mine) > limits.WORKFLOW_FILES_MAX:
        most = f"at most {limits.WORKFLOW_FILES_MAX} (WORKFLOW_FILES_MAX)"
        return Checked(problems=(Problem(FOLDER, 1, 1, "W001", f"{len(mine)} workflow files; {most}"),))
    found = _joined([_file(file, known_labels) for file in mine])
    return replace(found, notices=_notices(files))


async def check(offload: Offload, files: tuple[WorkflowFile, ...], known_labels: frozenset[str]) -> Checked:
    """`parse` in a child process. Raises Exhausted or Unavailable when the child is late, dies, or none is free."""
    mine = [file for file in files if is_workflow(file.path)]
    if len(mine) > limits.WORKFLOW_FILES_MAX:
        return parse(files)
    parts = [
        await offload.call("vole.workflows.checks:answer", _question(batch, known_labels)) for batch in _batches(mine)
    ]
    return replace(_joined([codec.from_json(Checked, part) for part in parts]), notices=_notices(files))


def answer(question: Any) -> Any:
    """What a child does: `parse`, from JSON to JSON."""
    files = tuple(
        WorkflowFile(path, CommitId(blob), base64.b64decode(content), mode)
        for path, blob, content, mode in question["files"]
    )
    return codec.to_json(parse(files, frozenset(question["known_labels"])))


def _question(files: list[WorkflowFile], known_labels: frozenset[str]) -> dict[str, object]:
    return {
        "files": [[file.path, file.blob, base64.b64encode(file.content).decode(), file.mode] for file in files],
        "known_labels": sorted(known_labels),
    }


def _batches(files: list[WorkflowFile]) -> Iterator[list[WorkflowFile]]:
    batch: list[WorkflowFile] = []
    for file in files:
        # One byte more than allowed is enough to refuse a file: the rest of it is not carried to the child.
        file = replace(file, content=file.content[: limits.WORKFLOW_BYTES_MAX + 1])  # noqa: PLW2901
        if batch and sum(len(other.content) for other in (*batch, file)) > _BATCH_BYTES:
            yield batch
            batch = []
        batch.append(file)
    if batch:
        yield batch


def _joined(parts: list[Checked]) -> Checked:
    """One answer for several files: all problems, or all workflows within PUSH_PLAN_BYTES_MAX."""
    problems = tuple(problem for part in parts for problem in part.problems)
    workflows = tuple(workflow for part in parts for workflow in part.workflows)
    size = sum(part.plan_bytes for part in parts)
    if size > limits.PUSH_PLAN_BYTES_MAX:
        most = f"at most {limits.PUSH_PLAN_BYTES_MAX} (PUSH_PLAN_BYTES_MAX)"
        problems += (Problem(FOLDER, 1, 1, "W033", f"the documents of all jobs have {size} bytes; {most}"),)
    return Checked(() if problems else workflows, problems, sum(part.unshown for part in parts), plan_bytes=size)


def _notices(files: tuple[WorkflowFile, ...]) -> tuple[str, ...]:
    others = [file.path for file in files if not is_workflow(file.path)]
    if not others:
        return ()
    shown = ", ".join(visible(path, 80) for path in others[:3]) + (", …" if len(others) > 3 else "")
    return (f"ignored: {shown}; only *.yml and *.yaml directly in {FOLDER} are read",)


# ---- One file


def _file(file: WorkflowFile, known_labels: frozenset[str]) -> Checked:
    report = Report(file.path)
    workflow = None
    if file.mode in (MODE_LINK, MODE_SUBMODULE):
        what = "symlink" if file.mode == MODE_LINK else "submodule"
        report.add(NOWHERE, "W030", f"a {what} is no workflow; commit a plain file in its place")
    elif (root := reading.read(file.content, report)) is not None:
        workflow = _workflow(file, root, report, known_labels)
    size = _plan_bytes(workflow, report) if workflow and not report.problems else 0
    problems = tuple(sorted(report.problems, key=lambda problem: (problem.line, problem.column)))
    return Checked((workflow,) if workflow and not problems else (), problems, report.unshown, plan_bytes=size)


def _workflow(file: WorkflowFile, root: Mapping, report: Report, known_labels: frozenset[str]) -> Workflow:
    walk = Walk(report)
    schema.WORKFLOW.check(root, (), walk)
    _filters(root, report)
    _inputs(root, report)
    _needs(root, report)
    for _, job in entries(root.get("jobs")):
        _ids(job, report)
    for found in walk.found:
        _references(found, root, report)
    report.settle()
    workflow = expand.workflow(file, root, report, known_labels)
    _needed_artifacts(root, workflow.jobs, report)
    return workflow


def _plan_bytes(workflow: Workflow, report: Report) -> int:
    """The size of all job documents. One over its bound is reported; the rest is then not measured."""
    most = limits.PLAN_BYTES_MAX - limits.PLAN_STAMP_BYTES
    total = 0
    for job in workflow.jobs:
        size = _rough_size(job)
        size = len(job.document()) if size <= most else size
        total += size
        if size > most:
            sentence = f"job {job.key}: its document has at least {size} bytes; at most {most} (PLAN_BYTES_MAX)"
            report.add(NOWHERE, "W033", f"{sentence}; move long scripts to files of the repository")
            break
        if total > limits.PUSH_PLAN_BYTES_MAX:
            break
    return total


def _rough_size(job: JobPlan) -> int:
    """At most the document's size, at no cost: aliases can make a document of many times the file's size."""
    return sum(len(step.run) + sum(map(len, step.env.values())) for step in job.steps)


# ---- Rules that need more than one key


def _filters(root: Mapping, report: Report) -> None:
    push = at(root, "on", "push")
    for name in ("branches", "tags", "paths"):
        both = at(push, f"{name}-ignore")
        if at(push, name) is not None and both is not None:
            remedy = f"take away with '!pattern' in {name}, and leave {name}-ignore out"
            report.add(both.place, "W027", f"on.push: {name} and {name}-ignore together; {remedy}")
    for key, node in entries(push):
        if (patterns := texts(node)) and patterns[0].value.startswith("!"):
            sentence = (
                f"{key.value}: {patterns[0].value[:60]!r} comes first and takes away from nothing; begin with '**'"
            )
            report.add(patterns[0].place, "W026", sentence)


def _inputs(root: Mapping, report: Report) -> None:
    """What is declared of inputs fits together; and the event is written in one way."""
    on = root.get("on")
    if both := expand.twice_manual(on):
        report.add(both.place, "W022", "on: manual and workflow_dispatch are the same event; write manual once")
    for key, node in entries(at(expand.manual_node(on), "inputs")):
        if reason := _input_problem(node):
            report.add((at(node, "default") or key).place, "W038", f"input {key.value[:60]!r}: {reason}")


def _input_problem(node: Node) -> str | None:
    kind = words(at(node, "type")) or "string"
    options = [text.value for text in texts(at(node, "options"))]
    default = words(at(node, "default"))
    if kind == "choice" and not options:
        return "a choice needs 'options'"
    if kind != "choice" and at(node, "options") is not None:
        return "'options' belong to 'type: choice'"
    if len(set(options)) < len(options):
        return "an option stands there twice; write it once"
    if default is None or kind not in ("boolean", "choice"):
        return None
    if kind == "boolean":
        return None if default in ("true", "false") else f"its default {default[:60]!r} is neither true nor false"
    return None if default in options else f"its default {default[:60]!r} is none of {', '.join(options)[:200]}"


def _needs(root: Mapping, report: Report) -> None:
    jobs = {key.value: (key, node) for key, node in entries(root.get("jobs"))}
    for name, (_, node) in jobs.items():
        seen: set[str] = set()
        for need in texts(at(node, "needs")):
            if need.value in seen:
                report.add(need.place, "W022", f"needs: {need.value[:60]!r} stands there twice; write it once")
            elif need.value == name:
                report.add(need.place, "W018", f"needs: job '{name}' needs itself; take it out")
            elif need.value not in jobs:
                close = nearest(need.value, jobs)
                remedy = f"did you mean '{close}'?" if close else f"there are: {', '.join(jobs)}"
                report.add(need.place, "W018", f"needs: there is no job {need.value[:60]!r}; {remedy}")
            seen.add(need.value)
    edges = {
        name: [need.value for need in texts(at(node, "needs")) if need.value in jobs and need.value != name]
        for name, (_, node) in jobs.items()
    }
    if cycle := _cycle(edges):
        report.add(jobs[cycle[0]][0].place, "W019", f"needs: jobs wait for each other: {' → '.join(cycle)}")


def _cycle(edges: dict[str, list[str]]) -> list[str]:
    """One circle of waiting jobs, its first again at the end; empty without one."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return [str(name) for name in reversed(error.args[1])]
    return []


def _ids(job: Node, report: Report) -> None:
    seen: set[str] = set()
    for step in items(at(job, "steps")):
        name = at(step, "id")
        if isinstance(name, Text):
            if name.value in seen:
                report.add(name.place, "W022", f"id: {name.value[:60]!r} stands there twice in this job; rename one")
            seen.add(name.value)
    for key, _ in entries(at(job, "strategy", "matrix")):
        if reason := schema.id_problem(key.value):
            report.add(key.place, "W017", f"matrix: {reason}")


def _needed_artifacts(root: Mapping, jobs: tuple[JobPlan, ...], report: Report) -> None:
    for job in jobs:
        offered = sorted({kept.name for other in jobs if other.job in job.needs for kept in other.artifacts})
        for needed in job.needs_artifacts:
            if needed.name not in offered:
                node = at(root, "jobs", job.job, "needs-artifacts")
                place = node.place if node else NOWHERE
                remedy = f"there are: {', '.join(offered)}" if offered else "name the job that keeps it in 'needs'"
                sentence = f"needs-artifacts: no needed job keeps {needed.name[:60]!r}; {remedy}"
                report.add(place, "W032", sentence)


# ---- What expressions name


def _references(found: Found, root: Mapping, report: Report) -> None:
    for part in found.parts:
        for access in expressions.accesses(part):
            names = [step.value if isinstance(step, Constant) else None for step in access.path]
            if reason := _unknown(str(access.root), [None if n is None else str(n) for n in names], found, root):
                report.add(report.inside(found.text, access.at), "W024", reason)


def _unknown(context: str, names: list[str | None], found: Found, root: Mapping) -> str | None:
    """Why a context has no such property, None when it has, or when it cannot be known before the job runs."""
    name, *rest = names or [None]
    fixed = expressions.CONTEXTS[context]
    if name is None or context == "env":
        return None
    if fixed is not None:
        if context == "vole" and name in _unpinned(found):
            return f"vole.{name} is known only when the group is fixed already; vole.sha tells one push from another"
        return None if name in fixed else _no(context, name, fixed)
    if context == "inputs":
        declared = [key.value for key, _ in entries(at(expand.manual_node(root.get("on")), "inputs"))]
        nothing = f"inputs.{name[:60]}: this workflow declares no inputs; they stand in on.manual.inputs"
        return None if name in declared else _no(context, name, declared) if declared else nothing
    if len(found.path) < 2 or found.path[0] != "jobs":
        return None
    job = at(root, "jobs", str(found.path[1]))
    if context == "matrix":
        keys = expand.matrix_keys(at(job, "strategy", "matrix"))
        return None if name in keys else _no("matrix", name, keys)
    known = _needed_jobs(job) if context == "needs" else _earlier_steps(job, found)
    if name not in known:
        return _no(context, name, known)
    return _below(context, name, rest, root)


def _unpinned(found: Found) -> frozenset[str]:
    """What of `vole` is not known yet where a concurrency group is fixed."""
    if found.path[0] == "concurrency":
        return schema.UNPINNED | {"job"}
    return schema.UNPINNED if found.path[2:3] == ("concurrency",) else frozenset()


def _below(context: str, name: str, rest: list[str | None], root: Mapping) -> str | None:
    properties = ("result", "outputs") if context == "needs" else ("outcome", "outputs")
    if not rest or rest[0] is None:
        return None
    if rest[0] not in properties:
        return _no(f"{context}.{name}", rest[0], properties)
    if context == "needs" and rest[0] == "outputs" and len(rest) > 1 and rest[1] is not None:
        outputs = [key.value for key, _ in entries(at(root, "jobs", name, "outputs"))]
        return None if rest[1] in outputs else _no(f"needs.{name}.outputs", rest[1], outputs)
    return None


def _needed_jobs(job: Node | None) -> list[str]:
    return [text.value for text in texts(at(job, "needs"))]


def _earlier_steps(job: Node | None, found: Found) -> list[str]:
    """The ids of steps that have ended where the expression is evaluated; of all steps outside of any."""
    steps = items(at(job, "steps"))
    if len(found.path) > 3 and found.path[2] == "steps":
        steps = steps[: int(found.path[3])]
    return [name.value for step in steps if isinstance(name := at(step, "id"), Text)]


def _no(context: str, name: str, known: object) -> str:
    names = sorted(str(one) for one in known) if isinstance(known, (list, tuple, set, frozenset)) else []
    close = nearest(name, names)
    remedy = f"did you mean '{close}'?" if close else f"there are: {', '.join(names)}" if names else "there is none"
    where = {"needs": " (jobs named in this job's needs)", "steps": " (steps before this one)"}.get(context, "")
    return f"{context} has no '{name[:60]}'; {remedy}{where}"
