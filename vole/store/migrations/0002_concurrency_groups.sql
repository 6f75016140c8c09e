-- jobs
ALTER TABLE runs ADD COLUMN concurrency TEXT; -- canonical JSON of a wire.plan.Concurrency, pinned; NULL: none

-- The lines of concurrency groups. A place is taken when its run or job comes, and left when that is over: the first
-- place of a line has the group, the others wait in their order.
CREATE TABLE group_places (
  repo_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  within INTEGER NOT NULL, -- 0; the run, where it has the group of this name for its jobs: they line up inside
  place INTEGER NOT NULL,
  run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  job_id INTEGER REFERENCES jobs (id) ON DELETE CASCADE, -- NULL: the run as a whole
  spared INTEGER NOT NULL CHECK (spared IN (0, 1)), -- no newer one cancels it
  held_at INTEGER, -- NULL: it waits
  PRIMARY KEY (repo_id, name, within, place)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX group_places_held ON group_places (repo_id, name, within) WHERE held_at IS NOT NULL;
CREATE INDEX group_places_by_run ON group_places (run_id);

-- When the server takes the step that a job is at for one that its runner should have ended; NULL: it has no limit.
ALTER TABLE jobs ADD COLUMN step_timeout_at INTEGER;
