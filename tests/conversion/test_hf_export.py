"""Exported models write what ours write: text in, text out, through the other side's own tokenizer and generation."""

from __future__ import annotations

import json
import random
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import regard
from regard.conversion import task_config
from regard.conversion.convert import convert
from regard.decode import Search
from regard.families import bart, bert, gpt, llama, marian, t5
from regard.model.model_spec import ModelSpec
from regard.serialization.model_folder import write_model
from regard.tasks.classify import Classify, ClassifyData
from regard.tasks.lm import Lm, LmData
from regard.tasks.translate import Translate, TranslateData
from regard.text import Bpe, Chars, Tokenizer, TokenizerSpec, Unigram

pytestmark = pytest.mark.numeric

WORDS = [
    "red",
    "blue",
    "small",
    "old",
    "new",
    "house",
    "river",
    "stone",
    "bird",
    "tree",
    "cloud",
    "road",
    "light",
    "night",
]
NEW = 12
"""Tokens that are written at most."""


def make_texts(count: int) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 6))) + "." for _ in range(count)]


TEXTS = make_texts(60)


def save(
    place: Path, name: str, task: Any, spec: ModelSpec, seed: int, *, std: float = 1.0, table: float = 0.5
) -> Path:
    """A model folder with random weights far from zero, so that outputs are of many kinds."""
    net = spec.build(seed)
    draw = torch.Generator().manual_seed(seed)
    weights = {
        key: tensor if "norm" in key else torch.randn(tensor.shape, generator=draw) * (table if "embed" in key else std)
        for key, tensor in net.state_dict().items()
    }
    search = Search(beam=1, repetition_guard=False, max_length=NEW)
    write_model(place, task=task, name=name, net=net, search=search, weights=weights, card="")
    return place


def translator(family: str, place: Path, kind: TokenizerSpec = Bpe(vocab=60), seed: int = 2) -> Path:
    """A tiny model as training makes it: the family's arguments are those that the task gives."""
    tokenizer = Tokenizer.train(TEXTS, kind)
    task = Translate(TranslateData(max_length=64), tokenizer)
    facts: dict[str, Any] = task.model_arguments()
    shape: dict[str, Any] = dict(width=16, depth=2, heads=2, hidden=24, vocab=facts["vocab"], length=facts["length"])
    spec = {
        "marian": lambda: marian.spec(**shape, start=facts["start"]),
        "bart": lambda: bart.spec(**shape),
        "t5": lambda: t5.spec(**shape, head_width=8),
    }[family]()
    return save(place, "translate", task, spec, seed)


def generate(folder: Path, texts: list[str], **options: Any) -> list[str]:
    """What `transformers` makes of a folder alone: its own tokenizer, model and settings of generation."""
    kind = json.loads((folder / "config.json").read_text())
    auto = "AutoModelForSeq2SeqLM" if kind.get("is_encoder_decoder") else "AutoModelForCausalLM"
    model = getattr(transformers, auto).from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    out = []
    for text in texts:
        given = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        found = model.generate(**given, do_sample=False, **options)[0]
        skip = 0 if kind.get("is_encoder_decoder") else given["input_ids"].shape[1]
        out.append(tokenizer.decode(found[skip:], skip_special_tokens=True))
    return out


KINDS = {"bpe": Bpe(vocab=60), "unigram": Unigram(vocab=60), "characters": Chars()}


@pytest.mark.parametrize(
    ("family", "kind", "seed"),
    [
        ("marian", "bpe", 2),
        ("marian", "unigram", 1),
        ("marian", "characters", 1),
        ("t5", "bpe", 1),
        ("bart", "bpe", 3),
    ],
)
def test_what_was_made_here_writes_the_same_there(family: str, kind: str, seed: int, tmp_path: Path) -> None:
    ours = translator(family, tmp_path / "ours", KINDS[kind], seed)
    convert(ours, tmp_path / "hf")
    wanted = regard.load(ours).run(TEXTS)
    assert generate(tmp_path / "hf", TEXTS) == wanted
    assert len(set(wanted)) > 12, "outputs should be of many kinds"
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert all(tokenizer(text)["input_ids"][-1] == tokenizer.eos_token_id for text in TEXTS)
    convert(tmp_path / "hf", tmp_path / "again")
    assert regard.load(tmp_path / "again").run(TEXTS, max_length=NEW, repetition_guard=False) == wanted


def test_ctranslate2_reads_an_exported_marian(tmp_path: Path) -> None:
    import ctranslate2

    ours = translator("marian", tmp_path / "ours")
    convert(ours, tmp_path / "hf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ctranslate2.converters.TransformersConverter(str(tmp_path / "hf")).convert(str(tmp_path / "ct2"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    pieces = [tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) for text in TEXTS]
    engine = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32", intra_threads=1)
    found = engine.translate_batch(pieces, beam_size=1, max_decoding_length=NEW, disable_unk=True)
    ids = [tokenizer.convert_tokens_to_ids(each.hypotheses[0]) for each in found]
    said = [tokenizer.decode(row, skip_special_tokens=True) for row in ids]
    assert said == regard.load(ours).run(TEXTS)


def test_a_start_that_is_not_zero_is_said(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(TEXTS, Chars())
    spec = marian.spec(width=16, depth=1, heads=2, hidden=24, vocab=tokenizer.size, length=66)
    ours = save(tmp_path / "ours", "translate", Translate(TranslateData(max_length=64), tokenizer), spec, 1)
    notes: list[str] = []
    convert(ours, tmp_path / "hf", notify=notes.append)
    assert notes == ["its decoder does not start from a zero vector, as CTranslate2 assumes: outputs differ there"]
    assert generate(tmp_path / "hf", TEXTS[:8]) == regard.load(ours).run(TEXTS[:8])


@pytest.mark.parametrize("family", ["gpt", "llama"])
@pytest.mark.parametrize("documents", ["file", "line"])
def test_a_decoder_reads_the_same_beginning_there(family: str, documents: Any, tmp_path: Path) -> None:
    """Of documents a model learns their start token, so it reads one there, too."""
    tokenizer = Tokenizer.train(TEXTS, Bpe(vocab=60))
    shape: dict[str, Any] = dict(width=16, depth=2, heads=2, vocab=tokenizer.size, length=64)
    spec = gpt.spec(**shape) if family == "gpt" else llama.spec(**shape, hidden=24)
    task = Lm(LmData(context=64, documents=documents), tokenizer)
    ours = save(tmp_path / "ours", "lm", task, spec, 2)
    convert(ours, tmp_path / "hf")
    texts = TEXTS[:20]
    wanted = [text.strip() for text in regard.load(ours).run(texts)]
    assert [text.strip() for text in generate(tmp_path / "hf", texts)] == wanted
    assert len(set(wanted)) > 8
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "hf").padding_side == "left"


def export_classifier(folder: Path) -> Path:
    """A classifier in `ours`, and as a folder of `transformers` in `hf`, which is returned."""
    tokenizer = Tokenizer.train(TEXTS, Chars())
    spec = bert.spec(width=16, depth=2, heads=2, hidden=24, vocab=tokenizer.size, length=64)
    task = Classify(ClassifyData(max_length=64), tokenizer, tuple("abcdefgh"))
    save(folder / "ours", "classify", task, task.adapt_spec(spec), 4, std=0.7)
    convert(folder / "ours", folder / "hf")
    return folder / "hf"


def test_a_classifier_reads_its_marks_there(tmp_path: Path) -> None:
    """A tokenizer without marks of its own gets BERT's, which the folder must say."""
    export_classifier(tmp_path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    with torch.no_grad():
        said = [model.config.id2label[int(model(**theirs(t, return_tensors="pt")).logits.argmax())] for t in TEXTS]
    assert said == regard.load(tmp_path / "ours").run(TEXTS)
    assert len(set(said)) > 2


SETTINGS = {"num_beams": 3, "length_penalty": 0.5, "max_length": 77, "early_stopping": True}


@pytest.mark.parametrize("name", ["marian", "bart", "t5, 1.0"])
@pytest.mark.parametrize("where", ["generation_config.json", "config.json"])
def test_settings_come_back_unchanged(name: str, where: str, tmp_path: Path) -> None:
    """Whole files before and after; old folders have the settings of generation in config.json."""
    from tests.conversion.test_convert import folder

    theirs = folder(name, tmp_path / "theirs")
    wanted = SETTINGS | {"forced_eos_token_id": json.loads((theirs / "config.json").read_text())["eos_token_id"]}
    for file in ("config.json", "generation_config.json", "tokenizer_config.json"):
        path = theirs / file
        said = json.loads(path.read_text()) if path.exists() else {}
        said |= wanted if file == where else {"task_specific_params": {"x": 1}} if file == "config.json" else {}
        said |= {"model_max_length": 99} if file.startswith("tokenizer") else {}
        path.write_text(json.dumps(said))
    if where == "config.json":
        (theirs / "generation_config.json").unlink()
    convert(theirs, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "back")
    before, after = (json.loads((side / "config.json").read_text()) for side in (theirs, tmp_path / "back"))
    assert after == before
    there = json.loads((tmp_path / "back" / "generation_config.json").read_text())
    if where == "config.json":
        assert there | wanted == there
    else:
        assert there == json.loads((theirs / "generation_config.json").read_text())
    assert json.loads((tmp_path / "back" / "tokenizer_config.json").read_text())["model_max_length"] == 99


def test_a_search_that_was_changed_is_written(tmp_path: Path) -> None:
    from tests.conversion.test_convert import folder

    convert(folder("marian", tmp_path / "theirs"), tmp_path / "ours")
    model = regard.load(tmp_path / "ours")
    assert task_config.derive_search({}) == model.search
    model.search = Search(beam=2, length_penalty="power", alpha=0.25)
    model.save(tmp_path / "changed")
    (tmp_path / "changed" / "huggingface.json").exists()
    convert(tmp_path / "changed", tmp_path / "back")
    there = json.loads((tmp_path / "back" / "generation_config.json").read_text())
    assert (there["num_beams"], there["length_penalty"]) == (2, 0.25)


def test_what_names_code_is_not_kept(tmp_path: Path) -> None:
    from tests.conversion.test_convert import folder

    theirs = folder("gpt2", tmp_path / "theirs")
    said = json.loads((theirs / "config.json").read_text())
    harm = {"auto_map": {"AutoModel": "evil.Model"}, "_attn_implementation": "x/y", "transformers_weights": "../x"}
    (theirs / "config.json").write_text(json.dumps(said | harm))
    convert(theirs, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "back")
    for place in (tmp_path / "ours" / "huggingface.json", tmp_path / "back" / "config.json"):
        assert not any(name in place.read_text() for name in harm)


def test_tokens_that_the_model_does_not_have_are_told(tmp_path: Path) -> None:
    """Without the class of the tokenizer and its first mark, `transformers` adds one of its own, beyond the vocabulary."""
    theirs = export_classifier(tmp_path)
    path, gone = theirs / "tokenizer_config.json", ("tokenizer_class", "cls_token")
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k not in gone}))
    said = convert(theirs, tmp_path / "back").reason
    assert re.fullmatch(
        r"texts were not compared: the tokenizer of transformers gives token (\d+), and the model has \1", said
    )
