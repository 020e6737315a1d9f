"""Cut long texts into pieces where a tokenizer does.

The library needs about 160 bytes for each byte of text that it encodes at once, so a text of any length is encoded in pieces of
bounded length. A cut is good if the tokens of both sides are those of the whole; this is tried on the text around it.

    a cut before a space      foo| bar      tokenizers that keep the space with the word after it (GPT-2)
    in place of a space       foo|bar       tokenizers that put a space before every text
    between any characters    fo|o bar      characters, bytes

If no cut is good (a "word" of a million letters), the text is cut all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

MAX_PIECE = 1 << 15
"""Maximum number of characters in a piece."""
AROUND = 192
"""Number of characters on each side on which a cut is tried."""
TRIALS = 6
"""Number of places of each kind that are tried."""
AT_ONCE = 3
"""Number of cuts that are tried at once: mostly one of those at the last space is good."""

Encode = Callable[[Sequence[str]], list[list[int]]]
Cut = tuple[int, int]
"""End of the left side, and start of the right side: the same place, or after a space between them."""


def cut_text(text: str, encode: Encode, limit: int = MAX_PIECE) -> Iterator[tuple[int, str]]:
    """Yield the pieces of a text, of at most `limit` characters, and where each starts."""
    start = 0
    while len(text) - start > limit:
        end, following = find_cut(text[start : start + limit + AROUND], limit, encode)
        yield start, text[start : start + end]
        start += following
    yield start, text[start:]


def find_cut(text: str, limit: int, encode: Encode) -> Cut:
    """Find the last good cut in the second half of the first `limit` characters; some cut if there is none."""
    candidates = [*_at_spaces(text, limit), *((at, at) for at in range(limit, max(limit - TRIALS, 0), -1))]
    for first in range(0, len(candidates), AT_ONCE):
        tried = candidates[first : first + AT_ONCE]
        whole = [text[max(end - AROUND, 0) : start + AROUND] for end, start in tried]
        sides = [
            side for end, start in tried for side in (text[max(end - AROUND, 0) : end], text[start : start + AROUND])
        ]
        found = encode([*whole, *sides])
        left, right = found[len(whole) :: 2], found[len(whole) + 1 :: 2]
        for cut, wanted, ids, more in zip(tried, found, left, right, strict=False):
            if ids + more == wanted:
                return cut
    return candidates[0]


def _at_spaces(text: str, limit: int) -> Iterator[Cut]:
    """Yield the last single spaces, each as a cut before it, in its place, and after it."""
    left, at = TRIALS, limit
    while left and at > limit // 2:
        at -= 1
        if text[at].isspace() and not text[at - 1].isspace() and not text[at + 1 : at + 2].isspace():
            left -= 1
            yield from ((at, at), (at, at + 1), (at + 1, at + 1))
