"""The inference process, as the API process sees it.

It is started with one end of a Unix socket pair, which has no name that another program could connect to. When it dies,
requests in flight are told at once, and it is started again, after a pause that grows while it keeps dying. When it stops
working without dying, it is killed, and the request that it computed is refused for a while.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import os
import socket
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from regard.serve.api_error import ApiError, from_inference
from regard.serve.frames import pack_frame, read_frame
from regard.serve.quarantine import SECONDS, Quarantine, digest_request
from regard.serve.server_settings import Limits
from regard.serve.vital_signs import VitalSigns
from regard.serve.watchdog import TICK, Watchdog
from regard.spec import Plain

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds between a death and the next start."""
MAX_GIVEN_UP = 1000
ENDED = "the inference process ended; it is being started again"
LOG = logging.getLogger("regard.serve")


@dataclasses.dataclass(frozen=True)
class _Known:
    """Name of a request in the log, and its digest in quarantine."""

    name: str
    digest: bytes


@dataclasses.dataclass(frozen=True)
class _Pending:
    """A request that was sent, and where its answers go."""

    op: str
    model: str
    arguments: dict[str, object]
    answers: asyncio.Queue[Plain] = dataclasses.field(default_factory=asyncio.Queue)

    @property
    def known(self) -> _Known:
        return _Known(f"{self.op} on {self.model}", digest_request(self.op, self.model, self.arguments))


class InferenceProcess:
    """Starts the process, keeps it alive, and sends it requests."""

    def __init__(self, config: Plain, limits: Limits = Limits()) -> None:
        self._config, self._limits = config, limits
        self._quarantine = Quarantine()
        self._watchdog: Watchdog | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._pending: dict[int, _Pending] = {}
        """Requests that the process has not answered yet."""
        self._given_up: OrderedDict[int, _Known] = OrderedDict()
        """The last requests that were cancelled or late; the process may still compute them."""
        self._numbers, self._keeper = itertools.count(1), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.models: dict[str, Plain] = {}
        """Descriptions of the models, by name; of the last time that it was ready."""
        self.stats: Plain = {}
        self.is_ready = False
        self.restarts = 0
        self.fault: str | None = None
        """Reason why it cannot start."""

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
        self._quarantine.check(op, model, arguments)
        if not self.is_ready or self._writer is None:
            raise ApiError(503, "the models are being loaded; try again soon", retry=2)
        if self._watchdog is not None and self._watchdog.is_silent:
            raise ApiError(503, f"{self._watchdog.trouble}; try again soon", retry=5)
        number, pending, over = next(self._numbers), _Pending(op, model, arguments), False
        frame = pack_frame({"id": number, "op": op, "model": model, "client": client, **arguments})
        self._pending[number] = pending
        try:
            await self._send(frame)
            while not over:
                answer = await pending.answers.get()
                over = answer["kind"] != "piece"
                if answer["kind"] == "gone":
                    raise ApiError(503, answer["message"], retry=2)
                if answer["kind"] == "error":
                    raise from_inference(answer["type"], answer["message"])
                yield answer["kind"], answer["data"]
        finally:
            if not over and self._writer is not None:
                self._writer.write(pack_frame({"id": number, "op": "cancel"}))

    async def _send(self, frame: bytes) -> None:
        assert self._writer is not None
        try:
            self._writer.write(frame)
            await self._writer.drain()
        except OSError:
            raise ApiError(503, ENDED, retry=2) from None

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
            for pending in self._pending.values():
                pending.answers.put_nowait({"kind": "gone", "message": ENDED})
            self._pending.clear()
            self._given_up.clear()
            lived = asyncio.get_running_loop().time() - began
            pause = FIRST_PAUSE if lived > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
            LOG.warning("the inference process ended; it starts again in %.1f s", pause)
            self.restarts += 1
            await asyncio.sleep(pause)

    async def _run_once(self) -> None:
        """Start the process, and read what it says until it ends."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        signs = VitalSigns(self._limits.requests)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "regard.serve.inference", str(theirs.fileno()), str(signs.file),
                pass_fds=[theirs.fileno(), signs.file], stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL, env=dict(os.environ), start_new_session=True,
            )  # fmt: skip
        except OSError:
            ours.close()
            signs.close()
            raise
        finally:
            theirs.close()
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        watch = asyncio.create_task(self._watch(signs))
        try:
            await self._send(pack_frame(self._config))
            while True:
                self._receive(await read_frame(reader))
        except (asyncio.IncompleteReadError, OSError, ApiError):
            pass
        finally:
            self.is_ready, self._watchdog = False, None
            watch.cancel()
            self._writer.close()
            self._writer = None
            await self._end_process()
            signs.close()

    async def _watch(self, signs: VitalSigns) -> None:
        """Kill the process when it has stopped working, once it was ready."""
        while not self.is_ready:
            await asyncio.sleep(TICK)
        self._watchdog = Watchdog(signs, seconds=self._limits.seconds, allowed=self._limits.silent_seconds)
        while (why := self._watchdog.look()) is None:
            await asyncio.sleep(TICK)
        self._kill(why, signs.list_running())

    def _kill(self, why: str, running: Sequence[int]) -> None:
        """Kill the process, tell all who wait, and refuse from now on what it computed."""
        known = self._given_up | {number: self._pending[number].known for number in running if number in self._pending}
        computed = {number: known[number] for number in running if number in known}
        refused = self._quarantine.blame([each.digest for each in computed.values()])
        names = ", ".join(sorted({each.name for each in computed.values()})) or "none"
        more = f" ({len(refused)} refused for {SECONDS / 60:.0f} minutes)" if refused else ""
        LOG.error("the inference process %s and is killed; requests that it computed: %s%s", why, names, more)
        for number, pending in self._pending.items():
            blamed = number in computed and computed[number].digest in refused
            words = f"the inference process {why} and is being started again"
            words += f"; it computed this request, which is refused for {SECONDS / 60:.0f} minutes" if blamed else ""
            pending.answers.put_nowait({"kind": "gone", "message": words})
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def find_trouble(self) -> str | None:
        """Return why models cannot answer now; None if they can."""
        if not self.is_ready:
            return "the models are being loaded"
        return None if self._watchdog is None else self._watchdog.trouble

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
        elif (pending := self._pending.get(message["id"])) is not None:
            pending.answers.put_nowait(message)
            if message["kind"] != "piece":
                del self._pending[message["id"]]
            if message.get("type") in ("late", "cancelled"):
                self._given_up[message["id"]] = pending.known
                while len(self._given_up) > MAX_GIVEN_UP:
                    self._given_up.popitem(last=False)
