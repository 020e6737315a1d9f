"""The honest files that are mutated: data of every format, recipes, and a tiny model of every kind, in folders of their own."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from ruamel.yaml import YAML

import regard
from regard import families, tasks
from regard.conversion.hf_tokenizer import from_hf
from regard.data.music.grid_notes import Note
from regard.data.music.midi_file import write_midi
from regard.families.expand import model_keys
from regard.training.request import TrainRequest
from regard.training.train import run_training
from tests.conversion import makers
from tests.laws.tasks import TASK
from tests.laws.uses import BERT, LABELLED, TAGGED, USES, digits
from tests.text.test_importers import write_model

TRAIN: dict[str, Any] = {
    "steps": 2,
    "batch_tokens": 64,
    "schedule": {"kind": "cosine", "lr": 3e-3, "warmup": 0},
    "validate_every": 2,
    "save_every": 1,
    "log_every": 1,
    "threads": 1,
    "precision": "float32",
}
MODEL: dict[str, Any] = {"width": 8, "depth": 1, "heads": 2, "hidden": 16}
PAIRS = [(f"{word} {i}", f"{i} {word}") for i, word in enumerate(("one", "two", "three", "four", "größer", "日本") * 3)]
INPUTS = "the cat sat\none 1\n\na fine day\n日本 größer\n"
TASKS = tasks.names()
"""One tiny model of each is trained."""
ALONE = ("babi", "frames", "music", "recommend")
"""Tasks that read no plain text: each has inputs of its own."""
QUICK = ("translate", "lm", "image")
"""The same for a quick run."""


@contextmanager
def inside(folder: Path) -> Iterator[Path]:
    """Work in a folder, so that every path in a file is relative and its copies are whole."""
    before = Path.cwd()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    try:
        yield Path()
    finally:
        os.chdir(before)


def make_seeds(root: Path, *, quick: bool = False) -> None:
    """Write them all, or some of each."""
    torch.set_num_threads(1)
    with inside(root / "data"):
        write_data()
        recipes = write_recipes()
    for name in QUICK if quick else TASKS:
        _train(root, name, recipes[name])
    _make_foreign(root, quick)
    _make_pictures(root / "pictures")


def write_data() -> None:
    """Text data of every format, in the current folder."""
    rows = [("source", "target"), *PAIRS]
    _write("pairs.tsv", *("\t".join(row) for row in rows))
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    _write("pairs.csv", text.getvalue().rstrip("\n"))
    _write("pairs.jsonl", *(json.dumps({"source": a, "target": b}, ensure_ascii=False) for a, b in PAIRS))
    Path("pairs.tsv.gz").write_bytes(gzip.compress(Path("pairs.tsv").read_bytes(), mtime=0))
    _write("source.txt", *(a for a, _ in PAIRS))
    _write("target.txt", *(b for _, b in PAIRS))
    _write("labels.tsv", *LABELLED)
    _write(
        "labels.jsonl", *(json.dumps(dict(zip(("text", "label"), row.split("\t"), strict=True))) for row in LABELLED)
    )
    _write("tagged.tsv", *TAGGED)
    _write("tagged.conll", *(line for row in TAGGED for line in _conll(row)))
    _write("glossary.tsv", "one\tein", "cat\tKatze")
    _write("input.txt", INPUTS.rstrip("\n"))
    write_model(Path(), vocab_size=200, model_type="unigram")
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save("one.png")
    tune = [Note(i, i + 2, 60 + i, 60 + i) for i in range(8)]
    for name, notes in (("tune", tune), ("scale", tune[2:])):
        Path(f"{name}.mid").write_bytes(write_midi(notes, ticks_per_step=120, ticks_per_beat=480))
    _write("codes.txt", "#version: 0.2", "o n", "on e</w>", "t w", "tw o</w>")


def _conll(row: str) -> list[str]:
    text, labels = row.split("\t")
    return [f"{word} {label}" for word, label in zip(text.split(), labels.split(), strict=True)] + [""]


def _write(name: str, *lines: str) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_recipes() -> dict[str, dict[str, Any]]:
    """A recipe of every task, also as files; some with every option of its data; and one of every family that writes."""
    found = {task: next(iter(examples.values()))(Path()) for task, examples in TASK.items()}
    for use in USES:
        if use.task not in found and use.task != "image":
            Path(use.task).mkdir(exist_ok=True)
            file = use.write(Path(use.task))
            data = {"train": [{"paths": [file]} if use.task == "embed" else file], **use.data}
            found[use.task] = {"task": use.task, "data": data, "model": use.model}
    Path("digits").mkdir(exist_ok=True)
    found["image"] = {"task": "image", "data": {"train": digits(Path("digits")), "augment": {"shift": 1, "flip": True}},
                      "model": {**BERT, "family": "vit", "patch": 4}}  # fmt: skip
    found["events"] = {"task": "music", "data": {"train": ["tune.mid", "scale.mid"], "context": 16},
                       "model": {**MODEL, "family": "gpt"}}  # fmt: skip
    found["mixture"] = TASK["translate"]["mixture"](Path())
    corpora = [{"paths": ["pairs.csv"], "target_lang": "de", "weight": 2.0, "on_bad": "drop"},
               {"paths": ["source.txt", "target.txt"], "target_lang": "cs", "prefix": "x: ", "hold_out": False}]  # fmt: skip
    found["corpora"] = {
        "task": "translate",
        "data": {"train": corpora, "tokenizer": {"kind": "unigram", "vocab": 40}, "max_length": 20},
    }
    found["imported"] = {"task": "translate", "data": {"train": [{"paths": ["pairs.tsv"]}], "max_length": 20,
                         "tokenizer": {"kind": "sentencepiece", "path": "their.model"}}}  # fmt: skip
    found["codes"] = {"task": "translate", "data": {"train": [{"paths": ["pairs.jsonl"]}], "max_length": 20,
                      "tokenizer": {"kind": "subword_nmt", "codes": "codes.txt"}}}  # fmt: skip
    used = {(recipe.get("model") or {}).get("family") for recipe in found.values()}
    for family in (name for name in families.names() if name not in used):
        spec = families.find(family)()
        if spec.decoder is not None:
            task = "lm" if spec.encoder is None else "translate"
            found[family] = {**found[task], "model": {"family": family}}
    for name, recipe in found.items():
        model = recipe.get("model") or {}
        recipe["model"] = {**model, **{key: value for key, value in MODEL.items() if key in model_keys(model)}}
        recipe["train"] = {**TRAIN, **({"ema": 0.9, "label_smoothing": 0.1} if name == "mixture" else {})}
        with Path(f"{name}.yaml").open("w", encoding="utf-8") as file:
            YAML(typ="safe", pure=True).dump(recipe, file)
    return found


def _train(root: Path, name: str, recipe: Mapping[str, Any]) -> None:
    """A run of a recipe in a folder of its own, beside its data; and its model alone."""
    folder = root / f"run-{name}"
    shutil.copytree(root / "data", folder)
    with inside(folder):
        if inputs := next((use.inputs for use in USES if use.task == name and name in ALONE), ()):
            _write("input.txt", *inputs)
        run_training(TrainRequest(f"{name}.yaml", out="run", quiet=True))
    shutil.copytree(folder, root / f"model-{name}", ignore=shutil.ignore_patterns("run"))
    shutil.copytree(folder / "run" / "final", root / f"model-{name}" / "model")


def _make_foreign(root: Path, quick: bool) -> None:
    """Folders of Hugging Face with every kind of tokenizer file, and a GGUF file."""
    for name in ("lm",) if quick else ("lm", "mlm", "span", "classify", "image"):
        (root / f"hf-{name}").mkdir()
        regard.convert(root / f"model-{name}" / "model", root / f"hf-{name}" / "hf", to="hf", notify=lambda _: None)
    tokenizers = {"bert": makers.wordpiece, "gpt2": makers.byte_bpe, "llama": makers.llama, "t5": makers.unigram,
                  "marian": _write_marian}  # fmt: skip
    for name in ("gpt2",) if quick else tokenizers:
        (root / f"hf-{name}").mkdir()
        _make_hf(name, tokenizers[name], root / f"hf-{name}" / "hf")
    (root / "gguf").mkdir()
    _make_gguf(root / "gguf" / "model.gguf")


def _make_hf(name: str, make: Any, folder: Path) -> None:
    import transformers as theirs

    theirs.utils.logging.disable_progress_bar()
    folder.mkdir()
    make(folder)
    makes = {"bert": ("Bert", "ForMaskedLM"), "gpt2": ("GPT2", "LMHeadModel"), "llama": ("Llama", "ForCausalLM"),
             "t5": ("T5", "ForConditionalGeneration"), "marian": ("Marian", "MTModel")}  # fmt: skip
    tokenizer = from_hf(folder)
    assert tokenizer is not None
    size = tokenizer.size
    plain = {"vocab_size": size, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
             "max_position_embeddings": 32}  # fmt: skip
    shapes: dict[str, dict[str, Any]] = {
        "bert": plain,
        "gpt2": dict(vocab_size=size, n_embd=8, n_layer=1, n_head=2, n_positions=32, n_inner=16, bos_token_id=0,
                     eos_token_id=0),
        "llama": dict(plain, bos_token_id=1, eos_token_id=2),
        "t5": dict(vocab_size=size, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0),
        "marian": dict(d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
                       encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=32, vocab_size=size,
                       **_marian_ids(folder)),
    }  # fmt: skip
    config, kind = makes[name]
    torch.manual_seed(0)
    model = getattr(theirs, config + kind)(getattr(theirs, f"{config}Config")(**shapes[name]))
    model.save_pretrained(folder)


def _write_marian(folder: Path) -> Path:
    """Marian's tokenizer: two SentencePiece models and a vocabulary of both."""
    names: list[str] = []
    for side in ("source", "target"):
        path, model = write_model(folder, vocab_size=180)
        path.rename(folder / f"{side}.spm")
        names += [model.id_to_piece(i) for i in range(3, model.get_piece_size())]
    vocabulary = dict.fromkeys(["</s>", "<unk>", *sorted(names), "<pad>"])
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(vocabulary)}))
    return makers.said(folder, "MarianTokenizer", "marian")


def _marian_ids(folder: Path) -> dict[str, int]:
    if not (folder / "source.spm").exists():
        return {}
    pad = len(json.loads((folder / "vocab.json").read_text())) - 1
    return {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0}


def _make_gguf(path: Path) -> None:
    import tokenizers

    from tests.conversion.test_gguf import facts, renamed, theirs, tokens_of, write

    folder = path.parent / "tokenizer"
    folder.mkdir()
    core = tokenizers.Tokenizer.from_file(str(makers.llama(folder) / "tokenizer.json"))
    shutil.rmtree(folder)
    torch.manual_seed(0)
    net = theirs(core.get_vocab_size(), "llama", True)
    write(path, renamed(net, paired=True), {**facts(), **tokens_of(core)})


def _make_pictures(folder: Path) -> None:
    """A folder for each class, and the same as archives."""
    draw = np.random.Generator(np.random.PCG64(0))
    for i, ending in enumerate(("png", "jpg", "gif", "bmp", "webp", "png", "png", "png")):
        place = folder / "flowers" / ("rose" if i % 2 else "tulip") / f"{i}.{ending}"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(place)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for place in sorted((folder / "flowers").rglob("*.*")):
            info = tarfile.TarInfo(place.relative_to(folder / "flowers").as_posix())
            info.size = place.stat().st_size
            tar.addfile(info, io.BytesIO(place.read_bytes()))
    (folder / "flowers.tar").write_bytes(data.getvalue())
    (folder / "flowers.tar.gz").write_bytes(gzip.compress(data.getvalue(), mtime=0))
    (folder / "flowers.tar.xz").write_bytes(lzma.compress(data.getvalue()))
    shutil.copytree(folder.parent / "model-image" / "model", folder / "model")
    recipe = {
        "task": "image",
        "data": {"train": "flowers", "side": 8, "hold_out": 0.3},
        "model": {**BERT, **MODEL, "family": "vit", "patch": 4},
        "train": TRAIN,
    }
    with (folder / "flowers.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(recipe, file)
