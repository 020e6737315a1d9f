"""Count the working memory of a request before it computes.

    attention weights   rows × heads × length × length, of one layer; of all layers where they are kept
    logits              length × vocabulary, of a row
    stream              rows × length × the widest linear layer
    decoder state       tokens × what a layer remembers of each, of all layers and hypotheses

Every pass of a served model comes here first (`Net.check_pass`), whichever route it serves, and every sequence before it waits
for its turn. Numbers count as float32, and a mixer that looks at a part of the tokens counts what it looks at.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from regard.errors import DataError
from regard.files.storage import format_bytes
from regard.model.net import Net, PassSize
from regard.nn.blocks.body import Body
from regard.nn.blocks.head import Classes, Vector
from regard.nn.core.mixer import Mixer
from regard.nn.core.part import Part

NUMBER = 4
"""Bytes of a float32."""
WORKING_MEMORY = 2 << 30
"""Bytes that a request may need by default, besides the models."""
MAX_WEIGHTS = 4_000_000
"""Attention weights in one answer."""
SHORT = 128
"""Tokens of a pass that is never looked at: it needs little, and there are many such steps."""


class WorkLimit:
    """Refuses what would need more than `allowed` bytes."""

    def __init__(self, net: Net, allowed: int = WORKING_MEMORY) -> None:
        self._allowed, self._vocab = allowed, 0
        if not isinstance(net.spec.head, Classes | Vector):
            self._vocab = net.spec.embed.vocab or 0
        bodies = {"encoder": net.encoder, "decoder": net.decoder}
        self._mixers = {side: _list_mixers(body) for side, body in bodies.items()}
        self._places = {side: 0 if self._mixers[side] else _count_places(body) for side, body in bodies.items()}
        self._widest = max((part.out_features for part in net.modules() if isinstance(part, nn.Linear)), default=0)

    def check_pass(self, size: PassSize) -> None:
        """Refuse a pass that would need too much."""
        rows, n, m, seen = size.rows, size.length, size.source, size.length + size.before
        if rows * n * max(m, seen) <= SHORT * SHORT:
            return
        mixers = self._mixers[size.side]
        weights = [rows * each.heads * n * _count_seen(each, seen, m) for each in mixers]
        parts = {
            "attention weights": max([self._count_kept(size), *weights]),
            "logits": n * self._vocab,
            "the stream": rows * n * self._widest,
        }
        lengths = f"{n:,} tokens" if not m else f"{n:,} tokens after a source of {m:,}"
        self._check(parts, lengths if rows == 1 else f"{rows} rows of {lengths}")

    def check_sequence(self, source: int, written: int, rows: int, *, has_encoder: bool) -> None:
        """Refuse a sequence whose state would need too much while it is decoded: `written` tokens in `rows` hypotheses."""
        total = written if has_encoder else source + written
        if rows * (total + source) <= SHORT:
            return
        own = sum(each.state_numbers(total) for each in self._mixers["decoder"] if each.site.causal)
        cross = [each for each in self._mixers["decoder"] if each.site.role == "cross"]
        memory = sum(2 * source * each.site.width for each in cross)
        parts = {"the state of the decoder": rows * int(own) + memory}
        self._check(parts, f"{source:,} tokens, up to {written:,} written in {rows} hypotheses")

    def check_answer(self, sizes: Sequence[PassSize]) -> None:
        """Refuse passes whose attention weights are too many to be sent."""
        total = sum(self._count_kept(size) for size in sizes)
        if total > MAX_WEIGHTS:
            lengths = " and ".join(f"{size.length + size.before:,}" for size in sizes)
            raise DataError(
                f"texts of {lengths} tokens have {total:,} attention weights in all layers and heads, and an answer may have "
                f"{MAX_WEIGHTS:,}; shorten them"
            )

    def _count_kept(self, size: PassSize) -> int:
        """The number of attention weights that a pass keeps, whatever its mixers look at."""
        seen, maps = size.length + size.before, 0
        for each in self._mixers[size.side]:
            if size.keeps(f"{each.site.path}.weights"):
                maps += each.heads * (size.source if each.site.role == "cross" else seen)
        if size.keeps(f"{size.side}.cross.weights"):
            maps += self._places[size.side] * max(size.source, seen)
        return size.rows * size.length * maps

    def _check(self, parts: dict[str, int], asked: str) -> None:
        needed = sum(parts.values()) * NUMBER
        if needed <= self._allowed:
            return
        largest = max(parts, key=parts.__getitem__)
        raise DataError(
            f"{asked} need about {format_bytes(needed)} of working memory, most of it for {largest}, and a request may need "
            f"{format_bytes(self._allowed)}; shorten the text"
        )


def _list_mixers(body: nn.Module | None) -> list[Mixer]:
    """Return the mixers with heads that look at other tokens."""
    parts = [] if body is None else body.modules()
    return [part for part in parts if isinstance(part, Mixer) and hasattr(part, "head_width")]


def _count_places(body: Body | None) -> int:
    """Return at how many places a body without such mixers looks at others with one head, at most."""
    return 0 if body is None else max(sum(isinstance(part, Part) for part in body.modules()), 8)


def _count_seen(mixer: Mixer, n: int, m: int) -> int:
    """The number of keys for each query, as the mixer counts its own work."""
    keys = m if mixer.site.role == "cross" else n
    per_key = 4.0 * mixer.heads * float(getattr(mixer, "head_width", 1))
    growth = mixer.flops(max(n, 1), max(m, 1)) - mixer.flops(1, 1)
    return min(keys, int(2 * max(growth, 0.0) / per_key) + 1)  # twice: a causal mixer counts half of its triangle
