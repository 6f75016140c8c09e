"""Journals, logs, artifacts, records, gates. Never changes a job's state."""
