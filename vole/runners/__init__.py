"""The roster of runners and the labels they carry. Never leases a job."""
