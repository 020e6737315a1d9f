"""Small models on which the laws are tried."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from regard.errors import LawError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Body, BodySpec, Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.wiring import PreNorm, WiringSpec
from regard.nn.core.context import Memory
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MixerSpec
from regard.nn.core.state import State
from regard.nn.layers.feedforward import FeedForward, FeedSpec
from regard.nn.mixers import Full
from regard.nn.positions.position import ALiBi, Learned, PositionSpec, Relative, Rotary
from regard.spec import Spec

WIDTH, LENGTH, VOCAB = 8, 12, 11
CLOSE = {"rtol": 0.0, "atol": 1e-10}
"""Tolerance of outputs, which are computed in double precision."""
CLOSE_GRADIENTS = {"rtol": 1e-9, "atol": 1e-9}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model to try the laws on, and the part it is about: a mixer, or a body that is not made of blocks."""

    name: str
    spec: ModelSpec
    part: MixerSpec | BodySpec

    def net(self, seed: int = 0) -> Net:
        """Build the model in double precision, without dropout, with every parameter far from its initial value."""
        net = self.spec.build(seed).double().eval()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            for name, parameter in net.named_parameters():
                parameter.normal_(std=0.4).add_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
        return net

    @property
    def shape(self) -> str:
        """Stacks of the model: `encoder`, `decoder` or `both`."""
        if self.spec.encoder is None:
            return "decoder"
        return "encoder" if self.spec.decoder is None else "both"


def describe(part: Spec | None) -> str:
    """Write a part as its name and the fields that differ from their default."""
    if part is None:
        return ""
    fields = [(f.name, getattr(part, f.name), f.default) for f in dataclasses.fields(part)]  # type: ignore[arg-type]
    values = (
        f"{name}={describe(value) if isinstance(value, Spec) else value}"
        for name, value, default in fields
        if value != default
    )
    return f"{type(part).__name__}({','.join(values)})"


def make_model(
    shape: str, mixer: MixerSpec, position: PositionSpec | None, wiring: WiringSpec, feed: FeedSpec
) -> ModelSpec:
    """Make a model of two layers; the position goes where it can act. With `both`, the mixer is the cross-attention."""
    on_stream = position is not None and "embed" in position.acts
    embed = Tokens(VOCAB, position if on_stream else None)

    def stack(block: Block, causal: bool) -> Stack:
        return Stack(block, depth=2, causal=causal, wiring=wiring, position=None if on_stream else position)

    block = Block(mix=mixer, feed=feed)
    if shape == "decoder":
        return ModelSpec(WIDTH, LENGTH, embed, decoder=stack(block, True))
    if shape == "encoder":
        return ModelSpec(WIDTH, LENGTH, embed, encoder=stack(block, False))
    plain = Block(mix=Full(2), feed=feed)
    across = Block(mix=Full(2), cross=mixer, feed=feed)
    return ModelSpec(WIDTH, LENGTH, embed, encoder=stack(plain, False), decoder=stack(across, True))


def mixer_cases(mixer: MixerSpec) -> Iterator[Case]:
    """A mixer in every shape it claims to support, with one position of each way of acting."""
    positions: list[PositionSpec | None] = [None, Learned()]
    positions += [p for p in (Rotary(), ALiBi(), Relative(2)) if p.acts <= mixer.can.positions]
    for shape in ("decoder", "encoder", "both"):
        if (shape == "decoder" and not mixer.can.causal) or (shape == "both" and not mixer.can.cross):
            continue
        for position in positions if shape != "both" else [None]:
            words = f"{shape}: {describe(mixer)} {describe(position)}".strip()
            yield Case(words, make_model(shape, mixer, position, PreNorm(), FeedForward(12)), mixer)


def position_cases(position: PositionSpec) -> Iterator[Case]:
    """A position with full attention, in a decoder and in an encoder."""
    for shape in ("decoder", "encoder"):
        mixer = Full(2)
        yield Case(
            f"{shape}: {describe(position)}", make_model(shape, mixer, position, PreNorm(), FeedForward(12)), mixer
        )


def make_ids(rows: int, n: int, seed: int = 0) -> Tensor:
    """Draw token ids (rows, n)."""
    return torch.randint(VOCAB, (rows, n), generator=torch.Generator().manual_seed(seed))


def body_of(net: Net) -> Body:
    """The body that the case is about: the decoder, or the encoder of a model that has no other."""
    body = net.encoder if net.decoder is None else net.decoder
    assert body is not None
    return body


def slice_coords(at: Coords, a: int, b: int) -> Coords:
    """Return the coordinates of tokens a to b; a row without gaps stays one."""
    if at.first is not None and not at.padded:
        return Coords.span(b - a, at.first + a)
    doc = None if at.doc is None else at.doc[:, a:b]
    return Coords(at.pos[:, a:b], doc, padded=at.padded)


def decode_in_chunks(
    net: Net, tokens: Tensor, at: Coords, state: State, cuts: Sequence[int], memory: Memory | None = None
) -> tuple[Tensor, State]:
    """Decode tokens chunk by chunk, with borders at `cuts`, continuing from a state."""
    out = []
    for a, b in pairwise([0, *cuts, tokens.shape[1]]):
        y, following = net.decode(tokens[:, a:b], slice_coords(at, a, b), memory, state)
        if following is None:
            raise LawError("a mixer that was given a state must return one: `(y, state)`, got None for the state")
        out.append(y)
        state = following
    return torch.cat(out, 1), state


def read_out(net: Net, stream: Tensor) -> Tensor:
    """Return what is compared where sources differ in length: the stream, or the scores of a head that reads the source."""
    return net.logits(stream) if net.spec.head.reads_source else stream


def run_rows_alone(net: Net, rows: Sequence[Tensor]) -> list[Tensor]:
    """Run each row of tokens in a pass of its own."""
    return [net(row.unsqueeze(0), Coords.span(len(row)))[0] for row in rows]


def add_noise(x: Tensor, at: Coords, size: float = 1e3) -> Tensor:
    """Return the stream with large random values at padded positions."""
    return torch.where(at.kept.unsqueeze(-1), x, size * torch.randn_like(x))


def require(condition: bool | Tensor, message: str) -> None:
    """Raise `LawError` unless the condition holds."""
    if not bool(condition):
        raise LawError(message)


def require_close(got: Tensor, wanted: Tensor, message: str, tolerance: dict[str, float] | None = None) -> None:
    """Raise `LawError` unless two tensors agree; the error says by how much they differ."""
    if got.shape != wanted.shape:
        raise LawError(f"{message}: shape {tuple(got.shape)} instead of {tuple(wanted.shape)}")
    limits = tolerance or CLOSE
    if not torch.allclose(got, wanted, rtol=limits["rtol"], atol=limits["atol"]):
        raise LawError(f"{message} (largest difference {(got - wanted).abs().max().item():.2g})")


def require_finite(grads: Sequence[Tensor], message: str) -> None:
    require(all(bool(grad.isfinite().all()) for grad in grads), message)
