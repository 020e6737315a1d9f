"""CTranslate2 as an engine: an oracle for what the others compute."""

from __future__ import annotations

import numpy as np
import pytest

from regard.decode import Constraints, Search, generate
from regard.decode.engine import find_engine
from regard.engine.choose_engine import choose_engine, use_engine
from regard.engine.ctranslate2_engine import CTranslate2Engine, find_refusal
from regard.engine.torch_engine import TorchEngine
from regard.errors import NoRoom, SpecError
from regard.nn.blocks.embedding import Tokens
from regard.nn.layers.norm import LayerNorm, RMSNorm
from tests.engine.models import ALL, FAMILIES, SPECIAL, VOCAB, build, make_sources

pytestmark = [pytest.mark.numeric, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", ["transformer", "marian", "bart"])
def test_translates_and_scores_as_torch_does(name: str) -> None:
    pytest.importorskip("ctranslate2")
    net = build(FAMILIES[name])
    engine, sources, targets = CTranslate2Engine(net, threads=1), make_sources(net), [[5, 9, 7, SPECIAL.eos]] * 9
    for found, want in zip(
        engine.score(sources, targets, SPECIAL), TorchEngine(net).score(sources, targets, SPECIAL), strict=True
    ):
        assert np.allclose(found, want, atol=1e-4)
    search = Search(beam=1, max_extra=9, repetition_guard=False)
    mine = [[h.tokens for h in each] for each in engine.decode(sources, search, SPECIAL)]
    assert mine == [[h.tokens for h in each] for each in generate([net], sources, search, SPECIAL)]
    begun = engine.decode(sources, search, SPECIAL, constraints=Constraints(prefixes=[[9, 5]] * 9))
    assert all(each[0].tokens[:2] == (9, 5) for each in begun)


def test_it_is_used_when_asked_for() -> None:
    pytest.importorskip("ctranslate2")
    net = build(FAMILIES["transformer"])
    use_engine(net, choose_engine(net, "ctranslate2"))
    engine = find_engine([net])
    assert engine is not None and engine.name == "ctranslate2"
    assert engine.find_refusal(Search(sample=True, beam=1), Constraints()) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"embed.scaled": 3.0},
        {"embed.norm": RMSNorm()},
        {"embed.norm": LayerNorm(1e-2)},
        {"embed.norm": LayerNorm(), "source": Tokens(VOCAB)},
        {"embed.width": 16},
    ],
    ids=str,
)
def test_embeddings_that_it_lacks_are_refused(changes: dict[str, object]) -> None:
    pytest.importorskip("ctranslate2")
    spec = FAMILIES["transformer"]
    for path, value in changes.items():
        spec = spec.replace(path, value)
    assert find_refusal(build(spec))


def test_a_request_that_cannot_be_met_does_not_enter_a_batch() -> None:
    pytest.importorskip("ctranslate2")
    batch = CTranslate2Engine(build(FAMILIES["transformer"]), threads=1).open_batch()
    with pytest.raises(NoRoom, match="the required text has 20 tokens"):
        batch.add([5, 2], Search(max_extra=9), SPECIAL, constraints=Constraints(prefixes=[[5] * 20]))
    with pytest.raises(SpecError, match="engine ctranslate2: terms that outputs must include"):
        batch.add([5, 2], Search(), SPECIAL, constraints=Constraints(must_include=[[[5]]]))
    assert len(batch) == 0


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("transformer", "marian", "bart")])
def test_other_models_are_refused_with_a_reason(name: str) -> None:
    pytest.importorskip("ctranslate2")
    net = build(ALL[name])
    assert find_refusal(net)
    with pytest.raises(SpecError, match=r"engine ctranslate2: .*; use --engine auto"):
        choose_engine(net, "ctranslate2")
