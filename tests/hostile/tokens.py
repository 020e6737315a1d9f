"""Files of tokenizers that make the library fail: it panics, aborts, takes all memory, or takes for ever. Each was tried."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from tests.hostile.place import TOKENS, Place, add

File = dict[str, Any]


def _set(way: str, value: Any) -> Callable[[File], bytes]:
    def change(file: File) -> bytes:
        *steps, last = way.split(".")
        place = file
        for step in steps:
            place = place[step]
        place[last] = value(place[last]) if callable(value) else value
        return json.dumps(file).encode()

    return change


def _split(pattern: str) -> File:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _replace(old: str, new: str) -> File:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def _if(pattern: str, new: str) -> File:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": new}


def _nested(depth: int) -> File:
    part: File = {"type": "Sequence", "normalizers": []}
    for _ in range(depth):
        part = {"type": "Sequence", "normalizers": [part]}
    return part


def _model(kind: str, **fields: Any) -> Callable[[File], bytes]:
    def change(file: File) -> bytes:
        vocab = file["model"]["vocab"]
        if kind == "Unigram":
            vocab = [[word, -1.0] for word in sorted(vocab, key=vocab.get)]
        model = {"type": kind, "vocab": vocab, **fields}
        return json.dumps(file | {"model": {k: v(vocab) if callable(v) else v for k, v in model.items()}}).encode()

    return change


def _template(single: list[Any], table: File) -> File:
    texts = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    return {"type": "TemplateProcessing", "single": single, "pair": texts, "special_tokens": table}


def _token(i: Any, content: Any) -> Callable[[list[Any]], list[Any]]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return lambda tokens: [*tokens, {"id": i, "content": content, **flags}]


_BPE: File = {
    "dropout": None,
    "unk_token": "<unk>",
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "merges": [],
}
_GROWS = [_replace("a", "aa")] * 40
_X = {"SpecialToken": {"id": "[NO]", "type_id": 0}}

TOKENIZERS: dict[str, Callable[[File], bytes]] = {
    # what makes the library panic: no Exception, and so past most of those who catch one
    "a table of characters that is none": _set("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    "a table of characters that points outside": _set(
        "normalizer", {"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8AAAAA"}
    ),
    "a table of characters with a wrong turn": _set(
        "normalizer", {"type": "Precompiled", "precompiled_charsmap": "BAAAAAEBAQE="}
    ),
    "a pattern that tries everything": _set("pre_tokenizer", _split("(a+)+$")),
    "a pattern that tries more": _set("pre_tokenizer", _split("(x+x+)+y")),
    "a pattern that tries everything before": _set(
        "normalizer", {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}
    ),
    "a template without its token": _set(
        "post_processor", _template([_X, {"Sequence": {"id": "A", "type_id": 0}}], {})
    ),
    "pieces shorter than their mark": _model(
        "BPE",
        **_BPE
        | {
            "continuing_subword_prefix": "##########",
            "vocab": lambda v: v | {c: len(v) + i for i, c in enumerate(["a!", "##########z"])},
            "merges": [["a", "b"]],
        },
    ),
    "pieces of length nothing": _set("pre_tokenizer", {"type": "FixedLength", "length": 0}),
    "a decoder that strips 2^63": lambda file: _set(
        "decoder", {"type": "Strip", "content": "z", "start": 2**63, "stop": 2**63}
    )(file | {"model": file["model"] | {"vocab": file["model"]["vocab"] | {"z": len(file["model"]["vocab"])}}}),
    # what makes it abort the process, or take time or memory without end
    "a table of characters of 4 GB": _set(
        "normalizer", {"type": "Precompiled", "precompiled_charsmap": "/////////////////w=="}
    ),
    "a text that doubles forty times": _set("normalizer", {"type": "Sequence", "normalizers": _GROWS}),
    "a text that doubles where no trial looks": _set(
        "normalizer", {"type": "Sequence", "normalizers": [_if("t(?=.*[c]at)", "tt")] * 33}
    ),
    "a text that grows where nothing is": _set(
        "normalizer", {"type": "Sequence", "normalizers": [_if("(?<=[c]at)", "cat")] * 12}
    ),
    "an output that doubles where no trial looks": _set(
        "decoder", {"type": "Sequence", "decoders": [{"type": "Fuse"}, *[_if("t(?=.*[c]at)", "tt")] * 33]}
    ),
    "an output that doubles forty times": _set(
        "decoder", {"type": "Sequence", "decoders": [{"type": "Fuse"}, *_GROWS]}
    ),
    "a megabyte before every text": _set(
        "normalizer", {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a" * 50_000}] * 20}
    ),
    "parts within parts": _set("normalizer", _nested(400)),
    "a pattern of brackets": _set("pre_tokenizer", _split("(" * 5000 + ")" * 5000)),
    "a pattern that calls itself": _set("pre_tokenizer", _split("(?<n>\\g<n>)")),
    "a pattern that is none": _set("pre_tokenizer", _split("(")),
    # what it refuses itself, and what only we refuse
    "a negative id": _set("model.vocab", lambda v: v | {"zz": -1}),
    "an id of 2^32-1": _set("model.vocab", lambda v: v | {"zz": 2**32 - 1}),
    "an id of 2^64": _set("model.vocab", lambda v: v | {"zz": 2**64}),
    "an id twice": _set("model.vocab", lambda v: v | {"zz": 0}),
    "an id in words": _set("model.vocab", lambda v: v | {"zz": "7"}),
    "no vocabulary": _set("model.vocab", {}),
    "more tokens than the model": _set("model.vocab", lambda v: v | {f"w{i}": len(v) + i for i in range(100_000)}),
    "merges of what is not there": _model("BPE", **_BPE | {"merges": [["q", "zz"]]}),
    "merges of nothing": _model("BPE", **_BPE | {"merges": [["", ""]]}),
    "merges of one": _model("BPE", **_BPE | {"merges": [["a"]]}),
    "cuts by chance": _model("BPE", **_BPE | {"dropout": 0.5}),
    "chances above one": _model("BPE", **_BPE | {"dropout": 1e30}),
    "an unknown that is unknown": _set("model.unk_token", "nope"),
    "an unknown at 10^9": _model("Unigram", unk_id=10**9, byte_fallback=False),
    "an unknown at -1": _model("Unigram", unk_id=-1, byte_fallback=False),
    "no unknown": _model("Unigram", unk_id=None, byte_fallback=False),
    "no pieces": _model("Unigram", unk_id=0, byte_fallback=False, vocab=[]),
    "scores of NaN": _model(
        "Unigram", unk_id=3, byte_fallback=False, vocab=lambda v: [[word, float("nan")] for word, _ in v]
    ),
    "a model of no kind": _set("model.type", "os.system"),
    "no model": _set("model", None),
    "another version": _set("version", "9.9"),
    "an added token at -5": _set("added_tokens", _token(-5, "q")),
    "an added token that is none": _set("added_tokens", _token(40, ["q"])),
    "a letter that is two": _set(
        "pre_tokenizer", {"type": "Metaspace", "replacement": "__", "prepend_scheme": "always", "split": True}
    ),
    "deep lists": lambda _: b"[" * 1_000_000,
    "nothing": lambda _: b"",
    "a list": lambda _: b"[]",
    "no UTF-8": lambda _: b"\xff\xfe",
    "70 MB": lambda _: b" " * 70_000_000,
}

MENDED = ("an id twice",)
"""What does no harm to a folder for Hugging Face: it is numbered anew."""

for said, change in TOKENIZERS.items():
    for way in ("ours",) if said in MENDED else ("ours", "hf"):
        add(way, f"a tokenizer with {said}", lambda p, change=change: p.write(TOKENS, change(p.read(TOKENS))))
for name, data in (
    ("spiece.model", b"\x80\x04\x95"),
    ("spiece.model", b"\x0a\xff\xff\xff\xff\x0f"),
    ("vocab.txt", b"a\na\n"),
    ("tokenizer.model", b""),
    ("vocab.json", b"[]"),
):
    add(
        "hf",
        f"a tokenizer that is {name} with {data[:4].hex() or 'nothing'}",
        lambda p, name=name, data=data: (p.clear(TOKENS), p.write(name, data), p.write("merges.txt", b"a b\n")),
    )


def _spiece(*more: tuple[str, int], kind: int = 1) -> bytes:
    """A SentencePiece model, unigram (1) or BPE (2)."""
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    for name, part in (("<unk>", 2), ("<s>", 3), ("</s>", 3), ("a", 1), ("b", 1), *more):
        model.pieces.add(piece=name, score=0.0, type=part)
    model.trainer_spec.model_type = kind
    return bytes(model.SerializeToString())


def _instead(p: Place, name: str, data: bytes, **config: Any) -> None:
    """Another tokenizer in place of the honest one."""
    p.clear(TOKENS)
    p.write(name, data)
    p.write("tokenizer_config.json", json.dumps(config).encode())


def _sparse(p: Place, name: str) -> None:
    _instead(p, name, b"")
    with (p.folder / name).open("wb") as file:
        file.truncate(3_500_000_000)


def _beside(p: Place, count: int, *, turns: bool) -> None:
    """So many tokens after the vocabulary; in `turns`, every second of them special."""
    first = len(p.read(TOKENS)["model"]["vocab"])
    added = {first + i: {"content": f"<x{i}>", "special": not turns or i % 2 == 0} for i in range(count)}
    p.change("tokenizer_config.json", "added_tokens_decoder", added)


for word in (10**9, 10**30, -1):
    add(
        "hf",
        f"a tokenizer with {word} tokens for spans",
        lambda p, word=word: _instead(p, "spiece.model", _spiece(), tokenizer_class="T5Tokenizer", extra_ids=word),
    )
for name in ("spiece.model", "vocab.txt"):
    add("hf", f"a tokenizer that is {name} with 3 GB that take no room", lambda p, name=name: _sparse(p, name))
for kind in (1, 2):
    add(
        "hf",
        f"a tokenizer that is a model of kind {kind} with a piece of 600 kB",
        lambda p, kind=kind: _instead(
            p, "spiece.model", _spiece(("ab" * 300_000, 1), kind=kind), tokenizer_class="Llama"
        ),
    )
add("hf", "a tokenizer with 20,000 tokens beside it", lambda p: _beside(p, 20_000, turns=False))
add("hf", "a tokenizer with 20,000 tokens beside it, special and not in turn", lambda p: _beside(p, 20_000, turns=True))


def _said(p: Place, **config: Any) -> None:
    """What the configuration says of its tokens, with no token to end a text left."""
    p.write("tokenizer_config.json", json.dumps(config).encode())


for part in ("", {"content": ""}):
    add(
        "hf", f"a tokenizer that calls its end {part!r}", lambda p, part=part: _said(p, eos_token=part, mask_token=part)
    )
