"""Attribution, interventions, lens, rollout and probes against others' implementations and plain twins."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import captum.attr
import networkx
import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from regard.data.batch import IGNORE
from regard.errors import DataError, SpecError, UnknownName
from regard.families import bert, gpt, transformer
from regard.interpret import attribution, faithfulness, heads, interventions, logit_lens, probing, rollout
from regard.interpret.look_page import render_page
from regard.interpret.terminal_view import render_view
from regard.interpret.view import look_at
from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.tasks.common.forward_pass import ForwardPass

pytestmark = pytest.mark.numeric

SMALL: dict[str, Any] = dict(width=16, depth=2, heads=4, hidden=24, vocab=11)
IDS, SOURCE = [3, 5, 4, 9, 7], [6, 8, 4, 10]
CLOSE: dict[str, float] = dict(rtol=1e-5, atol=1e-5)


def writer() -> tuple[Net, ForwardPass]:
    net = gpt.spec(**SMALL, length=16).build(seed=1).eval()
    return net, ForwardPass.of(net, IDS, [*IDS[1:], IGNORE])


def reader() -> tuple[Net, ForwardPass]:
    net = bert.spec(**SMALL, length=16).build(seed=2).eval()
    return net, ForwardPass.of(net, IDS, [IGNORE, 4, IGNORE, 8, IGNORE])


def translator() -> tuple[Net, ForwardPass]:
    net = transformer.spec(**SMALL).build(seed=3).eval()
    return net, ForwardPass.of(net, IDS, [*IDS[1:], 2]).after(SOURCE)


CASES: dict[str, Callable[[], tuple[Net, ForwardPass]]] = {
    "decoder": writer,
    "encoder": reader,
    "encoder-decoder": translator,
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Net, ForwardPass]:
    return CASES[request.param]()


def as_function(net: Net, read: ForwardPass, prediction: int) -> Any:
    """log P as a function of the embeddings, for captum, the embeddings, and those of padding."""
    places = attribution.embeddings(net, read)

    def run(*inputs: Tensor) -> Tensor:
        replace = {place: (lambda _, x=x: x) for place, x in zip(places, inputs, strict=True)}
        return read.repeat(len(inputs[0])).log_probs(net, Tape(replace=replace))[:, prediction]

    return run, tuple(x for x, _ in places.values()), tuple(base for _, base in places.values())


def sides(found: attribution.Attribution) -> list[Tensor]:
    return [side for side in (found.source, found.tokens) if len(side)]


def test_integrated_gradients_are_captums(case: tuple[Net, ForwardPass]) -> None:
    net, read = case
    run, inputs, bases = as_function(net, read, 1)
    theirs = captum.attr.IntegratedGradients(run).attribute(inputs, bases, method="riemann_middle", n_steps=20)
    ours = attribution.integrated_gradients(net, read, 1, steps=20)
    for mine, other in zip(sides(ours), theirs, strict=True):
        torch.testing.assert_close(mine, other[0].sum(-1).double(), **CLOSE)


def test_integrated_gradients_add_up(case: tuple[Net, ForwardPass]) -> None:
    net, read = case
    run, inputs, bases = as_function(net, read, 0)
    with torch.no_grad():
        gap = run(*inputs) - run(*bases)
    found = attribution.integrated_gradients(net, read, 0, steps=2000)
    assert float(found.all.sum()) == pytest.approx(float(gap), abs=1e-3)


def test_gradient_times_input_is_captums(case: tuple[Net, ForwardPass]) -> None:
    net, read = case
    run, inputs, bases = as_function(net, read, 1)
    slopes = captum.attr.Saliency(run).attribute(tuple(x.requires_grad_() for x in inputs), abs=False)
    found = sides(attribution.gradient_x_input(net, read, 1))
    for mine, slope, x, base in zip(found, slopes, inputs, bases, strict=True):
        torch.testing.assert_close(mine, (slope * (x - base)).detach()[0].sum(-1).double(), **CLOSE)


def test_occlusion_is_captums(case: tuple[Net, ForwardPass]) -> None:
    net, read = case
    run, inputs, bases = as_function(net, read, 1)
    windows = tuple((1, x.shape[2]) for x in inputs)
    theirs = captum.attr.Occlusion(run).attribute(inputs, baselines=bases, sliding_window_shapes=windows)
    for mine, other in zip(sides(attribution.occlusion(net, read, 1)), theirs, strict=True):
        torch.testing.assert_close(mine, other[0, :, 0].double(), **CLOSE)


def test_one_sweep_occludes_for_all_predictions(case: tuple[Net, ForwardPass]) -> None:
    net, read = case
    for i, found in enumerate(attribution.occlude(net, read, [0, 1])):
        for mine, other in zip(sides(found), sides(attribution.occlusion(net, read, i)), strict=True):
            torch.testing.assert_close(mine, other, **CLOSE)


def test_a_long_text_is_seen_without_what_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pass for each token of a text of thousands; the view says so, and draws the rest."""
    net, read = writer()
    whole = look_at(net, read, title="a", text="b", output="c", names=["x"] * 50)
    assert whole.attribution is not None and not whole.omitted
    monkeypatch.setattr("regard.interpret.view.OCCLUDED", 4)
    monkeypatch.setattr("regard.interpret.view.occlude", None)
    short = look_at(net, read, title="a", text="b", output="c", names=["x"] * 50)
    (note,) = short.omitted
    assert short.attribution is None and "is not computed" in note and "the limit is 2 tokens" in note
    assert note in render_view(short) and "is not computed" in render_page([short])


def test_a_prediction_that_does_not_exist() -> None:
    with pytest.raises(SpecError, match="there are 2 predictions here, counted from 0, got 2"):
        attribution.occlusion(*reader(), 2)


@pytest.mark.parametrize("head", [0, 3])
def test_a_head_without_its_columns_is_an_ablated_head(head: int) -> None:
    net, read = writer()
    (found,) = interventions.ablate(net, [read], [f"decoder.blocks.1.mix.head.{head}"])
    plain = read.log_probs(net).detach()
    weight = net.decoder.blocks[1].mix.out.weight  # type: ignore[union-attr, index]
    with torch.no_grad():
        weight[:, head * 4 : head * 4 + 4] = 0
        assert found.zero.score == pytest.approx(float((plain - read.log_probs(net)).mean()), abs=1e-6)
    assert found.zero.low == found.zero.high == pytest.approx(found.zero.score), "one example has no spread"


def test_a_head_with_its_mean_in_the_bias_is_a_mean_ablated_head() -> None:
    """Over two examples of different length: their positions count alike."""
    net, read = writer()
    short = dataclasses.replace(
        read, ids=read.ids[:, :-2], wanted=read.wanted[:, :-2], tokens=read.tokens[:-2], at=Coords.span(read.at.n - 2)
    )
    place, examples = "decoder.blocks.1.mix.head.2", [read, short]
    (found,) = interventions.ablate(net, examples, [place])
    outputs = []
    for each in examples:
        tape = Tape(place)
        each.run(net, tape)
        outputs.append(tape.kept[place][0])
    plain = [each.log_probs(net).detach() for each in examples]
    out = net.decoder.blocks[1].mix.out  # type: ignore[union-attr, index]
    with torch.no_grad():
        out.bias += out.weight[:, 8:12] @ torch.cat(outputs).mean(0)
        out.weight[:, 8:12] = 0
        falls = [a - each.log_probs(net) for a, each in zip(plain, examples, strict=True)]
    assert found.mean.score == pytest.approx(float(torch.cat(falls, 1).mean()), abs=1e-6)
    assert found.mean.score != pytest.approx(found.zero.score, abs=1e-4)


def test_nothing_stays_behind() -> None:
    net, read = writer()
    before = read.log_probs(net)
    interventions.ablate(net, [read], interventions.list_places(net, read, "*.head.*"))
    assert net.tape is None
    assert torch.equal(before, read.log_probs(net))


def test_places_are_named_and_unknown_ones_refused() -> None:
    net, read = writer()
    assert interventions.list_places(net, read, "*.mix.head.0") == [
        "decoder.blocks.0.mix.head.0",
        "decoder.blocks.1.mix.head.0",
    ]
    with pytest.raises(UnknownName, match=r"no place 'decoder.blocks.2.mix'; did you mean 'decoder.blocks.[01].mix'"):
        interventions.ablate(net, [read], ["decoder.blocks.2.mix"])
    with pytest.raises(DataError, match="no examples"):
        interventions.ablate(net, [], ["decoder.blocks.1.mix"])


def test_patching_brings_back_what_the_input_was() -> None:
    net, clean = writer()
    other = [3, 5, 8, 9, 7]
    corrupt = ForwardPass.of(net, other, [IGNORE] * 5)
    found = interventions.patch(net, clean, corrupt, ["decoder.embed", "decoder.blocks.1"], prediction=3)
    wanted = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]).double()
    torch.testing.assert_close(found.restored[0], wanted, rtol=0, atol=1e-4)  # only the third token differs
    wanted = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0]).double()
    torch.testing.assert_close(
        found.restored[1], wanted, rtol=0, atol=1e-4
    )  # the last block feeds only its own position
    with pytest.raises(SpecError, match="equally many tokens, got 5 and 4"):
        interventions.patch(net, clean, ForwardPass.of(net, other[:4], [IGNORE] * 4), ["decoder.embed"])
    chosen = interventions.patch(net, clean, corrupt, ["decoder.embed"])
    gaps = (clean.log_probs(net) - dataclasses.replace(corrupt, wanted=clean.wanted).log_probs(net))[0].abs()
    assert chosen.prediction == int(gaps.argmax()), "the prediction that differs most"


def test_patching_paints_no_rounding() -> None:
    net, clean = writer()
    same = interventions.patch(net, clean, clean, ["decoder.embed"])
    assert (same.places, same.restored.numel()) == ([], 0)
    late = ForwardPass.of(net, [*clean.ids[0, :-1].tolist(), 9], [IGNORE] * 5)  # causal: the first output cannot differ
    first = interventions.patch(net, clean, late, ["decoder.embed"], prediction=0)
    assert first.places == []


def test_the_last_reading_of_the_lens_is_the_model(case: tuple[Net, ForwardPass]) -> None:
    net, read = case
    found = logit_lens.read_layers(net, read)
    assert [layer.place.rpartition(".")[2] for layer in found] == ["embed", "0", "1"]
    torch.testing.assert_close(found[-1].wanted_log_prob, read.log_probs(net).detach()[0].double(), **CLOSE)
    assert not torch.allclose(found[0].wanted_log_prob, found[-1].wanted_log_prob)


def maps(layers: int = 3, n: int = 5, seed: int = 0) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.rand(2, n, n, generator=draw).double().softmax(-1) for _ in range(layers)]


def test_rollout_is_the_product() -> None:
    layers = maps()
    wanted = torch.eye(5).double()
    for weights in layers:
        wanted = (weights.mean(0) / 2 + torch.eye(5).double() / 2) @ wanted
    found = rollout.rollout(layers)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(found.sum(1), torch.ones(5).double())


def test_flow_is_networkxs() -> None:
    layers = maps()
    graph = networkx.DiGraph()
    for level, weights in enumerate(layers):
        for i, row in enumerate(rollout.add_residual(weights).tolist()):
            for j, capacity in enumerate(row):
                graph.add_edge((level + 1, i), (level, j), capacity=capacity)
    wanted = [networkx.maximum_flow_value(graph, (3, 2), (0, token)) for token in range(5)]
    assert rollout.flow(layers, 2).tolist() == pytest.approx(wanted, abs=1e-9)


def test_cards_of_heads_that_are_known() -> None:
    n = 6
    previous = torch.eye(n).roll(-1, 1).double()
    previous = torch.cat([torch.eye(n).double()[:1], torch.eye(n).double()[:-1]])
    even = torch.full((n, n), 1 / n).double()
    known = {"a": torch.stack([previous, even])}
    one, other = heads.describe_heads([known])
    assert heads.describe_heads([{}, known]) == heads.describe_heads([known, {}]) == [one, other]
    assert (one.entropy, one.previous) == (pytest.approx(0), pytest.approx(5 / 6))
    assert (one.same, one.first, one.next) == pytest.approx((1 / 6, 2 / 6, 0))
    assert (other.entropy, other.first) == (pytest.approx(np.log2(n)), pytest.approx(1 / n))


def test_links_are_ranked() -> None:
    weights = torch.zeros(2, 4, 4).double()
    weights[0, 2], weights[1, 2] = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0.7, 0.1, 0.1, 0.1])
    best, other = heads.rank_links({"layer": weights}, [2], [0])
    assert (best.head, best.weight, best.rank) == (1, pytest.approx(0.7), 1)
    assert (other.head, other.weight, other.rank) == (0, pytest.approx(0.1), 4)
    assert heads.rank_links({"layer": weights}, [2], [0, 1])[1].weight == pytest.approx(0.3)


def test_a_probe_finds_what_is_there_and_nothing_else() -> None:
    draw = torch.Generator().manual_seed(1)
    x, labels = torch.randn(400, 8, generator=draw), torch.randint(3, (400,), generator=draw)
    nothing = probing.probe(x, labels)
    assert abs(nothing.accuracy - 1 / 3) < 0.15
    x[:, 0] += 4 * labels
    found = probing.probe(x, labels)
    assert found.accuracy > 0.9
    assert found.selectivity > 0.4
    with pytest.raises(DataError, match="got 2"):
        probing.probe(x[:2], labels[:2])


def test_kendall_is_scipys() -> None:
    draw = torch.Generator().manual_seed(3)
    a, b = (torch.randint(6, (20,), generator=draw).double() for _ in range(2))
    assert faithfulness.kendall(a, b) == pytest.approx(scipy.stats.kendalltau(a, b).statistic)


def test_what_looks_at_the_model_is_more_faithful_than_chance() -> None:
    """A model that reads only its last two tokens: what finds them is comprehensive, a random ranking is not."""
    net = gpt.spec(**SMALL, length=16).build(seed=1).eval()
    draw = torch.Generator().manual_seed(5)
    rows = [torch.randint(3, 11, (8,), generator=draw).tolist() for _ in range(12)]
    with torch.no_grad():
        best = [int(net.logits(ForwardPass.of(net, r, r).run(net))[0, -1].argmax()) for r in rows]
    examples = [ForwardPass.of(net, r, [*[IGNORE] * 7, b]) for r, b in zip(rows, best, strict=True)]
    found = faithfulness.measure(net, examples)
    assert set(found) == set(attribution.METHODS)
    assert found["occlusion"].correlation.score == pytest.approx(1)
    assert found["occlusion"].comprehensiveness.score > found["random"].comprehensiveness.score
    assert found["random"].correlation.low < 0.3
    for each in found.values():
        assert each.comprehensiveness.low <= each.comprehensiveness.score <= each.comprehensiveness.high
