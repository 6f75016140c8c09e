from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness_host import a_job
from vole.base.errors import Invalid
from vole.wire import harness_pb2 as pb
from vole.wire.harness import JobEnvelope, fence
from vole.wire.plan import JobContext, job_digest

ROOT = Path(__file__).parents[3]
GENERATED = ("harness_pb2.py", "harness_pb2.pyi", "harness_pb2_grpc.py")


def test_the_generated_code_is_what_the_contract_generates(tmp_path):
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", "-I", "."),
            *("--python_out", tmp_path, "--pyi_out", tmp_path, "--grpc_python_out", tmp_path),
            "vole/wire/harness.proto",
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=15,
    )

    for name in GENERATED:
        made, kept = (root / "vole" / "wire" / name for root in (tmp_path, ROOT))
        assert made.read_text() == kept.read_text(), f"{name} is stale: generate it anew with grpc_tools.protoc"


def test_the_generated_code_runs_with_the_floors_that_the_project_names():
    """Older gRPC or protobuf refuse code of a newer generator at import."""
    project = (ROOT / "pyproject.toml").read_text()
    grpc_made = re.search(r"GRPC_GENERATED_VERSION = '([0-9.]+)'", (ROOT / "vole/wire/harness_pb2_grpc.py").read_text())
    protobuf_made = re.search(r"Protobuf Python Version: ([0-9.]+)", (ROOT / "vole/wire/harness_pb2.py").read_text())
    assert grpc_made
    assert protobuf_made

    assert f'"grpcio>={grpc_made[1]}"' in project
    assert f'"protobuf>={protobuf_made[1]}"' in project


# The numbers on the wire, message by message: they never change their meaning.
NUMBERS = {
    "HostFrame": "job_uid attempt_id fence start attach grant ack cancel detach",
    "HarnessFrame": "attempt_id seq hello intent result checkpoint artifact end log heartbeat mask annotation",
    "Descriptor": "id version instance_id capabilities labels step_kinds max_jobs running_jobs protocol",
    "Capabilities": "resumability workspace_checkpoint reattach requires_gpu isolates_jobs",
    "Hello": "descriptor running",
    "AttemptState": "job_uid attempt_id fence last_seq last_log_seq",
    "Start": "plan plan_digest source restore env secrets timeout log_window_bytes heartbeat",
    "Attach": "instance_id events_from log_from",
    "Ack": "events_through log_through",
    "Cancel": "reason grace",
    "StepIntent": "step_id input_digest effects idempotency_key",
    "StepGrant": "step_id decision recorded reason",
    "StepResult": "step_id state exit_code signal outputs log_bytes log_sha256 started_unix_ms finished_unix_ms "
    "workspace_digest timed_out continued reason leftovers",
    "LogChunk": "step_id stream seq offset data ts_unix_ns",
    "Heartbeat": "monotonic_ms step_id cpu_ms rss_bytes",
    "Checkpoint": "after_step tree",
    "ArtifactReady": "name blob path",
    "End": "state error outputs summary reason",
    "BlobRef": "sha256 size media_type",
    "BlobChunk": "sha256 offset data last",
    "FetchBlobRequest": "sha256 offset",
    "Secret": "name value version",
    "Error": "code message",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_each_field_has_its_number(name):
    fields = getattr(pb, name).DESCRIPTOR.fields

    assert {field.name: field.number for field in fields} == {
        field: number for number, field in enumerate(NUMBERS[name].split(), 1)
    }


def test_the_methods_have_their_names():
    service = pb.DESCRIPTOR.services_by_name["JobHarness"]

    assert service.full_name == "vole.harness.v1.JobHarness"
    assert [method.name for method in service.methods] == ["Describe", "Run", "PushBlob", "FetchBlob"]


def test_enum_values_have_their_numbers():
    assert (pb.STATELESS_REPLAY, pb.REQUIRES_MEMORY_SNAPSHOT, pb.RESTART_ONLY) == (1, 2, 3)
    assert (pb.USER, pb.TIMEOUT, pb.SUPERSEDED, pb.INTERNAL) == (1, 2, 3, 4)
    assert (pb.NONE, pb.WORKSPACE, pb.EXTERNAL) == (1, 2, 3)
    assert (pb.RUN, pb.SERVE, pb.REFUSE) == (1, 2, 3)
    assert (pb.SUCCEEDED, pb.FAILED, pb.CANCELED, pb.SKIPPED) == (1, 2, 3, 4)
    assert (pb.STDOUT, pb.STDERR, pb.HARNESS) == (1, 2, 3)
    assert (pb.End.COMPLETED, pb.End.FAILED, pb.End.CANCELED) == (1, 2, 3)


def an_envelope():
    plan = a_job("true").document()
    return JobEnvelope(plan.decode(), JobContext("1", 12, 1, "https://forge"), "/srv/attempts/1", "mac-1", 60.0), plan


def test_an_envelope_comes_back_with_its_plan():
    envelope, plan = an_envelope()

    read, job = JobEnvelope.read(envelope.document(), job_digest(plan))

    assert (read, job.document()) == (envelope, plan)


def test_a_plan_of_another_digest_is_refused():
    envelope, plan = an_envelope()
    other = replace(envelope, plan=envelope.plan.replace('"true"', '"false"'))

    with pytest.raises(Invalid, match="not the pinned job"):
        JobEnvelope.read(other.document(), job_digest(plan))


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b"\xff", b'{"v":2}'])
def test_what_is_no_envelope_is_refused(document):
    with pytest.raises(Invalid):
        JobEnvelope.read(document, "0" * 64)


def test_a_later_epoch_or_a_later_dial_has_a_higher_fence():
    assert fence(1, 0) == 65_536
    assert fence(1, 0) < fence(1, 1) < fence(1, 65_535) < fence(2, 0)
