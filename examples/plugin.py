"""Parts of your own, without a fork: a metric, a mixer and a task. Copy what you need.

regard train copy --plugin examples/plugin.py --set task=vowels --set 'data.metrics=[cer, exact]' \\
    --set model.decoder.block.mix=average --out runs/vowels
regard run runs/vowels --plugin examples/plugin.py bdfgh
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import jiwer
from torch import Tensor, nn

from regard.metrics import METRICS, Metric
from regard.nn.core.context import Context
from regard.nn.core.mixer import MIXERS, Can, Mixer, MixerSpec, Site
from regard.nn.core.state import State, moving
from regard.spec import spec
from regard.tasks.common.task import TASKS, Dataset
from regard.tasks.translate import Translate

# A metric is a function of outputs and references.


def cer(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Per cent of characters that must be changed."""
    return 100 * float(jiwer.cer(list(references), list(outputs)))


METRICS.add(Metric("cer", cer, higher=False))


# A mixer is a spec (what a recipe says), a module (what runs) and a state (what it remembers between tokens).


@MIXERS.add
@spec
class Average(MixerSpec):
    """Each position sees the mean of those it may see (Zhang et al. 2018)."""

    can = Can(cross=False, rewind=False, weights=False, packed=False, positions=frozenset())

    def build(self, site: Site) -> AverageMixer:
        return AverageMixer(site)


@dataclasses.dataclass
class Seen(State):
    """The sum of what was seen, and how much it was."""

    total: Tensor = moving()
    count: Tensor = moving()


class AverageMixer(Mixer):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.v = nn.Linear(site.width, site.width)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        kept = ctx.at.kept.unsqueeze(-1).to(x.dtype).expand(x.shape[0], -1, -1)
        total, count = self.v(x) * kept, kept
        if self.site.causal:
            total, count = total.cumsum(1), count.cumsum(1)
        else:
            total, count = total.sum(1, keepdim=True).expand_as(x), count.sum(1, keepdim=True)
        if isinstance(state, Seen):
            total, count = total + state.total, count + state.count
            state = Seen(total[:, -1:], count[:, -1:])
        return total / count.clamp(min=1), state

    def start(self, rows: int, capacity: int) -> State:
        nothing = self.v.weight.new_zeros(rows, 1, self.site.width)
        return Seen(nothing, nothing[:, :, :1])

    def state_numbers(self, n: int) -> float:
        return self.site.width + 1.0


# A task reads data and makes batches of it. This one is translation, except that it makes its own sources.


@TASKS.add
class Vowels(Translate):
    """Put the vowels back in."""

    @classmethod
    def read(cls, settings: Any, seed: int) -> Dataset:
        raw = super().read(settings, seed)

        def bare(corpora: Any) -> list[Any]:
            return [dataclasses.replace(c, source=[re.sub("[aeiou]", "", t) for t in c.target]) for c in corpora]

        return dataclasses.replace(raw, train=bare(raw.train), valid=bare(raw.valid))
