"""The queue: grants, leases, explain, states. Never knows which machine."""
