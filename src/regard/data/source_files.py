"""Source code: folders of files, and Python's own library.

Files are read in sorted order. A file is a document, and validation holds out whole files: neighboring lines of a file are so
similar that a split by line would test memorization.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.data.text_files import read_text
from regard.errors import DataError

LIBRARY_WITHOUT = frozenset({"test", "tests", "idlelib", "encodings", "pydoc_data", "site-packages", "dist-packages"})
"""Folders of the standard library that are left out: tests, an application, tables, and what is not part of it."""
MAX_NAMED = 3
"""Maximum number of files that a message names."""


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file and its name, relative to the folder that was asked for."""

    path: Path
    name: str


def list_library() -> list[SourceFile]:
    """The modules of the standard library of this Python, without tests, encodings and IDLE."""
    root = Path(sysconfig.get_path("stdlib"))
    return [file for file in _walk(root, (".py",)) if LIBRARY_WITHOUT.isdisjoint(Path(file.name).parts[:-1])]


def list_sources(paths: Sequence[str], suffixes: Sequence[str]) -> list[SourceFile]:
    """The files among these paths, and in folders those with one of these suffixes, except hidden and empty ones."""
    found = list[SourceFile]()
    for each in paths:
        path = Path(each)
        if not path.exists():
            raise DataError(f"there is no file or folder {path}")
        if not path.is_dir():
            found.append(SourceFile(path, path.name))
            continue
        inside = _walk(path, suffixes)
        if not inside:
            raise DataError(f"{path} has no {' or '.join(suffixes)} files; set data.suffixes to those of your sources")
        found += inside
    return found


def _walk(root: Path, suffixes: Sequence[str]) -> list[SourceFile]:
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))
    kept = [name for name in names if name.endswith(tuple(suffixes)) and not f"/{name}".count("/.")]
    files = [SourceFile(root / name, name) for name in kept]
    return [file for file in files if file.path.is_file() and file.path.stat().st_size]


def read_sources(files: Sequence[SourceFile], *, drop_bad: bool = False) -> tuple[dict[SourceFile, str], list[str]]:
    """The texts of files, and the names of those that are not UTF-8 text, which are an error unless `drop_bad`."""
    texts, bad = dict[SourceFile, str](), list[str]()
    for file in files:
        try:
            texts[file] = read_text(file.path)
        except DataError as error:
            if not drop_bad:
                raise DataError(f"{error}; or leave such files out with --on-bad drop") from None
            bad.append(file.name)
    if not texts:
        raise DataError("all files were left out; name some that are UTF-8 text")
    return texts, bad


def hold_out_files(texts: Mapping[SourceFile, str], share: float) -> tuple[list[str], list[str]]:
    """Split off a share of the files for validation, at least one: those whose names have the lowest hashes.

    The choice looks random and depends on names alone, so that runs with other seeds, and other versions of the sources, hold
    out the same files.
    """
    count = max(round(share * len(texts)), 1)
    if count >= len(texts):
        some = "1 file is" if len(texts) == 1 else f"{len(texts)} files are"
        raise DataError(f"{some} not enough to hold some out; name more files, or some with --valid")
    held = set(sorted(texts, key=lambda file: hashlib.sha256(file.name.encode()).digest())[:count])
    return [text for file, text in texts.items() if file not in held], [texts[file] for file in texts if file in held]


def describe_bad(names: Sequence[str]) -> list[str]:
    """A message about files that were left out; none if there are none."""
    if not names:
        return []
    some = "file is" if len(names) == 1 else "files are"
    return [f"{len(names):,} {some} not UTF-8 text and left out: {name_files(names)}"]


def name_files(names: Sequence[str]) -> str:
    """The names of files in a message, the first ones of many."""
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"
