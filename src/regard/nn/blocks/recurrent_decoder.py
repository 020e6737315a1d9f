"""A recurrent decoder, with or without attention.

It starts from the encoder's final states and steps all its layers together, because what the top layer sees may be read by the
bottom one at the next token.

    none (Sutskever et al. 2014)     before (Bahdanau et al. 2014)        after (Luong et al. 2015)

         out                              out                                  out ───────┐ input feeding:
          │                                │                            a = tanh(W[c, s]) │ the next token reads a
      s ─ cell ─▶ s'               s ─┬─ cell ─▶ s'                              │
          │                           │    │                              s ─ cell ─▶ s' ── c: where s' looks
        token                         └ c ─┴─ token                              │
                                        c: where s looks                       token

`context` without attention is the encoder's last state, read at every token (Cho et al. 2014). The `readout` is what the head
reads: the state (or Luong's a), or state, context and token side by side, or what Bahdanau's maxout layer makes of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal, Self

import torch
from torch import Tensor, nn

from regard.errors import SpecError
from regard.nn.attention.source_attention import Score, SourceAttention
from regard.nn.blocks.body import BODIES, Body, BodySpec, Layers, Stack
from regard.nn.core.context import Context, Memory
from regard.nn.core.mixer import Act, Can, MixerSpec, Site
from regard.nn.core.shape import device_kind, sizes
from regard.nn.core.state import State, fixed, join_padded, moving
from regard.nn.layers.dropout import dropout
from regard.nn.mixers.recurrent import LSTM, RecurrentLayer, RecurrentMixer, RecurrentState
from regard.spec import Count, spec


@BODIES.add
@spec
class RecurrentDecoder(BodySpec):
    """Recurrent layers that step together, from the encoder's final states."""

    cell: MixerSpec = LSTM()
    """The layers: `rnn`, `gru` or `lstm`. Its dropout is that between layers."""
    depth: Count = 1
    attention: Score | None = None
    """Scoring of the source: `additive` (Bahdanau), `dot`, `general` or `concat` (Luong); none without attention."""
    attend: Literal["before", "after"] = "before"
    """Time to look at the source: before the step, for the layers to read, or after it, for the output."""
    input_feeding: bool = False
    """With attention after the step: what it gave is read beside the next token."""
    context: bool = False
    """Without attention: read the encoder's last state at every token."""
    readout: Literal["state", "all", "maxout"] = "state"
    """Input of the head: the state; state, context and token side by side; or the larger of two maps of them (Bahdanau)."""
    readout_width: Count | None = None
    """Width of `maxout`; by default half of the state's."""
    start: Literal["final", "map", "zeros"] = "final"
    """The first state: the encoder's final ones layer by layer, a map of its last one, or zeros."""
    causal: bool = True
    can = Can(cross=False, rewind=False, packed=False, memory=True, positions=frozenset[Act]())

    def __post_init__(self) -> None:
        if not isinstance(self.cell, RecurrentLayer) or self.cell.bidirectional or self.cell.reverse:
            raise SpecError("cell should be a recurrent layer that reads forward: rnn, gru or lstm")
        if self.attention is not None and self.context:
            raise SpecError("`context` is for a decoder without attention; leave out one of them")
        if self.input_feeding and (self.attention is None or self.attend != "after"):
            raise SpecError("input_feeding needs attention after the step; set attention and attend: after")

    @property
    def layer(self) -> RecurrentLayer:
        assert isinstance(self.cell, RecurrentLayer)
        return self.cell

    def build(self, site: Site) -> Body:
        return RecurrentDecoderBody(self, dataclasses.replace(site, causal=True))

    def leaves(self, width: int, memory: int = 0) -> int:
        state = self.layer.leaves(width)
        if self.readout == "maxout":
            return self.readout_width or max(state // 2, 1)
        return state if self.readout == "state" else self.beside(width, memory)

    def beside(self, width: int, memory: int) -> int:
        """Return the width of state, context and token side by side."""
        return self.layer.leaves(width) + width + (memory if self.attention is not None or self.context else 0)

    def weight_paths(self, path: str) -> list[str]:
        return [] if self.attention is None else [f"{path}.cross"]

    def refusals_of(self, encoder: BodySpec, site: Site) -> list[str]:
        """It starts from the final states of recurrent layers, which must fit its own."""
        found = [m for _, m in encoder.mixers() if isinstance(m, RecurrentLayer)]
        if self.start == "zeros" and not self.context:
            return []
        if not found or not isinstance(encoder, Stack):
            return [f"{site.path} starts from the last states of an encoder, and this one has no recurrent layers; "
                    "set decoder.start: zeros"]  # fmt: skip
        if self.start != "final":
            return []
        width = self.layer.leaves(site.width)
        if len(found) != self.depth or {type(m) for m in found} != {type(self.cell)}:
            return [f"{site.path} has {self.depth} layers that start from those of the encoder, which has {len(found)}, "
                    "or other cells; make them equal, or set decoder.start: map"]  # fmt: skip
        if site.memory != width:
            return [f"{site.path} has states of width {width}, and the encoder's are {site.memory} wide; make them equal, "
                    "or set decoder.start: map"]  # fmt: skip
        return []


@dataclasses.dataclass
class RecurrentDecoderState(State):
    """State of the layers, Luong's output that is fed back, and the keys of the source."""

    layers: tuple[RecurrentState, ...] = moving()
    fed: Tensor | None = moving(default=None)
    keys: Tensor | None = fixed(default=None)
    begun: bool = False
    """True if it has the encoder's final states."""

    def join(self, other: Self) -> Self:
        if self.keys is None or other.keys is None:
            return super().join(other)
        both = super(RecurrentDecoderState, dataclasses.replace(self, keys=None)).join(
            dataclasses.replace(other, keys=None)
        )
        return dataclasses.replace(both, keys=join_padded(self.keys, other.keys, 1))


class RecurrentDecoderBody(Body):
    def __init__(self, spec: RecurrentDecoder, site: Site) -> None:
        super().__init__()
        self.spec, self.site, self.width = spec, site, spec.layer.leaves(site.width)
        looks = spec.attention is not None
        beside = self.width if spec.input_feeding else 0
        beside += site.memory if spec.context or (looks and spec.attend == "before") else 0
        layer = dataclasses.replace(spec.layer, width=self.width)
        cells = [dataclasses.replace(layer, dropout=0.0), *[layer] * (spec.depth - 1)]
        widths = [site.width + beside, *[self.width] * (spec.depth - 1)]
        self.layers = nn.ModuleList(
            cell.build(site.at(f"layers.{i}", role="mix", layer=i, depth=spec.depth, width=width))
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        self.cross = None if spec.attention is None else SourceAttention(spec.attention, self.width, site.memory)
        self.combine = nn.Linear(site.memory + self.width, self.width) if looks and spec.attend == "after" else None
        wide, left = spec.beside(site.width, site.memory), spec.leaves(site.width, site.memory)
        self.maxout = nn.Linear(wide, 2 * left) if spec.readout == "maxout" else None
        carried = self._mixers[0].cells[0].carried
        self.initial = nn.Linear(site.memory, carried * spec.depth * self.width) if spec.start == "map" else None

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        b, _, _ = sizes(x, "b n d", d=self.site.width)
        if ctx.memory is None:
            raise SpecError(f"{self.site.path} reads a memory, and none was given; give the model a source")
        now = state if isinstance(state, RecurrentDecoderState) else self.start(b, 0)
        with torch.autocast(device_kind(x), enabled=False):
            memory = _in(ctx.memory, self._mixers[0].cells[0].hidden.weight.dtype)
            x = x.to(memory.keys.dtype)
            now = now if now.begun else self._begin(now, memory, b)
            if self.cross is not None and now.keys is None:
                now = dataclasses.replace(now, keys=self.cross.project(memory))
            y, now = (
                self._step(x, ctx, memory, now) if self._ties else self._run(x, ctx, memory, now, state is not None)
            )
        return ctx.tape.at(self.site.path, y), None if state is None else now

    @property
    def _ties(self) -> bool:
        """True if a layer reads what a higher one left at the token before."""
        return self.cross is not None and (self.spec.attend == "before" or self.spec.input_feeding)

    @property
    def _mixers(self) -> list[RecurrentMixer]:
        return list(self.layers)  # type: ignore[arg-type]

    def _begin(self, now: RecurrentDecoderState, memory: Memory, rows: int) -> RecurrentDecoderState:
        """Take over the encoder's final states, or what a map makes of the last one."""
        layers, final = now.layers, [] if self.spec.start == "zeros" else _finals(memory, rows)
        if self.initial is not None:
            each = self.initial(final[-1].h).chunk(self.spec.depth, -1)
            parts = [new.chunk(len(old.carried), -1) for new, old in zip(each, layers, strict=True)]
            layers = tuple(
                RecurrentState((h.tanh(), *rest), old.doc) for (h, *rest), old in zip(parts, layers, strict=True)
            )
        elif self.spec.start == "final":
            layers = tuple(final)
        return dataclasses.replace(now, layers=layers, begun=True)

    def _run(
        self, x: Tensor, ctx: Context, memory: Memory, now: RecurrentDecoderState, keep: bool
    ) -> tuple[Tensor, RecurrentDecoderState]:
        """Layer by layer over all tokens, where no layer reads a higher one."""
        context: Tensor | None = None
        y = x
        if self.spec.context:
            context = _finals(memory, x.shape[0])[-1].h.unsqueeze(1).expand(-1, x.shape[1], -1)
            y = torch.cat([x, context], -1)
        layers = []
        for mixer, before in zip(self._mixers, now.layers, strict=True):
            y, after = mixer.run(y, ctx, before, keep=keep)
            layers.append(after)
        if self.cross is not None and self.combine is not None and now.keys is not None:
            context, weights = self.cross(y, now.keys, memory)
            self._record(weights, ctx, "all tokens at once")
            y = self.combine(torch.cat([context, y], -1)).tanh()
        return self._read_out(y, context, x), dataclasses.replace(now, layers=tuple(layers))

    def _step(
        self, x: Tensor, ctx: Context, memory: Memory, now: RecurrentDecoderState
    ) -> tuple[Tensor, RecurrentDecoderState]:
        """Token by token."""
        assert self.cross is not None
        assert now.keys is not None
        b, keys, fed = x.shape[0], now.keys, now.fed
        states = [layer.carried for layer in now.layers]
        drops = [_mask(mixer, b, x) for mixer in self._mixers]
        outs, contexts, seen = [], [], []
        for token, there in zip(x.unbind(1), self._kept(ctx, b), strict=True):
            before, y = (states, fed), token
            if self.spec.attend == "before":
                context, weights = self._look(states[-1][0], keys, memory)
                y = torch.cat([token, context], -1)
            elif self.spec.input_feeding:
                assert fed is not None
                y = torch.cat([token, fed], -1)
            states = []
            for mixer, carried, drop in zip(self._mixers, before[0], drops, strict=True):
                cell = mixer.cells[0]
                h = None if drop is None else carried[0] * drop
                new = cell.step(cell.project(mixer.drop(y.unsqueeze(1)).squeeze(1)), carried, h)
                states.append(new)
                y = new[0]
            if self.combine is not None:
                context, weights = self._look(y, keys, memory)
                y = fed = self.combine(torch.cat([context, y], -1)).tanh()
            if there is not None:
                both = zip(states, before[0], strict=True)
                states = [tuple(torch.where(there, *pair) for pair in zip(*each, strict=True)) for each in both]
                fed = None if fed is None or before[1] is None else torch.where(there, fed, before[1])
            outs.append(y)
            contexts.append(context)
            seen.append(weights)
        self._record(torch.cat(seen, 2), ctx, "token by token")
        y = self._read_out(torch.stack(outs, 1), torch.stack(contexts, 1), x)
        layers = tuple(RecurrentState(s, old.doc) for s, old in zip(states, now.layers, strict=True))
        return y, dataclasses.replace(now, layers=layers, fed=fed)

    def _look(self, h: Tensor, keys: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        assert self.cross is not None
        context, weights = self.cross(h.unsqueeze(1), keys, memory)
        return context.squeeze(1), weights

    def _kept(self, ctx: Context, rows: int) -> Iterator[Tensor | None]:
        """For each token, the rows (b, 1) in which it is no padding; None if it is in all."""
        if not ctx.at.padded:
            return iter([None] * ctx.at.n)
        return iter(ctx.at.kept.expand(rows, -1).unsqueeze(-1).unbind(1))

    def _record(self, weights: Tensor, ctx: Context, how: str) -> None:
        ctx.tape.plan(f"{self.site.path}.cross", f"{self.spec.attention}: {how}")
        ctx.tape.keep(f"{self.site.path}.cross.weights", weights)

    def _read_out(self, y: Tensor, context: Tensor | None, x: Tensor) -> Tensor:
        if self.spec.readout == "state":
            return y
        y = torch.cat([y, x] if context is None else [y, context, x], -1)
        return y if self.maxout is None else self.maxout(y).unflatten(-1, (-1, 2)).amax(-1)

    def start(self, rows: int, capacity: int) -> RecurrentDecoderState:
        fed = self._mixers[0].cells[0].hidden.weight.new_zeros(rows, self.width) if self.spec.input_feeding else None
        return RecurrentDecoderState(tuple(mixer.start(rows, capacity) for mixer in self._mixers), fed)

    def flops(self, n: int, m: int) -> float:
        own = sum(mixer.flops(n, m) for mixer in self._mixers)
        own += sum(2.0 * part.weight.numel() for part in (self.combine, self.maxout) if part is not None)
        if self.cross is None:
            return own
        keys = 0.0 if self.cross.key is None else 2.0 * self.cross.key.weight.numel() * m / n
        return own + keys + self.cross.flops(m) + 2.0 * m * self.site.memory

    def state_numbers(self, n: int) -> float:
        return sum(mixer.state_numbers(n) for mixer in self._mixers)


def _finals(memory: Memory, rows: int) -> list[RecurrentState]:
    """The final states of the encoder's layers, one row per hypothesis."""
    final = memory.final_of(rows)
    blocks = final.blocks if isinstance(final, Layers) else ()
    found = [state for block in blocks for state in block.values() if isinstance(state, RecurrentState)]
    if not found:
        raise SpecError(
            "the memory has no final states of recurrent layers; encode the source with a recurrent encoder"
        )
    return found


def _mask(mixer: RecurrentMixer, rows: int, like: Tensor) -> Tensor | None:
    """Return what the hidden state is multiplied by at every step, in training."""
    p = mixer.spec.hidden_dropout if mixer.training else 0.0
    return dropout(like.new_ones(rows, mixer.width), p) if p else None


def _in(memory: Memory, dtype: torch.dtype) -> Memory:
    """The memory in the type of the weights."""
    if memory.keys.dtype == dtype:
        return memory
    keys = memory.keys.to(dtype)
    return dataclasses.replace(
        memory, keys=keys, values=keys if memory.values is memory.keys else memory.values.to(dtype)
    )
