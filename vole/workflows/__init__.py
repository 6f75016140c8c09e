"""Bytes to plans, or every problem with its line. Pure: touches nothing of the world."""
