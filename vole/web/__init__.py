"""The web door: pages for people. Shows through reads, changes through flows."""
