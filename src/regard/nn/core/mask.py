"""Mask rules over coordinates, joined with & and |.

    Causal()                    Window(1)                  Causal() & Window(1)
    1 . . .                     1 1 . .                    1 . . .
    1 1 . .                     1 1 1 .                    1 1 . .
    1 1 1 .                     . 1 1 1                    . 1 1 .
    1 1 1 1                     . . 1 1                    . . 1 1

    Causal() & Strided(2)       Causal() & Fixed(2)        Window(1, dilation=2)
    1 . . . . .                 1 . . . . .                1 . 1 . . .
    1 1 . . . .                 1 1 . . . .                . 1 . 1 . .
    1 1 1 . . .                 . 1 1 . . .                1 . 1 . 1 .
    . 1 1 1 . .                 . 1 1 1 . .                . 1 . 1 . 1
    1 . 1 1 1 .                 . 1 . 1 1 .                . . 1 . 1 .
    . 1 . 1 1 1                 . 1 . 1 1 1                . . . 1 . 1

Padding is never visible, and documents never see each other: `visible` adds both to every rule. Rules read positions, not
columns, so they are correct with caches, left padding, packing and memories of earlier segments.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import SpecError
from regard.nn.core.coords import Coords
from regard.registry import Registry
from regard.spec import Count, Spec, spec

RULES: Registry[type[Rule]] = Registry("mask rule")


class Rule(Spec):
    """Decides which keys a query may see."""

    registry = RULES

    def allows(self, q: Coords, k: Coords) -> Tensor | None:
        """True where the query may see the key, (b | 1, n, m); None for everywhere."""
        raise NotImplementedError

    def __and__(self, other: Rule) -> Rule:
        return AllOf((self, other))

    def __or__(self, other: Rule) -> Rule:
        return AnyOf((self, other))


@RULES.add
@spec
class Everything(Rule):
    """Every query sees every key."""

    def allows(self, q: Coords, k: Coords) -> Tensor | None:
        return None


@RULES.add
@spec
class Causal(Rule):
    """A query sees itself and earlier keys."""

    def allows(self, q: Coords, k: Coords) -> Tensor | None:
        return q.pos.unsqueeze(2) >= k.pos.unsqueeze(1)


@RULES.add
@spec
class Window(Rule):
    """A query sees `reach` keys on either side, `dilation` positions apart."""

    reach: Count
    dilation: Count = 1

    def allows(self, q: Coords, k: Coords) -> Tensor | None:
        away = q.pos.unsqueeze(2) - k.pos.unsqueeze(1)
        near = away.abs() <= self.reach * self.dilation
        return near if self.dilation == 1 else near & (away % self.dilation == 0)


@RULES.add
@spec
class Strided(Rule):
    """A query sees keys at most `stride` positions away, and every `stride`-th beyond (Child et al. 2019)."""

    stride: Count

    def allows(self, q: Coords, k: Coords) -> Tensor | None:
        away = q.pos.unsqueeze(2) - k.pos.unsqueeze(1)
        return (away.abs() <= self.stride) | (away % self.stride == 0)


@RULES.add
@spec
class Fixed(Rule):
    """A query sees its own block of `stride` positions, and the last `summary` positions of every block (same paper)."""

    stride: Count
    summary: Count = 1

    def __post_init__(self) -> None:
        if self.summary > self.stride:
            raise SpecError(f"summary should be at most the stride {self.stride}, got {self.summary}")

    def allows(self, q: Coords, k: Coords) -> Tensor | None:
        own = q.pos.unsqueeze(2) // self.stride == k.pos.unsqueeze(1) // self.stride
        return own | self.sums_up(k).unsqueeze(1)

    def sums_up(self, at: Coords) -> Tensor:
        """The positions that every query sees, (b | 1, n)."""
        return at.pos % self.stride >= self.stride - self.summary


@RULES.add
@spec
class Tagged(Rule):
    """Tagged (global) tokens see all and are seen by all."""

    def allows(self, q: Coords, k: Coords) -> Tensor | None:
        return _is_tagged(q).unsqueeze(2) | _is_tagged(k).unsqueeze(1)


@RULES.add
@spec
class AllOf(Rule):
    """All of the rules allow it."""

    kind = "all"
    rules: tuple[Rule, ...]

    def allows(self, q: Coords, k: Coords) -> Tensor | None:
        out: Tensor | None = None
        for rule in self.rules:
            allowed = rule.allows(q, k)
            out = allowed if out is None else out if allowed is None else out & allowed
        return out


@RULES.add
@spec
class AnyOf(Rule):
    """At least one of the rules allows it."""

    kind = "any"
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        if not self.rules:
            raise SpecError("a mask of kind 'any' needs at least one rule: without one, nothing would be visible")

    def allows(self, q: Coords, k: Coords) -> Tensor | None:
        out: Tensor | None = None
        for rule in self.rules:
            allowed = rule.allows(q, k)
            if allowed is None:
                return None
            out = allowed if out is None else out | allowed
        return out


def visible(rule: Rule, q: Coords, k: Coords) -> Tensor | None:
    """Combine a rule with padding and documents: True where a query sees a key, (b | 1, n | 1, m); None for everywhere."""
    keep = rule.allows(q, k)
    if k.padded:
        there = k.kept.unsqueeze(1)
        keep = there if keep is None else keep & there
    if q.doc is not None and k.doc is not None:
        same = q.doc.unsqueeze(2) == k.doc.unsqueeze(1)
        keep = same if keep is None else keep & same
    return keep


def _is_tagged(at: Coords) -> Tensor:
    return torch.zeros_like(at.pos, dtype=torch.bool) if at.tag is None else at.tag > 0
