"""Options that several commands share, and what they mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Protocol

import typer

from regard.errors import SpecError, make_printable

Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or mps")]
Engine = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What generates outputs: auto, native or torch; `regard show` says which and why",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error")]
Plugin = Annotated[
    list[Path], typer.Option(metavar="FILE", help="A Python file that adds your own mixer, task or metric; repeatable")
]
Set = Annotated[list[str], typer.Option("--set", metavar="PATH=VALUE", help="Change one setting; repeatable")]
OnBad = Annotated[
    str | None,
    typer.Option(
        metavar="error|drop", help="Bad data (not UTF-8, an empty side, …): stop with an error, or drop and count it"
    ),
]
Beam = Annotated[int | None, typer.Option(metavar="N", help="Beam size; 1 is greedy search")]
To = Annotated[
    str | None,
    typer.Option(metavar="LANG", help="Target language of a many-to-many model; short, medium or long for summaries"),
]


class Printable(Protocol):
    """Result of functions of the API: for programs and for people."""

    def plain(self) -> object: ...
    def render(self) -> str: ...


def print_result(found: Printable, as_json: bool) -> None:
    """Print a result for people or, with --json, for programs."""
    if as_json:
        print(json.dumps(found.plain(), ensure_ascii=False))
    else:
        print("\n".join(map(make_printable, found.render().split("\n"))))


def parse_settings(sets: Sequence[str], on_bad: str | None = None) -> dict[str, str]:
    """The settings of a command line, by path; later ones win."""
    return ({} if on_bad is None else {"data.on_bad": on_bad}) | dict(map(_parse_setting, sets))


def _parse_setting(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise SpecError(f"--set takes PATH=VALUE, such as train.steps=500, got {text!r}")
    return path, value
