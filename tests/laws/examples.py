"""One example or more of every part in every table. The laws run over these: a part added later needs only a line here.

From the examples come models: a decoder alone, an encoder alone and both together, with every mixer, position, wiring,
norm and feed-forward in some of them. Sizes are tiny and weights large, so that no term hides behind another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from regard.data.filters import FILTERS, FilterSpec, Identity, Length, Ratio
from regard.data.filters.duplicates import Duplicates, NearDuplicates
from regard.data.filters.language_id import Language
from regard.data.filters.unicode_script import Script
from regard.families import (
    bart,
    bert,
    bytenet,
    convs2s,
    extended_neural_gpu,
    gpt,
    gru,
    llama,
    lstm,
    marian,
    memn2n,
    neural_gpu,
    rnn,
    t5,
    transformer,
    transformer_xl,
    vit,
)
from regard.laws.case import LENGTH, VOCAB, WIDTH, Case, describe, make_ids, make_model
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import BODIES, BodySpec, Stack
from regard.nn.blocks.cgru_loop import CgruLoop, Relaxation
from regard.nn.blocks.columns import Columns
from regard.nn.blocks.dilated_convolutions import DilatedConvolutions
from regard.nn.blocks.embedding import EMBEDS, Tokens
from regard.nn.blocks.gated_convolutions import GatedConvolutions
from regard.nn.blocks.head import HEADS, Bernoulli, Classes, Masked, Vector, Vocab
from regard.nn.blocks.memory_hops import MemoryHops
from regard.nn.blocks.output_tape import OutputTape
from regard.nn.blocks.patches import Patches
from regard.nn.blocks.pointer import Pointer
from regard.nn.blocks.recurrent_decoder import RecurrentDecoder
from regard.nn.blocks.reversible import Reversible
from regard.nn.blocks.sentences import Sentences
from regard.nn.blocks.vectors import Vectors
from regard.nn.blocks.wiring import (
    WIRINGS,
    Bare,
    NormOnly,
    Parallel,
    PostNorm,
    PreNorm,
    ResidualOnly,
    WiringSpec,
)
from regard.nn.core.coords import Coords
from regard.nn.core.mask import RULES, AllOf, AnyOf, Causal, Everything, Fixed, Strided, Tagged, Window
from regard.nn.core.mixer import MIXERS, MixerSpec
from regard.nn.layers.feedforward import FEEDS, FeedForward, FeedSpec
from regard.nn.layers.norm import NORMS, LayerNorm, NormSpec, RMSNorm
from regard.nn.mixers import (
    GRU,
    LSTM,
    RNN,
    BigBird,
    Flash,
    Full,
    GatedConvolution,
    LinearAttention,
    Linformer,
    Local,
    Lsh,
    Performer,
    Sparse,
    XLMemory,
)
from regard.nn.mixers.compress import COMPRESSIONS, Convolution, MostUsed, Pooling
from regard.nn.positions.position import (
    POSITIONS,
    ALiBi,
    Bucketed,
    Learned,
    NoPosition,
    PositionSpec,
    Relative,
    Rotary,
    Sinusoidal,
)
from regard.nn.positions.relative import Distance
from regard.nn.positions.rope_scaling import ROPE_SCALINGS, LinearScaling, Llama3Scaling, YarnScaling
from regard.registry import Registry
from regard.spec import Spec

MIX: dict[str, tuple[MixerSpec, ...]] = {
    "full": (
        Full(2),
        Full(4, kv_heads=2),
        Full(4, kv_heads=1, bias=False),
        Full(4, kv_heads=2, bias="qkv"),
        Full(2, head_width=6, scale=0.5),
        Full(2, qk_norm=RMSNorm()),
        Full(2, mask=Window(2)),
    ),
    "flash": (Flash(2, tile=5), Flash(4, kv_heads=2, mask=Window(2), tile=4)),
    "xl_memory": (
        XLMemory(2, memory_length=LENGTH),
        XLMemory(4, memory_length=30, compress=MostUsed(3), kv_heads=2, head_width=3),
    ),
    "performer": (
        Performer(2, features=6),
        Performer(4, head_width=3, orthogonal=False),
        Performer(2, features=5, kernel="relu", bias=False),
    ),
    "linear_attention": (LinearAttention(2), LinearAttention(4, head_width=3, bias=False)),
    "linformer": (
        Linformer(2, rank=5),
        Linformer(2, rank=4, sharing="none"),
        Linformer(2, rank=4, sharing="key_value", bias=False),
        Linformer(2, rank=3, sharing="layer", head_width=3),
    ),
    "local": (Local(2, reach=2, tile=3), Local(4, reach=1, dilation=3, kv_heads=2, tile=2)),
    "bigbird": (BigBird(2, block=1, random=2), BigBird(4, block=2, random=1, kv_heads=2)),
    "sparse": (Sparse(2, Strided(3)), Sparse(4, Fixed(3, summary=2), kv_heads=2)),
    "gated_convolution": (GatedConvolution(), GatedConvolution(kernel=2, dilation=3)),
    "rnn": (RNN(activation="relu", norm=LayerNorm()),),
    "gru": (GRU(),),
    "lstm": (LSTM(forget_bias=2.0), LSTM(bidirectional=False, norm=RMSNorm())),
    "lsh": (Lsh(2, chunk=16, buckets=4), Lsh(4, chunk=LENGTH, buckets=(2, 2), rounds=3, bias=True)),
}
POSITION: dict[str, tuple[PositionSpec, ...]] = {
    "none": (NoPosition(),),
    "sinusoidal": (Sinusoidal(), Sinusoidal("halves")),
    "learned": (Learned(), Learned(2)),
    "rotary": (Rotary(), Rotary(100.0, "pairs", 0.5), Rotary(50.0, rope_scaling=YarnScaling(4.0, 8, 2.0))),
    "alibi": (ALiBi(),),
    "bucketed": (Bucketed(8, 6),),
    "relative": (Relative(3), Relative(2, values=False)),
    "distance": (Distance(), Distance(clamp=3)),
}
WIRING: dict[str, tuple[WiringSpec, ...]] = {
    "post_norm": (PostNorm(),),
    "pre_norm": (PreNorm(),),
    "parallel": (Parallel(),),
    "bare": (Bare(),),
    "reversible": (Reversible(),),
    "norm_only": (NormOnly(),),
    "residual_only": (ResidualOnly(),),
}
NORM: dict[str, tuple[NormSpec, ...]] = {
    "layer_norm": (LayerNorm(), LayerNorm(bias=False)),
    "rms_norm": (RMSNorm(),),
}
FEED: dict[str, tuple[FeedSpec, ...]] = {
    "feed_forward": (FeedForward(12), FeedForward(10, "silu", gated=True, bias=False), FeedForward(9, "gelu")),
}
BODY: dict[str, tuple[BodySpec, ...]] = {
    "stack": (
        Stack(Block(mix=Full(2)), depth=2),
        Stack(Block(mix=Local(2, reach=1)), depth=1, tags="first"),
        Stack(blocks=(Block(mix=Full(2)), Block(feed=FeedForward(4)))),
    ),
    "recurrent_decoder": (
        RecurrentDecoder(LSTM(), depth=2, start="zeros"),
        RecurrentDecoder(GRU(width=6), attention="additive", start="zeros", readout="maxout"),
        RecurrentDecoder(RNN(), attention="dot", attend="after", start="zeros"),
        RecurrentDecoder(
            LSTM(norm=LayerNorm()), 2, "general", "after", input_feeding=True, start="zeros", readout="all"
        ),
        RecurrentDecoder(GRU(), 2, "concat", "before", start="zeros"),
    ),
    "gated_convolutions": (
        GatedConvolutions((6, 6, 5), (3, 4, 1)),
        GatedConvolutions((6, 5), (3, 2), out=7, weight_norm=False, causal=True),
        GatedConvolutions((6, 6, 4), (3, 1, 2), attention=True, causal=True),
    ),
    "dilated_convolutions": (
        DilatedConvolutions((1, 2), kernel=2),
        DilatedConvolutions((1, 2, 4)),
        DilatedConvolutions((2, 1), unit="multiplicative", causal=True),
        DilatedConvolutions((1, 2, 1), norm=RMSNorm(), causal=True),
        DilatedConvolutions((1, 3), stacked=True, causal=True),
    ),
    "memory_hops": (MemoryHops(1), MemoryHops(3, empty_slots=True), MemoryHops(7, linear_start=2)),
    "cgru_loop": (CgruLoop(3), CgruLoop(1, depth=1, relaxation=Relaxation(2))),
    "columns": (Columns(),),
    "output_tape": (OutputTape(), OutputTape(depth=1)),
}
FILTER: dict[str, tuple[FilterSpec, ...]] = {
    "length": (Length(3), Length(9, 2, "characters")),
    "ratio": (Ratio(), Ratio(1.5, typical=2.0, exempt_length=0)),
    "identity": (Identity(),),
    "duplicates": (Duplicates(), Duplicates("target")),
    "near_duplicates": (NearDuplicates(), NearDuplicates("source")),
    "script": (Script(), Script(("latin", "cyrillic"), min_share=0.8)),
    "language": (Language(), Language(2.0)),
}
POINTERS = (
    Pointer(),
    Pointer(coverage=1.0),
    Pointer(tied=False, bias=True, scale=0.5, score="additive"),
    Pointer(score="additive", coverage=0.5),
)
EXAMPLES: dict[str, tuple[Registry[Any], dict[str, tuple[Spec, ...]]]] = {
    "filter": (FILTERS, FILTER),  # type: ignore[dict-item]
    "mixer": (MIXERS, MIX),  # type: ignore[dict-item]
    "position": (POSITIONS, POSITION),  # type: ignore[dict-item]
    "wiring": (WIRINGS, WIRING),  # type: ignore[dict-item]
    "norm": (NORMS, NORM),  # type: ignore[dict-item]
    "feed": (FEEDS, FEED),  # type: ignore[dict-item]
    "body": (BODIES, BODY),  # type: ignore[dict-item]
    "embed": (
        EMBEDS,
        {
            "tokens": (
                Tokens(VOCAB),
                Tokens(VOCAB, Learned(), scaled=True, norm=LayerNorm(), dropout=0.1),
                Tokens(VOCAB, segments=2),
                Tokens(VOCAB, Learned(2), tied=True),
            ),
            "sentences": (
                Sentences(VOCAB, 2),
                Sentences(VOCAB, 4, "bag", temporal=False),
                Sentences(VOCAB, 3, "position"),
            ),
            "vectors": (Vectors(3), Vectors(5, Learned(2), dropout=0.1), Vectors(4, width=6)),
            "patches": (Patches(8, 2), Patches(6, 3, channels=1, first=False, dropout=0.1)),
        },
    ),
    "rope_scaling": (
        ROPE_SCALINGS,
        {
            "linear": (LinearScaling(2.0),),
            "llama3": (Llama3Scaling(8.0, 16), Llama3Scaling(2.0, 8, low_freq_factor=0.5, high_freq_factor=1.5)),
            "yarn": (YarnScaling(4.0, 16), YarnScaling(4.0, 16, 3.0, 0.5, attention_factor=1.1, truncate=False)),
        },
    ),
    "compress": (
        COMPRESSIONS,
        {
            "pooling": (Pooling(3), Pooling(3, 2, "max")),
            "convolution": (Convolution(4, 3), Convolution(4, 3, dilated=True, loss="autoencode")),
            "most_used": (MostUsed(5, 2),),
        },
    ),
    "head": (
        HEADS,
        {
            "vocab": (Vocab(), Vocab(tied=False, bias=True, scale=0.5)),
            "pointer": POINTERS,
            "masked": (Masked(), Masked("gelu_tanh", RMSNorm(), tied=False)),
            "classes": (Classes(3), Classes(2, "mean", hidden=True, dropout=0.1, activation="relu"), Classes(4, None)),
            "vector": (Vector(), Vector("mean", hidden=True)),
            "bernoulli": (Bernoulli(3),),
        },
    ),
    "rule": (
        RULES,
        {
            "everything": (Everything(),),
            "causal": (Causal(),),
            "window": (Window(3), Window(1, dilation=2)),
            "strided": (Strided(3),),
            "fixed": (Fixed(3), Fixed(4, summary=2)),
            "tagged": (Tagged(),),
            "all": (AllOf((Causal(), Window(2))),),
            "any": (AnyOf((Tagged(), Causal() & Window(2))),),
        },
    ),
}


def every(examples: dict[str, tuple[Any, ...]]) -> list[Any]:
    return [example for row in examples.values() for example in row]


def wirings(mixer: MixerSpec) -> list[WiringSpec]:
    """Every wiring that can carry the mixer, with every norm it takes."""
    made = [dataclasses.replace(w, norm=n) if w.norm else w for w in every(WIRING) for n in every(NORM)]  # type: ignore[misc]
    return [w for w in dict.fromkeys(made) if not w.refusals(mixer.can, "")]


def places(mixer: MixerSpec, position: PositionSpec) -> Iterator[tuple[str, MixerSpec, PositionSpec | None]]:
    """Where a position may be written: in the embedding or the stack, and in the mixer itself."""
    heads = mixer.head_shape(WIDTH)
    if isinstance(position, Rotary) and heads is not None and heads[1] * position.share < 2:
        position = dataclasses.replace(position, share=1.0)  # heads so small that a part of one holds no pair
    if "embed" in position.acts or position.acts <= mixer.can.positions:
        yield describe(position), mixer, position
    if position.acts <= mixer.can.positions and any(f.name == "position" for f in dataclasses.fields(mixer)):  # type: ignore[arg-type]
        yield f"own {describe(position)}", dataclasses.replace(mixer, position=position), None  # type: ignore[type-var]


def is_first(mixer: MixerSpec) -> bool:
    return mixer == MIX["full"][0]


def siblings(mixer: MixerSpec) -> tuple[MixerSpec, ...]:
    """The examples of the same kind, which share its positions and wirings; the plainest mixer has all for itself."""
    row = next(row for row in MIX.values() if mixer in row)
    return row if is_first(mixer) else tuple(other for other in row if not is_first(other))


def place_positions(mixer: MixerSpec) -> Iterator[tuple[str, MixerSpec, PositionSpec | None]]:
    """Every position in every place for the plainest mixer; of another kind, one example meets one of each kind."""
    for i, row in enumerate(POSITION.values()):
        placed = {m: [place for position in row for place in places(m, position)] for m in siblings(mixer)}
        able = [m for m, found in placed.items() if found]
        if is_first(mixer):
            yield from placed[mixer]
        elif able and able[i % len(able)] == mixer:
            yield placed[mixer][i % len(placed[mixer])]


def share_wirings(mixer: MixerSpec, able: Sequence[MixerSpec]) -> list[WiringSpec]:
    """Every wiring with every norm for the plainest mixer; the examples of another kind divide some, one at least for each."""
    if is_first(mixer):
        return wirings(mixer)
    some, row = wirings(mixer)[1::3], [m for m in siblings(mixer) if m in able]
    return some[row.index(mixer) % max(len(some), 1) :: len(row)]


def combinations(mixer: MixerSpec) -> Iterator[tuple[str, MixerSpec, PositionSpec | None, WiringSpec, FeedSpec]]:
    """A mixer as it is, and with positions, wirings and feed-forwards.

    The plainest mixer meets all of them. Another kind meets one example of each position, some wirings and a feed-forward,
    which its examples share: whether a dial is right does not depend on them.
    """
    usual, feeds = PreNorm(), every(FEED)
    yield "", mixer, None, usual, feeds[0]
    yield from ((*place, usual, feeds[0]) for place in place_positions(mixer))
    for wiring in share_wirings(mixer, every(MIX)):
        yield describe(wiring), mixer, None, wiring, feeds[0]
    for feed in feeds[1:] if is_first(mixer) else feeds[1:2] if mixer == siblings(mixer)[0] else []:
        yield describe(feed), mixer, Rotary() if "rotate" in mixer.can.positions else None, usual, feed


def cases(shape: str) -> Iterator[Case]:
    if shape != "both":
        for mixer in (m for m in every(MIX) if m.can.causal or shape == "encoder"):
            for name, m, *parts in combinations(mixer):
                yield Case(f"{shape}: {describe(mixer)} {name}".strip(), make_model(shape, m, *parts), m)
        return
    # a mask reads one sequence, and here are two
    able = [m for m in every(MIX) if m.can.cross and getattr(m, "mask", None) is None]
    for mixer in able:
        for wiring in share_wirings(mixer, able):
            spec = make_model(shape, mixer, None, wiring, FeedForward(12))
            yield Case(f"both: {describe(mixer)} {describe(wiring)}", spec, mixer)


SMALL: dict[str, Any] = dict(width=WIDTH, depth=2, heads=2, hidden=12, vocab=VOCAB, dropout=0.0)
RECURRENT: dict[str, Any] = dict(width=WIDTH, embedding=6, vocab=VOCAB, dropout=0.0)
DILATED: dict[str, Any] = dict(width=WIDTH // 2, depth=3, max_dilation=2, vocab=VOCAB, dropout=0.0)
GRID: dict[str, Any] = dict(width=WIDTH, rows=2, vocab=VOCAB, dropout=0.0)
PICTURES: dict[str, Any] = dict(width=WIDTH, depth=2, heads=2, hidden=12, patch=2, image=6, classes=3, dropout=0.0)
FAMILY: dict[str, dict[str, ModelSpec]] = {
    "decoder": {
        "gpt": gpt.spec(**SMALL, length=LENGTH),
        "openai-gpt": gpt.spec("openai-gpt", **SMALL, length=LENGTH),
        "llama": llama.spec(**SMALL, kv_heads=1, length=LENGTH),
        "llama3": llama.spec(**SMALL, kv_heads=1, length=LENGTH, base=50.0, rope_scaling=Llama3Scaling(8.0, 16)),
        "mistral": llama.spec(**SMALL, kv_heads=1, length=LENGTH, window=3),
        "qwen2": llama.spec("qwen2.5-0.5b", **SMALL, kv_heads=1, length=LENGTH),
        "qwen3": llama.spec("qwen3-0.6b", **SMALL, kv_heads=1, head_width=6, length=LENGTH),
        "bytenet-lm": bytenet.spec("bytenet-lm", **DILATED, length=LENGTH),
        "rnn, lstm": rnn.spec(**RECURRENT, depth=2, length=LENGTH),
        "rnn, gru": rnn.spec(**{**RECURRENT, "embedding": None}, depth=1, cell="gru", tied=True, length=LENGTH),
        "transformer_xl": transformer_xl.spec(**SMALL, memory_length=LENGTH, length=LENGTH),
    },
    "encoder": {
        "bert": bert.spec(**SMALL, length=LENGTH),
        "roberta": bert.spec("roberta-base", **SMALL, length=LENGTH),
        "distilbert": bert.spec("distilbert-base", **SMALL, length=LENGTH),
        "t5 reader": t5.spec(**SMALL, head_width=3, length=LENGTH, buckets=8, reach=6, writes=False),
    },
    "both": {
        "transformer": transformer.spec(**SMALL, length=LENGTH),
        "t5": t5.spec(**SMALL, head_width=3, length=LENGTH, buckets=8, reach=6),
        "t5-v1.1": t5.spec("t5-v1.1-small", **SMALL, length=LENGTH, buckets=8, reach=6),
        "marian": marian.spec(**SMALL, length=LENGTH),
        "bart": bart.spec(**SMALL, length=LENGTH),
        "lstm": lstm.spec(**RECURRENT, depth=2, length=LENGTH),
        "lstm, luong": lstm.spec(**RECURRENT, depth=2, attention="dot", length=LENGTH),
        "lstm, both ways": lstm.spec(**RECURRENT, depth=1, attention="additive", bidirectional=True, length=LENGTH),
        "gru": gru.spec("gru-multi30k", **RECURRENT, length=LENGTH),
        "gru, bahdanau": gru.spec(**RECURRENT, length=LENGTH),
        "rnnsearch": gru.spec("rnnsearch", **RECURRENT, length=LENGTH),
        "convs2s": convs2s.spec(width=6, embedding=WIDTH, depth=2, vocab=VOCAB, dropout=0.0, length=LENGTH),
        "convs2s-wmt": convs2s.spec(
            widths=(6, 5), kernels=(3, 1), embedding=WIDTH, out=7, vocab=VOCAB, dropout=0.0, length=LENGTH
        ),
        "bytenet": bytenet.spec(**DILATED, length=LENGTH),
        "neural_gpu": neural_gpu.spec(**GRID, copies=2, length=LENGTH),
        "extended_neural_gpu": extended_neural_gpu.spec(**GRID, length=LENGTH),
    },
    "pictures": {
        "vit": vit.spec(**PICTURES, pool="first"),
        "vit of means": vit.spec(**PICTURES, pool="mean", channels=1),
    },
    "stories": {
        "memn2n": memn2n.spec(width=WIDTH, vocab=VOCAB, memory=LENGTH - 1),
        "memn2n, layerwise": memn2n.spec(width=WIDTH, vocab=VOCAB, memory=LENGTH - 1, tying="layerwise", hops=2),
        "memn2n, bag": memn2n.spec(width=WIDTH, vocab=VOCAB, memory=LENGTH - 1, encoding="bag", temporal=False),
    },
}
"""Families, small, by shape; those of pictures and stories read with an encoder, but no row of tokens."""


def body_cases(shape: str) -> Iterator[Case]:
    """Bodies that are not made of blocks, in the place their examples are for."""
    for body in every(BODY):
        place = "both" if body.reads_memory else "decoder" if body.causal else "encoder"
        if body.layers() or place != shape:
            continue
        read = None if place == "decoder" else Stack(Block(mix=Full(2)), depth=1)
        sides = {"encoder": body} if place == "encoder" else {"encoder": read, "decoder": body}
        yield Case(
            f"{shape}: {describe(body)}", ModelSpec(WIDTH, LENGTH, Tokens(VOCAB), **sides, head=Vocab(False)), body
        )


def family_cases(shape: str) -> Iterator[Case]:
    for name, spec in FAMILY[shape].items():
        body = spec.decoder or spec.encoder
        assert body is not None
        yield Case(f"{shape}: family {name}", spec, body.mixers()[-1][1] if body.layers() else body)


def pointer_cases() -> Iterator[Case]:
    """A head that copies, with attention and with a decoder that has none of its own."""
    for head in POINTERS:
        plain = next(cases("both"))
        yield Case(f"both: {describe(head)}", dataclasses.replace(plain.spec, head=head), plain.part)
    for name in ("bart", "lstm, luong", "bytenet", "neural_gpu"):
        spec = FAMILY["both"][name]
        (case,) = (case for case in family_cases("both") if case.spec is spec)
        head = Pointer(tied=getattr(spec.head, "tied", False), coverage=1.0)
        yield Case(f"{case.name} that copies", dataclasses.replace(spec, head=head), case.part)


DECODERS, ENCODERS, BOTH = (
    [*cases(shape), *body_cases(shape), *family_cases(shape)] for shape in ("decoder", "encoder", "both")
)
BOTH += pointer_cases()
IMAGES, STORIES = [*family_cases("pictures")], [*family_cases("stories")]
FAMILIES = [case for shape in FAMILY for case in family_cases(shape)]
STREAMING = [c for c in DECODERS if c.part.can.stream]


def given(net: Net, rows: int, seed: int = 0) -> tuple[torch.Tensor, Coords]:
    """An input of what the model reads, be it tokens, sentences or pictures, with nothing missing."""
    if isinstance(net.spec.embed, Tokens):
        return make_ids(rows, LENGTH, seed), Coords.span(LENGTH)
    like, at = net.embed.sample(LENGTH)
    draw = torch.Generator().manual_seed(seed)
    if not like.is_floating_point():
        return torch.randint(VOCAB, (rows, *like.shape[1:]), generator=draw), Coords.span(LENGTH)
    return torch.randn(rows, *like.shape[1:], generator=draw, dtype=torch.double), at


def name_of(case: Case) -> str:
    return case.name
