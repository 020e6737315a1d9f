"""Wirings: how sublayers are joined to the stream.

PostNorm is the original: the norm comes after the residual sum. PreNorm puts it before the sublayer.

    PostNorm              PreNorm               Parallel                Bare
    x ──┬───────┐         x ──┬───────┐         x ──┬─────────┐         x
        f       │             norm    │             norm ─┐   │         f
        └─ add ─┘             f       │             mix  feed │         x
           norm               └─ add ─┘             └─add─┴add┘
                          (one norm at the end)  (one norm at the end)

NormOnly and ResidualOnly leave out one of the two, to see what each is for.

`enter` and `leave` surround a stack, so a wiring may use another stream inside it (a pair, for reversible layers) and
return a wider one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from regard.nn.core.context import Context
from regard.nn.core.mixer import Can
from regard.nn.core.state import State
from regard.nn.layers.norm import LayerNorm, NormSpec
from regard.registry import Registry, kind_of
from regard.spec import Share, Spec, spec

if TYPE_CHECKING:
    from regard.nn.blocks.block import BlockLayer

WIRINGS: Registry[type[WiringSpec]] = Registry("wiring")

States = dict[str, State | None]
Stream = Any
"""Value between blocks: a tensor, or a type that only its wiring knows (between `enter` and `leave`)."""


class WiringSpec(Spec):
    """Joints of a block's sublayers with the stream; it holds no weights, so the spec is the implementation."""

    registry = WIRINGS
    norm: NormSpec | None
    dropout: float
    ends: ClassVar[bool] = True
    """True if a stack of such blocks needs a norm at its end."""
    adds: ClassVar[bool] = True
    """True if the output of a sublayer is added to its input, so that both must have one width."""

    def norms(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """The sublayers that have a norm of their own."""
        return parts

    def enter(self, x: Tensor) -> Stream:
        return x

    def leave(self, stream: Stream) -> Tensor:
        return stream  # type: ignore[no-any-return]

    def leaves(self, width: int) -> int:
        """Return the width of the output for this input width."""
        return width

    def refusals(self, can: Can, where: str) -> list[str]:
        """List what the mixer does that this wiring does not support."""
        return []

    def run(self, block: BlockLayer, stream: Stream, ctx: Context, states: States) -> tuple[Stream, States]:
        """Run one block. `states` has an entry per stateful sublayer; the new states are returned."""
        raise NotImplementedError


@WIRINGS.add(also=("post", "post_ln"))
@spec
class PostNorm(WiringSpec):
    """norm(x + f(x)): the norm after the residual sum, as in the original Transformer."""

    norm: NormSpec = LayerNorm()
    dropout: Share = 0.0
    ends = False

    def run(self, block: BlockLayer, stream: Tensor, ctx: Context, states: States) -> tuple[Tensor, States]:
        x, new = stream, {}
        for name in block.roles:
            y, new[name] = block.run_part(name, x, ctx, states.get(name))
            x = block.norm(name)(x + block.dropout(y))
        return x, new


@WIRINGS.add(also=("pre", "pre_ln"))
@spec
class PreNorm(WiringSpec):
    """x + f(norm(x)): the norm before the sublayer, and one at the end of the stack."""

    norm: NormSpec = LayerNorm()
    dropout: Share = 0.0

    def run(self, block: BlockLayer, stream: Tensor, ctx: Context, states: States) -> tuple[Tensor, States]:
        x, new = stream, {}
        for name in block.roles:
            y, new[name] = block.run_part(name, block.norm(name)(x), ctx, states.get(name))
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
        read = block.norm(block.roles[0])(x)
        for name in block.roles:
            y, new[name] = block.run_part(name, read, ctx, states.get(name))
            x = x + block.dropout(y)
        return x, new


@WIRINGS.add
@spec
class Bare(WiringSpec):
    """f(x) alone: no residual, no norm."""

    dropout: Share = 0.0
    norm = None
    ends = False
    adds = False

    def norms(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    def refusals(self, can: Can, where: str) -> list[str]:
        return _refuse_without_residual(self, can, where)

    def run(self, block: BlockLayer, stream: Tensor, ctx: Context, states: States) -> tuple[Tensor, States]:
        x, new = stream, {}
        for name in block.roles:
            x, new[name] = block.run_part(name, x, ctx, states.get(name))
            x = block.dropout(x)
        return x, new


@WIRINGS.add(also=("no_residual",))
@spec
class NormOnly(WiringSpec):
    """norm(f(x)): post-norm without the residual connection."""

    norm: NormSpec = LayerNorm()
    dropout: Share = 0.0
    ends = False

    def refusals(self, can: Can, where: str) -> list[str]:
        return _refuse_without_residual(self, can, where)

    def run(self, block: BlockLayer, stream: Tensor, ctx: Context, states: States) -> tuple[Tensor, States]:
        x, new = stream, {}
        for name in block.roles:
            y, new[name] = block.run_part(name, x, ctx, states.get(name))
            x = block.norm(name)(block.dropout(y))
        return x, new


@WIRINGS.add(also=("no_norm",))
@spec
class ResidualOnly(WiringSpec):
    """x + f(x): the residual connection without a norm."""

    dropout: Share = 0.0
    norm = None
    ends = False

    def norms(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    def run(self, block: BlockLayer, stream: Tensor, ctx: Context, states: States) -> tuple[Tensor, States]:
        x, new = stream, {}
        for name in block.roles:
            y, new[name] = block.run_part(name, x, ctx, states.get(name))
            x = x + block.dropout(y)
        return x, new


def _refuse_without_residual(wiring: WiringSpec, can: Can, where: str) -> list[str]:
    """A token that does not see itself would be lost."""
    if can.itself:
        return []
    kind = kind_of(type(wiring))
    return [
        f"{where}: a token does not see itself there, and wiring {kind!r} has no residual; use 'pre_norm' or 'post_norm'"
    ]
