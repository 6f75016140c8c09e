-- Times are Moments (microseconds since 1970 UTC). Ids are made by us and sort by time.
-- Each table is written by the ledger of one room, named above it.

-- people
CREATE TABLE accounts (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  admin INTEGER NOT NULL CHECK (admin IN (0, 1)),
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE keys (
  id INTEGER PRIMARY KEY,
  account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
  kind TEXT NOT NULL CHECK (kind IN ('git', 'runner')),
  fingerprint TEXT NOT NULL UNIQUE, -- SHA256:…, as ssh-keygen -l prints it
  public_key TEXT NOT NULL,         -- algorithm and base64, no comment
  comment TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX keys_by_account ON keys (account_id);

-- `repo_id` is no foreign key: rooms do not reach into each other's tables; forgetting a repository drops its grants.
CREATE TABLE grants (
  account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
  repo_id INTEGER NOT NULL,
  level TEXT NOT NULL CHECK (level IN ('read', 'write', 'run')), -- read < write; run apart: a runner's allowlist
  created_at INTEGER NOT NULL,
  PRIMARY KEY (account_id, repo_id, level)
) STRICT;
CREATE INDEX grants_by_repo ON grants (repo_id);

CREATE TABLE login_links (
  token_digest TEXT PRIMARY KEY,
  account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
  expires_at INTEGER NOT NULL,
  used_at INTEGER
) STRICT;

CREATE TABLE sessions (
  id INTEGER PRIMARY KEY,
  token_digest TEXT NOT NULL UNIQUE,
  account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE tokens (
  id INTEGER PRIMARY KEY,
  token_digest TEXT NOT NULL UNIQUE,
  account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  scope TEXT, -- NULL: all that the account may; else `status:app`
  created_at INTEGER NOT NULL,
  UNIQUE (account_id, name)
) STRICT;

-- repos
CREATE TABLE repos (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  public INTEGER NOT NULL CHECK (public IN (0, 1)),
  description TEXT NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE pushes (
  id INTEGER PRIMARY KEY,
  repo_id INTEGER NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
  account TEXT NOT NULL,
  key_fingerprint TEXT NOT NULL,
  options TEXT NOT NULL, -- JSON list
  state TEXT NOT NULL CHECK (state IN ('intended', 'confirmed', 'dropped')),
  received_at INTEGER NOT NULL,
  settled_at INTEGER
) STRICT;
-- The repository lock leaves at most one open intent per repository (queue.md 5).
CREATE UNIQUE INDEX pushes_open ON pushes (repo_id) WHERE state = 'intended';
CREATE INDEX pushes_by_repo ON pushes (repo_id, received_at);

CREATE TABLE push_updates (
  push_id INTEGER NOT NULL REFERENCES pushes (id) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  ref TEXT NOT NULL,
  old TEXT,
  new TEXT,
  moved INTEGER CHECK (moved IN (0, 1)), -- NULL while intended
  PRIMARY KEY (push_id, ordinal)
) STRICT;

-- The pinned documents of an intent, whole, until confirm hands them to the queue. Dropped when settled.
CREATE TABLE push_runs (
  push_id INTEGER NOT NULL REFERENCES pushes (id) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  ref TEXT NOT NULL,
  document TEXT NOT NULL, -- canonical JSON of a wire.plan.RunPlan
  PRIMARY KEY (push_id, ordinal)
) STRICT;

-- jobs
CREATE TABLE run_numbers (
  repo_id INTEGER PRIMARY KEY,
  next INTEGER NOT NULL CHECK (next >= 1)
) STRICT;

CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  repo_id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  push_id INTEGER NOT NULL,
  push_ordinal INTEGER NOT NULL, -- of push_runs: a run set is made once
  ref TEXT NOT NULL,
  commit_id TEXT NOT NULL,
  workflow TEXT NOT NULL,
  workflow_path TEXT NOT NULL,
  workflow_blob TEXT NOT NULL,
  event TEXT NOT NULL, -- canonical JSON of a wire.plan.EventFacts
  actor TEXT NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 1, -- 1 + the length of the rerun chain
  rerun_of INTEGER REFERENCES runs (id),
  state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'finished')),
  conclusion TEXT CHECK (conclusion IN ('success', 'failure', 'cancelled', 'skipped')),
  reason TEXT NOT NULL DEFAULT '', -- of a skipped run: `filter` or `skip_ci`
  created_at INTEGER NOT NULL,
  finished_at INTEGER,
  UNIQUE (repo_id, number),
  UNIQUE (push_id, push_ordinal, attempt),
  CHECK ((state = 'finished') = (conclusion IS NOT NULL)),
  CHECK ((state = 'finished') = (finished_at IS NOT NULL))
) STRICT;
CREATE INDEX runs_by_commit ON runs (repo_id, commit_id);
CREATE INDEX runs_unfinished ON runs (repo_id) WHERE state <> 'finished';

CREATE TABLE jobs (
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  repo_id INTEGER NOT NULL,
  ordinal INTEGER NOT NULL, -- order of the file
  job TEXT NOT NULL,        -- the id in the file
  key TEXT NOT NULL,        -- `job` or `job.N`
  name TEXT NOT NULL,
  digest TEXT NOT NULL,     -- SHA-256 of the pinned document
  timeout_us INTEGER NOT NULL,
  on_lost TEXT NOT NULL CHECK (on_lost IN ('rerun', 'fail')),
  continue_on_error INTEGER NOT NULL CHECK (continue_on_error IN (0, 1)),
  state TEXT NOT NULL CHECK (state IN ('blocked', 'queued', 'leased', 'running', 'cancelling', 'finished')),
  conclusion TEXT CHECK (conclusion IN
    ('success', 'failure', 'cancelled', 'timed_out', 'expired', 'skipped', 'errored', 'lost')),
  reason TEXT NOT NULL DEFAULT '', -- one sentence: why it waits, was cancelled, ended
  marked INTEGER NOT NULL DEFAULT 0 CHECK (marked IN (0, 1)), -- success only by continue-on-error
  epoch INTEGER NOT NULL DEFAULT 0,        -- of the newest attempt; 0: never leased
  losses INTEGER NOT NULL DEFAULT 0,       -- attempts lost, against ATTEMPTS_MAX
  enqueued_at INTEGER NOT NULL,
  queued_at INTEGER,                       -- when it last became leasable
  started_at INTEGER,                      -- of the newest attempt
  deadline_at INTEGER,                     -- lease: start window, then TTL
  timeout_at INTEGER,                      -- of a running job
  ending_as TEXT CHECK (ending_as IN ('cancelled', 'timed_out')), -- while cancelling
  finished_at INTEGER,
  outputs TEXT NOT NULL DEFAULT '{}',
  set_aside TEXT,                          -- why this row is not worked on; counted and named on /status
  UNIQUE (run_id, key),
  CHECK ((state = 'finished') = (conclusion IS NOT NULL)),
  CHECK ((state = 'finished') = (finished_at IS NOT NULL)),
  CHECK ((state IN ('leased', 'running', 'cancelling')) = (deadline_at IS NOT NULL)),
  CHECK ((state = 'cancelling') = (ending_as IS NOT NULL))
) STRICT;
-- A job has a deadline while somebody holds it (the CHECK above). `state IN (…)` here would cost 0.15 ms an update.
CREATE INDEX jobs_held ON jobs (deadline_at) WHERE deadline_at IS NOT NULL;
CREATE INDEX jobs_queued ON jobs (enqueued_at, id) WHERE state = 'queued';
CREATE INDEX jobs_blocked ON jobs (run_id) WHERE state = 'blocked';
CREATE INDEX jobs_running_by_repo ON jobs (repo_id) WHERE deadline_at IS NOT NULL;
CREATE INDEX jobs_set_aside ON jobs (id) WHERE set_aside IS NOT NULL;

CREATE TABLE job_documents (
  job_id INTEGER PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  document TEXT NOT NULL -- canonical JSON of a wire.plan.JobPlan
) STRICT;

CREATE TABLE job_needs (
  job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  needs TEXT NOT NULL, -- a job id of the file: every job of the run with it
  PRIMARY KEY (job_id, needs)
) STRICT, WITHOUT ROWID;

-- Label sets are interned. Labels are queue state: they go with the repository and no rebuild restores them.
CREATE TABLE label_sets (
  id INTEGER PRIMARY KEY,
  labels TEXT NOT NULL UNIQUE -- sorted JSON list
) STRICT;
CREATE TABLE run_labels (
  job_id INTEGER PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  repo_id INTEGER NOT NULL,
  label_set_id INTEGER NOT NULL REFERENCES label_sets (id)
) STRICT;
CREATE INDEX run_labels_by_repo ON run_labels (repo_id);
CREATE INDEX run_labels_by_set ON run_labels (label_set_id);

CREATE TABLE attempts (
  job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  epoch INTEGER NOT NULL CHECK (epoch >= 1),
  session_id INTEGER NOT NULL,   -- the runner process that holds it
  token TEXT NOT NULL,           -- of the want: the same token asked again gives the same lease
  account TEXT NOT NULL,
  key_fingerprint TEXT NOT NULL,
  runner TEXT NOT NULL,          -- name, a claim
  runner_version TEXT NOT NULL,
  os TEXT NOT NULL,
  arch TEXT NOT NULL,
  leased_at INTEGER NOT NULL,
  started_at INTEGER,
  renewed_at INTEGER,
  ended_at INTEGER,
  end_cause TEXT CHECK (end_cause IN
    ('finished', 'handed_back', 'not_started', 'cancelled', 'timed_out', 'expired', 'disconnected', 'key_removed',
     'repository_removed', 'operator')),
  end_detail TEXT NOT NULL DEFAULT '',
  conclusion TEXT,
  step INTEGER NOT NULL DEFAULT 0,
  log_bytes INTEGER NOT NULL DEFAULT 0,   -- as of the last renewal; the file's length is the truth
  log_declared INTEGER,                   -- at finish
  log_sha256 TEXT,
  log_state TEXT NOT NULL DEFAULT 'open' CHECK (log_state IN ('open', 'complete', 'incomplete')),
  log_truncated INTEGER NOT NULL DEFAULT 0,
  result_digest TEXT,                     -- of the accepted finish frame: a repeat is answered alike
  steps TEXT NOT NULL DEFAULT '[]',       -- JSON of wire.runner.StepOutcome
  PRIMARY KEY (job_id, epoch),
  CHECK ((ended_at IS NULL) = (end_cause IS NULL))
) STRICT;
CREATE UNIQUE INDEX attempts_live ON attempts (job_id) WHERE ended_at IS NULL;
CREATE INDEX attempts_by_session ON attempts (session_id) WHERE ended_at IS NULL;

-- Append-only. Every change of a job or run appends in the same transaction; the tables above are its projection.
CREATE TABLE events (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  repo_id INTEGER NOT NULL,
  run_id INTEGER NOT NULL,
  job_id INTEGER,
  epoch INTEGER,
  kind TEXT NOT NULL,
  detail TEXT NOT NULL DEFAULT '{}' -- JSON
) STRICT;
CREATE INDEX events_by_run ON events (run_id, id);

-- evidence
CREATE TABLE marks (
  job_id INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  log_offset INTEGER NOT NULL,
  at INTEGER NOT NULL,
  step INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('begin', 'end', 'skipped')),
  title TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job_id, epoch, ordinal)
) STRICT, WITHOUT ROWID;

CREATE TABLE artifacts (
  job_id INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  repo_id INTEGER NOT NULL,
  run_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  path TEXT NOT NULL,
  size INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER, -- NULL: kept
  PRIMARY KEY (job_id, epoch, name, path)
) STRICT;
CREATE INDEX artifacts_by_run ON artifacts (run_id);
CREATE INDEX artifacts_expiring ON artifacts (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE annotations (
  job_id INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  run_id INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  level TEXT NOT NULL CHECK (level IN ('notice', 'warning', 'error')),
  message TEXT NOT NULL,
  file TEXT NOT NULL DEFAULT '',
  line INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (job_id, epoch, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX annotations_by_run ON annotations (run_id);

CREATE TABLE summaries (
  job_id INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  run_id INTEGER NOT NULL,
  markdown TEXT NOT NULL,
  PRIMARY KEY (job_id, epoch)
) STRICT;

-- runners
-- A row is one process. Written at hello and goodbye only: an idle runner costs no writes, its last contact lives in memory.
CREATE TABLE runners (
  id INTEGER PRIMARY KEY,      -- the session
  account TEXT NOT NULL,
  key_fingerprint TEXT NOT NULL,
  name TEXT NOT NULL,
  incarnation TEXT NOT NULL,
  labels TEXT NOT NULL,        -- JSON list
  repos TEXT NOT NULL,         -- JSON list: the filter
  slots INTEGER NOT NULL,
  only_labelled INTEGER NOT NULL CHECK (only_labelled IN (0, 1)),
  mode TEXT NOT NULL,
  version TEXT NOT NULL,
  os TEXT NOT NULL,
  arch TEXT NOT NULL,
  connected_at INTEGER NOT NULL,
  disconnected_at INTEGER
) STRICT;
-- The same key and incarnation is the same process: it comes back to its leases.
CREATE UNIQUE INDEX runners_process ON runners (key_fingerprint, incarnation);
CREATE INDEX runners_connected ON runners (id) WHERE disconnected_at IS NULL;

-- A label is known when a runner carried it, a tier has it, or someone declared it.
CREATE TABLE labels (
  label TEXT PRIMARY KEY,
  declared_by TEXT, -- NULL: carried by a runner
  carried_at INTEGER,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
