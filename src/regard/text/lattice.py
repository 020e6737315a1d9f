"""Steps and probabilities of random word segmentation.

    BPE       t h e d   ->   th e d   ->   the d      at each step, every possible merge is dropped with probability
                                                     `share`, and the best remaining one is applied; if none remains, stop
    unigram   . . . .   ->   th . .   ->   th e .     pieces are drawn from left to right, such that a segmentation has its
                                                     probability under the model, raised to a power and renormalized

BPE dropout: Provilkov et al. 2020; subword sampling: Kudo 2018. Nothing is drawn here: for `data/subword_sampling`, a step
replaces some adjacent parts of a word by one piece, and the remaining probability is that of stopping.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Any, Protocol

from regard.errors import SpecError
from regard.text.tokenizer import Tokenizer

State = tuple[int, ...]
"""A partially segmented word: token ids, and ~letter for letters that are not yet part of a piece."""
CANNOT_SAMPLE = (
    "data.subword_sampling needs a tokenizer that can cut a word in several ways, and this one has one; use tokenizer bpe, "
    "byte_bpe or unigram; for text that is already segmented, {kind: subword_nmt, codes: the merges file, undo: true}"
)
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_POWER_AT_TENTH = 0.2 * 0.1 / 0.9
"""Maps one setting to both methods: a share of 0.1, usual in BPE dropout, to a power of 0.2, usual in subword sampling."""
_CLOSE = 1e-6  # tolerance between scores of equally good segmentations
_MAX_REMEMBERED = 1 << 20
"""Maximum number of cached word ends."""

Step = tuple[float, int, int, int]
"""(probability, at, parts, piece): the token `piece` replaces `parts` parts of a word, from position `at` on."""


class Segmenter(Protocol):
    """Random segmentation of words."""

    bonds: frozenset[tuple[int, int]]
    """Pairs of adjacent letters inside pieces. No piece spans any other pair, so a text can be split there: both sides are
    independent."""
    ends: list[tuple[int, int]]
    """First and last letter of every token; (-1, -1) if it cannot be split."""

    def start(self, ids: Sequence[int]) -> State | None:
        """Return the letters of a word with these tokens; None if these steps cannot produce this segmentation."""

    def steps(self, state: State) -> list[Step]:
        """Return the possible next steps; their probabilities add up to at most one."""


def build_segmenter(tokenizer: Tokenizer, share: float) -> Segmenter:
    """Return the random segmentation of a tokenizer: close to the usual one for a `share` near 0, further for larger ones."""
    model = json.loads(tokenizer.core.model.__getstate__())
    if model["type"] == "BPE" and model["merges"] and not model["continuing_subword_prefix"]:
        return BpeSegmenter(tokenizer, model, share)
    if model["type"] == "Unigram":
        return UnigramSegmenter(tokenizer, model, share)
    raise SpecError(CANNOT_SAMPLE)


class BpeSegmenter:
    """BPE with dropout of merges."""

    def __init__(self, tokenizer: Tokenizer, model: dict[str, Any], share: float) -> None:
        vocab, suffix = model["vocab"], model["end_of_word_suffix"] or ""
        fixed = _find_uncuttable(tokenizer, vocab if model["byte_fallback"] else ())
        self.share = share
        self._chances = list[float]()  # probabilities of the best merge, the second best, ...
        self._letters: list[State | None] = [None] * tokenizer.size
        for token, i in vocab.items():
            body = token.removesuffix(suffix) if suffix else token
            spelled = [*body[:-1], body[-1:] + token[len(body) :]]
            if i not in fixed and all(letter in vocab for letter in spelled):
                self._letters[i] = tuple(vocab[letter] for letter in spelled)
        self._joins: dict[tuple[int, int], tuple[int, int]] = {}
        for rank, (a, b) in enumerate(model["merges"]):
            self._joins.setdefault((vocab[a], vocab[b]), (rank, vocab[a + b]))
        self.ends = [(-1, -1) if letters is None else (letters[0], letters[-1]) for letters in self._letters]
        spans = ((self.ends[a][1], self.ends[b][0]) for a, b in self._joins)
        self.bonds = frozenset(pair for pair in spans if -1 not in pair)

    def start(self, ids: Sequence[int]) -> State | None:
        known = [letters for i in ids if (letters := self._letters[i]) is not None]
        if len(known) < len(ids):
            return None
        begin = state = tuple(chain.from_iterable(known))
        while found := self._found(state):
            _, at, piece = min(found)
            state = (*state[:at], piece, *state[at + 2 :])
        return begin if state == tuple(ids) else None

    def steps(self, state: State) -> list[Step]:
        found, chances = sorted(self._found(state)), self._chances
        while len(chances) < len(found):
            chances.append((1 - self.share) * self.share ** len(chances))
        return [(chance, at, 2, piece) for (_, at, piece), chance in zip(found, chances, strict=False)]

    def _found(self, state: State) -> list[tuple[int, int, int]]:
        """Return all possible merges: rank, position and result."""
        joins = self._joins
        return [(join[0], at, join[1]) for at, pair in enumerate(pairwise(state)) if (join := joins.get(pair))]


class UnigramSegmenter:
    """Unigram model: pieces are sampled by forward filtering and backward sums."""

    def __init__(self, tokenizer: Tokenizer, model: dict[str, Any], share: float) -> None:
        vocab = [token for token, _ in model["vocab"]]
        fixed = _find_uncuttable(tokenizer, vocab if model["byte_fallback"] else ())
        self.power = _POWER_AT_TENTH * (1 - share) / share
        alphabet = {letter: n for n, letter in enumerate(sorted(set().union(*vocab)))}
        self._letters: list[State | None]
        self._letters = [None if i in fixed else tuple(~alphabet[c] for c in token) for i, token in enumerate(vocab)]
        self._letters += [None] * (tokenizer.size - len(vocab))
        self._scores = [score for _, score in model["vocab"]]
        self._pieces = {letters: i for i, letters in enumerate(self._letters) if letters}
        self._longest = max(map(len, self._pieces), default=0)
        self._ahead: dict[State, tuple[float, list[tuple[float, int, int]]]] = {(): (0.0, [])}
        self.ends = [(~letters[0], ~letters[-1]) if letters else (-1, -1) for letters in self._letters]
        self.bonds = frozenset((~a, ~b) for letters in self._pieces for a, b in pairwise(letters))

    def start(self, ids: Sequence[int]) -> State | None:
        known = [letters for i in ids if (letters := self._letters[i])]
        if len(known) < len(ids):
            return None
        begin = tuple(chain.from_iterable(known))
        best = [0.0] + [-math.inf] * len(begin)
        for at in range(len(begin)):
            for piece, parts in self._fits(begin[at:]):
                best[at + parts] = max(best[at + parts], best[at] + self._scores[piece])
        return begin if sum(self._scores[i] for i in ids) > best[-1] - _CLOSE else None

    def steps(self, state: State) -> list[Step]:
        at = next((k for k, part in enumerate(state) if part < 0), len(state))
        _, ahead = self._weigh(state[at:])
        return [(chance, at, parts, piece) for chance, parts, piece in ahead]

    def _weigh(self, rest: State) -> tuple[float, list[tuple[float, int, int]]]:
        """Return the log of the total weight of all segmentations of the rest, and the probability of each first piece."""
        if rest in self._ahead:
            return self._ahead[rest]
        if len(self._ahead) > _MAX_REMEMBERED:
            self._ahead = {(): (0.0, [])}
        for at in range(len(rest) - 1, -1, -1):  # from the end, so that shorter tails are known
            if (tail := rest[at:]) not in self._ahead:
                fits = [(self._ahead[tail[n:]][0] + self.power * self._scores[i], n, i) for i, n in self._fits(tail)]
                found = [fit for fit in fits if fit[0] > -math.inf]  # the others cannot be completed
                top = max((weight for weight, _, _ in found), default=0.0)
                total = sum(math.exp(weight - top) for weight, _, _ in found)
                chances = [(math.exp(weight - top) / total, n, i) for weight, n, i in found]
                self._ahead[tail] = (top + math.log(total) if found else -math.inf), chances
        return self._ahead[rest]

    def _fits(self, rest: State) -> list[tuple[int, int]]:
        """Return the pieces that the rest of a word may begin with, and their lengths."""
        most = min(self._longest, len(rest))
        return [(i, n) for n in range(1, most + 1) if (i := self._pieces.get(rest[:n])) is not None]


def _find_uncuttable(tokenizer: Tokenizer, vocab: Iterable[str]) -> set[int]:
    """Return the tokens that are never split: special tokens, and bytes of unknown characters."""
    spelled = (tokenizer.core.token_to_id(token) for token in vocab if _BYTE.fullmatch(token))
    return {*tokenizer.marks, *(i for i in spelled if i is not None)}
