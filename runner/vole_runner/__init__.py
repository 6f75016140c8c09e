"""The runner: a keeper that holds key and leases, a harness that runs steps. Never imports the server."""
