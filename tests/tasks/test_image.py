"""Image classification: from bytes to classes, other sizes and colours, and pictures that move in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

from regard.api import Model
from regard.data.augment import Augment
from regard.data.images import ImageSet, LoadedImage
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import CheckpointError, DataError, SpecError
from regard.families import bert, vit
from regard.nn.core.coords import Coords
from regard.tasks.common.task import Dataset
from regard.tasks.image import Image, ImageData, ImageOptions
from tests.laws.uses import digits
from tests.verbs.calling import call
from tests.verbs.conftest import settings

pytestmark = pytest.mark.numeric

DRAW = np.random.Generator(np.random.PCG64(0))
PIXELS = DRAW.integers(0, 255, (6, 8, 8, 1), dtype=np.uint8)
PICTURES = ImageSet(PIXELS, np.arange(6) % 2, ("cat", "dog"), "x")
SMALL: dict[str, Any] = dict(width=16, depth=1, heads=2, hidden=32, patch=4, dropout=0.0)


def made(**more: Any) -> Image:
    return Image(ImageData(**more), ("cat", "dog"), 8, [0.4], [0.3])


def net_of(task: Image, **more: Any) -> Any:
    return task.adapt_spec(vit.spec(**SMALL, **task.model_arguments(), **more)).build(seed=1).double().eval()


@torch.no_grad()
@pytest.mark.parametrize("pool", ["first", "mean"])
def test_classes_are_the_softmax_of_normalised_pixels(pool: str) -> None:
    task = made()
    net = net_of(task, pool=pool)
    images = (torch.from_numpy(PIXELS).permute(0, 3, 1, 2).double() / 255 - 0.4) / 0.3
    at = Coords.span(4 + (pool == "first"))
    wanted = net.logits(net(images, at), at).softmax(-1)
    found = task.run(TorchEngine(net), [PICTURES[i] for i in range(6)], Search())
    for (best,), row in zip(found, wanted, strict=True):
        assert best.more["probabilities"] == pytest.approx(dict(zip(task.classes, row.tolist(), strict=True)), abs=1e-6)
    assert task.score(TorchEngine(net), [PICTURES[0]], ["dog"])[0] == pytest.approx(float(wanted[0, 1].log()), abs=1e-5)
    loss = task.loss(net, task.batch(task.encode(PICTURES), np.arange(6)), 0.0)
    assert float(loss.plain) == pytest.approx(-float(wanted[np.arange(6), np.arange(6) % 2].log().sum()), rel=1e-5)


def test_normalisation_is_that_of_the_training_pictures() -> None:
    task = Image.prepare(ImageData(), Dataset(PICTURES, PICTURES, "", {}))
    values = PIXELS / 255
    assert task.mean == pytest.approx([values.mean()])
    assert task.deviation == pytest.approx([values.std()])
    again = Image.load(ImageData(), task.files())
    assert (again.mean, again.deviation, again.side, again.classes) == (task.mean, task.deviation, 8, ("cat", "dog"))


def test_training_pictures_move_and_others_do_not() -> None:
    task = made(augment=Augment(shift=2))
    examples, every = task.encode(PICTURES), np.arange(6)
    still = task.batch(examples, every).pixels
    assert torch.equal(still, torch.from_numpy(PIXELS).permute(0, 3, 1, 2))
    first, again, later = (task.batch(task.augment(examples, 1, e), every).pixels for e in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, still) and not torch.equal(first, later)
    alone = task.batch(task.augment(examples, 1, 0), np.array([4])).pixels
    assert torch.equal(alone[0], first[4]), "whatever else is in the batch"


def test_files_of_any_size_and_colour(tmp_path: Path) -> None:
    task = made()
    net = net_of(task)
    colour = np.repeat(PIXELS[0], 3, 2)
    for name, pixels in (("grey.png", PIXELS[0][..., 0]), ("colour.png", colour)):
        Pillow.fromarray(pixels).save(tmp_path / name)
    Pillow.fromarray(colour).resize((30, 20)).save(tmp_path / "large.png")
    names = [str(tmp_path / f"{name}.png") for name in ("grey", "colour", "large")]
    grey, seen, _ = task.run(TorchEngine(net), names, Search())
    assert grey[0].log_prob == pytest.approx(seen[0].log_prob)
    other = task.run(TorchEngine(net), names, Search(), ImageOptions(side=16))
    assert [len(each) for each in other] == [1, 1, 1]
    assert other[0][0].log_prob != grey[0].log_prob
    weights, tokens, _ = task.forward_pass(net, names[0], "cat").attention(net)
    assert tokens == ["first", "0,0", "0,1", "1,0", "1,1"]
    assert weights["encoder.blocks.0.mix"].shape == (2, 5, 5)


def test_what_is_refused(tmp_path: Path) -> None:
    task = made()
    with pytest.raises(DataError, match=r"no training data; name a folder of IDX files \(MNIST\), or a folder or tar"):
        Image.read(ImageData(), 1)
    with pytest.raises(SpecError, match="images come in one folder or tar file, got 2: a, b"):
        Image.configure_data(["a", "b"])
    with pytest.raises(SpecError, match=r"images need a model that reads patches; use model\.family: vit"):
        task.adapt_spec(bert.spec(width=16, depth=1, heads=2, vocab=9, length=16))
    with pytest.raises(SpecError, match="the model reads 3 channels, but these images have 1"):
        task.adapt_spec(vit.spec(**SMALL, image=8, classes=2))
    with pytest.raises(DataError, match="x is in color, but the model was trained on grayscale images"):
        task.encode(ImageSet(np.repeat(PIXELS, 3, 3), np.arange(6) % 2, ("cat", "dog"), "x"))
    with pytest.raises(DataError, match="x has a class 'cow' that the model does not have; it has 'cat', 'dog'"):
        task.encode(ImageSet(PIXELS, np.arange(6) % 2, ("cat", "cow"), "x"))
    ((one,),) = task.run(TorchEngine(net_of(task)), [LoadedImage("y", PIXELS[0, :6])], Search())
    assert one.error == "y should be (8, 8, 1), got (6, 8, 1); give its path instead"
    with pytest.raises(CheckpointError, match=r"classes\.json has no 'side'; it is not from a model that reads images"):
        Image.load(ImageData(), {"classes.json": b'{"classes": ["a", "b"]}'})
    for said, fault in (
        (b'"side": "x", "mean": [1], "deviation": [1]', "side: "),
        (b'"side": 1e999, "mean": [1], "deviation": [1]', "side: "),
        (b'"side": 8, "mean": 5, "deviation": [1]', "mean: "),
        (b'"side": 8, "mean": [NaN], "deviation": [1]', "mean"),
        (b'"side": 8, "mean": [1], "deviation": [0]', "deviation"),
        (b'"side": 8, "mean": [1, 1], "deviation": [1]', "the same number of channels, got 2, 1"),
    ):
        with pytest.raises(CheckpointError, match=rf"classes\.json: .*{fault}"):
            Image.load(ImageData(), {"classes.json": b'{"classes": ["a", "b"], ' + said + b"}"})
    (tmp_path / "a" / "one").mkdir(parents=True)
    Pillow.fromarray(PIXELS[0, :6, :, 0]).save(tmp_path / "a" / "one" / "x.png")
    with pytest.raises(DataError, match=r"images of a are 6 × 8; set data\.side to resize them to squares"):
        Image.read(ImageData(train=str(tmp_path / "a")), 1)
    with pytest.raises(DataError, match="a has one class, 'one'; at least two are needed"):
        Image.read(ImageData(train=str(tmp_path / "a"), side=8), 1)
    said = "x reads and writes no text, so it has no tokenizer"
    with pytest.raises(SpecError, match=said):
        _ = Model(TorchEngine(net_of(task)), task, Search(), Path("x")).tokenizer


def test_the_recipe_on_the_command_line(tmp_path: Path) -> None:
    """Trained, judged on the part that was never seen, and asked about a file."""
    digits(tmp_path)
    small = settings(
        "model.width=16", "model.depth=1", "model.hidden=32", "model.heads=2", "model.patch=4", "train.epochs=8",
        "train.batch_tokens=32",
        "train.schedule={kind: constant, lr: 1.0e-2}", "train.threads=1", "data.augment.shift=0",
    )  # fmt: skip
    out = tmp_path / "run"
    assert call("train", "vit", tmp_path, "--out", out, *small, "--quiet").code == 0
    said = call("eval", out, tmp_path)
    assert "12 pairs of" in said.out and "class, by run" in said.out
    Pillow.fromarray(PIXELS[0, ..., 0]).save(tmp_path / "x.png")
    assert call("run", out, tmp_path / "x.png", tmp_path / "x.png").lines in (["0", "0"], ["1", "1"])
    assert "cannot read" in call("run", out, "nowhere.png").err
    assert "name a folder of IDX files" in call("train", "vit", "--out", tmp_path / "none").err
