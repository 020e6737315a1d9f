"""A decoder that reads columns: output of a Neural GPU.

The encoder has computed the output already, one symbol per column. At each position the decoder reads what the encoder left
there and ignores the tokens that were written before, so that all models that write text run alike. Past the last column there
is nothing to read: the task must give the source as many columns as outputs need (`data.unfold`).
"""

from __future__ import annotations

import dataclasses

from torch import Tensor

from regard.errors import SpecError
from regard.nn.blocks.body import BODIES, Body, BodySpec
from regard.nn.blocks.dilated_convolutions import read_columns
from regard.nn.core.context import Context
from regard.nn.core.mixer import Act, Can, Site
from regard.nn.core.shape import sizes
from regard.nn.core.state import State
from regard.spec import spec


@BODIES.add
@spec
class Columns(BodySpec):
    """Reads the first row of the encoder's grid, column by column (Neural GPU)."""

    causal: bool = True
    can = Can(cross=False, weights=False, packed=False, positions=frozenset[Act]())

    def build(self, site: Site) -> Body:
        return ColumnsBody(self, dataclasses.replace(site, causal=True))

    @property
    def readers(self) -> int:
        return 1

    def refusals(self, site: Site) -> list[str]:
        return [*super().refusals(site), *grid_refusals(site)]


class ColumnsBody(Body):
    def __init__(self, spec: Columns, site: Site) -> None:
        super().__init__()
        self.site = site
        if faults := spec.refusals(site):
            raise SpecError(*faults)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        sizes(x, "b n d", d=self.site.width)
        if ctx.memory is None:
            raise SpecError(f"{self.site.path} reads a memory, and none was given; give the model a source")
        ctx.tape.plan(self.site.path, "columns: the source at the same position")
        y = read_columns(ctx.memory, ctx.at, x.shape[0])[..., : self.site.width]
        return ctx.tape.at(self.site.path, y), state

    def start(self, rows: int, capacity: int) -> State:
        return State()

    def flops(self, n: int, m: int) -> float:
        return 0.0


def grid_refusals(site: Site) -> list[str]:
    """List what is wrong with the width of a grid that an encoder leaves."""
    if site.memory % site.width == 0:
        return []
    return [
        f"{site.path} reads a grid whose cells are {site.width} wide, and the encoder leaves {site.memory}; make it a multiple"
    ]
