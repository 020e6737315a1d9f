"""Shortlists: exact where they cover everything, and never anything else than what they list."""

from __future__ import annotations

import dataclasses
import random
from array import array
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.api import Model
from regard.api.open_light import open_light
from regard.decode import Constraints, Request, Search, generate
from regard.engine.choose_engine import open_native
from regard.engine.native_engine import PRECISIONS, NativeEngine
from regard.engine.native_library import NativeError
from regard.engine.quantized_weights import quantize_weights
from regard.engine.shortlist import SHORTLIST, Shortlist, learn_shortlist
from regard.engine.torch_engine import TorchEngine
from regard.engine.write_plan import describe_model
from regard.errors import CheckpointError, DataError, SpecError
from regard.families import transformer
from regard.files.folder import read_folder
from regard.files.tensors import pack
from regard.model.net import Net
from regard.tasks.translate import Translate, TranslateData
from regard.text import Bpe, Tokenizer
from tests.engine.models import FAMILIES, SPECIAL, VOCAB, build, differ, make_sources

pytestmark = pytest.mark.numeric
SEARCHES = [
    Search(beam=1, max_extra=9),
    Search(beam=4, n_best=2, max_extra=9),
    Search(beam=1, sample=True, max_extra=9),
]


@pytest.fixture(scope="module")
def net() -> Net:
    return build(FAMILIES["pre"])


def make_shortlist(net: Net, count: int) -> Shortlist:
    """Some target tokens of each source token; all of them, if there are no more."""
    draw, words = random.Random(3), (net.spec.source or net.spec.embed).vocab
    rows = [sorted(draw.sample(range(VOCAB), min(count, VOCAB))) for _ in range(words)]
    return Shortlist.of(rows, [])


def test_a_shortlist_of_everything_changes_nothing(net: Net) -> None:
    sources = make_sources(net)
    forced = Constraints(banned=[5, 6], prefixes=[[5, 9][: i % 3] for i in range(len(sources))])
    for precision in PRECISIONS:
        plan, weights = describe_model(net), net.state_dict()
        data = pack(quantize_weights(weights, plan, "int4") if precision == "int4" else weights)
        whole, listed = (NativeEngine.open(plan, data, precision=precision, threads=2) for _ in range(2))
        listed.use_shortlist(make_shortlist(net, VOCAB))
        for search in SEARCHES:
            for constraints in (Constraints(), forced):
                found, wanted = (
                    engine.decode(Request(sources, search, SPECIAL, constraints)) for engine in (listed, whole)
                )
                assert not differ(found, wanted)
    assert not differ(
        open_native(net, threads=1).decode(Request(sources, SEARCHES[1], SPECIAL)),
        generate([net], Request(sources, SEARCHES[1], SPECIAL)),
    )


def test_nothing_else_is_written(net: Net) -> None:
    engine, listed, sources = open_native(net, threads=2), make_shortlist(net, 3), make_sources(net, 60)
    engine.use_shortlist(listed)
    for search in SEARCHES:
        found = engine.decode(Request(sources, search, SPECIAL))
        for source, hypotheses in zip(sources, found, strict=True):
            allowed = {i for token in source for i in listed.ids[listed.starts[token] : listed.starts[token + 1]]}
            assert all(allowed.issuperset(h.tokens) for h in hypotheses)
        alone = [engine.decode(Request([source], search, SPECIAL))[0] for source in sources[:9]]
        assert search.sample or not differ(found[:9], alone)  # whatever else is in the batch
    prefix = Constraints(prefixes=[[7, 8, 9]] * len(sources))
    forced = engine.decode(Request(sources, SEARCHES[0], SPECIAL, prefix))
    assert all(hypotheses[0].tokens[:3] == (7, 8, 9) for hypotheses in forced)


def test_sequences_of_a_batch_have_lists_of_their_own(net: Net) -> None:
    engine, sources, search = open_native(net, threads=1), make_sources(net, 4), Search(beam=3, max_extra=6)
    engine.use_shortlist(make_shortlist(net, 4))
    batch, found = engine.open_batch(), {}
    for source in sources:
        batch.add(Request([source], search, SPECIAL))
        found |= {p.sequence: p.hypotheses for p in batch.step() if p.hypotheses}
    while len(batch):
        found |= {p.sequence: p.hypotheses for p in batch.step() if p.hypotheses}
    assert not differ([found[i] for i in range(4)], engine.decode(Request(sources, search, SPECIAL)))


def test_words_find_their_translations() -> None:
    """A made dictionary, whose words come in any order: each finds its own."""
    draw = np.random.Generator(np.random.PCG64(1))
    sources = [draw.permutation(np.arange(5, 30))[: draw.integers(2, 8)].astype(np.int32) for _ in range(800)]
    targets = [draw.permutation(np.append(source + 40, 3)).astype(np.int32) for source in sources]
    found = learn_shortlist(sources, targets, 32, 80, best=2, common=1)
    assert list(found.always) == [3] and len(found.starts) == 33
    rows = [found.ids[found.starts[i] : found.starts[i + 1]] for i in range(32)]
    assert all(i + 40 in rows[i] for i in range(5, 30)) and not rows[31]
    again = Shortlist.from_bytes(found.to_bytes(), Path("x"))
    assert again == found
    with pytest.raises(DataError, match="a shortlist is learned from pairs of texts, got none"):
        learn_shortlist([], [], 3, 3)


def test_what_does_not_fit_is_refused(net: Net) -> None:
    engine = open_native(net, threads=1)
    for rows, always, why in (
        ([[5]] * 7, [], "one row per source token"),
        ([[VOCAB]] * 41, [], "outside the vocabulary"),
        ([[5]] * 41, [-1], "outside the vocabulary"),
    ):
        with pytest.raises(NativeError, match=why):
            engine.use_shortlist(Shortlist.of(rows, always))
    with pytest.raises(NativeError, match="needs a model that reads a source"):
        open_native(build(FAMILIES["gpt"]), threads=1).use_shortlist(Shortlist.of([[5]] * VOCAB, []))
    data = Shortlist.of([[1]], [2]).to_bytes()
    with pytest.raises(CheckpointError, match="is damaged"):
        Shortlist.from_bytes(data[:-4], Path("x"))
    with pytest.raises(CheckpointError, match="its rows do not fit its ids"):
        Shortlist.from_bytes(
            dataclasses.replace(Shortlist.of([[1]], []), starts=array("q", [0, 2])).to_bytes(), Path("x")
        )
    with pytest.raises(CheckpointError, match="it has no list of starts"):
        Shortlist.from_bytes(data.replace(b"starts", b"startz"), Path("x"))


def test_convert_makes_one_from_training_data(tmp_path: Path) -> None:
    texts = ["the cat sat on the mat", "a dog runs in the park", "two men play music", "the dog sat"]
    tokenizer = Tokenizer.train(texts, Bpe(vocab=60))
    net = build(transformer.spec(width=32, depth=1, heads=4, hidden=48, vocab=tokenizer.size, dropout=0.0, length=14))
    task = Translate(TranslateData(max_length=12), tokenizer)
    model = Model(TorchEngine(net), task, Search(beam=1, max_extra=5), Path("x")).save(tmp_path / "model")
    for side in "ab":
        (tmp_path / side).write_text("\n".join(texts) + "\n")
    pairs = [tmp_path / "a", tmp_path / "b"]
    made = regard.convert(model, tmp_path / "small", to="int8", shortlist=pairs)
    assert any(note.startswith("shortlist: ") and note.endswith(" pairs") for note in made.notes)
    light, whole = open_light(tmp_path / "small"), regard.load(tmp_path / "small")
    assert light is not None and SHORTLIST in read_folder(tmp_path / "small")
    outputs = [outputs[0].text for batch in light.run_lazily(texts) for _, outputs in batch]
    assert outputs == whole.run(texts)
    with pytest.raises(SpecError, match="a shortlist needs a folder in int8 or int4"):
        regard.convert(model, tmp_path / "hf", to="hf", shortlist=pairs)
