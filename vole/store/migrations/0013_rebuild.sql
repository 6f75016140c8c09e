-- repos
-- What people decided and `vole-admin.git` does not say yet. Triggers write it: no statement can change one of these
-- tables and forget to. `kind` and `name` are those of a document; a document that has nothing to say any more goes.
CREATE TABLE admin_outbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT, -- never the same twice: rows up to one are forgotten together
  kind TEXT NOT NULL CHECK (kind = 'account' OR kind = 'repository' OR kind = 'labels'),
  name TEXT NOT NULL
) STRICT;

CREATE TRIGGER owed_account_added AFTER INSERT ON accounts BEGIN
  INSERT INTO admin_outbox (kind, name) VALUES ('account', new.name);
END;
CREATE TRIGGER owed_account_changed AFTER UPDATE ON accounts BEGIN
  INSERT INTO admin_outbox (kind, name) VALUES ('account', new.name);
END;
CREATE TRIGGER owed_account_removed AFTER DELETE ON accounts BEGIN
  INSERT INTO admin_outbox (kind, name) VALUES ('account', old.name);
END;

CREATE TRIGGER owed_key_added AFTER INSERT ON keys BEGIN
  INSERT INTO admin_outbox (kind, name) SELECT 'account', name FROM accounts WHERE id = new.account_id;
END;
CREATE TRIGGER owed_key_removed AFTER DELETE ON keys BEGIN
  INSERT INTO admin_outbox (kind, name) SELECT 'account', name FROM accounts WHERE id = old.account_id;
END;
CREATE TRIGGER owed_grant_added AFTER INSERT ON grants BEGIN
  INSERT INTO admin_outbox (kind, name) SELECT 'account', name FROM accounts WHERE id = new.account_id;
END;
CREATE TRIGGER owed_grant_removed AFTER DELETE ON grants BEGIN
  INSERT INTO admin_outbox (kind, name) SELECT 'account', name FROM accounts WHERE id = old.account_id;
END;

CREATE TRIGGER owed_repository_added AFTER INSERT ON repos BEGIN
  INSERT INTO admin_outbox (kind, name) VALUES ('repository', new.name);
END;
CREATE TRIGGER owed_repository_changed AFTER UPDATE ON repos BEGIN
  INSERT INTO admin_outbox (kind, name) VALUES ('repository', new.name);
END;
CREATE TRIGGER owed_repository_removed AFTER DELETE ON repos BEGIN
  INSERT INTO admin_outbox (kind, name) VALUES ('repository', old.name);
END;
-- Every hundredth number: whatever else was handed out and left no record is below the next full hundred.
CREATE TRIGGER owed_run_numbers AFTER UPDATE OF next ON run_numbers WHEN new.next % 100 = 0 BEGIN
  INSERT INTO admin_outbox (kind, name) SELECT 'repository', name FROM repos WHERE id = new.repo_id;
END;

CREATE TRIGGER owed_gate_added AFTER INSERT ON gates BEGIN
  INSERT INTO admin_outbox (kind, name) SELECT 'repository', name FROM repos WHERE id = new.repo_id;
END;
CREATE TRIGGER owed_gate_changed AFTER UPDATE ON gates BEGIN
  INSERT INTO admin_outbox (kind, name) SELECT 'repository', name FROM repos WHERE id = new.repo_id;
END;
CREATE TRIGGER owed_gate_removed AFTER DELETE ON gates BEGIN
  INSERT INTO admin_outbox (kind, name) SELECT 'repository', name FROM repos WHERE id = old.repo_id;
END;

CREATE TRIGGER owed_label_declared AFTER INSERT ON labels WHEN new.declared_by IS NOT NULL BEGIN
  INSERT INTO admin_outbox (kind, name) VALUES ('labels', 'declared');
END;
CREATE TRIGGER owed_label_declared_later AFTER UPDATE OF declared_by ON labels BEGIN
  INSERT INTO admin_outbox (kind, name) VALUES ('labels', 'declared');
END;

-- What was decided before there was a repository for it.
INSERT INTO admin_outbox (kind, name) SELECT 'account', name FROM accounts ORDER BY name;
INSERT INTO admin_outbox (kind, name) SELECT 'repository', name FROM repos ORDER BY name;
INSERT INTO admin_outbox (kind, name) SELECT 'labels', 'declared' WHERE EXISTS (
  SELECT 1 FROM labels WHERE declared_by IS NOT NULL);

-- jobs
-- Of jobs that came back from their records: what pages show of a pinned document and of labels, which did not come.
CREATE TABLE rebuilt_jobs (
  job_id INTEGER PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  labels TEXT NOT NULL, -- sorted JSON list
  timeout_from TEXT NOT NULL
) STRICT;
