"""YAML to frozen values, every problem at once with its path."""
