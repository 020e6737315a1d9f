"""What cannot be shown is said in one line that names what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import regard
from regard.data.batch import IGNORE
from regard.data.stories import parse_story
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import SpecError
from regard.families import gpt, memn2n, transformer
from regard.interpret import attribution, heads, interventions, logit_lens
from regard.interpret.view import View, look_at
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.tasks.babi import Babi, BabiData
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.task import Dataset
from regard.tasks.lm import Lm, LmData
from regard.text import Tokenizer
from regard.text.tokenizer_specs import Chars

pytestmark = pytest.mark.numeric

SMALL = dict(width=16, depth=1, heads=2, hidden=16, vocab=11)
STORY = "Mary went home. Where is Mary?"


def pass_of(spec: ModelSpec, ids: list[int]) -> tuple[Net, ForwardPass]:
    net = spec.build(seed=1).eval()
    return net, ForwardPass.of(net, ids, [*ids[1:], IGNORE])


def recurrent() -> tuple[Net, ForwardPass]:
    return pass_of(gpt.spec(**SMALL, length=8).replace("decoder.block.mix", {"kind": "lstm"}), [3, 4, 5])


def asked(folder: Path) -> regard.Model:
    stories = [dataclasses.replace(parse_story(STORY), answer="home")]
    task = Babi.prepare(BabiData(memory=5), Dataset(stories, [], "", {}))
    net = memn2n.spec(width=8, memory=5, vocab=len(task.classes)).build(seed=1).eval()
    return regard.Model(TorchEngine(net), task, Search(), folder)


def show(net: Net, read: ForwardPass) -> View:
    return look_at(net, read, text="", output="", title="", names=[str(i) for i in range(11)])


def patch_apart() -> object:
    net = transformer.spec(**SMALL).build(seed=1).eval()
    read = ForwardPass.of(net, [3, 4], [4, 2])
    return interventions.patch(net, read.after([5, 6]), read.after([5, 6, 7]), ["encoder.embed"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: show(*recurrent()), "no layer of this model has attention weights to show; `regard show` lists its mixers"),
        (lambda: attribution.attention(*recurrent()), "this model has no attention weights; use another method"),
        (patch_apart, "patching needs inputs of equally many tokens, got 2 and 3"),
        (lambda: heads.rank_links({}, [], [1]), "a link needs at least one token on either side"),
    ],
)  # fmt: skip
def test_of_one_pass(call: Callable[[], object], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        call()
    assert str(caught.value) == message


def test_of_a_memory_network(tmp_path: Path) -> None:
    model = asked(tmp_path)
    with pytest.raises(SpecError, match="this model has no attention between tokens to look for links in"):
        regard.look(model, STORY, link=("mary", "home"))
    with pytest.raises(
        SpecError, match="the encoder of this model is not a stack of blocks, so its layers cannot be read"
    ):
        logit_lens.read_layers(model.net, model.forward_pass(STORY, "home"))


def test_of_a_stream_that_is_not_one_tensor() -> None:
    spec = gpt.spec(**SMALL, length=8).replace("decoder.wiring", {"kind": "reversible"})
    with pytest.raises(SpecError, match=r"the stream after decoder\.blocks\.0 is not a single tensor"):
        logit_lens.read_layers(*pass_of(spec, [3, 4, 5]))


def test_of_a_text_that_no_page_holds(tmp_path: Path) -> None:
    """It is refused before weights are computed."""
    tokenizer = Tokenizer.train(["ab"], Chars())
    net = gpt.spec(**{**SMALL, "vocab": tokenizer.size}, length=5000).build(seed=1).eval()
    model = regard.Model(TorchEngine(net), Lm(LmData(context=5000), tokenizer), Search(), tmp_path)
    with pytest.raises(SpecError, match="the text has more than 4,096 tokens, which no page can show; look at a part"):
        regard.look(model, "ab" * 2100, "")
    with pytest.raises(SpecError, match="no layer of this model has attention weights to describe"):
        plain = dataclasses.replace(net.spec, length=64).replace("decoder.block.mix", {"kind": "lstm"})
        (tmp_path / "book.txt").write_text("abba " * 40, encoding="utf-8")
        other = regard.Model(
            TorchEngine(plain.build(seed=1).eval()), Lm(LmData(context=64), tokenizer), Search(), tmp_path
        )
        regard.look_at_data(other, tmp_path / "book.txt", describe=True, examples=1)


def test_nothing_is_recorded_by_a_refusal() -> None:
    net, read = recurrent()
    before = read.log_probs(net)
    with pytest.raises(SpecError):
        show(net, read)
    assert net.tape is None
    assert torch.equal(before, read.log_probs(net))
