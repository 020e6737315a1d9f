"""Tokenizers from and to Hugging Face folders.

Ids, special tokens and the tokens around a text stay the same. Input, whichever a folder has:
`tokenizer.json`; `vocab.txt` (WordPiece); `vocab.json` with `merges.txt` (byte-level BPE);
a SentencePiece model; Marian's two SentencePiece models with their common `vocab.json`. Output:
`tokenizer.json`, which `AutoTokenizer` reads. One difference: text that spells a special token stays text here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Core

from regard.conversion.marian_tokenizer import marian_core
from regard.conversion.vocabulary_kinds import build_core, build_wordpiece, looks_cased
from regard.errors import CheckpointError, DataError, RegardError
from regard.files.folder import file_in, parse_json, read_file
from regard.files.storage import explain_errors
from regard.text.importers import build_sentencepiece, check_vocabulary, read_sentencepiece
from regard.text.native_calls import translate_errors
from regard.text.sandbox import MAX_FILE_BYTES, check_tokenizer_file
from regard.text.template import Template
from regard.text.tokenizer import Tokenizer, has_gaps
from regard.text.tokenizer_specs import BOS, EOS, PAD, UNK

MASK = "<mask>"
"""Our name for the mask token."""

_FILE, _CONFIG, _VOCABULARY = "tokenizer.json", "tokenizer_config.json", "vocab.txt"
_PIECES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
_BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_ROBERTA = {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}
_GPT2 = dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>")
_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")  # in the order in which `transformers` adds what is missing
_EXTRA = 10_000  # tokens for spans; T5 has a hundred
_RUNS = 1000  # of special and ordinary added tokens: the library searches all of them again for each run
Side = Literal["source", "target"]


def from_hf(folder: Path, side: Side = "target", *, kind: str | None = None) -> Tokenizer | None:
    """Read the tokenizer of a folder; None if it has none. Marian has one per `side`.

    `kind` is how text is split into the tokens that `vocab.txt` lists, for a folder that does not say (see `KINDS`).
    """
    with _name_folder(folder):
        said = _Config(folder)
        core = _core(folder, said, side) if kind is None else _build_kind(folder, said, kind)
        if core is None:
            return None
        _add(core, said)
        return with_names(core, _template(core, said), _roles(core, said), folder)


def with_names(core: Core, template: Template, names: Mapping[str, str], path: Path) -> Tokenizer:
    """Wrap a tokenizer of the library; `names` maps our names for special tokens to its own."""
    core.add_special_tokens([AddedToken(token, special=True) for token in names.values()])
    special = {token.content: i for i, token in core.get_added_tokens_decoder().items() if token.special}
    others = {ours: (token, special[token]) for ours, token in names.items() if special.get(ours) != special[token]}
    core.post_processor = template.to_post_processor(others)
    if has_gaps(core):
        raise CheckpointError(f"{path} is not a usable tokenizer: its ids have gaps")
    return Tokenizer.from_bytes(core.to_str().encode(), path)


def to_hf(
    tokenizer: Tokenizer,
    folder: Path,
    template: Template | None = None,
    settings: Mapping[str, object] | None = None,
    *,
    segments: bool = True,
) -> None:
    """Write `tokenizer.json` and its configuration, for `transformers.AutoTokenizer` to read.

    template  the special tokens that the task puts around a text; by default those of the tokenizer itself
    settings  further entries of the configuration
    segments  whether the model tells two texts apart by their segments
    """
    core, template = Core.from_str(tokenizer.core.to_str()), template or tokenizer.template
    core.post_processor = None if template is None else template.to_post_processor({})
    spelled = core.id_to_token
    opening, closing = ([], []) if template is None else (template.opening, template.closing)
    names = {
        "pad_token": spelled(tokenizer.pad),
        "eos_token": spelled(tokenizer.eos),
        "unk_token": spelled(tokenizer.unk),
    }
    if opening or tokenizer.bos != tokenizer.pad:  # T5 starts decoding with its padding token, and has no start token
        names["bos_token"] = spelled(opening[0] if opening else tokenizer.bos)
    if opening and closing:
        names |= {"cls_token": spelled(opening[0]), "sep_token": spelled(closing[-1])}
    if MASK in tokenizer.tags:
        names["mask_token"] = spelled(tokenizer.tag(MASK))
    inputs = ["input_ids", "attention_mask"]
    if segments and opening and closing and template is not None and template.segments:
        inputs.insert(1, "token_type_ids")
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    config = {"model_input_names": inputs, **kind, **(settings or {}), **names}
    with explain_errors(f"write {_FILE}", folder):
        (folder / _FILE).write_text(core.to_str(pretty=True), encoding="utf-8")
        (folder / _CONFIG).write_text(json.dumps(config, indent=2), encoding="utf-8")


class _Config:
    """The configuration files of a folder's tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.whole = (folder / _FILE).exists()
        self.config = _json(folder / "special_tokens_map.json") | _json(folder / _CONFIG)
        model = _json(folder / "config.json")
        start = (_json(folder / "generation_config.json") | model).get("decoder_start_token_id")
        self.start = start if isinstance(start, int) else None
        self.kind = str(self.config.get("tokenizer_class") or model.get("model_type") or "").lower()
        for ending in ("fast", "tokenizer"):
            self.kind = self.kind.removesuffix(ending)
        tokens = {name: self.config.get(f"{name}_token") for name in _NAMES}
        self.names = {k: _content(token) for k, token in tokens.items() if token and _content(token)}
        listed = {int(i): token for i, token in dict(self.config.get("added_tokens_decoder") or {}).items()}
        self.added = {i: name for name, i in _json(folder / "added_tokens.json").items()} | listed


def _core(folder: Path, said: _Config, side: Side) -> Core | None:
    """Build the tokenizer from whichever files there are, with defaults for what the configuration leaves out."""
    if said.whole:
        with translate_errors(CheckpointError, f"{_FILE} is not a tokenizer"):
            text = _text(folder / _FILE)
            check_tokenizer_file(text.encode(), folder / _FILE)
            return _set_lowercase(Core.from_str(text), said)
    if (folder / "source.spm").exists():
        said.names = {"eos": EOS, "unk": UNK, "pad": PAD} | said.names
        ids = _json(folder / "vocab.json")
        return marian_core(
            read_sentencepiece(file_in(folder, f"{side}.spm")), {k: int(i) for k, i in ids.items()}, folder
        )
    if (folder / _VOCABULARY).exists():
        return _wordpiece(folder, said)
    if (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        return _build_bpe(folder, said)
    for name in _PIECES:
        if (folder / name).exists():
            return _pieces(folder / name, said)
    return None


def read_vocabulary(folder: Path) -> dict[str, int]:
    """The tokens of a folder's vocab.txt."""
    vocab = {row: i for i, row in enumerate(_text(folder / _VOCABULARY).removesuffix("\n").split("\n"))}
    check_vocabulary(vocab, folder / _VOCABULARY)
    return vocab


def _wordpiece(folder: Path, said: _Config) -> Core:
    """BERT's tokenizer; a vocabulary with upper-case tokens is cased, unless the folder says otherwise."""
    said.names = _BERT | said.names
    vocab = read_vocabulary(folder)
    return build_wordpiece(vocab, said.names["unk"], said.config, lowercase=not looks_cased(vocab))


def _build_kind(folder: Path, said: _Config, kind: str) -> Core:
    """The tokenizer of this kind with the tokens of vocab.txt; an existing tokenizer.json is not read."""
    if not (folder / _VOCABULARY).exists():
        raise DataError(f"a tokenizer of kind {kind!r} needs a {_VOCABULARY}; name a tokenizer.json instead")
    said.names, said.whole = _BERT | said.names, False
    return build_core(kind, read_vocabulary(folder), said.names["unk"], said.config)


def _build_bpe(folder: Path, said: _Config) -> Core:
    """BPE from a vocabulary and merges, over bytes; GPT-1's is over characters."""
    vocab = {name: int(i) for name, i in _json(folder / "vocab.json").items()}
    check_vocabulary(vocab, folder / "vocab.json")
    rows = [row for row in _text(folder / "merges.txt").split("\n") if row and not row.startswith("#version")]
    merges = [(left, right) for left, _, right in (row.partition(" ") for row in rows)]
    if said.kind in ("openaigpt", "openai-gpt"):
        said.names = {"unk": "<unk>"} | said.names
        core = Core(models.BPE(vocab=vocab, merges=merges, end_of_word_suffix="</w>", unk_token=said.names["unk"]))
        core.normalizer = normalizers.BertNormalizer(lowercase=True)
        core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        core.decoder = decoders.BPEDecoder(suffix="</w>")
        return core
    if said.kind not in ("gpt2", "roberta", "bart"):
        raise DataError(
            f"cannot tell how a tokenizer of kind {said.kind!r} uses vocab.json; save it with tokenizer.json"
        )
    said.names = (_GPT2 if said.kind == "gpt2" else _ROBERTA) | said.names
    core = Core(models.BPE(vocab=vocab, merges=merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=said.config.get("add_prefix_space", False))
    core.decoder = decoders.ByteLevel()
    return core


def _pieces(path: Path, said: _Config) -> Core:
    """A SentencePiece model; T5's is followed by tokens for spans, in reverse order."""
    model = read_sentencepiece(file_in(path.parent, path.name))
    asked = model.trainer_spec
    pieces = {"pad": asked.pad_piece, "bos": asked.bos_piece, "eos": asked.eos_piece, "unk": asked.unk_piece}
    ours = {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK}
    has = {piece.piece for piece in model.pieces}
    said.names = {k: ours[k] for k, piece in pieces.items() if piece in has} | {
        k: ours[k] if pieces.get(k) == name else name for k, name in said.names.items()
    }
    if said.kind != "t5":
        if said.kind == "llama":
            said.config = {"add_bos_token": True} | said.config
        return build_sentencepiece(model, path)
    count = int(said.config.get("extra_ids", 100))
    if not 0 <= count <= _EXTRA:
        raise DataError(f"extra_ids in {_CONFIG} should be 0 to {_EXTRA}, got {count}")
    return build_sentencepiece(model, path, [f"<extra_id_{i}>" for i in reversed(range(count))])


def _set_lowercase(core: Core, said: _Config) -> Core:
    """BERT's normalizer as configured, which may differ from tokenizer.json."""
    normal = core.normalizer
    if isinstance(normal, normalizers.BertNormalizer):
        for key, field in _NORMAL.items():
            if key in said.config:
                setattr(normal, field, said.config[key])
    return core


_NORMAL = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


def _add(core: Core, said: _Config) -> None:
    """Add the tokens outside the vocabulary, with the ids that the folder gives them."""
    runs = [
        (special, [token for _, token in run]) for special, run in groupby(_added(core, said), lambda pair: pair[0])
    ]
    if len(runs) > _RUNS:
        raise DataError(f"its added tokens are special and not special in turn, {len(runs)} times; save it anew")
    for special, tokens in runs:
        (core.add_special_tokens if special else core.add_tokens)(tokens)
    known = {token.content for token in core.get_added_tokens_decoder().values() if token.special}
    core.add_special_tokens([AddedToken(n, special=True) for n in dict.fromkeys(said.names.values()) if n not in known])


def _added(core: Core, said: _Config) -> Iterator[tuple[bool, AddedToken]]:
    """The added tokens in the order of their ids, and whether they are special; new ones come after the vocabulary."""
    size, new = core.get_vocab_size(), dict[str, int]()
    for i, token in sorted(said.added.items()):
        content, entry = _content(token), token if isinstance(token, dict) else {}
        known = new[content] if content in new else core.token_to_id(content)
        if known is None:
            known = new[content] = size + len(new)
        if known != i:
            raise DataError(f"the added token {content!r} should have the id {i}, which its vocabulary does not allow")
        flags = {k: bool(entry[k]) for k in ("single_word", "lstrip", "rstrip", "normalized") if k in entry}
        special = bool(entry.get("special", True))
        yield special, AddedToken(content, special=special, **flags)


def _template(core: Core, said: _Config) -> Template:
    """The tokens around a text: from tokenizer.json, or the usual ones of this kind of model."""
    if said.whole:
        post = core.post_processor
        found = None if post is None else Template.read(json.loads(post.__getstate__()))
        return found or Template.of((), (), {})
    name = said.names
    ids = {token: i for token in name.values() if (i := core.token_to_id(token)) is not None}
    if any(key in said.config for key in ("add_bos_token", "add_eos_token")):
        first = [name["bos"]] if said.config.get("add_bos_token") and "bos" in name else []
        last = [name["eos"]] if said.config.get("add_eos_token") and "eos" in name else []
        return Template.of(first, last, ids, between=first)
    if said.kind in ("roberta", "bart"):
        return Template.of([name["cls"]], [name["sep"]], ids, between=[name["sep"]], segment=0)
    if said.kind in ("t5", "marian"):
        return Template.of((), [name["eos"]], ids, segment=0)
    if "cls" in name and "sep" in name:
        return Template.bert(name["cls"], name["sep"], ids)
    return Template.of((), (), {})


def _roles(core: Core, said: _Config) -> dict[str, str]:
    """Our names of special tokens mapped to theirs. Another token stands in for one that the model lacks."""
    name = said.names
    end = name.get("eos") or name.get("sep") or name.get("bos") or name.get("unk")
    if end is None:
        raise DataError(f"no token ends a text; name it in {_CONFIG}, as eos_token or sep_token")
    start = None if said.start is None else core.id_to_token(said.start)
    found = {
        PAD: name.get("pad") or end,
        BOS: start or name.get("bos") or name.get("cls") or name.get("pad") or end,
        EOS: end,
        UNK: name.get("unk") or getattr(core.model, "unk_token", None) or end,
    }
    if "mask" in name:
        found[MASK] = name["mask"]
    return found


def _content(token: Any) -> str:
    return str(token["content"]) if isinstance(token, Mapping) and "content" in token else str(token)


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    said = parse_json(read_file(path.parent, path.name, MAX_FILE_BYTES), path)
    if not isinstance(said, dict):
        raise CheckpointError(f"{path} should hold an object, got {type(said).__name__}")
    return said


def _text(path: Path) -> str:
    try:
        return read_file(path.parent, path.name, MAX_FILE_BYTES).decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"cannot read {path}: {error}") from None


@contextmanager
def _name_folder(folder: Path) -> Iterator[None]:
    """Name the folder in errors."""
    try:
        with translate_errors(CheckpointError, "its files are not a valid tokenizer"):
            yield
    except DataError as error:
        raise DataError(f"cannot use the tokenizer in {folder}: {error}") from None
    except RegardError:
        raise
    except (
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
    ) as error:  # a value has the wrong type
        raise CheckpointError(f"the tokenizer in {folder} is damaged: {error}") from None
