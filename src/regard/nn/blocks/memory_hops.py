"""Hops over a memory (Sukhbaatar et al. 2015).

The stream holds a question (position 0) and the sentences of a story (positions 1, 2, …), each as the vectors of several
tables side by side (`sentences.py`). Hop k compares the question u with the story and adds what it finds:

    p = softmax(u · m)    o = Σ p c    u ← u + o          m: the story by table A_k, c: by table C_k

    adjacent    A₁ = B   C₁ = A₂   C₂ = A₃   …            hops + 1 tables; the last is the answer's, too
    layerwise   A, B, C for all hops;  u ← H u + o        three tables

The result is that of the question and stands at every position. For the first `linear_start` training steps the hops have no
softmax; a model that is not in training always has it. With `empty_slots` the softmax runs over the whole memory: a slot
without a sentence has score 0 and adds nothing, so that the weights of a hop may sum to less than 1.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.nn.attention.attend import masked_softmax
from regard.nn.blocks.body import BODIES, MAX_LAYERS, Body, BodySpec
from regard.nn.core.context import Context
from regard.nn.core.mixer import Act, Can, Site
from regard.nn.core.shape import sizes
from regard.nn.core.state import State
from regard.spec import spec

Tying = Literal["adjacent", "layerwise"]


@BODIES.add
@spec
class MemoryHops(BodySpec):
    """A question that looks at a story several times."""

    hops: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = 3
    tying: Tying = "adjacent"
    """Shared tables: each hop's values are the next one's keys, or all hops have the same."""
    linear_start: Annotated[int, Field(ge=0)] = 0
    """Number of training steps without softmax at the beginning."""
    empty_slots: bool = False
    """Slots of the memory without a sentence take part in the softmax, as in the authors' code: a hop may find nothing."""
    causal: bool = False
    can = Can(causal=False, cross=False, stream=False, rewind=False, packed=False, positions=frozenset[Act]())

    @property
    def tables(self) -> int:
        """Number of tables that it reads side by side."""
        return self.hops + 1 if self.tying == "adjacent" else 3

    def build(self, site: Site) -> Body:
        return MemoryHopsBody(self, site)

    def leaves(self, width: int, memory: int = 0) -> int:
        return max(width // self.tables, 1)

    def refusals(self, site: Site) -> list[str]:
        out = super().refusals(site)
        if site.width % self.tables:
            out.append(
                f"{site.path} reads {self.tables} tables side by side, and {site.width} cannot be divided by that; "
                f"set embed.tables: {self.tables}"
            )
        return out

    def weight_paths(self, path: str) -> list[str]:
        return [f"{path}.hops.{i}" for i in range(self.hops)]


class MemoryHopsBody(Body):
    def __init__(self, spec: MemoryHops, site: Site) -> None:
        super().__init__()
        self.spec, self.site, self.width = spec, site, spec.leaves(site.width)
        self.recur = nn.Linear(self.width, self.width, bias=False) if spec.tying == "layerwise" else None
        self.is_linear = False

    def before_step(self, step: int) -> None:
        self.is_linear = step <= self.spec.linear_start

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        b, n, _ = sizes(x, "b n d", d=self.site.width)
        tables, pos = x.reshape(b, n, self.spec.tables, self.width).unbind(2), ctx.at.pos.expand(b, -1)
        story = pos > 0
        adjacent = self.spec.tying == "adjacent"
        asked = tables[0 if adjacent else 1].masked_fill((pos != 0).unsqueeze(-1), 0.0)
        u = asked.sum(1)
        for i in range(self.spec.hops):
            keys, values = (tables[i], tables[i + 1]) if adjacent else (tables[0], tables[2])
            scores = (keys @ u.unsqueeze(-1)).squeeze(-1)
            if self.is_linear and self.training:
                weights = scores.masked_fill(~story, 0.0)
            else:
                weights = self._weigh(scores, story)
            path = f"{self.site.path}.hops.{i}"
            ctx.tape.plan(path, "one question for each story")
            ctx.tape.keep(f"{path}.weights", weights[:, None, None].expand(b, 1, n, n))
            found = (weights.unsqueeze(1) @ values).squeeze(1)
            u = (u if self.recur is None else self.recur(u)) + found
        return ctx.tape.at(self.site.path, u.unsqueeze(1).expand(b, n, self.width)), state

    def _weigh(self, scores: Tensor, story: Tensor) -> Tensor:
        """The share of each sentence (b, n): a softmax over the story and, if asked for, over the empty slots as well."""
        keep = story
        if self.spec.empty_slots:  # as many slots of score 0 as one of score log(their number)
            empty = self.site.length - 1 - story.sum(-1, keepdim=True)
            scores = torch.cat([scores, empty.clamp(min=1).to(scores.dtype).log()], -1)
            keep = torch.cat([story, empty > 0], -1)
        return masked_softmax(scores, keep)[:, : story.shape[1]] * story.any(-1, keepdim=True)

    def flops(self, n: int, m: int) -> float:
        own = 0.0 if self.recur is None else 2.0 * self.width**2
        return self.spec.hops * (4.0 * self.width + own / n)
