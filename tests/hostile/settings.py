"""Configurations that ask for too much, for what cannot be, or for code."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from regard.files.tensors import pack
from regard.model.model_spec import ModelSpec
from tests.hostile.place import CONFIG, WEIGHTS, Place, add, both

HUGE, NAN, INF = 10**9, float("nan"), float("inf")
MASK: Any = "causal"
for _ in range(300):
    MASK = {"kind": "and", "masks": [MASK, "causal"]}
DEEP: Any = {}
for _ in range(900):
    DEEP = {"block": DEEP}
_FULL = {"kind": "full", "head_width": 1}
SETTINGS: dict[str, tuple[str, Any]] = {
    "a width of 10^9": ("model.width", HUGE),
    "a width of 10^18": ("model.width", 10**18),
    "no width": ("model.width", 0),
    "a negative width": ("model.width", -8),
    "a width of NaN": ("model.width", NAN),
    "a width of infinity": ("model.width", INF),
    "a width in words": ("model.width", "8; rm -rf"),
    "a width that is a list": ("model.width", [8]),
    "a width that is true": ("model.width", True),
    "a length of 10^9": ("model.length", HUGE),
    "a length of 10^18": ("model.length", 10**18),
    "a depth of 10^9": ("model.decoder.depth", HUGE),
    "a depth of 2": ("model.decoder.depth", 2),
    "a depth of 10^30": ("model.decoder.depth", 10**30),
    "10^9 tokens": ("model.embed.vocab", HUGE),
    "one token": ("model.embed.vocab", 1),
    "10^9 heads": ("model.decoder.block.mix.heads", HUGE),
    "10^9 heads on a slope": ("model.decoder.block.mix", _FULL | {"heads": HUGE, "position": {"kind": "alibi"}}),
    "heads so wide that a square of them is beyond memory": (
        "model.decoder.block.mix",
        {"kind": "performer", "heads": 1, "features": 1, "head_width": 200_000},
    ),
    "a width of 2^63": ("model.width", 2**63),
    "a width of 10^30": ("model.width", 10**30),
    "no head": ("model.decoder.block.mix.heads", 0),
    "a hidden width of 10^12": ("model.decoder.block.feed.hidden", 10**12),
    "ten thousand blocks": (
        "model.decoder",
        lambda d: {**{k: v for k, v in d.items() if k not in ("block", "depth")}, "blocks": [d["block"]] * 10_000},
    ),
    "a kind that is an import": ("model.decoder.kind", "os.system"),
    "a kind that is a path": ("model.decoder.block.mix.kind", "../../outside/secret"),
    "a kind that is an object": ("model.decoder.block.mix.kind", {"kind": "full"}),
    "a kind that is unknown": ("model.decoder.block.mix.kind", "plugin:evil"),
    "a target to call": ("model._target_", "os.system"),
    "code to import": ("auto_map", {"AutoModel": "evil.Model"}),
    "a target within": ("model.decoder.block.mix._target_", "subprocess.Popen"),
    "arguments": ("model.decoder.block.mix.__reduce__", ["os.system"]),
    "a plugin": ("settings.plugin", "evil.py"),
    "an init that is an import": ("model.init", "os.system"),
    "a task that is an import": ("task", "os.system"),
    "a task that is a path": ("task", "../../outside/evil"),
    "a task that is private": ("task", "__init__"),
    "a task that is no task": ("task", "metrics"),
    "a task that is a list": ("task", ["lm"]),
    "a task of other files": ("task", "translate"),
    "a format of tomorrow": ("format", 99),
    "a format that is none": ("format", None),
    "settings that are none": ("settings", ["rm"]),
    "a tokenizer elsewhere": ("settings.tokenizer", {"kind": "sentencepiece", "path": "/etc/passwd", "trust": True}),
    "a beam of 10^6": ("decode.beam", 10**6),
    "10^9 tokens more than the source": ("decode.max_extra", HUGE),
    "an output of 10^9 tokens": ("decode.max_length", HUGE),
    "a seed of 10^30": ("decode.seed", 10**30),
    "10^30 tokens to draw from": ("decode.top_k", 10**30),
    "a beam of 10^9 words": ("decode.beam", "x" * 1_000_000),
    "a search that is none": ("decode", "sample"),
    "a dropout of NaN": ("model.decoder.block.drop", NAN),
    "masks within masks": ("model.decoder.block.mix.mask", MASK),
    "blocks within blocks": ("model.decoder.block", DEEP),
    "a model that is none": ("model", None),
    "a model in words": ("model", "gpt2"),
    "no embedding": ("model.embed", None),
    "an encoder too many": ("model.encoder", lambda _: {"kind": "stack", "blocks": []}),
    "a hundred thousand keys": ("model", lambda m: m | {f"k{i}": i for i in range(100_000)}),
    "an escape": ("task", "\x1b]0;pwned\x07\x1b[2J"),
    "half a character": ("task", "\ud800"),
    "a name of a megabyte": ("task", "n" * 1_000_000),
}
for said, (where, value) in SETTINGS.items():
    add("ours", f"a configuration with {said}", lambda p, where=where, value=value: p.change(CONFIG, where, value))


def _spans(p: Place) -> None:
    p.change(CONFIG, "task", "span")
    p.change(CONFIG, "settings", {"max_length": HUGE, "sentinels": HUGE})


def _draws(p: Place) -> None:
    """BigBird's draws are in no file, and there are as many as the model is long: of 3 GB."""

    def bird(model: dict[str, Any]) -> None:
        _reads({"kind": "vector"})(model)
        model["embed"]["position"] = {"kind": "sinusoidal"}
        model["encoder"]["block"]["mix"] = {"kind": "bigbird", "heads": 2, "block": 1, "random": 3}

    _rebuilt(p, "embed", bird)
    p.change(CONFIG, "model.length", 60_000_000)


def _rebuilt(p: Place, task: str, change: Callable[[dict[str, Any]], Any], classes: bytes = b"") -> None:
    """Another model, with weights that fit it, for a task that may not."""
    config = p.read(CONFIG) | {"task": task, "settings": {"max_length": 16} if task in ("classify", "tag") else {}}
    change(config["model"])
    p.write(WEIGHTS, pack(ModelSpec.parse(config["model"]).build(seed=1).state_dict()))
    p.write(CONFIG, json.dumps(config).encode())
    if classes:
        p.write("classes.json", classes)


def _reads(head: dict[str, Any] | None = None, embed: dict[str, Any] | None = None) -> Callable[[dict[str, Any]], Any]:
    """The decoder as an encoder, perhaps with other ends."""
    ends = {name: end for name, end in (("head", head), ("embed", embed)) if end is not None}
    return lambda m: m.update({"encoder": m["decoder"] | {"causal": False}, "decoder": None, **ends})


_TWO = {"kind": "classes", "count": 2}
_CLASSES = b'{"classes": ["a", "b"]}'
TASKS: dict[str, tuple[str, Callable[[dict[str, Any]], Any], bytes]] = {
    "a reader for lm": ("lm", _reads(), b""),
    "a reader for translate": ("translate", _reads(), b""),
    "a reader for span": ("span", _reads(), b""),
    "a writer for translate": ("translate", lambda m: None, b""),
    "a writer for classify": ("classify", lambda m: None, _CLASSES),
    "a writer for mlm": ("mlm", lambda m: None, b""),
    "a writer for embed": ("embed", lambda m: None, b""),
    "classes for lm": ("lm", lambda m: m.update(head=_TWO), b""),
    "words for classes": ("classify", _reads(), _CLASSES),
    "three names for two classes": ("classify", _reads(_TWO), b'{"classes": ["a", "b", "c"]}'),
    "classes of rows for tags": ("tag", _reads(_TWO), _CLASSES),
    "a class that moves the cursor": (
        "classify",
        _reads(_TWO),
        b'{"classes": ["a\\u001b]0;pwned\\u0007\\u001b[2J", "b"]}',
    ),
    "a class of two lines": ("classify", _reads(_TWO), b'{"classes": ["a\\nb", "b"]}'),
    "deep classes": ("classify", _reads(_TWO), b"[" * 100_000),
    "classes of 20 MB": ("classify", _reads(_TWO), b" " * 20_000_000),
    "one class": ("classify", _reads(_TWO), b'{"classes": ["a"]}'),
}
for said, (task, change, classes) in TASKS.items():
    add("ours", f"a model with {said}", lambda p, t=task, c=change, n=classes: _rebuilt(p, t, c, n))
PICTURES: dict[str, dict[str, Any]] = {
    "a side in words": {"side": "x"},
    "a side that is a list": {"side": [1]},
    "a side of infinity": {"side": INF},
    "a side of 10^9": {"side": HUGE},
    "a negative side": {"side": -8},
    "a mean that is a number": {"mean": 5},
    "a mean in words": {"mean": ["x"]},
    "a mean of two channels": {"mean": [0.5, 0.5]},
    "a mean of NaN": {"mean": [NAN]},
    "no deviation": {"deviation": [0]},
}
_PATCHES = {"kind": "patches", "side": 8, "patch": 4, "channels": 1}
for said, spoilt in PICTURES.items():
    named = {"classes": ["a", "b"], "side": 8, "mean": [0.5], "deviation": [0.5]} | spoilt
    text = json.dumps(named).encode()
    add("ours", f"pictures with {said}", lambda p, text=text: _rebuilt(p, "image", _reads(_TWO, _PATCHES), text))
add("ours", "a configuration with 10^9 spans", _spans)
add("ours", "a configuration with draws of gigabytes", _draws)
THEIRS: dict[str, tuple[str, Any]] = {
    "a width of 10^9": ("n_embd", HUGE),
    "a width of NaN": ("n_embd", NAN),
    "a negative depth": ("n_layer", -1),
    "a depth of 10^12": ("n_layer", 10**12),
    "a depth of 2": ("n_layer", 2),
    "10^12 tokens": ("vocab_size", 10**12),
    "a length of 10^15": ("n_positions", 10**15),
    "no heads": ("n_head", 0),
    "another family": ("model_type", "bert"),
    "a family that is an import": ("model_type", "os.system"),
    "a family that is a list": ("model_type", ["gpt2"]),
    "a class that is an import": ("architectures", ["os.system"]),
    "a class that is an object": ("architectures", {"a": 1}),
    "an unknown activation": ("activation_function", "builtins.exec"),
    "weights that only others read": ("quantization_config", {"load_in": 4}),
    "a hidden width of 10^15": ("n_inner", 10**15),
    "an epsilon that is a list": ("layer_norm_epsilon", [1]),
    "a width in words": ("n_embd", "wide"),
}
for said, (where, value) in THEIRS.items():
    add("hf", f"a configuration with {said}", lambda p, where=where, value=value: p.change(CONFIG, where, value))
TEXTS = {
    "deep lists": b"[" * 200_000,
    "deep objects": b'{"a":' * 200_000,
    "a list": b"[]",
    "nothing": b"",
    "no UTF-8": b"\xff\xfe{}",
    "zeros": bytes(1000),
    "20 MB": b" " * 20_000_000,
    "null": b"null",
    "YAML": b"!!python/object/apply:os.system [touch x]",
    "a number of a million digits": b'{"format": ' + b"9" * 1_000_000 + b"}",
}
for said, data in TEXTS.items():
    both(f"a configuration of {said}", lambda p, data=data: p.write(CONFIG, data))
