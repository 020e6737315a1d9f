"""Files that lie elsewhere or are none: links, pipes, sockets, and manifests that say what is not so."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

from tests.hostile.place import CONFIG, MANIFEST, TOKENS, WEIGHTS, Place, add


def _outside(p: Place, name: str) -> Place:
    """A link to the very bytes that should be here, only that they lie elsewhere."""
    if not (p.outside / name).exists():
        shutil.copy(p.folder / name, p.outside / name)
    p.link(name, p.outside / name)
    return p


def _pipe(p: Place, name: str) -> Place:
    os.mkfifo(p.clear(name))
    return p


def _socket(p: Place, name: str) -> Place:
    path, here = p.clear(name), Path.cwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)  # the name of a socket must be short
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)
    return p


for way, names in (
    ("ours", (CONFIG, WEIGHTS, TOKENS, "README.md")),
    ("hf", (CONFIG, WEIGHTS, TOKENS, "tokenizer_config.json", "generation_config.json")),
):
    for name in names:
        if name == "generation_config.json":  # a decoder alone has no use for it
            continue
        add(way, f"{name} is a link that leads out", lambda p, name=name: (p.seal(), _outside(p, name)), seal=False)
        add(way, f"{name} is a pipe", lambda p, name=name: (p.seal(), _pipe(p, name)), seal=False)
    for name in names[:2]:
        add(way, f"{name} is a socket", lambda p, name=name: (p.seal(), _socket(p, name)), seal=False)
        add(way, f"{name} is a folder", lambda p, name=name: (p.seal(), p.clear(name).mkdir()), seal=False)
        add(way, f"{name} is a link to itself", lambda p, name=name: (p.seal(), p.link(name, name)), seal=False)
        add(
            way, f"{name} is a link to a device", lambda p, name=name: (p.seal(), p.link(name, "/dev/zero")), seal=False
        )
        add(
            way,
            f"{name} is a link to this process",
            lambda p, name=name: (p.seal(), p.link(name, "/proc/self/mem")),
            seal=False,
        )
add("ours", "the manifest is a link that leads out", lambda p: (p.seal(), _outside(p, MANIFEST)), seal=False)
add("ours", "the manifest is a pipe", lambda p: os.mkfifo(p.clear(MANIFEST)), seal=False)


def _run(p: Place, name: str) -> None:
    """A run whose best model is a link to another folder, which is as it should be."""
    p.seal()
    model = p.outside / "model"
    if not model.exists():
        shutil.copytree(p.folder, model)
    for path in p.folder.iterdir():
        path.unlink()
    (p.folder / name).symlink_to(model)


for name in ("final", "best", ".final.previous", ".best.previous"):
    add("ours", f"{name} is a link that leads out", lambda p, name=name: _run(p, name), seal=False)
add(
    "hf",
    "an index of a file elsewhere",
    lambda p: (
        p.clear(WEIGHTS),
        p.write(
            WEIGHTS + ".index.json",
            json.dumps({"weight_map": {"a": f"../{p.outside.name}/secret.safetensors"}}).encode(),
        ),
    ),
)
add(
    "hf",
    "an index of an absolute path",
    lambda p: (
        p.clear(WEIGHTS),
        p.write(
            WEIGHTS + ".index.json", json.dumps({"weight_map": {"a": str(p.outside / "secret.safetensors")}}).encode()
        ),
    ),
)
add(
    "hf",
    "an index of a link that leads out",
    lambda p: (
        p.clear(WEIGHTS),
        p.link("b", p.outside / "secret.safetensors"),
        p.write(WEIGHTS + ".index.json", b'{"weight_map": {"a": "b"}}'),
    ),
)
add(
    "hf",
    "an index of names too long",
    lambda p: (
        p.clear(WEIGHTS),
        p.write(WEIGHTS + ".index.json", json.dumps({"weight_map": {"a": "b" * 5000}}).encode()),
    ),
)
add("hf", "an index that is deep", lambda p: (p.clear(WEIGHTS), p.write(WEIGHTS + ".index.json", b"[" * 1_000_000)))


def _listed(p: Place, name: str) -> None:
    """The manifest lists one file more, by this name."""
    p.seal()
    secret = (p.outside / "secret.safetensors").read_bytes()
    p.change(
        MANIFEST,
        "files",
        lambda files: (
            files
            | {name.replace("OUT", str(p.outside)): {"size": len(secret), "sha256": hashlib.sha256(secret).hexdigest()}}
        ),
    )


NAMES = (
    "../outside/secret.safetensors",
    "OUT/secret.safetensors",
    "..",
    ".",
    "",
    "a/../../outside/secret.safetensors",
    "..\\outside\\secret.safetensors",
    "C:\\secret",
    "secret\0.safetensors",
    "~/.ssh/id_rsa",
    "not there",
    "x" * 300,
    "/dev/stdin",
    "/proc/self/environ",
)
for name in NAMES:
    add("ours", f"the manifest lists {name[:40]!r}", lambda p, name=name: _listed(p, name), seal=False)
ENTRIES: dict[str, Any] = {
    "another digest": {"sha256": "0" * 64},
    "a digest in capitals": {"sha256": "A" * 64},
    "no digest": {"sha256": ""},
    "a digest that is none": {"sha256": ["rm"]},
    "a size too small": {"size": 3},
    "a size too large": {"size": 10**6},
    "a size beyond memory": {"size": 2**62},
    "a negative size": {"size": -1},
    "a size of NaN": {"size": float("nan")},
    "a size of infinity": {"size": float("inf")},
    "an order": {"run": "rm -rf"},
}
for said, entry in ENTRIES.items():
    add(
        "ours",
        f"the manifest says {said}",
        lambda p, entry=entry: (p.seal(), p.change(MANIFEST, "files", lambda f: f | {CONFIG: f[CONFIG] | entry})),
        seal=False,
    )
MANIFESTS = {
    "nothing": b"",
    "a list": b"[]",
    "no object": b"3",
    "no files": b"{}",
    "too much": b" " * 2_000_000,
    "deep lists": b"[" * 500_000,
    "deep objects": b'{"files":' * 100_000,
    "no UTF-8": b"\xff\xfe\x00",
}
for said, data in MANIFESTS.items():
    add("ours", f"the manifest is {said}", lambda p, data=data: p.write(MANIFEST, data), seal=False)
add("ours", "the manifest is missing", lambda p: p.clear(MANIFEST), seal=False)


def _sparse(p: Place, size: int, name: str, digest: str = "0" * 64) -> None:
    """The manifest lists eight files more that have a size, and nearly nothing on disk."""
    p.seal()
    for i in range(8):
        with (p.folder / name.format(i)).open("wb") as file:
            file.write(b"\1" if name.endswith(".safetensors") else b"")
            file.truncate(size)
    more = {name.format(i): {"size": size, "sha256": digest} for i in range(8)}
    p.change(MANIFEST, "files", lambda files: files | more)


for size in (150 << 20, 400_000_000, 1 << 40):
    for name in ("more {}", "more {}.safetensors"):
        add(
            "ours",
            f"eight files of {size} bytes that have none, called {name}",
            lambda p, size=size, name=name: _sparse(p, size, name),
            seal=False,
        )
