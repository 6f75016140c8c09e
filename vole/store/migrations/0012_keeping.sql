-- jobs
-- The numbers of a repository add up: next - 1 = runs that have rows + pruned + skipped (a restore passed them over).
ALTER TABLE run_numbers ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0 CHECK (skipped >= 0);
ALTER TABLE run_numbers ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0 CHECK (pruned >= 0);
ALTER TABLE run_numbers ADD COLUMN pruned_jobs INTEGER NOT NULL DEFAULT 0 CHECK (pruned_jobs >= 0);

-- evidence
-- Files of logs that were removed, whose attempts are still told.
CREATE TABLE removed_logs (
  job_id INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  removed_at INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  why TEXT NOT NULL, -- goes on after "removed": `after 90 days`, `by ada`
  PRIMARY KEY (job_id, epoch)
) STRICT, WITHOUT ROWID;

-- The row of an artifact stays when its bytes go.
ALTER TABLE artifacts ADD COLUMN removed_at INTEGER;
ALTER TABLE artifacts ADD COLUMN removed_why TEXT NOT NULL DEFAULT ''; -- as of `removed_logs`
DROP INDEX artifacts_expiring;
CREATE INDEX artifacts_expiring ON artifacts (expires_at) WHERE expires_at IS NOT NULL AND removed_at IS NULL;
CREATE INDEX artifacts_stored ON artifacts (repo_id, sha256) WHERE removed_at IS NULL;
