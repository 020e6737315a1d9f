"""The inference process, as the API process sees it.

It is started with one end of a Unix socket pair, which has no name that another program could connect to. When it dies,
requests in flight are told at once, and it is started again, after a pause that grows while it keeps dying.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

from regard.serve.api_error import ApiError, from_inference
from regard.serve.frames import pack_frame, read_frame
from regard.spec import Plain

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds between a death and the next start."""
GONE: Plain = {"kind": "gone"}
LOG = logging.getLogger("regard.serve")


class InferenceProcess:
    """Starts the process, keeps it alive, and sends it requests."""

    def __init__(self, config: Plain) -> None:
        self._config = config
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._pending: dict[int, asyncio.Queue[Plain]] = {}
        self._numbers, self._keeper = itertools.count(1), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.models: dict[str, Plain] = {}
        """Descriptions of the models, by name; of the last time that it was ready."""
        self.stats: Plain = {}
        self.is_ready = False
        self.restarts = 0
        self.fault: str | None = None
        """Why it cannot start."""

    async def start(self) -> None:
        """Start it, and start it again whenever it ends."""
        self._task = asyncio.create_task(self._keep_alive())

    async def wait_ready(self) -> None:
        """Return when it is ready for the first time, or cannot be."""
        while not self.is_ready and self.fault is None:
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._end_process()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def call(self, op: str, model: str, client: str, **arguments: object) -> Plain:
        """The result of an operation."""
        async for kind, data in self.stream(op, model, client, **arguments):
            if kind == "result":
                return dict(data)  # type: ignore[call-overload, no-any-return]
        raise ApiError(503, "the inference process gave no answer; try again", retry=1)

    async def stream(self, op: str, model: str, client: str, **arguments: object) -> AsyncIterator[tuple[str, object]]:
        """Pieces of an answer, `("piece", text)`, and at the end `("result", data)`.

        Whoever stops reading cancels the request.
        """
        if not self.is_ready or self._writer is None:
            raise ApiError(503, "the models are being loaded; try again soon", retry=2)
        number, answers = next(self._numbers), asyncio.Queue[Plain]()
        self._pending[number] = answers
        over = False
        try:
            await self._send({"id": number, "op": op, "model": model, "client": client, **arguments})
            while not over:
                answer = await answers.get()
                over = answer["kind"] != "piece"
                if answer["kind"] == "gone":
                    raise ApiError(503, "the inference process ended; it is being started again", retry=2)
                if answer["kind"] == "error":
                    raise from_inference(answer["type"], answer["message"])
                yield answer["kind"], answer["data"]
        finally:
            self._pending.pop(number, None)
            if not over and self._writer is not None:
                self._writer.write(pack_frame({"id": number, "op": "cancel"}))

    async def _send(self, message: Plain) -> None:
        assert self._writer is not None
        try:
            self._writer.write(pack_frame(message))
            await self._writer.drain()
        except OSError:
            raise ApiError(503, "the inference process ended; it is being started again", retry=2) from None

    async def _keep_alive(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._run_once()
            except OSError as error:
                LOG.error("the inference process cannot be started: %s", error)
                self.fault = f"the inference process cannot be started: {error}"
            self.is_ready = False
            if self.fault is not None and not self.models:  # it was never ready, and would not be next time
                return
            for answers in self._pending.values():
                answers.put_nowait(GONE)
            lived = asyncio.get_running_loop().time() - began
            pause = FIRST_PAUSE if lived > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
            LOG.warning("the inference process ended; it starts again in %.1f s", pause)
            self.restarts += 1
            await asyncio.sleep(pause)

    async def _run_once(self) -> None:
        """Start the process, and read what it says until it ends."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "regard.serve.inference", str(theirs.fileno()),
                pass_fds=[theirs.fileno()], stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
                env=dict(os.environ), start_new_session=True,
            )  # fmt: skip
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        try:
            await self._send(self._config)
            while True:
                self._receive(await read_frame(reader))
        except (asyncio.IncompleteReadError, OSError, ApiError):
            pass
        finally:
            self.is_ready = False
            self._writer.close()
            self._writer = None
            await self._end_process()

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(5.0):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _receive(self, message: Plain) -> None:
        kind = message["kind"]
        if kind in ("ready", "models"):
            self.models = {each["name"]: each for each in message["models"]}
            self.is_ready, self.fault = True, None
        elif kind == "failed":
            self.fault = str(message["message"])
        elif kind == "stats":
            self.stats = message["data"]
        elif (answers := self._pending.get(message["id"])) is not None:
            answers.put_nowait(message)
