"""Paired measurements of vole and its peers, interleaved in one run. Never a test: nothing here asserts a time."""
