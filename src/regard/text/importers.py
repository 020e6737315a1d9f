"""Import subword-nmt codes and SentencePiece models.

The result is a tokenizer of the `tokenizers` library that segments text like the original tool, which is not needed afterwards.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Core

from regard.errors import CheckpointError, DataError, SpecError, name_extra
from regard.files.user_file import read_user_file
from regard.spec import spec
from regard.text.native_calls import translate_errors
from regard.text.sandbox import MAX_FILE_BYTES
from regard.text.tokenizer import TAG, Tokenizer, check_tags
from regard.text.tokenizer_specs import (
    BOS,
    EOS,
    PAD,
    ROLES,
    TOKENIZERS,
    UNK,
    TokenizerSpec,
    check_lines,
)

_END = "</w>"  # marks the last piece of a word in subword-nmt's merges
_JOINT = "@@"  # subword-nmt writes this after all other pieces
_SPACE = "▁"  # marks the first piece of a word in SentencePiece
_UNIGRAM, _BPE = 1, 2  # these numbers and the next are those of SentencePiece's format
NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_SPECIAL = (_UNKNOWN, _CONTROL, _USER)
_MARKS = r"[\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed]"  # Hebrew and Arabic vowels and similar marks
_BETWEEN_MARKS = Regex(f"(?<={_MARKS})(?={_MARKS})")
_JOINER = "\u034f"  # invisible; NFC does not reorder marks with a joiner between them


MAX_PIECES, MAX_LETTERS, MAX_PIECE_LENGTH = 2_000_000, 10_000_000, 1000
"""Limits of a vocabulary: pieces, characters in all pieces, characters in a piece. Every split of a piece is examined."""


@TOKENIZERS.add
@spec
class SentencePiece(TokenizerSpec):
    """An existing SentencePiece model: `tokenizer: {kind: sentencepiece, path: my.model}`."""

    path: str
    kind = "sentencepiece"
    can_sample = True

    def learn(self, lines: Iterable[str], reserved: Sequence[str]) -> Core:
        return from_sentencepiece(self.path, _drop_roles(reserved)).core


@TOKENIZERS.add
@spec
class SubwordNmt(TokenizerSpec):
    """Existing subword-nmt codes: `tokenizer: {kind: subword_nmt, codes: codes.txt}`."""

    codes: str
    undo: bool = False
    """Text is already segmented (`wor@@ ld`): it is joined first, then segmented with these codes."""
    can_sample = True

    def learn(self, lines: Iterable[str], reserved: Sequence[str]) -> Core:
        return from_subword_nmt(self.codes, lines, _drop_roles(reserved), undo=self.undo).core

    def desegment(self, text: str) -> str:
        return re.sub(rf"{_JOINT}( |\Z)", "", text) if self.undo else text


def _drop_roles(reserved: Sequence[str]) -> list[str]:
    return [name for name in reserved if name not in ROLES]


def from_subword_nmt(
    codes: str | Path, lines: Iterable[str], tags: Sequence[str] = (), *, undo: bool = False
) -> Tokenizer:
    """Build the tokenizer of a subword-nmt merge file; `lines` supply the characters that no merge contains.

    Text should be tokenized as for subword-nmt, with spaces between words and punctuation; runs of spaces count as one.
    """
    merges = _read_merges(Path(codes))
    letters = {c for pair in merges for part in pair for c in part.removesuffix(_END)}
    for line in check_lines(lines):
        letters.update(line)
    reserved = [*ROLES, *check_tags(tags)]
    pieces = [c + end for c in sorted(letters - {*" \r\n"}) for end in ("", _END)]
    pieces += ["".join(pair) for pair in merges]
    if twice := [piece for piece in pieces if piece in reserved]:
        raise DataError(f"{codes} creates the piece {twice[0]!r}, which is a special token; remove its merge")
    ids = {piece: i for i, piece in enumerate(dict.fromkeys([*reserved, *pieces]))}
    with translate_errors(CheckpointError, f"{codes} is not a merge file"):
        core = Core(models.BPE(vocab=ids, merges=merges, unk_token=UNK, end_of_word_suffix=_END))
    joined = [normalizers.Replace(Regex(rf"{_JOINT}( |\z)"), "")] if undo else []
    core.normalizer = normalizers.Sequence([*_collapse_spaces(ends=r" \r\n"), *joined])
    core.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    core.decoder = decoders.BPEDecoder(suffix=_END)
    core.add_special_tokens(reserved)
    return Tokenizer(core)


def from_sentencepiece(path: str | Path, tags: Sequence[str] = ()) -> Tokenizer:
    """Build the tokenizer of a SentencePiece model (unigram or BPE) with the same ids; missing roles and `tags` are appended.

    Control symbols become tags, and so do user-defined symbols spelled like tags (`<2de>`). Segmentation may differ from
    SentencePiece only for letters with several combining marks in an unusual order.
    """
    model = read_sentencepiece(Path(path))
    has = {name for name, piece in zip(_read_names(model, path), model.pieces, strict=True) if piece.type in _SPECIAL}
    return Tokenizer(
        build_sentencepiece(model, path, [*(role for role in ROLES if role not in has), *check_tags(tags)])
    )


def build_sentencepiece(model: Any, path: str | Path, added: Sequence[str] = ()) -> Core:
    """Build the library's tokenizer of a SentencePiece model with the same ids; `added` special tokens are appended."""
    names = _read_names(model, path)
    special = [name for name, piece in zip(names, model.pieces, strict=True) if piece.type in _SPECIAL]
    names, special = [*names, *added], [*special, *added]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{path} has the piece {twice[0]!r} twice; if it is a tag, choose other tags")
    with translate_errors(CheckpointError, f"{path} is a damaged SentencePiece model"):
        core = Core(
            _build_unigram(model, names) if model.trainer_spec.model_type == _UNIGRAM else _build_bpe(model, names)
        )
        core.normalizer = normalizers.Sequence(normalizer_steps(model.normalizer_spec))
    if model.trainer_spec.model_type == _UNIGRAM:
        core.pre_tokenizer = _split_special([*special, *(piece.piece for piece in model.pieces if piece.type == _BYTE)])
    parts: list[decoders.Decoder] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if model.normalizer_spec.add_dummy_prefix:
        parts.append(decoders.Strip(" ", 1, 0))
    core.decoder = decoders.Sequence(parts)
    core.add_special_tokens(special)
    return core


def _read_merges(path: Path) -> list[tuple[str, str]]:
    """Read the pairs of a merge file in order of priority, each once."""
    data = read_user_file(path, MAX_FILE_BYTES, CheckpointError, what="the merge file", unpack=("gzip",))
    try:
        head, *rows = data.decode("utf-8").rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"cannot read the merge file {path}: {error}") from None
    if head.strip() != "#version: 0.2":
        raise CheckpointError(f"{path} should begin with '#version: 0.2', as subword-nmt writes it, got {head[:40]!r}")
    merges: dict[tuple[str, str], None] = {}
    for n, row in enumerate(rows, 2):
        parts = row.strip("\r\n ").split(" ")
        if len(parts) != 2:
            raise CheckpointError(f"{path} should have two pieces per line, got {row[:40]!r} in line {n}")
        merges[parts[0], parts[1]] = None
    return list(merges)


def read_sentencepiece(path: Path) -> Any:
    """Read a model with SentencePiece's own protobuf definition."""
    try:
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise SpecError(f"reading SentencePiece models needs an extra: {name_extra('sentencepiece')}") from None
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    data = read_user_file(path, MAX_FILE_BYTES, CheckpointError, what="the SentencePiece model")
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise CheckpointError(f"cannot read the SentencePiece model {path}: {error}") from None
    if not model.pieces:
        raise CheckpointError(f"{path} is not a SentencePiece model: it has no pieces")
    asked = model.trainer_spec
    roles = (asked.pad_piece, asked.bos_piece, asked.eos_piece, asked.unk_piece, model.normalizer_spec.name)
    if not all(isinstance(text, str) for text in (*roles, *(piece.piece for piece in model.pieces))):
        raise CheckpointError(f"{path} is a damaged SentencePiece model: it has a piece that is not UTF-8")
    check_vocabulary([piece.piece for piece in model.pieces], path)
    table = model.normalizer_spec.precompiled_charsmap
    if int.from_bytes(table[:4], "little") > len(table):  # the library would allocate the promised size
        raise CheckpointError(f"{path} is a damaged SentencePiece model: its character map is truncated")
    return model


def check_vocabulary(pieces: Collection[str], path: str | Path) -> None:
    """Reject a vocabulary of unreasonable size before its pieces are processed character by character."""
    if len(pieces) > MAX_PIECES:
        raise CheckpointError(f"{path} is rejected: it has {len(pieces)} pieces; the limit is {MAX_PIECES}")
    lengths = [len(piece) for piece in pieces]
    if max(lengths, default=0) > MAX_PIECE_LENGTH or sum(lengths) > MAX_LETTERS:
        raise CheckpointError(
            f"{path} is rejected: its pieces have up to {max(lengths)} characters and {sum(lengths)} in total; the limits "
            f"are {MAX_PIECE_LENGTH} and {MAX_LETTERS}"
        )


def write_sentencepiece(
    scores: Mapping[str, float], *, table: bytes, composes: bool, single_spaces: bool, begins: bool
) -> bytes:
    """Return the bytes of a SentencePiece unigram model of these pieces; see `normalizer_steps` for the other arguments."""
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise SpecError(f"writing SentencePiece models needs an extra: {name_extra('sentencepiece')}") from None
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    for name, kind in (("<unk>", _UNKNOWN), ("<s>", _CONTROL), ("</s>", _CONTROL)):
        model.pieces.add(piece=name, score=0.0, type=kind)
    for name, score in scores.items():
        model.pieces.add(piece=name, score=score, type=NORMAL)
    model.trainer_spec.model_type, model.trainer_spec.vocab_size = _UNIGRAM, len(model.pieces)
    normal = model.normalizer_spec
    normal.name, normal.precompiled_charsmap = "nmt_nfkc" if composes else "identity", table
    normal.remove_extra_whitespaces, normal.add_dummy_prefix, normal.escape_whitespaces = single_spaces, begins, True
    return bytes(model.SerializeToString())


def _read_names(model: Any, path: str | Path) -> list[str]:
    """Return all pieces, with our names for the roles; reject models with features that the library lacks."""
    asked, faults = model.trainer_spec, []
    if asked.model_type not in (_UNIGRAM, _BPE):
        faults.append("it is neither unigram nor BPE")
    if asked.treat_whitespace_as_suffix or not model.normalizer_spec.escape_whitespaces:
        faults.append("it does not mark spaces at the beginning of words")
    if unused := [piece.piece for piece in model.pieces if piece.type == _UNUSED]:
        faults.append(f"it has unused pieces such as {unused[0]!r}")
    if own := [piece.piece for piece in model.pieces if piece.type == _USER and not TAG.fullmatch(piece.piece)]:
        faults.append(f"it has user-defined symbols that are not tags, such as {own[0]!r}")
    if faults:
        raise DataError(f"cannot use the SentencePiece model {path}: {'; '.join(faults)}")
    roles = {asked.pad_piece: PAD, asked.bos_piece: BOS, asked.eos_piece: EOS, asked.unk_piece: UNK}
    return [piece.piece if piece.type == NORMAL else roles.get(piece.piece, piece.piece) for piece in model.pieces]


def normalizer_steps(asked: Any) -> list[normalizers.Normalizer]:
    """Return SentencePiece's normalization: its character map, then spaces, then ▁ for each space."""
    steps: list[normalizers.Normalizer] = []
    if asked.precompiled_charsmap:
        steps.append(normalizers.Precompiled(asked.precompiled_charsmap))
    if "nfkc" in asked.name:
        # The library's lookup composes too little, and NFC would order marks differently from SentencePiece.
        hold, free = normalizers.Replace(_BETWEEN_MARKS, _JOINER), normalizers.Replace(_JOINER, "")
        steps = [hold, normalizers.NFC(), *steps, normalizers.NFC(), free]
    if asked.remove_extra_whitespaces:
        steps += _collapse_spaces(ends=" ")
    if asked.add_dummy_prefix:
        steps.append(normalizers.Prepend(_SPACE))
    return [*steps, normalizers.Replace(" ", _SPACE)]


def _collapse_spaces(ends: str) -> list[normalizers.Normalizer]:
    """Remove these letters at both ends, then all but one of successive spaces."""
    strip = Regex(rf"\A[{ends}]+|(?<![{ends}])[{ends}]+\z")  # without the look back, a run inside takes n² steps
    return [normalizers.Replace(strip, ""), normalizers.Replace(Regex(" +"), " ")]


def _build_unigram(model: Any, names: list[str]) -> models.Model:
    scores = [piece.score if piece.type == NORMAL else 0.0 for piece in model.pieces]
    scores += [0.0] * (len(names) - len(scores))
    fallback = any(piece.type == _BYTE for piece in model.pieces)
    return models.Unigram([*zip(names, scores, strict=True)], names.index(UNK), fallback)


def _build_bpe(model: Any, names: list[str]) -> models.Model:
    """Like SentencePiece, merge any two pieces whose concatenation is a piece, the best piece first."""
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type == NORMAL}
    halves = ((p[:i], p[i:]) for p in sorted(scores, key=lambda p: -scores[p]) for i in range(1, len(p)))
    return models.BPE(
        vocab={name: i for i, name in enumerate(names)},
        merges=[(left, right) for left, right in halves if left in scores and right in scores],
        unk_token=UNK,
        fuse_unk=True,
        byte_fallback=any(piece.type == _BYTE for piece in model.pieces),
    )


def _split_special(names: Sequence[str]) -> pre_tokenizers.PreTokenizer:
    """Split text that spells a special token after its first character, or a unigram model would produce the token."""
    spelled = (f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in names)
    return pre_tokenizers.Split(Regex("|".join(spelled)), "merged_with_previous")
