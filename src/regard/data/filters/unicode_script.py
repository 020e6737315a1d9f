"""Filter of texts in an unexpected script.

The script of a letter is the first word of its Unicode name: LATIN SMALL LETTER A, CYRILLIC CAPITAL LETTER BE. Han, kana and
bopomofo count as one script, `cjk`, because Japanese mixes them in every sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Annotated

from pydantic import Field

from regard.data.filters.filter_spec import FILTERS, FilterSpec, Pair, PairFilter
from regard.errors import UnknownName
from regard.spec import spec

MERGED = dict.fromkeys(("cjk", "hiragana", "katakana", "bopomofo", "ideographic"), "cjk")


class _Scripts(dict[str, str]):
    """A cache of the script of each character."""

    def __missing__(self, character: str) -> str:
        return self.setdefault(character, script_of(character))


_SCRIPT_OF = _Scripts()


def script_of(character: str) -> str:
    """Return the script of a letter, or an empty string for other characters."""
    if not character.isalpha():
        return ""
    plain = unicodedata.normalize("NFKC", character)[0]  # FULLWIDTH LATIN SMALL LETTER A is Latin
    word = re.split(r"[ -]", unicodedata.name(plain, "unknown"))[0].lower()
    return MERGED.get(word, word)


def count_scripts(text: str) -> Counter[str]:
    """Count the letters of each script in a text."""
    counts = Counter(map(_SCRIPT_OF.__getitem__, text))
    del counts[""]
    return counts


@FILTERS.add
@spec
class Script(FilterSpec):
    """Keep pairs whose texts have at least `min_share` of their letters in the script of their side.

    The script of a side is the given one, or that of most texts. A side can have several scripts if they are given: Serbian
    is `[latin, cyrillic]`. Texts without letters are kept.
    """

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    min_share: Annotated[float, Field(ge=0.5, le=1)] = 0.5
    needs_sample = True

    def __post_init__(self) -> None:
        for name in (*self.source, *self.target):
            if name not in _known_scripts():
                raise UnknownName("script", name, sorted(_known_scripts()))

    def build(self, sample: Sequence[Pair]) -> PairFilter:
        sources = frozenset(self.source or _main_script([source for source, _ in sample]))
        targets = frozenset(self.target or _main_script([target for _, target in sample]))

        def written(text: str, wanted: frozenset[str]) -> bool:
            counts = count_scripts(text)
            return not wanted or sum(counts[name] for name in wanted) >= self.min_share * counts.total()

        remark = " and ".join(
            f"{side} {' or '.join(sorted(found)) or 'any'}"
            for side, found in (("source", sources), ("target", targets))
        )
        return PairFilter(lambda source, target: written(source, sources) and written(target, targets), remark)


def _main_script(texts: Sequence[str]) -> list[str]:
    """Return the script that is the main one of most texts; nothing if no text has letters."""
    votes = Counter(max(counts, key=lambda name: counts[name]) for text in texts if (counts := count_scripts(text)))
    return [name for name, _ in votes.most_common(1)]


@cache
def _known_scripts() -> frozenset[str]:
    """Return all scripts of Unicode that have letters; everything above the second plane is cjk."""
    return frozenset(filter(None, map(script_of, map(chr, range(0x20000)))))
