"""Views of what is special: memories, hashed buckets, pictures, flow."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.data.stories import parse_story
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import ShapeError
from regard.families import memn2n, vit
from regard.interpret.rollout import flow
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.report.png import encode_png
from regard.tasks.babi import Babi, BabiData
from regard.tasks.common.task import Dataset
from regard.tasks.image import Image as ImageTask
from regard.tasks.image import ImageData

pytestmark = pytest.mark.numeric

TINY = {
    "train.steps": 2, "train.validate_every": 2, "train.schedule": {"kind": "constant", "lr": 1e-3}, "train.batch_tokens": 256,
    "train.precision": "float32", "train.threads": 1, "model.width": 16, "model.depth": 2, "model.heads": 2, "model.hidden": 16,
}  # fmt: skip
TEXT = "a dog runs and a cat sleeps while the bird sings a song"


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("book") / "book.txt"
    path.write_text(f"{TEXT}\n" * 60, encoding="utf-8")
    return path


def page_data(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])["views"][0]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def recurrent(book: Path) -> regard.Model:
    """A Compressive Transformer with segments of 8 tokens, a memory of 6 and 4 compressed slots."""
    compress = {"kind": "pooling", "rate": 2, "slots": 4}
    settings = {
        **TINY, "data.context": 8, "data.tokenizer": {"kind": "chars"}, "model.memory_length": 6, "model.compress": compress,
    }  # fmt: skip
    return regard.train("transformer_xl", [str(book)], out=book.parent / "xl", set=settings, quiet=True)


def test_memory_and_slots_have_their_own_columns(recurrent: regard.Model) -> None:
    read = recurrent.forward_pass(TEXT, "")
    assert read.before
    layer = regard.look(recurrent, TEXT, "").views[0].layers[0]
    assert layer.keys == "slots"
    assert layer.columns is not None
    assert layer.columns[:4] == ["slot 1", "slot 2", "slot 3", "slot 4"]
    assert layer.columns[-len(read.tokens) :] == list(read.tokens)
    memory = [label for label in layer.columns if label.endswith(" (memory)")]
    assert [label.removesuffix(" (memory)") for label in memory] == list(read.before_tokens[-len(memory) :])
    assert len(layer.columns) == layer.weights.shape[2]
    torch.testing.assert_close(layer.weights.sum(-1), torch.ones(layer.weights.shape[:2]))
    assert "slot 1" in regard.look(recurrent, TEXT, "").render()


def test_a_pass_with_a_memory_is_the_same_as_streaming(recurrent: regard.Model) -> None:
    """Segment by segment, as in training."""
    net, read = recurrent.net, recurrent.forward_pass(TEXT, "")
    state, first = net.start(1, 99), 0
    with torch.no_grad():
        for ids in (*read.before, read.ids):
            stream, state = net.decode(ids, Coords.span(ids.shape[1], first=first), state=state)  # type: ignore[arg-type]
            first += ids.shape[1]
        torch.testing.assert_close(read.run(net), stream)
        many = read.repeat(3).run(net)
    torch.testing.assert_close(many, stream.expand(3, -1, -1))


def test_buckets_are_those_that_the_hash_gave(book: Path) -> None:
    mix = {"kind": "lsh", "heads": 2, "chunk": 4, "rounds": 3, "buckets": 4}
    settings = {**TINY, "data.context": 64, "data.tokenizer": {"kind": "chars"}, "model.decoder.block.mix": mix}
    model = regard.train("gpt", [str(book)], out=book.parent / "lsh", set=settings, quiet=True)
    seen = regard.look(model, TEXT[:30], "")
    layer = seen.views[0].layers[0]
    assert layer.buckets is not None
    assert layer.buckets.shape == (2, 3, layer.weights.shape[1])
    assert int(layer.buckets.max()) < 4
    shared = (layer.buckets.unsqueeze(-1) == layer.buckets.unsqueeze(-2)).any(1)
    apart = layer.weights * ~shared
    assert float(apart.max()) < 1e-6, "a token attends to one that shares no bucket with it"
    assert page_data(seen.html())["layers"][0]["buckets"] == layer.buckets.tolist()  # type: ignore[index]
    tape = Tape("*.buckets")
    model.forward_pass(TEXT[:30], "").run(model.net, tape)
    assert len(tape.kept) == 2


def test_the_picture_is_what_the_model_reads(tmp_path: Path) -> None:
    spec = vit.spec(image=12, patch=4, width=16, depth=1, heads=2, hidden=16, classes=2, channels=3)
    task = ImageTask(ImageData(), ("cat", "dog"), 12, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    model = regard.Model(TorchEngine(spec.build(seed=1).eval()), task, Search(), tmp_path / "vit")
    pixels = np.random.default_rng(1).integers(0, 256, (12, 12, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    found = page_data(regard.look(model, str(tmp_path / "image.png")).html())["picture"]
    assert isinstance(found, dict)
    raw = base64.b64decode(found["source"].partition(",")[2])
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(raw))), pixels)
    assert (found["rows"], found["columns"], found["first"]) == (3, 3, 1)


STORY = "Mary went home. John went out. Mary went out. Where is Mary?"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> regard.Model:
    """A memory network of three hops that knows the words of one story."""
    stories = [dataclasses.replace(parse_story(STORY), answer="out")]
    task = Babi.prepare(BabiData(memory=5), Dataset(stories, [], "", {}))
    net = memn2n.spec(width=8, memory=5, vocab=len(task.classes)).build(seed=1).eval()
    return regard.Model(TorchEngine(net), task, Search(), tmp_path_factory.mktemp("hops") / "memn2n")


def test_hops_are_a_map_of_sentences(asked: regard.Model) -> None:
    seen = regard.look(asked, STORY)
    (view,) = seen.views
    (layer,) = view.layers
    assert layer.title == "encoder, hops"
    assert layer.rows == ["hop 1", "hop 2", "hop 3"]
    assert layer.columns == ["Mary went home.", "John went out.", "Mary went out."], "the oldest first"
    assert ((layer.weights.sum(-1) > 0) & (layer.weights.sum(-1) < 1)).all(), "two slots of the memory are empty"
    (best,) = asked.task.run(TorchEngine(asked.net), [STORY], asked.search)[0]
    assert [(hop.number, hop.sentence) for hop in view.hops] == [(h["hop"], h["sentence"]) for h in best.more["hops"]]  # type: ignore[index, attr-defined]
    for hop, line in zip(view.hops, best.explanation, strict=True):
        assert f"hop {hop.number} looks at  {hop.sentence}  ({hop.weight:.0%})" in seen.render()
        assert line.startswith(f"hop {hop.number} looks at  {hop.sentence}")
    assert seen.plain()["views"][0]["hops"][2]["sentence"] == view.hops[2].sentence  # type: ignore[index]
    assert page_data(seen.html())["layers"][0]["rows"] == layer.rows  # type: ignore[index]
    assert view.attribution is not None
    assert view.attribution.shape == (1, 4), "how much the answer rests on the question and on each sentence"


def test_alignments_of_a_recurrent_decoder(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a b c\tc b a\nb c a\ta c b\n" * 8, encoding="utf-8")
    settings = {
        "auto": False, "train.steps": 1, "train.validate_every": 1, "train.batch_tokens": 64, "train.precision": "float32",
        "train.threads": 1, "train.schedule": {"kind": "constant", "lr": 1e-3}, "data.tokenizer": {"kind": "words"},
        "model.width": 8, "model.depth": 1, "model.attention": "dot",
    }  # fmt: skip
    model = regard.train("lstm", [str(tmp_path / "pairs.tsv")], out=tmp_path / "lstm", set=settings, quiet=True)
    (view,) = regard.look(model, "a b c", "c b a").views
    (layer,) = view.layers
    assert (layer.title, layer.queries, layer.keys) == ("decoder, cross-attention", "target", "source")
    torch.testing.assert_close(layer.weights.sum(-1), torch.ones(layer.weights.shape[:2]))


def test_png_of_gray_pixels() -> None:
    pixels = np.arange(12.0).reshape(1, 3, 4) * 20
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encode_png(pixels)))), pixels[0])
    with pytest.raises(ShapeError, match=r"\(1 or 3, height, width\), got \(3, 4\)"):
        encode_png(pixels[0])


def test_the_flow_of_a_page_is_that_of_its_weights(book: Path) -> None:
    model = regard.train("gpt", [str(book)], out=book.parent / "gpt", set={**TINY, "data.context": 64}, quiet=True)
    (view,) = regard.look(model, "a dog runs", "").views
    assert view.flow is not None
    position, values = view.flow
    torch.testing.assert_close(values, flow([layer.weights for layer in view.layers], position))
    assert page_data(regard.look(model, "a dog runs", "").html())["flow"]["position"] == position  # type: ignore[index]
