"""The API: what pages show and what may be done there, as JSON. Same reads, same rights, same refusals."""
