#!/bin/sh
# Makes the development environment in $1 from requirements/dev.lock: with uv where it is there, else venv and pip.
# What is missing on the machine is one line with the command that installs it.
set -eu
venv=$1
here=$(dirname "$0")
missing=
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
need git git
need ssh openssh-client
need python3 python3
if [ -n "$missing" ]; then
    echo "missing on this machine: apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "vole needs Python 3.11 or later; this is $(python3 --version). On Debian 12 or Ubuntu 24.04 and later: apt-get install python3" >&2
    exit 1
fi
if command -v uv >/dev/null 2>&1; then
    [ -x "$venv/bin/python" ] || uv venv --quiet --python python3 "$venv"
    uv pip sync --quiet --require-hashes --python "$venv/bin/python" "$here/dev.lock"
    uv pip install --quiet --no-deps --no-build-isolation --python "$venv/bin/python" -e "$here/.."
else
    if [ ! -x "$venv/bin/python" ] && ! python3 -m venv "$venv" 2>/dev/null; then
        rm -rf "$venv"
        echo "missing on this machine: apt-get install --no-install-recommends python3-venv" >&2
        exit 1
    fi
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$here/dev.lock"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e "$here/.."
fi
