"""How sublayers meet the stream. A block does not know how it is wired.

    PostNorm              PreNorm               Parallel                Bare
    x ──┬───────┐         x ──┬───────┐         x ──┬─────────┐         x
        f       │             norm    │             norm ─┐   │         f
        └─ add ─┘             f       │             mix  feed │         x
           norm               └─ add ─┘             └─add─┴add┘
                          (one norm at the end)  (one norm at the end)

`enter` and `leave` bracket a stack, so a wiring may carry another stream inside it (a pair, for reversible layers), and
let out a wider one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from regard.nn.core.context import Context
from regard.nn.core.mixer import Can
from regard.nn.core.state import State
from regard.nn.layers.norm import LayerNorm, NormSpec
from regard.registry import Registry
from regard.spec import Share, Spec, spec

if TYPE_CHECKING:
    from regard.nn.blocks.block import BlockLayer

WIRINGS: Registry[type[WiringSpec]] = Registry("wiring")

States = dict[str, State | None]


class WiringSpec(Spec):
    """How the sublayers of a block meet the stream; a spec that is its own implementation, for it holds no weights."""

    registry = WIRINGS
    norm: NormSpec | None
    dropout: float
    ends: ClassVar[bool] = True
    """Whether a stack of such blocks needs one more norm at its end."""

    def norms(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """The sublayers that have a norm of their own."""
        return parts

    def enter(self, x: Tensor) -> Any:
        return x

    def leave(self, stream: Any) -> Tensor:
        return stream  # type: ignore[no-any-return]

    def leaves(self, width: int) -> int:
        """How wide the stream leaves that entered with this width."""
        return width

    def values(self, x: Tensor, first: Tensor) -> Tensor:
        """What a decoder reads as values, where `first` entered the encoder and `x` came out (ConvS2S adds the two)."""
        return x

    def refusals(self, can: Can, where: str) -> list[str]:
        """What the mixer at this place does that cannot be wired so."""
        return []

    def run(self, block: BlockLayer, stream: Any, ctx: Context, states: States) -> tuple[Any, States]:
        """One block. `states` has an entry a sublayer that remembers; the new ones are returned."""
        raise NotImplementedError


@WIRINGS.add(also=("post", "post_ln"))
@spec
class PostNorm(WiringSpec):
    """norm(x + f(x)), the paper's."""

    norm: NormSpec = LayerNorm()
    dropout: Share = 0.0
    ends = False

    def run(self, block: BlockLayer, stream: Tensor, ctx: Context, states: States) -> tuple[Tensor, States]:
        x, new = stream, {}
        for name, part in block.parts():
            y, new[name] = part(x, ctx, states.get(name))
            x = block.norm(name)(x + block.dropout(y))
        return x, new


@WIRINGS.add(also=("pre", "pre_ln"))
@spec
class PreNorm(WiringSpec):
    """x + f(norm(x)), and one norm at the end of the stack."""

    norm: NormSpec = LayerNorm()
    dropout: Share = 0.0

    def run(self, block: BlockLayer, stream: Tensor, ctx: Context, states: States) -> tuple[Tensor, States]:
        x, new = stream, {}
        for name, part in block.parts():
            y, new[name] = part(block.norm(name)(x), ctx, states.get(name))
            x = x + block.dropout(y)
        return x, new


@WIRINGS.add
@spec
class Parallel(WiringSpec):
    """x + Σ f(norm(x)): all sublayers read the same norm (GPT-J, PaLM)."""

    norm: NormSpec = LayerNorm()
    dropout: Share = 0.0

    def norms(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        return parts[:1]

    def run(self, block: BlockLayer, stream: Tensor, ctx: Context, states: States) -> tuple[Tensor, States]:
        x, new = stream, {}
        parts = block.parts()
        read = block.norm(parts[0][0])(x)
        for name, part in parts:
            y, new[name] = part(read, ctx, states.get(name))
            x = x + block.dropout(y)
        return x, new


@WIRINGS.add
@spec
class Bare(WiringSpec):
    """f(x) alone: no residual, no norm."""

    dropout: Share = 0.0
    norm = None
    ends = False

    def norms(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    def run(self, block: BlockLayer, stream: Tensor, ctx: Context, states: States) -> tuple[Tensor, States]:
        x, new = stream, {}
        for name, part in block.parts():
            x, new[name] = part(x, ctx, states.get(name))
            x = block.dropout(x)
        return x, new
