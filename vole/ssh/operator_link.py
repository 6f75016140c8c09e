"""The operator's link: how `vole` on the server machine speaks to the running server. Light: no part of a server.

Frames both ways: one byte of kind, four of length, the bytes. A client first sends its words (`w`), then standard
input (`i`, ended by an empty one); the server answers with `o` and `e`, and ends with the exit status (`x`).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vole.base import limits
from vole.base.errors import Invalid, Unavailable
from vole.ssh.commands import Streams

WORDS, INPUT, OUT, ERR, EXIT = b"w", b"i", b"o", b"e", b"x"
_HEAD_BYTES = 5
_ADDRESS_BYTES_MAX = 107  # sun_path: unix(7)


Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def dial(path: Path) -> Link | None:
    """A link to the server that listens on `path`; None where none does."""
    try:
        with short(path) as name:
            return await asyncio.open_unix_connection(name)
    except OSError:
        return None


@contextmanager
def short(path: Path) -> Iterator[str]:
    """A name for `path` that fits a socket's address, however deep the folder lies."""
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


async def call(link: Link, words: list[str], streams: Streams) -> int:
    """Run `words` at the server; the exit status. Raises Unavailable where the server ends before it answered."""
    reader, writer = link
    feeding = asyncio.create_task(_feed(writer, words, streams))
    try:
        while True:
            kind, data = await read_frame(reader)
            if kind == EXIT:
                return int(data)
            await (streams.out(data) if kind == OUT else streams.err(data))
    except asyncio.IncompleteReadError:
        raise Unavailable("the server ended before it answered") from None
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])
        writer.close()


async def send_frame(writer: asyncio.StreamWriter, kind: bytes, data: bytes) -> None:
    writer.write(kind + len(data).to_bytes(4, "big") + data)
    await writer.drain()


async def read_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(_HEAD_BYTES)
    size = int.from_bytes(head[1:], "big")
    if size > limits.FRAME_BYTES_MAX:
        raise Invalid(f"a frame of {size} bytes (FRAME_BYTES_MAX)")
    return head[:1], await reader.readexactly(size)


async def _feed(writer: asyncio.StreamWriter, words: list[str], streams: Streams) -> None:
    await send_frame(writer, WORDS, json.dumps(words).encode())
    while data := await streams.read(limits.PUMP_READ_BYTES):
        await send_frame(writer, INPUT, data)
    await send_frame(writer, INPUT, b"")
