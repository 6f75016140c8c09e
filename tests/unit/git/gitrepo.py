"""A real bare repository with a given content, made by git fast-import: names and bytes of any kind go in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


class GitRepo:
    """Commits in order on one branch, each a minute after the one before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._minute = 0
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(path)], check=True, env=_ENV)

    def git(self, *words: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            ["git", "-C", str(self.path), *words], input=stdin, check=True, env=_ENV, capture_output=True
        )
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def commit(
        self,
        files: dict[bytes | str, bytes | str | None],
        message: bytes | str = "a change",
        *,
        branch: str = "main",
        modes: dict[str, str] | None = None,
        author: str = "Ada Lovelace <ada@example.org>",
    ) -> str:
        """The id of a new commit with `files` written (None: removed) on top of `branch`."""
        self._minute += 1
        when = f"{1_700_000_000 + 60 * self._minute} +0000"
        head = subprocess.run(
            ["git", "-C", str(self.path), "rev-parse", "-q", "--verify", f"refs/heads/{branch}"],
            env=_ENV, capture_output=True, check=False,
        ).stdout.strip()  # fmt: skip
        text = _bytes(message)
        lines = [
            f"commit refs/heads/{branch}\nauthor {author} {when}\ncommitter {author} {when}\n".encode(),
            b"data %d\n%s\n" % (len(text), text),
            b"from %s\n" % head if head else b"",
        ]
        for name, content in files.items():
            quoted = b'"' + _bytes(name).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
            if content is None:
                lines.append(b"D %s\n" % quoted)
                continue
            mode = (modes or {}).get(
                name if isinstance(name, str) else name.decode("utf-8", "surrogateescape"), "100644"
            )
            data = _bytes(content)
            lines.append(b"M %s inline %s\ndata %d\n%s\n" % (mode.encode(), quoted, len(data), data))
        self.git("fast-import", "--quiet", "--force", stdin=b"".join(lines))
        return self.git("rev-parse", f"refs/heads/{branch}")


def _bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
