-- jobs
-- What is durable and has no record in git yet: an attempt that ran and ended, or (no job) a run that finished. A row
-- comes with the change that ends it and goes once the record's ref has moved.
CREATE TABLE record_outbox (
  id INTEGER PRIMARY KEY,
  repo_id INTEGER NOT NULL,
  run_id INTEGER NOT NULL,
  job_id INTEGER,
  epoch INTEGER,
  set_aside TEXT, -- why no record can be made of it
  CHECK ((job_id IS NULL) = (epoch IS NULL))
) STRICT;
CREATE INDEX record_outbox_by_repo ON record_outbox (repo_id, id);

-- What ended before there were records.
INSERT INTO record_outbox (id, repo_id, run_id, job_id, epoch)
SELECT row_number() OVER (ORDER BY a.ended_at, a.job_id), j.repo_id, j.run_id, a.job_id, a.epoch
FROM attempts a
JOIN jobs j ON j.id = a.job_id
JOIN repos p ON p.id = j.repo_id
WHERE a.ended_at IS NOT NULL AND a.started_at IS NOT NULL;
INSERT INTO record_outbox (id, repo_id, run_id)
SELECT (SELECT count(*) FROM record_outbox) + row_number() OVER (ORDER BY r.finished_at, r.id), r.repo_id, r.id
FROM runs r
JOIN repos p ON p.id = r.repo_id
WHERE r.state = 'finished';
