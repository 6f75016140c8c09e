"""Who they are and what they may do: accounts, keys, grants. Never knows how they connected."""
