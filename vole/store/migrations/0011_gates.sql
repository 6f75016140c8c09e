-- jobs
-- A badge asks for the newest runs at a branch.
CREATE INDEX runs_by_ref ON runs (repo_id, ref, number);

-- evidence
-- What branches demand of a commit before they move to it. `repo_id` is no foreign key: forgetting a repository drops them.
CREATE TABLE gates (
  repo_id INTEGER NOT NULL,
  pattern TEXT NOT NULL,  -- of branches
  requires TEXT NOT NULL, -- JSON list: `ci`, `ci/test`, `status:deploy`
  set_by TEXT NOT NULL,
  set_at INTEGER NOT NULL,
  PRIMARY KEY (repo_id, pattern)
) STRICT, WITHOUT ROWID;

-- What outside systems say of a commit: the newest of each context.
CREATE TABLE statuses (
  repo_id INTEGER NOT NULL,
  commit_id TEXT NOT NULL,
  context TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state = 'pending' OR state = 'success' OR state = 'failure' OR state = 'error'),
  target_url TEXT NOT NULL DEFAULT '',
  description TEXT NOT NULL DEFAULT '',
  account TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (repo_id, commit_id, context)
) STRICT, WITHOUT ROWID;
