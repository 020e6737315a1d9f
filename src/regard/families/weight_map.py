"""Weight names of other projects, for import and export.

    ours                              theirs
    decoder.blocks.3.mix.out.weight   transformer.h.3.attn.c_proj.weight    Name; `turned`, for theirs is (in, out)
    decoder.blocks.3.mix.{q,k,v}      transformer.h.3.attn.c_attn           Join
    –                                 lm_head.weight                        Again: it is transformer.wte.weight
    –                                 transformer.h.3.attn.bias             Drop: a mask, nothing learned

A row speaks of a part, that is of its weight and its bias, or of one parameter; {} is the layer. What of ours no row speaks of
cannot be exported, and what of theirs no row speaks of is surplus.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from regard.errors import SpecError

Shapes = Mapping[str, tuple[int, ...]]
_ENDS = r"(\.weight|\.bias|)"


@dataclasses.dataclass(frozen=True)
class Name:
    """A part of ours is a part of theirs, which may be stored (in, out), `turned`, or have `lead` dimensions of one in front.

    With `beside` the row holds only where ours has that part too.
    """

    ours: str
    theirs: str
    turned: bool = False
    lead: int = 0
    beside: str | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.ours,)

    def pack(self, ours: Sequence[Tensor]) -> Tensor:
        value = ours[0].t() if self.turned else ours[0]
        return value.reshape(*[1] * self.lead, *value.shape)

    def unpack(self, theirs: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        value = theirs.reshape(theirs.shape[self.lead :])
        return [value.t() if self.turned else value]


@dataclasses.dataclass(frozen=True)
class Join:
    """Several maps of ours are one of theirs, side by side along the outputs."""

    parts: tuple[str, ...]
    theirs: str
    turned: bool = False
    beside: str | None = None

    def pack(self, ours: Sequence[Tensor]) -> Tensor:
        value = torch.cat(list(ours))
        return value.t() if self.turned else value

    def unpack(self, theirs: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        return list(torch.split(theirs.t() if self.turned else theirs, list(sizes)))


@dataclasses.dataclass(frozen=True)
class Again:
    """Theirs is `of` once more, a tied weight: equal to it where both are there, and in its place where it is missing.

    It is not written, but with `beside` where ours has that part: there they do not tie what they read.
    """

    theirs: str
    of: str
    beside: str | None = None


@dataclasses.dataclass(frozen=True)
class Drop:
    """Theirs holds nothing learned; with `zero`, as long as it is zero."""

    theirs: str
    zero: bool = False


Row = Name | Join | Again | Drop
Rows = tuple[Row, ...]


@dataclasses.dataclass(frozen=True)
class Link:
    """One weight of theirs, and those of ours that it holds."""

    row: Name | Join
    ours: tuple[str, ...]
    theirs: str


def links(rows: Rows, ours: Iterable[str]) -> list[Link]:
    """Whose weight each of ours is: the first row that speaks of it says. All that no row speaks of are in one error."""
    names, out, lost = list(ours), dict[str, Link](), list[str]()
    there = set(names)
    for name in names:
        link = next(
            (found for row in rows if isinstance(row, Name | Join) and (found := _link(row, name, there))), None
        )
        if link is None:
            lost.append(name)
        else:
            out[link.theirs] = link
    if lost:
        raise SpecError(f"no place elsewhere for {', '.join(lost)}")
    return list(out.values())


def exported(rows: Rows, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our weights under their names, in their layout."""
    out = _packed(rows, ours)
    for row in rows:
        if (
            isinstance(row, Again)
            and row.beside is not None
            and f"{row.beside}.weight" in ours
            and row.theirs not in out
        ):
            out[row.theirs] = out[row.of].clone()
    return out


def expected(rows: Rows, ours: Shapes) -> dict[str, tuple[int, ...]]:
    """The shapes of theirs for weights of ours with these shapes, copies left out."""
    try:
        made = _packed(rows, {name: torch.empty(shape, device="meta") for name, shape in ours.items()})
    except RuntimeError as error:  # sizes that no tensor can have
        raise SpecError(f"this model cannot be built: {str(error).partition(chr(10))[0]}") from None
    return {name: tuple(value.shape) for name, value in made.items()}


def faults(rows: Rows, ours: Shapes, theirs: Shapes) -> list[str]:
    """Every missing, surplus or mis-shaped weight of theirs, from shapes alone."""
    wanted = expected(rows, ours)
    stands_in = _again(rows, theirs, wanted).values()
    out = [f"{name} is missing" for name in wanted if name not in theirs and name not in stands_in]
    for name, shape in theirs.items():
        if name in wanted and shape != wanted[name]:
            out.append(f"{name} should be {wanted[name]}, got {shape}")
        elif name not in wanted and not _spoken_of(rows, name):
            out.append(f"{name} is not of this model")
    return out


def imported(rows: Rows, ours: Shapes, theirs: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Their weights, which have no `faults`, as ours; and copies that differ from what they should repeat."""
    tables = links(rows, ours)
    wanted = {link.theirs for link in tables}
    again = _again(rows, theirs, wanted)
    wrong = [
        f"{name} should be the same as {of}"
        for name, of in again.items()
        if name not in wanted and of in theirs and not torch.equal(theirs[name], theirs[of])
    ]
    wrong += [
        f"{name} should be zero: ours has no place for it"
        for name in theirs
        if _blank(rows, name) and theirs[name].any()
    ]
    stands_in = {of: theirs[name] for name, of in again.items()}
    out: dict[str, Tensor] = {}
    for link in tables:
        value = theirs[link.theirs] if link.theirs in theirs else stands_in[link.theirs]
        out.update(zip(link.ours, link.row.unpack(value, [ours[name][0] for name in link.ours]), strict=True))
    return out, wrong


def _packed(rows: Rows, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {link.theirs: link.row.pack([ours[name] for name in link.ours]) for link in links(rows, ours)}


def _link(row: Name | Join, name: str, there: set[str]) -> Link | None:
    """What a row says of a weight of ours, if anything."""
    for part in row.parts:
        if found := _match(part, name):
            *layer, end = found.groups()
            if row.beside is not None and f"{row.beside.format(*layer)}.weight" not in there:
                return None
            return Link(row, tuple(p.format(*layer) + end for p in row.parts), row.theirs.format(*layer) + end)
    return None


def _match(template: str, name: str) -> re.Match[str] | None:
    return re.fullmatch(re.escape(template).replace(r"\{\}", r"(\d+)") + _ENDS, name)


def _again(rows: Rows, theirs: Iterable[str], wanted: Container[str]) -> dict[str, str]:
    """Weights of theirs that repeat one that is wanted, and which."""
    copies = {row.theirs: row.of for row in rows if isinstance(row, Again) and row.of in wanted}
    return {name: copies[name] for name in theirs if name in copies}


def _spoken_of(rows: Rows, name: str) -> bool:
    return any(isinstance(row, Again | Drop) and _match(row.theirs, name) for row in rows)


def _blank(rows: Rows, name: str) -> bool:
    return any(isinstance(row, Drop) and row.zero and _match(row.theirs, name) for row in rows)
