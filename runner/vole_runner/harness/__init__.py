"""The job harness: runs a job's steps when granted, one by one. Holds no key, runs no step it was not granted."""
