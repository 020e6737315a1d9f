"""Tuning a model that exists: what is frozen stays to the bit, rates fall layer by layer, adapters are small and merge."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import DataError, SpecError
from regard.families import gpt, t5
from regard.files.folder import read_folder
from regard.model.net import Net
from regard.training.finetune import FineTuning, Initialization
from regard.training.optimizer import OPTIMIZERS, set_learning_rate, set_rate_factors
from regard.training.request import TrainRequest
from regard.training.run.checkpoint import Checkpoints
from regard.training.train import run_training
from tests.training.small import HARD, events, interrupted, traces

pytestmark = pytest.mark.numeric

TEXT = "the cat sat on the mat; the dog sat on the cat. " * 8
TINY: dict[str, Any] = {
    "data.context": 12,
    "train.steps": 6,
    "train.batch_tokens": 48,
    "train.schedule": {"kind": "constant", "lr": 1e-2},
    "train.validate_every": 3,
    "train.save_every": 4,
    "train.log_every": 1,
    "train.threads": 1,
    "train.precision": "float32",
}
SHAPE: dict[str, Any] = {"model.width": 16, "model.depth": 3, "model.heads": 2, "model.hidden": 32}
LORA = {"lora": {"rank": 2, "targets": ["q", "v"]}}
EVERYTHING = {name: value for name, value in HARD.items() if name not in ("train.batch_tokens", "model.dropout")}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture(scope="module")
def start(text: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model to start from; its head is the embedding's own table."""
    out = tmp_path_factory.mktemp("start") / "run"
    run_training(TrainRequest("gpt", (text,), set=TINY | SHAPE, out=str(out), quiet=True))
    return str(out)


def tuned(start: str, text: str, out: Path, tune: dict[str, Any] | None, **changes: Any) -> TrainRequest:
    settings = TINY | {"train.finetune": tune} | {name.replace("__", "."): value for name, value in changes.items()}
    return TrainRequest("finetune", (text,), set=settings, start=start, out=str(out), quiet=True)


def weights(folder: Path | str) -> dict[str, torch.Tensor]:
    return read_folder(Path(folder) / "final").tensors()


def moved(start: str, out: Path) -> set[str]:
    """The weights that are not what they were, to the bit."""
    old, new = weights(start), weights(out)
    assert old.keys() == new.keys()
    return {name for name in old if not torch.equal(old[name], new[name])}


# What is frozen.


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("extra", [{}, EVERYTHING], ids=["plain", "everything"])
def test_frozen_weights_are_the_same_to_the_bit(
    start: str, text: str, tmp_path: Path, optimizer: str, extra: dict[str, Any]
) -> None:
    """Under every optimiser, weight decay, EMA, accumulation and averaging; the head, tied to the embedding, stays too."""
    changes = {"train.optimizer": optimizer} | extra
    run_training(tuned(start, text, tmp_path, {"freeze": 2}, **{k.replace(".", "__"): v for k, v in changes.items()}))
    names = moved(start, tmp_path)
    assert not any(name.startswith(("embed.", "decoder.blocks.0.", "decoder.blocks.1.")) for name in names)
    assert any(name.startswith("decoder.blocks.2.") for name in names)
    assert any(name.startswith("decoder.norm.") for name in names)


def test_no_gradient_is_computed_for_what_is_frozen(start: str) -> None:
    net, loss = small(gpt_spec()), 0.0
    FineTuning(freeze=2).apply(net, (), 1)
    seen = []
    for block in net.decoder.blocks:  # type: ignore[union-attr]
        block.register_forward_hook(lambda _, __, out: seen.append(out[0].requires_grad))
    stream = net(torch.arange(6).unsqueeze(0), at(6))
    loss, _ = net.loss(stream, torch.arange(1, 7).unsqueeze(0))
    loss.backward()
    assert seen == [False, False, True], "there is no graph below the first block that learns"
    grads = {name for name, p in net.named_parameters() if p.grad is not None}
    assert grads == {name for name in net.shapes() if name.startswith(("decoder.blocks.2.", "decoder.norm."))}


def test_patterns(start: str, text: str, tmp_path: Path) -> None:
    run_training(tuned(start, text, tmp_path, {"freeze": ["*.mix.*", "embed.*"]}))
    names = moved(start, tmp_path)
    assert names
    assert all(".feed" in name or "norm" in name for name in names)


def test_each_stack_of_an_encoder_decoder_is_frozen_from_below() -> None:
    net = small(t5.spec(width=16, depth=2, heads=2, hidden=32, vocab=11))
    FineTuning(freeze=1).apply(net, (), 1)
    learns = {name for name, p in net.named_parameters() if p.requires_grad}
    stacks = [f"{side}.{part}" for side in ("encoder", "decoder") for part in ("blocks.1.", "norm.")]
    assert learns == {name for name in net.shapes() if name.startswith((*stacks, "head."))}


@pytest.mark.parametrize(
    ("tune", "said"),
    [
        (FineTuning(freeze=4), "train.finetune.freeze is 4 blocks, but a stack has only 3"),
        (FineTuning(freeze=("x.*",)), "no weight matches 'x.*' (train.finetune.freeze); `regard show` lists the names"),
        (FineTuning(freeze=("*",)), "train.finetune freezes every weight: nothing is left to train"),
    ],
)  # fmt: skip
def test_refusals(tune: FineTuning, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        tune.apply(small(gpt_spec()), (), 1)
    assert str(caught.value) == said


# How fast.


def test_rates_fall_layer_by_layer() -> None:
    """A first step of Adam is the rate itself: what each weight moved says how fast it learns."""
    net = small(gpt_spec())
    tune, before = FineTuning(layer_decay=0.5), {name: p.detach().clone() for name, p in net.named_parameters()}
    optimizer = OPTIMIZERS["adam"]().build(net)
    set_rate_factors(net, optimizer, tune.factors(before))
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    set_learning_rate(optimizer, 1e-3)
    optimizer.step()
    want = {"embed.": 4, "decoder.blocks.0.": 3, "decoder.blocks.1.": 2, "decoder.blocks.2.": 1, "decoder.norm.": 0}
    for name, p in net.named_parameters():
        below = next(height for prefix, height in want.items() if name.startswith(prefix))
        step = torch.full_like(p, 1e-3 * 0.5**below)
        torch.testing.assert_close(before[name] - p, step, rtol=1e-6, atol=0, msg=name)


def test_factors_of_an_encoder_decoder() -> None:
    net = small(t5.spec(width=16, depth=2, heads=2, hidden=32, vocab=11))
    factors = FineTuning(layer_decay=0.9).factors(net.shapes())
    assert {round(factor, 9) for name, factor in factors.items() if ".blocks.1." in name} == {0.9}
    assert {round(factor, 9) for name, factor in factors.items() if ".blocks.0." in name} == {0.81}
    assert factors["embed.weight"] == factors["encoder.position.weight"] == pytest.approx(0.729)
    assert factors["encoder.norm.weight"] == factors["decoder.norm.weight"] == 1.0


# Adapters.


def test_adapters_alone_learn_and_the_finished_model_is_plain(start: str, text: str, tmp_path: Path) -> None:
    run_training(tuned(start, text, tmp_path, LORA))
    names = {f"decoder.blocks.{i}.mix.{part}.weight" for i in range(3) for part in "qv"}
    assert moved(start, tmp_path) == names
    model = regard.load(tmp_path)
    assert model.spec == regard.load(start).spec
    assert model.run(["the"], sample=False, max_extra=3)
    best = min(event["loss"] for event in events(tmp_path, "valid"))
    assert events(tmp_path, "done")[0]["scores"]["loss"] == pytest.approx(best, rel=1e-5), "merged as it was adapted"


def test_checkpoints_of_adapters_are_small(start: str, text: str, tmp_path: Path) -> None:
    run_training(tuned(start, text, tmp_path, LORA))
    loaded = Checkpoints(tmp_path / "checkpoints").load_newest()
    assert loaded is not None
    kept = loaded.groups["weights"]
    assert set(kept) == {
        f"decoder.blocks.{i}.mix.{m}.{part}" for i in range(3) for m in "qv" for part in ("down", "up")
    }
    assert sum(t.numel() for t in kept.values()) < 0.1 * sum(t.numel() for t in weights(start).values())
    assert {name.split("/")[0] for name in loaded.groups["optimizer"]} == set(kept)


@pytest.mark.parametrize(
    "tune", [LORA, {"freeze": 2}, {"layer_decay": 0.7, **LORA}, None], ids=["lora", "freeze", "rates", "whole"]
)
def test_stopped_and_resumed_is_never_stopped(
    start: str, text: str, tmp_path: Path, tune: dict[str, Any] | None
) -> None:
    changes = {name.replace(".", "__"): value for name, value in EVERYTHING.items()}
    if tune is not None and "lora" in tune:
        tune = {**tune, "lora": {**tune["lora"], "dropout": 0.2}}
    run_training(tuned(start, text, tmp_path / "whole", tune, **changes))
    interrupted(tuned(start, text, tmp_path / "parts", tune, **changes), 1, 4, 5)
    assert traces(tmp_path / "parts") == traces(tmp_path / "whole")


def test_with_adapters_a_new_head_learns_too() -> None:
    net = small(dataclasses.replace(gpt_spec(), head=gpt_spec().head.overlay({"tied": False})))
    FineTuning.parse(LORA).apply(net, ("head.weight",), 1)
    learns = {name for name, p in net.named_parameters() if p.requires_grad}
    assert learns == {"head.weight"} | {
        name for name in net.shapes() if name.endswith((".q.down", ".q.up", ".v.down", ".v.up"))
    }


# The recipe.


def test_the_recipe_goes_on_with_the_models_own_task_and_settings(start: str, text: str, tmp_path: Path) -> None:
    order = tuned(start, text, tmp_path, None)
    settings = {name: value for name, value in order.set.items() if name != "data.context"}
    run_training(dataclasses.replace(order, set=settings))
    old, new = (read_folder(Path(folder) / "final").json("config.json") for folder in (start, tmp_path))
    assert (new["task"], new["decode"], new["model"]) == ("lm", old["decode"], old["model"])
    assert new["settings"]["context"] == 12
    assert len(moved(start, tmp_path)) == len(weights(start)), "everything learns"


def test_the_recipe_says_what_it_needs(start: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^task is missing: name one, or give a model to start from \(--from MODEL\)"):
        run_training(TrainRequest("finetune", out=str(tmp_path), quiet=True))
    with pytest.raises(DataError, match="no training data; name a text file"):
        run_training(TrainRequest("finetune", out=str(tmp_path), start=start, quiet=True))


def test_what_was_taken_is_said() -> None:
    names = tuple(f"head.{i}" for i in range(8))
    assert Initialization(("a", "b"), (), names).lines("m") == [
        "from m: 2 weights taken",
        "new, to be trained: head.0, head.1, head.2, head.3, head.4, head.5 … and 2 more",
    ]
    assert Initialization(("a",), ("head.x",), ()).lines("m") == ["from m: 1 weights taken", "not used: head.x"]


def gpt_spec() -> Any:
    return gpt.spec(width=16, depth=3, heads=2, hidden=32, vocab=11, length=8, dropout=0.0)


def small(spec: Any) -> Net:
    return spec.build(1).double()  # type: ignore[no-any-return]


def at(n: int) -> Any:
    from regard.nn.core.coords import Coords

    return Coords.span(n)


# Another task than the model was made for.


@pytest.fixture(scope="module")
def encoder(text: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An encoder that fills in what was hidden."""
    out = tmp_path_factory.mktemp("encoder") / "run"
    small = SHAPE | {name: value for name, value in TINY.items() if name.startswith("train.")}
    small |= {
        "data.tokenizer": {"kind": "wordpiece", "vocab": 60},
        "data.documents": "file",
        "data.next_sentence": False,
    }
    small |= {"data.context": 32, "data.dupe_factor": 1}
    run_training(TrainRequest("bert", (text,), set=small, out=str(out), quiet=True))
    return str(out)


@pytest.mark.parametrize("tune", [None, LORA, {"freeze": 2}], ids=["whole", "lora", "freeze"])
def test_a_classifier_from_a_model_that_fills_in(encoder: str, tmp_path: Path, tune: dict[str, Any] | None) -> None:
    """The head is new and learns; body and vocabulary are those of the model."""
    rows = "".join(f"the {animal} sat {i}\t{animal}\n" for i in range(12) for animal in ("cat", "dog"))
    (tmp_path / "animals.tsv").write_text("text\tlabel\n" + rows)
    settings = {name: value for name, value in TINY.items() if name.startswith("train.")} | {"train.finetune": tune}
    settings |= {"data.max_length": 24}
    out = tmp_path / "run"
    run_training(
        TrainRequest(
            "classify", (str(tmp_path / "animals.tsv"),), set=settings, start=encoder, out=str(out), quiet=True
        )
    )
    told = events(out, "start")[0]["weights"]
    old, new = weights(encoder), weights(out)
    assert set(told["new"]) == {name for name in new if name.startswith("head.")}, "also what is called as before"
    assert all(name.startswith(("head.", "beside.")) for name in told["left"])
    moved = {name for name in told["taken"] if not torch.equal(old[name], new[name])}
    if tune is None:
        assert any(name.startswith("embed.") for name in moved)
    elif "lora" in tune:
        assert moved == {f"encoder.blocks.{i}.mix.{part}.weight" for i in range(3) for part in "qv"}
    else:
        assert moved
        assert all(name.startswith(("encoder.blocks.2.", "encoder.norm.")) for name in moved)
    fresh = regard.load(out)
    assert fresh.tokenizer.size == regard.load(encoder).tokenizer.size
    assert fresh.run(["the cat sat"])[0] in ("cat", "dog")
