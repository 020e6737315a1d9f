"""Marian's pairs of SentencePiece tokenizers.

A SentencePiece model for each side, and one vocabulary for both with ids of its own. Each side splits text into its own pieces,
and looks up unknown characters among those of the other side. Longer pieces of the other side keep their ids under a mark that
no text contains and that decoding removes, so that any output can be decoded. (Marian makes one unknown token of a sequence
of unknown characters; here each is looked up.)
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Core
from tokenizers import decoders, models, normalizers

from regard.errors import DataError, SpecError
from regard.text.importers import NORMAL, normalizer_steps, write_sentencepiece
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_specs import EOS, PAD, UNK

_OTHER = "\x00"  # never in a text: the normalizer removes it
_SPACE = "▁"
UNKNOWN = 10
"""Score of a character that only the other side has, below the worst piece; SentencePiece scores unknowns like this."""


def marian_core(model: Any, ids: Mapping[str, int], path: Path) -> Core:
    """Build the tokenizer of one side; `ids` is the vocabulary of both."""
    if model.trainer_spec.model_type != 1 or sorted(ids.values()) != list(range(len(ids))):
        raise DataError("Marian's SentencePiece models should be unigram, and vocab.json should number tokens from 0")
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type == NORMAL}
    if lost := [piece for piece in scores if piece not in ids]:
        raise DataError(f"{len(lost)} pieces of the SentencePiece model, such as {lost[0]!r}, are not in vocab.json")
    if missing := [name for name in (EOS, UNK, PAD) if name not in ids]:
        raise DataError(f"vocab.json lacks {', '.join(missing)}")
    reserved = {EOS, UNK, PAD, *(name for name in ids if name.startswith(">>") and name.endswith("<<"))}
    names = sorted(ids, key=lambda name: ids[name])
    last = min(scores.values()) - UNKNOWN
    mine = {**dict.fromkeys((name for name in names if len(name) == 1), last), **dict.fromkeys(reserved, 0.0), **scores}
    pieces = [(name, mine[name]) if name in mine else (_OTHER + name, 0.0) for name in names]
    core = Core(models.Unigram(pieces, ids[UNK]))
    core.normalizer = normalizers.Sequence([normalizers.Replace(_OTHER, ""), *normalizer_steps(model.normalizer_spec)])
    core.decoder = decoders.Sequence(
        [decoders.Replace(_OTHER, ""), decoders.Replace(_SPACE, " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    core.add_special_tokens(sorted(reserved, key=lambda name: ids[name]))
    return core


def marian_files(
    source: Tokenizer, target: Tokenizer, settings: Mapping[str, object] | None = None
) -> dict[str, bytes]:
    """The files that `marian_core` and `transformers` read: a common vocab.json, and a SentencePiece model per side.

    `settings` are further entries of the configuration.
    """
    sides = {"source": json.loads(source.core.to_str()), "target": json.loads(target.core.to_str())}
    names = [[name.removeprefix(_OTHER) for name, _ in _pieces(state)] for state in sides.values()]
    if not names[0] or names[0] != names[1]:
        raise SpecError(
            "this model has a tokenizer for each side, and a Hugging Face folder can have that only as Marian's do: two "
            "SentencePiece models (unigram) with one vocabulary"
        )
    spelled = target.core.id_to_token
    roles = {"eos_token": spelled(target.eos), "unk_token": spelled(target.unk), "pad_token": spelled(target.pad)}
    config = {**(settings or {}), "tokenizer_class": "MarianTokenizer", "separate_vocabs": False, **roles}
    vocabulary = {name: i for i, name in enumerate(names[0])}
    texts = {"vocab.json": vocabulary, "tokenizer_config.json": config}
    files = {name: json.dumps(value, indent=1).encode() for name, value in texts.items()}
    return files | {f"{side}.spm": _model(state) for side, state in sides.items()}


def _pieces(state: Mapping[str, Any]) -> list[tuple[str, float]]:
    return state["model"]["vocab"] if state["model"]["type"] == "Unigram" else []


def _model(state: Mapping[str, Any]) -> bytes:
    """The pieces of one side as a SentencePiece model, with its normalizer."""
    special = {token["content"] for token in state["added_tokens"]}
    own = {name: score for name, score in _pieces(state) if name not in special and not name.startswith(_OTHER)}
    lent = min(own.values())  # characters of the other side, if any
    if min((score for score in own.values() if score != lent), default=lent) == lent + UNKNOWN:
        own = {name: score for name, score in own.items() if score != lent}
    steps = state["normalizer"]["normalizers"]
    tables = [base64.b64decode(step["precompiled_charsmap"]) for step in steps if step["type"] == "Precompiled"]
    return write_sentencepiece(
        own,
        table=b"".join(tables),
        composes=any(step["type"] == "NFC" for step in steps),
        single_spaces=any(step.get("pattern") == {"Regex": " +"} for step in steps),
        begins=any(step["type"] == "Prepend" for step in steps),
    )
