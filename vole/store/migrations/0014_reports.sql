-- What the test reports of an attempt say, as the document that its record tells. Only attempts that had reports.
CREATE TABLE reports (
  job_id INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  run_id INTEGER NOT NULL,
  document TEXT NOT NULL,
  PRIMARY KEY (job_id, epoch)
) STRICT;
