"""The fast step equals the plain one on the same state, and stands aside where it cannot."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib import import_module

import pytest
import torch
from torch import Tensor

from regard.decode import Request, Search, generate
from regard.decode.ensemble import Ensemble, compute_log_probs
from regard.decode.fast_step import build_fast_decoder
from regard.decode.generation import decode_in_threads
from regard.families import gpt, llama, t5, transformer
from regard.model.net import Net
from regard.nn.blocks.body import Layers
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Tagged, Window
from regard.nn.layers.lora import Lora, adapt
from regard.nn.mixers import Full
from tests.decode.toys import MARKS, some_sources, tiny

pytestmark = pytest.mark.numeric

ROWS, SEEN = 4, 5
SMALL = dict(width=16, depth=2, heads=4, hidden=24, vocab=11)

DECODERS: dict[str, Callable[[], Net]] = {
    "post-norm": lambda: transformer.spec(**SMALL, dropout=0.1).build(seed=1),  # type: ignore[arg-type]
    "pre-norm, gated, untied": lambda: transformer.spec(
        **SMALL,
        dropout=0.1,
        norm="pre",
        gated=True,
        tied=False,  # type: ignore[arg-type]
    ).build(seed=2),
    "gpt": lambda: gpt.spec(**SMALL, length=16, dropout=0.1).build(seed=3),  # type: ignore[arg-type]
    "gpt without biases": lambda: gpt.spec(**SMALL, length=16, bias=False).build(seed=4),  # type: ignore[arg-type]
    "llama": lambda: llama.spec(**SMALL, kv_heads=2, length=16).build(seed=5),  # type: ignore[arg-type]
}


def both(net: Net, at: Callable[[int], Coords], beam: int = 1, padded: bool = False) -> list[tuple[Tensor, Tensor]]:
    """What a few steps write, one after another, on the plain path and on the flat one."""
    fast = build_fast_decoder(net)
    assert fast is not None
    memory = None
    if net.encoder is not None:
        source = torch.randint(11, (ROWS // beam, 6))
        memory = net.encode(source, Coords.lengths([6, 3, 5, 1][: ROWS // beam]) if padded else Coords.span(6))
    plain, quick = net.start(ROWS, SEEN), net.start(ROWS, SEEN)
    assert isinstance(quick, Layers)
    out, room = [], fast.allocate(ROWS)
    for step in range(SEEN + 2):  # past the room it began with
        tokens = torch.randint(11, (ROWS, 1))
        stream, state = net.decode(tokens, at(step), memory, plain)
        assert state is not None
        plain = state
        out.append(
            (
                compute_log_probs(net, stream[:, 0]),
                fast.log_probs(fast.step(tokens, at(step), memory, quick), room).clone(),
            )
        )
        if step == 2:
            rows = torch.tensor([1, 0, 3, 3])
            plain, quick = plain.select(rows), quick.select(rows)
    return out


@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 2])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("name", DECODERS)
def test_the_flat_step_equals_the_plain_one(name: str, padded: bool, beam: int) -> None:
    net = DECODERS[name]().double().eval()
    torch.manual_seed(7)
    for plain, quick in both(net, lambda step: Coords.span(1, first=step), beam, padded):
        assert torch.allclose(plain, quick, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_rows_that_stand_at_different_places(name: str) -> None:
    net = DECODERS[name]().double().eval()
    start = torch.tensor([[0], [2], [1], [0]])
    for plain, quick in both(net, lambda step: Coords(start + step)):
        assert torch.allclose(plain, quick, rtol=0, atol=1e-12)


@pytest.mark.parametrize("search", [Search(beam=1), Search(beam=3, n_best=3), Search(sample=True)], ids=str)
def test_a_search_finds_the_same_on_either_path(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    net, sources = tiny(3).eval(), some_sources(3, 9)
    quick = generate([net], Request(sources, search, MARKS))
    assert build_fast_decoder(net) is not None
    monkeypatch.setattr("regard.decode.ensemble.build_fast_decoder", lambda net: None)
    plain = generate([net], Request(sources, search, MARKS))
    assert [[h.tokens for h in each] for each in quick] == [[h.tokens for h in each] for each in plain]


def test_it_stands_aside() -> None:
    net = DECODERS["gpt"]()
    assert build_fast_decoder(net.train()) is None, "dropout"
    assert build_fast_decoder(t5.spec(width=16, depth=1, heads=2, hidden=8, vocab=11).build().eval()) is None, (
        "a bias of positions"
    )
    assert build_fast_decoder(net.eval()) is not None
    for part in (net.decoder, net.head):
        handle = part.register_forward_hook(lambda *_: None)  # type: ignore[union-attr]
        assert build_fast_decoder(net) is None, "somebody listens"
        handle.remove()
    assert build_fast_decoder(net) is not None
    net.decoder.blocks[0].mix.q = torch.nn.Sequential(net.decoder.blocks[0].mix.q)  # type: ignore[union-attr, index]
    assert build_fast_decoder(net) is None, "a map that is not the plain one"


@pytest.mark.parametrize("target", ["q", "up", "gate", "down"])
def test_adapters_are_not_left_out(target: str) -> None:
    net = DECODERS["pre-norm, gated, untied"]()
    adapt(net, Lora(targets=(target,)))
    assert build_fast_decoder(net.eval()) is None


def test_tagged_tokens_are_seen_by_all() -> None:
    spec = gpt.spec(**SMALL, length=16)  # type: ignore[arg-type]
    spec = spec.replace("decoder.block.mix", Full(4, mask=Window(1) | Tagged())).replace("decoder.tags", "first")
    net = spec.build(seed=1).double().eval()
    assert build_fast_decoder(net) is None
    steps, ids = Ensemble([net], None, rows=1, capacity=5), torch.tensor([[3, 4, 5, 6, 7]])
    with torch.no_grad():
        found = torch.cat([steps.advance(ids[:, i : i + 1]) for i in range(5)])
        assert torch.allclose(found, compute_log_probs(net, net(ids, Coords.span(5)))[0])


def test_a_graph_is_made_where_one_is_wanted() -> None:
    steps = Ensemble([DECODERS["gpt"]().eval()], None, rows=1, capacity=3)
    assert steps.advance(torch.tensor([[3]])).requires_grad


def test_cores_with_sentences_of_their_own_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    net, sources = tiny(3).eval(), some_sources(3, 12)
    alone = generate([net], Request(sources, Search(beam=2), MARKS))
    monkeypatch.setattr(import_module("regard.decode.generation"), "_count_workers", lambda device, rows: 3)
    beside = generate([net], Request(sources, Search(beam=2), MARKS))
    assert [[h.tokens for h in each] for each in beside] == [[h.tokens for h in each] for each in alone]


def test_threads_are_as_before_also_after_a_fault() -> None:
    before = torch.get_num_threads()

    def fail(indices: list[int]) -> None:
        assert torch.get_num_threads() == 1
        raise ValueError("as asked")

    with pytest.raises(ValueError, match="as asked"):
        decode_in_threads(fail, [[0], [1]], 2)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("fused", [False, True])
def test_weights_changed_by_an_optimizer_are_used_by_the_next_batch(fused: bool) -> None:
    """A fused optimizer leaves no trace in the version counters of the weights."""
    net, request = tiny(3).eval(), Request(some_sources(3, 4), Search(beam=2), MARKS)
    before = generate([net], request)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.5, fused=fused)
    ids = torch.zeros(1, 3, dtype=torch.long)
    net(ids, Coords.span(3), (ids, Coords.span(3))).sum().backward()
    optimizer.step()
    after = generate([net], request)
    assert after == generate([copy.deepcopy(net)], request) and after != before


def test_layer_norms_skip_the_module_call() -> None:
    net = DECODERS["post-norm"]().eval()
    fast = build_fast_decoder(net)
    assert fast is not None
    norms = [norm for parts in fast.layers for _, _, norm in parts]
    assert norms and not any(isinstance(norm, torch.nn.Module) for norm in norms)
