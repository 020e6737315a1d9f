"""`regard convert`, whole: folders in, folders out, models that run, and faults that are told."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer as Core
from tokenizers import models, pre_tokenizers, processors, trainers

import regard
from regard.api.open_light import open_light
from regard.conversion import hf, task_config, verify
from regard.conversion.convert import convert
from regard.data.pairs import Pairs
from regard.decode import Search
from regard.errors import CheckpointError, SpecError
from regard.families import gpt, transformer
from regard.serialization.model_folder import write_model
from regard.tasks.common.seq2seq import TextPairsOptions
from regard.tasks.translate import Translate, TranslateData
from regard.text import Chars, Tokenizer
from tests.conversion.tiny import VOCAB, make, saved
from tests.verbs.calling import call

pytestmark = pytest.mark.numeric

LINES = ["a cab bad", "abba cd", "dab a cab", "bad dad"]


def folder(name: str, place: Path) -> Path:
    """A tiny model of theirs with a tokenizer of its own size, saved as they do."""
    model = make(name)
    saved(model, place)
    size = model.config.vocab_size if hasattr(model.config, "vocab_size") else VOCAB
    if name.startswith("vit"):
        return place
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    core = Core(models.BPE(unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.train_from_iterator(LINES, trainers.BpeTrainer(special_tokens=special, vocab_size=size, show_progress=False))
    if "bert" in name or name.startswith("bart"):
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
        mask_token="<mask>", cls_token="<s>", sep_token="</s>",
    ).save_pretrained(place)  # fmt: skip
    return place


TASKS = {
    "gpt2": "lm",
    "llama, tied": "lm",
    "bert, both heads": "mlm",
    "bert, body": "embed",
    "bert, classes": "classify",
    "bert, tags": "tag",
    "roberta, masked": "mlm",
    "distilbert, classes": "classify",
    "t5, 1.0": "translate",
    "t5 body, 1.1": "embed",
    "bart": "translate",
    "marian": "translate",
    "vit": "image",
}


@pytest.mark.parametrize(("name", "task"), TASKS.items())
def test_there_and_back(name: str, task: str, tmp_path: Path) -> None:
    """Theirs to ours, which runs; ours to theirs, which says the same as at first."""
    done = convert(str(folder(name, tmp_path / "theirs")), str(tmp_path / "ours"))
    assert done.kind == task
    assert 0 <= (done.difference or 0.0) <= 1e-5
    model = regard.load(tmp_path / "ours")
    if task != "image":
        texts = ["a cab", "bad dad"] if task != "mlm" else ["a <mask> cab", "bad"]
        assert len(model.run(texts)) == 2
    done = convert(str(tmp_path / "ours"), str(tmp_path / "back"))
    config = json.loads((tmp_path / "back/config.json").read_text())
    assert done.kind == f"{config['model_type']} ({config['architectures'][0]})"
    assert 0 <= (done.difference or 0.0) <= 1e-5
    before, after = (load_file(tmp_path / side / "model.safetensors") for side in ("theirs", "back"))
    for key in before.keys() & after.keys():
        assert torch.equal(before[key], after[key])
    assert not [key for key in after if key not in before]


def ours(place: Path) -> Path:
    """A tiny model folder of ours that others have, too."""
    tokenizer = Tokenizer.train(LINES, Chars())
    spec = gpt.spec(width=16, depth=2, heads=2, vocab=tokenizer.size, length=16)
    name, task, search = task_config.make_lm(spec, tokenizer)
    net = spec.build(0)
    write_model(place, task=task, name=name, net=net, search=search, weights=net.state_dict(), card="# tiny\n")
    return place


def count(place: Path) -> int:
    return sum(tensor.numel() for tensor in load_file(place / "model.safetensors").values())


def test_ours_is_loaded_by_theirs_and_writes_the_same(tmp_path: Path) -> None:
    said = call("convert", ours(tmp_path / "ours"), tmp_path / "hf")
    assert (said.code, said.err) == (0, "")
    where, what, far, alike = said.lines
    assert re.fullmatch(r"generated text: (\d+) of \1 texts give the same", alike)
    assert where == str(tmp_path / "hf")
    assert what == f"{tmp_path / 'ours'} as gpt2 (GPT2LMHeadModel), {count(tmp_path / 'ours'):,} parameters"
    assert far.startswith("largest difference to transformers: ")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    given = tokenizer("a cab", return_tensors="pt", add_special_tokens=False)
    assert given["input_ids"][0].tolist() == regard.load(tmp_path / "ours").tokenizer.encode("a cab")
    assert (tokenizer.pad_token_id, model.config.pad_token_id) == (0, 0)
    back = convert(str(tmp_path / "hf"), str(tmp_path / "again"))
    first, second = (regard.load(tmp_path / side) for side in ("ours", "again"))
    assert first.spec == second.spec
    assert first.run(["a cab", "bad"]) == second.run(["a cab", "bad"])
    assert back.kind == "lm"


def test_for_programs(tmp_path: Path) -> None:
    said = call("convert", ours(tmp_path / "ours"), tmp_path / "hf", "--json")
    assert set(json.loads(said.out)) == {
        "model", "from", "as", "parameters", "difference", "texts", "reason", "notes",
    }  # fmt: skip


def test_without_the_other_library_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "is_available", lambda: False)
    said = call("convert", ours(tmp_path / "ours"), tmp_path / "hf")
    assert said.lines[2:] == [
        "neither outputs nor texts were compared: transformers is not installed (pip install transformers)"
    ]


def test_a_gross_difference_would_be_seen(tmp_path: Path) -> None:
    convert(str(ours(tmp_path / "ours")), str(tmp_path / "hf"))
    net = regard.load(tmp_path / "ours").net
    with torch.no_grad():
        net.embed.weight[5, 0] += 1.0  # type: ignore[index]
    assert verify.compare_folder(tmp_path / "hf", net) > 1e-2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nowhere", "out"), "there is no file or folder nowhere"),
        (
            ("{file}", "out"),
            "{file} is one file; convert takes a folder with a config.json beside the weights, or a .gguf file",
        ),
        (("{ours}", "out", "--to", "hug"), "to should be hf, regard, int8 or int4, got 'hug'"),
        (
            ("{ours}", "out", "--to", "regard"),
            "{ours} is a model folder already; convert it to hf instead",
        ),
        (("{hf}", "out", "--to", "hf"), "{hf} is a Hugging Face folder already; convert it to regard instead"),
        (
            ("{hf}", "out"),
            "{hf} has no tokenizer; put its tokenizer.json (or vocab.txt, or spiece.model) beside the weights",
        ),
        (
            ("{body}", "out"),
            "{body} has no classes, so there is no task for it; use a model with a classification head",
        ),
    ],
)
def test_what_cannot_be_converted(
    words: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.bin").write_bytes(b"")
    places = {
        "file": tmp_path / "file.bin",
        "ours": tmp_path / "ours",
        "hf": tmp_path / "hf",
        "body": tmp_path / "body",
    }
    asked = " ".join(words)
    if "{ours}" in asked:
        ours(places["ours"])
    if "{hf}" in asked:
        saved(make("gpt2"), places["hf"])
    if "{body}" in asked:
        saved(make("vit, body"), places["body"])
    said = call("convert", *(word.format(**places) for word in words))
    assert (said.code, said.err) == (2, f"regard: {why.format(**places)}\n")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_we_did_not_write_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(
        SpecError, match=r"contains thesis.txt, which Regard did not write; move it or choose another folder$"
    ):
        convert(str(ours(tmp_path / "ours")), str(tmp_path / "mine"))


def test_a_tokenizer_for_each_side_has_no_place_there(tmp_path: Path) -> None:
    one, other = Tokenizer.train(LINES, Chars()), Tokenizer.train(["xyz"], Chars())
    spec = transformer.spec(width=16, depth=1, heads=2, vocab=one.size, source_vocab=other.size)
    net, task = spec.build(0), Translate(TranslateData(joint_vocab=False), one, other)
    write_model(
        tmp_path / "ours",
        task=task,
        name="translate",
        net=net,
        search=Search(),
        weights=net.state_dict(),
        card="",
    )
    with pytest.raises(
        SpecError, match=r"^this model has a tokenizer for each side, and a Hugging Face folder can have"
    ):
        convert(str(tmp_path / "ours"), str(tmp_path / "hf"))


@pytest.mark.parametrize("name", ["bart", "llama, tied"])
def test_a_text_is_read_with_what_belongs_around_it(name: str, tmp_path: Path) -> None:
    """As their tokenizer frames it: BART's encoder reads a first mark, too, and so does Llama."""
    place = folder(name, tmp_path / "theirs")
    if name.startswith("llama"):
        core = Core.from_file(str(place / "tokenizer.json"))
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)]
        )
        core.save(str(place / "tokenizer.json"))
    wanted = transformers.AutoTokenizer.from_pretrained(place)("a cab")["input_ids"]
    _, task, _ = task_config.make_task(hf.read(place), place)
    assert wanted[0] == 0
    if name == "bart":
        assert task.encode_inputs(["a cab"], TextPairsOptions()) == [wanted]
        assert task.encode([Pairs(["a cab"], ["bad"])]).source[0].tolist() == wanted[:-1]
        assert task.find_too_long(["a" * 40]) == [0]
    else:
        assert task._encode_prompts(["a cab"]) == [wanted]


def test_pooling_is_as_sentence_transformers_was_told(tmp_path: Path) -> None:
    place = folder("bert, body", tmp_path / "theirs")
    (place / "1_Pooling").mkdir()
    (place / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    (place / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Pooling"}]))
    (place / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9}))
    _, task, _ = task_config.make_task(hf.read(place), place)
    assert (task.settings.pool, task.settings.unit, task.settings.max_length) == ("first", False, 9)


def t5(place: Path) -> Path:
    """A folder of theirs with a small T5 and its tokenizer."""
    model = make("t5, 1.0", 3, std=0.6, table=0.15).double()
    saved(model, place)
    core = Core(models.BPE(unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    core.train_from_iterator(LINES, trainers.BpeTrainer(special_tokens=special, vocab_size=VOCAB, show_progress=False))
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    kind = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    kind.save_pretrained(place)
    return place


def test_t5_begins_to_write_with_padding(tmp_path: Path) -> None:
    """It has no token to begin with: ours writes as theirs does, and a folder of ours tells theirs what to begin with."""
    place = t5(tmp_path / "theirs")
    convert(str(place), str(tmp_path / "ours"))
    convert(str(tmp_path / "ours"), str(tmp_path / "back"))
    for name in ("config.json", "generation_config.json"):
        assert json.loads((tmp_path / "back" / name).read_text())["decoder_start_token_id"] == 0
    assert open_light(tmp_path / "ours", device="cpu") is None, "the engine reads no float64"
    ours = regard.load(tmp_path / "ours")
    ours.net.double()
    assert ours.tokenizer.bos == ours.tokenizer.pad == 0
    for side in ("theirs", "back"):
        other = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / side, dtype=torch.double).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / side)
        assert "bos_token" not in tokenizer.special_tokens_map
        wanted = []
        for text in LINES:
            given = tokenizer(text, return_tensors="pt")
            found = other.generate(**given, num_beams=1, do_sample=False, max_new_tokens=6, suppress_tokens=[0])
            assert found[0, 0] == 0
            wanted.append(tokenizer.decode(found[0], skip_special_tokens=True))
        said = ours.run(LINES, beam=1, max_length=6, repetition_guard=False)
        assert said == wanted
    assert len(set(wanted)) > 1


def test_how_to_search_goes_along_and_what_we_do_not_do_is_said(
    tmp_path: Path,
) -> None:
    path = t5(tmp_path / "theirs") / "generation_config.json"
    told = {"num_beams": 3, "length_penalty": 0.5, "no_repeat_ngram_size": 2, "min_length": 0}
    path.write_text(json.dumps(json.loads(path.read_text()) | told))
    notes: list[str] = []
    convert(tmp_path / "theirs", tmp_path / "b", notify=notes.append)
    (note,) = notes
    assert note.endswith("generates with no_repeat_ngram_size 2, which Regard does not support: outputs may differ")
    search = regard.load(tmp_path / "b").search
    assert (search.beam, search.length_penalty, search.alpha) == (3, "power", 0.5)
    convert(str(tmp_path / "b"), str(tmp_path / "back"))
    back = json.loads((tmp_path / "back" / "generation_config.json").read_text())
    assert (back["num_beams"], back["length_penalty"]) == (3, 0.5)


def test_parts_behind_the_model_that_we_do_not_have(tmp_path: Path) -> None:
    place = folder("t5 body, 1.0", tmp_path / "theirs")
    parts = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Dense")]
    (place / "modules.json").write_text(json.dumps(parts))
    with pytest.raises(
        SpecError, match=r"has Dense after the model; only Transformer, Pooling, Normalize are supported$"
    ):
        task_config.make_task(hf.read(place), place)


def test_a_damaged_file_beside_the_weights(tmp_path: Path) -> None:
    place = folder("bert, body", tmp_path / "theirs")
    (place / "modules.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"modules.json is damaged: it is not JSON"):
        task_config.make_task(hf.read(place), place)


def test_how_pixels_become_numbers_comes_along_and_goes_back(tmp_path: Path) -> None:
    place = folder("vit", tmp_path / "theirs")
    said = {"image_mean": [0.25, 0.75], "image_std": [0.5, 0.125]}
    (place / "preprocessor_config.json").write_text(json.dumps(said))
    convert(str(place), str(tmp_path / "ours"))
    convert(str(tmp_path / "ours"), str(tmp_path / "back"))
    back = json.loads((tmp_path / "back" / "preprocessor_config.json").read_text())
    assert back | said == back
    assert back["size"] == {"height": 12, "width": 12}
    for wrong in ("\udcff", 3, [0.5, None], [0.5, math.inf]):
        (place / "preprocessor_config.json").write_text(json.dumps(said | {"image_std": wrong}))
        with pytest.raises(
            CheckpointError, match=r"^image_std in preprocessor_config.json should be a list of numbers, is "
        ):
            convert(str(place), str(tmp_path / "other"))


def test_names_of_classes_come_along_and_go_back(tmp_path: Path) -> None:
    place = folder("bert, classes", tmp_path / "theirs")
    config = json.loads((place / "config.json").read_text())
    names = ["joy", "anger", "fear", "love", "surprise"]
    config |= {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    (place / "config.json").write_text(json.dumps(config))
    convert(str(place), str(tmp_path / "ours"))
    assert set(regard.load(tmp_path / "ours").run(["a cab", "bad"])) <= set(names)
    convert(str(tmp_path / "ours"), str(tmp_path / "back"))
    back = transformers.AutoConfig.from_pretrained(tmp_path / "back")
    assert [back.id2label[i] for i in range(5)] == names
