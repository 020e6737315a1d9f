"""Tokenizers that other tools made: subword-nmt codes and SentencePiece models, with the same cuts as the tool itself.

What is read becomes a tokenizer of the `tokenizers` library, so nothing of the other tool is needed afterwards.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Core

from regard.errors import CheckpointError, DataError, SpecError
from regard.spec import spec
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
    translate_errors,
)

_END = "</w>"  # subword-nmt marks the last piece of a word
_JOINT = "@@"  # and what it writes after all the others
_SPACE = "▁"  # SentencePiece marks the first
_UNIGRAM, _BPE = 1, 2  # these numbers, and the next, are those in SentencePiece's files
NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_SPECIAL = (_UNKNOWN, _CONTROL, _USER)
_MARKS = r"[\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed]"  # Hebrew and Arabic vowels and the like
_BETWEEN_MARKS = Regex(f"(?<={_MARKS})(?={_MARKS})")
_JOINER = "\u034f"  # invisible; NFC leaves marks with a joiner between them in their order


MAX_PIECES, MAX_LETTERS, MAX_PIECE_LENGTH = 2_000_000, 10_000_000, 1000
"""How many pieces a vocabulary may have, with how many letters in all and in one: each way to cut a piece is looked at."""


@TOKENIZERS.add
@spec
class SentencePiece(TokenizerSpec):
    """A SentencePiece model of your own: `tokenizer: {kind: sentencepiece, path: my.model}`."""

    path: str
    kind = "sentencepiece"
    can_sample = True

    def learn(self, lines: Iterable[str], reserved: Sequence[str]) -> Core:
        return from_sentencepiece(self.path, _drop_roles(reserved)).core


@TOKENIZERS.add
@spec
class SubwordNmt(TokenizerSpec):
    """subword-nmt codes of your own: `tokenizer: {kind: subword_nmt, codes: codes.txt}`."""

    codes: str
    undo: bool = False
    """The text was cut already (`wor@@ ld`): it is joined first, and then cut by these codes."""
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
    """The tokenizer of a subword-nmt merge file, which is silent about characters it never joins: `lines` show them.

    Text should come as subword-nmt wants it, words and punctuation apart; runs of spaces count as one.
    """
    merges = _read_merges(Path(codes))
    letters = {c for pair in merges for part in pair for c in part.removesuffix(_END)}
    for line in check_lines(lines):
        letters.update(line)
    reserved = [*ROLES, *check_tags(tags)]
    pieces = [c + end for c in sorted(letters - {*" \r\n"}) for end in ("", _END)]
    pieces += ["".join(pair) for pair in merges]
    if twice := [piece for piece in pieces if piece in reserved]:
        raise DataError(f"{codes} makes the piece {twice[0]!r}, which is a special token; remove its merge")
    ids = {piece: i for i, piece in enumerate(dict.fromkeys([*reserved, *pieces]))}
    with translate_errors(CheckpointError, f"{codes} is not a merge file"):
        core = Core(models.BPE(vocab=ids, merges=merges, unk_token=UNK, end_of_word_suffix=_END))
    joined = [normalizers.Replace(Regex(rf"{_JOINT}( |\z)"), "")] if undo else []
    core.normalizer = normalizers.Sequence([*_collapse_spaces(ends=r"[ \r\n]+"), *joined])
    core.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    core.decoder = decoders.BPEDecoder(suffix=_END)
    core.add_special_tokens(reserved)
    return Tokenizer(core)


def from_sentencepiece(path: str | Path, tags: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer of a SentencePiece model (unigram or BPE): the same ids; roles and `tags` it lacks come at the end.

    Control symbols become tags, and so do user-defined symbols that are spelled like one (`<2de>`). Only letters that
    carry several marks in an unusual order may be cut in another way than SentencePiece does.
    """
    model = read_sentencepiece(Path(path))
    has = {name for name, piece in zip(_read_names(model, path), model.pieces, strict=True) if piece.type in _SPECIAL}
    return Tokenizer(
        build_sentencepiece(model, path, [*(role for role in ROLES if role not in has), *check_tags(tags)])
    )


def build_sentencepiece(model: Any, path: str | Path, added: Sequence[str] = ()) -> Core:
    """The library's tokenizer of a SentencePiece model, its ids kept; `added` special tokens come after them."""
    names = _read_names(model, path)
    special = [name for name, piece in zip(names, model.pieces, strict=True) if piece.type in _SPECIAL]
    names, special = [*names, *added], [*special, *added]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(
            f"{path} has a piece {twice[0]!r}, and there can be only one; choose other tags, if it is a tag"
        )
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
    """The pairs of a merge file, the first to be joined first, each once."""
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        head, *rows = data.decode("utf-8").rstrip("\n").split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
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


def read_sentencepiece(path: Path) -> Any:
    """The model, read with SentencePiece's own description of its files."""
    try:
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise SpecError("reading SentencePiece models needs more: pip install 'regard[sentencepiece]'") from None
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise CheckpointError(f"{path} is not a SentencePiece model: none has over {MAX_FILE_BYTES} bytes")
        model.ParseFromString(data)
    except (OSError, DecodeError) as error:
        raise CheckpointError(f"cannot read the SentencePiece model {path}: {error}") from None
    if not model.pieces:
        raise CheckpointError(f"{path} is not a SentencePiece model: it has no pieces")
    check_vocabulary([piece.piece for piece in model.pieces], path)
    table = model.normalizer_spec.precompiled_charsmap
    if int.from_bytes(table[:4], "little") > len(table):  # the library would make room for what is promised
        raise CheckpointError(f"{path} is a damaged SentencePiece model: its table of characters is cut short")
    return model


def check_vocabulary(pieces: Collection[str], path: str | Path) -> None:
    """Refuse a vocabulary that is none, before anything goes through its pieces letter by letter."""
    if len(pieces) > MAX_PIECES:
        raise CheckpointError(
            f"{path} is refused: it has {len(pieces)} pieces, and no vocabulary has over {MAX_PIECES}"
        )
    lengths = [len(piece) for piece in pieces]
    if max(lengths, default=0) > MAX_PIECE_LENGTH or sum(lengths) > MAX_LETTERS:
        raise CheckpointError(
            f"{path} is refused: its pieces have up to {max(lengths)} letters and {sum(lengths)} in all; no vocabulary has "
            f"over {MAX_PIECE_LENGTH} and {MAX_LETTERS}"
        )


def write_sentencepiece(
    scores: Mapping[str, float], *, table: bytes, composes: bool, single_spaces: bool, begins: bool
) -> bytes:
    """A SentencePiece model (unigram) of these pieces, which `read_pieces` reads; `steps_of` says what the rest means."""
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise SpecError("writing SentencePiece models needs more: pip install 'regard[sentencepiece]'") from None
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
    return [piece.piece if piece.type == NORMAL else roles.get(piece.piece, piece.piece) for piece in model.pieces]


def normalizer_steps(asked: Any) -> list[normalizers.Normalizer]:
    """SentencePiece's normaliser: its table of characters, then spaces, then ▁ for each."""
    steps: list[normalizers.Normalizer] = []
    if asked.precompiled_charsmap:
        steps.append(normalizers.Precompiled(asked.precompiled_charsmap))
    if "nfkc" in asked.name:
        # The library's lookup composes too little, and NFC would put marks in another order than SentencePiece does.
        hold, free = normalizers.Replace(_BETWEEN_MARKS, _JOINER), normalizers.Replace(_JOINER, "")
        steps = [hold, normalizers.NFC(), *steps, normalizers.NFC(), free]
    if asked.remove_extra_whitespaces:
        steps += _collapse_spaces(ends=" +")
    if asked.add_dummy_prefix:
        steps.append(normalizers.Prepend(_SPACE))
    return [*steps, normalizers.Replace(" ", _SPACE)]


def _collapse_spaces(ends: str) -> list[normalizers.Normalizer]:
    return [normalizers.Replace(Regex(rf"\A{ends}|{ends}\z"), ""), normalizers.Replace(Regex(" +"), " ")]


def _build_unigram(model: Any, names: list[str]) -> models.Model:
    scores = [piece.score if piece.type == NORMAL else 0.0 for piece in model.pieces]
    scores += [0.0] * (len(names) - len(scores))
    fallback = any(piece.type == _BYTE for piece in model.pieces)
    return models.Unigram([*zip(names, scores, strict=True)], names.index(UNK), fallback)


def _build_bpe(model: Any, names: list[str]) -> models.Model:
    """The merges are all the ways to join two pieces to a third, the best third first: so does SentencePiece."""
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
    """Cut after the first letter of what spells a special token: a unigram model would take it for the token."""
    spelled = (f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in names)
    return pre_tokenizers.Split(Regex("|".join(spelled)), "merged_with_previous")
