"""How every bench begins: the arguments that all have, the data, and the contenders that can take part.

`--record` writes to `results/`, which the README quotes; without it a measurement goes to `runs/results/`. `--smoke` does the
same work on tiny sizes in seconds, from the arguments to the printed table and the written result, in a folder that is
removed at the end. What a smoke run lacks (data, packages) it skips with a reason; a real one refuses before it begins.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parent.parent
DATA = ROOT.parent / "shared" / "data"
"""Public data sets, which are not part of the repository."""
SKIPPED = 77
"""The exit code of a smoke run that lacks something."""
PACKAGES = {
    "marian": "transformers", "transformers": "transformers", "x-transformers": "x_transformers",
    "ctranslate2": "ctranslate2", "llama.cpp": "llama_cpp",
}  # fmt: skip
"""The package that a contender needs, by the first word of its name."""
INSTALL = {"llama_cpp": "pip install llama-cpp-python"}
"""How to install what the extra `bench` does not have."""


class Mode:
    """How this process was asked to run; one for all of it."""

    record = False
    check = False
    smoke = False
    command = ""
    """The command that was typed, without what decides where its result goes."""
    scratch: tempfile.TemporaryDirectory[str] | None = None


def parse(
    arguments: argparse.ArgumentParser,
    words: Sequence[str] | None = None,
    *,
    out: str | Path | None = None,
    contenders: Iterable[str] | None = None,
    seeds: Sequence[int] | None = None,
    check: bool = True,
) -> argparse.Namespace:
    """Parse a bench's arguments, and those that all have.

    `out` adds `--out`, where what is finished is kept; `seeds` adds `--seed` (a smoke run takes the first); `contenders` adds
    `--only`, `--without` (see `choose`) and `--worker`. `--check` ends a bench without contenders here, if `check` is set.
    """
    arguments.add_argument(
        "--record", action="store_true", help="write to results/, which the README quotes, instead of runs/results/"
    )
    arguments.add_argument("--smoke", action="store_true", help="tiny, in seconds: does it run? Nothing is kept")
    arguments.add_argument("--check", action="store_true", help="only say whether all packages are there that it needs")
    if out is not None:
        arguments.add_argument("--out", type=Path, help=f"a stopped bench goes on from here; by default {out}")
    if seeds is not None:
        some = " ".join(map(str, seeds))
        arguments.add_argument("--seed", type=int, nargs="+", help=f"only these seeds; by default {some}")
    if contenders is not None:
        names = list(dict.fromkeys(contenders))
        for option, what in (("--only", "a contender"), ("--without", "leave out a contender")):
            what += f"; may be repeated: {', '.join(names)}"
            arguments.add_argument(option, action="append", choices=names, metavar="NAME", default=[], help=what)
        arguments.add_argument("--worker", choices=names, help=argparse.SUPPRESS)
    said = arguments.parse_args(words)
    Mode.record, Mode.smoke = said.record and not said.smoke, said.smoke
    Mode.check = said.check
    if said.check and check and contenders is None:
        raise SystemExit(0)
    Mode.command = _describe(sys.argv[1:] if words is None else words)
    if out is not None and said.out is None:
        said.out = make_scratch() if said.smoke else ROOT / out
    if seeds is not None:
        said.all_seeds = said.seed is None
        said.seed = said.seed or (list(seeds)[:1] if said.smoke else list(seeds))
    return said


def _describe(words: Sequence[str]) -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name.removesuffix(".__main__") if spec else "bench"
    return shlex.join(["python", "-m", name, *(word for word in words if word not in ("--record", "--smoke"))])


def make_scratch(name: str = "") -> Path:
    """A folder that is removed at the end of the process: a new one, or the one of this name."""
    if Mode.scratch is None:
        Mode.scratch = tempfile.TemporaryDirectory(prefix="regard-smoke-")
    if not name:
        return Path(tempfile.mkdtemp(dir=Mode.scratch.name))
    place = Path(Mode.scratch.name) / name
    place.mkdir(exist_ok=True)
    return place


def choose(said: argparse.Namespace, contenders: Iterable[str]) -> list[str]:
    """The contenders that take part; a real run refuses if the package of one is missing, a smoke run does without."""
    names = [name for name in contenders if name not in said.without and (not said.only or name in said.only)]
    missing = {name: package for name in names if (package := find_missing(name))}
    for name, package in missing.items():
        how = INSTALL.get(package, "make .venv/.benched, or pip install '.[bench]'")
        reason = f"{name!r} needs the package {package}, which is not installed: {how}"
        if not Mode.smoke:
            raise SystemExit(f"{reason}; or leave it out: --without {shlex.quote(name)}")
        print(f"without {reason}", file=sys.stderr)
    if Mode.check:
        raise SystemExit(0)
    return [name for name in names if name not in missing]


def find_missing(name: str) -> str:
    """The package that a contender needs and that is not installed; else nothing."""
    package = PACKAGES.get(name.replace(",", "").partition(" ")[0], "")
    return package if package and find_spec(package) is None else ""


def find_data(*parts: str) -> Path:
    """A public data set, or one of its files."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        lack(f"needs {'/'.join(('../shared/data', *parts))}, which is not here; docs/results.md says what it is")
    return path


def cut(path: Path, lines: int) -> Path:
    """The first lines of a text, which may be compressed, as a file of its own for a smoke run."""
    from regard.data.text_files import read_lines

    out = make_scratch("cut") / f"{path.parent.name}-{lines}-{path.name.removesuffix('.gz')}"
    if not out.exists():
        out.write_text("".join(f"{line}\n" for line in islice(read_lines(path), lines)), encoding="utf-8")
    return out


def shrink(words: Sequence[str]) -> list[str]:
    """A command with the first lines of each public data set that it names, for a smoke run."""

    def replace(found: re.Match[str]) -> str:
        path = find_data(*found[1].split("/"))
        return str(cut(path, 200 if path.suffix == ".txt" else 60) if path.is_file() else path)

    return [re.sub(r"\.\./shared/data/([^,]+)", replace, word) for word in words]


def lack(reason: str) -> NoReturn:
    """End because something is missing: a smoke run is skipped, a real one fails."""
    print(reason, file=sys.stderr)
    raise SystemExit(SKIPPED if Mode.smoke else 1)
