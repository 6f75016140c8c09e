import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Resumability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESUMABILITY_UNSPECIFIED: _ClassVar[Resumability]
    STATELESS_REPLAY: _ClassVar[Resumability]
    REQUIRES_MEMORY_SNAPSHOT: _ClassVar[Resumability]
    RESTART_ONLY: _ClassVar[Resumability]

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    USER: _ClassVar[Reason]
    TIMEOUT: _ClassVar[Reason]
    SUPERSEDED: _ClassVar[Reason]
    INTERNAL: _ClassVar[Reason]

class Effects(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EFFECTS_UNSPECIFIED: _ClassVar[Effects]
    NONE: _ClassVar[Effects]
    WORKSPACE: _ClassVar[Effects]
    EXTERNAL: _ClassVar[Effects]

class Decision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DECISION_UNSPECIFIED: _ClassVar[Decision]
    RUN: _ClassVar[Decision]
    SERVE: _ClassVar[Decision]
    REFUSE: _ClassVar[Decision]

class StepState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_STATE_UNSPECIFIED: _ClassVar[StepState]
    SUCCEEDED: _ClassVar[StepState]
    FAILED: _ClassVar[StepState]
    CANCELED: _ClassVar[StepState]
    SKIPPED: _ClassVar[StepState]

class Stream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STREAM_UNSPECIFIED: _ClassVar[Stream]
    STDOUT: _ClassVar[Stream]
    STDERR: _ClassVar[Stream]
    HARNESS: _ClassVar[Stream]

class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEVEL_UNSPECIFIED: _ClassVar[Level]
    NOTICE: _ClassVar[Level]
    WARNING: _ClassVar[Level]
    ERROR: _ClassVar[Level]
RESUMABILITY_UNSPECIFIED: Resumability
STATELESS_REPLAY: Resumability
REQUIRES_MEMORY_SNAPSHOT: Resumability
RESTART_ONLY: Resumability
REASON_UNSPECIFIED: Reason
USER: Reason
TIMEOUT: Reason
SUPERSEDED: Reason
INTERNAL: Reason
EFFECTS_UNSPECIFIED: Effects
NONE: Effects
WORKSPACE: Effects
EXTERNAL: Effects
DECISION_UNSPECIFIED: Decision
RUN: Decision
SERVE: Decision
REFUSE: Decision
STEP_STATE_UNSPECIFIED: StepState
SUCCEEDED: StepState
FAILED: StepState
CANCELED: StepState
SKIPPED: StepState
STREAM_UNSPECIFIED: Stream
STDOUT: Stream
STDERR: Stream
HARNESS: Stream
LEVEL_UNSPECIFIED: Level
NOTICE: Level
WARNING: Level
ERROR: Level

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Descriptor(_message.Message):
    __slots__ = ("id", "version", "instance_id", "capabilities", "labels", "step_kinds", "max_jobs", "running_jobs", "protocol")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    STEP_KINDS_FIELD_NUMBER: _ClassVar[int]
    MAX_JOBS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_JOBS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: str
    instance_id: str
    capabilities: Capabilities
    labels: _containers.ScalarMap[str, str]
    step_kinds: _containers.RepeatedScalarFieldContainer[str]
    max_jobs: int
    running_jobs: int
    protocol: int
    def __init__(self, id: _Optional[str] = ..., version: _Optional[str] = ..., instance_id: _Optional[str] = ..., capabilities: _Optional[_Union[Capabilities, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., step_kinds: _Optional[_Iterable[str]] = ..., max_jobs: _Optional[int] = ..., running_jobs: _Optional[int] = ..., protocol: _Optional[int] = ...) -> None: ...

class Capabilities(_message.Message):
    __slots__ = ("resumability", "workspace_checkpoint", "reattach", "requires_gpu", "isolates_jobs")
    RESUMABILITY_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REATTACH_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_GPU_FIELD_NUMBER: _ClassVar[int]
    ISOLATES_JOBS_FIELD_NUMBER: _ClassVar[int]
    resumability: Resumability
    workspace_checkpoint: bool
    reattach: bool
    requires_gpu: bool
    isolates_jobs: bool
    def __init__(self, resumability: _Optional[_Union[Resumability, str]] = ..., workspace_checkpoint: _Optional[bool] = ..., reattach: _Optional[bool] = ..., requires_gpu: _Optional[bool] = ..., isolates_jobs: _Optional[bool] = ...) -> None: ...

class HostFrame(_message.Message):
    __slots__ = ("job_uid", "attempt_id", "fence", "start", "attach", "grant", "ack", "cancel", "detach")
    JOB_UID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    job_uid: str
    attempt_id: str
    fence: int
    start: Start
    attach: Attach
    grant: StepGrant
    ack: Ack
    cancel: Cancel
    detach: Detach
    def __init__(self, job_uid: _Optional[str] = ..., attempt_id: _Optional[str] = ..., fence: _Optional[int] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., attach: _Optional[_Union[Attach, _Mapping]] = ..., grant: _Optional[_Union[StepGrant, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., detach: _Optional[_Union[Detach, _Mapping]] = ...) -> None: ...

class HarnessFrame(_message.Message):
    __slots__ = ("attempt_id", "seq", "hello", "intent", "result", "checkpoint", "artifact", "end", "log", "heartbeat", "mask", "annotation")
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    ANNOTATION_FIELD_NUMBER: _ClassVar[int]
    attempt_id: str
    seq: int
    hello: Hello
    intent: StepIntent
    result: StepResult
    checkpoint: Checkpoint
    artifact: ArtifactReady
    end: End
    log: LogChunk
    heartbeat: Heartbeat
    mask: Mask
    annotation: Annotation
    def __init__(self, attempt_id: _Optional[str] = ..., seq: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., intent: _Optional[_Union[StepIntent, _Mapping]] = ..., result: _Optional[_Union[StepResult, _Mapping]] = ..., checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ..., artifact: _Optional[_Union[ArtifactReady, _Mapping]] = ..., end: _Optional[_Union[End, _Mapping]] = ..., log: _Optional[_Union[LogChunk, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., mask: _Optional[_Union[Mask, _Mapping]] = ..., annotation: _Optional[_Union[Annotation, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("descriptor", "running")
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    descriptor: Descriptor
    running: _containers.RepeatedCompositeFieldContainer[AttemptState]
    def __init__(self, descriptor: _Optional[_Union[Descriptor, _Mapping]] = ..., running: _Optional[_Iterable[_Union[AttemptState, _Mapping]]] = ...) -> None: ...

class AttemptState(_message.Message):
    __slots__ = ("job_uid", "attempt_id", "fence", "last_seq", "last_log_seq")
    JOB_UID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_LOG_SEQ_FIELD_NUMBER: _ClassVar[int]
    job_uid: str
    attempt_id: str
    fence: int
    last_seq: int
    last_log_seq: int
    def __init__(self, job_uid: _Optional[str] = ..., attempt_id: _Optional[str] = ..., fence: _Optional[int] = ..., last_seq: _Optional[int] = ..., last_log_seq: _Optional[int] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("plan", "plan_digest", "source", "restore", "env", "secrets", "timeout", "log_window_bytes", "heartbeat")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    LOG_WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    plan: bytes
    plan_digest: str
    source: BlobRef
    restore: BlobRef
    env: _containers.ScalarMap[str, str]
    secrets: _containers.RepeatedCompositeFieldContainer[Secret]
    timeout: _duration_pb2.Duration
    log_window_bytes: int
    heartbeat: _duration_pb2.Duration
    def __init__(self, plan: _Optional[bytes] = ..., plan_digest: _Optional[str] = ..., source: _Optional[_Union[BlobRef, _Mapping]] = ..., restore: _Optional[_Union[BlobRef, _Mapping]] = ..., env: _Optional[_Mapping[str, str]] = ..., secrets: _Optional[_Iterable[_Union[Secret, _Mapping]]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., log_window_bytes: _Optional[int] = ..., heartbeat: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Attach(_message.Message):
    __slots__ = ("instance_id", "events_from", "log_from")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FROM_FIELD_NUMBER: _ClassVar[int]
    LOG_FROM_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    events_from: int
    log_from: int
    def __init__(self, instance_id: _Optional[str] = ..., events_from: _Optional[int] = ..., log_from: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("events_through", "log_through")
    EVENTS_THROUGH_FIELD_NUMBER: _ClassVar[int]
    LOG_THROUGH_FIELD_NUMBER: _ClassVar[int]
    events_through: int
    log_through: int
    def __init__(self, events_through: _Optional[int] = ..., log_through: _Optional[int] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("reason", "grace")
    REASON_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    reason: Reason
    grace: _duration_pb2.Duration
    def __init__(self, reason: _Optional[_Union[Reason, str]] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Detach(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StepIntent(_message.Message):
    __slots__ = ("step_id", "input_digest", "effects", "idempotency_key")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    input_digest: str
    effects: Effects
    idempotency_key: str
    def __init__(self, step_id: _Optional[str] = ..., input_digest: _Optional[str] = ..., effects: _Optional[_Union[Effects, str]] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class StepGrant(_message.Message):
    __slots__ = ("step_id", "decision", "recorded", "reason")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    decision: Decision
    recorded: StepResult
    reason: str
    def __init__(self, step_id: _Optional[str] = ..., decision: _Optional[_Union[Decision, str]] = ..., recorded: _Optional[_Union[StepResult, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class StepResult(_message.Message):
    __slots__ = ("step_id", "state", "exit_code", "signal", "outputs", "log_bytes", "log_sha256", "started_unix_ms", "finished_unix_ms", "workspace_digest", "timed_out", "continued", "reason", "leftovers")
    class OutputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_SHA256_FIELD_NUMBER: _ClassVar[int]
    STARTED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TIMED_OUT_FIELD_NUMBER: _ClassVar[int]
    CONTINUED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEFTOVERS_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    state: StepState
    exit_code: int
    signal: str
    outputs: _containers.ScalarMap[str, str]
    log_bytes: int
    log_sha256: str
    started_unix_ms: int
    finished_unix_ms: int
    workspace_digest: str
    timed_out: bool
    continued: bool
    reason: str
    leftovers: _containers.RepeatedCompositeFieldContainer[Leftover]
    def __init__(self, step_id: _Optional[str] = ..., state: _Optional[_Union[StepState, str]] = ..., exit_code: _Optional[int] = ..., signal: _Optional[str] = ..., outputs: _Optional[_Mapping[str, str]] = ..., log_bytes: _Optional[int] = ..., log_sha256: _Optional[str] = ..., started_unix_ms: _Optional[int] = ..., finished_unix_ms: _Optional[int] = ..., workspace_digest: _Optional[str] = ..., timed_out: _Optional[bool] = ..., continued: _Optional[bool] = ..., reason: _Optional[str] = ..., leftovers: _Optional[_Iterable[_Union[Leftover, _Mapping]]] = ...) -> None: ...

class Leftover(_message.Message):
    __slots__ = ("pid", "name", "killed")
    PID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KILLED_FIELD_NUMBER: _ClassVar[int]
    pid: int
    name: str
    killed: bool
    def __init__(self, pid: _Optional[int] = ..., name: _Optional[str] = ..., killed: _Optional[bool] = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ("step_id", "stream", "seq", "offset", "data", "ts_unix_ns")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TS_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    stream: Stream
    seq: int
    offset: int
    data: bytes
    ts_unix_ns: int
    def __init__(self, step_id: _Optional[str] = ..., stream: _Optional[_Union[Stream, str]] = ..., seq: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., ts_unix_ns: _Optional[int] = ...) -> None: ...

class Mask(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class Annotation(_message.Message):
    __slots__ = ("step_id", "level", "message", "file", "line")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    level: Level
    message: str
    file: str
    line: int
    def __init__(self, step_id: _Optional[str] = ..., level: _Optional[_Union[Level, str]] = ..., message: _Optional[str] = ..., file: _Optional[str] = ..., line: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("monotonic_ms", "step_id", "cpu_ms", "rss_bytes")
    MONOTONIC_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    CPU_MS_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    monotonic_ms: int
    step_id: str
    cpu_ms: int
    rss_bytes: int
    def __init__(self, monotonic_ms: _Optional[int] = ..., step_id: _Optional[str] = ..., cpu_ms: _Optional[int] = ..., rss_bytes: _Optional[int] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("after_step", "tree")
    AFTER_STEP_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    after_step: str
    tree: BlobRef
    def __init__(self, after_step: _Optional[str] = ..., tree: _Optional[_Union[BlobRef, _Mapping]] = ...) -> None: ...

class ArtifactReady(_message.Message):
    __slots__ = ("name", "blob", "path")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    name: str
    blob: BlobRef
    path: str
    def __init__(self, name: _Optional[str] = ..., blob: _Optional[_Union[BlobRef, _Mapping]] = ..., path: _Optional[str] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("state", "error", "outputs", "summary", "reason")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[End.State]
        COMPLETED: _ClassVar[End.State]
        FAILED: _ClassVar[End.State]
        CANCELED: _ClassVar[End.State]
    STATE_UNSPECIFIED: End.State
    COMPLETED: End.State
    FAILED: End.State
    CANCELED: End.State
    class OutputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    state: End.State
    error: Error
    outputs: _containers.ScalarMap[str, str]
    summary: str
    reason: Reason
    def __init__(self, state: _Optional[_Union[End.State, str]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., outputs: _Optional[_Mapping[str, str]] = ..., summary: _Optional[str] = ..., reason: _Optional[_Union[Reason, str]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class BlobRef(_message.Message):
    __slots__ = ("sha256", "size", "media_type")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    size: int
    media_type: str
    def __init__(self, sha256: _Optional[str] = ..., size: _Optional[int] = ..., media_type: _Optional[str] = ...) -> None: ...

class BlobChunk(_message.Message):
    __slots__ = ("sha256", "offset", "data", "last")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    offset: int
    data: bytes
    last: bool
    def __init__(self, sha256: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class FetchBlobRequest(_message.Message):
    __slots__ = ("sha256", "offset")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    offset: int
    def __init__(self, sha256: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class Secret(_message.Message):
    __slots__ = ("name", "value", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    version: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ..., version: _Optional[str] = ...) -> None: ...
