"""Tokenizers of GGUF files.

Byte-level BPE with the file's pre-tokenizer, or Llama's SentencePiece model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Core

from regard.conversion.gguf_file import GgufFile
from regard.conversion.hf_tokenizer import with_names
from regard.errors import CheckpointError, DataError
from regard.text.importers import build_sentencepiece, check_vocabulary
from regard.text.native_calls import translate_errors
from regard.text.template import Template
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_specs import BOS, EOS, PAD, UNK

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_RUNS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CUTS = {"gpt-2": [_GPT2], "smollm": [r"\p{N}", _GPT2], "llama-bpe": [_RUNS % "{1,3}"], "qwen2": [_RUNS % ""]}
"""Pre-tokenizers by their names in files; each pattern splits what the one before left."""

_IDS = {PAD: "padding_token_id", BOS: "bos_token_id", EOS: "eos_token_id", UNK: "unknown_token_id"}
_NORMAL, _UNKNOWN, _CONTROL, _USER = 1, 2, 3, 4  # kinds of tokens, the same numbers as SentencePiece's


def tokenizer(file: GgufFile) -> Tokenizer:
    """Build the tokenizer of a file, with the same ids."""
    said = {k.removeprefix("tokenizer.ggml."): v for k, v in file.said.items() if k.startswith("tokenizer.ggml.")}
    kind, tokens = said.get("model"), _texts(said.get("tokens"))
    types, rows = (
        _numbers(said.get("token_type")) or [_NORMAL] * len(tokens),
        file.tensors["token_embd.weight"].shape[0],
    )
    if not len(types) == len(tokens) == len({*tokens}) <= rows or not tokens:  # a table may be padded
        raise CheckpointError(
            f"{file.path} is damaged: it should have {rows} tokens, at most as many as its table has rows, no two alike, each "
            f"with its kind; got {len(tokens)}"
        )
    check_vocabulary(tokens, file.path)
    makers = {"gpt2": _byte_bpe, "llama": _pieces}
    if not isinstance(kind, str) or kind not in makers:
        raise DataError(f"{file.path} has a tokenizer of kind {kind!r}; only {' and '.join(makers)} are supported")
    with translate_errors(CheckpointError, f"{file.path} has a damaged tokenizer"):
        core = makers[kind](said, tokens, types, file.path)
    ids = {role: _id(said, key, len(tokens), file.path) for role, key in _IDS.items()}
    end = ids[BOS] if ids[EOS] is None else ids[EOS]
    if end is None:
        raise DataError(f"{file.path} does not say which token ends a text (tokenizer.ggml.eos_token_id)")
    names = {role: tokens[end if i is None else i] for role, i in ids.items()}
    first = [names[BOS]] if said.get("add_bos_token", kind == "llama" or said.get("pre") == "llama-bpe") else []
    last = [names[EOS]] if said.get("add_eos_token") else []
    known = {token: tokens.index(token) for token in (names[BOS], names[EOS])}
    return with_names(core, Template.of(first, last, known, between=first), names, file.path)


def _id(said: Mapping[str, Any], key: str, size: int, path: Path) -> int | None:
    i = said.get(key)
    if i is not None and not (isinstance(i, int) and 0 <= i < size):
        raise CheckpointError(f"{path} is damaged: tokenizer.ggml.{key} should be 0 to {size - 1}, got {i!r}")
    return i


def _texts(value: object) -> list[str]:
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else []


def _numbers(value: object) -> list[Any]:
    return value if isinstance(value, list) and all(isinstance(item, int | float) for item in value) else []


def _byte_bpe(said: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int], path: Path) -> Core:
    """GPT-2's kind: byte-level BPE with the file's pre-tokenizer."""
    merges, cut = _texts(said.get("merges")), said.get("pre", "gpt-2")
    if not merges:
        raise CheckpointError(f"{path} is damaged: a tokenizer of kind 'gpt2' should have merges")
    if not isinstance(cut, str) or cut not in _CUTS:
        raise DataError(f"{path} splits words as {cut!r} does; only {', '.join(_CUTS)} are supported")
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    vocab = {token: i for i, token in enumerate(tokens)}
    core = Core(models.BPE(vocab=vocab, merges=pairs, ignore_merges=cut == "llama-bpe"))
    if cut == "qwen2":
        core.normalizer = normalizers.NFC()
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in _CUTS[cut]]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=bool(said.get("add_space_prefix")), use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([*cuts, to_bytes])
    core.decoder = decoders.ByteLevel()
    kinds = [*zip(tokens, types, strict=True)]
    special = [token for token, kind in kinds if kind in (_UNKNOWN, _CONTROL)]
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    core.add_tokens([AddedToken(token, normalized=False) for token, kind in kinds if kind == _USER])
    return core


def _pieces(said: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int], path: Path) -> Core:
    """Llama's kind: a SentencePiece BPE model; merges follow from the scores of pieces."""
    scores = _numbers(said.get("scores"))
    if len(scores) != len(tokens):
        raise CheckpointError(f"{path} is damaged: a tokenizer of kind 'llama' should have a score for each token")
    pieces = [
        SimpleNamespace(piece=token, score=score, type=kind)
        for token, score, kind in zip(tokens, scores, types, strict=True)
    ]
    roles = dict.fromkeys(("pad_piece", "bos_piece", "eos_piece", "unk_piece"), "")
    trainer = SimpleNamespace(model_type=2, treat_whitespace_as_suffix=False, **roles)
    normal = SimpleNamespace(
        precompiled_charsmap=b"", name="identity", escape_whitespaces=True,
        add_dummy_prefix=said.get("add_space_prefix", True),
        remove_extra_whitespaces=said.get("remove_extra_whitespaces", False),
    )  # fmt: skip
    return build_sentencepiece(SimpleNamespace(pieces=pieces, trainer_spec=trainer, normalizer_spec=normal), path)
