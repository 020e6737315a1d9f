"""The inference process: models, tokenizers, schedulers.

It is started with a Unix socket, is told what to serve, and answers until the other end closes. A request is a message with an
`id`; its answers carry the same `id`. A message `cancel` with that `id` ends it, and so does its deadline. What each thread
does stands in the vital signs, which the API process watches.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from regard.errors import CallStopped, DamagedModel, DataError, RegardError, SpecError
from regard.machine import wait_politely
from regard.serve.frames import FrameSocket
from regard.serve.ticket import CURRENT, RequestCancelled, RequestLate, ServerBusy, Ticket
from regard.serve.vital_signs import VitalSigns
from regard.spec import Plain

STATS_SECONDS = 1.0
"""Time between two reports of how busy the process is."""
BEAT_SECONDS = 0.25
"""Time between two beats; deadlines are noticed so often, too."""

_ENDING = threading.Lock()


class InferenceServer:
    """Answers requests, each on a thread of its own; the schedulers compute."""

    def __init__(self, sock: FrameSocket, config: Plain, signs: VitalSigns) -> None:
        from regard.registry import load_plugins
        from regard.serve.model_table import ModelTable
        from regard.serve.served_model import LoadSettings

        load_plugins([Path(path) for path in config["plugins"]])
        self._socket, self._signs, self._watch = sock, signs, float(config["watch"])
        self._seconds = float(config["seconds"])
        settings = LoadSettings(
            config["engine"], config["device"], config["set"], config["slots"], config["working_memory"]
        )
        paths = {name: Path(path) for name, path in config["models"].items()}
        self._table = ModelTable(
            paths, settings, budget=config["memory"], tell=self._tell, open_row=signs.open_scheduler
        )
        self._pool = ThreadPoolExecutor(config["requests"], thread_name_prefix="request")
        self._tickets: dict[int, Ticket] = {}
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Answer until the socket closes."""
        threading.Thread(target=self._beat, daemon=True).start()
        self._socket.send({"kind": "ready", "models": self._table.describe()})
        threading.Thread(target=self._report, daemon=True).start()
        threading.Thread(target=self._refresh, daemon=True).start()
        for message in self._socket:
            if message["op"] == "cancel":
                with self._lock:
                    ticket = self._tickets.get(message["id"])
                if ticket is not None:
                    ticket.cancel()
            else:
                ticket = Ticket(str(message.get("client", "")), message["id"], self._seconds)
                with self._lock:
                    self._tickets[message["id"]] = ticket
                self._pool.submit(self._answer, message, ticket)

    def _answer(self, message: Plain, ticket: Ticket) -> None:
        number, answer = message["id"], dict[str, object]()
        CURRENT.set(ticket)
        assert ticket.deadline is not None
        with self._signs.show_request(number, ticket.deadline) as ticket.row:
            try:
                ticket.check()
                answer = {"kind": "result", "data": self._run(message, ticket)}
            except (RequestCancelled, CallStopped) as error:
                said = ticket.explain() if isinstance(error, CallStopped) else error
                kind = "late" if isinstance(said, RequestLate) else "cancelled"
                answer = {"kind": "error", "type": kind, "message": str(said)}
            except Exception as error:  # a bug must not end the process: the client is told, and the log says where
                answer = {"kind": "error", **describe_error(error)}
            finally:
                with self._lock:
                    self._tickets.pop(number, None)
            self._send({"id": number, **answer})

    def _run(self, message: Plain, ticket: Ticket) -> Plain:
        from regard.serve.operations import ANSWERS, STREAMS
        from regard.serve.stop_torch import StopTorch

        name, op = message["model"], message["op"]
        with ExitStack() as stack:
            with ticket.wait():  # it may have to be loaded
                served = stack.enter_context(self._table.use(name))
            stack.enter_context(ticket.stop)
            stack.enter_context(StopTorch(ticket.check))
            if op in ANSWERS:
                return ANSWERS[op](served, ticket, message)
            pieces = STREAMS[op](served, ticket, message)
            try:
                written = list[str]()
                while True:
                    try:
                        piece = next(pieces)
                    except StopIteration as done:
                        return {**done.value, "text": "".join(written)}
                    ticket.check()
                    if message.get("whole"):
                        written.append(piece)
                    else:
                        self._send({"id": message["id"], "kind": "piece", "data": piece})
            finally:
                pieces.close()

    def _beat(self) -> None:
        """Show that this process runs, let its workers show it, and end requests that are late."""
        answered, asked = time.monotonic(), self._pool.submit(time.monotonic)
        while True:
            if asked.done():
                answered, asked = time.monotonic(), self._pool.submit(time.monotonic)
            self._signs.count_beat(answered)
            for served in self._table.list_served().values():
                served.scheduler.poke()
            with self._lock:
                late = [ticket for ticket in self._tickets.values() if ticket.is_late and not ticket.is_cancelled]
            for ticket in late:
                ticket.cancel()
            time.sleep(BEAT_SECONDS)

    def _report(self) -> None:
        while True:
            stats = {name: dataclasses.asdict(each.scheduler.stats) for name, each in self._table.list_served().items()}
            self._send({"kind": "stats", "data": stats})
            time.sleep(STATS_SECONDS)

    def _refresh(self) -> None:
        while True:
            time.sleep(self._watch)
            if self._table.refresh():
                self._send({"kind": "models", "models": self._table.describe()})

    def _send(self, message: Plain) -> None:
        try:
            self._socket.send(message)
        except OSError:  # the other end is gone, and so shall we be
            end_with_server()
        except RegardError as error:
            self._socket.send({"id": message.get("id"), "kind": "error", **describe_error(error)})

    def _tell(self, text: str) -> None:
        print(f"regard: {text}", file=sys.stderr, flush=True)


def describe_error(error: Exception) -> dict[str, str]:
    """Describe an error for the API process; details of internal errors are only logged."""
    from regard.serve.model_table import UnknownModel

    if isinstance(error, ServerBusy):
        return {"type": "busy", "message": str(error)}
    if isinstance(error, UnknownModel):
        return {"type": "unknown", "message": str(error)}
    if isinstance(error, DataError | SpecError):
        return {"type": "invalid", "message": str(error)}
    if isinstance(error, DamagedModel):
        return {"type": "damaged", "message": str(error)}
    if isinstance(error, MemoryError):
        return {"type": "busy", "message": "there is not enough memory for this request now"}
    traceback.print_exception(error, file=sys.stderr)
    return {"type": "internal", "message": "the model failed on this request; the log of the server says where"}


def end_with_server() -> NoReturn:
    """End at once: threads may still compute for clients that are gone."""
    if _ENDING.acquire(blocking=False):
        print("regard: the server has ended, and the models end with it", file=sys.stderr, flush=True)
        os._exit(0)
    while True:  # another thread is about to end the process
        time.sleep(1)


def main(arguments: list[str]) -> None:
    """Serve on the socket whose number is the first argument; the second is that of the file of the vital signs."""
    sock, signs_file = FrameSocket(socket.socket(fileno=int(arguments[0]))), int(arguments[1])
    messages = iter(sock)
    config = next(messages, None)
    if config is None:
        return
    try:
        server = InferenceServer(sock, config, VitalSigns(config["requests"], signs_file))
    except Exception as error:
        fault: Mapping[str, str] = describe_error(error)
        words = str(error) if isinstance(error, RegardError) else fault["message"]
        sock.send({"kind": "failed", "message": words})
        return
    server.serve()
    end_with_server()


if __name__ == "__main__":
    wait_politely()
    main(sys.argv[1:])
