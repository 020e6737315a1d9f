"""Settings under `data` that tasks share: files, metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from regard.data.filters import FilterList
from regard.data.pair_reader import Corpus, OnBad
from regard.data.permutation import Permutation
from regard.data.piece_parts import Part, join_parts
from regard.errors import DataError, SpecError
from regard.metrics import METRICS
from regard.spec import Plain, Spec, spec

T = TypeVar("T")


@spec
class PairData(Spec):
    """Corpora of pairs of texts, and how they are read."""

    train: tuple[Corpus, ...] = ()
    valid: tuple[Corpus, ...] = ()
    columns: tuple[int | str, int | str] | None = None
    """The columns of both texts in tables, for corpora that do not say: names in the header or positions from 1."""
    header: bool | None = None
    """Tables have a header, for corpora that do not say; detected from their first rows by default, and reported."""
    on_bad: OnBad | None = None
    """Treatment of bad pairs, overriding the corpora: `error` or `drop`."""
    filters: FilterList = ()
    """Filters for training pairs, applied in this order; `standard` for those that translations usually need."""


def check_metrics(names: Sequence[str]) -> None:
    """Refuse unknown metrics, and none at all."""
    if not names:
        raise SpecError("`metrics` should name at least one score; the first decides which checkpoint is best")
    for name in names:
        METRICS[name]


def configure_files(files: Sequence[object], valid: Sequence[object]) -> dict[str, object]:
    """The settings that name these files. New training files replace those for validation, too."""
    named: dict[str, object] = {"train": list(files), "valid": []} if files else {}
    return {**named, "valid": list(valid)} if valid else named


def name_corpus(paths: Sequence[str]) -> list[Plain]:
    """The corpus in these files, if any, as settings."""
    return [Corpus(paths=tuple(paths)).plain()] if paths else []


def hold_out_items(items: Sequence[T], share: float, seed: int, noun: str) -> tuple[list[T], list[T]]:
    """Split off a share of the items at random, at least one; returns the rest and those, both in their order."""
    count = max(1, round(share * len(items)))
    if count >= len(items):
        some = f"1 {noun} is" if len(items) == 1 else f"{len(items)} {noun}s are"
        raise DataError(f"{some} not enough to hold some out; name a file for validation")
    held = set(Permutation(len(items), seed).take(0, count).tolist())
    rest = [item for i, item in enumerate(items) if i not in held]
    return rest, [items[i] for i in sorted(held)]


def split_pieces(
    each: Sequence[Mapping[Part, list[T]]], files: Sequence[str], *, hold_out: float, seed: int
) -> tuple[list[T], list[T]]:
    """The pieces of files for training and validation; a share is held out where a file has no part for validation."""
    train = join_parts(each, files, "train")
    if all(found.get("valid", found.get("train")) is not found.get("train") for found in each):
        return train, join_parts(each, files, "valid")
    return hold_out_items(train, hold_out, seed, "piece")
