"""Ways to read text with a plain list of tokens.

A `vocab.txt` says which tokens there are, not how text is split into them:

    wordpiece        lower case; words split into the longest pieces, `##` continues a word (BERT)
    wordpiece-cased  the same with upper case
    words            tokens are separated by spaces
    chars            each character is a token
    smiles           symbols of chemical formulas: atoms such as `Cl` and `[C@H]`, bonds, rings
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Core

from regard.errors import UnknownName

CONTINUATION = "##"
_MAX_WORD = 100  # characters; longer words are unknown, as in BERT
_SMILES = r"\[[^\[\]]*\]|Br|Cl|%\(\d+\)|%\d\d|>>|\S"
"""Atoms in brackets, chlorine and bromine, rings with two digits or more, arrows; each other character by itself."""
Vocabulary = Mapping[str, int]


def build_core(kind: str, vocab: Vocabulary, unknown: str, settings: Mapping[str, Any] | None = None) -> Core:
    """The library's tokenizer of this kind. `settings` are those of BERT's normalizer, where a folder has some."""
    if kind not in KINDS:
        raise UnknownName("kind of tokenizer", kind, KINDS)
    return KINDS[kind](vocab, unknown, settings or {})


def build_wordpiece(vocab: Vocabulary, unknown: str, settings: Mapping[str, Any], *, lowercase: bool = True) -> Core:
    """BERT's tokenizer."""
    core = Core(models.WordPiece(dict(vocab), unk_token=unknown, max_input_chars_per_word=_MAX_WORD))
    core.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", lowercase),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece(prefix=CONTINUATION)
    return core


def looks_cased(vocab: Vocabulary) -> bool:
    """True if a vocabulary has upper-case tokens, beside those in brackets such as [CLS]."""
    return any(token != token.lower() for token in vocab if not (token.startswith("[") and token.endswith("]")))


def has_continuations(vocab: Vocabulary) -> bool:
    """True if a vocabulary has pieces that continue a word, as WordPiece does."""
    return any(token.startswith(CONTINUATION) and token != CONTINUATION for token in vocab)


def _build_cased(vocab: Vocabulary, unknown: str, settings: Mapping[str, Any]) -> Core:
    return build_wordpiece(vocab, unknown, {**settings, "do_lower_case": False})


def _build_lowercase(vocab: Vocabulary, unknown: str, settings: Mapping[str, Any]) -> Core:
    return build_wordpiece(vocab, unknown, {**settings, "do_lower_case": True})


def _build_words(vocab: Vocabulary, unknown: str, settings: Mapping[str, Any]) -> Core:
    return _split_by(Regex(r"\S+"), vocab, unknown, decoders.WordPiece(prefix=" ", cleanup=False))


def _build_chars(vocab: Vocabulary, unknown: str, settings: Mapping[str, Any]) -> Core:
    core = Core(models.WordLevel(dict(vocab), unk_token=unknown))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    return core


def _build_smiles(vocab: Vocabulary, unknown: str, settings: Mapping[str, Any]) -> Core:
    return _split_by(Regex(_SMILES), vocab, unknown, decoders.Fuse())


def _split_by(pattern: Regex, vocab: Vocabulary, unknown: str, decoder: decoders.Decoder) -> Core:
    """Tokens are the matches of a pattern; what is between them is dropped."""
    core = Core(models.WordLevel(dict(vocab), unk_token=unknown))
    core.pre_tokenizer = pre_tokenizers.Split(pattern, "removed", invert=True)
    core.decoder = decoder
    return core


KINDS: dict[str, Callable[[Vocabulary, str, Mapping[str, Any]], Core]] = {
    "wordpiece": _build_lowercase,
    "wordpiece-cased": _build_cased,
    "words": _build_words,
    "chars": _build_chars,
    "smiles": _build_smiles,
}
