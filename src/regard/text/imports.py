"""Tokenizers that other tools made: subword-nmt codes and SentencePiece models, with the same cuts as the tool itself.

What is read becomes a tokenizer of the `tokenizers` library, so nothing of the other tool is needed afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Core

from regard.errors import CheckpointError, DataError, SpecError
from regard.text.kinds import BOS, EOS, PAD, ROLES, UNK
from regard.text.tokenizer import TAG, Tokenizer, check_tags

_END = "</w>"  # subword-nmt marks the last piece of a word
_SPACE = "▁"  # SentencePiece marks the first
_UNIGRAM, _BPE = 1, 2
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6


def from_subword_nmt(codes: str | Path, lines: Iterable[str] = (), tags: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer of a subword-nmt merge file; it knows the characters of the merges and of `lines`.

    Text should come as subword-nmt wants it, words and punctuation apart; runs of spaces count as one.
    """
    merges = _merges(Path(codes))
    letters = {c for pair in merges for part in pair for c in part.removesuffix(_END)}
    letters.update(*lines)
    reserved = [*ROLES, *check_tags(tags)]
    pieces = [c + end for c in sorted(letters - {*" \r\n"}) for end in ("", _END)]
    pieces += ["".join(pair) for pair in merges]
    if twice := [piece for piece in pieces if piece in reserved]:
        raise DataError(f"{codes} builds the piece {twice[0]!r}, which is a special token; remove its merge")
    ids = {piece: i for i, piece in enumerate(dict.fromkeys([*reserved, *pieces]))}
    core = Core(models.BPE(vocab=ids, merges=merges, unk_token=UNK, end_of_word_suffix=_END))
    core.normalizer = normalizers.Sequence(_single_spaces(ends=r"[ \r\n]+"))
    core.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    core.decoder = decoders.BPEDecoder(suffix=_END)
    core.add_special_tokens(reserved)
    return Tokenizer(core)


def from_sentencepiece(path: str | Path, tags: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer of a SentencePiece model (unigram or BPE): the same ids; roles and `tags` it lacks come at the end.

    Control symbols become tags, and so do user-defined symbols that are spelled like one (`<2de>`).
    """
    model = _read_model(Path(path))
    kind, names = model.trainer_spec.model_type, _names(model, path)
    special = [
        name for name, piece in zip(names, model.pieces, strict=True) if piece.type in (_UNKNOWN, _CONTROL, _USER)
    ]
    added = [*(role for role in ROLES if role not in special), *check_tags(tags)]
    if twice := {*added}.intersection(names):
        raise DataError(f"{path} already has a token {min(twice)!r}; choose another name for the tag")
    scores = [piece.score if piece.type == _NORMAL else 0.0 for piece in model.pieces] + [0.0] * len(added)
    names, special = [*names, *added], [*special, *added]
    fallback = any(piece.type == _BYTE for piece in model.pieces)
    if kind == _UNIGRAM:
        core = Core(models.Unigram([*zip(names, scores, strict=True)], names.index(UNK), fallback))
        core.pre_tokenizer = _apart([*special, *(piece.piece for piece in model.pieces if piece.type == _BYTE)])
    else:
        ids = {name: i for i, name in enumerate(names)}
        merges = _merges_of([piece for piece in model.pieces if piece.type == _NORMAL])
        core = Core(models.BPE(vocab=ids, merges=merges, unk_token=UNK, fuse_unk=True, byte_fallback=fallback))
    prefix = model.normalizer_spec.add_dummy_prefix
    core.normalizer = normalizers.Sequence(_steps(model.normalizer_spec))
    core.decoder = decoders.Sequence(
        [
            decoders.Replace(_SPACE, " "),
            *([decoders.ByteFallback()] if fallback else []),
            decoders.Fuse(),
            *([decoders.Strip(" ", 1, 0)] if prefix else []),
        ]
    )
    core.add_special_tokens(special)
    return Tokenizer(core)


def _merges(path: Path) -> list[tuple[str, str]]:
    """The pairs of a merge file, the first to be joined first, each once."""
    try:
        head, *rows = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"cannot read the merge file {path}: {error}") from None
    if head.strip() != "#version: 0.2":
        raise CheckpointError(f"{path} should begin with '#version: 0.2', as subword-nmt writes it, got {head[:40]!r}")
    merges: dict[tuple[str, str], None] = {}
    for n, row in enumerate(rows, 2):
        parts = row.strip("\r\n ").split(" ")
        if len(parts) != 2:
            raise CheckpointError(f"{path} should have two pieces in a line, got {row[:40]!r} in line {n}")
        merges[parts[0], parts[1]] = None
    return list(merges)


def _read_model(path: Path) -> Any:
    """The model, read with SentencePiece's own description of its files."""
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise SpecError("reading SentencePiece models needs more: pip install 'regard[sentencepiece]'") from None
    model = sentencepiece_model_pb2.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except (OSError, DecodeError) as error:
        raise CheckpointError(f"cannot read the SentencePiece model {path}: {error}") from None
    if not model.pieces:
        raise CheckpointError(f"{path} is not a SentencePiece model: it has no pieces")
    return model


def _names(model: Any, path: str | Path) -> list[str]:
    """Every piece, with the roles spelled our way; refuses models that need more than the library can do."""
    asked, faults = model.trainer_spec, []
    if asked.model_type not in (_UNIGRAM, _BPE):
        faults.append("it is neither unigram nor BPE")
    if asked.treat_whitespace_as_suffix or not model.normalizer_spec.escape_whitespaces:
        faults.append("it does not mark spaces at the beginning of words")
    if unused := [piece.piece for piece in model.pieces if piece.type == _UNUSED]:
        faults.append(f"it has unused pieces such as {unused[0]!r}")
    if own := [piece.piece for piece in model.pieces if piece.type == _USER and not TAG.fullmatch(piece.piece)]:
        faults.append(f"it has user-defined symbols that are no tags, such as {own[0]!r}")
    if faults:
        raise DataError(f"cannot use the SentencePiece model {path}: {'; '.join(faults)}")
    roles = {asked.pad_piece: PAD, asked.bos_piece: BOS, asked.eos_piece: EOS, asked.unk_piece: UNK}
    return [piece.piece if piece.type == _NORMAL else roles.get(piece.piece, piece.piece) for piece in model.pieces]


def _steps(asked: Any) -> list[normalizers.Normalizer]:
    """SentencePiece's normaliser: its table of characters, then spaces, then ▁ for each."""
    steps: list[normalizers.Normalizer] = []
    if asked.precompiled_charsmap:
        steps.append(normalizers.Precompiled(asked.precompiled_charsmap))
    if asked.remove_extra_whitespaces:
        steps += _single_spaces(ends=" +")
    if asked.add_dummy_prefix:
        steps.append(normalizers.Prepend(_SPACE))
    return [*steps, normalizers.Replace(" ", _SPACE)]


def _single_spaces(ends: str) -> list[normalizers.Normalizer]:
    return [normalizers.Replace(Regex(rf"\A{ends}|{ends}\z"), ""), normalizers.Replace(Regex(" +"), " ")]


def _merges_of(pieces: Sequence[Any]) -> list[tuple[str, str]]:
    """Every way to join two pieces to a third, the best third first: that is what SentencePiece's BPE does."""
    known = {piece.piece for piece in pieces}
    ranked = sorted((piece for piece in pieces if len(piece.piece) > 1), key=lambda piece: -piece.score)
    halves = ((p.piece[:i], p.piece[i:]) for p in ranked for i in range(1, len(p.piece)))
    return [(left, right) for left, right in halves if left in known and right in known]


def _apart(names: Sequence[str]) -> pre_tokenizers.PreTokenizer:
    """Cut after the first letter of what spells a special token: a unigram model would take it for the token."""
    spelled = (f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in names)
    return pre_tokenizers.Split(Regex("|".join(spelled)), "merged_with_previous")
