from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from tests import aio
from vole import http
from vole.base import limits


async def _echo(scope, receive, send):
    """Answers with how much body came; `/stream` sends until nobody reads."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while scope["path"] == "/stream":
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        if (await _peek(receive)) == "gone":
            return
    await send({"type": "http.response.body", "body": b"%d" % len(body)})


async def _peek(receive):
    try:
        async with asyncio.timeout(0.001):
            message = await receive()
    except TimeoutError:
        return "there"
    return "gone" if message["type"] == "http.disconnect" else "there"


@asynccontextmanager
async def _serving(application=_echo, **deadlines):
    times = {"headers_s": 5.0, "body_s": 5.0, "unread_s": 5.0} | deadlines
    bound = socket.create_server(("127.0.0.1", 0))
    server = http.HttpServer(application, bound, deadlines=http.Deadlines(**times))
    await server.start()
    try:
        yield bound.getsockname()[1]
    finally:
        await server.drain()
        await server.stop()


async def _ask(port: int, request: bytes) -> bytes:
    """Everything that the server says until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def test_a_request_is_answered():
    async def story():
        async with _serving() as port:
            return await _ask(port, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")

    answer = aio.run(story())

    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"3\r\n0\r\n\r\n")


@pytest.mark.proves("SR-52")
@pytest.mark.parametrize(
    ("sent", "deadline"),
    [
        (b"", "headers_s"),
        (b"GET / HT", "headers_s"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ", "headers_s"),
        (b"\r\n\r\n", "headers_s"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab", "body_s"),
    ],
)
def test_a_request_that_does_not_arrive_in_time_is_cut(sent, deadline):
    async def story():
        async with _serving(**{deadline: 0.2}) as port:
            return await _ask(port, sent)

    assert aio.run(story(), timeout_s=4).startswith(b"HTTP/1.1 408")


@pytest.mark.proves("SR-52")
def test_the_deadline_of_the_headers_holds_for_the_second_request_of_a_connection_too():
    async def story():
        async with _serving(headers_s=0.3) as port:
            return await _ask(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT")

    answer = aio.run(story(), timeout_s=4)

    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408" in answer


@pytest.mark.proves("SR-52")
@pytest.mark.parametrize(
    "head",
    [
        b"X-Long: " + b"a" * limits.HTTP_HEADERS_BYTES_MAX,
        b"\r\n".join(b"X-%d: 1" % n for n in range(limits.HTTP_HEADERS_MAX + 1)),
    ],
    ids=["bytes", "count"],
)
def test_more_headers_than_the_bound_are_refused_by_name(head):
    async def story():
        async with _serving() as port:
            return await _ask(port, b"GET / HTTP/1.1\r\nHost: a\r\n" + head + b"\r\n\r\n")

    assert aio.run(story()).startswith(b"HTTP/1.1 431")


@pytest.mark.proves("SR-52")
def test_a_header_that_never_ends_is_refused_before_it_is_gathered():
    async def story():
        async with _serving() as port:
            return await _ask(port, b"GET / HTTP/1.1\r\nX-Long: " + b"a" * (3 * limits.HTTP_HEADERS_BYTES_MAX))

    assert aio.run(story(), timeout_s=4).startswith(b"HTTP/1.1 431")


@pytest.mark.proves("SR-52")
def test_a_client_that_reads_nothing_is_cut():
    ended = asyncio.Event()

    async def streaming(scope, receive, send):
        try:
            await _echo(scope, receive, send)
        finally:
            ended.set()

    async def story():
        async with _serving(streaming, unread_s=0.3) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
            async with asyncio.timeout(8):
                await ended.wait()
            writer.close()

    aio.run(story())


@pytest.mark.parametrize(
    "line", [b"GET foo HTTP/1.1", b"CONNECT a:1 HTTP/1.1", b"\x16\x03\x01", b"GET /%zz\x80 HTTP/1.1"]
)
def test_what_is_no_request_gets_400(line):
    async def story():
        async with _serving() as port:
            return await _ask(port, line + b"\r\nHost: a\r\nConnection: close\r\n\r\n")

    assert aio.run(story()).startswith(b"HTTP/1.1 400")


def test_stopping_ends_an_answer_that_would_go_on_for_ever(monkeypatch):
    monkeypatch.setattr(limits, "STOP_S", 1)

    async def story():
        async with _serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
            await reader.read(10)
            reading = asyncio.create_task(reader.read())
        await asyncio.wait([reading])
        writer.close()

    aio.run(story())
