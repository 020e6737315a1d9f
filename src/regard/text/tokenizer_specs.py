"""Kinds of tokenizers, which learn a vocabulary from text.

    kind      "Hello, world!" becomes           unknown
    chars     H e l l o , ▁ w o r l d !         <unk> for a character
    words     ▁Hello , ▁world !                 <unk> for a word
    bytes     48 65 6c 6c 6f 2c 20 77 ...       nothing
    bpe       ▁Hel lo , ▁wor ld !               <unk> for a character
    byte_bpe  ▁Hel lo , ▁wor ld !               nothing
    unigram   ▁Hel lo , ▁world !                <unk> for characters
    wordpiece ▁Hel ##lo , ▁wor ##ld !           <unk> for a word
    pieces    text that is already segmented: split at spaces, joined at "@@ "

A space (shown as ▁) belongs to the word after it, and text begins with one, so a word has the same tokens everywhere, and
joining the tokens restores the text exactly. BPE: Sennrich et al. 2016; unigram: Kudo 2018; bytes as letters:
Radford et al. 2019; WordPiece: Wu et al. 2016. The algorithms are those of the `tokenizers` library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any, ClassVar, get_args

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Core

from regard.errors import DataError, SpecError
from regard.registry import Registry
from regard.spec import Count, Spec, VocabSize, spec
from regard.text.native_calls import translate_errors
from regard.text.normalize import Normalize, UnicodeForm
from regard.text.template import Template

PAD, BOS, EOS, UNK = ROLES = ("<pad>", "<s>", "</s>", "<unk>")
"""Tokens with a role, in the order of their ids."""

# A piece never mixes letters and punctuation, so none can spell `</s>` or `<2de>`.
_RUNS = Regex(r" ?[\p{L}\p{M}\p{N}]+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+")
_WORDS = Regex(r" ?[\p{L}\p{M}\p{N}]+| ?[^\s\p{L}\p{M}\p{N}]|\s+(?!\S)|\s+")
_MIN_PAIR_COUNT = 2  # minimum frequency of a pair to be merged
_CONTINUATION = "##"  # marks a WordPiece that continues a word
_MAX_WORD = 100  # characters; longer words are unknown, as in BERT

TOKENIZERS: Registry[type[TokenizerSpec]] = Registry("tokenizer")


class TokenizerSpec(Spec):
    """Division of text into tokens. `learn` builds the library's tokenizer, with the `reserved` tokens first."""

    registry = TOKENIZERS
    can_sample: ClassVar[bool] = False
    """True if words have several segmentations, so that `data.subword_sampling` works."""
    learns_from_all: ClassVar[bool] = False
    """True if corpora of any size can be learned from in bounded memory."""

    def learn(self, lines: Iterable[str], reserved: Sequence[str]) -> Core:
        raise NotImplementedError

    def desegment(self, text: str) -> str:
        """Return a line of a corpus as decoding would: text that is already segmented is joined."""
        return text


@TOKENIZERS.add(also=("characters", "letters"))
@spec
class Chars(TokenizerSpec):
    """One token per character."""

    normalize: Normalize = Normalize()
    learns_from_all = True

    def learn(self, lines: Iterable[str], reserved: Sequence[str]) -> Core:
        core = _new_core(models.BPE(unk_token=UNK), self.normalize.steps())
        core.decoder = decoders.Fuse()
        lines = self._collect(check_lines(lines))
        no_pairs = trainers.BpeTrainer(
            **_trainer_options(reserved, vocab=len(reserved))
        )  # the alphabet is always included
        return _train(core, no_pairs, lines)

    def _collect(self, lines: Iterable[str]) -> list[str]:
        """Return all different characters: the library would keep every line."""
        seen, change = set[str](), bool(self.normalize.steps())
        for line in lines:
            seen.update(self.normalize.apply(line) if change else line)
        other = min((letter for letter in seen if not letter.isspace()), default="")
        return [f"{other}{letter}{other}" if letter.isspace() else letter for letter in sorted(seen)]


@TOKENIZERS.add
@spec
class Words(TokenizerSpec):
    """One token per word or punctuation mark that occurs at least `min_count` times."""

    vocab: VocabSize = 32_000
    min_count: Count = 2
    normalize: Normalize = Normalize()

    def learn(self, lines: Iterable[str], reserved: Sequence[str]) -> Core:
        core = _new_spaced_core(models.WordLevel(unk_token=UNK), self.normalize, _WORDS)
        trainer = trainers.WordLevelTrainer(min_frequency=self.min_count, **_trainer_options(reserved, self.vocab))
        return _train(core, trainer, lines, self.vocab)


@TOKENIZERS.add
@spec
class Pieces(TokenizerSpec):
    """Text that is already segmented: one token per run of non-spaces; `wor@@ ld` is one word when decoded."""

    min_count: Count = 1
    normalize: Normalize = Normalize(unicode="none")

    def learn(self, lines: Iterable[str], reserved: Sequence[str]) -> Core:
        spelled = "|".join(re.escape(token.removeprefix("<")) for token in reserved)
        cut = normalizers.Replace(Regex(rf"(?<![^ ])<(?=({spelled})(?![^ ]))"), "<@@ ")  # `</s>` in text: `<@@ /s>`
        core = _new_core(models.WordLevel(unk_token=UNK), [*self.normalize.steps(), cut])
        core.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
        # WordPiece puts a space before every token that does not begin with `prefix`, and none begins with a space.
        spaces = decoders.WordPiece(prefix=" ", cleanup=False)
        core.decoder = decoders.Sequence([spaces, decoders.Fuse(), decoders.Replace(Regex(r"@@( |\z)"), "")])
        return _train(
            core, trainers.WordLevelTrainer(min_frequency=self.min_count, **_trainer_options(reserved)), lines
        )

    def desegment(self, text: str) -> str:
        return re.sub(r"@@( |\Z)", "", text)


@TOKENIZERS.add
@spec
class Bytes(TokenizerSpec):
    """One token per byte of the UTF-8 text, in the order of bytes after the reserved tokens. Learns nothing."""

    normalize: Normalize = Normalize()

    def learn(self, lines: Iterable[str], reserved: Sequence[str]) -> Core:
        ids = {token: i for i, token in enumerate([*reserved, *byte_alphabet()])}
        core = _new_core(models.BPE(vocab=ids, merges=[]), self.normalize.steps())
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        core.decoder = decoders.ByteLevel()
        core.add_special_tokens([*reserved])
        return core


@TOKENIZERS.add
@spec
class Bpe(TokenizerSpec):
    """Characters, and the most frequent merges of adjacent tokens, up to `vocab` tokens."""

    vocab: VocabSize = 8000
    normalize: Normalize = Normalize()
    can_sample = True

    def learn(self, lines: Iterable[str], reserved: Sequence[str]) -> Core:
        core = _new_spaced_core(models.BPE(unk_token=UNK), self.normalize, _RUNS)
        trainer = trainers.BpeTrainer(min_frequency=_MIN_PAIR_COUNT, **_trainer_options(reserved, self.vocab))
        return _train(core, trainer, lines, self.vocab)


@TOKENIZERS.add(also=("gpt2", "bbpe"))
@spec
class ByteBpe(TokenizerSpec):
    """BPE on bytes instead of characters: no text is unknown."""

    vocab: VocabSize = 8000
    normalize: Normalize = Normalize()
    leading_space: bool = True
    """Put a space before every text, so that its first word is as any other; without, tokens are a text's bytes exactly."""
    can_sample = True

    def learn(self, lines: Iterable[str], reserved: Sequence[str]) -> Core:
        core = _new_spaced_core(models.BPE(), self.normalize, _RUNS)
        core.pre_tokenizer = _to_bytes(core.pre_tokenizer)
        core.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
        if not self.leading_space:
            core.normalizer, core.decoder = normalizers.Sequence(self.normalize.steps()), decoders.ByteLevel()
        asked = _trainer_options(reserved, self.vocab)
        trainer = trainers.BpeTrainer(min_frequency=_MIN_PAIR_COUNT, initial_alphabet=byte_alphabet(), **asked)
        return _train(core, trainer, lines, self.vocab)


@TOKENIZERS.add
@spec
class Unigram(TokenizerSpec):
    """The pieces that maximize the likelihood of the corpus under a unigram model, up to `vocab` tokens."""

    vocab: VocabSize = 8000
    normalize: Normalize = Normalize()
    can_sample = True

    def learn(self, lines: Iterable[str], reserved: Sequence[str]) -> Core:
        core = _new_spaced_core(models.Unigram(), self.normalize, _RUNS)
        trainer = trainers.UnigramTrainer(unk_token=UNK, **_trainer_options(reserved, self.vocab))
        return _make_deterministic(_train(core, trainer, lines, self.vocab), reserved)


@TOKENIZERS.add(also=("bert",))
@spec
class WordPiece(TokenizerSpec):
    """BERT's tokenizer: words and punctuation marks, split greedily into the longest pieces; `##` continues a word."""

    vocab: VocabSize = 8000
    normalize: Normalize = Normalize()
    kind = "wordpiece"

    def learn(self, lines: Iterable[str], reserved: Sequence[str]) -> Core:
        lines = list(check_lines(lines)) if isinstance(lines, Iterator) else lines
        model = models.WordPiece(unk_token=UNK, max_input_chars_per_word=_MAX_WORD)
        core = _new_spaced_core(model, self.normalize, _WORDS)
        # The library numbers ## letters in random order, and numbers break ties: we number them first.
        letters = {*_train(core, _wordpiece_trainer(reserved, len(reserved)), lines, self.vocab).get_vocab()} - {
            *reserved
        }
        core = _train(core, _wordpiece_trainer([*reserved, *sorted(letters)], self.vocab), lines)
        vocab = core.get_vocab()
        core = _new_spaced_core(
            models.WordPiece(vocab, unk_token=UNK, max_input_chars_per_word=_MAX_WORD), self.normalize, _WORDS
        )
        core.add_special_tokens([*reserved])
        # Punctuation marks are separate words, so only continuations begin with ##.
        parts = [decoders.Replace(Regex(rf"\A{_CONTINUATION}(?=.)"), ""), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        core.decoder = decoders.Sequence(parts)
        core.post_processor = Template.bert(BOS, EOS, {name: vocab[name] for name in (BOS, EOS)}).to_post_processor({})
        return core


def byte_alphabet() -> list[str]:
    """Return the letter for each byte in byte-level tokens, in the order of bytes (GPT-2's table)."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [b for b in range(0x100) if b not in plain]
    return [chr(b) if b in plain else chr(0x100 + others.index(b)) for b in range(0x100)]


def check_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines; raise an error for one that is not text or cannot be encoded as UTF-8."""
    if isinstance(lines, str):
        raise DataError(f"lines should be several texts, got the string {lines[:40]!r}; put it in a list")
    for n, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise DataError(f"line {n} should be text, got {line!r}")
        try:
            line.encode()
        except UnicodeEncodeError as error:
            half = ord(line[error.start])
            raise DataError(f"line {n} has half a character, U+{half:X}; read its file as UTF-8") from None
        yield line


def encodes_words_apart(core: Core) -> bool:
    """True if the tokens of a text are those of its words, which spaces separate.

    It is so if the normalizer joins white space and puts a space before the text: then no piece goes beyond a space.
    """
    parts = (core.normalizer, core.pre_tokenizer)
    return None not in parts and tuple(part.__getstate__() for part in parts) in _pipelines_of_words()


@cache
def _pipelines_of_words() -> frozenset[tuple[bytes, ...]]:
    """The normalizers and pre-tokenizers of such tokenizers, as the library writes them."""
    found = set()
    for form, lowercase, pieces in product(get_args(UnicodeForm), (False, True), (_RUNS, _WORDS)):
        core = _new_spaced_core(models.BPE(), Normalize(unicode=form, lowercase=lowercase), pieces)
        found.add((core.normalizer.__getstate__(), core.pre_tokenizer.__getstate__()))
        core.pre_tokenizer = _to_bytes(core.pre_tokenizer)
        found.add((core.normalizer.__getstate__(), core.pre_tokenizer.__getstate__()))
    return frozenset(found)


def _to_bytes(pieces: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    """Return the pieces as bytes."""
    return pre_tokenizers.Sequence([pieces, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _new_core(model: models.Model, steps: list[normalizers.Normalizer]) -> Core:
    core = Core(model)
    core.normalizer = normalizers.Sequence(steps)
    return core


def _new_spaced_core(model: models.Model, normalize: Normalize, pieces: Regex) -> Core:
    """Return a tokenizer in which a space belongs to the word after it, also before the first word."""
    core = _new_core(model, [*normalize.steps(), normalizers.Prepend(" ")])
    core.pre_tokenizer = pre_tokenizers.Split(pieces, "isolated")
    core.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return core


def _trainer_options(reserved: Sequence[str], vocab: int = 2**31) -> dict[str, Any]:
    return {"special_tokens": [*reserved], "vocab_size": vocab, "show_progress": False}


def _wordpiece_trainer(reserved: Sequence[str], vocab: int) -> trainers.Trainer:
    return trainers.WordPieceTrainer(
        min_frequency=_MIN_PAIR_COUNT, continuing_subword_prefix=_CONTINUATION, **_trainer_options(reserved, vocab)
    )


def _train(core: Core, trainer: trainers.Trainer, lines: Iterable[str], vocab: int | None = None) -> Core:
    """Train, and check that there was something to learn and that it fits into the vocabulary."""
    with translate_errors(SpecError, f"vocab={vocab} does not suit this corpus", quiet=False) as call:
        core.train_from_iterator(call.quiet_after(check_lines(lines)), trainer)
    size, reserved = core.get_vocab_size(), len(core.get_added_tokens_decoder())
    if vocab is not None and size > vocab:
        raise SpecError(f"vocab={vocab} is too small: {reserved} reserved tokens and {size - reserved} single characters "
                        f"(or bytes) need {size}")  # fmt: skip
    if size == reserved:
        raise DataError("found no tokens in this corpus; is it empty, vocab too small, or min_count too high?")
    return core


def _make_deterministic(core: Core, reserved: Sequence[str]) -> Core:
    """Return the same unigram model whatever the seed of the library's hash maps.

    The seed changes the order of words. That does not affect the pieces, but the last digits of their scores, and the scores
    of characters that training would drop: steps of 0.0001 up from the lowest.
    """
    state = json.loads(core.to_str())
    pieces = state["model"]["vocab"][len(reserved) :]
    floor = min(score for _, score in pieces)
    dealt = floor + 0.0001 * sum(len(piece) == 1 for piece, _ in pieces)
    scores = {p: round(floor if len(p) == 1 and s <= dealt else s, 3) for p, s in pieces}
    state["model"]["vocab"][len(reserved) :] = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return Core.from_str(json.dumps(state))
