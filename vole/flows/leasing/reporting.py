"""What a job's test reports say, read when its result comes. Whatever stands in them, the result is taken."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import replace

from vole.base import limits, log
from vole.base.errors import VoleError
from vole.base.ids import RepoId
from vole.base.offload import Offload
from vole.evidence.artifacts import ArtifactStore
from vole.wire import codec
from vole.wire.plan import JUNIT_REPORTS
from vole.wire.records import ReportedTests
from vole.wire.runner import ArtifactFile

_log = log.get("vole.leasing")

_NOTHING = ReportedTests(0, 0, 0, 0, 0, (), ())


async def reported_tests(
    repo: RepoId, files: Sequence[ArtifactFile], artifacts: ArtifactStore, offload: Offload
) -> ReportedTests | None:
    """What the stored reports among `files` say together; None when there are none."""
    reports = [file for file in files if file.name == JUNIT_REPORTS]
    if not reports:
        return None
    fitting, left = _fitting(reports)
    try:
        given = await asyncio.to_thread(_given, repo, fitting, artifacts)
        told = codec.from_json(ReportedTests, await offload.call("vole.evidence.junit:read", {"files": given}))
    except (VoleError, OSError, RuntimeError) as error:
        _log.warning("test reports were not read", repository=repo, why=str(error))
        told = replace(_NOTHING, problems=(f"the reports were not read: {error}"[: limits.PROBLEM_CHARS_MAX],))
    return replace(told, problems=(*told.problems, *left))


def _fitting(reports: Sequence[ArtifactFile]) -> tuple[list[ArtifactFile], list[str]]:
    """Those that are read, and a sentence on those that are too many or too large."""
    fitting: list[ArtifactFile] = []
    room = limits.REPORT_BYTES_MAX
    for report in reports:
        if report.size <= room and len(fitting) < limits.REPORT_FILES_MAX:
            fitting.append(report)
            room -= report.size
    left = [report.path for report in reports if report not in fitting]
    most = f"at most {limits.REPORT_FILES_MAX} reports of together {limits.REPORT_BYTES_MAX >> 20} MiB are read"
    bound = f"{most} (REPORT_FILES_MAX, REPORT_BYTES_MAX)"
    return fitting, [f"{left[0]} and {len(left) - 1} more: not read; {bound}"] if left else []


def _given(repo: RepoId, reports: Sequence[ArtifactFile], artifacts: ArtifactStore) -> list[dict[str, str]]:
    return [
        {"path": one.path, "data": base64.b64encode(artifacts.path(repo, one.sha256).read_bytes()).decode()}
        for one in reports
    ]
