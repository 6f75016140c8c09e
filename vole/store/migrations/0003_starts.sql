-- Runs that no push starts: by hand, by the clock, and again.

-- jobs
-- `runs.push_id` is the id of what started the run: of `pushes`, or of `starts` below. No two of our ids are alike.
-- A run is run again once: the runs of one start are a chain, and `attempt` counts along it.
CREATE UNIQUE INDEX runs_rerun ON runs (rerun_of) WHERE rerun_of IS NOT NULL;
-- In a rerun that left the job out: the job whose result this one has. It was never leased itself.
ALTER TABLE jobs ADD COLUMN carried_of INTEGER;

-- repos
CREATE TABLE starts (
  id INTEGER PRIMARY KEY,
  repo_id INTEGER NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
  workflow_path TEXT NOT NULL,
  account TEXT, -- NULL: its schedule
  due_at INTEGER, -- the minute of the schedule
  started_at INTEGER NOT NULL,
  CHECK ((account IS NULL) = (due_at IS NOT NULL)),
  UNIQUE (repo_id, workflow_path, due_at) -- a minute starts a workflow once, whatever the clock does
) STRICT;

-- The times of the workflows at the tip of the default branch, one row a file.
CREATE TABLE schedules (
  repo_id INTEGER NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
  workflow_path TEXT NOT NULL,
  times TEXT NOT NULL, -- JSON list of cron lines
  next_at INTEGER NOT NULL,
  problem TEXT NOT NULL DEFAULT '', -- why its last time started nothing
  PRIMARY KEY (repo_id, workflow_path)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedules_due ON schedules (next_at);

-- Of repositories that have schedules or may have: they are to be read again while `marked` is ahead of `seen`.
CREATE TABLE schedule_reads (
  repo_id INTEGER PRIMARY KEY REFERENCES repos (id) ON DELETE CASCADE,
  marked INTEGER NOT NULL DEFAULT 1,
  seen INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX schedule_reads_due ON schedule_reads (repo_id) WHERE marked > seen;
