"""Repositories on disk, objects, and running git. Never decides who may push."""
