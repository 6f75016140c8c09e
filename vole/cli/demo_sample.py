"""The repository that `vole demo` pushes: a small program, its test, and two jobs. Holds text, does nothing."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "README.md": """\
# demo

What `vole demo` pushed. Two jobs: `build` packs the program and keeps it as an artifact, `test` unpacks and runs it.

Change something, commit, `git push`, and watch the next run.
""",
    "greet.sh": """\
#!/bin/sh
# Says hello, by name where one is given.
echo "hello, ${1:-world}"
""",
    ".vole/workflows/ci.yml": """\
name: ci
on: push

jobs:
  build:
    runs-on: linux
    steps:
      - name: pack
        run: |
          chmod +x greet.sh
          tar -cf greet.tar greet.sh
          ls -l greet.tar
    artifacts:
      - name: program
        paths: [greet.tar]

  test:
    runs-on: linux
    needs: build
    needs-artifacts: [program]
    steps:
      - name: unpack
        run: tar -xf greet.tar
      - name: it greets
        run: test "$(./greet.sh vole)" = "hello, vole"
""",
}


def write(folder: Path) -> None:
    """The sample's working tree in a new `folder`."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
