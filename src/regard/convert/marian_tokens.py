"""Marian's tokenizers: a SentencePiece model for each side, and one vocabulary for both with numbers of its own.

Each side cuts text with its own pieces, and a letter unknown to it is looked up among the other side's. The longer pieces
of the other side keep their numbers under a mark that no text can have, which decoding takes off: what a model writes can be
read whichever side it is from. (A row of unknown letters is one unknown token to Marian; here each is looked up by itself.)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Core
from tokenizers import decoders, models, normalizers

from regard.errors import DataError
from regard.text.imports import NORMAL, steps_of
from regard.text.kinds import EOS, PAD, UNK

_OTHER = "\x00"  # never in a text: the normaliser takes it out
_SPACE = "▁"


def marian_core(model: Any, ids: Mapping[str, int], path: Path) -> Core:
    """The library's tokenizer of one side; `ids` is the vocabulary of both."""
    if model.trainer_spec.model_type != 1 or sorted(ids.values()) != list(range(len(ids))):
        raise DataError("Marian's SentencePiece models should be unigram, and vocab.json should number tokens from 0")
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type == NORMAL}
    if lost := [piece for piece in scores if piece not in ids]:
        raise DataError(f"{len(lost)} pieces of the SentencePiece model, such as {lost[0]!r}, are not in vocab.json")
    if missing := [name for name in (EOS, UNK, PAD) if name not in ids]:
        raise DataError(f"vocab.json lacks {', '.join(missing)}")
    reserved = {EOS, UNK, PAD, *(name for name in ids if name.startswith(">>") and name.endswith("<<"))}
    names = sorted(ids, key=lambda name: ids[name])
    last = min(scores.values()) - 10  # as much worse than any piece as SentencePiece holds the unknown to be
    mine = {**dict.fromkeys((name for name in names if len(name) == 1), last), **dict.fromkeys(reserved, 0.0), **scores}
    pieces = [(name, mine[name]) if name in mine else (_OTHER + name, 0.0) for name in names]
    core = Core(models.Unigram(pieces, ids[UNK]))
    core.normalizer = normalizers.Sequence([normalizers.Replace(_OTHER, ""), *steps_of(model.normalizer_spec)])
    core.decoder = decoders.Sequence(
        [decoders.Replace(_OTHER, ""), decoders.Replace(_SPACE, " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    core.add_special_tokens(sorted(reserved, key=lambda name: ids[name]))
    return core
