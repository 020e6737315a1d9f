"""The inference process: models, tokenizers, schedulers.

It is started with a Unix socket, is told what to serve, and answers until the other end closes. A request is a message with an
`id`; its answers carry the same `id`. A message `cancel` with that `id` ends it.
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
from pathlib import Path

from regard.errors import DataError, RegardError, SpecError, UnknownName
from regard.machine import wait_politely
from regard.serve.frames import FrameSocket
from regard.serve.ticket import CURRENT, RequestCancelled, ServerBusy, Ticket
from regard.spec import Plain

STATS_SECONDS = 1.0
"""Time between two reports of how busy the process is."""


class InferenceServer:
    """Answers requests, each on a thread of its own; the schedulers compute."""

    def __init__(self, sock: FrameSocket, config: Plain) -> None:
        from regard.registry import load_plugins
        from regard.serve.model_table import ModelTable
        from regard.serve.served_model import LoadSettings

        load_plugins([Path(path) for path in config["plugins"]])
        self._socket, self._watch = sock, float(config["watch"])
        settings = LoadSettings(config["engine"], config["device"], config["set"], config["slots"])
        paths = {name: Path(path) for name, path in config["models"].items()}
        self._table = ModelTable(paths, settings, budget=config["memory"], tell=self._tell)
        self._pool = ThreadPoolExecutor(config["requests"], thread_name_prefix="request")
        self._tickets: dict[int, Ticket] = {}
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Answer until the socket closes."""
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
                ticket = Ticket(str(message.get("client", "")))
                with self._lock:
                    self._tickets[message["id"]] = ticket
                self._pool.submit(self._answer, message, ticket)

    def _answer(self, message: Plain, ticket: Ticket) -> None:
        number, answer = message["id"], dict[str, object]()
        CURRENT.set(ticket)
        try:
            ticket.check()
            answer = {"kind": "result", "data": self._run(message, ticket)}
        except RequestCancelled as error:
            answer = {"kind": "error", "type": "cancelled", "message": str(error)}
        except Exception as error:  # a bug of ours must not end the process: the client is told, and the log says where
            answer = {"kind": "error", **describe_error(error)}
        finally:
            with self._lock:
                self._tickets.pop(number, None)
        self._send({"id": number, **answer})

    def _run(self, message: Plain, ticket: Ticket) -> Plain:
        from regard.serve.operations import ANSWERS, STREAMS

        name, op = message["model"], message["op"]
        with self._table.use(name) as served:
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
            os._exit(0)
        except RegardError as error:
            self._socket.send({"id": message.get("id"), "kind": "error", **describe_error(error)})

    def _tell(self, text: str) -> None:
        print(f"regard: {text}", file=sys.stderr, flush=True)


def describe_error(error: Exception) -> dict[str, str]:
    """An error for the API process: its kind and its words. Those of a bug stay here."""
    if isinstance(error, ServerBusy):
        return {"type": "busy", "message": str(error)}
    if isinstance(error, UnknownName) and "no model" in str(error):
        return {"type": "unknown", "message": str(error)}
    if isinstance(error, DataError | SpecError):
        return {"type": "invalid", "message": str(error)}
    if isinstance(error, MemoryError):
        return {"type": "busy", "message": "there is not enough memory for this request now"}
    traceback.print_exception(error, file=sys.stderr)
    return {"type": "internal", "message": "the model failed on this request; the log of the server says where"}


def main(arguments: list[str]) -> None:
    """Serve on the socket whose number is the argument."""
    sock = FrameSocket(socket.socket(fileno=int(arguments[0])))
    messages = iter(sock)
    config = next(messages, None)
    if config is None:
        return
    try:
        server = InferenceServer(sock, config)
    except Exception as error:
        fault: Mapping[str, str] = describe_error(error)
        words = str(error) if isinstance(error, RegardError) else fault["message"]
        sock.send({"kind": "failed", "message": words})
        return
    server.serve()
    os._exit(0)  # threads may still compute for clients that are gone


if __name__ == "__main__":
    wait_politely()
    main(sys.argv[1:])
