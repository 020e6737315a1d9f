"""Two translators, there and back, and requests that keep a server busy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.training.request import TrainRequest
from regard.training.train import run_training
from tests.made_files import ENGLISH, GERMAN

HELD = b"POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
"""A request whose body does not come."""


def make_translators(folder: Path) -> dict[str, Path]:
    """English to German and back, of a dozen sentences."""
    out = {name: folder / "runs" / name for name in ("en-de", "de-en")}
    for name, path in out.items():
        run_training(TrainRequest(_write_pairs(folder, name), out=str(path), quiet=True))
    return out


def _write_pairs(folder: Path, name: str) -> dict[str, object]:
    """A recipe that translates a dozen sentences."""
    languages = name.split("-")
    texts = {"en": ENGLISH, "de": GERMAN}
    for language, lines in texts.items():
        (folder / f"x.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    corpus = [{"paths": [str(folder / f"x.{language}") for language in languages]}]
    return {
        "task": "translate",
        "data": {"train": corpus, "valid": corpus, "tokenizer": "words", "max_length": 12, "languages": languages},
        "model": {"width": 16, "depth": 1, "heads": 2, "hidden": 32, "dropout": 0.0},
        "train": {
            "steps": 40, "validate_every": 40, "log_every": 10, "precision": "float32", "threads": 1,
            "schedule": {"kind": "constant", "lr": 1e-2},
        },
        "decode": {"beam": 4},
    }  # fmt: skip


@contextmanager
def hold_requests(address: str, count: int) -> Iterator[None]:
    """Requests in flight that take all places of a client until the end of the block."""
    host, port = address.removeprefix("http://").split(":")
    held = [socket.create_connection((host, int(port))) for _ in range(count)]
    try:
        for each in held:
            each.sendall(HELD)
        yield
    finally:
        for each in held:
            each.close()
