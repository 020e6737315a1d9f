"""CTranslate2, the peer of the benchmarks: an oracle for what the engines compute."""

from __future__ import annotations

import numpy as np
import pytest
from bench.ctranslate2_engine import CTranslate2Engine, find_refusal

from regard.decode import Constraints, Request, Search, generate
from regard.engine.torch_engine import TorchEngine
from regard.errors import SpecError
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
    mine = [[h.tokens for h in each] for each in engine.decode(Request(sources, search, SPECIAL))]
    assert mine == [[h.tokens for h in each] for each in generate([net], Request(sources, search, SPECIAL))]
    with pytest.raises(SpecError, match="measured with greedy and beam search alone"):
        engine.decode(Request(sources, search, SPECIAL, Constraints(prefixes=[[9, 5]] * 9)))


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


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("transformer", "marian", "bart")])
def test_other_models_are_refused_with_a_reason(name: str) -> None:
    pytest.importorskip("ctranslate2")
    assert find_refusal(build(ALL[name]))
