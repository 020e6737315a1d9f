"""The native engine computes what torch computes: every family, every part, every search, every kernel."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
from multiprocessing.connection import Connection

import numpy as np
import pytest
import torch

from regard.decode import Constraints, Draw, Hypothesis, Request, Search, generate
from regard.engine.choose_engine import choose_engine, open_native
from regard.engine.fallback_engine import FallbackEngine
from regard.engine.native_engine import PRECISIONS, NativeEngine, Precision, read_settings
from regard.engine.native_library import list_kernels
from regard.engine.quantized_weights import quantize_weights, restore_weights
from regard.engine.torch_engine import TorchEngine
from regard.engine.write_plan import describe_model, find_refusal
from regard.errors import CheckpointError, NoRoom, SpecError
from regard.families import gpt, llama
from regard.files.tensors import pack
from regard.laws.case import VOCAB, Case
from regard.model.net import Net
from regard.registry import kind_of
from tests.engine.models import ALL, FAMILIES, SPECIAL, build, differ, make_sources
from tests.engine.models import VOCAB as SMALL
from tests.laws.examples import BOTH, DECODERS, name_of

pytestmark = pytest.mark.numeric
SEARCHES = {
    "greedy": Search(beam=1, max_extra=9),
    "beam": Search(beam=4, n_best=3, max_extra=9),
    "power": Search(beam=3, length_penalty="power", alpha=1.2, max_extra=9),
    "sampling": Search(beam=1, sample=True, seed=7, max_extra=9),
    "truncated sampling": Search(
        beam=1, sample=True, seed=3, max_extra=9, top_k=9, top_p=0.9, min_p=0.01, temperature=0.7
    ),
}


@pytest.mark.parametrize("name", ALL)
def test_decodes_as_torch_does(name: str) -> None:
    net = build(ALL[name])
    engine, sources = open_native(net, threads=2), make_sources(net)
    for how, search in SEARCHES.items():
        wanted = generate([net], Request(sources, search, SPECIAL))
        assert not differ(engine.decode(Request(sources, search, SPECIAL)), wanted), how


@pytest.mark.parametrize("name", ["gpt", "transformer"])
@pytest.mark.parametrize("how", SEARCHES)
def test_weights_that_lead_to_no_numbers_are_refused(name: str, how: str) -> None:
    """Infinite ones pass the check of files, which is for NaN, and lead to it."""
    net = build(ALL[name])
    with torch.no_grad():
        net.embed.weight[:, 0] = torch.inf
    engine, sources = open_native(net, threads=1), make_sources(net, 3)
    for decode in (engine.decode, TorchEngine(net).decode):
        with pytest.raises(
            CheckpointError, match=r"^the model computes values that are not numbers \(NaN\): its weights are"
        ):
            decode(Request(sources, SEARCHES[how], SPECIAL))


def break_row(weight: torch.Tensor) -> None:
    """A row that sums infinities of both signs: NaN for (almost) every input."""
    with torch.no_grad():
        weight[7], weight[7, 0] = -torch.inf, torch.inf


BROKEN: dict[str, tuple[str, str]] = {
    "one logit": ("alibi", "head.weight"),
    "one hidden value before relu": ("transformer", "decoder.blocks.0.feed.up.weight"),
    "one hidden value before tanh": ("alibi", "decoder.blocks.0.feed.up.weight"),
    "the scores of one head": ("llama", "decoder.blocks.0.mix.q.weight"),
}


@pytest.mark.parametrize("where", BROKEN)
@pytest.mark.parametrize("how", SEARCHES)
def test_one_value_that_is_not_a_number_is_enough(where: str, how: str) -> None:
    """No kernel may drop it: maxima and clamps would, depending on the order of their operands."""
    name, weight = BROKEN[where]
    net = build(ALL[name])
    break_row(net.get_parameter(weight))
    engine, sources = open_native(net, threads=1), make_sources(net, 3)
    for decode in (engine.decode, TorchEngine(net).decode):
        with pytest.raises(CheckpointError, match="the model computes values that are not numbers"):
            decode(Request(sources, SEARCHES[how], SPECIAL))


def test_a_beam_that_breaks_leaves_the_others_alone() -> None:
    """One of its hypotheses writes a token whose vector is infinite; the next rows of the pass belong to another beam."""
    net, search = build(ALL["alibi"]), Search(beam=3, max_extra=6)
    with torch.no_grad():
        net.head.bias[9] = 20.0
        net.embed.weight[9] = torch.inf
    engine, sources = open_native(net, threads=1), make_sources(net, 2)
    batch, never = engine.model.open_batch(), Constraints(banned=[9])
    for source, banned in zip(sources, ([], [9]), strict=True):
        batch.add(source, [], 6, 0, [0, 1, *banned], read_settings(Request([source], search, SPECIAL)))
    found = {}
    while len(batch):
        found |= {number: hypotheses for number, _, hypotheses in batch.step() if hypotheses is not None}
    alone = engine.decode(Request(sources[1:], search, SPECIAL, never))
    assert found[0] == [] and not differ([[Hypothesis(*each) for each in found[1]]], alone)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rounding_to_whole_numbers_keeps_what_is_not_a_number(precision: Precision) -> None:
    """RMSNorm makes one NaN among zeros of an infinite value, which int8 cannot hold."""
    net = build(llama.spec(width=32, depth=1, heads=4, hidden=64, vocab=SMALL, length=64, tied=False))
    with torch.no_grad():
        net.embed.weight[:, 0] = torch.inf
    engine = open_native(net, precision, threads=1)
    with pytest.raises(CheckpointError, match="the model computes values that are not numbers"):
        engine.decode(Request(make_sources(net, 3), SEARCHES["greedy"], SPECIAL))


@pytest.mark.parametrize("how", ["greedy", "sampling"])
def test_a_prefix_without_probability_is_written(how: str) -> None:
    """Its log-probability is −inf; the output ends all the same, and the others of its batch are as without it."""
    net = build(ALL["alibi"])
    with torch.no_grad():
        net.head.bias[7] = -torch.inf
    engine, sources = open_native(net, threads=1), make_sources(net, 3)
    search, batch = dataclasses.replace(SEARCHES[how], max_extra=5), engine.open_batch()
    for i, prefix in enumerate(([4], [7, 5], [9])):
        batch.add(Request([sources[i]], search, SPECIAL, Constraints(prefixes=[prefix]), draw=Draw([i])))
    found: dict[int, list[Hypothesis]] = {}
    for _ in range(5):
        found |= {p.sequence: p.hypotheses for p in batch.step() if p.hypotheses is not None}
    assert found[1][0].tokens[:2] == (7, 5) and found[1][0].log_prob == -np.inf
    for i, prefix in ((0, [4]), (2, [9])):
        alone = engine.decode(Request([sources[i]], search, SPECIAL, Constraints(prefixes=[prefix]), draw=Draw([i])))
        assert not differ([found[i]], alone)


@pytest.mark.parametrize("name", ALL)
def test_scores_as_torch_does(name: str) -> None:
    net = build(ALL[name])
    engine, sources = open_native(net, threads=1), make_sources(net, 3)
    targets = [[5, 9, 7, SPECIAL.eos], [4], [8, 8, 3, 11, 6]]
    if net.encoder is None:
        with torch.no_grad():
            wanted = []
            for source, target in zip(sources, targets, strict=True):
                search, forced = Search(beam=1, max_extra=len(target)), Constraints(prefixes=[target[:-1]])
                found = generate([net], Request([source], search, SPECIAL, forced))
                wanted.append(found[0][0].log_prob if found[0][0].tokens == tuple(target) else None)
        scores = [sum(each) for each in engine.score(sources, targets, SPECIAL)]
        assert all(w is None or abs(s - w) < 1e-4 for s, w in zip(scores, wanted, strict=True))
    else:
        for found, want in zip(
            engine.score(sources, targets, SPECIAL), TorchEngine(net).score(sources, targets, SPECIAL), strict=True
        ):
            assert np.allclose(found, want, atol=1e-4)
        assert np.allclose(engine.encode(sources[0]), TorchEngine(net).encode(sources[0]), atol=1e-4)


@pytest.mark.parametrize("case", [*DECODERS, *BOTH], ids=name_of)
def test_every_model_runs_natively_or_is_refused(case: Case) -> None:
    """Every mixer, position, wiring, norm and feed-forward: what a plan describes decodes as torch does."""
    net = case.net().float()
    if refusal := find_refusal(net):
        assert refusal.startswith("the native engine has no") and choose_engine(net).name == "torch"
        return
    draw = random.Random(1)
    end = [] if net.encoder is None else [SPECIAL.eos]
    sources = [[draw.randrange(3, VOCAB) for _ in range(n)] + end for n in (1, 5, 3)]
    search = Search(beam=2, max_extra=6)
    assert not differ(
        open_native(net, threads=1).decode(Request(sources, search, SPECIAL)),
        generate([net], Request(sources, search, SPECIAL)),
    )


def test_what_runs_natively() -> None:
    """The plan covers softmax attention with all its settings, and nothing else of the registry."""
    kinds = {kind_of(type(case.part)) for case in [*DECODERS, *BOTH] if find_refusal(case.net().float()) is None}
    assert kinds == {"full", "local"}


@pytest.mark.parametrize("name", ["transformer", "gpt"])
def test_embeddings_of_another_width_run_on_torch(name: str) -> None:
    net = build(FAMILIES[name].replace("embed.width", 16))
    assert find_refusal(net) == "the native engine has no stream that changes its width"
    assert choose_engine(net).name == "torch"


@pytest.mark.parametrize("kernels", ["vnni", "avx512", "avx2", "portable"])
def test_every_kernel_agrees(kernels: str) -> None:
    if not list_kernels().get(kernels):
        pytest.skip(f"this processor has no {kernels}, or the library was compiled without")
    net = build(FAMILIES["pre"])
    plan, weights, sources = describe_model(net), net.state_dict(), make_sources(net, 12)
    for precision in PRECISIONS:
        data = pack(quantize_weights(weights, plan, "int4") if precision == "int4" else weights)
        engine, plain = (
            NativeEngine.open(plan, data, precision=precision, threads=1, kernels=k) for k in (kernels, "portable")
        )
        assert engine.model.kernels == kernels
        if precision != "float32":  # a number on the edge of two steps may be rounded either way, so choices can differ
            targets = [[5, 9, 7, 4, 2]] * len(sources)
            scores = (each.score(sources, targets, SPECIAL) for each in (engine, plain))
            for one, other in zip(*scores, strict=True):
                assert one == pytest.approx(other, abs=0.1)
            continue
        for search in (SEARCHES["greedy"], SEARCHES["beam"]):
            assert not differ(
                engine.decode(Request(sources, search, SPECIAL)), plain.decode(Request(sources, search, SPECIAL)), 1e-3
            )


@pytest.mark.parametrize("name", ["transformer", "t5", "llama"])
def test_int8_is_close(name: str) -> None:
    net = build(FAMILIES[name])
    sources, targets = make_sources(net, 6), [[5, 9, 7, 4, 2]] * 6
    exact, rough = (open_native(net, p, threads=1).score(sources, targets, SPECIAL) for p in ("float32", "int8"))
    worst = max(abs(a - b) for one, other in zip(exact, rough, strict=True) for a, b in zip(one, other, strict=True))
    assert 0 < worst < 0.5  # of log-probabilities around -4


@pytest.mark.parametrize("kernels", ["vnni", "avx512", "avx2", "portable"])
@pytest.mark.parametrize("rows", [1, 5])
def test_blocks_compute_what_they_hold(kernels: str, rows: int) -> None:
    """Against the same weights as floats, only activations are rounded. Several blocks and panels, odd widths, merged maps."""
    if not list_kernels().get(kernels):
        pytest.skip(f"this processor has no {kernels}, or the library was compiled without")
    net = build(llama.spec(width=96, depth=2, heads=3, kv_heads=1, hidden=80, vocab=SMALL, length=64))
    plan = describe_model(net)
    stored = quantize_weights(net.state_dict(), plan, "int4")
    assert {stored[f"decoder.blocks.0.{name}.weight"].dtype for name in ("mix.q", "feed.up")} == {torch.uint8}
    assert (
        stored["embed.weight"].dtype == torch.int8 and stored["decoder.blocks.0.feed.down.weight"].is_floating_point()
    )
    stored["decoder.blocks.0.mix.v.weight"] = net.state_dict()[
        "decoder.blocks.0.mix.v.weight"
    ]  # beside q and k of 4 bits
    del stored["decoder.blocks.0.mix.v.weight.scale"], stored["decoder.blocks.0.mix.v.weight.min"]
    sources, targets = [[5, 9, 7, 4]] * rows, [[5, 9, 7, 4, 2, 30, 31, 32]] * rows
    exact, rough = (
        np.array(NativeEngine.open(plan, pack(stored), precision=p, kernels=kernels).score(sources, targets, SPECIAL))
        for p in ("float32", "int4")
    )
    assert 0 < np.abs(exact - rough).max() < 0.15  # of log-probabilities around -8
    net.load_weights(restore_weights(stored))
    again = open_native(net, threads=1).score(sources, targets, SPECIAL)
    assert np.allclose(exact, again, atol=1e-4)  # torch gets the same numbers back


def test_prefixes_bans_and_the_repetition_guard() -> None:
    net = build(FAMILIES["transformer"])
    engine, sources = open_native(net, threads=1), make_sources(net)
    search = Search(beam=3, n_best=2, max_extra=30)
    limits = Constraints(banned=[5, 6, 7], prefixes=[[5, 9][: i % 3] for i in range(len(sources))])
    for each in (search, Search(beam=1, max_extra=30), Search(beam=1, sample=True, max_extra=9)):
        wanted = generate([net], Request(sources, each, SPECIAL, limits, draw=Draw([*range(40, 49)], 3)))
        assert not differ(
            engine.decode(Request(sources, each, SPECIAL, limits, draw=Draw([*range(40, 49)], 3))), wanted
        )
    with pytest.raises(NoRoom, match="source 0: the required text has 3 tokens, and there is room for 1"):
        engine.decode(Request([[4, 2]], Search(max_length=1), SPECIAL, Constraints(prefixes=[[4, 5, 6]])))
    assert engine.find_refusal(Request([[4]], search, SPECIAL, Constraints(must_include=[[[4]]]))) is not None


def test_a_sentence_does_not_depend_on_its_company() -> None:
    net = build(FAMILIES["transformer"])
    engine, sources = open_native(net, threads=2), make_sources(net, 150)
    for search in (SEARCHES["greedy"], SEARCHES["beam"], SEARCHES["sampling"]):
        together = engine.decode(Request(sources, search, SPECIAL))
        alone = [engine.decode(Request([s], search, SPECIAL, draw=Draw([i])))[0] for i, s in enumerate(sources)]
        assert not differ(together, alone)


def test_rows_beyond_the_vocabulary_are_never_written() -> None:
    """A padded table: whatever its last rows say, no engine writes them."""
    net = build(FAMILIES["gpt"])
    with torch.no_grad():
        net.embed.weight[50:] *= 30  # type: ignore[index]
    special = dataclasses.replace(SPECIAL, size=50)
    for engine in (open_native(net, threads=1), TorchEngine(net)):
        for search in (SEARCHES["greedy"], SEARCHES["beam"], SEARCHES["sampling"]):
            padded, plain = (
                {
                    token
                    for each in engine.decode(Request(make_sources(net), search, s))
                    for h in each
                    for token in h.tokens
                }
                for s in (special, SPECIAL)
            )
            assert max(padded) < 50 <= max(plain)


def test_the_engine_is_chosen_by_what_it_can_do() -> None:
    net = build(FAMILIES["gpt"])
    assert choose_engine(net).name == "native"
    assert choose_engine(net, "torch").name == "torch"
    assert choose_engine(net, device="cuda") == choose_engine(net, "auto", "cuda")
    assert "not on cuda" in choose_engine(net, device="cuda").reason
    with pytest.raises(SpecError, match="no engine 'fast'"):
        choose_engine(net, "fast")
    encoder = build(ALL["transformer"].replace("decoder", None))
    assert "no decoder" in choose_engine(encoder).reason
    with pytest.raises(SpecError, match="engine native: the native engine writes text"):
        choose_engine(encoder, "native")


def test_an_engine_that_refuses_leaves_the_request_to_torch() -> None:
    net = build(FAMILIES["transformer"])

    class Refuses(TorchEngine):
        def find_refusal(self, request: Request) -> str | None:
            return "tired"

        def decode(self, request: Request) -> list[list[Hypothesis]]:
            raise AssertionError

    engine = FallbackEngine(Refuses(net), TorchEngine(net))
    assert engine.decode(Request(make_sources(net, 2), SEARCHES["greedy"], SPECIAL))


def test_long_texts_have_more_positions_than_a_page() -> None:
    net: Net = build(gpt.spec(width=16, depth=1, heads=2, vocab=53, length=300, dropout=0.0))
    sources, search = [[*range(3, 50)] * 5, [4]], Search(beam=2, max_extra=60)
    assert not differ(
        open_native(net, threads=1).decode(Request(sources, search, SPECIAL)),
        generate([net], Request(sources, search, SPECIAL)),
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_model_decodes_in_forked_process() -> None:
    """Also with a batch that was open before; the parent goes on."""
    net = build(FAMILIES["transformer"])
    engine, search, sources = open_native(net, threads=2), Search(beam=2, max_extra=6), make_sources(net)
    wanted, batch = engine.decode(Request(sources, search, SPECIAL)), engine.open_batch()
    numbers = [batch.add(Request([source], search, SPECIAL)) for source in sources]
    batch.step()

    def finish(tell: Connection) -> None:
        found = dict[int, list[Hypothesis]]()
        while len(batch):
            found |= {p.sequence: p.hypotheses for p in batch.step() if p.hypotheses is not None}
        tell.send(
            engine.decode(Request(sources, search, SPECIAL)) == wanted
            and not differ([found[i] for i in numbers], wanted)
        )

    context = multiprocessing.get_context("fork")
    hear, tell = context.Pipe(duplex=False)
    child = context.Process(target=finish, args=(tell,))
    child.start()
    try:
        assert hear.poll(60) and hear.recv() is True
    finally:
        child.kill()
        child.join()
    assert engine.decode(Request(sources, search, SPECIAL)) == wanted
