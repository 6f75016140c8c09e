-- jobs
-- The id of the first event of the same commit: what shared one was decided from one state of the index.
ALTER TABLE events ADD COLUMN batch INTEGER;
CREATE INDEX events_by_job ON events (job_id, id) WHERE job_id IS NOT NULL;

-- runners
-- Append-only, as `events` is: who came and went, with which labels, and what each key may run. Ids of both sort together.
CREATE TABLE fleet_events (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  session_id INTEGER, -- NULL: of an account, or of the whole server
  detail TEXT NOT NULL DEFAULT '{}' -- JSON
) STRICT;
CREATE INDEX fleet_events_rights ON fleet_events (kind, id) WHERE session_id IS NULL;

-- `x IN (three words or more)` builds a little table each time that a CHECK asks it: 20 µs, and an update of a job asked
-- five. The same words joined by OR ask nothing of the kind. No row changes, so the texts are edited in place, as
-- sqlite.org/lang_altertable.html says of constraints; a text that an earlier migration wrote otherwise stays as it is.
PRAGMA writable_schema = ON;

-- jobs
UPDATE sqlite_schema
SET sql = replace(replace(replace(sql,
  'CHECK (state IN (''queued'', ''running'', ''finished''))',
  'CHECK (state = ''queued'' OR state = ''running'' OR state = ''finished'')'),
  'CHECK (conclusion IN (''success'', ''failure'', ''cancelled'', ''skipped''))',
  'CHECK (conclusion = ''success'' OR conclusion = ''failure'' OR conclusion = ''cancelled'' OR conclusion = ''skipped'')'),
  'CHECK (state IN (''blocked'', ''queued'', ''leased'', ''running'', ''cancelling'', ''finished''))',
  'CHECK (state = ''blocked'' OR state = ''queued'' OR state = ''leased'' OR state = ''running'' OR state = ''cancelling'' OR state = ''finished'')')
WHERE type = 'table' AND name IN ('jobs', 'runs');
UPDATE sqlite_schema
SET sql = replace(replace(sql,
  'CHECK (conclusion IN
    (''success'', ''failure'', ''cancelled'', ''timed_out'', ''expired'', ''skipped'', ''errored'', ''lost''))',
  'CHECK (conclusion = ''success'' OR conclusion = ''failure'' OR conclusion = ''cancelled'' OR conclusion = ''timed_out'' OR conclusion = ''expired'' OR conclusion = ''skipped'' OR conclusion = ''errored'' OR conclusion = ''lost'')'),
  'CHECK ((state IN (''leased'', ''running'', ''cancelling'')) = (deadline_at IS NOT NULL))',
  'CHECK ((state = ''leased'' OR state = ''running'' OR state = ''cancelling'') = (deadline_at IS NOT NULL))')
WHERE type = 'table' AND name = 'jobs';
UPDATE sqlite_schema
SET sql = replace(replace(sql,
  'CHECK (end_cause IN
    (''finished'', ''handed_back'', ''not_started'', ''cancelled'', ''timed_out'', ''expired'', ''disconnected'', ''key_removed'',
     ''repository_removed'', ''operator''))',
  'CHECK (end_cause = ''finished'' OR end_cause = ''handed_back'' OR end_cause = ''not_started'' OR end_cause = ''cancelled'' OR end_cause = ''timed_out'' OR end_cause = ''expired'' OR end_cause = ''disconnected'' OR end_cause = ''key_removed'' OR end_cause = ''repository_removed'' OR end_cause = ''operator'')'),
  'CHECK (log_state IN (''open'', ''complete'', ''incomplete''))',
  'CHECK (log_state = ''open'' OR log_state = ''complete'' OR log_state = ''incomplete'')')
WHERE type = 'table' AND name = 'attempts';

PRAGMA writable_schema = RESET;
