"""A block: the sublayers mix, cross and feed, in order."""

from __future__ import annotations

from torch import Tensor, nn

import regard.nn.mixers  # noqa: F401  fills the table that `mix: full` is looked up in
from regard.errors import SpecError
from regard.nn.blocks.wiring import States, Stream, WiringSpec
from regard.nn.core.context import Context
from regard.nn.core.mixer import Mixer, MixerSpec, Site
from regard.nn.core.state import State
from regard.nn.layers.dropout import Dropout
from regard.nn.layers.feedforward import FeedSpec
from regard.registry import kind_of
from regard.spec import Spec, spec

ROLES = ("mix", "cross", "feed")


@spec
class Block(Spec):
    """`mix` attends to the stream, `cross` to a memory, `feed` processes each position by itself."""

    mix: MixerSpec | None = None
    cross: MixerSpec | None = None
    feed: FeedSpec | None = None

    def __post_init__(self) -> None:
        if self.mix is None and self.cross is None and self.feed is None:
            raise SpecError("a block needs at least one of mix, cross and feed")

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(name for name in ROLES if getattr(self, name) is not None)

    @property
    def mixers(self) -> tuple[tuple[str, MixerSpec], ...]:
        """The mixers of the block, by role."""
        return tuple((role, part) for role, part in (("mix", self.mix), ("cross", self.cross)) if part is not None)

    def build(self, site: Site, wiring: WiringSpec) -> BlockLayer:
        return BlockLayer(self, site, wiring)

    def refusals(self, site: Site, wiring: WiringSpec) -> list[str]:
        """List what its mixers are asked to do here, with this wiring, and cannot."""
        out, widths = [], self.widths(site.width)
        for role, mixer in self.mixers:
            here = site.at(role, role=role, width=widths[role])
            out += mixer.refusals(here) + wiring.refusals(mixer.can, here.path)
            if wiring.adds and (left := mixer.leaves(here.width)) != here.width:
                out.append(
                    f"{here.path} turns a stream of width {here.width} into one of {left}, and wiring "
                    f"{kind_of(type(wiring))!r} adds the two; set its width to {here.width}, or use wiring 'bare'"
                )
        return out

    def widths(self, width: int) -> dict[str, int]:
        """Return the width that each sublayer reads, if the first reads `width`."""
        out = {}
        for role in self.roles:
            out[role], part = width, getattr(self, role)
            width = part.leaves(width) if isinstance(part, MixerSpec) else width
        return out

    def leaves(self, width: int) -> int:
        """Return the width of the output for this input width."""
        for _, mixer in self.mixers:
            width = mixer.leaves(width)
        return width


class BlockLayer(nn.Module):
    """The sublayers by role (`mix`, `cross`, `feed`) and their norms (`mix_norm`, …)."""

    def __init__(self, spec: Block, site: Site, wiring: WiringSpec) -> None:
        super().__init__()
        self.spec, self.roles, self.wiring, self.path = spec, spec.roles, wiring, site.path
        for role, width in spec.widths(site.width).items():
            setattr(self, role, getattr(spec, role).build(site.at(role, role=role, width=width)))
        for role in wiring.norms(self.roles):
            assert wiring.norm is not None
            setattr(self, f"{role}_norm", wiring.norm.build(site.width))
        self.dropout = Dropout(wiring.dropout)

    def parts(self) -> list[tuple[str, nn.Module]]:
        return [(role, getattr(self, role)) for role in self.roles]

    def run_part(self, role: str, x: Tensor, ctx: Context, state: State | None) -> tuple[Tensor, State | None]:
        """Run a sublayer; a tape may read or replace what it adds to the stream."""
        y, state = getattr(self, role)(x, ctx, state)
        return ctx.tape.at(f"{self.path}.{role}", y), state

    def norm(self, role: str) -> nn.Module:
        return getattr(self, f"{role}_norm")  # type: ignore[no-any-return]

    def forward(self, stream: Stream, ctx: Context, states: States) -> tuple[Stream, States]:
        return self.wiring.run(self, stream, ctx, states)

    def start(self, rows: int, capacity: int) -> States:
        return {name: part.start(rows, capacity) for name, part in self.parts() if isinstance(part, Mixer)}

    def start_final(self, rows: int) -> States:
        """Return the state of those mixers whose final state belongs to the memory."""
        mixers = {role: mixer for role, mixer in self.spec.mixers if mixer.can.final}
        return {role: getattr(self, role).start(rows, 0) for role in mixers}
