"""`vole-node`: the node agent. It is not built yet and says so, so that nobody takes silence for work."""

from __future__ import annotations

import sys


def main() -> None:
    """Exit status 2, always."""
    sys.stderr.write("vole-node: the node agent is not part of this version yet; docs/roadmap.md says when\n")
    sys.exit(2)


if __name__ == "__main__":
    main()
