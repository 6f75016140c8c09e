"""Words, bounds, time, chance and supervision. Imports nothing of ours; never reads a file or a socket."""
