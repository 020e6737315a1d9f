"""Files that a user names: regular, bounded, and opened in one place."""

from __future__ import annotations

import ast
import bz2
import gzip
import lzma
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.data.images import read_image, read_image_set
from regard.data.labels import read_labeled
from regard.data.pair_reader import Corpus, read_corpus
from regard.data.text_files import read_text
from regard.errors import RegardError
from regard.files import user_file
from regard.files.user_file import decompress, open_user_file, read_user_file
from regard.recipes.merge import read_recipe
from regard.text import Tokenizer
from regard.text.importers import from_sentencepiece, from_subword_nmt

READERS: dict[str, Callable[[Path], object]] = {
    "x.png": lambda path: read_image(path, channels=3),
    "x.tar": lambda path: read_image_set(path, "train"),
    "x.txt": read_text,
    "x.tsv": lambda path: read_corpus(Corpus((str(path),))),
    "x.csv": lambda path: read_labeled(str(path)),
    "x.yaml": lambda path: read_recipe(str(path)),
    "x.json": Tokenizer.load,
    "x.codes": lambda path: from_subword_nmt(path, ["a"]),
    "x.model": from_sentencepiece,
    "x.gguf": lambda path: regard.convert(path, path.with_name("out")),
}
"""Every kind of file that a user names, by a name that it may have."""


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "NUL", "folder", "nothing"])
def test_only_regular_files_are_opened(tmp_path: Path, name: str, kind: str) -> None:
    """Nothing waits for a pipe that nobody writes to, and nothing reads a device without an end."""
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "NUL":
        path = tmp_path / f"\0{name}"
    with pytest.raises(RegardError) as refused:
        READERS[name](path)
    assert "\n" not in str(refused.value)


def test_a_limit_is_checked_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(RegardError, match=r"large is refused: it has more than 1,000 bytes"):
        read_user_file(path, 1000)
    path.write_bytes(gzip.compress(bytes(2000)))
    with pytest.raises(RegardError, match=r"large is refused: it has more than 1,000 bytes"):
        read_user_file(path, 1000, unpack=("gzip",))
    assert read_user_file(path, 2000, unpack=("gzip",)) == bytes(2000)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_what_unpacks_to_far_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(pack(bytes(10_000_000)))
    with open_user_file(path) as file:
        assert len(decompress(file, path).read()) == 10_000_000, "below a gigabyte, anything goes"
    monkeypatch.setattr(user_file, "MIN_UNPACKED", 1_000_000)
    with open_user_file(path) as file, pytest.raises(RegardError, match="unpacks to more than 200 times its size"):
        decompress(file, path).read()


def test_xz_streams_one_after_another_and_damaged_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, data = tmp_path / "x.xz", os.urandom(100_000)
    path.write_bytes(lzma.compress(data) + bytes(8) + lzma.compress(b"more"))
    assert read_user_file(path, 1 << 20, unpack=("xz",)) == data + b"more"
    path.write_bytes(lzma.compress(data)[:-1000])
    with pytest.raises(RegardError, match="ends before the end-of-stream marker"):
        read_user_file(path, 1 << 20, unpack=("xz",))
    path.write_bytes(lzma.compress(data, preset=9))
    monkeypatch.setattr(user_file, "MAX_XZ_MEMORY", 1 << 20)
    with pytest.raises(RegardError, match="Memory usage limit exceeded"):
        read_user_file(path, 1 << 20, unpack=("xz",))


HUNGRY = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from regard.data.images import read_image_set
from regard.errors import DataError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_image_set(sys.argv[1], "train")
except DataError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


def test_an_archive_with_a_huge_member(tmp_path: Path) -> None:
    """A member is never read whole unless its size is within the limit, and what is no image streams by."""
    path, size = tmp_path / "huge.tar.xz", 120_000_000
    packer = lzma.LZMACompressor(preset=0)
    with path.open("wb") as out:
        for name in ("a/notes", "a/x.png"):
            member = tarfile.TarInfo(name)
            member.size = size
            out.write(packer.compress(member.tobuf()))
            for _ in range(size // 1_000_000):
                out.write(packer.compress(bytes(1_000_000)))
        out.write(packer.flush())
    done = subprocess.run([sys.executable, "-c", HUNGRY, str(path)], capture_output=True, text=True, check=True)
    grown, _, said = done.stdout.partition(" ")
    assert int(grown) < 50_000, "kB"
    assert "a/x.png is refused: it has 120,000,000 bytes; the limit is 100,000,000" in said


def test_files_are_opened_in_one_place() -> None:
    """No reader of user files opens one by itself: `files/user_file.py` does."""
    package = Path(regard.__file__).parent
    own = {"recipes/merge.py", "data/line_store.py", "data/token_store.py"}  # the package, and stores of our own
    rooms = ("data/", "text/", "recipes/")
    found = []
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package).as_posix()
        if where in own or not where.startswith(rooms):
            continue
        text = path.read_text()
        for node in ast.walk(ast.parse(text if "open(" in text or "read_" in text or "decompress(" in text else "")):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if node.args and ast.unparse(node.args[0]).startswith("io.BytesIO("):
                continue  # what was read is unpacked
            if called in ("open", "gzip.open", "lzma.open", "bz2.open", "zipfile.ZipFile", "gzip.decompress") or (
                called.endswith((".read_text", ".read_bytes"))
                or (called.endswith(".open") and called != "tarfile.open")
            ):
                keywords = {keyword.arg for keyword in node.keywords}
                if called == "Image.open" and "formats" in keywords:
                    continue
                found.append(f"{where}:{node.lineno}: {called}")
            if called == "tarfile.open" and "fileobj" not in {keyword.arg for keyword in node.keywords}:
                found.append(f"{where}:{node.lineno}: {called}")
    assert not found, f"use regard.files.user_file instead: {found}"
