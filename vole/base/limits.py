"""Every bound in the system, with its unit and its reason. A test fails on one that nothing uses."""

from __future__ import annotations

from dataclasses import dataclass

# Sizes, in bytes
KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

# Names
ACCOUNT_NAME_MAX = 32  # characters; fits a column of `runner list`
REF_NAME_BYTES_MAX = 1024  # git's own lock files need room below PATH_MAX

# Settings files
SETTINGS_BYTES_MAX = 256 * KIB  # written by hand; more is another file

# The push (SR-15)
PACK_BYTES_MAX = 4 * GIB  # receive.maxInputSize
OBJECT_BYTES_MAX = 512 * MIB  # one inflated object; larger belongs elsewhere
PUSH_OBJECTS_MAX = 2_000_000  # a large monorepo's first push has half of it
PUSH_REFS_MAX = 5_000  # ref updates in one push
ADVERTISED_BYTES_MAX = 64 * KIB  # of refs that are read on the loop and named before git is up; beyond, git names them
VOUCHED_OBJECTS_MIN = 1_000  # of a first push, from which on git is spared a second walk; git unpacks fewer than 100
PUSH_OPTIONS_MAX = 32  # options in one push
PUSH_OPTION_BYTES_MAX = 1 * KIB  # one option; ci.variable carries a value
PUSH_LOCK_S = 30  # seconds a repository may stay locked from verdict to confirm, then the child is killed
CHANGED_PATHS_MAX = 20_000  # paths compared for a path filter; beyond, the filter counts as matched
CHANGED_PATH_CHARS_MAX = 4 * MIB  # the same for their length together: 20,000 paths of 200 characters

# Workflows (workflow.md 1, 2)
WORKFLOW_FILES_MAX = 64
WORKFLOW_BYTES_MAX = 64 * KIB  # one file
WORKFLOW_JOBS_MAX = 256  # after matrix expansion
WORKFLOW_STEPS_MAX = 200  # in one job
WORKFLOW_LABELS_MAX = 16  # in one job
MATRIX_JOBS_MAX = 64  # of one job
MATRIX_PRODUCT_MAX = 4_096  # combinations before `exclude` takes away
NAME_CHARS_MAX = 200  # of a workflow, job or step, as pages show it
YAML_DEPTH_MAX = 32
YAML_NODES_MAX = 10_000  # after alias expansion, counted before anything is expanded
PLAN_BYTES_MAX = 256 * KIB  # one job's pinned document; it travels in one frame
PLAN_STAMP_BYTES = 64 * KIB  # of those, kept for what the push adds: event, ref, variables
PUSH_PLAN_BYTES_MAX = 32 * MIB  # all documents of one push
PROBLEMS_SHOWN_MAX = 20  # then a count
PROBLEMS_KEPT_MAX = 200  # of one file, for `vole check`; the rest is counted
PROBLEM_CHARS_MAX = 400  # one error line (SR-22)
EXPRESSION_CHARS_MAX = 4 * KIB
EXPRESSION_DEPTH_MAX = 32
EXPRESSION_VALUE_CHARS_MAX = 256 * KIB  # a result of join, format or toJSON
GLOB_CHARS_MAX = 512
GROUP_CHARS_MAX = 200  # a concurrency group's name, once its expressions are values
FILTER_PATTERNS_MAX = 64  # in one list of branches, tags or paths
INPUTS_MAX = 10  # of a run that is started by hand
INPUT_OPTIONS_MAX = 64  # of one input that is a choice
INPUT_CHARS_MAX = 1_000  # of one value; all ten fit in what a plan keeps free for its event
SCHEDULE_TIMES_MAX = 10  # cron lines of one workflow

# Offload (architecture.md 6)
OFFLOAD_CHILDREN = 2  # one a core; a parse is 2 ms
OFFLOAD_CPU_S = 2  # CPU seconds one call may use
OFFLOAD_WALL_S = 5  # seconds until a call is late
OFFLOAD_QUEUE_S = 5  # seconds a call waits for a free child
OFFLOAD_CALLS_MAX = 1_000  # then the child is replaced: no leak lives long
OFFLOAD_MEMORY_BYTES = 256 * MIB
OFFLOAD_START_S = 5  # seconds until a new child is ready; it takes 0.2
OFFLOAD_ANSWER_BYTES_MAX = 48 * MIB  # the plans of a push, and the rest of the answer
VERDICTS_KEPT_MAX = 128  # verdicts remembered: a good few for each repository that is pushed to in a day
VERDICT_KEPT_BYTES_MAX = 64 * KIB  # files and documents of one; larger is rare, and all together are to be small

# SSH (SR-06)
SSH_LOGIN_S = 20
SSH_CONNECTIONS_UNAUTHENTICATED_MAX = 64  # together; a handshake costs 3 ms of CPU
SSH_CONNECTIONS_PER_ADDRESS_MAX = 128  # a NAT with fifty runners and their people
SSH_CONNECTIONS_MAX = 2_048
SSH_LOGIN_ATTEMPTS_MAX = 12  # keys an agent may offer; at least six
SSH_CHANNELS_MAX = 32  # on one connection: a runner's slots times log, artifact, source
SSH_KEEPALIVE_S = 15
SSH_KEEPALIVE_MISSES = 3  # 45 s until a lost peer is noticed
SSH_COMMAND_BYTES_MAX = 4 * KIB
COMMAND_STDIN_BYTES_MAX = 16 * KIB  # a public key; the largest has 4 KiB
SSH_PACKET_BYTES = 32 * KIB  # what RFC 4253 promises to take
SSH_PACKET_RUNNER_BYTES = 120 * KIB  # of a runner's logs and artifacts: a packet costs more than what is in it
PUMP_READ_BYTES = 128 * KIB  # one read between git and the channel
PUMP_BUFFER_BYTES_MAX = 1 * MIB  # buffered each way in one session
LOOSE_REFS_MAX = 32  # refs that each push reads as a file of their own; beyond, they are packed, in 5 ms
GIT_THREADS = 4  # pygit2 calls at once; two cores and a little waiting for disk
GIT_CHILDREN_MAX = 64  # git programs of the SSH door at once, each a core while it packs
GIT_CHILDREN_PER_ACCOUNT_MAX = 16  # of one account: one pusher cannot stop the others
GIT_DATA_BYTES_MAX = 2 * GIB  # heap of one receive-pack: a delta bomb ends there
PUSH_NOTICES_MAX = 50  # lines of an accepted push before its runs; a pipe holds them at once
SSH_TAIL_S = 600  # seconds a client may take for the last buffered megabyte
PUSH_CHECK_S = 60  # seconds one push's check may take
BITMAPS_OBJECTS_MIN = 5_000  # in packs; to walk through fewer takes a clone less than it takes to say hello
LOOSE_OBJECTS_MAX = 6_400  # about; a file each, eight of them a record: beyond, they become a pack
BITMAPS_AFTER_S = 1.0  # seconds after a push or clone: whoever follows at once is not held up
BITMAPS_S = 600  # seconds the writing may take; a repository of two million objects takes 30
GIT_END_S = 10  # seconds from TERM to KILL for a git child whose client left

# The runner link (runner.md 2)
FRAME_BYTES_MAX = 1 * MIB  # a plan is at most 256 KiB
TEXT_CHARS_MAX = 200  # any text a runner says about itself
RUNNER_SLOTS_MAX = 64
RUNNER_LABELS_MAX = 64
RUNNER_ORDERS_MAX = 512  # orders for one runner that are not sent yet; it hears the rest at its next renewal
LOOK_S = 5  # seconds after which a parked request looks by itself
HANDBACK_REST_S = 60  # seconds a runner is not offered a job that it handed back
RECONNECT_S = (0.2, 15.0)  # bounds of the runner's pause between tries
RUNNER_OPENING_S = 10  # seconds until a channel has said what it is, and a control channel who it is
RUNNER_PARTING_S = 1.0  # for a runner that was refused to read so and leave
SOURCE_CHECK_S = 1.0  # a pack that streams longer than this asks again whether its lease lives
SOURCE_HAVES_MAX = 16  # commits a cache names; older ones save little
CACHE_PACKS_MAX = 32  # then a runner's cache of a repository starts anew: it never needs a repack
SPOOL_UNSHIPPED_BYTES_MAX = 32 * MIB  # log of one attempt that the server lacks; beyond, the job waits
MASKS_MAX = 256  # masked lines of one job
MASK_BYTES_MAX = 8 * KIB  # one masked line; a key in one line of JSON has 3 KiB
MASK_BYTES_MIN = 3  # a shorter value cannot be hidden: it would blot out the log and still be guessed
MIN_FREE_BYTES = 1 * GIB  # free disk below which a runner takes no work ...
MIN_FREE_SHARE = 0.05  # ... or this share of a small disk

# Jobs (queue.md)
ATTEMPTS_MAX = 3  # leases a job may lose before it is `lost`
JOB_TIMEOUT_MINUTES = 60
JOB_TIMEOUT_MINUTES_MAX = 4_320
OUTPUT_BYTES_MAX = 64 * KIB  # all outputs of one job
SUMMARY_BYTES_MAX = 256 * KIB  # of one job; it travels in one frame with the result
ANNOTATIONS_MAX = 50  # kept of one job
LOG_FILES_OPEN_MAX = 256  # logs of live leases kept open; others are opened for each append
LOG_BYTES_MAX = 64 * MIB  # of one attempt; beyond it a notice
ARTIFACT_BYTES_MAX = 2 * GIB  # one file
ARTIFACT_FILES_MAX = 1_000  # of one job
ARTIFACT_PATH_BYTES_MAX = 512  # one file's path; a list of all files fits one frame
REPORT_FILES_MAX = 100  # test reports of one job that are read
REPORT_BYTES_MAX = 8 * MIB  # all of them together; read in one call of OFFLOAD_CPU_S
REPORT_DEPTH_MAX = 100  # elements in each other
REPORT_ELEMENTS_MAX = 200_000  # of one file
REPORT_FAILURES_MAX = 50  # kept of one job, in the order of its reports
REPORT_TEXT_CHARS_MAX = 4_000  # what one failed test says
REPORT_TIME_S_MAX = 1_000_000  # that a test can have taken; eleven days
CANCEL_GRACE_S = 10  # most seconds between TERM and KILL

# The harness (harness.md B4)
HARNESS_ANSWER_S = 10  # describe and Hello
HARNESS_HEARTBEAT_S = 5
HARNESS_REDIAL_S = 0.2  # between two tries to come back to a harness
HARNESS_SILENCE_S = 20
HARNESS_AHEAD_BYTES = 1 * MIB  # of its stream, on the way to a keeper that has not read it
LOG_CHUNK_BYTES = 120 * KIB  # with what is around it less than 128, where malloc begins to go to the kernel
LOG_WINDOW_BYTES = 8 * MIB  # unacknowledged log a harness may hold
LOG_ACK_GAP_S = 0.02  # that an ack of log waits for more to tell: a harness's window in that time is 400 MB/s
LOG_ACK_BYTES = 1 * MIB  # of a log without a pause, then its runner hears how much is stored
STEP_PIPE_BYTES = 256 * KIB  # between a step and its harness: fewer turns for each
LOG_GAP_S = 0.005  # between two chunks that are not full: a first line goes at once, a chatty step in 200 a second
ANNOTATION_CHARS_MAX = 1_000  # one annotation; fifty of them travel with the result
BLOB_CHUNK_BYTES = 64 * KIB  # bytes beside the stream, a message
BLOBS_BYTES_MAX = 8 * GIB  # pushed to one harness and not used up
BLOB_TRIES = 5  # to push or fetch a blob, each going on where the last one was cut
SOCKET_PATH_BYTES_MAX = 107  # sun_path of Linux without its final NUL
COMMAND_LINE_BYTES_MAX = 64 * KIB  # one `::command::` line of a log; longer is text
MASKS_MAX = 1_000  # of one job; beyond, the step is failed rather than shown unmasked
STEP_VARIABLES_BYTES_MAX = 1 * MIB  # one VOLE_ENV or VOLE_PATH file
LEFTOVER_GRACE_S = 1.0  # what a finished step left running gets between TERM and KILL
STEP_KILL_S = 5.0  # a tree that KILL does not empty in this time is given up, and the harness with it
JOB_MEMORY_MIN = 128 * MIB  # a harness alone takes 40
JOB_PIDS_MIN = 32  # likewise, with its threads
CONTAINER_START_S = 60  # an engine, from its start to the word of the harness in the container
SANDBOX_TMP_BYTES = 1 * GIB  # of each folder of a sandbox that is memory: /tmp, /dev/shm, the home folder
TOKEN_BYTES_MAX = 4 * KIB  # one bearer token of a harness
FENCES_REMEMBERED = 1_024  # jobs whose highest fence a harness keeps in mind

# The web (SR-52, SR-53)
HTTP_HEADERS_S = 15
HTTP_BODY_S = 60
HTTP_BODY_BYTES_MAX = 1 * MIB  # a form; upload-pack has its own
API_BODY_BYTES_MAX = 64 * KIB  # a JSON object of a few texts
HTTP_HEADERS_BYTES_MAX = 32 * KIB
HTTP_HEADERS_MAX = 100  # fields of one request
HTTP_UNREAD_S = 60  # seconds a client may leave an answer unread
HTTP_CONNECTIONS_MAX = 1_024  # open at once; each costs a descriptor and 30 KiB
UPLOAD_PACK_BODY_BYTES_MAX = 32 * MIB  # inflated; a negotiation of a repository with many refs
HTTP_GIT_MAX = 8  # git programs that fetches over HTTP run; SSH has places of its own
HTTP_GIT_PER_CLIENT_MAX = 4
LOGIN_LINK_S = 300
SESSION_DAYS = 30
PAGE_RENDERS_MAX = 4  # costly renders at once
PAGE_RENDERS_PER_CLIENT_MAX = 2
PAGE_RENDER_S = 10  # seconds of work on one page
PAGE_WAIT_S = 10  # seconds a page waits for a place
PAGES_KEPT_BYTES_MAX = 32 * MIB  # rendered pages of commits
RATE_PER_MINUTE = 600  # requests of one client to pages
BLOB_SHOWN_BYTES_MAX = 512 * KIB  # highlighted; beyond, plain; beyond 4 MiB a link
BLOB_PLAIN_BYTES_MAX = 4 * MIB
DIFF_FILES_MAX = 300
DIFF_LINES_MAX = 5_000
DIFF_ENTRIES_MAX = 200_000  # tree entries compared; a bomb of a few hundred bytes has billions
DIFF_RENAMES_MAX = 100  # files compared for renames; the work is the square of it
DIFF_FILE_BYTES_MAX = 512 * KIB  # either side of a file whose lines are shown
AT_ONCE_BYTES_MAX = 16 * KIB  # any object of a commit whose page is made on the event loop, in about a millisecond
AT_ONCE_OBJECTS_MAX = 32  # read for it
AT_ONCE_LINES_MAX = 200  # changed in it
AT_ONCE_VERDICTS_MAX = 32  # jobs times runners and one, that a push explains on the event loop, in half a millisecond
HELD_S = 10  # seconds a repository stays open after it was opened for such a page
HELD_MAX = 16  # such repositories at once
README_BYTES_MAX = 256 * KIB
README_IMAGES_MAX = 50  # of one text; beyond, links
LIST_MAX = 100  # rows of a page's list
HISTORY_SKIP_MAX = 20_000  # commits a page walks over first; 0.1 s
TREE_ENTRIES_MAX = 2_000  # entries of one folder; a page of it is 300 KiB
COMMIT_MESSAGE_BYTES_MAX = 64 * KIB  # shown of one commit
LOG_TAIL_BYTES = 128 * KIB  # shown first
LOG_RANGE_BYTES_MAX = 1 * MIB  # one range of a log page
LOG_LINE_BYTES_MAX = 64 * KIB  # shown as one line; a longer one comes in parts
QUEUE_SCANNED_MAX = 20_000  # waiting jobs that one page of the queue looks at; 50 ms
QUEUE_SHOWN_MAX = 200  # jobs on the page of the queue
EXPLAINED_MAX = 20  # waiting jobs, or label sets, explained on one page; each asks the store
DISK_FREE_BYTES_MIN = 256 * MIB  # below it the server says that it is not ready
EVENT_STREAMS_MAX = 256  # live pages open at once
TIMELINE_MAX = 200  # lines of the timeline on the page of a run; the event log has all of them

# Metrics
WAITS_READ_MAX = 2_000  # leases counted in one scrape; the rest comes with the next

# The server's own log lines (SR-79)
LOG_VALUE_CHARS_MAX = 400  # characters of one field; attackers choose some of them
LOG_TRACE_CHARS_MAX = 8 * KIB  # characters of a trace

# Retention
RETENTION_LOOK_S = 3_600  # seconds between looks for what may be let go; days are counted

PRUNE_AT_ONCE = 100  # runs or logs that go in one change: a push waits milliseconds for it

# Backup
PACK_LOOKS_MAX = 10  # at the packs of a repository, until they stand still; merging is rare

# Restore
RESTORE_NUMBERS_MIN = 250  # run numbers left free beyond the last one known: what ran after the backup had some

# Records
RECORDS_AT_ONCE = 100  # documents in one commit; each may hold a summary of 256 KiB
RECORD_EVENTS_MAX = 5_000  # events, and leases, told in one run's record; a run of 256 jobs has 1,500 of them
RECORDS_LOOK_S = 1.0  # what ends within a second shares a commit
RECORDS_REST_S = 30  # seconds a repository is left alone that no record could be written to
RECORD_OBJECT_BYTES_MAX = 64 * MIB  # of one object that is read to verify it: a document has some MiB at most

RECORD_CHAIN_MAX = 50_000  # record commits between the newest and one that is asked for: two seconds of reading

# Gates and statuses
GATES_MAX = 32  # of one repository; each push to it reads them
GATE_REQUIREMENTS_MAX = 32  # of one gate
GATED_REFS_MAX = 16  # branches with a gate that one push may move: each is judged on up to a thousand records
GATE_RECORD_S = 3  # seconds a push waits for the record of what has just ended; it is written within one
GATE_AUDIT_COMMITS_MAX = 500  # commits that one audit tells about, the newest; it takes some seconds
STATUS_CONTEXTS_MAX = 100  # of one commit
STATUS_URL_CHARS_MAX = 1_000  # of one target_url

# Feeds
FEED_RUNS_MAX = 50  # runs in a feed; readers look more often than these pass

# Replay
REPLAY_EVENTS_MAX = 200_000  # told again at once: half a minute of one core, 200 MB

# Stopping
STOP_S = 10  # seconds sessions get to end


@dataclass(frozen=True)
class LeaseTimes:
    """Every span that hangs on the lease TTL, in seconds (queue.md 4, Time)."""

    ttl_s: float
    renew_s: float  # the keeper renews this often
    start_window_s: float  # granted but not started: back to the queue
    fence_s: float  # a keeper that could not renew begins to end its steps
    grace_s: float  # TERM to KILL
    orphan_s: float  # a harness that lost its keeper begins to end its steps
    reattach_s: float  # a keeper that lost its harness asks for it; then it counts as lost


# The lease (queue.lease_ttl, in seconds)
LEASE_TTL_S = 60.0  # three renewals may be lost before another runner gets the job
LEASE_TTL_MIN_S = 6.0  # a grace of one second needs it
LEASE_TTL_MAX_S = 600.0  # a dead runner's job waits this long
SWEEP_ROWS_MAX = 500  # rows one pass of the expiry sweep takes of each kind; the rest is due a second later
LEASE_GAP_S = 5.0  # a pause of the expiry sweep beyond this moves live deadlines by the gap


def lease_times(ttl_s: float) -> LeaseTimes:
    """The spans for a TTL. Both ways of ending a step tree are over before the server offers the job elsewhere."""
    times = LeaseTimes(
        ttl_s=ttl_s,
        renew_s=ttl_s / 3,
        start_window_s=ttl_s / 4,
        fence_s=ttl_s * 3 / 4,
        grace_s=min(ttl_s / 6, CANCEL_GRACE_S),
        orphan_s=ttl_s / 2,
        reattach_s=ttl_s / 4,
    )
    assert times.fence_s + times.grace_s < ttl_s, times
    assert times.reattach_s < times.orphan_s < ttl_s - times.grace_s, times
    return times
