"""Connections that keep a server waiting are closed in time."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from regard.errors import SpecError
from regard.serve.connections import Connections, find_room, handle_loop_errors, name_address
from regard.serve.counted_log import CountedLog
from regard.serve.server_settings import Limits
from tests.serve.running import Running, start_server

LOG = logging.getLogger("regard.serve.test")
Connect = Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST /nothing HTTP/1.1\r\nHost: elsewhere.example\r\nTransfer-Encoding: chunked\r\n\r\n"
"""The head of a request that the gate refuses at once."""


def reach(running: Running) -> socket.socket:
    place = urlsplit(running.address)
    return socket.create_connection((place.hostname, place.port), timeout=30)


def test_more_silent_clients_than_descriptors_do_not_keep_others_out(tmp_path: Path) -> None:
    options = ["--runs", str(tmp_path), "--limit", "header_seconds=600"]
    with start_server({}, tmp_path, options, files=256) as running, ExitStack() as silent:
        for sent in (ASK, b"", b"GET /healthz HTTP/1.1\r\nHost: local"):
            for _ in range(100):
                one = silent.enter_context(reach(running))
                with suppress(OSError):  # it was closed for a newer one
                    one.sendall(sent)
        with running.client() as http:
            assert http.get("/healthz").json() == {"status": "ok"}
        log = running.log.read_text()
        assert "Traceback" not in log and "closed for newer ones, while they waited for their client" in log
        assert "at most 64 connections instead of 1000: this process may open 256 files; raise it with ulimit -n" in log
        assert len([line for line in log.splitlines() if "GET /healthz 200" not in line]) < 100


def test_silent_clients_are_counted_before_their_tls_has_begun_and_have_their_time(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    options = ["--runs", str(tmp_path), *tls, "--limit", "header_seconds=2"]
    with start_server({}, tmp_path, options, files=256) as running, ExitStack() as silent:
        some = [silent.enter_context(reach(running)) for _ in range(300)]
        with running.client(verify=ssl.create_default_context(cafile=certificate)) as http:
            assert http.get("/healthz").json() == {"status": "ok"}
        for one in some:
            with suppress(ConnectionResetError):
                assert one.recv(1000) == b""
        log = running.log.read_text()
        assert "Traceback" not in log and "closed for newer ones" in log


def make_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


@asynccontextmanager
async def listen(app: ASGIApp, limits: Limits) -> AsyncIterator[tuple[Connections, Connect]]:
    """A table of connections, and what opens one, until the end of the block."""
    table = Connections(limits, CountedLog(LOG))
    config = uvicorn.Config(app, http="h11", ws="none", log_config=None, lifespan="off", access_log=False)
    config.load()
    make, state = table.choose_protocol(config), ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: make(config=config, server_state=state, app_state={}, _loop=loop), "127.0.0.1", 0
    )
    writers: list[asyncio.StreamWriter] = []

    async def open_one(own: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(own, 0))
        writers.append(writer)
        return reader, writer

    try:
        yield table, open_one
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        for each in list(state.connections):
            each.transport.abort()
        await asyncio.gather(*state.tasks, return_exceptions=True)


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """An answer of 3 bytes, or of 20 MB; on another path, none while the client stays."""
    if scope["path"] == "/wait":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    body = b"a" * (20 << 20 if scope["path"] == "/long" else 3)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(3)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with suppress(ConnectionResetError):
        return await asyncio.wait_for(reader.read(), 30) == b""
    return True


async def settle(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(work(), 60)

    asyncio.run(limited())


def test_the_connection_that_waits_longest_is_closed_for_a_new_one() -> None:
    async def work() -> None:
        async with listen(answer, Limits(connections=3)) as (table, connect):
            pairs = [await connect() for _ in range(3)]
            await settle(lambda: len(table._all) == 3)
            pairs[0][1].write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await read_answer(pairs[0][0])  # waits since now
            await connect()
            assert await is_closed(pairs[1][0])
            pairs[0][1].write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await read_answer(pairs[0][0])

    run(work)


def test_a_connection_too_many_is_refused_at_once_while_all_are_answered() -> None:
    async def work() -> None:
        async with listen(answer, Limits(connections=2)) as (table, connect):
            for _ in range(2):
                _, writer = await connect()
                writer.write(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
            await settle(lambda: len(table._all) == 2 and not table._waiting)
            reader, _ = await connect()
            said = await reader.read()
            assert said.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1" in said
            assert said.endswith(b'\r\n\r\n{"error":"there are too many connections"}')
            assert b"Content-Length: %d\r\n" % len(said.partition(b"\r\n\r\n")[2]) in said

    run(work)


@pytest.fixture
def counts_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count 127.0.0.1 and 127.0.0.2 as if they were elsewhere."""
    with suppress(OSError), socket.socket() as one:
        one.bind(("127.0.0.2", 0))
        monkeypatch.setattr("regard.serve.connections.name_address", lambda peer: peer[0])
        return
    pytest.skip("this system has one address of its own")


@pytest.mark.usefixtures("counts_loopback")
def test_an_address_has_its_share_of_connections_and_closes_its_own() -> None:
    async def work() -> None:
        async with listen(answer, Limits(connections=4, address_share=0.5)) as (table, connect):
            other, writer = await connect("127.0.0.2")  # has waited for the longest time
            await settle(lambda: len(table._all) == 1)
            readers = []
            for count in (2, 3, 3, 3):
                readers.append((await connect())[0])
                await settle(lambda count=count: len(table._all) == count)  # type: ignore[misc]
            assert await is_closed(readers[0]) and await is_closed(readers[1])
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await read_answer(other)
            assert not readers[2].at_eof() and not readers[3].at_eof()

    run(work)


@pytest.mark.usefixtures("counts_loopback")
def test_an_address_that_is_answered_on_its_whole_share_is_refused() -> None:
    async def work() -> None:
        async with listen(answer, Limits(connections=4, address_share=0.5)) as (table, connect):
            for _ in range(2):
                (await connect())[1].write(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
            await settle(lambda: len(table._all) == 2 and not table._waiting)
            assert (await (await connect())[0].read()).endswith(b'{"error":"there are too many connections"}')
            other, writer = await connect("127.0.0.2")
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await read_answer(other)
            for one in list(table._all):
                table._abort(one)
            assert not table._of

    run(work)


def test_a_server_with_few_descriptors_has_smaller_shares() -> None:
    assert Connections(Limits(), CountedLog(LOG))._share == 500
    assert Connections(Limits(), CountedLog(LOG), 64)._share == 32
    assert Connections(Limits(), CountedLog(LOG), 1)._share == 1


@pytest.mark.parametrize(
    ("peer", "name"),
    [(("127.0.0.1", 5), None), (("::1", 5, 0, 0), None), (("::ffff:127.0.0.1", 5, 0, 0), None), ("", None), (None, None),
     (("192.0.2.7", 5), "192.0.2.7"), (("::ffff:192.0.2.7", 5, 0, 0), "192.0.2.7"),
     (("2001:db8:1:2:3::4", 5, 0, 0), "2001:db8:1:2::/64"), (("fe80::1%eth0", 5, 0, 2), "fe80::/64")],
)  # fmt: skip
def test_addresses_that_connections_count_for(peer: object, name: str | None) -> None:
    assert name_address(peer) == name


def test_half_a_body_can_be_closed_for_a_newer_connection() -> None:
    async def work() -> None:
        async with listen(answer, Limits(connections=1)) as (table, connect):
            reader, writer = await connect()
            writer.write(b"POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
            await settle(lambda: any(one.is_reading_body for one in table._all))
            table.close_late(asyncio.get_running_loop().time() + 1000)  # bodies have a limit of their own
            assert len(table._waiting) == 1
            newer, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await read_answer(newer) and await is_closed(reader)

    run(work)


def test_the_header_of_a_second_request_has_its_time() -> None:
    async def work() -> None:
        async with listen(answer, Limits()) as (table, connect):
            reader, writer = await connect()
            loop = asyncio.get_running_loop()
            await settle(lambda: len(table._waiting) == 1)
            table.close_late(loop.time() + 9)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await read_answer(reader)
            writer.write(b"GET / HT")
            await settle(lambda: len(table._waiting) == 1)
            table.close_late(loop.time())
            assert len(table._all) == 1
            table.close_late(loop.time() + 15 + 10 + 1)
            assert not table._all and await is_closed(reader)

    run(work)


def test_a_client_that_takes_nothing_of_its_answer_is_closed() -> None:
    async def work() -> None:
        async with listen(answer, Limits()) as (table, connect):
            reader, writer = await connect()
            writer.write(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
            await settle(lambda: any(one.transport.get_write_buffer_size() for one in table._all))
            (one,), began = table._all, asyncio.get_running_loop().time()
            table._waiting[one] = began + 1e6  # so that only what it takes counts here
            table.close_late(began)
            table.close_late(began + 29)
            assert len(table._all) == 1
            before = one.transport.get_write_buffer_size()
            while one.transport.get_write_buffer_size() == before:
                await reader.read(1 << 20)
            table.close_late(began + 58)
            assert len(table._all) == 1  # it took some
            table.close_late(began + 89)
            assert not table._all

    run(work)


def test_no_descriptors_are_a_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    log = CountedLog(LOG)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(handle_loop_errors(log))
    with caplog.at_level(logging.INFO):
        for _ in range(1000):
            loop.call_exception_handler({"message": "x", "exception": OSError(errno.EMFILE, "Too many open files")})
        assert [record.getMessage() for record in caplog.records] == [
            "1 connections could not be accepted: Too many open files"
        ]
        log._last.clear()  # a second later
        log.flush()
        assert caplog.records[-1].getMessage() == "999 connections could not be accepted: Too many open files"
        loop.call_exception_handler({"message": "another fault", "exception": OSError(errno.EBADF, "bad")})
        assert "another fault" in caplog.text
    loop.close()


def test_warnings_of_uvicorn_are_counted_too(caplog: pytest.LogCaptureFixture) -> None:
    log, noisy = CountedLog(LOG), logging.getLogger("regard.serve.noisy")
    noisy.addFilter(log)
    with caplog.at_level(logging.INFO):
        for _ in range(100):
            noisy.warning("Invalid HTTP request received.")
        noisy.error("this is a bug")
    assert [each.getMessage() for each in caplog.records] == [
        "1 times: Invalid HTTP request received.",
        "this is a bug",
    ]


def test_a_server_without_files_for_a_connection_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: None)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (64, 64))
    with pytest.raises(
        SpecError, match="needs 96 or more open files, and this process may have 64; raise it with ulimit -n"
    ):
        find_room(Limits())
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert find_room(Limits(connections=5000)) == (5000, 128)


@pytest.mark.parametrize("parts", [(CHUNKED + b"zz\r\n",), (CHUNKED, b"zz\r\n"), (CHUNKED + b"1\r\na\r\n", b"zz\r\n")])
def test_a_body_that_is_no_http_is_refused_once_without_a_traceback(running: Running, parts: Sequence[bytes]) -> None:
    """While its header waits for an answer, and after the answer."""
    before = len(running.log.read_text())
    with reach(running) as client, suppress(ConnectionResetError):
        answer = bytearray()
        client.sendall(parts[0])
        for part in parts[1:]:
            answer += client.recv(1 << 16)
            client.sendall(part)
        while data := client.recv(1 << 16):
            answer += data
    assert answer.count(b"HTTP/1.1 4") == 1
    with running.client() as http:
        assert http.get("/healthz").status_code == 200
    assert "Traceback" not in running.log.read_text()[before:]
