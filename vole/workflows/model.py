"""What the dialect is made of: files, problems, workflows. Values only; nothing here reads or judges.

A workflow's jobs are `wire.plan.JobPlan` templates: expanded, but not yet bound to a repository, commit and event
(`expand.plan` does that).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vole.base import limits
from vole.base.escape import visible
from vole.base.ids import CommitId
from vole.wire.plan import Concurrency, JobPlan, Scalar

FOLDER = ".vole/workflows"
MODE_FILE = 0o100644
MODE_LINK = 0o120000
MODE_SUBMODULE = 0o160000


@dataclass(frozen=True)
class WorkflowFile:
    """One entry of the folder at a pushed tip. `content` of a link or submodule is never looked at."""

    path: str  # from the root of the tree, `.vole/workflows/ci.yml`
    blob: CommitId
    content: bytes
    mode: int = MODE_FILE  # git's: 0o100644, 0o100755, 0o120000 a symlink, 0o160000 a submodule


@dataclass(frozen=True)
class Problem:
    """One thing wrong, where, and what to do. `code` is stable (docs/workflow.md)."""

    path: str
    line: int  # from 1
    column: int  # from 1
    code: str
    sentence: str

    @property
    def text(self) -> str:
        """One line for people, without a raw control byte, cut at PROBLEM_CHARS_MAX before any is spelt out."""
        where = f"{self.path[-limits.NAME_CHARS_MAX :]}:{self.line}:{self.column}"
        return visible(f"{where} {self.code} {self.sentence}", limits.PROBLEM_CHARS_MAX)


@dataclass(frozen=True)
class PushFilter:
    """What of `on.push` narrows the pushes. `None` means not written, which is not the same as empty."""

    branches: tuple[str, ...] | None = None
    branches_ignore: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    tags_ignore: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None
    paths_ignore: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Input:
    """What a person may say when they start the workflow. `default` is what it is when they do not."""

    name: str
    type: Literal["string", "boolean", "choice"] = "string"
    description: str = ""
    required: bool = False
    default: str = ""  # as written; of a boolean `true` or `false`
    options: tuple[str, ...] = ()  # of a choice

    def value(self, text: str) -> Scalar:
        """`text` as expressions and the event see it."""
        return text == "true" if self.type == "boolean" else text


@dataclass(frozen=True)
class Workflow:
    """One file that holds. `push` is None when pushes do not start it, `manual` when people do not."""

    path: str
    blob: CommitId
    name: str
    push: PushFilter | None
    jobs: tuple[JobPlan, ...]
    concurrency: Concurrency | None = None  # of its runs
    manual: tuple[Input, ...] | None = None
    schedule: tuple[str, ...] = ()  # cron lines, UTC

    @property
    def has_groups(self) -> bool:
        """Whether anything of it goes through a concurrency group."""
        return self.concurrency is not None or any(job.concurrency is not None for job in self.jobs)


@dataclass(frozen=True)
class Checked:
    """What came of reading a folder: workflows, or problems. With problems, `workflows` is empty."""

    workflows: tuple[Workflow, ...] = ()
    problems: tuple[Problem, ...] = ()
    unshown: int = 0  # further problems that are only counted
    notices: tuple[str, ...] = ()
    plan_bytes: int = 0  # of all job documents together

    @property
    def lines(self) -> tuple[str, ...]:
        """The first PROBLEMS_SHOWN_MAX problems, a line each, then a count of the rest."""
        lines = [problem.text for problem in self.problems[: limits.PROBLEMS_SHOWN_MAX]]
        rest = len(self.problems) - len(lines) + self.unshown
        return (*lines, f"… and {rest} more problem{'s' if rest > 1 else ''}") if rest else tuple(lines)


@dataclass(frozen=True)
class ChangedPaths:
    """What a ref update changed, for path filters. `paths` is None where that is unknown or too many to compare."""

    paths: tuple[str, ...] | None
    notice: str | None = None  # compared with what, when it is not the previous tip


@dataclass(frozen=True)
class Decision:
    """What a workflow does about an event: `run`; `skip`, a visible skipped run; `none`, it does not listen."""

    outcome: Literal["run", "skip", "none"]
    notice: str | None = None
