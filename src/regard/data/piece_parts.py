"""Parts of a data set: training, validation and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar, get_args

from regard.errors import DataError

Part = Literal["train", "valid", "test"]
P = TypeVar("P")


def count_pieces(count: int) -> str:
    """A number of pieces in words: `1 piece`, `1,200 pieces`."""
    return f"{count:,} piece{'s' * (count != 1)}"


def share_pieces(pieces: list[P]) -> dict[Part, list[P]]:
    """Pieces of a file without parts, which can be given for any of them."""
    return dict.fromkeys(get_args(Part), pieces)


def join_parts(each: Sequence[Mapping[Part, list[P]]], files: Sequence[str], part: Part) -> list[P]:
    """The pieces of a part in all files."""
    for found, path in zip(each, files, strict=True):
        if part not in found:
            raise DataError(f"{path} has no part {part!r}; it has {', '.join(found)}")
    return [piece for found in each for piece in found[part]]
