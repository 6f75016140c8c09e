"""vole: a self-hosted, git-native forge with CI built in."""

__version__ = "0.1.0.dev0"
